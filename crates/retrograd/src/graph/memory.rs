//! The memory that training a graph network takes, from its layers and the size of its graphs.

use super::{GraphNetwork, GraphSpec};
use crate::budget::Demand;
use crate::optim::OptimizerSpec;
use crate::train::memory::of_params;
use crate::{Model, Result};

/// What a step computes on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Extent {
    pub nodes: u128,
    pub edges: u128,
    /// Pairs of nodes of the same graph: what attention among all nodes compares.
    pub pairs: u128,
    /// Bytes of the data beside.
    pub data: u128,
}

impl Extent {
    /// One graph, computed on whole.
    pub fn whole(nodes: usize, edges: usize) -> Self {
        let nodes = nodes as u128;
        Extent {
            nodes,
            edges: edges as u128,
            pairs: nodes * nodes,
            data: 0,
        }
    }

    fn each(self, other: Self, of: impl Fn(u128, u128) -> u128) -> Self {
        Extent {
            nodes: of(self.nodes, other.nodes),
            edges: of(self.edges, other.edges),
            pairs: of(self.pairs, other.pairs),
            data: of(self.data, other.data),
        }
    }

    pub fn larger(self, other: Self) -> Self {
        self.each(other, u128::max)
    }

    pub fn smaller(self, other: Self) -> Self {
        self.each(other, u128::min)
    }

    pub fn with(self, other: Self) -> Self {
        self.each(other, u128::saturating_add)
    }

    pub fn times(self, n: u64) -> Self {
        self.each(self, |own, _| own.saturating_mul(n.into()))
    }
}

/// The demand of training. First the sizes of the data could be smaller, which `extent` is a function
/// of, then the layers' outputs.
pub(super) fn demand(
    network: &GraphNetwork,
    optimizer: OptimizerSpec,
    sizes: Vec<(String, u64)>,
    extent: impl Fn(&[u64]) -> Extent + 'static,
) -> Demand<'static> {
    let spec = network.spec().clone();
    let own = network.layout().len();
    let of_data = sizes.len();
    let mut sizes = sizes;
    let mut outs = Vec::new();
    let hidden = spec.layers.len().saturating_sub(1);
    for (index, layer) in spec.layers[..hidden].iter().enumerate() {
        let json = serde_json::to_value(layer).unwrap_or_default();
        if let Some(out) = json["out"].as_u64() {
            sizes.push((format!("model.layers[{index}].out"), out));
            outs.push((index, out));
        }
    }
    Demand::of_list(sizes, move |values| {
        let (data, layers) = values.split_at(of_data);
        let same = outs.iter().zip(layers).all(|((_, own), out)| own == out);
        let (params, spec) = match same {
            true => (own, spec.clone()),
            false => match changed(&spec, &outs, layers) {
                Some(changed) => changed,
                // What can't be built is no proposal.
                None => return u128::MAX,
            },
        };
        let extent = extent(data);
        of_params(params as u64, &optimizer)
            .saturating_add(step_bytes(&spec, extent))
            .saturating_add(extent.data)
    })
}

/// The spec with other numbers of outputs, and its parameters.
fn changed(spec: &GraphSpec, outs: &[(usize, u64)], values: &[u64]) -> Option<(usize, GraphSpec)> {
    let mut spec = spec.clone();
    for (&(index, _), &out) in outs.iter().zip(values) {
        let mut json = serde_json::to_value(&spec.layers[index]).ok()?;
        json["out"] = out.into();
        spec.layers[index] = serde_json::from_value(json).ok()?;
    }
    let built: Result<GraphNetwork> = GraphNetwork::new(&spec);
    Some((built.ok()?.layout().len(), spec))
}

/// The bytes of a step: every layer's rows with their gradients and what is kept for backward, those
/// of an evaluation, and what attention holds for edges and pairs.
fn step_bytes(spec: &GraphSpec, extent: Extent) -> u128 {
    let json = serde_json::to_value(spec).unwrap_or_default();
    let mut width = u128::from(json["features"].as_u64().unwrap_or(0));
    let mut bytes = 4 * extent.nodes.saturating_mul(2 * width);
    for layer in json["layers"].as_array().into_iter().flatten() {
        let number = |key: &str| layer[key].as_u64().map(u128::from);
        let heads = number("heads").unwrap_or(1);
        let kind = layer["kind"].as_str().unwrap_or_default();
        let attends = matches!(kind, "gat" | "gatv2");
        let before = width;
        if let Some(out) = number("out") {
            width = if attends {
                out.saturating_mul(heads)
            } else {
                out
            };
        }
        let kept = before.max(width);
        let rows = extent.nodes.saturating_mul(3 * width + 2 * kept);
        // Scores and weights of attention and their gradients; messages that differ by edge.
        let edges = match kind {
            "gat" | "gatv2" => 4 * heads,
            "gine" => 2 * before,
            _ => 0,
        };
        let pairs = match kind {
            "self_attention" => 3 * heads,
            _ => 0,
        };
        let numbers = rows
            .saturating_add(extent.edges.saturating_mul(edges))
            .saturating_add(extent.pairs.saturating_mul(pairs));
        bytes = bytes.saturating_add(numbers.saturating_mul(4));
    }
    bytes
}
