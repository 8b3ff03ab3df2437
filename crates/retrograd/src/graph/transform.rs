//! `GraphTransformNet`: embedding, message passing with residuals, attention over a graph, a head.
//!
//! ```text
//! h₀ = embedding(ids)
//! h_k = h_{k−1} + f(W_k · mean over self and in-neighbours of h_{k−1} + b_k)   (no sum where widths differ)
//! h ← h + self-attention(layer norm(h))                                        (optional)
//! y = W·h + b for every node, or of the mean of its nodes for every graph
//! ```
//!
//! It owns its weights, gradients and optimizer state. A batch of graphs is cut into groups by
//! size; groups run in parallel, each with a tape and a gradient of its own, and the gradients are
//! added in the order of the groups, so threads change no bit. The fused step updates a layer's
//! weights as soon as their gradient is complete: by then nothing reads them any more, so it
//! follows the same trajectory as gradient, then update, without a second pass over the gradient.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::batch::GraphBatch;
use super::network::{GraphNetwork, GraphTape};
use super::spec::GraphSpec;
use super::structure::Graph;
use crate::layer::LayerSpec;
use crate::layer::activation::LeakyReluSpec;
use crate::optim::OptimizerSpec;
use crate::train::{Clip, Lesson, StepError, Stepper};
use crate::{Error, Grads, Loss, Model, Pass, Result, Target, parallel};

/// What the head puts out a row for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Head {
    /// Every node.
    #[default]
    Nodes,
    /// Every graph, from the mean of its nodes.
    Graphs,
}

/// What a `GraphTransformNet` is made of.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TransformSpec {
    /// Ids are below this.
    pub vocabulary: usize,
    /// The embedding's width.
    pub embedding: usize,
    /// The widths of the message-passing layers.
    pub widths: Vec<usize>,
    /// Heads of the self-attention; none without it.
    #[serde(default)]
    pub attention_heads: Option<usize>,
    /// A row per node or per graph.
    #[serde(default)]
    pub head: Head,
    /// The width of the output.
    pub out: usize,
}

impl TransformSpec {
    /// The layers.
    pub fn to_graph_spec(&self) -> GraphSpec {
        let mut layers = vec![LayerSpec::embedding(self.vocabulary, self.embedding)];
        let mut before = self.embedding;
        for &width in &self.widths {
            let from = layers.len() as i64 - 1;
            layers.push(LayerSpec::message_passing(width));
            layers.push(LayerSpec::LeakyRelu(LeakyReluSpec { slope: 0.01 }));
            if width == before {
                layers.push(LayerSpec::add(from));
            }
            before = width;
        }
        if let Some(heads) = self.attention_heads {
            let from = layers.len() as i64 - 1;
            layers.push(LayerSpec::layer_norm());
            layers.push(LayerSpec::self_attention(heads));
            layers.push(LayerSpec::add(from));
        }
        if self.head == Head::Graphs {
            layers.push(LayerSpec::mean_pool());
        }
        layers.push(LayerSpec::dense(self.out));
        GraphSpec {
            features: None,
            ..GraphSpec::new(0, layers)
        }
    }
}

/// See the module's text.
pub struct GraphTransformNet {
    network: GraphNetwork,
    stepper: Stepper<GraphNetwork>,
    groups: Vec<Group>,
}

/// Graphs that are computed together, with their own memory.
#[derive(Default)]
struct Group {
    batch: Option<GraphBatch<f32>>,
    tape: GraphTape<f32>,
    d_output: Vec<f32>,
    grads: Vec<f32>,
}

/// Nodes of one group: some 100 µs of work at a width of 32, so that handing it to a thread costs
/// little, and small enough that a batch of short texts makes several.
const GROUP: usize = 512;

impl GraphTransformNet {
    /// Fresh weights from the seed.
    pub fn new(spec: &TransformSpec, optimizer: OptimizerSpec, seed: u64) -> Result<Self> {
        let network = GraphNetwork::new(&spec.to_graph_spec())?;
        optimizer.check()?;
        let params = network.init(seed);
        Ok(GraphTransformNet {
            stepper: Stepper::new(&network, params, optimizer),
            network,
            groups: Vec::new(),
        })
    }

    /// The network, a [`Model`] like any other: to verify, train by the loop, or save.
    pub fn network(&self) -> &GraphNetwork {
        &self.network
    }

    /// The weights.
    pub fn params(&self) -> &[f32] {
        &self.stepper.params
    }

    /// The weights, to load others.
    pub fn params_mut(&mut self) -> &mut [f32] {
        &mut self.stepper.params
    }

    /// The gradient.
    pub fn grads(&self) -> &[f32] {
        &self.stepper.grads
    }

    /// The nodes' rows before the head (before pooling), for one batch.
    pub fn encode(&self, batch: &GraphBatch<f32>) -> Result<Vec<f32>> {
        self.network.check(batch)?;
        let mut tape = GraphTape::default();
        self.network
            .compute_forward(&self.stepper.params, batch, &Pass::inference(), &mut tape);
        let layers = &self.network.spec().layers;
        let pooled = layers.contains(&LayerSpec::mean_pool());
        let last = layers.len() - if pooled { 3 } else { 2 };
        Ok(self.network.layer_output(&tape, last).to_vec())
    }

