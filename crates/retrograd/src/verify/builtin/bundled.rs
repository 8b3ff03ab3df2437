//! Small models of the other families, most of them out of the reference bundles: model, parameters
//! and batch.

use std::path::Path;
use std::sync::Arc;

use super::BuiltIn;
use crate::rng::Key;
use crate::verify::bundle::{Bundle, Case, FromBundle};
use crate::{Error, Loss, Model};

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

/// GATv2 on a graph of its own. Where all in-edges of a node i have a feature k of l_j + r_i on one
/// side of its kink, the slope is the same for all of them, so that d_r_ik = att_k·slope·Σ_p d_s_p;
/// and the gradients of a softmax's scores add up to 0. A mutant that loses such a gradient is none,
/// and in the bundle's graph there are such nodes alone for some features. Here every node has
/// enough in-edges, with features large enough, that kinks fall among them.
fn gatv2() -> BuiltIn {
    use crate::Target;
    use crate::graph::{EdgeRules, Graph, GraphBatch, GraphNetwork, GraphSpec};
    const NODES: usize = 14;
    const FEATURES: usize = 4;
    let make = || {
        let layers = r#"[{"kind": "gatv2", "out": 3, "heads": 2}, {"kind": "tanh"},
            {"kind": "dense", "out": 2}]"#;
        let spec = format!(r#"{{"features": {FEATURES}, "layers": {layers}}}"#);
        let spec: GraphSpec = serde_json::from_str(&spec)
            .map_err(|e| Error::invalid("built-in spec", e, "JSON of a graph network"))?;
        let model = GraphNetwork::new(&spec)?;
        let steps = [1_usize, 2, 4, 5, 9, 12];
        let (sources, targets): (Vec<u32>, Vec<u32>) = (0..NODES)
            .flat_map(|t| steps.map(|s| ((t * s + s) % NODES, t)))
            .filter(|(s, t)| s != t)
            .map(|(s, t)| (s as u32, t as u32))
            .unzip();
        let graph = Graph::build(NODES, &sources, &targets, EdgeRules::drop())?.graph;
        let mut stream = Key::new(0).purpose("gatv2").stream();
        let mut numbers = |count: usize, size: f64| -> Vec<f64> {
            let number = |_| f64::from(stream.range(-size, size) as f32);
            (0..count).map(number).collect()
        };
        let features = numbers(NODES * FEATURES, 2.0);
        let case = Case {
            input: GraphBatch::dense(Arc::new(graph), FEATURES, features)?,
            params: numbers(model.layout().len(), 0.8),
            target: Target::values(numbers(NODES * 2, 1.0)),
            model,
        };
        Ok((case, Loss::Mse))
    };
    BuiltIn::new("graph: gatv2", make, NODES, None)
}

/// Graph networks. A sample is a node.
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
        gatv2(),
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
