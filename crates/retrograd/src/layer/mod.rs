//! What a layer is to a network or a graph network; one folder per layer kind.
//!
//! A layer reads x, writes y, and in backward turns d_y into the gradients of its tensors (added
//! to what is there) and d_x (overwritten). Up to `TENSORS` tensors, in fixed slots; an absent
//! one is an empty slice. What is not wanted, because it is frozen or nobody asks, is `None`.
//!
//! Layers that read rows one by one (dense, norms, dropout, activations, sums) are the same in
//! networks and in graph networks. Those that look at a graph find it, and whether x is sparse, in
//! `Around`; `graph` has what they share.

pub mod activation;
pub mod add;
pub mod concat;
pub mod conv2d;
pub mod conv_transpose2d;
pub mod dense;
pub mod dropout;
pub mod embedding;
pub mod flatten;
pub mod gat;
pub mod gatv2;
pub mod gemm;
pub mod gine;
pub(crate) mod graph;
pub mod graph_conv;
pub mod graph_pool;
pub mod kan;
pub mod norm;
pub mod normalize;
pub mod own;
pub mod pair_dot;
pub(crate) mod pieces;
pub mod pool;
pub mod self_attention;
pub(crate) mod spec;
pub mod upsample;

pub(crate) use spec::Spec;

use std::any::Any;

use serde::{Deserialize, Serialize};

use crate::graph::{GraphBatch, Pattern};
use crate::rng::Stream;
use crate::verify::{Dual, Rounded};
use crate::{Buffer, Pass, Result, Scalar};

/// The most tensors that a layer has.
pub(crate) const TENSORS: usize = 7;

/// A tensor that a layer wants in the flat vector.
pub(crate) struct TensorSpec {
    /// The name after `N.`.
    pub name: &'static str,
    /// PyTorch's shape.
    pub shape: Vec<usize>,
    /// The stored order of its axes.
    pub order: Vec<usize>,
}

impl TensorSpec {
    /// Stored in PyTorch's own order.
    pub fn new(name: &'static str, shape: &[usize]) -> Self {
        TensorSpec {
            name,
            shape: shape.to_vec(),
            order: (0..shape.len()).collect(),
        }
    }

    /// With another order.
    pub fn stored(self, order: &[usize]) -> Self {
        TensorSpec {
            order: order.to_vec(),
            ..self
        }
    }
}

/// What a layer keeps between forward and backward, and scratch to work in; reused between steps.
#[derive(Default)]
pub(crate) struct Saved<T> {
    /// Numbers for backward: basis functions, statistics, masks.
    pub values: Vec<T>,
    /// Positions for backward: intervals, maxima.
    pub indices: Vec<u32>,
    /// Workspace to work in; no meaning between calls.
    pub scratch: Vec<T>,
    /// Named buffers of a kind that keeps more than that.
    pub own: Own,
}

/// A layer kind's own struct of buffers, made when it is first asked for.
#[derive(Default)]
pub(crate) struct Own(Option<Box<dyn Any + Send>>);

impl Own {
    /// The buffers, empty ones at first (and where the tape was another model's).
    pub fn of<S: Default + Any + Send>(&mut self) -> &mut S {
        if !self.0.as_ref().is_some_and(|own| own.is::<S>()) {
            self.0 = Some(Box::new(S::default()));
        }
        let own = self.0.as_mut().and_then(|own| own.downcast_mut());
        own.expect("made where it was another's")
    }

    /// The buffers that a forward left.
    pub fn kept<S: Any>(&self) -> &S {
        let own = self.0.as_ref().and_then(|own| own.downcast_ref());
        own.expect("after a forward")
    }
}

/// What a layer may look at beside its values: the graph that they belong to, in graph networks.
pub(crate) struct Around<'a, T> {
    pub batch: Option<&'a GraphBatch<T>>,
    /// The places of x's values, where x is sparse.
    pub sparse: Option<&'a Pattern>,
}

impl<T> Clone for Around<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for Around<'_, T> {}

/// What a layer's forward saw and kept.
pub(crate) struct Seen<'a, T> {
    pub x: &'a [T],
    pub saved: &'a Saved<T>,
    pub around: Around<'a, T>,
}

