//! Mistakes that are made in the derivative of a KAN layer, for the verifier to catch.

use super::Kan;
use crate::Scalar;
use crate::layer::{Backward, Layer, TENSORS};
use crate::network::{Activation, Base, Outside};
use crate::verify::mutants::{Fault, Mutation, Seat, then_d_x};

/// What is wrong with d_x.
#[derive(Clone, Copy, Debug, PartialEq)]
enum SplineFault {
    /// The splines' derivative is that of one degree lower.
    LowerDegree,
    /// The factor k is 3 whatever the degree.
    Cubic,
    /// The factor k is missing.
    NoFactor,
    /// The second term of the derivative is missing.
    OneTerm,
    /// The splines have no part in d_x.
    NoSpline,
    /// The base function has no part in d_x.
    NoBase,
    /// silu′ is taken to be σ.
    BaseIsSigmoid,
    /// Beyond the clamp, x still gets a gradient.
    ClampedMoves,
    /// The splines of the neighbouring interval.
    Neighbour,
}

/// Those that change something in this layer: the factor 3 is right at degree 3, a missing factor
/// at degree 1, and there may be no base and no clamp.
pub(crate) fn faults(kan: &Kan) -> Vec<Mutation> {
    use SplineFault as F;
    let has_base = kan.base != Base::None;
    let all = [
        (F::LowerDegree, "spline derivative one degree lower", true),
        (
            F::Cubic,
            "spline derivative cubic for every degree",
            kan.degree != 3,
        ),
        (
            F::NoFactor,
            "spline derivative without its factor",
            kan.degree != 1,
        ),
        (F::OneTerm, "spline derivative's second term missing", true),
        (F::NoSpline, "d_x without the splines", true),
        (F::NoBase, "d_x without the base", has_base),
        (F::BaseIsSigmoid, "base derivative is σ", has_base),
        (
            F::ClampedMoves,
            "gradient beyond the clamp",
            kan.outside == Outside::Clamp,
        ),
        (F::Neighbour, "derivative of the neighbouring spline", true),
    ];
    let applying = all.into_iter().filter(|(.., applies)| *applies);
    applying
        .map(|(fault, words, _)| Mutation::new(words, fault))
        .collect()
}

impl<T: Scalar> Fault<T> for SplineFault {
    fn backward(&self, inner: &dyn Layer<T>, io: Backward<'_, T>, seat: &Seat) {
        let Some(kan) = seat.layer::<Kan>() else {
            return inner.backward(io);
        };
        then_d_x(inner, io, |shown, d_x| {
            spline_d_x(kan, *self, shown.params, shown.x, shown.d_y, d_x);
        });
    }
}

/// B_{m,d}(x) by the recursion itself.
fn spline<T: Scalar>(m: usize, d: usize, t: &[T], x: T) -> T {
    if d == 0 {
        let inside = x >= t[m] && x < t[m + 1];
        return if inside { T::ONE } else { T::ZERO };
    }
    (x - t[m]) / (t[m + d] - t[m]) * spline(m, d - 1, t, x)
        + (t[m + d + 1] - x) / (t[m + d + 1] - t[m + 1]) * spline(m + 1, d - 1, t, x)
}

fn spline_d_x<T: Scalar>(
    kan: &Kan,
    fault: SplineFault,
    params: [&[T]; TENSORS],
    x: &[T],
    d_y: &[T],
    d_x: &mut [T],
) {
    let [spline_weight, base_weight, ..] = params;
    let (outputs, bases, k) = (kan.outputs, kan.bases(), kan.degree);
    let slope = |m: usize, t: &[T], x: T| -> T {
        let m = match fault {
            SplineFault::Neighbour => (m + 1).min(bases - 1),
            _ => m,
        };
        let degree = match fault {
            SplineFault::LowerDegree => k - 1,
            _ => k,
        };
        if degree == 0 {
            return T::ZERO;
        }
        let factor = T::from_f64(match fault {
            SplineFault::Cubic => 3.0,
            SplineFault::NoFactor => 1.0,
            _ => degree as f64,
        });
        let left = factor / (t[m + degree] - t[m]) * spline(m, degree - 1, t, x);
        let right = factor / (t[m + degree + 1] - t[m + 1]) * spline(m + 1, degree - 1, t, x);
        match fault {
            SplineFault::NoSpline => T::ZERO,
            SplineFault::OneTerm => left,
            _ => left - right,
        }
    };
    for (row, d_x) in d_x.chunks_exact_mut(kan.inputs).enumerate() {
        let d_y = &d_y[row * outputs..(row + 1) * outputs];
        for (i, d_x) in d_x.iter_mut().enumerate() {
            let t: Vec<T> = crate::scalar::cast(&kan.knots(i));
            let own = x[row * kan.inputs + i];
            let (lo, hi) = (t[k], t[k + kan.grid]);
            let outside = kan.outside == Outside::Clamp && (own < lo || own > hi);
            if outside && fault != SplineFault::ClampedMoves {
                *d_x = T::ZERO;
                continue;
            }
            // Just inside, where the splines have a slope.
            let seen = if outside {
                own.max(lo).min(lo + (hi - lo) * T::from_f64(0.999))
            } else {
                own
            };
            let dot = |weights: &[T]| -> T { weights.iter().zip(d_y).map(|(&w, &d)| w * d).sum() };
            let mut sum = T::ZERO;
            for m in 0..bases {
                let weights = &spline_weight[(i * bases + m) * outputs..][..outputs];
                sum += slope(m, &t, seen) * dot(weights);
            }
            if !base_weight.is_empty() && fault != SplineFault::NoBase {
                let silu = Activation::Silu.value(seen);
                let slope = match fault {
                    SplineFault::BaseIsSigmoid => seen.sigmoid(),
                    _ => Activation::Silu.slope(seen, silu),
                };
                sum += slope * dot(&base_weight[i * outputs..][..outputs]);
            }
            *d_x = sum;
        }
    }
}
