//! A graph's files as users have them: nodes by number or by name, edges with columns by name, classes
//! as numbers or as text.
//!
//! - **Edges**: two columns of nodes. Where a line of names stands above them, `source` and `target`
//!   (or `from` and `to` …) are the nodes, otherwise the first two columns.
//! - **Nodes by name**: where ends of edges are not whole numbers, or where features or labels have a
//!   column of names (its cells are text, or it is called `id`, `node` or `name`). Nodes come in the
//!   order of the features, else of the labels, then those of the edges, sorted.
//! - **Nodes by number**: rows of features and labels in order, counted from 0. Numbers from 1 to the
//!   count are seen, and said.
//! - **Classes**: numbers from 0 on, −1 where one is not known; or text, sorted, empty where one is not
//!   known.

mod tables;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::path::Path;

pub(super) use self::tables::{Labels, WEIGHT_WORDS, among, canonical, read_labels};

use self::tables::{EdgeTable, Ids, read_edge_table, read_features};
use super::edge_list::EdgeListFiles;
use super::markup;
use crate::data::files::quote;
use crate::{Error, Result};

/// What the files of a graph say.
#[derive(Debug, Default)]
pub(crate) struct Listed {
    /// The nodes' names, where they have some.
    pub names: Option<Vec<String>>,
    /// How many nodes there are, where something but the edges says so.
    pub nodes: Option<usize>,
    pub sources: Vec<u32>,
    pub targets: Vec<u32>,
    pub weights: Option<Vec<f32>>,
    /// Numbers of an edge, and all of them.
    pub edge_features: Option<(usize, Vec<f32>)>,
    /// Numbers of a node, and all of them.
    pub features: Option<(usize, Vec<f64>)>,
    /// The class of every node, where it is known, and the classes' names.
    pub classes: Option<(Vec<Option<u32>>, Vec<String>)>,
    /// Whether the file itself says that edges go both ways.
    pub undirected: bool,
    /// What was found out, to be said.
    pub notes: Vec<String>,
}

/// Reads everything that the files say.
pub(crate) fn read_listed(files: &EdgeListFiles, with_labels: bool) -> Result<Listed> {
    if markup::is_marked(&files.edges) {
        return markup::read_listed(files, with_labels);
    }
    let mut listed = Listed::default();
    let (feature_ids, features) = match &files.features {
        Some(path) => {
            let (ids, rows) = read_features(path, &mut listed.notes)?;
            (ids, Some(rows))
        }
        None => (None, None),
    };
    let labels = match &files.labels {
        Some(path) if with_labels => Some((path, read_labels(path)?)),
        _ => None,
    };
    let label_ids = labels.as_ref().and_then(|(_, l)| l.ids.as_deref());
    let edges = read_edge_table(files, &mut listed.notes)?;
    let alone = files.features.is_none() && labels.is_none();
    let by_name = feature_ids.is_some()
        || label_ids.is_some()
        || !edges.numeric
        || (alone && edges.ids_apart());
    let rows = features.as_ref().map(|f| f.0);
    if by_name {
        if let (None, Some(rows)) = (&feature_ids, rows) {
            return Err(Error::file(
                files.features.as_deref().unwrap_or(Path::new("features")),
                "columns",
                format!(
                    "{rows} rows without a column of the nodes' names, needs one called `id`, \
                         as edges or labels go by name"
                ),
            ));
        }
        listed.names = Some(order_of(&feature_ids, label_ids, &edges));
    }
    let count = match (&listed.names, rows, &labels) {
        (Some(names), ..) => Some(names.len()),
        (None, Some(rows), _) => Some(rows),
        (None, None, Some((_, labels))) => Some(labels.texts.len()),
        (None, None, None) => None,
    };
    listed.nodes = count;
    place_edges(&mut listed, files, edges)?;
    if let Some((rows, width, values)) = features {
        let nodes = count.unwrap_or(rows);
        listed.features = Some((
            width,
            place_features(&listed, files, &feature_ids, nodes, width, values)?,
        ));
    }
    if let Some((path, labels)) = labels {
        let nodes = count.unwrap_or(labels.texts.len());
        listed.classes = Some(place_labels(&listed, path, files, labels, nodes)?);
    }
    Ok(listed)
}

