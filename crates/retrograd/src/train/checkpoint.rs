//! Weights and checkpoints as safetensors.
//!
//! Both hold the weights at the top level, under PyTorch's names and in PyTorch's order, with the
//! model's buffers beside them. `model.safetensors` holds nothing else: PyTorch's
//! `load_state_dict` takes it as it is. `checkpoint.safetensors` adds the optimizer's state as
//! `optimizer/STATE/NAME`, and in its metadata where the run stands.

use std::path::Path;

use serde::{Deserialize, Serialize};

use super::accelerator::CarriedScale;

use super::step::find_bad;
use crate::data::Values;
use crate::data::safetensors::{NamedTensor, TensorFile};
use crate::optim::Optimizer;
use crate::{Buffer, Error, Layout, Model, Result};

/// `format` in the metadata of a model's file.
pub const MODEL_FORMAT: &str = "retrograd-model-1";
/// `format` in the metadata of a checkpoint.
pub const CHECKPOINT_FORMAT: &str = "retrograd-checkpoint-1";

/// Before the names of what compression took from gradients.
const RESIDUAL: &str = "compression/residual/";

/// Before the names of the parameters that a pipeline's next gradient is taken at.
const STALE: &str = "pipeline/";

/// Where a run stands: everything beside tensors that decides how it goes on.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Progress {
    /// Steps done.
    pub step: u64,
    /// The run's seed.
    pub seed: u64,
    /// Losses of the good steps since the last record, added.
    #[serde(with = "exact")]
    pub loss_sum: f64,
    /// How many there were.
    pub loss_count: u64,
    /// Steps left out because of numbers that were not finite.
    pub skipped: u64,
    /// The best figure so far.
    pub best: Option<Best>,
    /// Starts that were given up.
    #[serde(default)]
    pub restarts: u64,
    /// The step at which the present attempt began.
    #[serde(default)]
    pub attempt_step: u64,
    /// Evaluations in a row, up to the last, with nothing wrong.
    #[serde(default)]
    pub perfect: u64,
    /// Whether the model of this attempt was found by rounding.
    #[serde(default)]
    pub rounded: bool,
    /// Whether the run ended because the model has learned.
    #[serde(default)]
    pub learned: bool,
    /// Mixed precision on a GPU: the loss scale.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loss_scale: Option<CarriedScale>,
    /// Seconds in steps.
    #[serde(with = "exact")]
    pub stepping: f64,
    /// Seconds of those in making batches.
    #[serde(with = "exact", default)]
    pub loading: f64,
    /// Seconds of those in forward and the loss, where they are known apart from backward.
    #[serde(with = "exact", default)]
    pub forward: f64,
    /// Seconds of those in the optimizer.
    #[serde(with = "exact", default)]
    pub updating: f64,
    /// Seconds in evaluations.
    #[serde(with = "exact")]
    pub evaluating: f64,
    /// Seconds in writing files.
    #[serde(with = "exact")]
    pub saving: f64,
}

/// The best figure of a run.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Best {
    /// Its value.
    #[serde(with = "exact")]
    pub value: f64,
    /// The epoch that had it.
    pub epoch: u64,
}

/// As text with the shortest digits that give the same bits: JSON numbers may lose the last one.
mod exact {
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub fn serialize<S: Serializer>(x: &f64, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(x)
    }
    pub fn deserialize<'de, D: Deserializer<'de>>(d: D) -> Result<f64, D::Error> {
        let text = String::deserialize(d)?;
        text.parse().map_err(D::Error::custom)
    }
}

