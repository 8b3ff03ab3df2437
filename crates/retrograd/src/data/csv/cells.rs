//! The cells of a table, without a copy of its text: where each ends, in two bytes.

use std::collections::HashMap;

use super::text::{Problem, Rows};
use crate::parallel;

/// The text of a table and where its cells are.
#[derive(Clone, Debug, Default)]
pub(super) struct Cells {
    content: String,
    /// Where each row begins.
    starts: Vec<usize>,
    /// Where the fields of a row end, counted from its beginning: a field begins one byte after the
    /// end of the one before.
    ends: Ends,
    width: usize,
    /// Quoted cells with quotes inside, by their number.
    unescaped: HashMap<usize, String>,
}

/// Places within a row: rows of more than 64 KiB take four bytes a cell.
#[derive(Clone, Debug)]
enum Ends {
    Short(Vec<u16>),
    Long(Vec<u32>),
}

impl Default for Ends {
    fn default() -> Self {
        Ends::Short(Vec::new())
    }
}

impl Ends {
    /// Appends the ends of a row; false where it is too long.
    fn push(&mut self, start: usize, ends: &[usize]) -> bool {
        let last = ends.last().map_or(0, |end| end - start);
        if let (Ends::Short(short), true) = (&*self, last > usize::from(u16::MAX)) {
            *self = Ends::Long(short.iter().map(|&e| e.into()).collect());
        }
        let fits = u32::try_from(last).is_ok();
        match self {
            Ends::Short(short) => short.extend(ends.iter().map(|end| (end - start) as u16)),
            Ends::Long(long) if fits => long.extend(ends.iter().map(|end| (end - start) as u32)),
            Ends::Long(_) => {}
        }
        fits
    }

    /// Takes over the ends of rows that follow.
    fn append(&mut self, other: &mut Ends) {
        if let (Ends::Short(short), Ends::Long(_)) = (&*self, &*other) {
            *self = Ends::Long(short.iter().map(|&e| e.into()).collect());
        }
        match (self, other) {
            (Ends::Short(all), Ends::Short(more)) => all.append(more),
            (Ends::Long(all), Ends::Long(more)) => all.append(more),
            (Ends::Long(all), Ends::Short(more)) => all.extend(more.iter().map(|&e| u32::from(e))),
            (Ends::Short(_), Ends::Long(_)) => unreachable!("made long above"),
        }
    }

    fn reserve(&mut self, more: usize) {
        match self {
            Ends::Short(short) => short.reserve_exact(more),
            Ends::Long(long) => long.reserve_exact(more),
        }
    }

    fn at(&self, i: usize) -> usize {
        match self {
            Ends::Short(short) => short[i].into(),
            Ends::Long(long) => long[i] as usize,
        }
    }
}

impl Cells {
    /// Finds the cells of a text. Every record has as many fields as the first: one that doesn't is
    /// an error that names its line.
    pub fn find(content: String, separator: u8) -> Result<Self, (String, String)> {
        let found = Self::in_pieces(&content, separator);
        let mut cells = match found {
            Some(cells) => cells,
            None => Self::within(&content, separator)?,
        };
        cells.content = content;
        Ok(cells)
    }

    /// A long text without quotes cut at line breaks, its pieces looked at side by side; nothing where
    /// one of them is wrong: the whole, in order, says how.
    fn in_pieces(content: &str, separator: u8) -> Option<Self> {
        if content.len() < 2 * PIECE || content.as_bytes().contains(&b'"') {
            return None;
        }
        let mut pieces = Vec::new();
        let mut from = 0;
        while from < content.len() {
            let rest = &content.as_bytes()[from..];
            let after = rest.iter().skip(PIECE).position(|&b| b == b'\n');
            let to = after.map_or(content.len(), |at| from + PIECE + at + 1);
            pieces.push((from, &content[from..to], None));
            from = to;
        }
        parallel::for_each_mut(&mut pieces, true, |_, (_, text, found)| {
            *found = Self::within(text, separator).ok();
        });
        let mut all = Cells::default();
        let rows = pieces
            .iter()
            .filter_map(|(.., found)| Some(found.as_ref()?.rows()));
        let rows: usize = rows.sum();
        for (from, _, found) in pieces {
            let mut piece = found?;
            if all.starts.is_empty() {
                all.width = piece.width;
                all.starts.reserve_exact(rows);
                all.ends.reserve(rows * piece.width);
            } else if piece.rows() > 0 && piece.width != all.width {
                return None;
            }
            all.starts
                .extend(piece.starts.iter().map(|start| start + from));
            all.ends.append(&mut piece.ends);
        }
        Some(all)
    }

