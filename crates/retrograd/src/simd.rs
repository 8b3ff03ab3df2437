//! SIMD through `fearless_simd`: `f32x16` everywhere, chosen at run time, the same lane count and the
//! same bits on every instruction set.
//!
//! [`Fused::fma`] is the fused multiply-add, rounded once, whether the machine has one or not.
//!
//! A kernel is an `#[inline(always)]` function generic over [`Simd`], entered through
//! [`dispatch!`] with [`level`].
//!
//! The functions below are polynomials fitted to the function (minimax, relative error), checked
//! by a test against f64 over their whole domain: `ULPS` is what kernels may count on. NaN stays
//! NaN.

#[cfg(all(target_arch = "wasm32", target_feature = "simd128"))]
mod chains_simd128;
mod fused;
#[cfg(all(target_arch = "wasm32", target_feature = "simd128"))]
mod fused_simd128;
mod level;

#[cfg(all(target_arch = "wasm32", target_feature = "simd128"))]
pub(crate) use chains_simd128::{Factors, chains};
pub use fused::Fused;
pub use level::{InstructionSet, asked, instruction_set, level, on};

#[cfg(any(
    target_arch = "x86_64",
    all(target_arch = "wasm32", target_feature = "simd128")
))]
pub use fearless_simd::Level;
pub use fearless_simd::{Simd, f32x8, f32x16, f64x8, mask32x16, prelude, u32x16};

use std::marker::PhantomData;
use std::ops::Range;

use fearless_simd::prelude::*;

/// Runs an expression compiled for this machine's instruction set. On x86 it is compiled four times, for
/// AVX-512, AVX2, SSE2 and without vectors: machines that have SSE4.2 and not AVX2 are too few to pay
/// for a fifth copy of every kernel.
#[cfg(all(target_arch = "x86_64", not(one_level)))]
macro_rules! dispatch {
    ($level:expr, $simd:pat => $op:expr) => {{
        let level: $crate::simd::Level = $level;
        if let Some(simd) = level.as_avx512() {
            $crate::simd::with_level!(simd, $simd => $op)
        } else if let Some(simd) = level.as_avx2() {
            $crate::simd::with_level!(simd, $simd => $op)
        } else if let Some(simd) = level.as_sse2() {
            $crate::simd::with_level!(simd, $simd => $op)
        } else {
            let simd = fearless_simd::Fallback::new();
            $crate::simd::with_level!(simd, $simd => $op)
        }
    }};
}

/// With `RUSTFLAGS='--cfg one_level'` kernels are compiled for AVX2 alone, for a developer's build that is
/// ready sooner (CONTRIBUTING.md).
#[cfg(all(target_arch = "x86_64", one_level))]
macro_rules! dispatch {
    ($level:expr, $simd:pat => $op:expr) => {{
        let level: $crate::simd::Level = $level;
        let simd = level.as_avx2().expect("a build with `--cfg one_level` needs AVX2");
        $crate::simd::with_level!(simd, $simd => $op)
    }};
}

#[cfg(any(
    target_arch = "x86_64",
    all(target_arch = "wasm32", target_feature = "simd128")
))]
macro_rules! with_level {
    ($token:ident, $simd:pat => $op:expr) => {
        fearless_simd::Simd::vectorize(
            $token,
            #[inline(always)]
            || {
                let $simd = $token;
                $op
            },
        )
    };
}

/// An engine with vectors is loaded by browsers that have them, and those that have none load another: kernels
/// without vectors, which are the largest, would only be downloaded.
#[cfg(all(target_arch = "wasm32", target_feature = "simd128"))]
macro_rules! dispatch {
    ($level:expr, $simd:pat => $op:expr) => {{
        let level: $crate::simd::Level = $level;
        let simd = level.as_wasm_simd128().expect("built for vectors");
        $crate::simd::with_level!(simd, $simd => $op)
    }};
}

#[cfg(any(
    target_arch = "x86_64",
    all(target_arch = "wasm32", target_feature = "simd128")
))]
pub(crate) use {dispatch, with_level};

#[cfg(not(any(
    target_arch = "x86_64",
    all(target_arch = "wasm32", target_feature = "simd128")
)))]
pub(crate) use fearless_simd::dispatch;

/// Lanes of the vectors used everywhere.
pub const LANES: usize = 16;
crate::cuts::cuts!(LANES);

