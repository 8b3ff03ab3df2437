//! Networks on a directed acyclic graph: one number per node and sample, one weight per edge.
//!
//! ```text
//! u_v = Σ_{e = (s → v)} w_e·a_s + bias_v,   a_v = act_v(u_v)
//! ```
//!
//! Input nodes hold the sample; output nodes are linear. Nodes are grouped by level (the longest
//! path from an input), so that a level depends on earlier levels alone and its nodes are
//! independent of each other. The samples of a batch lie side by side: a node's sum runs in lanes.
//!
//! Backward, level by level from the last: d_a_v = (d_y_v at an output) + Σ_{e = (v → t)} w_e·d_u_t,
//! d_u_v = d_a_v·act_v′(u_v); then d_w_e = Σ_samples d_u_t·a_s, d_bias_v = Σ_samples d_u_v, and at an
//! input d_x = d_a. Nothing is passed on into an input node beyond that: it has no in-edges.

mod sums;
#[cfg(test)]
mod tests;

use serde::{Deserialize, Serialize};

use self::sums::{column_sum, product, weighted_sum};
use super::pattern::Pattern;
use crate::nn::Activation;
use crate::parallel::{self, Uneven, for_each_cut};
use crate::rng::Key;
use crate::simd::{self, dispatch};
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
pub struct DagNN {
    spec: DagSpec,
    layout: Layout,
    /// The place of every node in the order of levels, and the node of every place.
    place: Vec<u32>,
    node: Vec<u32>,
    /// The first place of every level, and the number of nodes.
    levels: Vec<usize>,
    /// Row = target's place, column = source's place.
    pattern: Pattern,
    /// The edge of every slot.
    edge: Vec<u32>,
    /// Ends of every edge, as places.
    source: Vec<u32>,
    target: Vec<u32>,
    /// By place.
    activation: Vec<Activation>,
    /// Where a place's bias is; inputs have none.
    bias: Vec<Option<u32>>,
}

/// What a forward pass leaves for backward: everything node after node, samples in lanes.
pub struct DagTape<T> {
    u: Vec<T>,
    a: Vec<T>,
    d_u: Vec<T>,
    /// d_w by slot, and where the nodes and slots of a level's pieces begin.
    d_slot: Vec<T>,
    nodes: Vec<u32>,
    slots: Vec<u32>,
    output: Vec<T>,
}

impl<T> Default for DagTape<T> {
    fn default() -> Self {
        DagTape {
            u: Vec::new(),
            a: Vec::new(),
            d_u: Vec::new(),
            d_slot: Vec::new(),
            nodes: Vec::new(),
            slots: Vec::new(),
            output: Vec::new(),
        }
    }
}

