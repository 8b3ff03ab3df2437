//! y = x·Wᵀ + b over the last axis, W of shape (out, in).
//!
//! With R rows (samples times leading axes), the loss L, and d_· = ∂L/∂·:
//!
//! - `d_x[r,i] = Σ_o d_y[r,o]·W[o,i]`
//! - `d_W[o,i] = Σ_r d_y[r,o]·x[r,i]`
//! - `d_b[o] = Σ_r d_y[r,o]`
//!
//! In graph networks W is stored `[in][out]`: a non-zero of sparse features then reads one contiguous
//! row of it. Sparse x goes to the kernels of the graph's own maps.

mod cpu;
#[cfg(feature = "gpu")]
mod fused;
#[cfg(feature = "gpu")]
pub(crate) mod gpu;
#[cfg(feature = "gpu")]
pub(crate) mod map;
mod onnx;
mod reference;
mod spec;

pub use spec::DenseSpec;

use crate::graph::ops::Linear;
use crate::layer::gemm::Stride;
use crate::layer::graph::Returning;
use crate::layer::{Backward, Describe, Forward, Layer, TensorSpec, transposed, uniform};
use crate::rng::Stream;
use crate::{Kernels, Scalar};

pub(crate) struct Dense {
    pub inputs: usize,
    pub outputs: usize,
    pub bias: bool,
    /// Rows per sample: the product of the leading axes.
    pub rows: usize,
    /// Whether W is stored `[in][out]`, as graph networks do.
    pub by_input: bool,
}

impl Dense {
    /// The steps from one output, and from one input, to the next in W.
    fn steps(&self) -> [usize; 2] {
        match self.by_input {
            true => [1, self.outputs],
            false => [self.inputs, 1],
        }
    }

    /// Wᵀ, inputs × outputs, as products take it.
    fn stride(&self) -> Stride {
        match self.by_input {
            true => Stride::rows(self.outputs),
            false => Stride::transposed(self.inputs),
        }
    }

    /// The same map on sparse rows.
    fn on_sparse(&self) -> Linear {
        Linear {
            bias: self.bias.then_some(1),
            ..Linear::new(0, self.inputs, self.outputs)
        }
    }
}

impl Describe for Dense {
    fn joins_shards(&self) -> bool {
        true
    }

    fn to_onnx(&self) -> Option<&dyn crate::onnx::ToOnnx> {
        Some(self)
    }

    fn flops(&self) -> usize {
        2 * self.rows * self.inputs * self.outputs
    }

    #[cfg(feature = "gpu")]
    fn record(&self) -> Option<&dyn crate::gpu::layer::Record> {
        Some(self)
    }

    fn tensors(&self) -> Vec<Option<TensorSpec>> {
        let weight = TensorSpec::new("weight", &[self.outputs, self.inputs]);
        let weight = match self.by_input {
            true => weight.stored(&[1, 0]),
            false => weight,
        };
        let bias = self.bias.then(|| TensorSpec::new("bias", &[self.outputs]));
        vec![Some(weight), bias]
    }

    /// Drawn in the order that they are stored in.
    fn init(&self, slot: usize, len: usize, stream: &mut Stream) -> Vec<f32> {
        let values = uniform(len, 1.0 / (self.inputs as f64).sqrt(), stream);
        match self.by_input && slot == 0 {
            true => transposed(&values, self.inputs, self.outputs),
            false => values,
        }
    }

    fn reads_sparse(&self) -> bool {
        self.by_input
    }
}

impl<T: Scalar> Layer<T> for Dense {
    fn forward(&self, io: Forward<'_, T>) {
        if io.around.sparse.is_some() {
            let (c, x, y, ()) = io.on_graph();
            return self.on_sparse().forward(&c, x, y, false);
        }
        let [weight, bias, ..] = io.params;
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
        if io.around.sparse.is_some() {
            let Returning {
                mut b,
                x,
                d_y,
                d_x,
                saved: (),
            } = io.on_graph();
            let linear = self.on_sparse();
            linear.backward_params(&mut b, x, d_y);
            if let Some(d_x) = d_x {
                linear.backward_input(&b.c, x, d_y, d_x, false);
            }
            return;
        }
        let [weight, ..] = io.params;
        let [d_weight, d_bias, ..] = io.d_params;
        let rows = io.samples * self.rows;
        if io.pass.kernels == Kernels::Fast
            && let (Some(weight), Some(x), Some(d_y)) =
                (T::f32s(weight), T::f32s(io.x), T::f32s(io.d_y))
        {
            let d_weight = d_weight.and_then(T::f32s_mut);
            let d_bias = d_bias.and_then(T::f32s_mut);
            let d_x = io.d_x.and_then(T::f32s_mut);
            let segments = io.pass.segments_of(io.samples, self.rows);
            return cpu::backward(self, rows, weight, x, d_y, d_weight, d_bias, d_x, segments);
        }
        reference::backward(self, weight, io.x, io.d_y, d_weight, d_bias, io.d_x);
    }
}
