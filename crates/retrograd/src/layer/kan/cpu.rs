//! f32: SIMD over outputs, threads over samples (forward) and over inputs (backward).
//!
//! Samples are taken in blocks of [`BLOCK`], one input at a time: the k+1 basis functions that are
//! not zero are evaluated for the whole block, and its samples are grouped by knot interval. All
//! samples of a group use the same k+1 rows of weights, which are held in registers, in backward
//! together with the sums of their gradients: a multiply-add costs no load and no store. Basis
//! functions are evaluated anew in backward, which is cheaper than to write and read back 2(k+2)
//! numbers per (sample, input), and leaves nothing on the tape to go stale.

use super::Kan;
use super::basis::kept;
use super::block::{Aligned, BLOCK, Block, transpose};
use super::rows::{Row, add_padded, columns, padded, padded_width, padding, with_lines};
use super::single;
use crate::cuts::cuts;
use crate::parallel;
use crate::simd::{self, LANES, Simd, dispatch};

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
cuts!(FEW, CHAIN, PARALLEL, COPY);

/// The multiply-adds of one pass.
pub(super) fn work(kan: &Kan, rows: usize) -> usize {
    rows * kan.inputs * kan.outputs * (kan.degree + 2)
}

/// A layer and its weights, rows padded.
#[derive(Clone, Copy)]
pub(super) struct Weights<'a> {
    pub kan: &'a Kan,
    /// Numbers of a padded row.
    pub width: usize,
    spline: &'a [f32],
    base: &'a [f32],
}

impl Weights<'_> {
    pub fn with(kan: &Kan, spline: &[f32], base: &[f32], work: impl FnOnce(Weights<'_>)) {
        let outputs = kan.outputs;
        let lens = [spline, base].map(|rows| padding(rows.len(), outputs));
        parallel::with_scratch(lens[0] + lens[1], |scratch| {
            let (spline_scratch, base_scratch) = scratch.split_at_mut(lens[0]);
            work(Weights {
                kan,
                width: padded_width(outputs),
                spline: padded(spline, outputs, spline_scratch),
                base: padded(base, outputs, base_scratch),
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
    pub fn rows<S: Simd, const N: usize, const ROWS: usize, const V: usize, const H: usize>(
        &self,
        simd: S,
        input: usize,
        interval: usize,
        column: usize,
    ) -> [Row<S, V, H>; ROWS] {
        let mut rows = [Row::zero(simd); ROWS];
        let first = input * self.kan.bases();
        for (m, to) in rows.iter_mut().enumerate() {
            if let Some(row) = self.row::<N>(interval, m) {
                *to = Row::load(simd, &self.spline[(first + row) * self.width + column..]);
            }
        }
        rows
    }

    /// The first numbers of those rows.
    #[inline(always)]
    pub fn first_numbers<const N: usize, const ROWS: usize>(
        &self,
        input: usize,
        interval: usize,
    ) -> [f32; ROWS] {
        let mut numbers = [0.0; ROWS];
        let first = input * self.kan.bases();
        for (m, to) in numbers.iter_mut().enumerate() {
            if let Some(row) = self.row::<N>(interval, m) {
                *to = self.spline[(first + row) * self.width];
            }
        }
        numbers
    }

    /// The base function's first weight, 0 where there is none.
    #[inline(always)]
    pub fn first_of_base(&self, input: usize) -> f32 {
        self.base.get(input * self.width).copied().unwrap_or(0.0)
    }

    /// The base function's weights from a column on, zeros where there is none.
    #[inline(always)]
    pub fn base_row<S: Simd, const V: usize, const H: usize>(
        &self,
        simd: S,
        input: usize,
        column: usize,
    ) -> Row<S, V, H> {
        if self.base.is_empty() {
            return Row::zero(simd);
        }
        Row::load(simd, &self.base[input * self.width + column..])
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
            parallel::take_over(y);
            for y in y.chunks_exact_mut(outputs) {
                if bias.is_empty() {
                    y.fill(0.0);
                } else {
                    y.copy_from_slice(bias);
                }
            }
            with_lines(samples * weights.width, |sums| {
                by_rows!(kan.degree, ROWS => by_degree!(kan.degree, N => dispatch!(
                    simd::level(), simd => forward_block::<_, N, ROWS>(simd, weights, x, sums, y)
                )));
            });
        });
    });
}

/// y += the layer of a block of samples; `sums` has space for their padded rows of outputs.
#[inline(always)]
fn forward_block<S: Simd, const N: usize, const ROWS: usize>(
    simd: S,
    weights: Weights<'_>,
    x: &[f32],
    sums: &mut [f32],
    y: &mut [f32],
) {
    let Weights { kan, width, .. } = weights;
    let (inputs, outputs) = (kan.inputs, kan.outputs);
    let samples = y.len() / outputs;
    let mut block = Block::new();
    let mut transposed = Aligned([[0.0; BLOCK]; CHAIN]);
    for first in (0..inputs).step_by(CHAIN) {
        let transposed = &mut transposed.0[..CHAIN.min(inputs - first)];
        transpose(simd, x, inputs, first, transposed.as_flattened_mut(), BLOCK);
        for (l, x) in transposed.iter().enumerate() {
            let i = first + l;
            block.fill::<S, N>(simd, kan, i, x, samples, false);
            macro_rules! rows {
                ($v:literal, $h:literal, $columns:ident) => {
                    forward_rows::<S, N, ROWS, $v, $h>(
                        simd,
                        weights,
                        &block,
                        i,
                        $columns.first,
                        l == 0,
                        sums,
                    )
                };
            }
            for columns in columns(width, if ROWS == 4 { 4 } else { 2 }) {
                match (columns.vectors, columns.half) {
                    (_, true) => rows!(1, 1, columns),
                    (1, _) => rows!(1, 0, columns),
                    (2, _) => rows!(2, 0, columns),
                    _ if ROWS == 4 => rows!(4, 0, columns),
                    _ => unreachable!("two vectors at most"),
                }
            }
        }
        add_padded(simd, sums, outputs, y);
    }
}

/// Adds one input's share to some outputs of every sample, or sets it (`first`): the splines, then
/// the base function.
#[inline(always)]
fn forward_rows<S: Simd, const N: usize, const ROWS: usize, const V: usize, const H: usize>(
    simd: S,
    weights: Weights<'_>,
    block: &Block,
    input: usize,
    column: usize,
    first: bool,
    sums: &mut [f32],
) {
    let base: Row<S, V, H> = weights.base_row(simd, input, column);
    for (interval, mut samples) in block.groups() {
        let rows: [Row<S, V, H>; ROWS] =
            weights.rows::<S, N, ROWS, V, H>(simd, input, interval, column);
        while samples != 0 {
            let s = samples.trailing_zeros() as usize % BLOCK;
            samples &= samples - 1;
            let sums = &mut sums[s * weights.width + column..][..Row::<S, V, H>::LEN];
            let mut sum = match first {
                true => Row::zero(simd),
                false => Row::load(simd, sums),
            };
            for m in 0..ROWS {
                sum.add_product(simd, &rows[m], block.values[m][s]);
            }
            sum.add_product(simd, &base, block.silu[s]);
            sum.store(sums);
        }
    }
}
