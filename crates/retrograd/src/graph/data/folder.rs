//! A folder of graphs, a file each: GraphML, GML, or lists of edges. What is predicted of a graph is one
//! of its attributes, stands in a table beside the files' names, or is the folder within the folder that
//! its file lies in.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::listed::{canonical, read_labels};
use super::markup::{Chosen, is_marked, number, read_marked};
use super::{EdgeListFiles, GraphSet, read_unlabelled};
use crate::data::files::quote;
use crate::data::prepare::TaskKind;
use crate::graph::batch::GraphBatch;
use crate::graph::structure::{EdgeRules, Graph};
use crate::{Error, Result};

/// A folder of graphs, and what is predicted of them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GraphFolder {
    /// Where the files are; those of a class may be in a folder within it.
    pub folder: PathBuf,
    /// The attribute of a graph that is predicted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    /// A table of the files' names, with or without their endings, and what is predicted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub labels: Option<PathBuf>,
    /// Classes or numbers.
    #[serde(default = "classification")]
    pub task: TaskKind,
    /// Attributes of nodes that are features, numbers as they are. Without any feature a node is a 1.
    #[serde(default)]
    pub numbers: Vec<String>,
    /// Attributes of nodes that are features, a value for each of these texts: 1 at its own, 0
    /// elsewhere.
    #[serde(default)]
    pub categories: BTreeMap<String, Vec<String>>,
    /// Numbers are trained less the first of these, divided by the second. Figures and predictions
    /// are in their own units.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scaling: Option<[f32; 2]>,
    /// Parts for cross-validation: one of them is the test, the next one validates.
    #[serde(default = "ten")]
    pub folds: usize,
    /// Which; all one after the other, with the mean in the summary, where not written.
    #[serde(default)]
    pub fold: Option<usize>,
    /// Whether a fold validates; if not, it trains too, and the last weights are kept.
    #[serde(default = "yes")]
    pub validate: bool,
}

fn classification() -> TaskKind {
    TaskKind::Classification
}
fn ten() -> usize {
    10
}
fn yes() -> bool {
    true
}

impl GraphFolder {
    /// A folder of which nothing has been said.
    pub(crate) fn of(folder: &Path) -> Self {
        GraphFolder {
            folder: folder.to_path_buf(),
            target: None,
            labels: None,
            task: TaskKind::Classification,
            numbers: Vec::new(),
            categories: BTreeMap::new(),
            scaling: None,
            folds: ten(),
            fold: None,
            validate: true,
        }
    }
}

/// Lists of edges, where a folder has nothing better.
const LISTS: [&str; 5] = ["csv", "tsv", "txt", "edges", "edgelist"];

/// A graph's file: where it is, and the folder within the folder.
pub(crate) struct GraphFile {
    pub path: PathBuf,
    pub class: Option<String>,
    /// The file's name without its ending.
    pub name: String,
}

/// Whether TUDataset's files are in a folder: their name.
pub(crate) fn tudataset_in(folder: &Path) -> Option<String> {
    let entries = std::fs::read_dir(folder).ok()?;
    let mut names: Vec<String> = entries
        .filter_map(|e| e.ok()?.file_name().into_string().ok())
        .filter_map(|name| name.strip_suffix("_graph_indicator.txt").map(String::from))
        .filter(|name| folder.join(format!("{name}_A.txt")).is_file())
        .collect();
    names.sort();
    names.into_iter().next()
}

