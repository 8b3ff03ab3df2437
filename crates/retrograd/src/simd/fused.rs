//! The fused multiply-add a·b + c, rounded once, on every instruction set.
//!
//! AVX2, AVX-512 and NEON have it. Elsewhere it is computed in f64. The product p of two f32 has 48
//! digits and is exact there; s = p + c is rounded to 53 digits, and then to f32. Rounding twice differs
//! from rounding once only where s lies exactly half way between two f32, which the exact sum then
//! doesn't: for a normal result where the last 29 bits of s are 1000…0. (Where c or p is too small to be
//! seen in s it still decides on which side of the half it lies.) A subnormal f32 has fewer digits, so that
//! the half is elsewhere; those are taken for suspicious altogether, the smallest normal one too, to which
//! they may be rounded. One that is rounded to 0 is right: s is 2⁻¹⁵⁰ at most, where c is 0 or nearly −p, and
//! then s is exact. For what is suspicious s is rounded to odd instead: with the error e of
//! the sum (Knuth's TwoSum, exact), where e ≠ 0 and the last digit of s is even, s moves by one digit
//! towards e. An odd s is no half and no f32, and lies on the same side of each as the exact sum: rounding
//! it gives what rounding the exact sum gives (Boldo and Melquiond, "Emulation of FMA and correctly
//! rounded sums", 2008; 53 ≥ 24 + 2). An infinite or NaN s is what it should be: f64 overflows nowhere
//! here, the last step does, rounding as it must.

use fearless_simd::{Simd, f32x8, f32x16, prelude::*};

/// a·b + c.
pub trait Fused: Sized {
    /// This times `b` plus `c`, rounded once.
    fn fma(self, b: Self, c: Self) -> Self;
}

macro_rules! impl_fused {
    ($vector:ident, $lanes:literal) => {
        impl<S: Simd> Fused for $vector<S> {
            #[inline(always)]
            #[allow(clippy::disallowed_methods, reason = "where it is one instruction")]
            fn fma(self, b: Self, c: Self) -> Self {
                if fuses(self.simd) {
                    return self.mul_add_precise(b, c);
                }
                // What exactness costs is measured by doing without it (tests/machines/build).
                if cfg!(unfused) {
                    return self * b + c;
                }
                let simd = self.simd;
                #[cfg(all(target_arch = "wasm32", target_feature = "simd128"))]
                if let fearless_simd::Level::WasmSimd128(_) = simd.level() {
                    use super::fused_simd128::{Quarters, emulated};
                    let mut sums = c.quarters();
                    emulated(self.quarters(), b.quarters(), &mut sums);
                    return $vector::of(simd, sums);
                }
                let mut sum: [f32; $lanes] = c.into();
                emulated(&self.into(), &b.into(), &mut sum);
                $vector::from_slice(simd, &sum)
            }
        }
    };
}
impl_fused!(f32x16, 16);
impl_fused!(f32x8, 8);

/// Whether the instruction set has it; known when a kernel is compiled.
#[inline(always)]
fn fuses<S: Simd>(simd: S) -> bool {
    match simd.level() {
        #[cfg(target_arch = "x86_64")]
        fearless_simd::Level::Avx512(_) | fearless_simd::Level::Avx2(_) => true,
        #[cfg(target_arch = "aarch64")]
        fearless_simd::Level::Neon(_) => true,
        _ => false,
    }
}

/// c = a·b + c. Not inlined: it is long, and kernels are full of it.
#[inline(never)]
fn emulated<const N: usize>(a: &[f32; N], b: &[f32; N], c: &mut [f32; N]) {
    let mut sums = [0.0_f32; N];
    if in_f64(a, b, c, &mut sums) {
        to_odd_and_back(a, b, c, &mut sums);
    }
    *c = sums;
}

/// The sums, rounded twice; whether one of them is suspicious. One loop, of which the compiler makes vectors.
#[cfg(not(all(target_arch = "wasm32", not(target_feature = "simd128"))))]
#[inline(always)]
fn in_f64<const N: usize>(a: &[f32; N], b: &[f32; N], c: &[f32; N], sums: &mut [f32; N]) -> bool {
    let mut suspicious = false;
    for i in 0..N {
        let s = f64::from(a[i]) * f64::from(b[i]) + f64::from(c[i]);
        let sum = s as f32;
        let half = s.to_bits() & LAST == HALF;
        let size = sum.to_bits() & (u32::MAX >> 1);
        let subnormal = size.wrapping_sub(1) < f32::MIN_POSITIVE.to_bits();
        suspicious |= half | subnormal;
        sums[i] = sum;
    }
    suspicious
}

