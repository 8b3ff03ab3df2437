//! The k+1 basis functions that are not zero at x, sixteen lanes at a time.
//!
//! With q the interval that holds x (t_q ≤ x < t_{q+1}), only the splines q−k … q differ from 0.
//! They come from the triangle of Cox and de Boor, in the form that needs no division by zero and
//! adds positive terms alone: with left_j = x − t_{q+1−j} and right_j = t_{q+j} − x,
//!
//! n_0 = 1; for d = 1 … k: n_r ← right_{r+1}·n_r/(right_{r+1} + left_{d−r}) + (what n_{r−1} passed on),
//!
//! and the slopes from the values n of degree k−1: e_r = k·n_r/(right_{r+1} + left_{k−r}),
//! B′_{q−k+r} = e_{r−1} − e_r. On uniform knots, with s = (x − t_q)/h and r = (t_{q+1} − x)/h,
//! left_j = (s + j − 1)·h, right_j = (r + j − 1)·h and right_{r+1} + left_{d−r} = d·h: no division at all.
//! Both come from the knots themselves. 1 − s would have the rounding of s, which is all that is left of a spline
//! that ends at t_{q+1} where x is close to it.
//!
//! Of the rows q−k … q some do not exist near and beyond the ends of the grid. [`Lanes`], made for
//! one sample, keeps the rows `start` … `start`+k with `start` = q−k pushed into 0 … G−1, and zeros
//! where a row does not exist, so that the loop over weights has no special case.
//! [`Block`](super::block::Block), made for many samples, tells q itself.

use super::MAX_DEGREE;
use crate::cuts::cuts;
use crate::simd::{self, Fused, LANES, Simd, between, dispatch, f32x16, prelude::*, u32x16, whole};

/// The knots in f32, prepared for the fast kernels: one table for uniform knots, one per input for
/// free ones.
#[derive(Clone)]
pub(crate) struct Table {
    degree: usize,
    grid: usize,
    pub(super) clamp: bool,
    /// 1/h of uniform knots, `None` for free ones.
    pub(super) inverse_step: Option<f32>,
    /// Values per table, G+2k+1 knots with k more on either side.
    stride: usize,
    /// The knots, rounded to the nearest f32.
    pub(super) knots: Vec<f32>,
    /// The smallest f32 that is not below the knot: for an f32 x, x ≥ `up` decides exactly as
    /// x ≥ knot does in f64.
    pub(super) up: Vec<f32>,
}

/// The least f32 ≥ x.
pub(super) fn round_up(x: f64) -> f32 {
    let y = x as f32;
    if f64::from(y) < x { y.next_up() } else { y }
}

impl Table {
    /// `tables` holds G+2k+1 increasing knots each.
    pub fn new(
        degree: usize,
        grid: usize,
        clamp: bool,
        step: Option<f64>,
        tables: &[Vec<f64>],
    ) -> Self {
        let stride = grid + 4 * degree + 1;
        let (mut knots, mut up) = (Vec::new(), Vec::new());
        // Whole vectors of inputs: the last table is repeated for lanes that stand for nothing.
        let padding = match step {
            Some(_) => 0,
            None => tables.len().next_multiple_of(LANES) - tables.len(),
        };
        let last = tables.last().into_iter().cycle().take(padding);
        for table in tables.iter().chain(last) {
            let (first, last) = (table[0], table[table.len() - 1]);
            // Knots that no existing row touches; they only have to increase.
            let before = table[1] - first;
            let after = last - table[table.len() - 2];
            let extended = (1..=degree)
                .rev()
                .map(|n| first - n as f64 * before)
                .chain(table.iter().copied())
                .chain((1..=degree).map(|n| last + n as f64 * after));
            for t in extended {
                knots.push(t as f32);
                up.push(round_up(t));
            }
        }
        Table {
            degree,
            grid,
            clamp,
            inverse_step: step.map(|h| (1.0 / h) as f32),
            stride,
            knots,
            up,
        }
    }

    /// Where the knots of an input begin: t_0.
    pub fn of(&self, input: usize) -> usize {
        let table = match self.inverse_step {
            Some(_) => 0,
            None => input * self.stride,
        };
        table + self.degree
    }

