//! The layer in files.

use serde::{Deserialize, Serialize};

use super::ConvTranspose2d;
use crate::cuts::cut;
use crate::layer::spec::{At, Built, MAX_PIXELS, Reach, Small, Spec, View, one, yes};
use crate::simd;
use crate::verify::sizes::{SizedNetwork, Stretch};
use crate::{Loss, Result};

/// Options of a transposed convolution.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ConvTranspose2dSpec {
    /// Channels of the output.
    pub out: usize,
    /// The side of the kernel.
    pub kernel: usize,
    /// Pixels of the output between pixels of the input.
    #[serde(default = "one")]
    pub stride: usize,
    /// Pixels taken away on every side of the output.
    #[serde(default)]
    pub padding: usize,
    /// Whether a bias is added.
    #[serde(default = "yes")]
    pub bias: bool,
}

impl Spec for ConvTranspose2dSpec {
    fn build(&self, at: &At<'_>) -> Result<Built> {
        let [inputs, height, width] = at.image()?;
        let conv = ConvTranspose2d {
            inputs,
            outputs: at.positive("out", self.out)?,
            height,
            width,
            kernel: at.positive("kernel", self.kernel)?,
            stride: at.positive("stride", self.stride)?,
            padding: self.padding,
            bias: self.bias,
        };
        at.at_most("kernel", self.kernel, MAX_PIXELS)?;
        at.at_most("stride", self.stride, MAX_PIXELS)?;
        at.at_most("padding", self.padding, MAX_PIXELS)?;
        if 2 * self.padding >= (height.min(width) - 1) * self.stride + self.kernel {
            return Err(at.invalid("padding", self.padding, "less, so that an output is left"));
        }
        let shape = vec![self.out, conv.out_height(), conv.out_width()];
        Built::new(conv, shape)
    }

    fn reach(&self, before: View) -> Reach {
        let Some(jump) = before.finer(self.stride) else {
            return Reach::Refused("to more than the image's own size");
        };
        let after = self.kernel.saturating_sub(1 + self.padding) * jump;
        Reach::Sees(View {
            jump,
            radius: before.radius + after.max(self.padding * jump + before.jump - jump),
        })
    }

    fn small() -> &'static [Small] {
        SMALL
    }

    fn sizes() -> Vec<Stretch> {
        sizes()
    }
}

const SMALL: &[Small] = &[(
    "conv_transpose2d",
    &[3, 3, 4],
    r#"[{"kind":"conv_transpose2d","out":2,"kernel":3,"stride":2,"padding":1},{"kind":"tanh"},{"kind":"conv2d","out":1,"kernel":2}]"#,
    3,
    Loss::Mse,
)];

/// The kernels are the convolution's, with inputs and outputs exchanged.
fn sizes() -> Vec<Stretch> {
    use crate::layer::conv2d::{cpu, taps, tile};
    let lanes = cut(simd::CUTS, "LANES");
    let make = |n: &[usize]| SizedNetwork {
        input: vec![n[1], n[3], n[4]],
        layers: format!(
            r#"[{{"kind":"conv_transpose2d","out":{},"kernel":3,"stride":2,"padding":1}}]"#,
            n[2]
        ),
        samples: n[0],
        loss: Loss::Mse,
    };
    let stretch = Stretch::network("conv_transpose2d", make)
        .axis("samples", 2, [cut(tile::CUTS, "PIECES")])
        .axis("inputs", 2, [cut(taps::CUTS, "BLOCK"), lanes])
        .axis("outputs", 3, [cut(tile::CUTS, "BLOCK"), lanes])
        .axis("height", 4, [cut(cpu::CUTS, "PIECE_PIXELS").over(5)])
        .axis("width", 5, [lanes, lanes.times(2)]);
    vec![stretch]
}
