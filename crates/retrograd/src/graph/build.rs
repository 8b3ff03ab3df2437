//! From a spec to layers, with every width and option checked, and the initial weights.
//!
//! Initial weights are PyTorch's and PyG's: Glorot for `gcn`, `gat`, `gatv2` and attention vectors,
//! uniform ±1/√in for other maps and their biases, zeros for the biases of `gcn` and `gat`, the
//! standard normal for embeddings, ε = 0.

use super::layer::{
    Convolution, Dropout, Gat, GatV2, Gine, Layer, LayerNorm, Pool, PoolKind, Propagation,
    SelfAttention,
};
use super::network::GraphNetwork;
use super::ops::Linear;
use super::spec::{GraphLayerSpec, GraphSpec};
use crate::network::Activation;
use crate::rng::Stream;
use crate::{Error, Layout, Result};

/// What a layer puts out a row for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RowsOf {
    Nodes,
    Graphs,
    Pairs,
}

impl RowsOf {
    fn name(self) -> &'static str {
        match self {
            RowsOf::Nodes => "node",
            RowsOf::Graphs => "graph",
            RowsOf::Pairs => "pair",
        }
    }
}

/// How a tensor's first values are drawn.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Init {
    Zeros,
    Ones,
    Normal,
    /// Uniform within ± this.
    Uniform(f64),
}

impl Init {
    pub fn fill(self, stream: &mut Stream, out: &mut [f32]) {
        for x in out {
            *x = match self {
                Init::Zeros => 0.0,
                Init::Ones => 1.0,
                Init::Normal => stream.normal() as f32,
                Init::Uniform(limit) => stream.range(-limit, limit) as f32,
            };
        }
    }

    fn fan_in(inputs: usize) -> Self {
        Init::Uniform(1.0 / (inputs.max(1) as f64).sqrt())
    }

    fn glorot(a: usize, b: usize) -> Self {
        Init::Uniform((6.0 / (a + b).max(1) as f64).sqrt())
    }
}

impl GraphNetwork {
    /// Builds and checks a network.
    pub fn new(spec: &GraphSpec) -> Result<Self> {
        if spec.family != "graph" {
            return Err(Error::invalid("family", &spec.family, "graph"));
        }
        if spec.layers.is_empty() {
            return Err(Error::invalid("layers", "none", "at least one layer"));
        }
        let embeds = matches!(spec.layers[0], GraphLayerSpec::Embedding { .. });
        match (spec.features, embeds) {
            (Some(0), _) => return Err(Error::invalid("features", 0, "at least 1")),
            (None, false) => {
                return Err(Error::invalid(
                    "features",
                    "nothing",
                    "the number of features per node, or an embedding as the first layer",
                ));
            }
            (Some(n), true) => {
                return Err(Error::invalid(
                    "features",
                    n,
                    "no features where the first layer is an embedding",
                ));
            }
            _ => {}
        }
        let mut network = GraphNetwork {
            spec: spec.clone(),
            layers: Vec::new(),
            widths: Vec::new(),
            rows_of: Vec::new(),
            tensors_of: Vec::new(),
            layout: Layout::new(),
            init: Vec::new(),
        };
        let mut width = spec.features.unwrap_or(0);
        let mut rows_of = RowsOf::Nodes;
        for (index, layer) in spec.layers.iter().enumerate() {
            let first_tensor = network.layout.tensors().len();
            let (layer, next_width, next_rows) = network.build(index, layer, width, rows_of)?;
            (width, rows_of) = (next_width, next_rows);
            let tensors = first_tensor..network.layout.tensors().len();
            network.tensors_of.push(tensors);
            network.layers.push(layer);
            network.widths.push(width);
            network.rows_of.push(rows_of);
        }
        let uses = |f: fn(&Layer) -> bool| network.layers.iter().any(f);
        let is_gcn = |layer: &Layer| matches!(layer, Layer::Convolution(c) if c.propagation == Propagation::Normalised);
        if spec.edge_weight && !uses(is_gcn) {
            return Err(Error::invalid(
                "edge_weight",
                "true",
                "a gcn layer, which uses the weights",
            ));
        }
        debug_assert_eq!(network.init.len(), network.layout.tensors().len());
        Ok(network)
    }

