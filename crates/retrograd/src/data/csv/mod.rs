//! Tables of text: comma-, semicolon-, tab- or bar-separated values.
//!
//! - The first line names the columns, unless `header` is false; then they are called `0`, `1`, ….
//!   A name that occurs twice is an error; a column without a name is kept but never an input
//!   unless asked for (it is usually a row number that another program wrote).
//! - The separator is the one of `,` `;` tab and `|` that occurs most often in the first line,
//!   outside of quotes and apart from the decimal mark, unless it is given.
//! - Fields may be quoted with `"`, a quote inside is doubled; line breaks inside quotes belong to
//!   the field. Blanks around a field are dropped, those inside quotes are kept.
//! - Lines end with LF, CRLF or CR. Empty lines are skipped. A byte-order mark is skipped.
//! - Every row has as many fields as the first line: a ragged row is an error that names the line.

mod text;

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::array::Array;
use super::files::{self, did_you_mean, list, quote};
use crate::{Error, Result};
use text::{Rows, detect};

pub(crate) use text::records;
pub use text::write;

/// How the text of a table is understood.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Reading {
    /// Between the fields; found out where it isn't given.
    pub separator: Option<char>,
    /// Before the fractional digits: `.` or `,`.
    pub decimal: char,
    /// Whether the first line names the columns.
    pub header: bool,
    /// Cells that hold no value, whatever the case of their letters.
    pub missing_values: Vec<String>,
}

impl Default for Reading {
    fn default() -> Self {
        let missing = ["", "NA", "N/A", "#N/A", "NaN", "null", "None"];
        Reading {
            separator: None,
            decimal: '.',
            header: true,
            missing_values: missing.map(String::from).to_vec(),
        }
    }
}

impl Reading {
    /// Whether separator and decimal mark can be used together.
    pub fn check(&self) -> Result<()> {
        if let Some(s) = self.separator
            && (!s.is_ascii() || s.is_ascii_alphanumeric() || "\"\r\n.+-".contains(s))
        {
            return Err(Error::invalid(
                "separator",
                format!("{s:?}"),
                "a single character such as \",\", \";\" or \"\\t\"",
            ));
        }
        if ![',', '.'].contains(&self.decimal) || self.separator == Some(self.decimal) {
            return Err(Error::invalid(
                "decimal",
                format!("{:?}", self.decimal),
                "\".\" or \",\", and not the separator",
            ));
        }
        Ok(())
    }

    /// Whether a cell holds no value.
    pub fn is_missing(&self, cell: &str) -> bool {
        let mut missing = self.missing_values.iter();
        missing.any(|m| m.eq_ignore_ascii_case(cell))
    }

    /// A cell as a number, which may be infinite; none if it is text.
    pub fn number(&self, cell: &str) -> Option<f64> {
        // Spelled-out NaN is a missing value or a text, never a number.
        let number: f64 = if self.decimal == ',' {
            if cell.contains('.') {
                return None;
            }
            cell.replacen(',', ".", 1).parse().ok()?
        } else {
            cell.parse().ok()?
        };
        (!number.is_nan()).then_some(number)
    }
}

/// The numbers of columns in the order of their names; of equal names the first comes first.
fn sorted(columns: &[String]) -> Vec<u32> {
    let mut order: Vec<u32> = (0..columns.len() as u32).collect();
    order.sort_by(|&a, &b| columns[a as usize].cmp(&columns[b as usize]));
    order
}

/// A table in memory: named columns, rows of text.
#[derive(Clone, Debug)]
pub struct Table {
    path: PathBuf,
    columns: Vec<String>,
    /// The columns in the order of their names: a name is found among many without looking at all.
    by_name: Vec<u32>,
    /// The text of all cells, row after row, and where each ends.
    text: String,
    ends: Vec<usize>,
    /// The line on which each row starts, counted from 1.
    lines: Vec<usize>,
    /// "line", or "row" where the table wasn't made of text.
    line_word: &'static str,
    reading: Reading,
    separator: char,
}

/// What the cells of a column are, missing ones aside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Every cell is missing.
    Empty,
    /// Every cell is a number.
    Numbers,
    /// No cell is a number.
    Text,
    /// Some are numbers, some are not.
    Mixed {
        /// The first row that holds a number.
        number_row: usize,
        /// The first row that holds text.
        text_row: usize,
    },
}

/// What a column holds: enough to choose how to use it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ColumnSummary {
    /// Numbers, text, or both.
    pub kind: Kind,
    /// Cells without a value.
    pub missing: usize,
    /// Different texts among the others.
    pub distinct: usize,
    /// The smallest and the largest number, where there are numbers.
    pub range: Option<(f64, f64)>,
}

impl Table {
    /// Reads a table.
    pub fn read(path: impl AsRef<Path>, reading: &Reading) -> Result<Self> {
        let path = path.as_ref();
        Self::decode(path, &files::read(path)?, reading)
    }