/// All names once: in the order of the features, of the labels, then those of the edges.
fn order_of(features: &Ids, labels: Option<&[String]>, edges: &EdgeTable) -> Vec<String> {
    let mut names: Vec<String> = features.clone().unwrap_or_default();
    // Where features name the nodes there are no others.
    if features.is_some() {
        return names;
    }
    let mut seen: std::collections::HashSet<String> = Default::default();
    for name in labels.into_iter().flatten() {
        if seen.insert(name.clone()) {
            names.push(name.clone());
        }
    }
    let ends = edges.ends.iter().flatten().map(|end| canonical(end));
    let mut others: Vec<String> = ends.filter(|name| !seen.contains(name)).collect();
    // Numbers by their value, texts by their letters.
    others.sort_by_key(|name| (name.parse::<u64>().unwrap_or(u64::MAX), name.clone()));
    others.dedup();
    names.extend(others);
    names
}

/// Pairs of nodes: a file with two columns, of names where nodes have some.
pub(crate) fn read_pairs(path: &Path, names: Option<&[String]>) -> Result<Vec<[u32; 2]>> {
    let files = EdgeListFiles::of_edges(path);
    let mut listed = Listed {
        names: names.map(<[String]>::to_vec),
        ..Listed::default()
    };
    let edges = read_edge_table(&files, &mut listed.notes)?;
    place_edges(&mut listed, &files, edges)?;
    let pairs = listed.sources.iter().zip(&listed.targets);
    Ok(pairs.map(|(&a, &b)| [a, b]).collect())
}

/// Ends of edges as numbers of nodes.
fn place_edges(listed: &mut Listed, files: &EdgeListFiles, edges: EdgeTable) -> Result<()> {
    let path = &files.edges;
    let place = |row: usize| match &edges.table {
        Some((table, first)) => table.line(first + row),
        None => format!("row {row}"),
    };
    let mut ends: Vec<[u32; 2]> = Vec::with_capacity(edges.ends.len());
    if let Some(names) = &listed.names {
        let index: HashMap<&str, u32> = names.iter().map(String::as_str).zip(0..).collect();
        for (row, pair) in edges.ends.iter().enumerate() {
            let mut numbers = [0; 2];
            for (number, text) in numbers.iter_mut().zip(pair) {
                let name = canonical(text);
                *number = *index.get(name.as_str()).ok_or_else(|| {
                    let problem = format!("the node {} is none of the graph's", quote(&name));
                    Error::file(path, place(row), problem)
                })?;
            }
            ends.push(numbers);
        }
        let note = match edges.numeric {
            true if edges.ids_apart() => format!(
                "the nodes' ids are far apart: {} of them up to {}; nodes are numbered from 0 in \
                 their order, predictions keep the ids",
                names.len(),
                names.last().map_or("", String::as_str)
            ),
            true => format!("{} nodes, known by numbers of their own", names.len()),
            false => format!("{} nodes, known by names", names.len()),
        };
        listed.notes.push(note);
    } else {
        for (row, pair) in edges.ends.iter().enumerate() {
            let mut numbers = [0; 2];
            for (number, text) in numbers.iter_mut().zip(pair) {
                let value: f64 = text.parse().unwrap_or(f64::NAN);
                if value.fract() != 0.0 || !(0.0..f64::from(u32::MAX)).contains(&value) {
                    let problem = format!("got {value}, needs a node's number, a whole number ≥ 0");
                    return Err(Error::file(path, place(row), problem));
                }
                *number = value as u32;
            }
            ends.push(numbers);
        }
        let all = || ends.iter().flatten().copied();
        let (low, high) = (all().min(), all().max());
        if let (Some(low), Some(high), Some(nodes)) = (low, high, listed.nodes)
            && low >= 1
            && high as usize == nodes
        {
            ends.iter_mut().flatten().for_each(|end| *end -= 1);
            listed.notes.push(format!(
                "nodes are numbered from 1 to {nodes}: the first row is node 1"
            ));
        }
    }
    listed.sources = ends.iter().map(|pair| pair[0]).collect();
    listed.targets = ends.iter().map(|pair| pair[1]).collect();
    listed.weights = edges.weights;
    listed.edge_features = edges.features;
    Ok(())
}

