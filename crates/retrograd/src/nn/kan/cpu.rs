//! f32: SIMD over outputs, threads over samples (forward) and over inputs (backward).
//!
//! Samples are taken in blocks of [`BLOCK`], one input at a time: the k+1 basis functions that are
//! not zero are evaluated for the whole block, and its samples are grouped by knot interval. All
//! samples of a group use the same k+1 rows of weights, which are held in registers, in backward
//! together with the sums of their gradients: a multiply-add costs no load and no store. Basis
//! functions are evaluated anew in backward, which is cheaper than to write and read back 2(k+2)
//! numbers per (sample, input), and leaves nothing on the tape to go stale.
//!
//! Rows of outputs are padded to whole vectors of 16 where they are kept for a while, with zeros
//! that nobody reads.

use super::Kan;
use super::basis::kept;
use super::block::{Aligned, BLOCK, Block, turn};
use super::single;
use crate::parallel;
use crate::simd::{self, LANES, Simd, dispatch, f32x16, prelude::*};

/// Fewer samples than this go forward one by one, lanes along the inputs.
const FEW: usize = 8;
/// Inputs whose share of an output is one chain of sums.
pub(super) const CHAIN: usize = LANES;
/// Multiply-adds from which work goes to threads (two cores: about 10 µs of work against some
/// 5 µs to wake a thread).
pub(super) const PARALLEL: usize = 1 << 19;
/// Numbers from which on a copy goes to threads: between two parallel parts they are awake, and
/// half of the numbers are in the other core's cache.
pub(super) const COPY: usize = 1 << 13;

/// Sixteen outputs of a padded row.
pub(super) type Vector = [f32; LANES];

/// The multiply-adds of one pass.
pub(super) fn work(kan: &Kan, rows: usize) -> usize {
    rows * kan.inputs * kan.outputs * (kan.degree + 2)
}

/// Cuts a row of vectors into blocks of 4, 2 and 1, no more than `most`: few kernels to compile.
/// Gives (first vector, vectors).
#[inline(always)]
pub(super) fn columns(vectors: usize, most: usize) -> impl Iterator<Item = (usize, usize)> {
    let mut first = 0;
    std::iter::from_fn(move || {
        let count = match (vectors - first).min(most) {
            0 => return None,
            1 => 1,
            2 | 3 => 2,
            _ => 4,
        };
        first += count;
        Some((first - count, count))
    })
}

/// That many vectors of this thread's room, each a cache line, their content unspecified.
pub(super) fn with_vectors(count: usize, work: impl FnOnce(&mut [Vector])) {
    parallel::with_scratch((count + 1) * LANES, |room| {
        let start = room.as_ptr().align_offset(align_of::<Aligned<Vector>>());
        work(&mut room[start.min(LANES)..].as_chunks_mut().0[..count]);
    });
}

/// Rows of outputs as whole vectors: as they are, or padded in `room`.
pub(super) fn padded<'a>(rows: &'a [f32], outputs: usize, room: &'a mut [f32]) -> &'a [Vector] {
    if outputs.is_multiple_of(LANES) {
        return rows.as_chunks().0;
    }
    const ROWS: usize = 256;
    let wide = outputs.next_multiple_of(LANES);
    let parallel = room.len() >= COPY;
    parallel::for_each_chunk(room, ROWS * wide, parallel, |i, room| {
        let rows = rows[i * ROWS * outputs..].chunks_exact(outputs);
        for (row, to) in rows.zip(room.chunks_exact_mut(wide)) {
            to[..outputs].copy_from_slice(row);
            to[outputs..].fill(0.0);
        }
    });
    room.as_chunks().0
}

/// Numbers that [`padded`] takes for rows of that many in all.
pub(super) fn padding(len: usize, outputs: usize) -> usize {
    match outputs.is_multiple_of(LANES) {
        true => 0,
        false => len / outputs * outputs.next_multiple_of(LANES),
    }
}

