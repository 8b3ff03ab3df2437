//! The task of networks on tables and arrays: data, batches, measures and findings. Families that
//! are short forms of a network (`kan`) build the network and hand it over.

mod findings;
mod measures;
mod trained;

use std::ops::Range;
use std::path::Path;

use serde_json::json;

pub use self::trained::{Predictions, TrainedNetwork};

use self::findings::{confusion_table, first_against_truth, residuals, truth_against_prediction};
use self::measures::{Measures, outputs};
use super::{
    Example, Experiment, Figure, Findings, MeasuredOn, Metadata, Metrics, Specimen, Summary, Task,
    TrainSpec, Verdict, load_weights,
};
use crate::budget::Demand;
use crate::data::metrics::{Choices, Confusion, Regression};
use crate::data::{Batches, DataSpec, Dataset, Preparation, Targets};
use crate::kan::{GridSchedule, GridUpdate, update_grid};
use crate::math;
use crate::network::{Network, NetworkSpec};
use crate::{Error, Loss, Model, Result, Target};

/// Samples in a batch where the experiment says nothing.
const BATCH: usize = 32;
/// Samples at a time in evaluation and inference: enough to keep every core busy on small layers.
const EVALUATED: usize = 1024;
/// Samples that a trained network is verified on.
pub(crate) const SPECIMEN: usize = 8;
/// The key of the preparation in a checkpoint's metadata.
pub(crate) const PREPARATION: &str = "preparation";

/// What is measured of outputs.
const MEASURES: [&str; 6] = ["rmse", "mae", "r2", "accuracy", "f1", "best_action"];

/// Samples that pictures and importance are measured on.
const SHOWN: usize = 500;

/// A network, its data and its measures.
pub struct NetworkTask {
    network: Network,
    loss: Loss,
    data: TableData,
    /// Whether the experiment lists layers; else it has their sizes alone.
    listed: bool,
    /// Grids of KAN layers that follow the data.
    grid: Option<GridSchedule>,
    /// What a family adds at the end.
    more: Option<Box<More>>,
}

/// Adds to the findings of a trained network: files in the run's folder, figures.
pub(crate) type More = dyn Fn(&NetworkTask, &[f32], &Path, &mut Findings) -> Result<()>;

/// What a network is trained and measured on.
pub(crate) struct TableData {
    pub train: Dataset,
    pub validation: Option<Dataset>,
    pub test: Option<Dataset>,
    pub batches: Batches,
    pub scoring: Scoring,
    pub notes: Vec<String>,
}

/// How outputs are measured.
pub(crate) enum Scoring {
    /// In the units and words of the user's data.
    Prepared(Box<Preparation>),
    /// As the numbers they are.
    Values,
    /// By the class of the largest output.
    Classes,
    /// By the best of those that a sample's weights allow.
    Choices,
}

impl TableData {
    /// The `[data]` of an experiment, in batches of `batch` where it says nothing.
    pub fn load(experiment: &Experiment, batch: usize) -> Result<Self> {
        let spec: DataSpec = experiment.data_as()?;
        let train = &experiment.train;
        let data = spec.load(&experiment.resolve(""), train.seed)?;
        Ok(TableData {
            batches: data.batches(train.batch.unwrap_or(batch), train.seed)?,
            train: data.train,
            validation: data.validation,
            test: data.test,
            scoring: Scoring::Prepared(Box::new(data.preparation)),
            notes: data.notes,
        })
    }
}

/// The network of an experiment. Where `[model] input` is left out it is the shape of the data's
/// samples; otherwise another shape of as many values, such as one channel for images without
/// any. Then the outputs are checked against what is to be learnt.
fn build(experiment: &Experiment, preparation: &Preparation) -> Result<Network> {
    let mut model = experiment.model.clone();
    let shape = &preparation.sample_shape;
    if !model.contains_key("input") {
        let sizes = shape.iter().map(|&n| toml::Value::Integer(n as i64));
        model.insert("input".into(), toml::Value::Array(sizes.collect()));
    }
    let described = Experiment {
        model,
        ..experiment.clone()
    };
    let spec: NetworkSpec = described.model_as()?;
    let network = Network::new(&spec)?;
    if network.input_len() != shape.iter().product::<usize>() {
        return Err(Error::invalid(
            "model.input",
            format!("{:?}", spec.input),
            format!("{shape:?}, the shape of the data's samples, or another of as many values"),
        ));
    }
    Ok(network)
}

