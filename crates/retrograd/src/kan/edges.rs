//! Layers, edges, their curves and their importance.

use crate::layer::kan::{Kan, reference};
use crate::layer::normalize::Normalize;
use crate::math;
use crate::network::{Activation, Base, Network, NetworkTape, Outside};
use crate::{Error, Model, Pass, Result};

/// An edge: from an input of a KAN layer to one of its outputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Edge {
    /// The KAN layer, counted among KAN layers from 0.
    pub layer: usize,
    /// The input.
    pub from: usize,
    /// The output.
    pub to: usize,
}

/// The KAN layers of a network: their places in it and their sizes.
pub struct Layers<'a> {
    network: &'a Network,
    /// The index of every KAN layer in the network.
    pub(super) at: Vec<usize>,
}

impl<'a> Layers<'a> {
    /// An error where there is anything but KAN layers and a normalisation in front.
    pub fn new(network: &'a Network) -> Result<Self> {
        let mut at = Vec::new();
        for (n, place) in network.places.iter().enumerate() {
            if place.layer.shows::<Kan>().is_some() {
                at.push(n);
            } else if n > 0 || place.layer.shows::<Normalize>().is_none() {
                return Err(Error::invalid(
                    format!("layers[{n}]"),
                    network.spec().layers[n].kind(),
                    "a network of KAN layers (a normalize in front is allowed)",
                ));
            }
        }
        if network.spec().input.len() != 1 || at.is_empty() {
            let got = format!("input {:?}, {} KAN layers", network.spec().input, at.len());
            return Err(Error::invalid(
                "KAN",
                got,
                "one axis of inputs and a KAN layer",
            ));
        }
        Ok(Layers { network, at })
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.at.len()
    }

    /// Never: a network without KAN layers is refused.
    pub fn is_empty(&self) -> bool {
        self.at.is_empty()
    }

    /// Inputs and outputs of a layer.
    pub fn size(&self, layer: usize) -> (usize, usize) {
        let kan = self.kan(layer);
        (kan.inputs, kan.outputs)
    }

    pub(crate) fn kan(&self, layer: usize) -> &'a Kan {
        let place = &self.network.places[self.at[layer]];
        place.layer.shows().expect("a KAN layer at each place")
    }

    /// Where spline and base weights and bias of a layer are stored.
    pub(super) fn ranges(&self, layer: usize) -> [std::ops::Range<usize>; 3] {
        let ranges = &self.network.places[self.at[layer]].tensors;
        [0, 1, 2].map(|slot| ranges[slot].clone())
    }

    /// Spline and base weights and bias of a layer, as stored.
    pub(crate) fn weights<'p, T>(&self, layer: usize, params: &'p [T]) -> [&'p [T]; 3] {
        self.ranges(layer).map(|range| &params[range])
    }

    /// All edges, in order.
    pub fn edges(&self) -> impl Iterator<Item = Edge> + '_ {
        (0..self.len()).flat_map(move |layer| {
            let (inputs, outputs) = self.size(layer);
            (0..inputs).flat_map(move |from| (0..outputs).map(move |to| Edge { layer, from, to }))
        })
    }

    /// What every KAN layer reads for a batch, and what the last one gives: (samples, width) each.
    pub fn values(&self, params: &[f32], x: &[f32]) -> Result<Vec<Vec<f32>>> {
        self.network.check_batch(x)?;
        let input = x.to_vec();
        let mut tape = NetworkTape::default();
        self.network
            .compute_forward(params, &input, &Pass::inference(), &mut tape);
        let mut values: Vec<Vec<f32>> = self
            .at
            .iter()
            .map(|&layer| self.network.layer_input(layer, &input, &tape).to_vec())
            .collect();
        values.push(self.network.output(&tape).to_vec());
        Ok(values)
    }
}

/// The function of an edge at some points, in f64: base and spline together.
pub fn edge_curve(network: &Network, params: &[f32], edge: Edge, x: &[f64]) -> Result<Vec<f64>> {
    let layers = Layers::new(network)?;
    if edge.layer >= layers.len() {
        return Err(Error::invalid(
            "edge's layer",
            edge.layer,
            format!("below {}", layers.len()),
        ));
    }
    let (inputs, outputs) = layers.size(edge.layer);
    if edge.from >= inputs || edge.to >= outputs {
        let got = format!("{} → {}", edge.from, edge.to);
        return Err(Error::invalid(
            "edge",
            got,
            format!("below {inputs} and {outputs}"),
        ));
    }
    let kan = layers.kan(edge.layer);
    let weights = layers.weights(edge.layer, params);
    Ok(curve(kan, weights, edge.from, edge.to, x))
}

