//! Graph attention, second form: the score looks at both ends before the kink.
//!
//! With l = x·W_l + b_l (sources) and r = x·W_r + b_r (targets), over the in-edges p = (j → i) of
//! every node, a self-loop included:
//!
//! ```text
//! u_p = l_j + r_i,   s_ph = att_h · LeakyReLU(u_ph, 0.2)
//! α_ph = softmax over p of s_ph,   y_ih = Σ_p α_ph·l_jh + b_h
//! ```
//!
//! Backward: d_α_ph = d_y_ih · l_jh; d_s from the softmax; with q_p = d_s_p·att·LeakyReLU′(u_p):
//! d_r_i = Σ_{p into i} q_p; d_l_j = Σ_{p out of j} (q_p + α_p·d_y_i);
//! d_att_h = Σ_p d_s_ph·LeakyReLU(u_ph).

#[cfg(feature = "gpu")]
pub(crate) mod gpu;
mod spec;
#[cfg(test)]
mod tests;

pub use spec::GatV2Spec;

use crate::Scalar;
use crate::graph::ops::{Linear, heads_dot};
use crate::layer::gat::{Attention, SLOPE, backward_weights, softmax, weigh};
use crate::layer::graph::{Returning, fan_in, glorot};
use crate::layer::{Backward, Describe, Forward, Layer, Seen, TensorSpec, sized, uniform};
use crate::parallel::{Uneven, for_each_cut};
use crate::rng::Stream;
use crate::simd::{self, dispatch};

/// Slots of the tensors after those of the two maps.
const ATT: usize = 4;
const BIAS: usize = 5;

pub(crate) struct GatV2 {
    source: Linear,
    target: Linear,
    heads: usize,
    /// Probability of dropping an attention weight in training.
    dropout: f64,
    /// The layer's number: two layers of one network draw different masks.
    index: u64,
}

/// What is kept between forward and backward.
#[derive(Default)]
struct Memory<T> {
    /// l, the attention weights, and what they take.
    attention: Attention<T>,
    r: Vec<T>,
    d_l: Vec<T>,
    d_r: Vec<T>,
    /// Every piece's part of the gradient, and the pieces' bounds.
    d_att: Vec<T>,
    bounds: Vec<u32>,
}

/// From this many slots and features on, work goes to threads: some 5 µs on one
/// (`retrograd bench threshold-gatv2` measures that).
const PARALLEL: usize = 1 << 13;
/// The widest row whose bent sums are kept at once.
const BLOCK: usize = 256;
crate::cuts::cuts!(PARALLEL, BLOCK);

impl Describe for GatV2 {
    #[cfg(feature = "gpu")]
    fn record(&self) -> Option<&dyn crate::gpu::layer::Record> {
        Some(self)
    }

    #[cfg(feature = "gpu")]
    fn draws(&self) -> Option<(&'static str, u64)> {
        (self.dropout > 0.0).then_some(("attention dropout", self.index))
    }

    fn tensors(&self) -> Vec<Option<TensorSpec>> {
        let (width, heads) = (self.source.outputs, self.heads);
        let mut all = Vec::from(self.source.tensors("lin_l.weight", "lin_l.bias"));
        all.extend(self.target.tensors("lin_r.weight", "lin_r.bias"));
        all.push(Some(TensorSpec::new("att", &[1, heads, width / heads])));
        all.push(Some(TensorSpec::new("bias", &[width])));
        all
    }

    fn init(&self, slot: usize, len: usize, stream: &mut Stream) -> Vec<f32> {
        let Linear {
            inputs, outputs, ..
        } = self.source;
        match slot {
            BIAS => vec![0.0; len],
            ATT => uniform(len, glorot(self.heads, outputs / self.heads), stream),
            0 | 2 => self.source.init_weight(glorot(inputs, outputs), stream),
            _ => uniform(len, fan_in(inputs), stream),
        }
    }

    fn reads_sparse(&self) -> bool {
        true
    }
}

