//! The layer recorded for the GPU; the kernels are in gine.wgsl.

use super::{EPS, Gine};
use crate::Result;
use crate::gpu::kernels::Kernel;
use crate::gpu::layer::{Io, Lengths, Record, groups};
use crate::gpu::recording::{Part, Recording};
use crate::gpu::topology::Topic;
use crate::layer::graph::gpu::{Also, X, record_eps, record_gate};

pub(crate) static GINE: Kernel = Kernel::new("layer/gine/gine.wgsl", include_str!("gine.wgsl"));

/// Saved: by edge l and its gradient, by node m, the hidden rows and their gradients, sums for ε.
const L: usize = 0;
const D_L: usize = 1;
const M: usize = 2;
const D_M: usize = 3;
const HIDDEN: usize = 4;
const D_HIDDEN: usize = 5;
const SUMS: usize = 6;

const WITH_BIAS: Also = Also {
    bias: true,
    add: false,
    relu: false,
};

impl Gine {
    fn run(
        &self,
        recording: &mut Recording,
        io: &Io<'_>,
        (entry, rows, by_column): (&'static str, usize, bool),
        buffers: &[&Part],
    ) -> Result<()> {
        let places = &io.on_graph().at;
        let at = &places.edges;
        let [start, neighbour] = match by_column {
            true => [at.columns[0], at.columns[1]],
            false => at.rows,
        };
        let width = self.first.inputs;
        let sizes = [
            ("rows", rows),
            ("width", width),
            ("start", start),
            ("neighbour", neighbour),
            ("slot", at.columns[2]),
            ("edge", at.edge),
            ("sources", places.sources),
            ("targets", places.targets),
            ("eps", io.at(EPS)),
        ];
        let mut all = vec![&io.on_graph().words];
        all.extend(buffers);
        io.run(
            recording,
            (&GINE, entry),
            &[],
            &sizes,
            &all,
            groups(rows * width),
        )
    }
}

impl Record for Gine {
    fn looks_at(&self) -> &'static [Topic] {
        &[Topic::Edges]
    }

    fn saved(&self, io: &Lengths<'_>) -> Vec<usize> {
        let width = self.first.inputs;
        let edges = io.reals(io.extent.edges * width);
        let nodes = io.reals(io.samples * width);
        let hidden = io.reals(io.samples * self.first.outputs);
        vec![edges, edges, nodes, nodes, hidden, hidden, width]
    }

    fn forward(&self, recording: &mut Recording, io: &Io<'_>) -> Result<()> {
        let (n, edges) = (io.samples, io.extent.edges);
        let (l, m, hidden) = (&io.saved[L], &io.saved[M], &io.saved[HIDDEN]);
        let attributes = X::Dense(&io.on_graph().edge_features);
        self.edge
            .record_forward(recording, io, edges, attributes, l, WITH_BIAS)?;
        let kernel = ("gine_messages", n, false);
        self.run(recording, io, kernel, &[io.x, l, io.master, m])?;
        let also = Also {
            relu: true,
            ..WITH_BIAS
        };
        self.first
            .record_forward(recording, io, n, X::Dense(m), hidden, also)?;
        self.second
            .record_forward(recording, io, n, X::Dense(hidden), io.y, WITH_BIAS)
    }

    fn backward(
        &self,
        recording: &mut Recording,
        io: &Io<'_>,
        d_y: &Part,
        d_x: Option<&Part>,
    ) -> Result<()> {
        let (n, edges, width) = (io.samples, io.extent.edges, self.first.inputs);
        let [l, d_l, m, d_m, h, d_h, sums] =
            [L, D_L, M, D_M, HIDDEN, D_HIDDEN, SUMS].map(|i| &io.saved[i]);
        self.second
            .record_params(recording, io, n, X::Dense(h), d_y, true)?;
        self.second
            .record_input(recording, io, n, X::Dense(h), d_y, (d_h, false))?;
        record_gate(recording, io, n * self.first.outputs, h, d_h)?;
        self.first
            .record_params(recording, io, n, X::Dense(m), d_h, true)?;
        self.first
            .record_input(recording, io, n, X::Dense(m), d_h, (d_m, false))?;
        if io.trained[EPS] {
            record_eps(recording, io, (n, width), (io.x, d_m), sums, EPS)?;
        }
        let kernel = ("gine_backward_edges", edges, false);
        self.run(recording, io, kernel, &[io.x, l, d_m, d_l])?;
        let graph = io.on_graph();
        let attributes = X::Dense(&graph.edge_features);
        self.edge
            .record_params(recording, io, edges, attributes, d_l, true)?;
        if io.wants_edges {
            let to = (&graph.d_edge_features, true);
            self.edge
                .record_input(recording, io, edges, attributes, d_l, to)?;
        }
        match d_x {
            Some(d_x) => {
                let kernel = ("gine_backward_nodes", n, true);
                self.run(recording, io, kernel, &[d_l, d_m, io.master, d_x])
            }
            None => Ok(()),
        }
    }
}
