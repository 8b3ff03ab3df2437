//! Large circuits made smaller a window at a time.
//!
//! A window is a set of gates that few nodes decide. It is a circuit of few inputs, which
//! [`HardCircuit::resubstitute`] makes smaller by complete truth tables; what comes out takes its
//! place. No node that the window reads may depend on a gate of it: then the new gates, whatever
//! they read of these nodes, close no circle.

use std::cmp::Reverse;

use super::drift::Patience;
use super::{Gate, HardCircuit};

/// Nodes that a window reads, at most; in one pass after the other.
const MAX_LEAVES: [usize; 3] = [10, 12, 14];

/// Gates of a window, at most.
const MAX_GATES: [usize; 3] = [40, 60, 80];

/// Steps for every gate of a window that wanders without getting smaller.
const STEPS: usize = 10;

/// Passes over all windows without a smaller circuit after which there are no more; of large circuits.
const PASSES: [usize; 2] = [6, 1];

/// Gates from which on a circuit is large: a pass takes seconds.
const LARGE: usize = 400;

/// Channels of a window's circuit: nine inputs each.
const CHANNELS: usize = MAX_LEAVES[2].div_ceil(9);

/// Gates, and the nodes that they read and that decide them.
struct Window {
    /// Sorted.
    gates: Vec<u32>,
    leaves: Vec<u32>,
}

impl HardCircuit {
    /// Tries a window around every gate, again and again: what was put in the place of a window, even
    /// where it is no smaller, makes others of the windows around it. Never more gates.
    pub(in crate::logic) fn by_windows(&self) -> Self {
        let mut best = self.clone();
        let mut now = self.clone();
        let (mut turn, mut idle) = (0, 0);
        while idle < PASSES[usize::from(best.gates.len() > LARGE)] {
            now = now.pass_over_windows(turn);
            turn += 1;
            idle += 1;
            if now.gates.len() < best.gates.len() {
                best = now.clone();
                idle = 0;
            }
        }
        best
    }

    /// From the last gate to the first.
    fn pass_over_windows(&self, turn: u64) -> Self {
        let patience = Patience {
            steps: [STEPS, STEPS],
            pairs: 0,
            turn,
        };
        let size = turn as usize % MAX_LEAVES.len();
        let mut circuit = self.clone();
        let mut at = circuit.gates.len();
        while at > 0 {
            at -= 1;
            let node = (circuit.inputs() + at) as u32;
            if let Some(window) = circuit.window(node, size)
                && let Some(other) = circuit.improved(&window, patience)
            {
                circuit = other;
                at = at.min(circuit.gates.len());
            }
        }
        circuit
    }

    fn reads(&self, node: u32) -> Option<[u32; 2]> {
        let at = (node as usize).checked_sub(self.inputs())?;
        Some([self.gates[at].a, self.gates[at].b])
    }

    /// The window of a gate: what decides it, taken in where that adds the fewest leaves, and then
    /// all gates that the leaves decide.
    fn window(&self, node: u32, size: usize) -> Option<Window> {
        let (max_leaves, max_gates) = (MAX_LEAVES[size], MAX_GATES[size]);
        let mut inside = vec![false; self.inputs() + self.gates.len()];
        let mut gates = vec![node];
        inside[node as usize] = true;
        let mut leaves: Vec<u32> = self.reads(node)?.to_vec();
        leaves.dedup();
        while gates.len() < max_gates {
            // A leaf that another one depends on stays a leaf.
            let reads = leaves.iter().filter_map(|&l| self.reads(l)).flatten();
            let below = self.below(&reads.collect::<Vec<_>>());
            let added = |&leaf: &u32| -> Option<(usize, Reverse<u32>)> {
                let reads = self.reads(leaf).filter(|_| !below[leaf as usize])?;
                let new = reads.iter().filter(|n| !leaves.contains(n)).count();
                Some((new, Reverse(leaf)))
            };
            let cheapest = leaves.iter().filter_map(added).min();
            let Some((_, Reverse(leaf))) =
                cheapest.filter(|c| leaves.len() + c.0 <= max_leaves + 1)
            else {
                break;
            };
            leaves.retain(|&l| l != leaf);
            gates.push(leaf);
            inside[leaf as usize] = true;
            for n in self.reads(leaf).into_iter().flatten() {
                if !leaves.contains(&n) {
                    leaves.push(n);
                }
            }
        }
        let below = self.below(&leaves);
        let mut decided = inside.clone();
        for &leaf in &leaves {
            decided[leaf as usize] = true;
        }
        for (i, gate) in self.gates.iter().enumerate() {
            let n = self.inputs() + i;
            if gates.len() < max_gates
                && !decided[n]
                && !below[n]
                && decided[gate.a as usize]
                && decided[gate.b as usize]
            {
                decided[n] = true;
                gates.push(n as u32);
            }
        }
        gates.sort_unstable();
        (gates.len() >= 3).then_some(Window { gates, leaves })
    }

