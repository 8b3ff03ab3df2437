//! Dropout: in training each element is kept with probability 1−p and scaled by 1/(1−p); in
//! inference nothing happens. The mask is a function of the step's key, the layer and the element,
//! so any order of work and a resumed run draw the same one.
//!
//! y = m·x and d_x = m·d_y with m = 0 or 1/(1−p).

#[cfg(feature = "gpu")]
mod gpu;
mod spec;

pub use spec::DropoutSpec;

use crate::layer::{Backward, Describe, Forward, Layer, sized};
use crate::{Scalar, parallel};

pub(crate) struct Dropout {
    pub p: f64,
    /// The layer's number: two dropouts of one network draw different masks.
    pub index: u64,
}

/// Elements per piece; ChaCha gives about one 32-bit word a nanosecond, so a piece is some 8 µs.
const PIECE: usize = 8192;

impl Describe for Dropout {
    #[cfg(feature = "gpu")]
    fn random_index(&self) -> Option<u64> {
        Some(self.index)
    }

    #[cfg(feature = "gpu")]
    fn record(&self) -> Option<&dyn crate::gpu::layer::Record> {
        Some(self)
    }
}

impl<T: Scalar> Layer<T> for Dropout {
    fn forward(&self, io: Forward<'_, T>) {
        if !io.pass.training || self.p == 0.0 {
            io.y.copy_from_slice(io.x);
            return;
        }
        let key = io.pass.key.purpose("dropout").index(self.index);
        let scale = T::from_f64(1.0 / (1.0 - self.p));
        let mask = sized(&mut io.saved.values, io.x.len());
        parallel::for_each_chunk(mask, PIECE, true, |i, mask| {
            let mut stream = key.stream();
            stream.seek((i * PIECE) as u64);
            for m in mask {
                let kept = f64::from(stream.uniform_f32()) >= self.p;
                *m = if kept { scale } else { T::ZERO };
            }
        });
        for ((y, &x), &m) in io.y.iter_mut().zip(io.x).zip(mask.iter()) {
            *y = m * x;
        }
    }

    fn backward(&self, io: Backward<'_, T>) {
        let Some(d_x) = io.d_x else { return };
        if !io.pass.training || self.p == 0.0 {
            d_x.copy_from_slice(io.d_y);
            return;
        }
        for ((d_x, &d_y), &m) in d_x.iter_mut().zip(io.d_y).zip(&io.saved.values) {
            *d_x = m * d_y;
        }
    }
}
