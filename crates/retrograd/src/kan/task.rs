//! The `kan` family's task: a KAN on a data set, on generated poker-like positions, or on formulas
//! of the Feynman set, with its picture and what was found out in the report.
//!
//! ```toml
//! [model]
//! family = "kan"
//! sizes = [64, 16, 10]        # inputs, hidden widths, outputs
//! grid = 5                    # and degree, range, base, bias, outside, sparsity
//!
//! [data]
//! generate = { name = "digits" }   # any [data] of a table or arrays, or:
//! # poker = { samples = 20000 }    # 21 features, 24 values, a mask of what is allowed
//! # feynman = { samples = 1000 }   # three formulas, whose symbolic forms are looked for
//! ```

use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::json;

use super::{Discover, KanConfig, PlotOptions, discover, plot_png, plot_svg};
use crate::data::{Batches, DataSpec, Dataset, Preparation, Targets};
use crate::network::{Base, Network, Outside, Sparsity};
use crate::rng::Key;
use crate::train::{
    Content, Example, Experiment, Figure, Findings, Metadata, Metrics, PREPARATION, Specimen, Task,
    TrainedNetwork, experiment_of, first_samples, load_weights, model_file,
};
use crate::{Error, Loss, Model, Pass, Result, Target};

/// Samples in a batch where the experiment says nothing.
const BATCH: usize = 64;
/// Inputs that pictures and importance are measured on.
const SHOWN: usize = 500;

/// The picture of a network of KAN layers for a report; none for other networks.
pub fn network_figure(network: &Network, params: &[f32], x: &[f32]) -> Option<Figure> {
    let svg = plot_svg(network, params, x, &PlotOptions::default()).ok()?;
    Some(Figure {
        title: "The network".into(),
        caption: "Inputs below, outputs above; on every edge its function over the data, the \
                  darker the more it matters."
            .into(),
        content: Content::Svg(svg),
    })
}

/// `[model]` of the family.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ModelTable {
    family: String,
    sizes: Vec<usize>,
    #[serde(default = "five")]
    grid: usize,
    #[serde(default = "three")]
    degree: usize,
    #[serde(default = "unit")]
    range: [f64; 2],
    #[serde(default)]
    base: Base,
    #[serde(default)]
    bias: bool,
    #[serde(default)]
    outside: Outside,
    #[serde(default)]
    sparsity: Option<Sparsity>,
}

fn five() -> usize {
    5
}
fn three() -> usize {
    3
}
fn unit() -> [f64; 2] {
    [-1.0, 1.0]
}
fn zero() -> u64 {
    0
}

/// `[data] poker` and `[data] feynman`.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Generated {
    samples: usize,
    #[serde(default = "zero")]
    seed: u64,
}

enum Kind {
    /// A user's data, and how it was prepared.
    Table(Box<Preparation>),
    Poker,
    Feynman(Generated),
}

/// A KAN, its data and its measures.
pub struct KanTask {
    network: Network,
    loss: Loss,
    train: Dataset,
    validation: Option<Dataset>,
    batches: Batches,
    kind: Kind,
    notes: Vec<String>,
}

/// The network of an experiment's `[model]`.
fn build(experiment: &Experiment) -> Result<Network> {
    let table: ModelTable = experiment.model_as()?;
    let config = KanConfig {
        sizes: table.sizes,
        grid: table.grid,
        degree: table.degree,
        range: table.range,
        base: table.base,
        bias: table.bias,
        outside: table.outside,
        sparsity: table.sparsity,
    };
    Network::new(&config.spec()?)
}

/// A run's network with the preparation of its data, to predict with.
pub fn trained_kan(run: &Path) -> Result<TrainedNetwork> {
    TrainedNetwork::of(run, |experiment, _| build(experiment))
}