/// Cross-entropy takes class numbers; every other loss compares values.
fn targets_for(loss: Loss, data: Dataset) -> Result<Dataset> {
    match (loss, data.targets()) {
        (Loss::CrossEntropy, Targets::Values { .. }) => Err(Error::invalid(
            "train.loss",
            "cross_entropy",
            "classes to learn; the targets are numbers (set data.task = \"classification\" if \
             they are classes)",
        )),
        (Loss::CrossEntropy, _) => Ok(data),
        _ => Ok(data.with_classes_as_values()),
    }
}

impl NetworkTask {
    /// Reads the data and builds the network; everything is checked here.
    pub fn new(experiment: &Experiment) -> Result<Self> {
        let data = TableData::load(experiment, BATCH)?;
        let Scoring::Prepared(preparation) = &data.scoring else {
            unreachable!("data that is loaded was prepared");
        };
        let network = build(experiment, preparation)?;
        let outputs = "model.layers: outputs of the last layer";
        NetworkTask::of(experiment, network, data, outputs)
    }

    /// The task of a network on samples in memory. Without validation the last parameters are kept.
    pub fn on(
        experiment: &Experiment,
        network: Network,
        train: Dataset,
        validation: Option<Dataset>,
    ) -> Result<Self> {
        let spec = &experiment.train;
        if network.input_len() != train.sample_len() {
            let needed = format!("{}, the values of a sample", train.sample_len());
            let what = "the network's inputs";
            return Err(Error::invalid(what, network.input_len(), needed));
        }
        let data = TableData {
            batches: Batches::new(train.len(), spec.batch.unwrap_or(BATCH), spec.seed)?,
            scoring: match train.targets() {
                Targets::Classes { .. } => Scoring::Classes,
                _ => Scoring::Values,
            },
            train,
            validation,
            test: None,
            notes: Vec::new(),
        };
        NetworkTask::of(experiment, network, data, "the network's outputs")
    }

    /// Builds an experiment's network for data prepared so, to see that they fit.
    pub(crate) fn check(experiment: &Experiment, preparation: &Preparation) -> Result<()> {
        let network = build(experiment, preparation)?;
        let needed = preparation.outputs();
        if network.output_len() != needed {
            let what = "model.layers: outputs of the last layer";
            return Err(Error::invalid(what, network.output_len(), needed));
        }
        Ok(())
    }

    /// The task of a network that a family has built. `outputs` says where their number is written.
    pub(crate) fn of(
        experiment: &Experiment,
        network: Network,
        mut data: TableData,
        outputs: &str,
    ) -> Result<Self> {
        let classes = matches!(data.train.targets(), Targets::Classes { .. });
        let loss = experiment.train.loss.unwrap_or(match classes {
            true => Loss::CrossEntropy,
            false => Loss::Mse,
        });
        data.train = targets_for(loss, data.train)?;
        let validation = data.validation.map(|v| targets_for(loss, v));
        data.validation = validation.transpose()?;
        let test = data.test.map(|t| targets_for(loss, t));
        data.test = test.transpose()?;
        let needed = data.train.outputs();
        if network.output_len() != needed {
            let what = match classes {
                false => "one for every value to predict",
                true => "one for every class, or one logit for two",
            };
            let needed = format!("{needed}, {what}");
            return Err(Error::invalid(outputs, network.output_len(), needed));
        }
        Ok(NetworkTask {
            network,
            loss,
            data,
            listed: experiment.model.contains_key("layers"),
            grid: None,
            more: None,
        })
    }

    /// The same, with what a family adds at the end.
    pub(crate) fn with_more(mut self, more: Box<More>) -> Self {
        self.more = Some(more);
        self
    }

    /// The same, with knots that follow the data between epochs.
    pub fn with_grid(mut self, grid: Option<GridSchedule>) -> Self {
        self.grid = grid;
        self
    }

