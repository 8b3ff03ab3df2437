//! The layer in ONNX.

use super::Conv2d;
use crate::network::PaddingMode;
use crate::onnx::{Attribute, Site, ToOnnx};

impl ToOnnx for Conv2d {
    fn write(&self, to: &mut Site<'_>) -> String {
        let [weight, bias, ..] = to.params;
        let shape = [
            self.outputs,
            self.inputs / self.groups,
            self.kernel,
            self.kernel,
        ];
        let p = self.padding;
        let (mut x, mut pads) = (to.x.to_string(), [p; 4]);
        if self.padding_mode == PaddingMode::Reflect && p > 0 {
            let each = p as i64;
            let around = to.graph.i64s(&[0, 0, each, each, 0, 0, each, each]);
            let mode = [("mode", Attribute::Text("reflect"))];
            x = to.graph.node_with("Pad", &[&x, &around], &mode);
            pads = [0; 4];
        }
        let weight = to.graph.f32s("weight", &shape, weight);
        let mut inputs = vec![x, weight];
        if !bias.is_empty() {
            inputs.push(to.graph.f32s("bias", &[self.outputs], bias));
        }
        let inputs: Vec<&str> = inputs.iter().map(String::as_str).collect();
        let options = [
            ("kernel_shape", Attribute::Ints(&[self.kernel; 2])),
            ("strides", Attribute::Ints(&[self.stride; 2])),
            ("dilations", Attribute::Ints(&[self.dilation; 2])),
            ("pads", Attribute::Ints(&pads)),
            ("group", Attribute::Int(self.groups as i64)),
        ];
        to.graph.node_with("Conv", &inputs, &options)
    }
}
