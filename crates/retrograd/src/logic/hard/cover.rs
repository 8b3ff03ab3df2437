//! A circuit of two-input gates covered by gates of three inputs, which cost no more.
//!
//! A *cut* of a gate is a set of at most three nodes that its value can be computed from. All cuts
//! are found from the inputs onwards, a cut of a gate being the union of one of each of its two
//! inputs. Then every gate that is needed gets one of its cuts: first the one with the least *area
//! flow* (the gates it needs, each divided by how many read it), then, with the cover known, the
//! one with the fewest gates that nothing else needs; the latter a few times over.
//!
//! A table of three inputs has bit 4a + 2b + c.

use super::{Gate, HardCircuit};

/// Cuts kept of every gate, the best ones.
const CUTS: usize = 12;

/// How often cuts are chosen anew in the light of the others' choice.
const ROUNDS: usize = 4;

/// The tables of the three inputs themselves.
const VARIABLES: [u8; 3] = [0xf0, 0xcc, 0xaa];

/// Up to three nodes, in order, and what they make together.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Cut {
    nodes: [u32; 3],
    len: usize,
    pub table: u8,
}

/// Gates with the cut that each is computed from, each after those it reads.
pub(super) type Cover = Vec<(u32, Cut)>;

impl Cut {
    /// Up to three different nodes and the table on them.
    pub fn new(from: &[u32], table: u8) -> Self {
        let mut nodes = [0; 3];
        nodes[..from.len()].copy_from_slice(from);
        Cut {
            nodes,
            len: from.len(),
            table,
        }
    }

    fn of_node(node: u32) -> Self {
        Cut::new(&[node], VARIABLES[0])
    }

    pub fn nodes(&self) -> &[u32] {
        &self.nodes[..self.len]
    }

    /// The gate's value from the union of two cuts of its inputs, where it has three nodes at most.
    fn union(op: u8, a: &Cut, b: &Cut) -> Option<Self> {
        let (mut nodes, mut len) = ([0; 3], 0);
        let (mut i, mut j) = (0, 0);
        while i < a.len || j < b.len {
            let next = match (a.nodes().get(i), b.nodes().get(j)) {
                (Some(&x), Some(&y)) => x.min(y),
                (Some(&x), None) | (None, Some(&x)) => x,
                (None, None) => break,
            };
            i += usize::from(a.nodes().get(i) == Some(&next));
            j += usize::from(b.nodes().get(j) == Some(&next));
            *nodes.get_mut(len)? = next;
            len += 1;
        }
        let x = a.table_on(&nodes[..len]);
        let y = b.table_on(&nodes[..len]);
        let bit = |i: u8| if op >> i & 1 == 1 { u8::MAX } else { 0 };
        let table = bit(3) & !x & !y | bit(2) & !x & y | bit(1) & x & !y | bit(0) & x & y;
        Some(Cut { nodes, len, table })
    }

    /// The table over more nodes.
    fn table_on(&self, nodes: &[u32]) -> u8 {
        let mut places = [0; 3];
        for (place, node) in places.iter_mut().zip(self.nodes()) {
            *place = nodes.iter().position(|n| n == node).unwrap_or(0);
        }
        (0..8).fold(0, |table, row| {
            let mut own = 0;
            for (i, place) in places[..self.len].iter().enumerate() {
                own |= (row >> (2 - place) & 1) << (2 - i);
            }
            table | (self.table >> own & 1) << row
        })
    }
}

/// The gates that outputs need, with as few cuts as were found.
pub(super) fn cover(circuit: &HardCircuit) -> Cover {
    let inputs = circuit.inputs();
    let mut readers = vec![0_u32; inputs + circuit.gates.len()];
    for gate in &circuit.gates {
        readers[gate.a as usize] += 1;
        readers[gate.b as usize] += 1;
    }
    for &output in &circuit.outputs {
        readers[output as usize] += 1;
    }
    let mut cuts: Vec<Vec<Cut>> = (0..inputs).map(|i| vec![Cut::of_node(i as u32)]).collect();
    let mut flow = vec![0.0; inputs];
    for gate in &circuit.gates {
        let (found, least) = cuts_of(gate, &cuts, &flow, &readers);
        let own = Cut::of_node(cuts.len() as u32);
        flow.push(least);
        cuts.push([&found[..], &[own]].concat());
    }
    let chosen = (inputs..cuts.len()).map(|node| cuts[node][0]).collect();
    let mut choice = Choice {
        inputs,
        chosen,
        uses: vec![0; readers.len()],
    };
    for &output in &circuit.outputs {
        choice.add(output);
    }
    for _ in 0..ROUNDS {
        for node in inputs..cuts.len() {
            choice.improve(node as u32, &cuts[node]);
        }
    }
    let nodes = inputs..cuts.len();
    nodes
        .filter(|&node| choice.uses[node] > 0)
        .map(|node| (node as u32, choice.chosen[node - inputs]))
        .collect()
}

/// Every gate from its own two inputs.
pub(super) fn one_by_one(circuit: &HardCircuit) -> Cover {
    let inputs = circuit.inputs() as u32;
    let single = |(i, gate): (u32, &Gate)| {
        let [a, b] = [gate.a, gate.b].map(Cut::of_node);
        Some((inputs + i, Cut::union(gate.op, &a, &b)?))
    };
    (0..).zip(&circuit.gates).filter_map(single).collect()
}

