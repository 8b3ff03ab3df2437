//! f32: three matrix products, which cut themselves into pieces and spread those over threads.

use std::ops::Range;

use super::Dense;
use crate::cuts::cuts;
use crate::group::Segments;
use crate::layer::gemm::{self, Onto, Stride, gemm, gemm_segments};
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
        let (x, d_y) = ((x, inputs), (d_y, outputs));
        match layer.by_input {
            true => weight_gradient(x, d_y, d_weight, segments),
            false => weight_gradient(d_y, x, d_weight, segments),
        }
    }
    if let Some(d_bias) = d_bias {
        bias_gradient(rows, outputs, d_y, d_bias, segments);
    }
}

/// d_W += aᵀ·b, of rows with their widths.
fn weight_gradient(
    (a, m): (&[f32], usize),
    (b, n): (&[f32], usize),
    d_weight: &mut [f32],
    segments: Segments,
) {
    let strides = (Stride::transposed(m), Stride::rows(n));
    let rows = segments.rows(segments.count() - 1).end;
    if segments.count() > 1 && rows <= gemm::RUN {
        return gemm_segments([m, n], (a, strides.0), (b, strides.1), d_weight, segments);
    }
    add_segments(segments, d_weight, |some, d_weight| {
        let (a, b) = (&a[some.start * m..], &b[some.start * n..]);
        let (a, b) = ((a, strides.0), (b, strides.1));
        gemm([m, n, some.len()], a, b, d_weight, Onto::Itself);
    });
}

/// Columns of d_y that a piece sums.
const COLUMNS: usize = 64;
/// Rows that are summed in f32 before they are added in f64.
const RUN: usize = 256;
/// From this many elements on, pieces go to threads (an element costs 0.1 ns, a thread 5 µs).
const PARALLEL: usize = 1 << 16;
cuts!(COLUMNS, RUN, PARALLEL);

/// d_b[o] += Σ_r d_y[r,o]; a piece owns its columns.
fn bias_gradient(rows: usize, outputs: usize, d_y: &[f32], d_bias: &mut [f32], segments: Segments) {
    let parallel = rows * outputs >= PARALLEL;
    parallel::for_each_chunk(d_bias, COLUMNS, parallel, |i, d_bias| {
        let columns = i * COLUMNS..i * COLUMNS + d_bias.len();
        let start = if segments.count() == 1 { &*d_bias } else { &[] };
        let total = segments.sum(
            |some| {
                sum_columns(
                    &d_y[some.start * outputs..some.end * outputs],
                    outputs,
                    &columns,
                    start,
                )
            },
            |mut a, b| {
                a.iter_mut().zip(b).for_each(|(a, b)| *a += b);
                a
            },
        );
        match segments.count() {
            1 => d_bias.copy_from_slice(&total[..columns.len()]),
            _ => d_bias
                .iter_mut()
                .zip(total)
                .for_each(|(d_b, total)| *d_b += total),
        }
    });
}

/// The sums of some columns, and of what they start with.
fn sum_columns(
    rows: &[f32],
    width: usize,
    columns: &Range<usize>,
    start: &[f32],
) -> [f32; COLUMNS] {
    let mut total = [0.0_f64; COLUMNS];
    for rows in rows.chunks(RUN * width) {
        let mut sum = [0.0; COLUMNS];
        let sum = &mut sum[..columns.len()];
        dispatch!(simd::level(), simd => {
            for row in rows.chunks_exact(width) {
                simd::axpy(simd, 1.0, &row[columns.clone()], sum);
            }
        });
        for (total, &sum) in total.iter_mut().zip(sum.iter()) {
            *total += f64::from(sum);
        }
    }
    let mut sums = [0.0; COLUMNS];
    for (i, (sum, total)) in sums.iter_mut().zip(total).enumerate() {
        *sum = (start.get(i).map_or(0.0, |&start| f64::from(start)) + total) as f32;
    }
    sums
}
