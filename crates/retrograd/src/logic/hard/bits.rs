//! The hard automaton on bits: one bit a cell, a gate on 512 cells at a time.
//!
//! A channel's plane is rows of 64-bit words, with one row around each grid and one bit before and
//! after each row's cells, so that a neighbour is a shift and a constant step away and rows need no
//! treatment of their own. After every step the border is made to show what the boundary
//! condition says.

use super::HardCircuit;
use crate::logic::BoundaryCondition;
use crate::simd::{Simd, dispatch, level, prelude::*};
use crate::{Error, Result};
use fearless_simd::u64x8;

/// Words that a gate works on at a time: long enough that choosing the gate costs little, short
/// enough that the values in use stay in the fastest cache (512 bytes each).
const CHUNK: usize = 64;

type Chunk = [u64; CHUNK];

/// A gate on slots.
#[derive(Clone, Copy, Debug)]
struct Instruction {
    op: u8,
    a: u16,
    b: u16,
    out: u16,
}

/// A circuit as instructions on slots that are used again when their value has been read for the
/// last time.
#[derive(Clone, Debug)]
pub struct Program {
    channels: usize,
    boundary: BoundaryCondition,
    /// (channel, neighbour, slot) of the inputs that are read.
    inputs: Vec<(usize, usize, u16)>,
    instructions: Vec<Instruction>,
    outputs: Vec<u16>,
    slots: usize,
}

impl Program {
    /// Compiles a circuit, without what it doesn't need.
    pub fn new(circuit: &HardCircuit) -> Self {
        let circuit = circuit.fold(false).prune();
        let inputs = circuit.inputs();
        let nodes = inputs + circuit.gates.len();
        // When each node is read for the last time; outputs live to the end.
        let mut last = vec![0; nodes];
        for (i, gate) in circuit.gates.iter().enumerate() {
            last[gate.a as usize] = i + 1;
            last[gate.b as usize] = i + 1;
        }
        for &o in &circuit.outputs {
            last[o as usize] = usize::MAX;
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
        let mut program_inputs = Vec::new();
        for i in (0..inputs).filter(|&i| last[i] > 0) {
            slot[i] = take(&mut free);
            program_inputs.push((i / 9, i % 9, slot[i]));
        }
        let mut instructions = Vec::with_capacity(circuit.gates.len());
        for (i, gate) in circuit.gates.iter().enumerate() {
            // The output's slot is never one of the inputs'.
            let out = take(&mut free);
            slot[inputs + i] = out;
            let (a, b) = (slot[gate.a as usize], slot[gate.b as usize]);
            instructions.push(Instruction {
                op: gate.op,
                a,
                b,
                out,
            });
            for node in [gate.a as usize, gate.b as usize] {
                if last[node] == i + 1 {
                    free.push(slot[node]);
                    last[node] = 0;
                }
            }
        }
        Program {
            channels: circuit.channels,
            boundary: circuit.boundary,
            inputs: program_inputs,
            instructions,
            outputs: circuit.outputs.iter().map(|&o| slot[o as usize]).collect(),
            slots,
        }
    }

    /// Instructions for one cell.
    pub fn len(&self) -> usize {
        self.instructions.len()
    }

    /// Whether every channel's new value is an input or a constant.
    pub fn is_empty(&self) -> bool {
        self.instructions.is_empty()
    }
}

/// Grids of bits, one bit for a cell and channel.
#[derive(Clone, Debug)]
pub struct BitGrid {
    batch: usize,
    height: usize,
    width: usize,
    channels: usize,
    boundary: BoundaryCondition,
    /// Words of a row.
    row: usize,
    /// (channel, word), with room before and after.
    planes: Vec<u64>,
    next: Vec<u64>,
    slots: Vec<Chunk>,
}

/// Words before the first row of a plane and at least after the last: the first row is read one
/// word before it, the last chunk may be cut short.
const ROOM: usize = 8;

impl BitGrid {
    /// Grids of zeros.
    pub fn new(
        [batch, height, width]: [usize; 3],
        channels: usize,
        boundary: BoundaryCondition,
    ) -> Result<Self> {
        crate::logic::grid::check_shape(height, width, channels)?;
        if batch == 0 {
            return Err(Error::invalid("grids", 0, "at least one"));
        }
        let row = (width + 2).div_ceil(64);
        let mut grid = BitGrid {
            batch,
            height,
            width,
            channels,
            boundary,
            row,
            planes: Vec::new(),
            next: Vec::new(),
            slots: Vec::new(),
        };
        grid.planes = vec![0; channels * grid.plane()];
        grid.next = grid.planes.clone();
        Ok(grid)
    }

    /// Rows.
    pub fn height(&self) -> usize {
        self.height
    }

