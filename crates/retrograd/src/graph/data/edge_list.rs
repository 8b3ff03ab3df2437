//! Edge lists as CSV with features as CSV or NPY.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{NodeData, Split};
use crate::data::csv::{Reading, Table};
use crate::data::{Array, Values, npy};
use crate::graph::batch::GraphBatch;
use crate::graph::structure::{EdgeRule, EdgeRules, Graph};
use crate::{Error, Result};

/// The files of a graph of one's own.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EdgeListFiles {
    /// Two columns: source and target, numbered from 0; a third, `weight`, where edges have one.
    pub edges: PathBuf,
    /// A row per node: CSV with a header, or NPY (nodes, features).
    pub features: PathBuf,
    /// A class per node, a whole number from 0 on, −1 where it is not known: CSV with one column or
    /// NPY.
    pub labels: PathBuf,
    /// Add every edge in the other direction too.
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

/// The graph alone: edges and features, without the labels.
pub fn read_unlabelled(files: &EdgeListFiles) -> Result<GraphBatch<f32>> {
    let (nodes, width, features) = matrix(&files.features)?;
    build(files, nodes, width, &features)
}

fn build(
    files: &EdgeListFiles,
    nodes: usize,
    width: usize,
    features: &[f64],
) -> Result<GraphBatch<f32>> {
    let (mut sources, mut targets, mut weights) = read_weighted(&files.edges)?;
    if files.undirected {
        let forward = sources.clone();
        sources.extend_from_slice(&targets);
        targets.extend(forward);
        if let Some(weights) = &mut weights {
            weights.extend_from_within(..);
        }
    }
    let rules = EdgeRules {
        self_loops: files.self_loops,
        duplicates: files.duplicates,
    };
    let built = Graph::build(nodes, &sources, &targets, rules)
        .map_err(|e| Error::file(&files.edges, "edges", e))?;
    let features: Vec<f32> = features.iter().map(|&v| v as f32).collect();
    let mut batch = GraphBatch::dense(Arc::new(built.graph), width, features)
        .map_err(|e| Error::file(&files.features, "features", e))?;
    if let Some(weights) = weights {
        let kept: Vec<f32> = built.kept.iter().map(|&e| weights[e as usize]).collect();
        batch = batch.with_edge_weights(&kept)?;
    }
    Ok(batch)
}

/// Reads a graph of one's own. The nodes are those of the features' rows; 60 % of the nodes with a
/// class train, 20 % validate, 20 % test, drawn from the seed.
pub fn read_edge_list(files: &EdgeListFiles, seed: u64) -> Result<NodeData> {
    let (nodes, width, features) = matrix(&files.features)?;
    let (label_rows, label_columns, labels) = matrix(&files.labels)?;
    if label_rows != nodes || label_columns != 1 {
        return Err(Error::file(
            &files.labels,
            "shape",
            format!(
                "{label_rows} rows of {label_columns}, needs one class for each of the {nodes} nodes of {}",
                files.features.display()
            ),
        ));
    }
    let batch = build(files, nodes, width, &features)?;
    let mut known = Vec::new();
    for (node, &label) in labels.iter().enumerate() {
        if label.fract() != 0.0 || !(-1.0..65_536.0).contains(&label) {
            let problem = format!("class {label}, needs a whole number from −1 to 65535");
            return Err(Error::file(&files.labels, format!("row {node}"), problem));
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
            features: path("x.csv"),
            labels: path("labels.npy"),
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
        files.features = path("x.npy");
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
}
