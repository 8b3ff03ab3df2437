//! Plain loops: the oracle.

use super::ConvTranspose2d;
use crate::Scalar;
use crate::layer::{Backward, Forward};

/// Calls `visit(weight index, input place, output place)` for every product of one sample and one
/// pair of channels, places within their planes.
#[inline(always)]
fn products(conv: &ConvTranspose2d, mut visit: impl FnMut(usize, usize, usize)) {
    let (k, s, p) = (conv.kernel, conv.stride, conv.padding);
    let (out_height, out_width) = (conv.out_height(), conv.out_width());
    for u in 0..k {
        for v in 0..k {
            for r in 0..conv.height {
                let to_r = s * r + u;
                if to_r < p || to_r - p >= out_height {
                    continue;
                }
                for c in 0..conv.width {
                    let to_c = s * c + v;
                    if to_c >= p && to_c - p < out_width {
                        visit(
                            u * k + v,
                            r * conv.width + c,
                            (to_r - p) * out_width + to_c - p,
                        );
                    }
                }
            }
        }
    }
}

pub(super) fn forward<T: Scalar>(conv: &ConvTranspose2d, io: Forward<'_, T>) {
    let [weight, bias, ..] = io.params;
    let (plane, out_plane) = (
        conv.height * conv.width,
        conv.out_height() * conv.out_width(),
    );
    let kk = conv.kernel * conv.kernel;
    for n in 0..io.samples {
        for o in 0..conv.outputs {
            let y = &mut io.y[(n * conv.outputs + o) * out_plane..][..out_plane];
            y.fill(bias.get(o).copied().unwrap_or(T::ZERO));
            for i in 0..conv.inputs {
                let x = &io.x[(n * conv.inputs + i) * plane..][..plane];
                let kernel = &weight[(i * conv.outputs + o) * kk..][..kk];
                products(conv, |w, from, to| y[to] += kernel[w] * x[from]);
            }
        }
    }
}

pub(super) fn backward<T: Scalar>(conv: &ConvTranspose2d, io: Backward<'_, T>) {
    let [weight, ..] = io.params;
    let [mut d_weight, d_bias, ..] = io.d_params;
    let (plane, out_plane) = (
        conv.height * conv.width,
        conv.out_height() * conv.out_width(),
    );
    let kk = conv.kernel * conv.kernel;
    if let Some(d_bias) = d_bias {
        for d_y in io.d_y.chunks_exact(conv.outputs * out_plane) {
            for (d_b, d_y) in d_bias.iter_mut().zip(d_y.chunks_exact(out_plane)) {
                *d_b += d_y.iter().copied().sum();
            }
        }
    }
    let mut d_x = io.d_x;
    for n in 0..io.samples {
        for i in 0..conv.inputs {
            let at = (n * conv.inputs + i) * plane;
            let x = &io.x[at..at + plane];
            if let Some(d_x) = &mut d_x {
                d_x[at..at + plane].fill(T::ZERO);
            }
            for o in 0..conv.outputs {
                let d_y = &io.d_y[(n * conv.outputs + o) * out_plane..][..out_plane];
                let kernel_at = (i * conv.outputs + o) * kk;
                if let Some(d_weight) = &mut d_weight {
                    let d_kernel = &mut d_weight[kernel_at..kernel_at + kk];
                    products(conv, |w, from, to| d_kernel[w] += x[from] * d_y[to]);
                }
                if let Some(d_x) = &mut d_x {
                    let d_x = &mut d_x[at..at + plane];
                    let kernel = &weight[kernel_at..kernel_at + kk];
                    products(conv, |w, from, to| d_x[from] += kernel[w] * d_y[to]);
                }
            }
        }
    }
}
