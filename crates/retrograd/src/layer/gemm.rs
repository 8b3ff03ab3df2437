//! The one matrix product: C = A·B, f32, SIMD, spread over threads.
//!
//! B is packed once into panels of 32 columns, so that the inner loop reads it in order; A is read
//! where it lies. A tile of 12 × 32 elements of C stays in registers (3 × 32 where vectors are
//! shorter than 512 bits) while the sum runs over k. Every element of C is one chain of
//! multiply-adds in the order of k, whatever the tile, the piece or the thread: the number of
//! threads cannot change a bit. Chains are cut after [`RUN`] terms.
//!
//! Written here rather than taken from a crate: measured beside `gemm` 0.19 on the products of a
//! 64-256-256-10 network at batch 256, that spent 45 % of its time packing and allocated at every
//! call; a training step must not.

mod segments;

pub(crate) use segments::gemm_segments;

use crate::cuts::cuts;
use crate::parallel;
use crate::simd::{self, Fused, LANES, Simd, dispatch, f32x16, prelude::*};

/// A matrix in a slice: row r, column c at r·row + c·column.
#[derive(Clone, Copy, Debug)]
pub struct Stride {
    /// Distance between rows.
    pub row: usize,
    /// Distance between columns.
    pub column: usize,
}

impl Stride {
    /// Rows of that many columns, one after the other.
    pub fn rows(columns: usize) -> Self {
        Stride {
            row: columns,
            column: 1,
        }
    }

    /// The transpose of rows of that many columns.
    pub fn transposed(columns: usize) -> Self {
        Stride {
            row: 1,
            column: columns,
        }
    }

    /// One past the last element of an m × n matrix.
    fn end(self, m: usize, n: usize) -> usize {
        if m == 0 || n == 0 {
            return 0;
        }
        (m - 1) * self.row + (n - 1) * self.column + 1
    }
}

/// Columns of a panel: two vectors.
pub(crate) const PANEL: usize = 2 * LANES;
/// Rows of a tile where a vector is one register of 32, and where it is several: six rows of half a panel
/// are twelve of AVX2's sixteen registers.
pub(crate) const TILE: usize = 12;
const NARROW_TILE: usize = 6;
/// Terms that one chain of f32 multiply-adds sums; longer sums are cut.
pub const RUN: usize = 4096;
/// Multiply-adds from which rows are spread over threads: some 5 µs, against one or two to hand
/// work to a thread that is awake.
const PARALLEL: usize = 1 << 18;
/// Multiply-adds per piece of rows, some 3 µs: threads wait for each other half a piece on average.
const PIECE: usize = 1 << 17;
cuts!(PANEL, TILE, NARROW_TILE, RUN, PARALLEL, PIECE);

/// What the product is added to.
#[derive(Clone, Copy, Debug)]
pub enum Onto<'a> {
    /// Nothing: C is overwritten.
    Zero,
    /// What C holds.
    Itself,
    /// This row, in every row of C: a bias.
    Row(&'a [f32]),
}

/// C (m × n, rows without gaps) = what it goes onto + A (m × k) · B (k × n).
///
/// # Panics
/// Where a slice is shorter than its matrix.
pub fn gemm(
    [m, n, k]: [usize; 3],
    a: (&[f32], Stride),
    b: (&[f32], Stride),
    c: &mut [f32],
    onto: Onto<'_>,
) {
    let ((a, stride_a), (b, stride_b)) = (a, b);
    assert!(a.len() >= stride_a.end(m, k), "A is shorter than {m} × {k}");
    assert!(b.len() >= stride_b.end(k, n), "B is shorter than {k} × {n}");
    assert!(c.len() == m * n, "C is not {m} × {n}");
    if let Onto::Row(row) = onto {
        assert!(row.len() == n, "the row is not {n} long");
    }
    if m == 0 || n == 0 {
        return;
    }
    if k == 0 {
        match onto {
            Onto::Zero => c.fill(0.0),
            Onto::Itself => {}
            Onto::Row(row) => c.chunks_exact_mut(n).for_each(|c| c.copy_from_slice(row)),
        }
        return;
    }
    let (piece, parallel) = piece(m, n, k);
    for first in (0..k).step_by(RUN) {
        let run = RUN.min(k - first);
        let onto = if first == 0 { onto } else { Onto::Itself };
        let b = &b[first * stride_b.row..];
        let a = &a[first * stride_a.column..];
        with_packed(b, stride_b, [run, n], parallel, |pack| {
            parallel::for_each_chunk(c, piece * n, parallel, |i, c| {
                let a = &a[i * piece * stride_a.row..];
                multiply((a, stride_a), pack, c, onto, run, n);
            });
        });
    }
}

