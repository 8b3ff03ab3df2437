//! Mistakes that are made in the derivative of an activation, for the verifier to catch.

use super::Activation;
use crate::Scalar;
use crate::layer::{Backward, Layer};
use crate::verify::mutants::{Fault, FaultKind, Mutation, Seat, then_d_x};

#[derive(Clone, Copy, Debug, PartialEq)]
enum SlopeFault {
    /// The derivative of another function.
    Of(Activation),
    /// The derivative taken at the output instead of at the input.
    AtOutput,
    /// The derivative applied twice.
    Twice,
    /// A derivative that is cut off beyond ±1.
    Clamped,
}

pub(crate) fn faults(own: &Activation) -> Vec<Mutation> {
    let mut all = vec![
        FaultKind::NoDerivative.into(),
        Mutation::new("derivative at the output", SlopeFault::AtOutput),
        Mutation::new("derivative twice", SlopeFault::Twice),
        // Values may stay below it.
        Mutation::new("derivative cut off beyond ±1", SlopeFault::Clamped).in_small_models(),
    ];
    let others = [
        Activation::Relu,
        Activation::Elu { alpha: 1.0 },
        Activation::Silu,
        Activation::Gelu,
        Activation::Tanh,
        Activation::Sigmoid,
        Activation::LeakyRelu { slope: 0.01 },
    ];
    let kind = std::mem::discriminant(own);
    let others = others.into_iter().filter(|other| {
        std::mem::discriminant(other) != kind || matches!(other, Activation::LeakyRelu { .. })
    });
    all.extend(
        others
            .map(|other| Mutation::new(format!("derivative of {other:?}"), SlopeFault::Of(other))),
    );
    all
}

impl<T: Scalar> Fault<T> for SlopeFault {
    fn backward(&self, inner: &dyn Layer<T>, io: Backward<'_, T>, seat: &Seat) {
        let Some(own) = seat.layer::<Activation>() else {
            return inner.backward(io);
        };
        then_d_x(inner, io, |shown, d_x| {
            let (x, y, d_y) = (shown.x, shown.y, shown.d_y);
            for i in 0..d_x.len() {
                match self {
                    SlopeFault::Of(other) => d_x[i] = d_y[i] * other.slope(x[i], other.value(x[i])),
                    SlopeFault::AtOutput => d_x[i] = d_y[i] * own.slope(y[i], own.value(y[i])),
                    SlopeFault::Twice => d_x[i] *= own.slope(x[i], y[i]),
                    SlopeFault::Clamped if x[i].abs() > T::ONE => d_x[i] = T::ZERO,
                    SlopeFault::Clamped => {}
                }
            }
        });
    }
}
