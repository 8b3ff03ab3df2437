//! Experiment files: what is trained, on what, and how, in TOML.
//!
//! ```toml
//! name = "waves"
//! about = "A small network learns a wave"
//!
//! [model]                # the family's own description
//! family = "network"
//!
//! [data]                 # the family's own sources
//!
//! [train]                # the same for every family
//! epochs = 100
//! optimizer = { kind = "adam", lr = 1e-3 }
//! ```
//!
//! Unknown keys are errors. Relative paths start from the file's own folder.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::Placement;
use crate::optim::{OptimizerSpec, Schedule};
use crate::suggest;
use crate::{Error, Loss, Result, disk};

/// An experiment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Experiment {
    /// Its name; the default name of the run's folder.
    pub name: String,
    /// One line for lists.
    #[serde(default)]
    pub about: String,
    /// Where relative paths start from; the file's own folder where it isn't written.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        with = "super::paths"
    )]
    pub folder: Option<PathBuf>,
    /// The loop's settings.
    pub train: TrainSpec,
    /// The family's description of the model, `family` among it.
    pub model: toml::Table,
    /// The family's description of the data.
    #[serde(default)]
    pub data: toml::Table,
}

/// The `[train]` table.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TrainSpec {
    /// Passes over the data.
    pub epochs: u64,
    /// Samples in a batch; the family's default where it isn't written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub batch: Option<usize>,
    /// What is minimised; the family's default where it isn't written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loss: Option<Loss>,
    /// Kind and constants of the optimizer.
    pub optimizer: OptimizerSpec,
    /// The rate by the step.
    #[serde(default)]
    pub schedule: Schedule,
    /// Clipping of the gradient by its norm over all parameters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clip: Option<f64>,
    /// Clamping of every element of the gradient, before `clip`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clip_element: Option<f64>,
    /// Batches per optimizer step. The gradients of mean losses are averaged over them, those of
    /// `sum_squares` added.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub accumulate: u64,
    /// Parts that a batch is cut into, for processes to share; their gradients are computed alone and
    /// added along a fixed tree, so that any number of processes gives the same bits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shards: Option<usize>,
    /// Update a tensor once its gradient is complete, on the CPU; the same bits.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub fused_updates: bool,
    /// 1 takes every gradient at the parameters from before the last update, so that a device computes it
    /// while the CPU makes that update (`--mode hybrid`); the same recurrence on the CPU.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub pipeline: u64,
    /// Where steps are computed: what `--device auto` found to be faster, so that a resumed run stays there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
    /// Tensors that keep their values: names, or prefixes with a final `*`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub freeze: Vec<String>,
    /// Initial weights: a safetensors file, a PyTorch `state_dict` for example.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        with = "super::paths"
    )]
    pub weights: Option<PathBuf>,
    /// Stop after this many epochs without a better figure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub early_stopping: Option<u64>,
    /// Stop once the model has learned: nothing wrong in this many evaluations in a row, and in what
    /// the task tries beside. For tasks that can say so, such as automata.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stop_when_learned: Option<u64>,
    /// Start again from the next key where this many epochs were not enough to learn; `epochs` are
    /// those of all attempts. For the same tasks, where no weights are given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restart_after: Option<u64>,
    /// Every so many epochs look for an exact model near the soft one that is right. For the same
    /// tasks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub round_every: Option<u64>,
    /// Once the model has learned, look for a smaller one that is as right. For the same tasks, with
    /// `stop_when_learned`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub thin: bool,
    /// End after this epoch, with the rates of a run of `epochs`: what a cross-validation found best.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stop_after: Option<u64>,
    /// Epochs between evaluations; the last one is always evaluated.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub evaluate_every: u64,
    /// Steps between checkpoints. Where it isn't written one is made every
    /// [`CHECKPOINT_SECONDS`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checkpoint_every: Option<u64>,
    /// The seed of everything random.
    #[serde(default)]
    pub seed: u64,
    /// What happens when a loss or a gradient is not finite.
    #[serde(default)]
    pub on_nan: OnNan,
}