/// Rows of C in a piece, a multiple of the tile, and the pieces as even as that allows; and whether they go to
/// threads.
fn piece(m: usize, n: usize, k: usize) -> (usize, bool) {
    let pieces = (m * n * k).div_ceil(PIECE).min(m.div_ceil(TILE));
    let piece = m.div_ceil(pieces).next_multiple_of(TILE);
    (piece, m * n * k > PARALLEL)
}

/// Runs `work` with B (k × n) packed.
fn with_packed(
    b: &[f32],
    stride: Stride,
    [k, n]: [usize; 2],
    parallel: bool,
    work: impl FnOnce(&[f32]),
) {
    parallel::with_scratch(n.div_ceil(PANEL) * PANEL * k, |pack| {
        parallel::for_each_chunk(pack, PANEL * k, parallel, |p, panel| {
            pack_panel(b, stride, p * PANEL, n, k, panel);
        });
        work(pack);
    });
}

/// C = what it goes onto + A · B on the calling thread, with B (k × n) packed and as many rows as
/// C has. One chain per element: k is at most [`RUN`].
pub(crate) fn multiply(
    (a, stride): (&[f32], Stride),
    pack: &[f32],
    c: &mut [f32],
    onto: Onto<'_>,
    k: usize,
    n: usize,
) {
    dispatch!(simd::level(), simd => rows(simd, &mut AtOnce, a, stride, pack, c, onto, k, n));
}

/// How a tile of C is made.
trait Tiles {
    /// `R` rows by one panel of C.
    fn tile<S: Simd, const R: usize>(
        &mut self,
        simd: S,
        a: &[f32],
        stride: Stride,
        panel: &[f32],
        c: &mut [f32],
        onto: Onto<'_>,
        n: usize,
        columns: usize,
    );
}

/// One chain over all of k.
struct AtOnce;

impl Tiles for AtOnce {
    #[inline(always)]
    fn tile<S: Simd, const R: usize>(
        &mut self,
        simd: S,
        a: &[f32],
        stride: Stride,
        panel: &[f32],
        c: &mut [f32],
        onto: Onto<'_>,
        n: usize,
        columns: usize,
    ) {
        tile::<S, R>(simd, a, stride, panel, c, onto, n, columns);
    }
}

/// Columns `first`… of B, k-major, filled up with zeros.
fn pack_panel(b: &[f32], stride: Stride, first: usize, n: usize, k: usize, panel: &mut [f32]) {
    let columns = PANEL.min(n - first);
    if columns < PANEL {
        panel.fill(0.0);
    }
    if stride.column == 1 {
        for (row, to) in panel.chunks_exact_mut(PANEL).enumerate() {
            let from = &b[row * stride.row + first..][..columns];
            to[..columns].copy_from_slice(from);
        }
        return;
    }
    if stride.row == 1 {
        // A column of B lies in order: transpose blocks of 16 × 16.
        let mut block = [[0.0_f32; LANES]; LANES];
        for top in (0..k).step_by(LANES) {
            let high = LANES.min(k - top);
            for left in (0..columns).step_by(LANES) {
                let wide = LANES.min(columns - left);
                for (c, lane) in block[..wide].iter_mut().enumerate() {
                    let from = &b[(first + left + c) * stride.column + top..][..high];
                    lane[..high].copy_from_slice(from);
                }
                for r in 0..high {
                    let to = &mut panel[(top + r) * PANEL + left..][..wide];
                    for (to, lane) in to.iter_mut().zip(&block) {
                        *to = lane[r];
                    }
                }
            }
        }
        return;
    }
    for (row, to) in panel.chunks_exact_mut(PANEL).enumerate() {
        for (c, to) in to[..columns].iter_mut().enumerate() {
            *to = b[row * stride.row + (first + c) * stride.column];
        }
    }
}

