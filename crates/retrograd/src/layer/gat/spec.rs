//! The layer in files.

use serde::{Deserialize, Serialize};

use super::{Gat, faults};
use crate::Result;
use crate::graph::ops::Linear;
use crate::layer::AnyLayer;
use crate::layer::spec::{At, Built, SmallGraph, Spec, one};
use crate::verify::mutants::Mutation;

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
}
