//! Reference bundles: everything another framework computed for one model, in one safetensors file.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::data::safetensors::TensorFile;
use crate::optim::OptimizerSpec;
use crate::{Error, Loss, Model, Result, Target};

/// A tensor of a bundle, its values as f64 (integers too: they are below 2⁵³).
#[derive(Clone, Debug, PartialEq)]
pub struct BundleArray {
    /// Its shape.
    pub shape: Vec<usize>,
    /// Its values, the last axis fastest.
    pub values: Vec<f64>,
}

/// One optimizer of a bundle's task.
#[derive(Clone, Debug, PartialEq)]
pub struct BundleOptimizer {
    /// Kind and constants.
    pub spec: OptimizerSpec,
    /// Clipping by the global norm.
    pub clip: Option<f64>,
    /// Clamping of every element.
    pub clip_element: Option<f64>,
}

/// A reference bundle in memory.
#[derive(Clone, Debug)]
pub struct Bundle {
    /// Where it came from.
    pub path: PathBuf,
    /// `retrograd-reference-1`, or `retrograd-logic-run-1`.
    pub format: String,
    /// The model, as written in the metadata.
    pub model: serde_json::Value,
    /// The loss.
    pub loss: Loss,
    /// Steps of every trajectory.
    pub steps: usize,
    /// The optimizers whose trajectories are recorded.
    pub optimizers: BTreeMap<String, BundleOptimizer>,
    /// Who computed it.
    pub source: String,
    tensors: BTreeMap<String, BundleArray>,
}

#[derive(Deserialize)]
struct TaskSpec {
    loss: Loss,
    #[serde(default)]
    steps: usize,
    #[serde(default)]
    optimizers: BTreeMap<String, serde_json::Map<String, serde_json::Value>>,
    #[serde(default)]
    optimizer: Option<serde_json::Map<String, serde_json::Value>>,
}

impl Bundle {
    /// Reads and checks a bundle.
    pub fn read(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let bytes = crate::data::files::read(path)?;
        Self::from_bytes(path, &bytes)
    }

    /// The same from a file's content.
    pub fn from_bytes(path: &Path, bytes: &[u8]) -> Result<Self> {
        let bad = |at: &str, problem: String| Error::file(path, at, problem);
        let TensorFile { metadata, tensors } = TensorFile::decode(path, bytes)?;
        let text = |key: &str| {
            metadata.get(key).ok_or_else(|| {
                bad(
                    "metadata",
                    format!("no {key:?}; a reference bundle has one"),
                )
            })
        };
        let format = text("format")?.clone();
        if format != "retrograd-reference-1" && format != "retrograd-logic-run-1" {
            return Err(bad(
                "metadata \"format\"",
                format!("got {format:?}, needs \"retrograd-reference-1\""),
            ));
        }
        let model = serde_json::from_str(text("model")?)
            .map_err(|e| bad("metadata \"model\"", e.to_string()))?;
        let task: TaskSpec = serde_json::from_str(text("task")?)
            .map_err(|e| bad("metadata \"task\"", e.to_string()))?;
        let mut optimizers = BTreeMap::new();
        let named = task.optimizers.into_iter();
        let single = task.optimizer.map(|o| ("optimizer".to_string(), o));
        for (name, mut fields) in named.chain(single) {
            let at = format!("metadata \"task\", optimizer {name:?}");
            let mut number = |key: &str| -> Result<Option<f64>> {
                match fields.remove(key) {
                    None | Some(serde_json::Value::Null) => Ok(None),
                    Some(v) => v
                        .as_f64()
                        .map(Some)
                        .ok_or_else(|| bad(&at, format!("{key} is {v}, needs a number"))),
                }
            };
            let clip = number("clip")?;
            let clip_element = number("clip_element")?;
            for (key, limit) in [("clip", clip), ("clip_element", clip_element)] {
                if let Some(limit) = limit.filter(|l| !(l.is_finite() && *l > 0.0)) {
                    return Err(bad(&at, format!("{key} is {limit}, needs a number > 0")));
                }
            }
            let spec: OptimizerSpec =
                serde_json::from_value(fields.into()).map_err(|e| bad(&at, e.to_string()))?;
            spec.check().map_err(|e| bad(&at, e.to_string()))?;
            optimizers.insert(
                name,
                BundleOptimizer {
                    spec,
                    clip,
                    clip_element,
                },
            );
        }
        let tensors = tensors.into_iter().map(|t| {
            let (shape, values) = (t.shape, t.values.to_f64());
            (t.name, BundleArray { shape, values })
        });
        Ok(Bundle {
            path: path.to_path_buf(),
            format,
            model,
            loss: task.loss,
            steps: task.steps,
            optimizers,
            source: metadata.get("source").cloned().unwrap_or_default(),
            tensors: tensors.collect(),
        })
    }

