//! The layer recorded for the GPU: the convolution's kernels with inputs and outputs exchanged, and for the bias's
//! gradient one of its own, in conv_transpose2d.wgsl.

use super::ConvTranspose2d;
use crate::Result;
use crate::gpu::kernels::Kernel;
use crate::gpu::layer::{Io, Lengths, Record};
use crate::gpu::recording::{Part, Recording};
use crate::layer::conv2d::Conv2d;
use crate::network::PaddingMode;

pub(crate) static CONV_TRANSPOSE2D: Kernel = Kernel::new(
    "layer/conv_transpose2d/conv_transpose2d.wgsl",
    include_str!("conv_transpose2d.wgsl"),
);

impl ConvTranspose2d {
    /// The convolution whose input's gradient this layer's forward is: from its output to its input.
    fn convolution(&self) -> Conv2d {
        Conv2d {
            inputs: self.outputs,
            outputs: self.inputs,
            height: self.out_height(),
            width: self.out_width(),
            kernel: self.kernel,
            stride: self.stride,
            padding: self.padding,
            padding_mode: PaddingMode::Zeros,
            dilation: 1,
            groups: 1,
            bias: false,
        }
    }
}

impl Record for ConvTranspose2d {
    fn saved(&self, io: &Lengths<'_>) -> Vec<usize> {
        vec![self.convolution().partial_sums(io)]
    }

    fn forward(&self, recording: &mut Recording, io: &Io<'_>) -> Result<()> {
        (self.convolution()).record_input(recording, io, (io.x, io.y), self.bias)
    }

    fn backward(
        &self,
        recording: &mut Recording,
        io: &Io<'_>,
        d_y: &Part,
        d_x: Option<&Part>,
    ) -> Result<()> {
        let convolution = self.convolution();
        convolution.record_weight(recording, io, (d_y, io.x), [io.trained[0], false])?;
        if self.bias && io.trained[1] {
            let pixels = self.out_height() * self.out_width();
            io.run(
                recording,
                (&CONV_TRANSPOSE2D, "conv_transpose2d_backward_bias"),
                &[("OUTPUTS", self.outputs as f64), ("PIXELS", pixels as f64)],
                &[("samples", io.samples), ("bias", io.at(1))],
                &[d_y, io.grads],
                self.outputs,
            )?;
        }
        match d_x {
            Some(d_x) => {
                let at = [io.at(0), io.at(1)];
                convolution.record_forward(recording, io, (d_y, d_x), at)
            }
            None => Ok(()),
        }
    }
}
