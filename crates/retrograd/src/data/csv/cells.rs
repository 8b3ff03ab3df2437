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

    /// All of them, to be written.
    fn slice(&mut self) -> EndsMut<'_> {
        match self {
            Ends::Short(short) => EndsMut::Short(short),
            Ends::Long(long) => EndsMut::Long(long),
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

/// Places to be written.
enum EndsMut<'a> {
    Short(&'a mut [u16]),
    Long(&'a mut [u32]),
}

impl<'a> EndsMut<'a> {
    fn split_at(self, at: usize) -> (EndsMut<'a>, EndsMut<'a>) {
        match self {
            EndsMut::Short(short) => {
                let (own, rest) = short.split_at_mut(at);
                (EndsMut::Short(own), EndsMut::Short(rest))
            }
            EndsMut::Long(long) => {
                let (own, rest) = long.split_at_mut(at);
                (EndsMut::Long(own), EndsMut::Long(rest))
            }
        }
    }

    /// Writes as many places; short ones fit into long ones.
    fn fill(&mut self, from: &Ends) {
        match (self, from) {
            (EndsMut::Short(own), Ends::Short(short)) => own.copy_from_slice(short),
            (EndsMut::Long(own), Ends::Long(long)) => own.copy_from_slice(long),
            (EndsMut::Long(own), Ends::Short(short)) => {
                for (own, &end) in own.iter_mut().zip(short) {
                    *own = end.into();
                }
            }
            (EndsMut::Short(_), Ends::Long(_)) => unreachable!("long where one of them is"),
        }
    }
}

/// Where separators and line breaks are among eight bytes: the highest bit of each.
fn marks(eight: [u8; 8], separator: u8) -> u64 {
    const LOW: u64 = u64::from_le_bytes([0x7f; 8]);
    let word = u64::from_le_bytes(eight);
    // x is 0 where a byte is the one looked for, and only there no bit is carried or set.
    let differs = |byte: u8| {
        let x = word ^ u64::from_le_bytes([byte; 8]);
        ((x & LOW) + LOW) | x
    };
    !(differs(separator) & differs(b'\n') & differs(b'\r')) & !LOW
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
        // Where there are quotes there is usually one at the beginning.
        let quoted = |bytes: &[u8]| bytes.contains(&b'"');
        let first = content.as_bytes().get(..2 * PIECE)?;
        if separator == b' ' || quoted(&first[..PIECE]) {
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
            *found = Self::within_plain(text, separator).filter(|_| !quoted(text.as_bytes()));
        });
        let pieces: Vec<(usize, Cells)> = pieces
            .into_iter()
            .map(|(from, _, found)| Some((from, found?)))
            .collect::<Option<_>>()?;
        Self::joined(pieces)
    }

    /// Pieces of one text, each with its first byte, put together; nothing where their rows differ in
    /// their width.
    fn joined(pieces: Vec<(usize, Cells)>) -> Option<Self> {
        let filled = || pieces.iter().filter(|(_, piece)| piece.rows() > 0);
        let width = filled().next().map_or(0, |(_, piece)| piece.width);
        if filled().any(|(_, piece)| piece.width != width) {
            return None;
        }
        let rows = pieces.iter().map(|(_, piece)| piece.rows()).sum();
        let mut all = Cells {
            width,
            starts: vec![0; rows],
            ..Cells::default()
        };
        let long = |piece: &Cells| matches!(piece.ends, Ends::Long(_));
        all.ends = match pieces.iter().any(|(_, piece)| long(piece)) {
            true => Ends::Long(vec![0; rows * width]),
            false => Ends::Short(vec![0; rows * width]),
        };
        // Each into its own place, side by side: new memory is what takes time.
        let mut starts = &mut all.starts[..];
        let mut ends = all.ends.slice();
        let mut places = Vec::new();
        for (from, piece) in pieces {
            let (own_starts, own_ends);
            (own_starts, starts) = starts.split_at_mut(piece.rows());
            (own_ends, ends) = ends.split_at(piece.rows() * width);
            places.push((from, Some(piece), own_starts, own_ends));
        }
        parallel::for_each_mut(&mut places, true, |_, (from, piece, starts, ends)| {
            let Some(piece) = piece.take() else {
                return;
            };
            for (place, start) in starts.iter_mut().zip(&piece.starts) {
                *place = start + *from;
            }
            ends.fill(&piece.ends);
        });
        Some(all)
    }

    /// The places of the cells of a text without quotes whose separator is no blank, as
    /// [`Cells::within`] finds them; nothing where a row is wrong.
    fn within_plain(content: &str, separator: u8) -> Option<Self> {
        let bytes = content.as_bytes();
        let mut cells = Cells::default();
        let mut ends: Vec<usize> = Vec::new();
        let mut start = 0;
        let mut field_ends = |at: usize, row_ends: bool| -> Option<()> {
            ends.push(at);
            if !row_ends {
                return Some(());
            }
            let first = start;
            start = at + 1;
            // A line of blanks alone is no record.
            if ends.len() > 1 || !content[first..at].trim().is_empty() {
                if cells.starts.is_empty() {
                    cells.width = ends.len();
                }
                if cells.starts.len() == ESTIMATED {
                    cells.reserve(content.len(), first);
                }
                if ends.len() != cells.width || !cells.ends.push(first, &ends) {
                    return None;
                }
                cells.starts.push(first);
            }
            ends.clear();
            Some(())
        };
        let (eights, rest) = bytes.as_chunks::<8>();
        for (i, eight) in eights.iter().enumerate() {
            let mut marks = marks(*eight, separator);
            while marks != 0 {
                let at = marks.trailing_zeros() as usize / 8;
                field_ends(8 * i + at, eight[at] != separator)?;
                marks &= marks - 1;
            }
        }
        for (i, &byte) in (8 * eights.len()..).zip(rest) {
            if [separator, b'\r', b'\n'].contains(&byte) {
                field_ends(i, byte != separator)?;
            }
        }
        // The last line may end with the text.
        if !bytes.is_empty() && !matches!(bytes.last(), Some(b'\r' | b'\n')) {
            field_ends(bytes.len(), true)?;
        }
        Some(cells)
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

    /// Every text without quotes, whatever its ends of lines and blanks: the fast way finds what the
    /// general one does, and refuses what that refuses.
    #[test]
    fn the_fast_way_finds_the_cells_of_the_general_one() {
        const PARTS: [&str; 12] = [
            "a", "17", "-2.5", ",", ",", ",", "\n", "\r\n", "\r", " ", "\t", "größe",
        ];
        let mut stream = crate::rng::Key::new(5).purpose("texts").stream();
        let (mut right, mut wrong) = (0, 0);
        for _ in 0..20_000 {
            let parts = stream.u64() as usize % 24;
            let text: String = (0..parts)
                .map(|_| PARTS[stream.u64() as usize % PARTS.len()])
                .collect();
            let fast = Cells::within_plain(&text, b',');
            let Ok(general) = Cells::within(&text, b',') else {
                assert!(fast.is_none(), "{text:?}");
                wrong += 1;
                continue;
            };
            let fast = fast.unwrap_or_else(|| panic!("{text:?}"));
            assert_eq!(
                (fast.width, &fast.starts),
                (general.width, &general.starts),
                "{text:?}"
            );
            for i in 0..fast.rows() * fast.width {
                assert_eq!(fast.ends.at(i), general.ends.at(i), "{text:?}, cell {i}");
            }
            right += 1;
        }
        assert!(right > 1000 && wrong > 1000, "{right} and {wrong}");
    }

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
        // A quote in the last piece may have kept a line break in its cell.
        assert!(Cells::in_pieces(&(text.clone() + "1,2,\"x\"\n"), b',').is_none());
        // What is wrong is said by its line, wherever it stands.
        text += "1,2\n";
        let (place, problem) = Cells::find(text, b',').unwrap_err();
        assert_eq!(place, "line 300002");
        assert!(problem.contains("got 2 fields, needs 3"), "{problem}");
    }
}
