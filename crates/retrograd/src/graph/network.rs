//! Graph networks: a list of layers over the nodes of a batch of graphs.

use super::batch::{Features, GraphBatch, NodeValues};
use super::build::{Init, RowsOf};
use super::layer::{Back, Context, Layer, LayerTape, pair_dot, pair_dot_backward, sized};
use super::ops::{Aggregate, Coefficient, aggregate};
use super::spec::GraphSpec;
use crate::rng::Key;
use crate::verify::{Bundle, Case, FromBundle};
use crate::{Batch, Error, Grads, Kernels, Layout, Model, Pass, Ready, Result, Scalar, parallel};
use std::ops::Range;
use std::sync::Arc;

/// A graph network built from a [`GraphSpec`].
pub struct GraphNetwork {
    pub(crate) spec: GraphSpec,
    pub(crate) layers: Vec<Layer>,
    /// Width of every layer's output, and what it has a row for.
    pub(crate) widths: Vec<usize>,
    pub(crate) rows_of: Vec<RowsOf>,
    /// Each layer's tensors in the layout.
    pub(crate) tensors_of: Vec<Range<usize>>,
    pub(crate) layout: Layout,
    pub(crate) init: Vec<Init>,
}

/// What a forward pass leaves for backward.
pub struct GraphTape<T> {
    pub(crate) layers: Vec<LayerTape<T>>,
    partial: Vec<f32>,
}

impl<T> Default for GraphTape<T> {
    fn default() -> Self {
        GraphTape {
            layers: Vec::new(),
            partial: Vec::new(),
        }
    }
}

impl GraphNetwork {
    /// What it was built from.
    pub fn spec(&self) -> &GraphSpec {
        &self.spec
    }

    /// The width of a row of the output.
    pub fn output_width(&self) -> usize {
        *self.widths.last().expect("at least one layer")
    }

    /// Whether the output has a row per node, not per graph or pair.
    pub fn outputs_nodes(&self) -> bool {
        self.rows_of.last() == Some(&RowsOf::Nodes)
    }

    /// The number of output rows for a batch.
    pub fn output_rows<T: Scalar>(&self, batch: &GraphBatch<T>) -> usize {
        rows(*self.rows_of.last().expect("at least one layer"), batch)
    }

    /// Whether a batch fits: done once where it is built; kernels trust it.
    pub fn check<T: Scalar>(&self, batch: &GraphBatch<T>) -> Result<()> {
        let spec = &self.spec;
        match (batch.features(), self.layers.first()) {
            (Features::Ids(_), Some(Layer::Embedding { tensor, .. })) => {
                let vocabulary = self.layout.tensors()[*tensor].shape[0];
                if batch.width() != vocabulary {
                    return Err(Error::invalid(
                        "node ids",
                        format!("a vocabulary of {}", batch.width()),
                        format!("one of {vocabulary}, as the embedding has"),
                    ));
                }
            }
            (Features::Ids(_), _) => {
                return Err(Error::invalid(
                    "node ids",
                    "ids",
                    "a network that begins with an embedding",
                ));
            }
            (_, Some(Layer::Embedding { .. })) => {
                return Err(Error::invalid(
                    "node features",
                    "features",
                    "ids, for the embedding that the network begins with",
                ));
            }
            _ => {
                let features = spec.features.unwrap_or(0);
                if batch.width() != features {
                    return Err(Error::invalid(
                        "node features",
                        format!("{} per node", batch.width()),
                        format!("{features}, as the network was built for"),
                    ));
                }
            }
        }
        if let Features::Sparse(_) = batch.features() {
            let first = self
                .layers
                .iter()
                .position(|l| !matches!(l, Layer::Dropout(_)));
            let reads = first.map(|i| &self.layers[i]);
            let fits = matches!(
                reads,
                Some(Layer::Convolution(_) | Layer::Gat(_) | Layer::GatV2(_) | Layer::Dense(_))
            );
            if !fits {
                return Err(Error::invalid(
                    "node features",
                    "sparse",
                    "dense ones: the first layer after dropout must be a gcn, sage, gin, gat, \
                     gatv2, message_passing or dense layer to read sparse features",
                ));
            }
        }
        if batch.edge_weights().is_some() != spec.edge_weight {
            return Err(Error::invalid(
                "edge weights",
                format!("edge weights: {}", batch.edge_weights().is_some()),
                format!(
                    "edge_weight = {} as in the network's spec",
                    spec.edge_weight
                ),
            ));
        }
        if batch.edge_width() != spec.edge_features {
            return Err(Error::invalid(
                "edge features",
                format!("{} per edge", batch.edge_width()),
                format!("{}, as the network was built for", spec.edge_features),
            ));
        }
        if self.rows_of.last() == Some(&RowsOf::Pairs) && batch.pairs().is_empty() {
            return Err(Error::invalid("pairs", "none", "pairs of nodes to score"));
        }
        Ok(())
    }

