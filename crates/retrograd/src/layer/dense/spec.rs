//! The layer in files.

use serde::{Deserialize, Serialize};

use super::Dense;
use crate::cuts::cut;
use crate::layer::spec::{At, Built, Small, Spec, yes};
use crate::layer::{gemm, pieces};
use crate::simd;
use crate::verify::sizes::{SizedNetwork, Stretch};
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

    fn sizes() -> Vec<Stretch> {
        sizes()
    }
}

const SMALL: &[Small] = &[(
    "dense",
    &[4],
    r#"[{"kind":"dense","out":5},{"kind":"tanh"},{"kind":"dense","out":3}]"#,
    6,
    Loss::CrossEntropy,
)];

/// Rows, inputs and outputs take turns as the three sides of its matrix products.
fn sizes() -> Vec<Stretch> {
    let (own, product) = (super::cpu::CUTS, gemm::CUTS);
    let lanes = cut(simd::CUTS, "LANES");
    let sides = |over: usize| {
        let work = ["PARALLEL", "PIECE"].map(|name| cut(product, name).over(over));
        let sides = ["PANEL", "TILE", "NARROW_TILE", "RUN"].map(|name| cut(product, name));
        [&[lanes], &sides[..], &work[..]].concat()
    };
    let of_bias = [cut(own, "RUN"), cut(own, "PARALLEL").over(8)];
    #[cfg(feature = "gpu")]
    let product = |name| cut(crate::gpu::product::CUTS, name);
    let zeroed = cut(pieces::CUTS, "PIECE");
    let make = |n: &[usize]| SizedNetwork {
        input: vec![n[1]],
        layers: format!(r#"[{{"kind":"dense","out":{}}}]"#, n[2]),
        samples: n[0],
        loss: Loss::Mse,
    };
    let dense = Stretch::network("dense", make)
        .axis("rows", 6, [&sides(8 * 8)[..], &of_bias[..]].concat())
        .axis(
            "inputs",
            8,
            [&sides(6 * 8)[..], &[zeroed.over(4 * 8), zeroed.over(8)]].concat(),
        )
        .axis(
            "outputs",
            8,
            [&sides(6 * 8)[..], &[cut(own, "COLUMNS")]].concat(),
        );
    #[cfg(feature = "gpu")]
    let dense = {
        let fused = |name| cut(super::fused::CUTS, name);
        (dense.on_device("rows", [fused("ROWS"), fused("PIECE"), product("TILE")]))
            .on_device(
                "inputs",
                [
                    fused("INPUTS"),
                    product("SLICE"),
                    product("RUN"),
                    product("LONGEST"),
                ],
            )
            .on_device("outputs", [fused("OUTPUTS"), fused("OUTPUTS").times(2)])
    };
    #[cfg(feature = "gpu")]
    let wide = {
        // Large enough on all sides for the products' wide tiles.
        let wide = Stretch::network("dense, wide", make)
            .axis("rows", 130, [])
            .axis("inputs", 130, [])
            .axis("outputs", 130, []);
        let tile = [product("WIDE_TILE")];
        (wide.on_device("rows", tile).on_device("inputs", tile)).on_device("outputs", tile)
    };
    #[cfg(feature = "gpu")]
    return vec![dense, wide];
    #[cfg(not(feature = "gpu"))]
    vec![dense]
}
