//! How far a network looks, and in which blocks: what its tiles need around them.
//!
//! A pixel p of a layer's output stands for a block of `jump` pixels of the image, from p·jump on,
//! and depends on pixels up to `radius` to either side of that block. With j, r of the layer's
//! input:
//!
//! | layer | jump | radius |
//! |---|---|---|
//! | conv2d, kernel k, stride s, padding p, dilation d | j·s | r + max(p·j, (d(k−1) − p − s + 1)·j) |
//! | pooling, kernel k, stride s | j·s | r + max(0, k − s)·j |
//! | upsampling by s | j/s | r + (s−1)·j/s |
//! | conv_transpose2d, kernel k, stride s, padding p | j/s | r + max((k−1−p)·j/s, p·j/s + j − j/s) |
//! | concat, add | both the same | the larger |
//! | activations, dropout, batch norm at inference | j | r |
//!
//! Layers that look at the whole image (dense, group norm, …) can't be tiled and are refused.

use crate::network::LayerSpec;
use crate::{Error, Result};

/// What tiles need.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reach {
    /// Pixels around a tile.
    pub halo: usize,
    /// Tiles start at multiples of this.
    pub align: usize,
}

impl Reach {
    /// Of a network whose output has the input's size.
    pub fn of(layers: &[LayerSpec]) -> Result<Self> {
        /// Jump and radius of a value.
        #[derive(Clone, Copy)]
        struct View {
            jump: usize,
            radius: usize,
        }
        let input = View { jump: 1, radius: 0 };
        let mut views: Vec<View> = Vec::with_capacity(layers.len());
        let mut align = 1;
        for (index, layer) in layers.iter().enumerate() {
            let View { jump: j, radius: r } = views.last().copied().unwrap_or(input);
            let refuse = |why: &str| {
                Err(Error::invalid(
                    format!("model.layers[{index}] of a denoiser"),
                    format!("{} {why}", layer.kind()),
                    "layers that see a neighbourhood: convolutions, poolings, upsampling, \
                     activations, concat, add, batch_norm2d",
                ))
            };
            let up = |scale: usize| (scale > 0 && j.is_multiple_of(scale)).then(|| j / scale);
            let view = match *layer {
                LayerSpec::Conv2d {
                    kernel,
                    stride,
                    padding,
                    dilation,
                    ..
                } => {
                    let ahead =
                        (dilation * kernel.saturating_sub(1) + 1).saturating_sub(padding + stride);
                    View {
                        jump: j * stride,
                        radius: r + j * padding.max(ahead),
                    }
                }
                LayerSpec::MaxPool2d { kernel, stride }
                | LayerSpec::AvgPool2d { kernel, stride } => {
                    let stride = stride.unwrap_or(kernel);
                    View {
                        jump: j * stride,
                        radius: r + kernel.saturating_sub(stride) * j,
                    }
                }
                LayerSpec::Upsample { scale } => match up(scale) {
                    Some(jump) => View {
                        jump,
                        radius: r + (scale - 1) * jump,
                    },
                    None => return refuse("to more than the image's own size"),
                },
                LayerSpec::ConvTranspose2d {
                    kernel,
                    stride,
                    padding,
                    ..
                } => match up(stride) {
                    Some(jump) => {
                        let behind = kernel.saturating_sub(1 + padding) * jump;
                        View {
                            jump,
                            radius: r + behind.max(padding * jump + j - jump),
                        }
                    }
                    None => return refuse("to more than the image's own size"),
                },
                LayerSpec::Concat { with } | LayerSpec::Add { with } => {
                    let other = match usize::try_from(with) {
                        Err(_) => Some(input),
                        Ok(n) => views.get(n).copied(),
                    };
                    match other {
                        Some(other) if other.jump == j => View {
                            jump: j,
                            radius: r.max(other.radius),
                        },
                        _ => return refuse("with a layer of another size"),
                    }
                }
                LayerSpec::Relu {}
                | LayerSpec::LeakyRelu { .. }
                | LayerSpec::Elu { .. }
                | LayerSpec::Silu {}
                | LayerSpec::Gelu {}
                | LayerSpec::Tanh {}
                | LayerSpec::Sigmoid {}
                | LayerSpec::Dropout { .. }
                | LayerSpec::BatchNorm2d {} => View { jump: j, radius: r },
                LayerSpec::Dense { .. }
                | LayerSpec::Kan { .. }
                | LayerSpec::LayerNorm {}
                | LayerSpec::GroupNorm { .. }
                | LayerSpec::Flatten {}
                | LayerSpec::Normalize {} => return refuse("looks at the whole image"),
            };
            align = align.max(view.jump);
            views.push(view);
        }
        let last = views.last().copied().unwrap_or(input);
        if last.jump != 1 {
            return Err(Error::invalid(
                "model.layers of a denoiser",
                format!("an output {} times smaller than the image", last.jump),
                "an output of the image's own size",
            ));
        }
        Ok(Reach {
            halo: last.radius,
            align,
        })
    }
}
