//! The numbers that a model can be computed in.
//!
//! Reference code is written once, generic over [`Scalar`], and run in f32, in f64 (the oracle),
//! in [`Rounded`](crate::verify::Rounded), the verifier's number that rounds every result to
//! f32 at random, and in [`Dual`](crate::verify::Dual), which carries a slope.

use crate::math::{self, single};
use std::fmt::Debug;
use std::iter::Sum;
use std::ops::{Add, AddAssign, Div, DivAssign, Mul, MulAssign, Neg, Sub, SubAssign};

#[allow(private_interfaces, reason = "nobody outside can call or fulfil it")]
pub(crate) mod sealed {
    use crate::layer::{AnyLayer, Layer};

    /// Keeps the trait to ourselves, and finds a layer's kernels for the scalar.
    pub trait Sealed: Sized {
        #[doc(hidden)]
        fn layer(any: &dyn AnyLayer) -> &dyn Layer<Self>;

        /// Told of values that stay between layers, for a number whose device keeps them in fewer bits.
        #[doc(hidden)]
        #[inline(always)]
        fn keep(values: &mut [Self]) {
            let _ = values;
        }

        /// And of their gradients.
        #[doc(hidden)]
        #[inline(always)]
        fn keep_gradient(values: &mut [Self]) {
            let _ = values;
        }
    }
    impl Sealed for f32 {
        fn layer(any: &dyn AnyLayer) -> &dyn Layer<Self> {
            any
        }
    }
    impl Sealed for f64 {
        fn layer(any: &dyn AnyLayer) -> &dyn Layer<Self> {
            any
        }
    }
}

/// A number that models are computed in: f32, f64, or the verifier's
/// [`Rounded`](crate::verify::Rounded) and [`Dual`](crate::verify::Dual). Sealed.
pub trait Scalar:
    sealed::Sealed
    + Copy
    + Default
    + Debug
    + PartialEq
    + PartialOrd
    + Add<Output = Self>
    + Sub<Output = Self>
    + Mul<Output = Self>
    + Div<Output = Self>
    + Neg<Output = Self>
    + AddAssign
    + SubAssign
    + MulAssign
    + DivAssign
    + Sum
    + Send
    + Sync
    + 'static
{
    /// 0
    const ZERO: Self;
    /// 1
    const ONE: Self;
    /// The name in reports.
    const NAME: &'static str;
    /// Whether its results are rounded on purpose, to see what rounding can explain.
    const ROUNDS: bool = false;

    /// The nearest number (for the verifier's number: one of the two nearest).
    fn from_f64(x: f64) -> Self;
    /// The value, exactly.
    fn to_f64(self) -> f64;
    /// e to the power of this.
    fn exp(self) -> Self;
    /// The natural logarithm.
    fn ln(self) -> Self;
    /// ln(1 + this), exact near 0.
    fn ln_1p(self) -> Self;
    /// The hyperbolic tangent.
    fn tanh(self) -> Self;
    /// The square root.
    fn sqrt(self) -> Self;
    /// The error function.
    fn erf(self) -> Self;
    /// The logistic function 1 / (1 + e⁻ˣ).
    fn sigmoid(self) -> Self;
    /// The magnitude.
    fn abs(self) -> Self;
    /// The sine of an angle in radians.
    fn sin(self) -> Self;
    /// The cosine of an angle in radians.
    fn cos(self) -> Self;
    /// This to the power of another.
    fn pow(self, exponent: Self) -> Self;

    /// The slice itself where the scalar is f32, the door to the fast kernels.
    fn f32s(x: &[Self]) -> Option<&[f32]> {
        let _ = x;
        None
    }
    /// The slice itself where the scalar is f32, the door to the fast kernels.
    fn f32s_mut(x: &mut [Self]) -> Option<&mut [f32]> {
        let _ = x;
        None
    }

    /// The vector itself where the scalar is f32: workspaces of the fast kernels that grow.
    fn f32_vec(x: &mut Vec<Self>) -> Option<&mut Vec<f32>> {
        let _ = x;
        None
    }

    /// From a count.
    fn from_usize(n: usize) -> Self {
        Self::from_f64(n as f64)
    }
    /// The larger of two.
    fn max(self, other: Self) -> Self {
        if self >= other { self } else { other }
    }
    /// The smaller of two.
    fn min(self, other: Self) -> Self {
        if self <= other { self } else { other }
    }
    /// Neither NaN nor infinite.
    fn is_finite(self) -> bool {
        self.to_f64().is_finite()
    }
}