    /// The `family` of the model.
    pub fn family(&self) -> &str {
        self.model["family"].as_str().unwrap_or("?")
    }

    /// The file's name without its ending: the name in reports.
    pub fn name(&self) -> String {
        let stem = self.path.file_stem().unwrap_or_default();
        stem.to_string_lossy().into_owned()
    }

    /// The model's description in the family's own type.
    pub fn model_spec<S: for<'de> Deserialize<'de>>(&self) -> Result<S> {
        serde_json::from_value(self.model.clone())
            .map_err(|e| Error::file(&self.path, "metadata \"model\"", e))
    }

    /// A tensor that may be there.
    pub fn get(&self, name: &str) -> Option<&BundleArray> {
        self.tensors.get(name)
    }

    /// A tensor that must be there.
    pub fn array(&self, name: &str) -> Result<&BundleArray> {
        self.get(name)
            .ok_or_else(|| Error::file(&self.path, name, "there is no such tensor"))
    }

    /// A tensor of whole numbers ≥ 0 that fit 32 bits: classes, indices, wires.
    pub fn indices(&self, name: &str) -> Result<Vec<u32>> {
        let array = self.array(name)?;
        array
            .values
            .iter()
            .map(|&v| {
                if v >= 0.0 && v.fract() == 0.0 && v <= f64::from(u32::MAX) {
                    Ok(v as u32)
                } else {
                    Err(Error::file(
                        &self.path,
                        name,
                        format!("got {v}, needs a whole number ≥ 0"),
                    ))
                }
            })
            .collect()
    }

    /// The names of all tensors, sorted.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.tensors.keys().map(String::as_str)
    }

    /// A flat vector in the model's stored order from the tensors `PREFIX/NAME`.
    pub fn flat<M: Model>(&self, model: &M, prefix: &str) -> Result<Vec<f64>> {
        let layout = model.layout();
        // Nothing is allocated before every shape is known to be the file's own.
        for tensor in layout.tensors() {
            let name = format!("{prefix}/{}", tensor.name);
            let array = self.array(&name)?;
            if array.shape != tensor.shape {
                return Err(Error::file(
                    &self.path,
                    &name,
                    format!(
                        "shape {:?}, the model needs {:?}",
                        array.shape, tensor.shape
                    ),
                ));
            }
            if let Some(i) = array.values.iter().position(|v| !v.is_finite()) {
                let value = array.values[i];
                return Err(Error::file(
                    &self.path,
                    &name,
                    format!("element {i} is {value}"),
                ));
            }
        }
        let mut flat = vec![0.0; layout.len()];
        for tensor in layout.tensors() {
            let array = self.array(&format!("{prefix}/{}", tensor.name))?;
            tensor.from_torch(&array.values, &mut flat[tensor.range()]);
        }
        Ok(flat)
    }

    /// The target: `input/target` as values, or as class numbers for cross-entropy.
    pub fn target(&self) -> Result<Target<f64>> {
        if self.loss == Loss::CrossEntropy {
            Ok(Target::classes(self.indices("input/target")?))
        } else {
            Ok(Target::values(self.array("input/target")?.values.clone()))
        }
    }
}

/// A bundle turned into what the engine works on.
pub struct Case<M: Model> {
    /// The model.
    pub model: M,
    /// `param/`, flat.
    pub params: Vec<f64>,
    /// The batch.
    pub input: M::Input<f64>,
    /// What the loss compares with.
    pub target: Target<f64>,
}

/// A family that bundles can be checked against.
pub trait FromBundle: Model + Sized {
    /// Builds the model and the batch, everything checked.
    fn from_bundle(bundle: &Bundle) -> Result<Case<Self>>;
}
