//! The layer recorded for the GPU; the kernels are in conv2d.wgsl.

use super::Conv2d;
use crate::Result;
use crate::gpu::kernels::Kernel;
use crate::gpu::layer::{Io, Lengths, Record, flag, groups, pieces};
use crate::gpu::recording::{Part, Recording};
use crate::network::PaddingMode;

pub(crate) static CONV2D: Kernel =
    Kernel::new("layer/conv2d/conv2d.wgsl", include_str!("conv2d.wgsl"));

impl Conv2d {
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
            ("DILATION", of(self.dilation)),
            ("GROUPS", of(self.groups)),
            ("REFLECT", flag(self.padding_mode == PaddingMode::Reflect)),
            ("BIAS", flag(self.bias)),
            ("GROUP_IN", of(self.inputs / self.groups)),
            ("GROUP_OUT", of(self.outputs / self.groups)),
        ]
    }

    fn out_pixels(&self) -> usize {
        self.out_height() * self.out_width()
    }

    /// The places of a kernel, and the bias after them.
    fn places(&self) -> usize {
        self.inputs / self.groups * self.kernel * self.kernel + usize::from(self.bias)
    }
}

impl Record for Conv2d {
    fn saved(&self, io: &Lengths<'_>) -> Vec<usize> {
        let (_, pieces) = pieces(io.samples * self.out_pixels());
        vec![pieces * self.outputs * self.places()]
    }

    fn forward(&self, recording: &mut Recording, io: &Io<'_>) -> Result<()> {
        let blocks = self.groups * (self.outputs / self.groups).div_ceil(4);
        io.run(
            recording,
            (&CONV2D, "conv2d_forward"),
            &self.constants(),
            &[
                ("samples", io.samples),
                ("weight", io.at(0)),
                ("bias", io.at(1)),
            ],
            &[io.x, io.params, io.y],
            groups(io.samples * blocks * self.out_pixels().div_ceil(4)),
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
        let [weight, bias, ..] = io.trained;
        if weight || bias {
            let (piece, pieces) = pieces(io.samples * self.out_pixels());
            let blocks = self.groups * (self.outputs / self.groups).div_ceil(4);
            io.run(
                recording,
                (&CONV2D, "conv2d_backward_weight"),
                &constants,
                &[
                    ("samples", io.samples),
                    ("piece_len", piece),
                    ("pieces", pieces),
                ],
                &[io.x, d_y, &io.saved[0]],
                pieces * blocks * self.places(),
            )?;
            io.run(
                recording,
                (&CONV2D, "conv2d_reduce_weight"),
                &constants,
                &[
                    ("pieces", pieces),
                    ("weight", io.at(0)),
                    ("bias", io.at(1)),
                    ("trains_weight", weight.into()),
                    ("trains_bias", bias.into()),
                ],
                &[&io.saved[0], io.grads],
                groups(self.outputs * self.places()),
            )?;
        }
        if let Some(d_x) = d_x {
            let blocks = self.groups * (self.inputs / self.groups).div_ceil(4);
            io.run(
                recording,
                (&CONV2D, "conv2d_backward_input"),
                &constants,
                &[("samples", io.samples), ("weight", io.at(0))],
                &[d_y, io.params, d_x],
                groups(io.samples * blocks * self.height * self.width),
            )?;
        }
        Ok(())
    }
}
