//! f32: three matrix products, which cut themselves into pieces and spread those over threads.

use super::Dense;
use crate::nn::gemm::{Stride, gemm};
use crate::parallel;
use crate::simd::{self, dispatch};

pub(super) fn forward(
    layer: &Dense,
    rows: usize,
    weight: &[f32],
    bias: &[f32],
    x: &[f32],
    y: &mut [f32],
    pack: &mut Vec<f32>,
) {
    let (inputs, outputs) = (layer.inputs, layer.outputs);
    if !bias.is_empty() {
        for y in y.chunks_exact_mut(outputs) {
            y.copy_from_slice(bias);
        }
    }
    let (x, weight) = (
        (x, Stride::rows(inputs)),
        (weight, Stride::transposed(inputs)),
    );
    gemm(
        [rows, outputs, inputs],
        x,
        weight,
        y,
        !bias.is_empty(),
        pack,
    );
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
    pack: &mut Vec<f32>,
) {
    let (inputs, outputs) = (layer.inputs, layer.outputs);
    if let Some(d_x) = d_x {
        let (d_y, weight) = ((d_y, Stride::rows(outputs)), (weight, Stride::rows(inputs)));
        gemm([rows, inputs, outputs], d_y, weight, d_x, false, pack);
    }
    if let Some(d_weight) = d_weight {
        // A thread owns rows of d_W and goes over all samples: nothing to reduce.
        let (d_y, x) = (
            (d_y, Stride::transposed(outputs)),
            (x, Stride::rows(inputs)),
        );
        gemm([outputs, inputs, rows], d_y, x, d_weight, true, pack);
    }
    if let Some(d_bias) = d_bias {
        // Short runs, added in order and in f64 on top.
        const RUN: usize = 256;
        parallel::sum_pieces(rows.div_ceil(RUN), d_bias, pack, false, |i, sum| {
            let last = (RUN * (i + 1)).min(rows);
            let d_y = &d_y[i * RUN * outputs..last * outputs];
            dispatch!(simd::level(), simd => {
                for d_y in d_y.chunks_exact(outputs) {
                    simd::axpy(simd, 1.0, d_y, sum);
                }
            });
        });
    }
}
