//! The tables of a graph as they are written: edges, features, labels, and the columns in them.

use std::collections::HashMap;
use std::path::Path;

use crate::data::csv::{Kind, Reading, Table};
use crate::data::files::{list, quote};
use crate::data::npy;
use crate::graph::data::edge_list::{EdgeListFiles, edge_table, matrix};
use crate::{Error, Result};

/// How many rows, how wide, and their numbers.
pub(super) type Rows = (usize, usize, Vec<f64>);

/// A column of names, or numbers of rows.
pub(super) type Ids = Option<Vec<String>>;

const ID_WORDS: [&str; 9] = [
    "id", "node", "name", "key", "node_id", "nodeid", "node id", "label_id", "vertex",
];
const SOURCE_WORDS: [&str; 8] = [
    "source", "src", "from", "node1", "node_1", "u", "head", "citing",
];
const TARGET_WORDS: [&str; 8] = [
    "target", "dst", "to", "node2", "node_2", "v", "tail", "cited",
];
pub(in crate::graph::data) const WEIGHT_WORDS: [&str; 4] = ["weight", "w", "value", "strength"];
const LABEL_WORDS: [&str; 6] = ["label", "labels", "class", "y", "target", "category"];

pub(in crate::graph::data) fn among(words: &[&str], name: &str) -> bool {
    words.contains(&name.trim().to_lowercase().as_str())
}

/// The edges as they are written.
pub(super) struct EdgeTable {
    pub ends: Vec<[String; 2]>,
    /// Whether all ends are whole numbers.
    pub numeric: bool,
    pub weights: Option<Vec<f32>>,
    pub features: Option<(usize, Vec<f32>)>,
    /// Where the rows stand, for messages.
    pub table: Option<(Table, usize)>,
}

impl EdgeTable {
    /// Whether the largest of the nodes' numbers is far beyond how many there are: memory for all
    /// between would be out of proportion to the file, so they become names.
    pub fn ids_apart(&self) -> bool {
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

pub(super) fn read_edge_table(files: &EdgeListFiles, notes: &mut Vec<String>) -> Result<EdgeTable> {
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
pub(super) fn read_features(path: &Path, notes: &mut Vec<String>) -> Result<(Ids, Rows)> {
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
pub(in crate::graph::data) fn canonical(text: &str) -> String {
    match text.parse::<f64>() {
        Ok(n) if n.fract() == 0.0 && n.abs() < 1e15 => (n as i64).to_string(),
        _ => text.to_string(),
    }
}

/// The labels as they are written.
pub(in crate::graph::data) struct Labels {
    pub ids: Ids,
    /// Empty where a class is not known.
    pub texts: Vec<String>,
    pub numeric: bool,
}

pub(in crate::graph::data) fn read_labels(path: &Path) -> Result<Labels> {
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
