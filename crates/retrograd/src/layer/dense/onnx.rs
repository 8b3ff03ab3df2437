//! The layer in ONNX: a product of matrices.

use super::Dense;
use crate::layer::transposed;
use crate::onnx::{Site, ToOnnx};

impl ToOnnx for Dense {
    fn write(&self, to: &mut Site<'_>) -> String {
        let weight = match self.by_input {
            true => to.params[0].to_vec(),
            // As (in, out): the transpose of PyTorch's (out, in).
            false => transposed(to.params[0], self.outputs, self.inputs),
        };
        let weight = to
            .graph
            .f32s("weight", &[self.inputs, self.outputs], &weight);
        let y = to.graph.node("MatMul", &[to.x, &weight]);
        to.add_bias(y, 1)
    }
}
