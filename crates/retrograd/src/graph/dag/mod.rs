//! Networks on a directed acyclic graph: one number per node and sample, one weight per edge.
//!
//! ```text
//! u_v = Σ_{e = (s → v)} w_e·a_s + bias_v,   a_v = act_v(u_v)
//! ```
//!
//! Input nodes hold the sample; output nodes are linear. Nodes are grouped by level (the longest
//! path from an input), so that a level depends on earlier levels alone and its nodes are
//! independent of each other. Samples lie side by side: a node's sum runs in lanes. Each block of
//! samples goes through the levels alone (`cpu.rs`).
//!
//! Backward, level by level from the last: d_a_v = (d_y_v at an output) + Σ_{e = (v → t)} w_e·d_u_t,
//! d_u_v = d_a_v·act_v′(u_v); then d_w_e = Σ_samples d_u_t·a_s, d_bias_v = Σ_samples d_u_v, and at an
//! input d_x = d_a. Nothing is passed on into an input node beyond that: it has no in-edges.

mod cpu;
mod family;
#[cfg(feature = "gpu")]
pub(crate) mod gpu;
mod lanes;
mod reference;
#[cfg(test)]
mod tests;

pub use family::FAMILY;

use serde::{Deserialize, Serialize};

use super::pattern::Pattern;
use crate::model::check_backward;
use crate::network::Activation;
use crate::rng::Key;
use crate::verify::{Bundle, Case, FromBundle};
use crate::{Error, Grads, Kernels, Layout, Model, Pass, Result, Scalar};

/// What a DAG is made of, as written in files; the edges come beside it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DagSpec {
    /// Which family of models this is; `dag` where it is written.
    #[serde(default = "dag_family", skip_serializing)]
    pub family: String,
    /// Input nodes: numbers 0 to `inputs` − 1.
    pub inputs: usize,
    /// Hidden nodes, numbered after the inputs.
    pub hidden: usize,
    /// Output nodes, numbered after the hidden ones; linear.
    pub outputs: usize,
    /// The hidden nodes' activation: `relu`, `leaky_relu`, `elu`, `silu`, `gelu`, `tanh`, `sigmoid`.
    pub activation: String,
}

fn dag_family() -> String {
    "dag".into()
}

impl DagSpec {
    /// From the numbers of nodes and the hidden nodes' activation.
    pub fn new(inputs: usize, hidden: usize, outputs: usize, activation: &str) -> Self {
        DagSpec {
            family: dag_family(),
            inputs,
            hidden,
            outputs,
            activation: activation.into(),
        }
    }

    fn nodes(&self) -> usize {
        self.inputs + self.hidden + self.outputs
    }
}

fn activation_named(name: &str) -> Result<Activation> {
    Ok(match name {
        "identity" => Activation::Identity,
        "relu" => Activation::Relu,
        "leaky_relu" => Activation::LeakyRelu { slope: 0.01 },
        "elu" => Activation::Elu { alpha: 1.0 },
        "silu" => Activation::Silu,
        "gelu" => Activation::Gelu,
        "tanh" => Activation::Tanh,
        "sigmoid" => Activation::Sigmoid,
        _ => {
            return Err(Error::invalid(
                "activation",
                name,
                "identity, relu, leaky_relu, elu, silu, gelu, tanh or sigmoid",
            ));
        }
    })
}

/// A network on a DAG. A batch is `Vec<T>`: sample after sample, `inputs` numbers each.
#[derive(Clone)]
pub struct DagNN {
    spec: DagSpec,
    layout: Layout,
    /// The place of every node in the order of levels, and the node of every place. The inputs come
    /// first: node `i` is place `i`.
    place: Vec<u32>,
    node: Vec<u32>,
    /// The first place of every level, and the number of nodes.
    bounds: Vec<usize>,
    level: Vec<cpu::Level>,
    /// Row = target's place, column = source's place.
    pattern: Pattern,
    /// The edge of every slot, and of every entry by column.
    edge: Vec<u32>,
    column_edge: Vec<u32>,
    /// The place in which every edge ends.
    target: Vec<u32>,
    /// By place.
    activation: Vec<Activation>,
    /// Runs of places that share an activation: where each ends, and which.
    runs: Vec<(usize, Activation)>,
    /// The outputs' places, in order, and which output each is.
    outputs: Vec<(u32, u32)>,
    /// Where a part of the batch keeps the sum of every parameter: weights by slot, then biases by
    /// place.
    sum_at: Vec<u32>,
    /// Made for a device when it is first put on one.
    #[cfg(feature = "gpu")]
    on_device: crate::gpu::OnDevice,
}

/// What a forward pass leaves for backward, node after node, samples in lanes.
pub struct DagTape<T> {
    /// Samples of a block: `[block][place][sample]`.
    block: usize,
    u: Vec<T>,
    a: Vec<T>,
    d_u: Vec<T>,
    /// The sums over samples, part by part of the batch.
    sums: Vec<T>,
    output: Vec<T>,
}