/// From this many multiply-adds on, the nodes of a level go to threads: some 5 µs on one
/// (`retrograd bench threshold-dag` measures that).
const PARALLEL: usize = 1 << 14;
/// Multiply-adds of one piece.
const PIECE: usize = 1 << 12;

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
        layout.push("edge_weight", &[source.len()]);
        layout.push("bias", &[spec.hidden + spec.outputs]);
        let is_hidden = |v: u32| (v as usize) < spec.inputs + spec.hidden;
        Ok(DagNN {
            activation: order
                .iter()
                .map(|&v| {
                    if is_hidden(v) {
                        hidden
                    } else {
                        Activation::Identity
                    }
                })
                .collect(),
            bias: order
                .iter()
                .map(|&v| v.checked_sub(spec.inputs as u32))
                .collect(),
            spec: spec.clone(),
            layout,
            place,
            node: order,
            levels: bounds,
            pattern,
            edge,
            source,
            target,
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
        Ok(())
    }

    /// What it was built from.
    pub fn spec(&self) -> &DagSpec {
        &self.spec
    }

    /// The number of levels, that of the inputs included.
    pub fn levels(&self) -> usize {
        self.levels.len() - 1
    }

    /// The places of a level; nodes without in-edges share that of the inputs.
    fn places(&self, level: usize) -> std::ops::Range<usize> {
        self.levels[level]..self.levels[level + 1]
    }

    fn is_input(&self, place: usize) -> bool {
        self.bias[place].is_none()
    }

    /// Nodes of one piece of a level.
    fn piece(
        &self,
        range: &std::ops::Range<usize>,
        rows: &super::Rows,
        batch: usize,
    ) -> (usize, bool) {
        let slots = (rows.start[range.end] - rows.start[range.start]) as usize + range.len();
        let nodes = (range.len() * PIECE / (slots * batch).max(1)).max(1);
        (nodes, slots * batch >= PARALLEL)
    }
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
            let t = pattern.by_column.neighbor[q] as usize;
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

    fn forward<T: Scalar>(&self, params: &[T], x: &Vec<T>, pass: &Pass, tape: &mut DagTape<T>) {
        let fast = pass.kernels == Kernels::Fast;
        let batch = x.len() / self.spec.inputs;
        let n = self.spec.nodes();
        let (weight, bias) = params.split_at(self.source.len());
        tape.u.resize(n * batch, T::ZERO);
        tape.a.resize(n * batch, T::ZERO);
        tape.output.resize(self.spec.outputs * batch, T::ZERO);
        if batch == 0 {
            return;
        }
        let rows = &self.pattern.by_row;
        for level in 0..self.levels() {
            let range = self.places(level);
            let (earlier, rest) = tape.a.split_at_mut(range.start * batch);
            let a = &mut rest[..range.len() * batch];
            let u = &mut tape.u[range.start * batch..range.end * batch];
            let (nodes, parallel) = self.piece(&range, rows, batch);
            let len = nodes * batch;
            parallel::for_each_chunk2(u, len, a, len, fast && parallel, |piece, u, a| {
                let chunks = u.chunks_exact_mut(batch).zip(a.chunks_exact_mut(batch));
                for (k, (u, a)) in chunks.enumerate() {
                    let v = range.start + piece * nodes + k;
                    let Some(bias_at) = self.bias[v] else {
                        let i = self.node[v] as usize;
                        for (b, a) in a.iter_mut().enumerate() {
                            *a = x[b * self.spec.inputs + i];
                        }
                        continue;
                    };
                    let terms = rows.range(v).map(|p| {
                        let w = weight[self.edge[p] as usize];
                        (w, rows.neighbor[p] as usize)
                    });
                    weighted_sum(terms, earlier, bias[bias_at as usize], u, fast);
                    self.activation[v].forward(u, a, pass.kernels);
                }
            });
        }
        for o in 0..self.spec.outputs {
            let v = self.place[self.spec.inputs + self.spec.hidden + o] as usize;
            for b in 0..batch {
                tape.output[b * self.spec.outputs + o] = tape.a[v * batch + b];
            }
        }
    }

    fn output<'t, T: Scalar>(&self, tape: &'t DagTape<T>) -> &'t [T] {
        &tape.output
    }

    fn backward<T: Scalar>(
        &self,
        params: &[T],
        x: &Vec<T>,
        pass: &Pass,
        tape: &mut DagTape<T>,
        d_output: &[T],
        grads: Grads<'_, T>,
    ) {
        let fast = pass.kernels == Kernels::Fast;
        let batch = x.len() / self.spec.inputs;
        let n = self.spec.nodes();
        let (weight, _) = params.split_at(self.source.len());
        if batch == 0 {
            if let (Some(d), false) = (grads.params, grads.accumulate) {
                d.fill(T::ZERO);
            }
            return;
        }
        // Every node's is overwritten before it is read.
        tape.d_u.resize(n * batch, T::ZERO);
        let wants_weights = grads.params.is_some() && !self.layout.tensors()[0].frozen;
        let edges = if wants_weights { self.source.len() } else { 0 };
        tape.d_slot.resize(edges, T::ZERO);
        let (rows, columns) = (&self.pattern.by_row, &self.pattern.by_column);
        let row = |place: u32| place as usize * batch..(place as usize + 1) * batch;
        let first_output = self.spec.inputs + self.spec.hidden;
        for level in (0..self.levels()).rev() {
            let range = self.places(level);
            let (rest, later) = tape.d_u.split_at_mut(range.end * batch);
            let d = &mut rest[range.start * batch..];
            let (u, a) = (&tape.u[..], &tape.a[..]);
            let all_a = a;
            let later_at = range.end;
            let (nodes, parallel) = self.piece(&range, columns, batch);
            // The weights of a node's in-edges are done with it, while d_u of the node is at hand:
            // read later, half of it would come from another core (dag-10k on two threads 4.4 ms).
            let first_slot = if edges == 0 {
                0
            } else {
                rows.start[range.start]
            };
            tape.nodes.clear();
            tape.slots.clear();
            for place in (range.start..range.end).step_by(nodes).chain([range.end]) {
                tape.nodes.push((place - range.start) as u32);
                tape.slots
                    .push(rows.start[place].saturating_sub(first_slot));
            }
            let end = first_slot as usize + tape.slots[tape.slots.len() - 1] as usize;
            let d_slot = match edges {
                0 => &mut [][..],
                _ => &mut tape.d_slot[first_slot as usize..end],
            };
            let owned = (
                Uneven::new(d, &tape.nodes, batch),
                Uneven::new(d_slot, &tape.slots, 1),
            );
            let pieces = tape.nodes.len() - 1;
            for_each_cut(pieces, fast && parallel, owned, |piece, (d, mut d_slot)| {
                for (k, d) in d.chunks_exact_mut(batch).enumerate() {
                    let v = range.start + piece * nodes + k;
                    let terms = columns.range(v).map(|q| {
                        let edge = self.edge[self.pattern.slot[q] as usize];
                        (
                            weight[edge as usize],
                            columns.neighbor[q] as usize - later_at,
                        )
                    });
                    weighted_sum(terms, later, T::ZERO, d, fast);
                    if let Some(bias_at) = self.bias[v] {
                        let node = bias_at as usize + self.spec.inputs;
                        if node >= first_output {
                            let o = node - first_output;
                            for (b, d) in d.iter_mut().enumerate() {
                                *d += d_output[b * self.spec.outputs + o];
                            }
                        }
                        let (u, a) = (&u[v * batch..][..batch], &a[v * batch..][..batch]);
                        let activation = self.activation[v];
                        // Elementwise: under `dispatch!` the compiler makes vectors of it.
                        dispatch!(simd::level(), simd => {
                            let _ = simd;
                            for ((d, &u), &a) in d.iter_mut().zip(u).zip(a) {
                                *d *= activation.slope(u, a);
                            }
                        });
                    }
                    if !d_slot.is_empty() {
                        let own = d_slot.split_off_mut(..rows.degree(v)).unwrap_or_default();
                        for (d_w, &s) in own.iter_mut().zip(&rows.neighbor[rows.range(v)]) {
                            *d_w = product(d, &all_a[row(s)], fast);
                        }
                    }
                }
            });
        }
        let d_u = &tape.d_u[..];
        if let Some(d_params) = grads.params {
            if !grads.accumulate {
                parallel::fill(d_params, T::ZERO);
            }
            let (d_weight, d_bias) = d_params.split_at_mut(self.source.len());
            if wants_weights {
                for (&d, &edge) in tape.d_slot.iter().zip(&self.edge) {
                    d_weight[edge as usize] += d;
                }
            }
            if !self.layout.tensors()[1].frozen {
                let nodes = (PIECE / batch).max(1);
                let parallel = fast && d_bias.len() * batch >= PARALLEL;
                parallel::for_each_chunk(d_bias, nodes, parallel, |piece, d_bias| {
                    for (k, d) in d_bias.iter_mut().enumerate() {
                        let place = self.place[self.spec.inputs + piece * nodes + k];
                        *d += column_sum(&d_u[row(place)], fast);
                    }
                });
            }
        }
        if let Some(d_x) = grads.input {
            for i in 0..self.spec.inputs {
                let v = self.place[i] as usize;
                for b in 0..batch {
                    d_x[b * self.spec.inputs + i] = d_u[v * batch + b];
                }
            }
        }
    }

    fn cast_input<T: Scalar, U: Scalar>(&self, input: &Vec<T>) -> Vec<U> {
        crate::scalar::cast(input)
    }

    fn pattern<T: Scalar>(&self, _: &[T], x: &Vec<T>, tape: &DagTape<T>, pattern: &mut Vec<u32>) {
        let batch = x.len() / self.spec.inputs;
        for (v, u) in tape.u.chunks_exact(batch.max(1)).enumerate() {
            if !self.is_input(v) {
                self.activation[v].pattern(u, pattern);
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
