//! Sums, copies and zeros of whole vectors, in pieces that go to threads.

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
