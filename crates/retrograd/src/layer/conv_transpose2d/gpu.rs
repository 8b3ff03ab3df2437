//! The layer recorded for the GPU; the kernels are in conv_transpose2d.wgsl.

use super::ConvTranspose2d;
use crate::Result;
use crate::gpu::kernels::Kernel;
use crate::gpu::layer::{Io, Lengths, Record, flag, groups, pieces};
use crate::gpu::recording::{Part, Recording};

pub(crate) static CONV_TRANSPOSE2D: Kernel = Kernel::new(
    "layer/conv_transpose2d/conv_transpose2d.wgsl",
    include_str!("conv_transpose2d.wgsl"),
);

impl ConvTranspose2d {
    fn constants(&self) -> Vec<(&'static str, f64)> {
        let of = |n: usize| n as f64;
        vec![
            ("INPUTS", of(self.inputs)),
            ("OUTPUTS", of(self.outputs)),
            ("HEIGHT", of(self.height)),
            ("WIDTH", of(self.width)),
            ("OUT_HEIGHT", of(self.out_height())),
            ("OUT_WIDTH", of(self.out_width())),
            ("KERNEL", of(self.kernel)),
            ("STRIDE", of(self.stride)),
            ("PADDING", of(self.padding)),
            ("BIAS", flag(self.bias)),
        ]
    }

    fn weights(&self) -> usize {
        self.inputs * self.outputs * self.kernel * self.kernel
    }
}

impl Record for ConvTranspose2d {
    fn saved(&self, io: &Lengths<'_>) -> Vec<usize> {
        let (_, pieces) = pieces(io.samples * self.height * self.width);
        vec![pieces * self.weights()]
    }

    fn forward(&self, recording: &mut Recording, io: &Io<'_>) -> Result<()> {
        let pixels = self.out_height() * self.out_width();
        io.run(
            recording,
            (&CONV_TRANSPOSE2D, "conv_transpose2d_forward"),
            &self.constants(),
            &[
                ("samples", io.samples),
                ("weight", io.at(0)),
                ("bias", io.at(1)),
            ],
            &[io.x, io.params, io.y],
            groups(io.samples * self.outputs.div_ceil(4) * pixels),
        )
    }

    fn backward(
        &self,
        recording: &mut Recording,
        io: &Io<'_>,
        d_y: &Part,
        d_x: Option<&Part>,
    ) -> Result<()> {
        let constants = self.constants();
        let pixels = self.height * self.width;
        if io.trained[0] {
            let (piece, pieces) = pieces(io.samples * pixels);
            let places = self.inputs * self.outputs.div_ceil(4) * self.kernel * self.kernel;
            io.run(
                recording,
                (&CONV_TRANSPOSE2D, "conv_transpose2d_backward_weight"),
                &constants,
                &[
                    ("samples", io.samples),
                    ("piece_len", piece),
                    ("pieces", pieces),
                ],
                &[io.x, d_y, &io.saved[0]],
                pieces * places,
            )?;
            io.run(
                recording,
                (&CONV_TRANSPOSE2D, "conv_transpose2d_reduce_weight"),
                &constants,
                &[("pieces", pieces), ("weight", io.at(0))],
                &[&io.saved[0], io.grads],
                groups(self.weights()),
            )?;
        }
        if io.trained[1] {
            io.run(
                recording,
                (&CONV_TRANSPOSE2D, "conv_transpose2d_backward_bias"),
                &constants,
                &[("samples", io.samples), ("bias", io.at(1))],
                &[d_y, io.grads],
                self.outputs,
            )?;
        }
        if let Some(d_x) = d_x {
            io.run(
                recording,
                (&CONV_TRANSPOSE2D, "conv_transpose2d_backward_input"),
                &constants,
                &[("samples", io.samples), ("weight", io.at(0))],
                &[d_y, io.params, d_x],
                groups(io.samples * self.inputs.div_ceil(4) * pixels),
            )?;
        }
        Ok(())
    }
}
