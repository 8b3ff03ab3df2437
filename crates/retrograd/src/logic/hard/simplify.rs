//! Smaller circuits that compute the same.
//!
//! A gate with a constant or a doubled input has fewer inputs than two: it is a constant, a wire or
//! an inverter. Wires and inverters vanish into the gates that read them, since any gate with an
//! inverted input is another one of the sixteen. What is left are gates that need both inputs; of
//! those with equal inputs and function one is enough.

use std::collections::HashMap;

use super::drift::LONG;
use super::rows::Rows;
use super::{BitGrid, Gate, HardCircuit};

/// A node, or its opposite, or a constant.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Signal {
    Constant(bool),
    Node { node: u32, inverted: bool },
}

impl Signal {
    fn inverted(self, yes: bool) -> Self {
        match self {
            Signal::Constant(value) => Signal::Constant(value ^ yes),
            Signal::Node { node, inverted } => Signal::Node {
                node,
                inverted: inverted ^ yes,
            },
        }
    }
}

/// A circuit whose gates are all 0 at (0, 0) and need both of their inputs, two different nodes in
/// order: inverters and constants are at the outputs alone.
pub(super) struct Normal {
    pub inputs: usize,
    pub gates: Vec<Gate>,
    pub outputs: Vec<Signal>,
}

/// The gate with its first input inverted: bits of (0,·) and (1,·) change places.
fn invert_a(op: u8) -> u8 {
    (op << 2 | op >> 2) & 15
}

/// The gate with its second input inverted.
fn invert_b(op: u8) -> u8 {
    (op & 5) << 1 | (op & 10) >> 1
}

/// The gate with its inputs exchanged.
pub(super) fn exchange(op: u8) -> u8 {
    op & 9 | (op & 2) << 1 | (op & 4) >> 1
}

/// What a gate is on signals: a signal already there, or a gate of two different nodes with value
/// 0 at (0, 0), in order, and whether its output is inverted.
enum Reduced {
    Signal(Signal),
    Gate(Gate, bool),
}

fn reduce(op: u8, a: Signal, b: Signal) -> Reduced {
    let mut op = op;
    // Inputs as plain nodes; a constant input is replaced by restricting the gate.
    let mut node = |signal: Signal, invert: fn(u8) -> u8, keep: [u8; 2]| match signal {
        Signal::Constant(value) => {
            // The half of the gate at that value, doubled.
            let half = op & keep[usize::from(value)];
            op = half | invert(half);
            None
        }
        Signal::Node { node, inverted } => {
            if inverted {
                op = invert(op);
            }
            Some(node)
        }
    };
    // Bits 3, 2 are a = 0; bits 3, 1 are b = 0.
    let a = node(a, invert_a, [0b1100, 0b0011]);
    let b = node(b, invert_b, [0b1010, 0b0101]);
    if let (Some(a), Some(b)) = (a, b)
        && a == b
    {
        // Only (0,0) and (1,1) occur.
        let (zero, one) = (op & 8 != 0, op & 1 != 0);
        return Reduced::Signal(if zero == one {
            Signal::Constant(zero)
        } else {
            Signal::Node {
                node: a,
                inverted: zero,
            }
        });
    }
    let plain = |node: Option<u32>, inverted| {
        let node = node.expect("a gate that depends on an input has it");
        Reduced::Signal(Signal::Node { node, inverted })
    };
    match op {
        0 => Reduced::Signal(Signal::Constant(false)),
        15 => Reduced::Signal(Signal::Constant(true)),
        3 => plain(a, false),
        12 => plain(a, true),
        5 => plain(b, false),
        10 => plain(b, true),
        _ => {
            let (mut a, mut b) = (a.unwrap_or(0), b.unwrap_or(0));
            if a > b {
                (a, b) = (b, a);
                op = exchange(op);
            }
            let inverted = op & 8 != 0;
            if inverted {
                op = 15 - op;
            }
            Reduced::Gate(Gate { op, a, b }, inverted)
        }
    }
}

impl HardCircuit {
    /// All simplifications: passing, constant and inverting gates removed, equal gates merged, dead
    /// gates removed; parts replaced by the smallest known circuits of four inputs; and gates of
    /// equal function merged and replaced by others, by complete truth tables: of the whole circuit
    /// where at most twelve inputs matter, of windows of it otherwise. What counts its inputs is tried
    /// as a count, too. The result is equal to the circuit on all inputs.
    pub fn simplify(&self) -> Self {
        let found = self.shrink();
        match found.by_count().map(|counted| counted.shrink()) {
            Some(counted) if counted.gates.len() < found.gates.len() => counted,
            _ => found,
        }
    }

    fn shrink(&self) -> Self {
        let mut best = self.fold(true).prune();
        // Each of them can open the way for the others.
        loop {
            let smaller = best.rewrite().by_tables().fold(true).prune();
            if smaller.gates.len() >= best.gates.len() {
                return best;
            }
            best = smaller;
        }
    }

