//! Threads, and the rules that keep results the same for any number of them. Only this module
//! calls rayon (`clippy.toml` sees to it).
//!
//! Work is cut by the size of the problem, never by the number of threads. Either a piece owns the
//! output it writes ([`for_each_chunk`], [`for_each`]), or every piece has a partial sum of its
//! own and the partial sums are added in the order of the pieces ([`sum_pieces`]). So 1, 2 or 64
//! threads give the same bits.
//!
//! Deterministic: everything here, given closures that depend on their piece alone. Not promised:
//! the order in which closures run, and the thread they run on.

mod crew;
mod parts;
mod pool;
mod scratch;
mod sync;
mod watch;

use std::sync::atomic::{AtomicUsize, Ordering};

use rayon::prelude::*;

pub(crate) use self::parts::{
    Band, Tensors, Uneven, for_each_band, for_each_chunk2, for_each_chunks, for_each_cut,
    for_each_share,
};
use self::parts::{Parts, chunks_of};
pub use self::pool::{MAX_THREADS, forked, threads, with_threads, within};
pub(crate) use self::scratch::{Workspace, with_scratch, with_workspace};

/// Calls `work(piece)` for every piece, in parallel if `parallel`.
pub fn for_each(pieces: usize, parallel: bool, work: impl Fn(usize) + Send + Sync) {
    run(pieces, parallel, &work);
}

/// [`for_each`], compiled once: with a copy for every closure, rayon's machinery was a seventh of
/// the command. A piece is long enough for a call through a pointer.
fn run(pieces: usize, parallel: bool, work: &crew::Work<'_>) {
    if !parallel || pieces <= 1 || threads() == 1 {
        (0..pieces).for_each(work);
        return;
    }
    #[cfg(test)]
    SHARED.set(SHARED.get() + 1);
    if !watch::run(pieces, work) {
        within(|| (0..pieces).into_par_iter().with_max_len(1).for_each(work));
    }
}

#[cfg(test)]
thread_local! {
    /// How often this thread has shared its work with others: a test of threads that never does tests
    /// nothing.
    pub(crate) static SHARED: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

/// Cuts `out` into chunks of `len` (the last may be shorter); `work(i, chunk)` owns chunk `i`.
///
/// # Panics
/// Where chunks have no length.
#[allow(unsafe_code, reason = "chunks are disjoint")]
pub fn for_each_chunk<T: Send>(
    out: &mut [T],
    len: usize,
    parallel: bool,
    work: impl Fn(usize, &mut [T]) + Send + Sync,
) {
    let pieces = chunks_of(out.len(), len);
    let out = Parts::new(out);
    // SAFETY: a chunk i begins within the array, and `for_each` calls for every piece once.
    for_each(pieces, parallel, |i| work(i, unsafe { out.chunk(i, len) }));
}

/// Takes the cache lines of some numbers over from other cores, for a loop that is about to write
/// them among other things: one number of every line is stored as it is.
///
/// Stores leave a core in order. One to a line that another core has read too waits until that copy
/// is gone, and all stores after it wait as well; when nothing is between them these waits overlap.
/// An Adam step of 63,000 parameters that both cores had read took 25.4 µs on two threads and 21.7
/// with this, one of 232,000 took 100 and 72 µs.
pub(crate) fn take_over<T: Copy>(numbers: &mut [T]) {
    if threads() > 1 {
        take_lines(numbers);
    }
}

/// [`take_over`] of what other processes have read.
#[allow(unsafe_code, reason = "a store that the compiler keeps")]
pub(crate) fn take_lines<T: Copy>(numbers: &mut [T]) {
    const LINE: usize = 64;
    for line in numbers.chunks_mut((LINE / size_of::<T>().max(1)).max(1)) {
        let number = &raw mut line[0];
        // SAFETY: a number that is borrowed exclusively, and of a type that may be copied.
        unsafe { number.write_volatile(number.read_volatile()) };
    }
}

/// Calls `work(i, item)` for every item; each call owns its item. For workspaces: one per piece.
pub(crate) fn for_each_mut<T: Send>(
    items: &mut [T],
    parallel: bool,
    work: impl Fn(usize, &mut T) + Send + Sync,
) {
    for_each_chunk(items, 1, parallel, |i, item| work(i, &mut item[0]));
}

/// Runs independent jobs, each alone on a thread of its own: everything parallel inside a job
/// stays on that thread. For jobs that keep state by thread (the verifier's roundings). Results
/// come in the order of the jobs; at most [`threads`] run at a time.
pub(crate) fn isolated<R: Send>(jobs: usize, work: impl Fn(usize) -> R + Send + Sync) -> Vec<R> {
    if jobs == 0 {
        return Vec::new();
    }
    let workers = threads().min(jobs);
    let next = AtomicUsize::new(0);
    let results = std::sync::Mutex::new((0..jobs).map(|_| None).collect::<Vec<Option<R>>>());
    let run = || {
        with_threads(1, || {
            loop {
                let job = next.fetch_add(1, Ordering::Relaxed);
                if job >= jobs {
                    return;
                }
                let result = work(job);
                results.lock().expect("no job panicked")[job] = Some(result);
            }
        });
    };
    // Threads of the system, not rayon's: a rayon thread that waits would start a second job
    // inside the first.
    std::thread::scope(|scope| {
        let mut started = 0;
        while started < workers {
            if let Err(error) = std::thread::Builder::new().spawn_scoped(scope, run) {
                pool::say_refused(&error, started, workers);
                break;
            }
            started += 1;
        }
        if started == 0 {
            run();
        }
    });
    let results = results.into_inner().expect("no job panicked");
    results
        .into_iter()
        .map(|result| result.expect("every job ran"))
        .collect()
}

/// Runs independent jobs, as many at once as there are threads, each alone on its own: what is parallel
/// inside a job stays there. Results come in the order of the jobs.
pub(crate) fn apart<R: Send>(jobs: usize, work: impl Fn(usize) -> R + Send + Sync) -> Vec<R> {
    let mut results: Vec<Option<R>> = (0..jobs).map(|_| None).collect();
    for_each_mut(&mut results, true, |job, result| {
        *result = Some(pool::alone(|| work(job)));
    });
    let results = results.into_iter();
    results.map(|r| r.expect("every job ran")).collect()
}

/// Whether the system starts so many threads at once, beside those that there are.
pub(crate) fn can_start(threads: usize) -> bool {
    if threads > pool::room_for_stacks() {
        return false;
    }
    let (end, ended) = std::sync::mpsc::channel::<()>();
    let ended = std::sync::Mutex::new(ended);
    std::thread::scope(|scope| {
        let wait = || {
            // Until the other end is gone.
            let _ = ended.lock().map(|ended| ended.recv());
        };
        let start = |_| std::thread::Builder::new().spawn_scoped(scope, wait);
        let all = (0..threads).map(start).all(|started| started.is_ok());
        drop(end);
        all
    })
}

/// Runs jobs that wait for each other, all at once, each alone on a thread of its own, while `conduct`
/// runs here. Results come in the order of the jobs.
///
/// # Panics
/// Where a job does, once all have ended; where the system refuses a thread ([`can_start`]).
pub(crate) fn conducted<R: Send>(
    jobs: usize,
    work: impl Fn(usize) -> R + Send + Sync,
    conduct: impl FnOnce(),
) -> Vec<R> {
    let work = &work;
    std::thread::scope(|scope| {
        let start = |job| scope.spawn(move || pool::alone(|| work(job)));
        let started: Vec<_> = (0..jobs).map(start).collect();
        conduct();
        let join = |job: std::thread::ScopedJoinHandle<'_, R>| match job.join() {
            Ok(result) => result,
            Err(panic) => std::panic::resume_unwind(panic),
        };
        started.into_iter().map(join).collect()
    })
}

