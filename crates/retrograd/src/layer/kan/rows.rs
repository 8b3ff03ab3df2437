//! Rows of a layer's outputs: vectors of 16 in registers, and perhaps half a one at the end; whole
//! vectors or halves in memory, padded with zeros that nobody reads where a row has other numbers.

use super::block::{Aligned, HALF};
use super::cpu::COPY;
use crate::parallel;
use crate::simd::{Fused, LANES, Simd, f32x8, f32x16, prelude::*};

/// Numbers of a padded row: whole vectors, and half a one where that is enough after others.
pub(super) fn padded_width(outputs: usize) -> usize {
    match outputs < LANES {
        true => LANES,
        false => outputs.next_multiple_of(HALF),
    }
}

/// A part of a row that a kernel takes at once: so many vectors from a number on, and then half a
/// one or not.
pub(super) struct Columns {
    pub first: usize,
    pub vectors: usize,
    pub half: bool,
}

/// Cuts a padded row into parts of 4, 2 and 1 vectors, no more than `most`, and one of 1½ for a
/// half: few kernels to compile.
#[inline(always)]
pub(super) fn columns(width: usize, most: usize) -> impl Iterator<Item = Columns> {
    let half = !width.is_multiple_of(LANES);
    let whole = width / LANES - usize::from(half);
    let mut done = 0;
    std::iter::from_fn(move || {
        let (vectors, half) = match whole.saturating_sub(done).min(most) {
            0 if half && done == whole => (1, true),
            0 => return None,
            1 => (1, false),
            2 | 3 => (2, false),
            _ => (4, false),
        };
        done += vectors;
        Some(Columns {
            first: (done - vectors) * LANES,
            vectors,
            half,
        })
    })
}

/// That many numbers of this thread's scratch, from the beginning of a cache line on, their content
/// unspecified.
pub(super) fn with_lines(len: usize, work: impl FnOnce(&mut [f32])) {
    parallel::with_scratch(len + LANES, |scratch| {
        let start = scratch.as_ptr().align_offset(align_of::<Aligned<f32>>());
        work(&mut scratch[start.min(LANES)..][..len]);
    });
}

/// Rows that a piece copies.
const ROWS: usize = 256;
crate::cuts::cuts!(ROWS);

/// Rows of outputs, padded: as they are, or in `scratch`.
pub(super) fn padded<'a>(rows: &'a [f32], outputs: usize, scratch: &'a mut [f32]) -> &'a [f32] {
    let width = padded_width(outputs);
    if width == outputs {
        return rows;
    }
    let parallel = scratch.len() >= COPY;
    parallel::for_each_chunk(scratch, ROWS * width, parallel, |i, scratch| {
        let rows = rows[i * ROWS * outputs..].chunks_exact(outputs);
        for (row, to) in rows.zip(scratch.chunks_exact_mut(width)) {
            to[..outputs].copy_from_slice(row);
            to[outputs..].fill(0.0);
        }
    });
    scratch
}

/// Numbers of scratch that [`padded`] takes for rows of `len` numbers in all.
pub(super) fn padding(len: usize, outputs: usize) -> usize {
    match padded_width(outputs) {
        width if width == outputs => 0,
        width => len / outputs * width,
    }
}

/// y += the first of `sums`, which are padded; nothing where y is empty.
#[inline(always)]
pub(super) fn add_padded<S: Simd>(simd: S, sums: &[f32], outputs: usize, y: &mut [f32]) {
    if y.is_empty() {
        return;
    }
    let width = padded_width(outputs);
    // Rows without padding are one long one.
    let (outputs, width) = match width == outputs {
        true => (y.len(), y.len()),
        false => (outputs, width),
    };
    for (y, sums) in y.chunks_exact_mut(outputs).zip(sums.chunks_exact(width)) {
        let (y, y_rest) = y.as_chunks_mut::<LANES>();
        let (sums, sums_rest) = sums.as_chunks::<LANES>();
        for (y, sum) in y.iter_mut().zip(sums) {
            (f32x16::from_slice(simd, y) + f32x16::from_slice(simd, sum)).store_slice(y);
        }
        let rest = sums[y.len()..].as_flattened().iter().chain(sums_rest);
        for (y, sum) in y_rest.iter_mut().zip(rest) {
            *y += sum;
        }
    }
}

