//! The layer in files.

use serde::{Deserialize, Serialize};

use super::Gine;
use crate::cuts::cut;
use crate::layer::graph;
use crate::layer::spec::{At, Built, SmallGraph, Spec};
use crate::verify::sizes::Stretch;
use crate::{Error, Result};

/// Options of GIN with edge features.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GineSpec {
    /// Features of the output.
    pub out: usize,
}

impl Spec for GineSpec {
    fn build(&self, at: &At<'_>) -> Result<Built> {
        let inputs = at.nodes()?;
        let out = at.positive("out", self.out)?;
        let edge_features = at.edge_features.unwrap_or(0);
        if edge_features == 0 {
            return Err(Error::invalid(
                "edge_features",
                0,
                format!("at least 1, which {} uses", at.place("")),
            ));
        }
        Built::new(Gine::new(inputs, out, edge_features), vec![out])
    }

    fn small_graphs() -> &'static [SmallGraph] {
        &[(
            "gine",
            r#"{"features": 3, "edge_features": 2, "layers": [{"kind": "gine", "out": 4},
            {"kind": "tanh"}, {"kind": "dense", "out": 2}]}"#,
        )]
    }

    fn sizes() -> Vec<Stretch> {
        let own = |name| cut(super::CUTS, name);
        let (nodes, hub) = ([own("PIECE"), own("PARALLEL").over(12)], [own("PIECE")]);
        vec![graph::stretch_at(
            "gine",
            r#"{"kind":"gine","out":OUT}"#,
            nodes,
            hub,
        )]
    }
}
