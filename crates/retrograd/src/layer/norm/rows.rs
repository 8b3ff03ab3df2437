//! f32 with SIMD and threads, for layer normalisation: every row is a set of its own.
//!
//! Rows go to threads in blocks of a fixed number. A block adds up its share of the gradients of
//! weights and biases in f32, and the blocks are added in order in f64: the same bits for any
//! number of threads.

use super::EPS;
use super::cpu::{PARALLEL, squares_or_sum};
use crate::cuts::cuts;
use crate::parallel;
use crate::simd::{self, Fused, LANES, Simd, dispatch, f32x16, prelude::*};

/// Rows of a block.
const ROWS: usize = 64;
cuts!(ROWS);

/// y, and the mean and 1/√(σ² + ε) of every row.
pub(crate) fn forward([weight, bias]: [&[f32]; 2], x: &[f32], y: &mut [f32], stats: &mut [f32]) {
    let width = weight.len();
    let parallel = x.len() >= PARALLEL;
    parallel::for_each_chunk2(y, ROWS * width, stats, ROWS * 2, parallel, |i, y, stats| {
        let x = &x[i * ROWS * width..][..y.len()];
        dispatch!(simd::level(), simd => block_forward(simd, [weight, bias], x, y, stats));
    });
}

#[inline(always)]
fn block_forward<S: Simd>(
    simd: S,
    [weight, bias]: [&[f32]; 2],
    x: &[f32],
    y: &mut [f32],
    stats: &mut [f32],
) {
    let width = weight.len();
    let rows = x.chunks_exact(width).zip(y.chunks_exact_mut(width));
    for ((x, y), stats) in rows.zip(stats.chunks_exact_mut(2)) {
        let mean = (squares_or_sum(simd, x, None) / width as f64) as f32;
        let var = squares_or_sum(simd, x, Some(mean)) / width as f64;
        let inverse = (1.0 / (var + EPS).sqrt()) as f32;
        stats.copy_from_slice(&[mean, inverse]);
        for (((y, x), w), b) in y.iter_mut().zip(x).zip(weight).zip(bias) {
            *y = (x - mean) * inverse * w + b;
        }
    }
}

/// Gradients of the weights and biases added, d_x overwritten.
pub(crate) fn backward(
    weight: &[f32],
    (x, d_y): (&[f32], &[f32]),
    stats: &[f32],
    [d_weight, d_bias]: [Option<&mut [f32]>; 2],
    d_x: Option<&mut [f32]>,
    scratch: &mut Vec<f32>,
) {
    let width = weight.len();
    let blocks = x.len().div_ceil(ROWS * width);
    let d_x = d_x.unwrap_or_default();
    // Σ d_y·x̂ and Σ d_y of every block's rows.
    scratch.clear();
    let sums = if d_weight.is_some() || d_bias.is_some() {
        2 * width
    } else {
        0
    };
    scratch.resize(blocks * sums, 0.0);
    parallel::for_each_chunks(
        [&mut *d_x, &mut scratch[..]],
        [ROWS * width, sums],
        blocks,
        x.len() >= PARALLEL,
        |i, [d_x, sums]| {
            let rows = i * ROWS * width..x.len().min((i + 1) * ROWS * width);
            let (x, d_y) = (&x[rows.clone()], &d_y[rows]);
            let stats = &stats[i * ROWS * 2..];
            dispatch!(simd::level(), simd => {
                if !sums.is_empty() {
                    add_products(x, d_y, stats, sums.split_at_mut(width));
                }
                if !d_x.is_empty() {
                    block_backward(simd, weight, (x, d_y), stats, d_x);
                }
            });
        },
    );
    for (d, from) in [(d_weight, 0), (d_bias, width)] {
        for (k, d) in d.into_iter().flatten().enumerate() {
            let own = scratch.iter().skip(from + k).step_by(2 * width);
            *d = (f64::from(*d) + own.map(|&sum| f64::from(sum)).sum::<f64>()) as f32;
        }
    }
}

#[inline(always)]
fn add_products(x: &[f32], d_y: &[f32], stats: &[f32], (products, sums): (&mut [f32], &mut [f32])) {
    let width = sums.len();
    let rows = x.chunks_exact(width).zip(d_y.chunks_exact(width));
    for ((x, d_y), stats) in rows.zip(stats.chunks_exact(2)) {
        let (mean, inverse) = (stats[0], stats[1]);
        let sums = products.iter_mut().zip(&mut *sums);
        for ((x, d), (product, sum)) in x.iter().zip(d_y).zip(sums) {
            *product += d * ((x - mean) * inverse);
            *sum += d;
        }
    }
}

#[inline(always)]
fn block_backward<S: Simd>(
    simd: S,
    weight: &[f32],
    (x, d_y): (&[f32], &[f32]),
    stats: &[f32],
    d_x: &mut [f32],
) {
    let width = weight.len();
    let n = width as f64;
    let rows = x.chunks_exact(width).zip(d_y.chunks_exact(width));
    let rows = rows.zip(d_x.chunks_exact_mut(width));
    for (((x, d_y), d_x), stats) in rows.zip(stats.chunks_exact(2)) {
        let (mean, inverse) = (stats[0], stats[1]);
        let [sum, product] = weighted_sums(simd, weight, x, d_y, mean);
        let mean_g = (sum / n) as f32;
        let mean_gx = (product * f64::from(inverse) / n) as f32;
        for (((d_x, x), d), w) in d_x.iter_mut().zip(x).zip(d_y).zip(weight) {
            let normal = (x - mean) * inverse;
            *d_x = inverse * (w * d - mean_g - normal * mean_gx);
        }
    }
}

/// Σ w·d and Σ w·d·(x − mean) of a row.
#[inline(always)]
fn weighted_sums<S: Simd>(simd: S, w: &[f32], x: &[f32], d: &[f32], mean: f32) -> [f64; 2] {
    let mut sums = [f32x16::splat(simd, 0.0); 2];
    let (w, w_rest) = w.as_chunks::<LANES>();
    let (x, x_rest) = x.as_chunks::<LANES>();
    let (d, d_rest) = d.as_chunks::<LANES>();
    for ((w, x), d) in w.iter().zip(x).zip(d) {
        let (w, x) = (
            f32x16::load_array_ref(simd, w),
            f32x16::load_array_ref(simd, x),
        );
        let d = f32x16::load_array_ref(simd, d);
        let g = w * d;
        sums[0] += g;
        sums[1] = g.fma(x - f32x16::splat(simd, mean), sums[1]);
    }
    let mut totals = simd::array(
        #[inline(always)]
        |i| f64::from(simd.reduce_sum_f32x16(sums[i])),
    );
    for ((&w, &x), &d) in w_rest.iter().zip(x_rest).zip(d_rest) {
        let g = f64::from(w) * f64::from(d);
        totals[0] += g;
        totals[1] += g * (f64::from(x) - f64::from(mean));
    }
    totals
}
