//! The model families: all that the program knows of one is its entry here.
//!
//! An entry stands in the family's own room, as functions; [`FAMILIES`] has a line for each. The
//! command, the verifier and the report ask the list and know no family.

pub mod draft;

use std::path::{Path, PathBuf};

use crate::bench::{Growth, Workload};
use crate::data::sources;
use crate::suggest::did_you_mean;
use crate::train::{Experiment, Placement, Session, Summary};
use crate::verify::sizes::Stretch;
use crate::verify::{BuiltIn, Check};
use crate::{Error, Result};

/// All families.
pub const FAMILIES: &[Family] = &[
    crate::network::FAMILY,
    crate::kan::FAMILY,
    crate::denoise::FAMILY,
    crate::logic::FAMILY,
    crate::graph::FAMILY,
    crate::graph::DAG_FAMILY,
];

/// What a family's `run` is.
pub type RunFamily = fn(&Experiment, &RunOptions, &mut dyn Console) -> Result<()>;

/// What a family's `export_file` is.
pub type ExportFile = fn(&ExportOptions, &mut dyn Console) -> Result<()>;

/// What a family's `export` is.
pub type ExportFamily = fn(&Experiment, &ExportOptions, &mut dyn Console) -> Result<()>;

/// A model family. What it doesn't have is `None` or empty; [`Family::new`] has nothing.
pub struct Family {
    /// `[model] family` in experiment files, and `family` in a bundle's model.
    pub name: &'static str,
    /// Builds the family's task from the session's experiment and hands it to [`Session::fit`].
    pub train: Option<fn(&mut Session<'_>) -> Result<Summary>>,
    /// Uses a trained model.
    pub run: Option<RunFamily>,
    /// Says what a trained model has learnt, as a formula.
    pub explain: Option<RunFamily>,
    /// Writes a trained model in another form.
    pub export: Option<ExportFamily>,
    /// `retrograd export` of a file that it wrote itself, in the place of a run.
    pub export_file: Option<ExportFile>,
    /// The forms of [`ExportOptions::format`]: their names, and a line about each.
    pub formats: &'static [(&'static str, &'static str)],
    /// Whether its data are rows, that can be cut into folds.
    pub folds: bool,
    /// The batch size that a device can hold, said with its reason.
    pub auto_batch: Option<ChooseBatch>,
    /// Drafts an experiment for a user's own data, where it is the family's kind.
    pub draft: Option<draft::MakeDraft>,
    /// What checks the family's bundles, by their format.
    pub checks: &'static [Check],
    /// Whether [`Family::run`] looks at [`RunOptions::device`].
    pub runs_on_gpu: bool,
    /// Small models for the built-in verification and its mutants.
    pub built_in: fn() -> Vec<BuiltIn>,
    /// Models whose sizes are drawn around the cuts of kernels that are not of a layer.
    pub sizes: fn() -> Vec<Stretch>,
    /// What `retrograd bench` times.
    pub workloads: &'static [&'static [Workload]],
    /// What `retrograd bench --growth` makes larger and larger.
    pub growths: &'static [Growth],
    /// What to cite: a word that stands in an experiment's `[model]` or `[data]`, and the work that
    /// it calls for.
    pub works: &'static [(&'static str, &'static str)],
}

/// Chooses the batch size of an experiment from where it is computed.
pub type ChooseBatch = fn(&Experiment, &Placement, &mut dyn Console) -> Result<usize>;

impl Family {
    /// A family of that name that has nothing yet.
    pub const fn new(name: &'static str) -> Self {
        Family {
            name,
            train: None,
            run: None,
            explain: None,
            export: None,
            export_file: None,
            formats: &[],
            folds: false,
            auto_batch: None,
            draft: None,
            checks: &[],
            runs_on_gpu: false,
            built_in: Vec::new,
            sizes: Vec::new,
            workloads: &[],
            growths: &[],
            works: &[],
        }
    }

