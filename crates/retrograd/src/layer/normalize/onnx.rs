//! The layer in ONNX.

use super::Normalize;
use crate::onnx::{Site, ToOnnx};

impl ToOnnx for Normalize {
    fn write(&self, to: &mut Site<'_>) -> String {
        let f32s = |values: &[f64]| values.iter().map(|&v| v as f32).collect::<Vec<_>>();
        let n = [self.mean.len()];
        let mean = to.graph.f32s("mean", &n, &f32s(&self.mean));
        let std = to.graph.f32s("std", &n, &f32s(&self.std));
        let x = to.graph.node("Sub", &[to.x, &mean]);
        to.graph.node("Div", &[&x, &std])
    }
}
