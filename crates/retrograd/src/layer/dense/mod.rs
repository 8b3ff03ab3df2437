//! y = x·Wᵀ + b over the last axis, W of shape (out, in).
//!
//! With R rows (samples times leading axes), the loss L, and d_· = ∂L/∂·:
//!
//! - `d_x[r,i] = Σ_o d_y[r,o]·W[o,i]`
//! - `d_W[o,i] = Σ_r d_y[r,o]·x[r,i]`
//! - `d_b[o] = Σ_r d_y[r,o]`

mod cpu;
#[cfg(feature = "gpu")]
mod gpu;
mod reference;
mod spec;

pub use spec::DenseSpec;

use crate::layer::{Backward, Describe, Forward, Layer, TENSORS, TensorSpec, uniform};
use crate::rng::Stream;
use crate::{Kernels, Scalar};

pub(crate) struct Dense {
    pub inputs: usize,
    pub outputs: usize,
    pub bias: bool,
    /// Rows per sample: the product of the leading axes.
    pub rows: usize,
}

impl Describe for Dense {
    fn flops(&self) -> usize {
        2 * self.rows * self.inputs * self.outputs
    }

    #[cfg(feature = "gpu")]
    fn record(&self) -> Option<&dyn crate::gpu::layer::Record> {
        Some(self)
    }

    fn tensors(&self) -> [Option<TensorSpec>; TENSORS] {
        let bias = self.bias.then(|| TensorSpec::new("bias", &[self.outputs]));
        [
            Some(TensorSpec::new("weight", &[self.outputs, self.inputs])),
            bias,
            None,
        ]
    }

    fn init(&self, _: usize, len: usize, stream: &mut Stream) -> Vec<f32> {
        uniform(len, 1.0 / (self.inputs as f64).sqrt(), stream)
    }
}

impl<T: Scalar> Layer<T> for Dense {
    fn forward(&self, io: Forward<'_, T>) {
        let [weight, bias, _] = io.params;
        let rows = io.samples * self.rows;
        if io.pass.kernels == Kernels::Fast
            && let (Some(weight), Some(bias), Some(x)) =
                (T::f32s(weight), T::f32s(bias), T::f32s(io.x))
            && let Some(y) = T::f32s_mut(io.y)
        {
            return cpu::forward(self, rows, weight, bias, x, y);
        }
        reference::forward(self, weight, bias, io.x, io.y);
    }

    fn backward(&self, io: Backward<'_, T>) {
        let [weight, ..] = io.params;
        let [d_weight, d_bias, _] = io.d_params;
        let rows = io.samples * self.rows;
        if io.pass.kernels == Kernels::Fast
            && let (Some(weight), Some(x), Some(d_y)) =
                (T::f32s(weight), T::f32s(io.x), T::f32s(io.d_y))
        {
            let d_weight = d_weight.and_then(T::f32s_mut);
            let d_bias = d_bias.and_then(T::f32s_mut);
            let d_x = io.d_x.and_then(T::f32s_mut);
            return cpu::backward(self, rows, weight, x, d_y, d_weight, d_bias, d_x);
        }
        reference::backward(self, weight, io.x, io.d_y, d_weight, d_bias, io.d_x);
    }
}