/// The features in the order of the nodes.
fn place_features(
    listed: &Listed,
    files: &EdgeListFiles,
    ids: &Ids,
    nodes: usize,
    width: usize,
    values: Vec<f64>,
) -> Result<Vec<f64>> {
    if ids.is_some() || values.len() == nodes * width {
        return Ok(values);
    }
    let path = files.features.as_deref().unwrap_or(Path::new("features"));
    let names = listed.names.as_ref().map_or("rows", |_| "names");
    let problem = format!(
        "{} rows, needs {nodes}, as many as there are {names}",
        values.len() / width.max(1)
    );
    Err(Error::file(path, "rows", problem))
}

/// The classes in the order of the nodes, and their names.
pub(super) fn place_labels(
    listed: &Listed,
    path: &Path,
    files: &EdgeListFiles,
    labels: Labels,
    nodes: usize,
) -> Result<(Vec<Option<u32>>, Vec<String>)> {
    let rows: Vec<usize> = match (&labels.ids, &listed.names) {
        (Some(ids), Some(names)) => {
            let index: HashMap<&str, usize> = names.iter().map(String::as_str).zip(0..).collect();
            let row = |id: &String| {
                index.get(id.as_str()).copied().ok_or_else(|| {
                    let problem = format!("the node {} has no row among the features", quote(id));
                    Error::file(path, "nodes", problem)
                })
            };
            ids.iter().map(row).collect::<Result<_>>()?
        }
        (Some(_), None) => unreachable!("a column of names makes nodes go by name"),
        _ => (0..labels.texts.len()).collect(),
    };
    if labels.ids.is_none() && labels.texts.len() != nodes {
        let of = match &files.features {
            Some(path) => format!(" of {}", path.display()),
            None => String::new(),
        };
        // A table's first line is its names, and names may be numbers.
        let hint = match labels.texts.len().abs_diff(nodes) {
            1 => "; the first line of a table is for the names of its columns",
            _ => "",
        };
        let problem = format!(
            "{} rows of 1, needs one class for each of the {nodes} nodes{of}{hint}",
            labels.texts.len()
        );
        return Err(Error::file(path, "shape", problem));
    }
    let mut classes = vec![None; nodes];
    let names: Vec<String> = if labels.numeric {
        let mut count = 0;
        for (&row, text) in rows.iter().zip(&labels.texts) {
            let label: f64 = if text.is_empty() {
                -1.0
            } else {
                text.parse().unwrap_or(f64::NAN)
            };
            if label.fract() != 0.0 || !(-1.0..65_536.0).contains(&label) {
                let problem =
                    format!("class {label}, needs a whole number from −1 to 65535, or text");
                return Err(Error::file(path, format!("row {row}"), problem));
            }
            if label >= 0.0 {
                classes[row] = Some(label as u32);
                count = count.max(label as usize + 1);
            }
        }
        (0..count).map(|c| c.to_string()).collect()
    } else {
        let known: std::collections::BTreeSet<&String> =
            labels.texts.iter().filter(|t| !t.is_empty()).collect();
        let index: HashMap<&String, u32> = known.iter().copied().zip(0..).collect();
        for (&row, text) in rows.iter().zip(&labels.texts) {
            classes[row] = index.get(text).copied();
        }
        known.into_iter().cloned().collect()
    };
    Ok((classes, names))
}
