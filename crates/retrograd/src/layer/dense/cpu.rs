//! f32: three matrix products, which cut themselves into pieces and spread those over threads.

use super::Dense;
use crate::cuts::cuts;
use crate::group::Segments;
use crate::layer::gemm::{Onto, Stride, gemm};
use crate::layer::pieces::add_segments;
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
        add_segments(segments, d_weight, |some, d_weight| {
            let (x, d_y) = (&x[some.start * inputs..], &d_y[some.start * outputs..]);
            if layer.by_input {
                let [x, d_y] = [(x, strides[0](inputs)), (d_y, strides[1](outputs))];
                gemm(
                    [inputs, outputs, some.len()],
                    x,
                    d_y,
                    d_weight,
                    Onto::Itself,
                );
            } else {
                let [d_y, x] = [(d_y, strides[0](outputs)), (x, strides[1](inputs))];
                gemm(
                    [outputs, inputs, some.len()],
                    d_y,
                    x,
                    d_weight,
                    Onto::Itself,
                );
            }
        });
    }
    if let Some(d_bias) = d_bias {
        add_segments(segments, d_bias, |some, d_bias| {
            let d_y = &d_y[some.start * outputs..some.end * outputs];
            bias_gradient(some.len(), outputs, d_y, d_bias);
        });
    }
}

/// Columns of d_y that a piece sums.
const COLUMNS: usize = 64;
/// Rows that are summed in f32 before they are added in f64.
const RUN: usize = 256;
/// From this many elements on, pieces go to threads (an element costs 0.1 ns, a thread 5 µs).
const PARALLEL: usize = 1 << 16;
cuts!(COLUMNS, RUN, PARALLEL);

/// d_b[o] += Σ_r d_y[r,o]; a piece owns its columns.
fn bias_gradient(rows: usize, outputs: usize, d_y: &[f32], d_bias: &mut [f32]) {
    let parallel = rows * outputs >= PARALLEL;
    parallel::for_each_chunk(d_bias, COLUMNS, parallel, |i, d_bias| {
        let mut total = [0.0_f64; COLUMNS];
        for d_y in d_y.chunks(RUN * outputs) {
            let mut sum = [0.0; COLUMNS];
            let sum = &mut sum[..d_bias.len()];
            dispatch!(simd::level(), simd => {
                for d_y in d_y.chunks_exact(outputs) {
                    simd::axpy(simd, 1.0, &d_y[i * COLUMNS..][..sum.len()], sum);
                }
            });
            for (total, &sum) in total.iter_mut().zip(sum.iter()) {
                *total += f64::from(sum);
            }
        }
        for (d_b, &total) in d_bias.iter_mut().zip(&total) {
            *d_b = (f64::from(*d_b) + total) as f32;
        }
    });
}
