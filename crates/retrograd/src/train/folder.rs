//! The folder of a run.
//!
//! | file | what |
//! |---|---|
//! | `experiment.toml` | the experiment with what the command line changed |
//! | `model.safetensors` | the best weights (the last where nothing is measured), as PyTorch names them |
//! | `checkpoint.safetensors` | weights, optimizer state and where the run stands |
//! | `checkpoint.previous.safetensors` | the one before it, for the case that it is damaged |
//! | `metrics.csv` | the figures of every evaluated epoch |
//! | `summary.json`, `curves.svg`, `report.html` | written at the end |

use std::fs::File;
use std::path::{Path, PathBuf};

use super::{Experiment, Record};
use crate::data::csv;
use crate::disk::{self, UNFINISHED, write_whole};
use crate::{Error, Result};

pub(super) const EXPERIMENT: &str = "experiment.toml";
pub(super) const MODEL: &str = "model.safetensors";
pub(super) const CHECKPOINT: &str = "checkpoint.safetensors";
pub(super) const PREVIOUS: &str = "checkpoint.previous.safetensors";
pub(super) const METRICS: &str = "metrics.csv";
pub(super) const SUMMARY: &str = "summary.json";
const CURVES: &str = "curves.svg";
const REPORT: &str = "report.html";
const LOCK: &str = ".lock";

/// The folder of a run; while it is held no other run can write into it.
#[derive(Debug)]
pub struct RunFolder {
    path: PathBuf,
    /// Whether it was made for this run.
    new: bool,
    _lock: File,
}

impl RunFolder {
    /// A new one. A folder that holds a run, or files of a run's names, is refused.
    pub fn create(path: &Path, experiment: &Experiment) -> Result<Self> {
        let new = !path.exists();
        disk::make_folder(path)?;
        for name in [
            EXPERIMENT, MODEL, CHECKPOINT, PREVIOUS, METRICS, SUMMARY, CURVES, REPORT,
        ] {
            if there(&path.join(name))? {
                let begun = there(&path.join(CHECKPOINT))? || there(&path.join(PREVIOUS))?;
                let problem = if begun || !there(&path.join(EXPERIMENT))? {
                    "the folder holds a run already; go on with --resume, or choose another --out"
                } else {
                    "the folder holds a run that was stopped before its first checkpoint; --resume \
                     begins it at step 0, or choose another --out"
                };
                return Err(Error::file(path, name, problem));
            }
        }
        let mut folder = Self::lock(path).inspect_err(|_| {
            if new {
                // Unless someone else was faster, it is empty or holds a lock alone.
                let _ = disk::remove_folder(path);
            }
        })?;
        folder.new = new;
        match folder.write(&folder.experiment(), &experiment.to_toml()) {
            Ok(()) => Ok(folder),
            Err(error) => {
                folder.abandon();
                Err(error)
            }
        }
    }

    /// One that holds a run, to go on with it.
    pub fn open(path: &Path) -> Result<Self> {
        let experiment = path.join(EXPERIMENT);
        if !experiment.is_file() {
            return Err(Error::file(
                path,
                EXPERIMENT,
                "there is no such file; a run's folder has one",
            ));
        }
        Self::lock(path)
    }

    fn lock(path: &Path) -> Result<Self> {
        let file = disk::lock_file(&path.join(LOCK))?;
        if let Err(std::fs::TryLockError::WouldBlock) = file.try_lock() {
            return Err(Error::file(
                path,
                LOCK,
                "another process is training in this folder",
            ));
        }
        // The folder is ours alone: what a killed run was writing is of no use to anyone.
        for entry in disk::list(path)? {
            if is_unfinished(&entry) {
                disk::remove(&entry)?;
            }
        }
        Ok(RunFolder {
            path: path.to_path_buf(),
            new: false,
            _lock: file,
        })
    }

    /// Takes back a run that could not begin. Other files of the folder are left alone, and so is one
    /// that was there before.
    pub(super) fn abandon(self) {
        // What says that there is a run goes last.
        for name in [CHECKPOINT, MODEL, LOCK, EXPERIMENT] {
            // Whatever cannot be removed was not the reason to stop.
            let _ = disk::remove(&self.path.join(name));
        }
        if self.new {
            let _ = disk::remove_folder(&self.path);
        }
    }

