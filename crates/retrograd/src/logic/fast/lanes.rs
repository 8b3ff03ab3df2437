//! Vectors of sixteen lanes in memory, and the way of cells into lanes and back.
//!
//! A grid is kept channel by channel in planes with a border of one cell, so that a neighbour is a
//! constant step away. The cells that fire are packed: sixteen cells of a row are read at once and
//! those that don't fire are squeezed out.

use crate::logic::BoundaryCondition;
use crate::simd::{Simd, f32x16, prelude::*};

/// One vector's worth of cells.
pub(super) type Lanes = [f32; 16];

/// Memory for [`Lanes`] that starts at a cache line: a vector that straddles two lines costs two
/// reads.
#[derive(Default)]
pub(super) struct Aligned {
    memory: Vec<f32>,
    first: usize,
    len: usize,
}

impl Aligned {
    /// Workspace for that many vectors. Grows only; what it holds afterwards is any finite number.
    pub fn resize(&mut self, vectors: usize) {
        self.len = vectors;
        if self.memory.len() < vectors * 16 + 15 {
            self.memory.resize(vectors * 16 + 15, 0.0);
            self.first = self.memory.as_ptr().align_offset(64).min(15);
        }
    }

    pub fn lanes(&self) -> &[Lanes] {
        self.memory[self.first..][..self.len * 16].as_chunks().0
    }

    pub fn lanes_mut(&mut self) -> &mut [Lanes] {
        self.memory[self.first..][..self.len * 16].as_chunks_mut().0
    }
}

/// Sixteen neighbouring places of a row, of which the cells in the mask fire.
#[derive(Clone, Copy)]
pub(super) struct RowPiece {
    /// The place of the first in a plane.
    pub place: u32,
    /// Bit i: the i-th fires.
    pub mask: u16,
}

/// Sizes of planes with a border.
#[derive(Clone, Copy, Default, PartialEq)]
pub(super) struct Geometry {
    pub batch: usize,
    pub height: usize,
    pub width: usize,
}

impl Geometry {
    /// Places in a row.
    pub fn stride(&self) -> usize {
        self.width + 2
    }

    /// Places of one channel: all grids, and room to read sixteen places beyond the last cell.
    pub fn plane(&self) -> usize {
        self.batch * (self.height + 2) * self.stride() + self.stride() + 1 + 16
    }

    /// The place of a row's first cell.
    pub fn row(&self, sample: usize, y: usize) -> usize {
        (sample * (self.height + 2) + y + 1) * self.stride() + 1
    }

    /// How far the nine neighbours are from the cell above and to the left, which is never
    /// negative.
    pub fn offsets(&self) -> [usize; 9] {
        let s = self.stride();
        [0, 1, 2, s, s + 1, s + 2, 2 * s, 2 * s + 1, 2 * s + 2]
    }

    /// The row pieces in which any cell fires; returns the number of cells that do.
    pub fn pieces(&self, fire: Option<&[bool]>, pieces: &mut Vec<RowPiece>) -> usize {
        pieces.clear();
        // For as many as there can be: a step in which more fire allocates nothing.
        pieces.reserve(self.batch * self.height * self.width.div_ceil(16));
        let mut cells = 0;
        for sample in 0..self.batch {
            for y in 0..self.height {
                for x in (0..self.width).step_by(16) {
                    let count = (self.width - x).min(16);
                    let mut mask = 0;
                    for i in 0..count {
                        let fires = fire.is_none_or(|f| f[y * self.width + x + i]);
                        mask |= u16::from(fires) << i;
                    }
                    if mask != 0 {
                        let place = (self.row(sample, y) + x) as u32;
                        pieces.push(RowPiece { place, mask });
                        cells += mask.count_ones() as usize;
                    }
                }
            }
        }
        cells
    }

    /// Lets the border of one channel's plane show what the boundary condition says.
    pub fn fill_border(&self, boundary: BoundaryCondition, plane: &mut [f32]) {
        if boundary == BoundaryCondition::Zero {
            return; // It is zero from the start, and nothing writes there.
        }
        let (s, w) = (self.stride(), self.width);
        for sample in 0..self.batch {
            for y in 0..self.height {
                let row = self.row(sample, y);
                plane[row - 1] = plane[row + w - 1];
                plane[row + w] = plane[row];
            }
            let first = self.row(sample, 0) - 1;
            let last = self.row(sample, self.height - 1) - 1;
            plane.copy_within(last..last + s, first - s);
            plane.copy_within(first..first + s, last + s);
        }
    }

