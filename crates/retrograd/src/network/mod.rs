//! Feed-forward networks: a list of layers, built from a spec.

pub(crate) mod bench;
mod draft;
pub(crate) mod family;
mod memory;
pub(crate) mod model;
mod spec;
mod survey;
#[cfg(test)]
pub(crate) mod tests;

pub use crate::layer::activation::Activation;
pub use family::FAMILY;
pub use model::{Network, NetworkTape};
pub use spec::{Base, LayerSpec, NetworkSpec, Outside, PaddingMode, Sparsity};
