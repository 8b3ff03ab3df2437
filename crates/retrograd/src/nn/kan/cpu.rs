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
use super::basis::{kept, lanes};
use super::single;
use crate::nn::layer::room;
use crate::parallel;
use crate::simd::{self, LANES, Simd, dispatch, f32x16, prelude::*, u32x16};

/// Samples per block: a bit of a u32 each.
const BLOCK: usize = 32;
/// Fewer samples than this go forward one by one, lanes along the inputs.
const FEW: usize = 8;
/// Inputs whose share of an output is one chain of sums.
pub(super) const CHAIN: usize = LANES;
/// Samples whose gradients are added up in one f32 sum of block sums; longer batches are cut.
const RUN: usize = 4096;
/// Multiply-adds from which work goes to threads (two cores: about 10 µs of work against some
/// 5 µs to wake a thread).
const PARALLEL: usize = 1 << 19;
/// Numbers from which on a copy goes to threads: between two parallel parts they are awake, and
/// half of the numbers are in the other core's cache.
const COPY: usize = 1 << 13;
/// Pieces that backward is cut into at least, where there are as many inputs.
const PIECES: usize = 8;
/// Up to this many intervals, groups are found by comparing a vector with every interval.
const COMPARED: usize = 16;

/// Sixteen outputs of a padded row.
type Vector = [f32; LANES];

/// The multiply-adds of one pass.
fn work(kan: &Kan, rows: usize) -> usize {
    rows * kan.inputs * kan.outputs * (kan.degree + 2)
}

/// Runs an expression with the room for rows of weights that a kernel is compiled for: 4, or the 8
/// of degree 7. Rows that a degree doesn't have are zeros: two kernels to compile instead of seven.
macro_rules! by_rows {
    ($degree:expr, $n:ident => $call:expr) => {
        if $degree <= 3 {
            const $n: usize = 4;
            $call
        } else {
            const $n: usize = 8;
            $call
        }
    };
}