    /// The folder itself.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// `experiment.toml`
    pub fn experiment(&self) -> PathBuf {
        self.path.join(EXPERIMENT)
    }

    /// `model.safetensors`
    pub fn model(&self) -> PathBuf {
        self.path.join(MODEL)
    }

    /// `checkpoint.safetensors`
    pub fn checkpoint(&self) -> PathBuf {
        self.path.join(CHECKPOINT)
    }

    /// `checkpoint.previous.safetensors`
    pub fn previous(&self) -> PathBuf {
        self.path.join(PREVIOUS)
    }

    /// `metrics.csv`
    pub fn metrics(&self) -> PathBuf {
        self.path.join(METRICS)
    }

    /// `summary.json`
    pub fn summary(&self) -> PathBuf {
        self.path.join(SUMMARY)
    }

    /// `curves.svg`
    pub fn curves(&self) -> PathBuf {
        self.path.join(CURVES)
    }

    /// `report.html`
    pub fn report(&self) -> PathBuf {
        self.path.join(REPORT)
    }

    /// Writes a text file of the run, whole or not at all.
    pub fn write(&self, path: &Path, text: &str) -> Result<()> {
        write_whole(path, |file| file.write_all(text.as_bytes()))
    }
}

/// Whether there is such a file. That nobody can say is an error, not a no.
pub(super) fn there(path: &Path) -> Result<bool> {
    path.try_exists().map_err(Error::io(path, "find"))
}

/// Whether a killed process was writing it.
pub(super) fn is_unfinished(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default();
    name.as_encoded_bytes().starts_with(UNFINISHED.as_bytes())
}

/// The best weights of a run's folder: for inference and export.
pub fn model_file(run: &Path) -> PathBuf {
    run.join(MODEL)
}

/// The experiment of a run's folder, as it was trained.
pub fn experiment_of(run: &Path) -> Result<Experiment> {
    let path = run.join(EXPERIMENT);
    if !path.is_file() {
        return Err(Error::file(
            run,
            EXPERIMENT,
            "there is no such file; a run's folder has one",
        ));
    }
    Experiment::read(path)
}

/// `metrics.csv`: appended to as the run goes, written whole at its end.
#[derive(Debug, Default)]
pub struct MetricsFile {
    /// The columns that were written last.
    columns: Vec<String>,
    /// Whether rows were added that may not be on the disk yet.
    unsynced: bool,
    /// Whether the last row may be there in part.
    broken: bool,
}

/// Columns before and after the task's own.
const BEFORE: [&str; 4] = ["epoch", "step", "train_loss", "lr"];
const AFTER: [&str; 2] = ["best", "seconds"];

impl MetricsFile {
    /// Adds the last record; writes everything anew where the columns have changed.
    pub fn append(&mut self, path: &Path, records: &[Record]) -> Result<()> {
        let Some(last) = records.last() else {
            return Ok(());
        };
        let columns: Vec<String> = last.metrics.iter().map(|(n, _)| n.clone()).collect();
        if columns != self.columns || records.len() == 1 || self.broken {
            return self.rewrite(path, records);
        }
        self.unsynced = true;
        self.broken = true;
        disk::append(path, row(last, &self.columns).as_bytes())?;
        self.broken = false;
        Ok(())
    }

    /// Sees to it that all rows are on the disk: before a checkpoint that follows them is.
    pub fn sync(&mut self, path: &Path) -> Result<()> {
        if self.unsynced && !self.broken {
            disk::sync(path)?;
            self.unsynced = false;
        }
        Ok(())
    }

    /// Writes all records.
    pub fn rewrite(&mut self, path: &Path, records: &[Record]) -> Result<()> {
        self.columns.clear();
        for (name, _) in records.iter().flat_map(|r| &r.metrics) {
            if !self.columns.contains(name) {
                self.columns.push(name.clone());
            }
        }
        let columns = self.columns.iter().map(String::as_str);
        let header: Vec<&str> = BEFORE.into_iter().chain(columns).chain(AFTER).collect();
        let mut text = header.join(",") + "\n";
        for record in records {
            text += &row(record, &self.columns);
        }
        write_whole(path, |file| file.write_all(text.as_bytes()))?;
        self.unsynced = false;
        self.broken = false;
        Ok(())
    }

