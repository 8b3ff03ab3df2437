//! The layer in files.

use serde::{Deserialize, Serialize};

use super::Conv2d;
use crate::cuts::cut;
use crate::layer::spec::{At, Built, MAX_PIXELS, Reach, Small, Spec, View, check_size, one, yes};
use crate::network::PaddingMode;
use crate::simd;
use crate::verify::sizes::{SizedNetwork, Stretch};
use crate::{Loss, Result};

/// Options of a convolution.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Conv2dSpec {
    /// Channels of the output.
    pub out: usize,
    /// The side of the kernel.
    pub kernel: usize,
    /// Pixels between positions of the kernel.
    #[serde(default = "one")]
    pub stride: usize,
    /// Pixels added on every side.
    #[serde(default)]
    pub padding: usize,
    /// What those pixels are.
    #[serde(default)]
    pub padding_mode: PaddingMode,
    /// Pixels between elements of the kernel.
    #[serde(default = "one")]
    pub dilation: usize,
    /// Groups of channels that don't see each other.
    #[serde(default = "one")]
    pub groups: usize,
    /// Whether a bias is added.
    #[serde(default = "yes")]
    pub bias: bool,
}

impl Spec for Conv2dSpec {
    fn build(&self, at: &At<'_>) -> Result<Built> {
        let [inputs, height, width] = at.image()?;
        let conv = Conv2d {
            inputs,
            outputs: at.positive("out", self.out)?,
            height,
            width,
            kernel: at.positive("kernel", self.kernel)?,
            stride: at.positive("stride", self.stride)?,
            padding: self.padding,
            padding_mode: self.padding_mode,
            dilation: at.positive("dilation", self.dilation)?,
            groups: at.positive("groups", self.groups)?,
            bias: self.bias,
        };
        at.at_most("kernel", self.kernel, MAX_PIXELS)?;
        at.at_most("padding", self.padding, MAX_PIXELS)?;
        at.at_most("dilation", self.dilation, MAX_PIXELS)?;
        let (groups, out) = (self.groups, self.out);
        if inputs % groups != 0 || out % groups != 0 {
            let needed = format!("a divisor of {inputs} inputs and {out} outputs");
            return Err(at.invalid("groups", groups, needed));
        }
        if self.padding_mode == PaddingMode::Reflect && self.padding >= height.min(width) {
            let needed = format!("less than the image, {height} × {width}, to reflect");
            return Err(at.invalid("padding", self.padding, needed));
        }
        let (high, wide) = conv.padded();
        check_size(
            &at.place("padding"),
            "a padded image",
            &[inputs, high, wide],
        )?;
        if conv.span() > high.min(wide) {
            let got = format!("{} pixels with dilation {}", conv.span(), self.dilation);
            let needed = format!("at most the padded image, {high} × {wide}");
            return Err(at.invalid("kernel", got, needed));
        }
        let shape = vec![out, conv.out_height(), conv.out_width()];
        Built::new(conv, shape)
    }

    fn reach(&self, before: View) -> Reach {
        let span = self.dilation * self.kernel.saturating_sub(1) + 1;
        let ahead = span.saturating_sub(self.padding + self.stride);
        Reach::Sees(View {
            jump: before.jump * self.stride,
            radius: before.radius + before.jump * self.padding.max(ahead),
        })
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
        "conv2d",
        &[2, 5, 7],
        r#"[{"kind":"conv2d","out":3,"kernel":3,"padding":1},{"kind":"silu"},{"kind":"conv2d","out":2,"kernel":3,"stride":2}]"#,
        3,
        Loss::Mse,
    ),
    (
        "conv2d strided",
        &[2, 7, 6],
        r#"[{"kind":"conv2d","out":4,"kernel":2,"stride":2,"groups":2},{"kind":"tanh"},{"kind":"flatten"},{"kind":"dense","out":3}]"#,
        4,
        Loss::CrossEntropy,
    ),
    (
        "conv2d dilated, reflected",
        &[2, 6, 7],
        r#"[{"kind":"conv2d","out":3,"kernel":3,"padding":2,"padding_mode":"reflect","dilation":2,"bias":false},{"kind":"gelu"},{"kind":"conv2d","out":1,"kernel":1}]"#,
        3,
        Loss::L1,
    ),
];

