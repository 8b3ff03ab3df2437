//! The layer recorded for the GPU; the kernels are in conv2d.wgsl, how they are cut is in blocks.rs. Transposed
//! convolutions are recorded by the same, with inputs and outputs exchanged.

use super::Conv2d;
use super::blocks::Cut;
use crate::Result;
use crate::gpu::kernels::Kernel;
use crate::gpu::layer::{Io, Lengths, Record, flag, groups};
use crate::gpu::product::add_pieces;
use crate::gpu::recording::{Part, Recording};
use crate::network::PaddingMode;

pub(crate) static CONV2D: Kernel =
    Kernel::new("layer/conv2d/conv2d.wgsl", include_str!("conv2d.wgsl"));

/// Saved: the pieces' sums, and the gradient of the padded input where padding reflects.
const SUMS: usize = 0;
const D_PADDED: usize = 1;

/// A kernel's own constants and sizes.
type Numbers<'a> = (&'a [(&'static str, f64)], &'a [(&'static str, usize)]);

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
            ("STRIDE", of(self.near_stride())),
            ("PADDING", of(self.padding)),
            ("DILATION", of(self.dilation)),
            ("GROUPS", of(self.groups)),
            ("REFLECT", flag(self.padding_mode == PaddingMode::Reflect)),
            ("BIAS", flag(self.bias)),
            ("GROUP_IN", of(self.inputs / self.groups)),
            ("GROUP_OUT", of(self.outputs / self.groups)),
        ]
    }

    fn run(
        &self,
        recording: &mut Recording,
        io: &Io<'_>,
        entries: [&'static str; 2],
        cut: &Cut,
        (more, sizes): Numbers<'_>,
        buffers: &[&Part],
    ) -> Result<()> {
        let of = |n: usize| n as f64;
        let mut constants = self.constants();
        constants.extend([
            ("LANES", of(cut.lanes)),
            ("LANE_CHANNELS", of(cut.lane_channels)),
            ("QUADS", of(cut.quads)),
            ("TILE_HEIGHT", of(cut.tile[0])),
            ("TILE_WIDTH", of(cut.tile[1])),
            ("SLICE", of(cut.slice)),
            ("TAPS", of(cut.taps)),
            ("AREA_HEIGHT", of(cut.area[0])),
            ("AREA_WIDTH", of(cut.area[1])),
            ("SPREAD", of(cut.spread)),
            ("STEP", of(cut.step)),
            ("PHASES", of(cut.phases)),
            ("PLACE_LANES", of(cut.place_lanes)),
            ("SPLITS", of(cut.splits)),
        ]);
        constants.extend_from_slice(more);
        let sizes = [&[("workgroups", cut.workgroups)], sizes].concat();
        let entry = entries[usize::from(cut.lanes > 64)];
        io.gpu
            .allow_loops(&format!("{} {entry}", io.name), cut.loops)?;
        let kernel = (&CONV2D, entry);
        io.run(
            recording,
            kernel,
            &constants,
            &sizes,
            buffers,
            cut.workgroups,
        )
    }

    /// y of x, with W and the bias where they begin.
    pub(crate) fn record_forward(
        &self,
        recording: &mut Recording,
        io: &Io<'_>,
        (x, y): (&Part, &Part),
        [weight, bias]: [usize; 2],
    ) -> Result<()> {
        let cut = self.forward_cut(io.samples, recording.is_half());
        let entries = ["conv2d_forward", "conv2d_forward_wide"];
        let sizes = [("weight", weight), ("bias", bias)];
        self.run(
            recording,
            io,
            entries,
            &cut,
            (&[], &sizes),
            &[x, io.params, y],
        )
    }

    /// The gradients of what is trained of W and of the bias.
    pub(crate) fn record_weight(
        &self,
        recording: &mut Recording,
        io: &Io<'_>,
        (x, d_y): (&Part, &Part),
        [weight, bias]: [bool; 2],
    ) -> Result<()> {
        if !(weight || bias) {
            return Ok(());
        }
        let cut = self.weight_cut(io.samples, recording.is_half());
        let step = self.parameters();
        let (to, at) = match cut.pieces {
            1 => (io.grads, [io.at(0), io.at(1)]),
            _ => (&io.saved[SUMS], [0, self.weights()]),
        };
        let [high, wide] = [self.out_height(), self.out_width()];
        let tiles = high.div_ceil(cut.tile[0]) * wide.div_ceil(cut.tile[1]);
        let sizes = [
            ("weight", at[0]),
            ("bias", at[1]),
            ("trains_weight", weight.into()),
            ("trains_bias", bias.into()),
            ("tiles", io.samples * tiles),
            ("piece", cut.piece),
            ("piece_step", step),
        ];
        let entries = ["conv2d_backward_weight", "conv2d_backward_weight_wide"];
        self.run(recording, io, entries, &cut, (&[], &sizes), &[x, d_y, to])?;
        if cut.pieces == 1 {
            return Ok(());
        }
        let spans = [
            (weight, 0, io.at(0), self.weights()),
            (bias, self.weights(), io.at(1), self.outputs),
        ];
        add_pieces(recording, io, (to, cut.pieces, step), &spans)
    }

    /// d_x of zero padding, or a transposed convolution's forward with its own bias.
    pub(crate) fn record_input(
        &self,
        recording: &mut Recording,
        io: &Io<'_>,
        (d_y, d_x): (&Part, &Part),
        transposed_bias: bool,
    ) -> Result<()> {
        let cut = self.input_cut(io.samples, transposed_bias, recording.is_half());
        let entries = ["conv2d_backward_input", "conv2d_backward_input_wide"];
        let constants = [
            (
                "TAP_STEP",
                (self.near_stride() / divisor(self.near_stride(), self.dilation)) as f64,
            ),
            ("TRANSPOSED_BIAS", flag(transposed_bias)),
        ];
        let sizes = [("weight", io.at(0)), ("bias", io.at(1))];
        let buffers = [d_y, io.params, d_x];
        self.run(recording, io, entries, &cut, (&constants, &sizes), &buffers)
    }

    /// The convolution of the padded image.
    pub(super) fn of_padded(&self) -> Conv2d {
        let (height, width) = self.padded();
        Conv2d {
            height,
            width,
            padding: 0,
            padding_mode: PaddingMode::Zeros,
            ..self.clone()
        }
    }

    /// Words of the pieces' sums.
    pub(crate) fn partial_sums(&self, io: &Lengths<'_>) -> usize {
        match self.weight_cut(io.samples, io.half).pieces {
            1 => 0,
            pieces => pieces * self.parameters(),
        }
    }
}

/// The greatest number that divides both.
fn divisor(a: usize, b: usize) -> usize {
    match b {
        0 => a,
        _ => divisor(b, a % b),
    }
}

impl Record for Conv2d {
    fn saved(&self, io: &Lengths<'_>) -> Vec<usize> {
        let (high, wide) = self.padded();
        let padded = match self.padding_mode {
            PaddingMode::Reflect => io.reals(io.samples * self.inputs * high * wide),
            PaddingMode::Zeros => 0,
        };
        vec![self.partial_sums(io), padded]
    }

    fn forward(&self, recording: &mut Recording, io: &Io<'_>) -> Result<()> {
        self.record_forward(recording, io, (io.x, io.y), [io.at(0), io.at(1)])
    }

    fn backward(
        &self,
        recording: &mut Recording,
        io: &Io<'_>,
        d_y: &Part,
        d_x: Option<&Part>,
    ) -> Result<()> {
        let [weight, bias, ..] = io.trained;
        self.record_weight(recording, io, (io.x, d_y), [weight, bias && self.bias])?;
        match (d_x, self.padding_mode) {
            (None, _) => Ok(()),
            (Some(d_x), PaddingMode::Zeros) => self.record_input(recording, io, (d_y, d_x), false),
            (Some(d_x), PaddingMode::Reflect) => {
                let padded = &io.saved[D_PADDED];
                (self.of_padded()).record_input(recording, io, (d_y, padded), false)?;
                io.run(
                    recording,
                    (&CONV2D, "conv2d_fold"),
                    &self.constants(),
                    &[("samples", io.samples)],
                    &[padded, d_x],
                    groups(io.samples * self.inputs * self.height * self.width),
                )
            }
        }
    }
}
