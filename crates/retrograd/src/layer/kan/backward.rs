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
use crate::cuts::cuts;
use crate::group::{Segments, children};
use crate::layer::sized;
use crate::parallel;
use crate::simd::{self, LANES, Simd, dispatch, f32x16, prelude::*};

/// Samples whose gradients are added up in one f32 sum of block sums; longer batches are cut.
pub(super) const RUN: usize = 4096;
cuts!(RUN);

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
    // Of few inputs, one by one: two threads would have six and five groups of 21 inputs in pairs.
    let group = match inputs < 4 * HALF {
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
            work(kan, rows) >= PARALLEL / 2,
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
        let Weights { kan, width, .. } = self.weights;
        let lens = [kan.bases(), 1].map(|rows| rows * self.count * width);
        parallel::take_over(d_x);
        // One run, and rows without padding: they are their own sums.
        let own = [d_spline.len(), d_base.len()] == lens && width == kan.outputs;
        let one = self.segments.count() == 1;
        if own && one && self.rows <= RUN {
            return self.add_run(0..self.rows, 0, [d_spline, d_base], d_x);
        }
        let len = lens[0] + lens[1];
        with_lines(len * (self.segments.levels() + 2), |scratch| {
            let all = self.segments.all();
            if own && !one {
                // Segments are of a gradient that is overwritten.
                return self.set_sums(&all, [d_spline, d_base], scratch, d_x);
            }
            let (sums, scratch) = scratch.split_at_mut(len);
            let (spline, base) = sums.split_at_mut(lens[0]);
            self.set_sums(&all, [&mut *spline, &mut *base], scratch, d_x);
            dispatch!(simd::level(), simd => {
                add_padded(simd, spline, kan.outputs, d_spline);
                add_padded(simd, base, kan.outputs, d_base);
            });
        });
    }

    /// The sums of some segments along their tree: of the splines' weights and of the base function's.
    fn set_sums(
        &self,
        node: &Range<usize>,
        [spline, base]: [&mut [f32]; 2],
        scratch: &mut [f32],
        d_x: &mut [f32],
    ) {
        let Some([left, right]) = children(node) else {
            let rows = self.segments.rows(node.start);
            let end = rows.end;
            spline.fill(0.0);
            base.fill(0.0);
            let first = rows.start..end.min(rows.start + RUN);
            self.add_run(first, 0, [&mut *spline, &mut *base], d_x);
            let (more, _) = scratch.split_at_mut(spline.len() + base.len());
            let (more_spline, more_base) = more.split_at_mut(spline.len());
            for from in rows.step_by(RUN).skip(1) {
                more_spline.fill(0.0);
                more_base.fill(0.0);
                let run = from..end.min(from + RUN);
                self.add_run(run, 0, [&mut *more_spline, &mut *more_base], d_x);
                add_sums([&mut *spline, &mut *base], [more_spline, more_base]);
            }
            return;
        };
        let [first, second] = [&left, &right].map(|node| self.segments.rows(node.start));
        if node.len() == 2 && second.end - first.start <= BLOCK {
            // Both in one block, evaluated once.
            spline.fill(0.0);
            base.fill(0.0);
            return self.add_run(first.start..second.end, first.len(), [spline, base], d_x);
        }
        self.set_sums(&left, [&mut *spline, &mut *base], scratch, d_x);
        if right.len() == 1 && second.len() <= BLOCK {
            // Every sum of one block is added once, when it is complete.
            return self.add_run(second, 0, [spline, base], d_x);
        }
        let (own, rest) = scratch.split_at_mut(spline.len() + base.len());
        let (own_spline, own_base) = own.split_at_mut(spline.len());
        self.set_sums(&right, [&mut *own_spline, &mut *own_base], rest, d_x);
        add_sums([spline, base], [own_spline, own_base]);
    }

    /// Adds the gradients of at most a run of samples; of one block of two segments, the first of `cut`
    /// samples, those of the second after those of the first.
    fn add_run(
        &self,
        range: Range<usize>,
        cut: usize,
        [spline, base]: [&mut [f32]; 2],
        d_x: &mut [f32],
    ) {
        let degree = self.weights.kan.degree;
        by_rows!(degree, ROWS => by_degree!(degree, N => dispatch!(
            simd::level(), simd =>
                backward_run::<_, N, ROWS>(simd, self, range, cut, spline, base, d_x)
        )));
    }
}

/// sums += more.
fn add_sums(sums: [&mut [f32]; 2], more: [&[f32]; 2]) {
    dispatch!(simd::level(), simd => {
        for (sums, more) in sums.into_iter().zip(more) {
            simd::axpy(simd, 1.0, more, sums);
        }
    });
}

