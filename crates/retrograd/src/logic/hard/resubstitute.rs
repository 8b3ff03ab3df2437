//! Circuits made smaller by the values of their nodes in all rows of inputs, or in those that occur.
//!
//! With n inputs that matter there are 2ⁿ rows. Two nodes with the same table, or
//! opposite ones, are the same. And a node whose removal would let others die with it is replaced
//! where one gate, or two, on other nodes have its table.

use std::collections::HashMap;

use super::drift::{LONG, Patience};
use super::rows::{Rows, Table, combine};
use super::simplify::exchange;
use super::{Gate, HardCircuit};

/// Complete tables of 2¹⁴ bits are the largest.
pub(super) const MAX_INPUTS: usize = 14;

/// The search for two gates looks at every pair of nodes for every node: a second for circuits of
/// this size.
const MAX_GATES_FOR_TWO: usize = 200;

fn invert(table: &Table) -> Table {
    table.iter().map(|w| !w).collect()
}

/// The table as it is or inverted, whichever starts with 0.
fn canonical(table: &Table) -> (Table, bool) {
    if table[0] & 1 == 1 {
        (invert(table), true)
    } else {
        (table.clone(), false)
    }
}

impl HardCircuit {
    /// See the module's text. Circuits of more inputs come back as they are.
    pub fn resubstitute(&self) -> Self {
        self.resubstitute_within(LONG)
    }

    /// The same; `patience` is that of [`HardCircuit::drift`].
    pub(super) fn resubstitute_within(&self, patience: Patience) -> Self {
        let used = self.inputs_that_matter();
        match used.len() > MAX_INPUTS {
            true => self.clone(),
            false => self.resubstitute_on(&Rows::all(used), patience),
        }
    }

    /// The same for circuits of any number of inputs; what comes out is equal on these rows.
    pub(super) fn resubstitute_on(&self, rows: &Rows, patience: Patience) -> Self {
        let mut circuit = self.clone();
        loop {
            let before = circuit.gates.len();
            circuit = circuit.merge_by_table(rows).fold(true).prune();
            circuit = circuit.replace_by_table(rows).fold(true).prune();
            if circuit.gates.len() < before {
                continue;
            }
            if circuit.gates.len() <= MAX_GATES_FOR_TWO {
                circuit = circuit.replace_by_two(rows).fold(true).prune();
            }
            if circuit.gates.len() < before {
                continue;
            }
            circuit = circuit.drift(rows, patience);
            if circuit.gates.len() >= before {
                return circuit;
            }
        }
    }

    /// Nodes that compute the same, or the opposite, become one; those that are always the same a
    /// constant.
    fn merge_by_table(&self, rows: &Rows) -> Self {
        let tables = self.tables(rows);
        let inputs = self.inputs();
        let mut first: HashMap<Table, (u32, bool)> = HashMap::new();
        let mut circuit = self.clone();
        for (node, table) in tables.iter().enumerate() {
            let (table, inverted) = canonical(table);
            if node < inputs {
                // The table of an input that is never read says nothing.
                if rows.used().contains(&node) {
                    first.insert(table, (node as u32, inverted));
                }
                continue;
            }
            let gate = &mut circuit.gates[node - inputs];
            if table.iter().all(|&w| w == 0) {
                gate.op = if inverted { 15 } else { 0 };
                continue;
            }
            let &mut (same, its) = first.entry(table).or_insert((node as u32, inverted));
            if same != node as u32 {
                let op = if its == inverted { 3 } else { 12 };
                let (a, b) = (same, same);
                *gate = Gate { op, a, b };
            }
        }
        circuit
    }

    /// The nodes by their tables.
    fn numbers(&self, rows: &Rows, tables: &[Table]) -> HashMap<Table, u32> {
        let known = |i: &usize| *i >= self.inputs() || rows.used().contains(i);
        let nodes = (0..tables.len()).rev().filter(known);
        nodes.map(|i| (tables[i].clone(), i as u32)).collect()
    }