/// The same for WebAssembly without vectors, where 64-bit tests in a loop of their own take two thirds of
/// the time (a product of small matrices in Node 20: 27 ns instead of 39 for 16 lanes).
#[cfg(all(target_arch = "wasm32", not(target_feature = "simd128")))]
#[inline(always)]
fn in_f64<const N: usize>(a: &[f32; N], b: &[f32; N], c: &[f32; N], sums: &mut [f32; N]) -> bool {
    let s: [f64; N] = std::array::from_fn(|i| f64::from(a[i]) * f64::from(b[i]) + f64::from(c[i]));
    for i in 0..N {
        sums[i] = s[i] as f32;
    }
    let least = f64::from(f32::MIN_POSITIVE).to_bits() << 1;
    let mut suspicious = 0;
    for s in s {
        let bits = s.to_bits();
        let half = bits & LAST == HALF;
        // Twice the number's size, without its sign: 0 becomes the largest.
        let subnormal = (bits << 1).wrapping_sub(1) < least;
        suspicious |= u64::from(half) | u64::from(subnormal);
    }
    suspicious != 0
}

/// The digits of an f64 that a normal f32 doesn't have, and what they are half way between two.
const LAST: u64 = 0x1fff_ffff;
const HALF: u64 = 0x1000_0000;

