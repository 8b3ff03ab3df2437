//! When the pool's threads are with a crew, and when they sleep.

use crate::clock::Instant;
use std::cell::{Cell, RefCell};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::crew::{Crew, MAX_PIECES, Owner, Work};
use super::pool;
use super::sync::Arc;

/// A crew and how many of the pool's threads are with it.
struct Watch {
    crew: Arc<Crew>,
    /// Threads that were called and have not come yet.
    called: AtomicUsize,
    /// Threads that watch for work now.
    watching: AtomicUsize,
}

/// A thread's own crew.
struct Own {
    owner: Owner,
    watch: Arc<Watch>,
}

/// Idle for this long, a thread may sleep (nanoseconds).
const PATIENCE: u64 = 200_000;
/// Then it gives way in any case, and the next parallel part calls it again: a thread that was
/// caught watching in the middle of another job gets back to it.
const ROUND: u64 = 10_000_000;

thread_local! {
    static OWN: RefCell<Option<Own>> = const { RefCell::new(None) };
    /// Whether this thread watches for another, or is in the middle of a job for its own crew.
    static WATCHING: Cell<bool> = const { Cell::new(false) };
}

fn nanoseconds() -> u64 {
    static START: OnceLock<Instant> = OnceLock::new();
    START.get_or_init(Instant::now).elapsed().as_nanos() as u64
}

/// Gives the work to this thread's crew if all of its helpers are awake; otherwise calls them and
/// returns false, with nothing done. Changes when work is done, never what.
pub(super) fn run(pieces: usize, work: &Work<'_>) -> bool {
    let Some(thread) = rayon::current_thread_index() else {
        return false;
    };
    let others = rayon::current_num_threads() - 1;
    let helpers = others.min(pool::cores() - 1);
    if helpers == 0 || WATCHING.get() || pieces > MAX_PIECES {
        return false;
    }
    OWN.with(|own| {
        let Ok(mut own) = own.try_borrow_mut() else {
            return false;
        };
        let Own { owner, watch } = own.get_or_insert_with(|| Own::new(helpers));
        if watch.watching.load(Ordering::Relaxed) == helpers {
            WATCHING.set(true);
            let _done = Watched;
            owner.run(pieces, work);
            return true;
        }
        if watch.called.load(Ordering::Acquire) == 0 {
            watch.called.store(others, Ordering::Release);
            call(watch.clone(), thread, helpers);
        }
        false
    })
}

impl Own {
    fn new(helpers: usize) -> Self {
        let owner = Owner::new(helpers + 1);
        let watch = Arc::new(Watch {
            crew: owner.crew().clone(),
            called: AtomicUsize::new(0),
            watching: AtomicUsize::new(0),
        });
        Own { owner, watch }
    }
}

/// Calls all of the pool's threads but the owner's to the crew.
fn call(watch: Arc<Watch>, owner: usize, helpers: usize) {
    rayon::spawn_broadcast(move |context| {
        if context.index() != owner {
            if !WATCHING.replace(true) {
                watch_for_work(&watch, helpers);
                WATCHING.set(false);
            }
            watch.called.fetch_sub(1, Ordering::AcqRel);
        }
    });
}

/// Helps the crew, and others as rayon does, until there has been nothing to do for a while.
fn watch_for_work(watch: &Watch, helpers: usize) {
    let member = 1 + watch.watching.fetch_add(1, Ordering::SeqCst);
    if member > helpers {
        watch.watching.fetch_sub(1, Ordering::SeqCst);
        return;
    }
    let crew = &*watch.crew;
    let start = nanoseconds();
    let mut last = start;
    let mut seen = 0;
    for turn in 1_u32.. {
        let mut busy = false;
        for _ in 0..32 {
            busy |= crew.help(member, &mut seen);
            std::hint::spin_loop();
        }
        busy |= rayon::yield_now() == Some(rayon::Yield::Executed);
        let now = nanoseconds();
        if busy {
            last = now;
        }
        if now - last > PATIENCE || now - start > ROUND {
            break;
        }
        if turn.is_multiple_of(8) {
            // Others on a busy machine go first.
            std::thread::yield_now();
        }
    }
    watch.watching.fetch_sub(1, Ordering::SeqCst);
    // A job that counts on this thread may have been opened meanwhile.
    crew.help(member, &mut seen);
}

/// Ends the time in which a thread works for its own crew.
struct Watched;

impl Drop for Watched {
    fn drop(&mut self) {
        WATCHING.set(false);
    }
}
