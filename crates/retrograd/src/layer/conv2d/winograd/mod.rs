//! f32, kernels of 3×3 and stride 1 between many channels: Winograd's F(2×2, 3×3).
//!
//! A tile of 2×2 outputs sees 4×4 inputs. With w a kernel, x the inputs and
//!
//! ```text
//!      ⎡1  0 −1  0⎤       ⎡1  0  0⎤
//! Bᵀ = ⎢0  1  1  0⎥   G = ⎢½  ½  ½⎥   Aᵀ = ⎡1  1  1  0⎤
//!      ⎢0 −1  1  0⎥       ⎢½ −½  ½⎥        ⎣0  1 −1 −1⎦
//!      ⎣0  1  0 −1⎦       ⎣0  0  1⎦
//! ```
//!
//! `y = Aᵀ·Σ_i [(G·w_i·Gᵀ) ⊙ (Bᵀ·x_i·B)]·A`: 16 products for a pair of channels instead of 36. Over channels
//! and tiles these are sixteen products of matrices, one for every place of a tile:
//!
//! - forward: `M_p (tiles × out) = V_p (tiles × in) · U_p (in × out)`, U = G·w·Gᵀ and V = Bᵀ·x·B;
//! - the gradient of the input is the same with the kernel flipped;
//! - the map is linear in w, so its gradient is the adjoint: `d_w = Gᵀ·[Σ_tiles (A·d_y·Aᵀ) ⊙ V]·G`, and its
//!   products are `d_U_p (in × out) = V_pᵀ (in × tiles) · D_p (tiles × out)`, D = A·d_y·Aᵀ.
//!
//! Sixteen channels are the lanes of a vector: rows of the image are copied with their channels next to each
//! other, and so is what is read here. Tiles are transformed block by block, so that a block stays in the cache
//! until its products are made. Pieces and blocks depend on the shapes alone: the same bits for any number
//! of threads.

mod lines;
pub(super) mod reference;
mod weights;

pub(super) use weights::weight_gradient;

use std::ops::Range;

use super::tile::{Correlation, PARALLEL, PIECES, Source, aligned};
use crate::cuts::cuts;
use crate::layer::gemm::{Onto, PANEL, Stride, TILE, multiply};
use crate::parallel::{self, Band, Workspace};
use crate::simd::{self, LANES, Simd, dispatch, f32x16, prelude::*};
use lines::Lines;

/// Fewest channels on both sides: with fewer the transformations take longer than the products that they save.
const CHANNELS: usize = 32;
/// Places of a tile.
const PLACES: usize = 16;
/// Input channels that are summed in one chain of multiply-adds. The sums of chains are added: with 256 channels in one
/// the error is twice as large.
pub(super) const CHAIN: usize = 32;
/// Tiles of a block, where so many fit: a multiple of the rows that a product has in registers.
const TILES: usize = 96;
/// Floats of a block's transformed inputs: three quarters of 1 MB of L2.
const BLOCK_FLOATS: usize = 192 << 10;
cuts!(CHANNELS, CHAIN, TILES);

/// Whether a correlation is computed here.
pub(crate) fn takes(shape: &Correlation) -> bool {
    let pixels = shape.out_height * shape.out_width;
    let tiles = shape.out_height.div_ceil(2) * shape.out_width.div_ceil(2);
    shape.kernel == 3
        && shape.dilation == 1
        && shape.groups == 1
        && shape.inputs.min(shape.outputs) >= CHANNELS
        // Two thirds of the products at most: tiles over the edge are computed whole.
        && 3 * PLACES * tiles <= 2 * 9 * pixels
}

/// Tiles of a block.
fn block_tiles(channels: usize) -> usize {
    let most = BLOCK_FLOATS / (PLACES * channels.next_multiple_of(LANES));
    (most / TILE * TILE).clamp(TILE, TILES)
}

/// The distance between a block's numbers of two places. A line more than they take: places that are a multiple of
/// 4 KB apart would all be in the same few lines of the cache.
fn place_stride(len: usize) -> usize {
    len.next_multiple_of(LANES) + LANES
}

