//! Backward in f32: a thread has inputs of its own and goes over all samples, so that nothing is
//! summed between threads.
//!
//! The derivative of an edge needs one row less than its value: with the rows W_0 … W_k of an
//! interval, W_r = 0 where a row does not exist, and B′_r = e_{r−1} − e_r,
//!
//! Σ_r W_r·B′_r = Σ_{r<k} e_r·(W_{r+1} − W_r).

use std::ops::Range;

use super::Kan;
use super::basis::kept;
use super::block::{Aligned, BLOCK, Block, HALF, transpose};
use super::cpu::{COPY, PARALLEL, Weights, work};
use super::rows::{Row, add_padded, columns, padded, padding, with_lines};
use super::sums::{Step, Steps, Sums, To};
use crate::cuts::cuts;
use crate::group::Segments;
use crate::layer::sized;
use crate::parallel;
use crate::simd::{self, Fused, LANES, Simd, dispatch, f32x16, mask32x16, prelude::*};

/// Samples whose gradients are added up in one f32 sum of block sums; longer batches are cut.
pub(super) const RUN: usize = 4096;
/// Numbers of a row, no more, of which two segments' sums fit the registers, where a vector is one.
const PAIRED: usize = 2 * LANES;
cuts!(RUN, PAIRED);

/// The gradients of a layer's tensors, added to; empty where not wanted.
pub(super) struct Gradients<'a> {
    pub d_spline_weight: &'a mut [f32],
    pub d_base_weight: &'a mut [f32],
    pub d_bias: &'a mut [f32],
}

pub(super) fn backward(
    kan: &Kan,
    rows: usize,
    spline_weight: &[f32],
    base_weight: &[f32],
    x: &[f32],
    d_y: &[f32],
    grads: Gradients<'_>,
    d_x: Option<&mut [f32]>,
    scratch: &mut Vec<f32>,
    segments: Segments,
) {
    let (inputs, outputs) = (kan.inputs, kan.outputs);
    if !grads.d_bias.is_empty() {
        dispatch!(simd::level(), simd => sum_rows(simd, d_y, grads.d_bias, segments));
    }
    let [spline_len, base_len] =
        [&grads.d_spline_weight, &grads.d_base_weight].map(|d| d.len() / inputs);
    if spline_len + base_len == 0 && d_x.is_none() {
        return;
    }
    // Workspace for d_x by input, and for padded rows of d_y.
    let d_x_len = if d_x.is_some() { rows } else { 0 };
    let scratch = sized(scratch, inputs * d_x_len + padding(rows * outputs, outputs));
    let (d_x_by_input, d_y_scratch) = scratch.split_at_mut(inputs * d_x_len);
    let d_y = padded(d_y, outputs, d_y_scratch);
    let parallel = work(kan, rows) >= PARALLEL / 2;
    // Of few inputs, one by one: two threads would have six and five groups of 21 inputs in pairs.
    let group = match parallel && inputs < 4 * HALF {
        true => 1,
        false => HALF,
    };
    Weights::with(kan, spline_weight, base_weight, |weights| {
        parallel::for_each_chunks(
            [
                grads.d_spline_weight,
                grads.d_base_weight,
                &mut *d_x_by_input,
            ],
            [spline_len, base_len, d_x_len].map(|len| len * group),
            inputs.div_ceil(group),
            parallel,
            |piece, [d_spline, d_base, d_x]| {
                let group = Group {
                    weights,
                    first: piece * group,
                    count: group.min(inputs - piece * group),
                    rows,
                    x,
                    d_y,
                    segments,
                };
                group.backward(d_spline, d_base, d_x);
            },
        );
    });
    if let Some(d_x) = d_x {
        by_sample(d_x_by_input, rows, d_x);
    }
}

/// d_x as it was gathered, input by input, transposed: sample by sample.
fn by_sample(by_input: &[f32], rows: usize, d_x: &mut [f32]) {
    let inputs = by_input.len() / rows;
    let parallel = by_input.len() >= COPY;
    parallel::for_each_chunk(d_x, LANES * inputs, parallel, |c, d_x| {
        parallel::take_over(d_x);
        dispatch!(simd::level(), simd => transpose(simd, by_input, rows, c * LANES, d_x, inputs));
    });
}

