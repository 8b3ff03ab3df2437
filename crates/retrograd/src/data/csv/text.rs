//! Text to records and back.

use std::io::Write;
use std::path::Path;

use super::super::files;
use crate::{Error, Result};

/// The separator that occurs most often in the first line that isn't empty, outside of quotes.
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
    let (mut best, mut most) = (',', None);
    for (&candidate, count) in candidates.filter(|(c, _)| **c != decimal) {
        if most.is_none_or(|m| count > m) {
            (best, most) = (candidate, Some(count));
        }
    }
    best
}

/// The records of a text, one by one.
pub(super) struct Rows<'a> {
    pub(super) content: &'a str,
    pub(super) at: usize,
    pub(super) line: usize,
    pub(super) separator: u8,
}

/// The line, the field (counted from 1) and what is wrong there.
pub(super) type Problem = (usize, usize, String);

impl Rows<'_> {
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
            && self.peek() != Some(self.separator)
        {
            self.at += 1;
        }
    }

    /// Appends the fields of the next record and returns its line; none at the end.
    pub(super) fn next(
        &mut self,
        text: &mut String,
        ends: &mut Vec<usize>,
    ) -> Result<Option<usize>, Problem> {
        loop {
            while self.line_break() {}
            if self.peek().is_none() {
                return Ok(None);
            }
            let line = self.line;
            let (text_before, ends_before) = (text.len(), ends.len());
            let mut quoted_any = false;
            loop {
                let field = ends.len() - ends_before + 1;
                quoted_any |= self.field(text, field)?;
                ends.push(text.len());
                if self.peek() != Some(self.separator) {
                    break;
                }
                self.at += 1;
            }
            // The end of the record: a line break or the end of the file.
            self.line_break();
            let blank = ends.len() - ends_before == 1 && text.len() == text_before && !quoted_any;
            if !blank {
                return Ok(Some(line));
            }
            // A line of blanks alone.
            ends.truncate(ends_before);
        }
    }

    /// Appends one field up to a separator, a line break or the end; whether it was quoted.
    fn field(&mut self, text: &mut String, number: usize) -> Result<bool, Problem> {
        self.skip_blanks();
        if self.peek() != Some(b'"') {
            let rest = &self.content[self.at..];
            let separator = self.separator as char;
            let end = rest.find([separator, '\r', '\n']).unwrap_or(rest.len());
            text.push_str(rest[..end].trim());
            self.at += end;
            return Ok(false);
        }
        let opened = self.line;
        self.at += 1;
        loop {
            let rest = &self.content[self.at..];
            let Some(end) = rest.find('"') else {
                let problem = "the quote that opens here is never closed; needs a second one";
                return Err((opened, number, problem.into()));
            };
            let inside = &rest[..end];
            text.push_str(inside);
            self.at += end + 1;
            // CR LF counts once, a lone CR too.
            let breaks = inside.matches('\n').count() + inside.matches('\r').count()
                - inside.matches("\r\n").count();
            self.line += breaks;
            if self.peek() != Some(b'"') {
                break;
            }
            text.push('"');
            self.at += 1;
        }
        self.skip_blanks();
        match self.peek() {
            None | Some(b'\r' | b'\n') => Ok(true),
            Some(c) if c == self.separator => Ok(true),
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
    let mut rows = Rows {
        content: &String::from_utf8_lossy(&bytes),
        at: 0,
        line: 1,
        separator: b',',
    };
    let (mut records, mut text, mut ends) = (Vec::new(), String::new(), Vec::new());
    while let Ok(Some(_)) = rows.next(&mut text, &mut ends) {
        let starts = std::iter::once(&0).chain(&ends);
        let cells = starts
            .zip(&ends)
            .map(|(&start, &end)| text[start..end].into());
        records.push(cells.collect());
        text.clear();
        ends.clear();
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
