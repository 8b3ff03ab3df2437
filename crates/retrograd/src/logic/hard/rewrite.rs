//! Circuits made smaller by putting the smallest known circuit in the place of a part.
//!
//! A *cut* of a gate is a set of up to four nodes that decide its value. The gate is a function of
//! them, for which [`Library`] has a circuit. Put in its place, it costs the gates that
//! aren't there yet, and saves the gate and what lives for it alone. Where that saves something it
//! is done; where it saves nothing it is done in every other pass, since another circuit of the same
//! size may open the way for a smaller one.
//!
//! All gates are 0 at (0, 0) here: inverters are in the gates that read and at the outputs. So every
//! node is 0 where all inputs are, and a cut's function is 0 where its leaves are.

use std::collections::HashMap;

use super::library::{Library, VARIABLES, on_tables};
use super::simplify::{Normal, Signal, exchange};
use super::{Gate, HardCircuit};

/// Cuts kept of a gate.
const MAX_CUTS: usize = 20;

/// Passes without a smaller circuit after which there are no more.
const PATIENCE: usize = 8;

/// Nodes that decide a gate, sorted, and the gate as their function.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Cut {
    leaves: [u32; 4],
    len: u8,
    table: u16,
}

impl Cut {
    fn alone(node: u32) -> Self {
        Cut {
            leaves: [node, 0, 0, 0],
            len: 1,
            table: VARIABLES[0],
        }
    }

    fn leaves(&self) -> &[u32] {
        &self.leaves[..self.len as usize]
    }

    /// The leaves of both, if there are no more than four.
    fn union(&self, other: &Cut) -> Option<Cut> {
        let mut union = *self;
        for &leaf in other.leaves() {
            if union.leaves().contains(&leaf) {
                continue;
            }
            if union.len == 4 {
                return None;
            }
            union.leaves[union.len as usize] = leaf;
            union.len += 1;
        }
        union.leaves[..union.len as usize].sort_unstable();
        Some(union)
    }

    /// The table with the leaves of a larger cut.
    fn table_in(&self, larger: &Cut) -> u16 {
        let mut place = [0; 4];
        for (i, leaf) in self.leaves().iter().enumerate() {
            place[i] = larger.leaves().iter().position(|l| l == leaf).unwrap_or(0);
        }
        let mut table = 0;
        for row in 0..16 {
            let mut own = 0;
            for (i, &place) in place[..self.len as usize].iter().enumerate() {
                own |= (row >> place & 1) << i;
            }
            table |= (self.table >> own & 1) << row;
        }
        table
    }
}

/// A circuit while it changes. Nodes are never renumbered: a replaced one points to what replaced
/// it, and new ones are added at the end.
struct Net {
    inputs: usize,
    gates: Vec<Gate>,
    outputs: Vec<Signal>,
    /// How many live gates and outputs read a node.
    readers: Vec<u32>,
    replaced: Vec<Option<u32>>,
    known: HashMap<Gate, u32>,
    cuts: Vec<Vec<Cut>>,
}

impl Net {
    fn new(circuit: &Normal) -> Self {
        let nodes = circuit.inputs + circuit.gates.len();
        let mut net = Net {
            inputs: circuit.inputs,
            gates: circuit.gates.clone(),
            outputs: circuit.outputs.clone(),
            readers: vec![0; nodes],
            replaced: vec![None; nodes],
            known: HashMap::new(),
            cuts: vec![Vec::new(); nodes],
        };
        for (i, &gate) in circuit.gates.iter().enumerate() {
            net.known.insert(gate, (circuit.inputs + i) as u32);
        }
        for signal in &circuit.outputs {
            if let Signal::Node { node, .. } = *signal {
                net.revive(node);
                net.readers[node as usize] += 1;
            }
        }
        net
    }

    fn resolve(&self, mut node: u32) -> u32 {
        while let Some(next) = self.replaced[node as usize] {
            node = next;
        }
        node
    }

    /// What a gate reads now; nothing for an input.
    fn reads(&self, node: u32) -> Option<[u32; 2]> {
        let gate = self.gates.get((node as usize).checked_sub(self.inputs)?)?;
        Some([self.resolve(gate.a), self.resolve(gate.b)])
    }