/// A piece of rows of C, panel by panel.
#[inline(always)]
fn rows<S: Simd>(
    simd: S,
    tiles: &mut impl Tiles,
    a: &[f32],
    stride: Stride,
    pack: &[f32],
    c: &mut [f32],
    onto: Onto<'_>,
    k: usize,
    n: usize,
) {
    let m = c.len() / n;
    for (p, panel) in pack.chunks_exact(PANEL * k).enumerate() {
        let columns = PANEL.min(n - p * PANEL);
        let onto = match onto {
            Onto::Row(row) => Onto::Row(&row[p * PANEL..][..columns]),
            other => other,
        };
        let mut row = 0;
        while row < m {
            let left = m - row;
            let a = &a[row * stride.row..];
            let c = &mut c[row * n + p * PANEL..];
            macro_rules! tile {
                ($rows:expr) => {{
                    tiles.tile::<S, { $rows }>(simd, a, stride, panel, c, onto, n, columns);
                    $rows
                }};
            }
            // `S::f32s::LEN` is known at compile time.
            row += match (S::f32s::LEN >= LANES, left) {
                (true, TILE..) => tile!(TILE),
                (true, 8..) => tile!(8),
                (true, 4..) => tile!(4),
                (_, NARROW_TILE..) => tile!(NARROW_TILE),
                (_, 3..) => tile!(3),
                _ => tile!(1),
            };
        }
    }
}

/// `R` rows by one panel of C.
#[inline(always)]
fn tile<S: Simd, const R: usize>(
    simd: S,
    a: &[f32],
    stride: Stride,
    panel: &[f32],
    c: &mut [f32],
    onto: Onto<'_>,
    n: usize,
    columns: usize,
) {
    if columns <= LANES {
        tile_of::<S, R, 0, 1>(simd, a, stride, panel, c, onto, n, columns);
    } else if S::f32s::LEN >= LANES {
        tile_of::<S, R, 0, 2>(simd, a, stride, panel, c, onto, n, columns);
    } else {
        // The halves of a panel one after the other: together their sums don't fit the registers.
        tile_of::<S, R, 0, 1>(simd, a, stride, panel, c, onto, n, LANES);
        let onto = match onto {
            Onto::Row(row) => Onto::Row(&row[LANES..]),
            other => other,
        };
        let c = &mut c[LANES..];
        tile_of::<S, R, LANES, 1>(simd, a, stride, panel, c, onto, n, columns - LANES);
    }
}

/// `R` rows by `V` vectors of C, which begin at column `FIRST` of the panel.
#[inline(always)]
fn tile_of<S: Simd, const R: usize, const FIRST: usize, const V: usize>(
    simd: S,
    a: &[f32],
    stride: Stride,
    panel: &[f32],
    c: &mut [f32],
    onto: Onto<'_>,
    n: usize,
    columns: usize,
) {
    let sum = chains::<S, R, FIRST, V>(simd, a, stride, panel, columns);
    // One simple loop each, which the compiler unrolls: `sum` then stays in registers.
    match onto {
        Onto::Zero => {
            for (r, sum) in sum.iter().enumerate() {
                let row = &mut c[r * n..][..columns];
                for (to, sum) in row.chunks_mut(LANES).zip(sum) {
                    simd::store(*sum, to);
                }
            }
        }
        Onto::Itself => {
            for (r, sum) in sum.iter().enumerate() {
                let row = &mut c[r * n..][..columns];
                for (to, sum) in row.chunks_mut(LANES).zip(sum) {
                    simd::store(*sum + simd::load(simd, to), to);
                }
            }
        }
        Onto::Row(bias) => {
            for (r, sum) in sum.iter().enumerate() {
                let row = &mut c[r * n..][..columns];
                for ((to, bias), sum) in row.chunks_mut(LANES).zip(bias.chunks(LANES)).zip(sum) {
                    simd::store(*sum + simd::load(simd, bias), to);
                }
            }
        }
    }
}

