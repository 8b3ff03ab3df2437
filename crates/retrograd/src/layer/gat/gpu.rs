//! Graph attention recorded for the GPU; the kernels are in gat.wgsl and, shared with the second
//! form, in attention.wgsl.

use super::{ATT_DST, ATT_SRC, BIAS, Gat};
use crate::Result;
use crate::gpu::kernels::Kernel;
use crate::gpu::layer::{Io, Lengths, Record, flag, groups};
use crate::gpu::recording::{Part, Recording};
use crate::gpu::topology::Topic;
use crate::layer::dropout::gpu::record_drop;
use crate::layer::graph::gpu::{Also, Sum, Weigh, X, record_sums};

pub(crate) static GAT: Kernel = Kernel::new("layer/gat/gat.wgsl", include_str!("gat.wgsl"));
pub(crate) static ATTENTION: Kernel =
    Kernel::new("layer/gat/attention.wgsl", include_str!("attention.wgsl"));

/// The softmax's weights, which scores become and are dropped from, and their gradient.
pub(crate) struct Attention<'a> {
    pub heads: usize,
    pub width: usize,
    /// The probability of a weight to be dropped.
    pub dropout: f64,
    pub alpha: &'a Part,
    pub mask: &'a Part,
    pub kept: &'a Part,
    pub d_scores: &'a Part,
    /// The rows that are summed.
    pub projected: &'a Part,
}

impl Attention<'_> {
    /// The lengths of α, the mask, what is kept and the scores' gradient, in words.
    pub fn saved(io: &Lengths<'_>, heads: usize, dropout: f64) -> [usize; 4] {
        let len = io.extent.looped * heads;
        let dropped = if dropout > 0.0 { len } else { 0 };
        [io.reals(len), dropped, io.reals(dropped), io.reals(len)]
    }

    fn drops_in(&self, io: &Io<'_>) -> bool {
        io.training && self.dropout > 0.0
    }

    /// The weights that the sum takes.
    fn weights(&self, io: &Io<'_>) -> &Part {
        match self.drops_in(io) {
            true => self.kept,
            false => self.alpha,
        }
    }

    fn run(
        &self,
        recording: &mut Recording,
        io: &Io<'_>,
        entry: &'static str,
        buffers: &[&Part],
    ) -> Result<()> {
        let at = &io.on_graph().at.looped;
        let constants = [
            ("HEADS", self.heads as f64),
            ("DROPPED", flag(self.drops_in(io))),
        ];
        let sizes = [
            ("rows", io.samples),
            ("width", self.width),
            ("start", at.rows[0]),
            ("neighbour", at.rows[1]),
        ];
        let mut all = vec![&io.on_graph().words];
        all.extend(buffers);
        let invocations = groups(io.samples * self.heads);
        io.run(
            recording,
            (&ATTENTION, entry),
            &constants,
            &sizes,
            &all,
            invocations,
        )
    }

    /// y = Σ α·(projected rows) + bias, from the scores that are in `alpha`.
    pub fn record_weigh(
        &self,
        recording: &mut Recording,
        io: &Io<'_>,
        bias: usize,
        y: &Part,
    ) -> Result<()> {
        self.run(recording, io, "attention_softmax", &[self.alpha])?;
        if self.drops_in(io) {
            let len = io.extent.looped * self.heads;
            let buffers = [self.alpha, self.mask, self.kept];
            record_drop(recording, io, self.dropout, len, buffers)?;
        }
        let looped = &io.on_graph().at.looped;
        let sum = Sum {
            heads: self.heads,
            bias: Some(bias),
            ..Sum::new(looped, false, io.samples, Weigh::Slot(self.weights(io)))
        };
        sum.record(recording, io, (self.projected, 0), self.width, y)
    }

    /// The gradient of the scores.
    pub fn record_backward(
        &self,
        recording: &mut Recording,
        io: &Io<'_>,
        d_y: &Part,
    ) -> Result<()> {
        let buffers = [d_y, self.projected, self.alpha, self.mask, self.d_scores];
        self.run(recording, io, "attention_backward", &buffers)
    }

    /// What the weights add to the gradient of the projected rows, which is overwritten.
    pub fn record_projected(
        &self,
        recording: &mut Recording,
        io: &Io<'_>,
        d_y: &Part,
        d_projected: &Part,
    ) -> Result<()> {
        let looped = &io.on_graph().at.looped;
        let sum = Sum {
            heads: self.heads,
            ..Sum::new(looped, true, io.samples, Weigh::Gather(self.weights(io)))
        };
        sum.record(recording, io, (d_y, 0), self.width, d_projected)
    }
}

