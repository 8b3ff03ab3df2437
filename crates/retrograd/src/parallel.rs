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

use std::cell::{Cell, RefCell};
use std::marker::PhantomData;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use rayon::prelude::*;

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

/// Threads that look for work without sleeping, for the thread that has some. A step is dozens of
/// short parallel parts with serial ones between them; rayon puts idle threads to sleep within
/// microseconds, and to wake a sleeping core costs more than such a part (14 µs each in a step of
/// mlp-256 on a virtual machine).
struct Watch {
    /// When the last parallel part began, in nanoseconds.
    last: AtomicU64,
    /// Threads that still watch, or are about to.
    watching: AtomicUsize,
    /// Threads that have begun to watch in this round.
    begun: AtomicUsize,
}

/// Idle for this long, a thread may sleep (nanoseconds).
const PATIENCE: u64 = 200_000;
/// Then it gives way in any case, and the next parallel part starts another round: a thread that
/// was caught watching in the middle of another job gets back to it.
const ROUND: u64 = 10_000_000;

thread_local! {
    static WATCH: RefCell<Option<Arc<Watch>>> = const { RefCell::new(None) };
    static WATCHING: Cell<bool> = const { Cell::new(false) };
}

fn nanoseconds() -> u64 {
    static START: OnceLock<Instant> = OnceLock::new();
    START.get_or_init(Instant::now).elapsed().as_nanos() as u64
}

/// Called where a parallel part begins. Changes when work is done, never what.
fn rouse() {
    let Some(own) = rayon::current_thread_index() else {
        return;
    };
    static CORES: OnceLock<usize> = OnceLock::new();
    let cores = *CORES.get_or_init(|| std::thread::available_parallelism().map_or(1, usize::from));
    let others = rayon::current_num_threads() - 1;
    if others == 0 || cores == 1 || WATCHING.get() {
        return;
    }
    WATCH.with_borrow_mut(|watch| {
        let watch = watch.get_or_insert_with(|| {
            Arc::new(Watch {
                last: AtomicU64::new(0),
                watching: AtomicUsize::new(0),
                begun: AtomicUsize::new(0),
            })
        });
        let now = nanoseconds();
        watch.last.store(now, Ordering::Relaxed);
        if watch.watching.load(Ordering::Acquire) > 0 {
            return;
        }
        watch.watching.store(others, Ordering::Release);
        watch.begun.store(0, Ordering::Release);
        let watch = watch.clone();
        rayon::spawn_broadcast(move |context| {
            if context.index() == own {
                return;
            }
            if watch.begun.fetch_add(1, Ordering::AcqRel) < cores - 1 && !WATCHING.replace(true) {
                watch_for_work(&watch, now);
                WATCHING.set(false);
            }
            watch.watching.fetch_sub(1, Ordering::AcqRel);
        });
    });
}

fn watch_for_work(watch: &Watch, start: u64) {
    loop {
        if rayon::yield_now() == Some(rayon::Yield::Executed) {
            continue;
        }
        let now = nanoseconds();
        let idle = now.saturating_sub(watch.last.load(Ordering::Relaxed));
        if idle > PATIENCE || now - start > ROUND {
            return;
        }
        // Others on a busy machine go first.
        std::thread::yield_now();
    }
}

/// Calls `work(piece)` for every piece, in parallel if `parallel`.
pub fn for_each(pieces: usize, parallel: bool, work: impl Fn(usize) + Send + Sync) {
    if parallel && pieces > 1 {
        rouse();
        (0..pieces).into_par_iter().with_max_len(1).for_each(work);
    } else {
        (0..pieces).for_each(work);
    }
}

/// Cuts `out` into chunks of `len` (the last may be shorter); `work(i, chunk)` owns chunk `i`.
pub fn for_each_chunk<T: Send>(
    out: &mut [T],
    len: usize,
    parallel: bool,
    work: impl Fn(usize, &mut [T]) + Send + Sync,
) {
    if parallel && out.len() > len {
        rouse();
        out.par_chunks_mut(len)
            .with_max_len(1)
            .enumerate()
            .for_each(|(i, chunk)| work(i, chunk));
    } else {
        out.chunks_mut(len)
            .enumerate()
            .for_each(|(i, chunk)| work(i, chunk));
    }
}

/// Two arrays cut side by side: `work(i, a, b)` owns the i-th chunk of both. They must cut into
/// the same number of chunks.
pub fn for_each_chunk2<A: Send, B: Send>(
    a: &mut [A],
    a_len: usize,
    b: &mut [B],
    b_len: usize,
    parallel: bool,
    work: impl Fn(usize, &mut [A], &mut [B]) + Send + Sync,
) {
    debug_assert_eq!(a.len().div_ceil(a_len), b.len().div_ceil(b_len));
    if parallel && a.len() > a_len {
        rouse();
        a.par_chunks_mut(a_len)
            .with_max_len(1)
            .zip(b.par_chunks_mut(b_len))
            .enumerate()
            .for_each(|(i, (a, b))| work(i, a, b));
    } else {
        a.chunks_mut(a_len)
            .zip(b.chunks_mut(b_len))
            .enumerate()
            .for_each(|(i, (a, b))| work(i, a, b));
    }
}