    /// The records up to a step, from an earlier part of the run. Rows that a crash cut off, and
    /// those beyond the step, are left out: they will be computed again.
    pub fn read(path: &Path, up_to: u64) -> Result<Vec<Record>> {
        if !there(path)? {
            return Ok(Vec::new());
        }
        let mut rows = csv::records(path)?.into_iter();
        let Some(header) = rows.next() else {
            return Ok(Vec::new());
        };
        let records = rows.filter_map(|row| {
            let parse = |name: &str| -> Option<f64> {
                let column = header.iter().position(|h| h == name)?;
                row.get(column)?.parse().ok()
            };
            let record = Record {
                epoch: parse("epoch")? as u64,
                step: parse("step")? as u64,
                train_loss: parse("train_loss")?,
                lr: parse("lr")?,
                metrics: header
                    .iter()
                    .filter(|h| !BEFORE.contains(&h.as_str()) && !AFTER.contains(&h.as_str()))
                    .filter_map(|h| Some((h.clone(), parse(h)?)))
                    .collect(),
                best: parse("best")? == 1.0,
                seconds: parse("seconds")?,
            };
            (row.len() == header.len() && record.step <= up_to).then_some(record)
        });
        Ok(records.collect())
    }
}

fn row(record: &Record, columns: &[String]) -> String {
    let mut cells = vec![
        record.epoch.to_string(),
        record.step.to_string(),
        record.train_loss.to_string(),
        record.lr.to_string(),
    ];
    for name in columns {
        cells.push(record.get(name).map_or(String::new(), |v| v.to_string()));
    }
    cells.push(u8::from(record.best).to_string());
    cells.push(format!("{:.3}", record.seconds));
    cells.join(",") + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(epoch: u64, metrics: &[(&str, f64)]) -> Record {
        Record {
            epoch,
            step: epoch * 10,
            train_loss: 1.0 / 3.0,
            lr: 0.001,
            metrics: metrics.iter().map(|&(n, v)| (n.to_string(), v)).collect(),
            seconds: 1.5,
            best: epoch == 2,
        }
    }

    #[test]
    fn metrics_come_back_up_to_the_step_and_without_half_a_row() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("metrics.csv");
        let mut file = MetricsFile::default();
        let mut records = Vec::new();
        for epoch in 1..=4 {
            records.push(record(
                epoch,
                &[("validation_loss", 0.1), ("accuracy", 0.9)],
            ));
            file.append(&path, &records).unwrap();
        }
        assert_eq!(MetricsFile::read(&path, 40).unwrap(), records);
        assert_eq!(MetricsFile::read(&path, 30).unwrap(), records[..3]);
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::write(&path, &text[..text.len() - 9]).unwrap();
        assert_eq!(MetricsFile::read(&path, 40).unwrap(), records[..3]);
        records.push(record(5, &[("another", 2.0)]));
        file.append(&path, &records).unwrap();
        assert_eq!(MetricsFile::read(&path, 50).unwrap(), records);
    }

    #[test]
    fn a_folder_with_a_run_is_refused_and_a_running_one_is_locked() {
        let folder = tempfile::tempdir().unwrap();
        let text = "name = \"a\"\n[model]\nfamily = \"x\"\n[train]\nepochs = 1\n\
                    optimizer = { kind = \"sgd\", lr = 0.1 }\n";
        let experiment = Experiment::parse(text, "a.toml").unwrap();
        let path = folder.path().join("run");
        let run = RunFolder::create(&path, &experiment).unwrap();
        let message = RunFolder::open(&path).unwrap_err().to_string();
        assert!(message.contains("another process"), "{message}");
        drop(run);
        let message = RunFolder::create(&path, &experiment)
            .unwrap_err()
            .to_string();
        assert!(message.contains("--resume"), "{message}");
        RunFolder::open(&path).unwrap();
    }
}