/// Cuts a row of vectors into blocks of 4, 2 and 1, no more than `most`: few kernels to compile.
/// Gives (first vector, vectors).
#[inline(always)]
fn columns(vectors: usize, most: usize) -> impl Iterator<Item = (usize, usize)> {
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

/// One input at the samples of a block.
struct Block {
    /// The k+1 basis functions that are kept; rows beyond are zeros.
    values: [[f32; BLOCK]; 8],
    /// Their derivatives.
    slopes: [[f32; BLOCK]; 8],
    /// The base function and its derivative, zeros where there is none.
    silu: [f32; BLOCK],
    silu_slope: [f32; BLOCK],
    /// Which samples begin with that row.
    begin: [u32; 64],
}

impl Block {
    fn new() -> Self {
        Block {
            values: [[0.0; BLOCK]; 8],
            slopes: [[0.0; BLOCK]; 8],
            silu: [0.0; BLOCK],
            silu_slope: [0.0; BLOCK],
            begin: [0; 64],
        }
    }

    /// Evaluates an input at some samples.
    #[inline(always)]
    fn fill<S: Simd, const N: usize>(
        &mut self,
        simd: S,
        kan: &Kan,
        input: usize,
        x: &[f32; BLOCK],
        samples: usize,
        wants_slopes: bool,
    ) {
        let based = kan.base != super::Base::None;
        let mut start = [u32x16::splat(simd, 0); BLOCK / LANES];
        for (v, start) in start[..samples.div_ceil(LANES)].iter_mut().enumerate() {
            let place = v * LANES..(v + 1) * LANES;
            let x = f32x16::from_slice(simd, &x[place.clone()]);
            let at = lanes::<S, N>(simd, &kan.table, kan.table.of(input), 0, x);
            *start = at.start;
            for m in 0..kept::<N>(kan.degree) {
                at.values[m].store_slice(&mut self.values[m][place.clone()]);
            }
            if based {
                at.silu.store_slice(&mut self.silu[place.clone()]);
            }
            if wants_slopes {
                for m in 0..kept::<N>(kan.degree) {
                    at.slopes[m].store_slice(&mut self.slopes[m][place.clone()]);
                }
                if based {
                    at.silu_slope.store_slice(&mut self.silu_slope[place]);
                }
            }
        }
        let exist = u32::MAX >> (BLOCK - samples);
        if kan.grid <= COMPARED {
            for (j, begin) in self.begin[..kan.grid].iter_mut().enumerate() {
                let j = u32x16::splat(simd, j as u32);
                let mut these = 0;
                for (v, start) in start.iter().enumerate() {
                    these |= (start.simd_eq(j).to_bitmask() as u32) << (v * LANES);
                }
                *begin = these & exist;
            }
        } else {
            self.begin[..kan.grid].fill(0);
            for (s, start) in start.iter().flat_map(|start| start.to_array()).enumerate() {
                self.begin[start as usize & 63] |= 1 << s & exist;
            }
        }
    }
}

/// The inputs `first` … of a block of samples turned over: samples in lanes.
fn turn(x: &[f32], inputs: usize, first: usize, turned: &mut [[f32; BLOCK]]) {
    let count = turned.len();
    for (s, x) in x.chunks_exact(inputs).enumerate() {
        for (&x, turned) in x[first..first + count].iter().zip(turned.iter_mut()) {
            turned[s & (BLOCK - 1)] = x;
        }
    }
}

/// Adds to vectors of a padded row.
#[inline(always)]
fn add<S: Simd, const NV: usize>(simd: S, sums: &[f32x16<S>; NV], to: &mut [Vector]) {
    for (sum, to) in sums.iter().zip(to) {
        (*sum + f32x16::from_slice(simd, to)).store_slice(to);
    }
}

/// Rows of outputs as whole vectors: as they are, or padded in `room`.
fn padded<'a>(rows: &'a [f32], outputs: usize, room: &'a mut [f32]) -> &'a [Vector] {
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
fn padding(len: usize, outputs: usize) -> usize {
    match outputs.is_multiple_of(LANES) {
        true => 0,
        false => len / outputs * outputs.next_multiple_of(LANES),
    }
}

/// y += the first of `sums`, which are padded.
fn add_padded(sums: &[Vector], outputs: usize, y: &mut [f32]) {
    let vectors = outputs.div_ceil(LANES);
    for (y, sums) in y.chunks_exact_mut(outputs).zip(sums.chunks_exact(vectors)) {
        for (y, sum) in y.iter_mut().zip(sums.as_flattened()) {
            *y += sum;
        }
    }
}

#[inline(always)]
fn load<S: Simd, const NV: usize>(simd: S, vectors: &[Vector]) -> [f32x16<S>; NV] {
    let mut loaded = [f32x16::splat(simd, 0.0); NV];
    for (to, vector) in loaded.iter_mut().zip(vectors) {
        *to = f32x16::from_slice(simd, vector);
    }
    loaded
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
    let parallel = rows > BLOCK && work(kan, rows) >= PARALLEL;
    Weights::with(kan, spline_weight, base_weight, |weights| {
        parallel::for_each_chunk(y, BLOCK * outputs, parallel, |block, y| {
            let samples = y.len() / outputs;
            let x = &x[block * BLOCK * inputs..][..samples * inputs];
            for y in y.chunks_exact_mut(outputs) {
                if bias.is_empty() {
                    y.fill(0.0);
                } else {
                    y.copy_from_slice(bias);
                }
            }
            parallel::with_scratch(samples * outputs.next_multiple_of(LANES), |sums| {
                let sums = sums.as_chunks_mut().0;
                by_rows!(kan.degree, ROWS => by_degree!(kan.degree, N => dispatch!(
                    simd::level(), simd => forward_block::<_, N, ROWS>(simd, weights, x, sums, y)
                )));
            });
        });
    });
}

/// A layer and its weights, rows padded.
#[derive(Clone, Copy)]
struct Weights<'a> {
    kan: &'a Kan,
    /// Vectors a row.
    vectors: usize,
    spline: &'a [Vector],
    base: &'a [Vector],
}

impl Weights<'_> {
    fn with(kan: &Kan, spline: &[f32], base: &[f32], work: impl FnOnce(Weights<'_>)) {
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

    /// The rows that samples of an input use that begin with row `first`, from a column on; zeros
    /// for rows that the degree doesn't have.
    #[inline(always)]
    fn rows<S: Simd, const N: usize, const ROWS: usize, const NV: usize>(
        &self,
        simd: S,
        input: usize,
        first: usize,
        column: usize,
    ) -> [[f32x16<S>; NV]; ROWS] {
        let mut rows = [[f32x16::splat(simd, 0.0); NV]; ROWS];
        let first = input * self.kan.bases() + first;
        for m in 0..ROWS {
            if m < kept::<N>(self.kan.degree) {
                let at = (first + m) * self.vectors + column;
                rows[m] = load(simd, &self.spline[at..at + NV]);
            }
        }
        rows
    }

    /// The base function's weights from a column on, zeros where there is none.
    #[inline(always)]
    fn base_row<S: Simd, const NV: usize>(
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
    let mut turned = [[0.0; BLOCK]; CHAIN];
    for first in (0..inputs).step_by(CHAIN) {
        let turned = &mut turned[..CHAIN.min(inputs - first)];
        turn(x, inputs, first, turned);
        sums.fill([0.0; LANES]);
        for (l, x) in turned.iter().enumerate() {
            let i = first + l;
            block.fill::<S, N>(simd, kan, i, x, samples, false);
            macro_rules! rows {
                ($nv:literal, $column:ident) => {
                    forward_rows::<S, N, ROWS, $nv>(simd, weights, &block, i, $column, sums)
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
        add_padded(sums, outputs, y);
    }
}

/// Adds one input's share to `NV` vectors of outputs of every sample: the splines, then the base
/// function.
#[inline(always)]
fn forward_rows<S: Simd, const N: usize, const ROWS: usize, const NV: usize>(
    simd: S,
    weights: Weights<'_>,
    block: &Block,
    input: usize,
    column: usize,
    sums: &mut [Vector],
) {
    let base: [f32x16<S>; NV] = weights.base_row(simd, input, column);
    for first in 0..weights.kan.grid {
        let mut samples = block.begin[first & 63];
        if samples == 0 {
            continue;
        }
        let rows: [[f32x16<S>; NV]; ROWS] =
            weights.rows::<S, N, ROWS, NV>(simd, input, first, column);
        while samples != 0 {
            let s = samples.trailing_zeros() as usize % BLOCK;
            samples &= samples - 1;
            let sums = &mut sums[s * weights.vectors + column..][..NV];
            let mut sum: [f32x16<S>; NV] = load(simd, sums);
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
) {
    let (inputs, outputs) = (kan.inputs, kan.outputs);
    if !grads.d_bias.is_empty() {
        dispatch!(simd::level(), simd => sum_rows(simd, d_y, grads.d_bias));
    }
    let [spline_len, base_len] =
        [&grads.d_spline_weight, &grads.d_base_weight].map(|d| d.len() / inputs);
    if spline_len + base_len == 0 && d_x.is_none() {
        return;
    }
    // Room for d_x by input, and for padded rows of d_y.
    let d_x_len = if d_x.is_some() { rows } else { 0 };
    let scratch = room(scratch, inputs * d_x_len + padding(rows * outputs, outputs));
    let (d_x_by_input, d_y_room) = scratch.split_at_mut(inputs * d_x_len);
    let d_y = padded(d_y, outputs, d_y_room);
    let group = (inputs / PIECES).clamp(1, CHAIN);
    Weights::with(kan, spline_weight, base_weight, |weights| {
        parallel::for_each_chunks(
            [grads.d_spline_weight, grads.d_base_weight, d_x_by_input],
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
                };
                group.backward(d_spline, d_base, d_x);
            },
        );
    });
    if let Some(d_x) = d_x {
        by_sample(&scratch[..inputs * rows], rows, inputs, d_x);
    }
}

/// d_x as it was gathered, input by input, turned over: sample by sample.
fn by_sample(by_input: &[f32], rows: usize, inputs: usize, d_x: &mut [f32]) {
    const SAMPLES: usize = 64;
    let parallel = rows * inputs >= COPY;
    parallel::for_each_chunk(d_x, SAMPLES * inputs, parallel, |c, d_x| {
        for (s, d_x) in d_x.chunks_exact_mut(inputs).enumerate() {
            for (i, d) in d_x.iter_mut().enumerate() {
                *d = by_input[i * rows + c * SAMPLES + s];
            }
        }
    });
}

/// to += Σ rows, in blocks and runs as the weights' gradients.
#[inline(always)]
fn sum_rows<S: Simd>(simd: S, rows: &[f32], to: &mut [f32]) {
    let width = to.len();
    for at in (0..width).step_by(LANES) {
        let end = width.min(at + LANES);
        let mut total = simd::load(simd, &to[at..end]);
        for run in rows.chunks(RUN * width) {
            let mut run_sum = f32x16::splat(simd, 0.0);
            for block in run.chunks(BLOCK * width) {
                let mut sum = f32x16::splat(simd, 0.0);
                for row in block.chunks_exact(width) {
                    sum += simd::load(simd, &row[at..end]);
                }
                run_sum += sum;
            }
            total += run_sum;
        }
        simd::store(total, &mut to[at..end]);
    }
}

/// A group of inputs, and what its gradients are made of.
struct Group<'a> {
    weights: Weights<'a>,
    first: usize,
    count: usize,
    rows: usize,
    x: &'a [f32],
    /// Padded rows of outputs.
    d_y: &'a [Vector],
}

impl Group<'_> {
    /// Adds the gradients of the group's weights, sets its d_x (`rows` values an input).
    fn backward(&self, d_spline: &mut [f32], d_base: &mut [f32], d_x: &mut [f32]) {
        let Weights { kan, vectors, .. } = self.weights;
        let (bases, outputs) = (kan.bases(), kan.outputs);
        let len = self.count * vectors * LANES;
        parallel::with_scratch((bases + 1) * len, |room| {
            let (spline_sums, base_sums) = room.as_chunks_mut().0.split_at_mut(bases * len / LANES);
            for from in (0..self.rows).step_by(RUN) {
                spline_sums.fill([0.0; LANES]);
                base_sums.fill([0.0; LANES]);
                let range = from..(from + RUN).min(self.rows);
                by_rows!(kan.degree, ROWS => by_degree!(kan.degree, N => dispatch!(
                    simd::level(), simd => backward_run::<_, N, ROWS>(
                        simd, self, range, spline_sums, base_sums, d_x,
                    )
                )));
                add_padded(spline_sums, outputs, d_spline);
                add_padded(base_sums, outputs, d_base);
            }
        });
    }
}

/// Adds the gradients of a run of samples to padded rows, sets their d_x.
#[inline(always)]
fn backward_run<S: Simd, const N: usize, const ROWS: usize>(
    simd: S,
    group: &Group<'_>,
    range: std::ops::Range<usize>,
    d_spline: &mut [Vector],
    d_base: &mut [Vector],
    d_x: &mut [f32],
) {
    let Weights { kan, vectors, .. } = group.weights;
    let (inputs, bases) = (kan.inputs, kan.bases());
    let wants_d_x = !d_x.is_empty();
    let mut block = Block::new();
    let mut turned = [[0.0; BLOCK]; CHAIN];
    let mut dots = [[0.0; LANES]; BLOCK];
    for at in range.clone().step_by(BLOCK) {
        let samples = BLOCK.min(range.end - at);
        let d_y = &group.d_y[at * vectors..][..samples * vectors];
        let x = &group.x[at * inputs..][..samples * inputs];
        let turned = &mut turned[..group.count];
        turn(x, inputs, group.first, turned);
        for (l, x) in turned.iter().enumerate() {
            let i = group.first + l;
            block.fill::<S, N>(simd, kan, i, x, samples, wants_d_x);
            let d_spline = &mut d_spline[l * bases * vectors..][..bases * vectors];
            let d_base = &mut d_base[l * vectors..][..vectors];
            macro_rules! rows {
                ($nv:literal, $dx:literal, $column:ident) => {
                    backward_rows::<S, N, ROWS, $nv, $dx>(
                        simd,
                        group.weights,
                        &block,
                        i,
                        $column,
                        d_y,
                        d_spline,
                        d_base,
                        &mut dots,
                    )
                };
            }
            // Registers: (k+2)·NV sums and, for d_x, as many weights, NV gradients, and some more.
            if wants_d_x {
                dots.fill([0.0; LANES]);
                for (column, count) in columns(vectors, if ROWS == 4 { 2 } else { 1 }) {
                    match count {
                        1 => rows!(1, true, column),
                        _ if ROWS == 4 => rows!(2, true, column),
                        _ => unreachable!("one vector"),
                    }
                }
                let d_x = &mut d_x[l * group.rows + at..][..samples];
                for (d_x, dots) in d_x.chunks_mut(LANES).zip(dots.as_chunks().0) {
                    simd::store(sum_each(simd, dots), d_x);
                }
            } else {
                for (column, count) in columns(vectors, if ROWS == 4 { 4 } else { 2 }) {
                    match count {
                        1 => rows!(1, false, column),
                        2 => rows!(2, false, column),
                        _ if ROWS == 4 => rows!(4, false, column),
                        _ => unreachable!("two vectors at the most"),
                    }
                }
            }
        }
    }
}

/// The sums of the numbers of each of sixteen vectors, by pairs.
#[inline(always)]
fn sum_each<S: Simd>(simd: S, vectors: &[Vector; LANES]) -> f32x16<S> {
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

/// One input, one block of samples, `NV` vectors of outputs.
#[inline(always)]
fn backward_rows<S: Simd, const N: usize, const ROWS: usize, const NV: usize, const DX: bool>(
    simd: S,
    weights: Weights<'_>,
    block: &Block,
    input: usize,
    column: usize,
    d_y: &[Vector],
    d_spline: &mut [Vector],
    d_base: &mut [Vector],
    dots: &mut [Vector; BLOCK],
) {
    let zero = f32x16::splat(simd, 0.0);
    let Weights { kan, vectors, .. } = weights;
    let base: [f32x16<S>; NV] = weights.base_row(simd, input, column);
    let mut d_base_sum = [zero; NV];
    for first in 0..kan.grid {
        let mut samples = block.begin[first & 63];
        if samples == 0 {
            continue;
        }
        let mut sums = [[zero; NV]; ROWS];
        let mut rows = [[zero; NV]; ROWS];
        if DX {
            rows = weights.rows::<S, N, ROWS, NV>(simd, input, first, column);
        }
        while samples != 0 {
            let s = samples.trailing_zeros() as usize % BLOCK;
            samples &= samples - 1;
            let d: [f32x16<S>; NV] = load(simd, &d_y[s * vectors + column..][..NV]);
            let b = f32x16::splat(simd, block.silu[s]);
            for v in 0..NV {
                d_base_sum[v] = d[v].mul_add(b, d_base_sum[v]);
            }
            for m in 0..ROWS {
                let b = f32x16::splat(simd, block.values[m][s]);
                for v in 0..NV {
                    sums[m][v] = d[v].mul_add(b, sums[m][v]);
                }
            }
            if DX {
                // The derivative of the edges to these outputs.
                let mut edge = [zero; NV];
                let slope = f32x16::splat(simd, block.silu_slope[s]);
                for v in 0..NV {
                    edge[v] = base[v] * slope;
                }
                for m in 0..ROWS {
                    let slope = f32x16::splat(simd, block.slopes[m][s]);
                    for v in 0..NV {
                        edge[v] = rows[m][v].mul_add(slope, edge[v]);
                    }
                }
                let mut dot = f32x16::from_slice(simd, &dots[s]);
                for v in 0..NV {
                    dot = edge[v].mul_add(d[v], dot);
                }
                dot.store_slice(&mut dots[s]);
            }
        }
        for m in 0..ROWS {
            if m < kept::<N>(kan.degree) {
                let at = (first + m) * vectors + column;
                add(simd, &sums[m], &mut d_spline[at..at + NV]);
            }
        }
    }
    add(simd, &d_base_sum, &mut d_base[column..column + NV]);
}
