//! A cover of few inputs made smaller by walking through its equals.
//!
//! With up to nine inputs a node is a table of 512 bits, and whether a node can be computed from
//! three others is seen from the tables: no two rows with equal values of the three may ask for
//! different ones. Every gate in turn is computed from the first three nodes that are found, in a
//! random order, among those that don't depend on it and don't live for it alone. Such a step never
//! makes the cover larger, often leaves gates that nothing needs, and otherwise it is another cover
//! of the same size, from which the next round goes on.

use super::HardCircuit;
use super::cover::{Cover, Cut};
use crate::rng::{Key, Stream};

/// Inputs whose every combination has a row in a [`Table`].
const MAX_INPUTS: usize = 9;
/// A round looks at most triples of nodes for every gate: milliseconds for covers of this size.
const MAX_GATES: usize = 128;
/// Rounds without a smaller cover after which the walk ends.
const PATIENCE: usize = 60;

type Table = [u64; 8];

struct Walk {
    /// Nodes below are inputs.
    inputs: usize,
    cuts: Vec<Option<Cut>>,
    tables: Vec<Table>,
    outputs: Vec<u32>,
}

/// The cover with as few gates as were found; as it is where it has too many inputs or gates.
pub(super) fn rearranged(circuit: &HardCircuit, cover: Cover) -> Cover {
    let inputs = circuit.inputs();
    let mut used: Vec<u32> = cover
        .iter()
        .flat_map(|(_, cut)| cut.nodes())
        .copied()
        .filter(|&node| (node as usize) < inputs)
        .collect();
    used.sort_unstable();
    used.dedup();
    if used.len() > MAX_INPUTS || cover.len() > MAX_GATES {
        return cover;
    }
    let nodes = inputs + circuit.gates.len();
    let mut walk = Walk {
        inputs,
        cuts: vec![None; nodes],
        tables: vec![[0; 8]; nodes],
        outputs: circuit.outputs.clone(),
    };
    for (k, &input) in used.iter().enumerate() {
        walk.tables[input as usize] = std::array::from_fn(|word| {
            let row = |bit: usize| (64 * word + bit) >> k & 1;
            (0..64).fold(0, |table, bit| table | (row(bit) as u64) << bit)
        });
    }
    for &(node, cut) in &cover {
        walk.cuts[node as usize] = Some(cut);
        walk.tables[node as usize] = walk.value(&cut);
    }
    let mut stream = Key::new(0).purpose("rearrange").stream();
    let mut fewest = walk.in_order();
    let mut idle = 0;
    while idle < PATIENCE {
        walk.round(&used, &mut stream);
        let now = walk.in_order();
        idle = if now.len() < fewest.len() {
            0
        } else {
            idle + 1
        };
        if now.len() <= fewest.len() {
            fewest = now;
        }
    }
    fewest
}

impl Walk {
    /// The table of a cut.
    fn value(&self, cut: &Cut) -> Table {
        let tables = cut.nodes().iter().map(|&n| self.tables[n as usize]);
        let mut inputs = [[0; 8]; 3];
        for (input, table) in inputs.iter_mut().zip(tables) {
            *input = table;
        }
        std::array::from_fn(|word| {
            (0..8)
                .filter(|row| cut.table >> row & 1 == 1)
                .fold(0, |sum, row| {
                    let all = (0..3).fold(u64::MAX, |all, i| {
                        let flip = if row >> (2 - i) & 1 == 1 { 0 } else { u64::MAX };
                        all & (inputs[i][word] ^ flip)
                    });
                    sum | all
                })
        })
    }

    /// The gates that outputs need, each after what it reads.
    fn in_order(&self) -> Cover {
        let mut seen = vec![false; self.cuts.len()];
        let mut ordered = Vec::new();
        let mut waiting: Vec<(u32, bool)> = self.outputs.iter().map(|&o| (o, false)).collect();
        while let Some((node, ready)) = waiting.pop() {
            let Some(cut) = self.cuts[node as usize] else {
                continue;
            };
            if ready {
                ordered.push((node, cut));
            } else if !std::mem::replace(&mut seen[node as usize], true) {
                waiting.push((node, true));
                waiting.extend(cut.nodes().iter().map(|&n| (n, false)));
            }
        }
        ordered
    }

