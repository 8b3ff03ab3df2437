//! Graph convolutions: a linear map and a fixed, linear propagation.
//!
//! ```text
//! y = P·x·W + b            (+ x·W_r for GraphSAGE)
//! ```
//!
//! | layer | P |
//! |---|---|
//! | `gcn` | P_ij = w_ij/√(dᵢ·dⱼ) over the edges and a self-loop of weight 1, dᵢ = Σ_j w_ij; a node whose d is not positive exchanges nothing |
//! | `sage` | 1/degree for every in-neighbour; nothing for a node without |
//! | `message_passing` | 1/(number of self and in-neighbours) for each of them |
//! | `gin` | 1 for every in-neighbour, 1 + ε for the node itself; then ReLU and a second linear map |
//!
//! P and W commute: x·W is formed first where that is narrower (or x is sparse), otherwise P·x.
//!
//! Backward, W first (z = x·W): d_z = Pᵀ·d_y, d_W = xᵀ·d_z, d_x = d_z·Wᵀ, d_b = Σ d_y.
//! P first (m = P·x): d_m = d_y·Wᵀ, d_W = mᵀ·d_y, d_x = Pᵀ·d_m.
//!
//! Edge weights of `gcn`: with v what was propagated and g_p = d_(Pv)_i · v_j the gradient of P's
//! entry p = (i, j), and s = d^(−1/2):
//! d_w_p = g_p·sᵢ·sⱼ + d_dᵢ, where d_dᵢ = −½·sᵢ³·d_sᵢ and d_sᵢ = Σ_{p into i} g_p·w_p·sⱼ +
//! Σ_{p out of i} g_p·w_p·s_target.
//!
//! ε of `gin`: d_ε = Σ v · d_(Pv).

mod faults;
#[cfg(feature = "gpu")]
pub(crate) mod gpu;
mod spec;

pub use spec::{GcnSpec, GinSpec, MessagePassingSpec, SageSpec};

use crate::Scalar;
use crate::graph::ops::{Aggregate, Coefficient, Linear, aggregate, dot, edge_dot};
use crate::graph::{Adjacency, LOOP, NodeValues};
use crate::layer::graph::{Back, Context, Returning, fan_in, glorot, relu, through_relu};
use crate::layer::{Backward, Describe, Forward, Layer, Seen, TensorSpec, sized, uniform};
use crate::rng::Stream;

/// How a layer's P is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Propagation {
    /// `gcn`.
    Normalised,
    /// `sage`.
    MeanOfNeighbours,
    /// `message_passing`.
    MeanWithSelf,
    /// `gin`.
    Sum,
}

/// The slot of gin's ε.
const EPS: usize = 0;

/// `gcn`, `sage`, `message_passing`, `gin`.
pub(crate) struct Convolution {
    pub propagation: Propagation,
    /// W and b.
    linear: Linear,
    /// W_r of `sage`.
    root: Option<Linear>,
    /// The second map of `gin`.
    second: Option<Linear>,
}

/// What is kept between forward and backward.
#[derive(Default)]
struct Memory<T> {
    /// What stands between: z or m, and its gradient.
    between: Vec<T>,
    d_between: Vec<T>,
    /// P's entries, and s, or 1/degree.
    entries: Vec<T>,
    scale: Vec<T>,
    /// The hidden rows of gin's second map, and their gradient.
    hidden: Vec<T>,
    d_hidden: Vec<T>,
}

impl Describe for Convolution {
    #[cfg(feature = "gpu")]
    fn record(&self) -> Option<&dyn crate::gpu::layer::Record> {
        Some(self)
    }

    fn tensors(&self) -> Vec<Option<TensorSpec>> {
        match self.propagation {
            Propagation::Normalised => self.linear.tensors("lin.weight", "bias").into(),
            Propagation::MeanWithSelf => self.linear.tensors("weight", "bias").into(),
            Propagation::MeanOfNeighbours => {
                let mut all = Vec::from(self.linear.tensors("lin_l.weight", "lin_l.bias"));
                all.extend(
                    self.root
                        .map(|root| root.tensors("lin_r.weight", ""))
                        .into_iter()
                        .flatten(),
                );
                all
            }
            Propagation::Sum => {
                let mut all = vec![Some(TensorSpec::new("eps", &[1]))];
                all.extend(self.linear.tensors("nn.0.weight", "nn.0.bias"));
                let second = self
                    .second
                    .map(|map| map.tensors("nn.2.weight", "nn.2.bias"));
                all.extend(second.into_iter().flatten());
                all
            }
        }
    }

