//! The emulated multiply-add in WebAssembly's vectors, four lanes to one of them.
//!
//! What `fused.rs` says, with operations chosen by hand: of the loop there the compiler makes conversions to
//! f32 one by one (24.6 ns for 16 lanes in a product of small matrices in Node 20, 14.6 with this). Inlined it
//! would take 9.4, and the engine much longer to compile: it was given up after ten minutes.

use core::arch::wasm32::*;

use fearless_simd::{Simd, f32x4, f32x8, f32x16, prelude::*};

/// A vector as WebAssembly's vectors.
pub trait Quarters<S: Simd, const N: usize>: Sized {
    fn quarters(self) -> [v128; N];
    fn of(simd: S, quarters: [v128; N]) -> Self;
}

impl<S: Simd> Quarters<S, 2> for f32x8<S> {
    #[inline(always)]
    fn quarters(self) -> [v128; 2] {
        let (low, high) = self.simd.split_f32x8(self);
        [low.into(), high.into()]
    }

    #[inline(always)]
    fn of(simd: S, quarters: [v128; 2]) -> Self {
        let [low, high]: [f32x4<S>; 2] = quarters.map(|four| four.simd_into(simd));
        simd.combine_f32x4(low, high)
    }
}

impl<S: Simd> Quarters<S, 4> for f32x16<S> {
    #[inline(always)]
    fn quarters(self) -> [v128; 4] {
        let (low, high) = self.simd.split_f32x16(self);
        let ([a, b], [c, d]) = (low.quarters(), high.quarters());
        [a, b, c, d]
    }

    #[inline(always)]
    fn of(simd: S, [a, b, c, d]: [v128; 4]) -> Self {
        let low = f32x8::of(simd, [a, b]);
        simd.combine_f32x8(low, f32x8::of(simd, [c, d]))
    }
}

/// c = a·b + c.
#[inline(never)]
pub fn emulated<const N: usize>(a: [v128; N], b: [v128; N], c: &mut [v128; N]) {
    let mut sums = *c;
    let mut half = i32x4_splat(0);
    let mut least = i32x4_splat(i32::MAX);
    for i in 0..N {
        let [s, t] = products(a[i], b[i]);
        let (s, t) = (f64x2_add(s, low(c[i])), f64x2_add(t, high(c[i])));
        sums[i] = rounded(s, t);
        // The last 29 bits of each s are 1000…0.
        let last = i32x4_shl(i32x4_shuffle::<0, 2, 4, 6>(s, t), 3);
        half = v128_or(half, i32x4_eq(last, i32x4_splat(i32::MIN)));
        // Twice the size, without the sign, from the least number of i32 on; 0 becomes the largest.
        let size = i32x4_add(i32x4_shl(sums[i], 1), i32x4_splat(i32::MAX));
        least = i32x4_min(least, size);
    }
    let normal = i32::MIN + 2 * f32::MIN_POSITIVE.to_bits() as i32;
    let subnormal = i32x4_lt(least, i32x4_splat(normal));
    if v128_any_true(v128_or(half, subnormal)) {
        for i in 0..N {
            sums[i] = to_odd_and_back(a[i], b[i], c[i]);
        }
    }
    *c = sums;
}

/// Four sums, through ones that are rounded to odd.
#[cold]
#[inline(never)]
fn to_odd_and_back(a: v128, b: v128, c: v128) -> v128 {
    let [p, q] = products(a, b);
    rounded(to_odd(p, low(c)), to_odd(q, high(c)))
}

#[inline(always)]
fn to_odd(p: v128, c: v128) -> v128 {
    let s = f64x2_add(p, c);
    let seen = f64x2_sub(s, p);
    let e = f64x2_add(f64x2_sub(p, f64x2_sub(s, seen)), f64x2_sub(c, seen));
    // Bits count upwards away from 0: −1 where e and s have two signs, else 1.
    let towards = i64x2_shr(v128_xor(e, s), 63);
    let step = v128_or(towards, i64x2_splat(1));
    // Not where e is NaN; where s is 0, so is e.
    let inexact = f64x2_gt(f64x2_abs(e), f64x2_splat(0.0));
    let even = i64x2_sub(v128_and(s, i64x2_splat(1)), i64x2_splat(1));
    i64x2_add(s, v128_and(step, v128_and(inexact, even)))
}

/// The exact products of four numbers.
#[inline(always)]
fn products(a: v128, b: v128) -> [v128; 2] {
    [f64x2_mul(low(a), low(b)), f64x2_mul(high(a), high(b))]
}

/// The first two of four numbers as f64.
#[inline(always)]
pub fn low(x: v128) -> v128 {
    f64x2_promote_low_f32x4(x)
}

/// The last two.
#[inline(always)]
pub fn high(x: v128) -> v128 {
    low(i64x2_shuffle::<1, 1>(x, x))
}

/// Four numbers rounded to f32. Written as a shuffle of both halves the compiler would round one by one.
#[inline(always)]
pub fn rounded(s: v128, t: v128) -> v128 {
    let last = f32x4_demote_f64x2_zero(t);
    v128_or(
        f32x4_demote_f64x2_zero(s),
        i32x4_shuffle::<2, 3, 0, 1>(last, last),
    )
}
