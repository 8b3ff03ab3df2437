//! What graph networks are trained for: classes of nodes, classes or numbers of graphs, links, and
//! masked characters of text.

mod graphs;
mod links;
mod nodes;
mod predict;
#[cfg(test)]
mod tests;
mod text;

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

pub use graphs::{Folds, GraphTask};
pub use links::LinkTask;
pub use nodes::NodeTask;
pub use predict::predict;
pub use text::TextTask;

use super::batch::GraphBatch;
use super::data::{
    EdgeListFiles, GraphFolder, GraphSet, NodeData, cache_folder, karate_club, node_names,
    read_content_cites, read_edge_list, read_folder, read_planetoid, read_tudataset,
    read_unlabelled,
};
use super::network::{GraphNetwork, GraphTape};
use super::spec::GraphSpec;
use crate::data::write_whole;
use crate::plan::Place;
use crate::train::{Content, Experiment, Figure, Findings, Metadata, Session, Summary};
use crate::{Error, Model, Pass, Result};

/// What is predicted of a graph with node classes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Predict {
    /// The classes of the nodes.
    #[default]
    Nodes,
    /// Which nodes are linked; the network ends with `pair_dot`.
    Links,
}

/// The `[data]` table of a graph experiment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum GraphDataSpec {
    /// Zachary's karate club, built in.
    Karate {
        /// What is predicted.
        #[serde(default)]
        predict: Predict,
        /// Batches of nodes with so many of their neighbours, so many of the neighbours' and so on; the
        /// whole graph at once where there are none.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        neighbours: Vec<usize>,
    },
    /// `FOLDER/NAME.content` and `FOLDER/NAME.cites`.
    ContentCites {
        /// The name of both files.
        name: String,
        /// Where they are; `data/fetch-graphs`' cache, in a folder of the name, where not written.
        #[serde(default)]
        folder: Option<PathBuf>,
        /// What is predicted.
        #[serde(default)]
        predict: Predict,
        /// Seeds to train from, that of the run first; their mean is in the summary.
        #[serde(default = "one")]
        seeds: u64,
        /// Batches of nodes with so many of their neighbours, so many of the neighbours' and so on; the
        /// whole graph at once where there are none.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        neighbours: Vec<usize>,
    },
    /// A folder as `data/fetch-graphs` writes it for Citeseer and Pubmed.
    Planetoid {
        /// The folder's name in the cache.
        name: String,
        /// Where it is, if not there.
        #[serde(default)]
        folder: Option<PathBuf>,
        /// What is predicted.
        #[serde(default)]
        predict: Predict,
        /// Seeds to train from, that of the run first; their mean is in the summary.
        #[serde(default = "one")]
        seeds: u64,
        /// Batches of nodes with so many of their neighbours, so many of the neighbours' and so on; the
        /// whole graph at once where there are none.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        neighbours: Vec<usize>,
    },
    /// Edges of one's own, with features and labels.
    EdgeList(EdgeListFiles),
    /// Many graphs in TUDataset's text.
    Tudataset {
        /// The data set's name, with which its files begin.
        name: String,
        /// Where it is; in the cache, in a folder of the name, where not written.
        #[serde(default)]
        folder: Option<PathBuf>,
        /// Edge labels as edge features.
        #[serde(default)]
        edge_features: bool,
        /// Parts for cross-validation: one of them is the test, the next one validates.
        #[serde(default = "ten")]
        folds: usize,
        /// Which; all one after the other, with the mean in the summary, where not written.
        #[serde(default)]
        fold: Option<usize>,
        /// The fold that validates instead of the next one; only with `fold`.
        #[serde(default)]
        validation: Option<usize>,
        /// Whether a fold validates; if not, it trains too, and the last weights are kept.
        #[serde(default = "yes")]
        validate: bool,
    },
    /// A folder of graphs of one's own, a file each.
    Folder(GraphFolder),
    /// Sentences from a small grammar, characters of which are masked and restored.
    Text {
        /// Characters of a sample.
        #[serde(default = "forty")]
        characters: usize,
        /// The share that is masked.
        #[serde(default = "fifteen_percent")]
        masked: f64,
        /// Skip edges over this many characters.
        #[serde(default)]
        skips: Vec<usize>,
        /// Samples of an epoch, and of the validation.
        #[serde(default = "samples")]
        samples: usize,
    },
}

