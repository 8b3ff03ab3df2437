//! Mistakes that other implementations were found to make, each with the test that would show it.
//! (Those in a gradient are mutants in `checks` and in the DAG's tests; the temperature's is in
//! `sinkhorn`.)

use std::sync::Arc;

use super::data::karate_club;
use super::task::{LinkTask, NodeTask, train};
use super::*;
use crate::optim::OptimizerSpec;
use crate::rng::Key;
use crate::train::{Experiment, Session, Task};
use crate::{Loss, Model, Pass, Target, parallel};

fn experiment(name: &str) -> Experiment {
    let path = format!(
        "{}/../../experiments/{name}.toml",
        env!("CARGO_MANIFEST_DIR")
    );
    Experiment::read(path).unwrap()
}

/// More weights than the size from which `zero_grad` and `step` go to threads.
fn large_net() -> GraphTransformNet {
    let spec = TransformSpec {
        vocabulary: 12,
        embedding: 380,
        widths: vec![380, 380],
        attention_heads: None,
        head: Head::Graphs,
        out: 3,
    };
    let net = GraphTransformNet::new(&spec, OptimizerSpec::adam(0.01), 0).unwrap();
    assert!(net.params().len() > 1 << 18);
    net
}

#[test]
fn zero_grad_and_step_reach_every_weight_on_any_number_of_threads() {
    let run = |threads: usize| {
        parallel::with_threads(threads, || {
            let mut net = large_net();
            let batch = encode_text("abcdefghijklabcdefghijkl", "abcdefghijk", &[2]).unwrap();
            let pass = Pass::training(Key::new(0));
            let y = net
                .forward_batch(std::slice::from_ref(&batch), &pass)
                .unwrap();
            net.backward_batch(&[0.3, -0.2, 0.5][..y.len()], &pass)
                .unwrap();
            let before = net.params().to_vec();
            net.step(0.01).unwrap();
            // The first step of Adam moves everything that has a gradient by the rate.
            for ((new, old), grad) in net.params().iter().zip(&before).zip(net.grads()) {
                assert_eq!(*grad != 0.0, new != old, "{grad} {old} {new}");
            }
            let moved = net.params().iter().zip(&before).filter(|(a, b)| a != b);
            assert!(moved.count() > 1 << 18);
            net.zero_grad();
            assert!(net.grads().iter().all(|&g| g == 0.0));
            net.params().to_vec()
        })
    };
    let one = run(1);
    assert!(one == run(2) && one == run(7));
}

#[test]
fn the_loss_falls_and_the_optimizer_has_stepped() {
    let mut net = large_net();
    let batch = encode_text("abcabcdabcabcd", "abcdefghijk", &[2]).unwrap();
    let target = Target::classes(vec![2]);
    let mut losses = Vec::new();
    for step in 0..5 {
        let pass = Pass::training(Key::new(0).step(step));
        let loss = net.fused_step(&batch, &target, Loss::CrossEntropy, &pass, 1e-3);
        losses.push(loss.unwrap());
    }
    assert!(losses.windows(2).all(|w| w[1] < w[0]), "{losses:?}");
    let mut experiment = experiment("karate");
    experiment.train.epochs = 40;
    experiment.train.evaluate_every = 1;
    let folder = tempfile::tempdir().unwrap();
    let run = folder.path().join("run");
    train(&mut Session::new(experiment).in_folder(&run)).unwrap();
    let metrics = std::fs::read_to_string(run.join("metrics.csv")).unwrap();
    let mut lines = metrics.lines();
    let header: Vec<&str> = lines.next().unwrap().split(',').collect();
    let column = header.iter().position(|&h| h == "train_loss").unwrap();
    let losses: Vec<f64> = lines
        .map(|line| line.split(',').nth(column).unwrap().parse().unwrap())
        .collect();
    assert_eq!(losses.len(), 40);
    // Two labels and no dropout: gradient descent goes down almost always.
    let falls = losses.windows(2).filter(|w| w[1] < w[0]).count();
    assert!(falls > 35, "{falls} of 39: {losses:?}");
}

#[test]
fn evaluation_asks_the_model() {
    let spec: GraphSpec = experiment("karate").model_as().unwrap();
    let mut nodes = NodeTask::new(&spec, karate_club().unwrap()).unwrap();
    let pairs: GraphSpec = toml::from_str(
        "features = 34\nlayers = [{ kind = \"gcn\", out = 8 }, { kind = \"pair_dot\" }]",
    )
    .unwrap();
    let mut links = LinkTask::new(&pairs, karate_club().unwrap().batch, 0).unwrap();
    let figures = |metrics: crate::train::Metrics| -> Vec<f64> {
        metrics.into_iter().map(|(_, value)| value).collect()
    };
    let (a, b) = (nodes.model().init(0), nodes.model().init(1));
    let at_a = figures(nodes.evaluate(&a, 0).unwrap());
    assert_ne!(at_a, figures(nodes.evaluate(&b, 0).unwrap()));
    assert_eq!(at_a, figures(nodes.evaluate(&a, 1).unwrap()));
    let (a, b) = (links.model().init(0), links.model().init(1));
    let at_a = figures(links.evaluate(&a, 0).unwrap());
    assert_ne!(at_a, figures(links.evaluate(&b, 0).unwrap()));
}

/// Neighbours are found by index: the time of a pass grows with the edges. Searching the edge list
/// for every node, or a list of neighbours for every pair, would take 10¹⁰ steps here.
#[test]
fn nothing_is_searched_in_a_graph_of_100_000_edges_at_one_hub() {
    let start = std::time::Instant::now();
    let nodes = 100_001;
    let sources: Vec<u32> = (1..nodes as u32).collect();
    let targets = vec![0; sources.len()];
    let graph = Arc::new(Graph::new(nodes, &sources, &targets).unwrap());
    let layers = r#"[{"kind": "gcn", "out": 2}, {"kind": "sage", "out": 2},
        {"kind": "message_passing", "out": 1}]"#;
    let spec = format!(r#"{{"features": 1, "layers": {layers}}}"#);
    let network = GraphNetwork::new(&serde_json::from_str(&spec).unwrap()).unwrap();
    let batch = GraphBatch::dense(graph.clone(), 1, vec![1.0; nodes]).unwrap();
    let mut tape = GraphTape::default();
    let params = network.init(0);
    network.compute_forward(&params, &batch, &Pass::inference(), &mut tape);
    let mut pairs = Vec::new();
    negative_pairs(&graph, 100_000, Key::new(0), &mut pairs);
    assert!(pairs.iter().all(|p| !graph.has_edge(p[0], p[1])));
    let seconds = start.elapsed().as_secs_f64();
    // Some 20 ms alone on the machine.
    assert!(seconds < 5.0, "{seconds} s");
}
