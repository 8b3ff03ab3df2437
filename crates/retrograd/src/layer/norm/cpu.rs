//! f32 with SIMD and threads, for group and batch normalisation.
//!
//! Their sets are made of planes (one channel of one sample). Sums are taken plane by plane, runs
//! of a few thousand elements in f32 and the runs and planes in order in f64, and results are
//! written plane by plane: the same bits for any number of threads.

use super::{EPS, Norm, NormKind, Running, joint};
use crate::cuts::cuts;
use crate::parallel;
use crate::simd::{self, Fused, LANES, Simd, dispatch, f32x16, prelude::*};

/// Elements of a run that is summed in f32.
const RUN: usize = 4096;
/// Elements from which planes, or rows, go to threads.
pub(super) const PARALLEL: usize = 1 << 15;
cuts!(RUN, PARALLEL);

/// The set of a plane; plane = sample · channels + channel.
fn set_of(norm: &Norm, plane: usize) -> usize {
    match norm.kind {
        NormKind::Group(groups) => plane / (norm.channels / groups),
        _ => plane % norm.channels,
    }
}

/// The planes of a set, in order.
fn planes_of(norm: &Norm, planes: usize, set: usize) -> impl Iterator<Item = usize> {
    let (first, step, count) = match norm.kind {
        NormKind::Group(groups) => {
            let each = norm.channels / groups;
            (set * each, 1, each)
        }
        _ => (set, norm.channels, planes / norm.channels),
    };
    (0..count).map(move |i| first + i * step)
}

/// y, and the mean and 1/√(σ² + ε) of every set; statistics that are given are taken as they are, and
/// where `join` says so and the batch is cut, they are those of the whole batch, whose elements in a
/// channel are returned.
pub(super) fn forward(
    norm: &Norm,
    (fixed, join): (Option<&Running>, bool),
    [weight, bias]: [&[f32]; 2],
    x: &[f32],
    y: &mut [f32],
    stats: &mut [f32],
    scratch: &mut Vec<f32>,
) -> Option<f64> {
    let (plane, parallel) = (norm.plane, x.len() >= PARALLEL);
    let (planes, (_, size)) = (x.len() / plane, norm.sets(x.len()));
    scratch.resize(planes, 0.0);
    // Σ over every set of what every plane's elements give, as a mean.
    let mean_of = |totals: &[f32], set: usize| {
        let total: f64 = planes_of(norm, planes, set)
            .map(|p| f64::from(totals[p]))
            .sum();
        total / size as f64
    };
    if fixed.is_none() {
        parallel::for_each_chunk(scratch, 1, parallel, |p, total| {
            let x = &x[p * plane..][..plane];
            total[0] = dispatch!(simd::level(), simd => squares_or_sum(simd, x, None)) as f32;
        });
        for (s, stats) in stats.chunks_exact_mut(2).enumerate() {
            stats[0] = mean_of(scratch, s) as f32;
        }
        let means = &*stats;
        parallel::for_each_chunk(scratch, 1, parallel, |p, total| {
            let (x, mean) = (&x[p * plane..][..plane], means[2 * set_of(norm, p)]);
            total[0] = dispatch!(simd::level(), simd => squares_or_sum(simd, x, Some(mean))) as f32;
        });
    }
    let own = || joint::Moments {
        count: size as f64,
        channels: (stats.chunks_exact(2).enumerate())
            .map(|(s, stats)| [f64::from(stats[0]), mean_of(scratch, s) * size as f64])
            .collect(),
    };
    let whole = if join { joint::whole(own) } else { None };
    for (s, stats) in stats.chunks_exact_mut(2).enumerate() {
        let var = match (fixed, &whole) {
            (Some(running), _) => {
                stats[0] = running.mean[s] as f32;
                running.var[s]
            }
            (None, Some(whole)) => {
                let [mean, squares] = whole.channels[s];
                stats[0] = mean as f32;
                squares / whole.count
            }
            (None, None) => mean_of(scratch, s),
        };
        stats[1] = (1.0 / (var + EPS).sqrt()) as f32;
    }
    let stats = &*stats;
    parallel::for_each_chunk(y, plane, parallel, |p, y| {
        let (set, c) = (set_of(norm, p), p % norm.channels);
        let (mean, scale) = (stats[2 * set], stats[2 * set + 1] * weight[c]);
        let x = &x[p * plane..][..plane];
        dispatch!(simd::level(), _ => {
            for (y, x) in y.iter_mut().zip(x) {
                *y = (x - mean) * scale + bias[c];
            }
        });
    });
    whole.map(|whole| whole.count)
}

