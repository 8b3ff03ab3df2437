//! Edge lists as CSV with features as CSV or NPY.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::listed::{Listed, read_listed, read_pairs};
use super::markup::{Chosen, is_marked};
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
    /// GraphML or GML; or two columns, source and target, of nodes' numbers or names; a third, `weight`, where edges have
    /// one. A first line of names may be there or not; names alone are a graph without edges. Columns
    /// may be separated by blanks; lines that begin with `#` or `%` are comments.
    pub edges: PathBuf,
    /// The column of the edges' weights, where it is called otherwise.
    #[serde(default)]
    pub weight: Option<String>,
    /// Columns of numbers that belong to an edge.
    #[serde(default)]
    pub edge_features: Vec<String>,
    /// A row per node: CSV with a header and perhaps a column of the nodes' names, or NPY (nodes,
    /// features). Without it the network begins with an embedding.
    #[serde(default)]
    pub features: Option<PathBuf>,
    /// A class per node: CSV with one column, or with a column of the nodes' names; or NPY. Whole
    /// numbers from 0 on, −1 where it is not known, or text. Links are predicted without.
    #[serde(default)]
    pub labels: Option<PathBuf>,
    /// GraphML and GML: attributes of nodes that are features, numbers as they are.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub numbers: Vec<String>,
    /// GraphML and GML: attributes of nodes that are features, a value for each of these texts: 1 at
    /// its own, 0 elsewhere.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub categories: BTreeMap<String, Vec<String>>,
    /// GraphML and GML: the attribute of nodes that is their class.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
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
    /// Batches of nodes with so many of their neighbours, so many of the neighbours' and so on; the whole
    /// graph at once where there are none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub neighbours: Vec<usize>,
}

/// A table or an array as numbers: rows and columns.
pub(super) fn matrix(path: &Path) -> Result<(usize, usize, Vec<f64>)> {
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
    let values = numbers(&table, 0)?;
    Ok((table.rows(), table.columns().len(), values))
}

/// The cells of a table from a row on.
fn numbers(table: &Table, first: usize) -> Result<Vec<f64>> {
    let columns = table.columns().len();
    let mut values = Vec::with_capacity((table.rows() - first) * columns);
    for row in first..table.rows() {
        for column in 0..columns {
            match table.number(row, column)? {
                Some(value) => values.push(value),
                None => {
                    return Err(Error::file(
                        table.path(),
                        table.place(row, column),
                        "nothing, needs a number",
                    ));
                }
            }
        }
    }
    Ok(values)
}

/// A text of edges as a table, every line a row. Lists of edges come with names above the columns
/// or, mostly, without, with comments, and separated by blanks.
pub(super) fn edge_table(path: &Path) -> Result<Table> {
    let mut text = Vec::new();
    let bytes = crate::data::files::read(path)?;
    for line in bytes.split_inclusive(|&b| b == b'\n') {
        let separated = line.iter().any(|b| b",;|\t".contains(b));
        match line.trim_ascii_start().first() {
            // An empty line in its place keeps the count of the lines.
            Some(b'#' | b'%') => text.extend_from_slice(b"\n"),
            Some(_) if !separated => {
                let fields = line.split(u8::is_ascii_whitespace);
                let fields: Vec<&[u8]> = fields.filter(|f| !f.is_empty()).collect();
                text.extend(fields.join(&b'\t'));
                text.push(b'\n');
            }
            _ => text.extend_from_slice(line),
        }
    }
    if text.trim_ascii().is_empty() {
        let problem = "there is nothing in it, needs edges; the line `source,target` alone is a \
                       graph without edges";
        return Err(Error::file(path, "line 1", problem));
    }
    let reading = Reading {
        header: false,
        ..Reading::default()
    };
    Table::decode(path, &text, &reading)
}

impl EdgeListFiles {
    /// The edges of a file, and nothing else.
    pub fn of_edges(edges: &Path) -> Self {
        EdgeListFiles {
            edges: edges.to_path_buf(),
            weight: None,
            edge_features: Vec::new(),
            features: None,
            labels: None,
            numbers: Vec::new(),
            categories: BTreeMap::new(),
            label: None,
            predict: Predict::Links,
            undirected: false,
            self_loops: EdgeRule::default(),
            duplicates: EdgeRule::default(),
            neighbours: Vec::new(),
        }
    }

    /// The attributes of nodes that are features.
    pub(crate) fn chosen(&self) -> Chosen<'_> {
        Chosen {
            numbers: &self.numbers,
            categories: &self.categories,
        }
    }

    /// Whether one file has everything.
    pub(crate) fn is_marked(&self) -> bool {
        is_marked(&self.edges)
    }
}

