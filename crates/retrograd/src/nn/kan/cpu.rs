//! f32: SIMD over outputs, threads over samples (forward) and over inputs (backward).
//!
//! Forward takes a block of samples and a few inputs at a time: the weights of those inputs stay
//! in the first-level cache while every sample of the block uses its k+1 rows of them. Backward
//! gives every thread inputs of its own. For one input and a block of samples, the samples are
//! grouped by knot interval: all samples of a group use the same k+1 rows, which are held in
//! registers together with the sums of their gradients, so that a multiply-add costs no load and
//! no store. Basis functions are evaluated anew in backward, which is cheaper than to write and
//! read back 2(k+2) numbers per (sample, input), and leaves nothing on the tape to go stale.
//!
//! A row of outputs is covered by vectors of 16; the last one ends with the row and overlaps the
//! one before. Both compute the same numbers for the outputs they share.

use super::Kan;
use super::basis::{TILE, Tile, kept, lanes};
use crate::nn::layer::room;
use crate::parallel;
use crate::simd::{self, LANES, Simd, dispatch, f32x16, mask32x16, prelude::*};

/// Samples per block of forward.
const FORWARD_BLOCK: usize = TILE;
/// Inputs whose weights are used together: 8 × 9 rows of 64 outputs are 18 KiB at grid 5, degree 3.
pub(super) const INPUT_TILE: usize = 8;
/// Samples per block of backward: a bit of a u64 each.
const BACKWARD_BLOCK: usize = 64;
/// Samples whose gradients are added up in one f32 sum of block sums; longer batches are cut.
pub(super) const RUN: usize = 4096;
/// Multiply-adds from which work goes to threads (two cores: about 10 µs of work against some
/// 5 µs to wake a thread).
const PARALLEL: usize = 1 << 19;
/// Pieces that backward is cut into at least, where there are as many inputs.
const PIECES: usize = 8;

/// The multiply-adds of one pass.
pub(super) fn work(kan: &Kan, rows: usize) -> usize {
    rows * kan.inputs * kan.outputs * (kan.degree + 2)
}

/// Sixteen values from `at` on. Beyond the end, which only rows of fewer than 16 outputs reach,
/// there are zeros.
#[inline(always)]
fn load16<S: Simd>(simd: S, x: &[f32], at: usize) -> f32x16<S> {
    match x.get(at..at + LANES) {
        Some(x) => f32x16::from_slice(simd, x),
        None => simd::load(simd, &x[at..]),
    }
}

/// Cuts a row into blocks of 4, 2 and 1 vectors, no more than `most`: few kernels to compile. The
/// last vector of a block may overlap the one before; alone it is only part of a vector. Gives
/// (first output, width).
#[inline(always)]
fn blocks(outputs: usize, most: usize) -> impl Iterator<Item = (usize, usize)> {
    let mut first = 0;
    std::iter::from_fn(move || {
        let vectors = (outputs - first).div_ceil(LANES);
        let count = match vectors.min(most) {
            0 => return None,
            1 => 1,
            2 | 3 => 2,
            _ => 4,
        };
        let width = (count * LANES).min(outputs - first);
        first += width;
        Some((first - width, width))
    })
}

/// Where vector v of a block of that width begins.
#[inline(always)]
fn place(v: usize, width: usize) -> usize {
    (v * LANES).min(width.saturating_sub(LANES))
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
    if rows == 1 {
        by_degree!(kan.degree, N => dispatch!(simd::level(), simd =>
            forward_block::<_, N, 1>(simd, kan, spline_weight, base_weight, bias, x, y)));
        return;
    }
    let parallel = rows > FORWARD_BLOCK && work(kan, rows) >= PARALLEL;
    let len = FORWARD_BLOCK * kan.outputs;
    parallel::for_each_chunk(y, len, parallel, |block, y| {
        let count = y.len() / kan.outputs;
        let x = &x[block * FORWARD_BLOCK * kan.inputs..][..count * kan.inputs];
        by_degree!(kan.degree, N => dispatch!(simd::level(), simd =>
            forward_block::<_, N, FORWARD_BLOCK>(simd, kan, spline_weight, base_weight, bias, x, y)));
    });
}

