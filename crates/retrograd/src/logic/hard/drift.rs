//! Circuits of few inputs that wander among their equals until they find smaller ones.
//!
//! A gate may be replaced by any gate on two other nodes that has the same value wherever it makes
//! a difference to an output. Where its value makes none (the rows that its *care* leaves out) the new
//! one may have any. Such a step never adds a gate, and now and then it leaves one without readers.
//! Steps are drawn at random, from a key of their own: the same circuit always goes the same way.

use super::resubstitute::{Table, combine};
use super::{Gate, HardCircuit};
use crate::rng::{Key, Stream};

/// Steps for every gate without a smaller circuit after which it is left.
const PATIENCE: usize = 60;

/// The largest circuit that wanders: the nodes are tried in pairs.
const MAX_GATES: usize = 160;

impl HardCircuit {
    /// See the module's text; `used` are the inputs that matter. Never more gates.
    pub(super) fn drift(&self, used: &[usize], patience: usize) -> Self {
        if self.gates.len() > MAX_GATES {
            return self.clone();
        }
        let mut stream = Key::new(0).purpose("drift").stream();
        let mut best = self.clone();
        let mut now = self.clone();
        let mut idle = 0;
        while idle < patience * best.gates.len() {
            idle += 1;
            now.drift_once(used, &mut stream);
            if now.gates.len() < best.gates.len() {
                best = now.fold(true).prune();
                now = best.clone();
                idle = 0;
            }
        }
        best
    }

    /// Replaces one gate by another and drops what lives no longer.
    fn drift_once(&mut self, used: &[usize], stream: &mut Stream) {
        if self.gates.is_empty() {
            return;
        }
        if stream.below(16) == 0 {
            // In another order other nodes come before a gate.
            self.in_random_order(stream);
        }
        let inputs = self.inputs();
        let at = stream.below(self.gates.len());
        let node = inputs + at;
        let tables = self.tables(used);
        let care = self.care(node, &tables);
        let dying = self.dying(node);
        let usable: Vec<usize> = used.iter().copied().chain(inputs..node).collect();
        let Some(gate) = choose(&tables, &care, node, &usable, &dying, stream) else {
            return;
        };
        self.gates[at] = gate;
        *self = self.prune();
    }

    /// The rows in which a node's value makes a difference to an output.
    fn care(&self, node: usize, tables: &[Table]) -> Table {
        let inputs = self.inputs();
        let mut other: Vec<Option<Table>> = vec![None; tables.len()];
        other[node] = Some(tables[node].iter().map(|w| !w).collect());
        for (i, gate) in self.gates.iter().enumerate().skip(node + 1 - inputs) {
            let (a, b) = (gate.a as usize, gate.b as usize);
            if other[a].is_none() && other[b].is_none() {
                continue;
            }
            let x = other[a].as_ref().unwrap_or(&tables[a]);
            let y = other[b].as_ref().unwrap_or(&tables[b]);
            let changed: Table = x
                .iter()
                .zip(y)
                .map(|(&x, &y)| combine(gate.op, x, y))
                .collect();
            if changed != tables[inputs + i] {
                other[inputs + i] = Some(changed);
            }
        }
        let mut care = vec![0; tables[node].len()];
        for &o in &self.outputs {
            if let Some(changed) = &other[o as usize] {
                for ((c, x), y) in care.iter_mut().zip(changed).zip(&tables[o as usize]) {
                    *c |= x ^ y;
                }
            }
        }
        care
    }

    fn in_random_order(&mut self, stream: &mut Stream) {
        let inputs = self.inputs();
        let mut waiting: Vec<usize> = (0..self.gates.len()).collect();
        let mut number: Vec<Option<u32>> = (0..inputs as u32).map(Some).collect();
        number.resize(inputs + self.gates.len(), None);
        let mut gates = Vec::with_capacity(self.gates.len());
        while !waiting.is_empty() {
            let ready: Vec<usize> = (0..waiting.len())
                .filter(|&i| {
                    let gate = self.gates[waiting[i]];
                    number[gate.a as usize].is_some() && number[gate.b as usize].is_some()
                })
                .collect();
            let at = waiting.remove(ready[stream.below(ready.len())]);
            let Gate { op, a, b } = self.gates[at];
            if let (Some(a), Some(b)) = (number[a as usize], number[b as usize]) {
                number[inputs + at] = Some((inputs + gates.len()) as u32);
                gates.push(Gate { op, a, b });
            }
        }
        for output in &mut self.outputs {
            *output = number[*output as usize].unwrap_or(*output);
        }
        self.gates = gates;
    }
}

/// A gate that has a node's values where they matter: one that lets as many others die as can be,
/// drawn among equals. The gate that is there is one of them.
fn choose(
    tables: &[Table],
    care: &Table,
    node: usize,
    usable: &[usize],
    dying: &[bool],
    stream: &mut Stream,
) -> Option<Gate> {
    let target = &tables[node];
    let mut best: Option<(usize, Gate)> = None;
    let mut equals = 0;
    let mut take = |gate: Gate, kept: usize, stream: &mut Stream| {
        if best.is_none_or(|(k, _)| kept < k) {
            best = Some((kept, gate));
            equals = 1;
        } else if best.is_some_and(|(k, _)| kept == k) {
            equals += 1;
            if stream.below(equals) == 0 {
                best = Some((kept, gate));
            }
        }
    };
    for (i, &a) in usable.iter().enumerate() {
        if let Some(op) = op_on(target, care, &tables[a], &tables[a]) {
            // A wire, an inverter or a constant: the gate itself goes.
            let (a, b) = (a as u32, a as u32);
            return Some(Gate { op, a, b });
        }
        for &b in &usable[..i] {
            if let Some(op) = op_on(target, care, &tables[a], &tables[b]) {
                let kept = usize::from(dying[a]) + usize::from(dying[b]);
                let (a, b) = (a as u32, b as u32);
                take(Gate { op, a, b }, kept, stream);
            }
        }
    }
    best.map(|(_, gate)| gate)
}

/// The gate on two nodes with a target's values where they matter, if there is one. Where a pair
/// of values never occurs there, or a ≠ b never does, the gate is 0.
fn op_on(target: &Table, care: &Table, a: &Table, b: &Table) -> Option<u8> {
    let (mut ones, mut zeros) = (0_u8, 0_u8);
    for (((t, c), a), b) in target.iter().zip(care).zip(a).zip(b) {
        for (bit, rows) in [(3, !a & !b), (2, !a & b), (1, a & !b), (0, a & b)] {
            ones |= u8::from(rows & c & t != 0) << bit;
            zeros |= u8::from(rows & c & !t != 0) << bit;
        }
        if ones & zeros != 0 {
            return None;
        }
    }
    Some(ones)
}

/// For [`HardCircuit::drift`] where nothing else is to be done.
pub(super) const LONG: usize = PATIENCE;
