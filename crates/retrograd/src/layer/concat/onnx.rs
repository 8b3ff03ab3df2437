//! The layer in ONNX.

use super::Concat;
use crate::onnx::{Attribute, Site, ToOnnx};

impl ToOnnx for Concat {
    fn write(&self, to: &mut Site<'_>) -> String {
        let other = to.other.expect("a skip reads two values");
        let axis = [("axis", Attribute::Int(1))];
        to.graph.node_with("Concat", &[to.x, other], &axis)
    }
}