impl<T: Scalar> Layer<T> for GatV2 {
    fn forward(&self, io: Forward<'_, T>) {
        let (c, x, y, memory) = io.on_graph::<Memory<T>>();
        let (width, heads) = (self.source.outputs, self.heads);
        let n = c.graph().nodes();
        let attention = &mut memory.attention;
        let l = sized(&mut attention.projected, n * width);
        self.source.forward(&c, x, l, false);
        self.target
            .forward(&c, x, sized(&mut memory.r, n * width), false);
        let rows = &c.graph().looped().pattern.by_row;
        let att = c.params[ATT];
        let (l, r) = (&attention.projected[..], &memory.r[..]);
        let scores = sized(&mut attention.alpha, rows.slots() * heads);
        let parallel = c.fast && rows.slots() * width >= PARALLEL;
        let owned = Uneven::new(scores, &rows.piece_slots, heads);
        for_each_cut(rows.pieces(), parallel, owned, |piece, scores| {
            let range = rows.piece(piece);
            if c.fast
                && let (Some(l), Some(r), Some(att)) = (T::f32s(l), T::f32s(r), T::f32s(att))
            {
                let scores = T::f32s_mut(scores).expect("one scalar");
                let mut scores = scores.chunks_exact_mut(heads);
                dispatch!(simd::level(), simd => {
                    let _ = simd;
                    for i in range {
                        let r = &r[i * width..(i + 1) * width];
                        for p in rows.range(i) {
                            let j = rows.neighbour[p] as usize;
                            let l = &l[j * width..(j + 1) * width];
                            let scores = scores.next().expect("scores of every slot");
                            slot_scores(l, r, att, width / heads, scores);
                        }
                    }
                });
                return;
            }
            let head_width = width / heads;
            let mut scores = scores.iter_mut();
            for i in range {
                for p in rows.range(i) {
                    let j = rows.neighbour[p] as usize;
                    for h in 0..heads {
                        let columns = h * head_width..(h + 1) * head_width;
                        let score = columns
                            .map(|k| att[k] * leaky(l[j * width + k] + r[i * width + k]))
                            .sum();
                        *scores.next().expect("a score per slot and head") = score;
                    }
                }
            }
        });
        softmax(rows, heads, &mut attention.alpha, c.fast);
        let dropout = (self.dropout, self.index);
        weigh(&c, heads, dropout, c.params[BIAS], attention, y);
    }