/// The ends of the edges of a file with two columns of numbers.
pub(super) fn read_edges(path: &Path) -> Result<(Vec<u32>, Vec<u32>)> {
    let pairs = read_pairs(path, None)?;
    Ok(pairs.iter().map(|&[a, b]| (a, b)).unzip())
}

/// The graph alone: edges and features, without the labels.
pub fn read_unlabelled(files: &EdgeListFiles) -> Result<GraphBatch<f32>> {
    build(files, read_listed(files, false)?).map(|(batch, _)| batch)
}

/// The nodes' names, where they are not the numbers of their rows; and what is to be said about the
/// files.
pub(crate) fn node_names(files: &EdgeListFiles) -> Result<(Option<Vec<String>>, Vec<String>)> {
    let listed = read_listed(files, files.predict == Predict::Nodes)?;
    Ok((listed.names, listed.notes))
}

/// Without a number of nodes there are as many as the edges name.
fn build(files: &EdgeListFiles, listed: Listed) -> Result<(GraphBatch<f32>, Listed)> {
    let mut listed = listed;
    let (mut sources, mut targets) = (listed.sources.clone(), listed.targets.clone());
    let largest = sources.iter().chain(&targets).max();
    let Some(nodes) = listed.nodes.or(largest.map(|&v| v as usize + 1)) else {
        let problem = "there are none, and no features: needs edges, or features of the nodes";
        return Err(Error::file(&files.edges, "edges", problem));
    };
    let mut weights = listed.weights.take();
    let mut edge_features = listed.edge_features.take();
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
        (weights, edge_features) = (None, None);
    } else if files.undirected || listed.undirected {
        let forward = sources.clone();
        sources.extend_from_slice(&targets);
        targets.extend(forward);
        if let Some(weights) = &mut weights {
            weights.extend_from_within(..);
        }
        if let Some((_, features)) = &mut edge_features {
            features.extend_from_within(..);
        }
    }
    let built = Graph::build(nodes, &sources, &targets, rules)
        .map_err(|e| Error::file(&files.edges, "edges", e))?;
    let graph = Arc::new(if links {
        Graph::undirected(nodes, built.graph.sources(), built.graph.targets())?
    } else {
        built.graph
    });
    let mut batch = match listed.features.take() {
        Some((width, values)) => {
            let path = files.features.as_ref().unwrap_or(&files.edges);
            let values = values.iter().map(|&v| v as f32).collect();
            GraphBatch::dense(graph, width, values).map_err(|e| Error::file(path, "features", e))?
        }
        None => GraphBatch::ids(graph, nodes, &(0..nodes as u32).collect::<Vec<_>>())?,
    };
    if let Some(weights) = weights {
        let kept: Vec<f32> = built.kept.iter().map(|&e| weights[e as usize]).collect();
        batch = batch.with_edge_weights(&kept)?;
    }
    if let Some((width, features)) = edge_features {
        let row = |&e: &u32| &features[e as usize * width..][..width];
        let kept: Vec<f32> = built.kept.iter().flat_map(row).copied().collect();
        batch = batch.with_edge_features(width, &kept)?;
    }
    Ok((batch, listed))
}

