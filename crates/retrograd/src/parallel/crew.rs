//! Helpers that wait for short work without sleeping.
//!
//! A step is dozens of parallel parts of a few microseconds with serial ones between them. rayon
//! puts idle threads to sleep within microseconds, to wake a sleeping core costs more than such a
//! part, and even an awake thread is found through queues and system calls, 1 to 2 µs a part. A
//! crew is some of the pool's threads that poll one number instead: 0.3 µs a part.
//!
//! ```text
//! owner:   job and spans ← …; epoch ← odd; work; epoch ← even; wait until inside = 0
//! helper:  epoch is odd and new: inside += 1; epoch still odd? work; inside −= 1
//! ```
//!
//! Both sides write first and then look, in one order that all threads agree on: either the owner
//! sees the helper inside and waits for it, or the helper sees that the job is closed and does not
//! touch it. loom tries this in all orders that the memory model allows (`tests/loom.rs`):
//!
//! ```sh
//! RUSTFLAGS='--cfg loom' cargo test --release -p retrograd --no-default-features --lib \
//!     --target-dir target/loom parallel::loom
//! ```

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use super::sync::{
    self, Arc, AtomicBool, AtomicU64, AtomicUsize, Mutex, Ordering, UnsafeCell, one_order,
};

/// What a piece of work is given to.
pub(super) type Work<'a> = dyn Fn(usize) + Sync + 'a;

/// A span has 32 bits for the number of a piece.
pub(super) const MAX_PIECES: usize = u32::MAX as usize;

/// Alone on its cache lines (two, since they are fetched in pairs).
#[repr(align(128))]
struct Apart<T>(T);

/// The pieces that one member has yet to do, `first` in the low and `end` in the high half.
struct Span(AtomicU64);

impl Span {
    fn set(&self, first: u64, end: u64) {
        let both = first | end << 32;
        self.0.store(both, Ordering::Relaxed);
    }

    /// One of its pieces: the first for the member itself, the last for others who are done.
    fn take(&self, own: bool) -> Option<usize> {
        let mut both = self.0.load(Ordering::Relaxed);
        loop {
            let (first, end) = (both & 0xffff_ffff, both >> 32);
            if first >= end {
                return None;
            }
            let (piece, rest) = if own {
                (first, (first + 1) | end << 32)
            } else {
                (end - 1, first | (end - 1) << 32)
            };
            match self
                .0
                .compare_exchange_weak(both, rest, Ordering::Relaxed, Ordering::Relaxed)
            {
                Ok(_) => return Some(piece as usize),
                Err(now) => both = now,
            }
        }
    }
}

/// What an owner and its helpers share.
pub(super) struct Crew {
    /// Odd while a job is open.
    epoch: Apart<AtomicU64>,
    /// Helpers that are at the job, or look whether it is open.
    inside: Apart<AtomicUsize>,
    /// One for every member; the owner's is the first.
    spans: Box<[Apart<Span>]>,
    job: UnsafeCell<Option<*const Work<'static>>>,
    panicked: AtomicBool,
    panic: Mutex<Option<Box<dyn Any + Send>>>,
}

#[allow(unsafe_code, reason = "a job borrows from the owner's stack")]
// SAFETY: `job` is written by the owner alone, before it opens an epoch that no helper is inside
// of; helpers read it while they are inside an open one. See the module's text.
unsafe impl Sync for Crew {}
#[allow(unsafe_code, reason = "as above")]
// SAFETY: the pointer is only followed while a job is open.
unsafe impl Send for Crew {}

/// The one who gives work to a crew. There is one of a crew, and a job borrows it exclusively: no
/// second job can begin before the first has ended.
pub(super) struct Owner(Arc<Crew>);

impl Owner {
    /// Of a new crew.
    pub fn new(members: usize) -> Self {
        let span = || Apart(Span(AtomicU64::new(0)));
        assert!((1..=MAX_PIECES).contains(&members), "{members} members");
        Owner(Arc::new(Crew {
            epoch: Apart(AtomicU64::new(0)),
            inside: Apart(AtomicUsize::new(0)),
            spans: std::iter::repeat_with(span).take(members).collect(),
            job: UnsafeCell::new(None),
            panicked: AtomicBool::new(false),
            panic: Mutex::new(None),
        }))
    }

    /// For helpers.
    pub fn crew(&self) -> &Arc<Crew> {
        &self.0
    }

