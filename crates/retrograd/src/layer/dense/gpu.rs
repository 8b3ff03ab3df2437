//! The layer recorded for the GPU: products of matrices, or backward in one kernel, which is in fused.wgsl.

use super::Dense;
use super::fused::Wanted;
use super::map::{Also, Map, Trained};
use crate::Result;
use crate::gpu::kernels::Kernel;
use crate::gpu::layer::{Io, Lengths, Record, flag};
use crate::gpu::recording::{Part, Recording};
use crate::layer::graph::gpu::X;

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

    pub(super) fn map(&self, io: &Io<'_>) -> Map {
        Map {
            inputs: self.inputs,
            outputs: self.outputs,
            by_input: self.by_input,
            weight: io.at(0),
            bias: io.at(1),
        }
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
        let also = Also {
            bias: self.bias,
            ..Also::default()
        };
        (self.map(io)).record_forward(recording, io, rows, (io.x, io.y), also)
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
        let trained = Trained {
            weight: io.trained[0],
            bias: self.bias && io.trained[1],
        };
        let wanted = Wanted {
            rows,
            trained,
            input: d_x.is_some(),
        };
        let half = recording.is_half();
        let map = self.map(io);
        let separate = map.backward_numbers(rows, trained, wanted.input, half);
        if (io.gpu).fuses(half, separate, self.fused_numbers(wanted)) {
            return self.record_fused(recording, io, wanted, d_y, d_x);
        }
        let partial_sums = io.saved.first();
        map.record_params(recording, io, rows, (io.x, d_y), trained, partial_sums)?;
        match d_x {
            Some(d_x) => map.record_input(recording, io, rows, (d_y, d_x), false),
            None => Ok(()),
        }
    }
}
