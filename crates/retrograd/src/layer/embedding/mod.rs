//! A row per node, by its id: y_i = W_{id(i)}.
//!
//! d_W_v = Σ over the nodes i of id v of d_y_i, gathered by the row of W that owns it. There is
//! nothing to differentiate an id by.

#[cfg(feature = "gpu")]
mod gpu;
mod spec;

pub use spec::EmbeddingSpec;

use crate::graph::ops::{Aggregate, Coefficient, aggregate};
use crate::graph::{Features, Pattern};
use crate::layer::{Around, Backward, Describe, Forward, Layer, TensorSpec};
use crate::rng::Stream;
use crate::{Kernels, Scalar};

pub(crate) struct Embedding {
    vocabulary: usize,
    out: usize,
}

/// The nodes' ids: row = node, column = id.
fn ids<'a, T: Scalar>(around: &Around<'a, T>) -> &'a Pattern {
    match around.batch.map(|batch| batch.features()) {
        Some(Features::Ids(pattern)) => pattern,
        _ => unreachable!("a batch is checked: ids for an embedding"),
    }
}

impl Describe for Embedding {
    #[cfg(feature = "gpu")]
    fn record(&self) -> Option<&dyn crate::gpu::layer::Record> {
        Some(self)
    }

    fn tensors(&self) -> Vec<Option<TensorSpec>> {
        vec![Some(TensorSpec::new(
            "weight",
            &[self.vocabulary, self.out],
        ))]
    }

    /// The standard normal.
    fn init(&self, _: usize, len: usize, stream: &mut Stream) -> Vec<f32> {
        (0..len).map(|_| stream.normal() as f32).collect()
    }
}

impl<T: Scalar> Layer<T> for Embedding {
    fn forward(&self, io: Forward<'_, T>) {
        let sum = Aggregate::new(&ids(&io.around).by_row, Coefficient::One);
        let fast = io.pass.kernels == Kernels::Fast;
        aggregate(&sum, io.params[0], self.out, io.y, fast);
    }

    fn backward(&self, io: Backward<'_, T>) {
        let [Some(d_weight), ..] = io.d_params else {
            return;
        };
        let sum = Aggregate::new(&ids(&io.around).by_column, Coefficient::One).adding();
        let fast = io.pass.kernels == Kernels::Fast;
        aggregate(&sum, io.d_y, self.out, d_weight, fast);
    }
}
