//! Sums over the neighbours of a row, and the products that give their gradients.
//!
//! With P a pattern, c its coefficients, s a scale per row, o a factor on the row itself:
//!
//! ```text
//! y_i = s_i · (o · x_i + Σ_{p ∈ row i} c_p · x_{neighbour(p)}) + b
//! ```
//!
//! The gradient with respect to x is the same sum over the transpose, with s read at the
//! neighbour; the gradient with respect to c_p is the dot product of d_y_i · s_i and
//! x_{neighbour(p)}, [`edge_dot`](super::edge_dot()).

mod packed;
#[cfg(test)]
mod tests;

use fearless_simd::prelude::*;

use crate::Scalar;
use crate::cuts::cuts;
use crate::graph::pattern::Rows;
use crate::graph::structure::Graph;
use crate::parallel::{Uneven, for_each_cut};
use crate::simd::{self, Fused, LANES, Simd, dispatch, f32x8, f32x16};

/// The coefficient of every slot of a side of a pattern; with heads, one for each of them.
#[derive(Clone, Copy)]
pub enum Coefficient<'a, T> {
    /// 1.
    One,
    /// By slot.
    Slot(&'a [T]),
    /// By the slot of the other side, which the second array names.
    Gather(&'a [T], &'a [u32]),
    /// By neighbour.
    Neighbour(&'a [T]),
}

impl<T: Scalar> Coefficient<'_, T> {
    #[inline(always)]
    fn at(&self, slot: usize, neighbour: usize, [heads, head]: [usize; 2]) -> T {
        match *self {
            Coefficient::One => T::ONE,
            Coefficient::Slot(c) => c[slot * heads + head],
            Coefficient::Gather(c, slots) => c[slots[slot] as usize * heads + head],
            Coefficient::Neighbour(c) => c[neighbour],
        }
    }

    fn f32s(&self) -> Option<Coefficient<'_, f32>> {
        Some(match *self {
            Coefficient::One => Coefficient::One,
            Coefficient::Slot(c) => Coefficient::Slot(T::f32s(c)?),
            Coefficient::Gather(c, slots) => Coefficient::Gather(T::f32s(c)?, slots),
            Coefficient::Neighbour(c) => Coefficient::Neighbour(T::f32s(c)?),
        })
    }
}

/// One weighted sum over neighbours; see the module's text.
#[derive(Clone, Copy)]
pub struct Aggregate<'a, T> {
    /// Whose neighbours.
    pub rows: &'a Rows,
    /// c.
    pub coefficient: Coefficient<'a, T>,
    /// A row falls into this many heads of equal width, each with coefficients of its own.
    pub heads: usize,
    /// o, where the row itself takes part.
    pub own: Option<T>,
    /// s.
    pub row_scale: Option<&'a [T]>,
    /// b.
    pub bias: Option<&'a [T]>,
    /// Add to the output instead of overwriting it.
    pub add: bool,
}

impl<'a, T> Aggregate<'a, T> {
    /// The plain weighted sum.
    pub fn new(rows: &'a Rows, coefficient: Coefficient<'a, T>) -> Self {
        Aggregate {
            rows,
            coefficient,
            heads: 1,
            own: None,
            row_scale: None,
            bias: None,
            add: false,
        }
    }

    /// Added to the output.
    pub fn adding(self) -> Self {
        Aggregate { add: true, ..self }
    }
}

/// From this many vectors of rows on (a vector and a neighbour take some 1.5 ns), pieces go to
/// threads; `retrograd bench threshold-aggregate` measures a sum of that size.
pub(super) const PARALLEL: usize = 1 << 12;

/// What the sums over the rows cost, in vectors.
pub(super) fn cost(rows: &Rows, width: usize) -> usize {
    (rows.slots() + rows.len()) * width.div_ceil(16)
}

/// Numbers of x from which its rows are fetched ahead: a matrix that the second cache (1 MB on
/// Zen 4) holds gains nothing by it.
const FAR: usize = 1 << 18;

/// Vectors that are under way ahead of their use. Between 32 and 128, `graph-large` hardly changes.
const AHEAD: usize = 64;

