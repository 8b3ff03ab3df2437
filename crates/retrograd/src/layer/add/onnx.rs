//! The layer in ONNX.

use super::Add;
use crate::onnx::{Site, ToOnnx};

impl ToOnnx for Add {
    fn write(&self, to: &mut Site<'_>) -> String {
        let other = to.other.expect("a skip reads two values");
        to.graph.node("Add", &[to.x, other])
    }
}
