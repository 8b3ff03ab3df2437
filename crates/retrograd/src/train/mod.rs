//! Training: the loop, its modes, checkpoints and events.
//!
//! A family brings a [`Task`]: its model, its data and its measures. The loop ([`Session::fit`])
//! brings the rest, once for all families: batches, loss, penalty, backward, clipping, schedule,
//! optimizer, evaluation. An [`Experiment`] file describes a run.

mod event;
mod experiment;
mod session;
mod step;
mod task;

pub use event::{Event, Observer, Quiet, Record, Summary};
pub use experiment::{CHECKPOINT_SECONDS, Experiment, OnNan, TrainSpec};
pub use session::Session;
pub use step::{BadNumber, Clip, Stepper};
pub use task::{Content, Example, Figure, Findings, Metrics, Task};
