//! f32, stride 1: direct convolution on tiles that are copied into the cache first.
//!
//! A piece of work copies the part of the source that it reads, border included, into room of its
//! own: rows of all channels one after the other, so that the rows under a kernel lie together
//! whatever the size of the image, and the inner loops know no border. On the way the gradient
//! behind a ReLU is masked: d_y where y > 0, else 0. Bias and ReLU of the output are applied in
//! registers. So a convolution with its ReLU is one pass over its input and one over its output.
//!
//! - Correlation (forward, and the input gradient with the kernel turned around): a broadcast
//!   weight times 16 or 32 neighbouring pixels, 8 output channels at a time.
//! - Weight gradient: 16 lanes of partial sums for 4 output channels × 6 taps over a tile of 1024
//!   pixels, the tiles of a piece in f32, the pieces in order in f64.
//!
//! Pieces depend on the shapes alone: the same bits for any number of threads.

use crate::parallel::{self, Band, Room};
use crate::simd::{self, LANES, Simd, dispatch, f32x16, prelude::*};

/// Output channels of a block of packed weights.
const BLOCK: usize = 8;
/// What kernels may read past the last pixel of a row.
const SLACK: usize = 4 * LANES;
/// Multiply-adds of a piece: long enough to hide what the border costs.
const PIECE_WORK: usize = 1 << 24;
/// Fewest pieces, so that threads end together.
const PIECES: usize = 16;
/// Floats of a piece's copy of its source: half of 1 MB of L2.
const TILE_FLOATS: usize = 1 << 17;
/// Pixels of a tile of the weight gradient: 4 channels of it take half of 32 KB of L1.
const SUM_PIXELS: usize = 1024;
/// Its longest row.
const SUM_COLUMNS: usize = 256;
/// Input channels and floats that are copied together for it.
const SUM_INPUTS: usize = 32;
const SUM_FLOATS: usize = 160 << 10;
/// The longest row that is copied together.
const MOST_COLUMNS: usize = 1024;
/// Tiles that a piece of the weight gradient adds in f32.
const SUM_TILES: usize = 8;
/// Floats that the partial sums of weight gradients may take.
const PARTIAL_SUMS: usize = 1 << 20;
/// Multiply-adds from which pieces go to threads: about 20 µs, waking a thread takes 5.
const PARALLEL: usize = 1 << 20;

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

/// Planes to read, and the output of the ReLU behind them where their gradient is masked by it.
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
    fn multiply_adds(&self) -> usize {
        let taps = self.inputs * self.kernel * self.kernel;
        self.samples * self.groups * self.outputs * taps * self.out_height * self.out_width
    }

    /// Pixels that the kernel reaches past its first.
    fn reach(&self) -> usize {
        self.dilation * (self.kernel - 1)
    }
}

