//! f32, stride 1: direct convolution on tiles that are copied into the cache first.
//!
//! A piece of work copies the part of the source that it reads, border included, into scratch of its
//! own: rows of all channels one after the other, so that the rows under a kernel lie together
//! whatever the size of the image, and the inner loops know no border. On the way the gradient
//! after a ReLU is masked: d_y where y > 0, else 0. Bias and ReLU of the output are applied in
//! registers. So a convolution with its ReLU is one pass over its input and one over its output.
//!
//! Forward, and the input gradient with the kernel flipped in both axes, are correlations: a broadcast
//! weight times 16 or 32 neighbouring pixels, 8 output channels at a time.
//!
//! Pieces depend on the shapes alone: the same bits for any number of threads.

use crate::cuts::cuts;
use crate::parallel::{self, Band, Workspace};
use crate::simd::{self, Fused, LANES, Simd, dispatch, f32x16, prelude::*};

/// Output channels of a block of packed weights.
const BLOCK: usize = 8;
/// What kernels may read past the last pixel of a row.
pub(super) const SLACK: usize = 4 * LANES;
/// Multiply-adds of a piece: long enough to hide what the border costs.
const PIECE_WORK: usize = 1 << 24;
/// Fewest pieces, so that threads end together.
pub(super) const PIECES: usize = 16;
/// Floats of a piece's copy of its source: half of 1 MB of L2.
const TILE_FLOATS: usize = 1 << 17;
/// The longest row that is copied together.
pub(super) const MAX_COLUMNS: usize = 1024;
/// Multiply-adds from which pieces go to threads: about 20 µs, waking a thread takes 5.
pub(super) const PARALLEL: usize = 1 << 20;
cuts!(BLOCK, PIECES, MAX_COLUMNS, PARALLEL);

/// y[n,o,r,c] = Σ_iuv w(o,i,u,v) · x̄[n,i, r + d·u − before, c + d·v − before].
#[derive(Clone, Copy)]
pub(crate) struct Correlation {
    pub samples: usize,
    pub groups: usize,
    /// Channels of a group.
    pub inputs: usize,
    pub outputs: usize,
    pub kernel: usize,
    pub dilation: usize,
    /// Border before the first row and column; negative where the source begins earlier.
    pub before: isize,
    /// Whether the border mirrors the image instead of being 0.
    pub reflect: bool,
    pub height: usize,
    pub width: usize,
    pub out_height: usize,
    pub out_width: usize,
}

/// Planes to read, and the output of the ReLU after them where their gradient is masked by it.
#[derive(Clone, Copy)]
pub(crate) struct Source<'a> {
    pub values: &'a [f32],
    pub relu: Option<&'a [f32]>,
}

impl<'a> Source<'a> {
    /// Nothing masked.
    pub fn plain(values: &'a [f32]) -> Self {
        Source { values, relu: None }
    }
}

impl Correlation {
    pub fn multiply_adds(&self) -> usize {
        let taps = self.inputs * self.kernel * self.kernel;
        self.samples * self.groups * self.outputs * taps * self.out_height * self.out_width
    }

    /// Taps of a row that are read together: three where they are neighbours.
    pub fn run(&self) -> usize {
        if self.kernel == 3 && self.dilation == 1 {
            3
        } else {
            1
        }
    }

    /// Pixels that the kernel reaches past its first.
    pub fn reach(&self) -> usize {
        self.dilation * (self.kernel - 1)
    }
}

/// Where a window of planes is copied to.
#[derive(Clone, Copy)]
pub(super) struct Window {
    /// The first row and column, in the image.
    pub top: isize,
    pub left: isize,
    pub rows: usize,
    /// Columns that are copied, and the scratch of a row; what is left of it becomes 0.
    pub columns: usize,
    pub pitch: usize,
    pub row_stride: usize,
    pub channel_stride: usize,
}

/// The pixel that a coordinate outside of the image shows, if any.
fn shown(at: isize, size: usize, reflect: bool) -> Option<usize> {
    let last = size as isize - 1;
    match reflect {
        _ if (0..=last).contains(&at) => Some(at as usize),
        false => None,
        true if at < 0 => (-at <= last).then_some((-at) as usize),
        true => (2 * last - at >= 0).then_some((2 * last - at) as usize),
    }
}

