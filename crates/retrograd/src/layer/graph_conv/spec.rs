//! The layers in files.

use serde::{Deserialize, Serialize};

use super::{Convolution, Propagation, faults};
use crate::Result;
use crate::graph::ops::Linear;
use crate::layer::AnyLayer;
use crate::layer::graph;
use crate::layer::spec::{At, Built, SmallGraph, Spec};
use crate::verify::mutants::Mutation;
use crate::verify::sizes::Stretch;

/// Options of Kipf and Welling's convolution.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GcnSpec {
    /// Features of the output.
    pub out: usize,
}

/// Options of GraphSAGE with the mean of the in-neighbours.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SageSpec {
    /// Features of the output.
    pub out: usize,
}

/// Options of a mean over self and in-neighbours.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MessagePassingSpec {
    /// Features of the output.
    pub out: usize,
}

/// Options of a graph isomorphism layer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GinSpec {
    /// Features of the output.
    pub out: usize,
}

fn built(at: &At<'_>, out: usize, propagation: Propagation) -> Result<Built> {
    let inputs = at.nodes()?;
    let out = at.positive("out", out)?;
    let first = usize::from(propagation == Propagation::Sum);
    let linear = Linear::new(first, inputs, out);
    let layer = Convolution {
        propagation,
        linear,
        root: (propagation == Propagation::MeanOfNeighbours).then_some(Linear {
            weight: 2,
            bias: None,
            ..linear
        }),
        second: (propagation == Propagation::Sum).then(|| Linear::new(3, out, out)),
    };
    Built::new(layer, vec![out])
}

impl Spec for GcnSpec {
    fn build(&self, at: &At<'_>) -> Result<Built> {
        built(at, self.out, Propagation::Normalised)
    }

    fn faults(&self, _: &dyn AnyLayer) -> Vec<Mutation> {
        faults::faults(Propagation::Normalised)
    }

    fn small_graphs() -> &'static [SmallGraph] {
        &[
            (
                "gcn",
                r#"{"features": 4, "layers": [{"kind": "gcn", "out": 3}, {"kind": "tanh"},
                {"kind": "gcn", "out": 2}]}"#,
            ),
            (
                "gcn with edge weights",
                r#"{"features": 4, "edge_weight": true, "layers": [{"kind": "gcn", "out": 3},
                {"kind": "tanh"}, {"kind": "gcn", "out": 2}]}"#,
            ),
        ]
    }

    fn sizes() -> Vec<Stretch> {
        vec![graph::stretch("gcn", r#"{"kind":"gcn","out":OUT}"#)]
    }
}

impl Spec for SageSpec {
    fn build(&self, at: &At<'_>) -> Result<Built> {
        built(at, self.out, Propagation::MeanOfNeighbours)
    }

    fn faults(&self, _: &dyn AnyLayer) -> Vec<Mutation> {
        faults::faults(Propagation::MeanOfNeighbours)
    }

    fn small_graphs() -> &'static [SmallGraph] {
        &[(
            "sage",
            r#"{"features": 4, "layers": [{"kind": "sage", "out": 5}, {"kind": "tanh"},
            {"kind": "sage", "out": 2}]}"#,
        )]
    }

    fn sizes() -> Vec<Stretch> {
        vec![graph::stretch("sage", r#"{"kind":"sage","out":OUT}"#)]
    }
}

impl Spec for MessagePassingSpec {
    fn build(&self, at: &At<'_>) -> Result<Built> {
        built(at, self.out, Propagation::MeanWithSelf)
    }

    fn faults(&self, _: &dyn AnyLayer) -> Vec<Mutation> {
        faults::faults(Propagation::MeanWithSelf)
    }

    fn small_graphs() -> &'static [SmallGraph] {
        &[(
            "message_passing",
            r#"{"features": 4, "layers": [{"kind": "message_passing", "out": 5}, {"kind": "tanh"},
            {"kind": "message_passing", "out": 3}]}"#,
        )]
    }

    fn sizes() -> Vec<Stretch> {
        vec![graph::stretch(
            "message_passing",
            r#"{"kind":"message_passing","out":OUT}"#,
        )]
    }
}

impl Spec for GinSpec {
    fn build(&self, at: &At<'_>) -> Result<Built> {
        built(at, self.out, Propagation::Sum)
    }

    fn faults(&self, _: &dyn AnyLayer) -> Vec<Mutation> {
        faults::faults(Propagation::Sum)
    }

    fn small_graphs() -> &'static [SmallGraph] {
        &[(
            "gin",
            r#"{"features": 3, "layers": [{"kind": "gin", "out": 5}, {"kind": "tanh"},
            {"kind": "dense", "out": 2}]}"#,
        )]
    }

    fn sizes() -> Vec<Stretch> {
        vec![graph::stretch("gin", r#"{"kind":"gin","out":OUT}"#)]
    }
}