impl<T> Default for DagTape<T> {
    fn default() -> Self {
        DagTape {
            block: 0,
            u: Vec::new(),
            a: Vec::new(),
            d_u: Vec::new(),
            sums: Vec::new(),
            output: Vec::new(),
        }
    }
}

impl DagNN {
    /// From a spec and the edges, which may be given in any order but must not form a cycle.
    pub fn new(spec: &DagSpec, sources: &[u32], targets: &[u32]) -> Result<Self> {
        if spec.family != "dag" {
            return Err(Error::invalid("family", &spec.family, "dag"));
        }
        let n = spec.nodes();
        for (what, count) in [("inputs", spec.inputs), ("outputs", spec.outputs)] {
            if count == 0 {
                return Err(Error::invalid(what, 0, "at least 1"));
            }
        }
        let hidden = activation_named(&spec.activation)?;
        let rules = super::structure::EdgeRules::default();
        // Ends in range, no self-loops, no duplicates.
        super::structure::Graph::build(n, sources, targets, rules)?;
        if let Some(e) = targets.iter().position(|&t| (t as usize) < spec.inputs) {
            return Err(Error::invalid(
                format!("edge {e} ({} → {})", sources[e], targets[e]),
                "a target that is an input",
                format!("a target from {} on: inputs are fixed", spec.inputs),
            ));
        }
        let level = levels(n, sources, targets)?;
        let last = level.iter().max().map_or(0, |&l| l as usize);
        let mut order: Vec<u32> = (0..n as u32).collect();
        order.sort_by_key(|&v| (level[v as usize], v));
        let mut place = vec![0; n];
        for (at, &v) in order.iter().enumerate() {
            place[v as usize] = at as u32;
        }
        let mut bounds = vec![0; last + 2];
        for &l in &level {
            bounds[l as usize + 1] += 1;
        }
        for l in 0..=last {
            bounds[l + 1] += bounds[l];
        }
        let places =
            |ends: &[u32]| -> Vec<u32> { ends.iter().map(|&v| place[v as usize]).collect() };
        let (source, target) = (places(sources), places(targets));
        let (pattern, edge) = Pattern::new(n, n, &target, &source);
        let mut layout = Layout::new();
        layout.push("edge_weight", &[edge.len()]);
        layout.push("bias", &[spec.hidden + spec.outputs]);
        let is_hidden = |v: u32| (v as usize) < spec.inputs + spec.hidden;
        let activation: Vec<Activation> = order
            .iter()
            .map(|&v| {
                if is_hidden(v) {
                    hidden
                } else {
                    Activation::Identity
                }
            })
            .collect();
        let (rows, columns) = (&pattern.by_row, &pattern.by_column);
        let level = (0..=last)
            .map(|l| bounds[l].max(spec.inputs)..bounds[l + 1])
            .map(|places| cpu::Level::new(places, rows, columns))
            .collect();
        let mut outputs: Vec<(u32, u32)> = (0..spec.outputs as u32)
            .map(|o| (place[spec.inputs + spec.hidden + o as usize], o))
            .collect();
        outputs.sort_unstable();
        let edges = edge.len() as u32;
        let mut sum_at = vec![0; edge.len()];
        for (slot, &e) in edge.iter().enumerate() {
            sum_at[e as usize] = slot as u32;
        }
        sum_at.extend(place[spec.inputs..].iter().map(|&p| edges + p));
        Ok(DagNN {
            runs: runs(&activation),
            activation,
            spec: spec.clone(),
            layout,
            node: order,
            bounds,
            level,
            column_edge: pattern.slot.iter().map(|&s| edge[s as usize]).collect(),
            pattern,
            edge,
            target,
            outputs,
            sum_at,
            place,
            #[cfg(feature = "gpu")]
            on_device: Default::default(),
        })
    }

    /// An activation of its own for a hidden node (numbered as in the spec).
    pub fn set_activation(&mut self, node: usize, activation: Activation) -> Result<()> {
        let hidden = self.spec.inputs..self.spec.inputs + self.spec.hidden;
        if !hidden.contains(&node) {
            return Err(Error::invalid(
                "node whose activation is set",
                node,
                format!("a hidden node, {} to {}", hidden.start, hidden.end),
            ));
        }
        self.activation[self.place[node] as usize] = activation;
        self.runs = runs(&self.activation);
        #[cfg(feature = "gpu")]
        self.not_on_device();
        Ok(())
    }

    /// What it was built from.
    pub fn spec(&self) -> &DagSpec {
        &self.spec
    }

    /// The number of levels, that of the inputs included.
    pub fn levels(&self) -> usize {
        self.bounds.len() - 1
    }