    /// Some nodes and all that they depend on.
    fn below(&self, nodes: &[u32]) -> Vec<bool> {
        let mut below = vec![false; self.inputs() + self.gates.len()];
        let mut open = nodes.to_vec();
        while let Some(node) = open.pop() {
            if !std::mem::replace(&mut below[node as usize], true) {
                open.extend(self.reads(node).into_iter().flatten());
            }
        }
        below
    }

    /// With another circuit in the place of a window that is no larger, if there is one; in the first pass
    /// a smaller one.
    fn improved(&self, window: &Window, patience: Patience) -> Option<Self> {
        let inputs = self.inputs();
        let own = CHANNELS * 9;
        let mut number = vec![None; inputs + self.gates.len()];
        for (i, &leaf) in window.leaves.iter().enumerate() {
            number[leaf as usize] = Some(i as u32);
        }
        let mut part = HardCircuit {
            channels: CHANNELS,
            boundary: self.boundary,
            gates: Vec::new(),
            outputs: Vec::new(),
        };
        let mut inside = vec![false; number.len()];
        for &node in &window.gates {
            let gate = self.gates[node as usize - inputs];
            let (a, b) = (number[gate.a as usize]?, number[gate.b as usize]?);
            number[node as usize] = Some((own + part.gates.len()) as u32);
            inside[node as usize] = true;
            part.gates.push(Gate { op: gate.op, a, b });
        }
        // What is read from outside.
        let mut wanted = vec![false; number.len()];
        for &o in &self.outputs {
            wanted[o as usize] = inside[o as usize];
        }
        for (i, gate) in self.gates.iter().enumerate() {
            if !inside[inputs + i] {
                for n in [gate.a as usize, gate.b as usize] {
                    wanted[n] |= inside[n];
                }
            }
        }
        let wanted: Vec<u32> = (0..)
            .zip(&wanted)
            .filter_map(|(n, &w)| w.then_some(n))
            .collect();
        part.outputs = wanted.iter().filter_map(|&n| number[n as usize]).collect();
        let smaller = part.fold(true).prune().resubstitute_within(patience);
        let most = part.gates.len() - usize::from(patience.turn == 0);
        if smaller.gates.len() > most {
            return None;
        }
        // New gates after all others; then everything in order.
        let mut gates = self.gates.clone();
        let first = (inputs + gates.len()) as u32;
        let outside = |n: u32| match (n as usize).checked_sub(own) {
            None => window.leaves[n as usize],
            Some(i) => first + i as u32,
        };
        for gate in &smaller.gates {
            gates.push(Gate {
                op: gate.op,
                a: outside(gate.a),
                b: outside(gate.b),
            });
        }
        let mut moved: Vec<u32> = (0..(inputs + gates.len()) as u32).collect();
        for (&node, &output) in wanted.iter().zip(&smaller.outputs) {
            moved[node as usize] = outside(output);
        }
        for gate in &mut gates {
            (gate.a, gate.b) = (moved[gate.a as usize], moved[gate.b as usize]);
        }
        let outputs = self.outputs.iter().map(|&o| moved[o as usize]).collect();
        let changed = HardCircuit {
            gates,
            outputs,
            ..*self
        };
        let changed = changed.in_order().fold(true).prune();
        (changed.gates.len() <= self.gates.len()).then_some(changed)
    }

    /// The gates that outputs need, each after what it reads.
    fn in_order(&self) -> Self {
        let inputs = self.inputs();
        let mut number: Vec<Option<u32>> = vec![None; inputs + self.gates.len()];
        for i in 0..inputs {
            number[i] = Some(i as u32);
        }
        let mut gates = Vec::new();
        let mut open = self.outputs.clone();
        while let Some(&node) = open.last() {
            if number[node as usize].is_some() {
                open.pop();
                continue;
            }
            let gate = self.gates[node as usize - inputs];
            match (number[gate.a as usize], number[gate.b as usize]) {
                (Some(a), Some(b)) => {
                    number[node as usize] = Some((inputs + gates.len()) as u32);
                    gates.push(Gate { op: gate.op, a, b });
                    open.pop();
                }
                (None, _) => open.push(gate.a),
                _ => open.push(gate.b),
            }
        }
        let numbered = |&o: &u32| number[o as usize].expect("outputs were visited");
        HardCircuit {
            outputs: self.outputs.iter().map(numbered).collect(),
            gates,
            ..*self
        }
    }
}
