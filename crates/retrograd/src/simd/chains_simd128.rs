//! Chains of emulated multiply-adds in WebAssembly's vectors: the way of matrix products and polynomials to what
//! `fused.rs` computes one by one.
//!
//! Here every factor is made an f64 once for a few sums, nothing is called, and whether a sum was suspicious is asked after [`BLOCK`]
//! terms and not after each; where one was, those terms and the rest of the chains are computed again with the
//! multiply-add of `fused_simd128.rs`. What is suspicious here are the halves that it finds, too, and every
//! sum that is no larger than the smallest normal f32 before it is rounded: some more than there, and all
//! of them are rounded rightly there.

use core::arch::wasm32::*;

use fearless_simd::{Simd, f32x16, prelude::*};

use super::fused_simd128::{Quarters, emulated, high, low, rounded};

/// Rows whose sums stay in registers beside what makes them.
const ROWS: usize = 3;
/// Terms after which is asked whether a sum was suspicious.
const BLOCK: usize = 16;
/// Columns of a vector.
const LANES: usize = 16;

/// The factors of chains: sum (r, c) is Σ a(r, k)·b(k, c) over k, in this order.
#[derive(Clone, Copy)]
pub struct Factors<'a> {
    pub a: &'a [f32],
    /// Between two rows of `a`, and between two of its columns.
    pub stride: [usize; 2],
    /// Rows of 16 columns.
    pub b: &'a [f32],
    /// Between two rows of `b`.
    pub step: usize,
    pub terms: usize,
}

impl<'a> Factors<'a> {
    /// Those of the rows from `row` on.
    #[inline(always)]
    fn from(self, row: usize) -> Self {
        let a = &self.a[row * self.stride[0]..];
        Factors { a, ..self }
    }

    /// a(row, k), four times.
    #[inline(always)]
    fn a(&self, row: usize, k: usize) -> v128 {
        f32x4_splat(self.a[row * self.stride[0] + k * self.stride[1]])
    }

    /// Four columns of row `k` of b.
    #[inline(always)]
    fn b(&self, k: usize, column: usize) -> v128 {
        let four = &self.b[k * self.step + column..][..4];
        f32x4(four[0], four[1], four[2], four[3])
    }
}

/// The chains of `R` rows by the first columns of a vector; what the others are is not said.
#[inline(always)]
pub fn chains<S: Simd, const R: usize>(
    simd: S,
    factors: Factors<'_>,
    columns: usize,
) -> [f32x16<S>; R] {
    let mut all = [[0.0_f32; LANES]; R];
    let (tiles, rest) = all.as_chunks_mut::<ROWS>();
    for (i, sums) in tiles.iter_mut().enumerate() {
        some(factors.from(i * ROWS), columns, sums);
    }
    let done = R - rest.len();
    for (i, sums) in rest.iter_mut().enumerate() {
        some(factors.from(done + i), columns, std::array::from_mut(sums));
    }
    let mut sums = [f32x16::splat(simd, 0.0); R];
    for (sum, lanes) in sums.iter_mut().zip(&all) {
        *sum = f32x16::from_slice(simd, lanes);
    }
    sums
}

/// A few rows, four columns after the other.
#[inline(never)]
fn some<const R: usize>(factors: Factors<'_>, columns: usize, sums: &mut [[f32; LANES]; R]) {
    for first in (0..columns.min(LANES)).step_by(4) {
        let four = four::<R>(factors, first);
        for (sums, four) in sums.iter_mut().zip(four) {
            let four = [
                f32x4_extract_lane::<0>(four),
                f32x4_extract_lane::<1>(four),
                f32x4_extract_lane::<2>(four),
                f32x4_extract_lane::<3>(four),
            ];
            sums[first..first + 4].copy_from_slice(&four);
        }
    }
}