/// The same, within a layer.
pub(super) fn curve(
    kan: &Kan,
    [spline_weight, base_weight, _]: [&[f32]; 3],
    from: usize,
    to: usize,
    x: &[f64],
) -> Vec<f64> {
    let knots = kan.knots(from);
    let (bases, outputs) = (kan.bases(), kan.outputs);
    let (mut values, mut slopes) = (vec![0.0; bases], vec![0.0; bases]);
    x.iter()
        .map(|&x| {
            let x = match kan.outside {
                Outside::Clamp => x.clamp(knots[kan.degree], knots[kan.degree + kan.grid]),
                Outside::Decay => x,
            };
            reference::basis(kan.degree, &knots, x, &mut values, &mut slopes);
            let spline: f64 = (0..bases)
                .map(|m| values[m] * f64::from(spline_weight[(from * bases + m) * outputs + to]))
                .sum();
            let base = match kan.base {
                Base::Silu => {
                    Activation::Silu.value(x) * f64::from(base_weight[from * outputs + to])
                }
                Base::None => 0.0,
            };
            spline + base
        })
        .collect()
}

/// How much every edge and node matters on some samples.
#[derive(Clone, Debug)]
pub struct EdgeImportance {
    /// Per layer, stored \[in\]\[out\]: the standard deviation over the samples of the edge's
    /// value, what it adds to the variation of its output.
    pub edges: Vec<Vec<f64>>,
    sizes: Vec<(usize, usize)>,
}

impl EdgeImportance {
    /// Measured on a batch of inputs.
    pub fn measure(network: &Network, params: &[f32], x: &[f32]) -> Result<Self> {
        let layers = Layers::new(network)?;
        let values = layers.values(params, x)?;
        let mut edges = Vec::new();
        let mut sizes = Vec::new();
        for layer in 0..layers.len() {
            let kan = layers.kan(layer);
            let weights = layers.weights(layer, params);
            let samples = values[layer].len() / kan.inputs;
            let mut own = Vec::with_capacity(kan.inputs * kan.outputs);
            for from in 0..kan.inputs {
                let x: Vec<f64> = (0..samples)
                    .map(|s| f64::from(values[layer][s * kan.inputs + from]))
                    .collect();
                for to in 0..kan.outputs {
                    own.push(deviation(&curve(kan, weights, from, to, &x)));
                }
            }
            edges.push(own);
            sizes.push((kan.inputs, kan.outputs));
        }
        Ok(EdgeImportance { edges, sizes })
    }

    /// Of one edge.
    pub fn of(&self, edge: Edge) -> f64 {
        self.edges[edge.layer][edge.from * self.sizes[edge.layer].1 + edge.to]
    }

    /// The largest of a layer.
    pub fn largest(&self, layer: usize) -> f64 {
        self.edges[layer].iter().fold(0.0, |m, &v| math::max(m, v))
    }

    /// The strongest edge into output `node` of a layer.
    pub fn incoming(&self, layer: usize, node: usize) -> f64 {
        let (inputs, outputs) = self.sizes[layer];
        (0..inputs).fold(0.0, |m, i| {
            math::max(m, self.edges[layer][i * outputs + node])
        })
    }

    /// The strongest edge out of input `node` of a layer.
    pub fn outgoing(&self, layer: usize, node: usize) -> f64 {
        let (_, outputs) = self.sizes[layer];
        self.edges[layer][node * outputs..(node + 1) * outputs]
            .iter()
            .fold(0.0, |m, &v| math::max(m, v))
    }
}

pub(super) fn deviation(x: &[f64]) -> f64 {
    let n = x.len().max(1) as f64;
    let mean = x.iter().sum::<f64>() / n;
    (x.iter().map(|x| (x - mean) * (x - mean)).sum::<f64>() / n).sqrt()
}
