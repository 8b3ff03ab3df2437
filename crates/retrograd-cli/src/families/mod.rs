//! What the command line knows about the model families: one file and one line each.

mod denoise;
mod graph;
mod kan;
mod logic;
mod network;

pub use kan::KanFormat;

use anyhow::{Result, bail};
use retrograd::suggest::did_you_mean;
use retrograd::train::{Experiment, Placement, Session, Summary};

use crate::commands::{ExportArgs, RunArgs};
use crate::exit::Outcome;

/// A model family on the command line.
pub struct Family {
    /// `[model] family` in experiment files.
    pub name: &'static str,
    /// Builds the family's task from the session's experiment and hands it to [`Session::fit`].
    pub train: fn(&mut Session<'_>) -> retrograd::Result<Summary>,
    /// `retrograd run`.
    pub run: Option<fn(&Experiment, &RunArgs) -> Result<Outcome>>,
    /// `retrograd export`.
    pub export: Option<fn(&Experiment, &ExportArgs) -> Result<Outcome>>,
}

/// All families.
const FAMILIES: &[Family] = &[
    denoise::FAMILY,
    kan::FAMILY,
    logic::FAMILY,
    network::FAMILY,
    graph::FAMILY,
];

/// The batch size of `--batch auto`.
pub fn auto_batch(experiment: &Experiment, placement: &Placement) -> Result<usize> {
    #[cfg(feature = "gpu")]
    if experiment.family() == network::FAMILY.name {
        return network::auto_batch(experiment, placement);
    }
    let _ = placement;
    bail!(
        "--batch: got auto for the family {:?}, needs a number: only networks on a GPU have it",
        experiment.family()
    )
}

/// The family of that name.
pub fn find(name: &str) -> Result<&'static Family> {
    if let Some(family) = FAMILIES.iter().find(|f| f.name == name) {
        return Ok(family);
    }
    let names = || FAMILIES.iter().map(|f| f.name);
    bail!(
        "[model] family: got {name:?}, needs one of: {}{}",
        names().collect::<Vec<_>>().join(", "),
        did_you_mean(name, names())
    )
}
