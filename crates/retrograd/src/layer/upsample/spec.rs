//! The layer in files.

use serde::{Deserialize, Serialize};

use super::Upsample;
use crate::cuts::cut;
use crate::layer::AnyLayer;
use crate::layer::spec::{At, Built, MAX_PIXELS, Reach, Small, Spec, View};
use crate::simd;
use crate::verify::mutants::Mutation;
use crate::verify::sizes::{SizedNetwork, Stretch};
use crate::{Loss, Result};

/// Options of upsampling.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UpsampleSpec {
    /// The factor.
    pub scale: usize,
}

impl Spec for UpsampleSpec {
    fn build(&self, at: &At<'_>) -> Result<Built> {
        let [channels, height, width] = at.image()?;
        let scale = at.positive("scale", self.scale)?;
        at.at_most("scale", scale, MAX_PIXELS)?;
        let shape = vec![channels, height * scale, width * scale];
        Built::new(Upsample { scale, width }, shape)
    }

    fn reach(&self, before: View) -> Reach {
        match before.finer(self.scale) {
            Some(jump) => Reach::Sees(View {
                jump,
                radius: before.radius + (self.scale - 1) * jump,
            }),
            None => Reach::Refused("to more than the image's own size"),
        }
    }

    fn faults(&self, layer: &dyn AnyLayer) -> Vec<Mutation> {
        layer
            .downcast()
            .map_or_else(Vec::new, super::faults::faults)
    }

    fn small() -> &'static [Small] {
        SMALL
    }

    fn sizes() -> Vec<Stretch> {
        sizes()
    }
}

const SMALL: &[Small] = &[(
    "upsample",
    &[2, 3, 4],
    r#"[{"kind":"conv2d","out":3,"kernel":2},{"kind":"upsample","scale":2},{"kind":"conv2d","out":1,"kernel":2}]"#,
    4,
    Loss::Mse,
)];

fn sizes() -> Vec<Stretch> {
    let own = |name| cut(super::CUTS, name);
    // Rows of two samples, 3 × 4 values each after it.
    let cuts = [own("PIECE_ROWS").over(2), own("PARALLEL").over(2 * 3 * 4)];
    let lanes = cut(simd::CUTS, "LANES");
    let make = |n: &[usize]| SizedNetwork {
        input: vec![1, n[0], n[1]],
        layers: format!(r#"[{{"kind":"upsample","scale":{}}}]"#, n[2]),
        samples: 2,
        loss: Loss::Mse,
    };
    let stretch = Stretch::network("upsample", make)
        .axis("height", 4, cuts)
        .axis("width", 3, [lanes])
        .axis("scale", 2, [own("PIECE_ROWS").over(11)]);
    vec![stretch]
}
