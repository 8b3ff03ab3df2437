//! The layer in ONNX: nothing is dropped in inference.

use super::Dropout;
use crate::onnx::{Site, ToOnnx};

impl ToOnnx for Dropout {
    fn write(&self, to: &mut Site<'_>) -> String {
        to.x.to_string()
    }
}