impl GraphDataSpec {
    /// What is predicted of a graph; the other kinds say it themselves.
    fn predicts(&self) -> Option<Predict> {
        match self {
            GraphDataSpec::Karate { predict, .. }
            | GraphDataSpec::ContentCites { predict, .. }
            | GraphDataSpec::Planetoid { predict, .. } => Some(*predict),
            GraphDataSpec::EdgeList(files) => Some(files.predict),
            GraphDataSpec::Tudataset { .. }
            | GraphDataSpec::Folder(_)
            | GraphDataSpec::Text { .. } => None,
        }
    }

    /// How many neighbours of a batch's nodes are sampled, round by round; none where every step sees the
    /// whole graph.
    fn neighbours(&self) -> &[usize] {
        match self {
            GraphDataSpec::Karate { neighbours, .. }
            | GraphDataSpec::ContentCites { neighbours, .. }
            | GraphDataSpec::Planetoid { neighbours, .. } => neighbours,
            GraphDataSpec::EdgeList(files) => &files.neighbours,
            GraphDataSpec::Tudataset { .. }
            | GraphDataSpec::Folder(_)
            | GraphDataSpec::Text { .. } => &[],
        }
    }
}

fn one() -> u64 {
    1
}
fn yes() -> bool {
    true
}
fn ten() -> usize {
    10
}
fn forty() -> usize {
    40
}
fn fifteen_percent() -> f64 {
    0.15
}
fn samples() -> usize {
    512
}

/// A data set's folder, with advice where the cache doesn't have it.
fn folder(experiment: &Experiment, name: &str, given: Option<&PathBuf>) -> Result<PathBuf> {
    if let Some(path) = given {
        return Ok(experiment.resolve(path));
    }
    let path = cache_folder().join(name);
    if path.is_dir() {
        return Ok(path);
    }
    Err(Error::file(
        path,
        "folder",
        "is not there: data/fetch-graphs puts it there, or set [data] folder",
    ))
}

/// What an experiment's `[data]` table names, read.
enum Loaded {
    Nodes(NodeData, Predict, u64),
    Graphs(GraphSet, Folds, bool),
    Text,
}