/// The chains of `R` rows by `V` vectors of C, which begin at column `FIRST` of the panel; only the first columns
/// are wanted.
#[inline(always)]
#[cfg_attr(
    not(all(target_arch = "wasm32", target_feature = "simd128")),
    allow(unused_variables, reason = "whole vectors are as fast")
)]
fn chains<S: Simd, const R: usize, const FIRST: usize, const V: usize>(
    simd: S,
    a: &[f32],
    stride: Stride,
    panel: &[f32],
    columns: usize,
) -> [[f32x16<S>; V]; R] {
    let k = panel.len() / PANEL;
    #[cfg(all(target_arch = "wasm32", target_feature = "simd128"))]
    if !cfg!(unfused) {
        // A vector of 16 is several here, so that `V` is 1.
        let factors = simd::Factors {
            a,
            stride: [stride.row, stride.column],
            b: &panel[FIRST..],
            step: PANEL,
            terms: k,
        };
        let sums = simd::chains::<S, R>(simd, factors, columns);
        return simd::array(|r| [sums[r]; V]);
    }
    let mut sum = [[f32x16::splat(simd, 0.0); V]; R];
    // Every index below is at most the last one: one check instead of one per element.
    let a = &a[..(R - 1) * stride.row + (k - 1) * stride.column + 1];
    for (kk, b) in panel.chunks_exact(PANEL).enumerate() {
        let mut v = [f32x16::splat(simd, 0.0); V];
        for (v, b) in v.iter_mut().zip(b[FIRST..].chunks_exact(LANES)) {
            *v = f32x16::from_slice(simd, b);
        }
        let at = kk * stride.column;
        for r in 0..R {
            let x = f32x16::splat(simd, a[at + r * stride.row]);
            for i in 0..V {
                sum[r][i] = x.fma(v[i], sum[r][i]);
            }
        }
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Key;

    fn values(seed: u64, len: usize) -> Vec<f32> {
        let mut stream = Key::new(seed).purpose("gemm").stream();
        (0..len).map(|_| stream.range(-1.0, 1.0) as f32).collect()
    }

    /// Every shape up to a few tiles, both orders of A and B: within the worst case of a chain of
    /// k multiply-adds, γ = k·u / (1 − k·u), times the sum of magnitudes.
    #[test]
    fn products_of_all_shapes_are_within_the_worst_case_bound() {
        let u = 2.0_f64.powi(-24);
        for (m, n, k) in [
            (1, 1, 1),
            (1, 32, 7),
            (3, 5, 2),
            (12, 32, 16),
            (13, 33, 17),
            (25, 70, 31),
            (40, 10, 300),
            (7, 47, 64),
            (2, 100, 5000),
            (100, 96, 40),
        ] {
            let (a, b, start) = (values(1, m * k), values(2, k * n), values(3, m * n));
            for (ta, tb) in [(false, false), (true, false), (false, true), (true, true)] {
                let sa = if ta {
                    Stride::transposed(m)
                } else {
                    Stride::rows(k)
                };
                let sb = if tb {
                    Stride::transposed(k)
                } else {
                    Stride::rows(n)
                };
                for onto in [Onto::Zero, Onto::Itself, Onto::Row(&start[..n])] {
                    let mut c = start.clone();
                    gemm([m, n, k], (&a, sa), (&b, sb), &mut c, onto);
                    for r in 0..m {
                        for col in 0..n {
                            let first = match onto {
                                Onto::Zero => 0.0,
                                Onto::Itself => f64::from(start[r * n + col]),
                                Onto::Row(row) => f64::from(row[col]),
                            };
                            let (mut exact, mut size) = (first, first.abs());
                            for i in 0..k {
                                let product = f64::from(a[r * sa.row + i * sa.column])
                                    * f64::from(b[i * sb.row + col * sb.column]);
                                exact += product;
                                size += product.abs();
                            }
                            let bound = (k + 2) as f64 * u * size;
                            let error = (f64::from(c[r * n + col]) - exact).abs();
                            assert!(error <= bound, "{m}×{n}×{k} {ta} {tb}: {error} > {bound}");
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn products_have_the_same_bits_on_1_2_and_7_threads() {
        let (m, n, k) = (301, 130, 260);
        let (a, b) = (values(1, m * k), values(2, k * n));
        let run = |threads| {
            parallel::with_threads(threads, || {
                let mut c = vec![0.0; m * n];
                let (sa, sb) = (Stride::rows(k), Stride::rows(n));
                gemm([m, n, k], (&a, sa), (&b, sb), &mut c, Onto::Zero);
                c
            })
        };
        let one = run(1);
        assert_eq!(one, run(2));
        assert_eq!(one, run(7));
    }
}