/// Bᵀ·x of four numbers.
#[inline(always)]
fn input_line<S: Simd>(x: [f32x16<S>; 4]) -> [f32x16<S>; 4] {
    [x[0] - x[2], x[1] + x[2], x[2] - x[1], x[1] - x[3]]
}

/// Aᵀ·m of four numbers.
#[inline(always)]
fn output_line<S: Simd>(m: [f32x16<S>; 4]) -> [f32x16<S>; 2] {
    [(m[0] + m[1]) + m[2], (m[1] - m[2]) - m[3]]
}

/// G·w of three numbers.
#[inline(always)]
fn weight_line<S: Simd>(simd: S, w: [f32x16<S>; 3]) -> [f32x16<S>; 4] {
    let half = f32x16::splat(simd, 0.5);
    let outer = w[0] + w[2];
    [w[0], (outer + w[1]) * half, (outer - w[1]) * half, w[2]]
}

/// The correlation with `weight(o, i, uv)`, plus bias where there is one; negative results become 0 where
/// `relu`.
pub(crate) fn correlate(
    shape: &Correlation,
    source: Source<'_>,
    weight: impl Fn(usize, usize, usize) -> f32 + Sync,
    bias: &[f32],
    relu: bool,
    y: &mut [f32],
) {
    let &Correlation {
        samples,
        inputs,
        outputs,
        out_height,
        out_width,
        ..
    } = shape;
    let (high, wide) = (out_height.div_ceil(2), out_width.div_ceil(2));
    let rows = block_tiles(inputs)
        .div_ceil(wide)
        .max((samples * high).div_ceil(PIECES))
        .min(high);
    let parallel = shape.multiply_adds() >= PARALLEL;
    let panels = outputs.div_ceil(PANEL);
    let panel_len = PLACES * inputs * PANEL;
    parallel::with_scratch(panels * panel_len, |packed| {
        parallel::for_each_chunk(packed, panel_len, parallel, |panel, packed| {
            let first = panel * PANEL;
            let outputs = first..outputs.min(first + PANEL);
            dispatch!(simd::level(), simd => pack(simd, inputs, outputs, &weight, packed));
        });
        let packed = &*packed;
        let band_len = 2 * rows * out_width;
        let plane = out_height * out_width;
        parallel::for_each_band(y, outputs, plane, band_len, parallel, |n, mut band| {
            parallel::with_workspace(|scratch| {
                dispatch!(simd::level(), simd => {
                    piece(simd, shape, source, n, packed, bias, relu, &mut band, scratch)
                });
            });
        });
    });
}

/// U of a panel of output channels: [place][input][output].
#[inline(always)]
fn pack<S: Simd>(
    simd: S,
    inputs: usize,
    outputs: Range<usize>,
    weight: &impl Fn(usize, usize, usize) -> f32,
    packed: &mut [f32],
) {
    for i in 0..inputs {
        for half in 0..2 {
            let first = outputs.start + half * LANES;
            let mut taps = [[0.0; LANES]; 9];
            for (lane, o) in (first..outputs.end).take(LANES).enumerate() {
                for (uv, tap) in taps.iter_mut().enumerate() {
                    tap[lane] = weight(o, i, uv);
                }
            }
            let mut rows = [[f32x16::splat(simd, 0.0); 3]; 4];
            for v in 0..3 {
                let mut line = [f32x16::splat(simd, 0.0); 3];
                for (u, line) in line.iter_mut().enumerate() {
                    *line = f32x16::from_slice(simd, &taps[3 * u + v]);
                }
                let line = weight_line(simd, line);
                for a in 0..4 {
                    rows[a][v] = line[a];
                }
            }
            for a in 0..4 {
                let line = weight_line(simd, rows[a]);
                for b in 0..4 {
                    let at = ((4 * a + b) * inputs + i) * PANEL + half * LANES;
                    line[b].store_slice(&mut packed[at..at + LANES]);
                }
            }
        }
    }
}

/// Splits scratch into parts, each from the beginning of a cache line on.
fn parts<const N: usize>(scratch: &mut Vec<f32>, lens: [usize; N]) -> [&mut [f32]; N] {
    let lens = lens.map(|len| len.next_multiple_of(LANES));
    let mut rest = aligned(scratch, lens.iter().sum());
    lens.map(|len| {
        let (part, after) = std::mem::take(&mut rest).split_at_mut(len);
        rest = after;
        part
    })
}