fn load(experiment: &Experiment, data: &GraphDataSpec) -> Result<Loaded> {
    match data {
        GraphDataSpec::Karate { predict, .. } => Ok(Loaded::Nodes(karate_club()?, *predict, 1)),
        GraphDataSpec::ContentCites {
            name,
            folder: given,
            predict,
            seeds,
            ..
        } => {
            let folder = folder(experiment, name, given.as_ref())?;
            let file = |end: &str| folder.join(format!("{name}.{end}"));
            let read = read_content_cites(&file("content"), &file("cites"))?;
            Ok(Loaded::Nodes(read, *predict, *seeds))
        }
        GraphDataSpec::Planetoid {
            name,
            folder: given,
            predict,
            seeds,
            ..
        } => {
            let folder = folder(experiment, name, given.as_ref())?;
            Ok(Loaded::Nodes(read_planetoid(&folder)?, *predict, *seeds))
        }
        GraphDataSpec::EdgeList(files) => {
            let mut files = files.clone();
            files.edges = experiment.resolve(&files.edges);
            for path in [&mut files.features, &mut files.labels] {
                *path = path.as_ref().map(|path| experiment.resolve(path));
            }
            let read = match files.predict {
                Predict::Nodes => read_edge_list(&files, experiment.train.seed)?,
                Predict::Links => NodeData {
                    batch: read_unlabelled(&files)?,
                    classes: Vec::new(),
                    class_names: Vec::new(),
                    split: Vec::new(),
                    node_names: None,
                    notes: Vec::new(),
                },
            };
            Ok(Loaded::Nodes(read, files.predict, 1))
        }
        GraphDataSpec::Tudataset {
            name,
            folder: given,
            edge_features,
            folds,
            fold,
            validation,
            validate,
        } => {
            if validation.is_some() && (fold.is_none() || !validate) {
                return Err(Error::invalid(
                    "[data] validation",
                    "a fold",
                    "fold as well, and no validate = false",
                ));
            }
            let folder = folder(experiment, name, given.as_ref())?;
            let set = read_tudataset(&folder, name, *edge_features)?;
            let next = Folds::next_validates(fold.unwrap_or(0), *folds);
            let folds = Folds {
                validation: validation.or(next.validation).filter(|_| *validate),
                ..next
            };
            Ok(Loaded::Graphs(set, folds, fold.is_none()))
        }
        GraphDataSpec::Folder(spec) => {
            let spec = resolved(experiment, spec);
            let next = Folds::next_validates(spec.fold.unwrap_or(0), spec.folds);
            let folds = Folds {
                validation: next.validation.filter(|_| spec.validate),
                ..next
            };
            let set = read_folder(&spec, true)?;
            Ok(Loaded::Graphs(set, folds, spec.fold.is_none()))
        }
        GraphDataSpec::Text { .. } => Ok(Loaded::Text),
    }
}

/// A folder's paths as the experiment means them.
pub(super) fn resolved(experiment: &Experiment, spec: &GraphFolder) -> GraphFolder {
    GraphFolder {
        folder: experiment.resolve(&spec.folder),
        labels: spec.labels.as_ref().map(|path| experiment.resolve(path)),
        ..spec.clone()
    }
}

/// The names of an edge list's nodes, where they are not their numbers, and what is to be said.
fn link_names(
    experiment: &Experiment,
    data: &GraphDataSpec,
) -> Result<(Option<Vec<String>>, Vec<String>)> {
    match data {
        GraphDataSpec::EdgeList(files) => {
            let mut files = files.clone();
            files.edges = experiment.resolve(&files.edges);
            files.features = files.features.map(|path| experiment.resolve(path));
            node_names(&files)
        }
        _ => Ok((None, Vec::new())),
    }
}

fn text_task(experiment: &Experiment, spec: &GraphSpec, data: &GraphDataSpec) -> Result<TextTask> {
    let GraphDataSpec::Text {
        characters,
        masked,
        skips,
        samples,
    } = data
    else {
        return Err(Error::invalid("[data] kind", "another", "text"));
    };
    let sizes = [*characters, *samples, batch_size(experiment)];
    TextTask::new(spec, sizes, *masked, skips, &experiment.train)
}

fn batch_size(experiment: &Experiment) -> usize {
    experiment.train.batch.unwrap_or(32)
}

/// Builds the task of an experiment and trains it.
pub fn train(session: &mut Session<'_>) -> Result<Summary> {
    let experiment = session.experiment().clone();
    let spec: GraphSpec = experiment.model_as()?;
    let seed = experiment.train.seed;
    let data = experiment.data_as::<GraphDataSpec>()?;
    match load(&experiment, &data)? {
        Loaded::Nodes(_, Predict::Links, _) if !data.neighbours().is_empty() => {
            Err(Error::invalid(
                "[data] neighbours",
                format!("{:?} with predict = \"links\"", data.neighbours()),
                "predict = \"nodes\": links are learnt from the whole graph",
            ))
        }
        Loaded::Nodes(read, Predict::Links, _) => {
            for note in link_names(&experiment, &data)?.1 {
                session.note(&note);
            }
            let data = read;
            session.fit(&mut LinkTask::new(&spec, data.batch, seed)?)
        }
        Loaded::Nodes(read, Predict::Nodes, seeds) => {
            let mut task = NodeTask::new(&spec, read)?;
            if !data.neighbours().is_empty() {
                task = task.sampling(data.neighbours(), batch_size(&experiment), seed)?;
            }
            if seeds > 1 {
                let placement = session.placement().clone();
                task = task.with_other_seeds(experiment, seeds - 1, placement);
            }
            session.fit(&mut task)
        }
        Loaded::Graphs(set, folds, all) => {
            let batch = batch_size(&experiment);
            let others = all.then(|| experiment.clone());
            let task = GraphTask::new(&spec, set, folds, batch, seed, others)?;
            let placement = session.placement().clone();
            session.fit(&mut task.placed(placement))
        }
        Loaded::Text => session.fit(&mut text_task(&experiment, &spec, &data)?),
    }
}