/// to += Σ rows, in blocks and runs as the weights' gradients, and segments along their tree.
#[inline(always)]
fn sum_rows<S: Simd>(simd: S, rows: &[f32], to: &mut [f32], segments: Segments) {
    let width = to.len();
    for at in (0..width).step_by(LANES) {
        let columns = at..width.min(at + LANES);
        let sum = segments.sum(
            #[inline(always)]
            |segment| {
                let rows = &rows[segment.start * width..segment.end * width];
                sum_columns(simd, rows, width, columns.clone())
            },
            |a, b| a + b,
        );
        let total = simd::load(simd, &to[columns.clone()]) + sum;
        simd::store(total, &mut to[columns]);
    }
}

/// The sums of up to sixteen columns.
#[inline(always)]
fn sum_columns<S: Simd>(simd: S, rows: &[f32], width: usize, columns: Range<usize>) -> f32x16<S> {
    let mut total = f32x16::splat(simd, 0.0);
    for run in rows.chunks(RUN * width) {
        let mut run_sum = f32x16::splat(simd, 0.0);
        for block in run.chunks(BLOCK * width) {
            let mut sum = f32x16::splat(simd, 0.0);
            for row in block.chunks_exact(width) {
                sum += simd::load(simd, &row[columns.clone()]);
            }
            run_sum += sum;
        }
        total += run_sum;
    }
    total
}

/// A group of inputs, and what its gradients are made of.
struct Group<'a> {
    weights: Weights<'a>,
    first: usize,
    count: usize,
    rows: usize,
    x: &'a [f32],
    /// Padded rows of outputs.
    d_y: &'a [f32],
    segments: Segments,
}

impl Group<'_> {
    /// Adds the gradients of the group's weights, sets its d_x (`rows` values an input).
    fn backward(&self, d_spline: &mut [f32], d_base: &mut [f32], d_x: &mut [f32]) {
        if self.rows == 0 {
            return;
        }
        let Weights { kan, width, .. } = self.weights;
        let lens = [kan.bases(), 1].map(|rows| rows * self.count * width);
        parallel::take_over(d_x);
        // Rows without padding are their own sums: of one run added to, of several segments overwritten, since
        // segments are of a gradient that is.
        let own = [d_spline.len(), d_base.len()] == lens && width == kan.outputs;
        let one = self.segments.count() == 1;
        if d_spline.is_empty() && d_base.is_empty() {
            return self.add_blocks(None, d_x);
        }
        if own && one && self.rows <= RUN {
            return self.add_sums([d_spline, d_base], &mut [], false, d_x);
        }
        let len = lens[0] + lens[1];
        with_lines(len * (self.segments.levels() + 2), |scratch| {
            if own && !one {
                return self.add_sums([d_spline, d_base], scratch, true, d_x);
            }
            let (sums, scratch) = scratch.split_at_mut(len);
            let (spline, base) = sums.split_at_mut(lens[0]);
            self.add_sums([&mut *spline, &mut *base], scratch, true, d_x);
            dispatch!(simd::level(), simd => {
                add_padded(simd, spline, kan.outputs, d_spline);
                add_padded(simd, base, kan.outputs, d_base);
            });
        });
    }

    /// The sums of all samples: of the splines' weights and of the base function's, with scratch for those that
    /// are open meanwhile.
    fn add_sums(
        &self,
        [spline, base]: [&mut [f32]; 2],
        open: &mut [f32],
        overwrite: bool,
        d_x: &mut [f32],
    ) {
        let Weights { kan, width, .. } = self.weights;
        let sums = Some(Sums {
            spline,
            base,
            open,
            count: self.count,
            each: [kan.bases() * width, width],
            overwrite,
        });
        self.add_blocks(sums, d_x);
    }

    fn add_blocks(&self, sums: Option<Sums<'_>>, d_x: &mut [f32]) {
        let degree = self.weights.kan.degree;
        by_rows!(degree, ROWS => by_degree!(degree, N => dispatch!(
            simd::level(), simd => backward_blocks::<_, N, ROWS>(simd, self, sums, d_x)
        )));
    }
}