    /// The rows after layer `layer` (all layers but the last, say, are the nodes' embedding).
    pub fn layer_output<'t, T>(&self, tape: &'t GraphTape<T>, layer: usize) -> &'t [T] {
        &tape.layers[layer].output
    }

    fn context<'a, T: Scalar>(
        params: &'a [T],
        batch: &'a GraphBatch<T>,
        pass: &'a Pass,
        index: usize,
    ) -> Context<'a, T> {
        Context {
            params,
            batch,
            pass,
            fast: pass.kernels == Kernels::Fast,
            index: index as u64,
        }
    }

    /// What layer `index` reads: the batch's features, or the output of the layer before it, which
    /// is sparse as long as only dropout stands before it.
    fn input_of<'a, T: Scalar>(
        &self,
        index: usize,
        batch: &'a GraphBatch<T>,
        before: &'a [LayerTape<T>],
    ) -> NodeValues<'a, T> {
        if index == 0 {
            return batch.rows();
        }
        let values = &before[index - 1].output[..];
        match batch.features() {
            Features::Sparse(pattern)
                if self.layers[..index]
                    .iter()
                    .all(|l| matches!(l, Layer::Dropout(_))) =>
            {
                NodeValues::Sparse(pattern, values)
            }
            _ => NodeValues::Dense(values),
        }
    }

    fn forward_layer<T: Scalar>(
        &self,
        c: &Context<'_, T>,
        x: NodeValues<'_, T>,
        before: &[LayerTape<T>],
        tape: &mut LayerTape<T>,
    ) {
        let index = c.index as usize;
        // Layers that need every element read dense rows; `check` saw to it.
        let dense = match x {
            NodeValues::Dense(x) | NodeValues::Sparse(_, x) => x,
        };
        match &self.layers[index] {
            Layer::Embedding { tensor, out } => {
                let Features::Ids(pattern) = c.batch.features() else {
                    unreachable!("checked: ids for an embedding")
                };
                let weight = &c.params[self.layout.tensors()[*tensor].range()];
                let sum = Aggregate::new(&pattern.by_row, Coefficient::One);
                let y = sized(&mut tape.output, c.graph().nodes() * out);
                aggregate(&sum, weight, *out, y, c.fast);
            }
            Layer::Convolution(layer) => layer.forward(c, x, tape),
            Layer::Gine(layer) => layer.forward(c, dense, tape),
            Layer::Gat(layer) => layer.forward(c, x, tape),
            Layer::GatV2(layer) => layer.forward(c, x, tape),
            Layer::SelfAttention(layer) => layer.forward(c, dense, tape),
            Layer::LayerNorm(layer) => layer.forward(c, dense, tape),
            Layer::Pool(layer) => layer.forward(c, dense, tape),
            Layer::Dense(linear) => {
                let rows = rows(self.rows_of[index], c.batch);
                let y = sized(&mut tape.output, rows * linear.outputs);
                linear.forward(c, x, y, false);
            }
            Layer::Activation(activation) => {
                let y = sized(&mut tape.output, dense.len());
                activation.forward(dense, y, c.kernels());
            }
            Layer::Dropout(dropout) => dropout.forward(c, dense, tape),
            Layer::Add { with } => {
                let y = sized(&mut tape.output, dense.len());
                let other = &before[*with].output;
                for ((y, &a), &b) in y.iter_mut().zip(dense).zip(other) {
                    *y = a + b;
                }
            }
            Layer::PairDot { width } => {
                let y = sized(&mut tape.output, c.batch.pairs().len());
                pair_dot(c.batch.pairs(), dense, *width, y);
            }
        }
    }

    fn backward_layer<T: Scalar>(
        &self,
        b: &mut Back<'_, T>,
        x: NodeValues<'_, T>,
        tape: &mut LayerTape<T>,
        d_y: &[T],
        d_x: Option<&mut [T]>,
    ) {
        let index = b.c.index as usize;
        let dense = match x {
            NodeValues::Dense(x) | NodeValues::Sparse(_, x) => x,
        };
        match &self.layers[index] {
            Layer::Embedding { tensor, out } => {
                let batch = b.c.batch;
                let fast = b.c.fast;
                let Features::Ids(pattern) = batch.features() else {
                    unreachable!("checked: ids for an embedding")
                };
                if let Some(d_weight) = b.gradient(*tensor) {
                    let sum = Aggregate::new(&pattern.by_column, Coefficient::One).adding();
                    aggregate(&sum, d_y, *out, d_weight, fast);
                }
            }
            Layer::Convolution(layer) => layer.backward(b, x, tape, d_y, d_x),
            Layer::Gine(layer) => layer.backward(b, dense, tape, d_y, d_x),
            Layer::Gat(layer) => layer.backward(b, x, tape, d_y, d_x),
            Layer::GatV2(layer) => layer.backward(b, x, tape, d_y, d_x),
            Layer::SelfAttention(layer) => layer.backward(b, dense, tape, d_y, d_x),
            Layer::LayerNorm(layer) => layer.backward(b, tape, d_y, d_x),
            Layer::Pool(layer) => {
                if let Some(d_x) = d_x {
                    layer.backward(&b.c, tape, d_y, d_x);
                }
            }
            Layer::Dense(linear) => {
                linear.backward_params(b, x, d_y);
                if let Some(d_x) = d_x {
                    linear.backward_input(&b.c, x, d_y, d_x, false);
                }
            }
            Layer::Activation(activation) => {
                if let Some(d_x) = d_x {
                    let kernels = b.c.kernels();
                    activation.backward(dense, &tape.output, d_y, d_x, kernels);
                }
            }
            Layer::Dropout(dropout) => {
                if let Some(d_x) = d_x {
                    dropout.backward(&b.c, tape, d_y, d_x);
                }
            }
            Layer::Add { .. } => {
                if let Some(d_x) = d_x {
                    d_x.copy_from_slice(d_y);
                }
            }
            Layer::PairDot { width } => {
                if let Some(d_x) = d_x {
                    pair_dot_backward(b.c.batch.pairs(), dense, *width, d_y, d_x);
                }
            }
        }
    }

    fn start_backward<T: Scalar>(&self, tape: &mut GraphTape<T>, d_output: &[T]) {
        let last = tape.layers.last_mut().expect("at least one layer");
        parallel::copy(d_output, sized(&mut last.d_output, d_output.len()));
    }

    /// Backward of one layer; those above it are done.
    fn backward_at<T: Scalar>(
        &self,
        index: usize,
        lowest: usize,
        params: &[T],
        input: &GraphBatch<T>,
        pass: &Pass,
        tape: &mut GraphTape<T>,
        gradients: &mut Gradients<'_, T>,
    ) {
        let (before, rest) = tape.layers.split_at_mut(index);
        // Later layers that add this one's output pass their gradient on as it is.
        let (own, later) = rest.split_first_mut().expect("this layer");
        for (k, layer) in self.layers[index + 1..].iter().enumerate() {
            if matches!(layer, Layer::Add { with } if *with == index) {
                for (d, &more) in own.d_output.iter_mut().zip(&later[k].d_output) {
                    *d += more;
                }
            }
        }
        let d_y = std::mem::take(&mut own.d_output);
        // The gradient of what it reads goes to the layer before it, whose output is borrowed
        // beside it.
        let mut d_before = match before.last_mut() {
            Some(layer) if index > lowest => {
                let mut d = std::mem::take(&mut layer.d_output);
                d.resize(layer.output.len(), T::ZERO);
                Some(d)
            }
            _ => None,
        };
        let d_x = match (&mut d_before, index) {
            (Some(d), _) => Some(&mut d[..]),
            (None, 0) => gradients.features.as_deref_mut(),
            _ => None,
        };
        let mut b = Back {
            c: Self::context(params, input, pass, index),
            layout: &self.layout,
            d_params: gradients.params.as_deref_mut(),
            d_edge_weights: gradients.edge_weights.as_deref_mut(),
            d_edge_features: gradients.edge_features.as_deref_mut(),
            partial: &mut tape.partial,
        };
        let x = self.input_of(index, input, before);
        self.backward_layer(&mut b, x, own, &d_y, d_x);
        own.d_output = d_y;
        if let (Some(d), Some(layer)) = (d_before, before.last_mut()) {
            layer.d_output = d;
        }
    }

    /// The lowest layer with a parameter to train, or none.
    fn first_trained(&self) -> Option<usize> {
        let first = self.layout.tensors().iter().position(|t| !t.frozen)?;
        self.tensors_of.iter().position(|t| t.contains(&first))
    }
}

