//! Dropout: in training each element is kept with probability 1−p and scaled by 1/(1−p); in
//! inference nothing happens. The mask is a function of the step's key, the layer and the element,
//! so any order of work and a resumed run draw the same one.
//!
//! y = m·x and d_x = m·d_y with m = 0 or 1/(1−p).
//!
//! An element takes 16 bits of the step's stream: p is rounded to a multiple of 2⁻¹⁶ (at most
//! 1 − 2⁻¹⁶), and the scale is that of the multiple, so that the mean is kept exactly. Of sparse
//! rows the non-zeros alone are drawn for: a dropped zero is no different from a kept one.

#[cfg(feature = "gpu")]
pub(crate) mod gpu;
mod onnx;
mod spec;
#[cfg(test)]
mod tests;

pub use spec::DropoutSpec;

use crate::cuts::cuts;
use crate::layer::{Backward, Describe, Forward, Layer, sized};
use crate::rng::Key;
use crate::simd::{self, dispatch};
use crate::{Pass, Scalar, parallel};

pub(crate) struct Dropout {
    pub p: f64,
    /// The layer's number: two dropouts of one network draw different masks.
    pub index: u64,
}

/// The largest 16-bit number that drops an element, plus 1.
pub(crate) fn cut(p: f64) -> u32 {
    ((p * 65_536.0).round() as u32).min(65_535)
}

/// What the kept elements are multiplied by: 1 by the probability of being kept.
pub(crate) fn scale(p: f64) -> f64 {
    65_536.0 / f64::from(65_536 - cut(p))
}

/// Elements of a piece: 4 kB of ChaCha8, some 2 µs. Three of them go to threads
/// (`retrograd bench threshold-dropout` measures that).
const PIECE: usize = 2048;
const PARALLEL: usize = 3 * PIECE;
/// Elements of a piece of a product.
const LONG: usize = 2 * PIECE;
cuts!(PIECE, PARALLEL, LONG);

/// The place in the stream of a shard's first element: that which it has in the whole batch where every
/// sample has as many elements. Graphs have not; each that begins a shard has a stretch of its own.
pub(crate) fn first_element(pass: &Pass, per_sample: Option<usize>) -> u64 {
    match per_sample {
        Some(elements) => (pass.first * elements) as u64,
        None => (pass.first as u64) << 33,
    }
}

/// y = m·x with m drawn for probability p; element i takes half of word i/2 of the key's stream, the
/// lower one first. x begins with that element.
pub(crate) fn drop_out<T: Scalar>(
    (key, first): (Key, u64),
    p: f64,
    x: &[T],
    m: &mut [T],
    y: &mut [T],
) {
    let cut = cut(p);
    let keep = T::from_f64(scale(p));
    let parallel = m.len() >= PARALLEL;
    parallel::for_each_chunk2(m, PIECE, y, PIECE, parallel, |piece, m, y| {
        let begin = first + (piece * PIECE) as u64;
        let odd = 2 * (begin % 2) as usize;
        let mut bytes = [0; 2 * PIECE + 2];
        let bytes = &mut bytes[..2 * m.len() + odd];
        let mut stream = key.stream();
        stream.seek(begin / 2);
        stream.fill_bytes(bytes);
        let bytes = &bytes[odd..];
        let x = &x[piece * PIECE..piece * PIECE + m.len()];
        let bits = bytes.as_chunks::<2>().0;
        // Elementwise: under `dispatch!` the compiler makes vectors of it, and of two loops for AVX2, too.
        dispatch!(simd::level(), simd => {
            let _ = simd;
            let (cut, keep) = (cut, keep);
            for (m, &bits) in m.iter_mut().zip(bits) {
                let open = u32::from(u16::from_le_bytes(bits)) >= cut;
                *m = if open { keep } else { T::ZERO };
            }
            for ((y, &x), &m) in y.iter_mut().zip(x).zip(&*m) {
                *y = m * x;
            }
        });
    });
}

/// y = m·x. It costs a tenth of drawing m, and its pieces are larger.
fn multiply<T: Scalar>(x: &[T], m: &[T], y: &mut [T]) {
    parallel::for_each_chunk(y, LONG, m.len() >= 4 * LONG, |piece, y| {
        let range = piece * LONG..piece * LONG + y.len();
        let (x, m) = (&x[range.clone()], &m[range]);
        dispatch!(simd::level(), simd => {
            let _ = simd;
            for ((y, &x), &m) in y.iter_mut().zip(x).zip(m) {
                *y = m * x;
            }
        });
    });
}

impl Dropout {
    fn drops(&self, pass: &Pass) -> bool {
        pass.training && self.p > 0.0
    }
}

impl Describe for Dropout {
    fn to_onnx(&self) -> Option<&dyn crate::onnx::ToOnnx> {
        Some(self)
    }

    fn reads_sparse(&self) -> bool {
        true
    }

    fn keeps_sparse(&self) -> bool {
        true
    }

    #[cfg(feature = "gpu")]
    fn draws(&self) -> Option<(&'static str, u64)> {
        Some(("dropout", self.index))
    }

    #[cfg(feature = "gpu")]
    fn record(&self) -> Option<&dyn crate::gpu::layer::Record> {
        Some(self)
    }
}

impl<T: Scalar> Layer<T> for Dropout {
    fn forward(&self, io: Forward<'_, T>) {
        if !self.drops(io.pass) {
            io.y.copy_from_slice(io.x);
            return;
        }
        let key = io.pass.key.purpose("dropout").index(self.index);
        let mask = sized(&mut io.saved.values, io.x.len());
        let per_sample = io.x.len() / io.samples.max(1);
        let first = first_element(io.pass, io.around.batch.is_none().then_some(per_sample));
        drop_out((key, first), self.p, io.x, mask, io.y);
    }

    fn backward(&self, io: Backward<'_, T>) {
        let Some(d_x) = io.d_x else { return };
        match self.drops(io.pass) {
            true => multiply(io.d_y, &io.saved.values, d_x),
            false => d_x.copy_from_slice(io.d_y),
        }
    }
}
