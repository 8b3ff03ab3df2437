//! Differentiable-logic cellular automata: circuits of soft gates, trained by gradient descent,
//! that become exact Boolean circuits.
//!
//! Every cell of a grid has C channels. In one step each of K perception kernels, a small circuit,
//! reads the 3×3 neighbourhood of one channel at a time, for every channel; the update circuit
//! reads the cell's own C channels and all perception outputs, and gives the cell's new C
//! channels. In the asynchronous form a cell takes its new state with a probability, the
//! `fire_rate`, and keeps the old one otherwise.
//!
//! # The gradient
//!
//! A gate with logits l, inputs a and b, and p = softmax(l) gives y = Σᵢ pᵢ·gateᵢ(a, b). With
//! g = ∂loss/∂y of one use of the gate:
//!
//! - d_a = g · Σᵢ pᵢ ∂gateᵢ/∂a, d_b = g · Σᵢ pᵢ ∂gateᵢ/∂b;
//! - hᵢ = Σ g·gateᵢ(a, b), summed over all uses: cells, samples, steps, and channels for perception
//!   gates, whose kernels are shared;
//! - d_lᵢ = pᵢ (hᵢ − Σⱼ pⱼhⱼ), the softmax's Jacobian applied to h.
//!
//! All gates are bilinear, so y = c₀ + c₁a + c₂b + c₃ab with c = p·[`gates::TABLE`]. The fast path
//! ([`fast`]) keeps c alone: d_a = g(c₁ + c₃b), d_b = g(c₂ + c₃a), and of each gate only the four
//! sums S = Σ (g, ga, gb, gab). Then h = TABLE·S and Σⱼ pⱼhⱼ = c·S.
//!
//! Through time: the new state's gradient flows through the update circuit into the cell's own
//! channels and the perception outputs, through the kernels into the nine neighbours, and is added
//! there; a cell that didn't fire hands its gradient to its old state unchanged.
//!
//! # Rooms
//!
//! [`gates`], [`wiring`] and [`grid`] are the vocabulary, [`LogicCa`] the model, [`mod@reference`] the
//! oracle, [`fast`] the f32 kernels, [`hard`] the exact circuit that is left.

mod batch;
mod bench;
mod circuit;
pub mod evaluate;
mod export;
mod family;
pub mod fast;
mod from_png;
pub mod gates;
#[cfg(feature = "gpu")]
pub(crate) mod gpu;
pub mod grid;
pub mod hard;
mod history;
mod memory;
mod model;
pub mod patterns;
pub mod picture;
pub mod reference;
mod replay;
mod rounding;
pub mod rule;
mod sizes;
mod spec;
mod task;
mod thinning;
mod training;
mod trial;
mod view;
pub mod wiring;

#[cfg(test)]
mod tests;

pub use batch::{LogicBatch, channel_target};
pub use export::SIMPLIFICATIONS;
pub use family::FAMILY;
pub use grid::{BoundaryCondition, NGrid};
pub use hard::{BitGrid, HardCircuit, Program};
pub use model::{LogicCa, LogicTape};
pub use patterns::LogicData;
pub use replay::replay;
pub use spec::LogicSpec;
pub use task::{LogicTask, write_circuit};
pub use training::{StepLosses, TrainingLoop};
pub use wiring::{Wires, WiringKind};