    /// Lets a node without readers read what it needs, before it gets one.
    fn revive(&mut self, node: u32) {
        if self.readers[node as usize] > 0 {
            return;
        }
        for n in self.reads(node).into_iter().flatten() {
            self.revive(n);
            self.readers[n as usize] += 1;
        }
    }

    /// The opposite, after it lost the last one. Returns how many gates died, itself among them.
    fn let_die(&mut self, node: u32) -> usize {
        let Some(reads) = self.reads(node) else {
            return 0;
        };
        let mut died = 1;
        for n in reads {
            self.readers[n as usize] -= 1;
            if self.readers[n as usize] == 0 {
                died += self.let_die(n);
            }
        }
        died
    }

    fn find_cuts(&mut self, node: u32) {
        let Some([a, b]) = self.reads(node) else {
            return;
        };
        let op = self.gates[node as usize - self.inputs].op;
        let mut cuts: Vec<Cut> = Vec::new();
        let own = [Cut::alone(a), Cut::alone(b)];
        'all: for x in own[..1].iter().chain(&self.cuts[a as usize]) {
            for y in own[1..].iter().chain(&self.cuts[b as usize]) {
                let Some(mut cut) = x.union(y) else {
                    continue;
                };
                cut.table = on_tables(op, x.table_in(&cut), y.table_in(&cut));
                if !cuts.iter().any(|c| c.leaves() == cut.leaves()) {
                    cuts.push(cut);
                    if cuts.len() == MAX_CUTS {
                        break 'all;
                    }
                }
            }
        }
        self.cuts[node as usize] = cuts;
    }

    /// A gate with its inputs in order, as they are stored.
    fn ordered(op: u8, a: u32, b: u32) -> Gate {
        if a < b {
            Gate { op, a, b }
        } else {
            Gate {
                op: exchange(op),
                a: b,
                b: a,
            }
        }
    }

    /// How many gates a cut's circuit needs beside those that live. None where it would read the node
    /// itself, or is what is there already.
    fn cost(&self, node: u32, cut: &Cut) -> Option<usize> {
        let chain = Library::get().chain(cut.table);
        let mut nodes: Vec<Option<u32>> = cut.leaves().iter().map(|&l| Some(l)).collect();
        nodes.resize(4, None);
        let mut cost = 0;
        for step in chain.steps() {
            let (a, b) = (nodes[step.a as usize], nodes[step.b as usize]);
            let known = a.zip(b).and_then(|(a, b)| {
                let found = self.known.get(&Self::ordered(step.op, a, b))?;
                self.replaced[*found as usize].is_none().then_some(*found)
            });
            if known == Some(node) {
                return None;
            }
            cost += usize::from(known.is_none_or(|k| self.readers[k as usize] == 0));
            nodes.push(known);
        }
        (nodes[chain.output as usize] != Some(node)).then_some(cost)
    }

    /// The node of a cut's circuit, its gates made where they aren't there.
    fn build(&mut self, cut: &Cut) -> u32 {
        let chain = Library::get().chain(cut.table);
        let mut nodes = cut.leaves().to_vec();
        nodes.resize(4, 0);
        for step in chain.steps() {
            let gate = Self::ordered(step.op, nodes[step.a as usize], nodes[step.b as usize]);
            let known = self.known.get(&gate).copied();
            let known = known.filter(|&k| self.replaced[k as usize].is_none());
            nodes.push(known.unwrap_or_else(|| {
                let new = (self.inputs + self.gates.len()) as u32;
                self.gates.push(gate);
                self.readers.push(0);
                self.replaced.push(None);
                self.cuts.push(Vec::new());
                self.known.insert(gate, new);
                self.find_cuts(new);
                new
            }));
        }
        nodes[chain.output as usize]
    }

    /// Whether a node's value depends on another's.
    fn depends(&self, node: u32, on: u32) -> bool {
        let mut seen = vec![false; self.readers.len()];
        let mut open = vec![node];
        while let Some(node) = open.pop() {
            if node == on {
                return true;
            }
            if !std::mem::replace(&mut seen[node as usize], true) {
                open.extend(self.reads(node).into_iter().flatten());
            }
        }
        false
    }

    /// The cut whose circuit saves most, and how much; among equals another one in every pass.
    fn best_cut(&mut self, node: u32, pass: usize) -> Option<(Cut, isize)> {
        let mut best: Option<(Cut, isize)> = None;
        let cuts = std::mem::take(&mut self.cuts[node as usize]);
        let start = if cuts.is_empty() {
            0
        } else {
            pass % cuts.len()
        };
        for cut in cuts[start..].iter().chain(&cuts[..start]) {
            let live = |&l: &u32| {
                self.replaced[l as usize].is_none()
                    && ((l as usize) < self.inputs || self.readers[l as usize] > 0)
            };
            if cut.table == 0 || !cut.leaves().iter().all(live) {
                continue;
            }
            // Leaves stay, whatever dies.
            for &l in cut.leaves() {
                self.readers[l as usize] += 1;
            }
            let saved = self.let_die(node) as isize;
            let cost = self.cost(node, cut);
            for n in self.reads(node).into_iter().flatten() {
                self.revive(n);
                self.readers[n as usize] += 1;
            }
            for &l in cut.leaves() {
                self.readers[l as usize] -= 1;
            }
            let Some(cost) = cost else {
                continue;
            };
            let gain = saved - cost as isize;
            if best.is_none_or(|(_, g)| gain > g) {
                best = Some((*cut, gain));
            }
        }
        self.cuts[node as usize] = cuts;
        best
    }

    /// Visits every gate once. With `equal` circuits of the same size are exchanged too.
    fn pass(&mut self, pass: usize, equal: bool) {
        for at in 0..self.gates.len() {
            let node = (self.inputs + at) as u32;
            if self.replaced[node as usize].is_some() {
                continue;
            }
            self.find_cuts(node);
            if self.readers[node as usize] == 0 {
                continue;
            }
            let Some((cut, gain)) = self.best_cut(node, pass) else {
                continue;
            };
            if gain < 0 || gain == 0 && !equal {
                continue;
            }
            let new = self.build(&cut);
            if self.depends(new, node) {
                continue;
            }
            self.revive(new);
            self.readers[new as usize] += self.readers[node as usize];
            self.readers[node as usize] = 0;
            self.let_die(node);
            self.replaced[node as usize] = Some(new);
        }
    }

    /// The live gates in order.
    fn circuit(&self) -> Normal {
        let mut made = Normal {
            inputs: self.inputs,
            gates: Vec::new(),
            outputs: Vec::new(),
        };
        let mut number: HashMap<u32, u32> = (0..self.inputs as u32).map(|i| (i, i)).collect();
        for signal in &self.outputs {
            let output = match *signal {
                Signal::Node { node, inverted } => {
                    let node = self.number(self.resolve(node), &mut number, &mut made);
                    Signal::Node { node, inverted }
                }
                constant => constant,
            };
            made.outputs.push(output);
        }
        made
    }

    /// A node's number among the live gates; it is added after what it reads.
    fn number(&self, node: u32, number: &mut HashMap<u32, u32>, made: &mut Normal) -> u32 {
        let mut open = vec![node];
        while let Some(&node) = open.last() {
            let reads = self.reads(node).unwrap_or_default();
            let missing = reads.into_iter().find(|n| !number.contains_key(n));
            match missing {
                _ if number.contains_key(&node) => {
                    open.pop();
                }
                Some(n) => open.push(n),
                None => {
                    let op = self.gates[node as usize - self.inputs].op;
                    let gate = Self::ordered(op, number[&reads[0]], number[&reads[1]]);
                    number.insert(node, (made.inputs + made.gates.len()) as u32);
                    made.gates.push(gate);
                    open.pop();
                }
            }
        }
        number[&node]
    }
}

impl HardCircuit {
    /// See the module's text. Never more gates.
    pub fn rewrite(&self) -> Self {
        let mut best = self.clone();
        let mut now = self.normal(true);
        let mut idle = 0;
        let mut pass = 0;
        while idle < PATIENCE {
            let mut net = Net::new(&now);
            net.pass(pass, pass % 2 == 1);
            // What became equal, constant or a wire goes when it is folded.
            let circuit = self.with(net.circuit()).fold(true).prune();
            now = circuit.normal(true);
            pass += 1;
            idle += 1;
            if circuit.gates.len() < best.gates.len() {
                best = circuit;
                idle = 0;
            }
        }
        best
    }
}