/// Seconds between checkpoints by default: what a crash costs at most.
pub const CHECKPOINT_SECONDS: u64 = 30;

/// What happens when a loss or a gradient is not finite.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnNan {
    /// The run stops with an error and keeps the last good state.
    #[default]
    Stop,
    /// The optimizer step is left out; the run goes on.
    Skip,
}

fn one() -> u64 {
    1
}
fn is_one(n: &u64) -> bool {
    *n == 1
}
fn is_zero(n: &u64) -> bool {
    *n == 0
}

impl Default for TrainSpec {
    fn default() -> Self {
        TrainSpec {
            epochs: 1,
            batch: None,
            loss: None,
            optimizer: OptimizerSpec::adam(1e-3),
            schedule: Schedule::default(),
            clip: None,
            clip_element: None,
            accumulate: 1,
            shards: None,
            fused_updates: false,
            pipeline: 0,
            device: None,
            freeze: Vec::new(),
            weights: None,
            early_stopping: None,
            stop_when_learned: None,
            restart_after: None,
            thin: false,
            round_every: None,
            stop_after: None,
            evaluate_every: 1,
            checkpoint_every: None,
            seed: 0,
            on_nan: OnNan::Stop,
        }
    }
}

impl TrainSpec {
    /// The numbers are in range.
    pub fn check(&self) -> Result<()> {
        for (what, value) in [
            ("train.epochs", self.epochs),
            ("train.accumulate", self.accumulate),
            ("train.evaluate_every", self.evaluate_every),
            ("train.checkpoint_every", self.checkpoint_every.unwrap_or(1)),
            ("train.early_stopping", self.early_stopping.unwrap_or(1)),
            (
                "train.stop_when_learned",
                self.stop_when_learned.unwrap_or(1),
            ),
            ("train.restart_after", self.restart_after.unwrap_or(1)),
            ("train.round_every", self.round_every.unwrap_or(1)),
            ("train.stop_after", self.stop_after.unwrap_or(1)),
            ("train.batch", self.batch.unwrap_or(1) as u64),
            ("train.shards", self.shards.unwrap_or(1) as u64),
        ] {
            if value == 0 {
                return Err(Error::invalid(what, 0, "at least 1"));
            }
            check_whole(what, value)?;
        }
        check_whole("train.seed", self.seed)?;
        for (what, value) in [
            ("train.clip", self.clip),
            ("train.clip_element", self.clip_element),
        ] {
            if let Some(value) = value
                && !(value > 0.0 && value.is_finite())
            {
                return Err(Error::invalid(what, value, "a finite number > 0"));
            }
        }
        if self.thin && self.stop_when_learned.is_none() {
            return Err(Error::invalid(
                "train.thin",
                "true",
                "stop_when_learned beside it: what has learned is made smaller, at the end",
            ));
        }
        if self.fused_updates {
            self.check_fused()?;
        }
        self.check_pipeline()?;
        if let Some(device) = &self.device {
            Placement::parse(device)?;
        }
        self.optimizer.check()?;
        self.schedule.check()
    }

    /// The epoch that the run ends with.
    pub fn last_epoch(&self) -> u64 {
        self.stop_after.unwrap_or(self.epochs).min(self.epochs)
    }

    /// Epochs of an attempt: those that a schedule spreads over.
    pub fn attempt_epochs(&self) -> u64 {
        let each = self.restart_after.filter(|_| self.attempts().is_some());
        each.unwrap_or(self.epochs).min(self.epochs)
    }

    /// Attempts that fit into the epochs, where a start that doesn't learn is given up.
    pub fn attempts(&self) -> Option<u64> {
        let each = self.restart_after.filter(|_| self.weights.is_none())?;
        Some(self.last_epoch().div_ceil(each))
    }

