//! What a graph network is made of, as written in files.

use serde::{Deserialize, Serialize};

/// A graph network: what the nodes and edges bring, and the layers, in order.
///
/// ```
/// let spec: retrograd::graph::GraphSpec = toml::from_str(r#"
///     features = 12
///     layers = [
///         { kind = "gcn", out = 16 },
///         { kind = "relu" },
///         { kind = "dropout", p = 0.5 },
///         { kind = "gcn", out = 4 },
///     ]
/// "#).unwrap();
/// let network = retrograd::graph::GraphNetwork::new(&spec).unwrap();
/// assert_eq!(network.output_width(), 4);
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GraphSpec {
    /// Which family of models this is; `graph` where it is written.
    #[serde(default = "graph_family", skip_serializing)]
    pub family: String,
    /// Features per node; absent where the first layer is an embedding.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub features: Option<usize>,
    /// Edges bring a weight each, which `gcn` uses.
    #[serde(default)]
    pub edge_weight: bool,
    /// Features per edge, which `gine` uses.
    #[serde(default)]
    pub edge_features: usize,
    /// The layers.
    pub layers: Vec<GraphLayerSpec>,
}

fn graph_family() -> String {
    "graph".into()
}

impl GraphSpec {
    /// From the number of features per node and layers.
    pub fn new(features: usize, layers: Vec<GraphLayerSpec>) -> Self {
        GraphSpec {
            family: graph_family(),
            features: Some(features),
            edge_weight: false,
            edge_features: 0,
            layers,
        }
    }
}

fn one() -> usize {
    1
}
fn yes() -> bool {
    true
}
fn leaky_slope() -> f64 {
    0.01
}
fn elu_alpha() -> f64 {
    1.0
}

/// One layer. Kinds, options and defaults are those of the reference bundles.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum GraphLayerSpec {
    /// A row per node from its id; the first layer only.
    Embedding {
        /// How many ids there are.
        vocabulary: usize,
        /// Features of the output.
        out: usize,
    },
    /// Kipf and Welling's convolution.
    Gcn {
        /// Features of the output.
        out: usize,
    },
    /// GraphSAGE with the mean of the in-neighbours.
    Sage {
        /// Features of the output.
        out: usize,
    },
    /// Graph isomorphism network.
    Gin {
        /// Features of the output.
        out: usize,
    },
    /// GIN with edge features.
    Gine {
        /// Features of the output.
        out: usize,
    },
    /// Graph attention; `dropout` drops attention weights in training.
    Gat {
        /// Features of a head.
        out: usize,
        /// Heads.
        #[serde(default = "one")]
        heads: usize,
        /// The probability of an attention weight to be dropped.
        #[serde(default)]
        dropout: f64,
    },
    /// Graph attention, second form.
    #[serde(rename = "gatv2")]
    GatV2 {
        /// Features of a head.
        out: usize,
        /// Heads.
        #[serde(default = "one")]
        heads: usize,
        /// The probability of an attention weight to be dropped.
        #[serde(default)]
        dropout: f64,
    },
    /// W · mean over self and in-neighbours + b.
    MessagePassing {
        /// Features of the output.
        out: usize,
    },
    /// Attention among all nodes of a graph.
    SelfAttention {
        /// Heads.
        #[serde(default = "one")]
        heads: usize,
    },
    /// Layer norm of every row.
    LayerNorm {},
    /// The mean of a graph's nodes.
    MeanPool {},
    /// The sum of a graph's nodes.
    SumPool {},
    /// The largest of a graph's nodes, feature by feature.
    MaxPool {},
    /// y = W·x + b.
    Dense {
        /// Features of the output.
        out: usize,
        /// Whether a bias is added.
        #[serde(default = "yes")]
        bias: bool,
    },
    /// Adds the output of an earlier layer.
    Add {
        /// The earlier layer, counted from 0.
        with: usize,
    },
    /// The dot product of the two nodes of every pair of the batch.
    PairDot {},
    /// Zeroes elements at random in training; of sparse features the non-zeros alone.
    Dropout {
        /// The probability of an element to be dropped.
        p: f64,
    },
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
