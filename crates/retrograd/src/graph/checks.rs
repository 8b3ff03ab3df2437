//! The verifier's whole chain on every layer, and deliberate faults that it must catch.

use std::sync::Arc;

use super::layer::{Layer, PoolKind};
use super::wrong::{Mutant, Wrong, reborrow};
use super::*;
use crate::rng::{Key, Stream};
use crate::verify::{self, Options, Subject};
use crate::{Grads, Loss, Model, Pass, Scalar, Target, parallel};

fn options() -> Options {
    let mut options = Options::default();
    options
        .optimizers
        .retain(|(name, _)| name == "sgd" || name == "adam");
    options.steps = 3;
    options.thread_steps = 3;
    options
}

pub(super) fn passes<M: Model>(subject: &Subject<'_, M>) {
    let report = verify::check_on(subject, &mut verify::Cpu, &options()).unwrap();
    // Adam divides by the size of the gradient: where that is rounding alone (the bias before a
    // layer norm), its trajectory is not defined, and the verifier says so. Nothing else may be
    // left unchecked.
    let fine = |row: &verify::Row| match row.verdict {
        verify::Verdict::Pass => true,
        verify::Verdict::Unchecked => {
            row.link == verify::Link::Trajectory && row.tensor.contains("adam")
        }
        verify::Verdict::Fail => false,
    };
    let good = !report.rows.is_empty() && report.rows.iter().all(fine);
    assert!(good, "{}\n{}", report.table(), report.summary());
}

fn floats(stream: &mut Stream, n: usize) -> Vec<f32> {
    (0..n).map(|_| stream.range(-1.0, 1.0) as f32).collect()
}

/// Two graphs and one without nodes; node 4 is isolated, node 5 has a self-loop and an edge twice.
fn topology() -> Arc<Graph> {
    let a = Graph::new(5, &[0, 1, 2, 3, 0, 2], &[1, 2, 3, 0, 2, 1]).unwrap();
    let empty = Graph::new(0, &[], &[]).unwrap();
    let rules = EdgeRules::keep();
    let b = Graph::build(4, &[0, 1, 1, 2, 3, 0], &[0, 2, 2, 3, 1, 1], rules);
    Arc::new(Graph::union([&a, &empty, &b.unwrap().graph]))
}

fn spec(json: &str) -> GraphSpec {
    serde_json::from_str(json).unwrap()
}

/// A batch that fits the spec, and class targets.
fn batch_for(network: &GraphNetwork, sparse: bool) -> (GraphBatch<f32>, Target<f32>) {
    let mut stream = Key::new(9).purpose("graph checks").stream();
    let graph = topology();
    let n = graph.nodes();
    let spec = network.spec();
    let mut batch = match spec.features {
        None => GraphBatch::ids(graph.clone(), 6, &[0, 1, 2, 3, 5, 0, 1, 0, 3]).unwrap(),
        Some(width) if sparse => {
            let keep: Vec<usize> = (0..n * width).filter(|i| i % 3 != 1).collect();
            let nodes: Vec<u32> = keep.iter().map(|i| (i / width) as u32).collect();
            let features: Vec<u32> = keep.iter().map(|i| (i % width) as u32).collect();
            let values = floats(&mut stream, keep.len());
            GraphBatch::sparse(graph.clone(), width, &nodes, &features, &values).unwrap()
        }
        Some(width) => {
            GraphBatch::dense(graph.clone(), width, floats(&mut stream, n * width)).unwrap()
        }
    };
    if spec.edge_weight {
        let weights: Vec<f32> = floats(&mut stream, graph.edges())
            .iter()
            .map(|w| 1.0 + 0.5 * w)
            .collect();
        batch = batch.with_edge_weights(&weights).unwrap();
    }
    if spec.edge_features > 0 {
        let values = floats(&mut stream, graph.edges() * spec.edge_features);
        batch = batch
            .with_edge_features(spec.edge_features, &values)
            .unwrap();
    }
    if network.spec().layers.contains(&GraphLayerSpec::PairDot {}) {
        let pairs = vec![[0, 1], [2, 2], [3, 8], [8, 3]];
        batch = batch.with_pairs(pairs).unwrap();
    }
    network.check(&batch).unwrap();
    let values = network.output_rows(&batch) * network.output_width();
    (batch, Target::values(floats(&mut stream, values)))
}

