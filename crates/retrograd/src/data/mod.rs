//! Data as users have it, and the measures of how well it was learnt.
//!
//! Readers give a [`csv::Table`] or an [`Array`]; a [`DataSpec`] (the `[data]` part of an
//! experiment) turns them into [`Dataset`]s for training and validation, with a [`Preparation`]
//! that is kept in the checkpoint and applied to new data.
//!
//! Every reader treats its file as hostile: what a header says costs no memory before the file's
//! length agrees, nothing panics, and an error names the file, the place, what was got and what is
//! needed.

mod array;
pub mod csv;
pub mod dataset;
pub mod dates;
pub mod denoise;
mod digest;
pub(crate) mod files;
pub mod formula;
pub mod frc;
pub mod generate;
pub mod idx;
pub mod image;
pub mod metrics;
pub mod mrc;
pub mod normalise;
pub mod npy;
pub mod patches;
pub mod prepare;
pub mod quality;
pub mod safetensors;
pub(crate) mod sha256;
pub(crate) mod sources;
pub mod spec;
pub mod split;
pub mod synthetic;
#[cfg(test)]
mod tests;
pub mod tiles;

pub use crate::disk::write_whole;
pub use array::{Array, Values};
pub use dataset::{Batches, Dataset, Targets};
pub(crate) use prepare::{Column, Cycle, Encoding, Inputs, Labels, Scaling, TargetRule};
pub use prepare::{NewData, Preparation, TaskKind};
pub use spec::{Data, DataSpec};
