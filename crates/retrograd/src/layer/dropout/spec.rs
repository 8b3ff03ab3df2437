//! The layer in files.

use serde::{Deserialize, Serialize};

use super::Dropout;
use crate::cuts::cut;
use crate::layer::AnyLayer;
use crate::layer::spec::{At, Built, Reach, Small, Spec, View};
use crate::verify::mutants::{FaultKind, Mutation, Transform};
use crate::verify::sizes::{SizedNetwork, Stretch};
use crate::{Loss, Result};

/// Options of dropout.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DropoutSpec {
    /// The probability of an element to be dropped.
    pub p: f64,
}

impl Spec for DropoutSpec {
    fn build(&self, at: &At<'_>) -> Result<Built> {
        let (p, index) = (at.probability("p", self.p)?, at.index as u64);
        Built::new(Dropout { p, index }, at.shape.to_vec())
    }

    fn reach(&self, before: View) -> Reach {
        Reach::Sees(before)
    }

    fn faults(&self, _: &dyn AnyLayer) -> Vec<Mutation> {
        let unscaled = FaultKind::DX(Transform::Scale(1.0 - self.p));
        vec![FaultKind::NoDerivative.into(), unscaled.into()]
    }

    fn small() -> &'static [Small] {
        SMALL
    }

    fn sizes() -> Vec<Stretch> {
        sizes()
    }
}

const SMALL: &[Small] = &[(
    "dropout",
    &[4],
    r#"[{"kind":"dense","out":8},{"kind":"dropout","p":0.4},{"kind":"dense","out":3}]"#,
    7,
    Loss::Mse,
)];

fn sizes() -> Vec<Stretch> {
    let own = |name| cut(super::CUTS, name);
    let make = |n: &[usize]| SizedNetwork {
        input: vec![n[0]],
        layers: r#"[{"kind":"dropout","p":0.3}]"#.to_string(),
        samples: 1,
        loss: Loss::Mse,
    };
    let cuts = [
        own("PIECE"),
        own("PARALLEL"),
        own("LONG"),
        own("LONG").times(4),
    ];
    vec![Stretch::network("dropout", make).axis("elements", 7, cuts)]
}
