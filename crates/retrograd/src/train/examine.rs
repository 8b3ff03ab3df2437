//! What of a run's folder is whole, and what can still be used.

use std::path::Path;

use super::TensorFile;
use super::checkpoint::{examine_checkpoint, examine_tensors};
use super::folder::{
    CHECKPOINT, EXPERIMENT, METRICS, MODEL, MetricsFile, PREVIOUS, SUMMARY, experiment_of,
    is_unfinished, there,
};
use crate::{Error, Family, Result, disk};

/// How a file is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Condition {
    /// As it was written, as far as can be said; with a remark.
    Whole(String),
    /// It isn't there, which may be as it should be.
    Missing(String),
    /// It is not as it was written: what is wrong.
    Damaged(String),
}

/// What was found in the folder of a run.
#[derive(Clone, Debug, Default)]
pub struct Examined {
    /// Every file that was looked at, by its name.
    pub files: Vec<(String, Condition)>,
    /// What `--resume` would go on from; none where it cannot.
    pub resume: Option<String>,
    /// Whether the trained model can be used.
    pub usable: bool,
}

impl Examined {
    /// Whether a file is damaged, or the run can't be used or gone on with.
    pub fn damaged(&self) -> bool {
        let damaged = |c: &Condition| matches!(c, Condition::Damaged(_));
        self.files.iter().any(|(_, c)| damaged(c)) || self.resume.is_none() || !self.usable
    }
}

/// Examines the folder of a run. Nothing in it is changed.
pub fn examine(run: &Path) -> Result<Examined> {
    if !run.is_dir() {
        let problem = "there is no such folder, needs one of a run";
        return Err(Error::refused(run.display(), problem));
    }
    let mut found = Examined::default();
    let experiment = found.add(run, EXPERIMENT, true, |_| {
        let experiment = experiment_of(run)?;
        Family::find(experiment.family())?;
        let remark = format!("{:?}, {} epochs", experiment.name, experiment.train.epochs);
        Ok((remark, ()))
    })?;
    let newest = found.add(run, CHECKPOINT, false, checkpoint)?;
    let previous = found.add(run, PREVIOUS, false, checkpoint)?;
    let model = found.add(run, MODEL, true, |path| {
        let file = TensorFile::read(path)?;
        examine_tensors(&file, path)?;
        Ok((format!("{} tensors", file.tensors.len()), ()))
    })?;
    let step = newest.or(previous).unwrap_or(0);
    found.add(run, METRICS, false, |path| metrics(path, step))?;
    found.add(run, SUMMARY, false, |path| {
        let value: serde_json::Value =
            serde_json::from_slice(&disk::read(path)?).map_err(|e| Error::file(path, "JSON", e))?;
        let trained = value["epochs"].as_u64().unwrap_or_default();
        Ok((format!("{trained} epochs"), ()))
    })?;
    for file in disk::list(run)?.iter().filter(|file| is_unfinished(file)) {
        let name = file.file_name().unwrap_or_default().to_string_lossy();
        let remark = "a killed process was writing it; --resume removes it".to_string();
        found
            .files
            .push((name.into_owned(), Condition::Whole(remark)));
    }
    found.usable = experiment.is_some() && model.is_some();
    found.resume = match (experiment, newest, previous) {
        (None, ..) => None,
        (_, Some(step), _) => Some(format!("after step {step}, from {CHECKPOINT}")),
        (_, None, Some(step)) => Some(format!("after step {step}, from {PREVIOUS}")),
        (_, None, None) if there(&run.join(CHECKPOINT))? || there(&run.join(PREVIOUS))? => None,
        (_, None, None) => Some("at step 0, as there is no checkpoint".to_string()),
    };
    Ok(found)
}

impl Examined {
    /// Looks at a file; what it says where the file is whole.
    fn add<T>(
        &mut self,
        run: &Path,
        name: &str,
        needed: bool,
        look: impl FnOnce(&Path) -> Result<(String, T)>,
    ) -> Result<Option<T>> {
        let path = run.join(name);
        let mut put = |condition| self.files.push((name.to_string(), condition));
        if !there(&path)? {
            let remark = if needed { "every run has one" } else { "" };
            put(Condition::Missing(remark.to_string()));
            return Ok(None);
        }
        match look(&path) {
            Ok((remark, value)) => {
                put(Condition::Whole(remark));
                Ok(Some(value))
            }
            Err(error) => {
                put(Condition::Damaged(error.to_string()));
                Ok(None)
            }
        }
    }
}

fn checkpoint(path: &Path) -> Result<(String, u64)> {
    let file = TensorFile::read(path)?;
    let progress = examine_checkpoint(&file, path)?;
    Ok((format!("after step {}", progress.step), progress.step))
}

/// Rows that the checkpoint counts on, and those after it, which are computed again.
fn metrics(path: &Path, step: u64) -> Result<(String, ())> {
    let text = disk::read(path)?;
    let rows = text.split(|&b| b == b'\n').filter(|row| !row.is_empty());
    let rows = rows.count().saturating_sub(1);
    let all = MetricsFile::read(path, u64::MAX)?;
    let counted = all.iter().filter(|record| record.step <= step).count();
    if all.len() + 1 < rows || (all.len() < rows && text.ends_with(b"\n")) {
        let problem = format!("{} of {rows} rows can be read", all.len());
        return Err(Error::file(path, "rows", problem));
    }
    Ok((format!("{counted} epochs up to the checkpoint"), ()))
}
