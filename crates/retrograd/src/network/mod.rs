//! Feed-forward networks: a list of layers, built from a spec.

mod build;
mod fused;
pub(crate) mod model;
mod node;
mod spec;
#[cfg(test)]
pub(crate) mod tests;

pub use crate::layer::activation::Activation;
pub(crate) use model::Node;
#[cfg(feature = "gpu")]
pub(crate) use model::Value;
pub use model::{Network, NetworkTape};
pub use spec::{Base, LayerSpec, NetworkSpec, Outside, PaddingMode, Sparsity};