/// Computes the sum for every row; rows of x and `out` are `width` wide.
pub fn aggregate<T: Scalar>(
    a: &Aggregate<'_, T>,
    x: &[T],
    width: usize,
    out: &mut [T],
    fast: bool,
) {
    if fast && let (Some(x), Some(coefficient)) = (T::f32s(x), a.coefficient.f32s()) {
        let a = Aggregate {
            rows: a.rows,
            coefficient,
            heads: a.heads,
            own: a.own.map(|o| o.to_f64() as f32),
            row_scale: a.row_scale.and_then(T::f32s),
            bias: a.bias.and_then(T::f32s),
            add: a.add,
        };
        return fast_aggregate(&a, x, width, T::f32s_mut(out).expect("one scalar"));
    }
    for (i, out) in out.chunks_exact_mut(width.max(1)).enumerate() {
        for (c, out) in out.iter_mut().enumerate() {
            let head = c / (width / a.heads);
            let mut sum = T::ZERO;
            if let Some(own) = a.own {
                sum += own * x[i * width + c];
            }
            for p in a.rows.range(i) {
                let j = a.rows.neighbour[p] as usize;
                sum += a.coefficient.at(p, j, [a.heads, head]) * x[j * width + c];
            }
            if let Some(scale) = a.row_scale {
                sum *= scale[i];
            }
            if let Some(bias) = a.bias {
                sum += bias[c];
            }
            if a.add {
                *out += sum;
            } else {
                *out = sum;
            }
        }
    }
}

/// The mean over the in-neighbours of every node, for rows of `width` numbers; `transposed` gives
/// the gradient of what was averaged from that of the means. The kernel alone, without a layer.
///
/// # Panics
/// Where `x` or `out` doesn't have a row for every node.
pub fn propagate_mean(graph: &Graph, x: &[f32], width: usize, transposed: bool, out: &mut [f32]) {
    let needed = graph.nodes() * width;
    assert!(
        x.len() == needed && out.len() == needed,
        "a row for every node"
    );
    let pattern = &graph.adjacency().pattern;
    let inverse = graph.inverse_degree();
    let sum = if transposed {
        Aggregate::new(&pattern.by_column, Coefficient::Neighbour(inverse))
    } else {
        Aggregate {
            row_scale: Some(inverse),
            ..Aggregate::new(&pattern.by_row, Coefficient::One)
        }
    };
    aggregate(&sum, x, width, out, true);
}

fn fast_aggregate(a: &Aggregate<'_, f32>, x: &[f32], width: usize, out: &mut [f32]) {
    if width == 0 || out.is_empty() {
        return;
    }
    let rows = a.rows;
    if packed::pays(a, x, width) {
        return packed::aggregate(a, x, width, out);
    }
    let parallel = cost(rows, width) >= PARALLEL;
    let owned = Uneven::new(out, &rows.piece_rows, width);
    for_each_cut(rows.pieces(), parallel, owned, |piece, out| {
        let range = rows.piece(piece);
        dispatch!(simd::level(), simd => rows_blocks(simd, a, x, width, range, out));
    });
}

/// Cuts rows into heads, and wide heads into blocks of up to four vectors, which stay in registers.
#[inline(always)]
fn rows_blocks<S: Simd>(
    simd: S,
    a: &Aggregate<'_, f32>,
    x: &[f32],
    width: usize,
    range: std::ops::Range<usize>,
    out: &mut [f32],
) {
    let head_width = width / a.heads;
    if a.heads > 1 && head_width == 8 && is_plain(a) {
        let mut column = 0;
        while column < width {
            let range = range.clone();
            match width - column {
                64.. => heads_block::<S, 8>(simd, a, x, width, column, range, out),
                _ => heads_block::<S, 1>(simd, a, x, width, column, range, out),
            }
            column += if width - column >= 64 { 64 } else { 8 };
        }
        return;
    }
    for head in 0..a.heads {
        let end = (head + 1) * head_width;
        let mut column = head * head_width;
        while column < end {
            let range = range.clone();
            let columns = column..end.min(column + 64);
            let vectors = columns.len().div_ceil(16);
            macro_rules! block {
                ($far:literal) => {
                    match vectors {
                        1 => rows_block::<S, 1, 4, $far>(
                            simd, a, x, width, head, columns, range, out,
                        ),
                        2 => rows_block::<S, 2, 2, $far>(
                            simd, a, x, width, head, columns, range, out,
                        ),
                        3 => rows_block::<S, 3, 1, $far>(
                            simd, a, x, width, head, columns, range, out,
                        ),
                        _ => rows_block::<S, 4, 1, $far>(
                            simd, a, x, width, head, columns, range, out,
                        ),
                    }
                };
            }
            if x.len() >= FAR {
                block!(true);
            } else {
                block!(false);
            }
            column += 64;
        }
    }
}

