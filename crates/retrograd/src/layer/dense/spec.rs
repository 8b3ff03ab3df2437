//! The layer in files.

use serde::{Deserialize, Serialize};

use super::Dense;
use crate::layer::spec::{At, Built, Small, Spec, yes};
use crate::{Loss, Result};

/// Options of a dense layer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DenseSpec {
    /// Outputs.
    pub out: usize,
    /// Whether a bias is added.
    #[serde(default = "yes")]
    pub bias: bool,
}

impl Spec for DenseSpec {
    fn build(&self, at: &At<'_>) -> Result<Built> {
        let layer = Dense {
            inputs: at.last(),
            outputs: at.positive("out", self.out)?,
            bias: self.bias,
            rows: at.shape.iter().product::<usize>() / at.last(),
            by_input: at.is_on_graph(),
        };
        Built::new(layer, at.with_last(self.out))
    }

    fn small() -> &'static [Small] {
        SMALL
    }
}

const SMALL: &[Small] = &[(
    "dense",
    &[4],
    r#"[{"kind":"dense","out":5},{"kind":"tanh"},{"kind":"dense","out":3}]"#,
    6,
    Loss::CrossEntropy,
)];
