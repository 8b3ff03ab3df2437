//! The `kan` family: a short form of a network of KAN layers on a data set, on generated poker-like positions, or on formulas
//! of the Feynman set, with its picture and what was found out in the report.
//!
//! ```toml
//! [model]
//! family = "kan"
//! sizes = [64, 16, 10]        # inputs, hidden widths, outputs
//! grid = 5                    # and degree, range, base, bias, outside, sparsity
//! update_grid = { every = 5, until = 20 }   # epochs after which the knots follow the data
//!
//! [data]
//! generate = { name = "digits" }   # any [data] of a table or arrays, or:
//! # poker = { samples = 20000 }    # 21 features, 24 values, a mask of what is allowed
//! # feynman = { samples = 1000 }   # three formulas, whose symbolic forms are looked for
//! ```

use crate::math;
use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::json;

use super::plot::{Names, plot_named};
use super::{Discover, GridSchedule, KanConfig, PlotOptions, discover, plot_png, plot_svg};
use crate::budget::{self, Demand, product};
use crate::data::{Batches, Dataset, Preparation, Targets, write_whole};
use crate::network::{Base, LayerSpec, Network, Outside, Sparsity};
use crate::rng::Key;
use crate::train::{
    Content, Experiment, Figure, Findings, More, NetworkTask, Scoring, TableData, Task,
    TrainedNetwork, experiment_of, load_weights, model_file,
};
use crate::{Error, Result};

/// Samples in a batch where the experiment says nothing.
const BATCH: usize = 64;

/// The picture of a network of KAN layers for a report, with the names of columns where they are
/// known; none for other networks.
pub(crate) fn network_figure(
    network: &Network,
    params: &[f32],
    x: &[f32],
    preparation: Option<&Preparation>,
) -> Option<Figure> {
    // As many as a page has room for with names that can be read.
    let options = PlotOptions {
        edges: 16,
        ..PlotOptions::default()
    };
    let names = preparation.map(|preparation| Names::of(preparation, network.output_len()));
    let svg = match names.filter(|names| names.inputs.len() == network.input_len()) {
        Some(names) => plot_named(network, params, x, &options, &names).ok()?,
        None => plot_svg(network, params, x, &options).ok()?,
    };
    Some(Figure {
        title: "The network".into(),
        caption: format!(
            "Inputs below, outputs above; on every edge its function over the data, the stronger its \
             lines the more it matters. Of a layer with more than {} edges those are drawn that \
             matter most.",
            options.edges
        ),
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
    #[serde(default)]
    update_grid: Option<GridSchedule>,
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
    let mut spec = config.spec()?;
    if let Some(updates) = table.update_grid {
        if updates.every == 0 {
            let what = "model.update_grid.every";
            return Err(Error::invalid(what, 0, "1 epoch or more"));
        }
        // Knots that move are saved with the network.
        for layer in &mut spec.layers {
            if let LayerSpec::Kan(kan) = layer {
                kan.free_knots = true;
            }
        }
    }
    Network::new(&spec)
}

/// A run's network with the preparation of its data, to predict with.
pub fn trained_kan(run: &Path) -> Result<TrainedNetwork> {
    TrainedNetwork::of(run, |experiment, _| build(experiment))
}

/// A KAN on a data set, on generated positions or on formulas: the task of a network, with pictures
/// and formulas at its end. Everything is checked here.
pub fn task(experiment: &Experiment) -> Result<NetworkTask> {
    let network = build(experiment)?;
    let (data, more): (_, Box<More>) = if let Some(own) = generated(experiment, "poker")? {
        let parts = [poker(&own, 0)?, poker(&own, 1)?];
        (made(experiment, parts, Scoring::Choices)?, Box::new(draw))
    } else if let Some(own) = generated(experiment, "feynman")? {
        let parts = [FEYNMAN[0].data(&own, 0)?, FEYNMAN[0].data(&own, 1)?];
        let data = made(experiment, parts, Scoring::Values)?;
        let more: Box<More> = Box::new(move |task, params, run, findings| {
            draw(task, params, run, findings)?;
            find_formulas(&own, run, findings)
        });
        (data, more)
    } else {
        (TableData::load(experiment, BATCH)?, Box::new(draw))
    };
    let needed = data.train.sample_len();
    if network.input_len() != needed {
        let needed = format!("{needed}, the values of a sample");
        let what = "model.sizes: the first, inputs";
        return Err(Error::invalid(what, network.input_len(), needed));
    }
    let outputs = "model.sizes: the last, outputs";
    let task = NetworkTask::of(experiment, network, data, outputs)?;
    let grid = experiment.model_as::<ModelTable>()?.update_grid;
    Ok(task.with_more(more).with_grid(grid))
}

/// `[data] poker` or `[data] feynman`, where it is there.
fn generated(experiment: &Experiment, key: &str) -> Result<Option<Generated>> {
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
    let sizes = [("samples", own.samples as u64)];
    let demand = Demand::of(sizes, |[samples]| product([samples, 400]));
    budget::allow(&demand)?;
    Ok(Some(own))
}

/// Data that was made here.
fn made(experiment: &Experiment, parts: [Dataset; 2], scoring: Scoring) -> Result<TableData> {
    let spec = &experiment.train;
    let [train, validation] = parts;
    let batch = spec.batch.unwrap_or(BATCH);
    Ok(TableData {
        batches: Batches::new(train.len(), batch, spec.seed)?,
        train,
        validation: Some(validation),
        test: None,
        scoring,
        notes: Vec::new(),
    })
}

/// A run's task with the network and parameters as trained, for export.
pub fn task_of_run(run: &Path) -> Result<(NetworkTask, Vec<f32>)> {
    let mut task = task(&experiment_of(run)?)?;
    let (params, _) = load_weights(&model_file(run), task.model_mut())?;
    Ok((task, params))
}

/// Writes `network.svg` and `network.png` into a folder.
pub fn write_pictures(network: &Network, params: &[f32], x: &[f32], folder: &Path) -> Result<()> {
    let options = PlotOptions::default();
    let svg = plot_svg(network, params, x, &options)?;
    let png = plot_png(network, params, x, &options)?;
    for (name, bytes) in [("network.svg", svg.as_bytes()), ("network.png", &png[..])] {
        let path = folder.join(name);
        write_whole(&path, |file| file.write_all(bytes))?;
    }
    Ok(())
}

fn draw(task: &NetworkTask, params: &[f32], run: &Path, _: &mut Findings) -> Result<()> {
    write_pictures(task.model(), params, task.shown_inputs(), run)
}

fn find_formulas(own: &Generated, run: &Path, findings: &mut Findings) -> Result<()> {
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
            .fold(0.0, math::max);
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
    write_whole(&path, |file| file.write_all(latex.as_bytes()))?;
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
        value: |x| math::exp(-x[0] * x[0] / 2.0) / std::f64::consts::TAU.sqrt(),
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
        value: |x| 1.0 + x[0] * math::sin(x[1]),
    },
];

impl Formula {
    /// The smallest range that holds all variables.
    fn range(&self) -> [f64; 2] {
        let all = self.ranges.iter();
        all.fold([f64::MAX, f64::MIN], |r, own| {
            [math::min(r[0], own[0]), math::max(r[1], own[1])]
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
            y[action] += c * math::sin(a * x[i] + b * x[j]);
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
