//! The layer in files.

use serde::{Deserialize, Serialize};

use super::Concat;
use crate::layer::spec::{At, Built, Reach, Small, Spec, View};
use crate::{Loss, Result};

/// Options of joined channels.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ConcatSpec {
    /// The earlier layer, counted from 0; −1 for the network's input.
    pub with: i64,
}

impl Spec for ConcatSpec {
    fn build(&self, at: &At<'_>) -> Result<Built> {
        let (value, other) = at.earlier(self.with)?;
        if at.shape.len() != other.len() || at.shape[1..] != other[1..] {
            let got = format!("{other:?} beside {:?}", at.shape);
            return Err(at.invalid("with", got, "equal sizes after the channels"));
        }
        let mut joined = at.shape.to_vec();
        joined[0] += other[0];
        let lens = [at.shape, other].map(|shape| shape.iter().product());
        Built::skip(Concat { lens }, value, joined)
    }

    fn reach(&self, _: View) -> Reach {
        Reach::With(self.with)
    }

    fn small() -> &'static [Small] {
        SMALL
    }
}

const SMALL: &[Small] = &[(
    "concat",
    &[2, 4, 5],
    r#"[{"kind":"conv2d","out":3,"kernel":3,"padding":1},{"kind":"tanh"},{"kind":"concat","with":-1},{"kind":"conv2d","out":2,"kernel":2}]"#,
    3,
    Loss::Mse,
)];
