//! The cells of a table, without a copy of its text: where each ends, in two bytes.

use std::collections::HashMap;

use super::text::{Problem, Rows};

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
        let mut cells = Cells::default();
        let mut rows = Rows::new(&content, separator);
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
        cells.content = content;
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

/// Rows after which memory for the others is taken.
const ESTIMATED: usize = 256;