/// A band of rows of the output.
#[inline(always)]
fn piece<S: Simd>(
    simd: S,
    shape: &Correlation,
    source: Source<'_>,
    n: usize,
    packed: &[f32],
    bias: &[f32],
    relu: bool,
    band: &mut Band<'_>,
    scratch: &mut Workspace,
) {
    let (inputs, out_width) = (shape.inputs, shape.out_width);
    let wide = out_width.div_ceil(2);
    let first = band.start() / out_width;
    let out_rows = band.len() / out_width;
    let tiles = out_rows.div_ceil(2) * wide;
    let block = block_tiles(inputs).min(tiles);
    let columns = 2 * wide + 2;
    let depth = inputs.next_multiple_of(LANES);
    let [lines_len, planes_len] = Lines::lens(inputs, columns, 4);
    let lens = [
        lines_len,
        planes_len,
        PLACES * place_stride(block * depth),
        PLACES * place_stride(block * PANEL),
        4 * block * PANEL,
    ];
    let [rows, planes, v, m, out] = parts(&mut scratch.floats, lens);
    let mut lines = Lines {
        source,
        size: (shape.height, shape.width),
        reflect: shape.reflect,
        first: n * inputs,
        channels: inputs,
        left: -shape.before,
        columns,
        kept: 4,
        rows,
        planes,
    };
    let mut read = 0;
    for start in (0..tiles).step_by(block) {
        let count = block.min(tiles - start);
        let (v_stride, m_stride) = (place_stride(count * depth), place_stride(count * PANEL));
        for run in runs(start, count, wide) {
            while read < 2 * run.row + 4 {
                lines.read(simd, read, (first + read) as isize - shape.before);
                read += 2;
            }
            transform_input(simd, &lines, &run, 0..4, v, v_stride);
        }
        for (panel, packed) in packed.chunks_exact(PLACES * inputs * PANEL).enumerate() {
            for (p, u) in packed.chunks_exact(inputs * PANEL).enumerate() {
                let m = &mut m[p * m_stride..][..count * PANEL];
                for (run, u) in u.chunks(CHAIN * PANEL).enumerate() {
                    let v = (&v[p * v_stride + run * CHAIN..], Stride::rows(depth));
                    let onto = if run == 0 { Onto::Zero } else { Onto::Itself };
                    multiply(v, u, m, onto, u.len() / PANEL, PANEL);
                }
            }
            let outputs = panel * PANEL..shape.outputs.min((panel + 1) * PANEL);
            transform_output(simd, m, m_stride, count, bias, relu, outputs.start, out);
            write(simd, out, (start, count), wide, out_width, outputs, band);
        }
    }
}

/// Neighbouring tiles of one row.
struct Run {
    /// The row of tiles, and the first tile's place in it.
    row: usize,
    at: usize,
    /// The first tile's place in the block, and how many there are.
    first: usize,
    count: usize,
}

/// The runs of a block of tiles.
fn runs(start: usize, count: usize, wide: usize) -> impl Iterator<Item = Run> {
    let mut first = 0;
    std::iter::from_fn(move || {
        let (row, at) = ((start + first) / wide, (start + first) % wide);
        let run = Run {
            row,
            at,
            first,
            count: (wide - at).min(count - first),
        };
        first += run.count;
        (run.count > 0).then_some(run)
    })
}

/// The sixteen numbers from a place on.
#[inline(always)]
fn load<S: Simd>(simd: S, numbers: &[f32], at: usize) -> f32x16<S> {
    f32x16::from_slice(simd, &numbers[at..at + LANES])
}

/// Bᵀ·x of the pixels at a place of four rows.
#[inline(always)]
fn input_column<S: Simd>(simd: S, rows: &[&[f32]; 4], at: usize) -> [f32x16<S>; 4] {
    input_line([
        load(simd, rows[0], at),
        load(simd, rows[1], at),
        load(simd, rows[2], at),
        load(simd, rows[3], at),
    ])
}