    /// The part that the reported figures are from, and its name: the test part, which neither taught
    /// nor chose, or the next best that there is.
    fn measured(&self) -> (&'static str, &Dataset) {
        match (&self.data.test, &self.data.validation) {
            (Some(data), _) => ("test", data),
            (None, Some(data)) => ("validation", data),
            (None, None) => ("training", &self.data.train),
        }
    }

    /// How the data became numbers, where it was a user's.
    pub(crate) fn preparation(&self) -> Option<&Preparation> {
        match &self.data.scoring {
            Scoring::Prepared(preparation) => Some(preparation),
            _ => None,
        }
    }

    /// The part that the reported figures are from, and its name.
    pub(crate) fn reported(&self) -> (&'static str, &Dataset) {
        self.measured()
    }

    /// So many training samples at most, from all over the data.
    pub(crate) fn training_inputs(&self, most: usize) -> Vec<f32> {
        let train = &self.data.train;
        let count = train.len().min(most);
        let spread = (0..count).map(|i| (i * train.len() / count) as u32);
        let (mut x, mut target) = (Vec::new(), Target::default());
        train.gather(&spread.collect::<Vec<_>>(), &mut x, &mut target);
        x
    }

    /// The measures of outputs for the samples of a part.
    pub(crate) fn figures_of(&self, data: &Dataset, outputs: &[f32]) -> Result<Metrics> {
        let mut measures = self.measures();
        let (mut inputs, mut target) = (Vec::new(), Target::default());
        data.gather_range(0..data.len(), &mut inputs, &mut target);
        measures.add(outputs, &target)?;
        Ok(measures.named())
    }

    /// A run's task with the network and the parameters as trained.
    pub(crate) fn of_run(run: &Path) -> Result<(Self, Vec<f32>)> {
        let mut task = NetworkTask::new(&super::experiment_of(run)?)?;
        let (params, _) = load_weights(&super::model_file(run), &mut task.network)?;
        Ok((task, params))
    }

    /// Samples that are trained on.
    pub fn train_samples(&self) -> usize {
        self.data.train.len()
    }

    /// Some inputs of the training data, to draw and measure with.
    pub fn shown_inputs(&self) -> &[f32] {
        let train = &self.data.train;
        &train.inputs()[..train.len().min(SHOWN) * train.sample_len()]
    }

    /// The edges of a network of KAN layers.
    fn kan_figure(&self, params: &[f32]) -> Option<Figure> {
        let (x, preparation) = (self.shown_inputs(), self.preparation());
        crate::kan::network_figure(&self.network, params, x, preparation)
    }

    /// The loss and the measures on a data set, and its outputs.
    fn score(&self, params: &[f32], data: &Dataset) -> Result<(f64, Measures, Vec<f32>)> {
        let mut measures = self.measures();
        let outputs = outputs(&self.network, params, data);
        let width = self.network.output_len();
        let (mut sum, mut weight) = (0.0, 0.0);
        let (mut inputs, mut target) = (Vec::new(), Target::default());
        for (i, y) in outputs.chunks(EVALUATED * width).enumerate() {
            let first = i * EVALUATED;
            data.gather_range(first..first + y.len() / width, &mut inputs, &mut target);
            let value = f64::from(self.loss.compute(y, &target, None));
            let share = match (self.loss, &target.weights) {
                (Loss::SumSquares, _) => 1.0,
                (_, Some(w)) => w.iter().map(|&w| f64::from(w)).sum(),
                (_, None) => target.values.len().max(target.classes.len()) as f64,
            };
            sum += value * share;
            weight += share;
            measures.add(y, &target)?;
        }
        let loss = match self.loss {
            Loss::SumSquares => sum,
            _ => sum / weight,
        };
        Ok((loss, measures, outputs))
    }

    fn measures(&self) -> Measures {
        match &self.data.scoring {
            Scoring::Prepared(preparation) => Measures::new(preparation),
            Scoring::Values => Measures::Regression(Regression::new(self.network.output_len())),
            Scoring::Classes => Measures::Classification(Confusion::new(self.network.output_len())),
            Scoring::Choices => Measures::Choices(Choices::new(self.network.output_len())),
        }
    }
}