/// The chains of a few rows by four columns.
#[inline(always)]
fn four<const R: usize>(factors: Factors<'_>, column: usize) -> [v128; R] {
    let mut sums = [f32x4_splat(0.0); R];
    for first in (0..factors.terms).step_by(BLOCK) {
        let before = sums;
        let mut suspicion = Suspicion::new();
        for k in first..factors.terms.min(first + BLOCK) {
            let b = factors.b(k, column);
            let b = [low(b), high(b)];
            for r in 0..R {
                let a = low(factors.a(r, k));
                let s = f64x2_add(f64x2_mul(a, b[0]), low(sums[r]));
                let t = f64x2_add(f64x2_mul(a, b[1]), high(sums[r]));
                sums[r] = rounded(s, t);
                suspicion.look(s, t);
            }
        }
        if suspicion.is_any() {
            return one_by_one(factors, column, first, before);
        }
    }
    sums
}

/// The chains from term `first` on, every term with its own multiply-add.
#[cold]
#[inline(never)]
fn one_by_one<const R: usize>(
    factors: Factors<'_>,
    column: usize,
    first: usize,
    mut sums: [v128; R],
) -> [v128; R] {
    for k in first..factors.terms {
        let a: [v128; R] = std::array::from_fn(|r| factors.a(r, k));
        emulated(a, [factors.b(k, column); R], &mut sums);
    }
    sums
}

/// c₀ + c₁·x + c₂·x² + …, by Horner's rule.
#[inline(always)]
pub fn polynomial<S: Simd, const N: usize>(simd: S, x: f32x16<S>, c: &[f32; N]) -> f32x16<S> {
    f32x16::of(simd, quarters_of_polynomial(x.quarters(), c))
}

#[inline(never)]
fn quarters_of_polynomial<const N: usize>(x: [v128; 4], c: &[f32; N]) -> [v128; 4] {
    x.map(|x| {
        let both = [low(x), high(x)];
        let mut suspicion = Suspicion::new();
        let mut sum = f32x4_splat(c[N - 1]);
        for &c in c[..N - 1].iter().rev() {
            let c = f64x2_splat(f64::from(c));
            let s = f64x2_add(f64x2_mul(low(sum), both[0]), c);
            let t = f64x2_add(f64x2_mul(high(sum), both[1]), c);
            sum = rounded(s, t);
            suspicion.look(s, t);
        }
        if suspicion.is_any() {
            return polynomial_one_by_one(x, c);
        }
        sum
    })
}

#[cold]
#[inline(never)]
fn polynomial_one_by_one<const N: usize>(x: v128, c: &[f32; N]) -> v128 {
    let mut sum = f32x4_splat(c[N - 1]);
    for &c in c[..N - 1].iter().rev() {
        let mut next = [f32x4_splat(c)];
        emulated([sum], [x], &mut next);
        [sum] = next;
    }
    sum
}

/// What shows that a sum may be rounded wrongly.
struct Suspicion {
    /// The least of the last digits, and of the sizes.
    last: v128,
    size: v128,
}

impl Suspicion {
    #[inline(always)]
    fn new() -> Self {
        let most = i32x4_splat(i32::MAX);
        Suspicion {
            last: most,
            size: most,
        }
    }

    /// Looks at four sums before they are rounded.
    #[inline(always)]
    fn look(&mut self, s: v128, t: v128) {
        // The last 29 bits of a half are 1000…0: shifted, the least number of i32.
        let last = i32x4_shl(i32x4_shuffle::<0, 2, 4, 6>(s, t), 3);
        self.last = i32x4_min(self.last, last);
        // Twice the size, without the sign, from the least number of i32 on; 0 becomes the largest.
        let size = i32x4_shl(i32x4_shuffle::<1, 3, 5, 7>(s, t), 1);
        self.size = i32x4_min(self.size, i32x4_add(size, i32x4_splat(i32::MAX)));
    }

    #[inline(always)]
    fn is_any(&self) -> bool {
        // The upper half of the smallest normal f32 as an f64; the numbers above it have a larger one.
        let smallest = (f64::from(f32::MIN_POSITIVE).to_bits() >> 32) as i32;
        let half = i32x4_eq(self.last, i32x4_splat(i32::MIN));
        let small = i32x4_lt(self.size, i32x4_splat(i32::MIN + 2 * smallest));
        v128_any_true(v128_or(half, small))
    }
}
