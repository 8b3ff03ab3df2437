//! Graphs with what belongs to their nodes and edges in one file: GraphML and GML, as NetworkX, igraph,
//! Gephi and Cytoscape write them.
//!
//! A file becomes a [`Marked`]: nodes by name, edges between them, and a column of texts for every
//! attribute. Which of these are features, and which is the class, is said by the experiment.

mod gml;
mod graphml;

use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use super::edge_list::EdgeListFiles;
use super::listed::{Labels, Listed, WEIGHT_WORDS, among, canonical, place_labels};
use super::read_text;
use crate::budget::{self, Demand, product};
use crate::data::files::{list, quote};
use crate::{Error, Result};

/// A graph as its file has it.
#[derive(Debug, Default)]
pub(crate) struct Marked {
    /// Whether the file says that edges go one way.
    pub directed: bool,
    /// The nodes' names, each once.
    pub nodes: Vec<String>,
    /// What nodes have.
    pub of_nodes: Attributes,
    /// The ends of the edges, as numbers of nodes.
    pub edges: Vec<[u32; 2]>,
    /// What edges have.
    pub of_edges: Attributes,
    /// What the graph itself has.
    pub of_graph: Vec<(String, String)>,
}

/// Columns of texts by name, in the order in which they were met. A column holds the rows that have
/// the attribute: a file of many names needs no more memory than its length.
#[derive(Debug, Default)]
pub(crate) struct Attributes {
    names: Vec<String>,
    columns: HashMap<String, Column>,
}

#[derive(Debug, Default)]
struct Column {
    /// Rows in order, and their texts.
    cells: Vec<(usize, String)>,
    /// What the other rows have.
    default: Option<String>,
}

impl Attributes {
    fn column(&mut self, name: &str) -> &mut Column {
        if !self.columns.contains_key(name) {
            self.names.push(name.to_string());
        }
        self.columns.entry(name.to_string()).or_default()
    }

    fn set(&mut self, row: usize, name: &str, text: String) {
        let cells = &mut self.column(name).cells;
        match cells.binary_search_by_key(&row, |(row, _)| *row) {
            Ok(at) => cells[at].1 = text,
            Err(at) => cells.insert(at, (row, text)),
        }
    }

    fn set_default(&mut self, name: &str, text: &str) {
        self.column(name).default = Some(text.to_string());
    }

    fn forget(&mut self, name: &str) {
        self.names.retain(|n| n != name);
        self.columns.remove(name);
    }

    /// Their names.
    pub(crate) fn names(&self) -> &[String] {
        &self.names
    }

    /// The text of a row, where there is one.
    pub(crate) fn get(&self, name: &str, row: usize) -> Option<&str> {
        let column = self.columns.get(name)?;
        let text = match column.cells.binary_search_by_key(&row, |(row, _)| *row) {
            Ok(at) => Some(column.cells[at].1.as_str()),
            Err(_) => column.default.as_deref(),
        };
        text.filter(|text| !text.is_empty())
    }

    /// The texts of a column, each with how many of so many rows have it.
    pub(crate) fn counts<'a>(
        &'a self,
        name: &str,
        rows: usize,
    ) -> impl Iterator<Item = (&'a str, usize)> {
        let column = self.columns.get(name);
        let cells = column.map_or(&[][..], |column| &column.cells);
        let others = column.and_then(|column| column.default.as_deref());
        let others = others.map(|text| (text, rows.saturating_sub(cells.len())));
        let own = cells.iter().map(|(_, text)| (text.as_str(), 1));
        own.chain(others)
            .filter(|(text, rows)| !text.is_empty() && *rows > 0)
    }

    fn needed(&self, path: &Path, of: &str, name: &str) -> Result<()> {
        if self.columns.contains_key(name) {
            return Ok(());
        }
        let known = match self.names.is_empty() {
            true => "there are none at all".to_string(),
            false => format!("there are {}", list(self.names.iter().map(String::as_str))),
        };
        let place = format!("attribute {} of {of}", quote(name));
        Err(Error::file(path, place, format!("there is none; {known}")))
    }

    fn number(&self, path: &Path, of: &str, name: &str, row: usize) -> Result<f64> {
        let text = self.get(name, row);
        let number = text.and_then(number);
        number.ok_or_else(|| {
            let place = format!("attribute {} of {of} {row}", quote(name));
            let got = text.map_or("nothing".to_string(), |t| format!("got {}", quote(t)));
            Error::file(path, place, format!("{got}, needs a number"))
        })
    }
}