    fn edges(&self) -> usize {
        self.edge.len()
    }

    /// Whole samples, at least one.
    fn check_values<T>(&self, x: &[T]) -> Result<()> {
        let inputs = self.spec.inputs;
        if x.is_empty() || !x.len().is_multiple_of(inputs) {
            return Err(Error::invalid(
                "batch",
                format!("{} values", x.len()),
                format!("a multiple of {inputs}, the inputs of the graph"),
            ));
        }
        Ok(())
    }

    /// Which bias a place has, one that is not an input.
    #[inline(always)]
    fn bias_of(&self, place: usize) -> usize {
        self.node[place] as usize - self.spec.inputs
    }

    /// Whether weights and biases are trained.
    fn trained(&self) -> [bool; 2] {
        [0, 1].map(|tensor| !self.layout.tensors()[tensor].frozen)
    }
}

/// Where each run of equal activations ends, and which it is.
fn runs(activation: &[Activation]) -> Vec<(usize, Activation)> {
    let mut end = 0;
    let equal = activation.chunk_by(|a, b| a == b);
    equal
        .map(|run| {
            end += run.len();
            (end, run[0])
        })
        .collect()
}

/// The longest path to every node; an error names a node on a cycle.
fn levels(nodes: usize, sources: &[u32], targets: &[u32]) -> Result<Vec<u32>> {
    let (pattern, _) = Pattern::new(nodes, nodes, targets, sources);
    let mut waiting: Vec<u32> = (0..nodes)
        .map(|v| pattern.by_row.degree(v) as u32)
        .collect();
    let mut level = vec![0; nodes];
    let mut ready: Vec<usize> = (0..nodes).filter(|&v| waiting[v] == 0).collect();
    let mut done = 0;
    while let Some(v) = ready.pop() {
        done += 1;
        for q in pattern.by_column.range(v) {
            let t = pattern.by_column.neighbour[q] as usize;
            level[t] = level[t].max(level[v] + 1);
            waiting[t] -= 1;
            if waiting[t] == 0 {
                ready.push(t);
            }
        }
    }
    if done == nodes {
        return Ok(level);
    }
    let stuck = waiting.iter().position(|&w| w > 0).unwrap_or(0);
    Err(Error::invalid(
        format!("node {stuck}"),
        "on a cycle, or after one",
        "edges without cycles",
    ))
}

impl DagNN {
    /// [`Model::forward`] of a batch that may be part of a longer slice.
    pub fn forward<T: Scalar>(
        &self,
        params: &[T],
        x: &[T],
        pass: &Pass,
        tape: &mut DagTape<T>,
    ) -> Result<()> {
        self.check_params(params)?;
        self.check_values(x)?;
        self.run_forward(params, x, pass, tape);
        Ok(())
    }

    /// [`Model::backward`] of such a batch.
    pub fn backward<T: Scalar>(
        &self,
        params: &[T],
        x: &[T],
        pass: &Pass,
        tape: &mut DagTape<T>,
        d_output: &[T],
        grads: Grads<'_, T>,
    ) -> Result<()> {
        self.check_values(x)?;
        let output = x.len() / self.spec.inputs * self.spec.outputs;
        check_backward(self, params, x, output, tape, d_output, &grads)?;
        self.run_backward(params, x, pass, tape, d_output, grads);
        Ok(())
    }

    fn run_forward<T: Scalar>(&self, params: &[T], x: &[T], pass: &Pass, tape: &mut DagTape<T>) {
        let batch = x.len() / self.spec.inputs;
        let n = self.spec.nodes();
        tape.u.resize(n * batch, T::ZERO);
        tape.a.resize(n * batch, T::ZERO);
        tape.output.resize(self.spec.outputs * batch, T::ZERO);
        if pass.kernels == Kernels::Fast
            && let (Some(params), Some(x)) = (T::f32s(params), T::f32s(x))
            && let (Some(u), Some(a)) = (T::f32s_mut(&mut tape.u), T::f32s_mut(&mut tape.a))
            && let Some(output) = T::f32s_mut(&mut tape.output)
        {
            tape.block = lanes::BLOCK;
            return cpu::forward(self, params, x, u, a, output);
        }
        tape.block = batch;
        reference::forward(self, params, x, tape);
    }

