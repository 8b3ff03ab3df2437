//! The layer in files.

use serde::{Deserialize, Serialize};

use super::Flatten;
use crate::layer::spec::{At, Built, Small, Spec};
use crate::{Loss, Result};

/// Flattening has no options.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FlattenSpec {}

impl Spec for FlattenSpec {
    fn build(&self, at: &At<'_>) -> Result<Built> {
        Built::new(Flatten, vec![at.shape.iter().product()])
    }

    fn small() -> &'static [Small] {
        SMALL
    }
}

const SMALL: &[Small] = &[(
    "flatten",
    &[2, 3, 4],
    r#"[{"kind":"conv2d","out":3,"kernel":2},{"kind":"flatten"},{"kind":"dense","out":3}]"#,
    4,
    Loss::Mse,
)];