/// Where the gradients of a backward pass go.
struct Gradients<'a, T> {
    params: Option<&'a mut [T]>,
    features: Option<&'a mut [T]>,
    edge_weights: Option<&'a mut [T]>,
    edge_features: Option<&'a mut [T]>,
}

/// Rows of an output.
fn rows<T: Scalar>(of: RowsOf, batch: &GraphBatch<T>) -> usize {
    match of {
        RowsOf::Nodes => batch.graph().nodes(),
        RowsOf::Graphs => batch.graph().graphs(),
        RowsOf::Pairs => batch.pairs().len(),
    }
}

impl Model for GraphNetwork {
    type Input<T: Scalar> = GraphBatch<T>;
    type Tape<T: Scalar> = GraphTape<T>;

    fn layout(&self) -> &Layout {
        &self.layout
    }

    fn layout_mut(&mut self) -> &mut Layout {
        &mut self.layout
    }

    fn first_layer(&self) -> String {
        match self.spec.layers.first() {
            Some(layer) => format!("layer 0, {},", super::build::kind_of(layer)),
            None => "the model".into(),
        }
    }

    fn init(&self, seed: u64) -> Vec<f32> {
        let mut params = vec![0.0; self.layout.len()];
        for (k, (tensor, init)) in self.layout.tensors().iter().zip(&self.init).enumerate() {
            let mut stream = Key::new(seed).purpose("init").index(k as u64).stream();
            init.fill(&mut stream, &mut params[tensor.range()]);
        }
        params
    }