/// The sums, through one that is rounded to odd. Without a branch, so that it becomes vectors: where inputs
/// have few digits (pixels, bits), suspicious sums that turn out to be exact are frequent.
#[cold]
#[inline(never)]
fn to_odd_and_back<const N: usize>(a: &[f32; N], b: &[f32; N], c: &[f32; N], sums: &mut [f32; N]) {
    for i in 0..N {
        let (p, c) = (f64::from(a[i]) * f64::from(b[i]), f64::from(c[i]));
        let s = p + c;
        let seen = s - p;
        let e = (p - (s - seen)) + (c - seen);
        let bits = s.to_bits();
        let even = bits & 1 ^ 1;
        // Bits count upwards away from 0. An e that is NaN is neither, nor is an s of 0, which is exact.
        let away = (e > 0.0) & (s > 0.0) | (e < 0.0) & (s < 0.0);
        let towards = (e > 0.0) & (s < 0.0) | (e < 0.0) & (s > 0.0);
        let odd = bits + (u64::from(away) & even) - (u64::from(towards) & even);
        sums[i] = f64::from_bits(odd) as f32;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::{Key, Stream};
    use crate::simd::{InstructionSet, dispatch, level, on};

    /// A number as a multiple of 2⁻²⁹⁸, which every f32 and every product of two is, in the two's
    /// complement of 640 bits: exact.
    #[derive(Clone, Copy)]
    struct Fixed([u64; 10]);

    impl Fixed {
        fn new(digits: u64, power: i32, negative: bool) -> Self {
            let shift = (power + 298) as usize;
            let mut limbs = [0; 10];
            let wide = u128::from(digits) << (shift % 64);
            limbs[shift / 64] = wide as u64;
            limbs[shift / 64 + 1] = (wide >> 64) as u64;
            let fixed = Fixed(limbs);
            if negative { fixed.negated() } else { fixed }
        }

        fn negated(self) -> Self {
            Fixed(self.0.map(|limb| !limb)).plus(Fixed::new(1, -298, false))
        }

        fn plus(self, other: Self) -> Self {
            let mut carry = false;
            let mut sum = [0; 10];
            for i in 0..10 {
                let (low, over) = self.0[i].overflowing_add(other.0[i]);
                let (low, again) = low.overflowing_add(u64::from(carry));
                (sum[i], carry) = (low, over | again);
            }
            Fixed(sum)
        }

        fn bit(&self, i: usize) -> u64 {
            self.0[i / 64] >> (i % 64) & 1
        }

        /// The nearest f32, ties to even.
        fn rounded(self) -> f32 {
            let negative = self.0[9] >> 63 == 1;
            let size = if negative { self.negated() } else { self };
            let Some(top) = (0..640).rev().find(|&i| size.bit(i) == 1) else {
                return 0.0;
            };
            // The last digit of the result: 23 below the first, and none below 2⁻¹⁴⁹.
            let last = top.saturating_sub(23).max(298 - 149);
            let digits = (last..=top.max(last))
                .rev()
                .fold(0, |n, i| 2 * n + size.bit(i));
            let half = size.bit(last - 1) == 1;
            let below = (0..last - 1).any(|i| size.bit(i) == 1);
            let up = half && (below || digits % 2 == 1);
            // Exact: 25 digits at most, and a power of two of f64.
            let power = crate::math::powi(2.0, last as i32 - 298);
            let value = (digits + u64::from(up)) as f64 * power;
            (if negative { -value } else { value }) as f32
        }
    }

    fn parts(x: f32) -> (u64, i32, bool) {
        let bits = x.to_bits();
        let (field, digits) = (bits >> 23 & 255, u64::from(bits & 0x7f_ffff));
        let hidden = u64::from(field > 0) << 23;
        (digits | hidden, field.max(1) as i32 - 150, bits >> 31 == 1)
    }

    fn exact(a: f32, b: f32, c: f32) -> f32 {
        if !(a.is_finite() && b.is_finite() && c.is_finite()) || a * b == 0.0 && c == 0.0 {
            // Infinities and the signs of zeros: nothing is rounded in f64.
            let (a, b, c) = (f64::from(a), f64::from(b), f64::from(c));
            if a * b != 0.0 || c != 0.0 || a == 0.0 || b == 0.0 {
                return (a * b + c) as f32;
            }
        }
        let ((a, pa, na), (b, pb, nb), (c, pc, nc)) = (parts(a), parts(b), parts(c));
        let product = Fixed::new(a * b, pa + pb, na != nb);
        product.plus(Fixed::new(c, pc, nc)).rounded()
    }

    const EDGES: [f32; 22] = [
        0.0,
        f32::MIN_POSITIVE,
        1e-45,
        3e-45,
        1.175_494_2e-38,
        1.175_494_5e-38,
        2.350_988_7e-38,
        5.9e-8,
        1.0,
        0.999_999_94,
        1.000_000_1,
        1.5,
        2.0,
        3.0,
        4097.0,
        16_777_215.0,
        16_777_216.0,
        1.844_674_3e19,
        2.646_978e-23,
        f32::MAX,
        f32::INFINITY,
        f32::NAN,
    ];

    /// Numbers that make sums half way between two f32, or nearly: few digits, near exponents, results
    /// around the subnormal ones.
    fn draw(stream: &mut Stream) -> [f32; 3] {
        let kind = stream.below(5);
        if kind == 4 {
            return draw_subnormal(stream);
        }
        let mut one = |middle: u32, spread: u32| {
            let bits = stream.u32();
            let digits = match bits & 3 {
                0 => bits >> 9,
                1 => (bits >> 9) & 0x7f_f000,
                2 => (bits >> 9) & 0xfff,
                _ => 0x7f_ffff ^ (bits >> 27),
            };
            let exponent = (middle + stream.below(spread as usize) as u32).min(254);
            f32::from_bits(bits << 31 | exponent << 23 | digits)
        };
        match kind {
            0 => [one(120, 14), one(120, 14), one(110, 30)],
            1 => [one(50, 30), one(60, 30), one(0, 40)],
            2 => [one(180, 30), one(190, 30), one(230, 25)],
            _ => [one(0, 255), one(0, 255), one(0, 255)],
        }
    }

    /// A subnormal number and a product of about half the distance to the next one, 2⁻¹⁵⁰, that differs
    /// from it by less than f64 shows in their sum.
    fn draw_subnormal(stream: &mut Stream) -> [f32; 3] {
        let bits = stream.u32();
        let first = 20 + stream.below(64) as u32;
        let second = 104 - first - (bits >> 8 & 1);
        let near_one = |few: u32, below: u32| if below == 1 { 0x7f_ffff ^ few } else { few };
        let factor = |exponent: u32, digits: u32, sign: u32| {
            f32::from_bits(sign << 31 | exponent << 23 | digits)
        };
        [
            factor(first, near_one(bits & 7, bits >> 9 & 1), bits >> 10 & 1),
            factor(second, near_one(bits >> 3 & 7, bits >> 11 & 1), 0),
            f32::from_bits(stream.u32() & 0x807f_ffff),
        ]
    }

    fn check(set: InstructionSet, triples: &[[f32; 3]; 16]) {
        let of = |i: usize| std::array::from_fn::<f32, 16, _>(|lane| triples[lane][i]);
        let [a, b, c] = [of(0), of(1), of(2)];
        let whole: [f32; 16] = on(set, || {
            dispatch!(level(), simd => f32x16::from_slice(simd, &a)
                .fma(f32x16::from_slice(simd, &b), f32x16::from_slice(simd, &c))
                .into())
        });
        let half: [f32; 8] = on(set, || {
            dispatch!(level(), simd => f32x8::from_slice(simd, &a[..8])
                .fma(f32x8::from_slice(simd, &b[..8]), f32x8::from_slice(simd, &c[..8]))
                .into())
        });
        // Whatever the machine has.
        let mut alone = c;
        emulated(&a, &b, &mut alone);
        for lane in 0..16 {
            let [a, b, c] = triples[lane];
            let right = exact(a, b, c);
            let lanes = [
                Some(whole[lane]),
                half.get(lane).copied(),
                Some(alone[lane]),
            ];
            for got in lanes.into_iter().flatten() {
                assert!(
                    got.to_bits() == right.to_bits() || got.is_nan() && right.is_nan(),
                    "{set}: {a:e} * {b:e} + {c:e} = {right:e}, got {got:e}"
                );
            }
        }
    }

    /// Against exact arithmetic: every triple of edges with every sign, and drawn ones; a hundred million
    /// of them in the full run.
    #[test]
    fn a_fused_multiply_add_is_rounded_once_on_every_instruction_set() {
        let signed = EDGES.iter().flat_map(|&x| [x, -x]);
        let edges: Vec<f32> = signed.collect();
        let n = edges.len();
        let triple = |i: usize| [edges[i % n], edges[i / n % n], edges[i / n / n % n]];
        let full = std::env::var_os("RETROGRAD_FULL").is_some();
        let draws = if full { 100_000_000 / 16 } else { 20_000 };
        for set in InstructionSet::available() {
            for first in (0..n * n * n).step_by(16) {
                check(set, &std::array::from_fn(|lane| triple(first + lane)));
            }
            let mut stream = Key::new(7).purpose("fused").stream();
            for _ in 0..draws {
                check(set, &std::array::from_fn(|_| draw(&mut stream)));
            }
        }
    }
}
