//! What a network is made of, as written in files.

use crate::layer::add::AddSpec;
use crate::layer::conv2d::Conv2dSpec;
use crate::layer::dense::DenseSpec;
use crate::layer::dropout::DropoutSpec;
use crate::layer::embedding::EmbeddingSpec;
use crate::layer::flatten::FlattenSpec;
use crate::layer::gat::GatSpec;
use crate::layer::gatv2::GatV2Spec;
use crate::layer::gine::GineSpec;
use crate::layer::kan::KanSpec;
use crate::layer::normalize::NormalizeSpec;
use crate::layer::pair_dot::PairDotSpec;
use crate::layer::self_attention::SelfAttentionSpec;
use crate::layer::{activation, graph_conv, graph_pool, norm};
use serde::{Deserialize, Serialize};

pub use crate::layer::LayerSpec;

/// A network: the shape of one sample and the layers, in order.
///
/// ```
/// let spec: retrograd::network::NetworkSpec = toml::from_str(r#"
///     input = [4]
///     layers = [
///         { kind = "dense", out = 8 },
///         { kind = "gelu" },
///         { kind = "kan", out = 3, grid = 5, degree = 3, range = [-2.0, 2.0] },
///     ]
/// "#).unwrap();
/// let network = retrograd::network::Network::new(&spec).unwrap();
/// assert_eq!(network.output_shape(), [3]);
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NetworkSpec {
    /// Which family of models this is; `network` where it is written.
    #[serde(default = "network_family", skip_serializing)]
    pub family: String,
    /// The shape of one sample: `[features]`, or `[channels, height, width]`.
    pub input: Vec<usize>,
    /// The layers.
    pub layers: Vec<LayerSpec>,
    /// A penalty on the weights of KAN layers that asks for few, clear edges.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sparsity: Option<Sparsity>,
}

/// The sparsity penalty of KAN layers: `l1` times the sum of the edges' sizes, plus `entropy` times
/// the entropy of their shares, per layer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sparsity {
    /// The factor of the sum of sizes.
    #[serde(default)]
    pub l1: f64,
    /// The factor of the entropy.
    #[serde(default)]
    pub entropy: f64,
}

fn network_family() -> String {
    "network".into()
}

impl NetworkSpec {
    /// From a sample's shape and layers.
    pub fn new(input: &[usize], layers: Vec<LayerSpec>) -> Self {
        NetworkSpec {
            family: network_family(),
            input: input.to_vec(),
            layers,
            sparsity: None,
        }
    }
}

/// What a KAN layer adds to its splines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Base {
    /// `base_weight · silu(x)`.
    #[default]
    Silu,
    /// Nothing.
    None,
}

/// What a KAN layer does with inputs outside its grid.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outside {
    /// The splines fade to 0 within `degree` intervals, as the knots say.
    #[default]
    Decay,
    /// The input is clamped to the range first, for splines and base alike; no gradient outside.
    Clamp,
}

/// What a convolution sees beyond the border.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PaddingMode {
    /// Zeros.
    #[default]
    Zeros,
    /// The image mirrored, without repeating the border itself.
    Reflect,
}

impl LayerSpec {
    /// A dense layer with bias.
    pub fn dense(out: usize) -> Self {
        LayerSpec::Dense(DenseSpec { out, bias: true })
    }

    /// A KAN layer with SiLU base and no bias.
    pub fn kan(out: usize, grid: usize, degree: usize, range: [f64; 2]) -> Self {
        LayerSpec::Kan(KanSpec {
            out,
            grid,
            degree,
            range,
            base: Base::Silu,
            bias: false,
            outside: Outside::Decay,
            free_knots: false,
        })
    }

    /// A convolution with stride 1, zeros beyond the border, and a bias.
    pub fn conv2d(out: usize, kernel: usize, padding: usize) -> Self {
        LayerSpec::Conv2d(Conv2dSpec {
            out,
            kernel,
            stride: 1,
            padding,
            padding_mode: PaddingMode::Zeros,
            dilation: 1,
            groups: 1,
            bias: true,
        })
    }

