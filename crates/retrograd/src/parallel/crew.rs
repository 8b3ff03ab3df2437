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
//! touch it.

use std::any::Any;
use std::cell::UnsafeCell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

/// What a piece of work is given to.
type Work<'a> = dyn Fn(usize) + Sync + 'a;

/// Alone on its cache lines (two, since they are fetched in pairs).
#[repr(align(128))]
struct Apart<T>(T);

/// The pieces that one member has yet to do, `first` in the low and `end` in the high half.
struct Span(AtomicU64);

impl Span {
    fn set(&self, first: usize, end: usize) {
        let both = first as u64 | (end as u64) << 32;
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

/// An owner and its helpers.
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

impl Crew {
    pub fn new(members: usize) -> Self {
        let span = || Apart(Span(AtomicU64::new(0)));
        Crew {
            epoch: Apart(AtomicU64::new(0)),
            inside: Apart(AtomicUsize::new(0)),
            spans: std::iter::repeat_with(span).take(members).collect(),
            job: UnsafeCell::new(None),
            panicked: AtomicBool::new(false),
            panic: Mutex::new(None),
        }
    }

    /// Calls `work` for every piece, with the helpers that come. For the owner's thread alone, and
    /// not within a job.
    pub fn run(&self, pieces: usize, work: &Work<'_>) {
        let members = self.spans.len();
        for (member, span) in self.spans.iter().enumerate() {
            span.0
                .set(pieces * member / members, pieces * (member + 1) / members);
        }
        #[allow(unsafe_code, reason = "the job's lifetime ends with this call")]
        // SAFETY: no helper is inside, so nobody reads it; and none is once this call returns or
        // unwinds, so nobody follows the pointer later (`Open` sees to it).
        unsafe {
            let work: *const Work<'_> = work;
            *self.job.get() =
                Some(std::mem::transmute::<*const Work<'_>, *const Work<'static>>(work));
        }
        self.epoch.0.fetch_add(1, Ordering::SeqCst);
        let open = Open(self);
        self.work(0, work);
        drop(open);
        if self.panicked.swap(false, Ordering::Relaxed) {
            let panic = self.panic.lock().ok().and_then(|mut p| p.take());
            resume_unwind(panic.unwrap_or_else(|| Box::new("a helper panicked")));
        }
    }

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
        let epoch = self.epoch.0.load(Ordering::SeqCst);
        *seen = epoch;
        if !epoch.is_multiple_of(2) {
            #[allow(unsafe_code, reason = "the owner waits for us")]
            // SAFETY: the job is open and we are inside: the owner keeps it until we leave.
            let work = unsafe { &*(*self.job.get()).expect("an open job") };
            if let Err(panic) = catch_unwind(AssertUnwindSafe(|| self.work(member, work))) {
                if let Ok(mut first) = self.panic.lock() {
                    first.get_or_insert(panic);
                }
                self.panicked.store(true, Ordering::Relaxed);
            }
        }
        self.inside.0.fetch_sub(1, Ordering::Release);
        true
    }
}

/// Closes the job and waits for the helpers, also when the owner's own part panics.
struct Open<'a>(&'a Crew);

impl Drop for Open<'_> {
    fn drop(&mut self) {
        self.0.epoch.0.fetch_add(1, Ordering::SeqCst);
        let mut turns = 0_u32;
        while self.0.inside.0.load(Ordering::SeqCst) != 0 {
            turns = turns.wrapping_add(1);
            if turns.is_multiple_of(1 << 12) {
                // The helper's core may have another process on it.
                std::thread::yield_now();
            } else {
                std::hint::spin_loop();
            }
        }
    }
}