/// The largest error of [`exp`], [`erf`], [`tanh`] and [`sigmoid`], in units in the last place of
/// the result (measured by this module's test over all of the domain, then rounded up).
#[cfg(test)]
pub const ULPS: f64 = 3.0;

/// Fused multiply-adds of numbers that never leave the registers, that many rounds of [`FMA_ROUND`]
/// each: what the machine's peak is measured with. Returns something that depends on all of them.
pub fn multiply_adds(rounds: usize) -> f32 {
    #[inline(always)]
    fn chains<S: Simd, const N: usize>(simd: S, rounds: usize) -> f32 {
        let (factor, term) = (f32x16::splat(simd, 0.5), f32x16::splat(simd, 1.0));
        let mut sums: [f32x16<S>; N] =
            array(|i| f32x16::splat(simd, std::hint::black_box(i as f32)));
        for _ in 0..rounds * (FMA_ROUND / N) {
            for sum in &mut sums {
                *sum = sum.fma(factor, term);
            }
        }
        sums.iter().map(|sum| sum.as_slice()[0]).sum()
    }
    // Enough independent sums to hide the latency of two units of four cycles; as many as there
    // are registers where a vector of 16 takes two or four of them.
    dispatch!(level(), simd => if instruction_set() == InstructionSet::Avx512 {
        chains::<_, 12>(simd, rounds)
    } else {
        chains::<_, 6>(simd, rounds)
    })
}

/// Multiply-adds of 16 numbers in a round of [`multiply_adds`].
pub const FMA_ROUND: usize = 1200;

/// `[f(0), f(1), …]`, always inlined. `array::from_fn` and `array::map` are functions of their own where the
/// compiler so decides, and those are compiled without the instructions of the kernel that calls them: on AVX2
/// automata took eleven times as long with them.
#[inline(always)]
pub fn array<T: Copy, const N: usize>(mut f: impl FnMut(usize) -> T) -> [T; N] {
    let mut all = [f(0); N];
    for (i, one) in all.iter_mut().enumerate().skip(1) {
        *one = f(i);
    }
    all
}

/// The first 16 values of a slice, or fewer, filled up with zeros.
#[inline(always)]
pub fn load<S: Simd>(simd: S, x: &[f32]) -> f32x16<S> {
    if x.len() >= LANES {
        f32x16::from_slice(simd, &x[..LANES])
    } else {
        let mut padded = [0.0; LANES];
        padded[..x.len()].copy_from_slice(x);
        f32x16::from_slice(simd, &padded)
    }
}

/// [`load`] of rows that are mostly shorter than a vector. Where they rarely are, `load` leaves the
/// registers of the loop around it alone: with this in its place convolutions took a sixth longer.
#[inline(always)]
pub fn load_short<S: Simd>(simd: S, x: &[f32]) -> f32x16<S> {
    if x.len() >= LANES {
        return f32x16::from_slice(simd, &x[..LANES]);
    }
    let mut padded = [0.0; LANES];
    copy_short(x, &mut padded[..x.len()]);
    f32x16::from_slice(simd, &padded)
}

/// [`store`] to rows that are mostly shorter than a vector; see [`load_short`].
#[inline(always)]
pub fn store_short<S: Simd>(v: f32x16<S>, y: &mut [f32]) {
    if y.len() >= LANES {
        return v.store_slice(&mut y[..LANES]);
    }
    let n = y.len();
    copy_short(&v.as_slice()[..n], y);
}

/// Copies fewer than 16 numbers: two of 8 or of 4 that overlap, or one by one. A call of the C
/// library's copy takes longer than that.
#[inline(always)]
fn copy_short(from: &[f32], to: &mut [f32]) {
    #[inline(always)]
    fn ends<const N: usize>(from: &[f32], to: &mut [f32]) -> bool {
        if let (Some(&first), Some(&last)) = (from.first_chunk::<N>(), from.last_chunk::<N>())
            && to.len() == from.len()
        {
            if let Some(to) = to.first_chunk_mut::<N>() {
                *to = first;
            }
            if let Some(to) = to.last_chunk_mut::<N>() {
                *to = last;
            }
            return true;
        }
        false
    }
    if !ends::<8>(from, to) && !ends::<4>(from, to) && !ends::<2>(from, to) {
        for (to, &from) in to.iter_mut().zip(from) {
            *to = from;
        }
    }
}