    /// Reads a table's bytes; `path` is for messages.
    pub fn decode(path: &Path, bytes: &[u8], reading: &Reading) -> Result<Self> {
        reading.check()?;
        let whole = bytes.len();
        let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
        if bytes.starts_with(&[0xff, 0xfe]) || bytes.starts_with(&[0xfe, 0xff]) {
            let problem = "the text is UTF-16, needs UTF-8: save it again with that encoding";
            return Err(Error::file(path, "byte 0", problem));
        }
        let content = std::str::from_utf8(bytes).map_err(|e| {
            let at = e.valid_up_to();
            let line = 1 + bytes[..at].iter().filter(|&&b| b == b'\n').count();
            let byte = whole - bytes.len() + at;
            Error::file(
                path,
                format!("line {line}, byte {byte}"),
                format!("got the byte {:#04x}, needs UTF-8 text", bytes[at]),
            )
        })?;
        let separator = reading
            .separator
            .unwrap_or_else(|| detect(content, reading.decimal));
        let mut rows = Rows {
            content,
            at: 0,
            line: 1,
            separator: separator as u8,
        };
        let mut table = Table {
            path: path.to_path_buf(),
            columns: Vec::new(),
            by_name: Vec::new(),
            text: String::new(),
            ends: Vec::new(),
            lines: Vec::new(),
            line_word: "line",
            reading: reading.clone(),
            separator,
        };
        let mut next = |table: &mut Table| {
            rows.next(&mut table.text, &mut table.ends)
                .map_err(|(line, field, problem)| {
                    Error::file(path, format!("line {line}, field {field}"), problem)
                })
        };
        let Some(first_line) = next(&mut table)? else {
            let problem = "every line of the file is empty, needs a table";
            return Err(Error::file(path, "line 1", problem));
        };
        let width = table.ends.len();
        if reading.header {
            table.columns = (0..width).map(|c| table.cell(0, c).trim().into()).collect();
            table.by_name = sorted(&table.columns);
            table.check_header(first_line)?;
            table.text.clear();
            table.ends.clear();
        } else {
            table.columns = (0..width).map(|c| c.to_string()).collect();
            table.by_name = sorted(&table.columns);
            table.lines.push(first_line);
        }
        loop {
            let before = table.ends.len();
            let Some(line) = next(&mut table)? else { break };
            let fields = table.ends.len() - before;
            if fields != width {
                return Err(Error::file(
                    path,
                    format!("line {line}"),
                    format!(
                        "got {fields} fields, needs {width} as in line {first_line} (separated by {separator:?})"
                    ),
                ));
            }
            table.lines.push(line);
        }
        if table.lines.is_empty() {
            let problem = "there are no rows below the names of the columns, needs at least one";
            return Err(Error::file(path, format!("line {first_line}"), problem));
        }
        Ok(table)
    }

    /// A table of an array of samples × columns; the columns are called `0`, `1`, ….
    pub fn from_array(path: &Path, array: &Array) -> Result<Self> {
        let (rows, width) = match array.shape.as_slice() {
            [rows, width] if *rows > 0 && *width > 0 => (*rows, *width),
            shape => {
                let problem = format!("got {shape:?}, needs two axes, samples and columns");
                return Err(Error::file(path, "shape", problem));
            }
        };
        let columns = (0..width).map(|c| c.to_string()).collect();
        Ok(Self::of(path, columns, rows, |row, column| {
            array.text(row * width + column)
        }))
    }

    /// A table that was not read: generated data.
    pub(crate) fn of(
        path: &Path,
        columns: Vec<String>,
        rows: usize,
        mut cell: impl FnMut(usize, usize) -> String,
    ) -> Self {
        let (mut text, mut ends) = (String::new(), Vec::new());
        for row in 0..rows {
            for column in 0..columns.len() {
                text.push_str(&cell(row, column));
                ends.push(text.len());
            }
        }
        Table {
            path: path.to_path_buf(),
            by_name: sorted(&columns),
            columns,
            text,
            ends,
            lines: (0..rows).collect(),
            line_word: "row",
            // Only what can't be a number of any kind is missing.
            reading: Reading {
                missing_values: vec![String::new()],
                ..Reading::default()
            },
            separator: ',',
        }
    }

