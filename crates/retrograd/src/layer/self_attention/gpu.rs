//! The layer recorded for the GPU; the kernels are in self_attention.wgsl.

use super::SelfAttention;
use crate::Result;
use crate::gpu::kernels::Kernel;
use crate::gpu::layer::{Io, Lengths, Record, groups};
use crate::gpu::recording::{Part, Recording};
use crate::gpu::topology::Topic;
use crate::layer::graph::gpu::{Also, X};

pub(crate) static SELF_ATTENTION: Kernel = Kernel::new(
    "layer/self_attention/self_attention.wgsl",
    include_str!("self_attention.wgsl"),
);

/// Saved: q, k and v, α, what the heads summed, and their gradients.
const QKV: usize = 0;
const D_QKV: usize = 1;
const ALPHA: usize = 2;
const D_SCORES: usize = 3;
const SUMMED: usize = 4;
const D_SUMMED: usize = 5;

const WITH_BIAS: Also = Also {
    bias: true,
    add: false,
    relu: false,
};

impl SelfAttention {
    fn run(
        &self,
        recording: &mut Recording,
        io: &Io<'_>,
        entry: &'static str,
        buffers: &[&Part],
    ) -> Result<()> {
        let graph = io.on_graph();
        let sizes = [
            ("rows", io.samples),
            ("width", self.output.inputs),
            ("graph_start", graph.at.graph_start),
            ("graph_of", graph.at.graph_of),
            ("score_start", graph.at.score_start),
        ];
        let constants = [("HEADS", self.heads as f64)];
        let mut all = vec![&graph.words];
        all.extend(buffers);
        let kernel = (&SELF_ATTENTION, entry);
        let invocations = groups(io.samples * self.heads);
        io.run(recording, kernel, &constants, &sizes, &all, invocations)
    }
}

impl Record for SelfAttention {
    fn looks_at(&self) -> &'static [Topic] {
        &[Topic::Graphs, Topic::Scores]
    }

    fn saved(&self, io: &Lengths<'_>) -> Vec<usize> {
        let rows = io.samples * self.output.inputs;
        let [qkv, summed] = [3 * rows, rows].map(|len| io.reals(len));
        let scores = io.reals(io.extent.scores * self.heads);
        vec![qkv, qkv, scores, scores, summed, summed]
    }

    fn forward(&self, recording: &mut Recording, io: &Io<'_>) -> Result<()> {
        let n = io.samples;
        let [qkv, alpha, o] = [QKV, ALPHA, SUMMED].map(|i| &io.saved[i]);
        self.input
            .record_forward(recording, io, n, X::of(io), qkv, WITH_BIAS)?;
        self.run(recording, io, "self_attention_forward", &[qkv, alpha, o])?;
        self.output
            .record_forward(recording, io, n, X::Dense(o), io.y, WITH_BIAS)
    }

    fn backward(
        &self,
        recording: &mut Recording,
        io: &Io<'_>,
        d_y: &Part,
        d_x: Option<&Part>,
    ) -> Result<()> {
        let n = io.samples;
        let [qkv, d_qkv, alpha, d_scores, o, d_o] =
            [QKV, D_QKV, ALPHA, D_SCORES, SUMMED, D_SUMMED].map(|i| &io.saved[i]);
        self.output
            .record_params(recording, io, n, X::Dense(o), d_y, true)?;
        self.output
            .record_input(recording, io, n, X::Dense(o), d_y, (d_o, false))?;
        let buffers = [qkv, alpha, d_o, d_scores, d_qkv];
        self.run(recording, io, "self_attention_backward_looking", &buffers)?;
        self.run(recording, io, "self_attention_backward_seen", &buffers)?;
        self.input
            .record_params(recording, io, n, X::of(io), d_qkv, true)?;
        match d_x {
            Some(d_x) => {
                let to = (d_x, false);
                self.input
                    .record_input(recording, io, n, X::of(io), d_qkv, to)
            }
            None => Ok(()),
        }
    }
}