/// y += the first of `sums`, which are padded.
#[inline(always)]
pub(super) fn add_padded<S: Simd>(simd: S, sums: &[Vector], outputs: usize, y: &mut [f32]) {
    let vectors = outputs.div_ceil(LANES);
    for (y, sums) in y.chunks_exact_mut(outputs).zip(sums.chunks_exact(vectors)) {
        let (whole, rest) = y.as_chunks_mut::<LANES>();
        for (y, sum) in whole.iter_mut().zip(sums) {
            (f32x16::from_slice(simd, y) + f32x16::from_slice(simd, sum)).store_slice(y);
        }
        for (y, sum) in rest.iter_mut().zip(sums[vectors - 1]) {
            *y += sum;
        }
    }
}

#[inline(always)]
pub(super) fn load<S: Simd, const NV: usize>(simd: S, vectors: &[Vector]) -> [f32x16<S>; NV] {
    let mut loaded = [f32x16::splat(simd, 0.0); NV];
    for (to, vector) in loaded.iter_mut().zip(vectors) {
        *to = f32x16::from_slice(simd, vector);
    }
    loaded
}

/// A layer and its weights, rows padded.
#[derive(Clone, Copy)]
pub(super) struct Weights<'a> {
    pub kan: &'a Kan,
    /// Vectors a row.
    pub vectors: usize,
    spline: &'a [Vector],
    base: &'a [Vector],
}

impl Weights<'_> {
    pub fn with(kan: &Kan, spline: &[f32], base: &[f32], work: impl FnOnce(Weights<'_>)) {
        let outputs = kan.outputs;
        let lens = [spline, base].map(|rows| padding(rows.len(), outputs));
        parallel::with_scratch(lens[0] + lens[1], |room| {
            let (spline_room, base_room) = room.split_at_mut(lens[0]);
            work(Weights {
                kan,
                vectors: outputs.div_ceil(LANES),
                spline: padded(spline, outputs, spline_room),
                base: padded(base, outputs, base_room),
            });
        });
    }

    /// The row of spline m of the k+1 in an interval, where there is one.
    #[inline(always)]
    pub fn row<const N: usize>(&self, interval: usize, m: usize) -> Option<usize> {
        let degree = kept::<N>(self.kan.degree) - 1;
        let row = (interval + m).wrapping_sub(degree);
        (m <= degree && row < self.kan.grid + degree).then_some(row)
    }

    /// The rows that samples use whose input is in an interval, from a column on; zeros for rows
    /// that don't exist.
    #[inline(always)]
    pub fn rows<S: Simd, const N: usize, const ROWS: usize, const NV: usize>(
        &self,
        simd: S,
        input: usize,
        interval: usize,
        column: usize,
    ) -> [[f32x16<S>; NV]; ROWS] {
        let mut rows = [[f32x16::splat(simd, 0.0); NV]; ROWS];
        let first = input * self.kan.bases();
        for (m, to) in rows.iter_mut().enumerate() {
            if let Some(row) = self.row::<N>(interval, m) {
                let at = (first + row) * self.vectors + column;
                *to = load(simd, &self.spline[at..at + NV]);
            }
        }
        rows
    }

    /// The base function's weights from a column on, zeros where there is none.
    #[inline(always)]
    pub fn base_row<S: Simd, const NV: usize>(
        &self,
        simd: S,
        input: usize,
        column: usize,
    ) -> [f32x16<S>; NV] {
        if self.base.is_empty() {
            return [f32x16::splat(simd, 0.0); NV];
        }
        let at = input * self.vectors + column;
        load(simd, &self.base[at..at + NV])
    }
}