    fn forward<T: Scalar>(
        &self,
        params: &[T],
        input: &GraphBatch<T>,
        pass: &Pass,
        tape: &mut GraphTape<T>,
    ) {
        tape.layers
            .resize_with(self.layers.len(), LayerTape::default);
        for index in 0..self.layers.len() {
            let (before, rest) = tape.layers.split_at_mut(index);
            let x = self.input_of(index, input, before);
            let c = Self::context(params, input, pass, index);
            self.forward_layer(&c, x, before, &mut rest[0]);
        }
    }

    fn output<'t, T: Scalar>(&self, tape: &'t GraphTape<T>) -> &'t [T] {
        tape.layers.last().map_or(&[], |layer| &layer.output)
    }

    fn backward<T: Scalar>(
        &self,
        params: &[T],
        input: &GraphBatch<T>,
        pass: &Pass,
        tape: &mut GraphTape<T>,
        d_output: &[T],
        grads: Grads<'_, T>,
    ) {
        let Grads {
            params: mut d_params,
            input: mut d_input,
            accumulate,
        } = grads;
        if let Some(d) = d_params.as_deref_mut()
            && !accumulate
        {
            parallel::fill(d, T::ZERO);
        }
        // What is below the lowest layer with something to train costs nothing.
        let lowest = match (&d_input, self.first_trained()) {
            (Some(_), _) => 0,
            (None, Some(layer)) if d_params.is_some() => layer,
            _ => return,
        };
        if let Some(d) = d_input.as_deref_mut() {
            d.fill(T::ZERO);
        }
        let (mut d_features, mut d_weights, mut d_edges) = (None, None, None);
        if let Some(d) = d_input {
            let (features, rest) = d.split_at_mut(input.feature_values());
            let weights = input.edge_features_start() - input.feature_values();
            let (w, e) = rest.split_at_mut(weights);
            d_features = Some(features);
            d_weights = input.edge_weights().map(|_| w);
            d_edges = (!e.is_empty()).then_some(e);
        }
        self.start_backward(tape, d_output);
        for index in (lowest..self.layers.len()).rev() {
            let mut gradients = Gradients {
                params: d_params.as_deref_mut(),
                features: d_features.as_deref_mut(),
                edge_weights: d_weights.as_deref_mut(),
                edge_features: d_edges.as_deref_mut(),
            };
            self.backward_at(index, lowest, params, input, pass, tape, &mut gradients);
        }
    }

    fn backward_then<T: Scalar>(
        &self,
        params: &mut [T],
        input: &GraphBatch<T>,
        pass: &Pass,
        tape: &mut GraphTape<T>,
        d_output: &[T],
        d_params: &mut [T],
        ready: Ready<'_, T>,
    ) {
        parallel::fill(d_params, T::ZERO);
        // Where the parameters begin that have been reported.
        let mut reported = params.len();
        if let Some(lowest) = self.first_trained() {
            self.start_backward(tape, d_output);
            for index in (lowest..self.layers.len()).rev() {
                let mut gradients = Gradients {
                    params: Some(&mut *d_params),
                    features: None,
                    edge_weights: None,
                    edge_features: None,
                };
                self.backward_at(index, lowest, params, input, pass, tape, &mut gradients);
                if let Some(tensor) = self.layout.tensors()[self.tensors_of[index].clone()].first()
                {
                    let first = tensor.range().start;
                    ready(first..reported, params, d_params);
                    reported = first;
                }
            }
        }
        if reported > 0 {
            // Frozen ones below the lowest that is trained.
            ready(0..reported, params, d_params);
        }
    }

    /// There is none.
    fn penalty_range<T: Scalar>(&self, _: Range<usize>, _: &[T], _: &mut [T]) -> bool {
        true
    }

    fn check_input(&self, input: &GraphBatch<f32>) -> Result<()> {
        self.check(input)
    }

    fn row_width(&self) -> Option<usize> {
        Some(self.output_width())
    }

    fn cast_input<T: Scalar, U: Scalar>(&self, input: &GraphBatch<T>) -> GraphBatch<U> {
        input.cast()
    }

    fn pattern<T: Scalar>(
        &self,
        _: &[T],
        input: &GraphBatch<T>,
        tape: &GraphTape<T>,
        pattern: &mut Vec<u32>,
    ) {
        for (index, layer) in self.layers.iter().enumerate() {
            let own = &tape.layers[index];
            let x = match self.input_of(index, input, &tape.layers) {
                NodeValues::Dense(x) | NodeValues::Sparse(_, x) => x,
            };
            match layer {
                Layer::Convolution(layer) => layer.pattern(&own.saved, pattern),
                Layer::Gine(layer) => layer.pattern(input.graph(), x, &own.saved, pattern),
                Layer::Gat(layer) => layer.pattern(input.graph(), &own.attention, pattern),
                Layer::GatV2(layer) => layer.pattern(input.graph(), &own.attention, pattern),
                Layer::Pool(layer) => layer.pattern(own, pattern),
                Layer::Activation(activation) => activation.pattern(x, pattern),
                _ => {}
            }
        }
    }
}