/// Stores the first lanes, as many as the slice has room for.
#[inline(always)]
pub fn store<S: Simd>(v: f32x16<S>, y: &mut [f32]) {
    if y.len() >= LANES {
        v.store_slice(&mut y[..LANES]);
    } else {
        let n = y.len();
        y.copy_from_slice(&v.as_slice()[..n]);
    }
}

/// Sixteen rows of sixteen numbers transposed: what were columns are rows.
#[inline(always)]
pub fn transpose<S: Simd>(simd: S, rows: [f32x16<S>; LANES]) -> [f32x16<S>; LANES] {
    // Four riffles bring number c of row r, at place 16·r + c, to 16·c + r.
    let rows = riffle(simd, riffle(simd, rows));
    riffle(simd, riffle(simd, rows))
}

/// [`transpose`] of rows of eight numbers, of which a vector has two.
#[inline(always)]
pub fn transpose_pairs<S: Simd>(simd: S, pairs: [f32x16<S>; 8]) -> [f32x16<S>; 8] {
    // From place 8·r + c to 16·c + r.
    let pairs = riffle(simd, riffle(simd, pairs));
    riffle(simd, riffle(simd, pairs))
}

/// The upper and the lower half meet like those of a pack of cards: number i of 2n goes to 2i, or
/// from n on to 2(i − n) + 1.
#[inline(always)]
fn riffle<S: Simd, const N: usize>(simd: S, pack: [f32x16<S>; N]) -> [f32x16<S>; N] {
    let mut riffled = pack;
    for i in 0..N / 2 {
        riffled[2 * i] = simd.zip_low_f32x16(pack[i], pack[i + N / 2]);
        riffled[2 * i + 1] = simd.zip_high_f32x16(pack[i], pack[i + N / 2]);
    }
    riffled
}

/// c₀ + c₁·x + c₂·x² + …
#[inline(always)]
fn polynomial<S: Simd, const N: usize>(simd: S, x: f32x16<S>, c: [f32; N]) -> f32x16<S> {
    #[cfg(all(target_arch = "wasm32", target_feature = "simd128"))]
    if !cfg!(unfused) {
        return chains_simd128::polynomial(simd, x, &c);
    }
    let mut sum = f32x16::splat(simd, c[N - 1]);
    for i in (0..N - 1).rev() {
        sum = sum.fma(x, f32x16::splat(simd, c[i]));
    }
    sum
}

/// e and n with eˣ = e·2ⁿ: x = n·ln 2 + r, |r| ≤ ln 2 / 2, e = 1 + r + r²·q(r). Only where eˣ is a
/// finite number.
#[inline(always)]
fn exp_parts<S: Simd>(simd: S, x: f32x16<S>) -> (f32x16<S>, f32x16<S>) {
    const LN2_HIGH: f32 = 0.693_359_4;
    const LN2_LOW: f32 = -2.121_944_4e-4;
    let n = (x * std::f32::consts::LOG2_E).round_ties_even();
    let r = n.fma(f32x16::splat(simd, -LN2_HIGH), x);
    let r = n.fma(f32x16::splat(simd, -LN2_LOW), r);
    let q = polynomial(
        simd,
        r,
        [
            0.499_999_94,
            0.166_665_15,
            0.041_668_456,
            0.008_369_419,
            0.001_381_314_2,
        ],
    );
    ((q * r).fma(r, r) + 1.0, n)
}

/// Below this, eˣ is no normal number.
const EXP_LEAST: f32 = -87.336_55;

/// eˣ. Results below the smallest normal number become 0.
#[inline(always)]
pub fn exp<S: Simd>(simd: S, x: f32x16<S>) -> f32x16<S> {
    let (e, n) = exp_parts(simd, x);
    // 2ⁿ in two halves, so that n = 128 does not overflow before the product does.
    let half = (n * 0.5).floor();
    let y = e * power_of_two(simd, half) * power_of_two(simd, n - half);
    let zero = f32x16::splat(simd, 0.0);
    let infinity = f32x16::splat(simd, f32::INFINITY);
    let y = x.simd_lt(f32x16::splat(simd, EXP_LEAST)).select(zero, y);
    // A NaN compares false and has come through the sums.
    x.simd_gt(f32x16::splat(simd, 88.722_84))
        .select(infinity, y)
}

/// Whole numbers from 0 on as integers. What a NaN becomes differs between machines: it may not be used.
#[inline(always)]
#[allow(
    clippy::disallowed_methods,
    reason = "numbers in range have one meaning"
)]
pub fn whole<S: Simd>(x: f32x16<S>) -> u32x16<S> {
    x.to_int()
}