/// The name of the classes' names beside the weights.
const CLASSES: &str = "classes";

fn classes_metadata(names: &[String]) -> Metadata {
    let names: Vec<_> = names.iter().map(|n| n.as_str().into()).collect();
    vec![(CLASSES.into(), serde_json::Value::Array(names).to_string())]
}

/// The figure of several runs, one for every seed or fold: mean and deviation go to the summary,
/// a table to the report.
fn add_spread(findings: &mut Findings, what: &str, figures: &[(String, f64)], how: &str) {
    let count = figures.len() as f64;
    let mean = figures.iter().map(|(_, f)| f).sum::<f64>() / count;
    let squares = figures.iter().map(|(_, f)| (f - mean) * (f - mean));
    let deviation = (squares.sum::<f64>() / count).sqrt();
    let summary = &mut findings.summary;
    summary.insert(format!("{what}s_mean"), mean.into());
    summary.insert(format!("{what}s_deviation"), deviation.into());
    let rows = figures.iter();
    findings.figures.push(Figure {
        title: format!("{} {what}s", figures.len()),
        caption: format!("Mean {mean:.4}, standard deviation {deviation:.4}; {how}"),
        content: Content::Table {
            header: vec![what.into(), "test".into()],
            rows: rows
                .map(|(name, figure)| vec![name.clone(), format!("{figure:.4}")])
                .collect(),
        },
    });
}

/// A number of a summary.
fn figure_of(summary: &Summary, key: &str) -> Result<f64> {
    let figure = summary.to_json()[key].as_f64();
    figure.ok_or_else(|| Error::invalid(key, "nothing", "a number"))
}

/// The network's output and the rows before its last layer with weights: the embedding.
struct Inference {
    tape: GraphTape<f32>,
}

impl Inference {
    fn new() -> Self {
        Inference {
            tape: GraphTape::default(),
        }
    }

    fn output(
        &mut self,
        network: &GraphNetwork,
        params: &[f32],
        batch: &GraphBatch<f32>,
    ) -> &[f32] {
        network.compute_forward(params, batch, &Pass::inference(), &mut self.tape);
        network.output(&self.tape)
    }

    /// Rows and width of the embedding, of the last forward.
    fn embedding(&self, network: &GraphNetwork) -> (&[f32], usize) {
        let has_tensors = |place: &Place| place.tensors.iter().any(|t| !t.is_empty());
        let last = network.places.iter().rposition(has_tensors).unwrap_or(0);
        let layer = last.saturating_sub(1);
        (
            network.layer_output(&self.tape, layer),
            network.width_of(layer),
        )
    }
}

/// Colours of a drawing, for its caption.
const BY_CLASS: &str = "Filled by the predicted class; a ring shows the true class of a mistake.";

/// A drawing as a file of the run and as a figure of the report.
fn add_drawing(
    findings: &mut Findings,
    (run, file): (&Path, &str),
    title: &str,
    caption: &str,
    svg: String,
) -> Result<()> {
    let path = run.join(file);
    write_whole(&path, |file| file.write_all(svg.as_bytes()))?;
    findings.figures.push(Figure {
        title: title.into(),
        caption: caption.into(),
        content: Content::Svg(svg),
    });
    Ok(())
}
