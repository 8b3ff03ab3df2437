//! The crew's protocol in every order that the memory model allows, up to a number of preemptions:
//! an owner and helpers, jobs one after the other, and panics. The command is in `crew.rs`.
//!
//! The numbers that the pieces write are loom's cells: it fails where two threads use one without
//! an order between them, as the owner would if it didn't wait for the helper.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};

use loom::cell::UnsafeCell;
use loom::thread;

use super::crew::Owner;

/// How often each piece was done.
struct Done(Vec<UnsafeCell<usize>>);

#[allow(unsafe_code, reason = "what is checked")]
// SAFETY: loom says where it isn't.
unsafe impl Sync for Done {}

#[allow(
    unsafe_code,
    reason = "loom's cells are read and written through pointers"
)]
impl Done {
    fn new(pieces: usize) -> Self {
        Done((0..pieces).map(|_| UnsafeCell::new(0)).collect())
    }

    fn add(&self, piece: usize) {
        // SAFETY: loom checks that no other thread is there.
        self.0[piece].with_mut(|count| unsafe { *count += 1 });
    }

    fn counts(&self) -> Vec<usize> {
        // SAFETY: as above.
        let count = |cell: &UnsafeCell<usize>| cell.with(|count| unsafe { *count });
        self.0.iter().map(count).collect()
    }
}

/// Tries jobs in all orders, while each of some helpers looks for work twice.
fn check(helpers: usize, preemptions: usize, jobs: impl Fn(&mut Owner) + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(move || {
        let mut owner = Owner::new(1 + helpers);
        let help = |member: usize| {
            let crew = owner.crew().clone();
            thread::spawn(move || {
                let mut seen = 0;
                for _ in 0..2 {
                    crew.help(member, &mut seen);
                }
            })
        };
        let helpers: Vec<_> = (1..=helpers).map(help).collect();
        jobs(&mut owner);
        for helper in helpers {
            helper.join().expect("a helper keeps panics for the owner");
        }
    });
}

#[test]
fn pieces_of_two_jobs_are_done_once_and_before_the_owner_goes_on() {
    static HELPED: AtomicUsize = AtomicUsize::new(0);
    check(1, 5, |owner| {
        let this = thread::current().id();
        for job in 0..2 {
            let done = Done::new(2 + job);
            owner.run(2 + job, &|piece| {
                done.add(piece);
                if thread::current().id() != this {
                    HELPED.fetch_add(1, Ordering::Relaxed);
                }
            });
            assert!(done.counts().iter().all(|&count| count == 1));
        }
    });
    assert!(HELPED.load(Ordering::Relaxed) > 0, "no order had help");
}

#[test]
fn two_helpers_share_a_job() {
    check(2, 2, |owner| {
        let done = Done::new(3);
        owner.run(3, &|piece| done.add(piece));
        assert_eq!(done.counts(), [1, 1, 1]);
    });
}

#[test]
fn a_panic_reaches_the_owner_and_not_its_next_job() {
    for bad in 0..2 {
        check(1, 4, move |owner| {
            let outcome = catch_unwind(AssertUnwindSafe(|| {
                owner.run(2, &|piece| {
                    if piece == bad {
                        resume_unwind(Box::new("the bad piece"));
                    }
                });
            }));
            assert!(outcome.is_err());
            let done = Done::new(2);
            owner.run(2, &|piece| done.add(piece));
            assert_eq!(done.counts(), [1, 1]);
        });
    }
}

#[test]
fn panics_on_both_sides_are_one() {
    check(1, 4, |owner| {
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            owner.run(2, &|_| resume_unwind(Box::new("every piece")));
        }));
        assert!(outcome.is_err());
        let done = Done::new(1);
        owner.run(1, &|piece| done.add(piece));
        assert_eq!(done.counts(), [1]);
    });
}