/// Numbers that are no NaN and no −0, with `low` in the place of smaller ones and `high` of larger ones.
#[inline(always)]
#[allow(clippy::disallowed_methods, reason = "no zero has a sign")]
pub fn between<S: Simd>(x: f32x16<S>, low: f32, high: f32) -> f32x16<S> {
    x.clamp(low, high)
}

/// 2ⁿ for whole −126 ≤ n ≤ 127, by writing the exponent.
#[inline(always)]
fn power_of_two<S: Simd>(simd: S, n: f32x16<S>) -> f32x16<S> {
    let biased = whole(n + f32x16::splat(simd, 127.0));
    f32x16::from_bits(biased << 23)
}

/// 1 / (1 + e⁻ˣ). Results below the smallest normal number become 0.
#[inline(always)]
pub fn sigmoid<S: Simd>(simd: S, x: f32x16<S>) -> f32x16<S> {
    let one = f32x16::splat(simd, 1.0);
    let least = f32x16::splat(simd, EXP_LEAST);
    let below = x.simd_lt(least);
    // Kept where 2ⁿ needs no halves; a NaN compares false and stays.
    let x = x.simd_gt(-least).select(-least, below.select(least, x));
    let (e, n) = exp_parts(simd, -x);
    let y = one / e.fma(power_of_two(simd, n), one);
    below.select(f32x16::splat(simd, 0.0), y)
}

/// tanh: x·p(x²) for |x| < 0.625, else 1 − 2/(e²ˣ + 1) with x's sign.
#[inline(always)]
pub fn tanh<S: Simd>(simd: S, x: f32x16<S>) -> f32x16<S> {
    let one = f32x16::splat(simd, 1.0);
    let a = x.abs();
    let p = polynomial(
        simd,
        x * x,
        [
            -0.333_333_28,
            0.133_331_2,
            -0.053_937_234,
            0.021_652_633,
            -0.008_065_131_5,
            0.002_044_603_2,
        ],
    );
    let small = (p * (x * x)).fma(x, x);
    let large = (one - f32x16::splat(simd, 2.0) / (exp(simd, a + a) + one)).copysign(x);
    a.simd_lt(f32x16::splat(simd, 0.625)).select(small, large)
}

/// erf: x·p(x²) for |x| < 1, else 1 − e^p(|x|) with x's sign, 1 from 4 on.
#[inline(always)]
pub fn erf<S: Simd>(simd: S, x: f32x16<S>) -> f32x16<S> {
    let one = f32x16::splat(simd, 1.0);
    #[allow(
        clippy::disallowed_methods,
        reason = "neither is −0, and a NaN is put back at the end"
    )]
    let a = x.abs().min(f32x16::splat(simd, 4.0));
    let p = polynomial(
        simd,
        x * x,
        [
            0.128_379_17, // 2/√π − 1
            -0.376_126_26,
            0.112_835_854,
            -0.026_853_811,
            0.005_188_327_7,
            -0.000_801_019_25,
            7.853_858e-5,
        ],
    );
    let small = p.fma(x, x);
    let log_erfc = polynomial(
        simd,
        a,
        [
            0.000_188_467_79,
            -1.129_580_3,
            -0.633_216_4,
            -0.108_422_1,
            0.025_210_341,
            -0.004_205_286,
            0.000_441_472_92,
            -2.169_763_9e-5,
        ],
    );
    let large = (one - exp(simd, log_erfc)).copysign(x);
    // A NaN fails the comparison and comes out of `small`.
    let y = x.abs().simd_ge(one).select(large, small);
    x.simd_eq(x).select(y, x)
}

/// Σ aᵢ·bᵢ over 16 lanes of partial sums.
#[inline(always)]
pub fn dot<S: Simd>(simd: S, a: &[f32], b: &[f32]) -> f32 {
    let mut sum = f32x16::splat(simd, 0.0);
    for (a, b) in a.chunks(LANES).zip(b.chunks(LANES)) {
        sum = load(simd, a).fma(load(simd, b), sum);
    }
    simd.reduce_sum_f32x16(sum)
}