/// Adds the gradients of all samples to padded rows where they are wanted, sets their d_x.
///
/// The two read the same rows of d_y one after the other: together their sums and rows of weights would leave
/// registers for half as many outputs at once, and twice as many ways over the intervals.
#[inline(always)]
fn backward_blocks<S: Simd, const N: usize, const ROWS: usize>(
    simd: S,
    group: &Group<'_>,
    mut sums: Option<Sums<'_>>,
    d_x: &mut [f32],
) {
    let Weights { kan, width, .. } = group.weights;
    let inputs = kan.inputs;
    let wants_d_x = !d_x.is_empty();
    let mut block = Block::new();
    let mut transposed = Aligned([[0.0; BLOCK]; HALF]);
    let mut dots = Aligned([[0.0; LANES]; BLOCK]);
    for step in Steps::new(group.segments) {
        let (at, samples) = (step.samples.start, step.samples.len());
        let d_y = &group.d_y[at * width..][..samples * width];
        let x = &group.x[at * inputs..][..samples * inputs];
        let transposed = &mut transposed.0[..group.count];
        transpose(
            simd,
            x,
            inputs,
            group.first,
            transposed.as_flattened_mut(),
            BLOCK,
        );
        for (l, x) in transposed.iter().enumerate() {
            let i = group.first + l;
            block.fill::<S, N>(simd, kan, i, x, samples, wants_d_x);
            if let Some(sums) = &mut sums {
                add_weights::<S, N, ROWS>(simd, group.weights, &block, &step, l, d_y, sums);
            }
            if wants_d_x {
                let d_x = &mut d_x[l * group.rows + at..][..samples];
                set_input::<S, N, ROWS>(simd, group.weights, &block, i, d_y, &mut dots.0, d_x);
            }
        }
    }
}

/// Vectors of a row of outputs at once: as many as registers hold with the rows of an interval.
#[inline(always)]
fn vectors<S: Simd, const ROWS: usize>() -> usize {
    match (S::f32s::LEN >= LANES, ROWS) {
        (true, 4) => 4,
        (true, _) => 2,
        (false, _) => 1,
    }
}

/// Calls a kernel for every part of a row of outputs.
macro_rules! by_columns {
    ($width:expr, ($v:ident, $h:ident, $columns:ident) => $call:expr) => {
        for $columns in columns($width, vectors::<S, ROWS>()) {
            macro_rules! call {
                ($vectors:literal, $halves:literal) => {{
                    const $v: usize = $vectors;
                    const $h: usize = $halves;
                    $call
                }};
            }
            match ($columns.vectors, $columns.half) {
                (_, true) => call!(1, 1),
                (1, _) => call!(1, 0),
                (2, _) if S::f32s::LEN >= LANES => call!(2, 0),
                _ if S::f32s::LEN >= LANES && ROWS == 4 => call!(4, 0),
                _ => unreachable!("no more than fit the registers"),
            }
        }
    };
}

/// Adds a block's gradients of one input's weights to their sum, and what is complete then to the one before.
#[inline(always)]
fn add_weights<S: Simd, const N: usize, const ROWS: usize>(
    simd: S,
    weights: Weights<'_>,
    block: &Block,
    step: &Step,
    l: usize,
    d_y: &[f32],
    sums: &mut Sums<'_>,
) {
    let first = (1_u64 << step.cut) - 1;
    let pairs = first != 0 && weights.width <= PAIRED && vectors::<S, ROWS>() * LANES >= PAIRED;
    let begun = !step.first || (step.depth == 0 && !sums.overwrite);
    // What is complete at once goes where it is added to; where that takes two ways over the samples, it is made
    // in one place for all inputs, which stays in the cache.
    let at_once = step.first && step.closes > 0;
    let direct = usize::from(at_once && (pairs || first == 0));
    let place = if at_once && direct == 0 { 0 } else { l };
    by_columns!(weights.width, (V, H, columns) => {
        let column = columns.first;
        let mut to = sums.to(step.depth - direct, place, column, begun || direct == 1);
        if pairs && (V + H) * LANES <= PAIRED {
            let members = [first, !first];
            weight_rows::<S, N, ROWS, V, H, 2>(simd, weights, block, members, column, d_y, &mut to);
        } else {
            if first != 0 {
                weight_rows::<S, N, ROWS, V, H, 1>(simd, weights, block, [first], column, d_y, &mut to);
                to.begun = true;
            }
            weight_rows::<S, N, ROWS, V, H, 1>(simd, weights, block, [!first], column, d_y, &mut to);
        }
    });
    for closed in direct..step.closes {
        let place = if closed == 0 { place } else { l };
        sums.close(simd, step.depth - closed, place, l);
    }
}

