//! The only file that calls rayon, and the rules that keep results the same for any number of
//! threads.
//!
//! Work is cut by the size of the problem, never by the number of threads. Either a piece owns the
//! output it writes ([`for_each_chunk`], [`for_each`]), or every piece has a partial sum of its
//! own and the partial sums are added in the order of the pieces ([`sum_pieces`]). So 1, 2 or 64
//! threads give the same bits.
//!
//! Deterministic: everything here, given closures that depend on their piece alone. Not promised:
//! the order in which closures run, and the thread they run on.

mod crew;

use std::cell::{Cell, RefCell};
use std::marker::PhantomData;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use rayon::prelude::*;

use self::crew::Crew;

/// Runs a closure with at most `threads` threads for everything below it; 0 means all cores.
pub fn with_threads<R: Send>(threads: usize, run: impl FnOnce() -> R + Send) -> R {
    rayon::ThreadPoolBuilder::new()
        .num_threads(threads)
        .build()
        .expect("the operating system gives threads")
        .install(run)
}

/// The number of threads that work is spread over here.
pub fn threads() -> usize {
    rayon::current_num_threads()
}

/// A crew and how many of the pool's threads are with it.
struct Watch {
    crew: Crew,
    /// Threads that were called and have not come yet.
    called: AtomicUsize,
    /// Threads that watch for work now.
    watching: AtomicUsize,
}

/// Idle for this long, a thread may sleep (nanoseconds).
const PATIENCE: u64 = 200_000;
/// Then it gives way in any case, and the next parallel part calls it again: a thread that was
/// caught watching in the middle of another job gets back to it.
const ROUND: u64 = 10_000_000;

thread_local! {
    static WATCH: RefCell<Option<Arc<Watch>>> = const { RefCell::new(None) };
    /// Whether this thread watches for another, or is in the middle of a job for its own crew.
    static WATCHING: Cell<bool> = const { Cell::new(false) };
}

fn nanoseconds() -> u64 {
    static START: OnceLock<Instant> = OnceLock::new();
    START.get_or_init(Instant::now).elapsed().as_nanos() as u64
}

/// This thread's crew, if all of its helpers are awake; otherwise calls them. Changes when work is
/// done, never what.
fn crew() -> Option<Arc<Watch>> {
    let own = rayon::current_thread_index()?;
    static CORES: OnceLock<usize> = OnceLock::new();
    let cores = *CORES.get_or_init(|| std::thread::available_parallelism().map_or(1, usize::from));
    let others = rayon::current_num_threads() - 1;
    let helpers = others.min(cores - 1);
    if helpers == 0 || WATCHING.get() {
        return None;
    }
    let watch = WATCH.with_borrow_mut(|watch| {
        let new = || {
            Arc::new(Watch {
                crew: Crew::new(helpers + 1),
                called: AtomicUsize::new(0),
                watching: AtomicUsize::new(0),
            })
        };
        watch.get_or_insert_with(new).clone()
    });
    if watch.watching.load(Ordering::Relaxed) == helpers {
        return Some(watch);
    }
    if watch.called.load(Ordering::Acquire) == 0 {
        watch.called.store(others, Ordering::Release);
        rayon::spawn_broadcast(move |context| {
            if context.index() != own {
                if !WATCHING.replace(true) {
                    watch_for_work(&watch, helpers);
                    WATCHING.set(false);
                }
                watch.called.fetch_sub(1, Ordering::AcqRel);
            }
        });
    }
    None
}

