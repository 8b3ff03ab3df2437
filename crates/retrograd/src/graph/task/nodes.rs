//! Classes of the nodes of one graph.

use std::ops::Range;
use std::path::Path;

use super::{BY_CLASS, Inference, add_drawing, add_spread, classes_metadata, figure_of};
use crate::budget::Demand;
use crate::data::metrics::{Confusion, predicted_class};
use crate::graph::data::{NodeData, Split};
use crate::graph::draw;
use crate::graph::memory::{Extent, demand};
use crate::graph::network::GraphNetwork;
use crate::graph::sample::sample_neighbours;
use crate::graph::spec::GraphSpec;
use crate::rng::Key;
use crate::train::{
    Content, Example, Experiment, Figure, Findings, MeasuredOn, Metadata, Metrics, Placement,
    Session, Specimen, Task, TrainSpec,
};
use crate::{Error, Loss, Result, Target};

/// Node classification: every step sees the whole graph, the loss its training nodes; or a batch of
/// training nodes with a sample of what is around them.
pub struct NodeTask {
    model: GraphNetwork,
    data: NodeData,
    /// The experiment and how many more seeds to train from at the end.
    others: Option<(Experiment, u64, Placement)>,
    sampled: Option<Sampled>,
    inference: Inference,
    /// Where nodes are drawn, found when they first are.
    places: Option<Vec<[f64; 2]>>,
}

/// Batches of training nodes, each with a part of the graph around it.
#[derive(Clone)]
struct Sampled {
    fanouts: Vec<usize>,
    batch: usize,
    key: Key,
    /// The training nodes, and their order in the epoch that was drawn last.
    train: Vec<u32>,
    order: Vec<u32>,
    drawn: Option<u64>,
}

impl Sampled {
    fn steps_per_epoch(&self) -> u64 {
        self.train.len().div_ceil(self.batch) as u64
    }

    fn samples(&self, step: u64) -> usize {
        let first = (step % self.steps_per_epoch()) as usize * self.batch;
        self.batch.min(self.train.len() - first)
    }

    /// The nodes of some places of a step's batch.
    fn seeds(&mut self, step: u64, samples: Range<usize>) -> &[u32] {
        let (epoch, part) = (step / self.steps_per_epoch(), step % self.steps_per_epoch());
        if self.drawn != Some(epoch) {
            self.order.clone_from(&self.train);
            let key = self.key.purpose("order").step(epoch);
            key.stream().shuffle(&mut self.order);
            self.drawn = Some(epoch);
        }
        let first = part as usize * self.batch;
        &self.order[first + samples.start..first + samples.end]
    }
}

/// Graphs up to this many nodes are verified whole.
const SPECIMEN: usize = 400;

/// Graphs up to this many nodes are drawn whole.
const DRAWN: usize = 400;

impl NodeTask {
    /// Checks that network and data fit.
    pub fn new(spec: &GraphSpec, data: NodeData) -> Result<Self> {
        let model = GraphNetwork::new(spec)?;
        model.check(&data.batch)?;
        if !model.outputs_nodes() || model.output_width() != data.class_names.len() {
            return Err(Error::invalid(
                "the network's output",
                format!("{} wide", model.output_width()),
                format!(
                    "a row per node, {} wide: the classes",
                    data.class_names.len()
                ),
            ));
        }
        if !data.split.contains(&Split::Train) {
            return Err(Error::invalid(
                "the split",
                "no node to train on",
                "at least one",
            ));
        }
        Ok(NodeTask {
            model,
            data,
            others: None,
            sampled: None,
            inference: Inference::new(),
            places: None,
        })
    }

    /// Every step sees so many training nodes and a sample of what is around them: at most `fanouts[0]`
    /// of a node's in-edges, of the nodes found at most `fanouts[1]`, and so on. Evaluations see the
    /// whole graph.
    pub fn sampling(mut self, fanouts: &[usize], batch: usize, seed: u64) -> Result<Self> {
        if fanouts.contains(&0) {
            return Err(Error::invalid(
                "[data] neighbours",
                format!("{fanouts:?}"),
                "numbers from 1 on, one for every layer that looks at neighbours",
            ));
        }
        let split = self.data.split.iter().zip(0..);
        let train = split.filter(|(s, _)| **s == Split::Train).map(|(_, i)| i);
        let train: Vec<u32> = train.collect();
        self.sampled = Some(Sampled {
            fanouts: fanouts.to_vec(),
            batch: batch.clamp(1, train.len()),
            key: Key::new(seed).purpose("neighbours"),
            train,
            order: Vec::new(),
            drawn: None,
        });
        Ok(self)
    }

