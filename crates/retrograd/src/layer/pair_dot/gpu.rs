//! The layer recorded for the GPU; the kernels are in pair_dot.wgsl.

use super::PairDot;
use crate::Result;
use crate::gpu::kernels::Kernel;
use crate::gpu::layer::{Io, Record, groups};
use crate::gpu::recording::{Part, Recording};
use crate::gpu::topology::Topic;

pub(crate) static PAIR_DOT: Kernel = Kernel::new(
    "layer/pair_dot/pair_dot.wgsl",
    include_str!("pair_dot.wgsl"),
);

impl PairDot {
    fn run(
        &self,
        recording: &mut Recording,
        io: &Io<'_>,
        (entry, rows, invocations): (&'static str, usize, usize),
        buffers: &[&Part],
    ) -> Result<()> {
        let graph = io.on_graph();
        let [start, pair_of, other] = graph.at.of_node;
        let sizes = [
            ("rows", rows),
            ("width", self.width),
            ("pairs", graph.at.pairs),
            ("start", start),
            ("pair_of", pair_of),
            ("other", other),
        ];
        let mut all = vec![&graph.words];
        all.extend(buffers);
        io.run(
            recording,
            (&PAIR_DOT, entry),
            &[],
            &sizes,
            &all,
            groups(invocations),
        )
    }
}

impl Record for PairDot {
    fn looks_at(&self) -> &'static [Topic] {
        &[Topic::Pairs]
    }

    fn forward(&self, recording: &mut Recording, io: &Io<'_>) -> Result<()> {
        let pairs = io.extent.pairs;
        let kernel = ("pair_dot_forward", pairs, pairs);
        self.run(recording, io, kernel, &[io.x, io.y])
    }

    fn backward(
        &self,
        recording: &mut Recording,
        io: &Io<'_>,
        d_y: &Part,
        d_x: Option<&Part>,
    ) -> Result<()> {
        let Some(d_x) = d_x else { return Ok(()) };
        let nodes = io.extent.nodes;
        let kernel = ("pair_dot_backward", nodes, nodes * self.width);
        self.run(recording, io, kernel, &[io.x, d_y, d_x])
    }
}
