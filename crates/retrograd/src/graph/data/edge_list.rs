//! Edge lists as CSV with features as CSV or NPY.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{NodeData, Split};
use crate::data::csv::{Reading, Table};
use crate::data::{Array, Values, npy};
use crate::graph::batch::GraphBatch;
use crate::graph::structure::{EdgeRule, EdgeRules, Graph};
use crate::graph::task::Predict;
use crate::{Error, Result};

/// The files of a graph of one's own.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EdgeListFiles {
    /// Two columns: source and target, numbered from 0; a third, `weight`, where edges have one.
    pub edges: PathBuf,
    /// A row per node: CSV with a header, or NPY (nodes, features). Without it nodes are known by
    /// their number alone, and the network begins with an embedding.
    #[serde(default)]
    pub features: Option<PathBuf>,
    /// A class per node, a whole number from 0 on, −1 where it is not known: CSV with one column or
    /// NPY. Links are predicted without.
    #[serde(default)]
    pub labels: Option<PathBuf>,
    /// What is predicted.
    #[serde(default)]
    pub predict: Predict,
    /// Add every edge in the other direction too. Links go both ways in any case.
    #[serde(default)]
    pub undirected: bool,
    /// What happens to edges from a node to itself.
    #[serde(default)]
    pub self_loops: EdgeRule,
    /// What happens to edges that come twice.
    #[serde(default)]
    pub duplicates: EdgeRule,
}

/// A table or an array as numbers: rows and columns.
fn matrix(path: &Path) -> Result<(usize, usize, Vec<f64>)> {
    if path.extension().is_some_and(|e| e == "npy") {
        let array: Array = npy::read(path)?;
        let columns = match array.shape[..] {
            [_] => 1,
            [_, columns] => columns,
            _ => {
                return Err(Error::file(
                    path,
                    "shape",
                    format!("{:?}, needs one or two axes", array.shape),
                ));
            }
        };
        debug_assert!(!matches!(array.values, Values::U8(ref v) if v.len() != array.len()));
        let values = (0..array.len()).map(|i| array.get(i)).collect();
        return Ok((array.shape[0], columns, values));
    }
    let table = Table::read(path, &Reading::default())?;
    let columns = table.columns().len();
    let mut values = Vec::with_capacity(table.rows() * columns);
    for row in 0..table.rows() {
        for column in 0..columns {
            match table.number(row, column)? {
                Some(value) => values.push(value),
                None => {
                    return Err(Error::file(
                        path,
                        table.place(row, column),
                        "nothing, needs a number",
                    ));
                }
            }
        }
    }
    Ok((table.rows(), columns, values))
}

/// A whole number from 0 on that fits 32 bits.
fn index(path: &Path, row: usize, value: f64) -> Result<u32> {
    if value.fract() == 0.0 && value >= 0.0 && value < f64::from(u32::MAX) {
        return Ok(value as u32);
    }
    let problem = format!("got {value}, needs a node's number, a whole number ≥ 0");
    Err(Error::file(path, format!("row {row}"), problem))
}

/// The ends of the edges of a file with two columns.
pub(super) fn read_edges(path: &Path) -> Result<(Vec<u32>, Vec<u32>)> {
    let (sources, targets, _) = read_weighted(path)?;
    Ok((sources, targets))
}

/// Pairs of nodes: a file with two columns.
pub(crate) fn read_pairs(path: &Path) -> Result<Vec<[u32; 2]>> {
    let (a, b) = read_edges(path)?;
    Ok(a.into_iter().zip(b).map(|(a, b)| [a, b]).collect())
}

type WeightedEdges = (Vec<u32>, Vec<u32>, Option<Vec<f32>>);

fn read_weighted(path: &Path) -> Result<WeightedEdges> {
    let (rows, columns, values) = matrix(path)?;
    if columns != 2 && columns != 3 {
        let problem = format!("{columns} columns, needs source, target and perhaps weight");
        return Err(Error::file(path, "columns", problem));
    }
    let (mut sources, mut targets, mut weights) = (Vec::new(), Vec::new(), Vec::new());
    for row in 0..rows {
        let cells = &values[row * columns..(row + 1) * columns];
        sources.push(index(path, row, cells[0])?);
        targets.push(index(path, row, cells[1])?);
        weights.extend(cells.get(2).map(|&w| w as f32));
    }
    Ok((sources, targets, (columns == 3).then_some(weights)))
}