impl FromBundle for GraphNetwork {
    fn from_bundle(bundle: &Bundle) -> Result<Case<Self>> {
        let model = GraphNetwork::new(&bundle.model_spec::<GraphSpec>()?)?;
        let params = bundle.flat(&model, "param")?;
        let edges = bundle.indices("input/edge_index")?;
        let (sources, targets) = edges.split_at(edges.len() / 2);
        let nodes = match bundle.get("input/x") {
            Some(x) => x.shape.first().copied().unwrap_or(0),
            None => bundle.array("input/ids")?.values.len(),
        };
        let mut graph = super::structure::Graph::new(nodes, sources, targets)?;
        if bundle.get("input/graph_of_node").is_some() {
            let graph_of_node = bundle.indices("input/graph_of_node")?;
            let graphs = graph_of_node.iter().max().map_or(0, |&g| g as usize + 1);
            graph = graph.with_graphs(&graph_of_node, graphs)?;
        }
        let graph = Arc::new(graph);
        let mut input = match bundle.get("input/x") {
            Some(x) => {
                let width = x.shape.get(1).copied().unwrap_or(1);
                GraphBatch::dense(graph, width, x.values.clone())?
            }
            None => {
                let Some(Layer::Embedding { tensor, .. }) = model.layers.first() else {
                    return Err(Error::file(&bundle.path, "input", "neither x nor ids fit"));
                };
                let vocabulary = model.layout.tensors()[*tensor].shape[0];
                GraphBatch::ids(graph, vocabulary, &bundle.indices("input/ids")?)?
            }
        };
        if let Some(weights) = bundle.get("input/edge_weight") {
            input = input.with_edge_weights(&weights.values)?;
        }
        if let Some(attributes) = bundle.get("input/edge_attr") {
            let width = attributes.shape.get(1).copied().unwrap_or(1);
            input = input.with_edge_features(width, &attributes.values)?;
        }
        model.check(&input)?;
        let target = bundle.target()?;
        let outputs = model.output_rows(&input) * model.output_width();
        bundle.loss.check(outputs, &target)?;
        debug_assert_eq!(input.values().is_empty(), bundle.get("input/x").is_none());
        Ok(Case {
            model,
            params,
            input,
            target,
        })
    }
}