/// Neighbours added up in one run before the run's sum joins the total: a hub's row is summed as
/// well as a short one.
const RUN: usize = 256;
cuts!(PARALLEL, FAR, AHEAD, RUN);

impl Aggregate<'_, f32> {
    /// The coefficients of at most RUN slots, where they are or gathered.
    #[inline(always)]
    fn coefficients<'c>(
        &'c self,
        slots: std::ops::Range<usize>,
        head: usize,
        gathered: &'c mut [f32; RUN],
    ) -> &'c [f32] {
        const ONES: [f32; RUN] = [1.0; RUN];
        let len = slots.len();
        match self.coefficient {
            Coefficient::One => return &ONES[..len],
            Coefficient::Slot(c) if self.heads == 1 => return &c[slots],
            Coefficient::Slot(c) => {
                for (g, p) in gathered.iter_mut().zip(slots) {
                    *g = c[p * self.heads + head];
                }
            }
            Coefficient::Gather(c, other) => {
                for (g, &p) in gathered.iter_mut().zip(&other[slots]) {
                    *g = c[p as usize * self.heads + head];
                }
            }
            Coefficient::Neighbour(c) => {
                for (g, &j) in gathered.iter_mut().zip(&self.rows.neighbour[slots]) {
                    *g = c[j as usize];
                }
            }
        }
        &gathered[..len]
    }
}

/// A block of V vectors of every row, neighbours taken in turn by U sums: one sum alone would wait
/// for itself. F: rows come from far away.
#[inline(always)]
fn rows_block<S: Simd, const V: usize, const U: usize, const F: bool>(
    simd: S,
    a: &Aggregate<'_, f32>,
    x: &[f32],
    width: usize,
    head: usize,
    columns: std::ops::Range<usize>,
    range: std::ops::Range<usize>,
    out: &mut [f32],
) {
    let zero = f32x16::splat(simd, 0.0);
    let (column, lanes) = (columns.start, columns.len());
    let first = range.start;
    let at = |j: u32| j as usize * width + column;
    let mut gathered = [0.0; RUN];
    for i in range {
        let mut total = [zero; V];
        let slots = a.rows.range(i);
        let mut start = slots.start;
        while start < slots.end {
            let end = (start + RUN).min(slots.end);
            let neighbours = &a.rows.neighbour[start..end];
            let len = neighbours.len();
            let coefficients = a.coefficients(start..end, head, &mut gathered);
            // Random rows of a large matrix come from memory: each is asked for in time.
            let next = match a.rows.neighbour.get(start + AHEAD / V..) {
                Some(next) if F => &next[..next.len().min(len)],
                _ => &[],
            };
            let fetch = |k: usize| {
                if F && let Some(&j) = next.get(k) {
                    simd::prefetch(x, at(j), lanes);
                }
            };
            let mut sums = [[zero; V]; U];
            let (mut js, mut cs) = (neighbours.chunks_exact(U), coefficients.chunks_exact(U));
            for (k, (j, c)) in (&mut js).zip(&mut cs).enumerate() {
                for u in 0..U {
                    fetch(k * U + u);
                    let c = f32x16::splat(simd, c[u]);
                    add_row::<S, V>(simd, x, at(j[u]), c, &mut sums[u]);
                }
            }
            let rest = len - js.remainder().len();
            for (k, (&j, &c)) in js.remainder().iter().zip(cs.remainder()).enumerate() {
                fetch(rest + k);
                let c = f32x16::splat(simd, c);
                add_row::<S, V>(simd, x, at(j), c, &mut sums[0]);
            }
            for v in 0..V {
                let mut sum = sums[0][v];
                for other in &sums[1..] {
                    sum += other[v];
                }
                total[v] += sum;
            }
            start = end;
        }
        if let Some(own) = a.own {
            let c = f32x16::splat(simd, own);
            add_row::<S, V>(simd, x, at(i as u32), c, &mut total);
        }
        if let Some(scale) = a.row_scale {
            let scale = f32x16::splat(simd, scale[i]);
            for t in &mut total {
                *t *= scale;
            }
        }
        if let Some(bias) = a.bias {
            let one = f32x16::splat(simd, 1.0);
            add_row::<S, V>(simd, bias, column, one, &mut total);
        }
        let to = (i - first) * width + column;
        let (chunks, tail) = out[to..to + lanes].as_chunks_mut::<LANES>();
        for (v, chunk) in chunks.iter_mut().enumerate() {
            if a.add {
                (f32x16::from_slice(simd, chunk) + total[v]).store_slice(chunk);
            } else {
                total[v].store_slice(chunk);
            }
        }
        if !tail.is_empty() {
            let y = if a.add {
                simd::load_short(simd, tail) + total[V - 1]
            } else {
                total[V - 1]
            };
            simd::store_short(y, tail);
        }
    }
}

