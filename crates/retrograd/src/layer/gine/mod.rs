//! GIN with edge features.
//!
//! ```text
//! l_e = lin(attr_e)
//! m_i = (1 + ε)·x_i + Σ_{e into i} ReLU(x_source(e) + l_e)
//! h = ReLU(m·W₀ + b₀),  y = h·W₂ + b₂
//! ```
//!
//! With `k_e = [x_source(e) + l_e > 0]` and `d_m = ([h > 0]·(d_y·W₂ᵀ))·W₀ᵀ`:
//! d_l_e = k_e·d_m_target(e); d_x_j = (1 + ε)·d_m_j + Σ_{e out of j} d_l_e; d_ε = Σ x·d_m;
//! d_attr = d_l·lin.Wᵀ.

#[cfg(feature = "gpu")]
pub(crate) mod gpu;
mod spec;

pub use spec::GineSpec;

use crate::Scalar;
use crate::cuts::cuts;
use crate::graph::NodeValues;
use crate::graph::ops::{Linear, dot};
use crate::layer::graph::{Returning, fan_in, relu, through_relu};
use crate::layer::{Backward, Describe, Forward, Layer, Seen, TensorSpec, sized, uniform};
use crate::parallel::{self, Uneven, for_each_cut};
use crate::rng::Stream;

/// The slot of ε.
const EPS: usize = 0;

pub(crate) struct Gine {
    first: Linear,
    second: Linear,
    edge: Linear,
}

/// What is kept between forward and backward.
#[derive(Default)]
struct Memory<T> {
    /// By edge.
    l: Vec<T>,
    d_l: Vec<T>,
    /// By node.
    m: Vec<T>,
    d_m: Vec<T>,
    hidden: Vec<T>,
    d_hidden: Vec<T>,
}

/// From this many numbers on, edges go to threads: some 5 µs on one
/// (`retrograd bench threshold-gine` measures that).
const PARALLEL: usize = 1 << 14;
/// Edges of one piece.
const PIECE: usize = 256;
cuts!(PARALLEL, PIECE);

impl Gine {
    pub fn new(inputs: usize, out: usize, edge_features: usize) -> Self {
        Gine {
            first: Linear::new(1, inputs, out),
            second: Linear::new(3, out, out),
            edge: Linear::new(5, edge_features, inputs),
        }
    }
}

impl Describe for Gine {
    #[cfg(feature = "gpu")]
    fn record(&self) -> Option<&dyn crate::gpu::layer::Record> {
        Some(self)
    }

    fn tensors(&self) -> Vec<Option<TensorSpec>> {
        let mut all = vec![Some(TensorSpec::new("eps", &[1]))];
        all.extend(self.first.tensors("nn.0.weight", "nn.0.bias"));
        all.extend(self.second.tensors("nn.2.weight", "nn.2.bias"));
        all.extend(self.edge.tensors("lin.weight", "lin.bias"));
        all
    }

    fn init(&self, slot: usize, len: usize, stream: &mut Stream) -> Vec<f32> {
        if slot == EPS {
            return vec![0.0; len];
        }
        let linear = [&self.first, &self.second, &self.edge][(slot - 1) / 2];
        let bound = fan_in(linear.inputs);
        match slot == linear.weight {
            true => linear.init_weight(bound, stream),
            false => uniform(len, bound, stream),
        }
    }
}