    /// One gate in place of a node and what lives for it alone.
    fn replace_by_table(&self, rows: &Rows) -> Self {
        let mut circuit = self.clone();
        let inputs = circuit.inputs();
        let tables = circuit.tables(rows);
        let number = circuit.numbers(rows, &tables);
        for at in (0..circuit.gates.len()).rev() {
            let node = inputs + at;
            let dying = circuit.dying(node);
            if dying.iter().filter(|&&d| d).count() < 2 {
                continue;
            }
            let usable = |other: usize| {
                other < node && !dying[other] && (other >= inputs || rows.used().contains(&other))
            };
            if let Some(gate) = find_xor(&tables, &number, &tables[node], &usable)
                .or_else(|| find_and(&tables, node, &tables[node], &usable))
            {
                circuit.gates[at] = gate;
            }
        }
        circuit
    }

    /// Two gates in place of a node and at least two more that live for it alone.
    fn replace_by_two(&self, rows: &Rows) -> Self {
        let mut circuit = self.clone();
        let inputs = circuit.inputs();
        let mut at = circuit.gates.len();
        while at > 0 {
            at -= 1;
            let node = inputs + at;
            let dying = circuit.dying(node);
            if dying.iter().filter(|&&d| d).count() < 3 {
                continue;
            }
            let tables = circuit.tables(rows);
            let number = circuit.numbers(rows, &tables);
            let usable = |other: usize| {
                other < node && !dying[other] && (other >= inputs || rows.used().contains(&other))
            };
            if let Some((inner, outer)) = find_two(&tables, &number, node, &usable) {
                circuit.insert(at, inner);
                circuit.gates[at + 1] = outer;
                circuit = circuit.prune();
                at = at.min(circuit.gates.len());
            }
        }
        circuit
    }

    /// Puts a gate before another; nodes from there on move up by one.
    fn insert(&mut self, at: usize, gate: Gate) {
        let node = (self.inputs() + at) as u32;
        let moved = |n: u32| if n >= node { n + 1 } else { n };
        for gate in &mut self.gates[at..] {
            (gate.a, gate.b) = (moved(gate.a), moved(gate.b));
        }
        for output in &mut self.outputs {
            *output = moved(*output);
        }
        self.gates.insert(at, gate);
    }

    /// The nodes that would die with this one, itself among them.
    pub(super) fn dying(&self, node: usize) -> Vec<bool> {
        let inputs = self.inputs();
        let mut readers = vec![0_u32; inputs + self.gates.len()];
        // Count only readers that live themselves.
        let mut live = vec![false; inputs + self.gates.len()];
        for &o in &self.outputs {
            live[o as usize] = true;
            readers[o as usize] += 1;
        }
        for (i, gate) in self.gates.iter().enumerate().rev() {
            if live[inputs + i] {
                for n in [gate.a, gate.b] {
                    live[n as usize] = true;
                    readers[n as usize] += 1;
                }
            }
        }
        let mut dying = vec![false; inputs + self.gates.len()];
        if !live[node] {
            return dying;
        }
        dying[node] = true;
        for i in (inputs..=node).rev() {
            if dying[i] {
                let gate = self.gates[i - inputs];
                for n in [gate.a as usize, gate.b as usize] {
                    readers[n] -= 1;
                    if readers[n] == 0 && n >= inputs {
                        dying[n] = true;
                    }
                }
            }
        }
        dying
    }
}

fn find_xor(
    tables: &[Table],
    number: &HashMap<Table, u32>,
    target: &Table,
    usable: &dyn Fn(usize) -> bool,
) -> Option<Gate> {
    for (a, table) in tables.iter().enumerate() {
        if !usable(a) {
            continue;
        }
        let needed: Table = table.iter().zip(target).map(|(x, y)| x ^ y).collect();
        for (op, needed) in [(6, needed.clone()), (9, invert(&needed))] {
            if let Some(&b) = number.get(&needed)
                && usable(b as usize)
                && b as usize != a
            {
                return Some(Gate { op, a: a as u32, b });
            }
        }
    }
    None
}

