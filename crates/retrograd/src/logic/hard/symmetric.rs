//! A function that only counts some of its inputs, rebuilt from the count.
//!
//! Two inputs are symmetric where exchanging them changes no row; then all inputs of a class are, and
//! the function depends on how many of them are 1. A tree of adders counts them, the count's bits and
//! the inputs that are left decide. Life is such a function, of eight neighbours; what training finds of
//! it has the count in many pieces, and wandering from gate to gate rarely puts them together.

use super::library::Library;
use super::resubstitute::MAX_INPUTS;
use super::rows::{Rows, Table};
use super::{Gate, HardCircuit};

/// Fewer are found by other means.
const FEWEST: usize = 4;

// A count of at most fifteen has four bits, which the library takes.
const _: () = assert!(MAX_INPUTS <= 15);

/// Inputs beside the class: each doubles what decides.
const BESIDE: usize = 2;

impl HardCircuit {
    /// The circuit rebuilt, where it has one output and counts enough of its inputs. It may be larger.
    pub(in crate::logic) fn by_count(&self) -> Option<Self> {
        let used = self.inputs_that_matter();
        let [output] = self.outputs[..] else {
            return None;
        };
        if !(FEWEST..=MAX_INPUTS).contains(&used.len()) {
            return None;
        }
        let rows = Rows::all(used.clone());
        let table = self.tables(&rows).swap_remove(output as usize);
        let class = largest_class(&table, used.len());
        let beside: Vec<usize> = (0..used.len()).filter(|i| !class.contains(i)).collect();
        if class.len() < FEWEST || beside.len() > BESIDE {
            return None;
        }
        let mut made = HardCircuit {
            gates: Vec::new(),
            outputs: Vec::new(),
            ..*self
        };
        let counted = class.iter().map(|&i| used[i] as u32).collect();
        let bits = made.count(counted);
        let decided = made.decide(&table, &class, &beside, &used, &bits, 0);
        made.outputs.push(decided);
        Some(made)
    }

    fn push(&mut self, op: u8, a: u32, b: u32) -> u32 {
        self.gates.push(Gate { op, a, b });
        (self.inputs() + self.gates.len() - 1) as u32
    }

    /// The bits of how many nodes are 1, the lowest first.
    fn count(&mut self, mut nodes: Vec<u32>) -> Vec<u32> {
        let mut bits = Vec::new();
        while !nodes.is_empty() {
            let mut carries = Vec::new();
            while nodes.len() > 1 {
                // Those that have waited longest, so that the tree is flat.
                let a = nodes.remove(0);
                let b = nodes.remove(0);
                let (half, both) = (self.push(6, a, b), self.push(1, a, b));
                if nodes.is_empty() {
                    nodes.push(half);
                    carries.push(both);
                    continue;
                }
                let c = nodes.remove(0);
                let sum = self.push(6, half, c);
                nodes.push(sum);
                let more = self.push(1, half, c);
                carries.push(self.push(7, both, more));
            }
            bits.push(nodes[0]);
            nodes = carries;
        }
        bits
    }

    /// The function of the count and of the inputs beside it, where the first of those have the values of
    /// `row` already.
    fn decide(
        &mut self,
        table: &Table,
        class: &[usize],
        beside: &[usize],
        used: &[usize],
        bits: &[u32],
        row: usize,
    ) -> u32 {
        if let Some((&next, rest)) = beside.split_first() {
            let without = self.decide(table, class, rest, used, bits, row);
            let with = self.decide(table, class, rest, used, bits, row | 1 << next);
            let differ = self.push(6, without, with);
            let switched = self.push(1, differ, used[next] as u32);
            return self.push(6, without, switched);
        }
        let mut values = Vec::with_capacity(class.len() + 1);
        let mut ones = row;
        values.push(value(table, ones));
        for &next in class {
            ones |= 1 << next;
            values.push(value(table, ones));
        }
        // The library has the functions that are 0 where all inputs are. Counts that don't occur are 0, too.
        let inverted = values[0];
        let bit = |row: usize| match values.get(row % (1 << bits.len())) {
            Some(&value) => u16::from(value ^ inverted) << row,
            None => 0,
        };
        let function: u16 = (0..16).map(bit).sum();
        let found = if function == 0 {
            self.push(0, bits[0], bits[0])
        } else {
            let chain = Library::get().chain(function);
            let mut nodes = bits.to_vec();
            // Bits that there are none of make no difference.
            nodes.resize(4, bits[0]);
            for step in chain.steps() {
                let (a, b) = (nodes[step.a as usize], nodes[step.b as usize]);
                nodes.push(self.push(step.op, a, b));
            }
            nodes[chain.output as usize]
        };
        match inverted {
            true => self.push(12, found, found),
            false => found,
        }
    }
}

fn value(table: &Table, row: usize) -> bool {
    table[row / 64] >> (row % 64) & 1 == 1
}

/// The most inputs that can be exchanged with each other.
fn largest_class(table: &Table, inputs: usize) -> Vec<usize> {
    let symmetric = |i: usize, j: usize| {
        let only_i = |row: &usize| row >> i & 1 == 1 && row >> j & 1 == 0;
        let mut rows = (0..1_usize << inputs).filter(only_i);
        rows.all(|row| value(table, row) == value(table, row ^ (1 << i) ^ (1 << j)))
    };
    let class_of =
        |i: usize| -> Vec<usize> { (0..inputs).filter(|&j| i == j || symmetric(i, j)).collect() };
    let classes = (0..inputs).map(class_of);
    classes.max_by_key(Vec::len).unwrap_or_default()
}
