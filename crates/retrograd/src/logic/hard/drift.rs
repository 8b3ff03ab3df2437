//! Circuits that wander among their equals until they find smaller ones.
//!
//! A gate may be replaced by any gate on two other nodes that has the same value wherever it makes
//! a difference to an output. Where its value makes none (the rows that its *care* leaves out) the new
//! one may have any. Such a step never adds a gate, and now and then it leaves one without readers.
//! Steps are drawn at random, from a key of their own: the same circuit always goes the same way.

use super::rows::{Rows, combine};
use super::{Gate, HardCircuit};
use crate::rng::{Key, Stream};

/// The largest circuit that wanders: the nodes are tried in pairs.
const MAX_GATES: usize = 160;

/// How long a circuit wanders without getting smaller.
#[derive(Clone, Copy)]
pub(super) struct Patience {
    /// Steps for every gate, at least and at most.
    pub steps: [usize; 2],
    /// Pairs of nodes that are looked at, in between.
    pub pairs: usize,
    /// Which way it goes.
    pub turn: u64,
}

/// Where nothing else is to be done: a second or so.
pub(super) const LONG: Patience = Patience {
    steps: [60, 3000],
    pairs: 60_000_000,
    turn: 0,
};

impl HardCircuit {
    /// See the module's text. Never more gates, and others where there are no fewer.
    pub(super) fn drift(&self, rows: &Rows, patience: Patience) -> Self {
        if self.gates.len() > MAX_GATES {
            return self.clone();
        }
        let mut stream = Key::new(0).purpose("drift").index(patience.turn).stream();
        let mut best = self.clone();
        let mut wanderer = Wanderer::new(self, rows);
        let mut idle = 0;
        while idle < patience.of(best.gates.len(), wanderer.inputs) {
            idle += 1;
            let simpler = wanderer.step(&mut stream);
            if !simpler && wanderer.gates.len() >= best.gates.len() {
                continue;
            }
            let smaller = wanderer.circuit(&best, rows).fold(true).prune();
            if smaller.gates.len() < best.gates.len() {
                best = smaller;
                wanderer = Wanderer::new(&best, rows);
                idle = 0;
            }
        }
        let other = wanderer.circuit(&best, rows).fold(true).prune();
        match other.gates.len() <= best.gates.len() {
            true => other,
            false => best,
        }
    }
}

impl Patience {
    fn of(&self, gates: usize, inputs: usize) -> usize {
        let nodes = gates + inputs;
        let steps = self.pairs / (nodes * nodes / 2).max(1);
        steps.clamp(self.steps[0] * gates, self.steps[1] * gates)
    }
}

/// A circuit of the inputs that matter alone, with the values of all its nodes.
struct Wanderer {
    inputs: usize,
    gates: Vec<Gate>,
    outputs: Vec<u32>,
    words: usize,
    /// (node, word).
    values: Vec<u64>,
    /// The same where one node has its opposite value; and which of them differ.
    others: Vec<u64>,
    differs: Vec<bool>,
    /// The rows in which a node's value makes a difference to an output.
    care: Vec<u64>,
    readers: Vec<u32>,
    dying: Vec<bool>,
}

impl Wanderer {
    fn new(circuit: &HardCircuit, rows: &Rows) -> Self {
        let inputs = rows.used().len();
        let mut number = vec![0; circuit.inputs() + circuit.gates.len()];
        for (i, &input) in rows.used().iter().enumerate() {
            number[input] = i as u32;
        }
        for i in 0..circuit.gates.len() {
            number[circuit.inputs() + i] = (inputs + i) as u32;
        }
        let node = |n: u32| number[n as usize];
        let gates = circuit.gates.iter().map(|gate| Gate {
            op: gate.op,
            a: node(gate.a),
            b: node(gate.b),
        });
        // An output that is an input which no gate reads stays what it is.
        let gates: Vec<Gate> = gates.collect();
        let of_gates = circuit
            .outputs
            .iter()
            .filter(|&&o| o as usize >= circuit.inputs());
        let outputs = of_gates.map(|&o| node(o)).collect();
        let nodes = inputs + gates.len();
        let mut values = Vec::with_capacity(nodes * rows.words());
        for i in 0..inputs {
            values.extend_from_slice(rows.table(i));
        }
        Wanderer {
            inputs,
            gates,
            outputs,
            words: rows.words(),
            values,
            others: Vec::new(),
            differs: Vec::new(),
            care: Vec::new(),
            readers: Vec::new(),
            dying: Vec::new(),
        }
    }

