//! A circuit as a straight program: each instruction is a gate of two or three inputs on many cells
//! at a time.
//!
//! What limits its speed are reads and writes of memory, so the last value stays in registers, the
//! *accumulator*, and gates are ordered such that the next one mostly reads it; a value that nothing
//! else reads is never written. The other values lie in slots.
//!
//! A value may be a node's opposite, so that every gate gives 0 where its inputs are 0; and the
//! inputs after the first may change places. That leaves 68 gates of three inputs and 5 of two.

use fearless_simd::u64x8;

use super::HardCircuit;
use super::cover::{Cover, Cut, cover, one_by_one};
use super::rearrange::rearranged;
use crate::logic::BoundaryCondition;
use crate::simd::{Simd, prelude::*};

/// A gate. Its table has bit 4a + 2b + c; a gate of two inputs ignores c.
#[derive(Clone, Copy, Debug)]
struct Instruction {
    table: u8,
    /// Whether a is read from memory first; otherwise it is in the accumulator.
    load: bool,
    /// Whether something reads the result from memory.
    store: bool,
    /// Places of the inputs and the result: inputs of the program, then slots.
    inputs: [u16; 3],
    out: u16,
}

/// A circuit as instructions on slots that are used again when their value has been read for the
/// last time.
#[derive(Clone, Debug)]
pub struct Program {
    pub(super) channels: usize,
    pub(super) boundary: BoundaryCondition,
    /// (channel, neighbour) of the inputs that are read.
    pub(super) inputs: Vec<(usize, usize)>,
    instructions: Vec<Instruction>,
    /// The place of each channel's new value, and whether it holds the opposite.
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

/// Every order of three inputs.
const ORDERS: [[usize; 3]; 6] = [
    [0, 1, 2],
    [0, 2, 1],
    [1, 0, 2],
    [1, 2, 0],
    [2, 0, 1],
    [2, 1, 0],
];

impl Operation {
    /// The same with its inputs in the order that gives the smallest table, `first` before the
    /// others where it is given.
    fn arranged(&self, first: Option<u32>) -> (u8, Vec<u32>) {
        let len = self.inputs.len();
        let fits = |order: &&[usize; 3]| {
            order[len..].iter().all(|&i| i >= len)
                && first.is_none_or(|first| self.inputs[order[0]] == first)
        };
        let arranged = |order: &[usize; 3]| {
            let table = (0..8_u8).fold(0, |table, row| {
                let own = (0..3).fold(0, |own, i| own | (row >> (2 - i) & 1) << (2 - order[i]));
                table | (self.table >> own & 1) << row
            });
            let inputs = order[..len].iter().map(|&i| self.inputs[i]).collect();
            (table, inputs)
        };
        let all = ORDERS.iter().filter(fits).map(arranged);
        all.min_by_key(|(table, _)| *table).unwrap_or_default()
    }
}

impl Program {
    /// Compiles a circuit, gate by gate, without what it doesn't need: for a few runs.
    pub fn new(circuit: &HardCircuit) -> Self {
        let circuit = circuit.fold(false).prune();
        Self::of_cover(&circuit, &one_by_one(&circuit))
    }

    /// Compiles a circuit with as few gates of up to three inputs as were found: for many runs.
    pub fn compact(circuit: &HardCircuit) -> Self {
        let circuit = circuit.fold(true).prune();
        let cover = rearranged(&circuit, cover(&circuit));
        Self::of_cover(&circuit, &cover)
    }

