//! f32: three matrix products, which cut themselves into pieces and spread those over threads.

use std::ops::Range;

use super::Dense;
use crate::cuts::cuts;
use crate::group::Segments;
use crate::layer::gemm::{Onto, Stride, gemm, gemm_segments};
use crate::parallel;
use crate::simd::{self, dispatch};

pub(super) fn forward(
    layer: &Dense,
    rows: usize,
    weight: &[f32],
    bias: &[f32],
    x: &[f32],
    y: &mut [f32],
) {
    let (inputs, outputs) = (layer.inputs, layer.outputs);
    let onto = if bias.is_empty() {
        Onto::Zero
    } else {
        Onto::Row(bias)
    };
    let (x, weight) = ((x, Stride::rows(inputs)), (weight, layer.stride()));
    gemm([rows, outputs, inputs], x, weight, y, onto);
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
    segments: Segments,
) {
    let (inputs, outputs) = (layer.inputs, layer.outputs);
    if let Some(d_x) = d_x {
        let weight = match layer.by_input {
            true => (weight, Stride::transposed(outputs)),
            false => (weight, Stride::rows(inputs)),
        };
        let d_y = (d_y, Stride::rows(outputs));
        gemm([rows, inputs, outputs], d_y, weight, d_x, Onto::Zero);
    }
    if let Some(d_weight) = d_weight {
        // A thread owns rows of d_W and goes over all samples: nothing to reduce.
        let strides = [Stride::transposed, Stride::rows];
        if layer.by_input {
            let [x, d_y] = [(x, strides[0](inputs)), (d_y, strides[1](outputs))];
            gemm_segments([inputs, outputs, rows], x, d_y, d_weight, segments);
        } else {
            let [d_y, x] = [(d_y, strides[0](outputs)), (x, strides[1](inputs))];
            gemm_segments([outputs, inputs, rows], d_y, x, d_weight, segments);
        }
    }
    if let Some(d_bias) = d_bias {
        bias_gradient(rows, outputs, d_y, d_bias, segments);
    }
}

/// Columns of d_y that a piece sums.
const COLUMNS: usize = 64;
/// Rows that are summed in f32 before they are added in f64.
const RUN: usize = 256;
/// From this many elements on, pieces go to threads (an element costs 0.1 ns, a thread 5 µs).
const PARALLEL: usize = 1 << 16;
cuts!(COLUMNS, RUN, PARALLEL);

/// d_b[o] += Σ_r d_y[r,o]; a piece owns its columns. Of several segments, each one's sum is rounded for
/// itself, and they are added along their tree.
fn bias_gradient(
    rows: usize,
    outputs: usize,
    d_y: &[f32],
    d_bias: &mut [f32],
    segments: Segments,
) {
    let parallel = rows * outputs >= PARALLEL;
    parallel::for_each_chunk(d_bias, COLUMNS, parallel, |i, d_bias| {
        let columns = i * COLUMNS..i * COLUMNS + d_bias.len();
        let sum = |rows: Range<usize>| {
            let d_y = &d_y[rows.start * outputs..rows.end * outputs];
            sum_columns(outputs, d_y, columns.clone())
        };
        if segments.count() == 1 {
            for (d_b, total) in d_bias.iter_mut().zip(sum(0..rows)) {
                *d_b = (f64::from(*d_b) + total) as f32;
            }
            return;
        }
        let rounded = |rows| sum(rows).map(|total| total as f32);
        let add = |mut left: [f32; COLUMNS], right: [f32; COLUMNS]| {
            left.iter_mut().zip(right).for_each(|(a, b)| *a += b);
            left
        };
        for (d_b, total) in d_bias.iter_mut().zip(segments.sum(rounded, add)) {
            *d_b += total;
        }
    });
}

/// The sums of some columns of rows.
fn sum_columns(outputs: usize, d_y: &[f32], columns: Range<usize>) -> [f64; COLUMNS] {
    let mut total = [0.0_f64; COLUMNS];
    for d_y in d_y.chunks(RUN * outputs) {
        let mut sum = [0.0; COLUMNS];
        let sum = &mut sum[..columns.len()];
        dispatch!(simd::level(), simd => {
            for d_y in d_y.chunks_exact(outputs) {
                simd::axpy(simd, 1.0, &d_y[columns.clone()], sum);
            }
        });
        for (total, &sum) in total.iter_mut().zip(sum.iter()) {
            *total += f64::from(sum);
        }
    }
    total
}