/// The graphs' files in the order of their names. Where there is GraphML or GML nothing else is a graph.
pub(crate) fn files(folder: &Path, but: Option<&Path>) -> Result<Vec<GraphFile>> {
    let mut files = Vec::new();
    let list = |folder: &Path| -> Result<Vec<PathBuf>> {
        let entries = std::fs::read_dir(folder).map_err(Error::io(folder, "read"))?;
        let mut paths = Vec::new();
        for entry in entries {
            paths.push(entry.map_err(Error::io(folder, "read"))?.path());
        }
        paths.sort();
        Ok(paths)
    };
    let but = but.and_then(|path| path.canonicalize().ok());
    let mut add = |path: PathBuf, class: Option<&str>| {
        let ending = path.extension().map(|e| e.to_string_lossy().to_lowercase());
        let listed = ending.is_some_and(|e| LISTS.contains(&e.as_str()));
        if (is_marked(&path) || listed) && (but.is_none() || path.canonicalize().ok() != but) {
            let name = path
                .file_stem()
                .unwrap_or_default()
                .to_string_lossy()
                .into();
            files.push(GraphFile {
                path,
                class: class.map(String::from),
                name,
            });
        }
    };
    for path in list(folder)? {
        if path.is_dir() {
            let class = path
                .file_name()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned();
            for path in list(&path)?.into_iter().filter(|path| path.is_file()) {
                add(path, Some(&class));
            }
        } else {
            add(path, None);
        }
    }
    if files.iter().any(|file| is_marked(&file.path)) {
        files.retain(|file| is_marked(&file.path));
    }
    Ok(files)
}

/// What is known of the graphs beside their files.
enum Truth {
    Attribute(String),
    Table(PathBuf, HashMap<String, String>),
    Folders,
}

/// Reads every graph of a folder. Without `labelled` what is predicted may be missing, and nothing is
/// then said about any of them.
pub fn read_folder(spec: &GraphFolder, labelled: bool) -> Result<GraphSet> {
    let files = files(&spec.folder, spec.labels.as_deref())?;
    if files.is_empty() {
        let problem = "no graph in it: needs files that end in .graphml or .gml, or lists of edges";
        return Err(Error::file(&spec.folder, "folder", problem));
    }
    let truth = match (&spec.target, &spec.labels) {
        (Some(name), None) => Truth::Attribute(name.clone()),
        (None, Some(path)) => {
            let labels = read_labels(path)?;
            let Some(ids) = labels.ids else {
                let problem = "one column, needs the files' names and what is predicted";
                return Err(Error::file(path, "columns", problem));
            };
            Truth::Table(path.clone(), ids.into_iter().zip(labels.texts).collect())
        }
        (None, None) => Truth::Folders,
        (Some(_), Some(_)) => {
            return Err(Error::refused(
                "[data] labels",
                "target is said, too: one of them",
            ));
        }
    };
    let chosen = Chosen {
        numbers: &spec.numbers,
        categories: &spec.categories,
    };
    let (mut graphs, mut texts) = (Vec::new(), Vec::new());
    for file in &files {
        let (batch, attributes) = read_graph(file, chosen)?;
        graphs.push(batch);
        let text = match &truth {
            Truth::Attribute(name) => {
                let found = attributes.into_iter().find(|(n, _)| n == name);
                found.map(|(_, text)| text)
            }
            Truth::Table(_, table) => {
                let whole = file.path.file_name().unwrap_or_default().to_string_lossy();
                let found = table.get(&canonical(&file.name));
                found.or_else(|| table.get(&*whole)).cloned()
            }
            Truth::Folders => file.class.clone(),
        };
        let text = text.filter(|text| !text.is_empty());
        if text.is_none() && labelled {
            return Err(missing(&truth, file));
        }
        texts.push(text);
    }
    let mut set = GraphSet {
        graphs,
        classes: Vec::new(),
        class_names: Vec::new(),
        targets: Vec::new(),
        scaling: spec.scaling.unwrap_or([0.0, 1.0]),
        names: Some(files.iter().map(|file| file.name.clone()).collect()),
    };
    if let Some(texts) = texts.into_iter().collect::<Option<Vec<String>>>() {
        match spec.task {
            TaskKind::Classification => (set.classes, set.class_names) = classes(&texts),
            TaskKind::Regression => set.targets = targets(&files, &texts)?,
        }
    }
    check_scaling(set.scaling)?;
    Ok(set)
}