    fn run_backward<T: Scalar>(
        &self,
        params: &[T],
        x: &[T],
        pass: &Pass,
        tape: &mut DagTape<T>,
        d_output: &[T],
        grads: Grads<'_, T>,
    ) {
        let batch = x.len() / self.spec.inputs;
        let n = self.spec.nodes();
        tape.d_u.resize(n * batch, T::ZERO);
        if pass.kernels == Kernels::Fast
            && let (Some(params), Some(d_output)) = (T::f32s(params), T::f32s(d_output))
            && let (Some(u), Some(a)) = (T::f32s(&tape.u), T::f32s(&tape.a))
            && let Some(d_u) = T::f32s_mut(&mut tape.d_u)
            && let Some(sums) = T::f32_vec(&mut tape.sums)
        {
            let [weights, biases] = self.trained().map(|t| t && grads.params.is_some());
            let wanted = cpu::Wanted {
                weights,
                biases,
                accumulate: grads.accumulate,
            };
            sums.resize(cpu::parts(batch) * (self.edges() + n), 0.0);
            let left = cpu::Left { u, a };
            let d_x = grads.input.and_then(T::f32s_mut).unwrap_or_default();
            cpu::backward(self, params, left, d_output, d_u, sums, wanted, d_x);
            if let Some(d_params) = grads.params.and_then(T::f32s_mut) {
                cpu::add_up(self, sums, wanted, d_params);
            }
            return;
        }
        reference::backward(self, params, batch, tape, d_output, grads);
    }
}

impl Model for DagNN {
    type Input<T: Scalar> = Vec<T>;
    type Tape<T: Scalar> = DagTape<T>;

    fn layout(&self) -> &Layout {
        &self.layout
    }

    fn layout_mut(&mut self) -> &mut Layout {
        &mut self.layout
    }

    /// Uniform within ±1/√(in-degree of the target), weights and biases.
    fn init(&self, seed: u64) -> Vec<f32> {
        let mut stream = Key::new(seed).purpose("init").stream();
        let rows = &self.pattern.by_row;
        let mut draw = |place: usize| {
            let limit = 1.0 / (rows.degree(place).max(1) as f64).sqrt();
            stream.range(-limit, limit) as f32
        };
        let weights: Vec<f32> = self.target.iter().map(|&t| draw(t as usize)).collect();
        let first = self.spec.inputs;
        let biases = (first..self.spec.nodes()).map(|v| draw(self.place[v] as usize));
        weights
            .into_iter()
            .chain(biases.collect::<Vec<_>>())
            .collect()
    }

    fn compute_forward<T: Scalar>(
        &self,
        params: &[T],
        x: &Vec<T>,
        pass: &Pass,
        tape: &mut DagTape<T>,
    ) {
        self.run_forward(params, x, pass, tape);
    }

    fn output<'t, T: Scalar>(&self, tape: &'t DagTape<T>) -> &'t [T] {
        &tape.output
    }

    fn compute_backward<T: Scalar>(
        &self,
        params: &[T],
        x: &Vec<T>,
        pass: &Pass,
        tape: &mut DagTape<T>,
        d_output: &[T],
        grads: Grads<'_, T>,
    ) {
        self.run_backward(params, x, pass, tape, d_output, grads);
    }

    fn row_width(&self) -> Option<usize> {
        Some(self.spec.outputs)
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
    fn verifier(
        &self,
        on: crate::verify::On,
    ) -> Result<Option<Box<dyn crate::verify::Device<Self>>>> {
        crate::gpu::GpuVerifier::on(on).map(Some)
    }

    fn check_input<T: Scalar>(&self, x: &Vec<T>) -> Result<()> {
        self.check_values(x)
    }

    fn output_values<T: Scalar>(&self, x: &Vec<T>) -> Option<usize> {
        Some(x.len() / self.spec.inputs * self.spec.outputs)
    }

    fn cast_input<T: Scalar, U: Scalar>(&self, input: &Vec<T>) -> Vec<U> {
        crate::scalar::cast(input)
    }
    fn pattern<T: Scalar>(&self, _: &[T], _: &Vec<T>, tape: &DagTape<T>, pattern: &mut Vec<u32>) {
        let n = self.spec.nodes();
        for block in tape.u.chunks((tape.block * n).max(1)) {
            for (v, u) in block.chunks_exact(block.len() / n).enumerate() {
                if v >= self.spec.inputs {
                    self.activation[v].pattern(u, pattern);
                }
            }
        }
    }
}

impl FromBundle for DagNN {
    fn from_bundle(bundle: &Bundle) -> Result<Case<Self>> {
        let edges = bundle.indices("input/edge_index")?;
        let (sources, targets) = edges.split_at(edges.len() / 2);
        let model = DagNN::new(&bundle.model_spec::<DagSpec>()?, sources, targets)?;
        let params = bundle.flat(&model, "param")?;
        let x = bundle.array("input/x")?;
        if x.shape.get(1) != Some(&model.spec.inputs) {
            return Err(Error::file(
                &bundle.path,
                "input/x",
                format!("shape {:?}, needs {} columns", x.shape, model.spec.inputs),
            ));
        }
        let target = bundle.target()?;
        bundle
            .loss
            .check(x.shape[0] * model.spec.outputs, &target)?;
        Ok(Case {
            input: x.values.clone(),
            model,
            params,
            target,
        })
    }
}