/// Reads a graph of one's own. 60 % of the nodes with a class train, 20 % validate, 20 % test, drawn
/// from the seed.
pub fn read_edge_list(files: &EdgeListFiles, seed: u64) -> Result<NodeData> {
    let (key, needed, said) = match files.is_marked() {
        true => (
            "label",
            "the attribute that is a node's class",
            files.label.is_some(),
        ),
        false => (
            "labels",
            "a file with the class of every node",
            files.labels.is_some(),
        ),
    };
    if !said {
        let needed = format!("{needed}, or predict = \"links\"");
        return Err(Error::invalid(format!("[data] {key}"), "nothing", needed));
    }
    let (batch, listed) = build(files, read_listed(files, true)?)?;
    let Some((classes, class_names)) = listed.classes else {
        unreachable!("labels were asked for");
    };
    let mut known: Vec<usize> = (0..classes.len())
        .filter(|&n| classes[n].is_some())
        .collect();
    let mut stream = crate::rng::Key::new(seed).purpose("split").stream();
    stream.shuffle(&mut known);
    let mut split = vec![Split::None; classes.len()];
    for (k, &node) in known.iter().enumerate() {
        split[node] = match 10 * k / known.len() {
            0..6 => Split::Train,
            6..8 => Split::Validation,
            _ => Split::Test,
        };
    }
    Ok(NodeData {
        batch,
        classes: classes.iter().map(|class| class.unwrap_or(0)).collect(),
        class_names,
        split,
        node_names: listed.names,
        notes: listed.notes,
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
            features: Some(path("x.csv")),
            labels: Some(path("labels.npy")),
            predict: Predict::Nodes,
            undirected: true,
            ..EdgeListFiles::of_edges(&path("edges.csv"))
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
    fn edges_come_with_names_or_without_with_comments_and_blanks() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("edges.txt");
        let read = |text: &str| {
            std::fs::write(&path, text).unwrap();
            read_edges(&path)
        };
        let edges = (vec![0, 1, 2], vec![1, 2, 0]);
        for text in [
            "source,target\n0,1\n1,2\n2,0\n",
            "0,1\n1,2\n2,0\n",
            "0;1\r\n1;2\r\n2;0",
            "# a graph\n% of three\n0 1\n1   2\n\n 2 0\n",
            "# Nodes: 3\n0\t1\n1\t2\n2\t0\n",
            "from to\n0 1\n1 2\n2 0\n",
        ] {
            assert_eq!(read(text).unwrap(), edges, "{text:?}");
        }
        // Names alone are no edges; nothing at all is a mistake.
        assert_eq!(read("source,target\n").unwrap(), (vec![], vec![]));
        for (text, said) in [
            ("", "graph without edges"),
            ("# nothing\n", "graph without edges"),
            ("# one\n0 1\n0 -1\n", "line 3: got -1"),
            ("a,b\n0,1\n0,1.5\n", "line 3: got 1.5"),
            ("0,1\n0,\n", "line 2"),
            ("0 1\n0 1 2\n", "line 2"),
            ("0,1,2,3\n", "4 columns"),
        ] {
            let message = read(text).unwrap_err().to_string();
            assert!(message.contains(said), "{text:?}: {message}");
        }
    }

    #[test]
    fn a_graph_may_have_no_edges_where_something_else_gives_the_nodes() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        std::fs::write(path("edges.csv"), "source,target\n").unwrap();
        std::fs::write(path("x.csv"), "a\n1\n3\n5\n").unwrap();
        std::fs::write(path("y.csv"), "class\n0\n1\n1\n").unwrap();
        let mut files = EdgeListFiles {
            features: Some(path("x.csv")),
            labels: Some(path("y.csv")),
            predict: Predict::Nodes,
            undirected: true,
            ..EdgeListFiles::of_edges(&path("edges.csv"))
        };
        let counts = |batch: &GraphBatch<f32>| [batch.graph().nodes(), batch.graph().edges()];
        assert_eq!(counts(&read_edge_list(&files, 0).unwrap().batch), [3, 0]);
        assert_eq!(counts(&read_unlabelled(&files).unwrap()), [3, 0]);
        files.features = None;
        assert_eq!(counts(&read_edge_list(&files, 0).unwrap().batch), [3, 0]);
        let message = read_unlabelled(&files).unwrap_err().to_string();
        assert!(message.contains("features"), "{message}");
        // Labels without a name above them lose their first to it, and the message says so.
        files.features = Some(path("x.csv"));
        std::fs::write(path("y.csv"), "0\n1\n1\n").unwrap();
        let message = read_edge_list(&files, 0).unwrap_err().to_string();
        assert!(
            message.contains("2 rows") && message.contains("first line"),
            "{message}"
        );
    }

    #[test]
    fn ids_far_apart_are_numbered_in_their_order_and_a_few_gaps_are_nodes() {
        let folder = tempfile::tempdir().unwrap();
        let edges = folder.path().join("edges.csv");
        let read = |text: &str| {
            std::fs::write(&edges, text).unwrap();
            let files = EdgeListFiles {
                self_loops: EdgeRule::Drop,
                duplicates: EdgeRule::Drop,
                ..EdgeListFiles::of_edges(&edges)
            };
            let batch = read_unlabelled(&files).unwrap();
            let ids = node_names(&files).unwrap().0;
            (batch.graph().nodes(), batch.graph().sources().to_vec(), ids)
        };
        let (nodes, sources, ids) = read("7 4294967294\n100000 7\n");
        assert_eq!(nodes, 3);
        assert_eq!(sources.iter().max(), Some(&2));
        let names = ["7", "100000", "4294967294"].map(String::from);
        assert_eq!(ids, Some(names.to_vec()));
        let (nodes, _, ids) = read("0 1\n1 900\n");
        assert_eq!((nodes, ids), (901, None));
    }

    #[test]
    fn links_go_both_ways_once_whatever_the_file_says() {
        let folder = tempfile::tempdir().unwrap();
        let edges = folder.path().join("edges.csv");
        std::fs::write(&edges, "a,b,weight\n3,1,2\n1,3,2\n0,2,1\n2,2,1\n0,2,5\n").unwrap();
        let mut files = EdgeListFiles {
            duplicates: EdgeRule::Drop,
            ..EdgeListFiles::of_edges(&edges)
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
