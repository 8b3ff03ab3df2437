//! y = x with the channels of an earlier layer's output after its own, sample by sample.
//!
//! The gradient is cut where the values were joined: d_x is the first part of d_y, the earlier
//! layer's gradient the second.

#[cfg(feature = "gpu")]
mod gpu;
mod onnx;
mod spec;

pub use spec::ConcatSpec;

use crate::Scalar;
use crate::layer::pieces::{add, copy};
use crate::layer::{Backward, Describe, Forward, Layer};

pub(crate) struct Concat {
    /// Values of one sample of x and of the other.
    pub lens: [usize; 2],
}

impl Describe for Concat {
    fn to_onnx(&self) -> Option<&dyn crate::onnx::ToOnnx> {
        Some(self)
    }

    fn adds(&self) -> bool {
        true
    }

    #[cfg(feature = "gpu")]
    fn record(&self) -> Option<&dyn crate::gpu::layer::Record> {
        Some(self)
    }
}

impl<T: Scalar> Layer<T> for Concat {
    fn forward(&self, io: Forward<'_, T>) {
        let [a, b] = self.lens;
        let rows = io.x.chunks_exact(a).zip(io.other.chunks_exact(b));
        for ((x, other), y) in rows.zip(io.y.chunks_exact_mut(a + b)) {
            copy(&mut y[..a], x);
            copy(&mut y[a..], other);
        }
    }

    fn backward(&self, io: Backward<'_, T>) {
        let [a, b] = self.lens;
        let parts = [(io.d_x, 0..a), (io.d_other, a..a + b)];
        for ((d, range), adds) in parts.into_iter().zip(io.adds) {
            let Some(d) = d else { continue };
            let rows = d.chunks_exact_mut(range.len());
            for (d, d_y) in rows.zip(io.d_y.chunks_exact(a + b)) {
                if adds {
                    add(d, &d_y[range.clone()]);
                } else {
                    copy(d, &d_y[range.clone()]);
                }
            }
        }
    }
}
