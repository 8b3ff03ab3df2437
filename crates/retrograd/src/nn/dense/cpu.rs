//! f32: matrix products cut into pieces by size, the pieces spread over threads.

use super::Dense;
use crate::nn::gemm::{Stride, gemm};
use crate::parallel;
use crate::simd::{self, dispatch};

/// Multiply-adds per piece: about 10 µs, so that the 5 µs of waking a thread pay.
const PIECE: usize = 1 << 20;
/// Terms of a sum that one product adds in f32; longer sums are cut and added up one by one.
const RUN: usize = 4096;

/// Rows per piece, a multiple of 16, for rows of that many multiply-adds.
fn piece_rows(work_per_row: usize) -> usize {
    (PIECE / work_per_row.max(1)).max(1).next_multiple_of(16)
}

pub(super) fn forward(
    layer: &Dense,
    rows: usize,
    weight: &[f32],
    bias: &[f32],
    x: &[f32],
    y: &mut [f32],
) {
    let (inputs, outputs) = (layer.inputs, layer.outputs);
    let piece = piece_rows(inputs * outputs);
    parallel::for_each_chunk(y, piece * outputs, rows > piece, |i, y| {
        let m = y.len() / outputs;
        let x = &x[i * piece * inputs..][..m * inputs];
        if !bias.is_empty() {
            for y in y.chunks_exact_mut(outputs) {
                y.copy_from_slice(bias);
            }
        }
        gemm(
            [m, outputs, inputs],
            (x, Stride::rows(inputs)),
            (weight, Stride::transposed(inputs)),
            (y, Stride::rows(outputs)),
            !bias.is_empty(),
        );
    });
}

pub(super) fn backward(
    layer: &Dense,
    rows: usize,
    weight: &[f32],
    x: &[f32],
    d_y: &[f32],
    d_weight: Option<&mut [f32]>,
    d_bias: Option<&mut [f32]>,
    d_x: Option<&mut [f32]>,
) {
    let (inputs, outputs) = (layer.inputs, layer.outputs);
    if let Some(d_x) = d_x {
        let piece = piece_rows(inputs * outputs);
        parallel::for_each_chunk(d_x, piece * inputs, rows > piece, |i, d_x| {
            let m = d_x.len() / inputs;
            let d_y = &d_y[i * piece * outputs..][..m * outputs];
            gemm(
                [m, inputs, outputs],
                (d_y, Stride::rows(outputs)),
                (weight, Stride::rows(inputs)),
                (d_x, Stride::rows(inputs)),
                false,
            );
        });
    }
    if let Some(d_weight) = d_weight {
        // A thread owns rows of d_W and goes over all samples: nothing to reduce.
        let piece = piece_rows(inputs * rows);
        parallel::for_each_chunk(d_weight, piece * inputs, outputs > piece, |i, d_weight| {
            let m = d_weight.len() / inputs;
            for first in (0..rows).step_by(RUN) {
                let run = RUN.min(rows - first);
                gemm(
                    [m, inputs, run],
                    (
                        &d_y[first * outputs + i * piece..],
                        Stride::transposed(outputs),
                    ),
                    (&x[first * inputs..], Stride::rows(inputs)),
                    (d_weight, Stride::rows(inputs)),
                    true,
                );
            }
        });
    }
    if let Some(d_bias) = d_bias {
        for d_y in d_y.chunks_exact(outputs) {
            dispatch!(simd::level(), simd => simd::axpy(simd, 1.0, d_y, d_bias));
        }
    }
}
