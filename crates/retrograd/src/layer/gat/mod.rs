//! Graph attention.
//!
//! With z = x·W cut into heads h of C features, over the in-edges p = (j → i) of every node, a
//! self-loop included:
//!
//! ```text
//! u_ph = att_src_h · z_jh + att_dst_h · z_ih,   s_ph = LeakyReLU(u_ph, 0.2)
//! α_ph = softmax over p of s_ph                 (· m_ph/(1 − p) with attention dropout)
//! y_ih = Σ_p α_ph·z_jh + b_h
//! ```
//!
//! Backward: d_α_ph = d_y_ih · z_jh; d_s from the softmax; d_u = d_s·LeakyReLU′(u);
//! d_t_ih = Σ_{p into i} d_u_ph and d_r_jh = Σ_{p out of j} d_u_ph;
//! d_z_jh = Σ_{p out of j} α_ph·d_y_ih + d_r_jh·att_src_h + d_t_jh·att_dst_h;
//! d_att_src_h = Σ_j d_r_jh·z_jh, d_att_dst_h = Σ_j d_t_jh·z_jh.

/// An expression in which a number is a constant where it has one of the usual values, so that the
/// loops over it are unrolled: heads and their widths are mostly 1 or 8.
macro_rules! with_known {
    ($number:ident => $body:expr) => {
        match $number {
            1 => {
                let $number: usize = 1;
                $body
            }
            8 => {
                let $number: usize = 8;
                $body
            }
            $number => $body,
        }
    };
}

mod faults;
#[cfg(feature = "gpu")]
pub(crate) mod gpu;
mod softmax;
mod spec;
mod weigh;

pub(crate) use softmax::softmax;
pub use spec::GatSpec;
pub(crate) use spec::attention_sizes;
pub(crate) use weigh::{Attention, backward_weights, weigh};

use crate::Scalar;
use crate::cuts::cuts;
use crate::graph::Pattern;
use crate::graph::ops::{Aggregate, Coefficient, Linear, aggregate, heads_dot};
use crate::layer::graph::{Back, Returning, glorot};
use crate::layer::{Backward, Describe, Forward, Layer, Seen, TensorSpec, sized, uniform};
use crate::parallel::{self, Uneven, for_each_cut};
use crate::rng::Stream;
use crate::simd::{self, dispatch};
use softmax::{HEADS, row_f32};

/// PyG's slope left of 0.
pub(crate) const SLOPE: f64 = 0.2;

/// Slots of the tensors after `lin.weight`.
const ATT_SRC: usize = 1;
const ATT_DST: usize = 2;
const BIAS: usize = 3;

pub(crate) struct Gat {
    linear: Linear,
    heads: usize,
    /// Probability of dropping an attention weight in training.
    dropout: f64,
    /// The layer's number: two layers of one network draw different masks.
    index: u64,
}

/// What is kept between forward and backward.
#[derive(Default)]
struct Memory<T> {
    /// z, the attention weights, and what they take.
    attention: Attention<T>,
    /// att_src · z and att_dst · z, and their gradients.
    from: Vec<T>,
    to: Vec<T>,
    d_from: Vec<T>,
    d_to: Vec<T>,
    d_z: Vec<T>,
}

/// From this many slots and heads on, work goes to threads: some 5 µs on one
/// (`retrograd bench threshold-gat` measures that).
const PARALLEL: usize = 1 << 12;
/// Nodes of one piece of the sums over nodes.
const PIECE: usize = 256;
cuts!(PARALLEL, PIECE);

impl Gat {
    /// d_u, and its sums by target and by source.
    fn backward_scores<T: Scalar>(&self, pattern: &Pattern, memory: &mut Memory<T>, fast: bool) {
        let heads = self.heads;
        let rows = &pattern.by_row;
        let n = rows.len();
        let d_u = &mut memory.attention.d_scores[..];
        let (from, to) = (&memory.from[..], &memory.to[..]);
        let slope = T::from_f64(SLOPE);
        let parallel = fast && d_u.len() >= PARALLEL;
        let d_to = sized(&mut memory.d_to, n * heads);
        let owned = (
            Uneven::new(d_u, &rows.piece_slots, heads),
            Uneven::new(d_to, &rows.piece_rows, heads),
        );
        for_each_cut(rows.pieces(), parallel, owned, |piece, (d_u, d_to)| {
            dispatch!(simd::level(), simd => with_known!(heads => {
                let _ = simd;
                let mut d_u = d_u.chunks_exact_mut(heads);
                for (i, d_to) in rows.piece(piece).zip(d_to.chunks_exact_mut(heads)) {
                    d_to.fill(T::ZERO);
                    let to = &to[i * heads..(i + 1) * heads];
                    for (&j, d_u) in rows.neighbour[rows.range(i)].iter().zip(&mut d_u) {
                        let from = &from[j as usize * heads..(j as usize + 1) * heads];
                        for h in 0..heads {
                            let open = from[h] + to[h] > T::ZERO;
                            d_u[h] *= if open { T::ONE } else { slope };
                            d_to[h] += d_u[h];
                        }
                    }
                }
            }));
        });
        let d_u = &memory.attention.d_scores[..];
        let columns = &pattern.by_column;
        let d_from = sized(&mut memory.d_from, n * heads);
        let owned = Uneven::new(d_from, &columns.piece_rows, heads);
        for_each_cut(columns.pieces(), parallel, owned, |piece, d_from| {
            dispatch!(simd::level(), simd => with_known!(heads => {
                let _ = simd;
                for (j, d_from) in columns.piece(piece).zip(d_from.chunks_exact_mut(heads)) {
                    d_from.fill(T::ZERO);
                    for &p in &pattern.slot[columns.range(j)] {
                        let d_u = &d_u[p as usize * heads..(p as usize + 1) * heads];
                        for h in 0..heads {
                            d_from[h] += d_u[h];
                        }
                    }
                }
            }));
        });
    }
}