    /// Every gate anew, in a random order.
    fn round(&mut self, used: &[u32], stream: &mut Stream) {
        let mut order: Vec<u32> = self.in_order().iter().map(|&(node, _)| node).collect();
        stream.shuffle(&mut order);
        for node in order {
            let live = self.in_order();
            if !live.iter().any(|&(other, _)| other == node) {
                continue;
            }
            let excluded = self.excluded(node, &live);
            let others = live.iter().map(|&(other, _)| other);
            let mut from: Vec<u32> = others.filter(|&n| !excluded[n as usize]).collect();
            from.extend(used);
            stream.shuffle(&mut from);
            if let Some(cut) = self.find(node, &from) {
                self.cuts[node as usize] = Some(cut);
            }
        }
    }

    /// The node, what depends on it, and what nothing else needs.
    fn excluded(&self, node: u32, live: &Cover) -> Vec<bool> {
        let mut excluded = vec![false; self.cuts.len()];
        excluded[node as usize] = true;
        for (other, cut) in live {
            if cut.nodes().iter().any(|&n| excluded[n as usize]) {
                excluded[*other as usize] = true;
            }
        }
        let mut readers = vec![0; self.cuts.len()];
        for (_, cut) in live {
            for &n in cut.nodes() {
                readers[n as usize] += 1;
            }
        }
        for &output in &self.outputs {
            readers[output as usize] += 1;
        }
        let mut dead = vec![node];
        while let Some(cut) = dead.pop().and_then(|n| self.cuts[n as usize]) {
            for &n in cut.nodes() {
                readers[n as usize] -= 1;
                if readers[n as usize] == 0 && n as usize >= self.inputs {
                    excluded[n as usize] = true;
                    dead.push(n);
                }
            }
        }
        excluded
    }

    /// The first two or three of these nodes that the node can be computed from.
    fn find(&self, node: u32, from: &[u32]) -> Option<Cut> {
        let target = &self.tables[node as usize];
        let table = |n: u32| &self.tables[n as usize];
        for (i, &a) in from.iter().enumerate() {
            for (j, &b) in from[..i].iter().enumerate() {
                // Rows by the values of a and b, where the target is 1 and where it is 0.
                let mut sides = [[[0; 8]; 2]; 4];
                let mut mixed = 0;
                for at in 0..4 {
                    let [x, y] = [at >> 1, at & 1].map(|bit| if bit == 1 { 0 } else { u64::MAX });
                    let rows: Table =
                        std::array::from_fn(|w| (table(a)[w] ^ x) & (table(b)[w] ^ y));
                    let ones = std::array::from_fn(|w| rows[w] & target[w]);
                    let zeros = std::array::from_fn(|w| rows[w] & !target[w]);
                    if ones != [0; 8] && zeros != [0; 8] {
                        sides[mixed] = [ones, zeros];
                        mixed += 1;
                    }
                }
                if mixed == 0 {
                    return Some(self.cut(node, &[a, b]));
                }
                for &c in &from[..j] {
                    let tells = sides[..mixed].iter().all(|[ones, zeros]| {
                        let any = |rows: &Table, flip: u64| {
                            (0..8).fold(0, |any, w| any | rows[w] & (table(c)[w] ^ flip)) != 0
                        };
                        let both = |flip: u64| any(ones, flip) && any(zeros, flip);
                        !both(0) && !both(u64::MAX)
                    });
                    if tells {
                        return Some(self.cut(node, &[a, b, c]));
                    }
                }
            }
        }
        None
    }

    /// The node's value from these nodes.
    fn cut(&self, node: u32, from: &[u32]) -> Cut {
        let target = &self.tables[node as usize];
        let table = (0..8_u8).fold(0, |table, row| {
            let asks = (0..8).any(|w| {
                let rows = from.iter().enumerate().fold(u64::MAX, |rows, (i, &n)| {
                    let flip = if row >> (2 - i) & 1 == 1 { 0 } else { u64::MAX };
                    rows & (self.tables[n as usize][w] ^ flip)
                });
                rows & target[w] != 0
            });
            table | u8::from(asks) << row
        });
        Cut::new(from, table)
    }
}
