//! Small graph networks, one or more for every layer kind that looks at a graph, and the faults of
//! their layers.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::{BuiltIn, layer_mutants, layer_of};
use crate::graph::{EdgeRules, Graph, GraphBatch, GraphNetwork, GraphSpec};
use crate::layer::small_graphs;
use crate::layer::spec::SmallGraph;
use crate::rng::Key;
use crate::verify::bundle::Case;
use crate::verify::mutants::Honest;
use crate::verify::report::Report;
use crate::verify::subject::Subject;
use crate::{Error, Loss, Model, Result, Target};

/// All of them.
pub fn built_in() -> Vec<BuiltIn> {
    let of = |small: SmallGraph| {
        let name = format!("graph layer: {}", small.0);
        BuiltIn::of_layer(name, move || case(small), own_mutants)
    };
    small_graphs().into_iter().map(of).collect()
}

/// Two graphs. Every node has several in-edges, so that a kink of an attention falls among them:
/// where all in-edges of a node i have a feature k of gatv2's l_j + r_i on one side of it, the slope
/// is the same for all of them, so that d_r_ik = att_k·slope·Σ_p d_s_p; and the gradients of a
/// softmax's scores add up to 0. A mutant that loses such a gradient is none.
fn topology() -> Result<Graph> {
    let ring = |nodes: usize, steps: &[usize]| -> Result<Graph> {
        let (sources, targets): (Vec<u32>, Vec<u32>) = (0..nodes)
            .flat_map(|t| steps.iter().map(move |s| ((t * s + s) % nodes, t)))
            .filter(|(s, t)| s != t)
            .map(|(s, t)| (s as u32, t as u32))
            .unzip();
        Ok(Graph::build(nodes, &sources, &targets, EdgeRules::drop())?.graph)
    };
    let large = ring(14, &[1, 2, 4, 5, 9, 12])?;
    let small = ring(6, &[1, 2, 4])?;
    Ok(Graph::union([&large, &small]))
}

pub(crate) fn case((name, spec): SmallGraph) -> Result<(Case<GraphNetwork>, Loss)> {
    let pairs = vec![[0, 1], [2, 2], [3, 18], [18, 3], [5, 9], [16, 17]];
    case_on(name, spec, topology()?, pairs)
}

/// A graph network by its sizes.
pub(crate) struct SizedGraph {
    /// Its spec as JSON.
    pub spec: String,
    pub nodes: usize,
    /// In-edges of node 0, and of every tenth node after it 3; the others have 2, the last none.
    pub hub: usize,
}

/// A ring with a hub and an isolated node; a second graph beside it, so that pools have two rows.
pub(crate) fn sized(name: &str, sized: &SizedGraph) -> Result<(Case<GraphNetwork>, Loss)> {
    let nodes = sized.nodes.max(sized.hub + 2).max(4);
    let ring = nodes - 1;
    let mut edges = BTreeSet::new();
    for t in 0..ring {
        for step in [1, 2, 5].into_iter().take(2 + usize::from(t % 10 == 0)) {
            edges.insert(((t + step) % ring, t));
        }
    }
    edges.extend((1..=sized.hub).map(|s| (s, 0)));
    let edges = edges.into_iter().filter(|(s, t)| s != t);
    let (sources, targets): (Vec<u32>, Vec<u32>) = edges.map(|(s, t)| (s as u32, t as u32)).unzip();
    let large = Graph::build(nodes, &sources, &targets, EdgeRules::drop())?.graph;
    let small = Graph::build(3, &[0, 1, 2], &[1, 2, 0], EdgeRules::drop())?.graph;
    let graph = Graph::union([&large, &small]);
    let pairs = vec![[0, 1], [1, 1], [2, 0]];
    case_on(name, &sized.spec, graph, pairs)
}

/// A ring with so many pairs of nodes.
#[cfg(feature = "gpu")]
pub(crate) fn paired(name: &str, spec: &str, pairs: u32) -> Result<(Case<GraphNetwork>, Loss)> {
    const NODES: u32 = 40;
    let sources: Vec<u32> = (0..NODES).collect();
    let targets: Vec<u32> = sources.iter().map(|s| (s + 1) % NODES).collect();
    let graph = Graph::build(NODES as usize, &sources, &targets, EdgeRules::drop())?.graph;
    let pair = |i: u32| [i % NODES, (i * 7 + i / NODES) % NODES];
    case_on(name, spec, graph, (0..pairs).map(pair).collect())
}

fn case_on(
    name: &str,
    spec: &str,
    graph: Graph,
    pairs: Vec<[u32; 2]>,
) -> Result<(Case<GraphNetwork>, Loss)> {
    let spec: GraphSpec = serde_json::from_str(spec)
        .map_err(|e| Error::invalid(format!("built-in graph network {name}"), e, "a spec"))?;
    let model = GraphNetwork::new(&spec)?;
    let mut stream = Key::new(0).purpose("built-in graph").stream();
    // As f32 holds them.
    let mut numbers = |count: usize, least: f64, most: f64| -> Vec<f64> {
        let number = |_| f64::from(stream.range(least, most) as f32);
        (0..count).map(number).collect()
    };
    let graph = Arc::new(graph);
    let (nodes, edges) = (graph.nodes(), graph.edges());
    let mut input = match spec.features {
        Some(width) => GraphBatch::dense(graph, width, numbers(nodes * width, -2.0, 2.0))?,
        None => {
            let vocabulary = model.embedding().map_or(1, |e| e.vocabulary);
            let ids: Vec<u32> = (0..nodes)
                .map(|i| ((i * i + i / 2) % vocabulary) as u32)
                .collect();
            GraphBatch::ids(graph, vocabulary, &ids)?
        }
    };
    if spec.edge_weight {
        input = input.with_edge_weights(&numbers(edges, 0.5, 1.5))?;
    }
    if spec.edge_features > 0 {
        let width = spec.edge_features;
        input = input.with_edge_features(width, &numbers(edges * width, -1.0, 1.0))?;
    }
    input = input.with_pairs(pairs)?;
    model.check(&input)?;
    let outputs = model.output_rows(&input) * model.output_width();
    let case = Case {
        params: numbers(model.layout().len(), -0.8, 0.8),
        target: Target::values(numbers(outputs, -1.0, 1.0)),
        input,
        model,
    };
    Ok((case, Loss::Mse))
}

/// Every fault of the layer, in the reference and in the f32 kernels alone.
fn own_mutants(subject: &Subject<'_, GraphNetwork>, honest: &Honest) -> Result<Report> {
    let right = subject.model;
    let spec = right.spec();
    let layer = layer_of(&subject.name, &spec.layers);
    let about = (&right.places[layer], &spec.layers[layer]);
    layer_mutants(subject, honest, about, |mutation, only_f32| {
        let model = GraphNetwork::new(spec)?;
        let before = match layer.checked_sub(1) {
            Some(before) => model.places[before].shape.clone(),
            None => spec.features.into_iter().collect(),
        };
        let shapes = [before, model.places[layer].shape.clone()];
        Ok(model.wrapping(layer, |inner| mutation.wrap(inner, shapes, only_f32)))
    })
}