/// The rows of a features' file: how many, how wide, and their numbers.
type Rows = (usize, usize, Vec<f64>);

/// The graph alone: edges and features, without the labels.
pub fn read_unlabelled(files: &EdgeListFiles) -> Result<GraphBatch<f32>> {
    build(files, files.features.as_deref().map(matrix).transpose()?)
}

fn build(files: &EdgeListFiles, features: Option<Rows>) -> Result<GraphBatch<f32>> {
    let (mut sources, mut targets, mut weights) = read_weighted(&files.edges)?;
    let nodes = match &features {
        Some((rows, ..)) => *rows,
        None => {
            let largest = sources.iter().chain(&targets).max();
            largest.map_or(0, |&v| v as usize + 1)
        }
    };
    let links = files.predict == Predict::Links;
    let mut rules = EdgeRules {
        self_loops: files.self_loops,
        duplicates: files.duplicates,
    };
    if links {
        // Nothing is said about the link of a node to itself, and a link is there or not.
        for rule in [&mut rules.self_loops, &mut rules.duplicates] {
            if *rule == EdgeRule::Keep {
                *rule = EdgeRule::Drop;
            }
        }
        weights = None;
    } else if files.undirected {
        let forward = sources.clone();
        sources.extend_from_slice(&targets);
        targets.extend(forward);
        if let Some(weights) = &mut weights {
            weights.extend_from_within(..);
        }
    }
    let built = Graph::build(nodes, &sources, &targets, rules)
        .map_err(|e| Error::file(&files.edges, "edges", e))?;
    let graph = Arc::new(if links {
        Graph::undirected(nodes, built.graph.sources(), built.graph.targets())?
    } else {
        built.graph
    });
    let mut batch = match (features, &files.features) {
        (Some((_, width, values)), Some(path)) => {
            let values = values.iter().map(|&v| v as f32).collect();
            GraphBatch::dense(graph, width, values).map_err(|e| Error::file(path, "features", e))?
        }
        _ => GraphBatch::ids(graph, nodes, &(0..nodes as u32).collect::<Vec<_>>())?,
    };
    if let Some(weights) = weights {
        let kept: Vec<f32> = built.kept.iter().map(|&e| weights[e as usize]).collect();
        batch = batch.with_edge_weights(&kept)?;
    }
    Ok(batch)
}

