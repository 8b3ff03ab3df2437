//! The layer in files.

use serde::{Deserialize, Serialize};

use super::SelfAttention;
use crate::Result;
use crate::cuts::cut;
use crate::layer::spec::{At, Built, SmallGraph, Spec, one};
use crate::simd;
use crate::verify::builtin::graph::SizedGraph;
use crate::verify::sizes::Stretch;

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

    fn sizes() -> Vec<Stretch> {
        // Scores of every pair of nodes.
        let pairs = cut(super::CUTS, "PARALLEL").over(64);
        let make = |n: &[usize]| SizedGraph {
            spec: format!(
                r#"{{"features":{0},"layers":[{{"kind":"self_attention","heads":{1}}}]}}"#,
                2 * n[1],
                n[1]
            ),
            nodes: n[0],
            hub: 3,
        };
        let heads = Stretch::graph("self_attention", make)
            .axis("nodes", 6, [pairs])
            .axis("heads", 2, [cut(simd::CUTS, "LANES").over(2)]);
        vec![heads]
    }
}
