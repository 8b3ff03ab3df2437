//! Rows of an image with the channels of a pixel next to each other.

use super::super::tile::{Source, Window, gather};
use super::load;
use crate::simd::{self, LANES, Simd, f32x16, prelude::*};

/// Rows of planes with their channels next to each other, a few of them at a time.
pub(super) struct Lines<'a> {
    pub source: Source<'a>,
    pub size: (usize, usize),
    pub reflect: bool,
    /// The first plane, and how many there are.
    pub first: usize,
    pub channels: usize,
    pub left: isize,
    /// Columns of a row, and the rows that are kept: row r is at r modulo `kept`.
    pub columns: usize,
    pub kept: usize,
    pub rows: &'a mut [f32],
    /// Two rows of sixteen planes.
    pub planes: &'a mut [f32],
}

impl<'a> Lines<'a> {
    /// Scratch that it takes.
    pub fn lens(channels: usize, columns: usize, kept: usize) -> [usize; 2] {
        let rows = kept * columns * channels.next_multiple_of(LANES);
        [rows, 2 * LANES * columns.next_multiple_of(LANES)]
    }

    /// Numbers of a pixel.
    pub fn depth(&self) -> usize {
        self.channels.next_multiple_of(LANES)
    }

    /// A row's numbers.
    #[inline(always)]
    pub fn row(&self, row: usize) -> &[f32] {
        let len = self.columns * self.depth();
        &self.rows[row % self.kept * len..][..len]
    }

    /// Reads rows `row` and `row` + 1, which are `top` and the next in the image.
    #[inline(always)]
    pub fn read<S: Simd>(&mut self, simd: S, row: usize, top: isize) {
        let depth = self.depth();
        let pitch = self.columns.next_multiple_of(LANES);
        let window = Window {
            top,
            left: self.left,
            rows: 2,
            columns: self.columns,
            pitch,
            row_stride: pitch,
            channel_stride: 2 * pitch,
        };
        for channel in (0..self.channels).step_by(LANES) {
            let count = LANES.min(self.channels - channel);
            let Lines { source, size, .. } = *self;
            let first = self.first + channel;
            self.planes[count * 2 * pitch..].fill(0.0);
            gather(
                simd,
                source,
                size,
                self.reflect,
                first,
                count,
                &window,
                self.planes,
            );
            for r in 0..2 {
                let len = self.columns * depth;
                let to = &mut self.rows[(row + r) % self.kept * len..][..len];
                for column in (0..self.columns).step_by(LANES) {
                    let mut lanes = [f32x16::splat(simd, 0.0); LANES];
                    for (l, lanes) in lanes.iter_mut().enumerate() {
                        *lanes = load(simd, self.planes, (2 * l + r) * pitch + column);
                    }
                    let lanes = simd::transpose(simd, lanes);
                    let pixels = to[column * depth + channel..].chunks_mut(depth);
                    for (lanes, to) in lanes.iter().zip(pixels) {
                        lanes.store_slice(&mut to[..LANES]);
                    }
                }
            }
        }
    }
}
