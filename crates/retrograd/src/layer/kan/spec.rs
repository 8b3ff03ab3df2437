//! The layer in files.

use serde::{Deserialize, Serialize};

use super::{Kan, MAX_DEGREE};
use crate::budget::{self, Demand, product};
use crate::cuts::cut;
use crate::layer::AnyLayer;
use crate::layer::spec::{At, Built, Small, Spec};
use crate::network::{Base, Outside};
use crate::simd;
use crate::verify::mutants::Mutation;
use crate::verify::sizes::{SizedNetwork, Stretch};
use crate::{Loss, Result};

/// Options of a KAN layer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KanSpec {
    /// Outputs.
    pub out: usize,
    /// Grid intervals, 1 to 64.
    pub grid: usize,
    /// Spline degree, 1 to 7.
    pub degree: usize,
    /// The range that the grid covers.
    #[serde(default = "unit_range")]
    pub range: [f64; 2],
    /// What is added to the splines.
    #[serde(default)]
    pub base: Base,
    /// Whether a bias is added.
    #[serde(default)]
    pub bias: bool,
    /// What happens to inputs outside the range.
    #[serde(default)]
    pub outside: Outside,
    /// Each input has knots of its own, kept in the buffer `N.knots`.
    #[serde(default)]
    pub free_knots: bool,
}

fn unit_range() -> [f64; 2] {
    [-1.0, 1.0]
}

