//! The verifier's number: f64 arithmetic whose every result is rounded to f32, up or down, at
//! random.
//!
//! Running the reference several times on it and looking at the spread shows, element by element,
//! how much of a difference rounding can explain: Monte Carlo arithmetic. The chance of rounding
//! up is the share of the interval already covered, so that rounding is right on average and a
//! result that f32 holds exactly stays as it is.
//!
//! # What is equal rounds alike
//!
//! Which way a result goes is a hash of what it came from and of the run. Rounding to nearest is a
//! function, too, and nodes of a graph that are alike, samples of a batch that are equal, pixels of a
//! plain background have the same errors, which add up over them. Were directions drawn anew for
//! every operation these errors would average out, and the spread be too narrow by up to the root of
//! their number. What is hashed is what decides in round to nearest:
//!
//! - of a product, a quotient, a function: the fraction of the exact result, whatever its sign and
//!   power of two;
//! - of a sum: the fraction of the smaller addend, and the bits that are cut off. The larger addend
//!   is a multiple of its own last place, so that the same number added to sums of the same size
//!   loses the same every time. A sum of n equal numbers drifts by n such errors, not by √n.
//!
//! Results that come from different numbers have independent directions.
//!
//! # And in every other run it does not
//!
//! What is equal and opposite then cancels to the last bit, as it does in the reference's order of operations. A
//! kernel that fuses a product with a sum, or adds in another order, rounds only one of the two and is left
//! with a rounding of what cancelled. So runs of even seeds draw the direction of every operation anew:
//! nothing cancels in them but what is 0. Where the two kinds of runs differ by more than chance explains
//! the larger spread counts ([`super::precision`]).
//!
//! # Functions
//!
//! exp, tanh, erf … are not correctly rounded anywhere. What a device may be wrong by is written
//! in a [`Granted`] table, and a call on the verifier's number is off by a random part of it:
//! half of that is drawn for every result, half once a run and function, because a polynomial
//! that is too large tends to be too large everywhere. With m the margin at this argument,
//! w and c uniform in [−1, 1], the result is y + m·(w + c)/2, then rounded.
//!
//! # Range
//!
//! A device that keeps values between layers in f16 loses what is larger than 65504 or smaller than 2⁻²⁴, and digits
//! below 2⁻¹⁴. So does a run on the verifier's number, where [`Granted::kept`] says so; sums, and whatever a layer
//! has inside, keep f32's range. Gradients are multiplied by the device's loss scale before and divided by it
//! afterwards: that is the largest power of two at which none of them overflows, found by a run in which they
//! are only measured.

use std::cell::Cell;
use std::iter::Sum;
use std::ops::{Add, AddAssign, Div, DivAssign, Mul, MulAssign, Neg, Sub, SubAssign};

use crate::layer::{AnyLayer, Layer};
use crate::math;
use crate::scalar::{Scalar, sealed};

/// One unit in the last place of f32, relative to a number in [1, 2).
const ULP: f64 = 1.0 / 8_388_608.0;

/// How far a function's result may be from the exact one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Margin {
    /// Units in the last place of the result.
    pub ulps: f64,
    /// The same for every unit of the argument's magnitude.
    pub ulps_per_x: f64,
    /// An absolute error; where it is larger than the others it counts instead of them.
    pub absolute: f64,
}

impl Margin {
    const fn ulps(ulps: f64) -> Self {
        Margin {
            ulps,
            ulps_per_x: 0.0,
            absolute: 0.0,
        }
    }

    fn at(&self, x: f64, y: f64) -> f64 {
        let relative = (self.ulps + self.ulps_per_x * x.abs()) * ULP * y.abs();
        math::max(relative, self.absolute)
    }
}

/// What a device's functions may be wrong by, beyond the rounding of their result.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Granted {
    /// The name in reports.
    pub name: &'static str,
    /// Bits of a number's fraction: 24 of f32, 11 of f16, the leading one counted.
    pub bits: u32,
    /// The smallest and the largest number that is kept between layers, where that is less than f32's range.
    pub kept: Option<[f64; 2]>,
    /// eˣ.
    pub exp: Margin,
    /// ln x and ln(1 + x).
    pub ln: Margin,
    /// tanh x.
    pub tanh: Margin,
    /// √x.
    pub sqrt: Margin,
    /// erf x.
    pub erf: Margin,
    /// 1 / (1 + e⁻ˣ), over what its exp and its division bring with them.
    pub sigmoid: Margin,
    /// x / y.
    pub div: Margin,
    /// sin x and cos x.
    pub sin: Margin,
    /// xʸ, by the size of y·log₂ x and of y.
    pub pow: Margin,
}