/// Helps the crew, and others as rayon does, until there has been nothing to do for a while.
fn watch_for_work(watch: &Watch, helpers: usize) {
    let member = 1 + watch.watching.fetch_add(1, Ordering::SeqCst);
    if member > helpers {
        watch.watching.fetch_sub(1, Ordering::SeqCst);
        return;
    }
    let start = nanoseconds();
    let mut last = start;
    let mut seen = 0;
    for turn in 1_u32.. {
        let mut busy = false;
        for _ in 0..32 {
            busy |= watch.crew.help(member, &mut seen);
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
    watch.crew.help(member, &mut seen);
}

/// Calls `work(piece)` for every piece, in parallel if `parallel`.
pub fn for_each(pieces: usize, parallel: bool, work: impl Fn(usize) + Send + Sync) {
    if !parallel || pieces <= 1 || threads() == 1 {
        (0..pieces).for_each(work);
    } else if let Some(watch) = crew() {
        WATCHING.set(true);
        let _done = Watched;
        watch.crew.run(pieces, &work);
    } else {
        (0..pieces).into_par_iter().with_max_len(1).for_each(work);
    }
}

/// Ends the time in which a thread works for its own crew.
struct Watched;

impl Drop for Watched {
    fn drop(&mut self) {
        WATCHING.set(false);
    }
}

/// A slice of which pieces of work own disjoint parts.
struct Parts<'a, T> {
    first: *mut T,
    len: usize,
    owner: PhantomData<&'a mut [T]>,
}

#[allow(
    unsafe_code,
    reason = "it hands out disjoint parts of an exclusive borrow"
)]
// SAFETY: every element is used by one piece, on one thread at a time.
unsafe impl<T: Send> Sync for Parts<'_, T> {}
#[allow(unsafe_code, reason = "as above")]
// SAFETY: as above.
unsafe impl<T: Send> Send for Parts<'_, T> {}

impl<'a, T> Parts<'a, T> {
    fn new(data: &'a mut [T]) -> Self {
        Parts {
            first: data.as_mut_ptr(),
            len: data.len(),
            owner: PhantomData,
        }
    }

    /// Where it begins. A method, so that closures borrow all of it, not the pointer alone.
    fn pointer(&self) -> *mut T {
        self.first
    }

    /// The elements of the range that exist.
    ///
    /// # Safety
    /// No two ranges that are in use at a time overlap.
    #[allow(unsafe_code, reason = "the caller's promise")]
    unsafe fn part(&self, range: Range<usize>) -> &'a mut [T] {
        let (start, end) = (range.start.min(self.len), range.end.min(self.len));
        // SAFETY: within the borrow that `new` took, and disjoint from all others by the promise.
        unsafe { std::slice::from_raw_parts_mut(self.first.add(start), end.saturating_sub(start)) }
    }

    /// Chunk `i` of those of length `len`.
    ///
    /// # Safety
    /// Every chunk of one length is asked for once.
    #[allow(unsafe_code, reason = "the caller's promise")]
    unsafe fn chunk(&self, i: usize, len: usize) -> &'a mut [T] {
        // SAFETY: chunks don't overlap.
        unsafe { self.part(i * len..(i + 1) * len) }
    }
}

/// Cuts `out` into chunks of `len` (the last may be shorter); `work(i, chunk)` owns chunk `i`.
#[allow(unsafe_code, reason = "chunks are disjoint")]
pub fn for_each_chunk<T: Send>(
    out: &mut [T],
    len: usize,
    parallel: bool,
    work: impl Fn(usize, &mut [T]) + Send + Sync,
) {
    let pieces = out.len().div_ceil(len);
    let out = Parts::new(out);
    // SAFETY: `for_each` calls for every piece once.
    for_each(pieces, parallel, |i| work(i, unsafe { out.chunk(i, len) }));
}

/// Two arrays cut side by side: `work(i, a, b)` owns the i-th chunk of both. They must cut into
/// the same number of chunks.
#[allow(unsafe_code, reason = "chunks are disjoint")]
pub fn for_each_chunk2<A: Send, B: Send>(
    a: &mut [A],
    a_len: usize,
    b: &mut [B],
    b_len: usize,
    parallel: bool,
    work: impl Fn(usize, &mut [A], &mut [B]) + Send + Sync,
) {
    let pieces = a.len().div_ceil(a_len).min(b.len().div_ceil(b_len));
    debug_assert_eq!(a.len().div_ceil(a_len), b.len().div_ceil(b_len));
    let (a, b) = (Parts::new(a), Parts::new(b));
    for_each(pieces, parallel, |i| {
        // SAFETY: `for_each` calls for every piece once.
        let (a, b) = unsafe { (a.chunk(i, a_len), b.chunk(i, b_len)) };
        work(i, a, b);
    });
}

/// Elements per chunk of [`fill`] and [`copy`], a microsecond or less, and from where on chunks go
/// to threads.
const PLAIN: usize = 1 << 13;
const PLAIN_PARALLEL: usize = 1 << 14;

/// Every element becomes `value`.
pub fn fill<T: Copy + Send + Sync>(out: &mut [T], value: T) {
    let parallel = out.len() >= PLAIN_PARALLEL;
    for_each_chunk(out, PLAIN, parallel, |_, out| out.fill(value));
}

