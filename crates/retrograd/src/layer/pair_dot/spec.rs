//! The layer in files.

use serde::{Deserialize, Serialize};

use super::PairDot;
use crate::Result;
use crate::layer::spec::{At, Built, SmallGraph, Spec};
use crate::plan::RowsOf;

/// Scores of pairs have no options.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PairDotSpec {}

impl Spec for PairDotSpec {
    fn build(&self, at: &At<'_>) -> Result<Built> {
        let width = at.nodes()?;
        Built::per(RowsOf::Pairs, PairDot { width }, vec![1])
    }

    fn small_graphs() -> &'static [SmallGraph] {
        &[(
            "pair_dot",
            r#"{"features": 4, "layers": [{"kind": "dense", "out": 5}, {"kind": "tanh"},
            {"kind": "pair_dot"}]}"#,
        )]
    }
}
