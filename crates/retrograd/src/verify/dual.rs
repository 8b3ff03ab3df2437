//! Numbers that carry their slope along a direction: x + ε·x′ with ε² = 0.
//!
//! A forward pass on them gives the derivative of its result along that direction, by the rules of
//! calculus applied to each operation: exact up to f64's rounding, without a step, and without any code of a
//! backward pass. Where central differences cannot resolve a derivative (a gradient that is far below the
//! loss's rounding over the step, a kink nearby) this one can: a kink has the slope of the side that
//! the forward pass took.

use std::cmp::Ordering;
use std::iter::Sum;
use std::ops::{Add, AddAssign, Div, DivAssign, Mul, MulAssign, Neg, Sub, SubAssign};

use crate::layer::{AnyLayer, Layer};
use crate::math;
use crate::scalar::{Scalar, sealed};

/// A value and its slope.
#[derive(Clone, Copy, Debug, Default)]
pub struct Dual {
    /// x.
    pub value: f64,
    /// x′.
    pub slope: f64,
}

impl Dual {
    /// f(x) with f′(x). Where x does not move nothing does, whatever f′ is.
    fn chain(self, value: f64, derivative: f64) -> Self {
        let slope = match self.slope == 0.0 {
            true => 0.0,
            false => self.slope * derivative,
        };
        Dual { value, slope }
    }
}

/// Compared by their values: which way a branch goes is no matter of slopes.
impl PartialEq for Dual {
    fn eq(&self, other: &Self) -> bool {
        self.value == other.value
    }
}

impl PartialOrd for Dual {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        self.value.partial_cmp(&other.value)
    }
}

macro_rules! operator {
    ($trait:ident, $method:ident, $assign:ident, $assign_method:ident,
     |$a:ident, $b:ident| $value:expr, $slope:expr) => {
        impl $trait for Dual {
            type Output = Self;
            #[inline]
            fn $method(self, other: Self) -> Self {
                let ($a, $b) = (self, other);
                Dual {
                    value: $value,
                    slope: $slope,
                }
            }
        }
        impl $assign for Dual {
            #[inline]
            fn $assign_method(&mut self, other: Self) {
                *self = self.$method(other);
            }
        }
    };
}
operator!(
    Add,
    add,
    AddAssign,
    add_assign,
    |a, b| a.value + b.value,
    a.slope + b.slope
);
operator!(
    Sub,
    sub,
    SubAssign,
    sub_assign,
    |a, b| a.value - b.value,
    a.slope - b.slope
);
operator!(
    Mul,
    mul,
    MulAssign,
    mul_assign,
    |a, b| a.value * b.value,
    a.slope * b.value + a.value * b.slope
);
operator!(
    Div,
    div,
    DivAssign,
    div_assign,
    |a, b| a.value / b.value,
    (a.slope - a.value / b.value * b.slope) / b.value
);

impl Neg for Dual {
    type Output = Self;
    fn neg(self) -> Self {
        Dual {
            value: -self.value,
            slope: -self.slope,
        }
    }
}

impl Sum for Dual {
    fn sum<I: Iterator<Item = Self>>(iter: I) -> Self {
        iter.fold(Dual::default(), |a, b| a + b)
    }
}

#[allow(private_interfaces, reason = "nobody outside can call it")]
impl sealed::Sealed for Dual {
    fn layer(any: &dyn AnyLayer) -> &dyn Layer<Self> {
        any
    }
}