    /// The family that trains experiments of that name.
    pub fn find(name: &str) -> Result<&'static Family> {
        let trained = || FAMILIES.iter().filter(|f| f.train.is_some());
        trained().find(|f| f.name == name).ok_or_else(|| {
            let names = || trained().map(|f| f.name);
            Error::invalid(
                "[model] family",
                format!("{name:?}"),
                format!(
                    "one of: {}{}",
                    names().collect::<Vec<_>>().join(", "),
                    did_you_mean(name, names())
                ),
            )
        })
    }

    /// Trains the session's experiment.
    pub fn train(&self, session: &mut Session<'_>) -> Result<Summary> {
        match self.train {
            Some(train) => {
                let result = sources::during(|| train(session));
                session.settle(result)
            }
            None => Err(self.lacks("train", "nothing to train")),
        }
    }

    /// Uses the trained model of [`RunOptions::run`].
    pub fn run(
        &self,
        experiment: &Experiment,
        options: &RunOptions,
        console: &mut dyn Console,
    ) -> Result<()> {
        if options.device.is_some() && !self.runs_on_gpu {
            let needed = format!(
                "cpu, where trained models of the family {:?} are run",
                self.name
            );
            return Err(Error::invalid("--device", "gpu", needed));
        }
        match self.run {
            Some(run) => run(experiment, options, console),
            None => Err(self.lacks("run", "nothing to run")),
        }
    }

    /// Says what the trained model of [`RunOptions::run`] has learnt.
    pub fn explain(
        &self,
        experiment: &Experiment,
        options: &RunOptions,
        console: &mut dyn Console,
    ) -> Result<()> {
        match self.explain {
            Some(explain) => explain(experiment, options, console),
            None => Err(self.lacks("explain", "no formulas")),
        }
    }

    /// Writes the trained model of [`ExportOptions::run`] in another form.
    pub fn export(
        &self,
        experiment: &Experiment,
        options: &ExportOptions,
        console: &mut dyn Console,
    ) -> Result<()> {
        match self.export {
            Some(export) => export(experiment, options, console),
            None => Err(self.lacks("export", "nothing to export")),
        }
    }

    /// The batch size that the device of a placement can hold.
    pub fn auto_batch(
        &self,
        experiment: &Experiment,
        placement: &Placement,
        console: &mut dyn Console,
    ) -> Result<usize> {
        match self.auto_batch {
            Some(choose) => choose(experiment, placement, console),
            None => Err(Error::invalid(
                "--batch",
                format!("auto for the family {:?}", self.name),
                "a number: only networks on a GPU have it",
            )),
        }
    }

    /// That an experiment can be cross-validated in so many folds.
    pub fn check_folds(&self, experiment: &Experiment, folds: usize) -> Result<()> {
        if folds < 2 {
            return Err(Error::invalid("--folds", folds, "2 or more"));
        }
        let rows = ["file", "generate"]
            .iter()
            .any(|k| experiment.data.contains_key(*k));
        if self.folds && rows {
            return Ok(());
        }
        let families = FAMILIES.iter().filter(|f| f.folds).map(|f| f.name);
        let families = families.collect::<Vec<_>>().join(" and ");
        Err(Error::invalid(
            "--folds",
            format!("an experiment of the family {:?} without rows", self.name),
            format!("[data] with rows of a table or of arrays (families {families})"),
        ))
    }

    fn lacks(&self, what: &str, lacking: &str) -> Error {
        Error::refused(what, format!("the family {:?} has {lacking}", self.name))
    }
}

/// What a trained model is used on, and how. Every family takes its own of them.
#[derive(Clone, Debug, Default)]
pub struct RunOptions {
    /// The folder of the run.
    pub run: PathBuf,
    /// What the model is applied to.
    pub inputs: Vec<PathBuf>,
    /// Where the result goes.
    pub out: Option<PathBuf>,
    /// Whether files that are there may be written over.
    pub force: bool,
    /// Tables: columns of the input that stand before the predictions.
    pub keep: Vec<String>,
    /// KANs: edges below this share of the largest of their layer are taken out first.
    pub prune: Option<f64>,
    /// Images: what every input should look like.
    pub reference: Vec<PathBuf>,
    /// Images: the inputs are odd and even halves, alternately.
    pub halves: bool,
    /// Images: so many by so many pixels become one; as in training where nothing is said.
    pub bin: Option<usize>,
    /// Images: TIFFs of floats, whatever the inputs have.
    pub float: bool,
    /// Images: memory for the tiles that are computed at a time.
    pub memory_mib: u64,
    /// Automata: steps to play.
    pub steps: Option<usize>,
    /// Automata: the grid, `WIDTHxHEIGHT`.
    pub size: Option<String>,
    /// Automata: rectangles that are erased, `x,y,w,h,from,to`.
    pub damage: Vec<String>,
    /// Automata: the file of an animation.
    pub gif: Option<PathBuf>,
    /// Automata: the seed of the start and of the cells that fire.
    pub seed: u64,
    /// Automata: the adapter of a GPU that plays them; the CPU where there is none.
    pub device: Option<String>,
}

impl RunOptions {
    /// That none of the outputs is an input or another file that is there, unless that is asked
    /// for.
    pub(crate) fn check_outputs<'p>(
        &self,
        outputs: impl IntoIterator<Item = &'p PathBuf>,
    ) -> Result<()> {
        let inputs = self.inputs.iter().chain(&self.reference);
        let inputs: Vec<PathBuf> = inputs.filter_map(|i| i.canonicalize().ok()).collect();
        for output in outputs {
            check_output(output, &inputs, self.force)?;
        }
        Ok(())
    }
}