const SPECS: &[(&str, bool)] = &[
    (
        r#"{"features": 7, "layers": [{"kind": "dropout", "p": 0.4}, {"kind": "gcn", "out": 5},
        {"kind": "relu"}, {"kind": "dropout", "p": 0.5}, {"kind": "gcn", "out": 3}]}"#,
        true,
    ),
    (
        r#"{"features": 4, "edge_weight": true, "layers": [{"kind": "gcn", "out": 6},
        {"kind": "tanh"}, {"kind": "gcn", "out": 2}]}"#,
        false,
    ),
    (
        r#"{"features": 5, "layers": [{"kind": "sage", "out": 4}, {"kind": "silu"},
        {"kind": "sage", "out": 6}, {"kind": "max_pool"}]}"#,
        true,
    ),
    (
        r#"{"features": 3, "layers": [{"kind": "gin", "out": 5}, {"kind": "gin", "out": 4},
        {"kind": "sum_pool"}, {"kind": "dense", "out": 2}]}"#,
        true,
    ),
    (
        r#"{"features": 3, "edge_features": 2, "layers": [{"kind": "gine", "out": 4},
        {"kind": "gelu"}, {"kind": "gine", "out": 3}, {"kind": "mean_pool"}]}"#,
        false,
    ),
    (
        r#"{"features": 6, "layers": [{"kind": "dropout", "p": 0.2}, {"kind": "gat", "out": 3,
        "heads": 2, "dropout": 0.3}, {"kind": "elu"}, {"kind": "gat", "out": 2}]}"#,
        true,
    ),
    (
        r#"{"features": 5, "layers": [{"kind": "gatv2", "out": 9, "heads": 2, "dropout": 0.25},
        {"kind": "layer_norm"}, {"kind": "gatv2", "out": 2}]}"#,
        true,
    ),
    (
        r#"{"layers": [{"kind": "embedding", "vocabulary": 6, "out": 4},
        {"kind": "message_passing", "out": 4}, {"kind": "elu", "alpha": 0.5}, {"kind": "add", "with": 0},
        {"kind": "layer_norm"}, {"kind": "self_attention", "heads": 2}, {"kind": "add", "with": 3},
        {"kind": "dense", "out": 3}]}"#,
        false,
    ),
    (
        r#"{"features": 4, "layers": [{"kind": "sage", "out": 5}, {"kind": "pair_dot"}]}"#,
        false,
    ),
];

#[test]
fn every_layer_passes_the_whole_chain_on_isolated_nodes_self_loops_and_empty_graphs() {
    for &(json, sparse) in SPECS {
        for sparse in [false, sparse] {
            let network = GraphNetwork::new(&spec(json)).unwrap();
            let (batch, target) = batch_for(&network, sparse);
            let mut params = network.init(3);
            // ε of gin is 0 at first: move everything off special values.
            let mut stream = Key::new(4).purpose("shift").stream();
            params
                .iter_mut()
                .for_each(|p| *p += 0.1 * stream.normal() as f32);
            let loss = Loss::Mse;
            let subject = Subject::new(json, &network, &params, &batch, &target, loss).unwrap();
            passes(&subject);
        }
    }
}

/// Where the backward pass is wrong.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fault {
    None,
    TransposedAdjacency,
    MissingDegree,
    SelfLoopTwice,
    SoftmaxOverSources,
    WrongArgmax,
    MissingWeightGradient,
    StaleTape,
}

struct Faulty {
    inner: GraphNetwork,
    fault: Fault,
}

impl Faulty {
    /// What the wrong backward pass believes forward left.
    fn corrupt<T: Scalar>(&self, batch: &GraphBatch<T>, tape: &mut GraphTape<T>) {
        let graph = batch.graph();
        for (layer, own) in self.inner.layers.iter().zip(&mut tape.layers) {
            match (self.fault, layer) {
                (Fault::MissingDegree, Layer::Convolution(_)) => own.saved.d.fill(T::ONE),
                (Fault::SelfLoopTwice, Layer::Convolution(_)) => {
                    let two = T::from_f64(2.0);
                    for (p, &edge) in own.saved.c.iter_mut().zip(&graph.looped().edge) {
                        if edge == LOOP {
                            *p *= two;
                        }
                    }
                }
                (Fault::SoftmaxOverSources, Layer::Gat(gat)) => {
                    // Softmax's weights renormalised over the out-edges of every source.
                    let pattern = &graph.looped().pattern;
                    let alpha = &mut own.attention.alpha;
                    for j in 0..graph.nodes() {
                        for h in 0..gat.heads {
                            let at = |q: usize| pattern.slot[q] as usize * gat.heads + h;
                            let sum: T = pattern.by_column.range(j).map(|q| alpha[at(q)]).sum();
                            for q in pattern.by_column.range(j) {
                                alpha[at(q)] /= sum;
                            }
                        }
                    }
                }
                (Fault::WrongArgmax, Layer::Pool(pool)) if pool.kind == PoolKind::Max => {
                    let n = graph.nodes() as u32;
                    for node in own.saved.indices.iter_mut().filter(|i| **i < n) {
                        *node = (*node + 1) % n;
                    }
                }
                _ => {}
            }
        }
    }
}

