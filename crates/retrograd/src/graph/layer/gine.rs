//! GIN with edge features.
//!
//! ```text
//! l_e = lin(attr_e)
//! m_i = (1 + ε)·x_i + Σ_{e into i} ReLU(x_source(e) + l_e)
//! h = ReLU(m·W₀ + b₀),  y = h·W₂ + b₂
//! ```
//!
//! With k_e = [x_source(e) + l_e > 0] and d_m = ([h > 0]·(d_y·W₂ᵀ))·W₀ᵀ:
//! d_l_e = k_e·d_m_target(e); d_x_j = (1 + ε)·d_m_j + Σ_{e out of j} d_l_e; d_ε = Σ x·d_m;
//! d_attr = d_l·lin.Wᵀ.
//!
//! Memory: `a` l, by edge · `b` m · `c` h · `d` d_h · `e` d_m · `f` d_l.

use super::{Back, Context, LayerTape, Saved, sized};
use crate::graph::batch::NodeValues;
use crate::graph::ops::{Linear, dot};
use crate::parallel::{self, Uneven, for_each_cut};
use crate::{Layout, Scalar};

pub(crate) struct Gine {
    eps: usize,
    eps_at: usize,
    pub first: Linear,
    pub second: Linear,
    pub edge: Linear,
}

/// From this many numbers on, edges go to threads: some 5 µs on one
/// (`retrograd bench threshold-gine` measures that).
const PARALLEL: usize = 1 << 14;
/// Edges of one piece.
const PIECE: usize = 256;

impl Gine {
    pub fn new(layout: &mut Layout, prefix: &str, sizes: [usize; 2], edge_features: usize) -> Self {
        let [inputs, out] = sizes;
        let eps = layout.tensors().len();
        let eps_at = layout.push(format!("{prefix}.eps"), &[1]).start;
        Gine {
            eps,
            eps_at,
            first: Linear::new(layout, &format!("{prefix}.nn.0"), inputs, out, true),
            second: Linear::new(layout, &format!("{prefix}.nn.2"), out, out, true),
            edge: Linear::new(
                layout,
                &format!("{prefix}.lin"),
                edge_features,
                inputs,
                true,
            ),
        }
    }

    pub fn forward<T: Scalar>(&self, c: &Context<'_, T>, x: &[T], tape: &mut LayerTape<T>) {
        let graph = c.graph();
        let width = self.first.inputs;
        let saved = &mut tape.saved;
        let l = sized(&mut saved.a, graph.edges() * width);
        self.edge
            .forward(c, NodeValues::Dense(c.batch.edge_features()), l, false);
        let l = &saved.a[..];
        let own = T::ONE + c.params[self.eps_at];
        let adjacency = graph.adjacency();
        let rows = &adjacency.pattern.by_row;
        let m = sized(&mut saved.b, x.len());
        let parallel = c.fast && l.len() >= PARALLEL;
        let owned = Uneven::new(m, &rows.piece_rows, width);
        for_each_cut(rows.pieces(), parallel, owned, |piece, m| {
            for (i, m) in rows.piece(piece).zip(m.chunks_exact_mut(width)) {
                m.fill(T::ZERO);
                for p in rows.range(i) {
                    let j = rows.neighbour[p] as usize * width;
                    let e = adjacency.edge[p] as usize * width;
                    for ((m, &x), &l) in m.iter_mut().zip(&x[j..]).zip(&l[e..e + width]) {
                        *m += (x + l).max(T::ZERO);
                    }
                }
                for (m, &x) in m.iter_mut().zip(&x[i * width..]) {
                    *m += own * x;
                }
            }
        });
        let h = sized(&mut saved.c, graph.nodes() * self.first.outputs);
        self.first.forward(c, NodeValues::Dense(&saved.b), h, false);
        for h in h.iter_mut() {
            *h = h.max(T::ZERO);
        }
        let y = sized(&mut tape.output, graph.nodes() * self.second.outputs);
        self.second
            .forward(c, NodeValues::Dense(&saved.c), y, false);
    }

