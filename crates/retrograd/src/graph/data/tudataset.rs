//! TUDataset's text: many graphs, numbered from 1, in files named after the data set.

use std::path::Path;
use std::sync::Arc;

use super::{GraphSet, line, read_text};
use crate::budget::{self, Demand, product};
use crate::graph::batch::GraphBatch;
use crate::graph::structure::{EdgeRules, Graph};
use crate::{Error, Result};

/// Numbers of a file, `columns` (or any number, the same) in every line.
fn numbers(path: &Path, columns: Option<usize>) -> Result<(usize, Vec<f64>)> {
    let text = read_text(path)?;
    let mut width = columns;
    let mut values = Vec::new();
    for (at, row) in text
        .lines()
        .enumerate()
        .filter(|(_, row)| !row.trim().is_empty())
    {
        let before = values.len();
        for cell in row.split(',') {
            let value: Option<f64> = cell.trim().parse().ok().filter(|v: &f64| v.is_finite());
            values.push(value.ok_or_else(|| {
                Error::file(
                    path,
                    line(at),
                    format!("got {:?}, needs a number", cell.trim()),
                )
            })?);
        }
        let count = values.len() - before;
        if *width.get_or_insert(count) != count {
            let needed = width.unwrap_or(0);
            return Err(Error::file(
                path,
                line(at),
                format!("{count} numbers, needs {needed}"),
            ));
        }
    }
    Ok((width.unwrap_or(0), values))
}

/// Labels as classes 0, 1, … in the order of their values.
fn classes(values: &[f64]) -> (Vec<u32>, Vec<f64>) {
    let mut kinds = values.to_vec();
    kinds.sort_by(f64::total_cmp);
    kinds.dedup();
    let class = |v: &f64| kinds.partition_point(|k| k < v) as u32;
    (values.iter().map(class).collect(), kinds)
}

/// The first node of every graph, and the number of nodes; `indicator` has each node's graph.
fn first_nodes(path: &Path, indicator: &[f64]) -> Result<Vec<usize>> {
    let mut first = vec![0_usize];
    for (node, &graph) in indicator.iter().enumerate() {
        let graphs = first.len() as f64;
        let next = graph == graphs + 1.0 && node > 0;
        if graph != graphs && !next {
            let problem = format!("graph {graph} after graph {graphs}, needs graphs in order");
            return Err(Error::file(path, line(node), problem));
        }
        if graph > graphs {
            first.push(node);
        }
    }
    first.push(indicator.len());
    Ok(first)
}

/// Sources and targets within a graph, and the edges' numbers in the file.
type GraphEdges = (Vec<u32>, Vec<u32>, Vec<u32>);

/// The edges, graph by graph.
fn edges_of_graphs(
    edge_path: &Path,
    edges: &[f64],
    indicator: &[f64],
    first: &[usize],
    graphs: usize,
) -> Result<Vec<GraphEdges>> {
    let nodes = indicator.len();
    let mut of_graph: Vec<GraphEdges> = vec![Default::default(); graphs];
    for (e, ends) in edges.chunks_exact(2).enumerate() {
        if let Some(bad) = ends
            .iter()
            .find(|v| v.fract() != 0.0 || **v < 1.0 || **v > nodes as f64)
        {
            let problem = format!("node {bad}, needs 1 to {nodes}");
            return Err(Error::file(edge_path, line(e), problem));
        }
        let (a, b) = (ends[0] as usize - 1, ends[1] as usize - 1);
        let graph = indicator[a] as usize - 1;
        if indicator[b] != indicator[a] {
            return Err(Error::file(
                edge_path,
                line(e),
                "an edge between two graphs",
            ));
        }
        let (sources, targets, numbers) = &mut of_graph[graph];
        sources.push((a - first[graph]) as u32);
        targets.push((b - first[graph]) as u32);
        numbers.push(e as u32);
    }
    Ok(of_graph)
}