    /// max(x, 0).
    pub fn relu() -> Self {
        LayerSpec::Relu(activation::ReluSpec {})
    }

    /// x·σ(x).
    pub fn silu() -> Self {
        LayerSpec::Silu(activation::SiluSpec {})
    }

    /// x·Φ(x), exact.
    pub fn gelu() -> Self {
        LayerSpec::Gelu(activation::GeluSpec {})
    }

    /// Hyperbolic tangent.
    pub fn tanh() -> Self {
        LayerSpec::Tanh(activation::TanhSpec {})
    }

    /// Logistic function.
    pub fn sigmoid() -> Self {
        LayerSpec::Sigmoid(activation::SigmoidSpec {})
    }

    /// All axes of a sample into one.
    pub fn flatten() -> Self {
        LayerSpec::Flatten(FlattenSpec {})
    }

    /// Over the last axis.
    pub fn layer_norm() -> Self {
        LayerSpec::LayerNorm(norm::LayerNormSpec {})
    }

    /// Over batch, height and width.
    pub fn batch_norm2d() -> Self {
        LayerSpec::BatchNorm2d(norm::BatchNorm2dSpec {})
    }

    /// Fixed statistics.
    pub fn normalize() -> Self {
        LayerSpec::Normalize(NormalizeSpec {})
    }

    /// Each element dropped with probability `p` in training.
    pub fn dropout(p: f64) -> Self {
        LayerSpec::Dropout(DropoutSpec { p })
    }

    /// Adds an earlier layer's output (−1: the input).
    pub fn add(with: i64) -> Self {
        LayerSpec::Add(AddSpec { with })
    }
}

/// Layers of graph networks.
impl LayerSpec {
    /// A row per node from its id; the first layer only.
    pub fn embedding(vocabulary: usize, out: usize) -> Self {
        LayerSpec::Embedding(EmbeddingSpec { vocabulary, out })
    }

    /// Kipf and Welling's convolution.
    pub fn gcn(out: usize) -> Self {
        LayerSpec::Gcn(graph_conv::GcnSpec { out })
    }

    /// GraphSAGE with the mean of the in-neighbours.
    pub fn sage(out: usize) -> Self {
        LayerSpec::Sage(graph_conv::SageSpec { out })
    }

    /// W · mean over self and in-neighbours + b.
    pub fn message_passing(out: usize) -> Self {
        LayerSpec::MessagePassing(graph_conv::MessagePassingSpec { out })
    }

    /// Graph isomorphism network.
    pub fn gin(out: usize) -> Self {
        LayerSpec::Gin(graph_conv::GinSpec { out })
    }

    /// GIN with edge features.
    pub fn gine(out: usize) -> Self {
        LayerSpec::Gine(GineSpec { out })
    }

    /// Graph attention with that many features a head, and attention weights dropped with
    /// probability `dropout`.
    pub fn gat(out: usize, heads: usize, dropout: f64) -> Self {
        LayerSpec::Gat(GatSpec {
            out,
            heads,
            dropout,
        })
    }

    /// Graph attention, second form.
    pub fn gatv2(out: usize, heads: usize, dropout: f64) -> Self {
        LayerSpec::GatV2(GatV2Spec {
            out,
            heads,
            dropout,
        })
    }

    /// Attention among all nodes of a graph.
    pub fn self_attention(heads: usize) -> Self {
        LayerSpec::SelfAttention(SelfAttentionSpec { heads })
    }

    /// The mean of a graph's nodes.
    pub fn mean_pool() -> Self {
        LayerSpec::MeanPool(graph_pool::MeanPoolSpec {})
    }

    /// The sum of a graph's nodes.
    pub fn sum_pool() -> Self {
        LayerSpec::SumPool(graph_pool::SumPoolSpec {})
    }

    /// The largest of a graph's nodes, feature by feature.
    pub fn max_pool() -> Self {
        LayerSpec::MaxPool(graph_pool::MaxPoolSpec {})
    }

    /// The dot product of the two nodes of every pair of the batch.
    pub fn pair_dot() -> Self {
        LayerSpec::PairDot(PairDotSpec {})
    }
}
