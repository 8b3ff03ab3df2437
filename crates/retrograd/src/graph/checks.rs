//! The verifier's whole chain on every layer, and deliberate faults that it must catch.

use std::sync::Arc;

use super::*;
use crate::rng::{Key, Stream};
use crate::verify::mutants::{FaultKind, Faulty, ModelFault, Transform};
use crate::verify::{self, Options, Subject};
use crate::{Grads, Loss, Model, Pass, Target, parallel};

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
    passes_on(subject, &mut verify::Cpu);
}

pub(super) fn passes_on<M: Model>(subject: &Subject<'_, M>, device: &mut dyn verify::Device<M>) {
    let report = verify::check_on(subject, device, &options()).unwrap();
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
    if network.spec().layers.contains(&LayerSpec::pair_dot()) {
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
    (
        r#"{"features": 3, "layers": [{"kind": "dense", "out": 4}, {"kind": "concat", "with": -1},
        {"kind": "kan", "out": 3, "grid": 4, "degree": 3, "range": [-3, 3]},
        {"kind": "gcn", "out": 2}]}"#,
        false,
    ),
    (
        r#"{"features": 5, "layers": [{"kind": "dropout", "p": 0.3}, {"kind": "dense", "out": 4},
        {"kind": "tanh"}, {"kind": "add", "with": 2}, {"kind": "dense", "out": 2, "bias": false}]}"#,
        true,
    ),
];

#[test]
fn a_skip_cannot_read_sparse_features() {
    let json = r#"{"features": 5, "layers": [{"kind": "dropout", "p": 0.3}, {"kind": "gcn", "out": 5},
        {"kind": "add", "with": 0}]}"#;
    let network = GraphNetwork::new(&spec(json)).unwrap();
    let graph = topology();
    let batch = GraphBatch::sparse(graph, 5, &[0, 3], &[1, 2], &[1.0_f32, 2.0]).unwrap();
    let message = network.check(&batch).unwrap_err().to_string();
    assert!(message.contains("layers[2] (add)"), "{message}");
}

