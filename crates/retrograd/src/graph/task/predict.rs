//! What a trained run says about its own data, or about other data of the same form.

use crate::math;
use std::path::{Path, PathBuf};

use super::text::{ALPHABET, letter};
use super::{
    CLASSES, GraphDataSpec, Inference, LinkTask, Loaded, Predict, link_names, load, text_task,
};
use crate::data::metrics::{Regression, predicted_class};
use crate::graph::batch::GraphBatch;
use crate::graph::data::{
    EdgeListFiles, GraphFolder, GraphSet, NodeData, Split, node_names, read_folder, read_pairs,
    read_unlabelled,
};
use crate::graph::network::GraphNetwork;
use crate::graph::sample::roc_auc;
use crate::graph::spec::GraphSpec;
use crate::graph::transform::encode_text;
use crate::train::{Experiment, Predictions, experiment_of, load_weights, model_file};
use crate::{Error, Result, Target};

type Columns = Vec<(String, Vec<String>)>;

/// Applies a run's best weights. Without inputs to the run's own data; otherwise, by the kind of
/// data that it was trained on:
///
/// | trained on | inputs |
/// |---|---|
/// | `content_cites`, `planetoid`, `tudataset` | a folder of the same form |
/// | `edge_list` | the edges and the features, perhaps the labels; or a graph as GraphML or GML |
/// | `folder` | a folder of graphs, or one of them |
/// | links (`predict = "links"`) | pairs of nodes: two columns |
/// | `text` | a text file; `_` is restored |
pub fn predict(run: &Path, inputs: &[PathBuf]) -> Result<Predictions> {
    let experiment = experiment_of(run)?;
    let spec: GraphSpec = experiment.model_as()?;
    let mut network = GraphNetwork::new(&spec)?;
    let (params, metadata) = load_weights(&model_file(run), &mut network)?;
    let trained = Trained {
        network,
        params,
        classes: classes_of(&metadata, run)?,
        file: model_file(run),
    };
    let data = experiment.data_as::<GraphDataSpec>()?;
    let few = |most: usize, what: &str| {
        if inputs.len() <= most {
            return Ok(());
        }
        Err(Error::invalid(
            "run",
            format!("{} inputs", inputs.len()),
            what,
        ))
    };
    if data.predicts() == Some(Predict::Links) {
        few(1, "none, or a file of pairs of nodes")?;
        return trained.links(&experiment, &data, inputs.first());
    }
    if let GraphDataSpec::Text { skips, .. } = &data {
        few(1, "none, or a text file")?;
        return trained.text(&experiment, &data, skips, inputs.first());
    }
    let mut data = data;
    match &mut data {
        GraphDataSpec::Karate { .. } => few(0, "none: the club is built in")?,
        GraphDataSpec::EdgeList(files) => {
            if let Some((batch, names)) = take_lists(files, inputs)? {
                return trained.nodes(&batch, None, names);
            }
        }
        GraphDataSpec::ContentCites { folder, .. }
        | GraphDataSpec::Planetoid { folder, .. }
        | GraphDataSpec::Tudataset { folder, .. } => {
            few(1, "none, or a folder of the same form")?;
            if let Some(given) = inputs.first() {
                *folder = Some(absolute(given)?);
            }
        }
        GraphDataSpec::Folder(spec) => {
            few(1, "none, or a folder of graphs")?;
            if let Some(given) = inputs.first() {
                let spec = GraphFolder {
                    folder: absolute(given)?,
                    // A table of the run's own graphs says nothing about others.
                    labels: None,
                    ..spec.clone()
                };
                return trained.graphs(&read_folder(&spec, false)?);
            }
        }
        GraphDataSpec::Text { .. } => {}
    }
    match load(&experiment, &data)? {
        Loaded::Nodes(data, ..) => {
            let names = data.node_names.clone();
            trained.nodes(&data.batch, Some(&data), names)
        }
        Loaded::Graphs(set, ..) => trained.graphs(&set),
        Loaded::Text => Err(Error::invalid("[data] kind", "text", "another")),
    }
}

/// A path of the command line: relative to where that is, not to the experiment.
fn absolute(path: &PathBuf) -> Result<PathBuf> {
    std::path::absolute(path).map_err(Error::io(path, "find"))
}

/// A graph of which nothing says what its nodes are, with their names.
type Unlabelled = (GraphBatch<f32>, Option<Vec<String>>);

/// Takes the files of another graph for the run's own, or gives that graph, where it has no labels.
fn take_lists(files: &mut EdgeListFiles, inputs: &[PathBuf]) -> Result<Option<Unlabelled>> {
    let refused = |needed: &str| Error::invalid("run", format!("{} inputs", inputs.len()), needed);
    match inputs {
        [] => Ok(None),
        [graph] if files.is_marked() && files.chosen().width() > 0 => {
            files.edges = absolute(graph)?;
            let (names, _) = node_names(files)?;
            Ok(Some((read_unlabelled(files)?, names)))
        }
        [_, ..] if files.features.is_none() => Err(refused(
            "none: without features the nodes of another graph are unknown",
        )),
        [edges, features, rest @ ..] if rest.len() <= 1 => {
            files.edges = absolute(edges)?;
            files.features = Some(absolute(features)?);
            if let Some(labels) = rest.first() {
                files.labels = Some(absolute(labels)?);
                return Ok(None);
            }
            files.predict = Predict::Links;
            let (names, _) = node_names(files)?;
            files.predict = Predict::Nodes;
            Ok(Some((read_unlabelled(files)?, names)))
        }
        _ => Err(refused("none, or edges and features and perhaps labels")),
    }
}