/// The weights and buffers as a file has them.
pub fn weights_file<M: Model>(
    model: &M,
    params: &[f32],
    metadata: &[(String, String)],
) -> TensorFile {
    let mut file = TensorFile {
        metadata: metadata
            .iter()
            .map(|(k, v)| (format!("task/{k}"), v.clone()))
            .collect(),
        tensors: flat_tensors(model.layout(), params, ""),
    };
    file.metadata.insert("format".into(), MODEL_FORMAT.into());
    for buffer in model.buffers() {
        let exact = buffer.values.iter().all(|&v| f64::from(v as f32) == v);
        file.tensors.push(NamedTensor {
            name: buffer.name,
            shape: buffer.shape,
            values: if exact {
                Values::F32(buffer.values.iter().map(|&v| v as f32).collect())
            } else {
                Values::F64(buffer.values)
            },
        });
    }
    file
}

/// Adds what a resumed run needs.
pub fn make_checkpoint(
    file: &mut TensorFile,
    layout: &Layout,
    optimizer: &Optimizer<f32>,
    [residual, stale]: [&[f32]; 2],
    progress: &Progress,
) {
    let names = optimizer.spec().state_names();
    for (state, name) in optimizer.state().iter().zip(names) {
        let prefix = format!("optimizer/{name}/");
        file.tensors.extend(flat_tensors(layout, state, &prefix));
    }
    for (flat, prefix) in [(residual, RESIDUAL), (stale, STALE)] {
        if !flat.is_empty() {
            file.tensors.extend(flat_tensors(layout, flat, prefix));
        }
    }
    let json = |value: serde_json::Result<String>| value.expect("plain values");
    let metadata = &mut file.metadata;
    metadata.insert("format".into(), CHECKPOINT_FORMAT.into());
    metadata.insert(
        "optimizer".into(),
        json(serde_json::to_string(optimizer.spec())),
    );
    metadata.insert("optimizer_steps".into(), optimizer.steps().to_string());
    metadata.insert("progress".into(), json(serde_json::to_string(progress)));
}

fn flat_tensors(layout: &Layout, flat: &[f32], prefix: &str) -> Vec<NamedTensor> {
    let tensors = layout.tensors().iter();
    tensors
        .map(|tensor| NamedTensor {
            name: format!("{prefix}{}", tensor.name),
            shape: tensor.shape.clone(),
            values: Values::F32(tensor.to_torch(&flat[tensor.range()])),
        })
        .collect()
}

fn flat_vector(file: &TensorFile, path: &Path, layout: &Layout, prefix: &str) -> Result<Vec<f32>> {
    let mut flat = vec![0.0; layout.len()];
    for tensor in layout.tensors() {
        let name = format!("{prefix}{}", tensor.name);
        let at = format!("tensor {name}");
        let Some(found) = file.get(&name) else {
            let others: Vec<_> = file.tensors.iter().map(|t| t.name.as_str()).collect();
            return Err(Error::file(
                path,
                at,
                format!(
                    "the model needs it with shape {:?}; the file has: {}",
                    tensor.shape,
                    others.join(", ")
                ),
            ));
        };
        if found.shape != tensor.shape {
            return Err(Error::file(
                path,
                at,
                format!(
                    "got shape {:?}, the model needs {:?}",
                    found.shape, tensor.shape
                ),
            ));
        }
        tensor.from_torch(&found.values.to_f32(), &mut flat[tensor.range()]);
    }
    if let Some(bad) = find_bad(&flat, layout, 0..flat.len(), prefix) {
        return Err(Error::file(
            path,
            format!("tensor{}", bad.tensor),
            format!("got {}, needs a finite number", bad.value),
        ));
    }
    Ok(flat)
}