impl Wrong for Faulty {
    type Right = GraphNetwork;

    fn right(&self) -> &GraphNetwork {
        &self.inner
    }
    fn right_mut(&mut self) -> &mut GraphNetwork {
        &mut self.inner
    }
    fn skips_forward<T: Scalar>(&self, tape: &GraphTape<T>) -> bool {
        self.fault == Fault::StaleTape && !tape.layers.is_empty()
    }
    fn backward<T: Scalar>(
        &self,
        params: &[T],
        input: &GraphBatch<T>,
        pass: &Pass,
        tape: &mut GraphTape<T>,
        d_output: &[T],
        mut grads: Grads<'_, T>,
    ) {
        self.corrupt(input, tape);
        let inner = &self.inner;
        let own = reborrow(&mut grads);
        if self.fault == Fault::TransposedAdjacency {
            let g = input.graph();
            let (sources, targets) = (g.sources(), g.targets());
            let rules = EdgeRules::keep();
            let reversed = Graph::build(g.nodes(), targets, sources, rules)
                .unwrap()
                .graph;
            let width = input.width();
            let features = crate::Batch::values(input).to_vec();
            let reversed = GraphBatch::dense(Arc::new(reversed), width, features).unwrap();
            inner.backward(params, &reversed, pass, tape, d_output, own);
        } else {
            inner.backward(params, input, pass, tape, d_output, own);
        }
        if self.fault == Fault::MissingWeightGradient
            && let Some(d) = grads.params
        {
            d[inner.layout().tensors()[0].range()].fill(T::ZERO);
        }
    }
}

#[test]
fn every_mutant_is_caught_and_the_unchanged_model_is_not() {
    let gcn = r#"{"features": 4, "layers": [{"kind": "gcn", "out": 3}, {"kind": "tanh"},
        {"kind": "gcn", "out": 2}]}"#;
    let gcn_weighted = r#"{"features": 4, "edge_weight": true, "layers": [{"kind": "gcn", "out": 3},
        {"kind": "tanh"}, {"kind": "gcn", "out": 2}]}"#;
    let passing = r#"{"features": 4, "layers": [{"kind": "message_passing", "out": 5},
        {"kind": "tanh"}, {"kind": "message_passing", "out": 3}]}"#;
    let sage = r#"{"features": 4, "layers": [{"kind": "sage", "out": 3}, {"kind": "tanh"},
        {"kind": "sage", "out": 2}, {"kind": "max_pool"}]}"#;
    let gat = r#"{"features": 4, "layers": [{"kind": "gat", "out": 3, "heads": 2}]}"#;
    for (fault, json) in [
        (Fault::None, gcn),
        (Fault::None, gat),
        (Fault::TransposedAdjacency, gcn),
        (Fault::TransposedAdjacency, passing),
        (Fault::MissingDegree, passing),
        (Fault::MissingDegree, sage),
        (Fault::SelfLoopTwice, gcn_weighted),
        (Fault::SoftmaxOverSources, gat),
        (Fault::WrongArgmax, sage),
        (Fault::MissingWeightGradient, passing),
        (Fault::MissingWeightGradient, gcn),
        (Fault::StaleTape, gcn),
    ] {
        let inner = GraphNetwork::new(&spec(json)).unwrap();
        let (batch, target) = batch_for(&inner, false);
        let params = inner.init(5);
        let faulty = Mutant(Faulty { inner, fault });
        let subject = Subject::new(json, &faulty, &params, &batch, &target, Loss::Mse).unwrap();
        let report = verify::check_on(&subject, &mut verify::Cpu, &options()).unwrap();
        assert_eq!(
            report.passed(),
            fault == Fault::None,
            "{fault:?}\n{}",
            report.table()
        );
        if fault != Fault::None && fault != Fault::StaleTape {
            // Central differences alone see it.
            let link = report
                .rows
                .iter()
                .any(|r| r.link == verify::Link::Differences && r.verdict == verify::Verdict::Fail);
            assert!(link, "{fault:?}\n{}", report.table());
        }
    }
}

