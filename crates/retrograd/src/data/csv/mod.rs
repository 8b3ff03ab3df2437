//! Tables of text: comma-, semicolon-, tab- or bar-separated values.
//!
//! - The first line names the columns, unless `header` is false; then they are called `0`, `1`, ….
//!   A name that occurs twice is an error; a column without a name is kept but never an input
//!   unless asked for (it is usually a row number that another program wrote).
//! - The separator is the one of `,` `;` tab and `|` that occurs most often in the first line,
//!   outside of quotes and apart from the decimal mark, unless it is given.
//! - Fields may be quoted with `"`, a quote inside is doubled; line breaks inside quotes belong to
//!   the field. Blanks around a field are dropped, those inside quotes are kept.
//! - Where none of these separators occurs and the first two lines have as many words, blanks are
//!   the separator, any number of them.
//! - The text is UTF-8; UTF-16, and Latin-1 as Windows writes it, are seen and said; gzip is unpacked.
//! - Lines end with LF, CRLF or CR. Empty lines are skipped. A byte-order mark is skipped.
//! - Every row has as many fields as the first line: a ragged row is an error that names the line.

mod cells;
mod encoding;
mod number;
mod text;
mod words;

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::array::Array;
use super::dates::DateForm;
use super::files::{self, did_you_mean, list, quote};
use crate::math;
use crate::{Error, Result, parallel};
use cells::Cells;
use text::detect;

pub(crate) use text::records;
pub use text::write;
pub(crate) use words::{ByWord, Words};

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
    /// Whether 1,234 is one thousand and more: a comma that separates fields is no decimal mark.
    #[serde(default)]
    pub grouped: bool,
}