/// The best cuts of a gate, and the least area flow.
fn cuts_of(gate: &Gate, cuts: &[Vec<Cut>], flow: &[f64], readers: &[u32]) -> (Vec<Cut>, f64) {
    let cost = |cut: &Cut| {
        let each = |&n: &u32| flow[n as usize] / f64::from(readers[n as usize].max(1));
        1.0 + cut.nodes().iter().map(each).sum::<f64>()
    };
    let mut found: Vec<(f64, Cut)> = Vec::new();
    for a in &cuts[gate.a as usize] {
        for b in &cuts[gate.b as usize] {
            if let Some(cut) = Cut::union(gate.op, a, b)
                && !found.iter().any(|(_, other)| other.nodes() == cut.nodes())
            {
                found.push((cost(&cut), cut));
            }
        }
    }
    found.sort_by(|x, y| x.0.total_cmp(&y.0));
    found.truncate(CUTS);
    let least = found[0].0;
    (found.into_iter().map(|(_, cut)| cut).collect(), least)
}

/// Which cut every gate has, and how many read it.
struct Choice {
    inputs: usize,
    chosen: Vec<Cut>,
    uses: Vec<u32>,
}

impl Choice {
    fn cut(&self, node: u32) -> Option<Cut> {
        let gate = (node as usize).checked_sub(self.inputs)?;
        Some(self.chosen[gate])
    }

    /// One more reads the node; returns the gates that are needed now and were not before.
    fn add(&mut self, node: u32) -> usize {
        self.uses[node as usize] += 1;
        if self.uses[node as usize] > 1 {
            return 0;
        }
        self.cut(node).map_or(0, |cut| 1 + self.add_nodes(&cut))
    }

    /// One less reads the node; returns the gates that are not needed any more.
    fn remove(&mut self, node: u32) -> usize {
        self.uses[node as usize] -= 1;
        if self.uses[node as usize] > 0 {
            return 0;
        }
        self.cut(node).map_or(0, |cut| 1 + self.remove_nodes(&cut))
    }

    fn add_nodes(&mut self, cut: &Cut) -> usize {
        cut.nodes().iter().map(|&n| self.add(n)).sum()
    }

    fn remove_nodes(&mut self, cut: &Cut) -> usize {
        cut.nodes().iter().map(|&n| self.remove(n)).sum()
    }

    /// Takes the cut that needs the fewest gates of its own. The last of `cuts` is the node itself.
    fn improve(&mut self, node: u32, cuts: &[Cut]) {
        if self.uses[node as usize] == 0 {
            return;
        }
        let gate = node as usize - self.inputs;
        let now = self.chosen[gate];
        self.remove_nodes(&now);
        let (mut best, mut fewest) = (now, usize::MAX);
        for cut in &cuts[..cuts.len() - 1] {
            let needed = self.add_nodes(cut);
            self.remove_nodes(cut);
            if needed < fewest {
                (best, fewest) = (*cut, needed);
            }
        }
        self.chosen[gate] = best;
        self.add_nodes(&best);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::logic::hard::rearrange::rearranged;
    use crate::logic::tests::simplifier::{of_few_inputs, rows_from};

    /// The outputs of a cover, 64 rows at a time.
    fn outputs(circuit: &HardCircuit, cover: &Cover, inputs: &[u64]) -> Vec<u64> {
        let mut values = vec![0; circuit.inputs() + circuit.gates.len()];
        values[..inputs.len()].copy_from_slice(inputs);
        for (node, cut) in cover {
            let mut value = 0;
            for row in (0..8).filter(|row| cut.table >> row & 1 == 1) {
                // The first input is the row's highest bit.
                let mut rows = u64::MAX;
                for (i, &input) in cut.nodes().iter().enumerate() {
                    let input = values[input as usize];
                    rows &= if row >> (2 - i) & 1 == 1 {
                        input
                    } else {
                        !input
                    };
                }
                // Inputs that a cut hasn't are 0 in the rows that count.
                let beyond = row & ((1 << (3 - cut.nodes().len())) - 1);
                value |= if beyond == 0 { rows } else { 0 };
            }
            values[*node as usize] = value;
        }
        circuit
            .outputs
            .iter()
            .map(|&o| values[o as usize])
            .collect()
    }

    #[test]
    fn covers_of_up_to_16_inputs_are_equal_in_every_row() {
        for (seed, used) in [(40, 9), (41, 13), (42, 16)] {
            let circuit = of_few_inputs(used, 120, seed).fold(true).prune();
            let plain = one_by_one(&circuit);
            let covered = cover(&circuit);
            let rearranged = rearranged(&circuit, cover(&circuit));
            assert!(rearranged.len() <= covered.len() && covered.len() <= plain.len());
            for first in (0..1_u64 << used).step_by(64) {
                let inputs = rows_from(first);
                let expected = outputs(&circuit, &plain, &inputs);
                assert_eq!(
                    expected,
                    outputs(&circuit, &covered, &inputs),
                    "{used} inputs"
                );
                assert_eq!(
                    expected,
                    outputs(&circuit, &rearranged, &inputs),
                    "{used} inputs"
                );
                // And gate by gate it is the circuit itself.
                let row: Vec<bool> = inputs.iter().map(|i| i & 1 == 1).collect();
                let bits: Vec<bool> = expected.iter().map(|o| o & 1 == 1).collect();
                assert_eq!(circuit.cell(&row), bits);
            }
        }
    }
}
