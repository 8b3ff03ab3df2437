//! Pooling recorded for the GPU; the kernels are in graph_pool.wgsl.

use super::{GraphPool, PoolKind};
use crate::Result;
use crate::gpu::kernels::Kernel;
use crate::gpu::layer::{Io, Lengths, Record, groups};
use crate::gpu::recording::{Part, Recording};
use crate::gpu::topology::Topic;

pub(crate) static POOL: Kernel = Kernel::new(
    "layer/graph_pool/graph_pool.wgsl",
    include_str!("graph_pool.wgsl"),
);

impl GraphPool {
    fn run(
        &self,
        recording: &mut Recording,
        io: &Io<'_>,
        (entry, rows): (&'static str, usize),
        (from, to): (&Part, &Part),
    ) -> Result<()> {
        let kind = match self.kind {
            PoolKind::Sum => 0.0,
            PoolKind::Mean => 1.0,
            PoolKind::Max => 2.0,
        };
        let graph = io.on_graph();
        let sizes = [
            ("rows", rows),
            ("width", self.width),
            ("graph_start", graph.at.graph_start),
            ("graph_of", graph.at.graph_of),
        ];
        let buffers = [&graph.words, from, to, &io.saved[0]];
        let kernel = (&POOL, entry);
        let invocations = groups(rows * self.width);
        io.run(
            recording,
            kernel,
            &[("KIND", kind)],
            &sizes,
            &buffers,
            invocations,
        )
    }
}

impl Record for GraphPool {
    fn looks_at(&self) -> &'static [Topic] {
        &[Topic::Graphs]
    }

    /// The node of every maximum.
    fn saved(&self, io: &Lengths<'_>) -> Vec<usize> {
        let places = self.kind == PoolKind::Max;
        vec![if places { io.y_len } else { 0 }]
    }

    fn forward(&self, recording: &mut Recording, io: &Io<'_>) -> Result<()> {
        let kernel = ("graph_pool_forward", io.extent.graphs);
        self.run(recording, io, kernel, (io.x, io.y))
    }

    fn backward(
        &self,
        recording: &mut Recording,
        io: &Io<'_>,
        d_y: &Part,
        d_x: Option<&Part>,
    ) -> Result<()> {
        let Some(d_x) = d_x else { return Ok(()) };
        let kernel = ("graph_pool_backward", io.samples);
        self.run(recording, io, kernel, (d_y, d_x))
    }
}