    /// Forward over many graphs, groups of them in parallel. The output's rows are in the order of
    /// the graphs.
    pub fn forward_batch(&mut self, graphs: &[GraphBatch<f32>], pass: &Pass) -> Result<Vec<f32>> {
        for graph in graphs {
            self.network.check(graph)?;
        }
        let mut cuts = vec![0];
        let mut nodes = 0;
        for (i, graph) in graphs.iter().enumerate() {
            if nodes > 0 && nodes + graph.graph().nodes() > GROUP {
                cuts.push(i);
                nodes = 0;
            }
            nodes += graph.graph().nodes();
        }
        cuts.push(graphs.len());
        self.groups.resize_with(cuts.len() - 1, Group::default);
        for (group, cut) in self.groups.iter_mut().zip(cuts.windows(2)) {
            let members = graphs[cut[0]..cut[1]].iter();
            match &mut group.batch {
                Some(batch) => batch.fill(members)?,
                None => group.batch = Some(GraphBatch::union(&members.collect::<Vec<_>>())?),
            }
        }
        let (network, params) = (&self.network, &self.stepper.params[..]);
        parallel::for_each_mut(&mut self.groups, true, |_, group| {
            let batch = group.batch.as_ref().expect("set above");
            network.compute_forward(params, batch, pass, &mut group.tape);
        });
        let outputs = self.groups.iter().map(|g| network.output(&g.tape));
        Ok(outputs.flatten().copied().collect())
    }

    /// Adds to the gradient, given that of the last [`GraphTransformNet::forward_batch`]'s output.
    pub fn backward_batch(&mut self, d_output: &[f32], pass: &Pass) -> Result<()> {
        let network = &self.network;
        let lengths: usize = self
            .groups
            .iter()
            .map(|g| network.output(&g.tape).len())
            .sum();
        if lengths != d_output.len() {
            return Err(Error::invalid(
                "gradient of the output",
                format!("{} numbers", d_output.len()),
                format!("{lengths}, as the last forward_batch put out"),
            ));
        }
        let mut rest = d_output;
        for group in &mut self.groups {
            let (own, others) = rest.split_at(network.output(&group.tape).len());
            group.d_output.clear();
            group.d_output.extend_from_slice(own);
            rest = others;
        }
        let params = &self.stepper.params[..];
        parallel::for_each_mut(&mut self.groups, true, |_, group| {
            group.grads.resize(params.len(), 0.0);
            let batch = group.batch.as_ref().expect("set by forward_batch");
            let grads = Grads::params(&mut group.grads);
            network.compute_backward(params, batch, pass, &mut group.tape, &group.d_output, grads);
        });
        for group in &self.groups {
            for (total, &g) in self.stepper.grads.iter_mut().zip(&group.grads) {
                *total += g;
            }
        }
        Ok(())
    }

    /// Forgets the gradient; in chunks on all threads above the size from which that pays.
    pub fn zero_grad(&mut self) {
        // 64k zeros take some 5 µs, as much as waking a thread.
        const CHUNK: usize = 1 << 16;
        let parallel = self.stepper.grads.len() >= 4 * CHUNK;
        parallel::for_each_chunk(&mut self.stepper.grads, CHUNK, parallel, |_, g| g.fill(0.0));
    }

    /// One optimizer step with the gradient. Chunks of the weights go to threads above the
    /// optimizer's measured size. A number that is not finite is an error that changes nothing.
    pub fn step(&mut self, lr: f64) -> Result<()> {
        let steps = self.stepper.optimizer.steps();
        self.stepper
            .update(&self.network, &Clip::default(), lr)
            .map_err(|bad| bad.into_error(steps, ADVICE))?;
        Ok(())
    }

    /// Forward, loss, backward and update of one batch in one go; see the module's text. Returns the
    /// loss before the update. A gradient that is not finite is an error after which the weights
    /// may be half updated: load others.
    pub fn fused_step(
        &mut self,
        batch: &GraphBatch<f32>,
        target: &Target<f32>,
        loss: Loss,
        pass: &Pass,
        lr: f64,
    ) -> Result<f32> {
        let lesson = Lesson {
            loss,
            input: batch,
            target,
            pass,
        };
        let steps = self.stepper.optimizer.steps();
        let clip = Clip::default();
        self.stepper
            .fused_step(&self.network, &lesson, &clip, lr, &mut ())
            .map(|stepped| stepped.loss as f32)
            .map_err(|error| match error {
                StepError::NotFinite(bad) => bad.into_error(steps, ADVICE),
                StepError::Other(error) => error,
            })
    }
}

const ADVICE: &str = "lower the rate or look at the data";

/// Characters as a graph: a node each, edges to the next and the previous character, and skip edges
/// over `skips` characters in both directions.
pub fn text_graph(characters: usize, skips: &[usize]) -> Graph {
    let (mut sources, mut targets) = (Vec::new(), Vec::new());
    for &skip in std::iter::once(&1).chain(skips.iter().filter(|&&s| s > 1)) {
        for i in skip..characters {
            let (a, b) = ((i - skip) as u32, i as u32);
            sources.extend([a, b]);
            targets.extend([b, a]);
        }
    }
    Graph::from_checked(characters, sources, targets, vec![0, characters as u32])
}

/// The characters of a text as a batch: ids by their place in the alphabet, one more id for what is
/// not in it (or masked).
pub fn encode_text(text: &str, alphabet: &str, skips: &[usize]) -> Result<GraphBatch<f32>> {
    let letters: Vec<char> = alphabet.chars().collect();
    let ids: Vec<u32> = text
        .chars()
        .map(|c| {
            let place = letters.iter().position(|&l| l == c);
            place.unwrap_or(letters.len()) as u32
        })
        .collect();
    GraphBatch::ids(
        Arc::new(text_graph(ids.len(), skips)),
        letters.len() + 1,
        &ids,
    )
}