impl<T: Scalar> Layer<T> for Gine {
    fn forward(&self, io: Forward<'_, T>) {
        let (c, x, y, saved) = io.on_graph::<Memory<T>>();
        let x = x.dense();
        let graph = c.graph();
        let width = self.first.inputs;
        let l = sized(&mut saved.l, graph.edges() * width);
        let attributes = NodeValues::Dense(c.batch.edge_features());
        self.edge.forward(&c, attributes, l, false);
        let l = &saved.l[..];
        let own = T::ONE + c.params[EPS][0];
        let adjacency = graph.adjacency();
        let rows = &adjacency.pattern.by_row;
        let m = sized(&mut saved.m, x.len());
        let parallel = c.fast && l.len() >= PARALLEL;
        let owned = Uneven::new(m, &rows.piece_rows, width);
        for_each_cut(rows.pieces(), parallel, owned, |piece, m| {
            for (i, m) in rows.piece(piece).zip(m.chunks_exact_mut(width)) {
                m.fill(T::ZERO);
                for p in rows.range(i) {
                    let j = rows.neighbour[p] as usize * width;
                    let e = adjacency.edge[p] as usize * width;
                    let u = x[j..j + width].iter().zip(&l[e..e + width]);
                    for (m, (&x, &l)) in m.iter_mut().zip(u) {
                        *m += (x + l).max(T::ZERO);
                    }
                }
                for (m, &x) in m.iter_mut().zip(&x[i * width..]) {
                    *m += own * x;
                }
            }
        });
        let hidden = sized(&mut saved.hidden, graph.nodes() * self.first.outputs);
        self.first
            .forward(&c, NodeValues::Dense(&saved.m), hidden, false);
        relu(hidden);
        self.second.forward(&c, NodeValues::Dense(hidden), y, false);
    }

    fn backward(&self, io: Backward<'_, T>) {
        let Returning {
            mut b,
            x,
            d_y,
            d_x,
            saved,
        } = io.on_graph::<Memory<T>>();
        let (b, x) = (&mut b, x.dense());
        let width = self.first.inputs;
        let hidden = NodeValues::Dense(&saved.hidden[..]);
        self.second.backward_params(b, hidden, d_y);
        let d_hidden = through_relu(&self.second, &b.c, &saved.hidden, d_y, &mut saved.d_hidden);
        let m = NodeValues::Dense(&saved.m[..]);
        self.first.backward_params(b, m, d_hidden);
        let d_m = sized(&mut saved.d_m, saved.m.len());
        self.first.backward_input(&b.c, m, d_hidden, d_m, false);
        let d_m = &saved.d_m[..];
        let fast = b.c.fast;
        if let Some((d_eps, _)) = b.gradient(EPS) {
            d_eps[0] += dot(x, d_m, fast);
        }
        let graph = b.c.batch.graph();
        let (sources, targets) = (graph.sources(), graph.targets());
        let l = &saved.l[..];
        let d_l = sized(&mut saved.d_l, l.len());
        let parallel = fast && l.len() >= PARALLEL;
        parallel::for_each_chunk(d_l, PIECE * width, parallel, |piece, d_l| {
            for (k, d_l) in d_l.chunks_exact_mut(width).enumerate() {
                let e = piece * PIECE + k;
                let (s, t) = (sources[e] as usize * width, targets[e] as usize * width);
                let u = x[s..s + width].iter().zip(&l[e * width..(e + 1) * width]);
                for ((d_l, (&x, &l)), &d_m) in d_l.iter_mut().zip(u).zip(&d_m[t..t + width]) {
                    *d_l = if x + l > T::ZERO { d_m } else { T::ZERO };
                }
            }
        });
        let d_l = &saved.d_l[..];
        let attributes = NodeValues::Dense(b.c.batch.edge_features());
        self.edge.backward_params(b, attributes, d_l);
        if let Some(d_attributes) = b.d_edge_features.as_deref_mut() {
            self.edge
                .backward_input(&b.c, attributes, d_l, d_attributes, true);
        }
        let Some(d_x) = d_x else { return };
        let own = T::ONE + b.c.params[EPS][0];
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
    fn pattern(&self, seen: Seen<'_, T>, pattern: &mut Vec<u32>) {
        let (graph, saved) = seen.on_graph::<Memory<T>>();
        let width = self.first.inputs;
        for (e, &s) in graph.sources().iter().enumerate() {
            for f in 0..width {
                let u = seen.x[s as usize * width + f] + saved.l[e * width + f];
                pattern.push(u32::from(u > T::ZERO));
            }
        }
        pattern.extend(saved.hidden.iter().map(|&h| u32::from(h > T::ZERO)));
    }
}
