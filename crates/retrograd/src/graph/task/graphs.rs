//! Classes or numbers of whole graphs, with cross-validation.

use std::path::Path;

use super::{Inference, add_spread, classes_metadata, figure_of};
use crate::data::metrics::Confusion;
use crate::graph::batch::GraphBatch;
use crate::graph::data::GraphSet;
use crate::graph::network::GraphNetwork;
use crate::graph::spec::GraphSpec;
use crate::rng::Key;
use crate::train::{Example, Experiment, Findings, Metadata, Metrics, Session, Task};
use crate::{Error, Loss, Result, Target};

/// Graph classification or regression on one fold: it is the test, the next one validates, the
/// others train. What is chosen (which epoch's weights are the best) is chosen by the validation.
pub struct GraphTask {
    model: GraphNetwork,
    set: GraphSet,
    train: Vec<usize>,
    /// Validation and test, each as one batch.
    held_out: [Part; 2],
    batch: usize,
    key: Key,
    order: Vec<usize>,
    /// The epoch whose order is drawn.
    drawn: Option<u64>,
    folds: [usize; 2],
    /// The experiment, to train the other folds at the end.
    others: Option<Experiment>,
    inference: Inference,
}

/// Graphs as one batch, and what they should give.
type Part = (GraphBatch<f32>, Target<f32>);

const VALIDATION: usize = 0;
const TEST: usize = 1;

/// The graphs of every fold: each class (or, for numbers, everything) shuffled and dealt out.
fn deal(set: &GraphSet, folds: usize, key: Key) -> Vec<Vec<usize>> {
    let mut order: Vec<usize> = (0..set.graphs.len()).collect();
    key.stream().shuffle(&mut order);
    if !set.classes.is_empty() {
        order.sort_by_key(|&g| set.classes[g]);
    }
    (0..folds)
        .map(|fold| order.iter().skip(fold).step_by(folds).copied().collect())
        .collect()
}

impl GraphTask {
    /// `[fold, folds, batch]`; with `others`, the remaining folds are trained after this one and
    /// their mean is part of the summary. How folds are dealt doesn't depend on the seed of the run.
    pub fn new(
        spec: &GraphSpec,
        set: GraphSet,
        [fold, folds, batch]: [usize; 3],
        seed: u64,
        others: Option<Experiment>,
    ) -> Result<Self> {
        if folds < 3 || folds > set.graphs.len() || fold >= folds {
            return Err(Error::invalid(
                "fold",
                format!("{fold} of {folds}"),
                format!("3 to {} folds, and one of them", set.graphs.len()),
            ));
        }
        let model = GraphNetwork::new(spec)?;
        let width = set.class_names.len().max(1);
        if model.outputs_nodes() || model.output_width() != width {
            return Err(Error::invalid(
                "the network's output",
                format!("{} wide", model.output_width()),
                format!("a row per graph, {width} wide: end with pooling and a dense layer"),
            ));
        }
        for graph in &set.graphs {
            model.check(graph)?;
        }
        let dealt = deal(&set, folds, Key::new(0).purpose("folds"));
        let validation = (fold + 1) % folds;
        let train: Vec<usize> = (0..folds)
            .filter(|&f| f != fold && f != validation)
            .flat_map(|f| dealt[f].clone())
            .collect();
        let held_out = [
            Self::gather(&set, &dealt[validation])?,
            Self::gather(&set, &dealt[fold])?,
        ];
        Ok(GraphTask {
            model,
            train,
            held_out,
            batch: batch.max(1),
            key: Key::new(seed).purpose("graphs"),
            order: Vec::new(),
            drawn: None,
            folds: [fold, folds],
            others,
            set,
            inference: Inference::new(),
        })
    }

    fn gather(set: &GraphSet, chosen: &[usize]) -> Result<Part> {
        let mut part = (GraphBatch::union(&[])?, Target::default());
        Self::gather_into(set, chosen, &mut part.0, &mut part.1)?;
        Ok(part)
    }

    /// In the memory of an earlier batch.
    fn gather_into(
        set: &GraphSet,
        chosen: &[usize],
        batch: &mut GraphBatch<f32>,
        target: &mut Target<f32>,
    ) -> Result<()> {
        target.values.clear();
        target.classes.clear();
        if set.classes.is_empty() {
            let targets = chosen.iter().map(|&g| set.targets[g]);
            target.values.extend(targets);
        } else {
            let classes = chosen.iter().map(|&g| set.classes[g]);
            target.classes.extend(classes);
        }
        batch.fill(chosen.iter().map(|&g| &set.graphs[g]))
    }