    /// Calls `work` for every piece, with the helpers that come.
    ///
    /// # Panics
    /// Where `work` does, once all helpers have left; and, before anything is done, where there are
    /// more than [`MAX_PIECES`].
    pub fn run(&mut self, pieces: usize, work: &Work<'_>) {
        assert!(pieces <= MAX_PIECES, "{pieces} pieces, at most 2³² − 1");
        let crew = &*self.0;
        let (pieces, members) = (pieces as u64, crew.spans.len() as u64);
        for (member, span) in (0..).zip(&crew.spans) {
            span.0
                .set(pieces * member / members, pieces * (member + 1) / members);
        }
        #[allow(unsafe_code, reason = "the job's lifetime ends with this call")]
        // SAFETY: no helper is inside, so nobody reads it; and none is once this call returns or
        // unwinds, so nobody follows the pointer later (`Open` sees to it).
        crew.job.with_mut(|job| unsafe {
            let work: *const Work<'_> = work;
            *job = Some(std::mem::transmute::<*const Work<'_>, *const Work<'static>>(work));
        });
        crew.epoch.0.fetch_add(1, Ordering::SeqCst);
        let mut open = Open {
            crew,
            unwinds: true,
        };
        crew.work(0, work);
        open.unwinds = false;
        drop(open);
        if crew.panicked.swap(false, Ordering::Relaxed) {
            let panic = crew.panic.lock().ok().and_then(|mut p| p.take());
            resume_unwind(panic.unwrap_or_else(|| Box::new("a helper panicked")));
        }
    }
}

impl Crew {
    /// Own pieces first, then those of the others.
    fn work(&self, member: usize, work: &Work<'_>) {
        while let Some(piece) = self.spans[member].0.take(true) {
            work(piece);
        }
        let members = self.spans.len();
        for other in 1..members {
            let span = &self.spans[(member + other) % members].0;
            while let Some(piece) = span.take(false) {
                work(piece);
            }
        }
    }

    /// Takes part in the job that is open, unless it is the epoch `seen`, which it was done with.
    /// Returns whether anything was open or had happened since.
    pub fn help(&self, member: usize, seen: &mut u64) -> bool {
        let epoch = self.epoch.0.load(Ordering::Relaxed);
        if epoch == *seen {
            return false;
        }
        *seen = epoch;
        if epoch.is_multiple_of(2) {
            return true;
        }
        self.inside.0.fetch_add(1, Ordering::SeqCst);
        one_order();
        let epoch = self.epoch.0.load(Ordering::SeqCst);
        *seen = epoch;
        if !epoch.is_multiple_of(2) {
            #[allow(unsafe_code, reason = "the owner waits for us")]
            // SAFETY: the job is open and we are inside: the owner keeps it until we leave.
            let work = unsafe { &*self.job.with(|job| *job).expect("an open job") };
            if let Err(panic) = catch_unwind(AssertUnwindSafe(|| self.work(member, work))) {
                self.keep(panic);
            }
        }
        self.inside.0.fetch_sub(1, Ordering::Release);
        true
    }

    /// Keeps a helper's panic for the owner: the first.
    #[cold]
    fn keep(&self, panic: Box<dyn Any + Send>) {
        if let Ok(mut first) = self.panic.lock()
            && first.is_none()
        {
            *first = Some(panic);
        } else {
            // What it carries might panic itself when dropped, and nobody would leave the job.
            std::mem::forget(panic);
        }
        self.panicked.store(true, Ordering::Relaxed);
    }
}

/// Closes the job and waits for the helpers, also when the owner's own part panics.
struct Open<'a> {
    crew: &'a Crew,
    unwinds: bool,
}

impl Drop for Open<'_> {
    fn drop(&mut self) {
        self.crew.epoch.0.fetch_add(1, Ordering::SeqCst);
        one_order();
        let mut turn = 0_u32;
        while self.crew.inside.0.load(Ordering::SeqCst) != 0 {
            turn = turn.wrapping_add(1);
            sync::wait(turn);
        }
        if self.unwinds && self.crew.panicked.swap(false, Ordering::Relaxed) {
            // The owner's panic is the one that is heard; a helper's must not come up after a later
            // job.
            let panic = self.crew.panic.lock().ok().and_then(|mut p| p.take());
            std::mem::forget(panic);
        }
    }
}