/// Reads a graph of one's own. The nodes are those of the features' rows; 60 % of the nodes with a
/// class train, 20 % validate, 20 % test, drawn from the seed.
pub fn read_edge_list(files: &EdgeListFiles, seed: u64) -> Result<NodeData> {
    let Some(label_path) = &files.labels else {
        return Err(Error::invalid(
            "[data] labels",
            "nothing",
            "a file with the class of every node, or predict = \"links\"",
        ));
    };
    let features = files.features.as_deref().map(matrix).transpose()?;
    let (label_rows, label_columns, labels) = matrix(label_path)?;
    let nodes = features.as_ref().map_or(label_rows, |(rows, ..)| *rows);
    if label_rows != nodes || label_columns != 1 {
        let of = match &files.features {
            Some(path) => format!(" of {}", path.display()),
            None => String::new(),
        };
        return Err(Error::file(
            label_path,
            "shape",
            format!(
                "{label_rows} rows of {label_columns}, needs one class for each of the {nodes} nodes{of}"
            ),
        ));
    }
    let batch = build(files, features)?;
    if batch.graph().nodes() != nodes {
        let problem = format!(
            "{nodes} classes, needs {}: the largest number of a node in {} is {}",
            batch.graph().nodes(),
            files.edges.display(),
            batch.graph().nodes() - 1
        );
        return Err(Error::file(label_path, "shape", problem));
    }
    let mut known = Vec::new();
    for (node, &label) in labels.iter().enumerate() {
        if label.fract() != 0.0 || !(-1.0..65_536.0).contains(&label) {
            let problem = format!("class {label}, needs a whole number from −1 to 65535");
            return Err(Error::file(label_path, format!("row {node}"), problem));
        }
        if label >= 0.0 {
            known.push(node);
        }
    }
    let mut stream = crate::rng::Key::new(seed).purpose("split").stream();
    stream.shuffle(&mut known);
    let mut split = vec![Split::None; nodes];
    for (k, &node) in known.iter().enumerate() {
        split[node] = match 10 * k / known.len() {
            0..6 => Split::Train,
            6..8 => Split::Validation,
            _ => Split::Test,
        };
    }
    let classes: Vec<u32> = labels.iter().map(|&l| l.max(0.0) as u32).collect();
    let count = classes.iter().max().map_or(0, |&c| c as usize + 1);
    Ok(NodeData {
        batch,
        classes,
        class_names: (0..count).map(|c| c.to_string()).collect(),
        split,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edge_lists_with_csv_and_npy_features_are_read_and_mistakes_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        std::fs::write(path("edges.csv"), "source,target,weight\n0,1,0.5\n1,2,2\n").unwrap();
        std::fs::write(path("x.csv"), "a,b\n1,2\n3,4\n5,6\n").unwrap();
        let labels = Array::new(vec![3], Values::I64(vec![0, 1, -1])).unwrap();
        npy::write(path("labels.npy"), &labels).unwrap();
        let mut files = EdgeListFiles {
            edges: path("edges.csv"),
            features: Some(path("x.csv")),
            labels: Some(path("labels.npy")),
            predict: Predict::Nodes,
            undirected: true,
            self_loops: EdgeRule::Refuse,
            duplicates: EdgeRule::Refuse,
        };
        let data = read_edge_list(&files, 0).unwrap();
        assert_eq!(data.batch.graph().edges(), 4);
        assert_eq!(data.batch.edge_weights().unwrap(), [0.5, 2.0, 0.5, 2.0]);
        assert_eq!(data.split[2], Split::None);
        let x = Array::new(vec![2, 2], Values::F32(vec![1.0; 4])).unwrap();
        npy::write(path("x.npy"), &x).unwrap();
        files.features = Some(path("x.npy"));
        // A feature file of another length.
        let message = read_edge_list(&files, 0).unwrap_err().to_string();
        assert!(
            message.contains("labels.npy") && message.contains("2 nodes"),
            "{message}"
        );
        npy::write(
            path("labels.npy"),
            &Array::new(vec![2], Values::I64(vec![0, 1])).unwrap(),
        )
        .unwrap();
        let message = read_edge_list(&files, 0).unwrap_err().to_string();
        assert!(
            message.contains("edges.csv") && message.contains("edge 1"),
            "{message}"
        );
    }

    #[test]
    fn links_go_both_ways_once_whatever_the_file_says() {
        let folder = tempfile::tempdir().unwrap();
        let edges = folder.path().join("edges.csv");
        std::fs::write(&edges, "a,b,weight\n3,1,2\n1,3,2\n0,2,1\n2,2,1\n0,2,5\n").unwrap();
        let mut files = EdgeListFiles {
            edges: edges.clone(),
            features: None,
            labels: None,
            predict: Predict::Links,
            undirected: false,
            self_loops: EdgeRule::Refuse,
            duplicates: EdgeRule::Drop,
        };
        let message = read_unlabelled(&files).unwrap_err().to_string();
        assert!(
            message.contains("edges.csv") && message.contains("edge 3"),
            "{message}"
        );
        files.self_loops = EdgeRule::Drop;
        files.duplicates = EdgeRule::Refuse;
        let message = read_unlabelled(&files).unwrap_err().to_string();
        assert!(
            message.contains("edges.csv") && message.contains("edge 4"),
            "{message}"
        );
        files.duplicates = EdgeRule::Keep;
        let batch = read_unlabelled(&files).unwrap();
        let graph = batch.graph();
        let mut pairs: Vec<_> = graph.sources().iter().zip(graph.targets()).collect();
        pairs.sort();
        assert_eq!(pairs, [(&0, &2), (&1, &3), (&2, &0), (&3, &1)]);
        assert!(batch.edge_weights().is_none() && batch.width() == 4);
        // Without labels there are no classes to predict.
        files.predict = Predict::Nodes;
        let message = read_edge_list(&files, 0).unwrap_err().to_string();
        assert!(
            message.contains("labels") && message.contains("links"),
            "{message}"
        );
    }
}
