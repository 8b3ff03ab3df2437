//! Graph networks: message passing, attention, transforms and DAGs, whose gradients are the same
//! bits every time.
//!
//! Edges are kept by target and by source ([`Graph`]), so that every sum over neighbours, forward
//! and backward, is gathered by the row that owns it: no atomics, one order, any number of threads.

mod batch;
mod bench;
#[cfg(test)]
mod checks;
pub(crate) mod dag;
pub mod data;
mod draft;
pub mod draw;
mod family;
mod memory;
#[cfg(test)]
mod mistakes;
mod network;
pub(crate) mod ops;
pub(crate) mod pattern;
mod sample;
mod sinkhorn;
mod spec;
mod structure;
pub mod task;
#[cfg(test)]
mod tests;
mod thresholds;
mod transform;

pub use crate::layer::LayerSpec;
pub use batch::{Features, GraphBatch, NodeValues};
pub use dag::FAMILY as DAG_FAMILY;
pub use dag::{DagNN, DagSpec, DagTape};
pub(crate) use draft::takes;
pub use family::FAMILY;
pub use network::{GraphNetwork, GraphTape};
pub use ops::propagate_mean;
pub use pattern::{Pattern, Rows};
pub use sample::{Sample, negative_pairs, roc_auc, sample_neighbours};
pub use sinkhorn::{SinkhornLoss, SinkhornResult};
pub use spec::GraphSpec;
pub use structure::{Adjacency, Built, EdgeRule, EdgeRules, Graph, LOOP};
pub use transform::{GraphTransformNet, Head, TransformSpec, encode_text, text_graph};