/// Whether there is nothing but coefficients by slot and perhaps a bias: what attention asks for.
fn is_plain(a: &Aggregate<'_, f32>) -> bool {
    let by_slot = matches!(
        a.coefficient,
        Coefficient::Slot(_) | Coefficient::Gather(..)
    );
    by_slot && a.own.is_none() && a.row_scale.is_none() && !a.add
}

/// V heads of eight features side by side, each with its own coefficient.
#[inline(always)]
fn heads_block<S: Simd, const V: usize>(
    simd: S,
    a: &Aggregate<'_, f32>,
    x: &[f32],
    width: usize,
    column: usize,
    range: std::ops::Range<usize>,
    out: &mut [f32],
) {
    let zero = f32x8::splat(simd, 0.0);
    let (heads, head) = (a.heads, column / 8);
    let first = range.start;
    for i in range {
        let mut total = [zero; V];
        let slots = a.rows.range(i);
        let mut start = slots.start;
        while start < slots.end {
            let end = (start + RUN).min(slots.end);
            let mut sum = [zero; V];
            for p in start..end {
                let at = match a.coefficient {
                    Coefficient::Gather(_, slots) => slots[p] as usize,
                    _ => p,
                };
                let (Coefficient::Slot(c) | Coefficient::Gather(c, _)) = a.coefficient else {
                    unreachable!("is_plain")
                };
                let c = &c[at * heads + head..][..V];
                let row = &x[a.rows.neighbour[p] as usize * width + column..][..8 * V];
                for v in 0..V {
                    let x = f32x8::from_slice(simd, &row[8 * v..8 * v + 8]);
                    sum[v] = x.fma(f32x8::splat(simd, c[v]), sum[v]);
                }
            }
            for v in 0..V {
                total[v] += sum[v];
            }
            start = end;
        }
        let out = &mut out[(i - first) * width + column..][..8 * V];
        for v in 0..V {
            let mut y = total[v];
            if let Some(bias) = a.bias {
                y += f32x8::from_slice(simd, &bias[column + 8 * v..][..8]);
            }
            y.store_slice(&mut out[8 * v..8 * v + 8]);
        }
    }
}

/// sum += c · x[at …]. Reads whole vectors: where the row is shorter, the lanes beyond it hold the
/// next row's numbers, which are never stored.
#[inline(always)]
fn add_row<S: Simd, const V: usize>(
    simd: S,
    x: &[f32],
    at: usize,
    c: f32x16<S>,
    sum: &mut [f32x16<S>; V],
) {
    // Two plain tests: with a pattern's guard the compiler made four of them (an epoch of GCN-16 took 15 %
    // longer).
    let end;
    let row = if let Some(row) = x.get(at..)
        && let Some(row) = row.get(..LANES * V)
    {
        row
    } else {
        end = last_row::<V>(x.get(at..).unwrap_or_default());
        end.as_flattened()
    };
    for v in 0..V {
        sum[v] = f32x16::from_slice(simd, &row[LANES * v..LANES * v + LANES]).fma(c, sum[v]);
    }
}

/// A row at the end of an array, with zeros after it.
#[cold]
#[inline(never)]
fn last_row<const V: usize>(row: &[f32]) -> [[f32; LANES]; V] {
    let mut end = [[0.0; LANES]; V];
    for (to, &from) in end.as_flattened_mut().iter_mut().zip(row) {
        *to = from;
    }
    end
}