/// Three arrays of equal length cut alike.
pub fn for_each_chunk3<T: Send>(
    a: &mut [T],
    b: &mut [T],
    c: &mut [T],
    len: usize,
    parallel: bool,
    work: impl Fn(usize, &mut [T], &mut [T], &mut [T]) + Send + Sync,
) {
    if parallel && a.len() > len {
        rouse();
        a.par_chunks_mut(len)
            .with_max_len(1)
            .zip(b.par_chunks_mut(len))
            .zip(c.par_chunks_mut(len))
            .enumerate()
            .for_each(|(i, ((a, b), c))| work(i, a, b, c));
    } else {
        a.chunks_mut(len)
            .zip(b.chunks_mut(len))
            .zip(c.chunks_mut(len))
            .enumerate()
            .for_each(|(i, ((a, b), c))| work(i, a, b, c));
    }
}

/// Several arrays cut side by side: `work(i, chunks)` owns the i-th chunk of every one. An array
/// that is empty, or whose length is 0, gives empty chunks.
pub fn for_each_chunks<T: Send, const A: usize>(
    arrays: [&mut [T]; A],
    lens: [usize; A],
    pieces: usize,
    parallel: bool,
    work: impl Fn(usize, [&mut [T]; A]) + Send + Sync,
) {
    fn halves<T: Send, const A: usize>(
        arrays: [&mut [T]; A],
        lens: &[usize; A],
        first: usize,
        pieces: usize,
        parallel: bool,
        work: &(impl Fn(usize, [&mut [T]; A]) + Send + Sync),
    ) {
        if pieces <= 1 {
            return work(first, arrays);
        }
        let half = pieces / 2;
        let mut rests: [&mut [T]; A] = std::array::from_fn(|_| &mut [][..]);
        let mut array = 0;
        let firsts = arrays.map(|slice| {
            let at = (half * lens[array]).min(slice.len());
            let (own, rest) = slice.split_at_mut(at);
            rests[array] = rest;
            array += 1;
            own
        });
        let a = || halves(firsts, lens, first, half, parallel, work);
        let b = || halves(rests, lens, first + half, pieces - half, parallel, work);
        if parallel {
            rayon::join(a, b);
        } else {
            a();
            b();
        }
    }
    if parallel && pieces > 1 {
        rouse();
    }
    if pieces > 0 {
        halves(arrays, &lens, 0, pieces, parallel, &work);
    }
}

/// Calls `work(i, item)` for every item; each call owns its item. For workspaces: one per piece.
pub fn for_each_mut<T: Send>(
    items: &mut [T],
    parallel: bool,
    work: impl Fn(usize, &mut T) + Send + Sync,
) {
    if parallel && items.len() > 1 {
        rouse();
        items
            .par_iter_mut()
            .with_max_len(1)
            .enumerate()
            .for_each(|(i, item)| work(i, item));
    } else {
        items
            .iter_mut()
            .enumerate()
            .for_each(|(i, item)| work(i, item));
    }
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

/// Output that can be cut in two where a piece begins, so that every piece owns its own part.
pub trait Cut: Send + Sized {
    /// The part before `piece`, and the part from it on.
    fn cut(self, piece: usize) -> (Self, Self);
}

/// An array whose pieces have different lengths: piece `p` owns the elements from
/// `bounds[p] · width` to `bounds[p + 1] · width`.
pub struct Uneven<'a, T> {
    data: &'a mut [T],
    start: usize,
    bounds: &'a [u32],
    width: usize,
}

impl<'a, T> Uneven<'a, T> {
    /// The whole array. An empty array may have any bounds: every piece then owns nothing.
    pub fn new(data: &'a mut [T], bounds: &'a [u32], width: usize) -> Self {
        let width = if data.is_empty() { 0 } else { width };
        debug_assert_eq!(data.len(), bounds[bounds.len() - 1] as usize * width);
        Uneven {
            data,
            start: 0,
            bounds,
            width,
        }
    }

    /// The piece's own elements.
    pub fn into_slice(self) -> &'a mut [T] {
        self.data
    }
}

impl<T: Send> Cut for Uneven<'_, T> {
    fn cut(self, piece: usize) -> (Self, Self) {
        let at = self.bounds[piece] as usize * self.width;
        let (left, right) = self.data.split_at_mut(at - self.start);
        let part = |data, start| Uneven {
            data,
            start,
            bounds: self.bounds,
            width: self.width,
        };
        (part(left, self.start), part(right, at))
    }
}

impl<A: Cut, B: Cut> Cut for (A, B) {
    fn cut(self, piece: usize) -> (Self, Self) {
        let (a, a_rest) = self.0.cut(piece);
        let (b, b_rest) = self.1.cut(piece);
        ((a, b), (a_rest, b_rest))
    }
}

