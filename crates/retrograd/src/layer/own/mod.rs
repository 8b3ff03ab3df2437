//! A layer of one's own beside the built-in ones, from Rust, in networks and in graph networks.
//!
//! ```
//! use retrograd::layer::own::{OwnBackward, OwnForward, OwnLayer, OwnTensor};
//! use retrograd::network::{LayerSpec, Network, NetworkSpec};
//! use retrograd::{Loss, Model, Result, Scalar, Target, verify};
//!
//! /// yᵢ = wᵢ·xᵢ/(1 + |xᵢ|), a learned softsign.
//! struct Softsign;
//!
//! impl OwnLayer for Softsign {
//!     fn name(&self) -> &'static str {
//!         "softsign"
//!     }
//!     fn output(&self, input: &[usize]) -> Result<Vec<usize>> {
//!         Ok(input.to_vec())
//!     }
//!     fn tensors(&self, input: &[usize]) -> Vec<OwnTensor> {
//!         vec![OwnTensor::new("weight", input, 1.0)]
//!     }
//!     fn forward<T: Scalar>(&self, io: OwnForward<'_, T>) {
//!         let w = io.params[0];
//!         for (i, (y, &x)) in io.y.iter_mut().zip(io.x).enumerate() {
//!             *y = w[i % w.len()] * x / (T::ONE + x.abs());
//!         }
//!     }
//!     fn backward<T: Scalar>(&self, mut io: OwnBackward<'_, '_, T>) {
//!         let w = io.params[0];
//!         for (i, (&x, &d_y)) in io.x.iter().zip(io.d_y).enumerate() {
//!             let wide = T::ONE + x.abs();
//!             if let Some(d_w) = &mut io.d_params[0] {
//!                 d_w[i % w.len()] += d_y * x / wide;
//!             }
//!             if let Some(d_x) = &mut io.d_x {
//!                 d_x[i] = d_y * w[i % w.len()] / (wide * wide);
//!             }
//!         }
//!     }
//! }
//!
//! let layers = vec![LayerSpec::dense(6), LayerSpec::own(Softsign), LayerSpec::dense(1)];
//! let network = Network::new(&NetworkSpec::new(&[2], layers))?;
//! let x: Vec<f32> = (0..10).map(|k| (k as f32 * 0.9).sin()).collect();
//! let target = Target::values(vec![0.25; 5]);
//! let params = network.init(0);
//! // The whole chain: central differences, f32 against f64, threads, reused memory, optimizers.
//! let options = Default::default();
//! let report = verify::check("mine", &network, &params, &x, &target, Loss::Mse, &options)?;
//! assert!(report.passed());
//! # Ok::<(), retrograd::Error>(())
//! ```

mod spec;

pub use spec::OwnSpec;

use std::sync::Arc;

use crate::graph::Graph;
use crate::layer::{Backward, Describe, Forward, Layer, Seen, TensorSpec};
use crate::rng::Stream;
use crate::{Pass, Result, Scalar};

/// A layer: pure functions of its tensors and of what it reads. They are generic, so that the
/// verifier can run them in f64 and on the number that rounds at random.
///
/// Rows are independent in networks (a row is a sample) unless the layer wants them otherwise; in
/// graph networks a row is a node's, and [`OwnForward::graph`] has the edges.
pub trait OwnLayer: Send + Sync + 'static {
    /// A word for messages.
    fn name(&self) -> &'static str;

    /// The shape of one row of the output, from that of the input; an error where it doesn't fit.
    fn output(&self, input: &[usize]) -> Result<Vec<usize>>;

    /// What it learns; at most seven tensors.
    fn tensors(&self, input: &[usize]) -> Vec<OwnTensor> {
        let _ = input;
        Vec::new()
    }

    /// Writes y, and what backward needs beyond x and y into `saved`.
    fn forward<T: Scalar>(&self, io: OwnForward<'_, T>);

    /// Adds to the gradients of the tensors and overwrites that of x, where they are asked for.
    fn backward<T: Scalar>(&self, io: OwnBackward<'_, '_, T>);

    /// Appends which side of each of its kinks the inputs are on; nothing for a smooth function.
    fn pattern<T: Scalar>(&self, x: &[T], pattern: &mut Vec<u32>) {
        let _ = (x, pattern);
    }
}