/// Weights and buffers from a file that we or PyTorch wrote. Tensors that the model doesn't have
/// are errors: they show that the file belongs to another model.
pub fn take_weights<M: Model>(file: &TensorFile, path: &Path, model: &mut M) -> Result<Vec<f32>> {
    let params = flat_vector(file, path, model.layout(), "")?;
    let buffers = model.buffers();
    for tensor in &file.tensors {
        let is_state = ["optimizer/", RESIDUAL, STALE]
            .iter()
            .any(|p| tensor.name.starts_with(p));
        if is_state || model.layout().get(&tensor.name).is_some() {
            continue;
        }
        let Some(own) = buffers.iter().find(|b| b.name == tensor.name) else {
            return Err(Error::file(
                path,
                format!("tensor {}", tensor.name),
                "the model has no such tensor; the file belongs to another model",
            ));
        };
        let values = tensor.values.to_f64();
        if own.shape != tensor.shape || values.iter().any(|v| !v.is_finite()) {
            return Err(Error::file(
                path,
                format!("tensor {}", tensor.name),
                format!(
                    "got shape {:?}, needs finite values of shape {:?}",
                    tensor.shape, own.shape
                ),
            ));
        }
        model
            .set_buffer(&Buffer {
                name: tensor.name.clone(),
                shape: tensor.shape.clone(),
                values,
            })
            .map_err(|e| Error::file(path, format!("tensor {}", tensor.name), e))?;
    }
    Ok(params)
}

/// What a task saves beside the weights: keys and texts.
pub type Metadata = Vec<(String, String)>;

/// Loads weights and buffers into a model; returns the flat parameters and what the task had saved
/// beside them.
pub fn load_weights<M: Model>(path: &Path, model: &mut M) -> Result<(Vec<f32>, Metadata)> {
    let file = TensorFile::read(path)?;
    let params = take_weights(&file, path, model)?;
    let metadata = file.metadata.into_iter();
    let task = metadata
        .filter_map(|(k, v)| Some((k.strip_prefix("task/")?.to_string(), v)))
        .collect();
    Ok((params, task))
}

/// Saves weights and buffers under PyTorch's names, with texts beside them: what [`load_weights`]
/// reads. The file is written whole or not at all.
pub fn save_weights<M: Model>(
    path: &Path,
    model: &M,
    params: &[f32],
    metadata: &Metadata,
) -> Result<()> {
    model.check_params(params)?;
    weights_file(model, params, metadata).write(path)
}

/// Takes back what compression took from gradients; empty where there is none.
pub fn take_residual(file: &TensorFile, path: &Path, layout: &Layout) -> Result<Vec<f32>> {
    Ok(take_flat(file, path, layout, RESIDUAL)?.unwrap_or_default())
}

/// Takes back the parameters that a pipeline's next gradient is taken at, where the run had one.
pub fn take_stale(file: &TensorFile, path: &Path, layout: &Layout) -> Result<Option<Vec<f32>>> {
    take_flat(file, path, layout, STALE)
}

fn take_flat(
    file: &TensorFile,
    path: &Path,
    layout: &Layout,
    prefix: &str,
) -> Result<Option<Vec<f32>>> {
    let mut names = file.tensors.iter().map(|t| &t.name);
    match names.any(|name| name.starts_with(prefix)) {
        true => flat_vector(file, path, layout, prefix).map(Some),
        false => Ok(None),
    }
}

/// Takes back optimizer state and progress.
pub fn take_progress(
    file: &TensorFile,
    path: &Path,
    layout: &Layout,
    optimizer: &mut Optimizer<f32>,
) -> Result<Progress> {
    let text = |key: &str| {
        file.metadata.get(key).ok_or_else(|| {
            Error::file(
                path,
                "metadata",
                format!("no {key:?}; a checkpoint has one"),
            )
        })
    };
    let format = text("format")?;
    if format != CHECKPOINT_FORMAT {
        return Err(Error::file(
            path,
            "metadata \"format\"",
            format!("got {format:?}, needs {CHECKPOINT_FORMAT:?}"),
        ));
    }
    let bad =
        |key: &str, e: &dyn std::fmt::Display| Error::file(path, format!("metadata {key:?}"), e);
    let mut progress: Progress =
        serde_json::from_str(text("progress")?).map_err(|e| bad("progress", &e))?;
    progress.best = progress.best.filter(|best| best.value.is_finite());
    let steps: u64 = text("optimizer_steps")?
        .parse()
        .map_err(|e| bad("optimizer_steps", &e))?;
    let mut state = Vec::new();
    for name in optimizer.spec().state_names() {
        state.push(flat_vector(
            file,
            path,
            layout,
            &format!("optimizer/{name}/"),
        )?);
    }
    check_invariants(&progress, steps).map_err(|problem| bad("progress", &problem))?;
    for tensor in &file.tensors {
        check_moments(tensor, path)?;
    }
    optimizer.restore(steps, state)?;
    Ok(progress)
}

