//! Classes or numbers of whole graphs, with cross-validation.

use std::ops::Range;
use std::path::Path;

use super::{BY_CLASS, Inference, add_drawing, add_spread, classes_metadata, figure_of};
use crate::budget::Demand;
use crate::data::metrics::{Confusion, Regression, RegressionScores, predicted_class};
use crate::graph::batch::GraphBatch;
use crate::graph::data::GraphSet;
use crate::graph::draw;
use crate::graph::memory::{Extent, demand};
use crate::graph::network::GraphNetwork;
use crate::graph::spec::GraphSpec;
use crate::rng::Key;
use crate::train::{
    Example, Experiment, Findings, MeasuredOn, Metadata, Metrics, Placement, Session, Task,
    TrainSpec,
};
use crate::{Error, Loss, Result, Target};

/// How the graphs fall into training, validation and test.
#[derive(Clone, Copy, Debug)]
pub struct Folds {
    /// How many there are.
    pub count: usize,
    /// The one that tests.
    pub test: usize,
    /// The one that chooses which epoch's weights are the best. Where none does, all but the test
    /// train, and the last weights are kept.
    pub validation: Option<usize>,
}

impl Folds {
    /// One tests, the next one validates, the others train.
    pub fn next_validates(test: usize, count: usize) -> Self {
        Folds {
            count,
            test,
            validation: Some((test + 1) % count.max(1)),
        }
    }

    fn check(&self, graphs: usize) -> Result<()> {
        let Folds { count, test, .. } = *self;
        if count < 3 || count > graphs || test >= count {
            return Err(Error::invalid(
                "fold",
                format!("{test} of {count}"),
                format!("3 to {graphs} folds, and one of them"),
            ));
        }
        match self.validation {
            Some(v) if v == test || v >= count => Err(Error::invalid(
                "validation fold",
                format!("{v}, with {test} as the test"),
                format!("another one below {count}"),
            )),
            _ => Ok(()),
        }
    }
}

/// Graph classification or regression, one fold held out as the test and another, perhaps, as the
/// validation.
pub struct GraphTask {
    model: GraphNetwork,
    set: GraphSet,
    train: Vec<usize>,
    /// Each as one batch.
    validation: Option<Part>,
    test: Part,
    /// The graphs of the test.
    tested: Vec<usize>,
    batch: usize,
    key: Key,
    order: Vec<usize>,
    /// The epoch whose order is drawn.
    drawn: Option<u64>,
    folds: Folds,
    /// The test figure after every epoch that was evaluated.
    curve: Vec<(u64, f64)>,
    /// The experiment, to train the other folds at the end.
    others: Option<Experiment>,
    /// Where their steps are computed.
    placement: Placement,
    inference: Inference,
}

/// Who was taken for whom, or how far off numbers are in their own units.
enum Measured {
    Classes(Confusion),
    Numbers(RegressionScores),
}

impl Measured {
    /// By name; the first is what folds are compared by.
    fn figures(&self) -> Vec<(&'static str, f64)> {
        match self {
            Measured::Classes(c) => vec![("accuracy", c.accuracy()), ("f1", c.f1())],
            Measured::Numbers(s) => vec![("r2", s.r2), ("rmse", s.rmse), ("mae", s.mae)],
        }
    }
}