    /// The circuit in its own numbers.
    fn circuit(&self, like: &HardCircuit, rows: &Rows) -> HardCircuit {
        let first = like.inputs() as u32;
        let node = |n: u32| match rows.used().get(n as usize) {
            Some(&input) => input as u32,
            None => first + n - self.inputs as u32,
        };
        let gates = self.gates.iter().map(|gate| Gate {
            op: gate.op,
            a: node(gate.a),
            b: node(gate.b),
        });
        let mut wandered = self.outputs.iter();
        let outputs = like.outputs.iter().map(|&o| match o < first {
            true => o,
            false => node(*wandered.next().expect("as many as there were")),
        });
        HardCircuit {
            outputs: outputs.collect(),
            gates: gates.collect(),
            ..*like
        }
    }

    fn value(&self, node: usize) -> &[u64] {
        &self.values[node * self.words..(node + 1) * self.words]
    }

    /// Replaces one gate by another and drops what lives no longer. Whether the gate has one input now, or
    /// none: then it may go.
    fn step(&mut self, stream: &mut Stream) -> bool {
        if self.gates.is_empty() {
            return false;
        }
        if stream.below(16) == 0 {
            // In another order other nodes come before a gate.
            self.in_random_order(stream);
        }
        let node = self.inputs + stream.below(self.gates.len());
        self.find_values();
        self.find_care(node);
        self.find_dying(node);
        let Some(gate) = self.choose(node, stream) else {
            return false;
        };
        self.gates[node - self.inputs] = gate;
        self.prune();
        gate.a == gate.b
    }

    fn find_values(&mut self) {
        let words = self.words;
        self.values
            .resize((self.inputs + self.gates.len()) * words, 0);
        for (i, gate) in self.gates.iter().enumerate() {
            let (before, value) = self.values.split_at_mut((self.inputs + i) * words);
            let a = &before[gate.a as usize * words..][..words];
            let b = &before[gate.b as usize * words..][..words];
            for ((value, &a), &b) in value.iter_mut().zip(a).zip(b) {
                *value = combine(gate.op, a, b);
            }
        }
    }

    fn find_care(&mut self, node: usize) {
        let (words, inputs) = (self.words, self.inputs);
        let nodes = inputs + self.gates.len();
        self.others.resize(nodes * words, 0);
        self.differs.clear();
        self.differs.resize(nodes, false);
        self.differs[node] = true;
        for w in node * words..(node + 1) * words {
            self.others[w] = !self.values[w];
        }
        for (i, gate) in self.gates.iter().enumerate().skip(node + 1 - inputs) {
            let (a, b) = (gate.a as usize, gate.b as usize);
            if !self.differs[a] && !self.differs[b] {
                continue;
            }
            let at = (inputs + i) * words;
            let (before, new) = self.others.split_at_mut(at);
            let mut changed = 0;
            for w in 0..words {
                let of = |node: usize| match self.differs[node] {
                    true => before[node * words + w],
                    false => self.values[node * words + w],
                };
                new[w] = combine(gate.op, of(a), of(b));
                changed |= new[w] ^ self.values[at + w];
            }
            self.differs[inputs + i] = changed != 0;
        }
        self.care.clear();
        self.care.resize(words, 0);
        for &o in &self.outputs {
            if self.differs[o as usize] {
                let at = o as usize * words;
                for (w, care) in self.care.iter_mut().enumerate() {
                    *care |= self.others[at + w] ^ self.values[at + w];
                }
            }
        }
    }