impl Task for NetworkTask {
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
        &self.data.notes
    }

    fn steps_per_epoch(&self) -> u64 {
        self.data.batches.per_epoch()
    }

    fn batch(&mut self, step: u64, example: &mut Option<Example<Network>>) -> Result<()> {
        let all = 0..self.data.batches.of_step(step).len();
        self.part(step, all, example)
    }

    fn samples(&self, step: u64) -> Option<usize> {
        Some(self.data.batches.len_of_step(step))
    }

    fn shard_of(&self) -> (&'static str, usize) {
        ("rows", 16)
    }

    fn part(
        &mut self,
        step: u64,
        samples: Range<usize>,
        example: &mut Option<Example<Network>>,
    ) -> Result<()> {
        let samples = &self.data.batches.of_step(step)[samples];
        let example = example.get_or_insert_with(|| Example {
            input: Vec::new(),
            target: Target::default(),
        });
        self.data
            .train
            .gather(samples, &mut example.input, &mut example.target);
        Ok(())
    }

    fn adapts(&self, epoch: u64) -> bool {
        self.grid.is_some_and(|grid| grid.is_due(epoch))
    }

    fn adapt(&mut self, params: &mut [f32]) -> Result<()> {
        let train = &self.data.train;
        // Samples from all over the data.
        let count = train.len().min(EVALUATED);
        let spread = (0..count).map(|i| (i * train.len() / count) as u32);
        let (mut x, mut target) = (Vec::new(), Target::default());
        train.gather(&spread.collect::<Vec<_>>(), &mut x, &mut target);
        let options = GridUpdate::default();
        let (moved, refitted, _) = update_grid(&self.network, params, &x, &options)?;
        params.copy_from_slice(&refitted);
        let buffers = moved.buffers();
        buffers.iter().try_for_each(|b| self.network.set_buffer(b))
    }

    fn demand(&self, train: &TrainSpec) -> Demand<'_> {
        let batch = self.data.batches.size().min(self.data.train.len()) as u64;
        let optimizer = train.optimizer;
        let listed = self.listed;
        let named = move |index| match listed {
            true => format!("model.layers[{index}].out"),
            false => format!("model.sizes[{}]", index + 1),
        };
        // Evaluation holds the outputs of every sample.
        let outputs = self.network.output_len() as u128 * self.data.train.len() as u128;
        let measured = self.data.validation.as_ref().unwrap_or(&self.data.train);
        let evaluated = measured.len().min(EVALUATED) as u64;
        let batch = ("train.batch", batch);
        let demand = self.network.demand(batch, evaluated, optimizer, named);
        demand.and(8 * outputs)
    }

    fn evaluate(&mut self, params: &[f32], _epoch: u64) -> Result<Metrics> {
        let Some(data) = &self.data.validation else {
            return Ok(Vec::new());
        };
        let (loss, measures, _) = self.score(params, data)?;
        let mut metrics = vec![("validation_loss".to_string(), loss)];
        metrics.extend(measures.named());
        Ok(metrics)
    }

    /// The measures of the part that is reported, under their own names; those of the part that chose
    /// the epoch beside them.
    fn measure(&mut self, params: &[f32]) -> Result<Metrics> {
        let (part, data) = self.measured();
        let mut metrics = self.score(params, data)?.1.named();
        if part == "test" {
            let (loss, ..) = self.score(params, data)?;
            metrics.push(("test_loss".into(), loss));
            if let Some(data) = &self.data.validation {
                let named = self.score(params, data)?.1.named();
                let named = named.into_iter();
                metrics.extend(named.map(|(name, value)| (format!("validation_{name}"), value)));
            }
        }
        Ok(metrics)
    }

    /// Better than always saying the same.
    fn verdict(&self, summary: &Summary) -> Option<Verdict> {
        let figure = |name: &str| summary.more.get(name).and_then(serde_json::Value::as_f64);
        let (part, _) = self.measured();
        let why = if let Some(r2) = figure("r2") {
            (r2 <= 0.0).then(|| {
                let r2 = super::number(r2);
                format!("an r2 of {r2} on the {part} rows is no better than their mean")
            })
        } else {
            let rows = summary.more.get("confusion")?.as_array()?;
            let sum = |row: &serde_json::Value| -> f64 {
                let cells = row.as_array().into_iter().flatten();
                cells.filter_map(serde_json::Value::as_f64).sum()
            };
            let counts: Vec<f64> = rows.iter().map(sum).collect();
            let most = counts.iter().copied().fold(0.0, math::max) / counts.iter().sum::<f64>();
            let accuracy = figure("accuracy")?;
            // One class alone is always right.
            (accuracy <= most && most < 1.0).then(|| {
                let (accuracy, most) = (super::number(accuracy), super::number(most));
                format!(
                    "an accuracy of {accuracy} on the {part} rows is no better than the most \
                     frequent class ({most})"
                )
            })
        };
        Some(match why {
            None => Verdict::Learned,
            Some(why) => Verdict::NotLearned {
                why,
                advice: "try more rows or columns, more epochs, or --folds 5 to see how much it \
                         varies"
                    .into(),
            },
        })
    }

    fn measured_on(&self, figure: &str) -> Option<MeasuredOn> {
        let parts = [
            ("train", "training", Some(&self.data.train)),
            ("validation", "validation", self.data.validation.as_ref()),
            ("test", "test", self.data.test.as_ref()),
        ];
        let named = parts.iter().find(|part| {
            let rest = figure.strip_prefix(part.0);
            rest.is_some_and(|rest| rest.starts_with('_'))
        });
        let (part, data) = match named {
            Some(&(_, part, data)) => (part, data?),
            None if MEASURES.contains(&figure) => self.measured(),
            None => return None,
        };
        Some(MeasuredOn::part(part, Some((data.len(), "rows"))))
    }

    fn view(&mut self, params: &[f32]) -> Result<Vec<Figure>> {
        let surface = super::surface::figure(&self.network, params, &self.data.train);
        let picture = self.kan_figure(params);
        Ok(surface.into_iter().chain(picture).collect())
    }

    fn finish(&mut self, params: &[f32], run: &Path) -> Result<Findings> {
        let (name, data) = self.measured();
        let (_, measures, outputs) = self.score(params, data)?;
        let count = data.len();
        let mut findings = Findings::default();
        let summary = &mut findings.summary;
        summary.insert("training_samples".into(), json!(self.data.train.len()));
        match (&measures, &self.data.scoring) {
            (Measures::Classification(matrix), Scoring::Prepared(preparation)) => {
                let rows: Vec<&[f64]> = matrix.rows().collect();
                summary.insert("confusion".into(), json!(rows));
                let named = format!("{count} {name}");
                let table = confusion_table(&named, preparation.classes(), &rows);
                findings.figures.push(table);
            }
            (Measures::Regression(_), scoring) => {
                let width = self.network.output_len();
                let points = first_against_truth(scoring, data, &outputs, width)?;
                let named = format!("{count} {name}");
                let figures = [
                    truth_against_prediction(&named, &points),
                    residuals(&named, &points),
                ];
                findings.figures.extend(figures);
            }
            _ => {}
        }
        // A network of KAN layers shows its edges.
        findings.figures.extend(self.kan_figure(params));
        if let Some(more) = &self.more {
            more(self, params, run, &mut findings)?;
        }
        Ok(findings)
    }

    fn specimen(&mut self) -> Result<Specimen<Network>> {
        Ok(first_samples(&self.data.train))
    }

    fn metadata(&self) -> Metadata {
        match &self.data.scoring {
            Scoring::Prepared(preparation) => vec![(PREPARATION.into(), preparation.to_json())],
            _ => Vec::new(),
        }
    }
}

/// The first samples of a data set, to verify a network on.
pub(crate) fn first_samples(data: &Dataset) -> Specimen<Network> {
    let (mut input, mut target) = (Vec::new(), Target::default());
    data.gather_range(0..data.len().min(SPECIMEN), &mut input, &mut target);
    Specimen {
        example: Example { input, target },
        model: None,
    }
}