/// V of some tiles: place (a, b) at ((a − first a)·4 + b)·`stride`.
#[inline(always)]
fn transform_input<S: Simd>(
    simd: S,
    lines: &Lines<'_>,
    run: &Run,
    places: Range<usize>,
    v: &mut [f32],
    stride: usize,
) {
    let depth = lines.depth();
    let pixels: [&[f32]; 4] = simd::array(|k| &lines.row(2 * run.row + k)[2 * run.at * depth..]);
    for channel in (0..depth).step_by(LANES) {
        // Neighbours share two columns.
        let mut c0 = input_column(simd, &pixels, channel);
        let mut c1 = input_column(simd, &pixels, depth + channel);
        for t in 0..run.count {
            let at = (2 * t + 2) * depth + channel;
            let c2 = input_column(simd, &pixels, at);
            let c3 = input_column(simd, &pixels, at + depth);
            let v = &mut v[(run.first + t) * depth + channel..];
            for a in 0..4 {
                if !places.contains(&a) {
                    continue;
                }
                let line = input_line([c0[a], c1[a], c2[a], c3[a]]);
                for b in 0..4 {
                    let to = ((a - places.start) * 4 + b) * stride;
                    line[b].store_slice(&mut v[to..to + LANES]);
                }
            }
            [c0, c1] = [c2, c3];
        }
    }
}

/// y of a block's tiles and a panel of output channels: rows 0 and 1 of all tiles, pixel by pixel.
#[inline(always)]
fn transform_output<S: Simd>(
    simd: S,
    m: &[f32],
    stride: usize,
    count: usize,
    bias: &[f32],
    relu: bool,
    first: usize,
    out: &mut [f32],
) {
    let zero = f32x16::splat(simd, 0.0);
    for half in 0..2 {
        let at = first + half * LANES;
        let bias = match bias.len() > at {
            true => simd::load(simd, &bias[at..bias.len().min(at + LANES)]),
            false => zero,
        };
        for t in 0..count {
            let mut rows = [[zero; 4]; 2];
            for b in 0..4 {
                let mut line = [zero; 4];
                for (a, line) in line.iter_mut().enumerate() {
                    let from = (4 * a + b) * stride + t * PANEL + half * LANES;
                    *line = f32x16::from_slice(simd, &m[from..from + LANES]);
                }
                let line = output_line(line);
                for r in 0..2 {
                    rows[r][b] = line[r];
                }
            }
            for r in 0..2 {
                let line = output_line(rows[r]);
                for c in 0..2 {
                    let mut value = line[c] + bias;
                    if relu {
                        // A NaN stays one: it compares false.
                        value = value.simd_lt(zero).select(zero, value);
                    }
                    let to = ((r * count + t) * 2 + c) * PANEL + half * LANES;
                    value.store_slice(&mut out[to..to + LANES]);
                }
            }
        }
    }
}

/// Writes a block's outputs to their planes.
#[inline(always)]
fn write<S: Simd>(
    simd: S,
    out: &[f32],
    (start, count): (usize, usize),
    wide: usize,
    out_width: usize,
    outputs: Range<usize>,
    band: &mut Band<'_>,
) {
    let rows = band.len() / out_width;
    for run in runs(start, count, wide) {
        let pixels = (2 * run.count).min(out_width - 2 * run.at);
        for r in (0..2).filter(|r| 2 * run.row + r < rows) {
            let from = &out[(r * count + run.first) * 2 * PANEL..][..2 * run.count * PANEL];
            let to = (2 * run.row + r) * out_width + 2 * run.at;
            // Channels first: so many planes are written in runs that the machine follows.
            for first in (outputs.start..outputs.end).step_by(LANES) {
                for c in (0..pixels).step_by(LANES) {
                    let wide = LANES.min(pixels - c);
                    let mut lanes = [f32x16::splat(simd, 0.0); LANES];
                    let pixels = from[c * PANEL..].chunks_exact(PANEL);
                    for (lanes, pixel) in lanes.iter_mut().zip(pixels) {
                        let pixel = &pixel[first - outputs.start..][..LANES];
                        *lanes = f32x16::from_slice(simd, pixel);
                    }
                    let lanes = simd::transpose(simd, lanes);
                    for l in 0..LANES.min(outputs.end - first) {
                        simd::store(lanes[l], &mut band.plane(first + l)[to + c..][..wide]);
                    }
                }
            }
        }
    }
}
