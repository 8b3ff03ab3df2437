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

use super::attention::Memory;
use super::dropout::drop_out;
use super::softmax::{HEADS, row_f32, softmax, softmax_backward};
use super::{Back, Context, LayerTape, sized};
use crate::graph::batch::NodeValues;
use crate::graph::ops::{Aggregate, Coefficient, Linear, aggregate, edge_dot, heads_dot};
use crate::parallel::{self, Uneven, for_each_cut};
use crate::simd::{self, dispatch};
use crate::{Layout, Scalar};

/// PyG's slope left of 0.
pub(super) const SLOPE: f64 = 0.2;

pub(crate) struct Gat {
    pub linear: Linear,
    pub heads: usize,
    /// Probability of dropping an attention weight in training.
    pub dropout: f64,
    att_src: usize,
    at: usize,
    bias: usize,
    bias_at: usize,
}

/// From this many slots and heads on, work goes to threads: some 5 µs on one
/// (`retrograd bench threshold-gat` measures that).
const PARALLEL: usize = 1 << 12;
/// Nodes of one piece of the sums over nodes.
const PIECE: usize = 256;

impl Gat {
    pub fn new(
        layout: &mut Layout,
        prefix: &str,
        [inputs, out, heads]: [usize; 3],
        dropout: f64,
    ) -> Self {
        let linear = Linear::new(layout, &format!("{prefix}.lin"), inputs, heads * out, false);
        let att_src = layout.tensors().len();
        let at = layout
            .push(format!("{prefix}.att_src"), &[1, heads, out])
            .start;
        layout.push(format!("{prefix}.att_dst"), &[1, heads, out]);
        let bias = layout.tensors().len();
        let bias_at = layout.push(format!("{prefix}.bias"), &[heads * out]).start;
        Gat {
            linear,
            heads,
            dropout,
            att_src,
            at,
            bias,
            bias_at,
        }
    }

    pub fn forward<T: Scalar>(
        &self,
        c: &Context<'_, T>,
        x: NodeValues<'_, T>,
        tape: &mut LayerTape<T>,
    ) {
        let (width, heads) = (self.linear.outputs, self.heads);
        let n = c.graph().nodes();
        let memory = &mut tape.attention;
        let z = sized(&mut memory.projected, n * width);
        self.linear.multiply_only(c, x, z);
        let z = &memory.projected[..];
        let (att_src, att_dst) = c.params[self.at..self.at + 2 * width].split_at(width);
        let from = sized(&mut memory.from, n * heads);
        head_products(z, att_src, heads, from, c.fast);
        let to = sized(&mut memory.to, n * heads);
        head_products(z, att_dst, heads, to, c.fast);
        let rows = &c.graph().looped().pattern.by_row;
        let alpha = sized(&mut memory.alpha, rows.slots() * heads);
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
        if !(lanes && T::f32s(&memory.alpha).is_some()) {
            softmax(rows, heads, &mut memory.alpha, c.fast);
        }
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
        let (width, heads) = (self.linear.outputs, self.heads);
        let n = b.c.graph().nodes();
        let fast = b.c.fast;
        let memory = &mut tape.attention;
        b.add_column_sums(self.bias, d_y);
        let graph = b.c.batch.graph().clone();
        let pattern = &graph.looped().pattern;
        let rows = &pattern.by_row;
        backward_weights(rows, heads, width, d_y, memory, fast);
        // d_u, and its sums by target and by source.
        let d_u = &mut memory.d_scores[..];
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
        let d_u = &memory.d_scores[..];
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
        let z = &memory.projected[..];
        add_outer_sums(b, self.att_src, &memory.d_from, z, heads);
        add_outer_sums(b, self.att_src + 1, &memory.d_to, z, heads);
        // d_z
        let mut d_z = std::mem::take(&mut memory.d_projected);
        let sum = Aggregate {
            heads,
            ..Aggregate::new(
                columns,
                Coefficient::Gather(memory.weights(), &pattern.slot),
            )
        };
        aggregate(&sum, d_y, width, sized(&mut d_z, n * width), fast);
        memory.d_projected = d_z;
        let (att_src, att_dst) = b.c.params[self.at..self.at + 2 * width].split_at(width);
        let (d_from, d_to) = (&memory.d_from[..], &memory.d_to[..]);
        let head_width = width / heads;
        let d_z = &mut memory.d_projected[..];
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
        let d_z = &memory.d_projected[..];
        self.linear.backward_weight(b, x, d_z);
        if let Some(d_x) = d_x {
            self.linear.backward_input(&b.c, x, d_z, d_x, false);
        }
    }

    /// On which side of its kink each score is.
    pub fn pattern<T: Scalar>(
        &self,
        graph: &crate::graph::structure::Graph,
        memory: &Memory<T>,
        pattern: &mut Vec<u32>,
    ) {
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

/// y = Σ α·(projected rows) + bias over the in-edges of every node. In training some weights are
/// dropped first: what the sum takes lies beside what the softmax gave.
pub(super) fn weigh<T: Scalar>(
    c: &Context<'_, T>,
    heads: usize,
    dropout: f64,
    bias: &[T],
    tape: &mut LayerTape<T>,
) {
    let memory = &mut tape.attention;
    memory.dropped = c.pass.training && dropout > 0.0;
    if memory.dropped {
        let m = sized(&mut memory.mask, memory.alpha.len());
        let kept = sized(&mut memory.kept, memory.alpha.len());
        let key = c.pass.key.purpose("attention dropout").index(c.index);
        drop_out(key, dropout, &memory.alpha, m, kept);
    }
    let rows = &c.graph().looped().pattern.by_row;
    let sum = Aggregate {
        heads,
        bias: Some(bias),
        ..Aggregate::new(rows, Coefficient::Slot(memory.weights()))
    };
    let width = bias.len();
    let y = sized(&mut tape.output, rows.len() * width);
    aggregate(&sum, &memory.projected, width, y, c.fast);
}

/// d_s of every slot and head into `d_scores`, from d_y and the projected rows.
pub(super) fn backward_weights<T: Scalar>(
    rows: &crate::graph::pattern::Rows,
    heads: usize,
    width: usize,
    d_y: &[T],
    memory: &mut Memory<T>,
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
    rows: &crate::graph::pattern::Rows,
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
fn add_outer_sums<T: Scalar>(b: &mut Back<'_, T>, tensor: usize, d: &[T], z: &[T], heads: usize) {
    if !b.wants(tensor) {
        return;
    }
    let fast = b.c.fast;
    let width = b.layout.tensors()[tensor].len();
    let head_width = width / heads;
    let nodes = d.len() / heads;
    if fast && let (Some(d), Some(z)) = (T::f32s(d), T::f32s(z)) {
        let mut partial = std::mem::take(b.partial);
        let out = b.gradient(tensor).expect("asked for");
        let out = T::f32s_mut(out).expect("one scalar");
        let parallel = z.len() >= PARALLEL;
        let pieces = nodes.div_ceil(PIECE);
        parallel::sum_pieces(pieces, out, &mut partial, parallel, |piece, out| {
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
        *b.partial = partial;
        return;
    }
    let out = b.gradient(tensor).expect("asked for");
    for i in 0..nodes {
        for k in 0..width {
            out[k] += d[i * heads + k / head_width] * z[i * width + k];
        }
    }
}
