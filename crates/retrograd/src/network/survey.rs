//! What a table holds: how its text is read, what its columns are, and what is missing.

use std::collections::BTreeSet;
use std::path::Path;

use crate::Result;
use crate::data::csv::{ColumnSummary, Kind, MAX_DISTINCT, Reading, Table};
use crate::data::dates::DateForm;
use crate::family::draft::{counted, thousands};

/// Words that stand for a missing value where they are the only text among numbers.
const PLACEHOLDERS: [&str; 8] = ["?", "-", "--", ".", "*", "missing", "unknown", "n.a."];
/// More categories than this in one column are taken for free text.
pub(super) const MAX_CATEGORIES: usize = 256;

/// How the table's text has to be read, beyond the defaults.
#[derive(Default)]
pub(super) struct How {
    pub header: bool,
    pub decimal_comma: bool,
    pub placeholders: Vec<String>,
    pub notes: Vec<String>,
}

/// Reads a table, finding out whether it names its columns, which decimal mark it has, and which
/// word stands for a missing value.
pub(super) fn read(path: &Path, target: Option<&str>) -> Result<(Table, Vec<ColumnSummary>, How)> {
    let mut how = How::default();
    let mut reading = Reading {
        header: false,
        ..Reading::default()
    };
    let bare = Table::read(path, &reading)?;
    how.notes.extend_from_slice(bare.notes());
    how.header = has_header(&bare, target);
    reading.header = how.header;
    if !how.header {
        how.notes
            .push("the first line is data: the columns are called 0, 1, 2 …".into());
    }
    let mut table = bare.understood(&reading)?;
    drop(bare);
    if table.separator() != ',' && has_decimal_commas(&table) {
        how.decimal_comma = true;
        how.notes.push("numbers are written 1,5".into());
        reading.decimal = ',';
        table = table.understood(&reading)?;
    }
    let mut survey = table.summaries();
    for (c, summary) in survey.iter().enumerate() {
        if let Some(word) = placeholder(&table, c, summary) {
            how.notes.push(format!(
                "{word:?} is taken for a missing value, as in the column {:?}",
                table.columns()[c]
            ));
            how.placeholders.push(word);
        }
    }
    how.placeholders.sort();
    how.placeholders.dedup();
    how.notes.dedup();
    if !how.placeholders.is_empty() {
        reading.missing_values.extend(how.placeholders.clone());
        table = table.understood(&reading)?;
        survey = table.summaries();
    }
    Ok((table, survey, how))
}

/// Whether the first row of a table read without a header names the columns: it holds the target's
/// name, or no number in a column of numbers.
fn has_header(bare: &Table, target: Option<&str>) -> bool {
    let columns = 0..bare.columns().len();
    if columns.clone().any(|c| Some(bare.cell(0, c)) == target) {
        return true;
    }
    let number = |row: usize, c: usize| bare.reading().number(bare.cell(row, c)).is_some();
    let counts = |from: usize| {
        let mut cells = columns.clone().map(|c| bare.cell(0, c).to_string());
        columns
            .clone()
            .all(|c| cells.next() == Some((from + c).to_string()))
    };
    if counts(0) || counts(1) {
        return true;
    }
    !columns.clone().any(|c| {
        number(0, c) && (1..bare.rows()).all(|row| bare.is_missing(row, c) || number(row, c))
    })
}

/// Whether some column is made of numbers with a decimal comma, and none of numbers with a point.
fn has_decimal_commas(table: &Table) -> bool {
    let mut found = false;
    for c in 0..table.columns().len() {
        let mut commas = 0;
        for row in 0..table.rows() {
            let cell = table.cell(row, c);
            if table.is_missing(row, c) {
                continue;
            }
            if table.reading().number(cell).is_some() {
                if cell.contains('.') {
                    return false;
                }
            } else if cell.contains(',') && cell.replacen(',', ".", 1).parse::<f64>().is_ok() {
                commas += 1;
            } else {
                commas = 0;
                break;
            }
        }
        found |= commas > 0;
    }
    found
}

/// The only text of a column of numbers, where it is a word for "no value".
fn placeholder(table: &Table, c: usize, summary: &ColumnSummary) -> Option<String> {
    if !matches!(summary.kind, Kind::Mixed { .. }) {
        return None;
    }
    let mut words = BTreeSet::new();
    for row in 0..table.rows() {
        let cell = table.cell(row, c);
        if !table.is_missing(row, c) && table.reading().number(cell).is_none() {
            words.insert(cell);
        }
    }
    let word = words.pop_first().filter(|_| words.is_empty())?;
    let known = PLACEHOLDERS.iter().any(|p| p.eq_ignore_ascii_case(word));
    known.then(|| word.to_string())
}

/// Which columns the network sees, and why not the others.
#[derive(Default)]
pub(super) struct Columns {
    pub used: Vec<usize>,
    /// Columns of numbers and text, as categories.
    pub categories: Vec<String>,
    /// Names with reasons.
    pub ignored: Vec<(String, String)>,
    /// Dates, with how they are written.
    pub dates: Vec<(String, DateForm)>,
    nameless: usize,
}

