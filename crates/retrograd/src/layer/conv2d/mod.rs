//! Convolution over height and width (cross-correlation, as PyTorch), W of shape
//! (out, in/groups, k, k).
//!
//! With x̄ the padded input, s the stride, d the dilation and I(o) the input channels of the group
//! of output channel o:
//!
//! `y[n,o,r,c] = b[o] + Σ_{i∈I(o)} Σ_uv W[o,i,u,v] · x̄[n,i, s·r + d·u, s·c + d·v]`
//!
//! - `d_W[o,i,u,v] = Σ_nrc d_y[n,o,r,c] · x̄[n,i, s·r + d·u, s·c + d·v]`
//! - `d_b[o] = Σ_nrc d_y[n,o,r,c]`
//! - `d_x̄[n,i, s·r + d·u, s·c + d·v] += W[o,i,u,v] · d_y[n,o,r,c]`, and d_x is the adjoint of the
//!   padding applied to d_x̄: cut off for zeros, added back to the mirrored pixel for `reflect`.

#[cfg(feature = "gpu")]
pub(crate) mod blocks;
pub(crate) mod cpu;
#[cfg(feature = "gpu")]
pub(crate) mod gpu;
mod onnx;
mod reference;
mod spec;
pub(crate) mod stack;
mod sums;
pub(crate) mod taps;
#[cfg(test)]
mod tests;
pub(crate) mod tile;
pub(crate) mod winograd;

pub use spec::Conv2dSpec;

use crate::layer::{Backward, Describe, Forward, Layer, TensorSpec, uniform};
use crate::network::PaddingMode;
use crate::rng::Stream;
use crate::{Kernels, Scalar};

#[derive(Clone)]
pub(crate) struct Conv2d {
    pub inputs: usize,
    pub outputs: usize,
    pub height: usize,
    pub width: usize,
    pub kernel: usize,
    pub stride: usize,
    pub padding: usize,
    pub padding_mode: PaddingMode,
    pub dilation: usize,
    pub groups: usize,
    pub bias: bool,
}

impl Conv2d {
    /// The padded height and width.
    pub fn padded(&self) -> (usize, usize) {
        (
            self.height + 2 * self.padding,
            self.width + 2 * self.padding,
        )
    }

    /// Pixels that the kernel spans.
    pub fn span(&self) -> usize {
        self.dilation * (self.kernel - 1) + 1
    }

    pub fn out_height(&self) -> usize {
        (self.padded().0 - self.span()) / self.stride + 1
    }

    pub fn out_width(&self) -> usize {
        (self.padded().1 - self.span()) / self.stride + 1
    }

    /// Whether the border shows the image, mirrored.
    pub fn mirrors(&self) -> bool {
        self.padding_mode == PaddingMode::Reflect && self.padding > 0
    }

    /// Whether the fast kernels compute it in [Winograd's form](winograd).
    fn transformed(&self, samples: usize) -> bool {
        self.stride == 1 && winograd::takes(&cpu::correlation(self, samples))
    }

    /// The pixel that the padded coordinate shows, if any.
    pub fn source(&self, padded: usize, size: usize) -> Option<usize> {
        let at = padded as isize - self.padding as isize;
        let last = size as isize - 1;
        match self.padding_mode {
            PaddingMode::Zeros => (0..=last).contains(&at).then_some(at as usize),
            PaddingMode::Reflect if at < 0 => Some((-at) as usize),
            PaddingMode::Reflect if at > last => Some((2 * last - at) as usize),
            PaddingMode::Reflect => Some(at as usize),
        }
    }
}

impl Describe for Conv2d {
    fn to_onnx(&self) -> Option<&dyn crate::onnx::ToOnnx> {
        Some(self)
    }

    fn flops(&self) -> usize {
        let each = self.inputs / self.groups * self.kernel * self.kernel;
        2 * each * self.outputs * self.out_height() * self.out_width()
    }

    #[cfg(feature = "gpu")]
    fn record(&self) -> Option<&dyn crate::gpu::layer::Record> {
        Some(self)
    }

    fn tensors(&self) -> Vec<Option<TensorSpec>> {
        let shape = [
            self.outputs,
            self.inputs / self.groups,
            self.kernel,
            self.kernel,
        ];
        let bias = self.bias.then(|| TensorSpec::new("bias", &[self.outputs]));
        vec![Some(TensorSpec::new("weight", &shape)), bias]
    }

    fn init(&self, _: usize, len: usize, stream: &mut Stream) -> Vec<f32> {
        let fan_in = self.inputs / self.groups * self.kernel * self.kernel;
        uniform(len, 1.0 / (fan_in as f64).sqrt(), stream)
    }

    fn takes_relu(&self) -> bool {
        self.stride == 1
    }
}

impl<T: Scalar> Layer<T> for Conv2d {
    fn forward(&self, io: Forward<'_, T>) {
        if io.pass.kernels == Kernels::Fast
            && let [Some(weight), Some(bias), Some(x)] =
                [io.params[0], io.params[1], io.x].map(T::f32s)
            && let (Some(bordered), Some(y)) = (T::f32_vec(&mut io.saved.values), T::f32s_mut(io.y))
        {
            return cpu::forward(self, io.samples, weight, bias, x, io.relu, bordered, y);
        }
        if T::ROUNDS && self.transformed(io.samples) {
            return winograd::reference::forward(self, io);
        }
        reference::forward(self, io);
    }

    fn backward(&self, io: Backward<'_, T>) {
        if io.pass.kernels == Kernels::Fast
            && let [Some(weight), Some(x), Some(y), Some(values)] =
                [io.params[0], io.x, io.y, io.d_y].map(T::f32s)
            && let Some(bordered) = T::f32s(&io.saved.values)
        {
            let relu = io.relu.then_some(y);
            let d_y = tile::Source { values, relu };
            if let Some(d_x) = io.d_x.and_then(T::f32s_mut) {
                cpu::backward_input(self, io.samples, weight, &[], d_y, d_x);
            }
            let [d_weight, d_bias, ..] = io.d_params.map(|d| d.and_then(T::f32s_mut));
            return cpu::backward_weight(self, io.samples, x, bordered, d_y, d_weight, d_bias);
        }
        if T::ROUNDS && self.transformed(io.samples) {
            return winograd::reference::backward(self, io);
        }
        reference::backward(self, io);
    }
}
