//! The gradient of the weights.

use std::ops::Range;

use super::super::tile::{Correlation, PARALLEL, PIECES, Source};
use super::lines::Lines;
use super::{BLOCK_FLOATS, Run, TILES, load, parts, place_stride, runs, transform_input};
use crate::layer::gemm::{Onto, PANEL, Stride, TILE, multiply};
use crate::parallel::{self, Workspace};
use crate::simd::{self, LANES, Simd, dispatch, f32x16, prelude::*};

/// Floats that the partial sums of weight gradients may take.
const PARTIAL_SUMS: usize = 1 << 21;

/// A·d of two numbers.
#[inline(always)]
fn gradient_line<S: Simd>(simd: S, d: [f32x16<S>; 2]) -> [f32x16<S>; 4] {
    [
        d[0],
        d[0] + d[1],
        d[0] - d[1],
        f32x16::splat(simd, 0.0) - d[1],
    ]
}

/// Gᵀ·u of four numbers.
#[inline(always)]
fn kernel_line<S: Simd>(simd: S, u: [f32x16<S>; 4]) -> [f32x16<S>; 3] {
    let half = f32x16::splat(simd, 0.5);
    let sum = (u[1] + u[2]) * half;
    [u[0] + sum, (u[1] - u[2]) * half, sum + u[3]]
}

/// d_W[o,i,u,v] += Σ d_y[n,o,r,c] · x̄[n,i, r + u − before, c + v − before] and d_b[o] += Σ d_y, for `shape`
/// the forward correlation.
pub(in super::super) fn weight_gradient(
    shape: &Correlation,
    x: &[f32],
    d_y: Source<'_>,
    d_weight: &mut [f32],
    d_bias: Option<&mut [f32]>,
) {
    let &Correlation {
        samples,
        inputs,
        outputs,
        ..
    } = shape;
    let high = shape.out_height.div_ceil(2);
    // The sums of a quarter of the places: four, and those of the bias.
    let each = 4 * inputs * outputs + outputs;
    let len = 4 * each;
    let wide = shape.out_width.div_ceil(2);
    let rows = (samples * high)
        .div_ceil((PARTIAL_SUMS / len).clamp(1, PIECES))
        .max(TILES.div_ceil(wide));
    let bands = (samples * high).div_ceil(rows);
    // Where there are few bands, or the sums are too many for the cache, the places are divided, too; all of
    // their pieces copy the same rows.
    let mut cut = 1;
    while cut < 4 && (bands * cut < PIECES / 2 || len / cut > BLOCK_FLOATS * 3 / 4) {
        cut *= 2;
    }
    let parallel = shape.multiply_adds() >= PARALLEL;
    parallel::with_workspace(|scratch| {
        parallel::with_scratch(len, |totals| {
            totals.fill(0.0);
            parallel::sum_cut_pieces(
                bands,
                cut,
                totals,
                &mut scratch.floats,
                parallel,
                |band, at, sums| {
                    // Rows of tiles of all samples, one after the other.
                    let rows = band * rows..(samples * high).min((band + 1) * rows);
                    let places = at * 4 / cut..(at + 1) * 4 / cut;
                    parallel::with_workspace(|scratch| {
                        for n in rows.start / high..rows.end.div_ceil(high) {
                            let own = |row: usize| row.saturating_sub(n * high).min(high);
                            let (rows, places) = (own(rows.start)..own(rows.end), places.clone());
                            dispatch!(simd::level(), simd => {
                                sums_of_band(simd, shape, x, d_y, n, rows, places, sums, scratch)
                            });
                        }
                    });
                },
            );
            let totals = &*totals;
            let block = LANES * inputs * 9;
            parallel::for_each_chunk(d_weight, block, parallel, |at, d_weight| {
                dispatch!(simd::level(), simd => {
                    add_kernels(simd, totals, each, inputs, outputs, at * LANES, d_weight)
                });
            });
            if let Some(d_bias) = d_bias {
                for (d, sum) in d_bias.iter_mut().zip(&totals[each - outputs..]) {
                    *d += sum;
                }
            }
        });
    });
}

