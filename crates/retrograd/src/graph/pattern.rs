//! Sparse patterns: where the entries of a sparse matrix are, by row and by column.
//!
//! One pattern serves adjacency (row = target, column = source), sparse node features (row = node,
//! column = feature) and embedding (one entry per node, column = its id). A quantity per entry is
//! kept in the order of the rows, in *slots*; the transposed side knows the slot of each of its
//! entries. So both a product and its gradient gather: every output row has one owner, no atomics,
//! and the order of every sum is fixed when the pattern is built.

/// One side of a pattern: for every row its neighbours.
#[derive(Clone, Debug, PartialEq)]
pub struct Rows {
    /// Where each row starts; one more than there are rows.
    pub start: Vec<u32>,
    /// The neighbour (column) of every slot.
    pub neighbour: Vec<u32>,
    /// The first row of every piece of work, and the number of rows.
    pub piece_rows: Vec<u32>,
    /// The first slot of every piece of work, and the number of slots.
    pub piece_slots: Vec<u32>,
}

/// Rows and slots of one piece of work. Pieces are cut by slots, not by rows, so that a hub doesn't
/// hold up its neighbours. 512 slots of 16 features take some 1.5 µs, fifty times what a piece costs
/// (`graph-gcn16`); Cora's 16,000 then make enough pieces for two threads to end together.
const PIECE: usize = 512;
crate::cuts::cuts!(PIECE);

impl Rows {
    fn new(start: Vec<u32>, neighbour: Vec<u32>) -> Self {
        let mut rows = Rows {
            start,
            neighbour,
            piece_rows: Vec::new(),
            piece_slots: Vec::new(),
        };
        rows.cut();
        rows
    }

    /// Cuts the rows into pieces anew.
    fn cut(&mut self) {
        self.piece_rows.clear();
        self.piece_rows.push(0);
        let mut load = 0;
        for row in 0..self.len() {
            let slots = self.degree(row);
            if load > 0 && load + slots + 1 > PIECE {
                self.piece_rows.push(row as u32);
                load = 0;
            }
            load += slots + 1;
        }
        self.piece_rows.push(self.len() as u32);
        let start = &self.start;
        self.piece_slots.clear();
        self.piece_slots
            .extend(self.piece_rows.iter().map(|&row| start[row as usize]));
    }

    fn clear(&mut self) {
        self.start.clear();
        self.start.push(0);
        self.neighbour.clear();
    }

    /// Rows after the last; neighbours are counted from `first`.
    fn append(&mut self, other: &Rows, first: u32) {
        let slots = self.neighbour.len() as u32;
        let starts = other.start[1..].iter().map(|s| s + slots);
        self.start.extend(starts);
        self.neighbour
            .extend(other.neighbour.iter().map(|n| n + first));
    }

    /// The number of rows.
    pub fn len(&self) -> usize {
        self.start.len() - 1
    }

    /// Whether there are no rows.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The number of slots.
    pub fn slots(&self) -> usize {
        self.neighbour.len()
    }

    /// The slots of a row.
    #[inline(always)]
    pub fn range(&self, row: usize) -> std::ops::Range<usize> {
        self.start[row] as usize..self.start[row + 1] as usize
    }

    /// The number of slots of a row.
    #[inline(always)]
    pub fn degree(&self, row: usize) -> usize {
        (self.start[row + 1] - self.start[row]) as usize
    }

    /// The number of pieces of work.
    pub fn pieces(&self) -> usize {
        self.piece_rows.len() - 1
    }

    /// The rows of a piece.
    pub fn piece(&self, piece: usize) -> std::ops::Range<usize> {
        self.piece_rows[piece] as usize..self.piece_rows[piece + 1] as usize
    }
}

/// A sparse pattern with its transpose.
#[derive(Clone, Debug, PartialEq)]
pub struct Pattern {
    /// The entries by row; entry `s` of it is *slot* `s`.
    pub by_row: Rows,
    /// The entries by column: the transpose.
    pub by_column: Rows,
    /// For every entry of `by_column`, its slot in `by_row`.
    pub slot: Vec<u32>,
}

impl Pattern {
    /// From entries in any order; within a row (and within a column) their order is kept. Returns
    /// the pattern and, for every slot, the number of the entry it came from.
    pub(crate) fn new(
        rows: usize,
        columns: usize,
        row_of: &[u32],
        column_of: &[u32],
    ) -> (Self, Vec<u32>) {
        let (start, entry_of_slot) = counting_sort(rows, row_of);
        let neighbour = entry_of_slot
            .iter()
            .map(|&e| column_of[e as usize])
            .collect();
        let mut pattern = Pattern {
            by_row: Rows::new(start, neighbour),
            ..Self::empty()
        };
        pattern.transpose(columns);
        (pattern, entry_of_slot)
    }

    /// No rows and no columns.
    pub(crate) fn empty() -> Self {
        Pattern {
            by_row: Rows::new(vec![0], Vec::new()),
            by_column: Rows::new(vec![0], Vec::new()),
            slot: Vec::new(),
        }
    }

