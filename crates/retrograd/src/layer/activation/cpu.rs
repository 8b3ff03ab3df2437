//! f32 with SIMD, chunks spread over threads.

use super::{Activation, FRAC_1_SQRT_TAU};
use crate::cuts::cuts;
use crate::parallel;
use crate::simd::{self, Fused, LANES, Simd, dispatch, f32x16, prelude::*};

/// Elements per chunk, and from where on chunks go to threads (measured on two cores: an
/// activation costs 0.2 to 1 ns an element, a parallel part 0.4 µs).
const CHUNK: usize = 4096;
const PARALLEL: usize = 16_384;
cuts!(CHUNK, PARALLEL);

/// `$to` = `$value` of the vectors named before it, 16 lanes at a time. A macro, since a closure
/// might not be inlined into the code for the chosen instruction set.
macro_rules! map {
    ($simd:ident, $to:ident, [$($from:ident),+], $value:expr) => {{
        let n = $to.len();
        let mut at = 0;
        while at < n {
            $(let $from = simd::load($simd, &$from[at..n.min(at + LANES)]);)+
            let value = $value;
            simd::store(value, &mut $to[at..n.min(at + LANES)]);
            at += LANES;
        }
    }};
}

pub(super) fn forward(activation: Activation, x: &[f32], y: &mut [f32]) {
    let parallel = x.len() >= PARALLEL;
    parallel::for_each_chunk(y, CHUNK, parallel, |i, y| {
        let x = &x[i * CHUNK..i * CHUNK + y.len()];
        dispatch!(simd::level(), simd => forward_chunk(simd, activation, x, y));
    });
}

pub(super) fn backward(activation: Activation, x: &[f32], y: &[f32], d_y: &[f32], d_x: &mut [f32]) {
    let parallel = x.len() >= PARALLEL;
    parallel::for_each_chunk(d_x, CHUNK, parallel, |i, d_x| {
        let range = i * CHUNK..i * CHUNK + d_x.len();
        let (x, y, d_y) = (&x[range.clone()], &y[range.clone()], &d_y[range]);
        dispatch!(simd::level(), simd => backward_chunk(simd, activation, x, y, d_y, d_x));
    });
}

/// Values and slopes of SiLU or GELU in one go.
pub(super) fn forward_with_slopes(
    activation: Activation,
    x: &[f32],
    y: &mut [f32],
    slopes: &mut [f32],
) {
    let parallel = x.len() >= PARALLEL;
    parallel::for_each_chunk2(y, CHUNK, slopes, CHUNK, parallel, |i, y, slopes| {
        let x = &x[i * CHUNK..i * CHUNK + y.len()];
        dispatch!(simd::level(), simd => slopes_chunk(simd, activation, x, y, slopes));
    });
}

/// d_x = slopes · d_y.
pub(super) fn multiply(slopes: &[f32], d_y: &[f32], d_x: &mut [f32]) {
    let parallel = d_x.len() >= PARALLEL;
    parallel::for_each_chunk(d_x, CHUNK, parallel, |i, d_x| {
        let range = i * CHUNK..i * CHUNK + d_x.len();
        let (slopes, d_y) = (&slopes[range.clone()], &d_y[range]);
        dispatch!(simd::level(), simd => map!(simd, d_x, [slopes, d_y], slopes * d_y));
    });
}

#[inline(always)]
fn forward_chunk<S: Simd>(simd: S, activation: Activation, x: &[f32], y: &mut [f32]) {
    let zero = f32x16::splat(simd, 0.0);
    let one = f32x16::splat(simd, 1.0);
    match activation {
        Activation::Identity => y.copy_from_slice(x),
        // A NaN stays one: it compares false.
        Activation::Relu => map!(simd, y, [x], x.simd_lt(zero).select(zero, x)),
        Activation::LeakyRelu { slope } => {
            map!(simd, y, [x], x.simd_gt(zero).select(x, x * slope as f32));
        }
        Activation::Elu { alpha } => map!(simd, y, [x], {
            let t = simd::tanh(simd, x * 0.5);
            let left = t * (2.0 * alpha) as f32 / (one - t);
            x.simd_gt(zero).select(x, left)
        }),
        Activation::Silu => map!(simd, y, [x], x * simd::sigmoid(simd, x)),
        Activation::Gelu => map!(simd, y, [x], x * normal_cdf(simd, x)),
        Activation::Tanh => map!(simd, y, [x], simd::tanh(simd, x)),
        Activation::Sigmoid => map!(simd, y, [x], simd::sigmoid(simd, x)),
    }
}

#[inline(always)]
fn backward_chunk<S: Simd>(
    simd: S,
    activation: Activation,
    x: &[f32],
    y: &[f32],
    d_y: &[f32],
    d_x: &mut [f32],
) {
    let zero = f32x16::splat(simd, 0.0);
    let one = f32x16::splat(simd, 1.0);
    match activation {
        Activation::Identity => d_x.copy_from_slice(d_y),
        Activation::Relu => map!(simd, d_x, [x, d_y], x.simd_gt(zero).select(d_y, zero)),
        Activation::LeakyRelu { slope } => {
            map!(
                simd,
                d_x,
                [x, d_y],
                x.simd_gt(zero).select(d_y, d_y * slope as f32)
            );
        }
        Activation::Elu { alpha } => map!(
            simd,
            d_x,
            [x, y, d_y],
            x.simd_gt(zero).select(d_y, d_y * (y + alpha as f32))
        ),
        Activation::Silu => map!(simd, d_x, [x, d_y], {
            let s = simd::sigmoid(simd, x);
            d_y * (s * (x * (one - s) + one))
        }),
        Activation::Gelu => map!(simd, d_x, [x, d_y], {
            let density = simd::exp(simd, x * x * -0.5) * FRAC_1_SQRT_TAU as f32;
            d_y * x.fma(density, normal_cdf(simd, x))
        }),
        Activation::Tanh => map!(simd, d_x, [y, d_y], d_y * (one - y * y)),
        Activation::Sigmoid => map!(simd, d_x, [y, d_y], d_y * (y * (one - y))),
    }
}

#[inline(always)]
fn slopes_chunk<S: Simd>(
    simd: S,
    activation: Activation,
    x: &[f32],
    y: &mut [f32],
    slopes: &mut [f32],
) {
    let one = f32x16::splat(simd, 1.0);
    let n = x.len();
    let mut at = 0;
    while at < n {
        let lanes = at..n.min(at + LANES);
        let x = simd::load(simd, &x[lanes.clone()]);
        let (value, slope) = if activation == Activation::Silu {
            let s = simd::sigmoid(simd, x);
            (x * s, s * (x * (one - s) + one))
        } else {
            let density = simd::exp(simd, x * x * -0.5) * FRAC_1_SQRT_TAU as f32;
            let cdf = normal_cdf(simd, x);
            (x * cdf, x.fma(density, cdf))
        };
        simd::store(value, &mut y[lanes.clone()]);
        simd::store(slope, &mut slopes[lanes]);
        at += LANES;
    }
}

/// Φ(x) = (1 + erf(x/√2))/2
#[inline(always)]
fn normal_cdf<S: Simd>(simd: S, x: f32x16<S>) -> f32x16<S> {
    (simd::erf(simd, x * std::f32::consts::FRAC_1_SQRT_2) + 1.0) * 0.5
}