    /// How far the tables of neighbouring inputs are apart.
    pub fn apart(&self) -> usize {
        match self.inverse_step {
            Some(_) => 0,
            None => self.stride,
        }
    }
}

/// k+1, known to the compiler for degree 3 (N = 4). All other degrees share one copy of the kernels
/// with room for N = 8 and loops of k+1: seven copies of everything took minutes to compile.
#[inline(always)]
pub(super) fn kept<const N: usize>(degree: usize) -> usize {
    if N == 4 { 4 } else { degree + 1 }
}

/// The splines at sixteen points; the first k+1 of N are used.
pub(super) struct Splines<S: Simd, const N: usize> {
    /// B_{q−k+r}, r = 0 … k.
    pub values: [f32x16<S>; N],
    /// e_r, r = 0 … k−1, of which the derivatives are the differences.
    pub steps: [f32x16<S>; N],
}

/// On uniform knots, between `knots` t_q and t_{q+1}.
#[inline(always)]
pub(super) fn uniform_splines<S: Simd, const N: usize>(
    simd: S,
    degree: usize,
    inverse_step: f32,
    knots: [f32x16<S>; 2],
    x: f32x16<S>,
) -> Splines<S, N> {
    let kept = kept::<N>(degree);
    let zero = f32x16::splat(simd, 0.0);
    let s = (x - knots[0]) * inverse_step;
    let r = (knots[1] - x) * inverse_step;
    if N == 4 {
        return uniform_cubics(simd, inverse_step, s, r);
    }
    let (mut left, mut right) = ([zero; N], [zero; N]);
    for j in 1..kept {
        left[j] = s + (j as f32 - 1.0);
        right[j] = r + (j as f32 - 1.0);
    }
    let (mut n, mut steps) = ([zero; N], [zero; N]);
    n[0] = f32x16::splat(simd, 1.0);
    for d in 1..kept {
        if d == kept - 1 {
            for r in 0..d {
                steps[r] = n[r] * inverse_step;
            }
        }
        let mut passed = zero;
        for r in 0..d {
            let share = n[r] * (1.0 / d as f32);
            n[r] = right[r + 1].fma(share, passed);
            passed = left[d - r] * share;
        }
        n[d] = passed;
    }
    Splines { values: n, steps }
}

/// Degree 3 on uniform knots, where the triangle comes to, with s + r = 1,
/// B = r³/6, 2/3 + s²·(s/2 − 1), 2/3 + r²·(r/2 − 1), s³/6 and e = r²/2h, (1/2 + r·s)/h, s²/2h.
#[inline(always)]
fn uniform_cubics<S: Simd, const N: usize>(
    simd: S,
    inverse_step: f32,
    s: f32x16<S>,
    r: f32x16<S>,
) -> Splines<S, N> {
    let number = |x: f32| f32x16::splat(simd, x);
    let (r2, s2) = (r * r, s * s);
    let middle =
        |x: f32x16<S>, x2: f32x16<S>| x2.fma(x.fma(number(0.5), number(-1.0)), number(2.0 / 3.0));
    let (mut values, mut steps) = ([number(0.0); N], [number(0.0); N]);
    values[0] = r2 * r * (1.0 / 6.0);
    values[1] = middle(s, s2);
    values[2] = middle(r, r2);
    values[3] = s2 * s * (1.0 / 6.0);
    steps[0] = r2 * (0.5 * inverse_step);
    steps[1] = r.fma(s, number(0.5)) * inverse_step;
    steps[2] = s2 * (0.5 * inverse_step);
    Splines { values, steps }
}

