//! The rows of inputs that circuits are compared on: all of them, or those that an automaton reaches.

use std::collections::HashSet;

use super::program::Program;
use super::{BitGrid, HardCircuit};
use crate::logic::grid::NEIGHBOURS;

/// A node's value in every row, 64 to a word. Rows beyond the last repeat others.
pub(super) type Table = Vec<u64>;

/// Rows of the inputs that matter.
pub(super) struct Rows {
    used: Vec<usize>,
    tables: Vec<Table>,
}

/// A gate on 64 rows.
pub(super) fn combine(op: u8, a: u64, b: u64) -> u64 {
    let bit = |i: u8| if op >> i & 1 == 1 { u64::MAX } else { 0 };
    bit(3) & !a & !b | bit(2) & !a & b | bit(1) & a & !b | bit(0) & a & b
}

impl Rows {
    /// All rows of some inputs.
    pub fn all(used: Vec<usize>) -> Self {
        let words = (1_usize << used.len()).div_ceil(64);
        let table = |k: usize| -> Table {
            let word = |w: usize| {
                (0..64).fold(0, |word, bit| {
                    word | ((w * 64 + bit) as u64 >> k & 1) << bit
                })
            };
            (0..words).map(word).collect()
        };
        let tables = (0..used.len()).map(table).collect();
        Rows { used, tables }
    }

    /// The rows that a circuit meets in some steps from a start where all cells fire, each once.
    pub fn reached(circuit: &HardCircuit, start: &BitGrid, steps: usize) -> Self {
        let used = circuit.inputs_that_matter();
        let program = Program::new(circuit);
        let mut grid = start.clone();
        let [samples, height, width] = grid.size();
        let mut seen = HashSet::new();
        let mut tables = vec![Table::new(); used.len()];
        let mut rows = 0;
        for _ in 0..steps {
            for cell in 0..samples * height * width {
                let (sample, y, x) = (cell / width / height, cell / width % height, cell % width);
                let row: Vec<bool> = used
                    .iter()
                    .map(|input| {
                        let place = NEIGHBOURS[input % 9];
                        let from = grid.boundary().neighbour((height, width), (y, x), place);
                        from.is_some_and(|(y, x)| grid.get(sample, y, x, input / 9))
                    })
                    .collect();
                if seen.contains(&row) {
                    continue;
                }
                for (table, &bit) in tables.iter_mut().zip(&row) {
                    if rows % 64 == 0 {
                        // A word of the row itself, until others take its places.
                        table.push(0_u64.wrapping_sub(u64::from(bit)));
                    }
                    let word = &mut table[rows / 64];
                    *word = *word & !(1 << (rows % 64)) | u64::from(bit) << (rows % 64);
                }
                rows += 1;
                seen.insert(row);
            }
            grid.step(&program, None);
        }
        Rows { used, tables }
    }

    /// The inputs.
    pub fn used(&self) -> &[usize] {
        &self.used
    }

    /// The values of an input, counted among those that matter.
    pub fn table(&self, input: usize) -> &[u64] {
        &self.tables[input]
    }

    /// Words of a table.
    pub fn words(&self) -> usize {
        self.tables.first().map_or(1, Vec::len)
    }
}

impl HardCircuit {
    /// The inputs that a gate reads.
    pub(super) fn inputs_that_matter(&self) -> Vec<usize> {
        let mut matters = vec![false; self.inputs()];
        for gate in &self.gates {
            for node in [gate.a, gate.b] {
                if let Some(m) = matters.get_mut(node as usize) {
                    *m = true;
                }
            }
        }
        (0..self.inputs()).filter(|&i| matters[i]).collect()
    }

    /// The values of all nodes; of inputs that don't matter 0.
    pub(super) fn tables(&self, rows: &Rows) -> Vec<Table> {
        let mut tables = vec![vec![0; rows.words()]; self.inputs()];
        for (&input, table) in rows.used.iter().zip(&rows.tables) {
            tables[input].clone_from(table);
        }
        for gate in &self.gates {
            let (a, b) = (&tables[gate.a as usize], &tables[gate.b as usize]);
            let table = a.iter().zip(b).map(|(&a, &b)| combine(gate.op, a, b));
            let table = table.collect();
            tables.push(table);
        }
        tables
    }
}
