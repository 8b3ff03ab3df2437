//! The layers: forward leaves on its tape what backward needs.
//!
//! A layer reads one row per node (or per graph, after pooling) and writes another. Backward gets
//! the gradient of what it wrote, adds the gradients of its parameters, and overwrites the gradient
//! of what it read.

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

mod attention;
mod convolution;
mod dropout;
mod gat;
mod gatv2;
mod gine;
mod norm;
mod pair;
mod pool;
mod softmax;

pub(crate) use attention::SelfAttention;
pub(crate) use convolution::{Convolution, Propagation};
pub(crate) use dropout::Dropout;
pub(crate) use gat::Gat;
pub(crate) use gatv2::GatV2;
pub(crate) use gine::Gine;
pub(crate) use norm::LayerNorm;
pub(crate) use pair::{pair_dot, pair_dot_backward};
pub(crate) use pool::{Pool, PoolKind};

use super::batch::GraphBatch;
use super::ops::{Linear, column_sums};
use super::structure::Graph;
use crate::network::Activation;
use crate::{Kernels, Layout, Pass, Scalar};

/// What a layer may look at in forward and backward.
pub struct Context<'a, T> {
    /// All parameters.
    pub params: &'a [T],
    /// The batch.
    pub batch: &'a GraphBatch<T>,
    /// Training or inference, and the random key.
    pub pass: &'a Pass,
    /// Kernels with SIMD and threads instead of plain loops.
    pub fast: bool,
    /// The layer's number.
    pub index: u64,
}

impl<T> Context<'_, T>
where
    T: Scalar,
{
    pub(crate) fn graph(&self) -> &Graph {
        self.batch.graph()
    }

    pub(crate) fn kernels(&self) -> Kernels {
        self.pass.kernels
    }
}

/// Where a layer leaves the gradients of parameters, edge weights and edge features.
pub struct Back<'a, T> {
    /// What forward saw.
    pub c: Context<'a, T>,
    /// Names and places of the parameters, and which are frozen.
    pub layout: &'a Layout,
    /// The gradient of all parameters, added to.
    pub d_params: Option<&'a mut [T]>,
    /// The gradient of the edge weights, added to.
    pub d_edge_weights: Option<&'a mut [T]>,
    /// The gradient of the edge features, added to.
    pub d_edge_features: Option<&'a mut [T]>,
    /// Memory for partial sums.
    pub partial: &'a mut Vec<f32>,
}

impl<T: Scalar> Back<'_, T> {
    /// Whether the tensor's gradient is asked for.
    pub(crate) fn wants(&self, tensor: usize) -> bool {
        self.d_params.is_some() && !self.layout.tensors()[tensor].frozen
    }

    /// The tensor's gradient, to add to; none if it is not asked for.
    pub(crate) fn gradient(&mut self, tensor: usize) -> Option<&mut [T]> {
        let tensor = &self.layout.tensors()[tensor];
        if tensor.frozen {
            return None;
        }
        self.d_params.as_deref_mut().map(|d| &mut d[tensor.range()])
    }

    /// Adds the sums of the columns of d_y to a tensor's gradient.
    pub(crate) fn add_column_sums(&mut self, tensor: usize, d_y: &[T]) {
        let fast = self.c.fast;
        // The workspace lies beside the gradients: taken out for the time of the call.
        let mut partial = std::mem::take(self.partial);
        if let Some(d) = self.gradient(tensor) {
            column_sums(d_y, d, &mut partial, fast);
        }
        *self.partial = partial;
    }
}

/// What a layer keeps between forward and backward, and from step to step.
pub struct LayerTape<T> {
    pub(crate) output: Vec<T>,
    pub(crate) d_output: Vec<T>,
    pub(crate) saved: Saved<T>,
    pub(crate) attention: attention::Memory<T>,
}

// Derived, it would ask for `T: Default`.
impl<T> Default for LayerTape<T> {
    fn default() -> Self {
        LayerTape {
            output: Vec::new(),
            d_output: Vec::new(),
            saved: Saved::default(),
            attention: attention::Memory::default(),
        }
    }
}

/// Memory of a layer. Each layer says in its own file which of these it uses and for what.
pub(crate) struct Saved<T> {
    pub a: Vec<T>,
    pub b: Vec<T>,
    pub c: Vec<T>,
    pub d: Vec<T>,
    pub e: Vec<T>,
    pub f: Vec<T>,
    pub indices: Vec<u32>,
}

impl<T> Default for Saved<T> {
    fn default() -> Self {
        Saved {
            a: Vec::new(),
            b: Vec::new(),
            c: Vec::new(),
            d: Vec::new(),
            e: Vec::new(),
            f: Vec::new(),
            indices: Vec::new(),
        }
    }
}

/// The vector with that length; what it holds is unspecified, to be overwritten.
pub(crate) fn sized<T: Scalar>(buffer: &mut Vec<T>, len: usize) -> &mut [T] {
    buffer.resize(len, T::ZERO);
    buffer
}

/// One layer of a network.
pub(crate) enum Layer {
    Embedding {
        tensor: usize,
        out: usize,
    },
    Convolution(Convolution),
    Gine(Gine),
    Gat(Gat),
    GatV2(GatV2),
    SelfAttention(SelfAttention),
    LayerNorm(LayerNorm),
    Pool(Pool),
    Dense(Linear),
    Activation(Activation),
    Dropout(Dropout),
    /// Adds the output of an earlier layer.
    Add {
        with: usize,
    },
    /// Scores the batch's pairs by the dot product of their nodes.
    PairDot {
        width: usize,
    },
}
