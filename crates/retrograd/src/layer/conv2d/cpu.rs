//! f32, SIMD and threads. Stride 1 works on [tiles](super::tile), between many channels by
//! [Winograd's form](super::winograd); what follows is for larger strides.
//!
//! The input is copied once into planes with their border around them (and space to read past the
//! end), so that the inner loops know no border, and the taps of a band of rows are gathered from
//! it. The input gradient is a convolution of d_y, spread out by the stride, with the kernel
//! flipped.
//!
//! A piece is a band of rows of one sample and owns its part of the output. Weight gradients are
//! summed per piece, at most a few hundred terms a lane, and the pieces in order in f64.

use super::Conv2d;
use super::sums;
use super::taps::{Correlation, Taps, band_rows, correlate, gathered, products};
use super::tile::{self, Source};
use super::winograd;
use crate::cuts::cuts;
use crate::network::PaddingMode;
use crate::parallel;
use crate::simd::{self, LANES, Simd, dispatch, f32x16, prelude::*};

/// What kernels may read past the last pixel.
pub(crate) const SLACK: usize = 4 * LANES;
/// Pixels of a piece: with 16 channels on both sides a band of this size fits 1 MB of L2.
pub(super) const PIECE_PIXELS: usize = 4096;
/// Multiply-adds from which pieces go to threads: about 20 µs, waking a thread takes 5.
pub(super) const PARALLEL: usize = 1 << 20;
/// Floats that the partial sums of weight gradients may take.
const PARTIAL_SUMS: usize = 1 << 22;
cuts!(PIECE_PIXELS, PARALLEL);

/// The length of the bordered copy of a batch.
pub(crate) fn bordered_len(conv: &Conv2d, samples: usize) -> usize {
    let (high, wide) = conv.padded();
    samples * conv.inputs * high * wide + SLACK
}

/// Writes the bordered copy.
pub(crate) fn border(conv: &Conv2d, x: &[f32], bordered: &mut [f32]) {
    let (high, wide) = conv.padded();
    let (p, width) = (conv.padding, conv.width);
    let planes = bordered.len() - SLACK;
    bordered[planes..].fill(0.0);
    let parallel = planes >= PARALLEL / 8;
    parallel::for_each_chunk(
        &mut bordered[..planes],
        high * wide,
        parallel,
        |i, plane| {
            let x = &x[i * conv.height * width..][..conv.height * width];
            for (r, row) in plane.chunks_exact_mut(wide).enumerate() {
                let Some(from) = conv.source(r, conv.height) else {
                    row.fill(0.0);
                    continue;
                };
                let x = &x[from * width..][..width];
                row[p..p + width].copy_from_slice(x);
                for c in (0..p).chain(p + width..wide) {
                    row[c] = conv.source(c, width).map_or(0.0, |from| x[from]);
                }
            }
        },
    );
}

/// y, after a ReLU where `relu` (stride 1 only). `bordered` keeps what the weight gradient of a
/// larger stride reads.
pub(crate) fn forward(
    conv: &Conv2d,
    samples: usize,
    weight: &[f32],
    bias: &[f32],
    x: &[f32],
    relu: bool,
    bordered: &mut Vec<f32>,
    y: &mut [f32],
) {
    if conv.stride == 1 {
        let shape = correlation(conv, samples);
        let kk = conv.kernel * conv.kernel;
        let weight_at = |o: usize, i: usize, uv: usize| weight[(o * shape.inputs + i) * kk + uv];
        if winograd::takes(&shape) {
            return winograd::correlate(&shape, Source::plain(x), weight_at, bias, relu, y);
        }
        return tile::correlate(&shape, Source::plain(x), weight_at, bias, relu, y);
    }
    bordered.resize(bordered_len(conv, samples), 0.0);
    border(conv, x, bordered);
    forward_strided(conv, samples, weight, bias, bordered, y);
}

/// The forward correlation of a convolution of stride 1.
pub(crate) fn correlation(conv: &Conv2d, samples: usize) -> tile::Correlation {
    tile::Correlation {
        samples,
        groups: conv.groups,
        inputs: conv.inputs / conv.groups,
        outputs: conv.outputs / conv.groups,
        kernel: conv.kernel,
        dilation: conv.dilation,
        before: conv.padding as isize,
        reflect: conv.padding_mode == PaddingMode::Reflect,
        height: conv.height,
        width: conv.width,
        out_height: conv.out_height(),
        out_width: conv.out_width(),
    }
}

