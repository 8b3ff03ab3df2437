//! Self-attention among the nodes of each graph, whatever its edges.
//!
//! With (q, k, v) = x·W_in + b_in cut into heads of C features:
//!
//! ```text
//! s_ij = q_i · k_j/√C,   α_ij = softmax over j of s_ij,   o_i = Σ_j α_ij·v_j,   y = o·W_out + b_out
//! ```
//!
//! Backward: d_o = d_y·W_outᵀ; d_α_ij = d_o_i · v_j; d_s_ij = α_ij·(d_α_ij − Σ_l α_il·d_α_il);
//! d_q_i = Σ_j d_s_ij·k_j/√C; d_k_j = Σ_i d_s_ij·q_i/√C; d_v_j = Σ_i α_ij·d_o_i.
//!
//! Names are those of PyTorch's `MultiheadAttention`. Graphs are independent: each is owned by one
//! thread.

use super::{Back, Context, LayerTape, sized};
use crate::graph::batch::NodeValues;
use crate::graph::ops::Linear;
use crate::parallel::{Uneven, for_each_cut};
use crate::simd::{self, dispatch};
use crate::{Layout, Scalar};

/// Memory of the attention layers, each named for what it holds.
pub(crate) struct Memory<T> {
    /// The rows that are summed: z, l, or q, k and v.
    pub projected: Vec<T>,
    /// r of `gatv2`.
    pub targets: Vec<T>,
    /// att_src · z and att_dst · z of `gat`.
    pub from: Vec<T>,
    pub to: Vec<T>,
    /// What the softmax gave, by slot and head.
    pub alpha: Vec<T>,
    /// Attention dropout: its factors, and α times them.
    pub mask: Vec<T>,
    pub kept: Vec<T>,
    pub dropped: bool,
    /// Gradients of the above.
    pub d_scores: Vec<T>,
    pub d_from: Vec<T>,
    pub d_to: Vec<T>,
    pub d_projected: Vec<T>,
    pub d_targets: Vec<T>,
    pub d_att: Vec<T>,
    /// What the heads of self-attention summed, and its gradient.
    pub summed: Vec<T>,
    pub d_summed: Vec<T>,
    pub bounds: Vec<u32>,
    pub node_bounds: Vec<u32>,
}

impl<T> Default for Memory<T> {
    fn default() -> Self {
        Memory {
            projected: Vec::new(),
            targets: Vec::new(),
            from: Vec::new(),
            to: Vec::new(),
            alpha: Vec::new(),
            mask: Vec::new(),
            kept: Vec::new(),
            dropped: false,
            d_scores: Vec::new(),
            d_from: Vec::new(),
            d_to: Vec::new(),
            d_projected: Vec::new(),
            d_targets: Vec::new(),
            d_att: Vec::new(),
            summed: Vec::new(),
            d_summed: Vec::new(),
            bounds: Vec::new(),
            node_bounds: Vec::new(),
        }
    }
}

impl<T> Memory<T> {
    /// The weights that the sum takes: α, after dropout where there is any.
    pub fn weights(&self) -> &[T] {
        if self.dropped {
            &self.kept
        } else {
            &self.alpha
        }
    }
}

pub(crate) struct SelfAttention {
    pub input: Linear,
    pub output: Linear,
    pub heads: usize,
}

/// From this many scores on, graphs go to threads (`retrograd bench threshold-self-attention`
/// measures that).
const PARALLEL: usize = 1 << 12;

impl SelfAttention {
    pub fn new(layout: &mut Layout, prefix: &str, width: usize, heads: usize) -> Self {
        let [weight, bias] = ["weight", "bias"].map(|kind| format!("{prefix}.in_proj_{kind}"));
        SelfAttention {
            input: Linear::named(layout, &weight, Some(&bias), width, 3 * width),
            output: Linear::new(layout, &format!("{prefix}.out_proj"), width, width, true),
            heads,
        }
    }

    /// The first score (in units of heads) and the first node of every graph.
    fn bounds<T: Scalar>(c: &Context<'_, T>, memory: &mut Memory<T>) {
        let graph = c.graph();
        memory.bounds.clear();
        memory.node_bounds.clear();
        let (mut scores, mut nodes) = (0_u32, 0_u32);
        for g in 0..graph.graphs() {
            memory.bounds.push(scores);
            memory.node_bounds.push(nodes);
            let n = graph.nodes_of(g).len() as u32;
            scores += n * n;
            nodes += n;
        }
        memory.bounds.push(scores);
        memory.node_bounds.push(nodes);
    }