    /// The nodes that would die with this one, itself among them. All gates live.
    fn find_dying(&mut self, node: usize) {
        let nodes = self.inputs + self.gates.len();
        self.readers.clear();
        self.readers.resize(nodes, 0);
        let read = self.gates.iter().flat_map(|gate| [gate.a, gate.b]);
        for n in read.chain(self.outputs.iter().copied()) {
            self.readers[n as usize] += 1;
        }
        self.dying.clear();
        self.dying.resize(nodes, false);
        self.dying[node] = true;
        for i in (self.inputs..=node).rev() {
            if self.dying[i] {
                let gate = self.gates[i - self.inputs];
                for n in [gate.a as usize, gate.b as usize] {
                    self.readers[n] -= 1;
                    self.dying[n] |= self.readers[n] == 0 && n >= self.inputs;
                }
            }
        }
    }

    /// A gate that has a node's values where they matter: one that lets as many others die as can be,
    /// drawn among equals. The gate that is there is one of them.
    fn choose(&self, node: usize, stream: &mut Stream) -> Option<Gate> {
        let (target, care) = (self.value(node), &self.care[..]);
        let mut best: Option<(usize, Gate)> = None;
        let mut equals = 0;
        for a in 0..node {
            if let Some(op) = op_on(target, care, self.value(a), self.value(a)) {
                // A wire, an inverter or a constant: the gate itself goes.
                let (a, b) = (a as u32, a as u32);
                return Some(Gate { op, a, b });
            }
            for b in 0..a {
                let kept = usize::from(self.dying[a]) + usize::from(self.dying[b]);
                if best.is_some_and(|(least, _)| kept > least) {
                    continue;
                }
                let Some(op) = op_on(target, care, self.value(a), self.value(b)) else {
                    continue;
                };
                if best.is_none_or(|(least, _)| kept < least) {
                    equals = 0;
                }
                equals += 1;
                if stream.below(equals) == 0 {
                    let (a, b) = (a as u32, b as u32);
                    best = Some((kept, Gate { op, a, b }));
                }
            }
        }
        best.map(|(_, gate)| gate)
    }

    /// Without gates that no output depends on.
    fn prune(&mut self) {
        let nodes = self.inputs + self.gates.len();
        let mut used = vec![false; nodes];
        for &o in &self.outputs {
            used[o as usize] = true;
        }
        for (i, gate) in self.gates.iter().enumerate().rev() {
            if used[self.inputs + i] {
                used[gate.a as usize] = true;
                used[gate.b as usize] = true;
            }
        }
        let mut number: Vec<u32> = (0..self.inputs as u32).collect();
        let mut kept = self.inputs as u32;
        for &used in &used[self.inputs..] {
            number.push(kept);
            kept += u32::from(used);
        }
        let mut at = self.inputs;
        self.gates.retain_mut(|gate| {
            (gate.a, gate.b) = (number[gate.a as usize], number[gate.b as usize]);
            at += 1;
            used[at - 1]
        });
        for output in &mut self.outputs {
            *output = number[*output as usize];
        }
    }

    fn in_random_order(&mut self, stream: &mut Stream) {
        let inputs = self.inputs;
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

/// The gate on two nodes with a target's values where they matter, if there is one. Where a pair
/// of values never occurs there, or a ≠ b never does, the gate is 0.
fn op_on(target: &[u64], care: &[u64], a: &[u64], b: &[u64]) -> Option<u8> {
    let (mut ones, mut zeros) = (0_u8, 0_u8);
    for (((t, c), a), b) in target.iter().zip(care).zip(a).zip(b) {
        let (wanted, unwanted) = (c & t, c & !t);
        for (bit, rows) in [(3, !a & !b), (2, !a & b), (1, a & !b), (0, a & b)] {
            ones |= u8::from(rows & wanted != 0) << bit;
            zeros |= u8::from(rows & unwanted != 0) << bit;
        }
        if ones & zeros != 0 {
            return None;
        }
    }
    Some(ones)
}