/// target = x ∧ y or its opposite, with x and y nodes or their opposites.
fn find_and(
    tables: &[Table],
    node: usize,
    target: &Table,
    usable: &dyn Fn(usize) -> bool,
) -> Option<Gate> {
    for opposite in [false, true] {
        let target = if opposite {
            invert(target)
        } else {
            target.clone()
        };
        // x must be 1 wherever the target is.
        let mut covers: Vec<(u32, bool, Table)> = Vec::new();
        for (i, table) in tables[..node].iter().enumerate() {
            if !usable(i) {
                continue;
            }
            for inverted in [false, true] {
                let x = if inverted {
                    invert(table)
                } else {
                    table.clone()
                };
                if target.iter().zip(&x).all(|(t, x)| t & !x == 0) {
                    covers.push((i as u32, inverted, x));
                }
            }
        }
        for (i, (a, a_inverted, x)) in covers.iter().enumerate() {
            for (b, b_inverted, y) in &covers[..i] {
                let equal = target.iter().zip(x).zip(y).all(|((t, x), y)| x & y == *t);
                if equal && a != b {
                    // and, a∧¬b, ¬a∧b, nor
                    let op = match (a_inverted, b_inverted) {
                        (false, false) => 1,
                        (false, true) => 2,
                        (true, false) => 4,
                        (true, true) => 8,
                    };
                    let op = if opposite { 15 - op } else { op };
                    let (a, b) = (*a, *b);
                    return Some(if a < b {
                        Gate { op, a, b }
                    } else {
                        Gate {
                            op: exchange(op),
                            a: b,
                            b: a,
                        }
                    });
                }
            }
        }
    }
    None
}

/// A gate on two nodes, and a gate on it and a third, that have the table of a node together. The
/// first will be the node's own number, the second the next.
fn find_two(
    tables: &[Table],
    number: &HashMap<Table, u32>,
    node: usize,
    usable: &dyn Fn(usize) -> bool,
) -> Option<(Gate, Gate)> {
    let target = &tables[node];
    let opposite = invert(target);
    let nodes: Vec<usize> = (0..node).filter(|&i| usable(i)).collect();
    // Nodes or their opposites that are 1 wherever the target, or its opposite, is.
    let covers = |target: &Table| -> Vec<(u32, bool)> {
        let mut covers = Vec::new();
        for &i in &nodes {
            let pairs = || target.iter().zip(&tables[i]);
            if pairs().all(|(t, x)| t & !x == 0) {
                covers.push((i as u32, false));
            }
            if pairs().all(|(t, x)| t & x == 0) {
                covers.push((i as u32, true));
            }
        }
        covers
    };
    let sides = [
        (target, covers(target), false),
        (&opposite, covers(&opposite), true),
    ];
    let mut inner = vec![0; target.len()];
    let mut needed = vec![0; target.len()];
    for (k, &a) in nodes.iter().enumerate() {
        for &b in &nodes[..k] {
            for op in [1, 2, 4, 7, 6] {
                for (t, (&x, &y)) in inner.iter_mut().zip(tables[a].iter().zip(&tables[b])) {
                    *t = combine(op, x, y);
                }
                let gate = Gate {
                    op,
                    a: a as u32,
                    b: b as u32,
                };
                let outer = |op: u8, other: u32| {
                    let (a, b) = (other, node as u32);
                    Some((gate, Gate { op, a, b }))
                };
                for (n, (t, x)) in needed.iter_mut().zip(inner.iter().zip(target)) {
                    *n = t ^ x;
                }
                if let Some(&g) = number.get(&needed)
                    && usable(g as usize)
                {
                    return outer(6, g);
                }
                needed.iter_mut().for_each(|n| *n = !*n);
                if let Some(&g) = number.get(&needed)
                    && usable(g as usize)
                {
                    return outer(9, g);
                }
                for (target, covers, is_opposite) in &sides {
                    for inverted in [false, true] {
                        let flip = if inverted { u64::MAX } else { 0 };
                        let mut pairs = inner.iter().zip(target.iter());
                        if !pairs.all(|(t, x)| x & !(t ^ flip) == 0) {
                            continue;
                        }
                        for &(g, g_inverted) in covers {
                            let g_flip = if g_inverted { u64::MAX } else { 0 };
                            let table = &tables[g as usize];
                            let equal = (0..target.len())
                                .all(|i| (inner[i] ^ flip) & (table[i] ^ g_flip) == target[i]);
                            if equal {
                                let op = match (g_inverted, inverted) {
                                    (false, false) => 1,
                                    (false, true) => 2,
                                    (true, false) => 4,
                                    (true, true) => 8,
                                };
                                return outer(if *is_opposite { 15 - op } else { op }, g);
                            }
                        }
                    }
                }
            }
        }
    }
    None
}
