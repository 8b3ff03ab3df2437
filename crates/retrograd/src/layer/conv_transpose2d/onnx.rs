//! The layer in ONNX.

use super::ConvTranspose2d;
use crate::onnx::{Attribute, Site, ToOnnx};

impl ToOnnx for ConvTranspose2d {
    fn write(&self, to: &mut Site<'_>) -> String {
        let [weight, bias, ..] = to.params;
        let shape = [self.inputs, self.outputs, self.kernel, self.kernel];
        let mut inputs = vec![to.x.to_string(), to.graph.f32s("weight", &shape, weight)];
        if !bias.is_empty() {
            inputs.push(to.graph.f32s("bias", &[self.outputs], bias));
        }
        let inputs: Vec<&str> = inputs.iter().map(String::as_str).collect();
        let options = [
            ("kernel_shape", Attribute::Ints(&[self.kernel; 2])),
            ("strides", Attribute::Ints(&[self.stride; 2])),
            ("pads", Attribute::Ints(&[self.padding; 4])),
        ];
        to.graph.node_with("ConvTranspose", &inputs, &options)
    }
}
