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

#[cfg(feature = "gpu")]
pub(crate) mod gpu;
mod spec;

pub use spec::SelfAttentionSpec;

use crate::Scalar;
use crate::cuts::cuts;
use crate::graph::ops::Linear;
use crate::graph::{Graph, NodeValues};
use crate::layer::graph::{Returning, fan_in, glorot};
use crate::layer::{Backward, Describe, Forward, Layer, TensorSpec, sized};
use crate::parallel::{Uneven, for_each_cut};
use crate::rng::Stream;
use crate::simd::{self, dispatch};

pub(crate) struct SelfAttention {
    input: Linear,
    output: Linear,
    heads: usize,
}

/// What is kept between forward and backward.
#[derive(Default)]
struct Memory<T> {
    /// q, k and v of every node.
    qkv: Vec<T>,
    d_qkv: Vec<T>,
    alpha: Vec<T>,
    d_scores: Vec<T>,
    /// What the heads summed.
    summed: Vec<T>,
    d_summed: Vec<T>,
    /// The first score (in units of heads) and the first node of every graph.
    bounds: Vec<u32>,
    node_bounds: Vec<u32>,
}

impl<T> Memory<T> {
    fn set_bounds(&mut self, graph: &Graph) {
        self.bounds.clear();
        self.node_bounds.clear();
        let (mut scores, mut nodes) = (0_u32, 0_u32);
        for g in 0..graph.graphs() {
            self.bounds.push(scores);
            self.node_bounds.push(nodes);
            let n = graph.nodes_of(g).len() as u32;
            scores += n * n;
            nodes += n;
        }
        self.bounds.push(scores);
        self.node_bounds.push(nodes);
    }
}

/// From this many scores on, graphs go to threads (`retrograd bench threshold-self-attention`
/// measures that).
const PARALLEL: usize = 1 << 12;
cuts!(PARALLEL);

impl SelfAttention {
    pub fn new(width: usize, heads: usize) -> Self {
        SelfAttention {
            input: Linear::new(0, width, 3 * width),
            output: Linear::new(2, width, width),
            heads,
        }
    }
}

impl Describe for SelfAttention {
    #[cfg(feature = "gpu")]
    fn record(&self) -> Option<&dyn crate::gpu::layer::Record> {
        Some(self)
    }

    fn tensors(&self) -> Vec<Option<TensorSpec>> {
        let mut all = Vec::from(self.input.tensors("in_proj_weight", "in_proj_bias"));
        all.extend(self.output.tensors("out_proj.weight", "out_proj.bias"));
        all
    }

    /// PyTorch's MultiheadAttention: Glorot over the stacked (3·width, width) weight.
    fn init(&self, slot: usize, len: usize, stream: &mut Stream) -> Vec<f32> {
        let width = self.output.inputs;
        match slot {
            0 => self.input.init_weight(glorot(width, 3 * width), stream),
            2 => self.output.init_weight(fan_in(width), stream),
            _ => vec![0.0; len],
        }
    }
}

impl<T: Scalar> Layer<T> for SelfAttention {
    fn forward(&self, io: Forward<'_, T>) {
        let (c, x, y, memory) = io.on_graph::<Memory<T>>();
        let (width, heads) = (self.output.inputs, self.heads);
        let graph = c.graph();
        let n = graph.nodes();
        memory.set_bounds(graph);
        let qkv = sized(&mut memory.qkv, n * 3 * width);
        self.input.forward(&c, x, qkv, false);
        let qkv = &memory.qkv[..];
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
        let o = NodeValues::Dense(&memory.summed[..]);
        self.output.forward(&c, o, y, false);
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
        let (width, heads) = (self.output.inputs, self.heads);
        let graph = b.c.graph();
        let n = graph.nodes();
        let o = NodeValues::Dense(&memory.summed[..]);
        self.output.backward_params(b, o, d_y);
        let d_o = sized(&mut memory.d_summed, n * width);
        self.output.backward_input(&b.c, o, d_y, d_o, false);
        let (qkv, alpha) = (&memory.qkv[..], &memory.alpha[..]);
        let d_o = &memory.d_summed[..];
        let bounds = &memory.bounds;
        let d_s = sized(&mut memory.d_scores, alpha.len());
        let d_qkv = sized(&mut memory.d_qkv, n * 3 * width);
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
        let d_qkv = &memory.d_qkv[..];
        self.input.backward_params(b, x, d_qkv);
        if let Some(d_x) = d_x {
            self.input.backward_input(&b.c, x, d_qkv, d_x, false);
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