    /// The reverse for gradients: what arrived in the border goes to the cells it stood for, or
    /// nowhere; the border is zero again.
    pub fn fold_border(&self, boundary: BoundaryCondition, plane: &mut [f32]) {
        let (s, w) = (self.stride(), self.width);
        let wrap = boundary == BoundaryCondition::Periodic;
        for sample in 0..self.batch {
            let first = self.row(sample, 0) - 1;
            let last = self.row(sample, self.height - 1) - 1;
            for (border, row) in [(first - s, last), (last + s, first)] {
                for i in 0..s {
                    if wrap {
                        plane[row + i] += plane[border + i];
                    }
                    plane[border + i] = 0.0;
                }
            }
            for y in 0..self.height {
                let row = self.row(sample, y);
                if wrap {
                    plane[row + w - 1] += plane[row - 1];
                    plane[row] += plane[row + w];
                }
                plane[row - 1] = 0.0;
                plane[row + w] = 0.0;
            }
        }
    }
}

#[inline(always)]
fn mask<S: Simd>(simd: S, piece: &RowPiece) -> <f32x16<S> as SimdBase<S>>::Mask {
    SimdMask::from_bitmask(simd, u64::from(piece.mask))
}

/// Packs the firing cells of a plane, each read `offset` places after the one above and to the
/// left of it. `packed` has room for one vector more than needed.
#[inline(always)]
pub(super) fn pack<S: Simd>(
    simd: S,
    pieces: &[RowPiece],
    plane: &[f32],
    before: usize,
    packed: &mut [f32],
) {
    let end = packed.len();
    packed[end.saturating_sub(32)..].fill(0.0);
    let mut at = 0;
    for piece in pieces {
        // `before` is less than 0 for neighbours below, and wraps back here.
        let from = (piece.place as usize).wrapping_sub(before);
        let cells = f32x16::from_slice(simd, &plane[from..from + 16]);
        let squeezed = cells.compress(mask(simd, piece));
        squeezed.store_slice(&mut packed[at..at + 16]);
        at += piece.mask.count_ones() as usize;
    }
}

/// Puts packed cells in their places; others stay as they are.
#[inline(always)]
pub(super) fn unpack<S: Simd>(simd: S, pieces: &[RowPiece], packed: &[f32], plane: &mut [f32]) {
    let mut at = 0;
    for piece in pieces {
        let place = &mut plane[piece.place as usize..][..16];
        let old = f32x16::from_slice(simd, place);
        let new = f32x16::from_slice(simd, &packed[at..at + 16]);
        new.expand_merge(mask(simd, piece), old).store_slice(place);
        at += piece.mask.count_ones() as usize;
    }
}

/// Adds packed values to the plane, `before` places before the firing cells.
#[inline(always)]
pub(super) fn unpack_add<S: Simd>(
    simd: S,
    pieces: &[RowPiece],
    packed: &[f32],
    before: usize,
    plane: &mut [f32],
) {
    let mut at = 0;
    for piece in pieces {
        let place = (piece.place as usize).wrapping_sub(before);
        let place = &mut plane[place..][..16];
        let old = f32x16::from_slice(simd, place);
        let new = f32x16::from_slice(simd, &packed[at..at + 16]);
        (new.expand(mask(simd, piece)) + old).store_slice(place);
        at += piece.mask.count_ones() as usize;
    }
}

/// Sets the firing cells to 0.
#[inline(always)]
pub(super) fn clear<S: Simd>(simd: S, pieces: &[RowPiece], plane: &mut [f32]) {
    let zero = f32x16::splat(simd, 0.0);
    for piece in pieces {
        let place = &mut plane[piece.place as usize..][..16];
        let old = f32x16::from_slice(simd, place);
        mask(simd, piece).select(zero, old).store_slice(place);
    }
}
