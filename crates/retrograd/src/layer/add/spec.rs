//! The layer in files.

use serde::{Deserialize, Serialize};

use super::Add;
use crate::cuts::cut;
use crate::layer::pieces;
use crate::layer::spec::{At, Built, Reach, Small, Spec, View};
use crate::verify::sizes::{SizedNetwork, Stretch};
use crate::{Loss, Result};

/// Options of a sum.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AddSpec {
    /// The earlier layer, counted from 0; −1 for the network's input.
    pub with: i64,
}

impl Spec for AddSpec {
    fn build(&self, at: &At<'_>) -> Result<Built> {
        let (value, other) = at.earlier(self.with)?;
        if at.shape != other {
            let got = format!("{other:?} beside {:?}", at.shape);
            return Err(at.invalid("with", got, "equal shapes"));
        }
        Built::skip(Add, value, at.shape.to_vec())
    }

    fn reach(&self, _: View) -> Reach {
        Reach::With(self.with)
    }

    fn small() -> &'static [Small] {
        SMALL
    }

    fn sizes() -> Vec<Stretch> {
        sizes()
    }
}

const SMALL: &[Small] = &[(
    "add",
    &[2, 4, 5],
    r#"[{"kind":"conv2d","out":2,"kernel":3,"padding":1},{"kind":"tanh"},{"kind":"add","with":0},{"kind":"conv2d","out":3,"kernel":2}]"#,
    3,
    Loss::Mse,
)];

/// Gradients of a value with two readers are added up in pieces.
fn sizes() -> Vec<Stretch> {
    let piece = cut(pieces::CUTS, "PIECE");
    let make = |n: &[usize]| SizedNetwork {
        input: vec![n[0]],
        layers: r#"[{"kind":"leaky_relu"},{"kind":"add","with":-1}]"#.to_string(),
        samples: 1,
        loss: Loss::Mse,
    };
    vec![Stretch::network("add", make).axis("elements", 7, [piece, piece.times(4)])]
}
