//! The layers in files.

use serde::{Deserialize, Serialize};

use super::{Pool, PoolKind};
use crate::cuts::cut;
use crate::layer::AnyLayer;
use crate::layer::spec::{At, Built, Reach, Small, Spec, View};
use crate::simd;
use crate::verify::mutants::Mutation;
use crate::verify::sizes::{SizedNetwork, Stretch};
use crate::{Loss, Result};

/// Options of max pooling.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MaxPool2dSpec {
    /// The side of a window.
    pub kernel: usize,
    /// Pixels between windows; the kernel where it isn't written.
    #[serde(default)]
    pub stride: Option<usize>,
}

impl Spec for MaxPool2dSpec {
    fn build(&self, at: &At<'_>) -> Result<Built> {
        build(PoolKind::Max, self.kernel, self.stride, at)
    }

    fn reach(&self, before: View) -> Reach {
        reach(self.kernel, self.stride, before)
    }

    fn faults(&self, layer: &dyn AnyLayer) -> Vec<Mutation> {
        layer
            .downcast()
            .map_or_else(Vec::new, super::faults::faults)
    }

    fn small() -> &'static [Small] {
        MAX_SMALL
    }

    fn sizes() -> Vec<Stretch> {
        vec![stretch("max_pool2d")]
    }
}

/// Options of average pooling.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AvgPool2dSpec {
    /// The side of a window.
    pub kernel: usize,
    /// Pixels between windows; the kernel where it isn't written.
    #[serde(default)]
    pub stride: Option<usize>,
}

impl Spec for AvgPool2dSpec {
    fn build(&self, at: &At<'_>) -> Result<Built> {
        build(PoolKind::Average, self.kernel, self.stride, at)
    }

    fn reach(&self, before: View) -> Reach {
        reach(self.kernel, self.stride, before)
    }

    fn faults(&self, layer: &dyn AnyLayer) -> Vec<Mutation> {
        layer
            .downcast()
            .map_or_else(Vec::new, super::faults::faults)
    }

    fn small() -> &'static [Small] {
        AVERAGE_SMALL
    }

    fn sizes() -> Vec<Stretch> {
        vec![stretch("avg_pool2d")]
    }
}

fn build(kind: PoolKind, kernel: usize, stride: Option<usize>, at: &At<'_>) -> Result<Built> {
    let [channels, height, width] = at.image()?;
    if kernel > height.min(width) {
        let needed = format!("at most the image, {height} × {width}");
        return Err(at.invalid("kernel", kernel, needed));
    }
    let pool = Pool {
        kind,
        kernel: at.positive("kernel", kernel)?,
        stride: at.positive("stride", stride.unwrap_or(kernel))?,
        height,
        width,
    };
    let shape = vec![channels, pool.out_height(), pool.out_width()];
    Built::new(pool, shape)
}

fn reach(kernel: usize, stride: Option<usize>, before: View) -> Reach {
    let stride = stride.unwrap_or(kernel);
    Reach::Sees(View {
        jump: before.jump * stride,
        radius: before.radius + kernel.saturating_sub(stride) * before.jump,
    })
}

const MAX_SMALL: &[Small] = &[(
    "max_pool2d",
    &[2, 6, 7],
    r#"[{"kind":"conv2d","out":3,"kernel":3,"padding":1},{"kind":"max_pool2d","kernel":2},{"kind":"flatten"},{"kind":"dense","out":2}]"#,
    4,
    Loss::Mse,
)];

const AVERAGE_SMALL: &[Small] = &[(
    "avg_pool2d",
    &[2, 6, 7],
    r#"[{"kind":"conv2d","out":3,"kernel":3,"padding":1},{"kind":"avg_pool2d","kernel":3,"stride":2},{"kind":"flatten"},{"kind":"dense","out":2}]"#,
    4,
    Loss::Mse,
)];

/// Windows that touch and windows that overlap, after a layer that has a gradient.
fn stretch(kind: &'static str) -> Stretch {
    let make = move |n: &[usize]| SizedNetwork {
        input: vec![2, n[1], n[2]],
        layers: format!(r#"[{{"kind":"{kind}","kernel":{},"stride":2}}]"#, n[0]),
        samples: 3,
        loss: Loss::Mse,
    };
    let lanes = cut(simd::CUTS, "LANES");
    let values = cut(super::cpu::CUTS, "PARALLEL").over(3 * 2 * 4);
    Stretch::network(kind, make)
        .axis("kernel", 2, [lanes.over(8)])
        .most(4)
        .axis("height", 4, [lanes])
        .axis("width", 7, [lanes, lanes.times(2), values])
}
