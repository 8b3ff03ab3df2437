//! The layers in files.

use serde::{Deserialize, Serialize};

use super::{Norm, NormKind};
use crate::cuts::cut;
use crate::layer::AnyLayer;
use crate::layer::spec::{At, Built, Reach, Small, Spec, View};
use crate::simd;
use crate::verify::mutants::Mutation;
use crate::verify::sizes::{SizedNetwork, Stretch};
use crate::{Loss, Result};

/// Layer norm has no options.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LayerNormSpec {}

impl Spec for LayerNormSpec {
    fn build(&self, at: &At<'_>) -> Result<Built> {
        let norm = Norm::new(NormKind::Layer, at.last(), 1);
        Built::new(norm, at.shape.to_vec())
    }

    fn faults(&self, _: &dyn AnyLayer) -> Vec<Mutation> {
        super::faults::faults()
    }

    fn small() -> &'static [Small] {
        LAYER_SMALL
    }

    fn sizes() -> Vec<Stretch> {
        vec![layer_stretch()]
    }
}

/// Options of group norm.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GroupNormSpec {
    /// Groups of channels.
    pub groups: usize,
}

impl Spec for GroupNormSpec {
    fn build(&self, at: &At<'_>) -> Result<Built> {
        let (groups, channels) = (at.positive("groups", self.groups)?, at.shape[0]);
        if groups > channels || !channels.is_multiple_of(groups) {
            let needed = format!("a divisor of {channels} channels");
            return Err(at.invalid("groups", groups, needed));
        }
        let plane = at.shape[1..].iter().product();
        let norm = Norm::new(NormKind::Group(groups), channels, plane);
        Built::new(norm, at.shape.to_vec())
    }

    fn faults(&self, _: &dyn AnyLayer) -> Vec<Mutation> {
        super::faults::faults()
    }

    fn small() -> &'static [Small] {
        GROUP_SMALL
    }

    fn sizes() -> Vec<Stretch> {
        vec![planes_stretch(
            "group_norm",
            r#"{"kind":"group_norm","groups":2}"#,
        )]
    }
}

/// Batch norm has no options.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BatchNorm2dSpec {}

impl Spec for BatchNorm2dSpec {
    fn build(&self, at: &At<'_>) -> Result<Built> {
        let [channels, height, width] = at.image()?;
        let norm = Norm::new(NormKind::Batch, channels, height * width);
        Built::new(norm, at.shape.to_vec())
    }

    fn reach(&self, before: View) -> Reach {
        Reach::Sees(before)
    }

    fn faults(&self, _: &dyn AnyLayer) -> Vec<Mutation> {
        super::faults::faults()
    }

    fn small() -> &'static [Small] {
        BATCH_SMALL
    }

    fn sizes() -> Vec<Stretch> {
        vec![planes_stretch("batch_norm2d", r#"{"kind":"batch_norm2d"}"#)]
    }
}

const LAYER_SMALL: &[Small] = &[(
    "layer_norm",
    &[5],
    r#"[{"kind":"dense","out":6},{"kind":"layer_norm"},{"kind":"dense","out":3}]"#,
    7,
    Loss::CrossEntropy,
)];

const GROUP_SMALL: &[Small] = &[(
    "group_norm",
    &[2, 4, 5],
    r#"[{"kind":"conv2d","out":4,"kernel":2},{"kind":"group_norm","groups":2},{"kind":"flatten"},{"kind":"dense","out":2}]"#,
    4,
    Loss::Mse,
)];

const BATCH_SMALL: &[Small] = &[(
    "batch_norm2d",
    &[2, 4, 5],
    r#"[{"kind":"conv2d","out":3,"kernel":2,"bias":false},{"kind":"batch_norm2d"},{"kind":"silu"},{"kind":"flatten"},{"kind":"dense","out":2}]"#,
    5,
    Loss::Mse,
)];

/// Rows of a layer norm, and their width.
fn layer_stretch() -> Stretch {
    let make = |n: &[usize]| SizedNetwork {
        input: vec![n[1]],
        layers: r#"[{"kind":"layer_norm"}]"#.to_string(),
        samples: n[0],
        loss: Loss::Mse,
    };
    let lanes = cut(simd::CUTS, "LANES");
    let (rows, runs) = (super::rows::CUTS, super::cpu::CUTS);
    Stretch::network("layer_norm", make)
        .axis(
            "rows",
            5,
            [cut(rows, "ROWS"), cut(runs, "PARALLEL").over(8)],
        )
        .axis("width", 8, [lanes, cut(runs, "RUN")])
}

/// Planes of norms over images.
fn planes_stretch(name: &'static str, layer: &'static str) -> Stretch {
    let make = move |n: &[usize]| SizedNetwork {
        input: vec![4, n[1], n[2]],
        layers: format!("[{layer}]"),
        samples: n[0],
        loss: Loss::Mse,
    };
    let lanes = cut(simd::CUTS, "LANES");
    let runs = super::cpu::CUTS;
    let pixels = [lanes, cut(runs, "RUN"), cut(runs, "PARALLEL").over(3 * 4)];
    Stretch::network(name, make)
        .axis("samples", 3, [lanes])
        .axis("height", 1, [lanes])
        .axis("width", 5, pixels)
}