/// A finite number; what GraphML calls a boolean is one, too.
pub(crate) fn number(text: &str) -> Option<f64> {
    match text.trim() {
        "true" => Some(1.0),
        "false" => Some(0.0),
        text => text.parse().ok().filter(|v: &f64| v.is_finite()),
    }
}

/// Whether a file is of this kind, by its ending.
pub(crate) fn is_marked(path: &Path) -> bool {
    let ending = path.extension().map(|e| e.to_string_lossy().to_lowercase());
    ending.is_some_and(|e| e == "graphml" || e == "gml")
}

/// Reads a graph of GraphML or GML.
pub(crate) fn read_marked(path: &Path) -> Result<Marked> {
    let text = read_text(path)?;
    match path
        .extension()
        .is_some_and(|e| e.eq_ignore_ascii_case("gml"))
    {
        true => gml::read(path, &text),
        false => graphml::read(path, &text),
    }
}

/// Which attributes of nodes are features, and how.
#[derive(Clone, Copy)]
pub(crate) struct Chosen<'a> {
    pub numbers: &'a [String],
    pub categories: &'a BTreeMap<String, Vec<String>>,
}

impl Chosen<'_> {
    /// How many numbers a node has.
    pub(crate) fn width(&self) -> usize {
        let of_categories = self.categories.values().map(Vec::len);
        self.numbers.len() + of_categories.sum::<usize>()
    }

    /// Numbers as they are, then a value per category: 1 at its own, 0 elsewhere, and everywhere where
    /// it is none of them.
    pub(crate) fn features(&self, path: &Path, graph: &Marked) -> Result<Vec<f64>> {
        let (rows, width) = (graph.nodes.len(), self.width());
        for name in self.numbers.iter().chain(self.categories.keys()) {
            graph.of_nodes.needed(path, "nodes", name)?;
        }
        let sizes = [("numbers of a node", width as u64)];
        budget::allow(&Demand::of(sizes, |[width]| {
            product([rows as u64, width, 16])
        }))
        .map_err(|e| Error::file(path, "features", e))?;
        let mut values = vec![0.0; rows * width];
        for row in 0..rows {
            let cells = &mut values[row * width..][..width];
            for (cell, name) in cells.iter_mut().zip(self.numbers) {
                *cell = graph.of_nodes.number(path, "node", name, row)?;
            }
            let mut first = self.numbers.len();
            for (name, known) in self.categories {
                let text = graph.of_nodes.get(name, row);
                if let Some(at) = text.and_then(|t| known.iter().position(|k| k == t)) {
                    cells[first + at] = 1.0;
                }
                first += known.len();
            }
        }
        Ok(values)
    }
}

