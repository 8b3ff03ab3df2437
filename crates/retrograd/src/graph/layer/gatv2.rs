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

use super::attention::Memory;
use super::gat::{SLOPE, backward_weights, weigh};
use super::softmax::softmax;
use super::{Back, Context, LayerTape, sized};
use crate::graph::batch::NodeValues;
use crate::graph::ops::{Linear, heads_dot};
use crate::graph::structure::Graph;
use crate::parallel::{Uneven, for_each_cut};
use crate::simd::{self, dispatch};
use crate::{Layout, Scalar};

pub(crate) struct GatV2 {
    pub source: Linear,
    pub target: Linear,
    pub heads: usize,
    /// Probability of dropping an attention weight in training.
    pub dropout: f64,
    att: usize,
    att_at: usize,
    bias: usize,
    bias_at: usize,
}

/// From this many slots and features on, work goes to threads: some 5 µs on one
/// (`retrograd bench threshold-gatv2` measures that).
const PARALLEL: usize = 1 << 13;

impl GatV2 {
    pub fn new(
        layout: &mut Layout,
        prefix: &str,
        [inputs, out, heads]: [usize; 3],
        dropout: f64,
    ) -> Self {
        let width = heads * out;
        let source = Linear::new(layout, &format!("{prefix}.lin_l"), inputs, width, true);
        let target = Linear::new(layout, &format!("{prefix}.lin_r"), inputs, width, true);
        let att = layout.tensors().len();
        let att_at = layout.push(format!("{prefix}.att"), &[1, heads, out]).start;
        let bias_at = layout.push(format!("{prefix}.bias"), &[width]).start;
        GatV2 {
            source,
            target,
            heads,
            dropout,
            att,
            att_at,
            bias: att + 1,
            bias_at,
        }
    }

    pub fn forward<T: Scalar>(
        &self,
        c: &Context<'_, T>,
        x: NodeValues<'_, T>,
        tape: &mut LayerTape<T>,
    ) {
        let (width, heads) = (self.source.outputs, self.heads);
        let n = c.graph().nodes();
        let memory = &mut tape.attention;
        self.source
            .forward(c, x, sized(&mut memory.projected, n * width), false);
        self.target
            .forward(c, x, sized(&mut memory.targets, n * width), false);
        let rows = &c.graph().looped().pattern.by_row;
        let att = &c.params[self.att_at..self.att_at + width];
        let (l, r) = (&memory.projected[..], &memory.targets[..]);
        let scores = sized(&mut memory.alpha, rows.slots() * heads);
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
        softmax(rows, heads, &mut memory.alpha, c.fast);
        let bias = &c.params[self.bias_at..self.bias_at + width];
        weigh(c, heads, self.dropout, bias, tape);
    }

    pub fn backward<T: Scalar>(
        &self,
        b: &mut Back<'_, T>,
        x: NodeValues<'_, T>,
        tape: &mut LayerTape<T>,
        d_y: &[T],
        d_x: Option<&mut [T]>,
    ) {
        let (width, heads) = (self.source.outputs, self.heads);
        let head_width = width / heads;
        let graph = b.c.batch.graph().clone();
        let n = graph.nodes();
        let fast = b.c.fast;
        let memory = &mut tape.attention;
        b.add_column_sums(self.bias, d_y);
        let pattern = &graph.looped().pattern;
        let rows = &pattern.by_row;
        backward_weights(rows, heads, width, d_y, memory, fast);
        let att = &b.c.params[self.att_at..self.att_at + width];
        let (l, r) = (&memory.projected[..], &memory.targets[..]);
        let d_s = &memory.d_scores[..];
        let parallel = fast && rows.slots() * width >= PARALLEL;
        // By target: d_r, and every piece's part of d_att.
        let pieces = rows.pieces();
        memory.bounds.clear();
        memory.bounds.extend(0..=pieces as u32);
        let d_att = sized(&mut memory.d_att, pieces * width);
        let d_r = sized(&mut memory.d_targets, n * width);
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
        let mut d_l = std::mem::take(&mut memory.d_projected);
        let weights = memory.weights();
        let owned = Uneven::new(sized(&mut d_l, n * width), &columns.piece_rows, width);
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
        memory.d_projected = d_l;
        // The pieces' parts, in order.
        if let Some(d) = b.gradient(self.att) {
            for (k, d) in d.iter_mut().enumerate() {
                *d += memory.d_att.iter().skip(k).step_by(width).copied().sum();
            }
        }
        for (linear, d) in [
            (&self.source, &memory.d_projected),
            (&self.target, &memory.d_targets),
        ] {
            linear.backward_params(b, x, d);
        }
        if let Some(d_x) = d_x {
            self.source
                .backward_input(&b.c, x, &memory.d_projected, d_x, false);
            self.target
                .backward_input(&b.c, x, &memory.d_targets, d_x, true);
        }
    }