impl Columns {
    pub fn of(table: &Table, survey: &[ColumnSummary], target: usize) -> Self {
        let mut columns = Columns::default();
        for (c, name) in table.columns().iter().enumerate() {
            if c == target {
                continue;
            }
            if name.is_empty() {
                columns.nameless += 1;
                continue;
            }
            let summary = &survey[c];
            let present = table.rows() - summary.missing;
            let text = !matches!(summary.kind, Kind::Numbers);
            let date = match summary.kind {
                Kind::Text => date_form(table, c),
                _ => None,
            };
            let why = if summary.kind == Kind::Empty {
                "has no value in any row".to_string()
            } else if summary.distinct == 1 {
                "is the same in every row".to_string()
            } else if let Some(form) = date {
                columns.dates.push((name.clone(), form));
                columns.used.push(c);
                continue;
            } else if text && summary.distinct > MAX_CATEGORIES {
                format!("{} different texts are too many categories", many(summary))
            } else if text && summary.distinct * 2 > present {
                format!(
                    "{} different texts in {} rows name rather than describe",
                    summary.distinct, present
                )
            } else if text && words(table, c) >= FREE_TEXT {
                "is free text, of several words a cell".to_string()
            } else if let (false, Some(why)) = (text, counts_rows(table, c, name)) {
                why.to_string()
            } else {
                if matches!(summary.kind, Kind::Mixed { .. }) {
                    columns.categories.push(name.clone());
                }
                columns.used.push(c);
                continue;
            };
            columns.ignored.push((name.clone(), why));
        }
        columns
    }

    pub fn reasons(&self) -> Vec<String> {
        let named = self.ignored.iter();
        let mut reasons: Vec<String> = named.map(|(name, why)| format!("{name}: {why}")).collect();
        if self.nameless > 0 {
            reasons.push(format!(
                "{} without a name",
                counted(self.nameless, "column")
            ));
        }
        reasons
    }
}

/// How a column of text is written where all of it are dates.
fn date_form(table: &Table, c: usize) -> Option<DateForm> {
    let cells = (0..table.rows()).map(|row| table.cell(row, c));
    DateForm::of(cells.filter(|cell| !table.reading().is_missing(cell)))
}

/// A count of different texts, for a sentence.
fn many(summary: &ColumnSummary) -> String {
    match summary.distinct > MAX_DISTINCT {
        true => format!("more than {}", thousands(MAX_DISTINCT)),
        false => thousands(summary.distinct),
    }
}

/// Words in a cell above which a text is written to be read.
const FREE_TEXT: usize = 5;

/// Words in a cell, on average over some rows.
fn words(table: &Table, c: usize) -> usize {
    const LOOKED_AT: usize = 1000;
    let rows = table.rows().min(LOOKED_AT);
    let words = |row| table.cell(row, c).split_whitespace().count();
    (0..rows).map(words).sum::<usize>() / rows.max(1)
}

/// Whether a column of numbers is a row number, or says that it is an identifier and never repeats.
fn counts_rows(table: &Table, c: usize, name: &str) -> Option<&'static str> {
    let mut seen = std::collections::HashSet::new();
    let mut consecutive = true;
    let says_so = is_named_id(name);
    let mut before: Option<f64> = None;
    for row in 0..table.rows() {
        let value = table.reading().number(table.cell(row, c))?;
        consecutive &= before.is_none_or(|b| value == b + 1.0);
        let new = !says_so || seen.insert(value.to_bits());
        if value.fract() != 0.0 || !new || !(consecutive || says_so) {
            return None;
        }
        before = Some(value);
    }
    Some(match consecutive {
        true => "numbers the rows",
        false => "identifies the rows",
    })
}

/// Whether one of the words of a name, in `snake_case` or `camelCase`, says that it identifies.
fn is_named_id(name: &str) -> bool {
    const WORDS: [&str; 10] = [
        "id", "ids", "index", "row", "number", "no", "nr", "key", "uuid", "guid",
    ];
    let mut words = vec![String::new()];
    let mut before = ' ';
    for c in name.chars() {
        // PassengerId and customerID: a capital after a small letter begins a word.
        if !c.is_alphanumeric() || (c.is_uppercase() && before.is_lowercase()) {
            words.push(String::new());
        }
        if c.is_alphanumeric() {
            words.last_mut().expect("one").extend(c.to_lowercase());
        }
        before = c;
    }
    words.iter().any(|word| WORDS.contains(&word.as_str()))
}

/// Missing cells of the columns in use.
pub(super) struct Gaps {
    cells: usize,
    rows: usize,
    in_target: usize,
}

impl Gaps {
    pub fn of(table: &Table, survey: &[ColumnSummary], target: usize, used: &[usize]) -> Self {
        let mut gaps = Gaps {
            cells: 0,
            rows: 0,
            in_target: survey[target].missing,
        };
        if used.iter().all(|&c| survey[c].missing == 0) {
            return gaps;
        }
        for row in 0..table.rows() {
            let here = used.iter().filter(|&&c| table.is_missing(row, c)).count();
            gaps.cells += here;
            gaps.rows += usize::from(here > 0);
        }
        gaps
    }

    /// `missing` in the file, and why.
    pub fn rule(&self) -> Option<(&'static str, String)> {
        if self.in_target > 0 {
            let and = match self.rows {
                0 => String::new(),
                rows => format!(", and {} that lack an input", counted(rows, "row")),
            };
            return Some((
                "drop",
                format!(
                    "left out: {} without a value to predict{and}",
                    counted(self.in_target, "row")
                ),
            ));
        }
        (self.cells > 0).then(|| {
            (
                "mean",
                format!(
                    "{} in {}: a number becomes the mean, a category the most frequent one",
                    counted(self.cells, "empty cell"),
                    counted(self.rows, "row")
                ),
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_identify_are_seen_in_every_spelling() {
        for name in [
            "id",
            "PassengerId",
            "customerID",
            "row_number",
            "Case No",
            "UUID",
        ] {
            assert!(is_named_id(name), "{name}");
        }
        for name in ["width", "idle", "Video", "humidity", "notes", "keyboard"] {
            assert!(!is_named_id(name), "{name}");
        }
    }
}