/// Graphs as one batch, and what they should give.
type Part = (GraphBatch<f32>, Target<f32>);

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
    /// With `others`, the remaining folds are trained after this one and their mean is part of the
    /// summary. How folds are dealt doesn't depend on the seed of the run.
    pub fn new(
        spec: &GraphSpec,
        set: GraphSet,
        folds: Folds,
        batch: usize,
        seed: u64,
        others: Option<Experiment>,
    ) -> Result<Self> {
        folds.check(set.graphs.len())?;
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
        let dealt = deal(&set, folds.count, Key::new(0).purpose("folds"));
        let train: Vec<usize> = (0..folds.count)
            .filter(|&f| f != folds.test && Some(f) != folds.validation)
            .flat_map(|f| dealt[f].clone())
            .collect();
        let validation = match folds.validation {
            Some(fold) => Some(Self::gather(&set, &dealt[fold])?),
            None => None,
        };
        Ok(GraphTask {
            model,
            train,
            validation,
            test: Self::gather(&set, &dealt[folds.test])?,
            tested: dealt[folds.test].clone(),
            batch: batch.max(1),
            key: Key::new(seed).purpose("graphs"),
            order: Vec::new(),
            drawn: None,
            folds,
            curve: Vec::new(),
            others,
            placement: Placement::Cpu,
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
            let [shift, scale] = set.scaling;
            let targets = chosen.iter().map(|&g| (set.targets[g] - shift) / scale);
            target.values.extend(targets);
        } else {
            let classes = chosen.iter().map(|&g| set.classes[g]);
            target.classes.extend(classes);
        }
        batch.fill(chosen.iter().map(|&g| &set.graphs[g]))
    }

    /// The loss and what is measured; of the test where not of the validation.
    fn figures(&mut self, params: &[f32], validation: bool) -> Result<(f64, Measured)> {
        let loss = self.loss();
        let part = self.validation.as_ref().filter(|_| validation);
        let (batch, target) = part.unwrap_or(&self.test);
        let y = self.inference.output(&self.model, params, batch);
        let value = f64::from(loss.compute(y, target, None));
        if self.set.classes.is_empty() {
            let [shift, scale] = self.set.scaling.map(f64::from);
            let mut sums = Regression::in_units(&[shift], &[scale]);
            sums.add(y, target)?;
            return Ok((value, Measured::Numbers(sums.scores())));
        }
        let mut confusion = Confusion::new(self.set.class_names.len());
        confusion.add(y, target)?;
        Ok((value, Measured::Classes(confusion)))
    }

    /// Some graphs of the test with what they were taken for, and all graphs' embedding.
    fn draw(&mut self, params: &[f32], run: &Path, findings: &mut Findings) -> Result<()> {
        const SHOWN: usize = 16;
        let classes = self.set.class_names.len();
        let all: Vec<usize> = (0..self.set.graphs.len()).collect();
        let (batch, target) = Self::gather(&self.set, &all)?;
        let y = self.inference.output(&self.model, params, &batch);
        let predicted: Vec<u32> = y
            .chunks_exact(classes)
            .map(|row| predicted_class(row, 0.0) as u32)
            .collect();
        let names = &self.set.class_names;
        let shown = self.tested.iter().take(SHOWN);
        let (mut graphs, mut said, mut was) = (Vec::new(), Vec::new(), Vec::new());
        for &g in shown.filter(|&&g| self.set.graphs[g].graph().nodes() <= 60) {
            graphs.push(&**self.set.graphs[g].graph());
            said.push(predicted[g]);
            was.push(target.classes[g]);
        }
        if !graphs.is_empty() {
            let svg = draw::gallery(&graphs, &said, &was, names);
            let file = (run, "graphs.svg");
            add_drawing(findings, file, "Graphs of the test", BY_CLASS, svg)?;
        }
        let (rows, width) = self.inference.embedding(&self.model);
        if rows.len() == all.len() * width {
            let places = draw::project(rows, width);
            let svg = draw::drawing(&places, None, &predicted, &target.classes, names);
            let caption = format!(
                "All graphs, by the rows before the last layer along their two principal \
                 directions. {BY_CLASS}"
            );
            let file = (run, "embedding.svg");
            add_drawing(findings, file, "The graphs' embedding", &caption, svg)?;
        }
        Ok(())
    }

    /// Computes the steps of the other folds there.
    pub fn placed(self, placement: Placement) -> Self {
        GraphTask { placement, ..self }
    }

    /// Every fold's test figure (accuracy, or R²) and its curve, the other folds each trained
    /// from the start.
    fn cross_validate(&self, experiment: &Experiment, own: f64) -> Result<Vec<Tested>> {
        let mut all = Vec::new();
        for fold in 0..self.folds.count {
            if fold == self.folds.test {
                all.push((fold.to_string(), own, self.curve.clone()));
                continue;
            }
            let spec = self.model.spec();
            let seed = experiment.train.seed;
            let mut folds = Folds::next_validates(fold, self.folds.count);
            folds.validation = folds.validation.filter(|_| self.validation.is_some());
            let set = self.set.clone();
            let mut task = GraphTask::new(spec, set, folds, self.batch, seed, None)?;
            let mut session = Session::new(experiment.clone()).placed(self.placement.clone());
            let summary = session.fit(&mut task)?;
            let key = match self.set.classes.is_empty() {
                true => "test_r2",
                false => "test_accuracy",
            };
            all.push((fold.to_string(), figure_of(&summary, key)?, task.curve));
        }
        Ok(all)
    }
}

/// A fold, its figure, and its curve.
type Tested = (String, f64, Vec<(u64, f64)>);

