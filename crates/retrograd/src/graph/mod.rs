//! Graph networks: message passing, attention, transforms and DAGs, whose gradients are the same
//! bits every time.
//!
//! Edges are kept by target and by source ([`Graph`]), so that every sum over neighbours, forward
//! and backward, is gathered by the row that owns it: no atomics, one order, any number of threads.

mod batch;
mod build;
mod layer;
mod network;
mod ops;
mod pattern;
mod spec;
mod structure;
#[cfg(test)]
mod tests;

pub use batch::{Features, GraphBatch, NodeValues};
pub use network::{GraphNetwork, GraphTape};
pub use pattern::{Pattern, Rows};
pub use spec::{GraphLayerSpec, GraphSpec};
pub use structure::{Adjacency, Built, EdgeRule, EdgeRules, Graph, LOOP};
