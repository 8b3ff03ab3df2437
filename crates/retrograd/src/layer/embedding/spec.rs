//! The layer in files.

use serde::{Deserialize, Serialize};

use super::Embedding;
use crate::Result;
use crate::layer::spec::{At, Built, SmallGraph, Spec};

/// Options of an embedding.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EmbeddingSpec {
    /// How many ids there are.
    pub vocabulary: usize,
    /// Features of the output.
    pub out: usize,
}

impl Spec for EmbeddingSpec {
    fn build(&self, at: &At<'_>) -> Result<Built> {
        at.nodes()?;
        if at.index > 0 {
            return Err(at.invalid("", "a later layer", "the first layer"));
        }
        let layer = Embedding {
            vocabulary: at.positive("vocabulary", self.vocabulary)?,
            out: at.positive("out", self.out)?,
        };
        Built::new(layer, vec![self.out])
    }

    fn small_graphs() -> &'static [SmallGraph] {
        &[(
            "embedding",
            r#"{"layers": [{"kind": "embedding", "vocabulary": 6, "out": 4}, {"kind": "tanh"},
            {"kind": "message_passing", "out": 3}]}"#,
        )]
    }
}
