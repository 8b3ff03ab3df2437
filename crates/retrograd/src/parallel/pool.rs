//! Pools of threads: as many as are asked for, or as the system gives.

use std::cell::Cell;
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Once, OnceLock};
use std::thread::JoinHandle;

use rayon::{ThreadBuilder, ThreadPool, ThreadPoolBuilder};

/// The largest number of threads that [`with_threads`] starts, unless there are more cores. Threads
/// beyond the cores gain nothing, every one has a stack, and thousands of them stop a machine.
pub const MAX_THREADS: usize = 256;

thread_local! {
    /// Whether work stays on this thread, since the system refused to start even one.
    static ALONE: Cell<bool> = const { Cell::new(false) };
}

/// Runs a closure with at most `threads` threads for everything below it; 0 means all cores. No
/// more than [`MAX_THREADS`] are started, and fewer where the system refuses to: results don't
/// depend on it.
pub fn with_threads<R: Send>(threads: usize, run: impl FnOnce() -> R + Send) -> R {
    match build(allowed(threads), start) {
        Some(pool) => pool.install(run),
        None => alone(run),
    }
}

/// The number of threads that work is spread over here.
pub fn threads() -> usize {
    if ALONE.get() {
        1
    } else if rayon::current_thread_index().is_some() {
        rayon::current_num_threads()
    } else {
        everywhere().map_or(1, ThreadPool::current_num_threads)
    }
}

/// Runs a closure on a thread of a pool: here, if this is one. Many short parallel parts in a row go
/// faster inside than each with its own way into the pool.
pub fn within<R: Send>(run: impl FnOnce() -> R + Send) -> R {
    if ALONE.get() || rayon::current_thread_index().is_some() {
        return run();
    }
    match everywhere() {
        Some(pool) => pool.install(run),
        None => alone(run),
    }
}

pub(super) fn cores() -> usize {
    static CORES: OnceLock<usize> = OnceLock::new();
    *CORES.get_or_init(|| std::thread::available_parallelism().map_or(1, usize::from))
}

/// The number of threads that are started where that many are asked for.
fn allowed(threads: usize) -> usize {
    let all = || {
        let rayons = std::env::var("RAYON_NUM_THREADS").ok();
        let rayons = rayons.and_then(|n| n.parse().ok()).filter(|&n| n > 0);
        rayons.unwrap_or(cores())
    };
    let threads = if threads == 0 { all() } else { threads };
    threads.min(MAX_THREADS.max(cores()))
}

/// Forks between this process and the first of its ancestors that had threads of ours.
static FORKS: AtomicUsize = AtomicUsize::new(0);

/// After a fork, in the child: threads stay with the parent, and whoever waited for one of the
/// parent's pool would wait for ever. From here on the child has a pool of its own.
pub fn forked() {
    FORKS.fetch_add(1, Ordering::SeqCst);
}

/// The pool of those who didn't ask for one. Not rayon's own, which panics where the system refuses
/// a thread.
///
/// A process has the place that its forks count to. A pool that was being made in the parent at the
/// moment of a fork is never looked at again; beyond the last place work stays on its thread.
fn everywhere() -> Option<&'static ThreadPool> {
    const PLACES: usize = 64;
    static POOLS: [OnceLock<Option<ThreadPool>>; PLACES] = [const { OnceLock::new() }; PLACES];
    let pool = POOLS.get(FORKS.load(Ordering::SeqCst))?;
    pool.get_or_init(|| build(allowed(0), start)).as_ref()
}

fn start(thread: ThreadBuilder) -> io::Result<JoinHandle<()>> {
    std::thread::Builder::new().spawn(|| thread.run())
}

/// A pool of that many threads, or of as many as can be started; none where not even one can.
pub(super) fn build(
    threads: usize,
    start: impl Fn(ThreadBuilder) -> io::Result<JoinHandle<()>>,
) -> Option<ThreadPool> {
    // There are none: nothing was refused, and nothing has to be said.
    if cfg!(target_family = "wasm") {
        return None;
    }
    let mut wanted = threads.min(room_for_stacks().max(1));
    if wanted < threads {
        say_fewer(
            wanted,
            threads,
            &"the limit of address space leaves no room for others",
        );
    }
    while wanted > 0 {
        let mut started = Vec::with_capacity(wanted);
        let pool = ThreadPoolBuilder::new()
            .num_threads(wanted)
            .spawn_handler(|thread| {
                started.push(start(thread)?);
                Ok(())
            })
            .build();
        match pool {
            Ok(pool) => return Some(pool),
            Err(error) => {
                // Where it is memory that is short, the work itself needs some of it.
                wanted = started.len().div_ceil(2);
                say_refused(&error, started.len(), threads);
                // Those that did start end with the pool that did not come about, and make way for
                // its successor's.
                for thread in started {
                    let _ = thread.join();
                }
            }
        }
    }
    None
}

/// The threads that the address space has room for, where it is limited (`ulimit -v`): half of what
/// is left, since the work itself needs some. A thread that starts where nothing is left can't be
/// refused any more: its first allocations end the process.
pub(super) fn room_for_stacks() -> usize {
    /// 2 MiB of stack, and the 64 MiB, aligned, that glibc's allocator reserves for a new thread.
    const THREAD: u64 = (2 + 2 * 64) << 20;
    let left = crate::budget::address_space().unwrap_or(u64::MAX);
    usize::try_from(left / 2 / THREAD).unwrap_or(usize::MAX)
}

/// Says once that the system refused a thread.
pub(super) fn say_refused(error: &dyn std::error::Error, got: usize, wanted: usize) {
    say_fewer(got, wanted, &format!("the system refused another: {error}"));
}

/// Says once that there are fewer threads than were asked for.
fn say_fewer(got: usize, wanted: usize, why: &dyn std::fmt::Display) {
    static SAID: Once = Once::new();
    SAID.call_once(|| {
        eprintln!(
            "warning: {got} of {wanted} threads were started: {why}; work goes on with fewer, slower and \
             with the same results"
        );
    });
}

/// Runs a closure, and everything parallel in it, on this thread.
pub(super) fn alone<R>(run: impl FnOnce() -> R) -> R {
    struct Restore(bool);
    impl Drop for Restore {
        fn drop(&mut self) {
            ALONE.set(self.0);
        }
    }
    let _restore = Restore(ALONE.replace(true));
    run()
}
