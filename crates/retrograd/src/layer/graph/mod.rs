//! What the layers that look at a graph share: what they are given, seen from their side.
//!
//! Such a layer reads a row per node, of which sparse ones are given by their non-zeros, and finds
//! the graph, its edges' weights and features, and its pairs of nodes in the batch.

#[cfg(feature = "gpu")]
pub(crate) mod gpu;

use std::any::Any;

use super::{Backward, Forward, Seen, TENSORS, TensorSpec, sized, transposed, uniform};
use crate::cuts::{Cut, cut};
use crate::graph::ops::{AGGREGATE_CUTS, LINEAR_CUTS, Linear, column_sums};
use crate::graph::pattern;
use crate::graph::{Graph, GraphBatch, NodeValues};
use crate::rng::Stream;
use crate::simd;
use crate::verify::builtin::graph::SizedGraph;
use crate::verify::sizes::Stretch;
use crate::{Kernels, Pass, Scalar};

/// What a layer may look at in forward and backward.
pub(crate) struct Context<'a, T> {
    /// The layer's tensors, by slot.
    pub params: [&'a [T]; TENSORS],
    pub batch: &'a GraphBatch<T>,
    pub pass: &'a Pass,
    /// Kernels with SIMD and threads instead of plain loops.
    pub fast: bool,
}

impl<'a, T: Scalar> Context<'a, T> {
    pub fn graph(&self) -> &'a Graph {
        self.batch.graph()
    }
}

/// The same in backward, with the places of the gradients.
pub(crate) struct Back<'a, T> {
    /// What forward saw.
    pub c: Context<'a, T>,
    /// The gradients of the layer's tensors, added to; none where they are not asked for.
    pub d_params: [Option<&'a mut [T]>; TENSORS],
    /// The gradient of the edge weights, added to.
    pub d_edge_weights: Option<&'a mut [T]>,
    /// The gradient of the edge features, added to.
    pub d_edge_features: Option<&'a mut [T]>,
    /// Memory for partial sums.
    pub partial: &'a mut Vec<T>,
}

impl<T: Scalar> Back<'_, T> {
    /// Whether the tensor's gradient is asked for.
    pub fn wants(&self, slot: usize) -> bool {
        self.d_params[slot].is_some()
    }

    /// The tensor's gradient, to add to, and memory for partial sums; none if it is not asked for.
    pub fn gradient(&mut self, slot: usize) -> Option<(&mut [T], &mut Vec<T>)> {
        let d = self.d_params[slot].as_deref_mut()?;
        Some((d, self.partial))
    }

    /// Adds the sums of the columns of d_y to a tensor's gradient.
    pub fn add_column_sums(&mut self, slot: usize, d_y: &[T]) {
        let fast = self.c.fast;
        if let Some((d, partial)) = self.gradient(slot) {
            column_sums(d_y, d, partial, fast);
        }
    }
}

fn rows<'a, T>(x: &'a [T], around: &super::Around<'a, T>) -> NodeValues<'a, T> {
    match around.sparse {
        Some(pattern) => NodeValues::Sparse(pattern, x),
        None => NodeValues::Dense(x),
    }
}

const NO_GRAPH: &str = "a layer of a graph network is built in one";

/// What forward of a graph layer works on: what is around it, x, y, and its named buffers.
pub(crate) type Going<'a, T, S> = (Context<'a, T>, NodeValues<'a, T>, &'a mut [T], &'a mut S);

impl<'a, T: Scalar> Forward<'a, T> {
    pub fn on_graph<S: Default + Any + Send>(self) -> Going<'a, T, S> {
        let c = Context {
            params: self.params,
            batch: self.around.batch.expect(NO_GRAPH),
            pass: self.pass,
            fast: self.pass.kernels == Kernels::Fast,
        };
        let x = rows(self.x, &self.around);
        (c, x, self.y, self.saved.own.of())
    }
}

/// What backward works on: what is around it, x, d_y, d_x and its named buffers.
pub(crate) struct Returning<'a, T, S> {
    pub b: Back<'a, T>,
    pub x: NodeValues<'a, T>,
    pub d_y: &'a [T],
    pub d_x: Option<&'a mut [T]>,
    pub saved: &'a mut S,
}

impl<'a, T: Scalar> Backward<'a, T> {
    pub fn on_graph<S: Default + Any + Send>(self) -> Returning<'a, T, S> {
        let c = Context {
            params: self.params,
            batch: self.around.batch.expect(NO_GRAPH),
            pass: self.pass,
            fast: self.pass.kernels == Kernels::Fast,
        };
        let [d_edge_weights, d_edge_features] = self.d_edges;
        let b = Back {
            c,
            d_params: self.d_params,
            d_edge_weights,
            d_edge_features,
            partial: &mut self.saved.scratch,
        };
        Returning {
            b,
            x: rows(self.x, &self.around),
            d_y: self.d_y,
            d_x: self.d_x,
            saved: self.saved.own.of(),
        }
    }
}

