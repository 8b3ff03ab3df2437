//! A circuit as a straight program: instructions on slots of memory, each a gate of two or three
//! inputs on many cells at a time.
//!
//! A slot may hold a node's opposite, so that every gate gives 0 where its inputs are 0; and inputs
//! may change places. That leaves 34 gates of three inputs and 4 of two.

use fearless_simd::u64x8;

use super::HardCircuit;
use super::cover::{Cut, cover, one_by_one};
use crate::logic::BoundaryCondition;
use crate::simd::{Simd, prelude::*};

/// Words that a gate works on at a time: long enough that choosing the gate costs little, short
/// enough that the values in use stay in the fastest cache (512 bytes each).
pub(super) const CHUNK: usize = 64;

/// That many words, from the start of a cache line: what limits the speed are writes, and one that
/// straddles two lines is two.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
pub(super) struct Chunk(pub [u64; CHUNK]);

/// A gate on slots: its table has bit 4a + 2b + c; a gate of two inputs ignores c.
#[derive(Clone, Copy, Debug)]
struct Instruction {
    table: u8,
    inputs: [u16; 3],
    out: u16,
}

/// A circuit as instructions on slots that are used again when their value has been read for the
/// last time.
#[derive(Clone, Debug)]
pub struct Program {
    pub(super) channels: usize,
    pub(super) boundary: BoundaryCondition,
    /// (channel, neighbour, slot) of the inputs that are read.
    pub(super) inputs: Vec<(usize, usize, u16)>,
    instructions: Vec<Instruction>,
    /// The slot of each channel's new value, and whether it holds the opposite.
    pub(super) outputs: Vec<(u16, bool)>,
    pub(super) slots: usize,
}

/// What stands for a node: itself or another one, as it is or inverted.
#[derive(Clone, Copy)]
struct Stand {
    node: u32,
    inverted: bool,
}

/// A gate on nodes, with the inputs it depends on.
struct Operation {
    node: u32,
    table: u8,
    inputs: Vec<u32>,
}

impl Program {
    /// Compiles a circuit, gate by gate, without what it doesn't need: for a few runs.
    pub fn new(circuit: &HardCircuit) -> Self {
        let circuit = circuit.fold(false).prune();
        let cuts = one_by_one(&circuit);
        Self::of_cuts(&circuit, &cuts)
    }

    /// Compiles a circuit with as few gates of up to three inputs as were found: for many runs.
    pub fn compact(circuit: &HardCircuit) -> Self {
        let circuit = circuit.fold(true).prune();
        let cuts = cover(&circuit);
        Self::of_cuts(&circuit, &cuts)
    }

    fn of_cuts(circuit: &HardCircuit, cuts: &[Option<Cut>]) -> Self {
        let inputs = circuit.inputs();
        let own = |node: usize| Stand {
            node: node as u32,
            inverted: false,
        };
        let mut stands: Vec<Stand> = (0..inputs + cuts.len()).map(own).collect();
        let mut operations: Vec<Operation> = Vec::new();
        for (gate, cut) in cuts.iter().enumerate() {
            let Some(cut) = cut else { continue };
            let node = inputs + gate;
            let (table, reads, inverted) = normalised(cut, &stands);
            stands[node].inverted = inverted;
            if let (&[same], true) = (&reads[..], table != 0) {
                stands[node].node = same;
            } else {
                operations.push(Operation {
                    node: node as u32,
                    table,
                    inputs: reads,
                });
            }
        }
        let outputs: Vec<Stand> = circuit
            .outputs
            .iter()
            .map(|&o| stands[o as usize])
            .collect();
        Self::allocate(circuit, &operations, &outputs)
    }