    /// Columns.
    pub fn width(&self) -> usize {
        self.width
    }

    /// Channels.
    pub fn channels(&self) -> usize {
        self.channels
    }

    fn plane(&self) -> usize {
        // A chunk is rounded up to whole vectors, and read one row further.
        ROOM + self.batch * (self.height + 2) * self.row + self.row + ROOM + 8
    }

    /// The word and bit of a cell in its plane.
    fn place(&self, sample: usize, y: usize, x: usize) -> (usize, usize) {
        let row = ROOM + (sample * (self.height + 2) + y + 1) * self.row;
        (row + (x + 1) / 64, (x + 1) % 64)
    }

    /// A cell's bit.
    pub fn get(&self, sample: usize, y: usize, x: usize, channel: usize) -> bool {
        let (word, bit) = self.place(sample, y, x);
        self.planes[channel * self.plane() + word] >> bit & 1 == 1
    }

    /// Sets a cell's bit.
    pub fn set(&mut self, sample: usize, y: usize, x: usize, channel: usize, value: bool) {
        let (word, bit) = self.place(sample, y, x);
        let at = channel * self.plane() + word;
        self.planes[at] = self.planes[at] & !(1 << bit) | u64::from(value) << bit;
    }

    /// Takes states in the order (sample, y, x, channel); a value above one half is 1.
    pub fn load(&mut self, state: &[f32]) {
        let mut values = state.iter();
        for sample in 0..self.batch {
            for y in 0..self.height {
                for x in 0..self.width {
                    for c in 0..self.channels {
                        let on = values.next().is_some_and(|&v| v > 0.5);
                        self.set(sample, y, x, c, on);
                    }
                }
            }
        }
    }

    /// One step. Where `fire` (y, x) is given, cells that don't fire keep their state.
    pub fn step(&mut self, program: &Program, fire: Option<&[bool]>) {
        assert_eq!(
            self.channels, program.channels,
            "a circuit for these channels"
        );
        assert_eq!(
            self.boundary, program.boundary,
            "a circuit for this boundary"
        );
        let plane = self.plane();
        for c in 0..self.channels {
            self.fill_border(c);
        }
        self.slots.resize(program.slots, [0; CHUNK]);
        let first = ROOM + self.row;
        let words = self.batch * (self.height + 2) * self.row - 2 * self.row;
        let (planes, next, slots) = (&self.planes[..], &mut self.next[..], &mut self.slots[..]);
        let row = self.row;
        dispatch!(level(), simd => {
            for from in (0..words).step_by(CHUNK) {
                let vectors = (words - from).min(CHUNK).div_ceil(8);
                for &(channel, neighbour, slot) in &program.inputs {
                    let (dy, dx) = (neighbour / 3, neighbour % 3);
                    // One word before the neighbour's, in the row above, here or below.
                    let at = channel * plane + first + from + dy * row - row - 1;
                    let source = &planes[at..at + vectors * 8 + 2];
                    shifted(simd, source, dx, vectors, &mut slots[slot as usize]);
                }
                for instruction in &program.instructions {
                    execute(simd, instruction, slots);
                }
                for (c, &slot) in program.outputs.iter().enumerate() {
                    let at = c * plane + first + from;
                    let count = vectors * 8;
                    next[at..at + count].copy_from_slice(&slots[slot as usize][..count]);
                }
            }
        });
        if let Some(fire) = fire {
            self.keep_unfired(fire);
        }
        std::mem::swap(&mut self.planes, &mut self.next);
    }

    /// Cells that don't fire get their old bits in the new planes.
    fn keep_unfired(&mut self, fire: &[bool]) {
        let plane = self.plane();
        for y in 0..self.height {
            let mut masks = vec![0_u64; self.row];
            for x in 0..self.width {
                if fire[y * self.width + x] {
                    masks[(x + 1) / 64] |= 1 << ((x + 1) % 64);
                }
            }
            for sample in 0..self.batch {
                let (word, _) = self.place(sample, y, 0);
                for c in 0..self.channels {
                    let at = c * plane + word;
                    for (i, &mask) in masks.iter().enumerate() {
                        let old = self.planes[at + i];
                        let new = &mut self.next[at + i];
                        *new = *new & mask | old & !mask;
                    }
                }
            }
        }
    }