/// A vector of exactly that length whose content will be overwritten; allocates only to grow.
pub(crate) fn sized<T: Scalar>(vec: &mut Vec<T>, len: usize) -> &mut [T] {
    vec.resize(len, T::ZERO);
    &mut vec[..]
}

/// A vector of that many zeros; allocates only to grow.
pub(crate) fn zeros<T: Scalar>(vec: &mut Vec<T>, len: usize) -> &mut [T] {
    vec.clear();
    sized(vec, len)
}

/// The arguments of a layer's forward.
pub(crate) struct Forward<'a, T> {
    pub params: [&'a [T]; TENSORS],
    pub x: &'a [T],
    /// The second value that a skip reads; empty elsewhere.
    pub other: &'a [T],
    pub y: &'a mut [T],
    /// Samples, or rows, of x.
    pub samples: usize,
    pub saved: &'a mut Saved<T>,
    pub pass: &'a Pass,
    pub around: Around<'a, T>,
    /// Whether y is wanted after a ReLU; only where the layer [takes one](Describe::takes_relu),
    /// and only of the fast kernels.
    pub relu: bool,
}

/// The arguments of a layer's backward.
pub(crate) struct Backward<'a, T> {
    pub params: [&'a [T]; TENSORS],
    pub x: &'a [T],
    /// The second value that a skip reads; empty elsewhere.
    pub other: &'a [T],
    pub y: &'a [T],
    pub d_y: &'a [T],
    /// Samples, or rows, of x.
    pub samples: usize,
    pub saved: &'a mut Saved<T>,
    pub pass: &'a Pass,
    pub around: Around<'a, T>,
    /// The gradients of the edges' weights and features, added to.
    pub d_edges: [Option<&'a mut [T]>; 2],
    /// Added to.
    pub d_params: [Option<&'a mut [T]>; TENSORS],
    /// Overwritten, or added to where `adds` says so.
    pub d_x: Option<&'a mut [T]>,
    /// The gradient of the second value, in the same way.
    pub d_other: Option<&'a mut [T]>,
    /// Whether d_x and d_other are added to; only where the layer [can](Describe::adds).
    pub adds: [bool; 2],
    /// Whether forward put a ReLU after this layer: y and d_y are those of the ReLU.
    pub relu: bool,
}

/// What doesn't depend on the scalar.
pub(crate) trait Describe {
    /// The tensors by slot.
    fn tensors(&self) -> Vec<Option<TensorSpec>> {
        Vec::new()
    }

    /// Initial values of a slot's tensor, in PyTorch's order.
    fn init(&self, slot: usize, len: usize, stream: &mut Stream) -> Vec<f32> {
        let _ = (slot, stream);
        vec![0.0; len]
    }

    /// What is saved but not trained; names after `N.`.
    fn buffers(&self) -> Vec<Buffer> {
        Vec::new()
    }

    /// Takes a buffer back. `Ok(false)` where there is none of that name.
    fn set_buffer(&mut self, name: &str, buffer: &Buffer) -> Result<bool> {
        let _ = (name, buffer);
        Ok(false)
    }

    /// Whether the fast kernels do a ReLU after this layer in the same pass.
    fn takes_relu(&self) -> bool {
        false
    }

    /// Whether this is a ReLU, which such a layer may do.
    fn is_relu(&self) -> bool {
        false
    }

    /// Whether y is x under another shape: the plan then gives both one buffer.
    fn is_view(&self) -> bool {
        false
    }

    /// Whether backward can add to the gradients of what it reads instead of overwriting them.
    fn adds(&self) -> bool {
        false
    }

    /// Whether it can read the non-zeros of sparse rows.
    fn reads_sparse(&self) -> bool {
        false
    }

    /// Whether what it writes is sparse at the same places, then.
    fn keeps_sparse(&self) -> bool {
        false
    }

    /// What a step's key gives this layer its stream of random numbers for, and its number.
    #[cfg(feature = "gpu")]
    fn draws(&self) -> Option<(&'static str, u64)> {
        None
    }

    /// Multiplications and additions of one sample's forward pass, where they matter.
    fn flops(&self) -> usize {
        0
    }

    /// Channels with running statistics, the first of its fixed numbers on a device.
    #[cfg(feature = "gpu")]
    fn running_channels(&self) -> Option<usize> {
        None
    }

    /// Its side of a GPU, where it has kernels there.
    #[cfg(feature = "gpu")]
    fn record(&self) -> Option<&dyn crate::gpu::layer::Record> {
        None
    }

    /// Its form in ONNX, where it has one.
    fn to_onnx(&self) -> Option<&dyn crate::onnx::ToOnnx> {
        None
    }

    /// Whether a sample's output in training depends on the others of its batch.
    fn couples(&self) -> bool {
        false
    }

    /// Whether samples of several shards may be computed at once: each sample by itself, and gradients of
    /// parameters by the pass's segments.
    fn joins_shards(&self) -> bool {
        self.tensors().iter().all(Option::is_none)
    }

    /// The layer that this one only wraps.
    fn inner(&self) -> Option<&dyn AnyLayer> {
        None
    }

    /// Lets running statistics follow a training step.
    fn absorb(&mut self, saved: &Saved<f32>, samples: usize) {
        let _ = (saved, samples);
    }
}

/// A layer in one scalar.
pub(crate) trait Layer<T: Scalar>: Describe {
    fn forward(&self, io: Forward<'_, T>);
    fn backward(&self, io: Backward<'_, T>);

    /// Appends what decides which smooth piece of the function the last forward was on.
    fn pattern(&self, seen: Seen<'_, T>, pattern: &mut Vec<u32>) {
        let _ = (seen, pattern);
    }
}

/// A layer in every scalar.
pub(crate) trait AnyLayer:
    Layer<f32> + Layer<f64> + Layer<Rounded> + Layer<Dual> + Describe + Any + Send + Sync
{
}

impl<L> AnyLayer for L where
    L: Layer<f32> + Layer<f64> + Layer<Rounded> + Layer<Dual> + Describe + Any + Send + Sync
{
}

impl dyn AnyLayer {
    /// The layer itself, where it is of that kind.
    pub fn downcast<L: Any>(&self) -> Option<&L> {
        let any: &dyn Any = self;
        any.downcast_ref()
    }

    /// The same where it may be wrapped: for what shows a layer's numbers, not for what computes with them.
    pub fn shows<L: Any>(&self) -> Option<&L> {
        self.downcast()
            .or_else(|| self.inner().and_then(|inner| inner.downcast()))
    }
}

/// Uniform in ±bound: PyTorch's default for weights and biases with bound 1/√fan_in.
pub(crate) fn uniform(len: usize, bound: f64, stream: &mut Stream) -> Vec<f32> {
    (0..len)
        .map(|_| stream.range(-bound, bound) as f32)
        .collect()
}

/// The same values of a matrix (out, in) whose weights are drawn in the order `[in][out]`, in
/// PyTorch's order.
pub(crate) fn transposed(values: &[f32], inputs: usize, outputs: usize) -> Vec<f32> {
    let at = |k: usize| values[k % inputs * outputs + k / inputs];
    (0..inputs * outputs).map(at).collect()
}

/// Checks a buffer's shape.
pub(crate) fn check_shape(buffer: &Buffer, shape: &[usize]) -> Result<()> {
    if buffer.shape == shape && buffer.values.len() == shape.iter().product::<usize>() {
        return Ok(());
    }
    Err(crate::Error::invalid(
        format!("buffer {}", buffer.name),
        format!("shape {:?}", buffer.shape),
        format!("{shape:?}"),
    ))
}

/// The layer kinds, a line for each: the enum that files are read into, and what is listed of all.
macro_rules! layers {
    ($($(#[$doc:meta])* $variant:ident($name:literal) = $spec:path;)*) => {
        /// One layer. Kinds, options and defaults are those of the reference bundles.
        #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
        #[serde(tag = "kind")]
        pub enum LayerSpec {
            $($(#[$doc])* #[serde(rename = $name)] $variant($spec),)*
        }

        impl LayerSpec {
            /// The name of the kind, as in files.
            pub fn kind(&self) -> &'static str {
                match self {
                    $(LayerSpec::$variant(_) => $name,)*
                }
            }

            /// What follows from its options.
            pub(crate) fn spec(&self) -> &dyn Spec {
                match self {
                    $(LayerSpec::$variant(spec) => spec,)*
                }
            }
        }

        /// The networks that the kinds are verified on.
        pub(crate) fn small_models() -> Vec<spec::Small> {
            [$(<$spec as Spec>::small()),*].concat()
        }

        /// The graph networks that the kinds are verified on.
        pub(crate) fn small_graphs() -> Vec<spec::SmallGraph> {
            [$(<$spec as Spec>::small_graphs()),*].concat()
        }

        /// The models whose sizes are drawn around the kinds' cuts.
        pub(crate) fn sizes() -> Vec<crate::verify::sizes::Stretch> {
            [$(<$spec as Spec>::sizes()),*].into_iter().flatten().collect()
        }
    };
}

layers! {
    /// y = W·x + b.
    Dense("dense") = dense::DenseSpec;
    /// Kolmogorov–Arnold: a spline (and a base function) on every edge.
    Kan("kan") = kan::KanSpec;
    /// Cross-correlation over height and width.
    Conv2d("conv2d") = conv2d::Conv2dSpec;
    /// The adjoint of a convolution.
    ConvTranspose2d("conv_transpose2d") = conv_transpose2d::ConvTranspose2dSpec;
    /// The largest of every window.
    MaxPool2d("max_pool2d") = pool::MaxPool2dSpec;
    /// The mean of every window.
    AvgPool2d("avg_pool2d") = pool::AvgPool2dSpec;
    /// Every pixel repeated `scale` times in height and width.
    Upsample("upsample") = upsample::UpsampleSpec;
    /// Over the last axis.
    LayerNorm("layer_norm") = norm::LayerNormSpec;
    /// Over groups of channels.
    GroupNorm("group_norm") = norm::GroupNormSpec;
    /// Over batch, height and width.
    BatchNorm2d("batch_norm2d") = norm::BatchNorm2dSpec;
    /// Appends the channels of an earlier layer's output (−1: the network's input).
    Concat("concat") = concat::ConcatSpec;
    /// Adds an earlier layer's output (−1: the network's input).
    Add("add") = add::AddSpec;
    /// All axes of a sample into one.
    Flatten("flatten") = flatten::FlattenSpec;
    /// Each element dropped with probability `p` in training, the others scaled by 1/(1−p).
    Dropout("dropout") = dropout::DropoutSpec;
    /// (x − mean) / std, fixed statistics kept in the buffers `N.mean` and `N.std`.
    Normalize("normalize") = normalize::NormalizeSpec;
    /// max(x, 0).
    Relu("relu") = activation::ReluSpec;
    /// x where positive, else slope·x.
    LeakyRelu("leaky_relu") = activation::LeakyReluSpec;
    /// x where positive, else α·(eˣ − 1).
    Elu("elu") = activation::EluSpec;
    /// x·σ(x).
    Silu("silu") = activation::SiluSpec;
    /// x·Φ(x), exact.
    Gelu("gelu") = activation::GeluSpec;
    /// Hyperbolic tangent.
    Tanh("tanh") = activation::TanhSpec;
    /// Logistic function.
    Sigmoid("sigmoid") = activation::SigmoidSpec;
    /// A row per node from its id; the first layer of a graph network only.
    Embedding("embedding") = embedding::EmbeddingSpec;
    /// Kipf and Welling's convolution.
    Gcn("gcn") = graph_conv::GcnSpec;
    /// GraphSAGE with the mean of the in-neighbours.
    Sage("sage") = graph_conv::SageSpec;
    /// W · mean over self and in-neighbours + b.
    MessagePassing("message_passing") = graph_conv::MessagePassingSpec;
    /// Graph isomorphism network.
    Gin("gin") = graph_conv::GinSpec;
    /// GIN with edge features.
    Gine("gine") = gine::GineSpec;
    /// Graph attention.
    Gat("gat") = gat::GatSpec;
    /// Graph attention, second form.
    GatV2("gatv2") = gatv2::GatV2Spec;
    /// Attention among all nodes of a graph.
    SelfAttention("self_attention") = self_attention::SelfAttentionSpec;
    /// The mean of a graph's nodes.
    MeanPool("mean_pool") = graph_pool::MeanPoolSpec;
    /// The sum of a graph's nodes.
    SumPool("sum_pool") = graph_pool::SumPoolSpec;
    /// The largest of a graph's nodes, feature by feature.
    MaxPool("max_pool") = graph_pool::MaxPoolSpec;
    /// The dot product of the two nodes of every pair of the batch.
    PairDot("pair_dot") = pair_dot::PairDotSpec;
    /// A user's own, from Rust.
    Own("own") = own::OwnSpec;
}
