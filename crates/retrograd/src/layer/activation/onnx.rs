//! The functions in ONNX.

use super::Activation;
use crate::onnx::{Attribute, Site, ToOnnx};

impl ToOnnx for Activation {
    fn write(&self, to: &mut Site<'_>) -> String {
        let x = to.x;
        let alpha = |value: f64| [("alpha", Attribute::Float(value as f32))];
        match *self {
            Activation::Identity => x.to_string(),
            Activation::Relu => to.graph.node("Relu", &[x]),
            Activation::LeakyRelu { slope } => to.graph.node_with("LeakyRelu", &[x], &alpha(slope)),
            Activation::Elu { alpha: a } => to.graph.node_with("Elu", &[x], &alpha(a)),
            Activation::Silu => {
                let sigmoid = to.graph.node("Sigmoid", &[x]);
                to.graph.node("Mul", &[x, &sigmoid])
            }
            Activation::Gelu => {
                let root = to.graph.f32(std::f64::consts::FRAC_1_SQRT_2);
                let scaled = to.graph.node("Mul", &[x, &root]);
                let erf = to.graph.node("Erf", &[&scaled]);
                let [one, half] = [1.0, 0.5].map(|v| to.graph.f32(v));
                let sum = to.graph.node("Add", &[&erf, &one]);
                let cdf = to.graph.node("Mul", &[&sum, &half]);
                to.graph.node("Mul", &[x, &cdf])
            }
            Activation::Tanh => to.graph.node("Tanh", &[x]),
            Activation::Sigmoid => to.graph.node("Sigmoid", &[x]),
        }
    }
}
