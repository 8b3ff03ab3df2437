//! Mistakes that are made in the derivative of a norm, for the verifier to catch.

use super::Norm;
use crate::Scalar;
use crate::layer::{Backward, Layer};
use crate::verify::mutants::{Fault, FaultKind, Mutation, Seat, then_d_x};

#[derive(Clone, Copy, Debug, PartialEq)]
enum NormFault {
    /// Statistics are taken as constants.
    ConstantStatistics,
    /// … with the mean's part only.
    WithoutVarianceTerm,
    /// … with a variance over n−1.
    UnbiasedVariance,
}

pub(crate) fn faults() -> Vec<Mutation> {
    vec![
        FaultKind::NoDerivative.into(),
        Mutation::new("statistics as constants", NormFault::ConstantStatistics),
        Mutation::new("variance's part missing", NormFault::WithoutVarianceTerm),
        Mutation::new("variance over n−1", NormFault::UnbiasedVariance),
    ]
}

impl<T: Scalar> Fault<T> for NormFault {
    fn backward(&self, inner: &dyn Layer<T>, io: Backward<'_, T>, seat: &Seat) {
        let Some(norm) = seat.layer::<Norm>() else {
            return inner.backward(io);
        };
        then_d_x(inner, io, |shown, d_x| {
            norm_d_x(norm, *self, shown.params[0], shown.x, shown.d_y, d_x);
        });
    }
}

fn norm_d_x<T: Scalar>(
    norm: &Norm,
    kind: NormFault,
    weight: &[T],
    x: &[T],
    d_y: &[T],
    d_x: &mut [T],
) {
    let (sets, size) = norm.sets(x.len());
    let n = T::from_usize(size);
    for s in 0..sets {
        let places: Vec<(usize, usize)> = (0..size).map(|j| norm.place(size, s, j)).collect();
        let mean = places.iter().map(|p| x[p.0]).sum::<T>() / n;
        let squares: T = places
            .iter()
            .map(|p| (x[p.0] - mean) * (x[p.0] - mean))
            .sum();
        let over = match kind {
            NormFault::UnbiasedVariance => T::from_usize(size.max(2) - 1),
            _ => n,
        };
        let inverse = T::ONE / (squares / over + T::from_f64(1e-5)).sqrt();
        let g = |p: &(usize, usize)| weight[p.1] * d_y[p.0];
        let normal = |p: &(usize, usize)| (x[p.0] - mean) * inverse;
        let mean_g = places.iter().map(g).sum::<T>() / n;
        let mean_gx = places.iter().map(|p| g(p) * normal(p)).sum::<T>() / n;
        for p in &places {
            d_x[p.0] = match kind {
                NormFault::ConstantStatistics => g(p) * inverse,
                NormFault::WithoutVarianceTerm => (g(p) - mean_g) * inverse,
                _ => (g(p) - mean_g - normal(p) * mean_gx) * inverse,
            };
        }
    }
}