    fn of_cover(circuit: &HardCircuit, cover: &Cover) -> Self {
        let nodes = circuit.inputs() + circuit.gates.len();
        let own = |node: usize| Stand {
            node: node as u32,
            inverted: false,
        };
        let mut stands: Vec<Stand> = (0..nodes).map(own).collect();
        let mut operations: Vec<Operation> = Vec::new();
        for &(node, ref cut) in cover {
            let (table, reads, inverted) = normalised(cut, &stands);
            let stand = &mut stands[node as usize];
            stand.inverted = inverted;
            if let (&[same], true) = (&reads[..], table != 0) {
                stand.node = same;
            } else {
                operations.push(Operation {
                    node,
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
        let ordered = in_order(nodes, operations, &outputs);
        Self::allocate(circuit, &ordered, &outputs)
    }

    /// Gives every value that is read from memory a slot.
    fn allocate(circuit: &HardCircuit, operations: &[Operation], outputs: &[Stand]) -> Self {
        let inputs = circuit.inputs();
        let nodes = inputs + circuit.gates.len();
        // The input that the operation before has just made.
        let chained = |i: usize| {
            let before = operations.get(i.wrapping_sub(1))?.node;
            operations[i].inputs.contains(&before).then_some(before)
        };
        // When each node is read from memory for the last time; outputs live to the end.
        let mut last = vec![0; nodes];
        for (i, operation) in operations.iter().enumerate() {
            for &node in &operation.inputs {
                if chained(i) != Some(node) {
                    last[node as usize] = i + 1;
                }
            }
        }
        for output in outputs {
            last[output.node as usize] = usize::MAX;
        }
        let read: Vec<usize> = (0..inputs).filter(|&i| last[i] > 0).collect();
        let mut place = vec![u16::MAX; nodes];
        let mut places = 0_usize;
        let mut new = || {
            places += 1;
            u16::try_from(places - 1).expect("fewer than 65536 values in use")
        };
        for &input in &read {
            place[input] = new();
        }
        let mut free: Vec<u16> = Vec::new();
        let mut instructions = Vec::with_capacity(operations.len());
        for (i, operation) in operations.iter().enumerate() {
            let chained = chained(i);
            let (table, reads) = operation.arranged(chained);
            let mut instruction = Instruction {
                table,
                load: chained.is_none() && !reads.is_empty(),
                store: last[operation.node as usize] > 0,
                inputs: [0; 3],
                out: 0,
            };
            for (own, &node) in instruction.inputs.iter_mut().zip(&reads) {
                *own = place[node as usize];
            }
            for &node in &reads {
                // Inputs of the program are read from where they are.
                if last[node as usize] == i + 1 && node as usize >= inputs {
                    free.push(place[node as usize]);
                    last[node as usize] = 0;
                }
            }
            if instruction.store {
                instruction.out = free.pop().unwrap_or_else(&mut new);
                place[operation.node as usize] = instruction.out;
            }
            instructions.push(instruction);
        }
        let outputs = outputs
            .iter()
            .map(|o| (place[o.node as usize], o.inverted))
            .collect();
        Program {
            channels: circuit.channels,
            boundary: circuit.boundary,
            slots: places - read.len(),
            inputs: read.iter().map(|i| (i / 9, i % 9)).collect(),
            instructions,
            outputs,
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

    /// All instructions on `V` vectors; `starts` says at which word of the memory a place begins.
    #[inline(always)]
    pub(super) fn run<S: Simd, const V: usize>(
        &self,
        simd: S,
        starts: &[usize],
        memory: &mut [u64],
    ) {
        let mut accumulator = [u64x8::splat(simd, 0); V];
        for instruction in &self.instructions {
            accumulator = execute(simd, instruction, accumulator, starts, memory);
            if instruction.store {
                let out = starts[instruction.out as usize];
                let out = memory[out..out + 8 * V].chunks_exact_mut(8);
                for (value, out) in accumulator.iter().zip(out) {
                    value.store_slice(out);
                }
            }
        }
    }
}

/// The operations in an order in which each mostly comes right after one of its inputs: the
/// outputs' one after the other, each after what it needs.
fn in_order(nodes: usize, operations: Vec<Operation>, outputs: &[Stand]) -> Vec<Operation> {
    let mut of_node: Vec<Option<Operation>> = (0..nodes).map(|_| None).collect();
    for operation in operations {
        let node = operation.node as usize;
        of_node[node] = Some(operation);
    }
    let mut ordered = Vec::new();
    let mut waiting: Vec<u32> = outputs.iter().rev().map(|o| o.node).collect();
    while let Some(&node) = waiting.last() {
        let before = waiting.len();
        if let Some(operation) = &of_node[node as usize] {
            let missing = |input: &&u32| of_node[**input as usize].is_some();
            waiting.extend(operation.inputs.iter().filter(missing));
        }
        if waiting.len() == before {
            ordered.extend(of_node[node as usize].take());
            waiting.pop();
        }
    }
    ordered
}

/// The table of a cut on what stands for its nodes, 0 where they are 0, the inputs it depends on,
/// and whether it is the opposite that it computes.
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
    // Two nodes may stand for one: rows in which they differ don't occur. What it doesn't
    // depend on is left out.
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
    let nodes: Vec<u32> = kept.iter().map(|&i| inputs[i]).collect();
    let table = (0..8_usize).fold(0, |t, row| {
        let set = |n: u32| {
            let place = nodes.iter().position(|&m| m == n);
            place.map_or(0, |p| row >> (2 - p) & 1)
        };
        t | value(row_of(&set)) << row
    });
    (table, nodes, inverted)
}

/// One gate on `V` vectors.
#[inline(always)]
fn execute<S: Simd, const V: usize>(
    simd: S,
    instruction: &Instruction,
    accumulator: [u64x8<S>; V],
    starts: &[usize],
    memory: &[u64],
) -> [u64x8<S>; V] {
    let input = |i: usize| {
        let start = starts[instruction.inputs[i] as usize];
        &memory[start..start + 8 * V]
    };
    let vector = |words: &[u64], v: usize| u64x8::from_slice(simd, &words[8 * v..8 * v + 8]);
    let mut value = accumulator;
    if instruction.load {
        let a = input(0);
        for (v, value) in value.iter_mut().enumerate() {
            *value = vector(a, v);
        }
    }
    macro_rules! gates {
        ($($two:literal)* ; $($three:literal)*) => {
            match instruction.table {
                $($two => {
                    let b = input(1);
                    for (v, value) in value.iter_mut().enumerate() {
                        *value = two::<S, $two>(simd, *value, vector(b, v));
                    }
                })*
                $($three => {
                    let (b, c) = (input(1), input(2));
                    for (v, value) in value.iter_mut().enumerate() {
                        *value = three::<S, $three>(simd, *value, vector(b, v), vector(c, v));
                    }
                })*
                _ => value = [u64x8::splat(simd, 0); V],
            }
        };
    }
    gates!(
        0x0c 0x30 0x3c 0xc0 0xfc ;
        0x02 0x06 0x08 0x0e 0x10 0x12 0x16 0x18 0x1a 0x1e 0x20 0x24 0x26 0x28 0x2a 0x2c 0x2e
        0x32 0x34 0x36 0x38 0x3a 0x3e 0x60 0x62 0x68 0x6a 0x6e 0x70 0x72 0x76 0x78 0x7a 0x7e
        0x80 0x82 0x86 0x8a 0x8e 0x90 0x92 0x96 0x98 0x9a 0x9e 0xa2 0xa4 0xa6 0xa8 0xac 0xae
        0xb0 0xb2 0xb4 0xb6 0xb8 0xba 0xbc 0xbe 0xe0 0xe2 0xe6 0xe8 0xea 0xf2 0xf6 0xf8 0xfe
    );
    value
}

/// Every second bit of the table counts: c is ignored.
#[inline(always)]
fn two<S: Simd, const TABLE: u8>(simd: S, a: u64x8<S>, b: u64x8<S>) -> u64x8<S> {
    let table = TABLE >> 1 & 1 | TABLE >> 2 & 2 | TABLE >> 3 & 4 | TABLE >> 4 & 8;
    gate(simd, table, a, b)
}

#[inline(always)]
fn three<S: Simd, const TABLE: u8>(simd: S, a: u64x8<S>, b: u64x8<S>, c: u64x8<S>) -> u64x8<S> {
    let (low, high) = (TABLE & 15, TABLE >> 4);
    if high == !low & 15 {
        a ^ gate(simd, low, b, c)
    } else if low == 0 {
        a & gate(simd, high, b, c)
    } else if high == 0 {
        !a & gate(simd, low, b, c)
    } else if high == 15 {
        a | gate(simd, low, b, c)
    } else {
        gate(simd, low, b, c) ^ (a & gate(simd, low ^ high, b, c))
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