    /// The class of every node.
    fn predicted(&mut self, params: &[f32]) -> Vec<u32> {
        let y = self.inference.output(&self.model, params, &self.data.batch);
        let rows = y.chunks_exact(self.data.class_names.len());
        rows.map(|row| predicted_class(row, 0.0) as u32).collect()
    }

    /// After training, the experiment is trained from this many more seeds, and the mean of all test
    /// accuracies becomes part of the summary; their steps are computed where the run is placed.
    pub fn with_other_seeds(
        self,
        experiment: Experiment,
        seeds: u64,
        placement: Placement,
    ) -> Self {
        NodeTask {
            others: Some((experiment, seeds, placement)),
            ..self
        }
    }

    fn has(&self, split: Split) -> bool {
        self.data.split.contains(&split)
    }

    fn target(&self, split: Split) -> Target<f32> {
        let weights = self
            .data
            .split
            .iter()
            .map(|&s| f32::from(u8::from(s == split)));
        Target::classes(self.data.classes.clone()).weighted(weights.collect())
    }
}

impl Task for NodeTask {
    type Model = GraphNetwork;

    fn model(&self) -> &GraphNetwork {
        &self.model
    }
    fn model_mut(&mut self) -> &mut GraphNetwork {
        &mut self.model
    }
    fn notes(&self) -> &[String] {
        &self.data.notes
    }
    fn loss(&self) -> Loss {
        Loss::CrossEntropy
    }
    fn demand(&self, train: &TrainSpec) -> Demand<'_> {
        let graph = self.data.batch.graph();
        let whole = Extent::whole(graph.nodes(), graph.edges());
        demand(&self.model, train.optimizer, Vec::new(), move |_| whole)
    }

    fn steps_per_epoch(&self) -> u64 {
        self.sampled.as_ref().map_or(1, Sampled::steps_per_epoch)
    }

    fn samples(&self, step: u64) -> Option<usize> {
        Some(self.sampled.as_ref()?.samples(step))
    }

    fn shard_of(&self) -> (&'static str, usize) {
        ("neighbourhoods", 1)
    }

    /// What is drawn of a node's neighbours depends on the step and the node alone.
    fn part(
        &mut self,
        step: u64,
        samples: Range<usize>,
        example: &mut Option<Example<GraphNetwork>>,
    ) -> Result<()> {
        let Some(sampled) = &mut self.sampled else {
            return self.batch(step, example);
        };
        let key = sampled.key.step(step);
        let fanouts = sampled.fanouts.clone();
        let seeds = sampled.seeds(step, samples);
        let count = seeds.len();
        let batch = &self.data.batch;
        let sample = sample_neighbours(batch.graph(), seeds, &fanouts, key)?;
        let classes = sample.nodes.iter().map(|&n| self.data.classes[n as usize]);
        let weights = (0..sample.nodes.len()).map(|i| f32::from(u8::from(i < count)));
        *example = Some(Example {
            target: Target::classes(classes.collect()).weighted(weights.collect()),
            input: batch.part(&sample.nodes, sample.built)?,
        });
        Ok(())
    }

    fn batch(&mut self, step: u64, example: &mut Option<Example<GraphNetwork>>) -> Result<()> {
        if let Some(samples) = self.samples(step) {
            return self.part(step, 0..samples, example);
        }
        if example.is_none() {
            *example = Some(Example {
                input: self.data.batch.clone(),
                target: self.target(Split::Train),
            });
        }
        Ok(())
    }

    /// The neighbourhood of a few training nodes, where the whole graph would take long.
    fn specimen(&mut self) -> Result<Specimen<GraphNetwork>> {
        let batch = &self.data.batch;
        let (input, target) = if batch.graph().nodes() <= SPECIMEN {
            (batch.clone(), self.target(Split::Train))
        } else {
            let split = self.data.split.iter().zip(0..);
            let train = split.filter(|(s, _)| **s == Split::Train).map(|(_, i)| i);
            let seeds: Vec<u32> = train.take(16).collect();
            let key = Key::new(0).purpose("specimen");
            let sample = sample_neighbours(batch.graph(), &seeds, &[6, 3], key)?;
            let classes = sample.nodes.iter().map(|&n| self.data.classes[n as usize]);
            let target = Target::classes(classes.collect());
            (batch.part(&sample.nodes, sample.built)?, target)
        };
        Ok(Specimen {
            example: Example { input, target },
            model: None,
        })
    }

    fn evaluate(&mut self, params: &[f32], _: u64) -> Result<Metrics> {
        let splits = [
            (Split::Validation, "validation"),
            (Split::Train, "train"),
            (Split::Test, "test"),
        ];
        let targets = splits.map(|(split, name)| (self.has(split), name, self.target(split)));
        let y = self.inference.output(&self.model, params, &self.data.batch);
        let mut metrics = Metrics::new();
        for (there, name, target) in &targets {
            if !there {
                continue;
            }
            if *name == "validation" {
                let loss = Loss::CrossEntropy.compute(y, target, None);
                metrics.push(("validation_loss".into(), f64::from(loss)));
            }
            let mut confusion = Confusion::new(self.data.class_names.len());
            confusion.add(y, target)?;
            metrics.push((format!("{name}_accuracy"), confusion.accuracy()));
            if *name == "test" {
                metrics.push(("test_f1".into(), confusion.f1()));
            }
        }
        Ok(metrics)
    }

    fn measured_on(&self, figure: &str) -> Option<MeasuredOn> {
        let (part, split) = match figure.split('_').next()? {
            "train" => ("training", Split::Train),
            "validation" => ("validation", Split::Validation),
            "test" | "seeds" => ("test", Split::Test),
            "nodes" if figure == "nodes_right" => {
                let all = (self.data.split.len(), "nodes");
                return Some(MeasuredOn::part("labelled", Some(all)));
            }
            _ => return None,
        };
        let count = self.data.split.iter().filter(|&&s| s == split).count();
        Some(MeasuredOn::part(part, Some((count, "nodes"))))
    }

    fn best_by(&self) -> (&'static str, bool) {
        ("validation_accuracy", false)
    }

    fn view(&mut self, params: &[f32]) -> Result<Vec<Figure>> {
        if self.data.split.len() > DRAWN {
            return Ok(Vec::new());
        }
        let predicted = self.predicted(params);
        let (truth, names) = (&self.data.classes, &self.data.class_names);
        let graph = self.data.batch.graph();
        let places = self
            .places
            .get_or_insert_with(|| draw::spring_layout(graph));
        Ok(vec![Figure {
            title: "The graph".into(),
            caption: BY_CLASS.into(),
            content: Content::Svg(draw::drawing(places, Some(graph), &predicted, truth, names)),
        }])
    }

    fn finish(&mut self, params: &[f32], run: &Path) -> Result<Findings> {
        let predicted = self.predicted(params);
        let right = |split: Option<Split>| {
            let chosen =
                (0..predicted.len()).filter(|&i| split.is_none_or(|s| self.data.split[i] == s));
            chosen
                .filter(|&i| predicted[i] == self.data.classes[i])
                .count()
        };
        let mut findings = Findings::default();
        let summary = &mut findings.summary;
        let labelled = self
            .data
            .split
            .iter()
            .filter(|&&s| s != Split::None)
            .count();
        summary.insert("nodes".into(), predicted.len().into());
        if labelled == predicted.len() {
            summary.insert("nodes_right".into(), right(None).into());
        }
        if self.has(Split::Test) {
            let tested = self
                .data
                .split
                .iter()
                .filter(|&&s| s == Split::Test)
                .count();
            let accuracy = right(Some(Split::Test)) as f64 / tested as f64;
            summary.insert("test_accuracy".into(), accuracy.into());
            if let Some((experiment, seeds, placement)) = self.others.take() {
                let seed = experiment.train.seed;
                let mut all = vec![(seed.to_string(), accuracy)];
                for more in 1..=seeds {
                    let mut experiment = experiment.clone();
                    experiment.train.seed = seed + more;
                    let mut task = NodeTask::new(self.model.spec(), self.data.clone())?;
                    if let Some(sampled) = &self.sampled {
                        let (fanouts, seed) = (&sampled.fanouts, seed + more);
                        task = task.sampling(fanouts, sampled.batch, seed)?;
                    }
                    let mut session = Session::new(experiment).placed(placement.clone());
                    let summary = session.fit(&mut task)?;
                    all.push((
                        (seed + more).to_string(),
                        figure_of(&summary, "test_accuracy")?,
                    ));
                }
                let how = "test accuracy of the weights that were best on the validation nodes.";
                add_spread(&mut findings, "seed", &all, how);
            }
        }
        let (truth, names) = (&self.data.classes, &self.data.class_names);
        let graph = self.data.batch.graph();
        if predicted.len() <= DRAWN {
            let places = draw::spring_layout(graph);
            let svg = draw::drawing(&places, Some(graph), &predicted, truth, names);
            let file = (run, "graph.svg");
            add_drawing(&mut findings, file, "The graph", BY_CLASS, svg)?;
        }
        let (rows, width) = self.inference.embedding(&self.model);
        let places = draw::project(rows, width);
        let svg = draw::drawing(&places, None, &predicted, truth, names);
        let caption = format!(
            "The rows before the last layer, along their two principal directions. {BY_CLASS}"
        );
        let file = (run, "embedding.svg");
        add_drawing(&mut findings, file, "The nodes' embedding", &caption, svg)?;
        Ok(findings)
    }

    fn metadata(&self) -> Metadata {
        classes_metadata(&self.data.class_names)
    }
}