/// On any knots; lane l uses the table at `first + l·apart`, and is in that `interval` of it.
#[inline(always)]
pub(super) fn free_splines<S: Simd, const N: usize>(
    simd: S,
    table: &Table,
    first: usize,
    apart: usize,
    interval: &[u32; LANES],
    x: f32x16<S>,
) -> Splines<S, N> {
    let kept = kept::<N>(table.degree);
    let zero = f32x16::splat(simd, 0.0);
    let (mut left, mut right) = ([zero; N], [zero; N]);
    for j in 1..kept {
        let (mut a, mut b) = ([0.0; LANES], [0.0; LANES]);
        for l in 0..LANES {
            let t = first + l * apart + interval[l] as usize;
            a[l] = table.knots[t + 1 - j];
            b[l] = table.knots[t + j];
        }
        left[j] = x - f32x16::from_slice(simd, &a[..]);
        right[j] = f32x16::from_slice(simd, &b[..]) - x;
    }
    let (mut n, mut steps) = ([zero; N], [zero; N]);
    n[0] = f32x16::splat(simd, 1.0);
    for d in 1..kept {
        let mut passed = zero;
        for r in 0..d {
            let share = n[r] / (right[r + 1] + left[d - r]);
            if d == kept - 1 {
                steps[r] = share * d as f32;
            }
            n[r] = right[r + 1].fma(share, passed);
            passed = left[d - r] * share;
        }
        n[d] = passed;
    }
    Splines { values: n, steps }
}

/// x clamped to the grid and 0 where it was, else 1; lane l uses the table at `first + l·apart`.
#[inline(always)]
pub(super) fn clamp<S: Simd>(
    simd: S,
    table: &Table,
    first: usize,
    apart: usize,
    x: f32x16<S>,
) -> (f32x16<S>, f32x16<S>) {
    let (mut lo, mut hi, mut lo_up, mut hi_up) =
        ([0.0; LANES], [0.0; LANES], [0.0; LANES], [0.0; LANES]);
    for l in 0..LANES {
        let t = first + l * apart + table.degree;
        (lo[l], hi[l]) = (table.knots[t], table.knots[t + table.grid]);
        (lo_up[l], hi_up[l]) = (table.up[t], table.up[t + table.grid]);
    }
    let (lo, hi) = (f32x16::load_array(simd, lo), f32x16::load_array(simd, hi));
    let (lo_up, hi_up) = (
        f32x16::load_array(simd, lo_up),
        f32x16::load_array(simd, hi_up),
    );
    let below = x.simd_lt(lo_up);
    // x > knot: beyond the least f32 that is not below it, or on it when that is above.
    let above = x.simd_gt(hi_up) | (x.simd_eq(hi_up) & hi_up.simd_gt(hi));
    let (zero, one) = (f32x16::splat(simd, 0.0), f32x16::splat(simd, 1.0));
    let moves = below.select(zero, above.select(zero, one));
    (below.select(lo, above.select(hi, x)), moves)
}

/// What one sample's path knows about sixteen inputs; the first k+1 of N are used.
struct Lanes<S: Simd, const N: usize> {
    /// The row of the first basis function kept.
    start: u32x16<S>,
    values: [f32x16<S>; N],
    silu: f32x16<S>,
}

/// Up to this many intervals, lanes that share a table find theirs by comparing with every knot:
/// two instructions a knot for sixteen lanes, against a search of some ten a lane.
pub(super) const COMPARED: usize = 40;
cuts!(COMPARED);