#[inline(always)]
fn forward_block<S: Simd, const N: usize, const SAMPLES: usize>(
    simd: S,
    kan: &Kan,
    spline_weight: &[f32],
    base_weight: &[f32],
    bias: &[f32],
    x: &[f32],
    y: &mut [f32],
) {
    let (inputs, outputs) = (kan.inputs, kan.outputs);
    for y in y.chunks_exact_mut(outputs) {
        if bias.is_empty() {
            y.fill(0.0);
        } else {
            y.copy_from_slice(bias);
        }
    }
    let mut tile = Tile::<SAMPLES>::new();
    for first in (0..inputs).step_by(LANES) {
        let count = LANES.min(inputs - first);
        tile.fill(&kan.table, inputs, first, x);
        for (output, width) in blocks(outputs, if N == 4 { 4 } else { 1 }) {
            for i in (0..count).step_by(INPUT_TILE) {
                let range = i..(i + INPUT_TILE).min(count);
                macro_rules! rows {
                    ($nv:literal) => {
                        forward_rows::<S, N, $nv, SAMPLES>(
                            simd,
                            kan,
                            &tile,
                            first,
                            range,
                            spline_weight,
                            base_weight,
                            y,
                            output,
                            width,
                        )
                    };
                }
                match width.div_ceil(LANES) {
                    1 => rows!(1),
                    2 if N == 4 => rows!(2),
                    _ if N == 4 => rows!(4),
                    _ => unreachable!("blocks of one vector"),
                }
            }
        }
    }
}