impl Granted {
    /// Every function rounded once and nothing else.
    pub const EXACT: Granted = Granted {
        name: "exact",
        bits: 24,
        kept: None,
        exp: Margin::ulps(0.0),
        ln: Margin::ulps(0.0),
        tanh: Margin::ulps(0.0),
        sqrt: Margin::ulps(0.0),
        erf: Margin::ulps(0.0),
        sigmoid: Margin::ulps(0.0),
        div: Margin::ulps(0.0),
        sin: Margin::ulps(0.0),
        pow: Margin::ulps(0.0),
    };

    /// The CPU. Arithmetic and square roots are IEEE 754's; the polynomials of the SIMD kernels
    /// and of libm are held to these by the tests of the functions themselves.
    pub const CPU: Granted = Granted {
        name: "cpu",
        bits: 24,
        kept: None,
        exp: Margin::ulps(2.0),
        ln: Margin::ulps(2.0),
        tanh: Margin::ulps(4.0),
        sqrt: Margin::ulps(0.0),
        erf: Margin::ulps(4.0),
        sigmoid: Margin::ulps(2.0),
        div: Margin::ulps(0.0),
        sin: Margin::ulps(2.0),
        pow: Margin::ulps(2.0),
    };

    /// A GPU: what WGSL's specification ("Floating point accuracy") grants f32.
    pub const WGSL: Granted = Granted {
        name: "gpu",
        bits: 24,
        kept: None,
        // exp(x): (3 + 2·|x|) ULP.
        exp: Margin {
            ulps: 3.0,
            ulps_per_x: 2.0,
            absolute: 0.0,
        },
        // log(x): an absolute 2⁻²¹ within [0.5, 2], 3 ULP elsewhere.
        ln: Margin {
            ulps: 3.0,
            ulps_per_x: 0.0,
            absolute: 1.0 / 2_097_152.0,
        },
        // tanh(x): the worse of an absolute 1e-5 and what sinh/cosh inherit.
        tanh: Margin {
            ulps: 9.0,
            ulps_per_x: 4.0,
            absolute: 1e-5,
        },
        // sqrt(x): as 1/inverseSqrt(x), 2 ULP of the one and 2.5 of the other.
        sqrt: Margin::ulps(4.5),
        // Not in WGSL: the kernels' polynomial, times an exp(−x²).
        erf: Margin {
            ulps: 5.0,
            ulps_per_x: 2.0,
            absolute: 2e-7,
        },
        // Through exp and division, which bring their own.
        sigmoid: Margin::ulps(1.0),
        // x / y: 2.5 ULP.
        div: Margin::ulps(2.5),
        // sin(x), cos(x): an absolute 2⁻¹¹ within [−π, π].
        sin: Margin {
            ulps: 0.0,
            ulps_per_x: 0.0,
            absolute: 1.0 / 2048.0,
        },
        // pow(x, y): as exp2(y · log2(x)); (3 + 2·|z|) ULP of the one, and what 3 ULP or an
        // absolute 2⁻²¹ of the other make of it.
        pow: Margin {
            ulps: 3.0,
            ulps_per_x: 6.0,
            absolute: 0.0,
        },
    };

    /// A GPU in mixed precision: every result rounded to the 11 bits of f16. The kernels round
    /// less often (sums, statistics and functions are f32), so this is what they may be wrong by at
    /// the most. What layers hand on has f16's range, everything else f32's.
    pub const MIXED: Granted = Granted {
        name: "gpu, mixed precision",
        bits: 11,
        kept: Some([1.0 / 16_777_216.0, 65_504.0]),
        ..Granted::WGSL
    };
}