    fn figures(&mut self, params: &[f32], part: usize) -> Result<(f64, Option<Confusion>)> {
        let loss = self.loss();
        let (batch, target) = &self.held_out[part];
        let y = self.inference.output(&self.model, params, batch);
        let value = f64::from(loss.evaluate(y, target, None));
        if self.set.classes.is_empty() {
            return Ok((value, None));
        }
        let mut confusion = Confusion::new(self.set.class_names.len());
        confusion.add(y, target)?;
        Ok((value, Some(confusion)))
    }

    /// The other folds' test figure (accuracy, or loss), each trained from the start.
    fn cross_validate(&self, experiment: &Experiment, own: f64) -> Result<Vec<(String, f64)>> {
        let mut all = Vec::new();
        for fold in 0..self.folds[1] {
            if fold == self.folds[0] {
                all.push((fold.to_string(), own));
                continue;
            }
            let spec = self.model.spec();
            let seed = experiment.train.seed;
            let sizes = [fold, self.folds[1], self.batch];
            let mut task = GraphTask::new(spec, self.set.clone(), sizes, seed, None)?;
            let summary = Session::new(experiment.clone()).fit(&mut task)?;
            let key = if self.set.classes.is_empty() {
                "test_loss"
            } else {
                "test_accuracy"
            };
            all.push((fold.to_string(), figure_of(&summary, key)?));
        }
        Ok(all)
    }
}

impl Task for GraphTask {
    type Model = GraphNetwork;

    fn model(&self) -> &GraphNetwork {
        &self.model
    }
    fn model_mut(&mut self) -> &mut GraphNetwork {
        &mut self.model
    }
    fn loss(&self) -> Loss {
        if self.set.classes.is_empty() {
            Loss::Mse
        } else {
            Loss::CrossEntropy
        }
    }
    fn steps_per_epoch(&self) -> u64 {
        self.train.len().div_ceil(self.batch) as u64
    }

    fn batch(&mut self, step: u64, example: &mut Option<Example<GraphNetwork>>) -> Result<()> {
        let (epoch, part) = (step / self.steps_per_epoch(), step % self.steps_per_epoch());
        if self.drawn != Some(epoch) {
            self.order.clone_from(&self.train);
            self.key.step(epoch).stream().shuffle(&mut self.order);
            self.drawn = Some(epoch);
        }
        let first = part as usize * self.batch;
        let end = (first + self.batch).min(self.order.len());
        let chosen = &self.order[first..end];
        match example {
            Some(Example { input, target }) => Self::gather_into(&self.set, chosen, input, target),
            None => {
                let (input, target) = Self::gather(&self.set, chosen)?;
                *example = Some(Example { input, target });
                Ok(())
            }
        }
    }

    fn evaluate(&mut self, params: &[f32], _: u64) -> Result<Metrics> {
        let mut metrics = Metrics::new();
        for (part, name) in [(VALIDATION, "validation"), (TEST, "test")] {
            let (loss, confusion) = self.figures(params, part)?;
            metrics.push((format!("{name}_loss"), loss));
            if let Some(confusion) = confusion {
                metrics.push((format!("{name}_accuracy"), confusion.accuracy()));
                metrics.push((format!("{name}_f1"), confusion.f1()));
            }
        }
        Ok(metrics)
    }

    fn finish(&mut self, params: &[f32], _: &Path) -> Result<Findings> {
        let (loss, confusion) = self.figures(params, TEST)?;
        let mut findings = Findings::default();
        let summary = &mut findings.summary;
        summary.insert("test_loss".into(), loss.into());
        let accuracy = confusion.map(|c| c.accuracy());
        if let Some(accuracy) = accuracy {
            summary.insert("test_accuracy".into(), accuracy.into());
        }
        if let Some(experiment) = self.others.take() {
            let all = self.cross_validate(&experiment, accuracy.unwrap_or(loss))?;
            let how = "each with the weights that were best on its validation fold.";
            add_spread(&mut findings, "fold", &all, how);
        }
        Ok(findings)
    }

    fn metadata(&self) -> Metadata {
        classes_metadata(&self.set.class_names)
    }
}
