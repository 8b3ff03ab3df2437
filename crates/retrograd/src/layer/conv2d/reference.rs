//! Plain loops over the padded planes: the oracle.

use super::Conv2d;
use crate::Scalar;
use crate::layer::{Backward, Forward, zeros};

/// Writes one padded plane.
pub(super) fn pad<T: Scalar>(conv: &Conv2d, plane: &[T], padded: &mut [T]) {
    let (_, wide) = conv.padded();
    for (r, row) in padded.chunks_exact_mut(wide).enumerate() {
        let source_row = conv.source(r, conv.height);
        for (c, p) in row.iter_mut().enumerate() {
            *p = match (source_row, conv.source(c, conv.width)) {
                (Some(r), Some(c)) => plane[r * conv.width + c],
                _ => T::ZERO,
            };
        }
    }
}

/// The adjoint of [`pad`]: adds every padded pixel to the one it shows.
pub(super) fn fold<T: Scalar>(conv: &Conv2d, padded: &[T], plane: &mut [T]) {
    let (_, wide) = conv.padded();
    plane.fill(T::ZERO);
    for (r, row) in padded.chunks_exact(wide).enumerate() {
        let Some(r) = conv.source(r, conv.height) else {
            continue;
        };
        for (c, &p) in row.iter().enumerate() {
            if let Some(c) = conv.source(c, conv.width) {
                plane[r * conv.width + c] += p;
            }
        }
    }
}

/// The pairs of an output row and the start of the padded row that kernel row `u` and column `v`
/// show it.
fn rows(conv: &Conv2d, u: usize, v: usize) -> impl Iterator<Item = (usize, usize)> + '_ {
    let (_, wide) = conv.padded();
    (0..conv.out_height()).map(move |r| {
        let from = (conv.stride * r + conv.dilation * u) * wide + conv.dilation * v;
        (r * conv.out_width(), from)
    })
}

pub(super) fn forward<T: Scalar>(conv: &Conv2d, io: Forward<'_, T>) {
    let [weight, bias, ..] = io.params;
    let (high, wide) = conv.padded();
    let (plane, out_plane) = (
        conv.height * conv.width,
        conv.out_height() * conv.out_width(),
    );
    let (group_in, group_out) = (conv.inputs / conv.groups, conv.outputs / conv.groups);
    let (k, s, out_width) = (conv.kernel, conv.stride, conv.out_width());
    let padded = zeros(&mut io.saved.scratch, high * wide);
    for n in 0..io.samples {
        let x = &io.x[n * conv.inputs * plane..][..conv.inputs * plane];
        let y = &mut io.y[n * conv.outputs * out_plane..][..conv.outputs * out_plane];
        for (o, y) in y.chunks_exact_mut(out_plane).enumerate() {
            y.fill(bias.get(o).copied().unwrap_or(T::ZERO));
        }
        for i in 0..conv.inputs {
            pad(conv, &x[i * plane..(i + 1) * plane], padded);
            let group = i / group_in;
            for o in group * group_out..(group + 1) * group_out {
                let y = &mut y[o * out_plane..(o + 1) * out_plane];
                let kernel = &weight[(o * group_in + i % group_in) * k * k..][..k * k];
                for u in 0..k {
                    for v in 0..k {
                        let w = kernel[u * k + v];
                        for (to, from) in rows(conv, u, v) {
                            let y = &mut y[to..to + out_width];
                            for (y, &x) in y.iter_mut().zip(padded[from..].iter().step_by(s)) {
                                *y += w * x;
                            }
                        }
                    }
                }
            }
        }
    }
}

pub(super) fn backward<T: Scalar>(conv: &Conv2d, io: Backward<'_, T>) {
    let [weight, ..] = io.params;
    let [mut d_weight, d_bias, ..] = io.d_params;
    let (high, wide) = conv.padded();
    let (plane, out_plane) = (
        conv.height * conv.width,
        conv.out_height() * conv.out_width(),
    );
    let (group_in, group_out) = (conv.inputs / conv.groups, conv.outputs / conv.groups);
    let (k, s, out_width) = (conv.kernel, conv.stride, conv.out_width());
    if let Some(d_bias) = d_bias {
        for d_y in io.d_y.chunks_exact(conv.outputs * out_plane) {
            for (d_b, d_y) in d_bias.iter_mut().zip(d_y.chunks_exact(out_plane)) {
                *d_b += d_y.iter().copied().sum();
            }
        }
    }
    let mut d_x = io.d_x;
    if d_weight.is_none() && d_x.is_none() {
        return;
    }
    let (padded, d_padded) =
        zeros(&mut io.saved.scratch, 2 * high * wide).split_at_mut(high * wide);
    for n in 0..io.samples {
        let d_y = &io.d_y[n * conv.outputs * out_plane..][..conv.outputs * out_plane];
        for i in 0..conv.inputs {
            let at = (n * conv.inputs + i) * plane;
            pad(conv, &io.x[at..at + plane], padded);
            d_padded.fill(T::ZERO);
            let group = i / group_in;
            for o in group * group_out..(group + 1) * group_out {
                let d_y = &d_y[o * out_plane..(o + 1) * out_plane];
                let kernel_at = (o * group_in + i % group_in) * k * k;
                for u in 0..k {
                    for v in 0..k {
                        let w = weight[kernel_at + u * k + v];
                        let mut sum = T::ZERO;
                        for (to, from) in rows(conv, u, v) {
                            let d_y = &d_y[to..to + out_width];
                            if d_weight.is_some() {
                                for (&d, &x) in d_y.iter().zip(padded[from..].iter().step_by(s)) {
                                    sum += d * x;
                                }
                            }
                            if d_x.is_some() {
                                let d_row = d_padded[from..].iter_mut().step_by(s);
                                for (d_p, &d) in d_row.zip(d_y) {
                                    *d_p += w * d;
                                }
                            }
                        }
                        if let Some(d_weight) = &mut d_weight {
                            d_weight[kernel_at + u * k + v] += sum;
                        }
                    }
                }
            }
            if let Some(d_x) = &mut d_x {
                fold(conv, d_padded, &mut d_x[at..at + plane]);
            }
        }
    }
}