/// Copies a window of `channels` planes from plane `first` on.
#[inline(always)]
pub(super) fn gather<S: Simd>(
    simd: S,
    source: Source<'_>,
    (height, width): (usize, usize),
    reflect: bool,
    first: usize,
    channels: usize,
    window: &Window,
    to: &mut [f32],
) {
    let zero = f32x16::splat(simd, 0.0);
    // The columns of the window that lie within the image.
    let start = (-window.left).clamp(0, window.columns as isize) as usize;
    let end = (width as isize - window.left).clamp(start as isize, window.columns as isize);
    let end = end as usize;
    let from_column = (window.left + start as isize).clamp(0, width as isize) as usize;
    for channel in 0..channels {
        let plane = (first + channel) * height * width;
        for row in 0..window.rows {
            let at = row * window.row_stride + channel * window.channel_stride;
            let to = &mut to[at..at + window.pitch];
            let Some(from) = shown(window.top + row as isize, height, reflect) else {
                to.fill(0.0);
                continue;
            };
            let from = plane + from * width;
            let values = &source.values[from..from + width];
            let relu = source.relu.map(|y| &y[from..from + width]);
            to[..start].fill(0.0);
            to[end..].fill(0.0);
            let count = end - start;
            let inner = &mut to[start..end];
            let values_in = &values[from_column..][..count];
            match relu {
                None => inner.copy_from_slice(values_in),
                Some(y) => {
                    let y = &y[from_column..][..count];
                    let parts = inner.chunks_mut(LANES).zip(values_in.chunks(LANES));
                    for ((to, d), y) in parts.zip(y.chunks(LANES)) {
                        let open = simd::load(simd, y).simd_gt(zero);
                        simd::store(open.select(simd::load(simd, d), zero), to);
                    }
                }
            }
            if reflect {
                for c in (0..start).chain(end..window.columns) {
                    if let Some(from) = shown(window.left + c as isize, width, true) {
                        to[c] = values[from];
                    }
                }
            }
        }
    }
}

/// The first element of scratch that begins on a cache line.
pub(super) fn aligned(scratch: &mut Vec<f32>, len: usize) -> &mut [f32] {
    if scratch.len() < len + LANES {
        scratch.resize(len + LANES, 0.0);
    }
    let skip = scratch.as_ptr().align_offset(64).min(LANES);
    &mut scratch[skip..skip + len]
}

/// The correlation with `weight(o, i, uv)` (o counts over all groups), plus bias where there is
/// one; negative results become 0 where `relu`.
pub(crate) fn correlate(
    shape: &Correlation,
    source: Source<'_>,
    weight: impl Fn(usize, usize, usize) -> f32,
    bias: &[f32],
    relu: bool,
    y: &mut [f32],
) {
    let &Correlation {
        groups,
        inputs,
        outputs,
        out_height,
        out_width,
        ..
    } = shape;
    if y.is_empty() {
        return;
    }
    let run = shape.run();
    let work = shape.multiply_adds();
    let row_work = (work / (shape.samples * out_height)).max(1);
    let row_floats = inputs * pitch(shape, tile_width(shape));
    let most_rows = (TILE_FLOATS / row_floats.max(1)).saturating_sub(shape.reach());
    let rows = (PIECE_WORK / row_work)
        .min((shape.samples * out_height).div_ceil(PIECES))
        .min(most_rows)
        .clamp(1, out_height);
    parallel::with_workspace(|scratch| {
        let packed = &mut scratch.floats;
        packed.clear();
        pack(shape, weight, packed);
        let packed = &packed[..];
        parallel::for_each_band(
            y,
            groups * outputs,
            out_height * out_width,
            rows * out_width,
            work >= PARALLEL,
            |n, mut band| {
                parallel::with_workspace(|scratch| {
                    dispatch!(simd::level(), simd => {
                        if run == 3 {
                            piece::<_, 3>(simd, shape, source, n, packed, bias, relu, &mut band, scratch);
                        } else {
                            piece::<_, 1>(simd, shape, source, n, packed, bias, relu, &mut band, scratch);
                        }
                    });
                });
            },
        );
    });
}

