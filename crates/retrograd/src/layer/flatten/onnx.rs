//! The layer in ONNX.

use super::Flatten;
use crate::onnx::{Site, ToOnnx};

impl ToOnnx for Flatten {
    fn write(&self, to: &mut Site<'_>) -> String {
        to.graph.node("Flatten", &[to.x])
    }
}
