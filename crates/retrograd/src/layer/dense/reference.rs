//! Plain loops: the oracle.

use super::Dense;
use crate::Scalar;

pub(super) fn forward<T: Scalar>(layer: &Dense, weight: &[T], bias: &[T], x: &[T], y: &mut [T]) {
    let [step, to_next] = layer.steps();
    for (x, y) in x
        .chunks_exact(layer.inputs)
        .zip(y.chunks_exact_mut(layer.outputs))
    {
        for (o, y) in y.iter_mut().enumerate() {
            let row = weight[o * step..].iter().step_by(to_next);
            let mut sum = bias.get(o).copied().unwrap_or(T::ZERO);
            for (&w, &x) in row.zip(x) {
                sum += w * x;
            }
            *y = sum;
        }
    }
}

pub(super) fn backward<T: Scalar>(
    layer: &Dense,
    weight: &[T],
    x: &[T],
    d_y: &[T],
    d_weight: Option<&mut [T]>,
    d_bias: Option<&mut [T]>,
    d_x: Option<&mut [T]>,
) {
    let (inputs, outputs) = (layer.inputs, layer.outputs);
    let [step, to_next] = layer.steps();
    if let Some(d_weight) = d_weight {
        for (x, d_y) in x.chunks_exact(inputs).zip(d_y.chunks_exact(outputs)) {
            for (o, &d_y) in d_y.iter().enumerate() {
                let d_row = d_weight[o * step..].iter_mut().step_by(to_next);
                for (d_w, &x) in d_row.zip(x) {
                    *d_w += d_y * x;
                }
            }
        }
    }
    if let Some(d_bias) = d_bias {
        for d_y in d_y.chunks_exact(outputs) {
            for (d_b, &d_y) in d_bias.iter_mut().zip(d_y) {
                *d_b += d_y;
            }
        }
    }
    if let Some(d_x) = d_x {
        for (d_x, d_y) in d_x.chunks_exact_mut(inputs).zip(d_y.chunks_exact(outputs)) {
            d_x.fill(T::ZERO);
            for (o, &d_y) in d_y.iter().enumerate() {
                let row = weight[o * step..].iter().step_by(to_next);
                for (d_x, &w) in d_x.iter_mut().zip(row) {
                    *d_x += d_y * w;
                }
            }
        }
    }
}