fn check_scaling([shift, scale]: [f32; 2]) -> Result<()> {
    if !shift.is_finite() || !scale.is_normal() || scale < 0.0 {
        let needed = "what is taken off, and a number above 0 that is divided by";
        return Err(Error::invalid(
            "[data] scaling",
            format!("[{shift}, {scale}]"),
            needed,
        ));
    }
    Ok(())
}

fn missing(truth: &Truth, file: &GraphFile) -> Error {
    match truth {
        Truth::Attribute(name) => {
            let place = format!("attribute {} of the graph", quote(name));
            Error::file(&file.path, place, "there is none")
        }
        Truth::Table(path, _) => {
            let problem = format!(
                "there is none, needs what the graph is: {}",
                quote(&file.name)
            );
            Error::file(path, "the row of a graph", problem)
        }
        Truth::Folders => Error::file(
            &file.path,
            "class",
            "none: lies in no folder of its class, and neither target = \"ATTRIBUTE\" nor labels = \
             \"FILE\" says another",
        ),
    }
}

/// Names and values.
type Attributes = Vec<(String, String)>;

/// A file's graph with its features, and the graph's own attributes.
fn read_graph(file: &GraphFile, chosen: Chosen<'_>) -> Result<(GraphBatch<f32>, Attributes)> {
    let path = &file.path;
    let wrong = |e: Error| Error::file(path, "graph", e);
    if !is_marked(path) {
        let batch = read_unlabelled(&EdgeListFiles::of_edges(path))?;
        if chosen.width() > 0 {
            let problem = "a list of edges, whose nodes have no attributes";
            return Err(Error::file(path, "features", problem));
        }
        let graph = batch.graph().clone();
        let ones = vec![1.0; graph.nodes()];
        return Ok((GraphBatch::dense(graph, 1, ones)?, Vec::new()));
    }
    let marked = read_marked(path)?;
    let (sources, targets): (Vec<u32>, Vec<u32>) =
        marked.edges.iter().map(|&[a, b]| (a, b)).unzip();
    let nodes = marked.nodes.len();
    let graph = match marked.directed {
        true => Graph::build(nodes, &sources, &targets, EdgeRules::drop()).map(|built| built.graph),
        false => Graph::build(nodes, &sources, &targets, EdgeRules::drop()).and_then(|built| {
            Graph::undirected(nodes, built.graph.sources(), built.graph.targets())
        }),
    };
    let (width, values) = match chosen.width() {
        0 => (1, vec![1.0; nodes]),
        width => {
            let values = chosen.features(path, &marked)?;
            (width, values.iter().map(|&v| v as f32).collect())
        }
    };
    let graph = Arc::new(graph.map_err(wrong)?);
    let batch = GraphBatch::dense(graph, width, values).map_err(wrong)?;
    Ok((batch, marked.of_graph))
}

/// Classes in the order of their names: by value if all are numbers, else by their text.
fn classes(texts: &[String]) -> (Vec<u32>, Vec<String>) {
    let known: BTreeSet<&String> = texts.iter().collect();
    let mut names: Vec<String> = known.into_iter().cloned().collect();
    if names.iter().all(|name| number(name).is_some()) {
        names.sort_by(|a, b| {
            number(a)
                .unwrap_or(0.0)
                .total_cmp(&number(b).unwrap_or(0.0))
        });
    }
    let index: HashMap<&String, u32> = names.iter().zip(0..).collect();
    (texts.iter().map(|text| index[text]).collect(), names)
}

fn targets(files: &[GraphFile], texts: &[String]) -> Result<Vec<f32>> {
    let each = files.iter().zip(texts).map(|(file, text)| {
        let value = number(text).map(|v| v as f32).filter(|v| v.is_finite());
        value.ok_or_else(|| {
            let problem = format!("got {}, needs a number", quote(text));
            Error::file(&file.path, "what is predicted", problem)
        })
    });
    each.collect()
}
