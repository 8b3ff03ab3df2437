//! The layer recorded for the GPU: a gather over the ids and its transpose.

use super::Embedding;
use crate::Result;
use crate::gpu::layer::{Io, Record};
use crate::gpu::recording::{Part, Recording};
use crate::layer::graph::gpu::{Sum, Weigh};

impl Record for Embedding {
    fn forward(&self, recording: &mut Recording, io: &Io<'_>) -> Result<()> {
        let ids = &io.on_graph().at.features;
        let sum = Sum::new(ids, false, io.samples, Weigh::One);
        sum.record(recording, io, (io.params, io.at(0)), self.out, io.y)
    }

    fn backward(
        &self,
        recording: &mut Recording,
        io: &Io<'_>,
        d_y: &Part,
        _: Option<&Part>,
    ) -> Result<()> {
        if !io.trained[0] {
            return Ok(());
        }
        let ids = &io.on_graph().at.features;
        let sum = Sum::new(ids, true, self.vocabulary, Weigh::One);
        sum.record_weight(recording, io, d_y, self.out, 0)
    }
}
