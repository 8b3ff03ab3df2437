//! One input at a block of samples: the knot interval each sample lies in, and the basis functions
//! there, sixteen lanes at a time.

use super::basis::{COMPARED, Splines, clamp, free_splines, kept, uniform_splines};
use super::{Base, Kan, MAX_DEGREE};
use crate::cuts::cuts;
use crate::simd::{self, Fused, LANES, Simd, f32x8, f32x16, prelude::*};

/// Samples per block: a bit of a u64 each.
pub(super) const BLOCK: usize = 64;
/// Lanes of half a vector.
pub(super) const HALF: usize = LANES / 2;
/// Vectors of a block.
const VECTORS: usize = BLOCK / LANES;
/// Workspace for the intervals of the finest grid, 64 + 2·7, in a power of two.
const INTERVALS: usize = 128;
/// Fewer columns are transposed one by one.
const FEW: usize = 4;
/// Rows of two, points of a plane, are parted by vectors.
const PAIR: usize = 2;
cuts!(BLOCK, HALF, FEW, PAIR);

/// Numbers that begin with a cache line: a vector that straddles two costs two loads or stores.
#[repr(C, align(64))]
pub(super) struct Aligned<T>(pub T);

/// One input at the samples of a block.
#[repr(C, align(64))]
pub(super) struct Block {
    /// The splines q−k … q, by sample; rows beyond k are zeros.
    pub values: [[f32; BLOCK]; MAX_DEGREE + 1],
    /// e_0 … e_{k−1}, whose differences are the splines' derivatives; rows beyond are zeros.
    pub steps: [[f32; BLOCK]; MAX_DEGREE],
    /// The base function and its derivative, zeros where there is none.
    pub silu: [f32; BLOCK],
    pub silu_slope: [f32; BLOCK],
    /// Which samples lie in an interval.
    members: [u64; INTERVALS],
    /// The intervals that may have any.
    first: usize,
    end: usize,
}

impl Block {
    pub fn new() -> Self {
        Block {
            values: [[0.0; BLOCK]; MAX_DEGREE + 1],
            steps: [[0.0; BLOCK]; MAX_DEGREE],
            silu: [0.0; BLOCK],
            silu_slope: [0.0; BLOCK],
            members: [0; INTERVALS],
            first: 0,
            end: 0,
        }
    }

