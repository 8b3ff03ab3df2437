//! The activations in files.

use serde::{Deserialize, Serialize};

use super::Activation;
use crate::cuts::cut;
use crate::layer::AnyLayer;
use crate::layer::spec::{At, Built, Reach, Small, Spec, View};
use crate::simd;
use crate::verify::mutants::Mutation;
use crate::verify::sizes::{SizedNetwork, Stretch};
use crate::{Loss, Result};

fn leaky_slope() -> f64 {
    0.01
}

fn elu_alpha() -> f64 {
    1.0
}

/// The small model of one of the activations.
fn small(kind: &str) -> &'static [Small] {
    let at = SMALL.iter().position(|(name, ..)| *name == kind);
    at.map_or(&[], |at| &SMALL[at..=at])
}

/// One of them alone, on rows of elements.
fn stretch(kind: &'static str) -> Stretch {
    let make = move |n: &[usize]| SizedNetwork {
        input: vec![n[0]],
        layers: format!(r#"[{{"kind":"{kind}"}}]"#),
        samples: 1,
        loss: Loss::Mse,
    };
    let own = super::cpu::CUTS;
    let cuts = [
        cut(simd::CUTS, "LANES"),
        cut(own, "CHUNK"),
        cut(own, "PARALLEL"),
    ];
    Stretch::network(kind, make).axis("elements", 7, cuts)
}

/// What is the same for all of them.
macro_rules! activation {
    ($spec:ident, $kind:literal, |$own:ident, $at:ident| $activation:expr) => {
        impl Spec for $spec {
            fn build(&self, $at: &At<'_>) -> Result<Built> {
                let $own = self;
                Built::new($activation, $at.shape.to_vec())
            }

            fn reach(&self, before: View) -> Reach {
                Reach::Sees(before)
            }

            fn faults(&self, layer: &dyn AnyLayer) -> Vec<Mutation> {
                layer
                    .downcast()
                    .map_or_else(Vec::new, super::faults::faults)
            }

            fn small() -> &'static [Small] {
                small($kind)
            }

            fn sizes() -> Vec<Stretch> {
                vec![stretch($kind)]
            }
        }
    };
}

/// max(x, 0) has no options.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReluSpec {}
activation!(ReluSpec, "relu", |_own, at| Activation::Relu);

/// Options of a leaky ReLU.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LeakyReluSpec {
    /// The slope below 0.
    #[serde(default = "leaky_slope")]
    pub slope: f64,
}
activation!(LeakyReluSpec, "leaky_relu", |own, at| {
    Activation::LeakyRelu {
        slope: at.finite("slope", own.slope)?,
    }
});

/// Options of ELU.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EluSpec {
    /// Minus the limit to the left; PyTorch's default is 1.
    #[serde(default = "elu_alpha")]
    pub alpha: f64,
}
activation!(EluSpec, "elu", |own, at| Activation::Elu {
    alpha: at.finite("alpha", own.alpha)?,
});

/// x·σ(x) has no options.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SiluSpec {}
activation!(SiluSpec, "silu", |_own, at| Activation::Silu);

/// x·Φ(x) has no options.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GeluSpec {}
activation!(GeluSpec, "gelu", |_own, at| Activation::Gelu);

/// The hyperbolic tangent has no options.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TanhSpec {}
activation!(TanhSpec, "tanh", |_own, at| Activation::Tanh);

/// The logistic function has no options.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SigmoidSpec {}
activation!(SigmoidSpec, "sigmoid", |_own, at| Activation::Sigmoid);

const SMALL: &[Small] = &[
    (
        "relu",
        &[4],
        r#"[{"kind":"dense","out":6},{"kind":"relu"},{"kind":"dense","out":3}]"#,
        7,
        Loss::Mse,
    ),
    (
        "leaky_relu",
        &[4],
        r#"[{"kind":"dense","out":6},{"kind":"leaky_relu","slope":0.1},{"kind":"dense","out":3}]"#,
        7,
        Loss::L1,
    ),
    (
        "elu",
        &[4],
        r#"[{"kind":"dense","out":6},{"kind":"elu","alpha":0.7},{"kind":"dense","out":3}]"#,
        7,
        Loss::Mse,
    ),
    (
        "silu",
        &[4],
        r#"[{"kind":"dense","out":6},{"kind":"silu"},{"kind":"dense","out":3}]"#,
        7,
        Loss::Huber,
    ),
    (
        "gelu",
        &[4],
        r#"[{"kind":"dense","out":6},{"kind":"gelu"},{"kind":"dense","out":3,"bias":false}]"#,
        7,
        Loss::CrossEntropy,
    ),
    (
        "tanh",
        &[4],
        r#"[{"kind":"dense","out":6},{"kind":"tanh"},{"kind":"dense","out":3}]"#,
        7,
        Loss::SumSquares,
    ),
    (
        "sigmoid",
        &[4],
        r#"[{"kind":"dense","out":6},{"kind":"sigmoid"},{"kind":"dense","out":3}]"#,
        7,
        Loss::BceLogits,
    ),
];
