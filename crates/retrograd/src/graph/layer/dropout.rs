//! Dropout: y = m·x with m = 0 at random, else 1/(1 − p), in training; y = x otherwise.
//!
//! On sparse rows the non-zeros alone are drawn for: a dropped zero is no different from a kept one.
//! An element takes 16 bits of the step's stream, so p is a multiple of 2⁻¹⁶; the scale is that of
//! the multiple, and the mean is kept exactly. d_x = m·d_y.
//!
//! Memory: `a` m.

use super::{Context, LayerTape, sized};
use crate::rng::Key;
use crate::simd::{self, dispatch};
use crate::{Scalar, parallel};

pub(crate) struct Dropout {
    pub p: f64,
}

/// Elements of a piece: 4 kB of ChaCha8, some 2 µs. Three of them go to threads
/// (`retrograd bench threshold-dropout` measures that).
const PIECE: usize = 2048;
const PARALLEL: usize = 3 * PIECE;

/// y = m·x with m drawn for probability p; element i takes half of word i/2 of the key's stream.
pub(crate) fn drop_out<T: Scalar>(key: Key, p: f64, x: &[T], m: &mut [T], y: &mut [T]) {
    let cut = (p * 65_536.0).round() as u32;
    let keep = T::from_f64(65_536.0 / f64::from(65_536 - cut.min(65_535)));
    let parallel = m.len() >= PARALLEL;
    parallel::for_each_chunk2(m, PIECE, y, PIECE, parallel, |piece, m, y| {
        let mut bytes = [0; 2 * PIECE];
        let bytes = &mut bytes[..2 * m.len()];
        let mut stream = key.stream();
        stream.seek((piece * PIECE / 2) as u64);
        stream.fill_bytes(bytes);
        let x = &x[piece * PIECE..piece * PIECE + m.len()];
        // Elementwise: under `dispatch!` the compiler makes vectors of it.
        dispatch!(simd::level(), simd => {
            let _ = simd;
            let bits = bytes.as_chunks::<2>().0;
            for (((m, y), &x), &bits) in m.iter_mut().zip(y.iter_mut()).zip(x).zip(bits) {
                let open = u32::from(u16::from_le_bytes(bits)) >= cut;
                *m = if open { keep } else { T::ZERO };
                *y = *m * x;
            }
        });
    });
}

impl Dropout {
    fn active<T: Scalar>(&self, c: &Context<'_, T>) -> bool {
        c.pass.training && self.p > 0.0
    }

    /// x: the dense rows, or the non-zeros of sparse ones.
    pub fn forward<T: Scalar>(&self, c: &Context<'_, T>, x: &[T], tape: &mut LayerTape<T>) {
        let y = sized(&mut tape.output, x.len());
        if !self.active(c) {
            y.copy_from_slice(x);
            return;
        }
        let m = sized(&mut tape.saved.a, x.len());
        let key = c.pass.key.purpose("dropout").index(c.index);
        drop_out(key, self.p, x, m, y);
    }

    pub fn backward<T: Scalar>(
        &self,
        c: &Context<'_, T>,
        tape: &LayerTape<T>,
        d_y: &[T],
        d_x: &mut [T],
    ) {
        if !self.active(c) {
            d_x.copy_from_slice(d_y);
            return;
        }
        multiply(d_y, &tape.saved.a, d_x);
    }
}

/// y = m·x. Elementwise: under `dispatch!` the compiler makes vectors of it. It costs a tenth of
/// drawing m, and its pieces are larger.
fn multiply<T: Scalar>(x: &[T], m: &[T], y: &mut [T]) {
    const LONG: usize = 2 * PIECE;
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