impl Describe for Gat {
    #[cfg(feature = "gpu")]
    fn record(&self) -> Option<&dyn crate::gpu::layer::Record> {
        Some(self)
    }

    #[cfg(feature = "gpu")]
    fn draws(&self) -> Option<(&'static str, u64)> {
        (self.dropout > 0.0).then_some(("attention dropout", self.index))
    }

    fn tensors(&self) -> Vec<Option<TensorSpec>> {
        let (width, heads) = (self.linear.outputs, self.heads);
        let att = |name| Some(TensorSpec::new(name, &[1, heads, width / heads]));
        let [weight, _] = self.linear.tensors("lin.weight", "");
        let bias = Some(TensorSpec::new("bias", &[width]));
        vec![weight, att("att_src"), att("att_dst"), bias]
    }

    fn init(&self, slot: usize, len: usize, stream: &mut Stream) -> Vec<f32> {
        let Linear {
            inputs, outputs, ..
        } = self.linear;
        match slot {
            BIAS => vec![0.0; len],
            ATT_SRC | ATT_DST => uniform(len, glorot(self.heads, outputs / self.heads), stream),
            _ => self.linear.init_weight(glorot(inputs, outputs), stream),
        }
    }

    fn reads_sparse(&self) -> bool {
        true
    }
}

impl<T: Scalar> Layer<T> for Gat {
    fn forward(&self, io: Forward<'_, T>) {
        let (c, x, y, memory) = io.on_graph::<Memory<T>>();
        let (width, heads) = (self.linear.outputs, self.heads);
        let n = c.graph().nodes();
        let z = sized(&mut memory.attention.projected, n * width);
        self.linear.multiply_only(&c, x, z);
        let z = &memory.attention.projected[..];
        let from = sized(&mut memory.from, n * heads);
        head_products(z, c.params[ATT_SRC], heads, from, c.fast);
        let to = sized(&mut memory.to, n * heads);
        head_products(z, c.params[ATT_DST], heads, to, c.fast);
        let rows = &c.graph().looped().pattern.by_row;
        let alpha = sized(&mut memory.attention.alpha, rows.slots() * heads);
        let (from, to) = (&memory.from[..], &memory.to[..]);
        let slope = T::from_f64(SLOPE);
        let parallel = c.fast && alpha.len() >= PARALLEL;
        let owned = Uneven::new(alpha, &rows.piece_slots, heads);
        // Scores and softmax of a row in one go, in f32.
        let lanes = c.fast && heads <= HEADS;
        for_each_cut(rows.pieces(), parallel, owned, |piece, alpha| {
            let first = rows.piece_slots[piece] as usize;
            dispatch!(simd::level(), simd => with_known!(heads => for i in rows.piece(piece) {
                let range = rows.range(i);
                let row = &mut alpha[(range.start - first) * heads..(range.end - first) * heads];
                let to = &to[i * heads..(i + 1) * heads];
                for (alpha, &j) in row.chunks_exact_mut(heads).zip(&rows.neighbour[range]) {
                    let from = &from[j as usize * heads..(j as usize + 1) * heads];
                    for h in 0..heads {
                        let u = from[h] + to[h];
                        // A choice, not a branch: signs are as good as random.
                        alpha[h] = u * if u > T::ZERO { T::ONE } else { slope };
                    }
                }
                if lanes && let Some(row) = T::f32s_mut(row) {
                    row_f32(simd, row, heads);
                }
            }));
        });
        let attention = &mut memory.attention;
        if !(lanes && T::f32s(&attention.alpha).is_some()) {
            softmax(rows, heads, &mut attention.alpha, c.fast);
        }
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
        let (width, heads) = (self.linear.outputs, self.heads);
        let n = b.c.graph().nodes();
        let fast = b.c.fast;
        b.add_column_sums(BIAS, d_y);
        let pattern = &b.c.graph().looped().pattern;
        let rows = &pattern.by_row;
        backward_weights(rows, [width, heads], d_y, &mut memory.attention, fast);
        self.backward_scores(pattern, memory, fast);
        let z = &memory.attention.projected[..];
        add_outer_sums(b, ATT_SRC, &memory.d_from, z, heads);
        add_outer_sums(b, ATT_DST, &memory.d_to, z, heads);
        // d_z
        let weights = memory.attention.weights();
        let sum = Aggregate {
            heads,
            ..Aggregate::new(
                &pattern.by_column,
                Coefficient::Gather(weights, &pattern.slot),
            )
        };
        let d_z = sized(&mut memory.d_z, n * width);
        aggregate(&sum, d_y, width, d_z, fast);
        let (att_src, att_dst) = (b.c.params[ATT_SRC], b.c.params[ATT_DST]);
        let (d_from, d_to) = (&memory.d_from[..], &memory.d_to[..]);
        let head_width = width / heads;
        let parallel = fast && d_z.len() >= PARALLEL;
        parallel::for_each_chunk(d_z, PIECE * width, parallel, |piece, d_z| {
            dispatch!(simd::level(), simd => with_known!(head_width => {
                let _ = simd;
                for (k, d_z) in d_z.chunks_exact_mut(width).enumerate() {
                    let i = piece * PIECE + k;
                    let (d_from, d_to) = (&d_from[i * heads..], &d_to[i * heads..]);
                    let rows = d_z
                        .chunks_exact_mut(head_width)
                        .zip(att_src.chunks_exact(head_width))
                        .zip(att_dst.chunks_exact(head_width));
                    for (((d_z, s), t), (&r, &q)) in rows.zip(d_from.iter().zip(d_to)) {
                        for k in 0..head_width {
                            d_z[k] += r * s[k] + q * t[k];
                        }
                    }
                }
            }));
        });
        let d_z = &memory.d_z[..];
        self.linear.backward_weight(b, x, d_z);
        if let Some(d_x) = d_x {
            self.linear.backward_input(&b.c, x, d_z, d_x, false);
        }
    }