/// The classes' names that the task left beside the weights; none for numbers.
fn classes_of(metadata: &[(String, String)], run: &Path) -> Result<Vec<String>> {
    let Some((_, text)) = metadata.iter().find(|(key, _)| key == CLASSES) else {
        return Ok(Vec::new());
    };
    serde_json::from_str(text).map_err(|e| Error::file(model_file(run), "metadata", e))
}

struct Trained {
    network: GraphNetwork,
    params: Vec<f32>,
    classes: Vec<String>,
    file: PathBuf,
}

impl Trained {
    fn output(&self, batch: &GraphBatch<f32>) -> Result<Vec<f32>> {
        self.network.check(batch)?;
        let mut inference = Inference::new();
        Ok(inference
            .output(&self.network, &self.params, batch)
            .to_vec())
    }

    /// Without a name for every output there is no saying what a row means.
    fn check_classes(&self) -> Result<()> {
        let (names, outputs) = (self.classes.len(), self.network.output_width());
        if names == outputs {
            return Ok(());
        }
        let problem =
            format!("{names} names of classes for {outputs} outputs; train the run again");
        Err(Error::file(&self.file, "metadata", problem))
    }

    /// The predicted class and the chances of all.
    fn class_columns(&self, outputs: &[f32], columns: &mut Columns) {
        let rows: Vec<&[f32]> = outputs.chunks_exact(self.classes.len().max(1)).collect();
        let predicted = rows.iter().map(|row| self.class(row).to_string()).collect();
        columns.push(("predicted".into(), predicted));
        let chances: Vec<Vec<f64>> = rows.iter().map(|row| softmax(row)).collect();
        for (c, name) in self.classes.iter().enumerate() {
            let cells = chances.iter().map(|p| format!("{:.6}", p[c])).collect();
            columns.push((format!("p({name})"), cells));
        }
    }

    fn class(&self, row: &[f32]) -> &str {
        &self.classes[predicted_class(row, 0.0).min(self.classes.len() - 1)]
    }

    fn nodes(
        &self,
        batch: &GraphBatch<f32>,
        data: Option<&NodeData>,
        names: Option<Vec<String>>,
    ) -> Result<Predictions> {
        self.check_classes()?;
        let outputs = self.output(batch)?;
        let mut columns = match names {
            Some(names) => vec![("node".to_string(), names)],
            None => numbered("node", batch.graph().nodes()),
        };
        self.class_columns(&outputs, &mut columns);
        let mut metrics = Vec::new();
        if let Some(data) = data {
            let known = |i: usize| data.split[i] != Split::None;
            let truth = |i: usize| &data.class_names[data.classes[i] as usize];
            let nodes = 0..data.split.len();
            let cell = |i: usize| {
                if known(i) {
                    truth(i).clone()
                } else {
                    String::new()
                }
            };
            columns.push(("class".into(), nodes.clone().map(cell).collect()));
            let split = |i: usize| match data.split[i] {
                Split::None => "",
                Split::Train => "train",
                Split::Validation => "validation",
                Split::Test => "test",
            };
            let splits = nodes.clone().map(|i| split(i).to_string()).collect();
            columns.push(("split".into(), splits));
            let width = self.classes.len().max(1);
            let right = |i: usize| self.class(&outputs[i * width..(i + 1) * width]) == truth(i);
            for name in ["train", "validation", "test"] {
                let chosen: Vec<usize> = nodes.clone().filter(|&i| split(i) == name).collect();
                if !chosen.is_empty() {
                    let count = chosen.iter().filter(|&&i| right(i)).count();
                    let accuracy = count as f64 / chosen.len() as f64;
                    metrics.push((format!("{name}_accuracy"), accuracy));
                }
            }
        }
        Ok(predictions(columns, metrics))
    }