    /// A pipeline is one step deep, and where gradients are of one process.
    fn check_pipeline(&self) -> Result<()> {
        let refused =
            |got: String, needed: &str| Err(Error::invalid("train.pipeline", got, needed));
        match (self.pipeline, self.fused_updates, self.shards) {
            (0, ..) | (1, false, None) => Ok(()),
            (1, true, _) => refused(
                "1 beside fused_updates = true".into(),
                "one of them: a fused update is made while its gradient is computed, a pipeline's one \
                 step later",
            ),
            (1, _, Some(shards)) => refused(
                format!("1 beside shards = {shards}"),
                "one of them: processes send their gradients to each other before an update",
            ),
            (depth, ..) => refused(
                depth.to_string(),
                "0 or 1: the device is never more than one update ahead",
            ),
        }
    }

    /// Nothing that needs the whole gradient before the first update, or the parameters from before
    /// it afterwards.
    fn check_fused(&self) -> Result<()> {
        let refused = |with: String, because: &str| {
            Err(Error::invalid(
                "train.fused_updates",
                format!("true beside {with}"),
                format!("false: {because}"),
            ))
        };
        if let Some(clip) = self.clip {
            return refused(
                format!("clip = {clip}"),
                "the norm of the gradient is known when its last tensor is, and the first are \
                 updated by then (clip_element works)",
            );
        }
        if let Some(shards) = self.shards {
            return refused(
                format!("shards = {shards}"),
                "a gradient is complete when those of all shards are added",
            );
        }
        if self.accumulate > 1 {
            return refused(
                format!("accumulate = {}", self.accumulate),
                "a gradient is complete after the last of its batches only",
            );
        }
        if self.on_nan == OnNan::Skip {
            return refused(
                "on_nan = \"skip\"".into(),
                "some tensors are updated before another's gradient turns out not to be finite, \
                 and such a step can't be left out any more",
            );
        }
        Ok(())
    }
}

impl Experiment {
    /// Reads and checks a file.
    pub fn read(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let text = String::from_utf8(disk::read(path)?).map_err(|e| {
            let at = e.utf8_error().valid_up_to();
            Error::file(path, format!("byte {at}"), "no UTF-8 text, needs TOML")
        })?;
        let mut experiment = Self::parse(&text, path)?;
        if experiment.folder.is_none() {
            let folder = path.parent().unwrap_or(Path::new(""));
            let folder = std::path::absolute(if folder.as_os_str().is_empty() {
                Path::new(".")
            } else {
                folder
            });
            experiment.folder = Some(folder.map_err(Error::io(path, "find the folder of"))?);
        }
        Ok(experiment)
    }

    /// Parses and checks; `path` is for messages.
    pub fn parse(text: &str, path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let problem = |error: toml::de::Error| {
            let before = error.span().map(|span| &text[..span.start.min(text.len())]);
            let at = match before {
                Some(before) => format!(
                    "line {}, column {}",
                    before.matches('\n').count() + 1,
                    before
                        .rsplit('\n')
                        .next()
                        .unwrap_or_default()
                        .chars()
                        .count()
                        + 1
                ),
                None => "TOML".to_string(),
            };
            Error::file(path, at, suggest::explain(error.message()))
        };
        let experiment: Experiment = toml::from_str(text).map_err(problem)?;
        // Its two halves are flattened together, where serde cannot refuse unknown keys itself.
        let table: toml::Table = toml::from_str(text).map_err(problem)?;
        let schedule = table["train"].get("schedule").and_then(|s| s.as_table());
        check_schedule_keys(schedule, path)?;
        check_name(&experiment.name).map_err(|e| Error::file(path, "name", e))?;
        experiment
            .train
            .check()
            .map_err(|e| Error::file(path, "[train]", e))?;
        experiment.family_in(path)?;
        Ok(experiment)
    }

    /// `model.family`.
    pub fn family(&self) -> &str {
        self.model
            .get("family")
            .and_then(|f| f.as_str())
            .unwrap_or("?")
    }