/// Calls `work(piece, owned)` for every piece of an output that is cut unevenly.
pub fn for_each_cut<C: Cut>(
    pieces: usize,
    parallel: bool,
    owned: C,
    work: impl Fn(usize, C) + Send + Sync,
) {
    fn halve<C: Cut>(
        first: usize,
        pieces: usize,
        parallel: bool,
        owned: C,
        work: &(impl Fn(usize, C) + Send + Sync),
    ) {
        match pieces {
            0 => {}
            1 => work(first, owned),
            _ => {
                let half = pieces / 2;
                let (left, right) = owned.cut(first + half);
                let left = || halve(first, half, parallel, left, work);
                let right = || halve(first + half, pieces - half, parallel, right, work);
                if parallel {
                    rayon::join(left, right);
                } else {
                    left();
                    right();
                }
            }
        }
    }
    if parallel && pieces > 1 {
        rouse();
    }
    halve(0, pieces, parallel, owned, &work);
}

/// Room to work in that a thread keeps.
#[derive(Default)]
pub struct Room {
    /// Numbers; their content is unspecified.
    pub floats: Vec<f32>,
    /// Positions; their content is unspecified.
    pub indices: Vec<u32>,
}

thread_local! {
    static ROOMS: RefCell<Vec<Room>> = const { RefCell::new(Vec::new()) };
}

/// Room of this thread for the duration of the call. It is kept and grows on a thread's first
/// calls only; a call within the call gets the next one.
pub fn with_room<R>(work: impl FnOnce(&mut Room) -> R) -> R {
    let mut room = ROOMS.with_borrow_mut(Vec::pop).unwrap_or_default();
    let result = work(&mut room);
    ROOMS.with_borrow_mut(|rooms| rooms.push(room));
    result
}

/// That many numbers of this thread's room, their content unspecified.
pub fn with_scratch<R>(len: usize, work: impl FnOnce(&mut [f32]) -> R) -> R {
    with_room(|room| {
        if room.floats.len() < len {
            room.floats.resize(len, 0.0);
        }
        work(&mut room.floats[..len])
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

/// A pointer that pieces on other threads may use, each within its own band.
#[derive(Clone, Copy)]
struct Shared(*mut f32);
#[allow(unsafe_code, reason = "see for_each_band")]
// SAFETY: only for_each_band has one, and hands out disjoint parts.
unsafe impl Send for Shared {}
#[allow(unsafe_code, reason = "see for_each_band")]
// SAFETY: as above.
unsafe impl Sync for Shared {}

impl Shared {
    fn pointer(self) -> *mut f32 {
        self.0
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
    let first = Shared(out.as_mut_ptr());
    for_each(samples * bands, parallel, |piece| {
        let (sample, band) = (piece / bands, piece % bands);
        let start = band * band_len;
        let band = Band {
            // SAFETY: sample < samples, so this is within `out`, which is borrowed exclusively
            // until all pieces are done.
            planes: unsafe { first.pointer().add(sample * planes * plane_len) },
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
mod tests {
    use super::*;

    #[test]
    fn uneven_pieces_own_their_bounds() {
        let bounds = [0, 2, 2, 5, 6];
        let (mut a, mut b) = (vec![0; 12], vec![0; 6]);
        let owned = (
            Uneven::new(&mut a, &bounds, 2),
            Uneven::new(&mut b, &bounds, 1),
        );
        for_each_cut(4, true, owned, |piece, (a, b)| {
            a.into_slice().fill(piece + 1);
            b.into_slice().fill(piece + 1);
        });
        assert_eq!(a, [1, 1, 1, 1, 3, 3, 3, 3, 3, 3, 4, 4]);
        assert_eq!(b, [1, 1, 3, 3, 3, 4]);
    }

    #[test]
    fn bands_cover_every_element_once() {
        let (samples, planes, plane_len) = (3, 4, 50);
        let mut out = vec![0.0; samples * planes * plane_len];
        for_each_band(&mut out, planes, plane_len, 15, true, |sample, mut band| {
            let start = band.start();
            for p in 0..planes {
                for (i, x) in band.plane(p).iter_mut().enumerate() {
                    *x += ((sample * planes + p) * plane_len + start + i) as f32;
                }
            }
        });
        assert!(out.iter().enumerate().all(|(i, &x)| x == i as f32));
    }

    #[test]
    fn room_within_room_is_other_room() {
        with_scratch(4, |outer| {
            outer.fill(1.0);
            with_scratch(4, |inner| inner.fill(2.0));
            assert_eq!(outer, [1.0; 4]);
        });
    }

    #[test]
    fn sums_of_pieces_have_the_same_bits_on_1_2_and_7_threads() {
        let sum = |threads| {
            with_threads(threads, || {
                let mut out = vec![0.25_f32; 5000];
                let mut workspace = Vec::new();
                sum_pieces(37, &mut out, &mut workspace, true, |piece, row| {
                    for (i, r) in row.iter_mut().enumerate() {
                        *r = 1.0 / (1.0 + piece as f32 + i as f32);
                    }
                });
                out
            })
        };
        let one = sum(1);
        assert_eq!(one, sum(2));
        assert_eq!(one, sum(7));
        let exact: f64 = 0.25 + (0..37).map(|p| 1.0 / (1.0 + f64::from(p))).sum::<f64>();
        assert!((f64::from(one[0]) - exact).abs() < 1e-6);
    }
}