/// A part of a row in registers: `V` vectors and `H` halves.
#[derive(Clone, Copy)]
pub(super) struct Row<S: Simd, const V: usize, const H: usize> {
    vectors: [f32x16<S>; V],
    halves: [f32x8<S>; H],
}

impl<S: Simd, const V: usize, const H: usize> Row<S, V, H> {
    /// Its numbers.
    pub const LEN: usize = V * LANES + H * HALF;

    #[inline(always)]
    pub fn zero(simd: S) -> Self {
        Row {
            vectors: [f32x16::splat(simd, 0.0); V],
            halves: [f32x8::splat(simd, 0.0); H],
        }
    }

    /// The first of some numbers.
    #[inline(always)]
    pub fn load(simd: S, numbers: &[f32]) -> Self {
        let (vectors, halves) = numbers[..Self::LEN].split_at(V * LANES);
        let mut row = Self::zero(simd);
        for (to, from) in row.vectors.iter_mut().zip(vectors.as_chunks::<LANES>().0) {
            *to = f32x16::from_slice(simd, from);
        }
        for (to, from) in row.halves.iter_mut().zip(halves.as_chunks::<HALF>().0) {
            *to = f32x8::from_slice(simd, from);
        }
        row
    }

    /// To the first of some numbers.
    #[inline(always)]
    pub fn store(&self, numbers: &mut [f32]) {
        let (vectors, halves) = numbers[..Self::LEN].split_at_mut(V * LANES);
        for (from, to) in self.vectors.iter().zip(vectors.as_chunks_mut::<LANES>().0) {
            from.store_slice(to);
        }
        for (from, to) in self.halves.iter().zip(halves.as_chunks_mut::<HALF>().0) {
            from.store_slice(to);
        }
    }

    /// self += a.
    #[inline(always)]
    pub fn add(&mut self, a: &Self) {
        for v in 0..V {
            self.vectors[v] += a.vectors[v];
        }
        for h in 0..H {
            self.halves[h] += a.halves[h];
        }
    }

    /// self − a.
    #[inline(always)]
    pub fn minus(&self, a: &Self) -> Self {
        let mut difference = *self;
        for v in 0..V {
            difference.vectors[v] = self.vectors[v] - a.vectors[v];
        }
        for h in 0..H {
            difference.halves[h] = self.halves[h] - a.halves[h];
        }
        difference
    }

    /// self·b.
    #[inline(always)]
    pub fn times(&self, simd: S, b: f32) -> Self {
        let mut product = *self;
        for v in 0..V {
            product.vectors[v] = self.vectors[v] * f32x16::splat(simd, b);
        }
        for h in 0..H {
            product.halves[h] = self.halves[h] * f32x8::splat(simd, b);
        }
        product
    }

    /// self += a·b.
    #[inline(always)]
    pub fn add_product(&mut self, simd: S, a: &Self, b: f32) {
        for v in 0..V {
            self.vectors[v] = a.vectors[v].fma(f32x16::splat(simd, b), self.vectors[v]);
        }
        for h in 0..H {
            self.halves[h] = a.halves[h].fma(f32x8::splat(simd, b), self.halves[h]);
        }
    }

    /// sum + the products of its numbers and those of a, in sixteen sums.
    #[inline(always)]
    pub fn dot(&self, simd: S, a: &Self, mut sum: f32x16<S>) -> f32x16<S> {
        for v in 0..V {
            sum = self.vectors[v].fma(a.vectors[v], sum);
        }
        for h in 0..H {
            let (low, high) = simd.split_f32x16(sum);
            sum = simd.combine_f32x8(self.halves[h].fma(a.halves[h], low), high);
        }
        sum
    }
}