/// y += a·x.
#[inline(always)]
pub fn axpy<S: Simd>(simd: S, a: f32, x: &[f32], y: &mut [f32]) {
    let a = f32x16::splat(simd, a);
    for (x, y) in x.chunks(LANES).zip(y.chunks_mut(LANES)) {
        store(a.fma(load(simd, x), load(simd, y)), y);
    }
}

/// Asks for `len` numbers from `at` on, which are read soon. Changes when they arrive, never what is
/// computed; nothing where the numbers aren't there or the machine has no such instruction.
#[inline(always)]
pub fn prefetch(x: &[f32], at: usize, len: usize) {
    #[cfg(target_arch = "x86_64")]
    if let Some(x) = x.get(at..at + len) {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        let fetch = |number: &f32| {
            #[allow(unsafe_code, reason = "the instruction has no safe form")]
            // SAFETY: every x86-64 has it, and it only takes note of an address.
            unsafe {
                _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(number).cast());
            }
        };
        // Every line of 16 numbers, and that of the last where they don't begin with a line.
        x.iter().step_by(LANES).for_each(fetch);
        let offset = x.as_ptr().addr() % 64;
        if offset + 4 * len > 64 * len.div_ceil(LANES) {
            x.last().into_iter().for_each(fetch);
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (x, at, len);
}

/// Asks for one line of 16 numbers; an address that isn't there is no matter.
#[inline(always)]
pub fn prefetch_line(lines: &[[f32; LANES]], at: usize) {
    #[cfg(target_arch = "x86_64")]
    #[allow(unsafe_code, reason = "the instruction has no safe form")]
    // SAFETY: every x86-64 has it, and it only takes note of an address, whatever it is.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(lines.as_ptr().wrapping_add(at).cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (lines, at);
}

/// An array that is written past the caches, and not read until all of it is written: such stores
/// are in no order with others before a fence, and a read of the same numbers must come after it.
pub struct PastCaches<'a> {
    out: &'a mut [f32],
    /// The fence is for the stores of one thread: it stays on it.
    here: PhantomData<*const ()>,
}

/// Hands an array to a closure that writes results which no cache would hold until they are read.
/// Whoever is told afterwards, on whichever thread, finds them there.
pub fn past_caches<R>(out: &mut [f32], work: impl FnOnce(&mut PastCaches<'_>) -> R) -> R {
    /// Also where the closure unwinds.
    struct Fence;
    impl Drop for Fence {
        fn drop(&mut self) {
            #[cfg(target_arch = "x86_64")]
            #[allow(unsafe_code, reason = "the instruction has no safe form")]
            // SAFETY: every x86-64 has it.
            unsafe {
                std::arch::x86_64::_mm_sfence();
            }
        }
    }
    let _fence = Fence;
    let here = PhantomData;
    work(&mut PastCaches { out, here })
}

impl PastCaches<'_> {
    /// Stores the first lanes, as many as the range has numbers: past the caches where they are a
    /// whole line and the machine can.
    #[inline(always)]
    pub fn store<S: Simd>(&mut self, v: f32x16<S>, range: Range<usize>) {
        let to = &mut self.out[range];
        match <&mut [f32; LANES]>::try_from(&mut *to) {
            Ok(line) => stream(v, line),
            Err(_) => store_short(v, to),
        }
    }
}

