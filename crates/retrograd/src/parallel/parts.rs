//! Arrays of which pieces of work own disjoint parts: chunks, shares, uneven cuts, bands.
//!
//! What a piece gets is computed from lengths that the caller gives. They are checked before any
//! piece runs, with products that don't wrap: no arguments make two pieces own one element, or one
//! own what is not there.

use std::marker::PhantomData;
use std::ops::Range;

use super::for_each;
use crate::layout::Tensor;

/// A slice of which pieces of work own disjoint parts.
pub(super) struct Parts<'a, T> {
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
    pub fn new(data: &'a mut [T]) -> Self {
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
    pub unsafe fn part(&self, range: Range<usize>) -> &'a mut [T] {
        let (start, end) = (range.start.min(self.len), range.end.min(self.len));
        // SAFETY: within the borrow that `new` took, and disjoint from all others by the promise.
        unsafe { std::slice::from_raw_parts_mut(self.first.add(start), end.saturating_sub(start)) }
    }

    /// Chunk `i` of those of length `len`.
    ///
    /// # Safety
    /// `i · len` doesn't overflow, and every chunk of one length is asked for once.
    #[allow(unsafe_code, reason = "the caller's promise")]
    pub unsafe fn chunk(&self, i: usize, len: usize) -> &'a mut [T] {
        let start = i * len;
        // SAFETY: chunks don't overlap.
        unsafe { self.part(start..start.saturating_add(len)) }
    }
}

/// The number of chunks of `len` in an array of that many elements.
///
/// # Panics
/// Where chunks have no length.
pub(super) fn chunks_of(elements: usize, len: usize) -> usize {
    assert!(len > 0, "{elements} elements in chunks of length 0");
    elements.div_ceil(len)
}

/// Two arrays cut side by side: `work(i, a, b)` owns the i-th chunk of both.
///
/// # Panics
/// Where they don't cut into the same number of chunks, or chunks have no length.
#[allow(unsafe_code, reason = "chunks are disjoint")]
pub(crate) fn for_each_chunk2<A: Send, B: Send>(
    a: &mut [A],
    a_len: usize,
    b: &mut [B],
    b_len: usize,
    parallel: bool,
    work: impl Fn(usize, &mut [A], &mut [B]) + Send + Sync,
) {
    let pieces = chunks_of(a.len(), a_len);
    assert_eq!(
        pieces,
        chunks_of(b.len(), b_len),
        "chunks of {a_len} of {} elements beside chunks of {b_len} of {}",
        a.len(),
        b.len()
    );
    let (a, b) = (Parts::new(a), Parts::new(b));
    for_each(pieces, parallel, |i| {
        // SAFETY: a chunk i begins within its array, and `for_each` calls for every piece once.
        let (a, b) = unsafe { (a.chunk(i, a_len), b.chunk(i, b_len)) };
        work(i, a, b);
    });
}

/// Several arrays cut side by side: `work(i, chunks)` owns the i-th chunk of every one. The last
/// piece owns what is left. An array that is empty, or whose length is 0, gives empty chunks.
///
/// # Panics
/// Where the place of the last chunk is no number of 64 bits.
#[allow(unsafe_code, reason = "chunks are disjoint")]
pub(crate) fn for_each_chunks<T: Send, const A: usize>(
    arrays: [&mut [T]; A],
    lens: [usize; A],
    pieces: usize,
    parallel: bool,
    work: impl Fn(usize, [&mut [T]; A]) + Send + Sync,
) {
    for len in lens {
        let last = pieces.saturating_sub(1).checked_mul(len);
        assert!(
            last.is_some(),
            "{pieces} chunks of {len}: more than memory has"
        );
    }
    let arrays = arrays.map(|array| Parts::new(array));
    for_each(pieces, parallel, |i| {
        let chunks = std::array::from_fn(|array| {
            let len = lens[array];
            let end = if i + 1 == pieces {
                usize::MAX
            } else {
                (i + 1) * len
            };
            // SAFETY: ranges of different pieces don't overlap, since the last begins at a product
            // that didn't overflow, and `for_each` calls for every piece once.
            unsafe { arrays[array].part(i * len..end) }
        });
        work(i, chunks);
    });
}

/// Which parts of a flat vector are worked on. A list that is borrowed, not an iterator: every piece
/// of work must see the ranges that were checked.
#[derive(Clone, Copy)]
pub(crate) struct Tensors<'a> {
    list: &'a [Tensor],
    frozen: bool,
    /// What of them counts.
    bounds: (usize, usize),
}

impl<'a> Tensors<'a> {
    /// All of a list.
    pub fn all(list: &'a [Tensor]) -> Self {
        Tensors {
            list,
            frozen: true,
            bounds: (0, usize::MAX),
        }
    }

    /// Those that are not frozen.
    pub fn trained(list: &'a [Tensor]) -> Self {
        Tensors {
            frozen: false,
            ..Self::all(list)
        }
    }

    /// The parts of them that lie in a range.
    pub fn within(self, range: Range<usize>) -> Self {
        Tensors {
            bounds: (range.start, range.end),
            ..self
        }
    }