    fn backward(&self, io: Backward<'_, T>) {
        let Returning {
            mut b,
            x,
            d_y,
            d_x,
            saved: memory,
        } = io.on_graph::<Memory<T>>();
        let b = &mut b;
        let (width, heads) = (self.source.outputs, self.heads);
        let head_width = width / heads;
        let graph = b.c.graph();
        let n = graph.nodes();
        let fast = b.c.fast;
        b.add_column_sums(BIAS, d_y);
        let pattern = &graph.looped().pattern;
        let rows = &pattern.by_row;
        backward_weights(rows, [width, heads], d_y, &mut memory.attention, fast);
        let att = b.c.params[ATT];
        let attention = &memory.attention;
        let (l, r) = (&attention.projected[..], &memory.r[..]);
        let d_s = &attention.d_scores[..];
        let parallel = fast && rows.slots() * width >= PARALLEL;
        // By target: d_r, and every piece's part of d_att.
        let pieces = rows.pieces();
        memory.bounds.clear();
        memory.bounds.extend(0..=pieces as u32);
        let d_att = sized(&mut memory.d_att, pieces * width);
        let d_r = sized(&mut memory.d_r, n * width);
        let owned = (
            Uneven::new(d_r, &rows.piece_rows, width),
            Uneven::new(d_att, &memory.bounds, width),
        );
        for_each_cut(pieces, parallel, owned, |piece, (d_r, d_att)| {
            d_att.fill(T::ZERO);
            // Elementwise: under `dispatch!` the compiler makes vectors of it.
            dispatch!(simd::level(), simd => {
                let _ = simd;
                for (i, d_r) in rows.piece(piece).zip(d_r.chunks_exact_mut(width)) {
                    d_r.fill(T::ZERO);
                    let r = &r[i * width..(i + 1) * width];
                    for p in rows.range(i) {
                        let j = rows.neighbour[p] as usize;
                        let l = &l[j * width..(j + 1) * width];
                        for h in 0..heads {
                            let d = d_s[p * heads + h];
                            for k in h * head_width..(h + 1) * head_width {
                                let u = l[k] + r[k];
                                d_att[k] += d * leaky(u);
                                d_r[k] += d * att[k] * leaky_slope(u);
                            }
                        }
                    }
                }
            });
        });
        // By source: d_l.
        let columns = &pattern.by_column;
        let weights = attention.weights();
        let d_l = sized(&mut memory.d_l, n * width);
        let owned = Uneven::new(d_l, &columns.piece_rows, width);
        for_each_cut(columns.pieces(), parallel, owned, |piece, d_l| {
            dispatch!(simd::level(), simd => {
                let _ = simd;
                for (j, d_l) in columns.piece(piece).zip(d_l.chunks_exact_mut(width)) {
                    d_l.fill(T::ZERO);
                    let l = &l[j * width..(j + 1) * width];
                    for q in columns.range(j) {
                        let p = pattern.slot[q] as usize;
                        let i = columns.neighbour[q] as usize;
                        let r = &r[i * width..(i + 1) * width];
                        let d_y = &d_y[i * width..(i + 1) * width];
                        for h in 0..heads {
                            let (d, a) = (d_s[p * heads + h], weights[p * heads + h]);
                            for k in h * head_width..(h + 1) * head_width {
                                d_l[k] += d * att[k] * leaky_slope(l[k] + r[k]) + a * d_y[k];
                            }
                        }
                    }
                }
            });
        });
        // The pieces' parts, in order.
        if let Some((d, _)) = b.gradient(ATT) {
            for (k, d) in d.iter_mut().enumerate() {
                *d += memory.d_att.iter().skip(k).step_by(width).copied().sum();
            }
        }
        for (linear, d) in [(&self.source, &memory.d_l), (&self.target, &memory.d_r)] {
            linear.backward_params(b, x, d);
        }
        if let Some(d_x) = d_x {
            self.source.backward_input(&b.c, x, &memory.d_l, d_x, false);
            self.target.backward_input(&b.c, x, &memory.d_r, d_x, true);
        }
    }

    /// On which side of its kink each u is.
    fn pattern(&self, seen: Seen<'_, T>, pattern: &mut Vec<u32>) {
        let (graph, memory) = seen.on_graph::<Memory<T>>();
        let rows = &graph.looped().pattern.by_row;
        let width = self.source.outputs;
        for i in 0..rows.len() {
            for p in rows.range(i) {
                let j = rows.neighbour[p] as usize;
                for k in 0..width {
                    let u = memory.attention.projected[j * width + k] + memory.r[i * width + k];
                    pattern.push(u32::from(u > T::ZERO));
                }
            }
        }
    }
}

#[inline(always)]
fn leaky<T: Scalar>(u: T) -> T {
    if u > T::ZERO {
        u
    } else {
        T::from_f64(SLOPE) * u
    }
}

#[inline(always)]
fn leaky_slope<T: Scalar>(u: T) -> T {
    if u > T::ZERO {
        T::ONE
    } else {
        T::from_f64(SLOPE)
    }
}

/// att_h · LeakyReLU(l_h + r_h) for the heads of one slot.
#[inline(always)]
fn slot_scores(l: &[f32], r: &[f32], att: &[f32], head_width: usize, scores: &mut [f32]) {
    // Blocks of whole heads on the stack; wider heads go straight.
    let mut bent = [0.0_f32; BLOCK];
    if att.len() <= BLOCK {
        let bent = &mut bent[..att.len()];
        for ((bent, &l), &r) in bent.iter_mut().zip(l).zip(r) {
            *bent = leaky(l + r);
        }
        return heads_dot(bent, att, head_width, scores);
    }
    for (h, score) in scores.iter_mut().enumerate() {
        let columns = h * head_width..(h + 1) * head_width;
        *score = columns.map(|k| att[k] * leaky(l[k] + r[k])).sum();
    }
}