impl Default for Reading {
    fn default() -> Self {
        let missing = ["", "NA", "N/A", "#N/A", "NaN", "null", "None"];
        Reading {
            separator: None,
            decimal: '.',
            header: true,
            missing_values: missing.map(String::from).to_vec(),
            grouped: false,
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

    /// A cell as a number, which may be infinite; none if it is text. A sign of currency or of per
    /// cent is left off (`12 %` is 12), and so are marks between thousands.
    pub fn number(&self, cell: &str) -> Option<f64> {
        if self.decimal == '.'
            && let Some(number) = number::plain(cell)
        {
            return Some(number);
        }
        // Spelled-out NaN is a missing value or a text, never a number.
        let plain = match self.decimal {
            ',' if cell.contains('.') => None,
            ',' => cell.replacen(',', ".", 1).parse::<f64>().ok(),
            _ => cell.parse::<f64>().ok(),
        };
        match plain {
            Some(number) => (!number.is_nan()).then_some(number),
            None => number::decorated(cell, self.decimal, self.grouped),
        }
    }
}

/// A separator as a message names it.
pub(crate) fn separator_words(separator: char) -> String {
    match separator {
        ' ' => "blanks".to_string(),
        other => format!("{other:?}"),
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
    /// All rows, that of the names among them.
    cells: Arc<Cells>,
    /// Rows of names: 0 or 1.
    header_rows: usize,
    /// "line", or "row" where the table wasn't made of text.
    line_word: &'static str,
    reading: Reading,
    separator: char,
    notes: Vec<String>,
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

impl Kind {
    fn of(number_row: Option<usize>, text_row: Option<usize>) -> Self {
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
}

/// Different texts that a summary counts; one more stands for all more.
pub(crate) const MAX_DISTINCT: usize = 10_000;

/// What a column holds: enough to choose how to use it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ColumnSummary {
    /// Numbers, text, or both.
    pub kind: Kind,
    /// Cells without a value.
    pub missing: usize,
    /// Different texts among the others; 10,001 for more than 10,000.
    pub distinct: usize,
    /// The smallest and the largest number, where there are numbers.
    pub range: Option<(f64, f64)>,
}

/// The bytes that a missing value may begin with: most cells are none by their first.
struct Beginnings([bool; 256]);

impl Beginnings {
    fn of(reading: &Reading) -> Self {
        let mut first = [false; 256];
        for byte in reading
            .missing_values
            .iter()
            .filter_map(|m| m.bytes().next())
        {
            first[usize::from(byte.to_ascii_lowercase())] = true;
            first[usize::from(byte.to_ascii_uppercase())] = true;
        }
        Beginnings(first)
    }

    /// Whether a cell may be missing.
    fn has(&self, cell: &str) -> bool {
        let first = cell.as_bytes().first();
        first.is_none_or(|&byte| self.0[usize::from(byte)])
    }
}

/// A summary on its way.
#[derive(Default)]
struct Looking<'t> {
    number_row: Option<usize>,
    text_row: Option<usize>,
    missing: usize,
    seen: Words<'t>,
    before: &'t str,
    range: Option<(f64, f64)>,
}

impl<'t> Looking<'t> {
    fn add(&mut self, row: usize, cell: &'t str, reading: &Reading, missing: &Beginnings) {
        if missing.has(cell) && reading.is_missing(cell) {
            self.missing += 1;
            return;
        }
        if self.seen.len() <= MAX_DISTINCT && cell != self.before {
            self.seen.insert(cell);
            self.before = cell;
        }
        match reading.number(cell) {
            Some(number) => {
                self.number_row.get_or_insert(row);
                let (low, high) = self.range.unwrap_or((number, number));
                self.range = Some((math::min(low, number), math::max(high, number)));
            }
            None => {
                self.text_row.get_or_insert(row);
            }
        }
    }

    /// Takes over what was seen of the column in rows that follow.
    fn merge(&mut self, after: Looking<'t>) {
        self.number_row = self.number_row.or(after.number_row);
        self.text_row = self.text_row.or(after.text_row);
        self.missing += after.missing;
        if after.seen.len() > self.seen.len() {
            let fewer = std::mem::replace(&mut self.seen, after.seen);
            self.seen_more(fewer);
        } else {
            self.seen_more(after.seen);
        }
        self.range = match (self.range, after.range) {
            (Some(a), Some(b)) => Some((math::min(a.0, b.0), math::max(a.1, b.1))),
            (a, b) => a.or(b),
        };
    }

    /// More texts, as far as they are counted.
    fn seen_more(&mut self, texts: Words<'t>) {
        let mut texts = texts.into_iter();
        while self.seen.len() <= MAX_DISTINCT
            && let Some(text) = texts.next()
        {
            self.seen.insert(text);
        }
    }

    fn summary(&self) -> ColumnSummary {
        ColumnSummary {
            kind: Kind::of(self.number_row, self.text_row),
            missing: self.missing,
            distinct: self.seen.len(),
            range: self.range,
        }
    }
}

impl Table {
    /// Reads a table: text in UTF-8, UTF-16 or Latin-1, plain or gzip; from standard input where
    /// the path is `-`.
    pub fn read(path: impl AsRef<Path>, reading: &Reading) -> Result<Self> {
        let path = path.as_ref();
        let bytes = match path == Path::new("-") {
            true => files::read_stdin()?,
            false => files::read(path)?,
        };
        Self::of_bytes(path, bytes, reading)
    }

    /// Reads a table's bytes; `path` is for messages.
    pub fn decode(path: &Path, bytes: &[u8], reading: &Reading) -> Result<Self> {
        Self::of_bytes(path, bytes.to_vec(), reading)
    }

    fn of_bytes(path: &Path, bytes: Vec<u8>, reading: &Reading) -> Result<Self> {
        reading.check()?;
        let mut notes = Vec::new();
        let content = encoding::text(path, bytes, &mut notes)?;
        let found = || detect(&content, reading.decimal);
        let separator = reading.separator.unwrap_or_else(found);
        let cells = Cells::find(content, separator as u8)
            .map_err(|(at, problem)| Error::file(path, at, problem))?;
        if cells.rows() == 0 {
            let problem = "every line of the file is empty, needs a table";
            return Err(Error::file(path, "line 1", problem));
        }
        let table = Table {
            path: path.to_path_buf(),
            columns: Vec::new(),
            by_name: Vec::new(),
            cells: Arc::new(cells),
            header_rows: 0,
            line_word: "line",
            reading: reading.clone(),
            separator,
            notes,
        };
        table.named(reading)
    }

    /// The same text understood in another way, read again only where its separator is another.
    pub(crate) fn understood(&self, reading: &Reading) -> Result<Self> {
        reading.check()?;
        let given = reading.separator.unwrap_or(self.separator);
        if given != self.separator || reading.decimal == self.separator {
            return Self::read(&self.path, reading);
        }
        self.clone().named(reading)
    }

    /// With the names of its columns, from the first row or by their numbers.
    fn named(mut self, reading: &Reading) -> Result<Self> {
        let width = self.cells.width();
        self.header_rows = usize::from(reading.header);
        self.reading = reading.clone();
        // A comma that doesn't separate fields separates thousands.
        self.reading.grouped = self.separator == ',' && reading.decimal == '.';
        self.columns = match reading.header {
            true => (0..width)
                .map(|c| self.cells.cell(0, c).trim().into())
                .collect(),
            false => (0..width).map(|c| c.to_string()).collect(),
        };
        self.by_name = sorted(&self.columns);
        let first_line = self.cells.line(0);
        if reading.header {
            self.check_header(first_line)?;
        }
        if self.rows() == 0 {
            let problem = "there are no rows below the names of the columns, needs at least one";
            let at = format!("line {first_line}");
            return Err(Error::file(&self.path, at, problem));
        }
        Ok(self)
    }

    /// What was found out about the text, to be said.
    pub fn notes(&self) -> &[String] {
        &self.notes
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
        cell: impl FnMut(usize, usize) -> String,
    ) -> Self {
        Table {
            path: path.to_path_buf(),
            by_name: sorted(&columns),
            cells: Arc::new(Cells::of(columns.len(), rows, cell)),
            columns,
            header_rows: 0,
            line_word: "row",
            // Only what can't be a number of any kind is missing.
            reading: Reading {
                missing_values: vec![String::new()],
                ..Reading::default()
            },
            separator: ',',
            notes: Vec::new(),
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
        self.cells.rows() - self.header_rows
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
        self.cells.cell(row + self.header_rows, column)
    }

    /// Whether a cell holds no value.
    pub fn is_missing(&self, row: usize, column: usize) -> bool {
        self.reading.is_missing(self.cell(row, column))
    }

    /// Where a row stands in the file, for messages and reports: `line 7`.
    pub fn line(&self, row: usize) -> String {
        let line = match self.line_word {
            "row" => row,
            _ => self.cells.line(row + self.header_rows),
        };
        format!("{} {line}", self.line_word)
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
        Kind::of(number_row, text_row)
    }

    /// What a column holds, over all rows.
    pub fn summary(&self, column: usize) -> ColumnSummary {
        self.look(0..self.rows(), column..column + 1)[0].summary()
    }

    /// What every column holds, over all rows.
    pub(crate) fn summaries(&self) -> Vec<ColumnSummary> {
        /// Rows that a thread looks at in one go: a pass over the text is what takes time.
        const ROWS: usize = 1 << 18;
        /// Columns, where there are many.
        const COLUMNS: usize = 1 << 10;
        let (rows, columns) = (self.rows(), self.columns.len());
        let across = columns.div_ceil(COLUMNS).max(1);
        let mut found: Vec<Vec<Looking<'_>>> = Vec::new();
        found.resize_with(rows.div_ceil(ROWS).max(1) * across, Vec::new);
        let much = rows * columns > 1 << 16;
        parallel::for_each_mut(&mut found, much, |i, found| {
            let (first, left) = (i / across * ROWS, i % across * COLUMNS);
            *found = self.look(
                first..rows.min(first + ROWS),
                left..columns.min(left + COLUMNS),
            );
        });
        let mut found = found.into_iter();
        let mut whole: Vec<Looking<'_>> = found.by_ref().take(across).flatten().collect();
        while let Some(first) = found.next() {
            let others = found.by_ref().take(across - 1).flatten();
            for (column, after) in whole.iter_mut().zip(first.into_iter().chain(others)) {
                column.merge(after);
            }
        }
        whole.iter().map(Looking::summary).collect()
    }

    /// What some columns hold in some rows. Neighbours are looked at together, block by block of the
    /// rows: their cells are beside each other in memory.
    fn look(&self, rows: Range<usize>, columns: Range<usize>) -> Vec<Looking<'_>> {
        /// Rows whose text stays in a core's cache.
        const BLOCK: usize = 1024;
        let mut found: Vec<Looking<'_>> = columns.clone().map(|_| Looking::default()).collect();
        let missing = Beginnings::of(&self.reading);
        for first in rows.clone().step_by(BLOCK) {
            for (column, found) in columns.clone().zip(&mut found) {
                for row in first..rows.end.min(first + BLOCK) {
                    found.add(row, self.cell(row, column), &self.reading, &missing);
                }
            }
        }
        found
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

    /// The times of some rows: a column of numbers as it is, or of dates.
    pub(crate) fn times(&self, column: usize, rows: &[usize]) -> Result<Vec<f64>> {
        let cells = rows.iter().map(|&row| self.cell(row, column));
        let numbers: Option<Vec<f64>> = cells.clone().map(|c| self.reading.number(c)).collect();
        if let Some(numbers) = numbers {
            return Ok(numbers);
        }
        let form = DateForm::of(cells.clone());
        let needed = "a number or a date in every row, written alike";
        let bad = rows.iter().find(|&&row| {
            let cell = self.cell(row, column);
            self.reading.is_missing(cell) || DateForm::of([cell].into_iter()).is_none()
        });
        let row = *bad.or(rows.first()).unwrap_or(&0);
        let form = form.ok_or_else(|| self.bad_cell(row, column, needed))?;
        Ok(cells.filter_map(|cell| form.seconds(cell)).collect())
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
