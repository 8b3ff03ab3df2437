//! Correlation with the taps of a kernel gathered from rows that are not next to each other: what
//! strides above 1 are computed with.

use super::cpu::{PARALLEL, PIECE_PIXELS, SLACK};
use crate::cuts::cuts;
use crate::parallel::{self, Band};
use crate::simd::{self, Fused, LANES, Simd, dispatch, f32x16, prelude::*};

/// Output channels of a block of packed weights.
const BLOCK: usize = 8;
cuts!(BLOCK);

/// Where the taps of a kernel lie in a source, for one group.
pub(super) struct Taps<'a> {
    /// The distance of every tap (input channel, row, column; column fastest).
    pub offsets: &'a [u32],
    /// Pixels of an output row, and the distance between rows.
    pub width: usize,
}

/// Rows of an output plane of that width that make a piece.
pub(super) fn band_rows(height: usize, width: usize) -> usize {
    (PIECE_PIXELS / width.max(1)).clamp(1, height.max(1))
}

/// Everything about a correlation but its numbers.
pub(super) struct Correlation {
    pub groups: usize,
    /// Output channels of a group.
    pub outputs: usize,
    /// Taps of an output channel.
    pub taps: usize,
    pub stride: usize,
    /// A row of a source plane.
    pub source_wide: usize,
    /// One sample's planes, and one group's.
    pub source_sample: usize,
    pub source_group: usize,
    /// Of the output.
    pub height: usize,
    pub width: usize,
}

/// y[n,o,r,c] = bias[o] + Σ_tap weight(o, tap) · source[n, stride·r·wide + offset(tap) + stride·c].
pub(super) fn correlate(
    shape: &Correlation,
    samples: usize,
    source: &[f32],
    offset: impl Fn(usize) -> u32,
    weight_at: impl Fn(usize, usize) -> f32,
    bias: &[f32],
    y: &mut [f32],
) {
    let &Correlation {
        groups,
        outputs,
        taps,
        stride,
        height,
        width,
        ..
    } = shape;
    let blocks = outputs.div_ceil(BLOCK);
    let rows = band_rows(height, width);
    let work = samples * groups * outputs * taps * height * width;
    parallel::with_workspace(|scratch| {
        let parallel::Workspace {
            floats: packed,
            indices: offsets,
        } = scratch;
        offsets.clear();
        offsets.extend((0..taps).map(offset));
        // [group][block][tap][channel of the block]
        packed.clear();
        packed.resize(groups * blocks * taps * BLOCK, 0.0);
        for (at, block) in packed.chunks_exact_mut(taps * BLOCK).enumerate() {
            let (g, b) = (at / blocks, at % blocks);
            for (tap, lanes) in block.chunks_exact_mut(BLOCK).enumerate() {
                for (lane, w) in lanes.iter_mut().enumerate().take(outputs - b * BLOCK) {
                    *w = weight_at(g * outputs + b * BLOCK + lane, tap);
                }
            }
        }
        let (packed, offsets) = (&packed[..], &offsets[..]);
        let planes = groups * outputs;
        parallel::for_each_band(
            y,
            planes,
            height * width,
            rows * width,
            work >= PARALLEL,
            |n, mut band| {
                let first = band.start() / width;
                let count = band.len() / width;
                for g in 0..groups {
                    let from = n * shape.source_sample + g * shape.source_group;
                    let source = &source[from + first * stride * shape.source_wide..];
                    let packed = &packed[g * blocks * taps * BLOCK..][..blocks * taps * BLOCK];
                    let mut run = |source: &[f32], taps: &Taps<'_>| {
                        dispatch!(simd::level(), simd => {
                            channels(simd, source, taps, packed, bias, g * outputs, outputs, count, &mut band)
                        });
                    };
                    gathered(
                        source,
                        offsets,
                        stride,
                        shape.source_wide,
                        width,
                        count,
                        |panel, offsets| {
                            run(panel, &Taps { offsets, width });
                        },
                    );
                }
            },
        );
    });
}

/// The taps of a band of rows as planes of their own, for strides above 1.
pub(super) fn gathered(
    source: &[f32],
    offsets: &[u32],
    stride: usize,
    source_wide: usize,
    width: usize,
    rows: usize,
    work: impl FnOnce(&[f32], &[u32]),
) {
    let plane = rows * width;
    parallel::with_workspace(|scratch| {
        scratch.indices.clear();
        scratch
            .indices
            .extend((0..offsets.len()).map(|tap| (tap * plane) as u32));
        scratch.floats.clear();
        scratch.floats.resize(offsets.len() * plane + SLACK, 0.0);
        for (to, &offset) in scratch.floats.chunks_exact_mut(plane.max(1)).zip(offsets) {
            for (r, row) in to.chunks_exact_mut(width).enumerate() {
                let from = &source[offset as usize + r * stride * source_wide..];
                for (to, &x) in row.iter_mut().zip(from.iter().step_by(stride)) {
                    *to = x;
                }
            }
        }
        work(&scratch.floats, &scratch.indices);
    });
}

