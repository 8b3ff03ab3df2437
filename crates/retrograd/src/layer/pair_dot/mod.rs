//! Scores of pairs of nodes: y_p = x_a · x_b, the logit of a link between a and b.
//!
//! d_x_a += d_y_p · x_b and d_x_b += d_y_p · x_a, in the order of the pairs.

#[cfg(feature = "gpu")]
pub(crate) mod gpu;
mod spec;

pub use spec::PairDotSpec;

use crate::Scalar;
use crate::layer::{Backward, Describe, Forward, Layer};

pub(crate) struct PairDot {
    width: usize,
}

impl Describe for PairDot {
    #[cfg(feature = "gpu")]
    fn record(&self) -> Option<&dyn crate::gpu::layer::Record> {
        Some(self)
    }
}

impl<T: Scalar> Layer<T> for PairDot {
    fn forward(&self, io: Forward<'_, T>) {
        let (x, width) = (io.x, self.width);
        let pairs = io.around.batch.expect("in a graph network").pairs();
        for (y, &pair) in io.y.iter_mut().zip(pairs) {
            let [a, b] = pair.map(|node| &x[node as usize * width..(node as usize + 1) * width]);
            *y = a.iter().zip(b).map(|(&a, &b)| a * b).sum();
        }
    }

    fn backward(&self, io: Backward<'_, T>) {
        let Some(d_x) = io.d_x else { return };
        let (x, width) = (io.x, self.width);
        let pairs = io.around.batch.expect("in a graph network").pairs();
        d_x.fill(T::ZERO);
        for (&d, &[a, b]) in io.d_y.iter().zip(pairs) {
            let (a, b) = (a as usize * width, b as usize * width);
            for k in 0..width {
                d_x[a + k] += d * x[b + k];
                d_x[b + k] += d * x[a + k];
            }
        }
    }
}