/// Where a window of planes is copied to.
#[derive(Clone, Copy)]
struct Window {
    /// The first row and column, in the image.
    top: isize,
    left: isize,
    rows: usize,
    /// Columns that are copied, and the room of a row; what is left of it becomes 0.
    columns: usize,
    pitch: usize,
    row_stride: usize,
    channel_stride: usize,
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
fn gather<S: Simd>(
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

/// The first element of room that begins on a cache line.
fn aligned(room: &mut Vec<f32>, len: usize) -> &mut [f32] {
    if room.len() < len + LANES {
        room.resize(len + LANES, 0.0);
    }
    let skip = room.as_ptr().align_offset(64).min(LANES);
    &mut room[skip..skip + len]
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
        kernel,
        out_height,
        out_width,
        ..
    } = shape;
    if y.is_empty() {
        return;
    }
    // Three taps of a row are read together where they are neighbours.
    let run = if kernel == 3 && shape.dilation == 1 {
        3
    } else {
        1
    };
    let taps = inputs * kernel * kernel;
    let blocks = outputs.div_ceil(BLOCK);
    let work = shape.multiply_adds();
    let row_work = (work / (shape.samples * out_height)).max(1);
    let row_floats = inputs * pitch(shape, tile_width(shape));
    let most_rows = (TILE_FLOATS / row_floats.max(1)).saturating_sub(shape.reach());
    let rows = (PIECE_WORK / row_work)
        .min((shape.samples * out_height).div_ceil(PIECES))
        .min(most_rows)
        .clamp(1, out_height);
    parallel::with_room(|room| {
        // [group][block][input][u][v][channel of the block]
        let packed = &mut room.floats;
        packed.clear();
        packed.resize(groups * blocks * taps * BLOCK, 0.0);
        for (at, block) in packed.chunks_exact_mut(taps * BLOCK).enumerate() {
            let (g, b) = (at / blocks, at % blocks);
            for (tap, lanes) in block.chunks_exact_mut(BLOCK).enumerate() {
                let (i, uv) = (tap / (kernel * kernel), tap % (kernel * kernel));
                for (lane, w) in lanes.iter_mut().enumerate().take(outputs - b * BLOCK) {
                    *w = weight(g * outputs + b * BLOCK + lane, i, uv);
                }
            }
        }
        let packed = &packed[..];
        parallel::for_each_band(
            y,
            groups * outputs,
            out_height * out_width,
            rows * out_width,
            work >= PARALLEL,
            |n, mut band| {
                parallel::with_room(|room| {
                    dispatch!(simd::level(), simd => {
                        if run == 3 {
                            piece::<_, 3>(simd, shape, source, n, packed, bias, relu, &mut band, room);
                        } else {
                            piece::<_, 1>(simd, shape, source, n, packed, bias, relu, &mut band, room);
                        }
                    });
                });
            },
        );
    });
}

/// Columns of a tile: all of them if a few rows of all channels fit.
fn tile_width(shape: &Correlation) -> usize {
    let most = TILE_FLOATS / ((shape.reach() + 4) * shape.inputs);
    let most = (most / (2 * LANES) * 2 * LANES).clamp(64, MOST_COLUMNS);
    shape.out_width.min(most)
}

/// The room of a row of a tile.
fn pitch(shape: &Correlation, columns: usize) -> usize {
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
    room: &mut Room,
) {
    let &Correlation {
        groups,
        inputs,
        outputs,
        kernel,
        dilation,
        out_width,
        ..
    } = shape;
    let first = band.start() / out_width;
    let rows = band.len() / out_width;
    let columns = tile_width(shape);
    let pitch = pitch(shape, columns);
    let Room { floats, indices } = room;
    // Where the runs of K taps begin: (i, u), or (i, u, v) where they are single.
    indices.clear();
    for i in 0..inputs {
        for u in 0..kernel {
            for v in (0..kernel).step_by(K) {
                indices.push(((u * dilation * inputs + i) * pitch + v * dilation) as u32);
            }
        }
    }
    let row_stride = inputs * pitch;
    let tile = aligned(floats, (rows + shape.reach()) * row_stride + SLACK);
    let weights = packed.len() / groups;
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
            };
            let end = columns.min(out_width - left);
            for row in 0..rows {
                let tile = &tile[row * row_stride..];
                for c in (0..end).step_by(2 * LANES) {
                    let count = (2 * LANES).min(end - c);
                    let to = row * out_width + left + c;
                    channels::<S, K>(simd, &tile[c..], &part, to, count, band);
                }
            }
        }
    }
}

/// What doesn't change within a tile.
struct Part<'a> {
    offsets: &'a [u32],
    weights: &'a [f32],
    bias: &'a [f32],
    /// The first output channel, and how many.
    first: usize,
    outputs: usize,
    relu: bool,
}

/// All output channels of up to 32 pixels.
#[inline(always)]
fn channels<S: Simd, const K: usize>(
    simd: S,
    tile: &[f32],
    part: &Part<'_>,
    to: usize,
    count: usize,
    band: &mut Band<'_>,
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
            at += if count <= LANES {
                if wide && left >= 8 {
                    block::<S, 8, 1, K>(simd, tile, part, weights, at, o, to, count, band)
                } else if left >= 4 {
                    block::<S, 4, 1, K>(simd, tile, part, weights, at, o, to, count, band)
                } else {
                    block::<S, 1, 1, K>(simd, tile, part, weights, at, o, to, count, band)
                }
            } else if wide && left >= 8 {
                block::<S, 8, 2, K>(simd, tile, part, weights, at, o, to, count, band)
            } else if wide && left >= 4 {
                block::<S, 4, 2, K>(simd, tile, part, weights, at, o, to, count, band)
            } else if left >= 2 {
                block::<S, 2, 2, K>(simd, tile, part, weights, at, o, to, count, band)
            } else {
                block::<S, 1, 2, K>(simd, tile, part, weights, at, o, to, count, band)
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
    band: &mut Band<'_>,
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
                    sum[r][j] = w.mul_add(x[j], sum[r][j]);
                }
            }
        }
    }
    let zero = f32x16::splat(simd, 0.0);
    for r in 0..R {
        let y = &mut band.plane(first + r)[to..to + count];
        for (j, y) in y.chunks_mut(LANES).enumerate() {
            let value = sum[r][j];
            // A NaN stays one: it compares false.
            let value = if part.relu {
                value.simd_lt(zero).select(zero, value)
            } else {
                value
            };
            simd::store(value, y);
        }
    }
    R
}

