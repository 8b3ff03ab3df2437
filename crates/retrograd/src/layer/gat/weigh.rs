//! What both forms of graph attention do with their scores: the softmax's weights, dropped at
//! random in training, and the weighted sums.

use super::PARALLEL;
use super::softmax::{HEADS, softmax_backward};
use crate::Scalar;
use crate::graph::Rows;
use crate::graph::ops::{Aggregate, Coefficient, aggregate, edge_dot, heads_dot};
use crate::layer::dropout::{drop_out, first_element};
use crate::layer::graph::Context;
use crate::layer::sized;
use crate::parallel::{Uneven, for_each_cut};
use crate::simd::{self, dispatch};

/// Weights of the slots, and the rows that they weigh.
#[derive(Default)]
pub(crate) struct Attention<T> {
    /// The rows that are summed.
    pub projected: Vec<T>,
    /// What the softmax gave, by slot and head.
    pub alpha: Vec<T>,
    /// Attention dropout: its factors, and α times them.
    mask: Vec<T>,
    kept: Vec<T>,
    dropped: bool,
    /// The gradient of the scores.
    pub d_scores: Vec<T>,
}

impl<T> Attention<T> {
    /// The weights that the sum takes: α, after dropout where there is any.
    pub fn weights(&self) -> &[T] {
        if self.dropped {
            &self.kept
        } else {
            &self.alpha
        }
    }
}

/// y = Σ α·(projected rows) + bias over the in-edges of every node. In training some weights are
/// dropped first: what the sum takes lies beside what the softmax gave.
pub(crate) fn weigh<T: Scalar>(
    c: &Context<'_, T>,
    heads: usize,
    (dropout, index): (f64, u64),
    bias: &[T],
    memory: &mut Attention<T>,
    y: &mut [T],
) {
    memory.dropped = c.pass.training && dropout > 0.0;
    if memory.dropped {
        let m = sized(&mut memory.mask, memory.alpha.len());
        let kept = sized(&mut memory.kept, memory.alpha.len());
        let key = c.pass.key.purpose("attention dropout").index(index);
        let first = first_element(c.pass, None);
        drop_out((key, first), dropout, &memory.alpha, m, kept);
    }
    let rows = &c.graph().looped().pattern.by_row;
    let sum = Aggregate {
        heads,
        bias: Some(bias),
        ..Aggregate::new(rows, Coefficient::Slot(memory.weights()))
    };
    let width = bias.len();
    aggregate(&sum, &memory.projected, width, y, c.fast);
}

/// d_s of every slot and head into `d_scores`, from d_y and the projected rows.
pub(crate) fn backward_weights<T: Scalar>(
    rows: &Rows,
    [width, heads]: [usize; 2],
    d_y: &[T],
    memory: &mut Attention<T>,
    fast: bool,
) {
    let d = sized(&mut memory.d_scores, rows.slots() * heads);
    if fast
        && heads <= HEADS
        && let (Some(d_y), Some(z)) = (T::f32s(d_y), T::f32s(&memory.projected))
        && let (Some(alpha), Some(mask)) = (T::f32s(&memory.alpha), T::f32s(&memory.mask))
    {
        let mask = memory.dropped.then_some(mask);
        let d = T::f32s_mut(d).expect("one scalar");
        return backward_rows(rows, [width, heads], [d_y, z, alpha], mask, d);
    }
    edge_dot(rows, d_y, &memory.projected, [width, heads], d, fast);
    if memory.dropped {
        for (d, &m) in d.iter_mut().zip(&memory.mask) {
            *d *= m;
        }
    }
    softmax_backward(rows, heads, &memory.alpha, d, fast);
}

/// The same with the products, the mask and the softmax of a row in one go.
fn backward_rows(
    rows: &Rows,
    [width, heads]: [usize; 2],
    [d_y, z, alpha]: [&[f32]; 3],
    mask: Option<&[f32]>,
    d: &mut [f32],
) {
    let head_width = width / heads;
    let parallel = rows.slots() * width >= PARALLEL;
    let owned = Uneven::new(d, &rows.piece_slots, heads);
    for_each_cut(rows.pieces(), parallel, owned, |piece, d| {
        let first = rows.piece_slots[piece] as usize;
        dispatch!(simd::level(), simd => with_known!(heads => {
            let _ = simd;
            for i in rows.piece(piece) {
                let d_y = &d_y[i * width..(i + 1) * width];
                let mut mean = [0.0; HEADS];
                for p in rows.range(i) {
                    let j = rows.neighbour[p] as usize;
                    let z = &z[j * width..(j + 1) * width];
                    let d = &mut d[(p - first) * heads..(p - first + 1) * heads];
                    heads_dot(d_y, z, head_width, d);
                    let alpha = &alpha[p * heads..(p + 1) * heads];
                    if let Some(mask) = mask {
                        let mask = &mask[p * heads..(p + 1) * heads];
                        for h in 0..heads {
                            d[h] *= mask[h];
                        }
                    }
                    for h in 0..heads {
                        mean[h] += alpha[h] * d[h];
                    }
                }
                for p in rows.range(i) {
                    let d = &mut d[(p - first) * heads..(p - first + 1) * heads];
                    let alpha = &alpha[p * heads..(p + 1) * heads];
                    for h in 0..heads {
                        d[h] = alpha[h] * (d[h] - mean[h]);
                    }
                }
            }
        }));
    });
}