/// Appends the weights as the kernel reads them: [group][block][input][u][v][channel of the block].
pub(super) fn pack(
    shape: &Correlation,
    weight: impl Fn(usize, usize, usize) -> f32,
    packed: &mut Vec<f32>,
) {
    let kk = shape.kernel * shape.kernel;
    let taps = shape.inputs * kk;
    let blocks = shape.outputs.div_ceil(BLOCK);
    let start = packed.len();
    packed.resize(start + shape.groups * blocks * taps * BLOCK, 0.0);
    for (at, block) in packed[start..].chunks_exact_mut(taps * BLOCK).enumerate() {
        let (g, b) = (at / blocks, at % blocks);
        for (tap, lanes) in block.chunks_exact_mut(BLOCK).enumerate() {
            for (lane, w) in lanes.iter_mut().enumerate().take(shape.outputs - b * BLOCK) {
                *w = weight(g * shape.outputs + b * BLOCK + lane, tap / kk, tap % kk);
            }
        }
    }
}

/// Appends where the runs of `run` neighbouring taps begin in a tile: (i, u), or (i, u, v) where
/// they are single.
pub(super) fn offsets(shape: &Correlation, run: usize, pitch: usize, indices: &mut Vec<u32>) {
    let (k, d) = (shape.kernel, shape.dilation);
    for i in 0..shape.inputs {
        for u in 0..k {
            for v in (0..k).step_by(run) {
                indices.push(((u * d * shape.inputs + i) * pitch + v * d) as u32);
            }
        }
    }
}

/// Columns of a tile: all of them if a few rows of all channels fit.
fn tile_width(shape: &Correlation) -> usize {
    let most = TILE_FLOATS / ((shape.reach() + 4) * shape.inputs);
    let most = (most / (2 * LANES) * 2 * LANES).clamp(64, MAX_COLUMNS);
    shape.out_width.min(most)
}

/// The scratch of a row of a tile.
pub(super) fn pitch(shape: &Correlation, columns: usize) -> usize {
    (columns + shape.reach()).next_multiple_of(LANES) + LANES
}

/// A band of rows of the output, tile by tile.
#[inline(always)]
fn piece<S: Simd, const K: usize>(
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
    let &Correlation {
        groups,
        inputs,
        outputs,
        out_width,
        ..
    } = shape;
    let first = band.start() / out_width;
    let rows = band.len() / out_width;
    let columns = tile_width(shape);
    let pitch = pitch(shape, columns);
    let Workspace { floats, indices } = scratch;
    indices.clear();
    offsets(shape, K, pitch, indices);
    let row_stride = inputs * pitch;
    let tile = aligned(floats, (rows + shape.reach()) * row_stride + SLACK);
    let weights = packed.len() / groups;
    let step = step(outputs);
    for g in 0..groups {
        for left in (0..out_width).step_by(columns) {
            let window = Window {
                top: first as isize - shape.before,
                left: left as isize - shape.before,
                rows: rows + shape.reach(),
                columns: columns + shape.reach(),
                pitch,
                row_stride,
                channel_stride: pitch,
            };
            let planes = (n * groups + g) * inputs;
            let size = (shape.height, shape.width);
            gather(
                simd,
                source,
                size,
                shape.reflect,
                planes,
                inputs,
                &window,
                tile,
            );
            let part = Part {
                offsets: indices,
                weights: &packed[g * weights..][..weights],
                bias,
                first: g * outputs,
                outputs,
                relu,
                mask: None,
            };
            let end = columns.min(out_width - left);
            for row in 0..rows {
                let tile = &tile[row * row_stride..];
                for c in (0..end).step_by(step) {
                    let count = step.min(end - c);
                    let to = row * out_width + left + c;
                    channels::<S, K>(simd, &tile[c..], &part, to, count, band);
                }
            }
        }
    }
}

/// What doesn't change within a tile.
pub(super) struct Part<'a> {
    pub offsets: &'a [u32],
    pub weights: &'a [f32],
    pub bias: &'a [f32],
    /// The first output channel, and how many.
    pub first: usize,
    pub outputs: usize,
    pub relu: bool,
    /// Values with the output's places in the tile: results where they are not positive become 0.
    pub mask: Option<&'a [f32]>,
}

/// Where results go: one slice for every channel, the pixels at the same places in each.
pub(super) trait Target {
    fn channel(&mut self, channel: usize) -> &mut [f32];
    /// The same place in a mask.
    fn mask<'m>(&self, mask: &'m [f32], channel: usize) -> &'m [f32];
}

