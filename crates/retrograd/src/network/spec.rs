//! What a network is made of, as written in files.

use serde::{Deserialize, Serialize};

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

/// One layer. Kinds, options and defaults are those of the reference bundles.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum LayerSpec {
    /// y = W·x + b.
    Dense {
        /// Outputs.
        out: usize,
        /// Whether a bias is added.
        #[serde(default = "yes")]
        bias: bool,
    },
    /// Kolmogorov–Arnold: a spline (and a base function) on every edge.
    Kan {
        /// Outputs.
        out: usize,
        /// Grid intervals, 1 to 64.
        grid: usize,
        /// Spline degree, 1 to 7.
        degree: usize,
        /// The range that the grid covers.
        #[serde(default = "unit_range")]
        range: [f64; 2],
        /// What is added to the splines.
        #[serde(default)]
        base: Base,
        /// Whether a bias is added.
        #[serde(default)]
        bias: bool,
        /// What happens to inputs outside the range.
        #[serde(default)]
        outside: Outside,
        /// Each input has knots of its own, kept in the buffer `N.knots`.
        #[serde(default)]
        free_knots: bool,
    },
    /// Cross-correlation over height and width.
    #[serde(rename = "conv2d")]
    Conv2d {
        /// Channels of the output.
        out: usize,
        /// The side of the kernel.
        kernel: usize,
        /// Pixels between positions of the kernel.
        #[serde(default = "one")]
        stride: usize,
        /// Pixels added on every side.
        #[serde(default)]
        padding: usize,
        /// What those pixels are.
        #[serde(default)]
        padding_mode: PaddingMode,
        /// Pixels between elements of the kernel.
        #[serde(default = "one")]
        dilation: usize,
        /// Groups of channels that don't see each other.
        #[serde(default = "one")]
        groups: usize,
        /// Whether a bias is added.
        #[serde(default = "yes")]
        bias: bool,
    },
    /// The adjoint of a convolution.
    #[serde(rename = "conv_transpose2d")]
    ConvTranspose2d {
        /// Channels of the output.
        out: usize,
        /// The side of the kernel.
        kernel: usize,
        /// Pixels of the output between pixels of the input.
        #[serde(default = "one")]
        stride: usize,
        /// Pixels taken away on every side of the output.
        #[serde(default)]
        padding: usize,
        /// Whether a bias is added.
        #[serde(default = "yes")]
        bias: bool,
    },
    /// The largest of every window.
    #[serde(rename = "max_pool2d")]
    MaxPool2d {
        /// The side of a window.
        kernel: usize,
        /// Pixels between windows; the kernel where it isn't written.
        #[serde(default)]
        stride: Option<usize>,
    },
    /// The mean of every window.
    #[serde(rename = "avg_pool2d")]
    AvgPool2d {
        /// The side of a window.
        kernel: usize,
        /// Pixels between windows; the kernel where it isn't written.
        #[serde(default)]
        stride: Option<usize>,
    },
    /// Every pixel repeated `scale` times in height and width.
    Upsample {
        /// The factor.
        scale: usize,
    },
    /// Over the last axis.
    LayerNorm {},
    /// Over groups of channels.
    GroupNorm {
        /// Groups of channels.
        groups: usize,
    },
    /// Over batch, height and width.
    #[serde(rename = "batch_norm2d")]
    BatchNorm2d {},
    /// Appends the channels of an earlier layer's output (−1: the network's input).
    Concat {
        /// The earlier layer, counted from 0; −1 for the network's input.
        with: i64,
    },
    /// Adds an earlier layer's output (−1: the network's input).
    Add {
        /// The earlier layer, counted from 0; −1 for the network's input.
        with: i64,
    },
    /// All axes of a sample into one.
    Flatten {},
    /// Each element dropped with probability `p` in training, the others scaled by 1/(1−p).
    Dropout {
        /// The probability of an element to be dropped.
        p: f64,
    },
    /// (x − mean) / std, fixed statistics kept in the buffers `N.mean` and `N.std`.
    Normalize {},
    /// max(x, 0).
    Relu {},
    /// x where positive, else slope·x.
    LeakyRelu {
        /// The slope below 0.
        #[serde(default = "leaky_slope")]
        slope: f64,
    },
    /// x where positive, else α·(eˣ − 1).
    Elu {
        /// Minus the limit to the left; PyTorch's default is 1.
        #[serde(default = "elu_alpha")]
        alpha: f64,
    },
    /// x·σ(x).
    Silu {},
    /// x·Φ(x), exact.
    Gelu {},
    /// Hyperbolic tangent.
    Tanh {},
    /// Logistic function.
    Sigmoid {},
}

fn yes() -> bool {
    true
}
fn one() -> usize {
    1
}
fn unit_range() -> [f64; 2] {
    [-1.0, 1.0]
}
fn leaky_slope() -> f64 {
    0.01
}
fn elu_alpha() -> f64 {
    1.0
}

impl LayerSpec {
    /// A dense layer with bias.
    pub fn dense(out: usize) -> Self {
        LayerSpec::Dense { out, bias: true }
    }

    /// A KAN layer with SiLU base and no bias.
    pub fn kan(out: usize, grid: usize, degree: usize, range: [f64; 2]) -> Self {
        LayerSpec::Kan {
            out,
            grid,
            degree,
            range,
            base: Base::Silu,
            bias: false,
            outside: Outside::Decay,
            free_knots: false,
        }
    }

    /// A convolution with stride 1, zeros beyond the border, and a bias.
    pub fn conv2d(out: usize, kernel: usize, padding: usize) -> Self {
        LayerSpec::Conv2d {
            out,
            kernel,
            stride: 1,
            padding,
            padding_mode: PaddingMode::Zeros,
            dilation: 1,
            groups: 1,
            bias: true,
        }
    }

    /// The name of the kind, as in files.
    pub fn kind(&self) -> &'static str {
        match self {
            LayerSpec::Dense { .. } => "dense",
            LayerSpec::Kan { .. } => "kan",
            LayerSpec::Conv2d { .. } => "conv2d",
            LayerSpec::ConvTranspose2d { .. } => "conv_transpose2d",
            LayerSpec::MaxPool2d { .. } => "max_pool2d",
            LayerSpec::AvgPool2d { .. } => "avg_pool2d",
            LayerSpec::Upsample { .. } => "upsample",
            LayerSpec::LayerNorm {} => "layer_norm",
            LayerSpec::GroupNorm { .. } => "group_norm",
            LayerSpec::BatchNorm2d {} => "batch_norm2d",
            LayerSpec::Concat { .. } => "concat",
            LayerSpec::Add { .. } => "add",
            LayerSpec::Flatten {} => "flatten",
            LayerSpec::Dropout { .. } => "dropout",
            LayerSpec::Normalize {} => "normalize",
            LayerSpec::Relu {} => "relu",
            LayerSpec::LeakyRelu { .. } => "leaky_relu",
            LayerSpec::Elu { .. } => "elu",
            LayerSpec::Silu {} => "silu",
            LayerSpec::Gelu {} => "gelu",
            LayerSpec::Tanh {} => "tanh",
            LayerSpec::Sigmoid {} => "sigmoid",
        }
    }
}