/// Copies an array of equal length.
///
/// # Panics
/// Where the lengths differ.
pub fn copy<T: Copy + Send + Sync>(from: &[T], to: &mut [T]) {
    assert_eq!(from.len(), to.len(), "arrays of one length");
    let parallel = to.len() >= PLAIN_PARALLEL;
    for_each_chunk(to, PLAIN, parallel, |i, to| {
        to.copy_from_slice(&from[i * PLAIN..i * PLAIN + to.len()]);
    });
}

/// Several arrays cut side by side: `work(i, chunks)` owns the i-th chunk of every one. The last
/// piece owns what is left. An array that is empty, or whose length is 0, gives empty chunks.
#[allow(unsafe_code, reason = "chunks are disjoint")]
pub fn for_each_chunks<T: Send, const A: usize>(
    arrays: [&mut [T]; A],
    lens: [usize; A],
    pieces: usize,
    parallel: bool,
    work: impl Fn(usize, [&mut [T]; A]) + Send + Sync,
) {
    let arrays = arrays.map(|array| Parts::new(array));
    for_each(pieces, parallel, |i| {
        let chunks = std::array::from_fn(|array| {
            let len = lens[array];
            let end = if i + 1 == pieces {
                usize::MAX
            } else {
                (i + 1) * len
            };
            // SAFETY: ranges of different pieces don't overlap, and `for_each` calls for every
            // piece once.
            unsafe { arrays[array].part(i * len..end) }
        });
        work(i, chunks);
    });
}

/// Arrays in which tensors lie one after the other, every tensor cut into as many shares as there
/// are pieces: `work(share, parts)` owns a share of one tensor, that part of every array, and piece
/// i works on share i of every tensor. A thread that always gets the same pieces then finds
/// its share of every tensor in its own cache, where a backward pass that cuts layers in order has
/// left it.
///
/// # Panics
/// Where tensors overlap or are not in order, or an array is too short.
#[allow(unsafe_code, reason = "shares are disjoint")]
pub(crate) fn for_each_share<T: Send, const A: usize>(
    arrays: [&mut [T]; A],
    tensors: impl Iterator<Item = Range<usize>> + Clone + Send + Sync,
    pieces: usize,
    parallel: bool,
    work: impl Fn(Range<usize>, [&mut [T]; A]) + Send + Sync,
) {
    /// Shares begin with whole cache lines where tensors do.
    const UNIT: usize = 64;
    let mut end = 0;
    for tensor in tensors.clone() {
        assert!(end <= tensor.start && tensor.start <= tensor.end);
        end = tensor.end;
    }
    assert!(arrays.iter().all(|array| end <= array.len()));
    let arrays = arrays.map(|array| Parts::new(array));
    for_each(pieces, parallel, |i| {
        for tensor in tensors.clone() {
            let units = tensor.len().div_ceil(UNIT);
            let from = |share: usize| tensor.start + units * share / pieces * UNIT;
            let share = from(i)..from(i + 1).min(tensor.end);
            if share.start < share.end {
                // SAFETY: shares of one tensor don't overlap, tensors don't, as was asserted (an
                // iterator in this crate gives the same ones again), and `for_each` calls for
                // every piece once.
                let parts = std::array::from_fn(|a| unsafe { arrays[a].part(share.clone()) });
                work(share, parts);
            }
        }
    });
}

/// Takes the cache lines of some numbers over from other cores, for a loop that is about to write
/// them among other things: one number of every line is stored as it is.
///
/// Stores leave a core in order. One to a line that another core has read too waits until that copy
/// is gone, and all stores behind it wait as well; when nothing is between them these waits overlap.
/// An Adam step of 63,000 parameters that both cores had read took 25.4 µs on two threads and 21.7
/// with this, one of 232,000 took 100 and 72 µs.
#[allow(unsafe_code, reason = "a store that the compiler keeps")]
pub(crate) fn take_over<T: Copy>(numbers: &mut [T]) {
    const LINE: usize = 64;
    if threads() > 1 {
        for line in numbers.chunks_mut((LINE / size_of::<T>()).max(1)) {
            let number = &raw mut line[0];
            // SAFETY: a number that is borrowed exclusively, and of a type that may be copied.
            unsafe { number.write_volatile(number.read_volatile()) };
        }
    }
}

