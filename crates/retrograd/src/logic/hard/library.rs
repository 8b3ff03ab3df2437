//! The smallest known circuits of all functions of four inputs.
//!
//! A function is a table of 16 bits; bit r is its value where the inputs are the bits of r. All
//! functions here are 0 where all inputs are: the others are their opposites, and an opposite costs
//! nothing. Such a function needs no inverters: its gates are and, a∧¬b, ¬a∧b, xor and or.
//!
//! What up to three gates can make is found by trying every circuit, and what a fourth gate adds
//! to each of them. From there on a function is a gate on two known ones (whose
//! circuits may share gates), or on two nodes of a known circuit. All of them turn out to be the
//! smallest there are: their sizes are those that Knuth found by a complete search.

use std::collections::HashSet;
use std::sync::OnceLock;

/// The tables of the four inputs.
pub(super) const VARIABLES: [u16; 4] = [0xAAAA, 0xCCCC, 0xF0F0, 0xFF00];

/// The gates that are 0 at (0, 0) and need both inputs.
pub(super) const NORMAL: [u8; 5] = [1, 2, 4, 6, 7];

/// The most gates of a chain.
const MAX_STEPS: usize = 8;

/// One gate of a chain. Nodes 0 to 3 are the inputs, the others the gates in order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Step {
    pub op: u8,
    pub a: u8,
    pub b: u8,
}

/// A circuit of four inputs; its last node is its output.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Chain {
    steps: [Step; MAX_STEPS],
    len: u8,
    /// The output's node: the last gate, or an input where there is none.
    pub output: u8,
}

impl Chain {
    pub fn steps(&self) -> &[Step] {
        &self.steps[..self.len as usize]
    }

    fn input(node: usize) -> Self {
        Chain {
            output: node as u8,
            ..Chain::default()
        }
    }

    /// The tables of all nodes.
    pub fn tables(&self) -> Vec<u16> {
        let mut tables = VARIABLES.to_vec();
        for step in self.steps() {
            tables.push(on_tables(
                step.op,
                tables[step.a as usize],
                tables[step.b as usize],
            ));
        }
        tables
    }

    /// With a gate on two of its nodes.
    fn and_then(&self, step: Step) -> Option<Self> {
        let len = self.len as usize;
        if len == MAX_STEPS {
            return None;
        }
        let mut chain = *self;
        chain.steps[len] = step;
        chain.len += 1;
        chain.output = 4 + len as u8;
        Some(chain)
    }

    /// A gate on the outputs of two chains; gates that both have are there once.
    fn join(&self, other: &Chain, op: u8) -> Option<Self> {
        let mut tables = self.tables();
        let mut joined = *self;
        let mut nodes: Vec<u8> = (0..4).collect();
        for (step, table) in other.steps().iter().zip(&other.tables()[4..]) {
            let known = tables.iter().position(|t| t == table);
            nodes.push(match known {
                Some(node) => node as u8,
                None => {
                    joined = joined.and_then(Step {
                        op: step.op,
                        a: nodes[step.a as usize],
                        b: nodes[step.b as usize],
                    })?;
                    tables.push(*table);
                    joined.output
                }
            });
        }
        let (a, b) = (self.output, nodes[other.output as usize]);
        joined.and_then(Step { op, a, b })
    }
}

/// A gate on whole tables.
pub(super) fn on_tables(op: u8, a: u16, b: u16) -> u16 {
    let part = |bit: u8, rows: u16| if op >> bit & 1 == 1 { rows } else { 0 };
    part(3, !a & !b) | part(2, !a & b) | part(1, a & !b) | part(0, a & b)
}

/// The chains of all functions that are 0 in row 0.
pub(super) struct Library {
    /// Of the function with table t at t / 2; the constant's is never asked for.
    chains: Vec<Option<Chain>>,
    /// The functions by the number of gates.
    by_size: Vec<Vec<u16>>,
}