    /// On which side of its kink each u is.
    pub fn pattern<T: Scalar>(&self, graph: &Graph, memory: &Memory<T>, pattern: &mut Vec<u32>) {
        let rows = &graph.looped().pattern.by_row;
        let width = self.source.outputs;
        for i in 0..rows.len() {
            for p in rows.range(i) {
                let j = rows.neighbour[p] as usize;
                for k in 0..width {
                    let u = memory.projected[j * width + k] + memory.targets[i * width + k];
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
    const BLOCK: usize = 256;
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use crate::graph::{Graph, GraphBatch, GraphNetwork, GraphTape};
    use crate::rng::Key;
    use crate::{Grads, Model, Pass};

    /// Why some faults in the gradient of `lin_r` are none (see the verifier's built-in models):
    /// with one slope for all in-edges, d_r is a multiple of Σ_p d_s_p = 0.
    #[test]
    fn targets_have_a_gradient_only_where_kinks_fall_among_their_edges() {
        let json = r#"{"features": 3, "layers": [{"kind": "gatv2", "out": 2, "heads": 2}]}"#;
        let network = GraphNetwork::new(&serde_json::from_str(json).unwrap()).unwrap();
        let graph = Graph::new(5, &[1, 2, 3, 4, 0, 2, 3], &[0, 0, 0, 0, 1, 1, 1]).unwrap();
        let mut stream = Key::new(3).purpose("gatv2 test").stream();
        let mut numbers =
            |count: usize| -> Vec<f64> { (0..count).map(|_| stream.range(-2.0, 2.0)).collect() };
        let batch = GraphBatch::dense(Arc::new(graph), 3, numbers(15)).unwrap();
        let d_y = numbers(20);
        let mut params = numbers(network.layout().len());
        let range = |name: &str| {
            let mut tensors = network.layout().tensors().iter();
            let found = tensors.find(|t| t.name.ends_with(name));
            found.expect("a tensor of the layer").range()
        };
        let pass = Pass::inference().reference();
        let gradients = |params: &[f64]| {
            let mut tape = GraphTape::default();
            network.forward(params, &batch, &pass, &mut tape);
            let mut d = vec![0.0; params.len()];
            network.backward(
                params,
                &batch,
                &pass,
                &mut tape,
                &d_y,
                Grads::params(&mut d),
            );
            d
        };
        let mixed = gradients(&params);
        for name in ["lin_r.weight", "lin_r.bias"] {
            assert!(mixed[range(name)].iter().any(|d| d.abs() > 1e-3), "{name}");
        }
        // All sums are now right of the kink.
        params[range("lin_r.bias")].fill(60.0);
        let open = gradients(&params);
        for name in ["lin_r.weight", "lin_r.bias"] {
            assert!(open[range(name)].iter().all(|d| d.abs() < 1e-11), "{name}");
        }
        assert!(open[range("lin_l.weight")].iter().any(|d| d.abs() > 1e-3));
    }
}
