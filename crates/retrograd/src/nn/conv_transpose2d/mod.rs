//! Transposed convolution, W of shape (in, out, k, k): the adjoint of a convolution of the same
//! stride s and padding p from (out) to (in) channels.
//!
//! y[n,o, s·r + u − p, s·c + v − p] += W[i,o,u,v] · x[n,i,r,c], plus b[o]; the output measures
//! (H−1)·s − 2p + k.
//!
//! - d_x[n,i,r,c] = Σ_ouv W[i,o,u,v] · d_y[n,o, s·r + u − p, s·c + v − p]
//! - d_W[i,o,u,v] = Σ_nrc x[n,i,r,c] · d_y[n,o, s·r + u − p, s·c + v − p]
//! - d_b[o] = Σ d_y[n,o,·,·]
//!
//! Positions outside the output are left out.

mod reference;

use super::layer::{Backward, Describe, Forward, Layer, TENSORS, TensorSpec, uniform};
use crate::Scalar;
use crate::rng::Stream;

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
    fn tensors(&self) -> [Option<TensorSpec>; TENSORS] {
        let shape = [self.inputs, self.outputs, self.kernel, self.kernel];
        let bias = self.bias.then(|| TensorSpec::new("bias", &[self.outputs]));
        [Some(TensorSpec::new("weight", &shape)), bias, None]
    }

    fn init(&self, _: usize, len: usize, stream: &mut Stream) -> Vec<f32> {
        // PyTorch takes the second axis for the fan-in of a transposed convolution.
        let fan_in = self.outputs * self.kernel * self.kernel;
        uniform(len, 1.0 / (fan_in as f64).sqrt(), stream)
    }
}

impl<T: Scalar> Layer<T> for ConvTranspose2d {
    fn forward(&self, io: Forward<'_, T>) {
        reference::forward(self, io);
    }

    fn backward(&self, io: Backward<'_, T>) {
        reference::backward(self, io);
    }
}
