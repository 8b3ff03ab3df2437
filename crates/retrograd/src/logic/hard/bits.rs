//! The hard automaton on bits: one bit a cell, a gate on 512 cells at a time.
//!
//! A channel's plane is rows of 64-bit words, with one row around each grid and one bit before and
//! after each row's cells, so that a neighbour is a shift and a constant step away and rows need no
//! treatment of their own. After every step the border is made to show what the boundary
//! condition says.

use super::program::Program;
use crate::logic::BoundaryCondition;
use crate::simd::{LANES, Simd, dispatch, level, prelude::*};
use crate::{Error, Result};
use fearless_simd::u64x8;

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
    /// A program's inputs and slots.
    memory: Vec<u64>,
    /// Where each of its places begins there.
    starts: Vec<usize>,
}

/// Words that the inputs of a strip take, all together: half of a small L2 cache.
const STRIP_WORDS: usize = 1 << 15;

/// Words of a cache line: a write that straddles two is two writes.
const LINE: usize = 8;

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
        let mut row = (width + 2).div_ceil(64);
        if row >= 4 * LINE {
            row = row.next_multiple_of(LINE);
        }
        let mut grid = BitGrid {
            batch,
            height,
            width,
            channels,
            boundary,
            row,
            planes: Vec::new(),
            next: Vec::new(),
            memory: Vec::new(),
            starts: Vec::new(),
        };
        grid.planes = vec![0; channels * grid.plane()];
        grid.next = grid.planes.clone();
        Ok(grid)
    }

    /// Grids, rows and columns.
    pub(in crate::logic) fn size(&self) -> [usize; 3] {
        [self.batch, self.height, self.width]
    }

    /// What lies beyond the border.
    pub(in crate::logic) fn boundary(&self) -> BoundaryCondition {
        self.boundary
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

    /// The cells of a row of the first grid, 32 to a word; beyond the last, 0.
    #[cfg(feature = "gpu")]
    pub(super) fn words32(&self, y: usize, channel: usize) -> impl Iterator<Item = u32> + '_ {
        let plane = &self.planes[channel * self.plane()..];
        (0..self.width).step_by(32).map(move |x| {
            let (word, bit) = self.place(0, y, x);
            // The word after a row's last is of the next row, or room.
            let both = u128::from(plane[word]) | u128::from(plane[word + 1]) << 64;
            let cells = (self.width - x).min(32);
            (both >> bit) as u32 & (u32::MAX >> (32 - cells))
        })
    }

    /// Sets the cells of a row of the first grid, 32 to a word.
    #[cfg(feature = "gpu")]
    pub(super) fn set_words32(
        &mut self,
        y: usize,
        channel: usize,
        words: impl Iterator<Item = u32>,
    ) {
        for (i, value) in words.enumerate() {
            for x in 32 * i..(32 * i + 32).min(self.width) {
                self.set(0, y, x, channel, value >> (x % 32) & 1 == 1);
            }
        }
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
        for c in 0..self.channels {
            self.fill_border(c);
        }
        dispatch!(level(), simd => self.compute(simd, program));
        if let Some(fire) = fire {
            self.keep_unfired(fire);
        }
        std::mem::swap(&mut self.planes, &mut self.next);
    }

    /// The new planes, as many vectors at a time as half of the registers hold, or as there are.
    #[inline(always)]
    fn compute<S: Simd>(&mut self, simd: S, program: &Program) {
        let words = self.batch * (self.height + 2) * self.row;
        if S::f32s::LEN >= LANES && words > 64 {
            self.strips::<S, 16>(simd, program);
        } else {
            self.strips::<S, 4>(simd, program);
        }
    }

    /// The new planes, strip by strip: a strip's inputs are moved into place, three copies of each
    /// channel's rows, then its cells are computed `V` vectors at a time.
    #[inline(always)]
    fn strips<S: Simd, const V: usize>(&mut self, simd: S, program: &Program) {
        let (plane, row) = (self.plane(), self.row);
        let chunk = 8 * V;
        let first = ROOM + row;
        let words = self.batch * (self.height + 2) * row - 2 * row;
        // Of every channel that is read the cells to the left, here and to the right, where they
        // are; the rows above and below are in the same band.
        let BitGrid {
            planes,
            next,
            memory,
            starts,
            ..
        } = self;
        let bands = program.inputs.chunk_by(|a, b| a.0 == b.0).count() * 3;
        let most = (STRIP_WORDS / bands.max(1)).clamp(chunk, 1 << 20) / chunk * chunk;
        let strip = most.min(words.next_multiple_of(chunk));
        let band = (strip + 2 * row).next_multiple_of(LINE);
        memory.resize(bands * band + program.slots * chunk + LINE, 0);
        let aligned = memory.as_ptr().align_offset(64).min(LINE);
        let memory = &mut memory[aligned..];
        for from in (0..words).step_by(strip) {
            let strip = (words - from).min(strip);
            let vectors = (strip + 2 * row).div_ceil(8);
            starts.clear();
            let mut bands = 0;
            for inputs in program.inputs.chunk_by(|a, b| a.0 == b.0) {
                // One word before the row above.
                let at = inputs[0].0 * plane + first + from - row - 1;
                let source = &planes[at..at + vectors * 8 + 2];
                for dx in 0..3 {
                    if inputs.iter().any(|input| input.1 % 3 == dx) {
                        shifted(
                            simd,
                            source,
                            dx,
                            vectors,
                            &mut memory[(bands + dx) * band..],
                        );
                    }
                }
                starts.extend(
                    inputs.iter().map(|&(_, neighbour)| {
                        (bands + neighbour % 3) * band + neighbour / 3 * row
                    }),
                );
                bands += 3;
            }
            let inputs = starts.len();
            starts.extend((0..program.slots).map(|slot| bands * band + slot * chunk));
            for from in (from..from + strip).step_by(chunk) {
                program.run::<S, V>(simd, starts, memory);
                let len = (words - from).min(chunk).next_multiple_of(8);
                for (c, &(place, inverted)) in program.outputs.iter().enumerate() {
                    let at = c * plane + first + from;
                    let value = &memory[starts[place as usize]..][..len];
                    for (next, value) in next[at..at + len].iter_mut().zip(value) {
                        *next = if inverted { !value } else { *value };
                    }
                }
                for start in &mut starts[..inputs] {
                    *start += chunk;
                }
            }
        }
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
    pub fn randomise(&mut self, stream: &mut crate::rng::Stream) {
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
fn shifted<S: Simd>(simd: S, source: &[u64], dx: usize, vectors: usize, out: &mut [u64]) {
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