/// d_W[o,i,u,v] += Σ d_y[n,o,r,c] · x̄[n,i, r + d·u − before, c + d·v − before] and
/// d_b[o] += Σ d_y, for `shape` the forward correlation.
pub(crate) fn weight_gradient(
    shape: &Correlation,
    x: &[f32],
    d_y: Source<'_>,
    d_weight: Option<&mut [f32]>,
    d_bias: Option<&mut [f32]>,
) {
    if d_weight.is_none() && d_bias.is_none() {
        return;
    }
    let &Correlation {
        samples,
        groups,
        inputs,
        outputs,
        kernel,
        out_height,
        out_width,
        ..
    } = shape;
    let taps = inputs * kernel * kernel;
    let channels = groups * outputs;
    // A channel's sums: its taps, and its bias.
    let each = taps + 1;
    let len = channels * each;
    let most = (PARTIAL_SUMS / len).max(samples);
    let rows = (SUM_PIXELS * SUM_TILES / out_width.max(1))
        .min((samples * out_height).div_ceil(PIECES))
        .max((samples * out_height).div_ceil(most))
        .max(SUM_PIXELS / out_width.max(1))
        .clamp(1, out_height);
    let bands = out_height.div_ceil(rows);
    let parts = samples * bands;
    // Where there are too few bands, the output channels are divided too.
    let mut cut = 1;
    while parts * cut < PIECES && outputs.is_multiple_of(2 * cut) && outputs / cut >= 16 {
        cut *= 2;
    }
    let work = shape.multiply_adds();
    parallel::with_room(|room| {
        let Room { floats, .. } = room;
        parallel::with_room(|totals| {
            let totals = &mut totals.floats;
            totals.clear();
            totals.resize(len, 0.0);
            parallel::sum_cut_pieces(
                parts,
                groups * cut,
                totals,
                floats,
                work >= PARALLEL,
                |part, at, sums| {
                    let (n, first) = (part / bands, part % bands * rows);
                    let count = rows.min(out_height - first);
                    let own = outputs / cut;
                    let (g, o) = (at / cut, at % cut * own);
                    parallel::with_room(|room| {
                        dispatch!(simd::level(), simd => {
                            sums_of_band(simd, shape, x, d_y, n, (first, count), g, (o, own), sums, room)
                        });
                    });
                },
            );
            if let Some(d_weight) = d_weight {
                let rows = d_weight.chunks_exact_mut(taps);
                for (d, sums) in rows.zip(totals.chunks_exact(each)) {
                    for (d, &sum) in d.iter_mut().zip(sums) {
                        *d += sum;
                    }
                }
            }
            if let Some(d_bias) = d_bias {
                for (d, sums) in d_bias.iter_mut().zip(totals.chunks_exact(each)) {
                    *d += sums[taps];
                }
            }
        });
    });
}

/// How a band is cut for the weight gradient.
struct Cut {
    /// Rows and columns that are copied together, to fit L2.
    rows: usize,
    columns: usize,
    /// Input channels that are copied together.
    inputs: usize,
    /// Rows and columns that are summed together, to fit L1.
    sum_rows: usize,
    sum_columns: usize,
}