    /// Gives every value a slot.
    fn allocate(circuit: &HardCircuit, operations: &[Operation], outputs: &[Stand]) -> Self {
        let inputs = circuit.inputs();
        let nodes = inputs + circuit.gates.len();
        // When each node is read for the last time; outputs live to the end.
        let mut last = vec![0; nodes];
        for (i, operation) in operations.iter().enumerate() {
            for &node in &operation.inputs {
                last[node as usize] = i + 1;
            }
        }
        for output in outputs {
            last[output.node as usize] = usize::MAX;
        }
        let mut slot = vec![u16::MAX; nodes];
        let mut free: Vec<u16> = Vec::new();
        let mut slots = 0_usize;
        let mut take = |free: &mut Vec<u16>| {
            free.pop().unwrap_or_else(|| {
                slots += 1;
                u16::try_from(slots - 1).expect("fewer than 65536 values in use")
            })
        };
        let mut read = Vec::new();
        for i in (0..inputs).filter(|&i| last[i] > 0) {
            slot[i] = take(&mut free);
            read.push((i / 9, i % 9, slot[i]));
        }
        let mut instructions = Vec::with_capacity(operations.len());
        for (i, operation) in operations.iter().enumerate() {
            // The output's slot is never one of the inputs'.
            let out = take(&mut free);
            slot[operation.node as usize] = out;
            let mut places = [0; 3];
            for (place, &node) in places.iter_mut().zip(&operation.inputs) {
                *place = slot[node as usize];
            }
            instructions.push(Instruction {
                table: operation.table,
                inputs: places,
                out,
            });
            for &node in &operation.inputs {
                if last[node as usize] == i + 1 {
                    free.push(slot[node as usize]);
                    last[node as usize] = 0;
                }
            }
        }
        let outputs = outputs
            .iter()
            .map(|o| (slot[o.node as usize], o.inverted))
            .collect();
        Program {
            channels: circuit.channels,
            boundary: circuit.boundary,
            inputs: read,
            instructions,
            outputs,
            slots,
        }
    }

    /// Instructions for one cell.
    pub fn len(&self) -> usize {
        self.instructions.len()
    }

    /// Whether every channel's new value is an input or its opposite.
    pub fn is_empty(&self) -> bool {
        self.instructions.is_empty()
    }

    /// All instructions on a chunk.
    #[inline(always)]
    pub(super) fn run<S: Simd>(&self, simd: S, slots: &mut [Chunk]) {
        for instruction in &self.instructions {
            execute(simd, instruction, slots);
        }
    }
}

/// The table of a cut on what stands for its nodes, 0 where they are 0, its inputs in the order
/// that gives the smallest table, and whether it is the opposite that it computes.
fn normalised(cut: &Cut, stands: &[Stand]) -> (u8, Vec<u32>, bool) {
    let mut table = cut.table;
    let mut inputs: Vec<u32> = Vec::new();
    // From the last input to the first: inverted ones are turned around.
    for (i, &node) in cut.nodes().iter().enumerate() {
        let stand = stands[node as usize];
        if stand.inverted {
            let width = 4 >> i;
            let ones = [0xf0, 0xcc, 0xaa][i];
            table = (table & ones) >> width | (table & !ones) << width;
        }
        inputs.push(stand.node);
    }
    let inverted = table & 1 == 1;
    if inverted {
        table = !table;
    }
    let value = |row: [usize; 3]| table >> (4 * row[0] + 2 * row[1] + row[2]) & 1;
    // Two nodes may stand for one: rows in which they differ don't occur. What depends on nothing
    // else is left out; the others are tried in every order.
    let distinct = |i: usize| !inputs[..i].contains(&inputs[i]);
    let row_of = |set: &dyn Fn(u32) -> usize| -> [usize; 3] {
        std::array::from_fn(|i| inputs.get(i).map_or(0, |&n| set(n)))
    };
    let matters = |i: usize| {
        (0..8_usize).any(|others| {
            let with = |bit: usize| {
                row_of(&|n| {
                    if n == inputs[i] {
                        bit
                    } else {
                        let first = inputs.iter().position(|&m| m == n).unwrap_or(0);
                        others >> first & 1
                    }
                })
            };
            value(with(0)) != value(with(1))
        })
    };
    let kept: Vec<usize> = (0..inputs.len())
        .filter(|&i| distinct(i) && matters(i))
        .collect();
    let orders: &[[usize; 3]] = match kept.len() {
        3 => &[
            [0, 1, 2],
            [0, 2, 1],
            [1, 0, 2],
            [1, 2, 0],
            [2, 0, 1],
            [2, 1, 0],
        ],
        2 => &[[0, 1, 2], [1, 0, 2]],
        _ => &[[0, 1, 2]],
    };
    let ordered = orders.iter().map(|order| {
        let nodes: Vec<u32> = order[..kept.len()]
            .iter()
            .map(|&k| inputs[kept[k]])
            .collect();
        let table = (0..8_usize).fold(0, |t, row| {
            let set = |n: u32| {
                let place = nodes.iter().position(|&m| m == n);
                place.map_or(0, |p| row >> (2 - p) & 1)
            };
            t | value(row_of(&set)) << row
        });
        (table, nodes)
    });
    let (table, nodes) = ordered.min_by_key(|(table, _)| *table).unwrap_or_default();
    (table, nodes, inverted)
}