/// That a file can be written: it is not there, or may be written over.
fn check_output(output: &Path, inputs: &[PathBuf], force: bool) -> Result<()> {
    let Ok(there) = output.canonicalize() else {
        return Ok(());
    };
    let what = match inputs.contains(&there) {
        _ if there.is_dir() => "is a folder; a file is needed",
        _ if force => return Ok(()),
        true => "is an input; choose another name, or --force to write over it",
        false => "is there already; choose another name, or --force to write over it",
    };
    Err(Error::refused(
        "--out",
        format!("{} {what}", output.display()),
    ))
}

/// In which form a trained model is written, and where to.
#[derive(Clone, Debug, Default)]
pub struct ExportOptions {
    /// The folder of the run.
    pub run: PathBuf,
    /// Where the result goes.
    pub out: Option<PathBuf>,
    /// Whether files that are there may be written over.
    pub force: bool,
    /// A picture of the network.
    pub plot: bool,
    /// One of the [`Family::formats`].
    pub format: Option<String>,
    /// The model as an ONNX file.
    pub onnx: bool,
    /// How far a circuit is simplified: one of the family's words.
    pub circuit: Option<String>,
}

impl ExportOptions {
    /// Writes an ONNX file: where the options say, or into the run's folder.
    pub(crate) fn write_onnx(
        &self,
        make: impl FnOnce() -> Result<Vec<u8>>,
        console: &mut dyn Console,
    ) -> Result<()> {
        let path = match &self.out {
            Some(out) => out.clone(),
            None => self.run.join("model.onnx"),
        };
        self.check_output(&path)?;
        let bytes = make()?;
        crate::disk::write_whole(&path, |file| file.write_all(&bytes))?;
        console.value("onnx", &path.display());
        Ok(())
    }

    /// That nothing is written over which the user has named, unless that is asked for. What an
    /// export leaves in the run's own folder follows from the run, and may be made again.
    pub(crate) fn check_output(&self, output: &Path) -> Result<()> {
        if output.starts_with(&self.run) {
            return Ok(());
        }
        check_output(output, &[], self.force)
    }
}

/// Where a family says what it does.
pub trait Console {
    /// A line of the result.
    fn line(&mut self, text: &str);

    /// Something found out.
    fn note(&mut self, text: &str) {
        let _ = text;
    }

    /// Something that may be wrong.
    fn warn(&mut self, text: &str) {
        let _ = text;
    }

    /// So many rows of a file are done, of all that it has.
    fn rows(&mut self, file: &Path, done: usize, all: usize) {
        let _ = (file, done, all);
    }

    /// Whether [`Console::frame`] shows anything.
    fn animates(&self) -> bool {
        false
    }

    /// A picture in place of the one before.
    fn frame(&mut self, text: &str) {
        let _ = text;
    }

    /// A named value of the result, in columns.
    fn value(&mut self, name: &str, value: &dyn std::fmt::Display) {
        self.line(&format!("{name:20} {value}"));
    }
}

/// The lines of a result, kept.
#[derive(Clone, Debug, Default)]
pub struct Lines(
    /// One string a line.
    pub Vec<String>,
);

impl Console for Lines {
    fn line(&mut self, text: &str) {
        self.0.push(text.to_string());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_family_is_found_by_its_name_and_another_is_refused_with_all_that_train() {
        for family in FAMILIES {
            let found = Family::find(family.name);
            assert_eq!(found.is_ok(), family.train.is_some(), "{}", family.name);
        }
        let Err(error) = Family::find("grap") else {
            panic!("there is no such family");
        };
        let error = error.to_string();
        let names = "network, kan, denoise, logic_ca, graph";
        assert!(error.contains(names) && !error.contains("dag"), "{error}");
        assert!(error.contains("did you mean \"graph\""), "{error}");
    }

    #[test]
    fn names_are_given_once_and_every_bundle_format_is_checked_once() {
        let mut seen = Vec::new();
        for family in FAMILIES {
            assert!(!seen.contains(&(family.name, "")), "{}", family.name);
            seen.push((family.name, ""));
            for check in family.checks {
                assert!(!seen.contains(&(family.name, check.format)));
                seen.push((family.name, check.format));
            }
        }
    }

    #[test]
    fn what_a_family_does_not_have_is_refused_by_its_name() {
        let family = Family::new("bare");
        let text = "name = \"a\"\n[model]\nfamily = \"bare\"\n[train]\nepochs = 1\n\
                    optimizer = { kind = \"sgd\", lr = 0.1 }\n";
        let experiment = Experiment::parse(text, "a.toml").unwrap();
        let mut lines = Lines::default();
        let run = family.run(&experiment, &RunOptions::default(), &mut lines);
        let export = family.export(&experiment, &ExportOptions::default(), &mut lines);
        let batch = family.auto_batch(&experiment, &Placement::Cpu, &mut lines);
        let train = family.train(&mut Session::new(experiment));
        let errors = [run.err(), export.err(), batch.err(), train.err()];
        for error in errors {
            let error = error.map_or(String::new(), |e| e.to_string());
            assert!(error.contains("\"bare\""), "{error:?}");
        }
        assert!(lines.0.is_empty());
    }
}