/// Calls `work(i, item)` for every item; each call owns its item. For workspaces: one per piece.
pub fn for_each_mut<T: Send>(
    items: &mut [T],
    parallel: bool,
    work: impl Fn(usize, &mut T) + Send + Sync,
) {
    for_each_chunk(items, 1, parallel, |i, item| work(i, &mut item[0]));
}

/// Runs independent jobs, each alone on a thread of its own: everything parallel inside a job
/// stays on that thread. For jobs that keep state by thread (the verifier's roundings). Results
/// come in the order of the jobs; at most [`threads`] run at a time.
pub fn isolated<R: Send>(jobs: usize, work: impl Fn(usize) -> R + Send + Sync) -> Vec<R> {
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
        for _ in 0..workers {
            scope.spawn(run);
        }
    });
    let results = results.into_inner().expect("no job panicked");
    results
        .into_iter()
        .map(|result| result.expect("every job ran"))
        .collect()
}

/// The two closures side by side, for the two halves of a tree.
pub fn join<A: Send, B: Send>(
    a: impl FnOnce() -> A + Send,
    b: impl FnOnce() -> B + Send,
) -> (A, B) {
    rayon::join(a, b)
}

/// Work beside the computation: reading ahead from a disk. It must not decide *what* is computed,
/// only that it is there in time.
pub fn background(
    name: &str,
    work: impl FnOnce() + Send + 'static,
) -> std::io::Result<std::thread::JoinHandle<()>> {
    std::thread::Builder::new()
        .name(name.to_string())
        .spawn(work)
}

/// Output of which every piece owns its own part.
pub trait Owned: Send + Sync {
    /// What a piece gets.
    type Part;

    /// The part of a piece.
    ///
    /// # Safety
    /// No piece is asked for while its part is in use.
    #[allow(unsafe_code, reason = "disjoint parts, handed out by number")]
    unsafe fn part(&self, piece: usize) -> Self::Part;
}

/// An array whose pieces have different lengths: piece `p` owns the elements from
/// `bounds[p] · width` to `bounds[p + 1] · width`.
pub struct Uneven<'a, T> {
    data: Parts<'a, T>,
    bounds: &'a [u32],
    width: usize,
}

impl<'a, T> Uneven<'a, T> {
    /// The whole array. An empty array may have any bounds: every piece then owns nothing.
    ///
    /// # Panics
    /// Where the bounds are not in order.
    pub fn new(data: &'a mut [T], bounds: &'a [u32], width: usize) -> Self {
        let width = if data.is_empty() { 0 } else { width };
        assert!(bounds.is_sorted(), "the bounds of pieces are in order");
        debug_assert_eq!(data.len(), bounds[bounds.len() - 1] as usize * width);
        Uneven {
            data: Parts::new(data),
            bounds,
            width,
        }
    }
}

#[allow(unsafe_code, reason = "bounds are in order, so parts are disjoint")]
impl<'a, T: Send> Owned for Uneven<'a, T> {
    type Part = &'a mut [T];

    unsafe fn part(&self, piece: usize) -> &'a mut [T] {
        let [start, end] = [piece, piece + 1].map(|p| self.bounds[p] as usize * self.width);
        // SAFETY: the caller's promise, and the bounds are in order.
        unsafe { self.data.part(start..end) }
    }
}

#[allow(unsafe_code, reason = "as for its members")]
impl<A: Owned, B: Owned> Owned for (A, B) {
    type Part = (A::Part, B::Part);

    unsafe fn part(&self, piece: usize) -> Self::Part {
        // SAFETY: the caller's promise.
        unsafe { (self.0.part(piece), self.1.part(piece)) }
    }
}

/// Calls `work(piece, part)` for every piece of an output that is cut unevenly.
pub fn for_each_cut<O: Owned>(
    pieces: usize,
    parallel: bool,
    owned: O,
    work: impl Fn(usize, O::Part) + Send + Sync,
) {
    for_each(pieces, parallel, |piece| {
        #[allow(unsafe_code, reason = "disjoint parts")]
        // SAFETY: `for_each` calls for every piece once.
        let part = unsafe { owned.part(piece) };
        work(piece, part);
    });
}

/// Workspace to work in that a thread keeps.
#[derive(Default)]
pub struct Workspace {
    /// Numbers; their content is unspecified.
    pub floats: Vec<f32>,
    /// Positions; their content is unspecified.
    pub indices: Vec<u32>,
}

