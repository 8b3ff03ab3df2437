//! The layer in files.

use serde::{Deserialize, Serialize};

use super::GatV2;
use crate::Result;
use crate::cuts::cut;
use crate::graph::ops::Linear;
use crate::layer::gat::attention_sizes;
use crate::layer::spec::{At, Built, SmallGraph, Spec, one};
use crate::verify::builtin::graph::SizedGraph;
use crate::verify::sizes::Stretch;

/// Options of graph attention in its second form.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GatV2Spec {
    /// Features of a head.
    pub out: usize,
    /// Heads.
    #[serde(default = "one")]
    pub heads: usize,
    /// The probability of an attention weight to be dropped in training.
    #[serde(default)]
    pub dropout: f64,
}

impl Spec for GatV2Spec {
    fn build(&self, at: &At<'_>) -> Result<Built> {
        let inputs = at.nodes()?;
        let heads = at.positive("heads", self.heads)?;
        let width = heads.saturating_mul(at.positive("out", self.out)?);
        let layer = GatV2 {
            source: Linear::new(0, inputs, width),
            target: Linear::new(2, inputs, width),
            heads,
            dropout: at.probability("dropout", self.dropout)?,
            index: at.index as u64,
        };
        Built::new(layer, vec![width])
    }

    fn small_graphs() -> &'static [SmallGraph] {
        &[(
            "gatv2",
            r#"{"features": 4, "layers": [{"kind": "gatv2", "out": 3, "heads": 2},
            {"kind": "tanh"}, {"kind": "dense", "out": 2}]}"#,
        )]
    }

    fn sizes() -> Vec<Stretch> {
        let own = |name| cut(super::CUTS, name);
        let make = |n: &[usize]| SizedGraph {
            spec: format!(
                r#"{{"features":3,"layers":[{{"kind":"gatv2","out":{},"heads":2}}]}}"#,
                n[1]
            ),
            nodes: n[0],
            hub: 4,
        };
        // Three slots a node, two heads of two features; a row holds both heads.
        let wide = Stretch::graph("gatv2, wide", make)
            .axis("nodes", 8, [own("PARALLEL").over(3 * 4)])
            .axis("outputs", 2, [own("BLOCK").over(2)]);
        let mut all = attention_sizes("gatv2");
        all.push(wide);
        all
    }
}