    pub fn backward<T: Scalar>(
        &self,
        b: &mut Back<'_, T>,
        x: &[T],
        tape: &mut LayerTape<T>,
        d_y: &[T],
        d_x: Option<&mut [T]>,
    ) {
        let width = self.first.inputs;
        let saved = &mut tape.saved;
        let h = NodeValues::Dense(&saved.c[..]);
        self.second.backward_params(b, h, d_y);
        let d_h = sized(&mut saved.d, saved.c.len());
        self.second.backward_input(&b.c, h, d_y, d_h, false);
        for (d, &h) in d_h.iter_mut().zip(&saved.c) {
            if h <= T::ZERO {
                *d = T::ZERO;
            }
        }
        let m = NodeValues::Dense(&saved.b[..]);
        self.first.backward_params(b, m, &saved.d);
        let d_m = sized(&mut saved.e, saved.b.len());
        self.first.backward_input(&b.c, m, &saved.d, d_m, false);
        let d_m = &saved.e[..];
        let fast = b.c.fast;
        if let Some(d_eps) = b.gradient(self.eps) {
            d_eps[0] += dot(x, d_m, fast);
        }
        let graph = b.c.batch.graph();
        let (sources, targets) = (graph.sources(), graph.targets());
        let l = &saved.a[..];
        let d_l = sized(&mut saved.f, l.len());
        let parallel = fast && l.len() >= PARALLEL;
        parallel::for_each_chunk(d_l, PIECE * width, parallel, |piece, d_l| {
            for (k, d_l) in d_l.chunks_exact_mut(width).enumerate() {
                let e = piece * PIECE + k;
                let (s, t) = (sources[e] as usize * width, targets[e] as usize * width);
                for f in 0..width {
                    let open = x[s + f] + l[e * width + f] > T::ZERO;
                    d_l[f] = if open { d_m[t + f] } else { T::ZERO };
                }
            }
        });
        let d_l = &saved.f[..];
        let attributes = NodeValues::Dense(b.c.batch.edge_features());
        self.edge.backward_params(b, attributes, d_l);
        if let Some(d_attributes) = b.d_edge_features.as_deref_mut() {
            self.edge
                .backward_input(&b.c, attributes, d_l, d_attributes, true);
        }
        let Some(d_x) = d_x else { return };
        let own = T::ONE + b.c.params[self.eps_at];
        let adjacency = graph.adjacency();
        let columns = &adjacency.pattern.by_column;
        let owned = Uneven::new(d_x, &columns.piece_rows, width);
        for_each_cut(columns.pieces(), parallel, owned, |piece, d_x| {
            for (j, d_x) in columns.piece(piece).zip(d_x.chunks_exact_mut(width)) {
                for (d_x, &d_m) in d_x.iter_mut().zip(&d_m[j * width..]) {
                    *d_x = own * d_m;
                }
                for q in columns.range(j) {
                    let e = adjacency.edge[adjacency.pattern.slot[q] as usize] as usize * width;
                    for (d_x, &d_l) in d_x.iter_mut().zip(&d_l[e..e + width]) {
                        *d_x += d_l;
                    }
                }
            }
        });
    }

    /// Which messages and hidden elements pass their ReLU.
    pub fn pattern<T: Scalar>(
        &self,
        c_graph: &crate::graph::structure::Graph,
        x: &[T],
        saved: &Saved<T>,
        pattern: &mut Vec<u32>,
    ) {
        let width = self.first.inputs;
        for (e, &s) in c_graph.sources().iter().enumerate() {
            for f in 0..width {
                let u = x[s as usize * width + f] + saved.a[e * width + f];
                pattern.push(u32::from(u > T::ZERO));
            }
        }
        pattern.extend(saved.c.iter().map(|&h| u32::from(h > T::ZERO)));
    }
}
