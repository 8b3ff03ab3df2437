//! Nearest upsampling: `y[c, s·i + a, s·j + b] = x[c, i, j]` for 0 ≤ a, b < s.
//!
//! Backward is its adjoint, the sum over each s × s block: `d_x[c,i,j] = Σ_ab d_y[c, s·i+a, s·j+b]`.

pub(crate) mod faults;
#[cfg(feature = "gpu")]
pub(crate) mod gpu;
mod onnx;
mod spec;

pub use spec::UpsampleSpec;

use crate::cuts::cuts;
use crate::layer::{Backward, Describe, Forward, Layer};
use crate::simd::{self, dispatch};
use crate::{Scalar, parallel};

pub(crate) struct Upsample {
    pub scale: usize,
    pub width: usize,
}

impl Describe for Upsample {
    fn to_onnx(&self) -> Option<&dyn crate::onnx::ToOnnx> {
        Some(self)
    }

    #[cfg(feature = "gpu")]
    fn record(&self) -> Option<&dyn crate::gpu::layer::Record> {
        Some(self)
    }
}

/// Values from which rows go to threads, in pieces of that many rows of the smaller image.
const PARALLEL: usize = 1 << 15;
const PIECE_ROWS: usize = 32;
cuts!(PARALLEL, PIECE_ROWS);

impl<T: Scalar> Layer<T> for Upsample {
    fn forward(&self, io: Forward<'_, T>) {
        let (s, width) = (self.scale, self.width);
        let (x, parallel) = (io.x, io.y.len() >= PARALLEL);
        let piece = PIECE_ROWS * width;
        parallel::for_each_chunk(io.y, piece * s * s, parallel, |i, y| {
            let x = &x[i * piece..];
            dispatch!(simd::level(), _ => repeat(x, y, s, width));
        });
    }

    fn backward(&self, io: Backward<'_, T>) {
        let Some(d_x) = io.d_x else { return };
        let (s, width) = (self.scale, self.width);
        let (d_y, parallel) = (io.d_y, io.d_y.len() >= PARALLEL);
        let piece = PIECE_ROWS * width;
        parallel::for_each_chunk(d_x, piece, parallel, |i, d_x| {
            let d_y = &d_y[i * piece * s * s..];
            dispatch!(simd::level(), _ => sum_blocks(d_y, d_x, s, width));
        });
    }
}

/// Every value s times in s rows.
#[inline(always)]
fn repeat<T: Scalar>(x: &[T], y: &mut [T], s: usize, width: usize) {
    let wide = width * s;
    for (x, y) in x.chunks_exact(width).zip(y.chunks_exact_mut(wide * s)) {
        let (first, others) = y.split_at_mut(wide);
        if s == 2 {
            // Known to the compiler, which makes vectors of it.
            for (pair, &x) in first.as_chunks_mut::<2>().0.iter_mut().zip(x) {
                *pair = [x; 2];
            }
        } else {
            for (block, &x) in first.chunks_exact_mut(s).zip(x) {
                block.fill(x);
            }
        }
        for other in others.chunks_exact_mut(wide) {
            other.copy_from_slice(first);
        }
    }
}

/// The sum of every s × s block, row by row.
#[inline(always)]
fn sum_blocks<T: Scalar>(d_y: &[T], d_x: &mut [T], s: usize, width: usize) {
    let wide = width * s;
    let rows = d_x.chunks_exact_mut(width);
    for (d_x, d_y) in rows.zip(d_y.chunks_exact(wide * s)) {
        if s == 2 {
            let (upper, lower) = d_y.split_at(wide);
            let pairs = upper
                .as_chunks::<2>()
                .0
                .iter()
                .zip(lower.as_chunks::<2>().0);
            for (d_x, (upper, lower)) in d_x.iter_mut().zip(pairs) {
                *d_x = upper[0] + upper[1] + lower[0] + lower[1];
            }
            continue;
        }
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