/// Adds the gradients of a run of samples to padded rows, sets their d_x.
#[inline(always)]
fn backward_run<S: Simd, const N: usize, const ROWS: usize>(
    simd: S,
    group: &Group<'_>,
    range: Range<usize>,
    cut: usize,
    d_spline: &mut [f32],
    d_base: &mut [f32],
    d_x: &mut [f32],
) {
    let Weights { kan, width, .. } = group.weights;
    let (inputs, bases) = (kan.inputs, kan.bases());
    let wants_d_x = !d_x.is_empty();
    let mut block = Block::new();
    let mut transposed = Aligned([[0.0; BLOCK]; HALF]);
    let mut dots = Aligned([[0.0; LANES]; BLOCK]);
    for at in range.clone().step_by(BLOCK) {
        let samples = BLOCK.min(range.end - at);
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
            let d_spline = &mut d_spline[l * bases * width..][..bases * width];
            let d_base = &mut d_base[l * width..][..width];
            macro_rules! rows {
                ($v:literal, $h:literal, $dx:literal, $columns:ident) => {
                    backward_rows::<S, N, ROWS, $v, $h, $dx>(
                        simd,
                        group.weights,
                        &block,
                        cut,
                        i,
                        $columns.first,
                        d_y,
                        d_spline,
                        d_base,
                        &mut dots.0,
                    )
                };
            }
            // Registers: k+2 rows of sums and, for d_x, k+1 of weights, one of gradients, and some
            // more.
            if wants_d_x {
                for columns in columns(width, if ROWS == 4 { 2 } else { 1 }) {
                    match (columns.vectors, columns.half) {
                        (_, true) => rows!(1, 1, true, columns),
                        (1, _) => rows!(1, 0, true, columns),
                        _ if ROWS == 4 => rows!(2, 0, true, columns),
                        _ => unreachable!("one vector"),
                    }
                }
                let d_x = &mut d_x[l * group.rows + at..][..samples];
                for (d_x, dots) in d_x.chunks_mut(LANES).zip(dots.0.as_chunks().0) {
                    simd::store(sum_each(simd, dots), d_x);
                }
            } else {
                for columns in columns(width, if ROWS == 4 { 4 } else { 2 }) {
                    match (columns.vectors, columns.half) {
                        (_, true) => rows!(1, 1, false, columns),
                        (1, _) => rows!(1, 0, false, columns),
                        (2, _) => rows!(2, 0, false, columns),
                        _ if ROWS == 4 => rows!(4, 0, false, columns),
                        _ => unreachable!("two vectors at most"),
                    }
                }
            }
        }
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

/// One input, one block of samples, some outputs: adds to the gradients of its weights and, for
/// `DX`, to what d_x is the sum of, which the first column sets. The first `cut` samples, where there is
/// a cut, are added before the others.
#[inline(always)]
fn backward_rows<
    S: Simd,
    const N: usize,
    const ROWS: usize,
    const V: usize,
    const H: usize,
    const DX: bool,
>(
    simd: S,
    weights: Weights<'_>,
    block: &Block,
    cut: usize,
    input: usize,
    column: usize,
    d_y: &[f32],
    d_spline: &mut [f32],
    d_base: &mut [f32],
    dots: &mut [[f32; LANES]; BLOCK],
) {
    let width = weights.width;
    let base: Row<S, V, H> = weights.base_row(simd, input, column);
    let kept = kept::<N>(weights.kan.degree);
    let first = (1_u64 << cut) - 1;
    for members in [first, !first].into_iter().filter(|&members| members != 0) {
        let mut d_base_sum: Row<S, V, H> = Row::zero(simd);
        // Neighbouring intervals share all but one of their rows: a row's sum stays here until the last
        // interval that has it is done.
        let mut sums = [Row::zero(simd); ROWS];
        let mut current = usize::MAX;
        for (interval, samples) in block.groups() {
            let mut samples = samples & members;
            if samples == 0 {
                continue;
            }
            for left in current..interval.min(current.saturating_add(kept)) {
                leave::<S, N, ROWS, V, H>(simd, weights, left, column, &mut sums, d_spline);
            }
            current = interval;
            let mut rises = [Row::zero(simd); ROWS];
            if DX {
                rises = weights.rows::<S, N, ROWS, V, H>(simd, input, interval, column);
                for r in 0..ROWS - 1 {
                    rises[r] = rises[r + 1].minus(&rises[r]);
                }
            }
            while samples != 0 {
                let s = samples.trailing_zeros() as usize % BLOCK;
                samples &= samples - 1;
                let d: Row<S, V, H> = Row::load(simd, &d_y[s * width + column..]);
                d_base_sum.add_product(simd, &d, block.silu[s]);
                for m in 0..ROWS {
                    sums[m].add_product(simd, &d, block.values[m][s]);
                }
                if DX {
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
        for left in current..current.saturating_add(kept) {
            leave::<S, N, ROWS, V, H>(simd, weights, left, column, &mut sums, d_spline);
        }
        d_base_sum.add(&Row::load(simd, &d_base[column..]));
        d_base_sum.store(&mut d_base[column..]);
    }
}

/// The first of an interval's rows is added to its gradient, where there is one, and the others move up:
/// they are the first rows of the next interval.
#[inline(always)]
fn leave<S: Simd, const N: usize, const ROWS: usize, const V: usize, const H: usize>(
    simd: S,
    weights: Weights<'_>,
    interval: usize,
    column: usize,
    sums: &mut [Row<S, V, H>; ROWS],
    d_spline: &mut [f32],
) {
    if let Some(row) = weights.row::<N>(interval, 0) {
        let at = row * weights.width + column;
        let d_spline = &mut d_spline[at..][..Row::<S, V, H>::LEN];
        sums[0].add(&Row::load(simd, d_spline));
        sums[0].store(d_spline);
    }
    let kept = kept::<N>(weights.kan.degree);
    for m in 1..ROWS {
        // Of rows that no interval has there are products of zeros, and of zeros with what is not finite.
        sums[m - 1] = if m < kept { sums[m] } else { Row::zero(simd) };
    }
    sums[ROWS - 1] = Row::zero(simd);
}
