//! Training: the loop, its modes, checkpoints and events.
//!
//! A family brings a [`Task`]: its model, its data and its measures. The loop ([`Session::fit`])
//! brings the rest, once for all families: batches, loss, penalty, backward, clipping, schedule,
//! optimizer, evaluation. An [`Experiment`] file describes a run.

mod accelerator;
mod arriving;
mod auto;
mod checkpoint;
mod digests;
mod event;
mod examine;
mod experiment;
mod fit;
mod folder;
pub mod folds;
pub(crate) mod memory;
mod network;
mod paths;
mod report;
mod session;
mod shards;
mod step;
mod surface;
mod task;
#[cfg(test)]
mod tests;
mod verification;

pub use crate::data::Values;
pub use crate::data::safetensors::{NamedTensor, TensorFile};
pub(crate) use accelerator::no_gpu;
pub use accelerator::{
    Accelerator, Arrived, Carried, CarriedScale, MicroBatch, Mode, Placement, Precision, Start,
    Updating,
};
pub use auto::Clock;
pub use checkpoint::{Metadata, load_weights, save_weights};
pub use digests::{CONTRACT, Compared, Digests, Recorded};
pub use event::{Event, Observer, Quiet, Record, Source, Summary};
pub use examine::{Condition, Examined, examine};
pub use experiment::{CHECKPOINT_SECONDS, Experiment, OnNan, TrainSpec};
pub use folder::{experiment_of, model_file};
pub(crate) use network::{More, Scoring, TableData};
pub use network::{NetworkTask, Predictions, TrainedNetwork};
pub use report::number;
pub use session::Session;
pub(crate) use shards::{Asked, Shards, choose as choose_shards, joins};
pub use step::{BadNumber, Clip, Hooks, Lesson, StepError, Stepped, Stepper};
pub use task::{Content, Example, Figure, Findings, MeasuredOn, Metrics, Specimen, Task, Verdict};
pub use verification::{LinkSummary, Verification};
