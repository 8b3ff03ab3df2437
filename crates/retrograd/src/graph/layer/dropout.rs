//! Dropout: y = m·x with m = 0 at random, else 1/(1 − p), in training; y = x otherwise.
//!
//! On sparse rows the non-zeros alone are drawn for: a dropped zero is no different from a kept one.
//! An element takes 16 bits of the step's stream, so p is a multiple of 2⁻¹⁶; the scale is that of
//! the multiple, and the mean is kept exactly. d_x = m·d_y.
//!
//! Memory: `a` m.

use super::{Context, LayerTape, room};
use crate::rng::Key;
use crate::simd::{self, dispatch};
use crate::{Scalar, parallel};

pub(crate) struct Dropout {
    pub p: f64,
}

/// Elements of a piece: 2048 words of ChaCha8, some 4 µs.
const PIECE: usize = 4096;
const PARALLEL: usize = 4 * PIECE;

/// Fills m for probability p; element i takes half of word i/2 of the key's stream.
pub(crate) fn mask<T: Scalar>(key: Key, p: f64, m: &mut [T]) {
    let cut = (p * 65_536.0).round() as u32;
    let keep = T::from_f64(65_536.0 / f64::from(65_536 - cut.min(65_535)));
    // A table instead of a branch, which random bits would mispredict half of the time.
    let table = [T::ZERO, keep];
    let value = |bits: u32| table[usize::from(bits >= cut)];
    let parallel = m.len() >= PARALLEL;
    parallel::for_each_chunk(m, PIECE, parallel, |piece, m| {
        let mut stream = key.stream();
        stream.seek((piece * PIECE / 2) as u64);
        for pair in m.chunks_mut(2) {
            let word = stream.u32();
            pair[0] = value(word & 0xffff);
            if let Some(second) = pair.get_mut(1) {
                *second = value(word >> 16);
            }
        }
    });
}

impl Dropout {
    fn active<T: Scalar>(&self, c: &Context<'_, T>) -> bool {
        c.pass.training && self.p > 0.0
    }

    /// x: the dense rows, or the non-zeros of sparse ones.
    pub fn forward<T: Scalar>(&self, c: &Context<'_, T>, x: &[T], tape: &mut LayerTape<T>) {
        let y = room(&mut tape.output, x.len());
        if !self.active(c) {
            y.copy_from_slice(x);
            return;
        }
        let m = room(&mut tape.saved.a, x.len());
        mask(c.pass.key.purpose("dropout").index(c.index), self.p, m);
        multiply(x, m, y);
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

/// y = m·x. Elementwise: under `dispatch!` the compiler makes vectors of it.
fn multiply<T: Scalar>(x: &[T], m: &[T], y: &mut [T]) {
    dispatch!(simd::level(), simd => {
        let _ = simd;
        for ((y, &x), &m) in y.iter_mut().zip(x).zip(m) {
            *y = m * x;
        }
    });
}
