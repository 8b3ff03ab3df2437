//! The sum for a matrix that the last cache doesn't hold, 16 columns at a time: they are packed side
//! by side first, and that block it does hold (12.8 MB of the 51 MB of `graph-large`). The columns
//! where they lie would not do: one line of every four falls into a quarter of the cache's sets.
//! Results go past the caches, which keep the block. A coefficient by neighbour is multiplied in on
//! the way.

use super::{AHEAD, Aggregate, Coefficient, RUN};
use crate::parallel::{self, Uneven, for_each_cut};
use crate::simd::{self, Fused, LANES, PastCaches, Simd, dispatch, f32x16, prelude::*};

/// Numbers of x from which its columns are packed, a few at a time: 32 MB, the last cache of Zen 4.
pub(super) const VAST: usize = 1 << 23;

/// Rows of one piece of packing, 256 kB of x at 64 columns.
const PACKED_ROWS: usize = 1024;

/// Whether to pack: every column is read twice or more, and plainly.
pub(super) fn pays(a: &Aggregate<'_, f32>, x: &[f32], width: usize) -> bool {
    x.len() >= VAST && a.heads == 1 && !a.add && a.rows.slots() >= 2 * (x.len() / width)
}

/// The sum for every row.
pub(super) fn aggregate(a: &Aggregate<'_, f32>, x: &[f32], width: usize, out: &mut [f32]) {
    parallel::with_scratch(x.len() / width * LANES, |block| {
        column_blocks(a, x, width, block, out);
    });
}

fn column_blocks(
    a: &Aggregate<'_, f32>,
    x: &[f32],
    width: usize,
    block: &mut [f32],
    out: &mut [f32],
) {
    let rows = a.rows;
    let (coefficient, scale) = match (a.coefficient, a.own) {
        (Coefficient::Neighbour(scale), None) => (Coefficient::One, Some(scale)),
        (coefficient, _) => (coefficient, None),
    };
    let a = &Aggregate { coefficient, ..*a };
    for first in (0..width).step_by(LANES) {
        let columns = first..width.min(first + LANES);
        parallel::for_each_chunk(block, PACKED_ROWS * LANES, true, |piece, block| {
            for (k, packed) in block.as_chunks_mut::<LANES>().0.iter_mut().enumerate() {
                let j = piece * PACKED_ROWS + k;
                let row = &x[j * width..][columns.clone()];
                let c = scale.map_or(1.0, |s| s[j]);
                if let Ok(row) = <&[f32; LANES]>::try_from(row) {
                    *packed = row.map(|x| c * x);
                } else {
                    *packed = [0.0; LANES];
                    for (packed, x) in packed.iter_mut().zip(row) {
                        *packed = c * x;
                    }
                }
            }
        });
        let block = block.as_chunks::<LANES>().0;
        let owned = Uneven::new(&mut *out, &rows.piece_rows, width);
        for_each_cut(rows.pieces(), true, owned, |piece, out| {
            let (range, columns) = (rows.piece(piece), columns.clone());
            simd::past_caches(out, |out| {
                dispatch!(simd::level(), simd => match a.coefficient {
                    Coefficient::One => {
                        block_rows::<_, true>(simd, a, block, width, columns, range, out);
                    }
                    _ => block_rows::<_, false>(simd, a, block, width, columns, range, out),
                });
            });
        });
    }
}

/// The sums of 16 packed columns for a piece of the rows. ONE: all coefficients are 1.
#[inline(always)]
fn block_rows<S: Simd, const ONE: bool>(
    simd: S,
    a: &Aggregate<'_, f32>,
    block: &[[f32; LANES]],
    width: usize,
    columns: std::ops::Range<usize>,
    range: std::ops::Range<usize>,
    out: &mut PastCaches<'_>,
) {
    let zero = f32x16::splat(simd, 0.0);
    let first = range.start;
    let neighbour = &a.rows.neighbour[..];
    let mut gathered = [0.0; RUN];
    for i in range {
        let mut total = zero;
        let slots = a.rows.range(i);
        for start in slots.clone().step_by(RUN) {
            let end = (start + RUN).min(slots.end);
            let (own, c) = (
                &neighbour[start..end],
                a.coefficients(start..end, 0, &mut gathered),
            );
            let next = &neighbour[(start + AHEAD).min(neighbour.len())..];
            let fetch = |k: usize| {
                if let Some(&j) = next.get(k) {
                    simd::prefetch_line(block, j as usize);
                }
            };
            let add = |sum: &mut f32x16<S>, j: u32, c: f32| {
                let row = f32x16::from_slice(simd, &block[j as usize]);
                *sum = if ONE {
                    *sum + row
                } else {
                    row.fma(f32x16::splat(simd, c), *sum)
                };
            };
            let mut sums = [zero; 4];
            let (js, rest) = own.as_chunks::<4>();
            for (k, (j, c)) in js.iter().zip(c.as_chunks::<4>().0).enumerate() {
                for u in 0..4 {
                    fetch(4 * k + u);
                    add(&mut sums[u], j[u], c[u]);
                }
            }
            let done = own.len() - rest.len();
            for (k, (&j, &c)) in rest.iter().zip(&c[done..]).enumerate() {
                fetch(done + k);
                add(&mut sums[0], j, c);
            }
            total += (sums[0] + sums[1]) + (sums[2] + sums[3]);
        }
        if let Some(own) = a.own {
            let row = f32x16::from_slice(simd, &block[i]);
            total = row.fma(f32x16::splat(simd, own), total);
        }
        if let Some(scale) = a.row_scale {
            total *= f32x16::splat(simd, scale[i]);
        }
        if let Some(bias) = a.bias {
            total += simd::load_short(simd, &bias[columns.clone()]);
        }
        let row = (i - first) * width;
        out.store(total, row + columns.start..row + columns.end);
    }
}