impl Library {
    /// Made once.
    pub fn get() -> &'static Self {
        static LIBRARY: OnceLock<Library> = OnceLock::new();
        LIBRARY.get_or_init(Self::new)
    }

    /// The chain of a function that is 0 in row 0 and not always 0.
    pub fn chain(&self, table: u16) -> &Chain {
        let chain = self.chains[table as usize / 2].as_ref();
        chain.expect("every function but the constant has a chain")
    }

    fn new() -> Self {
        let mut library = Library {
            chains: vec![None; 1 << 15],
            by_size: vec![Vec::new(); MAX_STEPS + 1],
        };
        for (node, &table) in VARIABLES.iter().enumerate() {
            library.offer(table, Chain::input(node));
        }
        library.try_all();
        for size in 4..=MAX_STEPS {
            // With gates that two parts share more may fit than their sizes say.
            for large in (0..size).rev() {
                for small in 0..=large.min(size - 1) {
                    if large + small < size + usize::from(size < 7) {
                        library.join_sizes(large, small, size);
                    }
                }
            }
            library.extend(size - 1);
        }
        library
    }

    /// Takes a chain if it is the first of its function, or smaller than the one there.
    fn offer(&mut self, table: u16, chain: Chain) {
        if table == 0 {
            return;
        }
        let known = &mut self.chains[table as usize / 2];
        if known.is_none_or(|k| k.len > chain.len) {
            *known = Some(chain);
            self.by_size[chain.len as usize].push(table);
        }
    }

    /// Functions of a size; those for which a smaller chain was found later are left out.
    fn of_size(&self, size: usize) -> Vec<u16> {
        let now = |t: &&u16| self.chain(**t).len as usize == size;
        self.by_size[size].iter().filter(now).copied().collect()
    }

    /// Every circuit of up to three gates, and a fourth gate on each.
    fn try_all(&mut self) {
        let mut level = vec![Chain::input(0)];
        for size in 1..=4 {
            let mut seen = HashSet::new();
            let mut next = Vec::new();
            for chain in &level {
                let tables = chain.tables();
                for b in 1..tables.len() {
                    for a in 0..b {
                        for op in NORMAL {
                            let table = on_tables(op, tables[a], tables[b]);
                            if table == 0 || tables.contains(&table) {
                                continue;
                            }
                            let (a, b) = (a as u8, b as u8);
                            let Some(longer) = chain.and_then(Step { op, a, b }) else {
                                continue;
                            };
                            self.offer(table, longer);
                            if size < 4 {
                                // The order in which gates came makes no difference.
                                let mut set = [0_u16; 4];
                                set[..size - 1].copy_from_slice(&tables[4..]);
                                set[size - 1] = table;
                                set.sort_unstable();
                                if seen.insert(set) {
                                    next.push(longer);
                                }
                            }
                        }
                    }
                }
            }
            level = next;
        }
    }

    /// A gate on every two functions of two sizes, where that makes at most `most` gates.
    fn join_sizes(&mut self, large: usize, small: usize, most: usize) {
        let (larger, smaller) = (self.of_size(large), self.of_size(small));
        for &f in &larger {
            for &g in &smaller {
                for op in NORMAL {
                    let table = on_tables(op, f, g);
                    let known = self.chains[table as usize / 2];
                    if table == 0 || known.is_some_and(|k| k.len as usize <= most) {
                        continue;
                    }
                    let joined = self.chain(f).join(self.chain(g), op);
                    if let Some(chain) = joined.filter(|c| c.len as usize <= most) {
                        self.offer(table, chain);
                    }
                }
            }
        }
    }

    /// A gate on two nodes of each chain of a size.
    fn extend(&mut self, size: usize) {
        for f in self.of_size(size) {
            let chain = *self.chain(f);
            let tables = chain.tables();
            for b in 1..tables.len() {
                for a in 0..b {
                    for op in NORMAL {
                        let table = on_tables(op, tables[a], tables[b]);
                        let (a, b) = (a as u8, b as u8);
                        if let Some(longer) = chain.and_then(Step { op, a, b }) {
                            self.offer(table, longer);
                        }
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_function_has_a_circuit_that_computes_it() {
        let library = Library::get();
        let mut sizes = [0; MAX_STEPS + 1];
        for table in (2..=u16::MAX).step_by(2) {
            let chain = library.chain(table);
            let tables = chain.tables();
            assert_eq!(tables[chain.output as usize], table);
            for (i, step) in chain.steps().iter().enumerate() {
                assert!(NORMAL.contains(&step.op));
                assert!(usize::from(step.a.max(step.b)) < 4 + i);
            }
            sizes[chain.steps().len()] += 1;
        }
        // Knuth's counts of functions by their smallest circuits (The Art of Computer Programming,
        // 7.1.2), halved, since opposites count once here, and without the constant. No circuit of
        // ours can be smaller, so each is the smallest.
        assert_eq!(sizes, [4, 30, 228, 1237, 5312, 12092, 12504, 1360, 0]);
    }
}