/// All channels of one group on a band of rows.
#[inline(always)]
fn channels<S: Simd>(
    simd: S,
    source: &[f32],
    taps: &Taps<'_>,
    packed: &[f32],
    bias: &[f32],
    first: usize,
    outputs: usize,
    rows: usize,
    band: &mut Band<'_>,
) {
    // One register a vector (AVX-512), or several.
    let wide = S::f32s::LEN >= LANES;
    for (b, weights) in packed.chunks_exact(taps.offsets.len() * BLOCK).enumerate() {
        let count = BLOCK.min(outputs - b * BLOCK);
        let mut at = 0;
        while at < count {
            let o = first + b * BLOCK + at;
            let left = count - at;
            at += if wide && left >= 8 {
                block::<S, 8, 2>(simd, source, taps, weights, at, bias, o, rows, band)
            } else if left >= 4 && wide {
                block::<S, 4, 4>(simd, source, taps, weights, at, bias, o, rows, band)
            } else if left >= 4 {
                block::<S, 4, 1>(simd, source, taps, weights, at, bias, o, rows, band)
            } else if left >= 2 {
                block::<S, 2, 2>(simd, source, taps, weights, at, bias, o, rows, band)
            } else {
                block::<S, 1, 4>(simd, source, taps, weights, at, bias, o, rows, band)
            };
        }
    }
}

/// `R` output channels on a band of rows, 16·`V` pixels at a time; returns `R`.
#[inline(always)]
fn block<S: Simd, const R: usize, const V: usize>(
    simd: S,
    source: &[f32],
    taps: &Taps<'_>,
    weights: &[f32],
    lane: usize,
    bias: &[f32],
    first: usize,
    rows: usize,
    band: &mut Band<'_>,
) -> usize {
    let mut start = [f32x16::splat(simd, 0.0); R];
    for (r, start) in start.iter_mut().enumerate() {
        *start = f32x16::splat(simd, bias.get(first + r).copied().unwrap_or(0.0));
    }
    for row in 0..rows {
        for c in (0..taps.width).step_by(V * LANES) {
            let source = &source[row * taps.width + c..];
            let mut sum = [[f32x16::splat(simd, 0.0); V]; R];
            for r in 0..R {
                sum[r] = [start[r]; V];
            }
            for (&offset, w) in taps.offsets.iter().zip(weights.chunks_exact(BLOCK)) {
                let pixels = &source[offset as usize..][..V * LANES];
                let mut x = [f32x16::splat(simd, 0.0); V];
                for v in 0..V {
                    x[v] = f32x16::from_slice(simd, &pixels[v * LANES..(v + 1) * LANES]);
                }
                let w = &w[lane..lane + R];
                for r in 0..R {
                    let w = f32x16::splat(simd, w[r]);
                    for v in 0..V {
                        sum[r][v] = w.fma(x[v], sum[r][v]);
                    }
                }
            }
            let count = (V * LANES).min(taps.width - c);
            for r in 0..R {
                let y = &mut band.plane(first + r)[row * taps.width + c..][..count];
                for (v, y) in y.chunks_mut(LANES).enumerate() {
                    simd::store(sum[r][v], y);
                }
            }
        }
    }
    R
}

/// sums[o][tap] += Σ over a band of rows of d_y[o] · the tap's pixels.
#[inline(always)]
pub(super) fn products<S: Simd>(
    simd: S,
    source: &[f32],
    taps: &Taps<'_>,
    d_y: &[f32],
    d_plane: usize,
    rows: usize,
    outputs: usize,
    sums: &mut [f32],
) {
    let wide = S::f32s::LEN >= LANES;
    let count = taps.offsets.len();
    let mut o = 0;
    while o < outputs {
        let high = if outputs - o >= 4 && wide { 4 } else { 1 };
        let mut tap = 0;
        while tap < count {
            let left = count - tap;
            let d_y = &d_y[o * d_plane..];
            let sums = &mut sums[o * count + tap..];
            tap += if high == 4 && left >= 6 {
                sums_of::<S, 4, 6>(simd, source, taps, tap, d_y, d_plane, rows, sums)
            } else if high == 4 {
                sums_of::<S, 4, 1>(simd, source, taps, tap, d_y, d_plane, rows, sums)
            } else if wide && left >= 9 {
                sums_of::<S, 1, 9>(simd, source, taps, tap, d_y, d_plane, rows, sums)
            } else if left >= 4 {
                sums_of::<S, 1, 4>(simd, source, taps, tap, d_y, d_plane, rows, sums)
            } else {
                sums_of::<S, 1, 1>(simd, source, taps, tap, d_y, d_plane, rows, sums)
            };
        }
        o += high;
    }
}

/// `O` channels × `K` taps from `first` on; returns `K`.
#[inline(always)]
fn sums_of<S: Simd, const O: usize, const K: usize>(
    simd: S,
    source: &[f32],
    taps: &Taps<'_>,
    first: usize,
    d_y: &[f32],
    d_plane: usize,
    rows: usize,
    sums: &mut [f32],
) -> usize {
    let mut sum = [[f32x16::splat(simd, 0.0); K]; O];
    let mut offsets = [0; K];
    for (k, offset) in offsets.iter_mut().enumerate() {
        *offset = taps.offsets[first + k] as usize;
    }
    let whole = taps.width / LANES * LANES;
    for row in 0..rows {
        let source = &source[row * taps.width..];
        let mut c = 0;
        while c < taps.width {
            let mut d = [f32x16::splat(simd, 0.0); O];
            for o in 0..O {
                let d_row = &d_y[o * d_plane + row * taps.width + c..];
                // Past the end of the row zeros: what the taps show there doesn't count.
                d[o] = if c < whole {
                    f32x16::from_slice(simd, &d_row[..LANES])
                } else {
                    simd::load(simd, &d_row[..taps.width - whole])
                };
            }
            for k in 0..K {
                let x = f32x16::from_slice(simd, &source[offsets[k] + c..][..LANES]);
                for o in 0..O {
                    sum[o][k] = d[o].fma(x, sum[o][k]);
                }
            }
            c += LANES;
        }
    }
    let count = taps.offsets.len();
    for o in 0..O {
        for k in 0..K {
            sums[o * count + k] += simd.reduce_sum_f32x16(sum[o][k]);
        }
    }
    K
}
