//! Feed-forward networks: a list of layers, built from a spec.
//!
//! One folder per layer kind: its shapes and derivation in `mod.rs`, the plain loops that are the
//! oracle in `reference.rs`, the f32 kernel with SIMD and threads in `cpu.rs`.

pub mod activation;
mod build;
pub(crate) mod conv2d;
pub(crate) mod conv_transpose2d;
pub(crate) mod dense;
pub(crate) mod dropout;
mod fused;
pub mod gemm;
pub(crate) mod kan;
pub(crate) mod layer;
pub(crate) mod network;
mod node;
pub(crate) mod norm;
pub(crate) mod normalize;
mod pieces;
pub(crate) mod pool;
mod spec;
#[cfg(test)]
mod tests;
pub(crate) mod upsample;

pub use activation::Activation;
pub(crate) use network::Node;
#[cfg(feature = "gpu")]
pub(crate) use network::Value;
pub use network::{Network, NetworkTape};
pub use spec::{Base, LayerSpec, NetworkSpec, Outside, PaddingMode, Sparsity};
