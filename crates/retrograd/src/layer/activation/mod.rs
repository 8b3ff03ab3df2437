//! Activation functions.
//!
//! | | value | derivative |
//! |---|---|---|
//! | `relu` | max(x, 0) | \[x > 0\] |
//! | `leaky_relu` | x for x > 0, else s·x | 1 for x > 0, else s |
//! | `elu` | x for x > 0, else α·(eˣ − 1) | 1 for x > 0, else α·eˣ = y + α |
//! | `silu` | x·σ(x) | σ(x)·(1 + x·(1 − σ(x))) |
//! | `gelu` | x·Φ(x), Φ(x) = (1 + erf(x/√2))/2 | Φ(x) + x·e^(−x²/2)/√(2π) |
//! | `tanh` | tanh x | 1 − tanh² x |
//! | `sigmoid` | σ(x) | σ(x)(1 − σ(x)) |
//!
//! At the kink of the ReLUs (and of `elu` where α is not 1) the derivative is that of the left
//! side, as in PyTorch. eˣ − 1 is computed as 2t/(1 − t) with t = tanh(x/2): left of 0 nothing
//! cancels in it.

mod cpu;
pub(crate) mod faults;
#[cfg(feature = "gpu")]
pub(crate) mod gpu;
mod onnx;
mod spec;

pub use spec::{EluSpec, GeluSpec, LeakyReluSpec, ReluSpec, SigmoidSpec, SiluSpec, TanhSpec};

use serde::{Deserialize, Serialize};

use crate::layer::{Backward, Describe, Forward, Layer, Seen, sized};
use crate::{Kernels, Pass, Scalar};

/// An elementwise function.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Activation {
    /// x itself.
    Identity,
    /// max(x, 0).
    Relu,
    /// x where positive, else `slope`·x.
    LeakyRelu {
        /// The slope left of 0.
        slope: f64,
    },
    /// x where positive, else `alpha`·(eˣ − 1).
    Elu {
        /// Minus the limit to the left.
        alpha: f64,
    },
    /// x·σ(x).
    Silu,
    /// x·Φ(x), exact.
    Gelu,
    /// Hyperbolic tangent.
    Tanh,
    /// Logistic function.
    Sigmoid,
}

impl Activation {
    /// Its value.
    #[inline(always)]
    pub fn value<T: Scalar>(self, x: T) -> T {
        match self {
            Activation::Identity => x,
            Activation::Relu => x.max(T::ZERO),
            Activation::LeakyRelu { slope } => {
                if x > T::ZERO {
                    x
                } else {
                    T::from_f64(slope) * x
                }
            }
            Activation::Elu { alpha } => {
                if x > T::ZERO {
                    x
                } else {
                    let t = (T::from_f64(0.5) * x).tanh();
                    T::from_f64(2.0 * alpha) * t / (T::ONE - t)
                }
            }
            Activation::Silu => x * x.sigmoid(),
            Activation::Gelu => x * normal_cdf(x),
            Activation::Tanh => x.tanh(),
            Activation::Sigmoid => x.sigmoid(),
        }
    }

    /// Its derivative at x, where the value is y.
    #[inline(always)]
    pub fn slope<T: Scalar>(self, x: T, y: T) -> T {
        match self {
            Activation::Identity => T::ONE,
            Activation::Relu => {
                if x > T::ZERO {
                    T::ONE
                } else {
                    T::ZERO
                }
            }
            Activation::LeakyRelu { slope } => {
                if x > T::ZERO {
                    T::ONE
                } else {
                    T::from_f64(slope)
                }
            }
            Activation::Elu { alpha } => {
                if x > T::ZERO {
                    T::ONE
                } else {
                    y + T::from_f64(alpha)
                }
            }
            Activation::Silu => {
                let s = x.sigmoid();
                s * (T::ONE + x * (T::ONE - s))
            }
            Activation::Gelu => {
                let half = T::from_f64(0.5);
                let density = T::from_f64(FRAC_1_SQRT_TAU) * (-(half * x * x)).exp();
                normal_cdf(x) + x * density
            }
            Activation::Tanh => T::ONE - y * y,
            Activation::Sigmoid => y * (T::ONE - y),
        }
    }

