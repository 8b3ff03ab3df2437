//! Citation networks: `.content` and `.cites`, and Planetoid as plain files.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use super::{NodeData, Split, line, normalise_rows, read_text};
use crate::budget::{self, Demand, product};
use crate::data::{Array, npy};
use crate::graph::batch::GraphBatch;
use crate::graph::structure::Graph;
use crate::{Error, Result};

/// Reads `PAPER feature … feature CLASS` lines and `CITED CITING` lines. Citations count in both
/// directions, once; classes are numbered in the order of their names. The split is by the file's
/// order: the first 140 rows train, the next 360 validate, rows 500 to 1499 test.
pub fn read_content_cites(content: &Path, cites: &Path) -> Result<NodeData> {
    let text = read_text(content)?;
    let mut place: HashMap<&str, u32> = HashMap::new();
    let mut names: Vec<&str> = Vec::new();
    let (mut node_of, mut feature_of, mut values) = (Vec::new(), Vec::new(), Vec::new());
    let mut width = None;
    for (at, row) in text.lines().enumerate() {
        let cells: Vec<&str> = row.split('\t').collect();
        let node = at as u32;
        let needed = *width.get_or_insert(cells.len());
        if cells.len() != needed || cells.len() < 3 {
            return Err(Error::file(
                content,
                line(at),
                format!(
                    "{} columns, needs {} (paper, features, class)",
                    cells.len(),
                    needed.max(3)
                ),
            ));
        }
        if place.insert(cells[0], node).is_some() {
            return Err(Error::file(
                content,
                line(at),
                format!("paper {} twice", cells[0]),
            ));
        }
        for (feature, cell) in cells[1..cells.len() - 1].iter().enumerate() {
            let value: f32 = cell
                .parse()
                .ok()
                .filter(|v: &f32| v.is_finite())
                .ok_or_else(|| {
                    let at = format!("{}, column {}", line(at), feature + 2);
                    Error::file(content, at, format!("got {cell:?}, needs a finite number"))
                })?;
            if value != 0.0 {
                node_of.push(node);
                feature_of.push(feature as u32);
                values.push(value);
            }
        }
        names.push(cells[cells.len() - 1]);
    }
    let mut class_names: Vec<String> = names.iter().map(|n| n.to_string()).collect();
    class_names.sort();
    class_names.dedup();
    let class = |name: &&str| class_names.iter().position(|c| c == name).unwrap_or(0) as u32;
    let classes: Vec<u32> = names.iter().map(class).collect();
    let links = read_text(cites)?;
    let (mut a, mut b) = (Vec::new(), Vec::new());
    for (at, row) in links.lines().enumerate() {
        let ends: Vec<&str> = row.split_whitespace().collect();
        let [cited, citing] = ends[..] else {
            return Err(Error::file(
                cites,
                line(at),
                format!("{} papers, needs two", ends.len()),
            ));
        };
        for (paper, list) in [(citing, &mut a), (cited, &mut b)] {
            match place.get(paper) {
                Some(&node) => list.push(node),
                None => {
                    return Err(Error::file(
                        cites,
                        line(at),
                        format!("paper {paper} is not in {}", content.display()),
                    ));
                }
            }
        }
    }
    let nodes = names.len();
    let graph = Arc::new(Graph::undirected(nodes, &a, &b)?);
    normalise_rows(&node_of, &mut values, nodes);
    let features = width.map_or(0, |w| w - 2);
    let split = (0..nodes)
        .map(|i| match i {
            0..140 => Split::Train,
            140..500 => Split::Validation,
            500..1500 => Split::Test,
            _ => Split::None,
        })
        .collect();
    Ok(NodeData {
        batch: GraphBatch::sparse(graph, features, &node_of, &feature_of, &values)?,
        classes,
        class_names,
        split,
        node_names: None,
        notes: Vec::new(),
    })
}

/// The most classes, as of edge lists.
const MAX_CLASSES: usize = 1 << 16;

/// Whole numbers of an NPY file.
fn whole(path: &Path, low: f64) -> Result<(Array, Vec<i64>)> {
    let array = npy::read(path)?;
    let values = (0..array.len())
        .map(|i| {
            let v = array.get(i);
            if v.fract() == 0.0 && v >= low && v < f64::from(u32::MAX) {
                Ok(v as i64)
            } else {
                let problem = format!("got {v}, needs a whole number ≥ {low}");
                Err(Error::file(path, format!("element {i}"), problem))
            }
        })
        .collect::<Result<_>>()?;
    Ok((array, values))
}