/// Gradients of the weights and biases added, d_x overwritten; `constant` where the statistics
/// don't depend on x, `join` where they are those of the whole batch.
pub(super) fn backward(
    norm: &Norm,
    (constant, join): (bool, bool),
    weight: &[f32],
    (x, d_y): (&[f32], &[f32]),
    stats: &[f32],
    [d_weight, d_bias]: [Option<&mut [f32]>; 2],
    d_x: Option<&mut [f32]>,
    scratch: &mut Vec<f32>,
) {
    let (plane, parallel) = (norm.plane, x.len() >= PARALLEL);
    let planes = x.len() / plane;
    let (sets, size) = norm.sets(x.len());
    scratch.resize(2 * planes + 2 * sets, 0.0);
    let (totals, means) = scratch.split_at_mut(2 * planes);
    // Σ d_y and Σ d_y·x̂ of every plane.
    parallel::for_each_chunk(totals, 2, parallel, |p, totals| {
        let set = set_of(norm, p);
        let range = p * plane..(p + 1) * plane;
        let (x, d_y) = (&x[range.clone()], &d_y[range]);
        let [sum, product] =
            dispatch!(simd::level(), simd => sum_and_product(simd, x, d_y, stats[2 * set]));
        totals[0] = sum as f32;
        totals[1] = (product * f64::from(stats[2 * set + 1])) as f32;
    });
    for (d, at) in [(d_bias, 0), (d_weight, 1)] {
        for (c, d) in d.into_iter().flatten().enumerate() {
            let own = totals.chunks_exact(2).skip(c).step_by(norm.channels);
            let total: f64 = own.map(|t| f64::from(t[at])).sum();
            *d = (f64::from(*d) + total) as f32;
        }
    }
    let Some(d_x) = d_x else { return };
    means.fill(0.0);
    if !constant {
        for (s, means) in means.chunks_exact_mut(2).enumerate() {
            for (at, mean) in means.iter_mut().enumerate() {
                let total: f64 = planes_of(norm, planes, s)
                    .map(|p| f64::from(weight[p % norm.channels]) * f64::from(totals[2 * p + at]))
                    .sum();
                *mean = (total / size as f64) as f32;
            }
        }
    }
    let own = || {
        let totals = means.iter().map(|&mean| f64::from(mean) * size as f64);
        totals.collect()
    };
    let whole = if join { joint::sums(size, own) } else { None };
    if let Some((count, totals)) = whole {
        for (mean, total) in means.iter_mut().zip(totals) {
            *mean = (total / count) as f32;
        }
    }
    let means = &*means;
    parallel::for_each_chunk(d_x, plane, parallel, |p, d_x| {
        let (set, w) = (set_of(norm, p), weight[p % norm.channels]);
        let [mean, inverse] = [stats[2 * set], stats[2 * set + 1]];
        let [mean_g, mean_gx] = [means[2 * set], means[2 * set + 1]];
        let range = p * plane..(p + 1) * plane;
        let (x, d_y) = (&x[range.clone()], &d_y[range]);
        dispatch!(simd::level(), _ => {
            for ((d_x, x), d) in d_x.iter_mut().zip(x).zip(d_y) {
                let normal = (x - mean) * inverse;
                *d_x = inverse * (w * d - mean_g - normal * mean_gx);
            }
        });
    });
}

/// Σ x, or Σ (x − mean)².
#[inline(always)]
pub(super) fn squares_or_sum<S: Simd>(simd: S, x: &[f32], mean: Option<f32>) -> f64 {
    let zero = f32x16::splat(simd, 0.0);
    let mut total = 0.0;
    for run in x.chunks(RUN) {
        let (vectors, rest) = run.as_chunks::<LANES>();
        let mut sum = zero;
        for x in vectors {
            let x = f32x16::from_slice(simd, x);
            sum = match mean {
                None => sum + x,
                Some(mean) => {
                    let apart = x - f32x16::splat(simd, mean);
                    apart.fma(apart, sum)
                }
            };
        }
        total += f64::from(simd.reduce_sum_f32x16(sum));
        for &x in rest {
            let apart = f64::from(x) - f64::from(mean.unwrap_or(0.0));
            total += mean.map_or(apart, |_| apart * apart);
        }
    }
    total
}

/// Σ d and Σ d·(x − mean).
#[inline(always)]
fn sum_and_product<S: Simd>(simd: S, x: &[f32], d: &[f32], mean: f32) -> [f64; 2] {
    let zero = f32x16::splat(simd, 0.0);
    let mut totals = [0.0; 2];
    for (x, d) in x.chunks(RUN).zip(d.chunks(RUN)) {
        let (mut sum, mut product) = (zero, zero);
        let ((x, x_rest), (d, d_rest)) = (x.as_chunks::<LANES>(), d.as_chunks::<LANES>());
        for (x, d) in x.iter().zip(d) {
            let d = f32x16::from_slice(simd, d);
            let apart = f32x16::from_slice(simd, x) - f32x16::splat(simd, mean);
            sum += d;
            product = apart.fma(d, product);
        }
        totals[0] += f64::from(simd.reduce_sum_f32x16(sum));
        totals[1] += f64::from(simd.reduce_sum_f32x16(product));
        for (&x, &d) in x_rest.iter().zip(d_rest) {
            totals[0] += f64::from(d);
            totals[1] += f64::from(d) * (f64::from(x) - f64::from(mean));
        }
    }
    totals
}
