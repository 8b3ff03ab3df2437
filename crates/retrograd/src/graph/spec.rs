//! What a graph network is made of, as written in files.

use serde::{Deserialize, Serialize};

use crate::layer::LayerSpec;

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
    pub layers: Vec<LayerSpec>,
}

fn graph_family() -> String {
    "graph".into()
}

impl GraphSpec {
    /// From the number of features per node and layers.
    pub fn new(features: usize, layers: Vec<LayerSpec>) -> Self {
        GraphSpec {
            family: graph_family(),
            features: Some(features),
            edge_weight: false,
            edge_features: 0,
            layers,
        }
    }
}
