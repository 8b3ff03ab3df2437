//! Softmax over the slots of every row, for each head apart, in place.
//!
//! α_p = e^(s_p − max)/Σ e^(s − max), and d_s_p = α_p·(d_α_p − Σ_q α_q·d_α_q). A row without slots
//! has nothing to do.

use crate::Scalar;
use crate::cuts::cuts;
use crate::graph::pattern::Rows;
use crate::parallel::{Uneven, for_each_cut};
use crate::simd::{self, Simd, dispatch};

/// From this many scores on, rows go to threads: exponentials make a score cost some 3 ns.
const PARALLEL: usize = 1 << 11;

/// Scores to weights.
pub(crate) fn softmax<T: Scalar>(rows: &Rows, heads: usize, scores: &mut [T], fast: bool) {
    let parallel = fast && scores.len() >= PARALLEL;
    let owned = Uneven::new(scores, &rows.piece_slots, heads);
    for_each_cut(rows.pieces(), parallel, owned, |piece, scores| {
        let first = rows.piece_slots[piece] as usize;
        let place = |i: usize| {
            let range = rows.range(i);
            (range.start - first) * heads..(range.end - first) * heads
        };
        match T::f32s_mut(scores) {
            Some(scores) if fast && heads <= HEADS => dispatch!(simd::level(), simd => {
                with_known!(heads => for i in rows.piece(piece) {
                    row_f32(simd, &mut scores[place(i)], heads);
                });
            }),
            _ => {
                for i in rows.piece(piece) {
                    let row = &mut scores[place(i)];
                    (0..heads).for_each(|head| row_head(row, heads, head));
                }
            }
        }
    });
}

fn row_head<T: Scalar>(row: &mut [T], heads: usize, head: usize) {
    let slots = row.len() / heads;
    let Some(largest) = (0..slots)
        .map(|k| row[k * heads + head])
        .reduce(|a, b| a.max(b))
    else {
        return;
    };
    let mut sum = T::ZERO;
    for k in 0..slots {
        let e = (row[k * heads + head] - largest).exp();
        row[k * heads + head] = e;
        sum += e;
    }
    for k in 0..slots {
        row[k * heads + head] /= sum;
    }
}

/// Heads that are computed side by side.
pub(crate) const HEADS: usize = 16;
cuts!(PARALLEL, HEADS);

/// Heads side by side: the exponentials of a whole row in lanes of 16.
#[inline(always)]
pub(super) fn row_f32<S: Simd>(simd: S, row: &mut [f32], heads: usize) {
    let mut largest = [f32::NEG_INFINITY; HEADS];
    for scores in row.chunks_exact(heads) {
        for (m, &s) in largest.iter_mut().zip(scores) {
            *m = if s > *m { s } else { *m };
        }
    }
    for scores in row.chunks_exact_mut(heads) {
        for (s, &m) in scores.iter_mut().zip(&largest) {
            *s -= m;
        }
    }
    for s in row.chunks_mut(16) {
        simd::store(simd::exp(simd, simd::load(simd, s)), s);
    }
    let mut sum = [0.0_f32; HEADS];
    for scores in row.chunks_exact(heads) {
        for (sum, &s) in sum.iter_mut().zip(scores) {
            *sum += s;
        }
    }
    for scores in row.chunks_exact_mut(heads) {
        for (s, &sum) in scores.iter_mut().zip(&sum) {
            *s /= sum;
        }
    }
}

/// d_α to d_s, in place.
pub(crate) fn softmax_backward<T: Scalar>(
    rows: &Rows,
    heads: usize,
    alpha: &[T],
    d: &mut [T],
    fast: bool,
) {
    let parallel = fast && d.len() >= PARALLEL;
    let owned = Uneven::new(d, &rows.piece_slots, heads);
    for_each_cut(rows.pieces(), parallel, owned, |piece, d| {
        let first = rows.piece_slots[piece] as usize;
        for i in rows.piece(piece) {
            let range = rows.range(i);
            let alpha = &alpha[range.start * heads..range.end * heads];
            let d = &mut d[(range.start - first) * heads..(range.end - first) * heads];
            for head in 0..heads {
                let mut mean = T::ZERO;
                for (alpha, d) in alpha.chunks_exact(heads).zip(d.chunks_exact(heads)) {
                    mean += alpha[head] * d[head];
                }
                for (alpha, d) in alpha.chunks_exact(heads).zip(d.chunks_exact_mut(heads)) {
                    d[head] = alpha[head] * (d[head] - mean);
                }
            }
        }
    });
}
