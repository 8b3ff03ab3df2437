//! One row per graph from the rows of its nodes: their sum, mean or maximum.
//!
//! d_x_i = d_y_g for the sum, d_y_g/n for the mean; for the maximum d_y_g goes, feature by feature,
//! to the first node that has it. A graph without nodes gives a row of zeros.

mod faults;
#[cfg(feature = "gpu")]
pub(crate) mod gpu;
mod spec;

pub use spec::{MaxPoolSpec, MeanPoolSpec, SumPoolSpec};

use crate::cuts::cuts;
use crate::graph::Graph;
use crate::layer::{Backward, Describe, Forward, Layer, Seen};
use crate::simd::{self, dispatch};
use crate::{Kernels, Scalar, parallel};

/// What is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PoolKind {
    Sum,
    Mean,
    Max,
}

pub(crate) struct GraphPool {
    kind: PoolKind,
    width: usize,
}

/// No node: a graph without nodes has no maximum.
const NONE: u32 = u32::MAX;

/// From this many numbers on, graphs go to threads: some 5 µs on one
/// (`retrograd bench threshold-pool` measures that).
const PARALLEL: usize = 1 << 14;
cuts!(PARALLEL);

impl GraphPool {
    fn scale<T: Scalar>(&self, graph: &Graph, g: usize) -> T {
        match (self.kind, graph.nodes_of(g).len()) {
            (PoolKind::Mean, n) if n > 0 => T::ONE / T::from_usize(n),
            _ => T::ONE,
        }
    }
}

impl Describe for GraphPool {
    #[cfg(feature = "gpu")]
    fn record(&self) -> Option<&dyn crate::gpu::layer::Record> {
        Some(self)
    }
}

impl<T: Scalar> Layer<T> for GraphPool {
    fn forward(&self, io: Forward<'_, T>) {
        let fast = io.pass.kernels == Kernels::Fast;
        let indices = &mut io.saved.indices;
        let (x, y) = (io.x, io.y);
        let graph = io.around.batch.expect("in a graph network").graph();
        let width = self.width;
        let parallel = fast && x.len() >= PARALLEL;
        if self.kind == PoolKind::Max {
            indices.resize(y.len(), NONE);
            let nodes = &mut indices[..];
            parallel::for_each_chunk2(y, width, nodes, width, parallel, |g, y, nodes| {
                y.fill(T::ZERO);
                nodes.fill(NONE);
                for i in graph.nodes_of(g) {
                    for (f, &x) in x[i * width..(i + 1) * width].iter().enumerate() {
                        if nodes[f] == NONE || x > y[f] {
                            y[f] = x;
                            nodes[f] = i as u32;
                        }
                    }
                }
            });
            return;
        }
        parallel::for_each_chunk(y, width, parallel, |g, y| {
            let nodes = graph.nodes_of(g);
            let rows = &x[nodes.start * width..nodes.end * width];
            let scale = self.scale::<T>(graph, g);
            dispatch!(simd::level(), _ => sum_rows(rows, y));
            if self.kind == PoolKind::Mean {
                for y in y {
                    *y *= scale;
                }
            }
        });
    }

    fn backward(&self, io: Backward<'_, T>) {
        let Some(d_x) = io.d_x else { return };
        let d_y = io.d_y;
        let graph = io.around.batch.expect("in a graph network").graph();
        let width = self.width;
        if self.kind == PoolKind::Max {
            d_x.fill(T::ZERO);
            for (k, (&node, &d)) in io.saved.indices.iter().zip(d_y).enumerate() {
                if node != NONE {
                    d_x[node as usize * width + k % width] = d;
                }
            }
            return;
        }
        for (g, d_y) in d_y.chunks_exact(width).enumerate() {
            let nodes = graph.nodes_of(g);
            let rows = &mut d_x[nodes.start * width..nodes.end * width];
            let scale = self.scale::<T>(graph, g);
            dispatch!(simd::level(), _ => scaled_rows(d_y, scale, rows));
        }
    }

    /// The node of each maximum.
    fn pattern(&self, seen: Seen<'_, T>, pattern: &mut Vec<u32>) {
        if self.kind == PoolKind::Max {
            pattern.extend(&seen.saved.indices);
        }
    }
}

/// y = Σ rows, in their order.
#[inline(always)]
fn sum_rows<T: Scalar>(rows: &[T], y: &mut [T]) {
    y.fill(T::ZERO);
    for row in rows.chunks_exact(y.len()) {
        for (y, &x) in y.iter_mut().zip(row) {
            *y += x;
        }
    }
}

/// Every row is d·scale.
#[inline(always)]
fn scaled_rows<T: Scalar>(d: &[T], scale: T, rows: &mut [T]) {
    for row in rows.chunks_exact_mut(d.len()) {
        for (to, &d) in row.iter_mut().zip(d) {
            *to = d * scale;
        }
    }
}