    /// The columns from the rows, in the memory of earlier ones.
    fn transpose(&mut self, columns: usize) {
        let (rows, start) = (&self.by_row, &mut self.by_column.start);
        start.clear();
        start.resize(columns + 1, 0);
        for &column in &rows.neighbour {
            start[column as usize + 1] += 1;
        }
        for column in 0..columns {
            start[column + 1] += start[column];
        }
        self.slot.resize(rows.slots(), 0);
        self.by_column.neighbour.resize(rows.slots(), 0);
        // While its entries are placed, a column's start moves on to its end, where the next one
        // started.
        for row in 0..rows.len() {
            for slot in rows.range(row) {
                let at = &mut start[rows.neighbour[slot] as usize];
                self.slot[*at as usize] = slot as u32;
                self.by_column.neighbour[*at as usize] = row as u32;
                *at += 1;
            }
        }
        start.copy_within(..columns, 1);
        start[0] = 0;
        self.by_column.cut();
    }

    /// Becomes the patterns one below the other, in the memory of what was here. With `blocks`
    /// they have columns of their own (a union of graphs), otherwise they share them (features).
    pub(crate) fn stack<'a>(&mut self, parts: impl Iterator<Item = &'a Pattern>, blocks: bool) {
        self.by_row.clear();
        let mut columns = 0;
        for part in parts {
            let own = part.by_column.len();
            self.by_row
                .append(&part.by_row, if blocks { columns as u32 } else { 0 });
            columns = if blocks { columns + own } else { own };
        }
        self.by_row.cut();
        self.transpose(columns);
    }

    /// Other columns for the entries of every row, as many as before.
    pub(crate) fn set_columns(&mut self, column_of: &[u32]) {
        self.by_row.neighbour.copy_from_slice(column_of);
        self.transpose(self.by_column.len());
    }

    /// Becomes a square pattern with an entry of its own, first in its row, for every row that has
    /// none on the diagonal; `entry(None)` is called for such an entry, `entry(Some(slot))` for
    /// those of the original.
    pub(crate) fn add_diagonal(&mut self, of: &Pattern, mut entry: impl FnMut(Option<usize>)) {
        self.by_row.clear();
        for row in 0..of.by_row.len() {
            let range = of.by_row.range(row);
            let neighbours = &of.by_row.neighbour[range.clone()];
            if !neighbours.contains(&(row as u32)) {
                self.by_row.neighbour.push(row as u32);
                entry(None);
            }
            self.by_row.neighbour.extend_from_slice(neighbours);
            range.for_each(|slot| entry(Some(slot)));
            self.by_row.start.push(self.by_row.neighbour.len() as u32);
        }
        self.by_row.cut();
        self.transpose(of.by_row.len());
    }

    /// One entry per row: the pattern of an embedding.
    pub(crate) fn one_per_row(columns: usize, column_of: &[u32]) -> Self {
        let rows: Vec<u32> = (0..column_of.len() as u32).collect();
        Self::new(rows.len(), columns, &rows, column_of).0
    }

    /// The number of entries.
    pub fn len(&self) -> usize {
        self.slot.len()
    }

    /// Whether there are no entries.
    pub fn is_empty(&self) -> bool {
        self.slot.is_empty()
    }
}

/// Stable: the start of every key's run, and the items in the order of their keys.
fn counting_sort(keys: usize, key_of: &[u32]) -> (Vec<u32>, Vec<u32>) {
    let mut start = vec![0_u32; keys + 1];
    for &key in key_of {
        start[key as usize + 1] += 1;
    }
    for key in 0..keys {
        start[key + 1] += start[key];
    }
    let mut next = start.clone();
    let mut order = vec![0; key_of.len()];
    for (item, &key) in key_of.iter().enumerate() {
        order[next[key as usize] as usize] = item as u32;
        next[key as usize] += 1;
    }
    (start, order)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_transpose_knows_the_slot_of_every_entry() {
        let rows = [2, 0, 2, 1, 0];
        let columns = [1, 3, 0, 1, 0];
        let (pattern, entry) = Pattern::new(3, 4, &rows, &columns);
        assert_eq!(pattern.by_row.start, [0, 2, 3, 5]);
        assert_eq!(pattern.by_row.neighbour, [3, 0, 1, 1, 0]);
        assert_eq!(entry, [1, 4, 3, 0, 2]);
        assert_eq!(pattern.by_column.start, [0, 2, 4, 4, 5]);
        for column in 0..4 {
            for p in pattern.by_column.range(column) {
                let slot = pattern.slot[p] as usize;
                let row = pattern.by_column.neighbour[p] as usize;
                assert_eq!(pattern.by_row.neighbour[slot] as usize, column);
                assert!(pattern.by_row.range(row).contains(&slot));
            }
        }
    }

    #[test]
    fn pieces_are_cut_by_slots_and_cover_all_rows() {
        // A hub with 10,000 in-edges, and 9,999 rows with none.
        let rows = vec![17; 10_000];
        let columns: Vec<u32> = (0..10_000).collect();
        let (pattern, _) = Pattern::new(10_000, 10_000, &rows, &columns);
        let by_row = &pattern.by_row;
        assert!(by_row.pieces() >= 3);
        assert_eq!(by_row.piece(0), 0..17);
        assert_eq!(by_row.piece(1), 17..18);
        assert_eq!(by_row.piece(by_row.pieces() - 1).end, 10_000);
    }
}