impl Spec for KanSpec {
    fn build(&self, at: &At<'_>) -> Result<Built> {
        if !(1..=MAX_DEGREE).contains(&self.degree) {
            return Err(at.invalid("degree", self.degree, "1 to 7"));
        }
        if !(1..=64).contains(&self.grid) {
            return Err(at.invalid("grid", self.grid, "1 to 64"));
        }
        let [lo, hi] = self.range;
        if !(lo.is_finite() && hi.is_finite() && lo < hi) {
            let got = format!("{:?}", self.range);
            return Err(at.invalid("range", got, "finite [low, high], low < high"));
        }
        let mut kan = Kan::new(
            at.last(),
            at.positive("out", self.out)?,
            self.grid,
            self.degree,
            self.range,
            self.base,
            self.bias,
            self.outside,
        );
        if self.free_knots {
            // They are made here, before anything asks what the whole network needs.
            let sizes = [(&*at.place("inputs"), at.last() as u64)];
            let each = kan.free_knot_bytes();
            budget::allow(&Demand::of(sizes, |[inputs]| product([inputs, each])))?;
            kan.set_knots(kan.uniform_knots().repeat(at.last()));
        }
        Built::new(kan, at.with_last(self.out))
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

const SMALL: &[Small] = &[
    (
        "kan degree 1",
        &[3],
        r#"[{"kind":"dense","out":3},{"kind":"kan","out":4,"grid":4,"degree":1,"range":[-2,2]},{"kind":"kan","out":2,"grid":3,"degree":1}]"#,
        9,
        Loss::Mse,
    ),
    (
        "kan degree 2",
        &[3],
        r#"[{"kind":"dense","out":3},{"kind":"kan","out":4,"grid":4,"degree":2,"range":[-2,2],"bias":true},{"kind":"kan","out":2,"grid":3,"degree":2}]"#,
        9,
        Loss::Mse,
    ),
    (
        "kan degree 3",
        &[3],
        r#"[{"kind":"dense","out":3},{"kind":"kan","out":4,"grid":5,"degree":3,"range":[-2,2]},{"kind":"kan","out":2,"grid":3,"degree":3}]"#,
        9,
        Loss::Mse,
    ),
    (
        "kan degree 4",
        &[3],
        r#"[{"kind":"kan","out":4,"grid":4,"degree":4,"range":[-2,2]},{"kind":"dense","out":2}]"#,
        9,
        Loss::Huber,
    ),
    (
        "kan degree 5",
        &[3],
        r#"[{"kind":"kan","out":4,"grid":4,"degree":5,"range":[-2,2]},{"kind":"dense","out":2}]"#,
        9,
        Loss::Mse,
    ),
    (
        "kan degree 7",
        &[3],
        r#"[{"kind":"kan","out":2,"grid":3,"degree":7,"range":[-2,2]}]"#,
        9,
        Loss::Mse,
    ),
    (
        "kan clamp",
        &[3],
        r#"[{"kind":"kan","out":4,"grid":4,"degree":3,"range":[-1,1],"outside":"clamp"},{"kind":"dense","out":2}]"#,
        11,
        Loss::Mse,
    ),
    (
        "kan without base",
        &[3],
        r#"[{"kind":"kan","out":4,"grid":4,"degree":2,"range":[-2,2],"base":"none","bias":true},{"kind":"dense","out":2}]"#,
        9,
        Loss::Mse,
    ),
    (
        "kan free knots",
        &[3],
        r#"[{"kind":"kan","out":4,"grid":4,"degree":3,"free_knots":true},{"kind":"dense","out":2}]"#,
        9,
        Loss::Mse,
    ),
];

fn sizes() -> Vec<Stretch> {
    let (cpu, block) = (super::cpu::CUTS, super::block::CUTS);
    let lanes = cut(simd::CUTS, "LANES");
    let axes = |stretch: Stretch, degree: usize| {
        let rows = [
            lanes,
            cut(cpu, "FEW"),
            cut(block, "BLOCK"),
            cut(super::backward::CUTS, "RUN"),
            cut(cpu, "PARALLEL").over(3 * 4 * (degree + 2)),
        ];
        // A row of weights for every spline of every input, padded to 16.
        let splines = 4 + degree;
        let inputs = [
            cut(cpu, "CHAIN"),
            cut(block, "PAIR"),
            cut(block, "FEW"),
            cut(block, "HALF"),
            cut(super::rows::CUTS, "ROWS").over(splines),
            cut(cpu, "COPY").over(splines * 8),
        ];
        let outputs = [
            lanes,
            cut(super::backward::CUTS, "PAIRED"),
            cut(block, "HALF"),
        ];
        let grid = [cut(super::basis::CUTS, "COMPARED").less(2 * degree)];
        let stretch = (stretch.axis("rows", 9, rows).axis("inputs", 3, inputs))
            .axis("outputs", 4, outputs)
            .axis("grid", 4, grid)
            .most(48);
        #[cfg(feature = "gpu")]
        let stretch = {
            let fused = |name| cut(super::fused::CUTS, name);
            let product = |name| cut(crate::gpu::product::CUTS, name);
            let input = |name| cut(super::input::CUTS, name);
            let rows = [
                fused("ROWS"),
                fused("PIECE"),
                product("TILE"),
                input("WIDE_TILE"),
                input("OWN"),
            ];
            (stretch.on_device("rows", rows))
                // Inputs that fill a block, and grids of more features than one.
                .on_device(
                    "inputs",
                    [fused("FEATURES"), input("TILE")].map(|cut| cut.over(5 + degree)),
                )
                .on_device("outputs", [fused("OUTPUTS"), input("SLICE")])
                .on_device("grid", [fused("FEATURES").less(degree + 1)])
        };
        stretch
    };
    vec![
        axes(Stretch::network("kan", |n| sized(n, r#""degree":3"#)), 3),
        axes(
            Stretch::network("kan, free knots", |n| {
                sized(n, r#""degree":2,"free_knots":true,"bias":true"#)
            }),
            2,
        ),
    ]
}

fn sized(n: &[usize], options: &str) -> SizedNetwork {
    SizedNetwork {
        input: vec![n[1]],
        layers: format!(
            r#"[{{"kind":"kan","out":{},"grid":{},"range":[-2,2],{options}}}]"#,
            n[2], n[3]
        ),
        samples: n[0],
        loss: Loss::Mse,
    }
}
