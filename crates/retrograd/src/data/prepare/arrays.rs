//! Arrays whose first axis counts the samples, as inputs, targets and weights.

use std::path::{Path, PathBuf};

use super::{Inputs, Normalise, Preparation, Scaling, TargetRule, TaskKind, table::fit_classes};
use crate::data::array::Array;
use crate::data::csv::Reading;
use crate::data::dataset::size_of;
use crate::data::{DataSpec, Dataset};
use crate::{Error, Result};

/// An array with where it came from.
pub(crate) struct Named {
    pub path: PathBuf,
    /// The tensor, where a file holds several.
    pub name: Option<String>,
    pub array: Array,
}

impl Named {
    pub fn new(path: &Path, name: Option<&str>, array: Array) -> Self {
        Named {
            path: path.to_path_buf(),
            name: name.map(String::from),
            array,
        }
    }

    /// An error at a place in this array.
    fn error(&self, at: &str, problem: String) -> Error {
        let at = match &self.name {
            Some(name) => format!("tensor {name:?}, {at}"),
            None => at.to_string(),
        };
        Error::file(&self.path, at, problem)
    }

    /// Value `i` of a sample, finite.
    fn value(&self, sample: usize, i: usize, len: usize) -> Result<f64> {
        let value = self.array.get(sample * len + i);
        if value.is_finite() {
            return Ok(value);
        }
        let at = format!("sample {sample}, element {i}");
        Err(self.error(&at, format!("got {value}, needs a finite number")))
    }

    /// The same, scaled and in f32.
    fn scaled(&self, sample: usize, i: usize, len: usize, scaling: &Scaling) -> Result<f32> {
        let value = self.value(sample, i, len)?;
        let narrow = scaling.apply(i, len, value) as f32;
        if narrow.is_finite() {
            return Ok(narrow);
        }
        let at = format!("sample {sample}, element {i}");
        let needed = "a number below 3.4e38 in magnitude (after the normalisation, if any)";
        Err(self.error(&at, format!("got {value}, needs {needed}")))
    }

    fn check_samples(&self, samples: usize) -> Result<()> {
        if self.array.samples() == samples {
            return Ok(());
        }
        let got = format!(
            "{} samples (shape {:?})",
            self.array.samples(),
            self.array.shape
        );
        let needed = format!("{samples}, as many as the inputs");
        Err(self.error("first axis", format!("got {got}, needs {needed}")))
    }
}

/// Inputs with targets and weights where there are any.
pub(crate) struct Arrays {
    pub x: Named,
    pub y: Option<Named>,
    pub weights: Option<Named>,
}

impl Arrays {
    /// The number of samples, after checking that all arrays have as many and that there are any.
    pub fn samples(&self) -> Result<usize> {
        let samples = self.x.array.samples();
        if self.x.array.is_empty() {
            let problem = format!(
                "got the shape {:?}, needs at least one sample",
                self.x.array.shape
            );
            return Err(self.x.error("shape", problem));
        }
        for other in [&self.y, &self.weights].into_iter().flatten() {
            other.check_samples(samples)?;
        }
        Ok(samples)
    }
}

impl Arrays {
    /// The targets where they are classes: a whole number for every sample.
    pub(super) fn class_numbers(&self, spec: &DataSpec) -> Option<&Array> {
        let y = &self.y.as_ref()?.array;
        let one = y.len() == self.x.array.samples();
        let classes = match spec.task {
            Some(task) => task == TaskKind::Classification,
            None => y.is_integer() || spec.classes.is_some(),
        };
        (one && classes).then_some(y)
    }
}

impl Preparation {
    /// Learns from the training samples (classes from all samples).
    pub(crate) fn fit_arrays(spec: &DataSpec, arrays: &Arrays, training: &[usize]) -> Result<Self> {
        let samples = arrays.samples()?;
        let shape = arrays.x.array.sample_shape();
        let groups = match shape.as_slice() {
            [n] => *n,
            [channels, _, _] => *channels,
            _ => 1,
        };
        let scaling = fit_scaling(spec.normalise, &arrays.x, groups, training)?;
        let y = arrays.y.as_ref().ok_or_else(|| {
            Error::invalid(
                "data.targets_file",
                "none",
                "the file of the targets (or a tensor named by `targets`)",
            )
        })?;
        let target = fit_target(spec, y, samples, training)?;
        let preparation = Preparation {
            sample_shape: spec.shape.clone().unwrap_or_else(|| shape.clone()),
            inputs: Inputs::Array {
                name: arrays.x.name.clone(),
                shape,
                scaling,
            },
            target,
            weights: arrays.weights.as_ref().and_then(|w| w.name.clone()),
            missing: spec.missing,
            unknown: spec.unknown,
            reading: Reading::default(),
        };
        preparation.check()?;
        Ok(preparation)
    }