/// The functions of a [`Granted`] table, by their place in the run's systematic shares.
#[derive(Clone, Copy)]
enum Function {
    Exp,
    Ln,
    Tanh,
    Sqrt,
    Erf,
    Sigmoid,
    Div,
    Sin,
    Cos,
    Pow,
}

/// The bits that f32 has less than f64.
const F32_CUT: u64 = (1 << 29) - 1;

/// splitmix64's step.
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

thread_local! {
    /// What makes one run's roundings others than another's.
    static KEY: Cell<u64> = const { Cell::new(STEP) };
    static COUNT: Cell<u64> = const { Cell::new(0) };
    static GRANTED: Cell<&'static Granted> = const { Cell::new(&Granted::EXACT) };
    static SHARES: Cell<[f64; 10]> = const { Cell::new([0.0; 10]) };
    /// All bits where directions are drawn anew for every operation, none where they are hashed.
    static ANEW: Cell<u64> = const { Cell::new(0) };
    /// The bits of f64's fraction that are cut off.
    static CUT: Cell<u64> = const { Cell::new(F32_CUT) };
    /// By what gradients are multiplied where they are kept; none where they are measured.
    static LOSS_SCALE: Cell<Option<f64>> = const { Cell::new(None) };
    /// The largest gradient that was measured.
    static LARGEST: Cell<f64> = const { Cell::new(0.0) };
}

/// A hash: every bit of it depends on every bit of x.
#[inline(always)]
fn mix(x: u64) -> u64 {
    const FACTOR: u64 = 0xd6e8_feb8_6659_fd93;
    let x = (x ^ (x >> 32)).wrapping_mul(FACTOR);
    let x = (x ^ (x >> 32)).wrapping_mul(FACTOR);
    x ^ (x >> 32)
}

/// A number that rounds at random; see the module's text.
#[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd)]
pub struct Rounded(f64);

impl Rounded {
    /// Starts this thread's random roundings anew, with exact functions. Runs with equal seeds are
    /// equal.
    pub fn seed(seed: u64) {
        Self::start(seed, &Granted::EXACT);
    }

    /// Starts a run on this thread whose functions are off by parts of what is granted. What is equal
    /// rounds alike where the seed is odd.
    pub fn start(seed: u64, granted: &'static Granted) {
        KEY.set(mix(seed.wrapping_mul(STEP) ^ 0x5851_f42d_4c95_7f2d));
        // Before the shares are drawn: what this thread rounded earlier has no part in them.
        COUNT.set(0);
        GRANTED.set(granted);
        ANEW.set(if seed.is_multiple_of(2) { u64::MAX } else { 0 });
        CUT.set((1 << (53 - granted.bits)) - 1);
        let mut shares = [0.0; 10];
        for (function, share) in shares.iter_mut().enumerate() {
            *share = Self::signed(function as u64);
        }
        SHARES.set(shares);
        COUNT.set(0);
        LOSS_SCALE.set(None);
        LARGEST.set(0.0);
    }

    /// From here on gradients are kept times that scale, and no longer measured.
    pub fn scale_gradients(scale: f64) {
        LOSS_SCALE.set(Some(scale));
    }

    /// The largest gradient that was kept since the start.
    pub fn largest_gradient() -> f64 {
        LARGEST.get()
    }

    /// As it is kept in numbers from `smallest` to `largest`.
    fn within(self, [smallest, largest]: [f64; 2]) -> Self {
        let x = self.0;
        // What rounds to the number after the largest, which has 11 bits, is infinite.
        if x.abs() >= largest * (1.0 + 1.0 / 4094.0) {
            return Rounded(f64::INFINITY.copysign(x));
        }
        if x.abs() >= 1024.0 * smallest || !x.is_finite() || x == 0.0 {
            return self;
        }
        let units = x.abs() / smallest;
        let share = (Self::bits(x.to_bits() << 1) >> 11) as f64 / 9_007_199_254_740_992.0;
        let up = share < units.fract();
        Rounded(((units.floor() + f64::from(u8::from(up))) * smallest).copysign(x))
    }

    /// Results rounded on this thread since the start: the cost of a run.
    pub fn count() -> u64 {
        COUNT.get()
    }

