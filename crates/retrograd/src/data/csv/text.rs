//! Text to records and back.

use std::io::Write;
use std::path::Path;

use super::super::files;
use crate::{Error, Result};

/// The separator that occurs most often in the first line that isn't empty, outside of quotes; blanks
/// where none does and the first two lines have as many words.
pub(super) fn detect(content: &str, decimal: char) -> char {
    const CANDIDATES: [char; 4] = [',', ';', '\t', '|'];
    let mut counts = [0; CANDIDATES.len()];
    let mut quoted = false;
    for c in content.trim_start_matches(['\r', '\n']).chars() {
        match c {
            '"' => quoted = !quoted,
            '\r' | '\n' if !quoted => break,
            _ if !quoted => {
                if let Some(i) = CANDIDATES.iter().position(|&s| s == c) {
                    counts[i] += 1;
                }
            }
            _ => {}
        }
    }
    let candidates = CANDIDATES.iter().zip(counts);
    let (mut best, mut most) = (if decimal == ',' { ';' } else { ',' }, 0);
    for (&candidate, count) in candidates.filter(|(c, _)| **c != decimal) {
        if count > most {
            (best, most) = (candidate, count);
        }
    }
    if most == 0 && blanks_separate(content) {
        return ' ';
    }
    best
}

/// Whether the first two records have as many words, more than one.
fn blanks_separate(content: &str) -> bool {
    let mut rows = Rows::new(content, b' ');
    let mut ends = Vec::new();
    let mut words = || match rows.next(&mut ends) {
        Ok(Some(_)) => ends.len(),
        _ => 0,
    };
    let first = words();
    first > 1 && words() == first
}

/// The records of a text, one by one. Where the separator is a blank, any number of them is one.
pub(super) struct Rows<'a> {
    content: &'a str,
    at: usize,
    line: usize,
    separator: u8,
}

/// Where a record is.
pub(super) struct Record {
    /// Its line, counted from 1.
    pub line: usize,
    /// Its first byte.
    pub start: usize,
    /// The fields with quotes inside, as they are meant.
    pub unescaped: Vec<(usize, String)>,
}

/// The line, the field (counted from 1) and what is wrong there.
pub(super) type Problem = (usize, usize, String);

impl<'a> Rows<'a> {
    pub(super) fn new(content: &'a str, separator: u8) -> Self {
        Rows {
            content,
            at: 0,
            line: 1,
            separator,
        }
    }

    fn peek(&self) -> Option<u8> {
        self.content.as_bytes().get(self.at).copied()
    }

    /// Passes a line break, if one is here.
    fn line_break(&mut self) -> bool {
        let rest = &self.content.as_bytes()[self.at..];
        let length = match rest {
            [b'\r', b'\n', ..] => 2,
            [b'\r' | b'\n', ..] => 1,
            _ => return false,
        };
        self.at += length;
        self.line += 1;
        true
    }

    fn skip_blanks(&mut self) {
        while let Some(b' ' | b'\t') = self.peek()
            && (self.separator == b' ' || self.peek() != Some(self.separator))
        {
            self.at += 1;
        }
    }

    /// Finds the ends of the next record's fields; none at the end.
    pub(super) fn next(&mut self, ends: &mut Vec<usize>) -> Result<Option<Record>, Problem> {
        loop {
            ends.clear();
            while self.line_break() {}
            if self.separator == b' ' {
                self.skip_blanks();
                if self.line_break() {
                    continue;
                }
            }
            if self.peek().is_none() {
                return Ok(None);
            }
            let mut record = Record {
                line: self.line,
                start: self.at,
                unescaped: Vec::new(),
            };
            let mut quoted_any = false;
            loop {
                quoted_any |= self.field(ends.len() + 1, &mut record.unescaped)?;
                ends.push(self.at);
                if !self.pass_separator() {
                    break;
                }
            }
            // A line of blanks alone is no record.
            let blank = ends.len() == 1
                && !quoted_any
                && self.content[record.start..self.at].trim().is_empty();
            // The end of the record: a line break or the end of the file.
            self.line_break();
            if !blank {
                return Ok(Some(record));
            }
        }
    }

    /// Passes what is between two fields; false at the end of a record.
    fn pass_separator(&mut self) -> bool {
        if self.separator != b' ' {
            let here = self.peek() == Some(self.separator);
            self.at += usize::from(here);
            return here;
        }
        self.skip_blanks();
        !matches!(self.peek(), None | Some(b'\r' | b'\n'))
    }

