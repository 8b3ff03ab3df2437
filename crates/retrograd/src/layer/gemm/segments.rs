//! The product whose sum over k is made segment by segment and added along their tree.
//!
//! A tile of C is finished before the next one is begun, so that the sums that are open meanwhile, one for
//! every level of the tree, stay in the first cache: they cost a store and a load for every segment.

use super::{Onto, PANEL, RUN, Stride, TILE, Tiles, chains, piece, rows, with_packed};
use crate::group::Segments;
use crate::parallel;
use crate::simd::{self, LANES, Simd, dispatch, f32x16, prelude::*};

/// Numbers of a tile.
const LEN: usize = TILE * PANEL;

/// C (m × n) += A (m × k) · B (k × n), k being the rows of all segments, at most [`RUN`].
///
/// # Panics
/// Where a slice is shorter than its matrix, or k is larger.
pub(crate) fn gemm_segments(
    [m, n]: [usize; 2],
    (a, stride_a): (&[f32], Stride),
    (b, stride_b): (&[f32], Stride),
    c: &mut [f32],
    segments: Segments,
) {
    let k = segments.rows(segments.count() - 1).end;
    assert!(k <= RUN, "{k} terms of one chain");
    assert!(a.len() >= stride_a.end(m, k), "A is shorter than {m} × {k}");
    assert!(b.len() >= stride_b.end(k, n), "B is shorter than {k} × {n}");
    assert!(c.len() == m * n, "C is not {m} × {n}");
    if m * n * k == 0 {
        return;
    }
    let (piece, parallel) = piece(m, n, k);
    with_packed(b, stride_b, [k, n], parallel, |pack| {
        parallel::for_each_chunk(c, piece * n, parallel, |i, c| {
            let a = &a[i * piece * stride_a.row..];
            parallel::with_scratch((segments.levels() + 1) * LEN, |open| {
                let mut tiles = InSegments { segments, open };
                dispatch!(simd::level(), simd => rows(
                    simd, &mut tiles, a, stride_a, pack, c, Onto::Itself, k, n,
                ));
            });
        });
    });
}

/// A chain for every segment.
struct InSegments<'a> {
    segments: Segments,
    /// Sums that are open, a tile each.
    open: &'a mut [f32],
}

impl Tiles for InSegments<'_> {
    #[inline(always)]
    fn tile<S: Simd, const R: usize>(
        &mut self,
        simd: S,
        a: &[f32],
        stride: Stride,
        panel: &[f32],
        c: &mut [f32],
        _: Onto<'_>,
        n: usize,
        columns: usize,
    ) {
        let count = self.segments.count();
        for segment in 0..count {
            let some = self.segments.rows(segment);
            // Before it, an open sum for every bit of its number; after it, for every bit of the next. Of two
            // neighbours the second is added to the first as it is made.
            let second = segment % 2 == 1;
            let depth = segment.count_ones() as usize - usize::from(second);
            let own = &mut self.open[depth * LEN..][..LEN];
            if !some.is_empty() {
                let a = &a[some.start * stride.column..];
                let panel = &panel[some.start * PANEL..some.end * PANEL];
                sum_tile::<S, R>(simd, a, stride, panel, own, columns, second);
            } else if !second {
                own.fill(0.0);
            }
            let left = match segment + 1 == count {
                true => 1,
                false => (segment + 1).count_ones() as usize,
            };
            for right in (left..=depth).rev() {
                let (before, sum) = self.open[(right - 1) * LEN..].split_at_mut(LEN);
                simd::axpy(simd, 1.0, &sum[..R * PANEL], &mut before[..R * PANEL]);
            }
        }
        for (r, sum) in self.open[..R * PANEL].chunks_exact(PANEL).enumerate() {
            simd::axpy(simd, 1.0, &sum[..columns], &mut c[r * n..][..columns]);
        }
    }
}

/// `R` rows by the first columns of a panel of A·B, kept or added to what is there.
#[inline(always)]
fn sum_tile<S: Simd, const R: usize>(
    simd: S,
    a: &[f32],
    stride: Stride,
    panel: &[f32],
    to: &mut [f32],
    columns: usize,
    add: bool,
) {
    if columns <= LANES {
        store::<S, R, 0, 1>(
            simd,
            chains::<S, R, 0, 1>(simd, a, stride, panel, columns),
            to,
            add,
        );
    } else if S::f32s::LEN >= LANES {
        store::<S, R, 0, 2>(
            simd,
            chains::<S, R, 0, 2>(simd, a, stride, panel, columns),
            to,
            add,
        );
    } else {
        // The halves of a panel one after the other: together their sums don't fit the registers.
        store::<S, R, 0, 1>(
            simd,
            chains::<S, R, 0, 1>(simd, a, stride, panel, columns),
            to,
            add,
        );
        store::<S, R, LANES, 1>(
            simd,
            chains::<S, R, LANES, 1>(simd, a, stride, panel, columns - LANES),
            to,
            add,
        );
    }
}

#[inline(always)]
fn store<S: Simd, const R: usize, const FIRST: usize, const V: usize>(
    simd: S,
    sum: [[f32x16<S>; V]; R],
    to: &mut [f32],
    add: bool,
) {
    let to = &mut to[..R * PANEL];
    if add {
        for r in 0..R {
            for i in 0..V {
                let to = &mut to[r * PANEL + FIRST + i * LANES..][..LANES];
                (sum[r][i] + f32x16::from_slice(simd, to)).store_slice(to);
            }
        }
    } else {
        for r in 0..R {
            for i in 0..V {
                sum[r][i].store_slice(&mut to[r * PANEL + FIRST + i * LANES..][..LANES]);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layer::gemm::gemm;
    use crate::layer::pieces::add_segments;
    use crate::rng::Key;

    fn values(seed: u64, len: usize) -> Vec<f32> {
        let mut stream = Key::new(seed).purpose("segments").stream();
        (0..len).map(|_| stream.range(-1.0, 1.0) as f32).collect()
    }

    /// Beside a product for every segment, added along the tree over whole matrices.
    #[test]
    fn segments_have_the_bits_of_products_of_their_own() {
        for (m, n, k) in [
            (1, 1, 8),
            (13, 33, 17),
            (31, 16, 64),
            (40, 70, 300),
            (5, 17, RUN),
        ] {
            let (a, b) = (values(1, m * k), values(2, k * n));
            let (stride_a, stride_b) = (Stride::transposed(m), Stride::rows(n));
            for shards in [2, 3, 5, 7, 8] {
                let segments = Segments::new(k, shards, 0..shards);
                let mut alone = vec![0.0; m * n];
                add_segments(segments, &mut alone, |some, to| {
                    let (a, b) = (&a[some.start * m..], &b[some.start * n..]);
                    let (a, b) = ((a, stride_a), (b, stride_b));
                    gemm([m, n, some.len()], a, b, to, Onto::Itself);
                });
                for threads in [1, 2, 7] {
                    let mut at_once = vec![0.0; m * n];
                    parallel::with_threads(threads, || {
                        gemm_segments(
                            [m, n],
                            (&a, stride_a),
                            (&b, stride_b),
                            &mut at_once,
                            segments,
                        );
                    });
                    assert!(
                        alone
                            .iter()
                            .map(|c| c.to_bits())
                            .eq(at_once.iter().map(|c| c.to_bits())),
                        "{m} × {n}, {k} rows in {shards} segments, {threads} threads"
                    );
                }
            }
        }
    }
}