impl<'a, T: Scalar> Seen<'a, T> {
    /// The graph, and the named buffers that forward filled.
    pub fn on_graph<S: Any>(&self) -> (&'a Graph, &'a S) {
        let batch = self.around.batch.expect(NO_GRAPH);
        (batch.graph(), self.saved.own.kept())
    }
}

impl<'a, T> NodeValues<'a, T> {
    /// The values of dense rows.
    pub fn dense(self) -> &'a [T] {
        match self {
            NodeValues::Dense(x) => x,
            NodeValues::Sparse(..) => unreachable!("a batch is checked: dense rows for this layer"),
        }
    }
}

impl Linear {
    /// The weight, and the bias where there is one, under these names.
    pub fn tensors(&self, weight: &'static str, bias: &'static str) -> [Option<TensorSpec>; 2] {
        let (inputs, outputs) = (self.inputs, self.outputs);
        let weight = TensorSpec::new(weight, &[outputs, inputs]).stored(&[1, 0]);
        let bias = self.bias.map(|_| TensorSpec::new(bias, &[outputs]));
        [Some(weight), bias]
    }

    /// Uniform weights, drawn in the order that they are stored in.
    pub fn init_weight(&self, bound: f64, stream: &mut Stream) -> Vec<f32> {
        let (inputs, outputs) = (self.inputs, self.outputs);
        transposed(&uniform(inputs * outputs, bound, stream), inputs, outputs)
    }
}

/// PyTorch's bound of a map with that many inputs.
pub(crate) fn fan_in(inputs: usize) -> f64 {
    1.0 / (inputs.max(1) as f64).sqrt()
}

/// Glorot's bound.
pub(crate) fn glorot(a: usize, b: usize) -> f64 {
    (6.0 / (a + b).max(1) as f64).sqrt()
}

/// max(x, 0), in place.
pub(crate) fn relu<T: Scalar>(x: &mut [T]) {
    for x in x {
        *x = x.max(T::ZERO);
    }
}

/// The gradient d before a ReLU that gave h, in place.
pub(crate) fn relu_backward<T: Scalar>(h: &[T], d: &mut [T]) {
    for (d, &h) in d.iter_mut().zip(h) {
        if h <= T::ZERO {
            *d = T::ZERO;
        }
    }
}

/// d_h = d_y·Wᵀ where the ReLU that gave h is open.
pub(crate) fn through_relu<'s, T: Scalar>(
    second: &Linear,
    c: &Context<'_, T>,
    h: &[T],
    d_y: &[T],
    d_h: &'s mut Vec<T>,
) -> &'s [T] {
    let d = sized(d_h, h.len());
    second.backward_input(c, NodeValues::Dense(h), d_y, d, false);
    relu_backward(h, d);
    d
}

/// A layer of graph networks at the cuts of what all of them share: products, sums over rows and sums
/// over neighbours. `OUT` in the layer stands for its width.
pub(crate) fn stretch(name: &'static str, layer: &'static str) -> Stretch {
    stretch_at(name, layer, [], [])
}

/// The same, with cuts of the layer's own along the nodes and along the in-edges of one of them.
pub(crate) fn stretch_at<const N: usize, const H: usize>(
    name: &'static str,
    layer: &'static str,
    nodes: [Cut; N],
    in_edges: [Cut; H],
) -> Stretch {
    let product = |name| cut(LINEAR_CUTS, name);
    let sums = |name| cut(AGGREGATE_CUTS, name);
    // The longest are drawn for one of the layers: the routine is the same.
    let long = match name {
        "gcn" => vec![product("RUN").times(64), sums("FAR").over(4)],
        _ => Vec::new(),
    };
    let shared = [
        product("RUN"),
        product("SUM_ROWS"),
        product("PIECE").over(16 * 4),
        product("TERMS").over(4),
        // Two in-edges and the node itself.
        sums("PARALLEL").over(3),
        cut(pattern::CUTS, "PIECE"),
    ];
    let hubs = [sums("RUN"), sums("AHEAD"), cut(simd::CUTS, "LANES")];
    let make = move |n: &[usize]| {
        let layer = layer.replace("OUT", &n[3].to_string());
        let edges = if layer.contains("gine") {
            r#""edge_features":2,"#
        } else {
            ""
        };
        SizedGraph {
            spec: format!(r#"{{"features":{},{edges}"layers":[{layer}]}}"#, n[2]),
            nodes: n[0],
            hub: n[1],
        }
    };
    Stretch::graph(name, make)
        .axis("nodes", 12, [&shared[..], &long[..], &nodes[..]].concat())
        .axis("in-edges", 4, [&hubs[..], &in_edges[..]].concat())
        .axis(
            "features",
            4,
            [cut(simd::CUTS, "LANES"), product("COLUMNS")],
        )
        .axis("outputs", 4, [cut(simd::CUTS, "LANES"), product("COLUMNS")])
}
