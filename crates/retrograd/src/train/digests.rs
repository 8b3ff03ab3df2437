//! What says that a run can be repeated: digests of its weights and of its data.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::folder::SUMMARY;
use super::{Experiment, Summary, TensorFile};
use crate::data::{sha256, sources};
use crate::{Error, Result, disk};

/// The version of the contract of bits (docs/determinism.md): runs of the same version, experiment and
/// data have the same weights on every machine. A change of any result takes a new one.
pub const CONTRACT: u32 = 1;

/// What `summary.json` says about the bits of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Digests {
    /// The [`CONTRACT`] that the run was computed by.
    pub contract: u32,
    /// SHA-256 of `model.safetensors`.
    pub weights: String,
    /// SHA-256 of every file that data or initial weights were read from, by its path: from the
    /// experiment's folder on, where it lies in there.
    pub data: BTreeMap<String, String>,
    /// `cpu`, or the name of the device that computed the steps: its bits are its own.
    pub device: String,
}

impl Digests {
    pub(super) fn new(
        weights: &TensorFile,
        experiment: &Experiment,
        run: Option<&Path>,
        device: Option<&str>,
    ) -> Result<Self> {
        let mut data = BTreeMap::new();
        for path in sources::so_far() {
            // What a run reads of its own folder is its own work.
            if run.is_some_and(|run| path.starts_with(run)) || !path.is_file() {
                continue;
            }
            let inside = experiment.folder.as_deref();
            let name = inside.and_then(|folder| path.strip_prefix(folder).ok());
            let name = name.unwrap_or(&path).display().to_string();
            data.insert(name, sha256::of_file(&path)?);
        }
        Ok(Digests {
            contract: CONTRACT,
            weights: weights.sha256(),
            data,
            device: device.unwrap_or("cpu").to_string(),
        })
    }

    pub(super) fn put(&self, mut put: impl FnMut(&str, Value)) {
        put("contract", json!(self.contract));
        put("weights_sha256", json!(self.weights));
        put("data_sha256", json!(self.data));
        put("device", json!(self.device));
    }

    fn of_summary(summary: &Value) -> Option<Self> {
        Some(Digests {
            contract: summary["contract"].as_u64()?.try_into().ok()?,
            weights: summary["weights_sha256"].as_str()?.to_string(),
            data: serde_json::from_value(summary["data_sha256"].clone()).ok()?,
            device: summary["device"].as_str()?.to_string(),
        })
    }
}

/// A finished run, as its folder tells of it.
pub struct Recorded {
    summary: Value,
    digests: Digests,
}

/// One thing that was compared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Compared {
    /// What.
    pub what: String,
    /// As the run recorded it.
    pub recorded: String,
    /// As it came out now.
    pub now: String,
}

impl Compared {
    /// Whether nothing differs.
    pub fn same(&self) -> bool {
        self.recorded == self.now
    }
}

impl Recorded {
    /// Reads `summary.json` of a run's folder.
    pub fn read(run: &Path) -> Result<Self> {
        let path = run.join(SUMMARY);
        let summary: Value = serde_json::from_slice(&disk::read(&path)?)
            .map_err(|e| Error::file(&path, "JSON", e))?;
        let digests = Digests::of_summary(&summary).ok_or_else(|| {
            Error::file(
                &path,
                "\"weights_sha256\"",
                "there are no digests: the run was not finished, or by a version that recorded none",
            )
        })?;
        Ok(Recorded { summary, digests })
    }

    /// Why this machine, this version and these files cannot be expected to give the same bits: a GPU,
    /// another contract, other data. Nothing where they can.
    pub fn obstacles(&self, experiment: &Experiment) -> Vec<String> {
        let mut obstacles = Vec::new();
        let Digests {
            contract,
            weights: _,
            data,
            device,
        } = &self.digests;
        if *contract != CONTRACT {
            obstacles.push(format!(
                "the run was computed by version {contract} of the contract of bits, this program \
                 computes by version {CONTRACT}"
            ));
        }
        if device != "cpu" {
            obstacles.push(format!(
                "the steps were computed on {device}: its bits are its own"
            ));
        }
        for (name, recorded) in data {
            let folder = experiment.folder.clone().unwrap_or_default();
            let path: PathBuf = folder.join(name);
            match sha256::of_file(&path) {
                Ok(now) if now == *recorded => {}
                Ok(now) => obstacles.push(format!(
                    "{} has changed: SHA-256 was {recorded}, is {now}",
                    path.display()
                )),
                Err(error) => obstacles.push(error.to_string()),
            }
        }
        obstacles
    }

    /// What the run and its repetition have in common: the weights and every figure of training. (What a
    /// family finds out after it, such as pictures, follows from the weights.)
    pub fn compare(&self, again: &Summary) -> Vec<Compared> {
        let weights = again.digests.as_ref().map_or("", |d| &d.weights);
        let mut compared = vec![Compared {
            what: "weights_sha256".into(),
            recorded: self.digests.weights.clone(),
            now: weights.to_string(),
        }];
        let times = ["seconds", "ms_per_step"];
        for (name, now) in again.to_json().as_object().into_iter().flatten() {
            // Infinities and NaN are null in JSON.
            let figure = now.is_number() || now.is_null();
            if let Some(recorded) = self.summary.get(name)
                && figure
                && !times.contains(&name.as_str())
            {
                // 7 and 7.0 are one figure: which of them is written is up to the family.
                let same = recorded.as_f64().map(f64::to_bits) == now.as_f64().map(f64::to_bits);
                let recorded = if same && recorded.is_f64() != now.is_f64() {
                    now
                } else {
                    recorded
                };
                compared.push(Compared {
                    what: name.clone(),
                    recorded: recorded.to_string(),
                    now: now.to_string(),
                });
            }
        }
        compared
    }
}