/// The input gradient of stride 1 and a border of zeros: the correlation of d_y with the kernel
/// flipped, with as much border as it reaches.
fn flipped(
    conv: &Conv2d,
    samples: usize,
    weight: &[f32],
    bias: &[f32],
    d_y: Source<'_>,
    d_x: &mut [f32],
) {
    let forward = correlation(conv, samples);
    let (group_in, group_out) = (forward.inputs, forward.outputs);
    let shape = tile::Correlation {
        inputs: group_out,
        outputs: group_in,
        before: (conv.dilation * (conv.kernel - 1)) as isize - conv.padding as isize,
        reflect: false,
        height: forward.out_height,
        width: forward.out_width,
        out_height: conv.height,
        out_width: conv.width,
        ..forward
    };
    // Channel `i` counts over all groups; W[o, i within the group, u, v].
    let kk = conv.kernel * conv.kernel;
    let weight_at = |i: usize, o: usize, uv: usize| {
        let (group, i) = (i / group_in, i % group_in);
        weight[((group * group_out + o) * group_in + i) * kk + kk - 1 - uv]
    };
    if winograd::takes(&shape) {
        return winograd::correlate(&shape, d_y, weight_at, bias, false, d_x);
    }
    tile::correlate(&shape, d_y, weight_at, bias, false, d_x);
}

fn forward_strided(
    conv: &Conv2d,
    samples: usize,
    weight: &[f32],
    bias: &[f32],
    bordered: &[f32],
    y: &mut [f32],
) {
    let (high, wide) = conv.padded();
    let (k, d) = (conv.kernel, conv.dilation);
    let channels = conv.inputs / conv.groups;
    let taps = channels * k * k;
    let offset = |tap: usize| {
        let (i, u, v) = (tap / (k * k), tap / k % k, tap % k);
        ((i * high + d * u) * wide + d * v) as u32
    };
    let shape = Correlation {
        groups: conv.groups,
        outputs: conv.outputs / conv.groups,
        taps,
        stride: conv.stride,
        source_wide: wide,
        source_sample: conv.inputs * high * wide,
        source_group: channels * high * wide,
        height: conv.out_height(),
        width: conv.out_width(),
    };
    let weight_at = |o: usize, tap: usize| weight[o * taps + tap];
    correlate(&shape, samples, bordered, offset, weight_at, bias, y);
}

/// d_x, overwritten.
pub(crate) fn backward_input(
    conv: &Conv2d,
    samples: usize,
    weight: &[f32],
    bias: &[f32],
    d_y: Source<'_>,
    d_x: &mut [f32],
) {
    if conv.mirrors() {
        return backward_input_reflected(conv, samples, weight, d_y, d_x);
    }
    if conv.stride == 1 {
        return flipped(conv, samples, weight, bias, d_y, d_x);
    }
    // d_y spread out by the stride: that of the same convolution without one.
    let dense = Conv2d {
        stride: 1,
        ..conv.clone()
    };
    let (s, out_height, out_width) = (conv.stride, conv.out_height(), conv.out_width());
    let (high, wide) = (dense.out_height(), dense.out_width());
    parallel::with_scratch(samples * conv.outputs * high * wide, |spread| {
        let parallel = spread.len() >= PARALLEL / 8;
        parallel::for_each_chunk(spread, high * wide, parallel, |i, plane| {
            plane.fill(0.0);
            let d_y = &d_y.values[i * out_height * out_width..][..out_height * out_width];
            for (row, d_y) in plane
                .chunks_exact_mut(wide)
                .step_by(s)
                .zip(d_y.chunks_exact(out_width))
            {
                for (to, &d) in row.iter_mut().step_by(s).zip(d_y) {
                    *to = d;
                }
            }
        });
        flipped(&dense, samples, weight, bias, Source::plain(spread), d_x);
    });
}

/// With a mirrored border: the gradient of the bordered image, folded back.
fn backward_input_reflected(
    conv: &Conv2d,
    samples: usize,
    weight: &[f32],
    d_y: Source<'_>,
    d_x: &mut [f32],
) {
    let (high, wide) = conv.padded();
    let inner = Conv2d {
        height: high,
        width: wide,
        padding: 0,
        padding_mode: PaddingMode::Zeros,
        ..conv.clone()
    };
    parallel::with_scratch(samples * conv.inputs * high * wide, |d_bordered| {
        backward_input(&inner, samples, weight, &[], d_y, d_bordered);
        let parallel = d_bordered.len() >= PARALLEL / 8;
        parallel::for_each_chunk(d_x, conv.height * conv.width, parallel, |i, d_x| {
            let d_plane = &d_bordered[i * high * wide..][..high * wide];
            super::reference::fold(conv, d_plane, d_x);
        });
    });
}