    /// The chosen samples, with targets and weights where the arrays have them.
    pub(crate) fn apply_arrays(&self, arrays: &Arrays, samples: &[usize]) -> Result<Dataset> {
        arrays.samples()?;
        let Inputs::Array { shape, scaling, .. } = &self.inputs else {
            let problem = "got an array, needs a table of columns as in training";
            return Err(arrays.x.error("format", problem.into()));
        };
        let got = arrays.x.array.sample_shape();
        if got != *shape {
            let problem = format!("got samples of shape {got:?}, needs {shape:?} as in training");
            return Err(arrays.x.error("shape", problem));
        }
        let inputs = scaled(&arrays.x, samples, scaling)?;
        let data = Dataset::new(self.sample_shape.clone(), inputs)?;
        let Some(y) = &arrays.y else {
            return Ok(data);
        };
        let data = match &self.target {
            TargetRule::Values { shape, scaling, .. } => {
                let got = y.array.sample_shape();
                if got != *shape {
                    let problem = format!("got {got:?} a sample, needs {shape:?} as in training");
                    return Err(y.error("shape", problem));
                }
                data.with_values(shape.clone(), scaled(y, samples, scaling)?)?
            }
            TargetRule::Classes { labels, .. } => {
                one_per_sample(y, y.array.samples())?;
                let index = labels.index();
                let class = |&sample: &usize| {
                    let text = y.value(sample, 0, 1)?.to_string();
                    let text = labels.canonical(&text, &self.reading).into_owned();
                    index
                        .get(text.as_str())
                        .copied()
                        .ok_or_else(|| y.error(&format!("sample {sample}"), labels.unknown(&text)))
                };
                let classes = samples.iter().map(class).collect::<Result<_>>()?;
                data.with_classes(labels.names.len(), classes)?
            }
        };
        match &arrays.weights {
            None => Ok(data),
            Some(weights) => data.with_weights(scaled(weights, samples, &Scaling::default())?),
        }
    }
}

fn scaled(source: &Named, samples: &[usize], scaling: &Scaling) -> Result<Vec<f32>> {
    let len = size_of(&source.array.sample_shape()).unwrap_or(0);
    let mut values = Vec::with_capacity(samples.len() * len);
    for &sample in samples {
        for i in 0..len {
            values.push(source.scaled(sample, i, len, scaling)?);
        }
    }
    Ok(values)
}

fn fit_scaling(
    kind: Normalise,
    source: &Named,
    groups: usize,
    training: &[usize],
) -> Result<Scaling> {
    let len = size_of(&source.array.sample_shape()).unwrap_or(0);
    if kind == Normalise::None {
        return Ok(Scaling::default());
    }
    for &sample in training {
        for i in 0..len {
            source.value(sample, i, len)?;
        }
    }
    let width = len / groups.max(1);
    Ok(Scaling::fit(kind, groups, |group| {
        Box::new(training.iter().flat_map(move |&sample| {
            let start = sample * len + group * width;
            (start..start + width).map(|i| source.array.get(i))
        }))
    }))
}

/// That there is one target value per sample.
fn one_per_sample(y: &Named, samples: usize) -> Result<()> {
    if y.array.len() == samples {
        return Ok(());
    }
    let problem = format!("got {:?}, needs one class per sample", y.array.shape);
    Err(y.error("shape", problem))
}

fn fit_target(
    spec: &DataSpec,
    y: &Named,
    samples: usize,
    training: &[usize],
) -> Result<TargetRule> {
    let shape = y.array.sample_shape();
    let name = y.name.clone().unwrap_or_else(|| "target".into());
    let classes = y.array.len() == samples && (y.array.is_integer() || spec.classes.is_some());
    let task = match spec.task {
        Some(task) => task,
        None if classes => TaskKind::Classification,
        None => TaskKind::Regression,
    };
    if task == TaskKind::Regression {
        let len = size_of(&shape).unwrap_or(0);
        return Ok(TargetRule::Values {
            names: vec![name],
            scaling: fit_scaling(spec.normalise_targets, y, len, training)?,
            shape,
        });
    }
    one_per_sample(y, samples)?;
    let mut numbers = Vec::with_capacity(samples);
    for sample in 0..samples {
        let value = y.value(sample, 0, 1)?;
        if value.fract() != 0.0 {
            let problem = format!("got {value}, needs a whole number for a class");
            return Err(y.error(&format!("sample {sample}"), problem));
        }
        numbers.push(value);
    }
    numbers.sort_unstable_by(f64::total_cmp);
    numbers.dedup();
    let texts: Vec<String> = numbers.iter().map(|n| (n + 0.0).to_string()).collect();
    let labels = fit_classes(spec, texts.iter().map(String::as_str), &Reading::default())?;
    Ok(TargetRule::Classes { name, labels })
}
