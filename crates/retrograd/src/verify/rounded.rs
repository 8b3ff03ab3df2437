//! The verifier's number: f64 arithmetic whose every result is rounded to f32, up or down, at
//! random.
//!
//! Running the reference several times on it and looking at the spread shows, element by element,
//! how much of a difference rounding can explain: Monte Carlo arithmetic. The chance of rounding
//! up is the share of the interval already covered, so that rounding is right on average and a
//! result that f32 holds exactly stays as it is.

use std::cell::Cell;
use std::iter::Sum;
use std::ops::{Add, AddAssign, Div, DivAssign, Mul, MulAssign, Neg, Sub, SubAssign};

use crate::scalar::{Scalar, sealed};

thread_local! {
    static STATE: Cell<u64> = const { Cell::new(0x9e37_79b9_7f4a_7c15) };
}

/// A number that rounds at random; see the module's text.
#[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd)]
pub struct Rounded(f64);

impl Rounded {
    /// Starts this thread's random roundings anew. Runs with equal seeds are equal.
    pub fn seed(seed: u64) {
        STATE.set(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x5851_f42d_4c95_7f2d);
    }

    /// splitmix64.
    #[inline(always)]
    fn bits() -> u64 {
        let state = STATE.get().wrapping_add(0x9e37_79b9_7f4a_7c15);
        STATE.set(state);
        let z = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z ^ (z >> 31)
    }

    /// f32 keeps 29 bits less of the fraction than f64. Adding a random number below 2²⁹ to the
    /// bits and cutting 29 off rounds the magnitude up with the chance that the cut bits say.
    #[inline(always)]
    fn round(x: f64) -> Self {
        const CUT: u64 = (1 << 29) - 1;
        let bits = x.to_bits();
        if bits & CUT == 0 || !x.is_finite() {
            return Rounded(x);
        }
        Rounded(f64::from_bits((bits + (Self::bits() & CUT)) & !CUT))
    }
}

macro_rules! operator {
    ($trait:ident, $method:ident, $assign:ident, $assign_method:ident) => {
        impl $trait for Rounded {
            type Output = Self;
            #[inline(always)]
            fn $method(self, other: Self) -> Self {
                Self::round(self.0.$method(other.0))
            }
        }
        impl $assign for Rounded {
            #[inline(always)]
            fn $assign_method(&mut self, other: Self) {
                *self = self.$method(other);
            }
        }
    };
}
operator!(Add, add, AddAssign, add_assign);
operator!(Sub, sub, SubAssign, sub_assign);
operator!(Mul, mul, MulAssign, mul_assign);
operator!(Div, div, DivAssign, div_assign);

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

impl sealed::Sealed for Rounded {}

impl Scalar for Rounded {
    const ZERO: Self = Rounded(0.0);
    const ONE: Self = Rounded(1.0);
    const NAME: &'static str = "rounded";
    fn from_f64(x: f64) -> Self {
        Self::round(x)
    }
    fn to_f64(self) -> f64 {
        self.0
    }
    fn exp(self) -> Self {
        Self::round(self.0.exp())
    }
    fn ln(self) -> Self {
        Self::round(self.0.ln())
    }
    fn ln_1p(self) -> Self {
        Self::round(self.0.ln_1p())
    }
    fn tanh(self) -> Self {
        Self::round(self.0.tanh())
    }
    fn sqrt(self) -> Self {
        Self::round(self.0.sqrt())
    }
    fn erf(self) -> Self {
        Self::round(libm::erf(self.0))
    }
    fn sigmoid(self) -> Self {
        Self::ONE / (Self::ONE + (-self).exp())
    }
    fn abs(self) -> Self {
        Rounded(self.0.abs())
    }
}