fn every_layer_passes_on(mut check: impl FnMut(&Subject<'_, GraphNetwork>)) {
    for &(json, sparse) in SPECS {
        for sparse in [false, true].into_iter().filter(|s| !s || sparse) {
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
            check(&subject);
        }
    }
}

#[test]
fn every_layer_passes_the_whole_chain_on_isolated_nodes_self_loops_and_empty_graphs() {
    every_layer_passes_on(passes);
}

#[cfg(feature = "gpu")]
#[test]
fn every_layer_passes_the_whole_chain_on_a_gpu() {
    let gpu = crate::gpu::Gpu::open(&crate::gpu::Choice::Auto).unwrap();
    let mut device = crate::gpu::GpuVerifier::new(&gpu);
    every_layer_passes_on(|subject| passes_on(subject, &mut device));
}

/// The faults that graph layers bring, on graphs with isolated nodes, self-loops and an empty one:
/// central differences alone see each of them, and nothing is seen without.
#[test]
fn every_mutant_is_caught_and_the_unchanged_model_is_not() {
    let mut seen = 0;
    for (name, json) in crate::layer::small_graphs() {
        let network = GraphNetwork::new(&spec(json)).unwrap();
        let (batch, target) = batch_for(&network, false);
        let params = network.init(5);
        let report = |network: &GraphNetwork| {
            let subject = Subject::new(json, network, &params, &batch, &target, Loss::Mse).unwrap();
            verify::check_on(&subject, &mut verify::Cpu, &options()).unwrap()
        };
        let layers = &network.spec().layers;
        let kind = name.split(' ').next().unwrap();
        let layer = layers.iter().position(|l| l.kind() == kind).unwrap();
        let mut faults = layers[layer].spec().faults(&*network.places[layer].layer);
        if faults.is_empty() {
            continue;
        }
        let right = report(&network);
        assert!(right.passed(), "{name}\n{}", right.table());
        faults.push(FaultKind::DParam(0, Transform::Zero).into());
        for fault in faults {
            let network = GraphNetwork::new(&spec(json)).unwrap();
            if network.places[layer].tensors[0].is_empty() && fault.words.contains("tensor") {
                continue;
            }
            let width = network.places[layer].shape.clone();
            let shapes = [vec![network.spec().features.unwrap_or(0)], width];
            let wrong = network.wrapping(layer, |inner| fault.wrap(inner, shapes, false));
            let report = report(&wrong);
            let differs = |r: &verify::Row| {
                r.link == verify::Link::Differences && r.verdict == verify::Verdict::Fail
            };
            let words = &fault.words;
            assert!(
                report.rows.iter().any(differs),
                "{name}: {words}\n{}",
                report.table()
            );
            seen += 1;
        }
    }
    assert!(seen >= 12, "{seen} faults");
}

#[test]
fn a_tape_that_is_not_filled_anew_is_noticed() {
    let json = crate::layer::small_graphs()[1].1;
    let network = GraphNetwork::new(&spec(json)).unwrap();
    let (batch, target) = batch_for(&network, false);
    let params = network.init(5);
    let faulty = Faulty::new(&network, ModelFault::StaleTape, false, 9);
    let subject = Subject::new(json, &faulty, &params, &batch, &target, Loss::Mse).unwrap();
    let report = verify::check_on(&subject, &mut verify::Cpu, &options()).unwrap();
    assert!(!report.passed(), "{}", report.table());
}

#[test]
fn a_plan_computes_nothing_below_the_lowest_trained_layer() {
    let json = r#"{"features": 4, "layers": [{"kind": "gcn", "out": 3}, {"kind": "relu"},
        {"kind": "dropout", "p": 0.5}, {"kind": "gcn", "out": 2}]}"#;
    let mut network = GraphNetwork::new(&spec(json)).unwrap();
    let layers = |network: &GraphNetwork| -> Vec<usize> {
        let plan = network.plan(true, false, true);
        plan.backward.iter().map(|step| step.layer).collect()
    };
    assert_eq!(layers(&network), [3, 2, 1, 0]);
    let text = network.plan_text();
    for words in ["gcn", "[3] per node", "complete: 0.lin.weight, 0.bias"] {
        assert!(text.contains(words), "{words}: {text}");
    }
    for name in ["0.lin.weight", "0.bias"] {
        network.layout_mut().freeze(name).unwrap();
    }
    assert_eq!(layers(&network), [3]);
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
                network.compute_forward(&params, &batch, &pass, &mut tape);
                let y = network.output(&tape).to_vec();
                let mut d_params = vec![0.0; params.len()];
                let mut d_input = vec![0.0; x.len()];
                let grads = Grads::both(&mut d_params, &mut d_input);
                network.compute_backward(&params, &batch, &pass, &mut tape, &y, grads);
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
        let loss = Loss::CrossEntropy.compute(&y, &target, Some(&mut d_y));
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
            r#"{"features": 3, "layers": [{"kind": "relu"}, {"kind": "add", "with": 1}]}"#,
            "layers[1].with",
        ),
        (
            r#"{"features": 3, "layers": [{"kind": "relu"}, {"kind": "sum_pool"},
            {"kind": "add", "with": 0}]}"#,
            "layer 0, a row per node",
        ),
        (
            r#"{"features": 3, "layers": [{"kind": "conv2d", "out": 2, "kernel": 3}]}"#,
            "images: conv2d",
        ),
        (
            r#"{"features": 3, "layers": [{"kind": "normalize"}]}"#,
            "layers[0] (normalize)",
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
        network.compute_forward(&params, &batch, &Pass::inference(), &mut tape);
        let y = network.output(&tape).to_vec();
        assert!(y.iter().all(|v| v.is_finite()), "{json}");
        let mut d = vec![0.0; params.len()];
        let pass = Pass::inference();
        network.compute_backward(&params, &batch, &pass, &mut tape, &y, Grads::params(&mut d));
        assert!(d.iter().all(|v| v.is_finite()), "{json}");
    }
}