    /// Makes the border of a channel show what the boundary condition says.
    fn fill_border(&mut self, channel: usize) {
        let plane = self.plane();
        let (row, width, height) = (self.row, self.width, self.height);
        let plane = &mut self.planes[channel * plane..(channel + 1) * plane];
        let wrap = self.boundary == BoundaryCondition::Periodic;
        let (last_word, last_bit) = (width / 64, width % 64);
        let (after_word, after_bit) = ((width + 1) / 64, (width + 1) % 64);
        for sample in 0..self.batch {
            let top = ROOM + (sample * (height + 2) + 1) * row;
            for y in 0..height {
                let cells = &mut plane[top + y * row..top + (y + 1) * row];
                // Bits after the row's cells are whatever the circuit made of them.
                let keep = if after_bit == 0 {
                    0
                } else {
                    u64::MAX >> (64 - after_bit)
                };
                cells[after_word] &= keep;
                cells[0] &= !1;
                if wrap {
                    let (first, last) = (cells[0] >> 1 & 1, cells[last_word] >> last_bit & 1);
                    cells[0] |= last;
                    cells[after_word] |= first << after_bit;
                }
            }
            if wrap {
                plane.copy_within(top..top + row, top + height * row);
                plane.copy_within(top + (height - 1) * row..top + height * row, top - row);
            } else {
                plane[top - row..top].fill(0);
                plane[top + height * row..top + (height + 1) * row].fill(0);
            }
        }
    }

    /// The bits of a sample in the order (y, x, channel).
    pub fn bits(&self, sample: usize) -> Vec<bool> {
        let mut bits = Vec::with_capacity(self.height * self.width * self.channels);
        for y in 0..self.height {
            for x in 0..self.width {
                for c in 0..self.channels {
                    bits.push(self.get(sample, y, x, c));
                }
            }
        }
        bits
    }

    /// Fills all cells with random bits.
    pub fn randomize(&mut self, stream: &mut crate::rng::Stream) {
        for word in &mut self.planes {
            *word = stream.u64();
        }
    }

    /// Sets a rectangle of all channels to 0, as far as it is inside.
    pub fn erase(&mut self, sample: usize, [x, y, width, height]: [usize; 4]) {
        for y in y..(y + height).min(self.height) {
            for x in x..(x + width).min(self.width) {
                for c in 0..self.channels {
                    self.set(sample, y, x, c, false);
                }
            }
        }
    }
}

/// The cells to the left (dx = 0), here (1) or to the right (2) of every cell. `source` starts one
/// word early.
#[inline(always)]
fn shifted<S: Simd>(simd: S, source: &[u64], dx: usize, vectors: usize, out: &mut Chunk) {
    for v in 0..vectors {
        let at = v * 8;
        let here = u64x8::from_slice(simd, &source[at + 1..at + 9]);
        let moved = match dx {
            0 => here << 1 | u64x8::from_slice(simd, &source[at..at + 8]) >> 63,
            1 => here,
            _ => here >> 1 | u64x8::from_slice(simd, &source[at + 2..at + 10]) << 63,
        };
        moved.store_slice(&mut out[at..at + 8]);
    }
}

/// One gate on a chunk.
#[inline(always)]
fn execute<S: Simd>(simd: S, instruction: &Instruction, slots: &mut [Chunk]) {
    let Instruction { op, a, b, out } = *instruction;
    let (a, b, out) = (a as usize, b as usize, out as usize);
    // After folding a gate reads two different nodes; only constants and inverters don't.
    let Ok([x, y, z]) = slots.get_disjoint_mut([a, b, out]) else {
        let Ok([x, z]) = slots.get_disjoint_mut([a, out]) else {
            return;
        };
        for i in 0..CHUNK {
            z[i] = match op {
                0 => 0,
                15 => u64::MAX,
                _ => !x[i],
            };
        }
        return;
    };
    macro_rules! gate {
        (|$a:ident, $b:ident| $y:expr) => {
            // The whole chunk, even where the last one is shorter: a fixed count needs no checks.
            for v in 0..CHUNK / 8 {
                let at = v * 8..v * 8 + 8;
                let $a = u64x8::from_slice(simd, &x[at.clone()]);
                let $b = u64x8::from_slice(simd, &y[at.clone()]);
                ($y).store_slice(&mut z[at]);
            }
        };
    }
    match op {
        1 => gate!(|a, b| a & b),
        2 => gate!(|a, b| a & !b),
        4 => gate!(|a, b| !a & b),
        6 => gate!(|a, b| a ^ b),
        7 => gate!(|a, b| a | b),
        8 => gate!(|a, b| !(a | b)),
        9 => gate!(|a, b| !(a ^ b)),
        11 => gate!(|a, b| a | !b),
        13 => gate!(|a, b| !a | b),
        14 => gate!(|a, b| !(a & b)),
        0 => z.fill(0),
        15 => z.fill(u64::MAX),
        3 => z.copy_from_slice(x),
        5 => z.copy_from_slice(y),
        10 => gate!(|a, b| {
            let _ = a;
            !b
        }),
        _ => gate!(|a, b| {
            let _ = b;
            !a
        }),
    }
}