impl KanTask {
    /// Reads or makes the data and builds the network; everything is checked here.
    pub fn new(experiment: &Experiment) -> Result<Self> {
        let network = build(experiment)?;
        let train = &experiment.train;
        let generated = |key: &str| -> Result<Option<Generated>> {
            let Some(value) = experiment.data.get(key) else {
                return Ok(None);
            };
            if experiment.data.len() > 1 {
                return Err(Error::invalid(
                    "[data]",
                    format!("{key} and more"),
                    "one source",
                ));
            }
            let own: Generated = value.clone().try_into().map_err(|e: toml::de::Error| {
                let problem = crate::suggest::explain(e.message());
                Error::invalid(format!("[data] {key}"), problem, "samples, and a seed")
            })?;
            if !(10..=10_000_000).contains(&own.samples) {
                let what = format!("[data] {key}.samples");
                return Err(Error::invalid(what, own.samples, "10 to 10000000"));
            }
            Ok(Some(own))
        };
        let (kind, training, validation, notes) = if let Some(own) = generated("poker")? {
            let (a, b) = (poker(&own, 0)?, poker(&own, 1)?);
            (Kind::Poker, a, Some(b), Vec::new())
        } else if let Some(own) = generated("feynman")? {
            let formula = &FEYNMAN[0];
            let [a, b] = [0, 1].map(|part| formula.data(&own, part));
            (Kind::Feynman(own), a?, Some(b?), Vec::new())
        } else {
            let spec: DataSpec = experiment.data_as()?;
            let data = spec.load(&experiment.resolve(""), train.seed)?;
            let kind = Kind::Table(Box::new(data.preparation));
            (kind, data.train, data.validation, data.notes)
        };
        let classes = matches!(training.targets(), Targets::Classes { .. });
        let loss = train.loss.unwrap_or(match classes {
            true => Loss::CrossEntropy,
            false => Loss::Mse,
        });
        if (loss == Loss::CrossEntropy) != classes {
            let needed = if classes {
                "cross_entropy for classes"
            } else {
                "a loss of values"
            };
            return Err(Error::invalid("train.loss", loss.name(), needed));
        }
        let needs = [training.sample_len(), training.outputs()];
        let has = [network.input_len(), network.output_len()];
        if needs != has {
            let needed = format!("{} and {}, as the data has", needs[0], needs[1]);
            let got = format!("{} inputs and {} outputs", has[0], has[1]);
            return Err(Error::invalid("model.sizes", got, needed));
        }
        let batches = Batches::new(training.len(), train.batch.unwrap_or(BATCH), train.seed)?;
        Ok(KanTask {
            network,
            loss,
            train: training,
            validation,
            batches,
            kind,
            notes,
        })
    }

    /// A run's task with the network and parameters as trained, for export.
    pub fn of_run(run: &Path) -> Result<(Self, Vec<f32>)> {
        let mut task = KanTask::new(&experiment_of(run)?)?;
        let (params, _) = load_weights(&model_file(run), &mut task.network)?;
        Ok((task, params))
    }

    /// Some inputs of the data, to draw and measure with.
    pub fn shown_inputs(&self) -> &[f32] {
        let len = self.train.len().min(SHOWN) * self.train.sample_len();
        &self.train.inputs()[..len]
    }

    /// Writes `network.svg` and `network.png` into a folder.
    pub fn write_pictures(&self, params: &[f32], folder: &Path) -> Result<()> {
        let options = PlotOptions::default();
        let svg = plot_svg(&self.network, params, self.shown_inputs(), &options)?;
        let png = plot_png(&self.network, params, self.shown_inputs(), &options)?;
        for (name, bytes) in [("network.svg", svg.as_bytes()), ("network.png", &png[..])] {
            let path = folder.join(name);
            std::fs::write(&path, bytes).map_err(Error::io(&path, "write"))?;
        }
        Ok(())
    }

    fn measure(&self, params: &[f32], data: &Dataset) -> Metrics {
        let mut tape = Default::default();
        let (mut input, mut target) = (Vec::new(), Target::default());
        let width = self.network.output_len();
        let (mut loss, mut weight, mut hits, mut squares) = (0.0, 0.0, 0_usize, 0.0);
        for first in (0..data.len()).step_by(1024) {
            let end = data.len().min(first + 1024);
            data.gather_range(first..end, &mut input, &mut target);
            self.network
                .forward(params, &input, &Pass::inference(), &mut tape);
            let y = self.network.output(&tape);
            let share = match &target.weights {
                Some(w) => w.iter().map(|&w| f64::from(w)).sum(),
                None => (end - first) as f64,
            };
            let value = f64::from(self.loss.evaluate(y, &target, None));
            loss += value * share;
            weight += share;
            for (s, y) in y.chunks_exact(width).enumerate() {
                let allowed = |j: usize| match &target.weights {
                    Some(w) if w.len() == target.values.len() => w[s * width + j] > 0.0,
                    _ => true,
                };
                let best = |v: &[f32]| {
                    let allowed = (0..width).filter(|&j| allowed(j));
                    allowed.max_by(|&a, &b| v[a].total_cmp(&v[b]))
                };
                match target.classes.get(s) {
                    Some(&class) => hits += usize::from(best(y) == Some(class as usize)),
                    None => {
                        let t = &target.values[s * width..(s + 1) * width];
                        hits += usize::from(best(y) == best(t));
                        squares += (0..width)
                            .filter(|&j| allowed(j))
                            .map(|j| f64::from(y[j] - t[j]).powi(2))
                            .sum::<f64>();
                    }
                }
            }
        }
        let mut metrics = vec![("validation_loss".to_string(), loss / weight)];
        let accuracy = hits as f64 / data.len() as f64;
        match (&self.kind, self.loss) {
            (_, Loss::CrossEntropy) => metrics.push(("accuracy".into(), accuracy)),
            (Kind::Poker, _) => metrics.push(("best_action".into(), accuracy)),
            _ => metrics.push((
                "rmse".into(),
                (squares / (data.len() * width) as f64).sqrt(),
            )),
        }
        metrics
    }
}