/// y += the share of a few inputs, for one block of outputs and all samples of the tile: the
/// splines in one chain, then the base functions in another, as [`dense`](super::dense) has it, so
/// that a sample has the same bits alone and in any batch.
#[inline(always)]
fn forward_rows<S: Simd, const N: usize, const NV: usize, const SAMPLES: usize>(
    simd: S,
    kan: &Kan,
    tile: &Tile<SAMPLES>,
    first: usize,
    range: std::ops::Range<usize>,
    spline_weight: &[f32],
    base_weight: &[f32],
    y: &mut [f32],
    output: usize,
    width: usize,
) {
    let outputs = kan.outputs;
    let bases = kan.bases();
    for (s, y) in y.chunks_exact_mut(outputs).enumerate() {
        let y = &mut y[output..output + width];
        let mut sum = [f32x16::splat(simd, 0.0); NV];
        let mut base = [f32x16::splat(simd, 0.0); NV];
        for l in range.clone() {
            let i = first + l;
            let mut row = (i * bases + tile.start[s][l] as usize) * outputs + output;
            for m in 0..kept::<N>(kan.degree) {
                let b = f32x16::splat(simd, tile.values[s][m][l]);
                for v in 0..NV {
                    let w = load16(simd, spline_weight, row + place(v, width));
                    sum[v] = w.mul_add(b, sum[v]);
                }
                row += outputs;
            }
            if !base_weight.is_empty() {
                let b = f32x16::splat(simd, tile.silu[s][l]);
                for v in 0..NV {
                    let w = load16(simd, base_weight, i * outputs + output + place(v, width));
                    base[v] = w.mul_add(b, base[v]);
                }
            }
        }
        for v in 0..NV {
            sum[v] += load16(simd, y, place(v, width));
            if !base_weight.is_empty() {
                sum[v] += base[v];
            }
        }
        for v in 0..NV {
            simd::store(sum[v], &mut y[place(v, width)..]);
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
    let (inputs, outputs, bases) = (kan.inputs, kan.outputs, kan.bases());
    if !grads.d_bias.is_empty() {
        dispatch!(simd::level(), simd => sum_rows(simd, d_y, grads.d_bias));
    }
    let wants_weights = !grads.d_spline_weight.is_empty() || !grads.d_base_weight.is_empty();
    if !wants_weights && d_x.is_none() {
        return;
    }
    // Room for d_x by input, and for the sums of one run of a long batch.
    let d_x_len = if d_x.is_some() { rows } else { 0 };
    let run_len = if rows > RUN { (bases + 1) * outputs } else { 0 };
    let scratch = room(scratch, inputs * (d_x_len + run_len));
    let (d_x_by_input, runs) = scratch.split_at_mut(inputs * d_x_len);
    let group = (inputs / PIECES).clamp(1, LANES);
    let spline_len = if grads.d_spline_weight.is_empty() {
        0
    } else {
        bases * outputs
    };
    let base_len = if grads.d_base_weight.is_empty() {
        0
    } else {
        outputs
    };
    parallel::for_each_chunks(
        [
            grads.d_spline_weight,
            grads.d_base_weight,
            d_x_by_input,
            runs,
        ],
        [spline_len, base_len, d_x_len, run_len].map(|len| len * group),
        inputs.div_ceil(group),
        work(kan, rows) >= PARALLEL / 2,
        |piece, [d_spline_weight, d_base_weight, d_x, run]| {
            let first = piece * group;
            let count = group.min(inputs - first);
            by_degree!(kan.degree, N => dispatch!(simd::level(), simd => backward_piece::<_, N>(
                simd, kan, first, count, rows, spline_weight, base_weight, x, d_y,
                d_spline_weight, d_base_weight, d_x, run,
            )));
        },
    );
    if let Some(d_x) = d_x {
        by_sample(&scratch[..inputs * rows], rows, inputs, d_x);
    }
}

/// d_x as it was gathered, input by input, turned over: sample by sample.
pub(super) fn by_sample(by_input: &[f32], rows: usize, inputs: usize, d_x: &mut [f32]) {
    const SAMPLES: usize = 64;
    let parallel = rows * inputs >= 1 << 16;
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
pub(super) fn sum_rows<S: Simd>(simd: S, rows: &[f32], to: &mut [f32]) {
    let width = to.len();
    for at in (0..width).step_by(LANES) {
        let end = width.min(at + LANES);
        let mut total = simd::load(simd, &to[at..end]);
        for run in rows.chunks(RUN * width) {
            let mut run_sum = f32x16::splat(simd, 0.0);
            for block in run.chunks(BACKWARD_BLOCK * width) {
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

/// The basis functions of one input at the samples of a block.
struct BackwardTile<const N: usize> {
    values: [[f32; BACKWARD_BLOCK]; N],
    slopes: [[f32; BACKWARD_BLOCK]; N],
    silu: [f32; BACKWARD_BLOCK],
    silu_slope: [f32; BACKWARD_BLOCK],
    /// Which samples begin with that row.
    samples: [u64; 64],
}

/// All samples for the inputs `first` … `first + count − 1`.
#[inline(always)]
fn backward_piece<S: Simd, const N: usize>(
    simd: S,
    kan: &Kan,
    first: usize,
    count: usize,
    rows: usize,
    spline_weight: &[f32],
    base_weight: &[f32],
    x: &[f32],
    d_y: &[f32],
    d_spline_weight: &mut [f32],
    d_base_weight: &mut [f32],
    d_x: &mut [f32],
    run: &mut [f32],
) {
    if run.is_empty() {
        return backward_run::<S, N>(
            simd,
            kan,
            first,
            count,
            rows,
            0..rows,
            spline_weight,
            base_weight,
            x,
            d_y,
            d_spline_weight,
            d_base_weight,
            d_x,
        );
    }
    let (run_spline, run_base) = run.split_at_mut(d_spline_weight.len());
    let run_base = &mut run_base[..d_base_weight.len()];
    for from in (0..rows).step_by(RUN) {
        run_spline.fill(0.0);
        run_base.fill(0.0);
        backward_run::<S, N>(
            simd,
            kan,
            first,
            count,
            rows,
            from..(from + RUN).min(rows),
            spline_weight,
            base_weight,
            x,
            d_y,
            run_spline,
            run_base,
            d_x,
        );
        simd::axpy(simd, 1.0, run_spline, d_spline_weight);
        simd::axpy(simd, 1.0, run_base, d_base_weight);
    }
}

#[inline(always)]
fn backward_run<S: Simd, const N: usize>(
    simd: S,
    kan: &Kan,
    first: usize,
    count: usize,
    rows: usize,
    range: std::ops::Range<usize>,
    spline_weight: &[f32],
    base_weight: &[f32],
    x: &[f32],
    d_y: &[f32],
    d_spline_weight: &mut [f32],
    d_base_weight: &mut [f32],
    d_x: &mut [f32],
) {
    let (inputs, outputs, bases) = (kan.inputs, kan.outputs, kan.bases());
    let grid = kan.grid;
    let mut tile = BackwardTile::<N> {
        values: [[0.0; BACKWARD_BLOCK]; N],
        slopes: [[0.0; BACKWARD_BLOCK]; N],
        silu: [0.0; BACKWARD_BLOCK],
        silu_slope: [0.0; BACKWARD_BLOCK],
        samples: [0; 64],
    };
    for at in range.clone().step_by(BACKWARD_BLOCK) {
        let samples = BACKWARD_BLOCK.min(range.end - at);
        let d_y = &d_y[at * outputs..][..samples * outputs];
        for l in 0..count {
            let i = first + l;
            tile.samples[..grid].fill(0);
            for from in (0..samples).step_by(LANES) {
                let n = LANES.min(samples - from);
                let mut x16 = [0.0; LANES];
                for (s, x16) in x16[..n].iter_mut().enumerate() {
                    *x16 = x[(at + from + s) * inputs + i];
                }
                let x16 = f32x16::from_slice(simd, &x16[..]);
                let at16 = lanes::<S, N>(simd, &kan.table, kan.table.of(i), 0, x16);
                let start = at16.start.to_array();
                for s in 0..n {
                    tile.samples[start[s] as usize & 63] |= 1 << (from + s);
                }
                for m in 0..kept::<N>(kan.degree) {
                    at16.values[m].store_slice(&mut tile.values[m][from..from + LANES]);
                    at16.slopes[m].store_slice(&mut tile.slopes[m][from..from + LANES]);
                }
                at16.silu.store_slice(&mut tile.silu[from..from + LANES]);
                at16.silu_slope
                    .store_slice(&mut tile.silu_slope[from..from + LANES]);
            }
            let weights = &spline_weight[i * bases * outputs..][..bases * outputs];
            let base = match base_weight.is_empty() {
                true => &[][..],
                false => &base_weight[i * outputs..][..outputs],
            };
            let own =
                |d: &mut [f32], len: usize| (l * len).min(d.len())..((l + 1) * len).min(d.len());
            let range = own(d_spline_weight, bases * outputs);
            let d_weights = &mut d_spline_weight[range];
            let range = own(d_base_weight, outputs);
            let d_base = &mut d_base_weight[range];
            let d_x = match d_x.is_empty() {
                true => &mut [][..],
                false => &mut d_x[l * rows + at..][..samples],
            };
            d_x.fill(0.0);
            macro_rules! rows {
                ($nv:literal, $dx:literal, $output:ident, $width:ident) => {
                    backward_rows::<S, N, $nv, $dx>(
                        simd, &tile, kan, $output, $width, weights, base, d_y, d_weights, d_base,
                        d_x,
                    )
                };
            }
            // Registers: (k+2)·NV sums and, for d_x, as many weights, NV gradients, and some more.
            if d_x.is_empty() {
                for (output, width) in blocks(outputs, if N == 4 { 4 } else { 1 }) {
                    match width.div_ceil(LANES) {
                        1 => rows!(1, false, output, width),
                        2 if N == 4 => rows!(2, false, output, width),
                        _ if N == 4 => rows!(4, false, output, width),
                        _ => unreachable!("blocks of one vector"),
                    }
                }
            } else {
                for (output, width) in blocks(outputs, if N == 4 { 2 } else { 1 }) {
                    match width.div_ceil(LANES) {
                        1 => rows!(1, true, output, width),
                        _ if N == 4 => rows!(2, true, output, width),
                        _ => unreachable!("blocks of one vector"),
                    }
                }
            }
        }
    }
}

/// One input, one block of samples, one block of outputs.
#[inline(always)]
fn backward_rows<S: Simd, const N: usize, const NV: usize, const DX: bool>(
    simd: S,
    tile: &BackwardTile<N>,
    kan: &Kan,
    output: usize,
    width: usize,
    weights: &[f32],
    base: &[f32],
    d_y: &[f32],
    d_weights: &mut [f32],
    d_base: &mut [f32],
    d_x: &mut [f32],
) {
    let zero = f32x16::splat(simd, 0.0);
    let (grid, outputs) = (kan.grid, kan.outputs);
    let kept = kept::<N>(kan.degree);
    let wants_weights = !d_weights.is_empty() || !d_base.is_empty();
    // The lanes of the last vector that no other vector has.
    let own: u64 = match width % LANES {
        0 => u64::MAX,
        n if width < LANES => (1 << n) - 1,
        n => u64::MAX << (LANES - n),
    };
    let own = mask32x16::from_bitmask(simd, own);
    let mut d_base_sum = [zero; NV];
    let mut base_row = [zero; NV];
    if !base.is_empty() {
        for v in 0..NV {
            base_row[v] = load16(simd, base, output + place(v, width));
        }
    }
    for row in 0..grid {
        let mut samples = tile.samples[row];
        if samples == 0 {
            continue;
        }
        let mut sums = [[zero; NV]; N];
        if !DX {
            while samples != 0 {
                let s = samples.trailing_zeros() as usize;
                samples &= samples - 1;
                let mut d = [zero; NV];
                for v in 0..NV {
                    d[v] = load16(simd, d_y, s * outputs + output + place(v, width));
                }
                for m in 0..kept {
                    let b = f32x16::splat(simd, tile.values[m][s]);
                    for v in 0..NV {
                        sums[m][v] = d[v].mul_add(b, sums[m][v]);
                    }
                }
                let b = f32x16::splat(simd, tile.silu[s]);
                for v in 0..NV {
                    d_base_sum[v] = d[v].mul_add(b, d_base_sum[v]);
                }
            }
        } else {
            let mut rows = [[zero; NV]; N];
            for m in 0..kept {
                for v in 0..NV {
                    let at = (row + m) * outputs + output + place(v, width);
                    rows[m][v] = load16(simd, weights, at);
                }
            }
            while samples != 0 {
                let s = samples.trailing_zeros() as usize;
                samples &= samples - 1;
                let mut d = [zero; NV];
                for v in 0..NV {
                    d[v] = load16(simd, d_y, s * outputs + output + place(v, width));
                }
                let b = f32x16::splat(simd, tile.silu[s]);
                let slope = f32x16::splat(simd, tile.silu_slope[s]);
                let mut edge = [zero; NV];
                for v in 0..NV {
                    d_base_sum[v] = d[v].mul_add(b, d_base_sum[v]);
                    edge[v] = base_row[v] * slope;
                }
                for m in 0..kept {
                    let b = f32x16::splat(simd, tile.values[m][s]);
                    let slope = f32x16::splat(simd, tile.slopes[m][s]);
                    for v in 0..NV {
                        sums[m][v] = d[v].mul_add(b, sums[m][v]);
                        edge[v] = rows[m][v].mul_add(slope, edge[v]);
                    }
                }
                let mut dot = own.select(edge[NV - 1] * d[NV - 1], zero);
                for v in 0..NV - 1 {
                    dot = edge[v].mul_add(d[v], dot);
                }
                d_x[s] += simd.reduce_sum_f32x16(dot);
            }
        }
        if wants_weights && !d_weights.is_empty() {
            for m in 0..kept {
                let at = (row + m) * outputs + output;
                add(simd, &sums[m], &mut d_weights[at..at + width]);
            }
        }
    }
    if !d_base.is_empty() {
        add(simd, &d_base_sum, &mut d_base[output..output + width]);
    }
}

/// to += sums. All are read before any is written: the last two may overlap.
#[inline(always)]
fn add<S: Simd, const NV: usize>(simd: S, sums: &[f32x16<S>; NV], to: &mut [f32]) {
    let width = to.len();
    let mut all = *sums;
    for v in 0..NV {
        all[v] += load16(simd, to, place(v, width));
    }
    for v in 0..NV {
        simd::store(all[v], &mut to[place(v, width)..]);
    }
}