    /// Passes one field up to a separator, a line break or the end; whether it was quoted.
    fn field(
        &mut self,
        number: usize,
        unescaped: &mut Vec<(usize, String)>,
    ) -> Result<bool, Problem> {
        if matches!(self.peek(), Some(b' ' | b'\t')) {
            self.skip_blanks();
        }
        if self.peek() != Some(b'"') {
            let rest = &self.content.as_bytes()[self.at..];
            let (separator, blanks) = (self.separator, self.separator == b' ');
            let ends =
                |&b: &u8| b == separator || b == b'\n' || b == b'\r' || (blanks && b == b'\t');
            self.at += rest.iter().position(ends).unwrap_or(rest.len());
            return Ok(false);
        }
        let opened = self.line;
        self.at += 1;
        let mut text = String::new();
        loop {
            let rest = &self.content[self.at..];
            let Some(end) = rest.find('"') else {
                let problem = "the quote that opens here is never closed; needs a second one";
                return Err((opened, number, problem.into()));
            };
            let inside = &rest[..end];
            self.at += end + 1;
            // CR LF counts once, a lone CR too.
            let breaks = inside.matches('\n').count() + inside.matches('\r').count()
                - inside.matches("\r\n").count();
            self.line += breaks;
            if self.peek() != Some(b'"') {
                if !text.is_empty() {
                    text.push_str(inside);
                    unescaped.push((number - 1, text));
                }
                break;
            }
            text.push_str(inside);
            text.push('"');
            self.at += 1;
        }
        let after = self.at;
        self.skip_blanks();
        match self.peek() {
            None | Some(b'\r' | b'\n') => Ok(true),
            Some(c) if c == self.separator => Ok(true),
            Some(_) if self.separator == b' ' && self.at > after => {
                self.at = after;
                Ok(true)
            }
            Some(_) => {
                let after: String = self.content[self.at..].chars().take(16).collect();
                let problem = format!(
                    "got {after:?} after a closing quote, needs the separator {:?} or the line's end (a quote inside a field is doubled)",
                    self.separator as char
                );
                Err((self.line, number, problem))
            }
        }
    }
}

/// The records of a file that we wrote, the first line among them. It is read as far as it can be:
/// a crash may have cut its last row.
pub(crate) fn records(path: &Path) -> Result<Vec<Vec<String>>> {
    let bytes = files::read(path)?;
    let content = String::from_utf8_lossy(&bytes);
    let mut rows = Rows::new(&content, b',');
    let (mut records, mut ends) = (Vec::new(), Vec::new());
    while let Ok(Some(record)) = rows.next(&mut ends) {
        let mut cells = Vec::with_capacity(ends.len());
        let mut start = record.start;
        for (field, &end) in ends.iter().enumerate() {
            let text = content[start..end].trim();
            let unescaped = record.unescaped.iter().find(|u| u.0 == field);
            cells.push(match (unescaped, text.strip_prefix('"')) {
                (Some((_, meant)), _) => meant.clone(),
                (None, Some(rest)) => rest.strip_suffix('"').unwrap_or(rest).to_string(),
                (None, None) => text.to_string(),
            });
            start = end + 1;
        }
        records.push(cells);
    }
    Ok(records)
}

/// Writes named columns of equal length, separated by commas, whole or not at all.
pub fn write(path: impl AsRef<Path>, columns: &[(String, Vec<String>)]) -> Result<()> {
    let rows = columns.first().map_or(0, |(_, cells)| cells.len());
    if let Some((name, cells)) = columns.iter().find(|(_, cells)| cells.len() != rows) {
        return Err(Error::invalid(
            format!("column {name:?} to write"),
            format!("{} cells", cells.len()),
            format!("{rows}, as the first column has"),
        ));
    }
    crate::disk::write_whole(path, |w| {
        write_row(w, columns.iter().map(|(name, _)| name))?;
        for row in 0..rows {
            write_row(w, columns.iter().map(|(_, cells)| &cells[row]))?;
        }
        Ok(())
    })
}

fn write_row<'a>(
    w: &mut dyn Write,
    cells: impl ExactSizeIterator<Item = &'a String>,
) -> std::io::Result<()> {
    let alone = cells.len() == 1;
    for (i, cell) in cells.enumerate() {
        if i > 0 {
            w.write_all(b",")?;
        }
        let special = cell.contains([',', ';', '\t', '|', '"', '\r', '\n']);
        // Blanks at the ends would be dropped, and an empty field alone on its line too.
        if special || cell.trim() != cell || (alone && cell.is_empty()) {
            write!(w, "\"{}\"", cell.replace('"', "\"\""))?;
        } else {
            w.write_all(cell.as_bytes())?;
        }
    }
    w.write_all(b"\n")
}