fn cut_sums(shape: &Correlation, outputs: usize) -> Cut {
    let columns = shape.out_width.clamp(1, MOST_COLUMNS);
    let inputs = shape.inputs.min(SUM_INPUTS);
    let sum_columns = columns.min(SUM_COLUMNS);
    let sum_rows = (SUM_PIXELS / sum_columns.next_multiple_of(LANES)).max(1);
    let row = inputs * pitch(shape, columns) + outputs * columns.next_multiple_of(LANES);
    let rows = (SUM_FLOATS / row).saturating_sub(shape.reach());
    let rows = if rows > sum_rows {
        rows / sum_rows * sum_rows
    } else {
        rows
    };
    Cut {
        rows: rows.clamp(1, shape.out_height.max(1)),
        columns,
        inputs,
        sum_rows,
        sum_columns,
    }
}

/// The sums of some output channels of one group over a band of rows.
#[inline(always)]
fn sums_of_band<S: Simd>(
    simd: S,
    shape: &Correlation,
    x: &[f32],
    d_y: Source<'_>,
    n: usize,
    (first, count): (usize, usize),
    g: usize,
    (first_output, outputs): (usize, usize),
    sums: &mut [f32],
    room: &mut Room,
) {
    let cut = cut_sums(shape, outputs);
    let (k, d, reach) = (shape.kernel, shape.dilation, shape.reach());
    let x_pitch = pitch(shape, cut.columns);
    let d_pitch = cut.columns.next_multiple_of(LANES);
    let x_plane = (cut.rows + reach) * x_pitch;
    let d_plane = cut.rows * d_pitch;
    let Room { floats, indices } = room;
    indices.clear();
    for i in 0..cut.inputs {
        for u in 0..k {
            for v in 0..k {
                indices.push((i * x_plane + u * d * x_pitch + v * d) as u32);
            }
        }
    }
    let both = aligned(floats, outputs * d_plane + cut.inputs * x_plane + SLACK);
    let (d_tile, x_tile) = both.split_at_mut(outputs * d_plane);
    let each = shape.inputs * k * k + 1;
    for top in (first..first + count).step_by(cut.rows) {
        let high = cut.rows.min(first + count - top);
        for left in (0..shape.out_width).step_by(cut.columns) {
            let wide = cut.columns.min(shape.out_width - left);
            let d_window = Window {
                top: top as isize,
                left: left as isize,
                rows: high,
                columns: wide,
                pitch: d_pitch,
                row_stride: d_pitch,
                channel_stride: d_plane,
            };
            let x_window = Window {
                top: top as isize - shape.before,
                left: left as isize - shape.before,
                rows: high + reach,
                columns: cut.columns + reach,
                pitch: x_pitch,
                row_stride: x_pitch,
                channel_stride: x_plane,
            };
            let planes = (n * shape.groups + g) * shape.outputs + first_output;
            let size = (shape.out_height, shape.out_width);
            gather(simd, d_y, size, false, planes, outputs, &d_window, d_tile);
            for (o, sums) in sums.chunks_exact_mut(each).enumerate() {
                sums[each - 1] += total(simd, &d_tile[o * d_plane..][..high * d_pitch]);
            }
            for i in (0..shape.inputs).step_by(cut.inputs) {
                let inputs = cut.inputs.min(shape.inputs - i);
                let planes = (n * shape.groups + g) * shape.inputs + i;
                let source = Source::plain(x);
                let size = (shape.height, shape.width);
                gather(
                    simd,
                    source,
                    size,
                    shape.reflect,
                    planes,
                    inputs,
                    &x_window,
                    x_tile,
                );
                for row in (0..high).step_by(cut.sum_rows) {
                    for column in (0..d_pitch).step_by(cut.sum_columns.next_multiple_of(LANES)) {
                        let tiles = Tiles {
                            d: &d_tile[row * d_pitch + column..],
                            d_pitch,
                            d_plane,
                            x: &x_tile[row * x_pitch + column..],
                            x_pitch,
                            offsets: &indices[..inputs * k * k],
                            rows: cut.sum_rows.min(high - row),
                            columns: cut
                                .sum_columns
                                .next_multiple_of(LANES)
                                .min(d_pitch - column),
                            neighbours: k == 3 && d == 1,
                        };
                        products(simd, &tiles, outputs, each, &mut sums[i * k * k..]);
                    }
                }
            }
        }
    }
}