    /// Glorot and 0 for `gcn`, 0 for ε, PyTorch's own for other maps.
    fn init(&self, slot: usize, len: usize, stream: &mut Stream) -> Vec<f32> {
        let first = &self.linear;
        let bound = match self.propagation {
            Propagation::Normalised => glorot(first.inputs, first.outputs),
            _ => fan_in(first.inputs),
        };
        match (self.propagation, slot) {
            (Propagation::Normalised, 1) | (Propagation::Sum, EPS) => vec![0.0; len],
            (_, slot) if slot == first.weight => first.init_weight(bound, stream),
            (Propagation::MeanOfNeighbours, 2) => first.init_weight(bound, stream),
            (Propagation::Sum, 3..) => {
                let second = self.second.expect("gin has a second map");
                let bound = fan_in(second.inputs);
                match slot == second.weight {
                    true => second.init_weight(bound, stream),
                    false => uniform(len, bound, stream),
                }
            }
            _ => uniform(len, bound, stream),
        }
    }

    fn reads_sparse(&self) -> bool {
        true
    }
}

impl Convolution {
    /// W before P?
    fn map_first<T: Scalar>(&self, c: &Context<'_, T>, x: &NodeValues<'_, T>) -> bool {
        let narrower = self.linear.outputs <= self.linear.inputs;
        // The plain loops follow the definitions: gcn maps first, the others propagate first.
        let defined = self.propagation == Propagation::Normalised;
        matches!(x, NodeValues::Sparse(..)) || if c.fast { narrower } else { defined }
    }

    fn adjacency<'g, T: Scalar>(&self, c: &Context<'g, T>) -> &'g Adjacency {
        match self.propagation {
            Propagation::Normalised | Propagation::MeanWithSelf => c.graph().looped(),
            _ => c.graph().adjacency(),
        }
    }

    /// P's entries or the inverse degrees, where they are not already at hand.
    fn prepare<T: Scalar>(&self, c: &Context<'_, T>, saved: &mut Memory<T>) {
        let rows = &self.adjacency(c).pattern.by_row;
        match self.propagation {
            Propagation::Normalised => {
                if !kept_by_graph(c) {
                    normalise(self.adjacency(c), c.batch.edge_weights(), saved);
                }
            }
            Propagation::MeanOfNeighbours | Propagation::MeanWithSelf => {
                let inverse = sized(&mut saved.scale, rows.len());
                for (i, inverse) in inverse.iter_mut().enumerate() {
                    let degree = rows.degree(i);
                    *inverse = if degree == 0 {
                        T::ZERO
                    } else {
                        T::ONE / T::from_usize(degree)
                    };
                }
            }
            Propagation::Sum => {}
        }
    }

    /// out = P·v + bias, or Pᵀ·v.
    fn propagate<T: Scalar>(
        &self,
        c: &Context<'_, T>,
        [entries, inverse]: [&[T]; 2],
        transposed: bool,
        v: &[T],
        width: usize,
        bias: Option<&[T]>,
        out: &mut [T],
    ) {
        let pattern = &self.adjacency(c).pattern;
        let rows = if transposed {
            &pattern.by_column
        } else {
            &pattern.by_row
        };
        if self.propagation == Propagation::Normalised
            && kept_by_graph(c)
            && let (Some(v), Some(out)) = (T::f32s(v), T::f32s_mut(out))
        {
            let entries = c.graph().normalisation();
            let coefficient = if transposed {
                Coefficient::Gather(entries, &pattern.slot)
            } else {
                Coefficient::Slot(entries)
            };
            let sum = Aggregate {
                bias: bias.and_then(T::f32s),
                ..Aggregate::new(rows, coefficient)
            };
            return aggregate(&sum, v, width, out, true);
        }
        let (coefficient, row_scale) = match (self.propagation, transposed) {
            (Propagation::Normalised, false) => (Coefficient::Slot(entries), None),
            (Propagation::Normalised, true) => (Coefficient::Gather(entries, &pattern.slot), None),
            (Propagation::Sum, _) => (Coefficient::One, None),
            (_, false) => (Coefficient::One, Some(inverse)),
            (_, true) => (Coefficient::Neighbour(inverse), None),
        };
        let own = match self.propagation {
            Propagation::Sum => Some(T::ONE + c.params[EPS][0]),
            _ => None,
        };
        let sum = Aggregate {
            own,
            row_scale,
            bias,
            ..Aggregate::new(rows, coefficient)
        };
        aggregate(&sum, v, width, out, c.fast);
    }

    /// The gradients of what P is made of, given v and d_(Pv).
    fn backward_propagation<T: Scalar>(
        &self,
        b: &mut Back<'_, T>,
        v: &[T],
        d_pv: &[T],
        width: usize,
        [_, scale]: [&[T]; 2],
    ) {
        match self.propagation {
            Propagation::Sum => {
                let fast = b.c.fast;
                if let Some((d_eps, _)) = b.gradient(EPS) {
                    d_eps[0] += dot(v, d_pv, fast);
                }
            }
            Propagation::Normalised => {
                let Some(d_weights) = b.d_edge_weights.as_deref_mut() else {
                    return;
                };
                let adjacency = self.adjacency(&b.c);
                let weights = b.c.batch.edge_weights().expect("gradient of weights");
                let mut g = vec![T::ZERO; adjacency.pattern.len()];
                let rows = &adjacency.pattern.by_row;
                edge_dot(rows, d_pv, v, [width, 1], &mut g, b.c.fast);
                backward_normalise(adjacency, weights, scale, &g, d_weights);
            }
            _ => {}
        }
    }
}