pub(super) fn forward(
    kan: &Kan,
    rows: usize,
    spline_weight: &[f32],
    base_weight: &[f32],
    bias: &[f32],
    x: &[f32],
    y: &mut [f32],
) {
    let (inputs, outputs) = (kan.inputs, kan.outputs);
    if rows < FEW {
        for (x, y) in x.chunks_exact(inputs).zip(y.chunks_exact_mut(outputs)) {
            single::forward(kan, spline_weight, base_weight, bias, x, y);
        }
        return;
    }
    let parallel = work(kan, rows) >= PARALLEL;
    // Whole blocks cost least, but a small batch has to be shared too.
    let piece = if rows < 4 * BLOCK { BLOCK / 2 } else { BLOCK };
    Weights::with(kan, spline_weight, base_weight, |weights| {
        parallel::for_each_chunk(y, piece * outputs, parallel, |p, y| {
            let samples = y.len() / outputs;
            let x = &x[p * piece * inputs..][..samples * inputs];
            for y in y.chunks_exact_mut(outputs) {
                if bias.is_empty() {
                    y.fill(0.0);
                } else {
                    y.copy_from_slice(bias);
                }
            }
            with_vectors(samples * outputs.div_ceil(LANES), |sums| {
                by_rows!(kan.degree, ROWS => by_degree!(kan.degree, N => dispatch!(
                    simd::level(), simd => forward_block::<_, N, ROWS>(simd, weights, x, sums, y)
                )));
            });
        });
    });
}

/// y += the layer of a block of samples; `sums` has room for their padded rows of outputs.
#[inline(always)]
fn forward_block<S: Simd, const N: usize, const ROWS: usize>(
    simd: S,
    weights: Weights<'_>,
    x: &[f32],
    sums: &mut [Vector],
    y: &mut [f32],
) {
    let Weights { kan, vectors, .. } = weights;
    let (inputs, outputs) = (kan.inputs, kan.outputs);
    let samples = y.len() / outputs;
    let mut block = Block::new();
    let mut turned = Aligned([[0.0; BLOCK]; CHAIN]);
    for first in (0..inputs).step_by(CHAIN) {
        let turned = &mut turned.0[..CHAIN.min(inputs - first)];
        turn(simd, x, inputs, first, turned.as_flattened_mut(), BLOCK);
        for (l, x) in turned.iter().enumerate() {
            let i = first + l;
            block.fill::<S, N>(simd, kan, i, x, samples, false);
            macro_rules! rows {
                ($nv:literal, $column:ident) => {
                    forward_rows::<S, N, ROWS, $nv>(simd, weights, &block, i, $column, l == 0, sums)
                };
            }
            for (column, count) in columns(vectors, if ROWS == 4 { 4 } else { 2 }) {
                match count {
                    1 => rows!(1, column),
                    2 => rows!(2, column),
                    _ if ROWS == 4 => rows!(4, column),
                    _ => unreachable!("two vectors at the most"),
                }
            }
        }
        add_padded(simd, sums, outputs, y);
    }
}

/// Adds one input's share to `NV` vectors of outputs of every sample, or sets it (`first`): the
/// splines, then the base function.
#[inline(always)]
fn forward_rows<S: Simd, const N: usize, const ROWS: usize, const NV: usize>(
    simd: S,
    weights: Weights<'_>,
    block: &Block,
    input: usize,
    column: usize,
    first: bool,
    sums: &mut [Vector],
) {
    let base: [f32x16<S>; NV] = weights.base_row(simd, input, column);
    for (interval, mut samples) in block.groups() {
        let rows: [[f32x16<S>; NV]; ROWS] =
            weights.rows::<S, N, ROWS, NV>(simd, input, interval, column);
        while samples != 0 {
            let s = samples.trailing_zeros() as usize % BLOCK;
            samples &= samples - 1;
            let sums = &mut sums[s * weights.vectors + column..][..NV];
            let mut sum = [f32x16::splat(simd, 0.0); NV];
            if !first {
                sum = load(simd, sums);
            }
            for m in 0..ROWS {
                let b = f32x16::splat(simd, block.values[m][s]);
                for v in 0..NV {
                    sum[v] = rows[m][v].mul_add(b, sum[v]);
                }
            }
            let b = f32x16::splat(simd, block.silu[s]);
            for v in 0..NV {
                sum[v] = base[v].mul_add(b, sum[v]);
                sum[v].store_slice(&mut sums[v]);
            }
        }
    }
}
