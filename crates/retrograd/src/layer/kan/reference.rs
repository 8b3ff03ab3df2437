//! Plain loops over the full basis: the oracle.

use super::{Kan, MAX_DEGREE};
use crate::layer::{Backward, Forward, sized};
use crate::network::Activation;
use crate::network::Outside;
use crate::{Scalar, scalar};

/// All basis functions of that degree at x, and their derivatives, by the recursion of the
/// module's docs.
pub(crate) fn basis<T: Scalar>(
    degree: usize,
    knots: &[T],
    x: T,
    values: &mut [T],
    slopes: &mut [T],
) {
    debug_assert!(degree <= MAX_DEGREE);
    let intervals = knots.len() - 1;
    // One more than `values` has at degree k; 64 + 2·7 at most.
    let mut b = [T::ZERO; 64 + 2 * MAX_DEGREE];
    for m in 0..intervals {
        let inside = x >= knots[m] && x < knots[m + 1];
        b[m] = if inside { T::ONE } else { T::ZERO };
    }
    for d in 1..=degree {
        if d == degree {
            let k = T::from_usize(degree);
            for (m, slope) in slopes.iter_mut().enumerate() {
                *slope = k / (knots[m + d] - knots[m]) * b[m]
                    - k / (knots[m + d + 1] - knots[m + 1]) * b[m + 1];
            }
        }
        for m in 0..intervals - d {
            b[m] = (x - knots[m]) / (knots[m + d] - knots[m]) * b[m]
                + (knots[m + d + 1] - x) / (knots[m + d + 1] - knots[m + 1]) * b[m + 1];
        }
    }
    values.copy_from_slice(&b[..values.len()]);
}

/// The input that splines and base see, and whether it moves with x.
fn seen<T: Scalar>(kan: &Kan, knots: &[T], x: T) -> (T, bool) {
    let (lo, hi) = (knots[kan.degree], knots[kan.degree + kan.grid]);
    match kan.outside {
        Outside::Clamp if x < lo => (lo, false),
        Outside::Clamp if x > hi => (hi, false),
        _ => (x, true),
    }
}

pub(super) fn forward<T: Scalar>(kan: &Kan, io: Forward<'_, T>) {
    let [spline_weight, base_weight, bias, ..] = io.params;
    let (bases, outputs) = (kan.bases(), kan.outputs);
    // Per (row, input): the bases and their derivatives, kept for backward.
    let saved = sized(&mut io.saved.values, io.x.len() * 2 * bases);
    let knots: Vec<Vec<T>> = (0..kan.inputs)
        .map(|i| scalar::cast(&kan.knots(i)))
        .collect();
    let rows =
        io.x.chunks_exact(kan.inputs)
            .zip(io.y.chunks_exact_mut(outputs));
    for ((x, y), saved) in rows.zip(saved.chunks_exact_mut(kan.inputs * 2 * bases)) {
        for (j, y) in y.iter_mut().enumerate() {
            *y = bias.get(j).copied().unwrap_or(T::ZERO);
        }
        for (i, saved) in saved.chunks_exact_mut(2 * bases).enumerate() {
            let (values, slopes) = saved.split_at_mut(bases);
            let (x, _) = seen(kan, &knots[i], x[i]);
            basis(kan.degree, &knots[i], x, values, slopes);
            for (m, &b) in values.iter().enumerate() {
                let weights = &spline_weight[(i * bases + m) * outputs..][..outputs];
                for (y, &w) in y.iter_mut().zip(weights) {
                    *y += w * b;
                }
            }
            if !base_weight.is_empty() {
                let silu = Activation::Silu.value(x);
                for (y, &w) in y.iter_mut().zip(&base_weight[i * outputs..]) {
                    *y += w * silu;
                }
            }
        }
    }
}

pub(super) fn backward<T: Scalar>(kan: &Kan, io: Backward<'_, T>) {
    let [spline_weight, base_weight, ..] = io.params;
    let [mut d_spline_weight, mut d_base_weight, mut d_bias, ..] = io.d_params;
    let (bases, outputs) = (kan.bases(), kan.outputs);
    let knots: Vec<Vec<T>> = (0..kan.inputs)
        .map(|i| scalar::cast(&kan.knots(i)))
        .collect();
    let mut d_x = io.d_x;
    let rows =
        io.x.chunks_exact(kan.inputs)
            .zip(io.d_y.chunks_exact(outputs));
    let saved = io.saved.values.chunks_exact(kan.inputs * 2 * bases);
    for (row, ((x, d_y), saved)) in rows.zip(saved).enumerate() {
        if let Some(d_bias) = &mut d_bias {
            for (d_b, &d) in d_bias.iter_mut().zip(d_y) {
                *d_b += d;
            }
        }
        for (i, saved) in saved.chunks_exact(2 * bases).enumerate() {
            let (values, slopes) = saved.split_at(bases);
            let (x, moves) = seen(kan, &knots[i], x[i]);
            if let Some(d_spline_weight) = &mut d_spline_weight {
                for (m, &b) in values.iter().enumerate() {
                    let d_weights = &mut d_spline_weight[(i * bases + m) * outputs..][..outputs];
                    for (d_w, &d) in d_weights.iter_mut().zip(d_y) {
                        *d_w += d * b;
                    }
                }
            }
            let silu = Activation::Silu.value(x);
            if let Some(d_base_weight) = &mut d_base_weight {
                for (d_w, &d) in d_base_weight[i * outputs..].iter_mut().zip(d_y) {
                    *d_w += d * silu;
                }
            }
            let Some(d_x) = &mut d_x else { continue };
            let mut sum = T::ZERO;
            if moves {
                for (m, &slope) in slopes.iter().enumerate() {
                    let weights = &spline_weight[(i * bases + m) * outputs..][..outputs];
                    let dot: T = weights.iter().zip(d_y).map(|(&w, &d)| w * d).sum();
                    sum += slope * dot;
                }
                if !base_weight.is_empty() {
                    let weights = &base_weight[i * outputs..][..outputs];
                    let dot: T = weights.iter().zip(d_y).map(|(&w, &d)| w * d).sum();
                    sum += Activation::Silu.slope(x, silu) * dot;
                }
            }
            d_x[row * kan.inputs + i] = sum;
        }
    }
}