/// Sets d_x of one input in a block, whose products are kept in `dots` meanwhile.
#[inline(always)]
fn set_input<S: Simd, const N: usize, const ROWS: usize>(
    simd: S,
    weights: Weights<'_>,
    block: &Block,
    input: usize,
    d_y: &[f32],
    dots: &mut [[f32; LANES]; BLOCK],
    d_x: &mut [f32],
) {
    if weights.kan.outputs == 1 {
        return set_input_of_one::<S, N, ROWS>(simd, weights, block, input, d_y, d_x);
    }
    by_columns!(weights.width, (V, H, columns) => input_rows::<S, N, ROWS, V, H>(
        simd, weights, block, input, columns.first, d_y, dots,
    ));
    for (d_x, dots) in d_x.chunks_mut(LANES).zip(dots.as_chunks().0) {
        simd::store(sum_each(simd, dots), d_x);
    }
}

/// The same of a layer with one output, sixteen samples at a time: rows of one number would leave most lanes empty.
#[inline(always)]
fn set_input_of_one<S: Simd, const N: usize, const ROWS: usize>(
    simd: S,
    weights: Weights<'_>,
    block: &Block,
    input: usize,
    d_y: &[f32],
    d_x: &mut [f32],
) {
    let zero = f32x16::splat(simd, 0.0);
    // What an interval's edge rises by from row to row, in the lanes of its samples.
    let mut rises = [[zero; ROWS]; BLOCK / LANES];
    for (interval, samples) in block.groups() {
        let rows = weights.first_numbers::<N, ROWS>(input, interval);
        for (v, rises) in rises.iter_mut().enumerate() {
            let lanes = mask32x16::from_bitmask(simd, samples >> (v * LANES) & 0xffff);
            for r in 0..ROWS - 1 {
                rises[r] = lanes.select(f32x16::splat(simd, rows[r + 1] - rows[r]), rises[r]);
            }
        }
    }
    let base = f32x16::splat(simd, weights.first_of_base(input));
    let d_y = d_y.chunks(LANES * weights.width);
    for (v, (d_x, d_y)) in d_x.chunks_mut(LANES).zip(d_y).enumerate() {
        let mut d = [0.0; LANES];
        for (d, row) in d.iter_mut().zip(d_y.chunks_exact(weights.width)) {
            *d = row[0];
        }
        let at = v * LANES;
        let mut edge = base * f32x16::from_slice(simd, &block.silu_slope[at..][..LANES]);
        for r in 0..ROWS - 1 {
            let steps = f32x16::from_slice(simd, &block.steps[r][at..][..LANES]);
            edge = rises[v][r].fma(steps, edge);
        }
        // No zero has a sign, as in a sum.
        simd::store(edge * f32x16::from_slice(simd, &d) + zero, d_x);
    }
}

/// The sums of the numbers of each of sixteen vectors, by pairs.
#[inline(always)]
fn sum_each<S: Simd>(simd: S, vectors: &[[f32; LANES]; LANES]) -> f32x16<S> {
    let mut sums = [f32x16::splat(simd, 0.0); LANES];
    for (sum, vector) in sums.iter_mut().zip(vectors) {
        *sum = f32x16::from_slice(simd, vector);
    }
    // Each round leaves half as many vectors, of twice as many sums.
    for count in [8, 4, 2, 1] {
        for i in 0..count {
            let (a, b) = (sums[2 * i], sums[2 * i + 1]);
            sums[i] = a.unzip_low(b) + a.unzip_high(b);
        }
    }
    sums[0]
}

/// One input, some samples of a block, some outputs: adds to the gradients of its weights. `P` sets of samples
/// have sums of their own, added one to the other.
#[inline(always)]
fn weight_rows<
    S: Simd,
    const N: usize,
    const ROWS: usize,
    const V: usize,
    const H: usize,
    const P: usize,
