//! y = x + the output of an earlier layer.
//!
//! d_x = d_y, and the same for the earlier layer: a value that is read twice gets the sum of both
//! gradients.

#[cfg(feature = "gpu")]
mod gpu;
mod onnx;
mod spec;

pub use spec::AddSpec;

use crate::Scalar;
use crate::layer::pieces::{add, copy};
use crate::layer::{Backward, Describe, Forward, Layer};

pub(crate) struct Add;

impl Describe for Add {
    fn to_onnx(&self) -> Option<&dyn crate::onnx::ToOnnx> {
        Some(self)
    }

    fn adds(&self) -> bool {
        true
    }

    #[cfg(feature = "gpu")]
    fn record(&self) -> Option<&dyn crate::gpu::layer::Record> {
        Some(self)
    }
}

impl<T: Scalar> Layer<T> for Add {
    fn forward(&self, io: Forward<'_, T>) {
        copy(io.y, io.x);
        add(io.y, io.other);
    }

    fn backward(&self, io: Backward<'_, T>) {
        for (d, adds) in [io.d_x, io.d_other].into_iter().zip(io.adds) {
            match d {
                Some(d) if adds => add(d, io.d_y),
                Some(d) => copy(d, io.d_y),
                None => {}
            }
        }
    }
}