impl<T: Scalar> Layer<T> for Convolution {
    fn forward(&self, io: Forward<'_, T>) {
        let (c, x, y, saved) = io.on_graph::<Memory<T>>();
        let n = c.graph().nodes();
        self.prepare(&c, saved);
        let first = &self.linear;
        let out = match &self.second {
            Some(_) => sized(&mut saved.hidden, n * first.outputs),
            None => &mut *y,
        };
        let known = [&saved.entries[..], &saved.scale[..]];
        if self.map_first(&c, &x) {
            let z = sized(&mut saved.between, n * first.outputs);
            first.multiply_only(&c, x, z);
            let bias = first.bias(&c);
            self.propagate(&c, known, false, z, first.outputs, bias, out);
        } else {
            let m = sized(&mut saved.between, n * first.inputs);
            self.propagate(&c, known, false, x.dense(), first.inputs, None, m);
            first.forward(&c, NodeValues::Dense(m), out, false);
        }
        if let Some(root) = &self.root {
            root.forward(&c, x, out, true);
        }
        if let Some(second) = &self.second {
            relu(out);
            second.forward(&c, NodeValues::Dense(&saved.hidden), y, false);
        }
    }

    fn backward(&self, io: Backward<'_, T>) {
        let Returning {
            mut b,
            x,
            d_y,
            mut d_x,
            saved,
        } = io.on_graph::<Memory<T>>();
        let b = &mut b;
        let n = b.c.graph().nodes();
        let first = &self.linear;
        let mut d_y = d_y;
        if let Some(second) = &self.second {
            second.backward_params(b, NodeValues::Dense(&saved.hidden), d_y);
            d_y = through_relu(second, &b.c, &saved.hidden, d_y, &mut saved.d_hidden);
        }
        let known = [&saved.entries[..], &saved.scale[..]];
        // The gradient of what P was applied to is `d_(Pv)`; see the module's text.
        if self.map_first(&b.c, &x) {
            let d_z = sized(&mut saved.d_between, n * first.outputs);
            self.propagate(&b.c, known, true, d_y, first.outputs, None, d_z);
            first.backward_weight(b, x, d_z);
            first.backward_bias(b, d_y);
            self.backward_propagation(b, &saved.between, d_y, first.outputs, known);
            if let Some(d_x) = d_x.as_deref_mut() {
                first.backward_input(&b.c, x, d_z, d_x, false);
            }
        } else {
            let m = NodeValues::Dense(&saved.between[..]);
            first.backward_params(b, m, d_y);
            let wants_eps = self.propagation == Propagation::Sum && b.wants(EPS);
            if d_x.is_some() || wants_eps || b.d_edge_weights.is_some() {
                let d_m = sized(&mut saved.d_between, n * first.inputs);
                first.backward_input(&b.c, m, d_y, d_m, false);
                self.backward_propagation(b, x.dense(), d_m, first.inputs, known);
                if let Some(d_x) = d_x.as_deref_mut() {
                    self.propagate(&b.c, known, true, d_m, first.inputs, None, d_x);
                }
            }
        }
        if let Some(root) = &self.root {
            root.backward_params(b, x, d_y);
            if let Some(d_x) = d_x {
                root.backward_input(&b.c, x, d_y, d_x, true);
            }
        }
    }

