//! The layers in ONNX.

use super::{Pool, PoolKind};
use crate::onnx::{Attribute, Site, ToOnnx};

impl ToOnnx for Pool {
    fn write(&self, to: &mut Site<'_>) -> String {
        let operator = match self.kind {
            PoolKind::Max => "MaxPool",
            PoolKind::Average => "AveragePool",
        };
        let options = [
            ("kernel_shape", Attribute::Ints(&[self.kernel; 2])),
            ("strides", Attribute::Ints(&[self.stride; 2])),
        ];
        to.graph.node_with(operator, &[to.x], &options)
    }
}