/// Evaluates sixteen lanes; lane l uses the table at `first + l·apart`.
#[inline(always)]
fn lanes<S: Simd, const N: usize>(
    simd: S,
    table: &Table,
    first: usize,
    apart: usize,
    x: f32x16<S>,
) -> Lanes<S, N> {
    let kept = kept::<N>(table.degree);
    let degree = kept - 1;
    let (grid, intervals) = (table.grid, table.grid + 2 * degree);
    let zero = f32x16::splat(simd, 0.0);
    let mut x = x;
    if table.clamp {
        (x, _) = clamp(simd, table, first, apart, x);
    }

    // q of every lane, as a float, and the knots t_q and t_{q+1} where lanes share a table.
    let (knots, up) = (&table.knots[first..], &table.up[first..]);
    let mut t_q = f32x16::splat(simd, knots[0]);
    let mut t_next = f32x16::splat(simd, knots[1]);
    let q = if apart == 0 && intervals <= COMPARED {
        // Mostly all are in the grid itself: fewer knots to compare with.
        let (low, high) = (degree, degree + grid);
        let in_grid =
            x.simd_ge(f32x16::splat(simd, up[low])) & x.simd_lt(f32x16::splat(simd, up[high]));
        let (below, compared) = match simd.any_false_mask32x16(in_grid) {
            true => (-1.0, 0..intervals + 1),
            false => {
                t_q = f32x16::splat(simd, knots[low]);
                t_next = f32x16::splat(simd, knots[low + 1]);
                (low as f32, low + 1..high)
            }
        };
        let mut q = f32x16::splat(simd, below);
        for j in compared {
            let reached = x.simd_ge(f32x16::splat(simd, up[j]));
            q = reached.select(f32x16::splat(simd, j as f32), q);
            if j < intervals {
                t_q = reached.select(f32x16::splat(simd, knots[j]), t_q);
                t_next = reached.select(f32x16::splat(simd, knots[j + 1]), t_next);
            }
        }
        q
    } else {
        let x = x.to_array();
        let (mut q, mut low, mut high) = ([0.0; LANES], [0.0; LANES], [0.0; LANES]);
        for l in 0..LANES {
            let at = first + l * apart;
            let below = table.up[at..at + intervals + 1].partition_point(|&t| t <= x[l]);
            q[l] = below as f32 - 1.0;
            let below = below.clamp(1, intervals);
            (low[l], high[l]) = (table.knots[at + below - 1], table.knots[at + below]);
        }
        t_q = f32x16::from_slice(simd, &low[..]);
        t_next = f32x16::from_slice(simd, &high[..]);
        f32x16::from_slice(simd, &q[..])
    };
    let row = q - degree as f32;
    let clamped = between(row, 0.0, (grid - 1) as f32);
    let shift = row - clamped;
    let any_shift = simd.any_false_mask32x16(shift.simd_eq(zero));
    let start = whole(clamped);

    let mut values = if let Some(inverse) = table.inverse_step {
        uniform_splines::<S, N>(simd, degree, inverse, [t_q, t_next], x).values
    } else {
        let interval = whole(between(q, 0.0, (intervals - 1) as f32));
        free_splines::<S, N>(simd, table, first, apart, &interval.to_array(), x).values
    };
    if any_shift {
        for step in 1..=kept {
            let up = shift.simd_ge(f32x16::splat(simd, step as f32));
            let down = shift.simd_le(f32x16::splat(simd, -(step as f32)));
            for j in (0..kept).rev() {
                let other = if j == 0 { zero } else { values[j - 1] };
                values[j] = up.select(other, values[j]);
            }
            for j in 0..kept {
                let other = if j + 1 == kept { zero } else { values[j + 1] };
                values[j] = down.select(other, values[j]);
            }
        }
    }
    // A NaN compares as lying outside: it must not vanish there.
    values[0] = x.simd_eq(x).select(values[0], x);
    Lanes {
        start,
        values,
        silu: x * simd::sigmoid(simd, x),
    }
}

/// The basis functions of sixteen inputs at one sample.
pub(crate) struct Tile {
    /// The first k+1 are used.
    pub values: [[f32; LANES]; MAX_DEGREE + 1],
    pub silu: [f32; LANES],
    pub start: [u32; LANES],
}

impl Tile {
    pub fn new() -> Self {
        Tile {
            values: [[0.0; LANES]; MAX_DEGREE + 1],
            silu: [0.0; LANES],
            start: [0; LANES],
        }
    }

    /// Evaluates the inputs `first` … of a sample. Not inlined: one copy serves all that goes
    /// forward one by one.
    pub fn fill(&mut self, table: &Table, first: usize, x: &[f32]) {
        by_degree!(table.degree, N => dispatch!(simd::level(), simd =>
            fill_tile::<_, N>(simd, table, first, x, self)));
    }
}

#[inline(always)]
fn fill_tile<S: Simd, const N: usize>(
    simd: S,
    table: &Table,
    first: usize,
    x: &[f32],
    tile: &mut Tile,
) {
    let x = simd::load(simd, &x[first..]);
    let at = lanes::<S, N>(simd, table, table.of(first), table.apart(), x);
    tile.start = at.start.to_array();
    for m in 0..kept::<N>(table.degree) {
        at.values[m].store_slice(&mut tile.values[m]);
    }
    at.silu.store_slice(&mut tile.silu);
}