    /// Which side of gin's ReLU each hidden element is on.
    fn pattern(&self, seen: Seen<'_, T>, pattern: &mut Vec<u32>) {
        if self.second.is_some() {
            let (_, saved) = seen.on_graph::<Memory<T>>();
            pattern.extend(saved.hidden.iter().map(|&h| u32::from(h > T::ZERO)));
        }
    }
}

/// Without edge weights, in f32, P's entries are computed once for the graph.
fn kept_by_graph<T: Scalar>(c: &Context<'_, T>) -> bool {
    c.fast && T::f32s(&[]).is_some() && c.batch.edge_weights().is_none()
}

fn weight_of<T: Scalar>(adjacency: &Adjacency, weights: Option<&[T]>, slot: usize) -> T {
    match (weights, adjacency.edge[slot]) {
        (_, LOOP) | (None, _) => T::ONE,
        (Some(w), edge) => w[edge as usize],
    }
}

/// s and P's entries.
fn normalise<T: Scalar>(adjacency: &Adjacency, weights: Option<&[T]>, saved: &mut Memory<T>) {
    let rows = &adjacency.pattern.by_row;
    let scale = sized(&mut saved.scale, rows.len());
    for (i, scale) in scale.iter_mut().enumerate() {
        let degree: T = rows
            .range(i)
            .map(|p| weight_of(adjacency, weights, p))
            .sum();
        *scale = if degree > T::ZERO {
            T::ONE / degree.sqrt()
        } else {
            T::ZERO
        };
    }
    let entries = sized(&mut saved.entries, rows.slots());
    for i in 0..rows.len() {
        for p in rows.range(i) {
            let j = rows.neighbour[p] as usize;
            entries[p] = scale[j] * weight_of(adjacency, weights, p) * scale[i];
        }
    }
}

/// Adds to the gradient of the edge weights; g is that of P's entries.
fn backward_normalise<T: Scalar>(
    adjacency: &Adjacency,
    weights: &[T],
    scale: &[T],
    g: &[T],
    d_weights: &mut [T],
) {
    let pattern = &adjacency.pattern;
    let (rows, columns) = (&pattern.by_row, &pattern.by_column);
    let half = T::from_f64(0.5);
    for i in 0..rows.len() {
        let mut d_scale = T::ZERO;
        for p in rows.range(i) {
            let j = rows.neighbour[p] as usize;
            d_scale += g[p] * weight_of(adjacency, Some(weights), p) * scale[j];
        }
        for q in columns.range(i) {
            let p = pattern.slot[q] as usize;
            let target = columns.neighbour[q] as usize;
            d_scale += g[p] * weight_of(adjacency, Some(weights), p) * scale[target];
        }
        let d_degree = -half * scale[i] * scale[i] * scale[i] * d_scale;
        for p in rows.range(i) {
            let edge = adjacency.edge[p];
            if edge != LOOP {
                let j = rows.neighbour[p] as usize;
                d_weights[edge as usize] += g[p] * scale[i] * scale[j] + d_degree;
            }
        }
    }
}