    /// The intervals that have samples, and those samples' bits.
    #[inline(always)]
    pub fn groups(&self) -> impl Iterator<Item = (usize, u64)> + '_ {
        (self.first..self.end)
            .map(|q| (q, self.members[q % INTERVALS]))
            .filter(|&(_, samples)| samples != 0)
    }

    /// Evaluates an input at some samples, with the derivatives or without.
    ///
    /// A sample outside of all intervals has values of 0 and counts as one of interval 0; so does NaN, with
    /// values that are NaN where they meet row 0.
    #[inline(always)]
    pub fn fill<S: Simd, const N: usize>(
        &mut self,
        simd: S,
        kan: &Kan,
        input: usize,
        x: &[f32; BLOCK],
        samples: usize,
        slopes: bool,
    ) {
        let (table, at) = (&kan.table, kan.table.of(input));
        let kept = kept::<N>(kan.degree);
        let degree = kept - 1;
        let (zero, one) = (f32x16::splat(simd, 0.0), f32x16::splat(simd, 1.0));
        let (mut points, mut moves) = ([zero; VECTORS], [one; VECTORS]);
        for v in 0..VECTORS {
            points[v] = f32x16::from_slice(simd, &x[v * LANES..][..LANES]);
            if table.clamp {
                (points[v], moves[v]) = clamp(simd, table, at, 0, points[v]);
            }
        }
        let intervals = self.find::<S, N>(simd, kan, at, &points, samples);
        for v in 0..samples.div_ceil(LANES).min(VECTORS) {
            let place = v * LANES..(v + 1) * LANES;
            let x = points[v];
            let Splines {
                mut values,
                mut steps,
            } = match table.inverse_step {
                Some(inverse) => {
                    let ends = [intervals.knot[v], intervals.next[v]];
                    uniform_splines::<S, N>(simd, degree, inverse, ends, x)
                }
                None => {
                    let interval = self.intervals(v);
                    free_splines::<S, N>(simd, table, at, 0, &interval, x)
                }
            };
            if intervals.some_outside {
                let last = at + kan.grid + 2 * degree;
                let inside = x.simd_ge(f32x16::splat(simd, table.up[at]))
                    & x.simd_lt(f32x16::splat(simd, table.up[last]));
                for m in 0..kept {
                    values[m] = inside.select(values[m], zero);
                    steps[m] = inside.select(steps[m], zero);
                }
                let known = x.simd_eq(x);
                values[degree] = known.select(values[degree], x);
                steps[degree - 1] = known.select(steps[degree - 1], x);
            }
            for m in 0..kept {
                values[m].store_slice(&mut self.values[m][place.clone()]);
            }
            if slopes {
                for r in 0..degree {
                    let step = if table.clamp {
                        steps[r] * moves[v]
                    } else {
                        steps[r]
                    };
                    step.store_slice(&mut self.steps[r][place.clone()]);
                }
            }
            if kan.base != Base::None {
                let sigmoid = simd::sigmoid(simd, x);
                (x * sigmoid).store_slice(&mut self.silu[place.clone()]);
                if slopes {
                    let mut slope = sigmoid * x.fma(one - sigmoid, one);
                    if table.clamp {
                        slope *= moves[v];
                    }
                    slope.store_slice(&mut self.silu_slope[place]);
                }
            }
        }
    }

    /// Groups the samples by interval.
    #[inline(always)]
    fn find<S: Simd, const N: usize>(
        &mut self,
        simd: S,
        kan: &Kan,
        at: usize,
        x: &[f32x16<S>; VECTORS],
        samples: usize,
    ) -> Intervals<S> {
        let degree = kept::<N>(kan.degree) - 1;
        let count = kan.grid + 2 * degree;
        let knots = &kan.table.knots[at..=at + count];
        let up = &kan.table.up[at..=at + count];
        let exist = u64::MAX >> (BLOCK - samples);
        // Mostly all samples are in the grid itself, or not far from it.
        let (mut first, mut end) = (degree, degree + kan.grid);
        let mut low = bits(&reached(simd, x, up[first])) & exist;
        let mut high = bits(&reached(simd, x, up[end])) & exist;
        while low != exist && first > 0 {
            first -= 1;
            low = bits(&reached(simd, x, up[first])) & exist;
        }
        while high != 0 && end < count {
            end += 1;
            high = bits(&reached(simd, x, up[end])) & exist;
        }
        (self.first, self.end) = (first, end);
        let mut knot = [f32x16::splat(simd, knots[first]); VECTORS];
        let mut next = [f32x16::splat(simd, knots[first + 1]); VECTORS];
        if end - first > COMPARED {
            self.members[first..end].fill(0);
            let (mut knot_of, mut next_of) = ([knots[first]; BLOCK], [knots[first + 1]; BLOCK]);
            for (s, x) in x.iter().flat_map(|x| x.to_array()).enumerate() {
                let below = up.partition_point(|&t| t <= x);
                if (1..=count).contains(&below) {
                    self.members[(below - 1) % INTERVALS] |= 1 << s & exist;
                    (knot_of[s % BLOCK], next_of[s % BLOCK]) = (knots[below - 1], knots[below]);
                }
            }
            for v in 0..VECTORS {
                knot[v] = f32x16::from_slice(simd, &knot_of[v * LANES..][..LANES]);
                next[v] = f32x16::from_slice(simd, &next_of[v * LANES..][..LANES]);
            }
        } else {
            let mut above = low;
            for q in first..end - 1 {
                let beyond = reached(simd, x, up[q + 1]);
                let t_q = f32x16::splat(simd, knots[q + 1]);
                let t_next = f32x16::splat(simd, knots[q + 2]);
                for v in 0..VECTORS {
                    knot[v] = beyond[v].select(t_q, knot[v]);
                    next[v] = beyond[v].select(t_next, next[v]);
                }
                let beyond = bits(&beyond) & exist;
                self.members[q % INTERVALS] = above & !beyond;
                above = beyond;
            }
            self.members[(end - 1) % INTERVALS] = above & !high;
        }
        let outside = exist & !low | high;
        if outside != 0 {
            // In the same interval whatever else is in the block: the order of sums must not depend on it.
            self.members[..first].fill(0);
            self.first = 0;
            self.members[0] |= outside;
        }
        Intervals {
            knot,
            next,
            some_outside: outside != 0,
        }
    }

    /// The interval of each lane of a vector; 0 for lanes without a sample.
    fn intervals(&self, v: usize) -> [u32; LANES] {
        let mut interval = [0; LANES];
        for (q, samples) in self.groups() {
            let samples = samples >> (v * LANES);
            for (l, interval) in interval.iter_mut().enumerate() {
                if samples >> l & 1 == 1 {
                    *interval = q as u32;
                }
            }
        }
        interval
    }
}

/// What [`Block::find`] found besides the groups.
struct Intervals<S: Simd> {
    /// t_q and t_{q+1}.
    knot: [f32x16<S>; VECTORS],
    next: [f32x16<S>; VECTORS],
    /// Whether a sample is in no interval.
    some_outside: bool,
}

/// Which samples are not below a knot.
#[inline(always)]
fn reached<S: Simd>(simd: S, x: &[f32x16<S>; VECTORS], up: f32) -> [simd::mask32x16<S>; VECTORS] {
    let up = f32x16::splat(simd, up);
    simd::array(
        #[inline(always)]
        |v| x[v].simd_ge(up),
    )
}

/// A bit for every sample of a block.
#[inline(always)]
fn bits<S: Simd>(masks: &[simd::mask32x16<S>; VECTORS]) -> u64 {
    let mut bits = 0;
    for (v, mask) in masks.iter().enumerate() {
        bits |= mask.to_bitmask() << (v * LANES);
    }
    bits
}