/// d_W and d_b, added to what is there; `bordered` is what forward left.
pub(crate) fn backward_weight(
    conv: &Conv2d,
    samples: usize,
    x: &[f32],
    bordered: &[f32],
    d_y: Source<'_>,
    d_weight: Option<&mut [f32]>,
    d_bias: Option<&mut [f32]>,
) {
    if conv.stride == 1 {
        let shape = correlation(conv, samples);
        if winograd::takes(&shape)
            && let Some(d_weight) = d_weight
        {
            return winograd::weight_gradient(&shape, x, d_y, d_weight, d_bias);
        }
        return sums::weight_gradient(&shape, x, d_y, d_weight, d_bias);
    }
    let d_y = d_y.values;
    let (height, width) = (conv.out_height(), conv.out_width());
    if let Some(d_bias) = d_bias {
        bias_gradient(samples, conv.outputs, d_y, d_bias);
    }
    let Some(d_weight) = d_weight else { return };
    let (high, wide) = conv.padded();
    let (k, d, s) = (conv.kernel, conv.dilation, conv.stride);
    let (group_in, group_out) = (conv.inputs / conv.groups, conv.outputs / conv.groups);
    let taps = group_in * k * k;
    // Pieces: bands of rows, larger ones where the partial sums would take too much memory.
    let most = (PARTIAL_SUMS / d_weight.len().max(1)).max(samples);
    let least_rows = (samples * height).div_ceil(most);
    let rows = band_rows(height, width).max(least_rows).min(height);
    let bands = height.div_ceil(rows);
    let work = samples * height * width * d_weight.len();
    let offset = |tap: usize| {
        let (i, u, v) = (tap / (k * k), tap / k % k, tap % k);
        ((i * high + d * u) * wide + d * v) as u32
    };
    let pieces = samples * bands;
    parallel::with_workspace(|scratch| {
        let parallel::Workspace {
            floats: workspace,
            indices: offsets,
        } = scratch;
        offsets.clear();
        offsets.extend((0..taps).map(offset));
        let offsets = &offsets[..];
        parallel::sum_pieces(
            pieces,
            d_weight,
            workspace,
            work >= PARALLEL,
            |piece, sums| {
                let (n, band) = (piece / bands, piece % bands);
                let first = band * rows;
                let count = rows.min(height - first);
                for g in 0..conv.groups {
                    let source = &bordered[(n * conv.inputs + g * group_in) * high * wide..];
                    let source = &source[first * s * wide..];
                    let d_y = &d_y[(n * conv.outputs + g * group_out) * height * width..];
                    let d_y = &d_y[first * width..];
                    let sums = &mut sums[g * group_out * taps..][..group_out * taps];
                    gathered(source, offsets, s, wide, width, count, |panel, offsets| {
                        let taps = Taps { offsets, width };
                        let d_plane = height * width;
                        dispatch!(simd::level(), simd => products(simd, panel, &taps, d_y, d_plane, count, group_out, sums));
                    });
                }
            },
        );
    });
}

/// d_b[o] += Σ d_y[·,o,·,·]: runs in f32, their sums in f64.
pub(crate) fn bias_gradient(samples: usize, outputs: usize, d_y: &[f32], d_bias: &mut [f32]) {
    let plane = d_y.len() / (samples * outputs);
    let parallel = d_y.len() >= PARALLEL / 4;
    parallel::for_each_chunk(d_bias, 1, parallel, |o, d_bias| {
        let mut total = f64::from(d_bias[0]);
        for n in 0..samples {
            let d_y = &d_y[(n * outputs + o) * plane..][..plane];
            for run in d_y.chunks(PIECE_PIXELS) {
                total += f64::from(dispatch!(simd::level(), simd => sum(simd, run)));
            }
        }
        d_bias[0] = total as f32;
    });
}

/// Σ x, 16 lanes.
#[inline(always)]
fn sum<S: Simd>(simd: S, x: &[f32]) -> f32 {
    let mut total = f32x16::splat(simd, 0.0);
    for x in x.chunks(LANES) {
        total += simd::load(simd, x);
    }
    simd.reduce_sum_f32x16(total)
}