impl Task for KanTask {
    type Model = Network;

    fn model(&self) -> &Network {
        &self.network
    }

    fn model_mut(&mut self) -> &mut Network {
        &mut self.network
    }

    fn loss(&self) -> Loss {
        self.loss
    }

    fn notes(&self) -> &[String] {
        &self.notes
    }

    fn steps_per_epoch(&self) -> u64 {
        self.batches.per_epoch()
    }

    fn batch(&mut self, step: u64, example: &mut Option<Example<Network>>) -> Result<()> {
        let example = example.get_or_insert_with(|| Example {
            input: Vec::new(),
            target: Target::default(),
        });
        let samples = self.batches.of_step(step);
        self.train
            .gather(samples, &mut example.input, &mut example.target);
        Ok(())
    }

    fn evaluate(&mut self, params: &[f32], _epoch: u64) -> Result<Metrics> {
        Ok(match &self.validation {
            Some(data) => self.measure(params, data),
            None => Vec::new(),
        })
    }

    fn specimen(&mut self) -> Result<Specimen<Network>> {
        Ok(first_samples(&self.train))
    }

    fn finish(&mut self, params: &[f32], run: &Path) -> Result<Findings> {
        let mut findings = Findings::default();
        let data = self.validation.as_ref().unwrap_or(&self.train);
        for (name, value) in self.measure(params, data).into_iter().skip(1) {
            findings.summary.insert(name, json!(value));
        }
        self.write_pictures(params, run)?;
        findings
            .figures
            .extend(network_figure(&self.network, params, self.shown_inputs()));
        if let Kind::Feynman(own) = self.kind {
            self.find_formulas(&own, run, &mut findings)?;
        }
        Ok(findings)
    }

    fn metadata(&self) -> Metadata {
        match &self.kind {
            Kind::Table(preparation) => vec![(PREPARATION.into(), preparation.to_json())],
            _ => Vec::new(),
        }
    }
}

impl KanTask {
    fn find_formulas(&self, own: &Generated, run: &Path, findings: &mut Findings) -> Result<()> {
        let mut rows = Vec::new();
        let mut list = Vec::new();
        let mut latex = String::new();
        for formula in FEYNMAN {
            let data = formula.data(own, 2)?;
            let Targets::Values { values, .. } = data.targets() else {
                unreachable!("formulas give values");
            };
            let options = Discover::new(formula.sizes, formula.range());
            let found = discover(data.inputs(), values, &options)?;
            let expression = found.formula(0);
            let test = formula.data(own, 1)?;
            let Targets::Values { values, .. } = test.targets() else {
                unreachable!("formulas give values");
            };
            let x: Vec<f64> = crate::scalar::cast(test.inputs());
            let worst = x
                .chunks_exact(test.sample_len())
                .zip(values)
                .map(|(x, &t)| (expression.value(x) - f64::from(t)).abs())
                .fold(0.0, f64::max);
            rows.push(vec![
                formula.name.to_string(),
                formula.text.to_string(),
                expression.text(),
                format!("{:.1e}", found.network_rms),
                format!("{worst:.1e}"),
            ]);
            list.push(json!({
                "name": formula.name,
                "formula": formula.text,
                "found": expression.text(),
                "latex": expression.latex(),
                "network_rmse": found.network_rms,
                "largest_error": worst,
            }));
            latex.push_str(&format!(
                "% {}: {}\n{}\n",
                formula.name,
                formula.text,
                expression.latex()
            ));
        }
        let path = run.join("formulas.tex");
        std::fs::write(&path, latex).map_err(Error::io(&path, "write"))?;
        findings.summary.insert("formulas".into(), json!(list));
        findings.figures.push(Figure {
            title: "Formulas".into(),
            caption: "What was generated, and what was found in the data: a KAN trained with a \
                      sparsity penalty, pruned, its edges matched against a library of functions, \
                      the constants tuned. The error is the formula's largest on new samples."
                .into(),
            content: Content::Table {
                header: ["formula", "is", "found", "KAN's RMSE", "largest error"]
                    .map(String::from)
                    .to_vec(),
                rows,
            },
        });
        Ok(())
    }
}

