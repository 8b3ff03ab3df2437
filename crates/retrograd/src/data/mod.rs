//! Data as users have it, and the measures of how well it was learnt.

pub mod dataset;
pub mod metrics;

pub use dataset::{Batches, Dataset, Targets};
