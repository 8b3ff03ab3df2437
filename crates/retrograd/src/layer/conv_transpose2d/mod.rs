//! Transposed convolution, W of shape (in, out, k, k): the adjoint of a convolution of the same
//! stride s and padding p from (out) to (in) channels.
//!
//! `y[n,o, s·r + u − p, s·c + v − p] += W[i,o,u,v] · x[n,i,r,c]`, plus `b[o]`; the output measures
//! (H−1)·s − 2p + k.
//!
//! - `d_x[n,i,r,c] = Σ_ouv W[i,o,u,v] · d_y[n,o, s·r + u − p, s·c + v − p]`
//! - `d_W[i,o,u,v] = Σ_nrc x[n,i,r,c] · d_y[n,o, s·r + u − p, s·c + v − p]`
//! - `d_b[o] = Σ d_y[n,o,·,·]`
//!
//! Positions outside the output are left out.
//!
//! In f32 the kernels of the convolution that this is the adjoint of do the work: forward is its
//! input gradient, and the other way round.

#[cfg(feature = "gpu")]
pub(crate) mod gpu;
mod onnx;
mod reference;
mod spec;

pub use spec::ConvTranspose2dSpec;

use crate::layer::conv2d::tile::Source;
use crate::layer::conv2d::{Conv2d, cpu};
use crate::layer::{Backward, Describe, Forward, Layer, TensorSpec, uniform};
use crate::network::PaddingMode;
use crate::rng::Stream;
use crate::{Kernels, Scalar};

#[derive(Clone)]
pub(crate) struct ConvTranspose2d {
    pub inputs: usize,
    pub outputs: usize,
    pub height: usize,
    pub width: usize,
    pub kernel: usize,
    pub stride: usize,
    pub padding: usize,
    pub bias: bool,
}

impl ConvTranspose2d {
    pub fn out_height(&self) -> usize {
        (self.height - 1) * self.stride + self.kernel - 2 * self.padding
    }

    pub fn out_width(&self) -> usize {
        (self.width - 1) * self.stride + self.kernel - 2 * self.padding
    }
}

impl Describe for ConvTranspose2d {
    fn to_onnx(&self) -> Option<&dyn crate::onnx::ToOnnx> {
        Some(self)
    }

    #[cfg(feature = "gpu")]
    fn record(&self) -> Option<&dyn crate::gpu::layer::Record> {
        Some(self)
    }

    fn tensors(&self) -> Vec<Option<TensorSpec>> {
        let shape = [self.inputs, self.outputs, self.kernel, self.kernel];
        let bias = self.bias.then(|| TensorSpec::new("bias", &[self.outputs]));
        vec![Some(TensorSpec::new("weight", &shape)), bias]
    }

    fn init(&self, _: usize, len: usize, stream: &mut Stream) -> Vec<f32> {
        // PyTorch takes the second axis for the fan-in of a transposed convolution.
        let fan_in = self.outputs * self.kernel * self.kernel;
        uniform(len, 1.0 / (fan_in as f64).sqrt(), stream)
    }
}

impl ConvTranspose2d {
    /// The convolution from our output to our input whose adjoint this is.
    fn adjoint(&self) -> Conv2d {
        Conv2d {
            inputs: self.outputs,
            outputs: self.inputs,
            height: self.out_height(),
            width: self.out_width(),
            kernel: self.kernel,
            stride: self.stride,
            padding: self.padding,
            padding_mode: PaddingMode::Zeros,
            dilation: 1,
            groups: 1,
            bias: false,
        }
    }
}

impl<T: Scalar> Layer<T> for ConvTranspose2d {
    fn forward(&self, io: Forward<'_, T>) {
        if io.pass.kernels == Kernels::Fast
            && let [Some(weight), Some(bias), Some(x)] =
                [io.params[0], io.params[1], io.x].map(T::f32s)
            && let Some(y) = T::f32s_mut(io.y)
        {
            let x = Source::plain(x);
            return cpu::backward_input(&self.adjoint(), io.samples, weight, bias, x, y);
        }
        reference::forward(self, io);
    }

    fn backward(&self, io: Backward<'_, T>) {
        if io.pass.kernels == Kernels::Fast
            && let [Some(weight), Some(x), Some(d_y)] = [io.params[0], io.x, io.d_y].map(T::f32s)
        {
            let conv = self.adjoint();
            let Some(bordered) = T::f32_vec(&mut io.saved.values) else {
                return;
            };
            if let Some(d_x) = io.d_x.and_then(T::f32s_mut) {
                cpu::forward(&conv, io.samples, weight, &[], d_y, false, bordered, d_x);
            } else if self.stride > 1 {
                bordered.resize(cpu::bordered_len(&conv, io.samples), 0.0);
                cpu::border(&conv, d_y, bordered);
            }
            let [d_weight, d_bias, ..] = io.d_params.map(|d| d.and_then(T::f32s_mut));
            let x = Source::plain(x);
            cpu::backward_weight(&conv, io.samples, d_y, bordered, x, d_weight, None);
            if let Some(d_bias) = d_bias {
                cpu::bias_gradient(io.samples, self.outputs, d_y, d_bias);
            }
            return;
        }
        reference::backward(self, io);
    }
}