/// What holds of every run, wherever it stands; the problem where it doesn't.
fn check_invariants(progress: &Progress, optimizer_steps: u64) -> Result<(), String> {
    let Progress {
        step,
        loss_count,
        skipped,
        ..
    } = *progress;
    for (what, count) in [
        ("optimizer_steps", optimizer_steps),
        ("loss_count", loss_count),
        ("skipped", skipped),
        ("best.epoch", progress.best.map_or(0, |best| best.epoch)),
        ("restarts", progress.restarts),
        ("attempt_step", progress.attempt_step),
        ("perfect", progress.perfect),
    ] {
        if count > step {
            return Err(format!("got {what} {count}, needs at most step, {step}"));
        }
    }
    let scale = progress.loss_scale.map_or(1.0, |s| f64::from(s.value));
    for (what, value, least) in [
        ("loss_sum", progress.loss_sum, f64::MIN),
        ("loss_scale", scale, f64::MIN_POSITIVE),
        ("stepping", progress.stepping, 0.0),
        ("loading", progress.loading, 0.0),
        ("forward", progress.forward, 0.0),
        ("updating", progress.updating, 0.0),
        ("evaluating", progress.evaluating, 0.0),
        ("saving", progress.saving, 0.0),
    ] {
        if !(value.is_finite() && value >= least) {
            return Err(format!(
                "got {what} {value}, needs a finite number of its kind"
            ));
        }
    }
    Ok(())
}

/// Means of squares are no less than 0.
fn check_moments(tensor: &NamedTensor, path: &Path) -> Result<()> {
    if !tensor.name.starts_with("optimizer/exp_avg_sq/") {
        return Ok(());
    }
    let values = tensor.values.to_f64();
    match values.iter().find(|v| v.is_sign_negative() && **v != 0.0) {
        None => Ok(()),
        Some(value) => Err(Error::file(
            path,
            format!("tensor {}", tensor.name),
            format!("got {value}, needs 0 or more: a mean of squares"),
        )),
    }
}

/// Where the run of a checkpoint stands, as far as it can be said without its model: its tensors are
/// finite, its numbers possible.
pub fn examine_checkpoint(file: &TensorFile, path: &Path) -> Result<Progress> {
    examine_tensors(file, path)?;
    let text = |key: &str| file.metadata.get(key).map_or("", String::as_str);
    let bad =
        |key: &str, e: &dyn std::fmt::Display| Error::file(path, format!("metadata {key:?}"), e);
    let format = text("format");
    if format != CHECKPOINT_FORMAT {
        let problem = format!("got {format:?}, needs {CHECKPOINT_FORMAT:?}");
        return Err(bad("format", &problem));
    }
    let progress: Progress =
        serde_json::from_str(text("progress")).map_err(|e| bad("progress", &e))?;
    let steps = text("optimizer_steps").parse();
    let steps: u64 = steps.map_err(|e| bad("optimizer_steps", &e))?;
    check_invariants(&progress, steps).map_err(|problem| bad("progress", &problem))?;
    file.tensors
        .iter()
        .try_for_each(|t| check_moments(t, path))?;
    Ok(progress)
}

/// That all numbers of a file are finite.
pub fn examine_tensors(file: &TensorFile, path: &Path) -> Result<()> {
    for tensor in &file.tensors {
        let values = tensor.values.to_f64();
        if let Some(value) = values.iter().find(|v| !v.is_finite()) {
            return Err(Error::file(
                path,
                format!("tensor {}", tensor.name),
                format!("got {value}, needs a finite number"),
            ));
        }
    }
    Ok(())
}