    pub fn forward<T: Scalar>(&self, c: &Context<'_, T>, x: &[T], tape: &mut LayerTape<T>) {
        let (width, heads) = (self.output.inputs, self.heads);
        let graph = c.graph();
        let n = graph.nodes();
        let memory = &mut tape.attention;
        Self::bounds(c, memory);
        let qkv = sized(&mut memory.projected, n * 3 * width);
        self.input.forward(c, NodeValues::Dense(x), qkv, false);
        let qkv = &memory.projected[..];
        let scores = memory.bounds[graph.graphs()] as usize * heads;
        let alpha = sized(&mut memory.alpha, scores);
        let o = sized(&mut memory.summed, n * width);
        let owned = (
            Uneven::new(alpha, &memory.bounds, heads),
            Uneven::new(o, &memory.node_bounds, width),
        );
        let parallel = c.fast && scores >= PARALLEL;
        let head_width = width / heads;
        let scale = T::ONE / T::from_usize(head_width).sqrt();
        for_each_cut(graph.graphs(), parallel, owned, |g, (alpha, o)| {
            let nodes = graph.nodes_of(g);
            let n = nodes.len();
            let row = |i: usize, part: usize, h: usize| {
                let at = ((nodes.start + i) * 3 + part) * width + h * head_width;
                &qkv[at..at + head_width]
            };
            dispatch!(simd::level(), simd => {
                let _ = simd;
                for h in 0..heads {
                    for i in 0..n {
                        let at = (h * n + i) * n;
                        let alpha = &mut alpha[at..at + n];
                        let q = row(i, 0, h);
                        for (j, alpha) in alpha.iter_mut().enumerate() {
                            *alpha = product(q, row(j, 1, h)) * scale;
                        }
                        let largest = alpha.iter().copied().fold(alpha[0], T::max);
                        let mut sum = T::ZERO;
                        for alpha in alpha.iter_mut() {
                            *alpha = (*alpha - largest).exp();
                            sum += *alpha;
                        }
                        let at = i * width + h * head_width;
                        let o = &mut o[at..at + head_width];
                        o.fill(T::ZERO);
                        for (j, alpha) in alpha.iter_mut().enumerate() {
                            *alpha /= sum;
                            for (o, &v) in o.iter_mut().zip(row(j, 2, h)) {
                                *o += *alpha * v;
                            }
                        }
                    }
                }
            });
        });
        let y = sized(&mut tape.output, n * width);
        self.output
            .forward(c, NodeValues::Dense(&memory.summed), y, false);
    }

    pub fn backward<T: Scalar>(
        &self,
        b: &mut Back<'_, T>,
        x: &[T],
        tape: &mut LayerTape<T>,
        d_y: &[T],
        d_x: Option<&mut [T]>,
    ) {
        let (width, heads) = (self.output.inputs, self.heads);
        let graph = b.c.batch.graph().clone();
        let n = graph.nodes();
        let memory = &mut tape.attention;
        self.output
            .backward_params(b, NodeValues::Dense(&memory.summed), d_y);
        let d_o = sized(&mut memory.d_summed, n * width);
        self.output
            .backward_input(&b.c, NodeValues::Dense(&memory.summed), d_y, d_o, false);
        let (qkv, alpha, d_o) = (
            &memory.projected[..],
            &memory.alpha[..],
            &memory.d_summed[..],
        );
        let bounds = &memory.bounds;
        let d_s = sized(&mut memory.d_scores, alpha.len());
        let d_qkv = sized(&mut memory.d_projected, n * 3 * width);
        let owned = (
            Uneven::new(d_s, bounds, heads),
            Uneven::new(d_qkv, &memory.node_bounds, 3 * width),
        );
        let parallel = b.c.fast && alpha.len() >= PARALLEL;
        let head_width = width / heads;
        let scale = T::ONE / T::from_usize(head_width).sqrt();
        for_each_cut(graph.graphs(), parallel, owned, |g, (d_s, d_qkv)| {
            let nodes = graph.nodes_of(g);
            let n = nodes.len();
            let alpha = &alpha[bounds[g] as usize * heads..bounds[g + 1] as usize * heads];
            let row = |i: usize, part: usize, h: usize| {
                let at = ((nodes.start + i) * 3 + part) * width + h * head_width;
                &qkv[at..at + head_width]
            };
            let place = |i: usize, part: usize, h: usize| {
                let at = (i * 3 + part) * width + h * head_width;
                at..at + head_width
            };
            d_qkv.fill(T::ZERO);
            dispatch!(simd::level(), simd => {
                let _ = simd;
                for h in 0..heads {
                    for i in 0..n {
                        let at = (h * n + i) * n;
                        let (alpha, d_s) = (&alpha[at..at + n], &mut d_s[at..at + n]);
                        let at = (nodes.start + i) * width + h * head_width;
                        let d_o = &d_o[at..at + head_width];
                        let mut mean = T::ZERO;
                        for j in 0..n {
                            d_s[j] = product(d_o, row(j, 2, h));
                            mean += alpha[j] * d_s[j];
                            let d_v = &mut d_qkv[place(j, 2, h)];
                            for (d, &d_o) in d_v.iter_mut().zip(d_o) {
                                *d += alpha[j] * d_o;
                            }
                        }
                        for j in 0..n {
                            d_s[j] = alpha[j] * (d_s[j] - mean) * scale;
                            for (d, &k) in d_qkv[place(i, 0, h)].iter_mut().zip(row(j, 1, h)) {
                                *d += d_s[j] * k;
                            }
                            for (d, &q) in d_qkv[place(j, 1, h)].iter_mut().zip(row(i, 0, h)) {
                                *d += d_s[j] * q;
                            }
                        }
                    }
                }
            });
        });
        let d_qkv = &memory.d_projected[..];
        self.input.backward_params(b, NodeValues::Dense(x), d_qkv);
        if let Some(d_x) = d_x {
            self.input
                .backward_input(&b.c, NodeValues::Dense(x), d_qkv, d_x, false);
        }
    }
}

#[inline(always)]
fn product<T: Scalar>(a: &[T], b: &[T]) -> T {
    let mut sum = T::ZERO;
    for (&a, &b) in a.iter().zip(b) {
        sum += a * b;
    }
    sum
}