// Inlined always: a call in the middle of a loop that was compiled for wider vectors keeps the
// loop from becoming vectors.
macro_rules! impl_float {
    ($t:ident, $functions:ident) => {
        impl Scalar for $t {
            const ZERO: Self = 0.0;
            const ONE: Self = 1.0;
            const NAME: &'static str = stringify!($t);
            #[inline(always)]
            fn from_f64(x: f64) -> Self {
                x as $t
            }
            #[inline(always)]
            fn to_f64(self) -> f64 {
                f64::from(self)
            }
            #[inline(always)]
            fn exp(self) -> Self {
                $functions::exp(self)
            }
            #[inline(always)]
            fn ln(self) -> Self {
                $functions::ln(self)
            }
            #[inline(always)]
            fn ln_1p(self) -> Self {
                $functions::ln_1p(self)
            }
            #[inline(always)]
            fn tanh(self) -> Self {
                $functions::tanh(self)
            }
            #[inline(always)]
            fn sqrt(self) -> Self {
                $t::sqrt(self)
            }
            #[inline(always)]
            fn erf(self) -> Self {
                $functions::erf(self)
            }
            #[inline(always)]
            fn sigmoid(self) -> Self {
                1.0 / (1.0 + $functions::exp(-self))
            }
            #[inline(always)]
            fn abs(self) -> Self {
                $t::abs(self)
            }
            #[inline(always)]
            fn sin(self) -> Self {
                $functions::sin(self)
            }
            #[inline(always)]
            fn cos(self) -> Self {
                $functions::cos(self)
            }
            #[inline(always)]
            fn pow(self, exponent: Self) -> Self {
                $functions::powf(self, exponent)
            }
            impl_float!(@fast $t);
        }
    };
    (@fast f32) => {
        #[inline(always)]
        fn f32s(x: &[Self]) -> Option<&[f32]> {
            Some(x)
        }
        #[inline(always)]
        fn f32s_mut(x: &mut [Self]) -> Option<&mut [f32]> {
            Some(x)
        }
        #[inline(always)]
        fn f32_vec(x: &mut Vec<Self>) -> Option<&mut Vec<f32>> {
            Some(x)
        }
    };
    (@fast f64) => {};
}
impl_float!(f32, single);
impl_float!(f64, math);

/// A slice in another scalar.
pub fn cast<T: Scalar, U: Scalar>(x: &[T]) -> Vec<U> {
    x.iter().map(|&v| U::from_f64(v.to_f64())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verify::Rounded;

    /// The three scalars agree: f32 to its rounding, the verifier's number to one of the two nearest.
    #[test]
    fn sine_cosine_and_powers_agree_in_every_scalar() {
        for (x, y) in [(0.5, 2.0), (1.25, -1.5), (3.0, 0.5), (2.0, 0.0)] {
            let exact = [f64::sin(x), f64::cos(x), f64::powf(x, y)];
            let functions = |x: f64, y: f64| {
                fn of<T: Scalar>(x: f64, y: f64) -> [f64; 3] {
                    let x = T::from_f64(x);
                    [x.sin(), x.cos(), x.pow(T::from_f64(y))].map(T::to_f64)
                }
                [of::<f32>(x, y), of::<f64>(x, y), of::<Rounded>(x, y)]
            };
            for (scalar, found) in functions(x, y).iter().enumerate() {
                for (found, exact) in found.iter().zip(exact) {
                    // f32's functions are within an ULP of 2⁻²³; rounding up or down within one too.
                    let bound = if scalar == 1 {
                        0.0
                    } else {
                        2.4e-7 * exact.abs()
                    };
                    assert!((found - exact).abs() <= bound, "{found} {exact} ({scalar})");
                }
            }
        }
    }
}
