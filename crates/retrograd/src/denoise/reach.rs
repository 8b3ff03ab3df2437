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

use crate::layer::spec::{Reach as Layered, View};
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
        let input = View { jump: 1, radius: 0 };
        let mut views: Vec<View> = Vec::with_capacity(layers.len());
        let mut align = 1;
        for (index, layer) in layers.iter().enumerate() {
            let before = views.last().copied().unwrap_or(input);
            let refuse = |why: &str| {
                Err(Error::invalid(
                    format!("model.layers[{index}] of a denoiser"),
                    format!("{} {why}", layer.kind()),
                    "layers that see a neighbourhood: convolutions, poolings, upsampling, \
                     activations, concat, add, batch_norm2d",
                ))
            };
            let view = match layer.spec().reach(before) {
                Layered::Sees(view) => view,
                Layered::With(with) => {
                    let other = match usize::try_from(with) {
                        Err(_) => Some(input),
                        Ok(n) => views.get(n).copied(),
                    };
                    match other {
                        Some(other) if other.jump == before.jump => View {
                            radius: before.radius.max(other.radius),
                            ..before
                        },
                        _ => return refuse("with a layer of another size"),
                    }
                }
                Layered::Refused(why) => return refuse(why),
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