/// Stores a whole line without reading it into the caches first, where `y` begins with one. For
/// [`PastCaches`] alone: what is stored needs the fence.
#[inline(always)]
fn stream<S: Simd>(v: f32x16<S>, y: &mut [f32; LANES]) {
    #[cfg(target_arch = "x86_64")]
    if y.as_ptr().addr().is_multiple_of(64) {
        use std::arch::x86_64::{_mm_loadu_ps, _mm_stream_ps};
        let lanes: [f32; LANES] = v.into();
        for (from, to) in lanes
            .as_chunks::<4>()
            .0
            .iter()
            .zip(y.as_chunks_mut::<4>().0)
        {
            #[allow(unsafe_code, reason = "the instruction has no safe form")]
            // SAFETY: every x86-64 has it; four numbers each, `to` at a multiple of 16 bytes.
            unsafe {
                _mm_stream_ps(to.as_mut_ptr(), _mm_loadu_ps(from.as_ptr()));
            }
        }
        return;
    }
    v.store_slice(y);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[inline(always)]
    fn all<S: Simd>(simd: S, x: &[f32; 16]) -> [[f32; 16]; 4] {
        let x = load(simd, x);
        [exp(simd, x), erf(simd, x), tanh(simd, x), sigmoid(simd, x)].map(|v| {
            let mut y = [0.0; 16];
            store(v, &mut y);
            y
        })
    }

    /// Every 101st f32 of the domain, and all names of special values.
    #[test]
    fn functions_are_within_their_ulps_over_the_whole_domain() {
        let names = ["exp", "erf", "tanh", "sigmoid"];
        let exact: [fn(f64) -> f64; 4] =
            [f64::exp, libm::erf, f64::tanh, |x| 1.0 / (1.0 + (-x).exp())];
        let mut worst = [0.0_f64; 4];
        let mut at = [0.0_f32; 4];
        let mut bits = 0_u32;
        while bits < 0x42ae_0000 {
            // up to 87
            let mut x = [0.0; 16];
            for (lane, x) in x.iter_mut().enumerate() {
                let value = f32::from_bits(bits + 101 * (lane as u32 / 2));
                *x = if lane % 2 == 0 { value } else { -value };
            }
            bits += 101 * 8;
            let y = dispatch!(level(), simd => all(simd, &x));
            for f in 0..4 {
                for lane in 0..16 {
                    let truth = exact[f](f64::from(x[lane]));
                    if truth.abs() < f64::from(f32::MIN_POSITIVE) {
                        continue;
                    }
                    let ulp =
                        f64::from((truth as f32).abs().next_up()) - f64::from((truth as f32).abs());
                    let error = (f64::from(y[f][lane]) - truth).abs() / ulp;
                    if error > worst[f] {
                        (worst[f], at[f]) = (error, x[lane]);
                    }
                }
            }
        }
        for f in 0..4 {
            assert!(
                worst[f] <= ULPS,
                "{}: {} ulp at {}",
                names[f],
                worst[f],
                at[f]
            );
        }
        let special = [
            f32::NAN,
            f32::INFINITY,
            f32::NEG_INFINITY,
            100.0,
            -100.0,
            1e-40,
            88.7,
            -87.3,
        ];
        let mut x = [0.0; 16];
        x[..8].copy_from_slice(&special);
        let y = dispatch!(level(), simd => all(simd, &x));
        for f in 0..4 {
            assert!(y[f][0].is_nan(), "{} of NaN", names[f]);
        }
        assert_eq!(&y[0][1..5], &[f32::INFINITY, 0.0, f32::INFINITY, 0.0]);
        assert_eq!(&y[1][1..3], &[1.0, -1.0]);
        assert_eq!(&y[2][1..3], &[1.0, -1.0]);
        assert_eq!(&y[3][1..3], &[1.0, 0.0]);
    }

    #[test]
    fn transposed_rows_are_columns() {
        let numbers: [f32; 256] = std::array::from_fn(|i| i as f32);
        #[inline(always)]
        fn loaded<S: Simd, const N: usize>(simd: S, numbers: &[f32]) -> [f32x16<S>; N] {
            let mut rows = [f32x16::splat(simd, 0.0); N];
            for (row, from) in rows.iter_mut().zip(numbers.chunks_exact(LANES)) {
                *row = load(simd, from);
            }
            rows
        }
        let (transposed, transposed_pairs) = dispatch!(level(), simd => (
            transpose(simd, loaded(simd, &numbers)).map(<[f32; LANES]>::from),
            transpose_pairs(simd, loaded(simd, &numbers)).map(<[f32; LANES]>::from),
        ));
        for (r, row) in numbers.chunks_exact(16).enumerate() {
            for (c, &x) in row.iter().enumerate() {
                assert_eq!(transposed[c][r], x);
            }
        }
        for (r, row) in numbers.chunks_exact(8).take(16).enumerate() {
            for (c, &x) in row.iter().enumerate() {
                assert_eq!(transposed_pairs[c][r], x);
            }
        }
    }

    #[test]
    fn short_slices_are_filled_up_with_zeros() {
        let a: Vec<f32> = (0..21).map(|i| i as f32).collect();
        let sum = dispatch!(level(), simd => dot(simd, &a, &a));
        assert_eq!(sum, (0..21).map(|i| (i * i) as f32).sum::<f32>());
        let mut y = vec![1.0; 21];
        dispatch!(level(), simd => axpy(simd, 2.0, &a, &mut y));
        assert!(
            y.iter()
                .enumerate()
                .all(|(i, &y)| y == 1.0 + 2.0 * i as f32)
        );
    }
}