/// Σ of a slice of whole vectors.
#[inline(always)]
fn total<S: Simd>(simd: S, x: &[f32]) -> f32 {
    let mut total = f32x16::splat(simd, 0.0);
    for x in x.as_chunks::<LANES>().0 {
        total += f32x16::from_slice(simd, x);
    }
    simd.reduce_sum_f32x16(total)
}

/// A tile of d_y and what lies under the kernel.
struct Tiles<'a> {
    d: &'a [f32],
    d_pitch: usize,
    d_plane: usize,
    x: &'a [f32],
    x_pitch: usize,
    offsets: &'a [u32],
    rows: usize,
    columns: usize,
    /// Whether three taps in a row are neighbours.
    neighbours: bool,
}

/// sums[o·each + tap] += Σ over a tile of d_y[o] · the tap's pixels.
#[inline(always)]
fn products<S: Simd>(simd: S, tiles: &Tiles<'_>, outputs: usize, each: usize, sums: &mut [f32]) {
    let wide = S::f32s::LEN >= LANES;
    let taps = tiles.offsets.len();
    let mut o = 0;
    while o < outputs {
        let high = if outputs - o >= 4 && wide { 4 } else { 1 };
        let sums = &mut sums[o * each..];
        let mut tap = 0;
        while tap < taps {
            let left = taps - tap;
            tap += if tiles.neighbours && wide {
                if high == 4 && left >= 6 {
                    sums_of::<S, 4, 2, 3>(simd, tiles, o, tap, each, sums)
                } else if high == 4 {
                    sums_of::<S, 4, 1, 3>(simd, tiles, o, tap, each, sums)
                } else {
                    sums_of::<S, 1, 3, 3>(simd, tiles, o, tap, each, sums)
                }
            } else if high == 4 && left >= 4 {
                sums_of::<S, 4, 4, 1>(simd, tiles, o, tap, each, sums)
            } else if high == 4 {
                sums_of::<S, 4, 1, 1>(simd, tiles, o, tap, each, sums)
            } else if left >= 4 {
                sums_of::<S, 1, 4, 1>(simd, tiles, o, tap, each, sums)
            } else {
                sums_of::<S, 1, 1, 1>(simd, tiles, o, tap, each, sums)
            };
        }
        o += high;
    }
}

/// `O` channels × `G` runs of `K` neighbouring taps from `first` on; returns how many taps.
#[inline(always)]
fn sums_of<S: Simd, const O: usize, const G: usize, const K: usize>(
    simd: S,
    tiles: &Tiles<'_>,
    o: usize,
    first: usize,
    each: usize,
    sums: &mut [f32],
) -> usize {
    let mut sum = [[[f32x16::splat(simd, 0.0); K]; G]; O];
    let count = tiles.columns / LANES;
    for row in 0..tiles.rows {
        // As many vectors in each, which spares the checks within.
        let mut d_rows: [&[[f32; LANES]]; O] = [&[]; O];
        for (j, d_row) in d_rows.iter_mut().enumerate() {
            let at = (o + j) * tiles.d_plane + row * tiles.d_pitch;
            *d_row = &tiles.d[at..at + tiles.columns].as_chunks().0[..count];
        }
        let mut x_rows: [[&[[f32; LANES]]; K]; G] = [[&[]; K]; G];
        for (g, x_row) in x_rows.iter_mut().enumerate() {
            let at = tiles.offsets[first + g * K] as usize + row * tiles.x_pitch;
            let x = &tiles.x[at..at + tiles.columns + K - 1];
            for (k, x_row) in x_row.iter_mut().enumerate() {
                *x_row = &x[k..k + tiles.columns].as_chunks().0[..count];
            }
        }
        for c in 0..count {
            let mut d = [f32x16::splat(simd, 0.0); O];
            for j in 0..O {
                d[j] = f32x16::from_slice(simd, &d_rows[j][c]);
            }
            for g in 0..G {
                for k in 0..K {
                    let x = f32x16::from_slice(simd, &x_rows[g][k][c]);
                    for j in 0..O {
                        sum[j][g][k] = d[j].mul_add(x, sum[j][g][k]);
                    }
                }
            }
        }
    }
    for j in 0..O {
        for g in 0..G {
            for k in 0..K {
                sums[j * each + first + g * K + k] += simd.reduce_sum_f32x16(sum[j][g][k]);
            }
        }
    }
    G * K
}
