//! Data as users have it, and the measures of how well it was learnt.

pub mod dataset;
pub mod image;
pub mod metrics;
pub mod mrc;
pub mod normalise;
pub mod quality;
pub mod tiles;

pub use dataset::{Batches, Dataset, Targets};