/// Some columns of rows of `width` transposed, from column `first` on, as many as `transposed` has
/// room for with `stride` numbers each: number r of column c is at c·stride + r.
#[inline(always)]
pub(super) fn transpose<S: Simd>(
    simd: S,
    rows: &[f32],
    width: usize,
    first: usize,
    transposed: &mut [f32],
    stride: usize,
) {
    let columns = transposed.len().div_ceil(stride);
    if width == PAIR && columns == PAIR {
        let (evens, odds) = transposed.split_at_mut(stride);
        for (v, rows) in rows.chunks(PAIR * LANES).enumerate() {
            let (a, b) = rows.split_at(rows.len().min(LANES));
            let (a, b) = (simd::load_short(simd, a), simd::load_short(simd, b));
            let place = v * LANES..v * LANES + rows.len() / PAIR;
            simd::store_short(a.unzip_low(b), &mut evens[place.clone()]);
            simd::store_short(a.unzip_high(b), &mut odds[place]);
        }
        return;
    }
    if columns < FEW {
        for (c, transposed) in transposed.chunks_mut(stride).enumerate() {
            for (to, row) in transposed.iter_mut().zip(rows.chunks_exact(width)) {
                *to = row[first + c];
            }
        }
        return;
    }
    for (v, rows) in rows.chunks(LANES * width).enumerate() {
        let count = rows.len() / width;
        for c in (0..columns).step_by(LANES) {
            let transposed = transposed[c * stride..].chunks_mut(stride);
            let transposed = transposed.map(|transposed| &mut transposed[v * LANES..][..count]);
            if columns - c <= HALF && width >= HALF {
                transpose_half(simd, rows, width, first + c, transposed);
                continue;
            }
            // The last columns are read with some before them.
            let from = (first + c).min(width.saturating_sub(LANES));
            let mut lanes = [f32x16::splat(simd, 0.0); LANES];
            if width >= LANES {
                for (lanes, row) in lanes.iter_mut().zip(rows.chunks_exact(width)) {
                    *lanes = f32x16::from_slice(simd, &row[from..from + LANES]);
                }
            } else {
                for (lanes, row) in lanes.iter_mut().zip(rows.chunks_exact(width)) {
                    *lanes = simd::load_short(simd, row);
                }
            }
            let lanes = simd::transpose(simd, lanes);
            for (lanes, transposed) in lanes[first + c - from..].iter().zip(transposed) {
                simd::store_short(*lanes, transposed);
            }
        }
    }
}

/// Eight columns, or fewer, of sixteen rows, or fewer, transposed.
#[inline(always)]
fn transpose_half<'a, S: Simd>(
    simd: S,
    rows: &[f32],
    width: usize,
    first: usize,
    transposed: impl Iterator<Item = &'a mut [f32]>,
) {
    let from = first.min(width - HALF);
    let zero = f32x8::splat(simd, 0.0);
    let mut pairs = [f32x16::splat(simd, 0.0); HALF];
    for (pair, rows) in pairs.iter_mut().zip(rows.chunks(2 * width)) {
        let low = f32x8::from_slice(simd, &rows[from..from + HALF]);
        let high = match rows.len() > width {
            true => f32x8::from_slice(simd, &rows[width + from..width + from + HALF]),
            false => zero,
        };
        *pair = simd.combine_f32x8(low, high);
    }
    let lanes = simd::transpose_pairs(simd, pairs);
    for (lanes, transposed) in lanes[first - from..].iter().zip(transposed) {
        simd::store_short(*lanes, transposed);
    }
}

/// The splines of one input and their derivatives at some points, all G+k of them a point.
#[cfg(test)]
pub(super) fn evaluate(kan: &Kan, input: usize, x: &[f32]) -> (Vec<f32>, Vec<f32>) {
    let bases = kan.bases();
    let (mut values, mut slopes) = (vec![0.0; x.len() * bases], vec![0.0; x.len() * bases]);
    for (n, x) in x.chunks(BLOCK).enumerate() {
        let mut padded = [0.0; BLOCK];
        padded[..x.len()].copy_from_slice(x);
        let mut block = Block::new();
        by_degree!(kan.degree, N => simd::dispatch!(simd::level(), simd =>
            block.fill::<_, N>(simd, kan, input, &padded, x.len(), true)));
        for (q, samples) in block.groups() {
            for s in (0..x.len()).filter(|s| samples >> s & 1 == 1) {
                for m in 0..=kan.degree {
                    let Some(row) = (q + m).checked_sub(kan.degree).filter(|&r| r < bases) else {
                        continue;
                    };
                    let step = |r: usize| block.steps.get(r).map_or(0.0, |steps| steps[s]);
                    let before = if m == 0 { 0.0 } else { step(m - 1) };
                    let at = (n * BLOCK + s) * bases + row;
                    values[at] = block.values[m][s];
                    slopes[at] = before - if m == kan.degree { 0.0 } else { step(m) };
                }
            }
        }
    }
    (values, slopes)
}
