//! The layer recorded for the GPU; the kernels are in dense.wgsl, and in fused.wgsl backward in one kernel.

use super::Dense;
use super::fused::Wanted;
use crate::Result;
use crate::gpu::kernels::Kernel;
use crate::gpu::layer::{Io, Lengths, Record, flag, groups};
use crate::gpu::recording::{Part, Recording};
use crate::layer::graph::gpu::{Also, X};

pub(crate) static DENSE: Kernel = Kernel::new("layer/dense/dense.wgsl", include_str!("dense.wgsl"));
pub(crate) static FUSED: Kernel = Kernel::new("layer/dense/fused.wgsl", include_str!("fused.wgsl"));

impl Dense {
    pub(super) fn constants(&self) -> [(&'static str, f64); 5] {
        let [out_step, in_step] = self.steps();
        [
            ("INPUTS", self.inputs as f64),
            ("OUTPUTS", self.outputs as f64),
            ("OUT_STEP", out_step as f64),
            ("IN_STEP", in_step as f64),
            ("BIAS", flag(self.bias)),
        ]
    }
}

impl Record for Dense {
    fn saved(&self, io: &Lengths<'_>) -> Vec<usize> {
        match io.sparse {
            true => Vec::new(),
            false => self
                .partial_sums(io.x_len / self.inputs)
                .into_iter()
                .collect(),
        }
    }

    fn forward(&self, recording: &mut Recording, io: &Io<'_>) -> Result<()> {
        if io.sparse {
            let also = Also {
                bias: self.bias,
                ..Also::default()
            };
            let linear = self.on_sparse();
            return linear.record_forward(recording, io, io.samples, X::of(io), io.y, also);
        }
        let rows = io.x_len / self.inputs;
        io.run(
            recording,
            (&DENSE, "dense_forward"),
            &self.constants(),
            &[("rows", rows), ("weight", io.at(0)), ("bias", io.at(1))],
            &[io.x, io.params, io.y],
            groups(rows.div_ceil(4) * self.outputs.div_ceil(4)),
        )
    }

    fn backward(
        &self,
        recording: &mut Recording,
        io: &Io<'_>,
        d_y: &Part,
        d_x: Option<&Part>,
    ) -> Result<()> {
        if io.sparse {
            let linear = self.on_sparse();
            linear.record_params(recording, io, io.samples, X::of(io), d_y, self.bias)?;
            return match d_x {
                Some(d_x) => {
                    let to = (d_x, false);
                    linear.record_input(recording, io, io.samples, X::of(io), d_y, to)
                }
                None => Ok(()),
            };
        }
        let rows = io.x_len / self.inputs;
        let [weight, bias, ..] = io.trained;
        let wanted = Wanted {
            rows,
            weight,
            bias,
            input: d_x.is_some(),
        };
        let (separate, fused) = (self.separate_numbers(wanted), self.fused_numbers(wanted));
        if io.gpu.fuses(recording.is_half(), separate, fused) {
            return self.record_fused(recording, io, wanted, d_y, d_x);
        }
        if weight || bias {
            let columns = self.inputs + usize::from(self.bias);
            io.run(
                recording,
                (&DENSE, "dense_backward_weight"),
                &self.constants(),
                &[
                    ("rows", rows),
                    ("weight", io.at(0)),
                    ("bias", io.at(1)),
                    ("trains_weight", weight.into()),
                    ("trains_bias", bias.into()),
                ],
                &[io.x, d_y, io.grads],
                groups(columns.div_ceil(4) * self.outputs.div_ceil(4)),
            )?;
        }
        if let Some(d_x) = d_x {
            io.run(
                recording,
                (&DENSE, "dense_backward_input"),
                &self.constants(),
                &[("rows", rows), ("weight", io.at(0))],
                &[d_y, io.params, d_x],
                groups(rows.div_ceil(4) * self.inputs.div_ceil(4)),
            )?;
        }
        Ok(())
    }
}