thread_local! {
    static WORKSPACES: RefCell<Vec<Workspace>> = const { RefCell::new(Vec::new()) };
}

/// Workspace of this thread for the duration of the call. It is kept and grows on a thread's first
/// calls only; a call within the call gets the next one.
pub fn with_workspace<R>(work: impl FnOnce(&mut Workspace) -> R) -> R {
    let mut scratch = WORKSPACES.with_borrow_mut(Vec::pop).unwrap_or_default();
    let result = work(&mut scratch);
    WORKSPACES.with_borrow_mut(|free| free.push(scratch));
    result
}

/// That many numbers of this thread's scratch, their content unspecified.
pub fn with_scratch<R>(len: usize, work: impl FnOnce(&mut [f32]) -> R) -> R {
    with_workspace(|scratch| {
        if scratch.floats.len() < len {
            scratch.floats.resize(len, 0.0);
        }
        work(&mut scratch.floats[..len])
    })
}

/// A band of rows across the planes of one sample: the part of an image that a piece owns.
pub struct Band<'a> {
    planes: *mut f32,
    count: usize,
    plane_len: usize,
    start: usize,
    len: usize,
    owner: PhantomData<&'a mut [f32]>,
}

impl Band<'_> {
    /// Where the band starts in every plane.
    pub fn start(&self) -> usize {
        self.start
    }

    /// Its length in every plane.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it has no element.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Its part of a plane.
    #[allow(
        unsafe_code,
        reason = "bands of one image are disjoint, but not contiguous"
    )]
    pub fn plane(&mut self, plane: usize) -> &mut [f32] {
        assert!(plane < self.count, "plane {plane} of {}", self.count);
        // SAFETY: for_each_band made `planes` point at `count` planes of `plane_len` within one
        // exclusive borrow that outlives this band; start + len ≤ plane_len; no other band has
        // an element of start..start + len of these planes, and this borrow of the band keeps a
        // second slice of it from being made meanwhile.
        unsafe {
            let first = self.planes.add(plane * self.plane_len + self.start);
            std::slice::from_raw_parts_mut(first, self.len)
        }
    }
}

/// Cuts the images of `out` (samples × planes × plane_len) into bands of `band_len` of every
/// plane: `work(sample, band)` owns its band.
#[allow(
    unsafe_code,
    reason = "bands of one image are disjoint, but not contiguous"
)]
pub fn for_each_band(
    out: &mut [f32],
    planes: usize,
    plane_len: usize,
    band_len: usize,
    parallel: bool,
    work: impl Fn(usize, Band<'_>) + Send + Sync,
) {
    if planes * plane_len == 0 {
        return;
    }
    assert!(out.len().is_multiple_of(planes * plane_len) && band_len > 0);
    let samples = out.len() / (planes * plane_len);
    let bands = plane_len.div_ceil(band_len);
    let out = Parts::new(out);
    for_each(samples * bands, parallel, |piece| {
        let (sample, band) = (piece / bands, piece % bands);
        let start = band * band_len;
        let band = Band {
            // SAFETY: sample < samples, so this is within `out`, which is borrowed exclusively
            // until all pieces are done.
            planes: unsafe { out.pointer().add(sample * planes * plane_len) },
            count: planes,
            plane_len,
            start,
            len: band_len.min(plane_len - start),
            owner: PhantomData,
        };
        work(sample, band);
    });
}

/// The fixed-order reduction. Each of `pieces` fills its own row of `workspace` (zeroed before),
/// then the rows are added to `out` in the order of the pieces, in f64 on top.
///
/// A piece should be a run short enough to be summed well in f32 (a few thousand terms a lane).
/// The workspace is kept by the caller and grows on the first call only.
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

/// [`sum_pieces`] where every piece is cut into `cut` equal parts of the sums as well:
/// `work(piece, part, sums)`. For long sums of few pieces.
pub fn sum_cut_pieces(
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
    workspace.clear();
    workspace.resize(pieces * len, 0.0);
    for_each_chunk(workspace, len / cut, parallel, |i, row| {
        work(i / cut, i % cut, row);
    });
    let rows = &workspace[..];
    // A column is owned by one thread; 1024 columns a chunk keep the rows' reads contiguous.
    const COLUMNS: usize = 1024;
    for_each_chunk(
        out,
        COLUMNS,
        parallel && pieces * len > 1 << 16,
        |c, out| {
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
        },
    );
}

#[cfg(test)]
mod tests;
