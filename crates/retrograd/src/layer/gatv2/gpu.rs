//! The layer recorded for the GPU; the kernels are in gatv2.wgsl and gat/attention.wgsl.

use super::{ATT, BIAS, GatV2};
use crate::Result;
use crate::gpu::kernels::Kernel;
use crate::gpu::layer::{Io, Lengths, Record, groups};
use crate::gpu::recording::{Part, Recording};
use crate::gpu::topology::Topic;
use crate::layer::gat::gpu::Attention;
use crate::layer::graph::gpu::{Also, X, record_sums};

pub(crate) static GATV2: Kernel = Kernel::new("layer/gatv2/gatv2.wgsl", include_str!("gatv2.wgsl"));

/// Saved after what attention takes: l, r, their gradients, and every row's share of att's.
const L: usize = 4;
const R: usize = 5;
const D_L: usize = 6;
const D_R: usize = 7;
const SHARES: usize = 8;

const WITH_BIAS: Also = Also {
    bias: true,
    add: false,
    relu: false,
};

impl GatV2 {
    fn attention<'a>(&self, io: &'a Io<'_>) -> Attention<'a> {
        let [alpha, mask, kept, d_scores] = [0, 1, 2, 3].map(|i| &io.saved[i]);
        Attention {
            heads: self.heads,
            width: self.source.outputs,
            dropout: self.dropout,
            alpha,
            mask,
            kept,
            d_scores,
            projected: &io.saved[L],
        }
    }

    fn run(
        &self,
        recording: &mut Recording,
        io: &Io<'_>,
        entry: &'static str,
        by_column: bool,
        buffers: &[&Part],
        invocations: usize,
    ) -> Result<()> {
        let at = &io.on_graph().at.looped;
        let [start, neighbour] = match by_column {
            true => [at.columns[0], at.columns[1]],
            false => at.rows,
        };
        let sizes = [
            ("rows", io.samples),
            ("width", self.source.outputs),
            ("start", start),
            ("neighbour", neighbour),
            ("slot", at.columns[2]),
            ("att", io.at(ATT)),
        ];
        let constants = [("HEADS", self.heads as f64)];
        let graph = &io.on_graph().words;
        let mut all = vec![graph, &io.saved[L], &io.saved[R], io.params];
        all.extend(buffers);
        let kernel = (&GATV2, entry);
        io.run(
            recording,
            kernel,
            &constants,
            &sizes,
            &all,
            groups(invocations),
        )
    }
}

impl Record for GatV2 {
    fn looks_at(&self) -> &'static [Topic] {
        &[Topic::Looped]
    }

    fn saved(&self, io: &Lengths<'_>) -> Vec<usize> {
        let rows = io.reals(io.samples * self.source.outputs);
        let mut all = Attention::saved(io, self.heads, self.dropout).to_vec();
        all.extend([rows; 5]);
        all
    }

    fn forward(&self, recording: &mut Recording, io: &Io<'_>) -> Result<()> {
        let n = io.samples;
        for (linear, to) in [(&self.source, L), (&self.target, R)] {
            linear.record_forward(recording, io, n, X::of(io), &io.saved[to], WITH_BIAS)?;
        }
        let attention = self.attention(io);
        let buffers = [attention.alpha];
        self.run(
            recording,
            io,
            "gatv2_scores",
            false,
            &buffers,
            n * self.heads,
        )?;
        attention.record_weigh(recording, io, BIAS, io.y)
    }

    fn backward(
        &self,
        recording: &mut Recording,
        io: &Io<'_>,
        d_y: &Part,
        d_x: Option<&Part>,
    ) -> Result<()> {
        let (n, width) = (io.samples, self.source.outputs);
        let attention = self.attention(io);
        if io.trained[BIAS] {
            let to = (io.grads, io.at(BIAS));
            record_sums(recording, io, n, (d_y, width), None, to)?;
        }
        attention.record_backward(recording, io, d_y)?;
        let [d_l, d_r, shares] = [D_L, D_R, SHARES].map(|i| &io.saved[i]);
        let buffers = [attention.d_scores, d_r, shares];
        self.run(
            recording,
            io,
            "gatv2_backward_target",
            false,
            &buffers,
            n * width,
        )?;
        if io.trained[ATT] {
            let to = (io.grads, io.at(ATT));
            record_sums(recording, io, n, (shares, width), None, to)?;
        }
        attention.record_projected(recording, io, d_y, d_l)?;
        let buffers = [attention.d_scores, d_l];
        self.run(
            recording,
            io,
            "gatv2_backward_source",
            true,
            &buffers,
            n * width,
        )?;
        for (i, (linear, d)) in [(&self.source, d_l), (&self.target, d_r)]
            .into_iter()
            .enumerate()
        {
            linear.record_params(recording, io, n, X::of(io), d, true)?;
            if let Some(d_x) = d_x {
                linear.record_input(recording, io, n, X::of(io), d, (d_x, i > 0))?;
            }
        }
        Ok(())
    }
}
