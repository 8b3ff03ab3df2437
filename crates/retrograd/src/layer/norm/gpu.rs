//! Normalisation recorded for the GPU; the kernels are in norm.wgsl.

use super::{EPS, Norm, NormKind};
use crate::Result;
use crate::gpu::kernels::Kernel;
use crate::gpu::layer::{Io, Lengths, Record, flag, groups};
use crate::gpu::recording::{Part, Recording};

pub(crate) static NORM: Kernel = Kernel::new("layer/norm/norm.wgsl", include_str!("norm.wgsl"));

impl Norm {
    fn constants(&self, training: bool) -> [(&'static str, f64); 6] {
        let (kind, groups) = match self.kind {
            NormKind::Layer => (0.0, 1),
            NormKind::Group(groups) => (1.0, groups),
            NormKind::Batch => (2.0, 1),
        };
        [
            ("KIND", kind),
            ("CHANNELS", self.channels as f64),
            ("PLANE", self.plane as f64),
            ("GROUPS", groups as f64),
            ("FIXED", flag(self.fixed(training).is_some())),
            ("EPS", EPS),
        ]
    }
}

impl Record for Norm {
    fn saved(&self, io: &Lengths<'_>) -> Vec<usize> {
        vec![2 * self.sets(io.x_len).0]
    }

    /// The running means, then the variances.
    fn fixed(&self) -> Vec<f32> {
        let Some(running) = &self.running else {
            return Vec::new();
        };
        let both = running.mean.iter().chain(&running.var);
        both.map(|&v| v as f32).collect()
    }

    fn forward(&self, recording: &mut Recording, io: &Io<'_>) -> Result<()> {
        let (sets, size) = self.sets(io.x_len);
        // The sum, the squares, and the results.
        let loops = 3 * size.div_ceil(64);
        io.gpu.allow_loops(&format!("{} norm", io.name), loops)?;
        io.run(
            recording,
            (&NORM, "norm_forward"),
            &self.constants(io.training),
            &[
                ("sets", sets),
                ("set_len", size),
                ("weight", io.at(0)),
                ("bias", io.at(1)),
            ],
            &[io.x, io.master, io.fixed, &io.saved[0], io.y],
            sets,
        )
    }

    fn backward(
        &self,
        recording: &mut Recording,
        io: &Io<'_>,
        d_y: &Part,
        d_x: Option<&Part>,
    ) -> Result<()> {
        let (sets, size) = self.sets(io.x_len);
        let [weight, bias, ..] = io.trained;
        if weight || bias {
            let each = io.x_len / self.channels;
            let loops = each.div_ceil(64) + each.div_ceil(4096);
            io.gpu.allow_loops(&format!("{} norm", io.name), loops)?;
            io.run(
                recording,
                (&NORM, "norm_backward_weight"),
                &self.constants(io.training),
                &[
                    ("channel_len", each),
                    ("weight", io.at(0)),
                    ("bias", io.at(1)),
                    ("trains_weight", weight.into()),
                    ("trains_bias", bias.into()),
                ],
                &[io.x, &io.saved[0], d_y, io.grads],
                self.channels,
            )?;
        }
        if let Some(d_x) = d_x {
            io.run(
                recording,
                (&NORM, "norm_backward_input"),
                &self.constants(io.training),
                &[
                    ("sets", sets),
                    ("set_len", size),
                    ("weight", io.at(0)),
                    ("bias", io.at(1)),
                ],
                &[io.x, io.master, &io.saved[0], d_y, d_x],
                sets,
            )?;
        }
        Ok(())
    }

    fn absorb(&self, recording: &mut Recording, io: &Io<'_>) -> Result<()> {
        if self.running.is_none() {
            return Ok(());
        }
        io.run(
            recording,
            (&NORM, "norm_absorb"),
            &self.constants(true),
            &[("channel_len", io.x_len / self.channels)],
            &[&io.saved[0], io.fixed],
            groups(self.channels),
        )
    }
}