    fn graphs(&self, set: &GraphSet) -> Result<Predictions> {
        let all: Vec<&GraphBatch<f32>> = set.graphs.iter().collect();
        let outputs = self.output(&GraphBatch::union(&all)?)?;
        let mut columns = match &set.names {
            Some(names) => vec![("graph".to_string(), names.clone())],
            None => numbered("graph", all.len()),
        };
        let mut metrics = Vec::new();
        if self.classes.is_empty() {
            let [shift, scale] = set.scaling;
            let outputs: Vec<f32> = outputs.iter().map(|y| y * scale + shift).collect();
            let cells = outputs.iter().map(ToString::to_string).collect();
            columns.push(("predicted".into(), cells));
            if !set.targets.is_empty() {
                let truth = set.targets.iter().map(ToString::to_string).collect();
                columns.push(("target".into(), truth));
                let mut sums = Regression::new(1);
                sums.add(&outputs, &Target::values(set.targets.clone()))?;
                let scores = sums.scores();
                for (name, value) in [
                    ("rmse", scores.rmse),
                    ("mae", scores.mae),
                    ("r2", scores.r2),
                ] {
                    metrics.push((name.to_string(), value));
                }
            }
        } else {
            self.check_classes()?;
            self.class_columns(&outputs, &mut columns);
            let truth: Vec<String> = set
                .classes
                .iter()
                .map(|&c| set.class_names[c as usize].clone())
                .collect();
            if !truth.is_empty() {
                let rows = outputs.chunks_exact(self.classes.len());
                let right = rows.zip(&truth).filter(|(row, t)| self.class(row) == **t);
                let accuracy = right.count() as f64 / truth.len() as f64;
                metrics.push(("accuracy".into(), accuracy));
                columns.push(("class".into(), truth));
            }
        }
        Ok(predictions(columns, metrics))
    }

    fn links(
        &self,
        experiment: &Experiment,
        data: &GraphDataSpec,
        pairs: Option<&PathBuf>,
    ) -> Result<Predictions> {
        let (names, _) = link_names(experiment, data)?;
        let Loaded::Nodes(data, ..) = load(experiment, data)? else {
            return Err(Error::invalid("[data] kind", "another", "one graph"));
        };
        let (spec, seed) = (self.network.spec(), experiment.train.seed);
        let mut task = LinkTask::new(spec, data.batch, seed)?;
        let (pairs, known) = match pairs {
            Some(path) => (read_pairs(path, names.as_deref())?, None),
            None => {
                let (pairs, known) = task.test_pairs();
                (pairs.to_vec(), Some(known.to_vec()))
            }
        };
        let scores = task.scores_of(&self.params, &pairs)?;
        let name = |node: u32| match &names {
            Some(names) => names[node as usize].clone(),
            None => node.to_string(),
        };
        let ends = |end: usize| pairs.iter().map(|p| name(p[end])).collect();
        let chance = |&s: &f32| format!("{:.6}", 1.0 / (1.0 + math::exp(-f64::from(s))));
        let mut columns = vec![
            ("source".to_string(), ends(0)),
            ("target".to_string(), ends(1)),
            ("p(link)".to_string(), scores.iter().map(chance).collect()),
        ];
        let mut metrics = Vec::new();
        if let Some(known) = known {
            let cells = known.iter().map(|&k| u8::from(k).to_string()).collect();
            columns.push(("link".into(), cells));
            metrics.extend(roc_auc(&scores, &known).map(|auc| ("test_auc".to_string(), auc)));
        }
        Ok(predictions(columns, metrics))
    }

    /// Every line with its masked characters restored.
    fn text(
        &self,
        experiment: &Experiment,
        data: &GraphDataSpec,
        skips: &[usize],
        file: Option<&PathBuf>,
    ) -> Result<Predictions> {
        let lines: Vec<String> = match file {
            Some(path) => {
                let text = crate::data::files::read_text(path)?;
                text.lines().map(ToString::to_string).collect()
            }
            None => text_task(experiment, self.network.spec(), data)?.masked_lines(),
        };
        let letters: Vec<char> = ALPHABET.chars().collect();
        let mut restored = Vec::new();
        for (i, line) in lines.iter().enumerate() {
            if let Some(c) = line
                .chars()
                .find(|&c| c != '_' && letter(c) as usize == letters.len())
            {
                return Err(Error::invalid(
                    format!("line {} of the text", i + 1),
                    format!("{c:?}"),
                    "letters from a to z, spaces, full stops, and _ where one is to be restored",
                ));
            }
            let outputs = self.output(&encode_text(line, ALPHABET, skips)?)?;
            let rows = outputs.chunks_exact(letters.len());
            let whole = line.chars().zip(rows).map(|(c, row)| match c {
                '_' => letters[predicted_class(row, 0.0)],
                c => c,
            });
            restored.push(whole.collect::<String>());
        }
        let columns = vec![
            ("masked".to_string(), lines),
            ("restored".to_string(), restored),
        ];
        Ok(predictions(columns, Vec::new()))
    }
}

fn numbered(name: &str, count: usize) -> Columns {
    vec![(name.into(), (0..count).map(|i| i.to_string()).collect())]
}

fn predictions(columns: Columns, metrics: Vec<(String, f64)>) -> Predictions {
    Predictions {
        columns,
        notes: Vec::new(),
        metrics,
        unpredicted: 0,
        measured: 0,
    }
}

fn softmax(row: &[f32]) -> Vec<f64> {
    let largest = row.iter().fold(f32::NEG_INFINITY, |a, &b| math::max(a, b));
    let e: Vec<f64> = row
        .iter()
        .map(|&y| math::exp(f64::from(y - largest)))
        .collect();
    let sum: f64 = e.iter().sum();
    e.iter().map(|e| e / sum).collect()
}
