//! The layer in files.

use serde::{Deserialize, Serialize};

use super::{Gat, faults};
use crate::Result;
use crate::cuts::cut;
use crate::graph::ops::Linear;
use crate::layer::AnyLayer;
use crate::layer::graph;
use crate::layer::spec::{At, Built, SmallGraph, Spec, one};
use crate::verify::builtin::graph::SizedGraph;
use crate::verify::mutants::Mutation;
use crate::verify::sizes::Stretch;

/// Options of graph attention.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GatSpec {
    /// Features of a head.
    pub out: usize,
    /// Heads.
    #[serde(default = "one")]
    pub heads: usize,
    /// The probability of an attention weight to be dropped in training.
    #[serde(default)]
    pub dropout: f64,
}

impl Spec for GatSpec {
    fn build(&self, at: &At<'_>) -> Result<Built> {
        let inputs = at.nodes()?;
        let heads = at.positive("heads", self.heads)?;
        let width = heads.saturating_mul(at.positive("out", self.out)?);
        let layer = Gat {
            linear: Linear {
                bias: None,
                ..Linear::new(0, inputs, width)
            },
            heads,
            dropout: at.probability("dropout", self.dropout)?,
            index: at.index as u64,
        };
        Built::new(layer, vec![width])
    }

    fn faults(&self, _: &dyn AnyLayer) -> Vec<Mutation> {
        faults::faults()
    }

    fn small_graphs() -> &'static [SmallGraph] {
        &[(
            "gat",
            r#"{"features": 4, "layers": [{"kind": "gat", "out": 3, "heads": 2}, {"kind": "tanh"},
            {"kind": "dense", "out": 2}]}"#,
        )]
    }

    fn sizes() -> Vec<Stretch> {
        attention_sizes("gat")
    }
}

/// Attention of either form: nodes, in-edges of one of them, and heads.
pub(crate) fn attention_sizes(kind: &'static str) -> Vec<Stretch> {
    let own = |name| cut(super::CUTS, name);
    let softmax = |name| cut(super::softmax::CUTS, name);
    let nodes = [
        own("PIECE"),
        own("PARALLEL").over(4),
        // Three scores a node.
        softmax("PARALLEL").over(3),
    ];
    let make = move |n: &[usize]| SizedGraph {
        spec: format!(
            r#"{{"features":3,"layers":[{{"kind":"{kind}","out":1,"heads":{}}}]}}"#,
            n[0]
        ),
        nodes: 20,
        hub: n[1],
    };
    let heads = Stretch::graph(kind, make)
        .axis("heads", 2, [softmax("HEADS")])
        .axis("in-edges", 6, [softmax("HEADS")]);
    let layer = match kind {
        "gat" => r#"{"kind":"gat","out":OUT}"#,
        _ => r#"{"kind":"gatv2","out":OUT}"#,
    };
    vec![graph::stretch_at(kind, layer, nodes, [own("PIECE")]), heads]
}
