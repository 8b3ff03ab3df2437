//! The layers in ONNX, as they are in inference.

use super::{EPS, Norm, NormKind};
use crate::onnx::{Attribute, Site, ToOnnx};

impl ToOnnx for Norm {
    fn write(&self, to: &mut Site<'_>) -> String {
        let [weight, bias, ..] = to.params;
        let n = [self.channels];
        let epsilon = ("epsilon", Attribute::Float(EPS as f32));
        match self.kind {
            NormKind::Layer => {
                let weight = to.graph.f32s("weight", &n, weight);
                let bias = to.graph.f32s("bias", &n, bias);
                let options = [("axis", Attribute::Int(-1)), epsilon];
                let inputs = [to.x, &weight, &bias];
                to.graph.node_with("LayerNormalization", &inputs, &options)
            }
            NormKind::Group(groups) => {
                // Every group is an instance of its own; then the channels' factors.
                let shape = to.graph.node("Shape", &[to.x]);
                let grouped = to.graph.reshape(to.x, &[0, groups as i64, -1]);
                let ones = to.graph.f32s("one", &[groups], &vec![1.0; groups]);
                let zeros = to.graph.f32s("zero", &[groups], &vec![0.0; groups]);
                let inputs = [&grouped[..], &ones, &zeros];
                let y = to
                    .graph
                    .node_with("InstanceNormalization", &inputs, &[epsilon]);
                let y = to.graph.node("Reshape", &[&y, &shape]);
                let mut channels = vec![self.channels];
                channels.resize(to.shape.len(), 1);
                let weight = to.graph.f32s("weight", &channels, weight);
                let bias = to.graph.f32s("bias", &channels, bias);
                let y = to.graph.node("Mul", &[&y, &weight]);
                to.graph.node("Add", &[&y, &bias])
            }
            NormKind::Batch => {
                let running = self.running.as_ref().expect("a batch norm has them");
                let f32s = |values: &[f64]| values.iter().map(|&v| v as f32).collect::<Vec<_>>();
                let [mean, var] = [&running.mean, &running.var].map(|v| f32s(v));
                let weight = to.graph.f32s("weight", &n, weight);
                let bias = to.graph.f32s("bias", &n, bias);
                let mean = to.graph.f32s("mean", &n, &mean);
                let var = to.graph.f32s("var", &n, &var);
                let inputs = [to.x, &weight, &bias, &mean, &var];
                to.graph
                    .node_with("BatchNormalization", &inputs, &[epsilon])
            }
        }
    }
}