/// A tensor that a layer learns.
#[derive(Clone, Debug, PartialEq)]
pub struct OwnTensor {
    /// Its name after the layer's number, as PyTorch would have it.
    pub name: &'static str,
    /// Its shape.
    pub shape: Vec<usize>,
    /// Initial values are drawn between these; all equal where both are.
    pub range: [f64; 2],
}

impl OwnTensor {
    /// One that begins with the same value everywhere.
    pub fn new(name: &'static str, shape: &[usize], value: f64) -> Self {
        OwnTensor {
            name,
            shape: shape.to_vec(),
            range: [value; 2],
        }
    }

    /// One that begins with values drawn uniformly from ±bound.
    pub fn uniform(name: &'static str, shape: &[usize], bound: f64) -> Self {
        OwnTensor {
            name,
            shape: shape.to_vec(),
            range: [-bound, bound],
        }
    }
}

/// The arguments of forward.
pub struct OwnForward<'a, T> {
    /// The tensors, in their order.
    pub params: &'a [&'a [T]],
    /// What it reads, row after row.
    pub x: &'a [T],
    /// To be overwritten.
    pub y: &'a mut [T],
    /// Samples, nodes or graphs.
    pub rows: usize,
    /// The shape of a row of x.
    pub shape: &'a [usize],
    /// Numbers for backward; kept and reused between steps.
    pub saved: &'a mut Vec<T>,
    /// Training or inference, and the step's random key.
    pub pass: &'a Pass,
    /// The graph, in graph networks.
    pub graph: Option<&'a Graph>,
}

/// The arguments of backward.
pub struct OwnBackward<'a, 'd, T> {
    /// The tensors, in their order.
    pub params: &'a [&'a [T]],
    /// What forward read.
    pub x: &'a [T],
    /// What forward wrote.
    pub y: &'a [T],
    /// The gradient of y.
    pub d_y: &'a [T],
    /// Samples, nodes or graphs.
    pub rows: usize,
    /// The shape of a row of x.
    pub shape: &'a [usize],
    /// What forward kept.
    pub saved: &'a [T],
    /// Training or inference, and the step's random key.
    pub pass: &'a Pass,
    /// The graph, in graph networks.
    pub graph: Option<&'a Graph>,
    /// To be added to; `None` where a tensor is frozen or nobody asks.
    pub d_params: &'a mut [Option<&'d mut [T]>],
    /// To be overwritten; `None` where nobody asks.
    pub d_x: Option<&'d mut [T]>,
}

/// A user's layer as the engine sees it.
struct Own<L> {
    layer: Arc<L>,
    /// The shape of a row of x.
    shape: Vec<usize>,
    tensors: Vec<OwnTensor>,
}

impl<L: OwnLayer> Describe for Own<L> {
    /// What it does with its samples is not known here.
    fn joins_shards(&self) -> bool {
        false
    }

    fn tensors(&self) -> Vec<Option<TensorSpec>> {
        let tensors = self.tensors.iter();
        tensors
            .map(|t| Some(TensorSpec::new(t.name, &t.shape)))
            .collect()
    }

    fn init(&self, slot: usize, len: usize, stream: &mut Stream) -> Vec<f32> {
        let [low, high] = self.tensors[slot].range;
        let draw = |_| match low == high {
            true => low as f32,
            false => stream.range(low, high) as f32,
        };
        (0..len).map(draw).collect()
    }
}

impl<T: Scalar, L: OwnLayer> Layer<T> for Own<L> {
    fn forward(&self, io: Forward<'_, T>) {
        self.layer.forward(OwnForward {
            params: &io.params[..self.tensors.len()],
            x: io.x,
            y: io.y,
            rows: io.samples,
            shape: &self.shape,
            saved: &mut io.saved.values,
            pass: io.pass,
            graph: io.around.batch.map(|batch| &**batch.graph()),
        });
    }

    fn backward(&self, mut io: Backward<'_, T>) {
        self.layer.backward(OwnBackward {
            params: &io.params[..self.tensors.len()],
            x: io.x,
            y: io.y,
            d_y: io.d_y,
            rows: io.samples,
            shape: &self.shape,
            saved: &io.saved.values,
            pass: io.pass,
            graph: io.around.batch.map(|batch| &**batch.graph()),
            d_params: &mut io.d_params[..self.tensors.len()],
            d_x: io.d_x,
        });
    }

    fn pattern(&self, seen: Seen<'_, T>, pattern: &mut Vec<u32>) {
        self.layer.pattern(seen.x, pattern);
    }
}
