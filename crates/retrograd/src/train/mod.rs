//! Training: the loop, its modes, checkpoints and events.
//!
//! A family brings a [`Task`]: its model, its data and its measures. The loop brings the rest,
//! once for all families.

mod task;

pub use task::{Example, Metrics, Task};
