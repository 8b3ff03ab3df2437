//! Mistakes that are made in the derivative of upsampling, for the verifier to catch.

use super::Upsample;
use crate::Scalar;
use crate::layer::{Backward, Layer};
use crate::verify::mutants::{Fault, FaultKind, Mutation, Seat, Transform, then_d_x};

/// The gradient is taken from one pixel of every block.
#[derive(Clone, Copy, Debug)]
struct OneOfBlock;

pub(crate) fn faults(up: &Upsample) -> Vec<Mutation> {
    let share = 1.0 / (up.scale * up.scale) as f64;
    vec![
        Mutation::new("gradient of one pixel of the block", OneOfBlock),
        FaultKind::DX(Transform::Scale(share)).into(),
    ]
}

impl<T: Scalar> Fault<T> for OneOfBlock {
    fn backward(&self, inner: &dyn Layer<T>, io: Backward<'_, T>, seat: &Seat) {
        let Some(up) = seat.layer::<Upsample>() else {
            return inner.backward(io);
        };
        then_d_x(inner, io, |shown, d_x| {
            let (s, width) = (up.scale, up.width);
            let rows = d_x.chunks_exact_mut(width);
            for (d_x, d_y) in rows.zip(shown.d_y.chunks_exact(width * s * s)) {
                for (c, d_x) in d_x.iter_mut().enumerate() {
                    *d_x = d_y[c * s];
                }
            }
        });
    }
}