    /// Simplified further, to what is equal on all rows that the automaton meets in some steps from a start
    /// where all cells fire, and on no others: from there it goes the same way, cell by cell, and from
    /// anywhere else any way.
    pub fn simplify_reached(&self, start: &BitGrid, steps: usize) -> Self {
        let mut best = self.simplify();
        let rows = Rows::reached(&best, start, steps);
        loop {
            let smaller = best.resubstitute_on(&rows, LONG).rewrite().fold(true);
            let smaller = smaller.prune();
            if smaller.gates.len() >= best.gates.len() {
                return best;
            }
            best = smaller;
        }
    }

    /// By truth tables, of the whole or of windows.
    fn by_tables(&self) -> Self {
        let whole = self.resubstitute();
        if whole.gates.len() < self.gates.len() {
            return whole;
        }
        whole.by_windows()
    }

    /// Without gates that pass, invert or ignore an input; with `merge` also without two gates of
    /// equal function and inputs.
    pub fn fold(&self, merge: bool) -> Self {
        self.with(self.normal(merge))
    }

    /// The same with inverters and constants at the outputs alone.
    pub(super) fn normal(&self, merge: bool) -> Normal {
        let inputs = self.inputs() as u32;
        let mut signals: Vec<Signal> = (0..inputs)
            .map(|node| Signal::Node {
                node,
                inverted: false,
            })
            .collect();
        let mut gates: Vec<Gate> = Vec::new();
        let mut known: HashMap<Gate, u32> = HashMap::new();
        for gate in &self.gates {
            let (a, b) = (signals[gate.a as usize], signals[gate.b as usize]);
            let signal = match reduce(gate.op, a, b) {
                Reduced::Signal(signal) => signal,
                Reduced::Gate(gate, inverted) => {
                    let new = inputs + gates.len() as u32;
                    let node = if merge {
                        *known.entry(gate).or_insert(new)
                    } else {
                        new
                    };
                    if node == new {
                        gates.push(gate);
                    }
                    Signal::Node { node, inverted }
                }
            };
            signals.push(signal);
        }
        Normal {
            inputs: self.inputs(),
            gates,
            outputs: self.outputs.iter().map(|&o| signals[o as usize]).collect(),
        }
    }

    /// This circuit with other gates and outputs.
    pub(super) fn with(&self, normal: Normal) -> Self {
        let Normal { gates, outputs, .. } = normal;
        let mut made = HardCircuit {
            channels: self.channels,
            boundary: self.boundary,
            gates,
            outputs: Vec::new(),
        };
        let mut flipped = vec![false; made.gates.len()];
        made.outputs = outputs
            .iter()
            .map(|&s| made.materialise(s, &outputs, &mut flipped))
            .collect();
        made
    }

    /// A node for an output. An inverted gate that no output wants as it is becomes its opposite;
    /// otherwise an inverter or a constant is added.
    fn materialise(&mut self, signal: Signal, wanted: &[Signal], flipped: &mut [bool]) -> u32 {
        let inputs = self.inputs() as u32;
        let add = |gates: &mut Vec<Gate>, gate: Gate| {
            let same = gates.iter().position(|&g| g == gate);
            let at = same.unwrap_or_else(|| {
                gates.push(gate);
                gates.len() - 1
            });
            inputs + at as u32
        };
        match signal {
            Signal::Constant(value) => {
                let op = if value { 15 } else { 0 };
                add(&mut self.gates, Gate { op, a: 0, b: 0 })
            }
            Signal::Node {
                node,
                inverted: false,
            } => node,
            Signal::Node { node, .. } => {
                let wanted_plain = wanted.contains(&signal.inverted(true));
                if node >= inputs && !wanted_plain {
                    let at = (node - inputs) as usize;
                    // Done already where two outputs are this one inverted.
                    if !std::mem::replace(&mut flipped[at], true) {
                        self.gates[at].op = 15 - self.gates[at].op;
                        for gate in &mut self.gates[at + 1..] {
                            if gate.a == node {
                                gate.op = invert_a(gate.op);
                            }
                            if gate.b == node {
                                gate.op = invert_b(gate.op);
                            }
                        }
                    }
                    return node;
                }
                let (a, b) = (node, node);
                add(&mut self.gates, Gate { op: 12, a, b })
            }
        }
    }

    /// Without gates that no output depends on.
    pub fn prune(&self) -> Self {
        let inputs = self.inputs();
        let mut used = vec![false; inputs + self.gates.len()];
        for &o in &self.outputs {
            used[o as usize] = true;
        }
        for (i, gate) in self.gates.iter().enumerate().rev() {
            if used[inputs + i] {
                used[gate.a as usize] = true;
                used[gate.b as usize] = true;
            }
        }
        let mut number: Vec<u32> = (0..inputs as u32).collect();
        let mut gates = Vec::new();
        for (i, gate) in self.gates.iter().enumerate() {
            number.push((inputs + gates.len()) as u32);
            if used[inputs + i] {
                gates.push(Gate {
                    op: gate.op,
                    a: number[gate.a as usize],
                    b: number[gate.b as usize],
                });
            }
        }
        HardCircuit {
            gates,
            outputs: self.outputs.iter().map(|&o| number[o as usize]).collect(),
            ..*self
        }
    }
}