    /// Where they are.
    pub fn ranges(self) -> impl Iterator<Item = Range<usize>> + 'a {
        let wanted = move |tensor: &&Tensor| self.frozen || !tensor.frozen;
        let list = self.list.iter().filter(wanted).map(Tensor::range);
        let (from, to) = self.bounds;
        let parts = list.map(move |r| r.start.max(from)..r.end.min(to));
        parts.filter(|r| r.start < r.end)
    }
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
    tensors: Tensors<'_>,
    pieces: usize,
    parallel: bool,
    work: impl Fn(Range<usize>, [&mut [T]; A]) + Send + Sync,
) {
    /// Shares begin with whole cache lines where tensors do.
    const UNIT: usize = 64;
    let mut end = 0;
    for tensor in tensors.ranges() {
        assert!(
            end <= tensor.start && tensor.start <= tensor.end,
            "a tensor at {tensor:?} follows one that ends at {end}"
        );
        let shares = tensor.len().div_ceil(UNIT).checked_mul(pieces);
        assert!(
            shares.is_some(),
            "{pieces} shares of {} elements",
            tensor.len()
        );
        end = tensor.end;
    }
    for array in &arrays {
        assert!(
            end <= array.len(),
            "tensors of {end} elements in an array of {}",
            array.len()
        );
    }
    let arrays = arrays.map(|array| Parts::new(array));
    for_each(pieces, parallel, |i| {
        for tensor in tensors.ranges() {
            let units = tensor.len().div_ceil(UNIT);
            let from = |share: usize| tensor.start + units * share / pieces * UNIT;
            let share = from(i)..from(i + 1).min(tensor.end);
            if share.start < share.end {
                // SAFETY: shares of one tensor don't overlap, tensors don't, as was asserted of
                // the same list, and `for_each` calls for every piece once.
                let parts = std::array::from_fn(|a| unsafe { arrays[a].part(share.clone()) });
                work(share, parts);
            }
        }
    });
}

/// Output of which every piece owns its own part.
pub(crate) trait Owned: Send + Sync {
    /// What a piece gets.
    type Part;

    /// How many pieces there are.
    fn pieces(&self) -> usize;

    /// The part of a piece.
    ///
    /// # Safety
    /// No piece is asked for while its part is in use.
    #[allow(unsafe_code, reason = "disjoint parts, handed out by number")]
    unsafe fn part(&self, piece: usize) -> Self::Part;
}

/// An array whose pieces have different lengths: piece `p` owns the elements from
/// `bounds[p] · width` to `bounds[p + 1] · width`.
pub(crate) struct Uneven<'a, T> {
    data: Parts<'a, T>,
    bounds: &'a [u32],
    width: usize,
}

impl<'a, T> Uneven<'a, T> {
    /// The whole array. An empty array may have any bounds: every piece then owns nothing.
    ///
    /// # Panics
    /// Where the bounds are not in order, or the last is not the array's end.
    pub fn new(data: &'a mut [T], bounds: &'a [u32], width: usize) -> Self {
        let width = if data.is_empty() { 0 } else { width };
        assert!(bounds.is_sorted(), "the bounds of pieces are in order");
        let last = bounds.last().copied().unwrap_or_default() as usize;
        assert!(
            last.checked_mul(width) == Some(data.len()),
            "pieces of {last} rows of {width} in an array of {}",
            data.len()
        );
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

    fn pieces(&self) -> usize {
        self.bounds.len().saturating_sub(1)
    }

    unsafe fn part(&self, piece: usize) -> &'a mut [T] {
        let [start, end] = [piece, piece + 1].map(|p| self.bounds[p] as usize * self.width);
        // SAFETY: the caller's promise; the bounds are in order, and the last product is the length.
        unsafe { self.data.part(start..end) }
    }
}

#[allow(unsafe_code, reason = "as for its members")]
impl<A: Owned, B: Owned> Owned for (A, B) {
    type Part = (A::Part, B::Part);

    fn pieces(&self) -> usize {
        self.0.pieces().min(self.1.pieces())
    }

    unsafe fn part(&self, piece: usize) -> Self::Part {
        // SAFETY: the caller's promise.
        unsafe { (self.0.part(piece), self.1.part(piece)) }
    }
}

/// Calls `work(piece, part)` for every piece of an output that is cut unevenly.
///
/// # Panics
/// Where the output has fewer pieces.
pub(crate) fn for_each_cut<O: Owned>(
    pieces: usize,
    parallel: bool,
    owned: O,
    work: impl Fn(usize, O::Part) + Send + Sync,
) {
    assert!(
        pieces <= owned.pieces(),
        "{pieces} pieces of an output of {}",
        owned.pieces()
    );
    for_each(pieces, parallel, |piece| {
        #[allow(unsafe_code, reason = "disjoint parts")]
        // SAFETY: `for_each` calls for every piece once.
        let part = unsafe { owned.part(piece) };
        work(piece, part);
    });
}

/// A band of rows across the planes of one sample: the part of an image that a piece owns.
pub(crate) struct Band<'a> {
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
///
/// # Panics
/// Where `out` is not made of such images, or bands have no length.
#[allow(
    unsafe_code,
    reason = "bands of one image are disjoint, but not contiguous"
)]
pub(crate) fn for_each_band(
    out: &mut [f32],
    planes: usize,
    plane_len: usize,
    band_len: usize,
    parallel: bool,
    work: impl Fn(usize, Band<'_>) + Send + Sync,
) {
    let image = planes.checked_mul(plane_len);
    let image = image.filter(|&image| out.len().is_multiple_of(image));
    let Some(image) = image else {
        let len = out.len();
        panic!("{planes} planes of {plane_len} in an array of {len}");
    };
    if image == 0 {
        return;
    }
    let (samples, bands) = (out.len() / image, chunks_of(plane_len, band_len));
    let out = Parts::new(out);
    for_each(samples * bands, parallel, |piece| {
        let (sample, band) = (piece / bands, piece % bands);
        let start = band * band_len;
        let band = Band {
            // SAFETY: sample < samples, so this is within `out`, which is borrowed exclusively
            // until all pieces are done.
            planes: unsafe { out.pointer().add(sample * image) },
            count: planes,
            plane_len,
            start,
            len: band_len.min(plane_len - start),
            owner: PhantomData,
        };
        work(sample, band);
    });
}
