//! retrograd trains small and unusual networks, on the CPU and on any GPU that wgpu reaches.
//!
//! Its three promises, in this order:
//!
//! 1. **Right.** Every gradient is checked against an independent oracle, and every check is shown
//!    to fail on a wrong gradient ([`verify`]).
//! 2. **The same.** The same seed gives the same bits, whatever the number of threads
//!    ([`parallel`], [`rng`]).
//! 3. **Fast.** f32 kernels with SIMD beside a plain reference of the same name.
//!
//! A [`Model`] is a set of pure functions over one flat parameter vector, whose tensors are named
//! by a [`Layout`]. Everything else, optimizers, clipping, freezing, checkpoints, finite
//! differences, comparison with PyTorch, is written once, over flat slices, for every model.

pub mod data;
pub mod denoise;
mod error;
#[cfg(feature = "gpu")]
pub mod gpu;
pub mod graph;
pub mod kan;
pub mod layout;
pub mod logic;
pub mod loss;
pub mod loss_image;
pub mod model;
pub mod nn;
pub mod optim;
pub mod parallel;
pub mod rng;
pub mod scalar;
pub mod simd;
pub mod suggest;
pub mod train;
pub mod verify;

pub use error::{Error, Result};
pub use layout::{Layout, Tensor};
pub use loss::{Loss, Target};
pub use model::{Batch, Buffer, Grads, Kernels, Model, Pass};
pub use scalar::Scalar;