/// Reads a folder as `data/fetch-graphs` writes it: `edges.csv`, `x.npy` (node and feature of every
/// non-zero), `x_values.npy`, `labels.npy`, `split.npy`, `about.json`.
pub fn read_planetoid(folder: &Path) -> Result<NodeData> {
    let about_path = folder.join("about.json");
    let about: serde_json::Value = serde_json::from_str(&read_text(&about_path)?)
        .map_err(|e| Error::file(&about_path, format!("line {}", e.line()), e))?;
    let size = |key: &str| {
        about[key]
            .as_u64()
            .map(|n| n as usize)
            .ok_or_else(|| Error::file(&about_path, key, "needs a whole number"))
    };
    let (nodes, features, classes) = (size("nodes")?, size("features")?, size("classes")?);
    // What the sizes say costs memory only once files of their length agree.
    let label_path = folder.join("labels.npy");
    let (_, labels) = whole(&label_path, -1.0)?;
    let split_path = folder.join("split.npy");
    let (_, splits) = whole(&split_path, 0.0)?;
    for (path, length) in [(&label_path, labels.len()), (&split_path, splits.len())] {
        if length != nodes {
            let problem = format!("{length} numbers, needs {nodes}, one for every node");
            return Err(Error::file(path, "length", problem));
        }
    }
    if classes > MAX_CLASSES {
        let problem = format!("{classes}, needs at most {MAX_CLASSES}");
        return Err(Error::file(&about_path, "classes", problem));
    }
    let sizes = [("features", features as u64)];
    budget::allow(&Demand::of(sizes, |[features]| product([features, 16])))
        .map_err(|e| Error::file(&about_path, "features", e))?;
    let (a, b) = super::edge_list::read_edges(&folder.join("edges.csv"))?;
    let graph = Arc::new(Graph::undirected(nodes, &a, &b)?);
    let x_path = folder.join("x.npy");
    let (x, pairs) = whole(&x_path, 0.0)?;
    if x.shape.len() != 2 || x.shape[1] != 2 {
        return Err(Error::file(
            &x_path,
            "shape",
            format!("{:?}, needs (n, 2)", x.shape),
        ));
    }
    let node_of: Vec<u32> = pairs.iter().step_by(2).map(|&v| v as u32).collect();
    let feature_of: Vec<u32> = pairs.iter().skip(1).step_by(2).map(|&v| v as u32).collect();
    let values_array = npy::read(folder.join("x_values.npy"))?;
    let mut values: Vec<f32> = (0..values_array.len())
        .map(|i| values_array.get(i) as f32)
        .collect();
    if node_of.iter().all(|&n| (n as usize) < nodes) && values.len() == node_of.len() {
        normalise_rows(&node_of, &mut values, nodes);
    }
    if let Some(i) = labels.iter().position(|&l| l >= classes as i64) {
        let problem = format!("class {}, needs one below {classes}", labels[i]);
        return Err(Error::file(&label_path, format!("element {i}"), problem));
    }
    let split = labels
        .iter()
        .zip(&splits)
        .map(|(&label, &split)| match split {
            1 if label >= 0 => Split::Train,
            2 if label >= 0 => Split::Validation,
            3 if label >= 0 => Split::Test,
            _ => Split::None,
        });
    Ok(NodeData {
        batch: GraphBatch::sparse(graph, features, &node_of, &feature_of, &values)?,
        split: split.collect(),
        classes: labels.iter().map(|&l| l.max(0) as u32).collect(),
        class_names: (0..classes).map(|c| c.to_string()).collect(),
        node_names: None,
        notes: Vec::new(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn papers_features_classes_and_citations_are_read_and_mistakes_named() {
        let folder = tempfile::tempdir().unwrap();
        let (content, cites) = (
            folder.path().join("a.content"),
            folder.path().join("a.cites"),
        );
        let write = |path: &Path, text: &str| std::fs::write(path, text).unwrap();
        write(&content, "p1\t1\t0\t1\tB\np2\t0\t1\t0\tA\n");
        write(&cites, "p1\tp2\n");
        let data = read_content_cites(&content, &cites).unwrap();
        assert_eq!(data.class_names, ["A", "B"]);
        assert_eq!(data.classes, [1, 0]);
        assert_eq!(data.batch.graph().edges(), 2);
        assert_eq!(crate::Batch::values(&data.batch), [0.5, 0.5, 1.0]);
        let message = || {
            read_content_cites(&content, &cites)
                .unwrap_err()
                .to_string()
        };
        write(&cites, "p1\tp3\n");
        assert!(
            message().contains("line 1") && message().contains("p3"),
            "{}",
            message()
        );
        write(&cites, "p1\n");
        assert!(message().contains("needs two"));
        write(&content, "p1\t1\t0\t1\tB\np2\t0\t1\tA\n");
        assert!(message().contains("line 2"), "{}", message());
        write(&content, "p1\t1\tx\t1\tB\n");
        assert!(message().contains("column 3"), "{}", message());
    }
}