/// A power-law graph: hubs with thousands of edges.
fn power_law(nodes: usize, edges: usize) -> Graph {
    let mut stream = Key::new(1).purpose("power law").stream();
    let mut draw = || {
        let u = stream.uniform();
        ((nodes as f64 * u * u * u * u) as u32).min(nodes as u32 - 1)
    };
    let (mut sources, mut targets) = (Vec::new(), Vec::new());
    for e in 0..edges {
        let (a, b) = (draw(), (e % nodes) as u32);
        sources.push(if e % 2 == 0 { a } else { b });
        targets.push(if e % 2 == 0 { b } else { a });
    }
    Graph::build(nodes, &sources, &targets, EdgeRules::keep())
        .unwrap()
        .graph
}

#[test]
fn hubs_give_the_same_bits_on_1_2_and_7_threads_and_in_ten_runs() {
    let graph = Arc::new(power_law(20_000, 100_000));
    let rows = &graph.adjacency().pattern.by_row;
    let largest = (0..graph.nodes()).map(|i| rows.degree(i)).max().unwrap();
    assert!(largest > 1000, "the largest hub has {largest} edges");
    let layers = [
        r#"{"kind": "gcn", "out": 16}"#,
        r#"{"kind": "sage", "out": 16}"#,
        r#"{"kind": "gat", "out": 8, "heads": 2}"#,
        r#"{"kind": "gatv2", "out": 8, "heads": 2}"#,
        r#"{"kind": "gin", "out": 16}"#,
    ];
    let mut stream = Key::new(2).purpose("hubs").stream();
    let x = floats(&mut stream, graph.nodes() * 12);
    for layer in layers {
        let json = format!(
            r#"{{"features": 12, "layers": [{layer}, {{"kind": "relu"}},
            {{"kind": "dropout", "p": 0.5}}, {layer}]}}"#
        );
        let network = GraphNetwork::new(&spec(&json)).unwrap();
        let batch = GraphBatch::dense(graph.clone(), 12, x.clone()).unwrap();
        let params = network.init(0);
        let pass = Pass::training(Key::new(7).step(3));
        let run = |threads: usize| {
            parallel::with_threads(threads, || {
                let mut tape = GraphTape::default();
                network.forward(&params, &batch, &pass, &mut tape);
                let y = network.output(&tape).to_vec();
                let mut d_params = vec![0.0; params.len()];
                let mut d_input = vec![0.0; x.len()];
                let grads = Grads::both(&mut d_params, &mut d_input);
                network.backward(&params, &batch, &pass, &mut tape, &y, grads);
                [y, d_params, d_input].map(|v| v.iter().map(|x| x.to_bits()).collect::<Vec<_>>())
            })
        };
        let one = run(1);
        assert!(one[1].iter().any(|&b| b != 0));
        for threads in [2, 7, 1, 2, 3, 2, 7, 2, 4, 2] {
            assert!(one == run(threads), "{layer} on {threads} threads");
        }
    }
}

#[test]
fn the_fused_step_follows_the_trajectory_of_gradient_then_update() {
    let spec = TransformSpec {
        vocabulary: 6,
        embedding: 8,
        widths: vec![8, 12, 12],
        attention_heads: Some(2),
        head: Head::Nodes,
        out: 5,
    };
    let optimizer = crate::optim::OptimizerSpec::adam(0.01);
    let batch = encode_text("abcabdeacbe", "abcde", &[2, 4]).unwrap();
    let nodes = batch.graph().nodes();
    let target = Target::classes((0..nodes as u32).map(|i| i % 5).collect());
    let mut plain = GraphTransformNet::new(&spec, optimizer, 1).unwrap();
    let mut fused = GraphTransformNet::new(&spec, optimizer, 1).unwrap();
    let mut losses = Vec::new();
    for step in 0..20 {
        let pass = Pass::training(Key::new(0).step(step));
        plain.zero_grad();
        let y = plain
            .forward_batch(std::slice::from_ref(&batch), &pass)
            .unwrap();
        let mut d_y = vec![0.0; y.len()];
        let loss = Loss::CrossEntropy.evaluate(&y, &target, Some(&mut d_y));
        plain.backward_batch(&d_y, &pass).unwrap();
        plain.step(0.01).unwrap();
        let other = fused
            .fused_step(&batch, &target, Loss::CrossEntropy, &pass, 0.01)
            .unwrap();
        assert_eq!(loss.to_bits(), other.to_bits(), "step {step}");
        assert_eq!(plain.params(), fused.params(), "step {step}");
        losses.push(loss);
    }
    assert!(losses[19] < 0.7 * losses[0], "{losses:?}");
    assert_eq!(plain.encode(&batch).unwrap().len(), nodes * 12);
}