/// [`conducted`] by nobody.
pub(crate) fn beside<R: Send>(jobs: usize, work: impl Fn(usize) -> R + Send + Sync) -> Vec<R> {
    conducted(jobs, work, || {})
}

/// Runs `beside` on a thread of its own, and everything parallel in it there, while `work` runs here; it
/// is told whether the system had the thread. For what waits for others most of the time.
///
/// # Panics
/// Where `beside` does, once both have ended.
pub(crate) fn accompanied<R>(
    name: &str,
    beside: impl FnOnce() + Send,
    work: impl FnOnce(bool) -> R,
) -> R {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name(name.to_string());
        let started = thread.spawn_scoped(scope, || pool::alone(beside));
        work(started.is_ok())
    })
}

/// Work beside the computation: reading ahead from a disk. It must not decide *what* is computed,
/// only that it is there in time.
pub(crate) fn background(
    name: &str,
    work: impl FnOnce() + Send + 'static,
) -> std::io::Result<std::thread::JoinHandle<()>> {
    std::thread::Builder::new()
        .name(name.to_string())
        .spawn(work)
}

/// The fixed-order reduction. Each of `pieces` fills its own row of `workspace` (zeroed before),
/// then the rows are added to `out` in the order of the pieces, in f64 on top.
///
/// A piece should be a run short enough to be summed well in f32 (a few thousand terms a lane).
/// The workspace is kept by the caller and grows on the first call only.
///
/// # Panics
/// Where so many pieces of so many sums are more than memory has.
pub fn sum_pieces(
    pieces: usize,
    out: &mut [f32],
    workspace: &mut Vec<f32>,
    parallel: bool,
    work: impl Fn(usize, &mut [f32]) + Send + Sync,
) {
    sum_cut_pieces(pieces, 1, out, workspace, parallel, |i, _, row| {
        work(i, row);
    });
}

/// A column of sums is owned by one thread; so many a chunk keep the rows' reads contiguous.
const COLUMNS: usize = 1024;
crate::cuts::cuts!(COLUMNS);

/// [`sum_pieces`] where every piece is cut into `cut` equal parts of the sums as well:
/// `work(piece, part, sums)`. For long sums of few pieces.
pub(crate) fn sum_cut_pieces(
    pieces: usize,
    cut: usize,
    out: &mut [f32],
    workspace: &mut Vec<f32>,
    parallel: bool,
    work: impl Fn(usize, usize, &mut [f32]) + Send + Sync,
) {
    let len = out.len();
    if len == 0 || pieces == 0 {
        return;
    }
    assert!(len.is_multiple_of(cut), "{len} sums in {cut} parts");
    let Some(all) = pieces.checked_mul(len) else {
        panic!("{pieces} pieces of {len} sums: more than memory has");
    };
    workspace.clear();
    workspace.resize(all, 0.0);
    for_each_chunk(workspace, len / cut, parallel, |i, row| {
        work(i / cut, i % cut, row);
    });
    let rows = &workspace[..];
    for_each_chunk(out, COLUMNS, parallel && all > 1 << 16, |c, out| {
        let first = c * COLUMNS;
        let mut total = [0.0_f64; COLUMNS];
        let total = &mut total[..out.len()];
        for row in rows.chunks_exact(len) {
            for (t, &x) in total.iter_mut().zip(&row[first..]) {
                *t += f64::from(x);
            }
        }
        for (o, &t) in out.iter_mut().zip(total.iter()) {
            *o = (f64::from(*o) + t) as f32;
        }
    });
}

#[cfg(all(test, loom))]
#[path = "parallel/tests/loom.rs"]
mod loom;
#[cfg(all(test, not(loom)))]
mod tests;