impl Scalar for Dual {
    const ZERO: Self = Dual {
        value: 0.0,
        slope: 0.0,
    };
    const ONE: Self = Dual {
        value: 1.0,
        slope: 0.0,
    };
    const NAME: &'static str = "dual";
    fn from_f64(x: f64) -> Self {
        Dual {
            value: x,
            slope: 0.0,
        }
    }
    fn to_f64(self) -> f64 {
        self.value
    }
    fn exp(self) -> Self {
        let y = math::exp(self.value);
        self.chain(y, y)
    }
    fn ln(self) -> Self {
        self.chain(math::ln(self.value), 1.0 / self.value)
    }
    fn ln_1p(self) -> Self {
        self.chain(math::ln_1p(self.value), 1.0 / (1.0 + self.value))
    }
    fn tanh(self) -> Self {
        let y = math::tanh(self.value);
        // 1 − tanh² where tanh is close to 1, without cancelling.
        let e = math::exp(-2.0 * self.value.abs());
        self.chain(y, 4.0 * e / ((1.0 + e) * (1.0 + e)))
    }
    fn sqrt(self) -> Self {
        let y = self.value.sqrt();
        self.chain(y, 0.5 / y)
    }
    fn erf(self) -> Self {
        let slope = std::f64::consts::FRAC_2_SQRT_PI * math::exp(-self.value * self.value);
        self.chain(math::erf(self.value), slope)
    }
    fn sigmoid(self) -> Self {
        let e = math::exp(-self.value.abs());
        let slope = e / ((1.0 + e) * (1.0 + e));
        self.chain(1.0 / (1.0 + math::exp(-self.value)), slope)
    }
    fn abs(self) -> Self {
        match self.value < 0.0 {
            true => -self,
            false => self,
        }
    }
    fn sin(self) -> Self {
        self.chain(math::sin(self.value), math::cos(self.value))
    }
    fn cos(self) -> Self {
        self.chain(math::cos(self.value), -math::sin(self.value))
    }
    fn pow(self, exponent: Self) -> Self {
        let (x, n) = (self.value, exponent.value);
        let y = math::powf(x, n);
        let of_base = self.chain(y, n * math::powf(x, n - 1.0));
        let of_exponent = exponent.chain(y, y * math::ln(x));
        Dual {
            value: y,
            slope: of_base.slope + of_exponent.slope,
        }
    }
    fn is_finite(self) -> bool {
        self.value.is_finite()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every function and operator against a central difference. Its error is h²·f‴/6 and what rounding makes of the
    /// difference; with twice the step the first is four times as large.
    #[test]
    fn slopes_are_those_of_differences() {
        type Function = fn(Dual) -> Dual;
        let functions: [(&str, Function); 14] = [
            ("exp", Scalar::exp),
            ("ln", Scalar::ln),
            ("ln_1p", Scalar::ln_1p),
            ("tanh", Scalar::tanh),
            ("sqrt", Scalar::sqrt),
            ("erf", Scalar::erf),
            ("sigmoid", Scalar::sigmoid),
            ("abs", |x| (-x).abs()),
            ("sin", Scalar::sin),
            ("cos", Scalar::cos),
            ("power", |x| x.pow(Dual::from_f64(2.5))),
            ("exponent", |x| Dual::from_f64(2.5).pow(x)),
            ("quotient", |x| (x + Dual::ONE) / (x * x)),
            ("difference", |x| x * x * x - x),
        ];
        let h = 1e-5;
        for (name, f) in functions {
            for x in [0.3, 0.9, 1.7] {
                let at = |x: f64| f(Dual::from_f64(x)).value;
                let of_step = |h: f64| (at(x + h) - at(x - h)) / (2.0 * h);
                let (difference, wider) = (of_step(h), of_step(2.0 * h));
                let rounding = 4.0 * f64::EPSILON * (1.0 + at(x).abs()) / h;
                let slope = f(Dual {
                    value: x,
                    slope: 1.0,
                })
                .slope;
                let error = (slope - difference).abs();
                assert!(
                    error <= 0.5 * (wider - difference).abs() + rounding,
                    "{name} at {x}: {slope} {difference}"
                );
            }
        }
    }

    #[test]
    fn what_does_not_move_stays_where_functions_are_steep() {
        let zero = Dual::ZERO;
        assert_eq!((zero.sqrt().slope, zero.ln().slope), (0.0, 0.0));
    }
}
