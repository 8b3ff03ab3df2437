//! Sums, copies and zeros of whole vectors, in pieces that go to threads.

use std::ops::Range;

use crate::group::Segments;
use crate::{Layout, Scalar, parallel};

/// Elements of a piece of a copy or a sum, and from where on pieces go to threads: such work
/// moves a few numbers a nanosecond, and waking a thread takes some 5 µs.
const PIECE: usize = 1 << 15;
crate::cuts::cuts!(PIECE);

pub(crate) fn add<T: Scalar>(to: &mut [T], from: &[T]) {
    parallel::for_each_chunk(to, PIECE, from.len() >= 4 * PIECE, |i, to| {
        for (a, &b) in to.iter_mut().zip(&from[i * PIECE..]) {
            *a += b;
        }
    });
}

/// Zeros for all tensors. Gradients lie in the caches of the cores that added them up last, so that
/// zeros too are written fastest by each for its share.
pub(crate) fn zero<T: Scalar>(to: &mut [T], layout: &Layout) {
    let (pieces, parallel) = (to.len().div_ceil(PIECE / 4), to.len() >= PIECE);
    let tensors = parallel::Tensors::all(layout.tensors());
    parallel::for_each_share([to], tensors, pieces, parallel, |_, [to]| to.fill(T::ZERO));
}

pub(crate) fn copy<T: Scalar>(to: &mut [T], from: &[T]) {
    parallel::for_each_chunk(to, PIECE, from.len() >= 4 * PIECE, |i, to| {
        to.copy_from_slice(&from[i * PIECE..][..to.len()]);
    });
}

/// What `work` adds for the rows of every segment, added along their tree and then to `to`.
pub(crate) fn add_segments(
    segments: Segments,
    to: &mut [f32],
    work: impl Fn(Range<usize>, &mut [f32]),
) {
    let (count, len) = (segments.count(), to.len());
    if count == 1 {
        return work(segments.rows(0), to);
    }
    parallel::with_scratch((segments.levels() + 1) * len, |open| {
        for segment in 0..count {
            // Before it, an open sum for every bit of its number; after it, for every bit of the next.
            let depth = segment.count_ones() as usize;
            let own = &mut open[depth * len..][..len];
            own.fill(0.0);
            work(segments.rows(segment), own);
            let left = match segment + 1 == count {
                true => 1,
                false => (segment + 1).count_ones() as usize,
            };
            for right in (left..=depth).rev() {
                let (before, sum) = open[(right - 1) * len..].split_at_mut(len);
                add(before, &sum[..len]);
            }
        }
        add(to, &open[..len]);
    });
}
