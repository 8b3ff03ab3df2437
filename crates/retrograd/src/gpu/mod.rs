//! Networks and graph networks on a GPU, through wgpu: any vendor's card, or Mesa's software Vulkan.
//!
//! - [`Gpu`] is an open device, chosen from the adapters there are, with public [`Counters`].
//! - [`GpuNetwork`] holds a network's parameters, gradients and activations on it. What a batch size
//!   needs is recorded once, buffers, bind groups and dispatches, and replayed. Graphs stay on the
//!   device as long as they don't change.
//! - A native step is one submit and no wait: forward, loss, backward, clipping by the global norm
//!   and the optimizer ([`GpuOptimizer`]) stay on the device; losses come back when they are ready.
//! - A hybrid step brings the gradient back and steps on the CPU.
//!
//! In mixed precision ([`GpuNetwork::mixed`]) activations are 16-bit floats, and the loss is scaled.
//!
//! The flat vectors have the CPU's stored order, so weights and optimizer state move between the
//! devices as they are. Kernels are WGSL files beside the layer they belong to; no float atomics,
//! every sum in a fixed order: the same adapter gives the same bits every run.

mod adapter;
mod batch;
mod counters;
pub(crate) mod device;
pub(crate) mod extent;
pub(crate) mod form;
pub(crate) mod guard;
mod hybrid;
pub(crate) mod kernels;
mod landing;
pub(crate) mod layer;
mod loss_image;
pub mod mutants;
mod native;
mod network;
mod optimizer;
mod plan;
mod precision;
pub(crate) mod product;
mod recorded;
pub(crate) mod recording;
mod staging;
mod status;
#[cfg(test)]
mod tests;
pub(crate) mod topology;
mod traffic;
mod train;
mod trainer;
mod verifier;

pub use adapter::{AdapterDescription, Choice};
pub use batch::{AutoBatch, auto_batch};
pub use counters::Counters;
#[doc(hidden)]
pub use counters::GpuEvent;
pub use device::Gpu;
pub use form::BackwardForm;
pub use network::GpuNetwork;
pub use optimizer::{GpuAdam, GpuOptimizer};
pub use precision::{LossScale, Precision};
pub(crate) use recorded::OnDevice;
pub use recorded::Recorded;
pub use status::StepLoss;
pub use traffic::{KernelTraffic, StepTraffic};
pub use train::GpuTrainOptions;
pub use trainer::GpuTrainer;
pub use verifier::GpuVerifier;
/// What [`Gpu::take_adapters_of`] takes an instance of.
pub use wgpu;