    /// Random bits, a function of what they are drawn for and of the run.
    #[inline(always)]
    fn bits(origin: u64) -> u64 {
        let count = COUNT.get() + 1;
        COUNT.set(count);
        mix(origin ^ KEY.get() ^ (count.wrapping_mul(STEP) & ANEW.get()))
    }

    /// Uniform in [−1, 1).
    fn signed(origin: u64) -> f64 {
        (Self::bits(origin) >> 11) as f64 * (2.0 / 9_007_199_254_740_992.0) - 1.0
    }

    /// A product or a function's value.
    #[inline(always)]
    fn round(x: f64) -> Self {
        Self::round_like(x, x.to_bits() << 12)
    }

    /// The sum of two numbers that are rounded already: the smaller one's fraction has at most 23
    /// bits (10 of f16), which the cut bits leave free.
    #[inline(always)]
    fn round_sum(a: f64, b: f64) -> Self {
        let x = a + b;
        let smaller = if a.abs() < b.abs() { a } else { b };
        Self::round_like(x, smaller.to_bits() << 12 | x.to_bits() & CUT.get())
    }

    /// f32 keeps 29 bits less of the fraction than f64. Adding a random number below 2²⁹ to the
    /// bits and cutting 29 off (42 for f16) rounds the magnitude up with the chance that the cut
    /// bits say. What has the same origin gets the same number.
    #[inline(always)]
    fn round_like(x: f64, origin: u64) -> Self {
        let cut = CUT.get();
        /// The biased exponents of f32's normal numbers, 2⁻¹²⁶ to 2¹²⁷, in f64.
        const SMALLEST: u64 = 1023 - 126;
        const RANGE: u64 = 254;
        let bits = x.to_bits();
        if bits & cut == 0 && x == 0.0 {
            return Rounded(x);
        }
        let exponent = (bits >> 52) & 0x7ff;
        if exponent.wrapping_sub(SMALLEST) >= RANGE {
            return Self::round_unusual(x);
        }
        if bits & cut == 0 {
            return Rounded(x);
        }
        Rounded(f64::from_bits((bits + (Self::bits(origin) & cut)) & !cut))
    }

    /// What f32 has as subnormals or not at all.
    #[cold]
    fn round_unusual(x: f64) -> Self {
        if !x.is_finite() {
            return Rounded(x);
        }
        if x.abs() > 1.0 {
            return Rounded(f64::INFINITY.copysign(x));
        }
        let smallest = f64::from(f32::from_bits(1));
        let units = x.abs() / smallest;
        let up =
            (Self::bits(x.to_bits() << 1) >> 11) as f64 / 9_007_199_254_740_992.0 < units.fract();
        let units = units.floor() + if up { 1.0 } else { 0.0 };
        Rounded((units * smallest).copysign(x))
    }

    /// The result y of a function at x, off by a random part of its margin.
    #[inline]
    fn granted(function: Function, margin: impl Fn(&Granted) -> Margin, x: f64, y: f64) -> Self {
        let granted = GRANTED.get();
        // An infinite margin of an infinite result would make it NaN.
        if granted.name == Granted::EXACT.name || !y.is_finite() {
            return Self::round(y);
        }
        let margin = margin(granted).at(x, y);
        if margin == 0.0 || y == 0.0 {
            return Self::round(y);
        }
        let share = SHARES.get()[function as usize];
        let origin = y
            .to_bits()
            .wrapping_add((function as u64).wrapping_mul(STEP));
        Self::round(y + margin * 0.5 * (Self::signed(origin) + share))
    }
}

macro_rules! operator {
    ($trait:ident, $method:ident, $assign:ident, $assign_method:ident,
     |$a:ident, $b:ident| $round:expr) => {
        impl $trait for Rounded {
            type Output = Self;
            #[inline(always)]
            fn $method(self, other: Self) -> Self {
                let ($a, $b) = (self.0, other.0);
                $round
            }
        }
        operator!(@assign $method, $assign, $assign_method);
    };
    (@assign $method:ident, $assign:ident, $assign_method:ident) => {
        impl $assign for Rounded {
            #[inline(always)]
            fn $assign_method(&mut self, other: Self) {
                *self = self.$method(other);
            }
        }
    };
}
operator!(Add, add, AddAssign, add_assign, |a, b| Self::round_sum(
    a, b
));
operator!(Sub, sub, SubAssign, sub_assign, |a, b| Self::round_sum(
    a, -b
));
operator!(Mul, mul, MulAssign, mul_assign, |a, b| Self::round(a * b));