/// Adds the products of some places over some rows of tiles.
#[inline(always)]
fn sums_of_band<S: Simd>(
    simd: S,
    shape: &Correlation,
    x: &[f32],
    d_y: Source<'_>,
    n: usize,
    rows: Range<usize>,
    places: Range<usize>,
    sums: &mut [f32],
    scratch: &mut Workspace,
) {
    let (inputs, outputs) = (shape.inputs, shape.outputs);
    let wide = shape.out_width.div_ceil(2);
    let tiles = rows.len() * wide;
    let each = 4 * inputs * outputs + outputs;
    let left = BLOCK_FLOATS.saturating_sub(places.len() * each);
    let most = left / (4 * places.len() * (inputs + outputs));
    let block = (most / TILE * TILE).clamp(TILES / 2, TILES).min(tiles);
    let (depth, panels) = (inputs.next_multiple_of(LANES), outputs.div_ceil(PANEL));
    let [x_len, x_planes] = Lines::lens(inputs, 2 * wide + 2, 4);
    let [d_len, d_planes] = Lines::lens(outputs, 2 * wide, 2);
    let lens = [
        x_len,
        x_planes,
        d_len,
        d_planes,
        4 * places.len() * place_stride(block * depth),
        4 * places.len() * place_stride(block * panels * PANEL),
    ];
    let [x_rows, x_planes, d_rows, d_planes, v, d] = parts(&mut scratch.floats, lens);
    let mut x_lines = Lines {
        source: Source::plain(x),
        size: (shape.height, shape.width),
        reflect: shape.reflect,
        first: n * inputs,
        channels: inputs,
        left: -shape.before,
        columns: 2 * wide + 2,
        kept: 4,
        rows: x_rows,
        planes: x_planes,
    };
    let mut d_lines = Lines {
        source: d_y,
        size: (shape.out_height, shape.out_width),
        reflect: false,
        first: n * outputs,
        channels: outputs,
        left: 0,
        columns: 2 * wide,
        kept: 2,
        rows: d_rows,
        planes: d_planes,
    };
    let top = 2 * rows.start;
    let (mut x_read, mut d_read) = (0, 0);
    for start in (0..tiles).step_by(block) {
        let count = block.min(tiles - start);
        let v_stride = place_stride(count * depth);
        let d_strides = [place_stride(count * panels * PANEL), count * PANEL];
        for run in runs(start, count, wide) {
            while x_read < 2 * run.row + 4 {
                x_lines.read(simd, x_read, (top + x_read) as isize - shape.before);
                x_read += 2;
            }
            while d_read < 2 * run.row + 2 {
                d_lines.read(simd, d_read, (top + d_read) as isize);
                if places.start == 0 {
                    for row in [d_read, d_read + 1] {
                        add_row(simd, &d_lines, row, &mut sums[each - outputs..each]);
                    }
                }
                d_read += 2;
            }
            transform_input(simd, &x_lines, &run, places.clone(), v, v_stride);
            transform_gradient(simd, &d_lines, &run, places.clone(), d, d_strides);
        }
        for p in 0..4 * places.len() {
            let stride = Stride {
                row: 1,
                column: depth,
            };
            let v = &v[p * v_stride..];
            let d = &d[p * d_strides[0]..][..panels * count * PANEL];
            let at = p / 4 * each + p % 4 * inputs * outputs;
            let sums = &mut sums[at..at + inputs * outputs];
            multiply((v, stride), d, sums, Onto::Itself, count, outputs);
        }
    }
}

/// Adds a row's pixels to a sum for each channel.
#[inline(always)]
fn add_row<S: Simd>(simd: S, lines: &Lines<'_>, row: usize, sums: &mut [f32]) {
    let depth = lines.depth();
    for (c, sums) in sums.chunks_mut(LANES).enumerate() {
        let mut sum = f32x16::splat(simd, 0.0);
        for pixel in lines.row(row).chunks_exact(depth) {
            sum += f32x16::from_slice(simd, &pixel[c * LANES..][..LANES]);
        }
        simd::store(simd::load(simd, sums) + sum, sums);
    }
}

/// D of some tiles, as [`transform_input`]; panels are `strides[1]` apart.
#[inline(always)]
fn transform_gradient<S: Simd>(
    simd: S,
    lines: &Lines<'_>,
    run: &Run,
    places: Range<usize>,
    d: &mut [f32],
    strides: [usize; 2],
) {
    let depth = lines.depth();
    let [upper, lower] = [lines.row(2 * run.row), lines.row(2 * run.row + 1)];
    let pixels = [&upper[2 * run.at * depth..], &lower[2 * run.at * depth..]];
    for channel in (0..depth).step_by(LANES) {
        let place = channel / PANEL * strides[1] + channel % PANEL;
        for t in 0..run.count {
            let at = 2 * t * depth + channel;
            let left = [load(simd, pixels[0], at), load(simd, pixels[1], at)];
            let at = at + depth;
            let right = [load(simd, pixels[0], at), load(simd, pixels[1], at)];
            let columns = [gradient_line(simd, left), gradient_line(simd, right)];
            let d = &mut d[place + (run.first + t) * PANEL..];
            for a in 0..4 {
                if !places.contains(&a) {
                    continue;
                }
                let line = gradient_line(simd, [columns[0][a], columns[1][a]]);
                for b in 0..4 {
                    let to = ((a - places.start) * 4 + b) * strides[0];
                    line[b].store_slice(&mut d[to..to + LANES]);
                }
            }
        }
    }
}

/// d_W of sixteen output channels from `first` on: Gᵀ·d_U·G, added.
#[inline(always)]
fn add_kernels<S: Simd>(
    simd: S,
    totals: &[f32],
    each: usize,
    inputs: usize,
    outputs: usize,
    first: usize,
    d_weight: &mut [f32],
) {
    let count = LANES.min(outputs - first);
    for i in 0..inputs {
        let mut rows = [[f32x16::splat(simd, 0.0); 4]; 3];
        for b in 0..4 {
            let mut line = [f32x16::splat(simd, 0.0); 4];
            for (a, line) in line.iter_mut().enumerate() {
                let at = a * each + (b * inputs + i) * outputs + first;
                *line = simd::load(simd, &totals[at..at + count]);
            }
            let line = kernel_line(simd, line);
            for u in 0..3 {
                rows[u][b] = line[u];
            }
        }
        for u in 0..3 {
            let line = kernel_line(simd, rows[u]);
            for v in 0..3 {
                let mut lanes = [0.0; LANES];
                line[v].store_slice(&mut lanes);
                for (o, lane) in lanes.iter().take(count).enumerate() {
                    d_weight[(o * inputs + i) * 9 + 3 * u + v] += lane;
                }
            }
        }
    }
}
