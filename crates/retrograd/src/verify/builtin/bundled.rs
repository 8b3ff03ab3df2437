//! Small models of the other families, most of them out of the reference bundles: model, parameters
//! and batch.

use std::path::Path;

use super::BuiltIn;
use crate::verify::bundle::{Bundle, FromBundle};

/// A built-in model from a bundle's bytes, with the faults that apply to any model.
pub fn from_bundle<M: FromBundle + 'static>(
    name: &'static str,
    bytes: &'static [u8],
    samples: usize,
) -> BuiltIn {
    let make = move || {
        let bundle = Bundle::from_bytes(Path::new(name), bytes)?;
        Ok((M::from_bundle(&bundle)?, bundle.loss))
    };
    BuiltIn::new(name, make, samples, None)
}

macro_rules! bundled {
    ($model:ty, $samples:expr, $name:expr, $file:expr) => {
        from_bundle::<$model>(
            $name,
            include_bytes!(concat!("../../../tests/reference/", $file, ".safetensors")),
            $samples,
        )
    };
}

/// Graph networks. A sample is a node. GATv2 is left to its bundle: a shift of a target's score
/// that no LeakyReLU sees cancels in the softmax, so some of its gradients are zero but for
/// rounding, and a mutant that loses them is none.
pub fn graph() -> Vec<BuiltIn> {
    use crate::graph::GraphNetwork;
    vec![
        bundled!(GraphNetwork, 40, "graph: gcn", "graph_gcn"),
        bundled!(
            GraphNetwork,
            50,
            "graph: message passing",
            "graph_message_passing"
        ),
        bundled!(
            GraphNetwork,
            30,
            "graph: gcn, edge weights",
            "graph_edge_weights"
        ),
        bundled!(GraphNetwork, 31, "graph: sage", "graph_sage"),
        bundled!(GraphNetwork, 35, "graph: gat", "graph_gat"),
        bundled!(GraphNetwork, 60, "graph: gin, pooled", "graph_gin_pool"),
        bundled!(GraphNetwork, 48, "graph: gine", "graph_edge_features"),
        bundled!(GraphNetwork, 44, "graph: max pool", "graph_max_pool"),
    ]
}

/// Differentiable-logic cellular automata. A sample is a grid.
pub fn logic() -> Vec<BuiltIn> {
    use crate::logic::LogicCa;
    vec![bundled!(
        LogicCa,
        2,
        "logic_ca: asynchronous",
        "logic_async_small"
    )]
}

/// Networks over a directed acyclic graph of single neurons.
pub fn dag() -> Vec<BuiltIn> {
    use crate::graph::DagNN;
    vec![
        bundled!(DagNN, 6, "dag: tanh", "dag_tanh"),
        bundled!(DagNN, 6, "dag: leaky relu", "dag_leaky"),
    ]
}
