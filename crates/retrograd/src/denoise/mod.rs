//! Denoisers of images: networks of convolutions trained on patches, applied tile by tile.
//!
//! An experiment of the family `denoise` names an architecture (or lists layers) and where its
//! images come from:
//!
//! ```toml
//! [model]
//! family = "denoise"
//! architecture = "unet-small"        # or simple-cnn, deep-12, unet, or layers = [...]
//! loss_terms = { ssim = 0.1 }        # beside train.loss: ssim, ssim_range, gradient
//!
//! [data]
//! method = "noise2noise"             # or supervised, noise2void
//! inputs = ["odd/*.mrc"]             # noisy images, or odd halves
//! targets = ["even/*.mrc"]           # clean images, or even halves, in the same order
//! # frames = ["movies/*.mrcs"]       # or stacks whose frames are split odd/even
//! patch = 64                         # side of a patch
//! validation = 0.2                   # share of the files, at least one
//! memory_mib = 2048                  # images beyond it are streamed from disk
//! ```

mod bench;
mod data;
mod draft;
mod family;
mod findings;
mod infer;
mod reach;
mod task;
#[cfg(test)]
mod tests;

use crate::layer::add::AddSpec;
use crate::layer::concat::ConcatSpec;
use crate::layer::pool::MaxPool2dSpec;
use crate::layer::upsample::UpsampleSpec;
use serde::{Deserialize, Serialize};

pub use data::{DenoiseDataSpec, GenerateImages};
pub(crate) use draft::holds_images;
pub use family::FAMILY;
pub use infer::{Denoiser, TilePlan};
pub use reach::Reach;
pub use task::DenoiseTask;

use crate::loss_image::ImageTerms;
use crate::network::{LayerSpec, NetworkSpec};
use crate::suggest::explain;
use crate::{Error, Result};

/// The `[model]` table of a denoiser.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DenoiserSpec {
    /// `denoise`
    pub family: String,
    /// One of the known architectures …
    #[serde(default)]
    pub architecture: Option<Architecture>,
    /// … or layers of your own, whose output has the size of the image.
    #[serde(default)]
    pub layers: Option<Vec<LayerSpec>>,
    /// What is added to the loss of the pixels.
    #[serde(default)]
    pub loss_terms: ImageTerms,
}

/// The architectures in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Architecture {
    /// 1-16-16-1, 3 × 3, ReLU between: 2,625 parameters, radius 3.
    SimpleCnn,
    /// 1-32-(32 × 10)-1, 3 × 3, added to the input, so that it learns the noise with its sign
    /// turned: 93,089 parameters, radius 12.
    #[serde(rename = "deep-12")]
    Deep12,
    /// Two convolutions at 32, 64 and 128 channels with pooling between, 256 at the bottom,
    /// nearest upsampling and concatenation on the way back.
    Unet,
    /// The same with 8, 16, 32 and 64 channels: 122,033 parameters, a sixteenth of the work.
    UnetSmall,
}

impl Architecture {
    /// The layers.
    pub fn layers(self) -> Vec<LayerSpec> {
        let conv = |out| LayerSpec::conv2d(out, 3, 1);
        let relu = || LayerSpec::relu();
        match self {
            Architecture::SimpleCnn => vec![conv(16), relu(), conv(16), relu(), conv(1)],
            Architecture::Deep12 => {
                let mut layers = Vec::new();
                for _ in 0..11 {
                    layers.extend([conv(32), relu()]);
                }
                layers.extend([conv(1), LayerSpec::Add(AddSpec { with: -1 })]);
                layers
            }
            Architecture::Unet | Architecture::UnetSmall => {
                let first = match self {
                    Architecture::Unet => 32,
                    _ => 8,
                };
                let widths = [first, 2 * first, 4 * first];
                let mut layers = Vec::new();
                let double = |layers: &mut Vec<LayerSpec>, width| {
                    layers.extend([conv(width), relu(), conv(width), relu()]);
                };
                let mut skips = Vec::new();
                for width in widths {
                    double(&mut layers, width);
                    skips.push(layers.len() as i64 - 1);
                    layers.push(LayerSpec::MaxPool2d(MaxPool2dSpec {
                        kernel: 2,
                        stride: None,
                    }));
                }
                double(&mut layers, 8 * first);
                for width in widths.into_iter().rev() {
                    layers.push(LayerSpec::Upsample(UpsampleSpec { scale: 2 }));
                    let with = skips.pop().expect("one for every width");
                    layers.push(LayerSpec::Concat(ConcatSpec { with }));
                    double(&mut layers, width);
                }
                layers.push(conv(1));
                layers
            }
        }
    }
}

impl DenoiserSpec {
    /// From an experiment's `[model]` table.
    pub fn parse(table: &toml::Table) -> Result<Self> {
        let spec: Self = table.clone().try_into().map_err(|e: toml::de::Error| {
            Error::invalid("[model]", explain(e.message()), "a denoiser")
        })?;
        if spec.family != "denoise" {
            return Err(Error::invalid("model.family", &spec.family, "denoise"));
        }
        spec.layers()?;
        Ok(spec)
    }

    /// The layers.
    pub fn layers(&self) -> Result<Vec<LayerSpec>> {
        match (&self.architecture, &self.layers) {
            (Some(architecture), None) => Ok(architecture.layers()),
            (None, Some(layers)) => Ok(layers.clone()),
            (both, _) => Err(Error::invalid(
                "[model] of a denoiser",
                if both.is_some() {
                    "architecture and layers"
                } else {
                    "neither architecture nor layers"
                },
                "one of the two",
            )),
        }
    }
}

/// The network for images of one size.
fn network_spec(layers: &[LayerSpec], height: usize, width: usize) -> NetworkSpec {
    NetworkSpec::new(&[1, height, width], layers.to_vec())
}