    fn family_in(&self, path: &Path) -> Result<()> {
        match self.model.get("family").map(|f| f.as_str()) {
            Some(Some(_)) => Ok(()),
            got => Err(Error::file(
                path,
                "[model] family",
                format!(
                    "got {}, needs the name of a family",
                    if got.is_some() {
                        "no text"
                    } else {
                        "no such key"
                    }
                ),
            )),
        }
    }

    /// The `[model]` table in the family's own type.
    pub fn model_as<S: serde::de::DeserializeOwned>(&self) -> Result<S> {
        self.table_as("[model]", &self.model)
    }

    /// The `[data]` table in the family's own type.
    pub fn data_as<S: serde::de::DeserializeOwned>(&self) -> Result<S> {
        self.table_as("[data]", &self.data)
    }

    fn table_as<S: serde::de::DeserializeOwned>(&self, at: &str, table: &toml::Table) -> Result<S> {
        table.clone().try_into().map_err(|e: toml::de::Error| {
            Error::file(
                format!("experiment {}", self.name),
                at,
                suggest::explain(e.message()),
            )
        })
    }

    /// A path of the experiment: relative ones start from its folder.
    pub fn resolve(&self, path: impl AsRef<Path>) -> PathBuf {
        match &self.folder {
            Some(folder) => folder.join(path),
            None => path.as_ref().to_path_buf(),
        }
    }

    /// The file's text, with every setting that is not the default.
    pub fn to_toml(&self) -> String {
        toml::to_string_pretty(self).expect("tables of plain values")
    }
}

/// TOML's whole numbers have a sign: what a run's file can't hold, the run couldn't go on from.
fn check_whole(what: &str, value: u64) -> Result<()> {
    const MOST: u64 = i64::MAX as u64;
    if value > MOST {
        return Err(Error::invalid(what, value, format!("at most {MOST}")));
    }
    Ok(())
}

/// A run's folder has this name, within `runs/` and on any system.
fn check_name(name: &str) -> Result<()> {
    const MAX_BYTES: usize = 200;
    const DEVICES: [&str; 6] = ["con", "prn", "aux", "nul", "com", "lpt"];
    let stem = name.split('.').next().unwrap_or_default().to_lowercase();
    let device = stem.trim_end_matches(|c: char| c.is_ascii_digit());
    let numbered = stem.len() - device.len();
    let reserved = DEVICES
        .iter()
        .any(|d| *d == device && numbered == usize::from(["com", "lpt"].contains(d)));
    let forbidden = |c: char| c.is_control() || "/\\:*?\"<>|".contains(c);
    let edges = name.starts_with([' ', '.']) || name.ends_with([' ', '.']);
    if name.is_empty() || name.len() > MAX_BYTES || reserved || edges || name.contains(forbidden) {
        return Err(Error::invalid(
            "name",
            format!("{name:?}"),
            format!(
                "a name for a folder: 1 to {MAX_BYTES} bytes, none of / \\ : * ? \" < > | and no control \
                 character, no dot or space at either end, and no device of Windows (con, nul …)"
            ),
        ));
    }
    Ok(())
}

