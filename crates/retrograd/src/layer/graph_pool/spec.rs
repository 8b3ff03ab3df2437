//! The layers in files.

use serde::{Deserialize, Serialize};

use super::{GraphPool, PoolKind, faults};
use crate::Result;
use crate::cuts::cut;
use crate::layer::AnyLayer;
use crate::layer::graph;
use crate::layer::spec::{At, Built, SmallGraph, Spec};
use crate::plan::RowsOf;
use crate::verify::mutants::Mutation;
use crate::verify::sizes::Stretch;

/// The mean of a graph's nodes has no options.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MeanPoolSpec {}

/// The sum of a graph's nodes has no options.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SumPoolSpec {}

/// The largest of a graph's nodes has no options.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MaxPoolSpec {}

fn built(at: &At<'_>, kind: PoolKind) -> Result<Built> {
    let width = at.nodes()?;
    Built::per(RowsOf::Graphs, GraphPool { kind, width }, vec![width])
}

impl Spec for MeanPoolSpec {
    fn build(&self, at: &At<'_>) -> Result<Built> {
        built(at, PoolKind::Mean)
    }

    fn small_graphs() -> &'static [SmallGraph] {
        &[(
            "mean_pool",
            r#"{"features": 3, "layers": [{"kind": "dense", "out": 4}, {"kind": "tanh"},
            {"kind": "mean_pool"}, {"kind": "dense", "out": 2}]}"#,
        )]
    }

    fn sizes() -> Vec<Stretch> {
        let cuts = [cut(super::CUTS, "PARALLEL").over(4)];
        let layers = r#"{"kind":"dense","out":OUT},{"kind":"mean_pool"}"#;
        vec![graph::stretch_at("mean_pool", layers, cuts, [])]
    }
}

impl Spec for SumPoolSpec {
    fn build(&self, at: &At<'_>) -> Result<Built> {
        built(at, PoolKind::Sum)
    }

    fn small_graphs() -> &'static [SmallGraph] {
        &[(
            "sum_pool",
            r#"{"features": 3, "layers": [{"kind": "dense", "out": 4}, {"kind": "tanh"},
            {"kind": "sum_pool"}, {"kind": "dense", "out": 2}]}"#,
        )]
    }

    fn sizes() -> Vec<Stretch> {
        let cuts = [cut(super::CUTS, "PARALLEL").over(4)];
        let layers = r#"{"kind":"dense","out":OUT},{"kind":"sum_pool"}"#;
        vec![graph::stretch_at("sum_pool", layers, cuts, [])]
    }
}

impl Spec for MaxPoolSpec {
    fn build(&self, at: &At<'_>) -> Result<Built> {
        built(at, PoolKind::Max)
    }

    fn faults(&self, _: &dyn AnyLayer) -> Vec<Mutation> {
        faults::faults()
    }

    fn small_graphs() -> &'static [SmallGraph] {
        &[(
            "max_pool",
            r#"{"features": 3, "layers": [{"kind": "dense", "out": 4}, {"kind": "tanh"},
            {"kind": "max_pool"}, {"kind": "dense", "out": 2}]}"#,
        )]
    }

    fn sizes() -> Vec<Stretch> {
        let cuts = [cut(super::CUTS, "PARALLEL").over(4)];
        let layers = r#"{"kind":"dense","out":OUT},{"kind":"max_pool"}"#;
        vec![graph::stretch_at("max_pool", layers, cuts, [])]
    }
}
