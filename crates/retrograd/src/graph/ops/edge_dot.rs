//! Products of the rows at both ends of every slot: the gradients of coefficients.

use super::aggregate::{PARALLEL, cost};
use crate::Scalar;
use crate::graph::pattern::Rows;
use crate::parallel::{Uneven, for_each_cut};
use crate::simd::{self, dispatch};

/// out_ph = a_ih · b_{neighbour(p)h} for every slot p of every row i and every head h.
pub fn edge_dot<T: Scalar>(
    rows: &Rows,
    a: &[T],
    b: &[T],
    [width, heads]: [usize; 2],
    out: &mut [T],
    fast: bool,
) {
    let head_width = width / heads;
    if fast && let (Some(a), Some(b)) = (T::f32s(a), T::f32s(b)) {
        let out = T::f32s_mut(out).expect("one scalar");
        let parallel = cost(rows, width) >= PARALLEL;
        let owned = Uneven::new(out, &rows.piece_slots, heads);
        for_each_cut(rows.pieces(), parallel, owned, |piece, out| {
            let first = rows.piece_slots[piece] as usize;
            dispatch!(simd::level(), simd => {
                for i in rows.piece(piece) {
                    let a = &a[i * width..(i + 1) * width];
                    for p in rows.range(i) {
                        let j = rows.neighbour[p] as usize;
                        let b = &b[j * width..(j + 1) * width];
                        let out = &mut out[(p - first) * heads..(p - first + 1) * heads];
                        if heads == 1 {
                            out[0] = simd::dot(simd, a, b);
                        } else {
                            heads_dot(a, b, head_width, out);
                        }
                    }
                }
            });
        });
        return;
    }
    for i in 0..rows.len() {
        for p in rows.range(i) {
            let j = rows.neighbour[p] as usize;
            for head in 0..heads {
                let columns = head * head_width..(head + 1) * head_width;
                out[p * heads + head] = columns.map(|c| a[i * width + c] * b[j * width + c]).sum();
            }
        }
    }
}

/// The dot products of the heads of two rows.
#[inline(always)]
pub(crate) fn heads_dot(a: &[f32], b: &[f32], head_width: usize, out: &mut [f32]) {
    if head_width == 8 {
        // The usual width, without loops whose length the compiler doesn't know.
        let heads = a.as_chunks::<8>().0.iter().zip(b.as_chunks::<8>().0);
        for (out, (a, b)) in out.iter_mut().zip(heads) {
            let mut lanes = [0.0; 8];
            for l in 0..8 {
                lanes[l] = a[l] * b[l];
            }
            *out = lanes_sum(lanes);
        }
        return;
    }
    let heads = a.chunks_exact(head_width).zip(b.chunks_exact(head_width));
    for (out, (a, b)) in out.iter_mut().zip(heads) {
        let mut lanes = [0.0; 8];
        let (mut a8, mut b8) = (a.chunks_exact(8), b.chunks_exact(8));
        for (a, b) in (&mut a8).zip(&mut b8) {
            for l in 0..8 {
                lanes[l] += a[l] * b[l];
            }
        }
        for ((lane, a), b) in lanes.iter_mut().zip(a8.remainder()).zip(b8.remainder()) {
            *lane += a * b;
        }
        *out = lanes_sum(lanes);
    }
}

/// A tree of three levels.
#[inline(always)]
fn lanes_sum(lanes: [f32; 8]) -> f32 {
    ((lanes[0] + lanes[4]) + (lanes[2] + lanes[6]))
        + ((lanes[1] + lanes[5]) + (lanes[3] + lanes[7]))
}