    /// The places of a text's cells, without the text.
    fn within(content: &str, separator: u8) -> Result<Self, (String, String)> {
        let mut cells = Cells::default();
        let mut rows = Rows::new(content, separator);
        let mut ends = Vec::new();
        let mut first_line = 1;
        let place =
            |(line, field, problem): Problem| (format!("line {line}, field {field}"), problem);
        while let Some(record) = rows.next(&mut ends).map_err(place)? {
            if cells.starts.is_empty() {
                (cells.width, first_line) = (ends.len(), record.line);
            } else if ends.len() != cells.width {
                let problem = format!(
                    "got {} fields, needs {} as in line {first_line} (separated by {})",
                    ends.len(),
                    cells.width,
                    super::separator_words(separator as char),
                );
                return Err((format!("line {}", record.line), problem));
            }
            if cells.starts.len() == ESTIMATED {
                cells.reserve(content.len(), record.start);
            }
            let number = cells.starts.len() * cells.width;
            for (field, text) in record.unescaped {
                cells.unescaped.insert(number + field, text);
            }
            if !cells.ends.push(record.start, &ends) {
                let problem = "the row has more than 4 GiB, needs less".to_string();
                return Err((format!("line {}", record.line), problem));
            }
            cells.starts.push(record.start);
        }
        Ok(cells)
    }

    /// Takes memory for as many rows as the first ones let expect, once.
    fn reserve(&mut self, length: usize, read: usize) {
        let rows = (length as f64 / read.max(1) as f64 * ESTIMATED as f64 * 1.02) as usize;
        let more = rows.saturating_sub(ESTIMATED);
        self.starts.reserve_exact(more);
        self.ends.reserve(more.saturating_mul(self.width));
    }

    /// Cells that were not read.
    pub fn of(width: usize, rows: usize, mut cell: impl FnMut(usize, usize) -> String) -> Self {
        let mut cells = Cells {
            width,
            ..Cells::default()
        };
        let mut ends = Vec::with_capacity(width);
        for row in 0..rows {
            ends.clear();
            let start = cells.content.len();
            for column in 0..width {
                cells.content.push_str(&cell(row, column));
                ends.push(cells.content.len());
                cells.content.push('\u{1f}');
            }
            cells.starts.push(start);
            let fits = cells.ends.push(start, &ends);
            debug_assert!(fits, "rows that are made are short");
        }
        cells
    }

    pub fn rows(&self) -> usize {
        self.starts.len()
    }

    pub fn width(&self) -> usize {
        self.width
    }

    /// The text of a cell: without the blanks around it and the quotes.
    pub fn cell(&self, row: usize, column: usize) -> &str {
        let i = row * self.width + column;
        let row_start = self.starts[row];
        let start = match column {
            0 => row_start,
            _ => row_start + self.ends.at(i - 1) + 1,
        };
        let end = row_start + self.ends.at(i);
        let text = self.content.get(start..end).unwrap_or("");
        // Most cells begin and end with what no trimming takes off.
        let solid = |b: Option<&u8>| b.is_some_and(|b| (b'!'..=b'~').contains(b));
        let bytes = text.as_bytes();
        let text = match solid(bytes.first()) && solid(bytes.last()) {
            true => text,
            false => text.trim(),
        };
        match text.strip_prefix('"') {
            None => text,
            Some(rest) => match self.unescaped.get(&i) {
                Some(unescaped) => unescaped,
                None => rest.strip_suffix('"').unwrap_or(rest),
            },
        }
    }

    /// The line on which a row begins, counted from 1.
    pub fn line(&self, row: usize) -> usize {
        let before = &self.content.as_bytes()[..self.starts[row]];
        let breaks = |(i, &b): (usize, &u8)| match b {
            b'\n' => true,
            b'\r' => before.get(i + 1) != Some(&b'\n'),
            _ => false,
        };
        1 + before.iter().enumerate().filter(|&x| breaks(x)).count()
    }
}

/// The bytes of a piece of a long text: a few milliseconds' work.
const PIECE: usize = 1 << 22;
/// Rows after which memory for the others is taken.
const ESTIMATED: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_of_a_long_text_give_the_cells_of_the_whole() {
        let row = |i: usize| format!("{i},{},b{}\r\n", i as f64 / 7.0, "x".repeat(i % 50));
        let mut text: String = (0..300_000).map(row).collect();
        assert!(text.len() > 2 * PIECE);
        for long in [false, true] {
            if long {
                // A row of more than 64 KiB, in the last piece alone.
                text += &format!("1,2,{}\n", "y".repeat(70_000));
            }
            let whole = Cells::within(&text, b',').unwrap();
            let pieces = Cells::in_pieces(&text, b',').unwrap();
            assert_eq!((pieces.width, &pieces.starts), (whole.width, &whole.starts));
            let at = |cells: &Cells, i: usize| cells.ends.at(i);
            let cells = whole.rows() * whole.width;
            assert!((0..cells).all(|i| at(&pieces, i) == at(&whole, i)));
        }
        // What is wrong is said by its line, wherever it stands.
        text += "1,2\n";
        let (place, problem) = Cells::find(text, b',').unwrap_err();
        assert_eq!(place, "line 300002");
        assert!(problem.contains("got 2 fields, needs 3"), "{problem}");
    }
}
