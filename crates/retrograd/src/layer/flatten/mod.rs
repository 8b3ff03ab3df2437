//! All axes of a sample into one: y is x under another shape, and so is d_x of d_y.
//!
//! The plan gives both one buffer, so that nothing is computed; the copies here are what that
//! means, for where another layer stands between.

mod onnx;
mod spec;

pub use spec::FlattenSpec;

use crate::Scalar;
use crate::layer::{Backward, Describe, Forward, Layer};

pub(crate) struct Flatten;

impl Describe for Flatten {
    fn to_onnx(&self) -> Option<&dyn crate::onnx::ToOnnx> {
        Some(self)
    }

    fn is_view(&self) -> bool {
        true
    }
}

impl<T: Scalar> Layer<T> for Flatten {
    fn forward(&self, io: Forward<'_, T>) {
        io.y.copy_from_slice(io.x);
    }

    fn backward(&self, io: Backward<'_, T>) {
        if let Some(d_x) = io.d_x {
            d_x.copy_from_slice(io.d_y);
        }
    }
}