    /// On which side of its kink each score is.
    fn pattern(&self, seen: Seen<'_, T>, pattern: &mut Vec<u32>) {
        let (graph, memory) = seen.on_graph::<Memory<T>>();
        let rows = &graph.looped().pattern.by_row;
        for i in 0..rows.len() {
            for p in rows.range(i) {
                let j = rows.neighbour[p] as usize;
                for h in 0..self.heads {
                    let u = memory.from[j * self.heads + h] + memory.to[i * self.heads + h];
                    pattern.push(u32::from(u > T::ZERO));
                }
            }
        }
    }
}

/// out_ih = z_ih · att_h.
fn head_products<T: Scalar>(z: &[T], att: &[T], heads: usize, out: &mut [T], fast: bool) {
    let (width, head_width) = (att.len(), att.len() / heads);
    if fast && let (Some(z), Some(att)) = (T::f32s(z), T::f32s(att)) {
        let out = T::f32s_mut(out).expect("one scalar");
        let parallel = z.len() >= PARALLEL;
        parallel::for_each_chunk(out, PIECE * heads, parallel, |piece, out| {
            let z = &z[piece * PIECE * width..];
            dispatch!(simd::level(), simd => {
                let _ = simd;
                for (out, z) in out.chunks_exact_mut(heads).zip(z.chunks_exact(width)) {
                    heads_dot(z, att, head_width, out);
                }
            });
        });
        return;
    }
    for (out, z) in out.chunks_exact_mut(heads).zip(z.chunks_exact(width)) {
        for (h, out) in out.iter_mut().enumerate() {
            let columns = h * head_width..(h + 1) * head_width;
            *out = columns.map(|k| z[k] * att[k]).sum();
        }
    }
}

/// Adds Σ_i d_ih·z_ih to the gradient of an attention vector.
fn add_outer_sums<T: Scalar>(b: &mut Back<'_, T>, slot: usize, d: &[T], z: &[T], heads: usize) {
    let fast = b.c.fast;
    let Some((out, partial)) = b.gradient(slot) else {
        return;
    };
    let width = out.len();
    let head_width = width / heads;
    let nodes = d.len() / heads;
    if fast
        && let (Some(d), Some(z)) = (T::f32s(d), T::f32s(z))
        && let Some(partial) = T::f32_vec(partial)
    {
        let out = T::f32s_mut(out).expect("one scalar");
        let parallel = z.len() >= PARALLEL;
        let pieces = nodes.div_ceil(PIECE);
        parallel::sum_pieces(pieces, out, partial, parallel, |piece, out| {
            let range = piece * PIECE..((piece + 1) * PIECE).min(nodes);
            dispatch!(simd::level(), simd => with_known!(head_width => {
                let _ = simd;
                for i in range {
                    let (d, z) = (&d[i * heads..(i + 1) * heads], &z[i * width..(i + 1) * width]);
                    let rows = out.chunks_exact_mut(head_width).zip(z.chunks_exact(head_width));
                    for ((out, z), &d) in rows.zip(d) {
                        for k in 0..head_width {
                            out[k] += d * z[k];
                        }
                    }
                }
            }));
        });
        return;
    }
    for i in 0..nodes {
        for k in 0..width {
            out[k] += d[i * heads + k / head_width] * z[i * width + k];
        }
    }
}