>(
    simd: S,
    weights: Weights<'_>,
    block: &Block,
    members: [u64; P],
    column: usize,
    d_y: &[f32],
    to: &mut To<'_>,
) {
    let width = weights.width;
    let kept = kept::<N>(weights.kan.degree);
    let mut base_sums = [Row::<S, V, H>::zero(simd); P];
    // Neighbouring intervals share all but one of their rows: a row's sum stays here until the last
    // interval that has it is done.
    let mut sums = [[Row::zero(simd); ROWS]; P];
    let mut current = usize::MAX;
    let mut next = 0;
    let all = members.iter().fold(0, |all, members| all | members);
    for (interval, samples) in block.groups() {
        if samples & all == 0 {
            continue;
        }
        for left in current..interval.min(current.saturating_add(kept)) {
            leave::<S, N, ROWS, V, H, P>(simd, weights, left, &mut sums, to, &mut next);
        }
        current = interval;
        macro_rules! add {
            ($set:expr, $samples:expr) => {
                let s = $samples.trailing_zeros() as usize % BLOCK;
                $samples &= $samples - 1;
                let d: Row<S, V, H> = Row::load(simd, &d_y[s * width + column..]);
                base_sums[$set].add_product(simd, &d, block.silu[s]);
                for m in 0..ROWS {
                    sums[$set][m].add_product(simd, &d, block.values[m][s]);
                }
            };
        }
        let mut first = samples & members[0];
        if P == 2 {
            let mut second = samples & members[P - 1];
            // Together, since the sums of one wait for each other.
            while first != 0 && second != 0 {
                add!(0, first);
                add!(P - 1, second);
            }
            while second != 0 {
                add!(P - 1, second);
            }
        }
        while first != 0 {
            add!(0, first);
        }
    }
    for left in current..current.saturating_add(kept) {
        leave::<S, N, ROWS, V, H, P>(simd, weights, left, &mut sums, to, &mut next);
    }
    to.skip::<S, V, H>(simd, next..weights.kan.bases(), width);
    to.take_base(simd, total(&base_sums));
}

/// The sum of one set, or of two.
#[inline(always)]
fn total<S: Simd, const V: usize, const H: usize, const P: usize>(
    sums: &[Row<S, V, H>; P],
) -> Row<S, V, H> {
    let mut total = sums[0];
    if P == 2 {
        total.add(&sums[P - 1]);
    }
    total
}

/// One input, one block of samples, some outputs: adds to what d_x is the sum of, which the first column sets.
#[inline(always)]
fn input_rows<S: Simd, const N: usize, const ROWS: usize, const V: usize, const H: usize>(
    simd: S,
    weights: Weights<'_>,
    block: &Block,
    input: usize,
    column: usize,
    d_y: &[f32],
    dots: &mut [[f32; LANES]; BLOCK],
) {
    let width = weights.width;
    let base: Row<S, V, H> = weights.base_row(simd, input, column);
    for (interval, mut samples) in block.groups() {
        let mut rises = weights.rows::<S, N, ROWS, V, H>(simd, input, interval, column);
        for r in 0..ROWS - 1 {
            rises[r] = rises[r + 1].minus(&rises[r]);
        }
        while samples != 0 {
            let s = samples.trailing_zeros() as usize % BLOCK;
            samples &= samples - 1;
            let d: Row<S, V, H> = Row::load(simd, &d_y[s * width + column..]);
            // The derivative of the edges to these outputs.
            let mut edge = base.times(simd, block.silu_slope[s]);
            for r in 0..ROWS - 1 {
                edge.add_product(simd, &rises[r], block.steps[r][s]);
            }
            let dot = match column {
                0 => f32x16::splat(simd, 0.0),
                _ => f32x16::from_slice(simd, &dots[s]),
            };
            edge.dot(simd, &d, dot).store_slice(&mut dots[s]);
        }
    }
}

/// The first of an interval's rows is added to its gradient, where there is one, and the others move up:
/// they are the first rows of the next interval. All rows before `next` are done.
#[inline(always)]
fn leave<
    S: Simd,
    const N: usize,
    const ROWS: usize,
    const V: usize,
    const H: usize,
    const P: usize,
>(
    simd: S,
    weights: Weights<'_>,
    interval: usize,
    sums: &mut [[Row<S, V, H>; ROWS]; P],
    to: &mut To<'_>,
    next: &mut usize,
) {
    if let Some(row) = weights.row::<N>(interval, 0) {
        to.skip::<S, V, H>(simd, *next..row, weights.width);
        let mut firsts = [sums[0][0]; P];
        firsts[P - 1] = sums[P - 1][0];
        to.take(simd, row * weights.width, total(&firsts));
        *next = row + 1;
    }
    let kept = kept::<N>(weights.kan.degree);
    for sums in sums {
        for m in 1..ROWS {
            // Of rows that no interval has there are products of zeros, and of zeros with what is not finite.
            sums[m - 1] = if m < kept { sums[m] } else { Row::zero(simd) };
        }
        sums[ROWS - 1] = Row::zero(simd);
    }
}