fn check_schedule_keys(schedule: Option<&toml::Table>, path: &Path) -> Result<()> {
    let Some(schedule) = schedule else {
        return Ok(());
    };
    let kind = schedule.get("kind").and_then(|k| k.as_str());
    let own: &[&str] = match kind {
        Some("step") => &["every", "gamma"],
        Some("cosine") => &["min"],
        Some("one_cycle") => &["rise", "div_factor", "final_div_factor"],
        _ => &[],
    };
    let known = || ["kind", "warmup"].into_iter().chain(own.iter().copied());
    for key in schedule.keys() {
        if !known().any(|k| k == key) {
            let list: Vec<_> = known().collect();
            return Err(Error::file(
                path,
                "[train] schedule",
                format!(
                    "unknown key {key:?}, needs one of {}{}",
                    list.join(", "),
                    suggest::did_you_mean(key, known())
                ),
            ));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = r#"
name = "waves"
about = "A small network learns a wave"
[model]
family = "network"
layers = [{ kind = "dense", out = 3 }]
[train]
epochs = 20
optimizer = { kind = "adam", lr = 1e-3 }
schedule = { kind = "cosine", min = 0.1, warmup = 5 }
"#;

    #[test]
    fn an_experiment_survives_being_written_and_read() {
        let mut experiment = Experiment::parse(GOOD, "waves.toml").unwrap();
        assert_eq!(experiment.family(), "network");
        assert_eq!(experiment.train.schedule.warmup, 5);
        experiment.train.seed = 7;
        experiment.train.freeze = vec!["0.*".into()];
        experiment.folder = Some("/data".into());
        let again = Experiment::parse(&experiment.to_toml(), "again.toml").unwrap();
        assert_eq!(again, experiment);
        assert_eq!(again.resolve("a.csv"), Path::new("/data/a.csv"));
    }

    #[test]
    fn a_name_stays_within_the_folder_of_runs() {
        let named = |name: &str| {
            let text = GOOD.replace("\"waves\"", &toml::Value::from(name).to_string());
            Experiment::parse(&text, "waves.toml").map(|e| e.name)
        };
        for good in [
            "waves",
            "größe 3",
            "a.b-c_d",
            "run 2 (old)",
            "com",
            "console",
            "com10",
        ] {
            assert_eq!(named(good).unwrap(), good);
        }
        let long = "x".repeat(201);
        for bad in [
            "",
            ".",
            "..",
            "../../x",
            "/tmp/x",
            "a/b",
            "a\\b",
            "C:x",
            "a\nb",
            "a\u{1b}[31m",
            " a",
            "a.",
            ".hidden",
            "nul",
            "NUL.txt",
            "com1",
            "Lpt9.x",
            "a?",
            &long,
        ] {
            let message = named(bad).unwrap_err().to_string();
            let parts = ["waves.toml: name", "a name for a folder"];
            assert!(
                parts.iter().all(|p| message.contains(p)),
                "{bad:?}: {message}"
            );
            assert!(!message.contains('\u{1b}'), "{message:?}");
        }
    }

    #[cfg(unix)]
    #[test]
    fn folders_whose_names_are_no_text_come_back() {
        use std::os::unix::ffi::OsStrExt;
        let mut experiment = Experiment::parse(GOOD, "waves.toml").unwrap();
        let odd = |bytes: &[u8]| Some(PathBuf::from(std::ffi::OsStr::from_bytes(bytes)));
        experiment.folder = odd(b"/data/gr\xf6\xdfe");
        experiment.train.weights = odd(b"\xff.safetensors");
        let again = Experiment::parse(&experiment.to_toml(), "again.toml").unwrap();
        assert_eq!(again, experiment);
    }

    #[test]
    fn mistakes_name_the_line_and_suggest_the_right_word() {
        for (from, to, parts) in [
            (
                "epochs",
                "epcohs",
                &["waves.toml", "line 8", "did you mean \"epochs\""][..],
            ),
            ("lr", "lrr", &["did you mean \"lr\""]),
            ("\"adam\"", "\"adma\"", &["did you mean \"adam\""]),
            ("min = 0.1", "mim = 0.1", &["did you mean \"min\""]),
            ("epochs = 20", "epochs = 0", &["train.epochs", "at least 1"]),
            ("family = \"network\"", "", &["family"]),
            ("[train]", "[traim]", &["did you mean \"train\""]),
            ("lr = 1e-3", "lr = -1.0", &["optimizer.lr", "-1"]),
        ] {
            let text = GOOD.replace(from, to);
            let message = Experiment::parse(&text, "waves.toml")
                .unwrap_err()
                .to_string();
            for part in parts {
                assert!(message.contains(part), "{to}: {message}");
            }
        }
    }
}
