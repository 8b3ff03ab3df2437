//! The layer in files.

use serde::{Deserialize, Serialize};

use super::Normalize;
use crate::layer::AnyLayer;
use crate::layer::spec::{At, Built, Small, Spec};
use crate::verify::mutants::{FaultKind, Mutation};
use crate::{Loss, Result};

/// Fixed statistics have no options; they are buffers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NormalizeSpec {}

impl Spec for NormalizeSpec {
    fn build(&self, at: &At<'_>) -> Result<Built> {
        if at.is_on_graph() {
            let needed = "a network on tables, whose data it takes its statistics from";
            return Err(at.invalid("", "a graph network", needed));
        }
        Built::new(Normalize::new(at.last()), at.shape.to_vec())
    }

    fn faults(&self, _: &dyn AnyLayer) -> Vec<Mutation> {
        vec![FaultKind::NoDerivative.into()]
    }

    fn small() -> &'static [Small] {
        SMALL
    }
}

const SMALL: &[Small] = &[(
    "normalize",
    &[4],
    r#"[{"kind":"normalize"},{"kind":"dense","out":5},{"kind":"tanh"},{"kind":"dense","out":2}]"#,
    6,
    Loss::Mse,
)];