#[test]
fn a_batch_of_graphs_gives_what_each_gives_alone() {
    let spec = TransformSpec {
        vocabulary: 4,
        embedding: 6,
        widths: vec![6],
        attention_heads: Some(3),
        head: Head::Graphs,
        out: 2,
    };
    let optimizer = crate::optim::OptimizerSpec::sgd(0.1);
    let mut net = GraphTransformNet::new(&spec, optimizer, 0).unwrap();
    let texts = ["abcabc", "", "a", "bbacabacbacbacbacbac"];
    let graphs: Vec<_> = texts
        .iter()
        .map(|t| encode_text(t, "abc", &[3]).unwrap())
        .collect();
    let pass = Pass::inference();
    let together = net.forward_batch(&graphs, &pass).unwrap();
    assert_eq!(together.len(), 8);
    for (i, graph) in graphs.iter().enumerate() {
        let alone = net
            .forward_batch(std::slice::from_ref(graph), &pass)
            .unwrap();
        for (a, b) in alone.iter().zip(&together[2 * i..]) {
            // The products of a larger batch may be cut differently by the matrix kernel.
            assert!((a - b).abs() < 1e-6, "{i}: {a} {b}");
        }
    }
    assert!(net.backward_batch(&[0.0; 3], &pass).is_err());
}

#[test]
fn specs_that_do_not_fit_are_named() {
    let message = |json: &str| GraphNetwork::new(&spec(json)).err().unwrap().to_string();
    let cases = [
        (r#"{"features": 3, "layers": []}"#, "layers"),
        (r#"{"layers": [{"kind": "gcn", "out": 2}]}"#, "features"),
        (
            r#"{"features": 3, "layers": [{"kind": "gcn", "out": 0}]}"#,
            "layers[0].out (gcn)",
        ),
        (
            r#"{"features": 3, "layers": [{"kind": "gine", "out": 2}]}"#,
            "edge_features",
        ),
        (
            r#"{"features": 3, "layers": [{"kind": "dropout", "p": 1.0}]}"#,
            "layers[0].p",
        ),
        (
            r#"{"features": 3, "layers": [{"kind": "sum_pool"}, {"kind": "gcn", "out": 2}]}"#,
            "per graph",
        ),
        (
            r#"{"features": 3, "layers": [{"kind": "relu"}, {"kind": "add", "with": 0}]}"#,
            "layers[1].with",
        ),
        (
            r#"{"features": 3, "layers": [{"kind": "self_attention", "heads": 2}]}"#,
            "divisor",
        ),
        (
            r#"{"features": 3, "edge_weight": true, "layers": [{"kind": "relu"}]}"#,
            "edge_weight",
        ),
    ];
    for (json, part) in cases {
        let message = message(json);
        assert!(message.contains(part), "{json}: {message}");
    }
    let network = GraphNetwork::new(&spec(SPECS[8].0)).unwrap();
    let graph = topology();
    let x = vec![0.0_f32; graph.nodes() * 5];
    let wrong = GraphBatch::dense(graph, 5, x).unwrap();
    assert!(
        network
            .check(&wrong)
            .unwrap_err()
            .to_string()
            .contains("5 per node")
    );
}

#[test]
fn a_graph_without_edges_or_with_one_node_is_defined() {
    for &(json, _) in SPECS {
        let network = GraphNetwork::new(&spec(json)).unwrap();
        let spec = network.spec();
        let graph = Arc::new(Graph::new(1, &[], &[]).unwrap());
        let mut batch = match spec.features {
            Some(width) => GraphBatch::dense(graph, width, vec![0.5; width]).unwrap(),
            None => GraphBatch::ids(graph, 6, &[2]).unwrap(),
        };
        if spec.edge_weight {
            batch = batch.with_edge_weights(&[]).unwrap();
        }
        if spec.edge_features > 0 {
            batch = batch.with_edge_features(spec.edge_features, &[]).unwrap();
        }
        batch = batch.with_pairs(vec![[0, 0]]).unwrap();
        network.check(&batch).unwrap();
        let params = network.init(0);
        let mut tape = GraphTape::default();
        network.forward(&params, &batch, &Pass::inference(), &mut tape);
        let y = network.output(&tape).to_vec();
        assert!(y.iter().all(|v| v.is_finite()), "{json}");
        let mut d = vec![0.0; params.len()];
        let pass = Pass::inference();
        network.backward(&params, &batch, &pass, &mut tape, &y, Grads::params(&mut d));
        assert!(d.iter().all(|v| v.is_finite()), "{json}");
    }
}
