//! The ready experiments, built into the command.

use std::path::Path;

use anyhow::{Result, bail};
use retrograd::suggest::did_you_mean;
use retrograd::train::Experiment;

macro_rules! ready {
    ($name:literal) => {
        (
            $name,
            include_str!(concat!("../experiments/", $name, ".toml")),
        )
    };
}

/// The text of every file in `experiments/`; a test compares the two.
const READY: &[(&str, &str)] = &[
    ready!("checkerboard"),
    ready!("checkerboard-async"),
    ready!("checkerboard-async-small"),
    ready!("checkerboard-small"),
    ready!("citeseer-gcn"),
    ready!("colored-g"),
    ready!("colored-g-small"),
    ready!("cora-gat"),
    ready!("cora-gcn"),
    ready!("denoise"),
    ready!("denoise-micrograph"),
    ready!("digits"),
    ready!("digits-cnn"),
    ready!("friedman"),
    ready!("kan-digits"),
    ready!("kan-feynman"),
    ready!("kan-poker"),
    ready!("karate"),
    ready!("life"),
    ready!("life-small"),
    ready!("lizard"),
    ready!("lizard-small"),
    ready!("moons"),
    ready!("mutag-gin"),
    ready!("text-graph"),
];

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_in_experiments_is_built_in_under_its_own_name() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../experiments");
        let mut files: Vec<String> = std::fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .filter(|path| path.extension().is_some_and(|e| e == "toml"))
            .map(|path| path.file_stem().unwrap().to_string_lossy().into_owned())
            .collect();
        files.sort();
        assert_eq!(files, names().collect::<Vec<_>>());
        for name in names() {
            let experiment = open(name).unwrap();
            assert_eq!(experiment.name, name);
            assert!(
                !experiment.about.is_empty(),
                "{name} says nothing about itself"
            );
            crate::families::find(experiment.family()).unwrap();
        }
    }

    #[test]
    fn an_unknown_name_gets_a_suggestion() {
        let message = open("moon").unwrap_err().to_string();
        assert!(message.contains("did you mean \"moons\""), "{message}");
    }
}