    fn check_header(&self, line: usize) -> Result<()> {
        let name = |&c: &u32| &self.columns[c as usize];
        let pairs = self.by_name.windows(2);
        let twice = pairs.filter(|w| !name(&w[0]).is_empty() && name(&w[0]) == name(&w[1]));
        if let Some(pair) = twice.min_by_key(|w| w[1]) {
            return Err(Error::file(
                &self.path,
                format!("line {line}, fields {} and {}", pair[0] + 1, pair[1] + 1),
                format!(
                    "two columns are called {}, needs different names",
                    quote(name(&pair[0]))
                ),
            ));
        }
        let numbers: Option<Vec<f64>> = self.columns.iter().map(|n| n.parse().ok()).collect();
        if let Some(numbers) = numbers {
            // Names made by numbering are fine: 0, 1, 2 … or 1, 2, 3 ….
            let counted = |from: usize| (from..).zip(&numbers).all(|(i, &n)| n == i as f64);
            if !counted(0) && !counted(1) {
                return Err(Error::file(
                    &self.path,
                    format!("line {line}"),
                    "the names of the columns are all numbers; if this line is data, set `header = false`",
                ));
            }
        }
        Ok(())
    }

    /// Where the table came from.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The names of the columns; empty where a column has none.
    pub fn columns(&self) -> &[String] {
        &self.columns
    }

    /// The number of rows.
    pub fn rows(&self) -> usize {
        self.lines.len()
    }

    /// What was between the fields.
    pub fn separator(&self) -> char {
        self.separator
    }

    /// How the text is understood.
    pub fn reading(&self) -> &Reading {
        &self.reading
    }

    /// The text of a cell.
    pub fn cell(&self, row: usize, column: usize) -> &str {
        let i = row * self.columns.len().max(1) + column;
        // While the header itself is read there are no columns yet, and one row of cells.
        let start = if i == 0 { 0 } else { self.ends[i - 1] };
        &self.text[start..self.ends[i]]
    }

    /// Whether a cell holds no value.
    pub fn is_missing(&self, row: usize, column: usize) -> bool {
        self.reading.is_missing(self.cell(row, column))
    }

    /// Where a row stands in the file, for messages and reports: `line 7`.
    pub fn line(&self, row: usize) -> String {
        format!("{} {}", self.line_word, self.lines[row])
    }

    /// Where a cell stands, for messages: `line 7, column "age"`.
    pub fn place(&self, row: usize, column: usize) -> String {
        format!(
            "{}, column {}",
            self.line(row),
            quote(&self.columns[column])
        )
    }

    /// The number of the column of that name.
    pub fn column(&self, name: &str) -> Result<usize> {
        let column = |place: usize| self.by_name.get(place).map(|&c| c as usize);
        let place = self
            .by_name
            .partition_point(|&c| self.columns[c as usize].as_str() < name);
        let found = column(place).filter(|&c| self.columns[c] == name);
        found.ok_or_else(|| {
            let names = || self.columns.iter().map(String::as_str);
            let hint = did_you_mean(name, names());
            Error::file(
                &self.path,
                format!("column {}", quote(name)),
                format!("there is none; there are {}{hint}", list(names())),
            )
        })
    }

    /// What the cells of a column are in those rows.
    pub fn kind(&self, column: usize, rows: impl IntoIterator<Item = usize>) -> Kind {
        let (mut number_row, mut text_row) = (None, None);
        for row in rows {
            if self.is_missing(row, column) {
                continue;
            }
            match self.reading.number(self.cell(row, column)) {
                Some(_) => number_row.get_or_insert(row),
                None => text_row.get_or_insert(row),
            };
        }
        match (number_row, text_row) {
            (None, None) => Kind::Empty,
            (Some(_), None) => Kind::Numbers,
            (None, Some(_)) => Kind::Text,
            (Some(number_row), Some(text_row)) => Kind::Mixed {
                number_row,
                text_row,
            },
        }
    }

    /// What a column holds, over all rows.
    pub fn summary(&self, column: usize) -> ColumnSummary {
        let mut summary = ColumnSummary {
            kind: self.kind(column, 0..self.rows()),
            missing: 0,
            distinct: 0,
            range: None,
        };
        let mut seen = std::collections::HashSet::new();
        for row in 0..self.rows() {
            let cell = self.cell(row, column);
            if self.reading.is_missing(cell) {
                summary.missing += 1;
                continue;
            }
            seen.insert(cell);
            if let Some(number) = self.reading.number(cell) {
                let (low, high) = summary.range.unwrap_or((number, number));
                summary.range = Some((low.min(number), high.max(number)));
            }
        }
        summary.distinct = seen.len();
        summary
    }

    /// The number in a cell: none where it is missing, an error where it is text or infinite.
    pub fn number(&self, row: usize, column: usize) -> Result<Option<f64>> {
        let cell = self.cell(row, column);
        if self.reading.is_missing(cell) {
            return Ok(None);
        }
        match self.reading.number(cell) {
            Some(number) if number.is_finite() => Ok(Some(number)),
            _ => Err(self.bad_cell(row, column, "a finite number")),
        }
    }

    /// The error of a cell that holds something else than what is needed.
    pub(crate) fn bad_cell(&self, row: usize, column: usize, needed: &str) -> Error {
        let cell = self.cell(row, column);
        Error::file(
            &self.path,
            self.place(row, column),
            format!("got {}, needs {needed}", quote(cell)),
        )
    }
}