impl Div for Rounded {
    type Output = Self;
    fn div(self, other: Self) -> Self {
        Self::granted(Function::Div, |g| g.div, 0.0, self.0 / other.0)
    }
}
operator!(@assign div, DivAssign, div_assign);

impl Neg for Rounded {
    type Output = Self;
    fn neg(self) -> Self {
        Rounded(-self.0)
    }
}

impl Sum for Rounded {
    fn sum<I: Iterator<Item = Self>>(iter: I) -> Self {
        iter.fold(Rounded(0.0), |a, b| a + b)
    }
}

#[allow(private_interfaces, reason = "nobody outside can call it")]
impl sealed::Sealed for Rounded {
    fn layer(any: &dyn AnyLayer) -> &dyn Layer<Self> {
        any
    }

    fn keep(values: &mut [Self]) {
        if let Some(range) = GRANTED.get().kept {
            values.iter_mut().for_each(|v| *v = v.within(range));
        }
    }

    fn keep_gradient(values: &mut [Self]) {
        let Some(range) = GRANTED.get().kept else {
            return;
        };
        match LOSS_SCALE.get() {
            Some(scale) => {
                for v in values {
                    *v = Rounded(Rounded(scale * v.0).within(range).0 / scale);
                }
            }
            None => {
                let all = values.iter().map(|v| v.0.abs());
                LARGEST.set(all.fold(LARGEST.get(), math::max));
            }
        }
    }
}