fn sizes() -> Vec<Stretch> {
    use super::{cpu, stack, sums, taps, tile, winograd};
    let lanes = cut(simd::CUTS, "LANES");
    let tile = |name| cut(tile::CUTS, name);
    let sum = |name| cut(sums::CUTS, name);
    // A sample's row of 6 × 3 · 2 · 9 multiply-adds.
    let row = 2 * 6 * 3 * 2 * 9;
    let plain = Stretch::network("conv2d", |n| sized(n, r#""kernel":3,"padding":1"#))
        .axis("samples", 2, [tile("PIECES")])
        .axis("inputs", 2, [sum("SUM_INPUTS"), lanes])
        .axis("outputs", 3, [tile("BLOCK"), lanes, lanes.times(2)])
        .axis(
            "height",
            5,
            [
                tile("PIECES").over(2),
                sum("SUM_PIXELS").over(6),
                sum("SUM_TILES").times(1024).over(6),
                tile("PARALLEL").over(row),
            ],
        )
        .axis(
            "width",
            6,
            [
                lanes,
                lanes.times(2),
                sum("SUM_COLUMNS"),
                tile("MAX_COLUMNS"),
            ],
        );
    #[cfg(feature = "gpu")]
    let plain = {
        let block = |name| cut(super::blocks::CUTS, name);
        (plain.on_device("outputs", [block("FOUR"), block("OWN")]))
            .on_device("height", [block("TILE")])
            .on_device("width", [block("OWN"), block("TILE")])
    };
    let strided = Stretch::network("conv2d strided", |n| {
        sized(n, r#""kernel":3,"stride":2,"padding":1"#)
    })
    .axis("samples", 2, [tile("PIECES")])
    .axis("inputs", 2, [lanes])
    .axis("outputs", 3, [cut(taps::CUTS, "BLOCK"), lanes])
    .axis(
        "height",
        5,
        [
            cut(cpu::CUTS, "PIECE_PIXELS").over(3).times(2),
            cut(cpu::CUTS, "PARALLEL").over(row / 4),
        ],
    )
    .axis("width", 6, [lanes.times(2), lanes.times(4)]);
    let stacked = Stretch::network("conv2d stacked", |n| {
        let conv = r#"{"kind":"conv2d","out":3,"kernel":3,"padding":1}"#;
        let layers = vec![conv; n[0]].join(r#",{"kind":"relu"},"#);
        SizedNetwork {
            input: vec![2, n[1], n[2]],
            layers: format!("[{layers}]"),
            samples: 2,
            loss: Loss::Mse,
        }
    })
    .axis("layers", 3, [cut(stack::CUTS, "MAX")])
    .axis(
        "height",
        40,
        [cut(stack::CUTS, "ROWS"), cut(stack::CUTS, "SUM_ROWS")],
    )
    .axis("width", 140, [cut(stack::CUTS, "COLUMNS")]);
    let channels = cut(winograd::CUTS, "CHANNELS");
    // Three tiles a row, of two rows each.
    let blocks = cut(winograd::CUTS, "TILES").over(3).times(2);
    let transformed = Stretch::network("conv2d of many channels", |n| {
        sized(n, r#""kernel":3,"padding":1"#)
    })
    .axis("samples", 2, [tile("PIECES")])
    .axis(
        "inputs",
        32,
        [channels, cut(winograd::CUTS, "CHAIN").times(2)],
    )
    .axis("outputs", 32, [channels, lanes.times(3)])
    .axis("height", 7, [blocks])
    .axis("width", 6, [lanes.times(2)]);
    #[cfg(feature = "gpu")]
    return vec![plain, strided, stacked, transformed, reaching()];
    #[cfg(not(feature = "gpu"))]
    vec![plain, strided, stacked, transformed]
}

/// Kernels that reach so far that a device has no room for all that a tile sees, or for all of their places, and
/// takes them place by place.
#[cfg(feature = "gpu")]
fn reaching() -> Stretch {
    let block = |name| cut(super::blocks::CUTS, name);
    // Place by place from a kernel of 23 × 23 on, and from where a tile of 2 × 8 sees 42 × 48 pixels.
    Stretch::network("conv2d, reaching far", |n| SizedNetwork {
        // Wide enough for pixels that are a dilation apart: else all places but the middle one see the border alone.
        input: vec![2, 5, n[0] + 6],
        layers: format!(
            r#"[{{"kind":"conv2d","out":3,"kernel":{},"padding":{}}},{{"kind":"tanh"}},
                {{"kind":"conv2d","out":2,"kernel":3,"dilation":{},"padding":{}}}]"#,
            n[1],
            n[1] / 2,
            n[0],
            n[0],
        ),
        samples: 2,
        loss: Loss::Mse,
    })
    .axis("dilation", 1, [])
    .axis("kernel", 3, [])
    // From some 50 × 50 places on software Vulkan leaves off, and the recording is refused there.
    .most(40)
    .on_device("kernel", [block("QUADS").over(23)])
    .on_device("dilation", [block("PIXELS").over(105)])
}

fn sized(n: &[usize], options: &str) -> SizedNetwork {
    SizedNetwork {
        input: vec![n[1], n[3], n[4]],
        layers: format!(r#"[{{"kind":"conv2d","out":{},{options}}}]"#, n[2]),
        samples: n[0],
        loss: Loss::Mse,
    }
}