/// A formula of the Feynman set, in its dimensionless form.
struct Formula {
    name: &'static str,
    text: &'static str,
    /// The network that looks for it.
    sizes: &'static [usize],
    /// The ranges of its variables.
    ranges: &'static [[f64; 2]],
    value: fn(&[f64]) -> f64,
}

const FEYNMAN: &[Formula] = &[
    Formula {
        name: "I.6.2a",
        text: "exp(-x_1^2/2)/sqrt(2*pi)",
        sizes: &[1, 1],
        ranges: &[[-3.0, 3.0]],
        value: |x| (-x[0] * x[0] / 2.0).exp() / std::f64::consts::TAU.sqrt(),
    },
    Formula {
        name: "III.10.19",
        text: "sqrt(1 + x_1^2 + x_2^2)",
        sizes: &[2, 1, 1],
        ranges: &[[-2.0, 2.0], [-2.0, 2.0]],
        value: |x| (1.0 + x[0] * x[0] + x[1] * x[1]).sqrt(),
    },
    Formula {
        name: "I.12.11",
        text: "1 + x_1*sin(x_2)",
        sizes: &[2, 2, 1],
        ranges: &[[-1.0, 1.0], [-2.5, 2.5]],
        value: |x| 1.0 + x[0] * x[1].sin(),
    },
];

impl Formula {
    /// The smallest range that holds all variables.
    fn range(&self) -> [f64; 2] {
        let all = self.ranges.iter();
        all.fold([f64::MAX, f64::MIN], |r, own| {
            [r[0].min(own[0]), r[1].max(own[1])]
        })
    }

    fn data(&self, own: &Generated, part: u64) -> Result<Dataset> {
        let mut stream = Key::new(own.seed).purpose(self.name).index(part).stream();
        let count = if part == 1 {
            own.samples / 4 + 1
        } else {
            own.samples
        };
        let (mut inputs, mut values) = (Vec::new(), Vec::new());
        for _ in 0..count {
            let x: Vec<f64> = self
                .ranges
                .iter()
                .map(|r| f64::from(stream.range(r[0], r[1]) as f32))
                .collect();
            values.push((self.value)(&x) as f32);
            inputs.extend(x.iter().map(|&x| x as f32));
        }
        Dataset::new(vec![self.ranges.len()], inputs)?.with_values(vec![1], values)
    }
}

/// 21 features of a position, 24 action values, and which actions are allowed. The values are sums
/// of smooth functions of pairs of features, drawn from the seed: what a value network learns, of
/// known difficulty.
fn poker(own: &Generated, part: u64) -> Result<Dataset> {
    const FEATURES: usize = 21;
    const ACTIONS: usize = 24;
    let mut teacher = Key::new(own.seed).purpose("poker teacher").stream();
    let terms: Vec<(usize, usize, usize, f64, f64, f64)> = (0..ACTIONS)
        .flat_map(|action| (0..4).map(move |_| action))
        .map(|action| {
            let (i, j) = (teacher.below(FEATURES), teacher.below(FEATURES));
            let [a, b] = [teacher.range(-2.0, 2.0), teacher.range(-2.0, 2.0)];
            (action, i, j, a, b, teacher.range(-1.0, 1.0))
        })
        .collect();
    let mut stream = Key::new(own.seed).purpose("poker").index(part).stream();
    let count = if part == 1 {
        own.samples / 10 + 1
    } else {
        own.samples
    };
    let (mut inputs, mut values, mut mask) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..count {
        let x: Vec<f64> = (0..FEATURES).map(|_| stream.range(-1.0, 1.0)).collect();
        let mut y = [0.0; ACTIONS];
        for &(action, i, j, a, b, c) in &terms {
            y[action] += c * (a * x[i] + b * x[j]).sin();
        }
        let always = stream.below(ACTIONS);
        mask.extend((0..ACTIONS).map(|j| {
            let allowed = j == always || stream.uniform() < 0.6;
            f32::from(u8::from(allowed))
        }));
        inputs.extend(x.iter().map(|&x| x as f32));
        values.extend(y.map(|y| y as f32));
    }
    Dataset::new(vec![FEATURES], inputs)?
        .with_values(vec![ACTIONS], values)?
        .with_weights(mask)
}