/// Saved after what attention takes: z and its gradient, both ends' shares and theirs.
const Z: usize = 4;
const D_Z: usize = 5;
const SENT: usize = 6;
const RECEIVED: usize = 7;
const D_SENT: usize = 8;
const D_RECEIVED: usize = 9;

impl Gat {
    fn attention<'a>(&self, io: &'a Io<'_>) -> Attention<'a> {
        let [alpha, mask, kept, d_scores] = [0, 1, 2, 3].map(|i| &io.saved[i]);
        Attention {
            heads: self.heads,
            width: self.linear.outputs,
            dropout: self.dropout,
            alpha,
            mask,
            kept,
            d_scores,
            projected: &io.saved[Z],
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
            ("width", self.linear.outputs),
            ("start", start),
            ("neighbour", neighbour),
            ("slot", at.columns[2]),
            ("source", io.at(ATT_SRC)),
            ("end", io.at(ATT_DST)),
        ];
        let constants = [("HEADS", self.heads as f64)];
        let kernel = (&GAT, entry);
        io.run(
            recording,
            kernel,
            &constants,
            &sizes,
            buffers,
            groups(invocations),
        )
    }
}

impl Record for Gat {
    fn looks_at(&self) -> &'static [Topic] {
        &[Topic::Looped]
    }

    fn saved(&self, io: &Lengths<'_>) -> Vec<usize> {
        let z = io.reals(io.samples * self.linear.outputs);
        let ends = io.reals(io.samples * self.heads);
        let mut all = Attention::saved(io, self.heads, self.dropout).to_vec();
        all.extend([z, z, ends, ends, ends, ends]);
        all
    }

    fn forward(&self, recording: &mut Recording, io: &Io<'_>) -> Result<()> {
        let n = io.samples;
        let attention = self.attention(io);
        let z = attention.projected;
        self.linear
            .record_forward(recording, io, n, X::of(io), z, Also::default())?;
        let (sent, received) = (&io.saved[SENT], &io.saved[RECEIVED]);
        let buffers = [z, io.params, sent, received];
        self.run(recording, io, "gat_ends", false, &buffers, n * self.heads)?;
        let buffers = [&io.on_graph().words, sent, received, attention.alpha];
        self.run(recording, io, "gat_scores", false, &buffers, n * self.heads)?;
        attention.record_weigh(recording, io, BIAS, io.y)
    }

    fn backward(
        &self,
        recording: &mut Recording,
        io: &Io<'_>,
        d_y: &Part,
        d_x: Option<&Part>,
    ) -> Result<()> {
        let (n, heads, width) = (io.samples, self.heads, self.linear.outputs);
        let attention = self.attention(io);
        if io.trained[BIAS] {
            let to = (io.grads, io.at(BIAS));
            record_sums(recording, io, n, (d_y, width), None, to)?;
        }
        attention.record_backward(recording, io, d_y)?;
        let graph = &io.on_graph().words;
        let [z, d_z, sent, received, d_sent, d_received] =
            [Z, D_Z, SENT, RECEIVED, D_SENT, D_RECEIVED].map(|i| &io.saved[i]);
        let d_scores = attention.d_scores;
        let buffers = [graph, sent, received, d_scores, d_received];
        self.run(
            recording,
            io,
            "gat_backward_received",
            false,
            &buffers,
            n * heads,
        )?;
        let buffers = [graph, d_scores, d_sent];
        self.run(
            recording,
            io,
            "gat_backward_sent",
            true,
            &buffers,
            n * heads,
        )?;
        for (slot, d) in [(ATT_SRC, d_sent), (ATT_DST, d_received)] {
            if io.trained[slot] {
                let to = (io.grads, io.at(slot));
                record_sums(recording, io, n, (z, width), Some((d, heads)), to)?;
            }
        }
        attention.record_projected(recording, io, d_y, d_z)?;
        let buffers = [d_sent, io.params, d_received, d_z];
        self.run(
            recording,
            io,
            "gat_backward_ends",
            false,
            &buffers,
            n * width,
        )?;
        self.linear
            .record_params(recording, io, n, X::of(io), d_z, false)?;
        match d_x {
            Some(d_x) => {
                let to = (d_x, false);
                self.linear
                    .record_input(recording, io, n, X::of(io), d_z, to)
            }
            None => Ok(()),
        }
    }
}
