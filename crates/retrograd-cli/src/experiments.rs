//! The ready experiments, built into the command.

use std::path::Path;

use anyhow::{Result, bail};
use retrograd::suggest::did_you_mean;
use retrograd::train::Experiment;

/// The text of every file in `experiments/`; a test compares the two.
const READY: &[(&str, &str)] = &[];

/// The names of the ready experiments, in order.
pub fn names() -> impl Iterator<Item = &'static str> {
    READY.iter().map(|&(name, _)| name)
}

/// A ready experiment by its name, or one from a file.
pub fn open(name: &str) -> Result<Experiment> {
    if let Some(&(_, text)) = READY.iter().find(|&&(n, _)| n == name) {
        return Ok(Experiment::parse(text, format!("experiments/{name}.toml"))?);
    }
    let path = Path::new(name);
    if path.extension().is_some_and(|e| e == "toml") || path.is_file() {
        return Ok(Experiment::read(path)?);
    }
    bail!(
        "experiment {name:?}: neither a file that ends in .toml nor one of the ready ones: {}{}",
        names().collect::<Vec<_>>().join(", "),
        did_you_mean(name, names())
    )
}