    /// Whether the derivative jumps somewhere (at 0).
    pub fn has_kink(self) -> bool {
        match self {
            Activation::Relu | Activation::LeakyRelu { .. } => true,
            Activation::Elu { alpha } => alpha != 1.0,
            _ => false,
        }
    }

    /// Appends which side of the kink each x is on.
    pub fn pattern<T: Scalar>(self, x: &[T], pattern: &mut Vec<u32>) {
        if self.has_kink() {
            pattern.extend(x.iter().map(|&x| u32::from(x > T::ZERO)));
        }
    }

    /// y = f(x) for whole slices, with the fast kernel where there is one.
    pub fn forward<T: Scalar>(self, x: &[T], y: &mut [T], kernels: Kernels) {
        if kernels == Kernels::Fast
            && let (Some(x), Some(y)) = (T::f32s(x), T::f32s_mut(y))
        {
            return cpu::forward(self, x, y);
        }
        for (y, &x) in y.iter_mut().zip(x) {
            *y = self.value(x);
        }
    }

    /// d_x = d_y · f′(x) for whole slices.
    pub fn backward<T: Scalar>(self, x: &[T], y: &[T], d_y: &[T], d_x: &mut [T], kernels: Kernels) {
        if kernels == Kernels::Fast
            && let (Some(x), Some(y), Some(d_y)) = (T::f32s(x), T::f32s(y), T::f32s(d_y))
            && let Some(d_x) = T::f32s_mut(d_x)
        {
            return cpu::backward(self, x, y, d_y, d_x);
        }
        for (((d_x, &x), &y), &d_y) in d_x.iter_mut().zip(x).zip(y).zip(d_y) {
            *d_x = d_y * self.slope(x, y);
        }
    }
}

/// 1/√(2π)
const FRAC_1_SQRT_TAU: f64 = 0.398_942_280_401_432_7;

/// Φ(x) = (1 + erf(x/√2))/2
#[inline(always)]
fn normal_cdf<T: Scalar>(x: T) -> T {
    T::from_f64(0.5) * (T::ONE + (x * T::from_f64(std::f64::consts::FRAC_1_SQRT_2)).erf())
}

impl Describe for Activation {
    fn to_onnx(&self) -> Option<&dyn crate::onnx::ToOnnx> {
        Some(self)
    }

    fn is_relu(&self) -> bool {
        *self == Activation::Relu
    }

    #[cfg(feature = "gpu")]
    fn record(&self) -> Option<&dyn crate::gpu::layer::Record> {
        Some(self)
    }
}

impl<T: Scalar> Layer<T> for Activation {
    fn forward(&self, io: Forward<'_, T>) {
        if self.keeps_slopes(io.pass)
            && let (Some(x), Some(y)) = (T::f32s(io.x), T::f32s_mut(io.y))
            && let Some(slopes) = T::f32s_mut(sized(&mut io.saved.values, io.x.len()))
        {
            return cpu::forward_with_slopes(*self, x, y, slopes);
        }
        Activation::forward(*self, io.x, io.y, io.pass.kernels);
    }

    fn backward(&self, io: Backward<'_, T>) {
        let Some(d_x) = io.d_x else { return };
        if self.keeps_slopes(io.pass)
            && let (Some(slopes), Some(d_y)) = (T::f32s(&io.saved.values), T::f32s(io.d_y))
            && let Some(d_x) = T::f32s_mut(d_x)
        {
            return cpu::multiply(slopes, d_y, d_x);
        }
        Activation::backward(*self, io.x, io.y, io.d_y, d_x, io.pass.kernels);
    }

    fn pattern(&self, seen: Seen<'_, T>, pattern: &mut Vec<u32>) {
        Activation::pattern(*self, seen.x, pattern);
    }
}

impl Activation {
    /// Where value and slope share most of their work, the fast forward of a training step keeps
    /// the slopes for backward.
    fn keeps_slopes(self, pass: &Pass) -> bool {
        pass.training
            && pass.kernels == Kernels::Fast
            && matches!(self, Activation::Silu | Activation::Gelu)
    }
}
