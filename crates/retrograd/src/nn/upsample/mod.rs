//! Nearest upsampling: y[c, s·i + a, s·j + b] = x[c, i, j] for 0 ≤ a, b < s.
//!
//! Backward is its adjoint, the sum over each s × s block: d_x[c,i,j] = Σ_ab d_y[c, s·i+a, s·j+b].

#[cfg(feature = "gpu")]
mod gpu;

use super::layer::{Backward, Describe, Forward, Layer};
use crate::Scalar;

pub(crate) struct Upsample {
    pub scale: usize,
    pub width: usize,
}

impl Describe for Upsample {}

impl<T: Scalar> Layer<T> for Upsample {
    fn forward(&self, io: Forward<'_, T>) {
        let (s, wide) = (self.scale, self.width * self.scale);
        for (x, y) in
            io.x.chunks_exact(self.width)
                .zip(io.y.chunks_exact_mut(wide * s))
        {
            for y in y.chunks_exact_mut(wide) {
                for (block, &x) in y.chunks_exact_mut(s).zip(x) {
                    block.fill(x);
                }
            }
        }
    }

    fn backward(&self, io: Backward<'_, T>) {
        let Some(d_x) = io.d_x else { return };
        let (s, wide) = (self.scale, self.width * self.scale);
        for (d_x, d_y) in d_x
            .chunks_exact_mut(self.width)
            .zip(io.d_y.chunks_exact(wide * s))
        {
            d_x.fill(T::ZERO);
            for d_y in d_y.chunks_exact(wide) {
                for (d_x, block) in d_x.iter_mut().zip(d_y.chunks_exact(s)) {
                    for &d in block {
                        *d_x += d;
                    }
                }
            }
        }
    }
}