impl Scalar for Rounded {
    const ZERO: Self = Rounded(0.0);
    const ONE: Self = Rounded(1.0);
    const NAME: &'static str = "rounded";
    const ROUNDS: bool = true;
    fn from_f64(x: f64) -> Self {
        Self::round(x)
    }
    fn to_f64(self) -> f64 {
        self.0
    }
    fn exp(self) -> Self {
        Self::granted(Function::Exp, |g| g.exp, self.0, math::exp(self.0))
    }
    fn ln(self) -> Self {
        Self::granted(Function::Ln, |g| g.ln, 0.0, math::ln(self.0))
    }
    fn ln_1p(self) -> Self {
        Self::granted(Function::Ln, |g| g.ln, 0.0, math::ln_1p(self.0))
    }
    fn tanh(self) -> Self {
        Self::granted(Function::Tanh, |g| g.tanh, self.0, math::tanh(self.0))
    }
    fn sqrt(self) -> Self {
        Self::granted(Function::Sqrt, |g| g.sqrt, 0.0, self.0.sqrt())
    }
    fn erf(self) -> Self {
        Self::granted(Function::Erf, |g| g.erf, self.0, math::erf(self.0))
    }
    fn sigmoid(self) -> Self {
        let y = Self::ONE / (Self::ONE + (-self).exp());
        Self::granted(Function::Sigmoid, |g| g.sigmoid, self.0, y.0)
    }
    fn abs(self) -> Self {
        Rounded(self.0.abs())
    }
    fn sin(self) -> Self {
        Self::granted(Function::Sin, |g| g.sin, self.0, math::sin(self.0))
    }
    fn cos(self) -> Self {
        Self::granted(Function::Cos, |g| g.sin, self.0, math::cos(self.0))
    }
    fn pow(self, exponent: Self) -> Self {
        let size = exponent.0.abs() * (1.0 + math::log2(self.0.abs()).abs());
        let y = math::powf(self.0, exponent.0);
        Self::granted(Function::Pow, |g| g.pow, size, y)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_stay_what_they_are_where_they_overflow() {
        for seed in 0..20 {
            Rounded::start(seed, &Granted::CPU);
            for x in [-1e4, -800.0, -100.0, 100.0, 800.0, 1e4] {
                let x = Rounded::from_f64(x);
                let (s, e) = (x.sigmoid().to_f64(), x.exp().to_f64());
                assert!((0.0..=1.0 + 1e-6).contains(&s), "{x:?}: {s}");
                assert_eq!(e, if x.0 > 0.0 { f64::INFINITY } else { e });
                assert!(!(x * x.sigmoid()).to_f64().is_nan(), "{x:?}");
            }
        }
    }

    #[test]
    fn results_are_f32s_one_of_the_two_neighbours_and_right_on_average() {
        for exact in [1.0 / 3.0, -2.0 / 7.0, 1e10 / 3.0, 1e-20 / 3.0, 1e-42 / 3.0] {
            let n = 20_000;
            let mut mean = 0.0;
            let nearest = exact as f32;
            let spacing = f64::from(nearest.next_up() - nearest).abs();
            for seed in 0..n {
                Rounded::seed(seed);
                let x = Rounded::from_f64(exact).to_f64();
                assert_eq!(x, f64::from(x as f32), "{exact}: not an f32");
                assert!((x - exact).abs() < spacing, "{exact}: not a neighbour");
                mean += (x - exact) / spacing / n as f64;
            }
            // The standard deviation of one rounding is at most half a spacing: five errors.
            let bound = 5.0 * 0.5 / (n as f64).sqrt();
            assert!(mean.abs() < bound, "{exact}: {mean}");
        }
        assert_eq!(Rounded::from_f64(0.75).to_f64(), 0.75);
        assert_eq!(Rounded::from_f64(1e39).to_f64(), f64::INFINITY);
    }

    /// Rounding to nearest loses the same share of the same number again and again.
    #[test]
    fn a_sum_of_equal_numbers_drifts_as_far_as_in_f32() {
        let n = 2000;
        let (mut worst, mut square) = (0.0_f64, 0.0);
        for i in 0..64 {
            let term = 0.1 + 0.001 * f64::from(i as f32 * 0.7);
            let term = f64::from(term as f32);
            let exact = f64::from(n) * term;
            let nearest = (0..n).fold(0.0_f32, |sum, _| sum + term as f32);
            worst = worst.max((f64::from(nearest) - exact).abs() / exact);
            Rounded::seed(2 * i + 1);
            let sum: Rounded = (0..n).map(|_| Rounded::from_f64(term)).sum();
            square += ((sum.to_f64() - exact) / exact).powi(2) / 64.0;
        }
        // 64 numbers: the largest of as many normal ones is below four deviations (0.4 % are not).
        assert!(worst < 4.0 * square.sqrt(), "{worst:e} {square:e}");
    }

    #[test]
    fn equal_results_round_alike_in_a_run_and_others_independently() {
        let third = |seed: u64, x: f64| {
            Rounded::seed(seed);
            Rounded::from_f64(0.1);
            Rounded::from_f64(x).to_f64()
        };
        // As round to nearest does: whatever came before, whatever the sign and the power of two.
        let ups = (0..100).filter(|&seed| {
            let seed = 2 * seed + 1;
            let one = third(seed, 1.0 / 3.0);
            assert_eq!(one, -third(seed, -1.0 / 3.0));
            assert_eq!(one * 4.0, third(seed, 4.0 / 3.0));
            one > 1.0 / 3.0
        });
        let ups = ups.count();
        assert!(0 < ups && ups < 100, "{ups} of 100 runs round up");
        // Results that differ by more than a power of two: the sum of n roundings of variance
        // f·(1 − f), f the share of the spacing that is cut, is normal. Its mean square over 400
        // runs is within five standard errors of 1.
        for step in [1e-3, 1.0 / 3.0, 1.0 + 1.0 / f64::from(1 << 28)] {
            let odd = (1..1000_u32).step_by(2);
            let products: Vec<f64> = odd.map(|i| f64::from(i) * step / 7.0).collect();
            let runs = 400;
            let mut square = 0.0;
            for seed in 0..runs {
                Rounded::seed(seed);
                let (mut sum, mut variance) = (0.0, 0.0);
                for &x in &products {
                    let below = f64::from_bits(x.to_bits() & !F32_CUT);
                    let spacing = (x.log2().floor() - 23.0).exp2();
                    let f = (x - below) / spacing;
                    sum += (Rounded::from_f64(x).to_f64() - x) / spacing;
                    variance += f * (1.0 - f);
                }
                square += sum * sum / variance / runs as f64;
            }
            let error = (2.0 / runs as f64).sqrt();
            assert!((square - 1.0).abs() < 5.0 * error, "{step}: {square}");
        }
    }

    #[test]
    fn what_is_equal_and_opposite_cancels_in_every_other_run() {
        let left = |seed: u64| {
            Rounded::seed(seed);
            let [a, b] = [0.1, 0.7].map(Rounded::from_f64);
            (a * b - b * a).to_f64()
        };
        assert!((0..50).all(|i| left(2 * i + 1) == 0.0));
        let others = (0..50).filter(|i| left(2 * i) != 0.0).count();
        assert!((5..45).contains(&others), "{others} of 50");
        // What is 0 stays so.
        Rounded::seed(2);
        let [zero, x] = [0.0, 0.7].map(Rounded::from_f64);
        assert_eq!((zero * x + zero).to_f64(), 0.0);
    }

    #[test]
    fn a_run_counts_its_roundings_and_repeats_with_its_seed() {
        let run = |seed| {
            Rounded::start(seed, &Granted::CPU);
            let x = Rounded::from_f64(0.1);
            let y = (x * x + x).exp().tanh();
            (y.to_f64(), Rounded::count())
        };
        assert_eq!(run(5), run(5));
        assert_ne!(run(5).0, run(6).0);
        // Rounded: 0.1, the product, the sum, and the two functions with a draw more each.
        assert_eq!(run(5).1, 7);
    }

    #[test]
    fn functions_stay_within_what_is_granted_and_use_it() {
        for granted in [&Granted::CPU, &Granted::WGSL] {
            let mut worst: f64 = 0.0;
            for seed in 0..200 {
                Rounded::start(seed, granted);
                let x = Rounded::from_f64(-1.5);
                let error = (x.exp().to_f64() - (-1.5_f64).exp()).abs();
                let margin = granted.exp.at(1.5, (-1.5_f64).exp());
                // One rounding more.
                assert!(error <= margin + ULP * 0.25);
                worst = worst.max(error / margin);
            }
            assert!(worst > 0.5, "{}: only {worst} of the margin", granted.name);
        }
    }

    /// What layers hand on in f16 ends at 65504 and 2⁻²⁴; gradients do so times the loss scale. In f32 nothing does.
    #[test]
    fn what_is_kept_between_layers_has_the_range_of_its_numbers() {
        let least = 1.0 / 16_777_216.0;
        let kept = |granted: &'static Granted, scale: Option<f64>, x: f64| -> f64 {
            Rounded::start(1, granted);
            let mut values = [Rounded(x)];
            match scale {
                None => sealed::Sealed::keep(&mut values),
                Some(scale) => {
                    Rounded::scale_gradients(scale);
                    sealed::Sealed::keep_gradient(&mut values);
                }
            }
            values[0].0
        };
        for x in [1e-30, 1e-7, 0.5, 7e4] {
            assert_eq!(kept(&Granted::WGSL, None, x), x);
            assert_eq!(kept(&Granted::WGSL, Some(1.0), x), x);
        }
        assert_eq!(kept(&Granted::MIXED, None, 65_504.0), 65_504.0);
        assert_eq!(kept(&Granted::MIXED, None, -65_520.0), f64::NEG_INFINITY);
        assert_eq!(kept(&Granted::MIXED, None, 0.25), 0.25);
        assert_eq!(kept(&Granted::MIXED, None, 3.0 * least), 3.0 * least);
        let between = kept(&Granted::MIXED, None, 3.5 * least) / least;
        assert!(between == 3.0 || between == 4.0, "{between}");
        assert_eq!(kept(&Granted::MIXED, None, 1e-6 * least), 0.0);
        // Times 2²⁰ that is a number, and 1 is none.
        let scale = f64::from(1 << 20);
        let small = 3.0 * least / scale;
        assert_eq!(kept(&Granted::MIXED, Some(scale), small), small);
        assert_eq!(kept(&Granted::MIXED, Some(scale), 1.0), f64::INFINITY);
        Rounded::start(1, &Granted::MIXED);
        sealed::Sealed::keep_gradient(&mut [Rounded(-3.0), Rounded(2.0)]);
        assert_eq!(Rounded::largest_gradient(), 3.0);
    }
}