impl Target for Band<'_> {
    #[inline(always)]
    fn channel(&mut self, channel: usize) -> &mut [f32] {
        self.plane(channel)
    }

    #[inline(always)]
    fn mask<'m>(&self, mask: &'m [f32], _: usize) -> &'m [f32] {
        mask
    }
}

/// Pixels at a time: enough sums at once, however few the output channels.
pub(super) fn step(outputs: usize) -> usize {
    if outputs < 4 { 4 * LANES } else { 2 * LANES }
}

/// All output channels of up to [`step`] pixels.
#[inline(always)]
pub(super) fn channels<S: Simd, const K: usize>(
    simd: S,
    tile: &[f32],
    part: &Part<'_>,
    to: usize,
    count: usize,
    target: &mut impl Target,
) {
    // One register a vector (AVX-512), or several.
    let wide = S::f32s::LEN >= LANES;
    let size = part.offsets.len() * K * BLOCK;
    for (b, weights) in part.weights.chunks_exact(size).enumerate() {
        let of_block = BLOCK.min(part.outputs - b * BLOCK);
        let mut at = 0;
        while at < of_block {
            let o = b * BLOCK + at;
            let left = of_block - at;
            at += if count > 2 * LANES {
                if left >= 2 {
                    block::<S, 2, 4, K>(simd, tile, part, weights, at, o, to, count, target)
                } else {
                    block::<S, 1, 4, K>(simd, tile, part, weights, at, o, to, count, target)
                }
            } else if count <= LANES {
                if wide && left >= 8 {
                    block::<S, 8, 1, K>(simd, tile, part, weights, at, o, to, count, target)
                } else if left >= 4 {
                    block::<S, 4, 1, K>(simd, tile, part, weights, at, o, to, count, target)
                } else {
                    block::<S, 1, 1, K>(simd, tile, part, weights, at, o, to, count, target)
                }
            } else if wide && left >= 8 {
                block::<S, 8, 2, K>(simd, tile, part, weights, at, o, to, count, target)
            } else if wide && left >= 4 {
                block::<S, 4, 2, K>(simd, tile, part, weights, at, o, to, count, target)
            } else if left >= 2 {
                block::<S, 2, 2, K>(simd, tile, part, weights, at, o, to, count, target)
            } else {
                block::<S, 1, 2, K>(simd, tile, part, weights, at, o, to, count, target)
            };
        }
    }
}

/// `R` output channels of 16·`V` pixels; returns `R`.
#[inline(always)]
fn block<S: Simd, const R: usize, const V: usize, const K: usize>(
    simd: S,
    tile: &[f32],
    part: &Part<'_>,
    weights: &[f32],
    lane: usize,
    first: usize,
    to: usize,
    count: usize,
    target: &mut impl Target,
) -> usize {
    let first = part.first + first;
    let mut sum = [[f32x16::splat(simd, 0.0); V]; R];
    for r in 0..R {
        sum[r] = [f32x16::splat(simd, part.bias.get(first + r).copied().unwrap_or(0.0)); V];
    }
    for (&offset, w) in part.offsets.iter().zip(weights.chunks_exact(K * BLOCK)) {
        let pixels = &tile[offset as usize..][..V * LANES + K - 1];
        for v in 0..K {
            let mut x = [f32x16::splat(simd, 0.0); V];
            for j in 0..V {
                x[j] = f32x16::from_slice(simd, &pixels[v + j * LANES..v + (j + 1) * LANES]);
            }
            let w = &w[v * BLOCK + lane..v * BLOCK + lane + R];
            for r in 0..R {
                let w = f32x16::splat(simd, w[r]);
                for j in 0..V {
                    sum[r][j] = w.fma(x[j], sum[r][j]);
                }
            }
        }
    }
    let zero = f32x16::splat(simd, 0.0);
    for r in 0..R {
        for j in 0..V {
            // Known places in `sum`, so that it stays in registers.
            if j * LANES >= count {
                continue;
            }
            let lanes = to + j * LANES..to + count.min((j + 1) * LANES);
            let mut value = sum[r][j];
            if part.relu {
                // A NaN stays one: it compares false.
                value = value.simd_lt(zero).select(zero, value);
            }
            if let Some(mask) = part.mask {
                let open = simd::load(simd, &target.mask(mask, first + r)[lanes.clone()]);
                value = open.simd_gt(zero).select(value, zero);
            }
            simd::store(value, &mut target.channel(first + r)[lanes]);
        }
    }
    R
}
