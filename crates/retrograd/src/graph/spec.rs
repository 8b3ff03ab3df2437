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

/// One layer. Kinds, options and defaults are those of the reference bundles.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
#[allow(
    missing_docs,
    reason = "options are described at the layer's own module"
)]
pub enum GraphLayerSpec {
    /// A row per node from its id; the first layer only.
    Embedding {
        vocabulary: usize,
        out: usize,
    },
    /// Kipf and Welling's convolution.
    Gcn {
        out: usize,
    },
    /// GraphSAGE with the mean of the in-neighbours.
    Sage {
        out: usize,
    },
    /// Graph isomorphism network.
    Gin {
        out: usize,
    },
    /// GIN with edge features.
    Gine {
        out: usize,
    },
    /// Graph attention; `dropout` drops attention weights in training.
    Gat {
        out: usize,
        #[serde(default = "one")]
        heads: usize,
        #[serde(default)]
        dropout: f64,
    },
    /// Graph attention, second form.
    #[serde(rename = "gatv2")]
    GatV2 {
        out: usize,
        #[serde(default = "one")]
        heads: usize,
        #[serde(default)]
        dropout: f64,
    },
    /// W · mean over self and in-neighbours + b.
    MessagePassing {
        out: usize,
    },
    /// Attention among all nodes of a graph.
    SelfAttention {
        #[serde(default = "one")]
        heads: usize,
    },
    /// Layer norm of every row.
    LayerNorm,
    /// The mean of a graph's nodes.
    MeanPool,
    /// The sum of a graph's nodes.
    SumPool,
    /// The largest of a graph's nodes, feature by feature.
    MaxPool,
    /// y = W·x + b.
    Dense {
        out: usize,
        #[serde(default = "yes")]
        bias: bool,
    },
    /// Adds the output of an earlier layer.
    Add {
        with: usize,
    },
    /// The dot product of the two nodes of every pair of the batch.
    PairDot,
    /// Zeroes elements at random in training; of sparse features the non-zeros alone.
    Dropout {
        p: f64,
    },
    Relu,
    LeakyRelu {
        #[serde(default = "leaky_slope")]
        slope: f64,
    },
    Silu,
    Gelu,
    Tanh,
    Sigmoid,
}
