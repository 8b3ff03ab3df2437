//! Pruning: edges that matter little are held at zero, nodes without edges are taken out.

use super::edges::{Edge, EdgeImportance, Layers};
use crate::layer::kan::Kan;
use crate::layer::kan::KanSpec;
use crate::network::{LayerSpec, Network};
use crate::{Buffer, Model, Result};

/// Edges that are held at zero.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct EdgeMask {
    edges: Vec<Edge>,
}

impl EdgeMask {
    /// These edges.
    pub fn new(edges: Vec<Edge>) -> Self {
        EdgeMask { edges }
    }

    /// The masked edges.
    pub fn edges(&self) -> &[Edge] {
        &self.edges
    }

    /// Puts zeros to the masked edges' weights, or to their gradients. Edges that the network
    /// doesn't have are left out.
    pub fn apply(&self, network: &Network, flat: &mut [f32]) {
        let Ok(layers) = Layers::new(network) else {
            return;
        };
        for edge in &self.edges {
            if edge.layer >= layers.len() {
                continue;
            }
            let kan = layers.kan(edge.layer);
            let ranges = &network.places[layers.at[edge.layer]].tensors;
            if edge.from >= kan.inputs || edge.to >= kan.outputs {
                continue;
            }
            for m in 0..kan.bases() {
                flat[ranges[0].start + (edge.from * kan.bases() + m) * kan.outputs + edge.to] = 0.0;
            }
            if !ranges[1].is_empty() {
                flat[ranges[1].start + edge.from * kan.outputs + edge.to] = 0.0;
            }
        }
    }
}

/// A pruned network.
pub struct Pruned {
    /// With the hidden nodes that are left.
    pub network: Network,
    /// Its parameters, masked edges at zero.
    pub params: Vec<f32>,
    /// The edges that are held at zero in it.
    pub mask: EdgeMask,
    /// The same by the old network's numbers: masking these there gives the same function.
    pub masked: EdgeMask,
    /// The hidden nodes left after each layer but the last, by their old numbers.
    pub kept: Vec<Vec<usize>>,
}

/// Prunes by importance on a batch: an edge whose importance is below `threshold` times the
/// largest of its layer is masked; a hidden node that no unmasked edge enters, or none leaves, is
/// masked with all its edges and taken out. Inputs and outputs stay.
pub fn prune(network: &Network, params: &[f32], x: &[f32], threshold: f64) -> Result<Pruned> {
    if !(threshold >= 0.0 && threshold.is_finite()) {
        return Err(crate::Error::invalid(
            "pruning threshold",
            threshold,
            "a finite number ≥ 0",
        ));
    }
    let layers = Layers::new(network)?;
    let importance = EdgeImportance::measure(network, params, x)?;
    let count = layers.len();
    let sizes: Vec<(usize, usize)> = (0..count).map(|l| layers.size(l)).collect();
    let mut alive: Vec<Vec<bool>> = (0..count)
        .map(|layer| {
            let least = threshold * importance.largest(layer);
            importance.edges[layer].iter().map(|&v| v > least).collect()
        })
        .collect();
    // A node that dies takes its edges with it, which may let others die.
    loop {
        let mut changed = false;
        for layer in 0..count - 1 {
            let (inputs, outputs) = sizes[layer];
            let after = sizes[layer + 1].1;
            for node in 0..outputs {
                let enters = (0..inputs).any(|i| alive[layer][i * outputs + node]);
                let leaves = (0..after).any(|j| alive[layer + 1][node * after + j]);
                if enters != leaves {
                    for i in 0..inputs {
                        alive[layer][i * outputs + node] = false;
                    }
                    for j in 0..after {
                        alive[layer + 1][node * after + j] = false;
                    }
                    changed = true;
                }
            }
        }
        if !changed {
            break;
        }
    }
    let masked = layers
        .edges()
        .filter(|e| !alive[e.layer][e.from * sizes[e.layer].1 + e.to])
        .collect();
    let masked = EdgeMask::new(masked);
    let kept: Vec<Vec<usize>> = (0..count - 1)
        .map(|layer| {
            let (inputs, outputs) = sizes[layer];
            let mut kept: Vec<usize> = (0..outputs)
                .filter(|&node| (0..inputs).any(|i| alive[layer][i * outputs + node]))
                .collect();
            if kept.is_empty() {
                // A layer without nodes is no layer: one masked node stays.
                kept.push(0);
            }
            kept
        })
        .collect();
    let mut masked_params = params.to_vec();
    masked.apply(network, &mut masked_params);
    let (new, new_params) = select_nodes(network, &masked_params, &layers, &kept)?;
    let place = |layer: usize, node: usize| -> Option<usize> {
        match kept.get(layer) {
            Some(kept) => kept.iter().position(|&n| n == node),
            None => Some(node),
        }
    };
    let mask = masked
        .edges()
        .iter()
        .filter_map(|edge| {
            let from = match edge.layer {
                0 => edge.from,
                layer => place(layer - 1, edge.from)?,
            };
            let to = place(edge.layer, edge.to)?;
            Some(Edge { from, to, ..*edge })
        })
        .collect();
    Ok(Pruned {
        network: new,
        params: new_params,
        mask: EdgeMask::new(mask),
        masked,
        kept,
    })
}