/// What a file says, as the files of an edge list say it.
pub(super) fn read_listed(files: &EdgeListFiles, with_labels: bool) -> Result<Listed> {
    let path = &files.edges;
    for (name, given) in [("features", &files.features), ("labels", &files.labels)] {
        if let Some(given) = given {
            let problem = format!(
                "{} besides {}, needs none: nodes of such a file have attributes; numbers = […], \
                 categories = {{ … }} and label = \"…\" name them",
                given.display(),
                path.display()
            );
            return Err(Error::refused(format!("[data] {name}"), problem));
        }
    }
    let graph = read_marked(path)?;
    let mut listed = Listed {
        nodes: Some(graph.nodes.len()),
        undirected: !graph.directed,
        ..Listed::default()
    };
    let weight = match &files.weight {
        Some(name) => Some(name.clone()),
        None => {
            let mut names = graph.of_edges.names().iter();
            names.find(|name| among(&WEIGHT_WORDS, name)).cloned()
        }
    };
    let rows = 0..graph.edges.len();
    for name in weight.iter().chain(&files.edge_features) {
        graph.of_edges.needed(path, "edges", name)?;
    }
    let number = |name: &String, row| -> Result<f32> {
        Ok(graph.of_edges.number(path, "edge", name, row)? as f32)
    };
    if let Some(name) = weight {
        let weights: Result<_> = rows.clone().map(|row| number(&name, row)).collect();
        listed.weights = Some(weights?);
    }
    if !files.edge_features.is_empty() {
        let mut values = Vec::new();
        for row in rows {
            for name in &files.edge_features {
                values.push(number(name, row)?);
            }
        }
        listed.edge_features = Some((files.edge_features.len(), values));
    }
    let chosen = files.chosen();
    if chosen.width() > 0 {
        listed.features = Some((chosen.width(), chosen.features(path, &graph)?));
    }
    (listed.sources, listed.targets) = graph.edges.iter().map(|&[a, b]| (a, b)).unzip();
    listed.names = Some(graph.nodes.clone());
    if with_labels && let Some(name) = &files.label {
        graph.of_nodes.needed(path, "nodes", name)?;
        let nodes = graph.nodes.len();
        let text = |row| {
            graph
                .of_nodes
                .get(name, row)
                .unwrap_or_default()
                .to_string()
        };
        let texts: Vec<String> = (0..nodes).map(text).collect();
        let is_number = |text: &String| text.is_empty() || text.parse::<f64>().is_ok();
        let labels = Labels {
            ids: None,
            numeric: texts.iter().all(is_number),
            texts,
        };
        listed.classes = Some(place_labels(&listed, path, files, labels, nodes)?);
    }
    Ok(listed)
}

/// Puts a graph together from what a parser met, in whatever order.
#[derive(Default)]
struct Building {
    graph: Marked,
    index: HashMap<String, u32>,
    /// The ends of edges by name, and their lines.
    edges: Vec<([String; 2], usize)>,
}

impl Building {
    /// A new node; its row.
    fn node(&mut self, path: &Path, id: &str, line: usize) -> Result<usize> {
        let row = self.graph.nodes.len();
        let id = canonical(id);
        if self.index.insert(id.clone(), row as u32).is_some() {
            let problem = format!("the node {} is there already, needs each once", quote(&id));
            return Err(Error::file(path, super::line(line), problem));
        }
        self.graph.nodes.push(id);
        Ok(row)
    }

    /// A new edge; its row.
    fn edge(&mut self, ends: [String; 2], line: usize) -> usize {
        self.edges.push((ends, line));
        self.edges.len() - 1
    }

    fn end(mut self, path: &Path) -> Result<Marked> {
        for (ends, line) in &self.edges {
            let mut numbers = [0; 2];
            for (number, end) in numbers.iter_mut().zip(ends) {
                *number = *self.index.get(&canonical(end)).ok_or_else(|| {
                    let problem = format!("the node {} is none of the graph's", quote(end));
                    Error::file(path, super::line(*line), problem)
                })?;
            }
            self.graph.edges.push(numbers);
        }
        Ok(self.graph)
    }
}

/// A text with its entities replaced: `&lt;` and others, `&#955;`, `&#x3bb;`. `None` for one that is
/// not known.
fn unescape(text: &str) -> Option<String> {
    if !text.contains('&') {
        return Some(text.to_string());
    }
    let mut plain = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('&') {
        plain.push_str(&rest[..at]);
        let end = rest[at..].find(';')? + at;
        let name = &rest[at + 1..end];
        plain.push(match name {
            "lt" => '<',
            "gt" => '>',
            "amp" => '&',
            "quot" => '"',
            "apos" => '\'',
            _ => {
                let digits = name.strip_prefix('#')?;
                let code = match digits.strip_prefix(['x', 'X']) {
                    Some(hex) => u32::from_str_radix(hex, 16).ok()?,
                    None => digits.parse().ok()?,
                };
                char::from_u32(code)?
            }
        });
        rest = &rest[end + 1..];
    }
    plain.push_str(rest);
    Some(plain)
}

#[cfg(test)]
mod tests;
