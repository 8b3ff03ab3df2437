//! Graph networks: a list of layers over the nodes of a batch of graphs.

use super::batch::{Features, GraphBatch};
use super::spec::GraphSpec;
use crate::layer::embedding::EmbeddingSpec;
use crate::layer::spec::{Given, build};
use crate::layer::{AnyLayer, LayerSpec};
use crate::plan::{
    Input, Layers, Place, Plan, Request, RowsOf, Tape, Value, new_id, set_buffer, wrap_layer,
};
use crate::verify::mutants::{LayerMistakes, Mistake};
use crate::verify::{Bundle, Case, FromBundle};
#[cfg(feature = "gpu")]
use crate::verify::{Device, On};
use crate::{Batch, Buffer, Error, Grads, Layout, Model, Pass, Reported, Result, Scalar};
use std::ops::Range;
use std::sync::Arc;

/// A graph network built from a [`GraphSpec`].
pub struct GraphNetwork {
    spec: GraphSpec,
    pub(crate) places: Vec<Place>,
    layout: Layout,
    /// Tells plans of one network from those of another.
    id: u64,
}

/// What a forward pass leaves for backward.
pub type GraphTape<T> = Tape<T>;

impl GraphNetwork {
    /// Builds and checks a network.
    pub fn new(spec: &GraphSpec) -> Result<Self> {
        if spec.family != "graph" {
            return Err(Error::invalid("family", &spec.family, "graph"));
        }
        let embeds = matches!(spec.layers.first(), Some(LayerSpec::Embedding(_)));
        match (spec.features, embeds) {
            (Some(0), _) => return Err(Error::invalid("features", 0, "at least 1")),
            (None, false) if !spec.layers.is_empty() => {
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
        let features: Vec<usize> = spec.features.into_iter().collect();
        let given = Given {
            shape: &features,
            rows: RowsOf::Nodes,
            edge_features: Some(spec.edge_features),
        };
        let (places, layout) = build(&spec.layers, &given)?;
        let is_gcn = |layer: &LayerSpec| matches!(layer, LayerSpec::Gcn(_));
        if spec.edge_weight && !spec.layers.iter().any(is_gcn) {
            return Err(Error::invalid(
                "edge_weight",
                "true",
                "a gcn layer, which uses the weights",
            ));
        }
        Ok(GraphNetwork {
            spec: spec.clone(),
            places,
            layout,
            id: new_id(),
        })
    }

    /// The same network with one layer replaced by what `wrap` makes of it.
    pub(crate) fn wrapping(
        mut self,
        layer: usize,
        wrap: impl FnOnce(Box<dyn AnyLayer>) -> Box<dyn AnyLayer>,
    ) -> Self {
        wrap_layer(&mut self.places, layer, wrap);
        self.id = new_id();
        self
    }

    pub(crate) fn layers(&self) -> Layers<'_> {
        Layers {
            places: &self.places,
            layout: &self.layout,
            id: self.id,
        }
    }

    /// The plan of a kind of step.
    pub(crate) fn plan(&self, params: bool, input: bool, fuse: bool) -> Plan {
        let request = Request {
            params,
            input,
            fuse,
        };
        Plan::new(&self.places, &self.layout, request)
    }

    /// What it was built from.
    pub fn spec(&self) -> &GraphSpec {
        &self.spec
    }

    /// The embedding that it begins with, if it does.
    pub(crate) fn embedding(&self) -> Option<&EmbeddingSpec> {
        match self.spec.layers.first() {
            Some(LayerSpec::Embedding(embedding)) => Some(embedding),
            _ => None,
        }
    }

    fn last(&self) -> &Place {
        self.places.last().expect("at least one layer")
    }

    /// What the output has a row for.
    fn rows(&self) -> RowsOf {
        self.last().rows
    }

    /// The width of a layer's rows.
    pub(crate) fn width_of(&self, layer: usize) -> usize {
        self.places[layer].shape.iter().product()
    }

    /// The width of a row of the output.
    pub fn output_width(&self) -> usize {
        self.width_of(self.places.len() - 1)
    }

    /// Whether the output has a row per node, not per graph or pair.
    pub fn outputs_nodes(&self) -> bool {
        self.rows() == RowsOf::Nodes
    }

    /// The number of output rows for a batch.
    pub fn output_rows<T: Scalar>(&self, batch: &GraphBatch<T>) -> usize {
        Input::of_graphs(batch).rows(self.rows())
    }

    /// Whether a batch fits: done once where it is built; kernels trust it.
    pub fn check<T: Scalar>(&self, batch: &GraphBatch<T>) -> Result<()> {
        let spec = &self.spec;
        match (batch.features(), self.embedding()) {
            (Features::Ids(_), Some(EmbeddingSpec { vocabulary, .. })) => {
                let vocabulary = *vocabulary;
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
            (_, Some(_)) => {
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
            self.check_sparse()?;
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
        if self.rows() == RowsOf::Pairs && batch.pairs().is_empty() {
            return Err(Error::invalid("pairs", "none", "pairs of nodes to score"));
        }
        Ok(())
    }

    /// Whether the layers can read sparse features.
    fn check_sparse(&self) -> Result<()> {
        let keeps = |place: &&Place| place.layer.keeps_sparse();
        let sparse = self.places.iter().take_while(keeps).count();
        let reads = self.places.get(sparse);
        if !reads.is_some_and(|place| place.layer.reads_sparse()) {
            return Err(Error::invalid(
                "node features",
                "sparse",
                "dense ones: the first layer after dropout must be a gcn, sage, gin, gat, \
                 gatv2, message_passing or dense layer to read sparse features",
            ));
        }
        let is_sparse = |value: Value| match value {
            Value::Input => true,
            Value::Of(layer) => layer < sparse,
        };
        let skip = self
            .places
            .iter()
            .position(|p| p.with.is_some_and(is_sparse));
        if let Some(layer) = skip {
            return Err(Error::invalid(
                "node features",
                "sparse",
                format!(
                    "dense ones: layers[{layer}] ({}) reads them as they are",
                    self.places[layer].kind
                ),
            ));
        }
        Ok(())
    }

    /// The rows after layer `layer` (all layers but the last, say, are the nodes' embedding).
    pub fn layer_output<'t, T>(&self, tape: &'t GraphTape<T>, layer: usize) -> &'t [T] {
        self.layers().layer_output(layer, tape)
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

    #[cfg(feature = "gpu")]
    fn accelerator(
        &self,
        placement: &crate::train::Placement,
        start: &crate::train::Start<'_>,
    ) -> Result<Option<Box<dyn crate::train::Accelerator<Self>>>> {
        crate::gpu::GpuTrainer::placed(self, placement, start)
    }

    #[cfg(feature = "gpu")]
    fn verifier(&self, on: On) -> Result<Option<Box<dyn Device<Self>>>> {
        crate::gpu::GpuVerifier::on(on).map(Some)
    }

    fn mistakes(&self) -> Vec<String> {
        LayerMistakes::of(&self.places, &self.spec.layers).words()
    }

    fn make_mistake(&mut self, mistake: &Mistake) -> Result<()> {
        let all = LayerMistakes::of(&self.places, &self.spec.layers);
        let (layer, mutation) = all.find(mistake)?;
        let before = match layer.checked_sub(1) {
            Some(before) => self.places[before].shape.clone(),
            None => self.spec.features.into_iter().collect(),
        };
        let shapes = [before, self.places[layer].shape.clone()];
        wrap_layer(&mut self.places, layer, |inner| {
            mutation.wrap(inner, shapes, mistake.only_f32)
        });
        self.id = new_id();
        Ok(())
    }

    fn init(&self, seed: u64) -> Vec<f32> {
        let stream = |_, _, tensor| tensor;
        self.layers().init(seed, stream)
    }

    fn compute_forward<T: Scalar>(
        &self,
        params: &[T],
        batch: &GraphBatch<T>,
        pass: &Pass,
        tape: &mut GraphTape<T>,
    ) {
        self.layers()
            .forward(params, Input::of_graphs(batch), pass, tape);
    }

    fn output<'t, T: Scalar>(&self, tape: &'t GraphTape<T>) -> &'t [T] {
        self.layers().output(tape)
    }

    fn compute_backward<T: Scalar>(
        &self,
        params: &[T],
        batch: &GraphBatch<T>,
        pass: &Pass,
        tape: &mut GraphTape<T>,
        d_output: &[T],
        grads: Grads<'_, T>,
    ) {
        let input = Input::of_graphs(batch);
        self.layers()
            .backward(params, input, pass, tape, d_output, grads);
    }

    fn compute_backward_reporting<T: Scalar>(
        &self,
        params: Reported<'_, T>,
        batch: &GraphBatch<T>,
        pass: &Pass,
        tape: &mut GraphTape<T>,
        d_output: &[T],
        d_params: &mut [T],
    ) {
        let input = Input::of_graphs(batch);
        self.layers()
            .backward_reporting(params, input, pass, tape, d_output, d_params);
    }

    fn plan_text(&self) -> String {
        let plan = self.plan(true, false, true);
        plan.text(&self.places, &self.layout)
    }

    /// There is none.
    fn penalty_range<T: Scalar>(&self, _: Range<usize>, _: &[T], _: &mut [T]) -> bool {
        true
    }

    fn check_input<T: Scalar>(&self, input: &GraphBatch<T>) -> Result<()> {
        self.check(input)
    }

    fn output_values<T: Scalar>(&self, input: &GraphBatch<T>) -> Option<usize> {
        Some(self.output_rows(input) * self.output_width())
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
        batch: &GraphBatch<T>,
        tape: &GraphTape<T>,
        pattern: &mut Vec<u32>,
    ) {
        for layer in 0..self.places.len() {
            let input = Input::of_graphs(batch);
            self.layers().pattern(layer, input, tape, pattern);
        }
    }

    fn buffers(&self) -> Vec<Buffer> {
        self.layers().buffers()
    }

    fn set_buffer(&mut self, buffer: &Buffer) -> Result<()> {
        set_buffer(&mut self.places, buffer)
    }

    fn absorb(&mut self, tape: &GraphTape<f32>) {
        for (place, saved) in self.places.iter_mut().zip(&tape.saved) {
            place.layer.absorb(saved, tape.samples);
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
                let Some(embedding) = model.embedding() else {
                    return Err(Error::file(&bundle.path, "input", "neither x nor ids fit"));
                };
                let ids = bundle.indices("input/ids")?;
                GraphBatch::ids(graph, embedding.vocabulary, &ids)?
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
