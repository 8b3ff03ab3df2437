//! The entry of networks over a directed acyclic graph of single neurons: what the verifier checks.

use super::DagNN;
use crate::family::Family;
use crate::verify::builtin::bundled;
use crate::verify::{BuiltIn, Check, against};

/// Networks over a directed acyclic graph of single neurons.
pub const FAMILY: Family = Family {
    checks: &[Check::of_bundles(against::<DagNN>)],
    built_in,
    ..Family::new("dag")
};

fn built_in() -> Vec<BuiltIn> {
    vec![
        bundled!(DagNN, 6, "dag: tanh", "dag_tanh"),
        bundled!(DagNN, 6, "dag: leaky relu", "dag_leaky"),
    ]
}