type Words = [u64; CHUNK];

/// One gate on a chunk.
#[inline(always)]
fn execute<S: Simd>(simd: S, instruction: &Instruction, slots: &mut [Chunk]) {
    let Instruction { table, inputs, out } = *instruction;
    let [a, b, c] = inputs.map(usize::from);
    let out = out as usize;
    macro_rules! gates {
        ($($two:literal)* ; $($three:literal)*) => {
            match table {
                // The inputs are different nodes and the output is none of them.
                $($two => if let Ok([x, y, z]) = slots.get_disjoint_mut([a, b, out]) {
                    two::<S, $two>(simd, &x.0, &y.0, &mut z.0);
                })*
                $($three => if let Ok([w, x, y, z]) = slots.get_disjoint_mut([a, b, c, out]) {
                    three::<S, $three>(simd, &w.0, &x.0, &y.0, &mut z.0);
                })*
                _ => slots[out].0.fill(0),
            }
        };
    }
    gates!(
        0x0c 0x3c 0xc0 0xfc ;
        0x02 0x06 0x08 0x0e 0x16 0x18 0x1a 0x1e 0x28 0x2a 0x2c 0x2e 0x3e 0x68 0x6a 0x6e 0x7e
        0x80 0x82 0x86 0x8a 0x8e 0x96 0x98 0x9a 0x9e 0xa8 0xac 0xae 0xbc 0xbe 0xe8 0xea 0xfe
    );
}

#[inline(always)]
fn two<S: Simd, const TABLE: u8>(simd: S, a: &Words, b: &Words, out: &mut Words) {
    for v in 0..CHUNK / 8 {
        let at = v * 8..v * 8 + 8;
        let a = u64x8::from_slice(simd, &a[at.clone()]);
        let b = u64x8::from_slice(simd, &b[at.clone()]);
        // Every second bit of the table: c is ignored.
        let y = gate(
            simd,
            TABLE >> 1 & 1 | TABLE >> 2 & 2 | TABLE >> 3 & 4 | TABLE >> 4 & 8,
            a,
            b,
        );
        y.store_slice(&mut out[at]);
    }
}

#[inline(always)]
fn three<S: Simd, const TABLE: u8>(simd: S, a: &Words, b: &Words, c: &Words, out: &mut Words) {
    for v in 0..CHUNK / 8 {
        let at = v * 8..v * 8 + 8;
        let a = u64x8::from_slice(simd, &a[at.clone()]);
        let b = u64x8::from_slice(simd, &b[at.clone()]);
        let c = u64x8::from_slice(simd, &c[at.clone()]);
        let (low, high) = (TABLE & 15, TABLE >> 4);
        let y = if high == !low & 15 {
            a ^ gate(simd, low, b, c)
        } else if low == 0 {
            a & gate(simd, high, b, c)
        } else if high == 0 {
            !a & gate(simd, low, b, c)
        } else if high == 15 {
            a | gate(simd, low, b, c)
        } else {
            let low_value = gate(simd, low, b, c);
            low_value ^ (a & gate(simd, low ^ high, b, c))
        };
        y.store_slice(&mut out[at]);
    }
}

/// A gate of two inputs whose table has bit 2a + b. The table is known when this is compiled.
#[inline(always)]
fn gate<S: Simd>(simd: S, table: u8, a: u64x8<S>, b: u64x8<S>) -> u64x8<S> {
    match table {
        0 => u64x8::splat(simd, 0),
        1 => !(a | b),
        2 => !a & b,
        3 => !a,
        4 => a & !b,
        5 => !b,
        6 => a ^ b,
        7 => !(a & b),
        8 => a & b,
        9 => !(a ^ b),
        10 => b,
        11 => !a | b,
        12 => a,
        13 => a | !b,
        14 => a | b,
        _ => u64x8::splat(simd, u64::MAX),
    }
}