/// Reads `FOLDER/NAME_A.txt` and its companions. Node labels become one-hot features, node
/// attributes follow them; edge labels (where `edge_features`) one-hot edge features. Graphs have
/// classes (`graph_labels`) or, without those, numbers (`graph_attributes`).
pub fn read_tudataset(folder: &Path, name: &str, edge_features: bool) -> Result<GraphSet> {
    let file = |part: &str| folder.join(format!("{name}_{part}.txt"));
    let optional = |part: &str| -> Result<Option<(usize, Vec<f64>)>> {
        let path = file(part);
        if path.exists() {
            numbers(&path, None).map(Some)
        } else {
            Ok(None)
        }
    };
    let (_, indicator) = numbers(&file("graph_indicator"), Some(1))?;
    let nodes = indicator.len();
    let first = first_nodes(&file("graph_indicator"), &indicator)?;
    let graphs = if nodes == 0 { 0 } else { first.len() - 1 };
    let edge_path = file("A");
    let (_, edges) = numbers(&edge_path, Some(2))?;
    let of_graph = edges_of_graphs(&edge_path, &edges, &indicator, &first, graphs)?;
    // Node features: labels one-hot, then attributes.
    let mut columns: Vec<(usize, Vec<f32>)> = Vec::new();
    if let Some((_, labels)) = optional("node_labels")? {
        columns.push(one_hot(&file("node_labels"), &labels, nodes)?);
    }
    if let Some((width, values)) = optional("node_attributes")? {
        check_rows(&file("node_attributes"), values.len(), width * nodes)?;
        columns.push((width, values.iter().map(|&v| v as f32).collect()));
    }
    if columns.is_empty() {
        columns.push((1, vec![1.0; nodes]));
    }
    let width: usize = columns.iter().map(|c| c.0).sum();
    let rows = |nodes: std::ops::Range<usize>| -> Vec<f32> {
        nodes
            .flat_map(|i| {
                columns
                    .iter()
                    .flat_map(move |(w, v)| v[i * w..(i + 1) * w].iter().copied())
            })
            .collect()
    };
    let edge_rows = match optional("edge_labels")? {
        Some((_, labels)) if edge_features => {
            Some(one_hot(&file("edge_labels"), &labels, edges.len() / 2)?)
        }
        _ => None,
    };
    let mut batches = Vec::with_capacity(graphs);
    for (g, (sources, targets, numbers)) in of_graph.iter().enumerate() {
        let range = first[g]..first[g + 1];
        let built = Graph::build(range.len(), sources, targets, EdgeRules::drop())?;
        let mut batch = GraphBatch::dense(Arc::new(built.graph), width, rows(range))?;
        if let Some((w, values)) = &edge_rows {
            let kept = built.kept.iter().map(|&k| numbers[k as usize] as usize);
            let values: Vec<f32> = kept
                .flat_map(|e| values[e * w..(e + 1) * w].to_vec())
                .collect();
            batch = batch.with_edge_features(*w, &values)?;
        }
        batches.push(batch);
    }
    if let Some((_, labels)) = optional("graph_labels")? {
        check_rows(&file("graph_labels"), labels.len(), graphs)?;
        let (classes, kinds) = classes(&labels);
        return Ok(GraphSet {
            graphs: batches,
            classes,
            class_names: kinds.iter().map(f64::to_string).collect(),
            targets: Vec::new(),
            scaling: [0.0, 1.0],
            names: None,
        });
    }
    let path = file("graph_attributes");
    let (_, targets) = numbers(&path, Some(1))?;
    check_rows(&path, targets.len(), graphs)?;
    Ok(GraphSet {
        graphs: batches,
        classes: Vec::new(),
        class_names: Vec::new(),
        targets: targets.iter().map(|&t| t as f32).collect(),
        scaling: [0.0, 1.0],
        names: None,
    })
}

fn check_rows(path: &Path, got: usize, needed: usize) -> Result<()> {
    if got == needed {
        return Ok(());
    }
    Err(Error::file(
        path,
        "length",
        format!("{got} numbers, needs {needed}"),
    ))
}

fn one_hot(path: &Path, labels: &[f64], rows: usize) -> Result<(usize, Vec<f32>)> {
    check_rows(path, labels.len(), rows)?;
    let (classes, kinds) = classes(labels);
    // Labels that are all different would be as many columns as rows.
    let sizes = [("different labels", kinds.len() as u64)];
    budget::allow(&Demand::of(sizes, |[kinds]| {
        product([rows as u64, kinds, 8])
    }))
    .map_err(|e| Error::file(path, "labels", e))?;
    let mut values = vec![0.0; rows * kinds.len()];
    for (row, &class) in classes.iter().enumerate() {
        values[row * kinds.len() + class as usize] = 1.0;
    }
    Ok((kinds.len(), values))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn graphs_labels_and_features_are_read_and_mistakes_named() {
        let folder = tempfile::tempdir().unwrap();
        let write = |part: &str, text: &str| {
            std::fs::write(folder.path().join(format!("T_{part}.txt")), text).unwrap();
        };
        write("A", "1, 2\n2, 1\n3, 4\n");
        write("graph_indicator", "1\n1\n2\n2\n");
        write("graph_labels", "1\n-1\n");
        write("node_labels", "0\n5\n0\n5\n");
        write("edge_labels", "3\n3\n7\n");
        let set = read_tudataset(folder.path(), "T", true).unwrap();
        assert_eq!(set.graphs.len(), 2);
        assert_eq!(set.classes, [1, 0]);
        assert_eq!(
            crate::Batch::values(&set.graphs[1]),
            [1.0, 0.0, 0.0, 1.0, 0.0, 1.0]
        );
        let message = || {
            read_tudataset(folder.path(), "T", false)
                .unwrap_err()
                .to_string()
        };
        write("A", "1, 3\n");
        assert!(message().contains("between two graphs"));
        write("A", "1, 9\n");
        assert!(message().contains("node 9"));
        write("A", "1, 2\n");
        write("graph_labels", "1\n");
        assert!(message().contains("graph_labels"), "{}", message());
        write("graph_indicator", "1\n3\n");
        assert!(message().contains("graph 3"));
    }
}
