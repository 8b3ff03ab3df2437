//! The ready experiments, built into the command.

use std::ffi::OsStr;
use std::path::Path;

use anyhow::{Result, bail};
use retrograd::command::did_you_mean;
use retrograd::train::{Experiment, experiment_of};

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

/// A ready experiment by its name.
pub fn ready(name: &str) -> retrograd::Result<Experiment> {
    let Some(&(_, text)) = READY.iter().find(|&&(n, _)| n == name) else {
        let needed = names().collect::<Vec<_>>().join(", ");
        return Err(retrograd::Error::invalid("experiment", name, needed));
    };
    Experiment::parse(text, format!("experiments/{name}.toml"))
}

/// A ready experiment by its name, or one from a file.
pub fn open(name: impl AsRef<OsStr>) -> Result<Experiment> {
    let path = Path::new(name.as_ref());
    let Some(name) = path.to_str() else {
        // No ready one has such a name.
        return Ok(Experiment::read(path)?);
    };
    if names().any(|n| n == name) {
        return Ok(ready(name)?);
    }
    if path.extension().is_some_and(|e| e == "toml") || path.is_file() {
        return Ok(Experiment::read(path)?);
    }
    bail!(
        "experiment {name:?}: neither a file that ends in .toml nor one of the ready ones: {}{}",
        names().collect::<Vec<_>>().join(", "),
        did_you_mean(name, names())
    )
}

/// The smaller variant of a ready experiment.
pub fn small(name: impl AsRef<OsStr>) -> Result<Experiment> {
    let name = &*name.as_ref().to_string_lossy();
    let variant = format!("{name}-small");
    if names().any(|n| n == variant) || !names().any(|n| n == name) {
        return open(&variant);
    }
    let have: Vec<_> = names().filter_map(|n| n.strip_suffix("-small")).collect();
    bail!(
        "--small: {name:?} has no smaller variant; these have: {}",
        have.join(", ")
    )
}

/// The experiment of a run's folder. One that isn't there may be a slip for one beside it.
pub fn of_run(run: &Path) -> Result<Experiment> {
    if run.is_dir() {
        return Ok(experiment_of(run)?);
    }
    let folder = match run.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let mut runs: Vec<String> = std::fs::read_dir(folder)
        .into_iter()
        .flatten()
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.join("experiment.toml").is_file())
        .filter_map(|path| Some(path.file_name()?.to_str()?.to_string()))
        .collect();
    runs.sort();
    let name = run.file_name().unwrap_or_default().to_string_lossy();
    let hint = did_you_mean(&name, runs.iter().map(String::as_str));
    let there = match runs.as_slice() {
        [] => "there is no run beside it".to_string(),
        runs => format!("the runs beside it are: {}", runs.join(", ")),
    };
    bail!(
        "{}: there is no such folder, needs one of a run, with its experiment.toml; {there}{hint}",
        run.display()
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
            retrograd::Family::find(experiment.family()).unwrap();
        }
    }

    #[test]
    fn an_unknown_name_gets_a_suggestion() {
        let message = open("moon").unwrap_err().to_string();
        assert!(message.contains("did you mean \"moons\""), "{message}");
        let message = small("moons").unwrap_err().to_string();
        assert!(message.contains("no smaller variant"), "{message}");
        assert_eq!(small("life").unwrap().name, "life-small");
    }

    #[test]
    fn a_mistyped_run_gets_the_ones_beside_it() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("moons")).unwrap();
        std::fs::write(folder.path().join("moons/experiment.toml"), "").unwrap();
        let message = of_run(&folder.path().join("mons")).unwrap_err().to_string();
        assert!(message.contains("did you mean \"moons\""), "{message}");
    }
}
