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

use std::collections::HashMap;
use std::path::Path;

use super::edge_list::{EdgeListFiles, edge_table, matrix};
use super::markup;
use crate::data::csv::{Kind, Reading, Table};
use crate::data::files::{list, quote};
use crate::data::npy;
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

/// How many rows, how wide, and their numbers.
type Rows = (usize, usize, Vec<f64>);

/// A column of names, or numbers of rows.
type Ids = Option<Vec<String>>;

const ID_WORDS: [&str; 9] = [
    "id", "node", "name", "key", "node_id", "nodeid", "node id", "label_id", "vertex",
];
const SOURCE_WORDS: [&str; 8] = [
    "source", "src", "from", "node1", "node_1", "u", "head", "citing",
];
const TARGET_WORDS: [&str; 8] = [
    "target", "dst", "to", "node2", "node_2", "v", "tail", "cited",
];
pub(super) const WEIGHT_WORDS: [&str; 4] = ["weight", "w", "value", "strength"];
const LABEL_WORDS: [&str; 6] = ["label", "labels", "class", "y", "target", "category"];

pub(super) fn among(words: &[&str], name: &str) -> bool {
    words.contains(&name.trim().to_lowercase().as_str())
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

/// The edges as they are written.
struct EdgeTable {
    ends: Vec<[String; 2]>,
    /// Whether all ends are whole numbers.
    numeric: bool,
    weights: Option<Vec<f32>>,
    features: Option<(usize, Vec<f32>)>,
    /// Where the rows stand, for messages.
    table: Option<(Table, usize)>,
}

impl EdgeTable {
    /// Whether the largest of the nodes' numbers is far beyond how many there are: memory for all
    /// between would be out of proportion to the file, so they become names.
    fn ids_apart(&self) -> bool {
        /// Numbers that occur nowhere are nodes without edges as long as there are not many more of
        /// them than of the others.
        const FACTOR: usize = 4;
        const FEW: usize = 1000;
        let numbers = self.ends.iter().flatten();
        let mut numbers: Vec<u64> = numbers.filter_map(|n| canonical(n).parse().ok()).collect();
        numbers.sort_unstable();
        numbers.dedup();
        let nodes = numbers.last().map_or(0, |&n| n.saturating_add(1));
        nodes > (FACTOR * numbers.len() + FEW) as u64
    }
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

fn read_edge_table(files: &EdgeListFiles, notes: &mut Vec<String>) -> Result<EdgeTable> {
    let path = &files.edges;
    if path.extension().is_some_and(|e| e == "npy") {
        let (rows, columns, values) = matrix(path)?;
        if columns != 2 && columns != 3 {
            let problem = format!("{columns} columns, needs source, target and perhaps weight");
            return Err(Error::file(path, "columns", problem));
        }
        let end = |row: usize, c: usize| values[row * columns + c].to_string();
        let weight = |row: usize| values[row * columns + 2] as f32;
        return Ok(EdgeTable {
            ends: (0..rows).map(|row| [end(row, 0), end(row, 1)]).collect(),
            numeric: true,
            weights: (columns == 3).then(|| (0..rows).map(weight).collect()),
            features: None,
            table: None,
        });
    }
    let table = edge_table(path)?;
    let header = has_header(&table);
    let names: Vec<String> = match header {
        true => (0..table.columns().len())
            .map(|c| table.cell(0, c).to_string())
            .collect(),
        false => vec![String::new(); table.columns().len()],
    };
    let roles = EdgeRoles::of(files, &names, header, notes)?;
    let first = usize::from(header);
    let rows = first..table.rows();
    let number = |row: usize, c: usize| match table.number(row, c)? {
        Some(value) => Ok(value as f32),
        None => Err(Error::file(
            path,
            table.place(row, c),
            "nothing, needs a number",
        )),
    };
    let [a, b] = roles.ends;
    let mut ends = Vec::with_capacity(table.rows());
    for row in rows.clone() {
        for c in [a, b] {
            if table.is_missing(row, c) {
                let problem = "nothing, needs a node";
                return Err(Error::file(path, table.line(row), problem));
            }
        }
        ends.push([
            table.cell(row, a).to_string(),
            table.cell(row, b).to_string(),
        ]);
    }
    // Numbers that are no nodes are slips, not names, where others are numbers.
    let is_number = |text: &String| text.parse::<f64>().is_ok();
    let numeric = ends.iter().flatten().all(is_number);
    let weights = roles.weight.map(|c| {
        rows.clone()
            .map(|row| number(row, c))
            .collect::<Result<_>>()
    });
    let mut features = Vec::new();
    for row in rows {
        for &c in &roles.features {
            features.push(number(row, c)?);
        }
    }
    Ok(EdgeTable {
        ends,
        numeric,
        weights: weights.transpose()?,
        features: (!roles.features.is_empty()).then_some((roles.features.len(), features)),
        table: Some((table, first)),
    })
}

/// Which columns of a table of edges are what.
struct EdgeRoles {
    ends: [usize; 2],
    weight: Option<usize>,
    features: Vec<usize>,
}

impl EdgeRoles {
    fn of(
        files: &EdgeListFiles,
        names: &[String],
        header: bool,
        notes: &mut Vec<String>,
    ) -> Result<Self> {
        let path = &files.edges;
        let find = |words: &[&str]| names.iter().position(|n| among(words, n));
        let column = |name: &String| {
            names.iter().position(|n| n == name).ok_or_else(|| {
                let known = list(names.iter().map(String::as_str));
                Error::file(
                    path,
                    format!("column {}", quote(name)),
                    format!("there is none; there are {known}"),
                )
            })
        };
        let ends = match (find(&SOURCE_WORDS), find(&TARGET_WORDS)) {
            (Some(a), Some(b)) => [a, b],
            _ => [0, 1],
        };
        let weight = match &files.weight {
            Some(name) => Some(column(name)?),
            None => find(&WEIGHT_WORDS)
                .or((names.len() == 3 && files.edge_features.is_empty()).then_some(2)),
        };
        let weight = weight.filter(|c| !ends.contains(c));
        let features: Vec<usize> = files
            .edge_features
            .iter()
            .map(column)
            .collect::<Result<_>>()?;
        if names.len() < 2 || (names.len() > 3 && !header) {
            let problem = format!(
                "{} columns, needs source, target and perhaps weight; more need names above them",
                names.len()
            );
            return Err(Error::file(path, "columns", problem));
        }
        let used = |c: &usize| ends.contains(c) || weight == Some(*c) || features.contains(c);
        let left: Vec<&str> = (0..names.len())
            .filter(|c| !used(c))
            .map(|c| names[c].as_str())
            .collect();
        if !left.is_empty() {
            notes.push(format!(
                "columns of {} that are not used: {} (edge_features = [\"…\"] takes numbers)",
                path.display(),
                left.join(", ")
            ));
        }
        Ok(EdgeRoles {
            ends,
            weight,
            features,
        })
    }
}

/// Whether the first line of a table of edges names its columns: words for ends of edges, or text above
/// numbers.
fn has_header(table: &Table) -> bool {
    let cells = || (0..table.columns().len()).map(|c| table.cell(0, c));
    let words = [&SOURCE_WORDS[..], &TARGET_WORDS, &WEIGHT_WORDS].concat();
    if cells().any(|cell| among(&words, cell))
        && !cells().any(|c| table.reading().number(c).is_some())
    {
        return true;
    }
    if table.rows() == 1 {
        return cells().any(|cell| table.reading().number(cell).is_none());
    }
    (0..table.columns().len()).any(|c| {
        let number = |row: usize| table.reading().number(table.cell(row, c)).is_some();
        !number(0) && (1..table.rows()).all(number)
    })
}

/// The features' rows: names where they have some, then how many, how wide, and their numbers.
fn read_features(path: &Path, notes: &mut Vec<String>) -> Result<(Ids, Rows)> {
    if path.extension().is_some_and(|e| e == "npy") {
        return Ok((None, matrix(path)?));
    }
    let table = Table::read(path, &Reading::default())?;
    let rows = 0..table.rows();
    let id = id_column(&table);
    let mut numbers = Vec::new();
    let mut texts = Vec::new();
    for c in (0..table.columns().len()).filter(|&c| Some(c) != id) {
        match (id, table.kind(c, rows.clone())) {
            // Without names of nodes every column is taken for numbers, and text is a slip.
            (Some(_), Kind::Text | Kind::Mixed { .. }) => texts.push(table.columns()[c].as_str()),
            _ => numbers.push(c),
        }
    }
    if !texts.is_empty() {
        notes.push(format!(
            "columns of text in {} that are not used: {}",
            path.display(),
            texts.join(", ")
        ));
    }
    let mut values = Vec::with_capacity(table.rows() * numbers.len());
    for row in rows.clone() {
        for &c in &numbers {
            let value = table.number(row, c)?;
            let missing = || Error::file(path, table.place(row, c), "nothing, needs a number");
            values.push(value.ok_or_else(missing)?);
        }
    }
    if numbers.is_empty() {
        return Err(Error::file(
            path,
            "columns",
            "none of numbers, needs at least one",
        ));
    }
    let ids = id.map(|c| unique_ids(&table, c)).transpose()?;
    Ok((ids, (table.rows(), numbers.len(), values)))
}

/// The column that names the rows: the first of text, or the first that is called so.
fn id_column(table: &Table) -> Option<usize> {
    if table.columns().len() < 2 {
        return None;
    }
    let called = table
        .columns()
        .iter()
        .position(|name| among(&ID_WORDS, name));
    called.or((table.kind(0, 0..table.rows()) == Kind::Text).then_some(0))
}

fn unique_ids(table: &Table, column: usize) -> Result<Vec<String>> {
    let mut seen = HashMap::new();
    let mut ids = Vec::with_capacity(table.rows());
    for row in 0..table.rows() {
        let id = canonical(table.cell(row, column));
        if let Some(before) = seen.insert(id.clone(), row) {
            let problem = format!(
                "the node {} is in {} already, needs each once",
                quote(&id),
                table.line(before)
            );
            return Err(Error::file(table.path(), table.place(row, column), problem));
        }
        ids.push(id);
    }
    Ok(ids)
}

/// 7, 7.0 and 07 are one node.
pub(super) fn canonical(text: &str) -> String {
    match text.parse::<f64>() {
        Ok(n) if n.fract() == 0.0 && n.abs() < 1e15 => (n as i64).to_string(),
        _ => text.to_string(),
    }
}

/// The labels as they are written.
pub(super) struct Labels {
    pub ids: Ids,
    /// Empty where a class is not known.
    pub texts: Vec<String>,
    pub numeric: bool,
}

pub(super) fn read_labels(path: &Path) -> Result<Labels> {
    if path.extension().is_some_and(|e| e == "npy") {
        let array = npy::read(path)?;
        if array.shape.len() != 1 && array.shape[1..] != [1] {
            return Err(Error::file(
                path,
                "shape",
                format!("{:?}, needs one class for each node", array.shape),
            ));
        }
        let texts = (0..array.len()).map(|i| array.get(i).to_string()).collect();
        return Ok(Labels {
            ids: None,
            texts,
            numeric: true,
        });
    }
    let table = Table::read(path, &Reading::default())?;
    let rows = 0..table.rows();
    let (ids, column) = match table.columns().len() {
        1 => (None, 0),
        width => {
            let called = |c: &usize| among(&LABEL_WORDS, &table.columns()[*c]);
            let id = id_column(&table).unwrap_or(0);
            let label = (0..width)
                .filter(|&c| c != id)
                .find(called)
                .unwrap_or(width - 1);
            (Some(unique_ids(&table, id)?), label)
        }
    };
    let texts: Vec<String> = rows
        .map(|row| match table.is_missing(row, column) {
            true => String::new(),
            false => table.cell(row, column).to_string(),
        })
        .collect();
    let number = |text: &String| text.is_empty() || text.parse::<f64>().is_ok();
    let numeric = texts.iter().all(number);
    // Numbers beside words are more often a slip than meant.
    let present = texts.iter().filter(|t| !t.is_empty());
    let word = texts.iter().position(|text| !number(text));
    if let (Some(row), true) = (word, present.clone().any(number)) {
        let problem = format!(
            "got {}, needs a number as other rows have, or text in all of them; nothing, or -1, \
             where a class is not known",
            quote(&texts[row])
        );
        return Err(Error::file(path, table.line(row), problem));
    }
    Ok(Labels {
        ids,
        texts,
        numeric,
    })
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::data::{Split, read_edge_list, read_unlabelled};
    use crate::graph::task::Predict;

    fn files(folder: &Path, all: [(&str, &str); 3]) -> EdgeListFiles {
        for (name, text) in all {
            std::fs::write(folder.join(name), text).unwrap();
        }
        let there = |(name, text): (&str, &str)| (!text.is_empty()).then(|| folder.join(name));
        EdgeListFiles {
            features: there(all[1]),
            labels: there(all[2]),
            predict: Predict::Nodes,
            ..EdgeListFiles::of_edges(&folder.join(all[0].0))
        }
    }

    #[test]
    fn nodes_go_by_name_and_classes_are_text() {
        let folder = tempfile::tempdir().unwrap();
        let edges = "ann,bob\nbob,cleo\ncleo,ann\n";
        let labels = "node,team\ncleo,red\nann,blue\nbob,\n";
        let own = files(
            folder.path(),
            [("e.csv", edges), ("x.csv", ""), ("y.csv", labels)],
        );
        let data = read_edge_list(&own, 0).unwrap();
        assert_eq!(data.node_names.unwrap(), ["cleo", "ann", "bob"]);
        assert_eq!(data.class_names, ["blue", "red"]);
        assert_eq!(data.classes[..2], [1, 0]);
        assert_eq!(data.split[2], Split::None);
        assert_eq!(data.batch.graph().sources(), [1, 2, 0]);
        // With features the nodes are theirs, in their order, whatever the labels' is.
        let features = "name,age,city,height\nbob,1,Rome,3\nann,4,Oslo,6\ncleo,7,Rome,9\n";
        let own = files(
            folder.path(),
            [("e.csv", edges), ("x.csv", features), ("y.csv", labels)],
        );
        let data = read_edge_list(&own, 0).unwrap();
        assert_eq!(data.batch.width(), 2);
        assert_eq!(data.classes, [0, 0, 1]);
        assert!(
            data.notes.iter().any(|n| n.contains("city")),
            "{:?}",
            data.notes
        );
        // A node that features don't have.
        let own = files(
            folder.path(),
            [
                ("e.csv", "ann,bob\nann,dan\n"),
                ("x.csv", features),
                ("y.csv", labels),
            ],
        );
        let error = read_edge_list(&own, 0).unwrap_err().to_string();
        assert!(
            error.contains("line 2") && error.contains("\"dan\""),
            "{error}"
        );
    }

    #[test]
    fn numbers_from_one_are_seen_and_said() {
        let folder = tempfile::tempdir().unwrap();
        let all = [
            ("e.csv", "1,2\n2,3\n"),
            ("x.csv", "a\n5\n6\n7\n"),
            ("y.csv", "c\n0\n1\n0\n"),
        ];
        let data = read_edge_list(&files(folder.path(), all), 0).unwrap();
        assert_eq!(data.batch.graph().sources(), [0, 1]);
        assert!(
            data.notes.iter().any(|n| n.contains("from 1 to 3")),
            "{:?}",
            data.notes
        );
    }

    #[test]
    fn weights_and_features_of_edges_go_by_the_names_of_their_columns() {
        let folder = tempfile::tempdir().unwrap();
        let edges = "since,from,to,km,lanes\n1990,a,b,3.5,2\n2000,b,c,1.5,4\n";
        let mut own = files(
            folder.path(),
            [
                ("e.csv", edges),
                ("x.csv", ""),
                ("y.csv", "id,c\na,0\nb,1\nc,1\n"),
            ],
        );
        own.weight = Some("km".into());
        own.edge_features = vec!["lanes".into(), "since".into()];
        let batch = read_unlabelled(&own).unwrap();
        assert_eq!(batch.edge_weights().unwrap(), [3.5, 1.5]);
        let data = read_edge_list(&own, 0).unwrap();
        assert_eq!(data.batch.edge_features(), [2.0, 1990.0, 4.0, 2000.0]);
        own.edge_features = vec!["lane".into()];
        let error = read_edge_list(&own, 0).unwrap_err().to_string();
        assert!(
            error.contains("\"lane\"") && error.contains("\"lanes\""),
            "{error}"
        );
    }
}