    fn build(
        &mut self,
        index: usize,
        spec: &GraphLayerSpec,
        width: usize,
        rows_of: RowsOf,
    ) -> Result<(Layer, usize, RowsOf)> {
        let kind = kind_of(spec);
        let at = |option: &str| match option {
            "" => format!("layers[{index}] ({kind})"),
            option => format!("layers[{index}].{option} ({kind})"),
        };
        let positive = |option: &str, n: usize| match n {
            0 => Err(Error::invalid(at(option), 0, "at least 1")),
            n => Ok(n),
        };
        let probability = |option: &str, p: f64| {
            if (0.0..1.0).contains(&p) {
                Ok(p)
            } else {
                Err(Error::invalid(at(option), p, "0 ≤ p < 1"))
            }
        };
        let finite = |option: &str, x: f64| {
            if x.is_finite() {
                Ok(())
            } else {
                Err(Error::invalid(at(option), x, "a finite number"))
            }
        };
        let on_nodes = || {
            if rows_of == RowsOf::Nodes {
                Ok(())
            } else {
                Err(Error::invalid(
                    format!("{}'s input", at("")),
                    format!("one row per {}", rows_of.name()),
                    "one row per node",
                ))
            }
        };
        let layout = &mut self.layout;
        let init = &mut self.init;
        let name = |part: &str| format!("{index}.{part}");
        let nodes = RowsOf::Nodes;
        let plain = |activation: Activation| Ok((Layer::Activation(activation), width, rows_of));
        match *spec {
            GraphLayerSpec::Embedding { vocabulary, out } => {
                if index > 0 {
                    return Err(Error::invalid(at(""), "a later layer", "the first layer"));
                }
                positive("vocabulary", vocabulary)?;
                positive("out", out)?;
                let tensor = layout.tensors().len();
                layout.push(name("weight"), &[vocabulary, out]);
                init.push(Init::Normal);
                Ok((Layer::Embedding { tensor, out }, out, nodes))
            }
            GraphLayerSpec::Gcn { out } => {
                on_nodes()?;
                positive("out", out)?;
                let (weight, bias) = (name("lin.weight"), name("bias"));
                let linear = Linear::named(layout, &weight, Some(&bias), width, out);
                init.extend([Init::glorot(width, out), Init::Zeros]);
                let convolution = Convolution::new(Propagation::Normalised, linear);
                Ok((Layer::Convolution(convolution), out, nodes))
            }
            GraphLayerSpec::Sage { out } => {
                on_nodes()?;
                positive("out", out)?;
                let linear = Linear::new(layout, &name("lin_l"), width, out, true);
                let root = Linear::new(layout, &name("lin_r"), width, out, false);
                init.extend([Init::fan_in(width); 3]);
                let convolution = Convolution {
                    root: Some(root),
                    ..Convolution::new(Propagation::MeanOfNeighbours, linear)
                };
                Ok((Layer::Convolution(convolution), out, nodes))
            }
            GraphLayerSpec::MessagePassing { out } => {
                on_nodes()?;
                positive("out", out)?;
                let prefix = index.to_string();
                let linear = Linear::new(layout, &prefix, width, out, true);
                init.extend([Init::fan_in(width); 2]);
                let convolution = Convolution::new(Propagation::MeanWithSelf, linear);
                Ok((Layer::Convolution(convolution), out, nodes))
            }
            GraphLayerSpec::Gin { out } => {
                on_nodes()?;
                positive("out", out)?;
                let eps = layout.tensors().len();
                let eps_at = layout.push(name("eps"), &[1]).start;
                let linear = Linear::new(layout, &name("nn.0"), width, out, true);
                let second = Linear::new(layout, &name("nn.2"), out, out, true);
                init.push(Init::Zeros);
                init.extend([Init::fan_in(width); 2]);
                init.extend([Init::fan_in(out); 2]);
                let convolution = Convolution {
                    propagation: Propagation::Sum { eps },
                    linear,
                    root: None,
                    second: Some(second),
                    eps_at,
                };
                Ok((Layer::Convolution(convolution), out, nodes))
            }
            GraphLayerSpec::Gine { out } => {
                on_nodes()?;
                positive("out", out)?;
                let edge_features = self.spec.edge_features;
                if edge_features == 0 {
                    return Err(Error::invalid(
                        "edge_features",
                        0,
                        format!("at least 1, which {} uses", at("")),
                    ));
                }
                let gine = Gine::new(layout, &index.to_string(), [width, out], edge_features);
                init.push(Init::Zeros);
                init.extend([Init::fan_in(width); 2]);
                init.extend([Init::fan_in(out); 2]);
                init.extend([Init::fan_in(edge_features); 2]);
                Ok((Layer::Gine(gine), out, nodes))
            }
            GraphLayerSpec::Gat {
                out,
                heads,
                dropout,
            } => {
                on_nodes()?;
                positive("out", out)?;
                positive("heads", heads)?;
                let sizes = [width, out, heads];
                let p = probability("dropout", dropout)?;
                let gat = Gat::new(layout, &index.to_string(), sizes, p);
                init.push(Init::glorot(width, heads * out));
                init.extend([Init::glorot(heads, out); 2]);
                init.push(Init::Zeros);
                Ok((Layer::Gat(gat), heads * out, nodes))
            }
            GraphLayerSpec::GatV2 {
                out,
                heads,
                dropout,
            } => {
                on_nodes()?;
                positive("out", out)?;
                positive("heads", heads)?;
                let sizes = [width, out, heads];
                let p = probability("dropout", dropout)?;
                let gat = GatV2::new(layout, &index.to_string(), sizes, p);
                for _ in 0..2 {
                    init.extend([Init::glorot(width, heads * out), Init::fan_in(width)]);
                }
                init.extend([Init::glorot(heads, out), Init::Zeros]);
                Ok((Layer::GatV2(gat), heads * out, nodes))
            }
            GraphLayerSpec::SelfAttention { heads } => {
                on_nodes()?;
                positive("heads", heads)?;
                if !width.is_multiple_of(heads) {
                    return Err(Error::invalid(
                        at("heads"),
                        heads,
                        format!("a divisor of the width {width}"),
                    ));
                }
                let attention = SelfAttention::new(layout, &index.to_string(), width, heads);
                // PyTorch's MultiheadAttention: Glorot over the stacked (3·width, width) weight.
                init.extend([Init::glorot(width, 3 * width), Init::Zeros]);
                init.extend([Init::fan_in(width), Init::Zeros]);
                Ok((Layer::SelfAttention(attention), width, nodes))
            }
            GraphLayerSpec::LayerNorm {} => {
                let norm = LayerNorm::new(layout, &index.to_string(), width);
                init.extend([Init::Ones, Init::Zeros]);
                Ok((Layer::LayerNorm(norm), width, rows_of))
            }
            GraphLayerSpec::MeanPool {}
            | GraphLayerSpec::SumPool {}
            | GraphLayerSpec::MaxPool {} => {
                on_nodes()?;
                let kind = match spec {
                    GraphLayerSpec::MeanPool {} => PoolKind::Mean,
                    GraphLayerSpec::SumPool {} => PoolKind::Sum,
                    _ => PoolKind::Max,
                };
                Ok((Layer::Pool(Pool { kind, width }), width, RowsOf::Graphs))
            }
            GraphLayerSpec::Dense { out, bias } => {
                positive("out", out)?;
                let linear = Linear::new(layout, &index.to_string(), width, out, bias);
                init.extend(vec![Init::fan_in(width); 1 + usize::from(bias)]);
                Ok((Layer::Dense(linear), out, rows_of))
            }
            GraphLayerSpec::Add { with } => {
                if with + 1 >= index {
                    return Err(Error::invalid(
                        at("with"),
                        with,
                        format!(
                            "a layer before the one before this: below {}",
                            index.max(1) - 1
                        ),
                    ));
                }
                if self.widths[with] != width || self.rows_of[with] != rows_of {
                    return Err(Error::invalid(
                        at("with"),
                        format!(
                            "layer {with}, {} wide, a row per {}",
                            self.widths[with],
                            self.rows_of[with].name()
                        ),
                        format!("{width} wide, a row per {}", rows_of.name()),
                    ));
                }
                Ok((Layer::Add { with }, width, rows_of))
            }
            GraphLayerSpec::PairDot {} => {
                on_nodes()?;
                Ok((Layer::PairDot { width }, 1, RowsOf::Pairs))
            }
            GraphLayerSpec::Dropout { p } => {
                let p = probability("p", p)?;
                Ok((Layer::Dropout(Dropout { p }), width, rows_of))
            }
            GraphLayerSpec::Relu {} => plain(Activation::Relu),
            GraphLayerSpec::LeakyRelu { slope } => {
                finite("slope", slope)?;
                plain(Activation::LeakyRelu { slope })
            }
            GraphLayerSpec::Elu { alpha } => {
                finite("alpha", alpha)?;
                plain(Activation::Elu { alpha })
            }
            GraphLayerSpec::Silu {} => plain(Activation::Silu),
            GraphLayerSpec::Gelu {} => plain(Activation::Gelu),
            GraphLayerSpec::Tanh {} => plain(Activation::Tanh),
            GraphLayerSpec::Sigmoid {} => plain(Activation::Sigmoid),
        }
    }
}

/// The name in files.
pub(super) fn kind_of(spec: &GraphLayerSpec) -> String {
    match serde_json::to_value(spec) {
        Ok(value) => value["kind"].as_str().unwrap_or("?").to_string(),
        Err(_) => "?".into(),
    }
}
