//! The layer in files.

use serde::{Deserialize, Serialize};

use super::SelfAttention;
use crate::Result;
use crate::layer::spec::{At, Built, SmallGraph, Spec, one};

/// Options of attention among all nodes of a graph.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SelfAttentionSpec {
    /// Heads.
    #[serde(default = "one")]
    pub heads: usize,
}

impl Spec for SelfAttentionSpec {
    fn build(&self, at: &At<'_>) -> Result<Built> {
        let width = at.nodes()?;
        let heads = at.positive("heads", self.heads)?;
        if !width.is_multiple_of(heads) {
            let needed = format!("a divisor of the width {width}");
            return Err(at.invalid("heads", heads, needed));
        }
        Built::new(SelfAttention::new(width, heads), vec![width])
    }

    fn small_graphs() -> &'static [SmallGraph] {
        &[(
            "self_attention",
            r#"{"features": 4, "layers": [{"kind": "dense", "out": 4}, {"kind": "tanh"},
            {"kind": "self_attention", "heads": 2}, {"kind": "dense", "out": 2}]}"#,
        )]
    }
}