/// The network with some of its hidden nodes.
fn select_nodes(
    network: &Network,
    params: &[f32],
    layers: &Layers<'_>,
    kept: &[Vec<usize>],
) -> Result<(Network, Vec<f32>)> {
    let mut spec = network.spec().clone();
    for (layer, kept) in kept.iter().enumerate() {
        if let LayerSpec::Kan(KanSpec { out, .. }) = &mut spec.layers[layers.at[layer]] {
            *out = kept.len();
        }
    }
    let mut new = Network::new(&spec)?;
    let all = |n: usize| (0..n).collect::<Vec<usize>>();
    for (at, place) in network.places.iter().enumerate() {
        let Some(kan) = place.layer.shows::<Kan>() else {
            continue;
        };
        let layer = layers
            .at
            .iter()
            .position(|&l| l == at)
            .expect("a KAN layer");
        if let Some(knots) = &kan.free_knots {
            let inputs = match layer {
                0 => all(kan.inputs),
                layer => kept[layer - 1].clone(),
            };
            let count = kan.knot_count();
            let values = inputs
                .iter()
                .flat_map(|&i| knots[i * count..(i + 1) * count].to_vec());
            new.set_buffer(&Buffer {
                name: format!("{at}.knots"),
                shape: vec![inputs.len(), count],
                values: values.collect(),
            })?;
        }
    }
    for buffer in network.buffers() {
        if !buffer.name.ends_with(".knots") {
            new.set_buffer(&buffer)?;
        }
    }
    let mut new_params = vec![0.0; new.layout().len()];
    for layer in 0..layers.len() {
        let kan = layers.kan(layer);
        let inputs = match layer {
            0 => all(kan.inputs),
            layer => kept[layer - 1].clone(),
        };
        let outputs = kept.get(layer).cloned().unwrap_or_else(|| all(kan.outputs));
        let [spline, base, bias] = layers.weights(layer, params);
        let ranges = new.places[layers.at[layer]].tensors.clone();
        let mut at = ranges[0].start;
        for &i in &inputs {
            for m in 0..kan.bases() {
                for &j in &outputs {
                    new_params[at] = spline[(i * kan.bases() + m) * kan.outputs + j];
                    at += 1;
                }
            }
        }
        if !base.is_empty() {
            let mut at = ranges[1].start;
            for &i in &inputs {
                for &j in &outputs {
                    new_params[at] = base[i * kan.outputs + j];
                    at += 1;
                }
            }
        }
        if !bias.is_empty() {
            for (place, &j) in new_params[ranges[2].clone()].iter_mut().zip(&outputs) {
                *place = bias[j];
            }
        }
    }
    Ok((new, new_params))
}