/// The epoch at which the mean accuracy of all folds is highest, and that mean: the figure that
/// papers on graph classification give (Xu et al. 2019). It chooses by the test folds, which the
/// folds' own figures don't.
fn best_common_epoch(folds: &[Tested]) -> Option<(u64, f64)> {
    let (_, _, first) = folds.first()?;
    let mean = |epoch: u64| {
        let at = |curve: &[(u64, f64)]| curve.iter().find(|(e, _)| *e == epoch).map(|(_, f)| *f);
        let figures: Option<Vec<f64>> = folds.iter().map(|(_, _, curve)| at(curve)).collect();
        figures.map(|f| f.iter().sum::<f64>() / folds.len() as f64)
    };
    let means = first.iter().filter_map(|&(e, _)| Some((e, mean(e)?)));
    means.max_by(|a, b| a.1.total_cmp(&b.1))
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
    fn demand(&self, train: &TrainSpec) -> Demand<'_> {
        let graphs = self.set.graphs.iter().map(|g| g.graph());
        let each = graphs.map(|g| Extent::whole(g.nodes(), g.edges()));
        // No batch is larger than so many of the largest, nor than all together.
        let [largest, all] = each.fold([Extent::whole(0, 0); 2], |[most, all], one| {
            [most.larger(one), all.with(one)]
        });
        let batch = self.batch.min(self.set.graphs.len()) as u64;
        let sizes = vec![("train.batch".to_string(), batch)];
        demand(&self.model, train.optimizer, sizes, move |values| {
            largest.times(values[0]).smaller(all)
        })
    }

    fn steps_per_epoch(&self) -> u64 {
        self.train.len().div_ceil(self.batch) as u64
    }

    fn batch(&mut self, step: u64, example: &mut Option<Example<GraphNetwork>>) -> Result<()> {
        let all = 0..self.samples(step).unwrap_or(0);
        self.part(step, all, example)
    }

    fn samples(&self, step: u64) -> Option<usize> {
        let first = (step % self.steps_per_epoch()) as usize * self.batch;
        Some(self.batch.min(self.train.len() - first))
    }

    fn shard_of(&self) -> (&'static str, usize) {
        ("graphs", 1)
    }

    fn part(
        &mut self,
        step: u64,
        samples: Range<usize>,
        example: &mut Option<Example<GraphNetwork>>,
    ) -> Result<()> {
        let (epoch, part) = (step / self.steps_per_epoch(), step % self.steps_per_epoch());
        if self.drawn != Some(epoch) {
            self.order.clone_from(&self.train);
            self.key.step(epoch).stream().shuffle(&mut self.order);
            self.drawn = Some(epoch);
        }
        let first = part as usize * self.batch;
        let chosen = &self.order[first + samples.start..first + samples.end];
        match example {
            Some(Example { input, target }) => Self::gather_into(&self.set, chosen, input, target),
            None => {
                let (input, target) = Self::gather(&self.set, chosen)?;
                *example = Some(Example { input, target });
                Ok(())
            }
        }
    }

    fn evaluate(&mut self, params: &[f32], epoch: u64) -> Result<Metrics> {
        let mut metrics = Metrics::new();
        for (validation, name) in [(true, "validation"), (false, "test")] {
            if validation && self.validation.is_none() {
                continue;
            }
            let (loss, measured) = self.figures(params, validation)?;
            if !validation && let Measured::Classes(confusion) = &measured {
                self.curve.push((epoch, confusion.accuracy()));
            }
            metrics.push((format!("{name}_loss"), loss));
            for (figure, value) in measured.figures() {
                metrics.push((format!("{name}_{figure}"), value));
            }
        }
        Ok(metrics)
    }

    fn measured_on(&self, figure: &str) -> Option<MeasuredOn> {
        let folds = |part: &str| Some(MeasuredOn::part(part, None));
        let (part, count) = match figure.split('_').next()? {
            "folds" if figure == "folds_mean_at_best_epoch" => {
                return folds("all test folds, which chose the epoch");
            }
            "folds" if figure.ends_with("mean") || figure.ends_with("deviation") => {
                return folds("all test folds");
            }
            "train" => ("training", self.train.len()),
            "validation" => {
                let (_, target) = self.validation.as_ref()?;
                ("validation", target.classes.len().max(target.values.len()))
            }
            "test" => ("test", self.tested.len()),
            _ => return None,
        };
        Some(MeasuredOn::part(part, Some((count, "graphs"))))
    }

    fn finish(&mut self, params: &[f32], run: &Path) -> Result<Findings> {
        let (loss, measured) = self.figures(params, false)?;
        let mut findings = Findings::default();
        let summary = &mut findings.summary;
        summary.insert("test_loss".into(), loss.into());
        let figures = measured.figures();
        // What one fold's F1 is, the epochs' table says.
        for (figure, value) in figures.iter().filter(|(name, _)| *name != "f1") {
            summary.insert(format!("test_{figure}"), (*value).into());
        }
        if let Some(experiment) = self.others.take() {
            let all = self.cross_validate(&experiment, figures[0].1)?;
            let how = match self.validation {
                Some(_) => "each with the weights that were best on its validation fold.",
                None => "each trained on all the others to the end.",
            };
            let figures: Vec<_> = all.iter().map(|(name, f, _)| (name.clone(), *f)).collect();
            add_spread(&mut findings, "fold", &figures, how);
            if let Some((epoch, mean)) = best_common_epoch(&all) {
                let summary = &mut findings.summary;
                summary.insert("folds_best_epoch".into(), epoch.into());
                summary.insert("folds_mean_at_best_epoch".into(), mean.into());
            }
        }
        if !self.set.classes.is_empty() {
            self.draw(params, run, &mut findings)?;
        }
        Ok(findings)
    }

    fn metadata(&self) -> Metadata {
        classes_metadata(&self.set.class_names)
    }
}
