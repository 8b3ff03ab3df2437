//! Graphs, networks on a DAG and automata on the GPU: their bundles, every cut of their kernels,
//! wrong kernels, the same bits, and what a step costs.
#![cfg(feature = "gpu")]

mod gpu_helper;

use std::sync::Arc;

use gpu_helper::{gpu, gradients_only};
use retrograd::gpu::{
    Choice, Gpu, GpuNetwork, GpuOptimizer, GpuTrainOptions, GpuVerifier, Precision, Recorded,
};
use retrograd::graph::{Graph, GraphBatch, GraphNetwork};
use retrograd::logic::{LogicBatch, LogicCa, LogicSpec};
use retrograd::optim::OptimizerSpec;
use retrograd::rng::Key;
use retrograd::verify::{self, Bundle, Link, On, Options, Report, Subject, Verdict};
use retrograd::{Loss, Model, Target};

#[test]
fn every_bundle_of_graphs_dags_and_automata_agrees_on_the_gpu() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/reference");
    let options = Options {
        on: On::Gpu(Precision::F32),
        ..Options::default()
    };
    let (mut checked, mut unchecked) = (0, Vec::new());
    for entry in std::fs::read_dir(folder).unwrap() {
        let bundle = Bundle::read(entry.unwrap().path()).unwrap();
        let family = bundle.model.get("family").and_then(|f| f.as_str());
        let is_own = matches!(family, Some("graph" | "dag" | "logic_ca"));
        if !is_own || bundle.format != "retrograd-reference-1" {
            continue;
        }
        let report = verify::check_bundle(&bundle, &options).unwrap();
        for row in &report.rows {
            match row.verdict {
                Verdict::Pass => {}
                Verdict::Unchecked => unchecked.push(format!("{}: {}", row.model, row.tensor)),
                _ => panic!("{}{}", report.table(), report.summary()),
            }
        }
        checked += 1;
    }
    assert!(checked >= 10, "{checked}");
    // Rounding decides most elements of these two after AdamW's steps: gradients near 0 there, whose sign is
    // all that Adam looks at.
    unchecked.sort();
    assert_eq!(
        unchecked,
        [
            "graph_max_pool: after adamw",
            "logic_checkerboard: after adamw"
        ]
    );
}

/// Every node has an edge from the next; node 0 has `hub` in-edges and as many out-edges.
fn wheel(nodes: usize, hub: usize) -> Graph {
    let ring = (1..nodes as u32).map(|i| (i, i % (nodes as u32 - 1) + 1));
    let spokes = (1..=hub as u32).flat_map(|i| [(i, 0), (0, i)]);
    // More edges leave node 1 than reach it.
    let more = (3..nodes.min(12) as u32 - 1).map(|i| (1, i));
    let edges = ring.chain(spokes).chain(more).filter(|(a, b)| a != b);
    let (sources, targets): (Vec<u32>, Vec<u32>) = edges.unzip();
    Graph::new(nodes, &sources, &targets).unwrap()
}

fn numbers(len: usize, purpose: &str) -> Vec<f32> {
    let mut stream = Key::new(1).purpose(purpose).stream();
    (0..len).map(|_| stream.range(-1.0, 1.0) as f32).collect()
}

/// Gradients, of which one element of every tensor is differenced: that is the CPU's affair.
fn quick() -> Options {
    let mut options = gradients_only();
    options.coverage.all_up_to = 0;
    options.coverage.per_tensor = 1;
    options
}

/// Whether the device is within its bounds. (What differences can't resolve on a wheel, such as the
/// share of a softmax's scores that is equal for all, is the reference's affair.)
fn of_the_gpu(report: &Report) -> Result<(), String> {
    let mut rows = report.rows.iter().filter(|row| row.link == Link::Gpu);
    match rows.all(|row| row.verdict == Verdict::Pass) {
        true => Ok(()),
        false => Err(report.table()),
    }
}

struct Case {
    network: GraphNetwork,
    params: Vec<f32>,
    batch: GraphBatch<f32>,
    target: Target<f32>,
}

/// A network of layers on a wheel.
fn case(spec: &str, nodes: usize, hub: usize) -> Case {
    let network = GraphNetwork::new(&serde_json::from_str(spec).unwrap()).unwrap();
    let graph = Arc::new(wheel(nodes, hub));
    let spec = network.spec();
    let width = spec.features.unwrap();
    let x = numbers(nodes * width, "features");
    let mut batch = GraphBatch::dense(graph.clone(), width, x).unwrap();
    if spec.edge_weight {
        let weights = numbers(graph.edges(), "weights")
            .iter()
            .map(|w| 1.0 + 0.5 * w)
            .collect::<Vec<_>>();
        batch = batch.with_edge_weights(&weights).unwrap();
    }
    if spec.edge_features > 0 {
        let values = numbers(graph.edges() * spec.edge_features, "edges");
        batch = batch
            .with_edge_features(spec.edge_features, &values)
            .unwrap();
    }
    let last = nodes as u32 - 1;
    batch = batch
        .with_pairs(vec![[0, 1], [2, 2], [last, 0], [1, last]])
        .unwrap();
    let params = numbers(network.layout().len(), "params");
    let params = params.iter().map(|p| 0.6 * p).collect();
    let outputs = network.output_rows(&batch) * network.output_width();
    Case {
        network,
        params,
        batch,
        target: Target::values(numbers(outputs, "target")),
    }
}

impl Case {
    fn passes(&self, gpu: &Arc<Gpu>) -> Result<(), String> {
        let (model, loss) = (&self.network, Loss::Mse);
        let subject = Subject::new(
            "wheel",
            model,
            &self.params,
            &self.batch,
            &self.target,
            loss,
        )
        .unwrap();
        let mut device = GpuVerifier::new(gpu);
        match verify::check_on(&subject, &mut device, &quick()) {
            Ok(report) => of_the_gpu(&report),
            Err(error) => Err(error.to_string()),
        }
    }
}

/// Runs of 64 neighbours, four columns, 64 rows, and columns of more than 4096 rows.
#[test]
fn sums_over_graphs_agree_on_both_sides_of_every_cut() {
    let nets = [
        r#"{"features":5,"layers":[{"kind":"gcn","out":4},{"kind":"tanh"},{"kind":"gcn","out":3}]}"#,
        r#"{"features":3,"layers":[{"kind":"sage","out":5},{"kind":"tanh"},{"kind":"message_passing","out":2}]}"#,
        r#"{"features":4,"layers":[{"kind":"gat","out":3,"heads":2},{"kind":"tanh"},{"kind":"sum_pool"}]}"#,
        r#"{"features":3,"layers":[{"kind":"gatv2","out":6,"heads":3},{"kind":"tanh"},{"kind":"mean_pool"}]}"#,
        r#"{"features":2,"layers":[{"kind":"gin","out":5},{"kind":"tanh"},{"kind":"pair_dot"}]}"#,
    ];
    for (i, hub) in [1, 63, 64, 65, 129].into_iter().enumerate() {
        for (j, spec) in nets.iter().enumerate() {
            // All widths with every hub would take long: two of them each.
            if (i + j) % 5 < 2 {
                let nodes = [63, 64, 65][(i + j) % 3].max(hub + 2);
                let passes = case(spec, nodes, hub).passes(&gpu());
                assert!(passes.is_ok(), "{spec}, hub {hub}\n{}", passes.unwrap_err());
            }
        }
    }
    let many = r#"{"features":2,"layers":[{"kind":"gcn","out":2}]}"#;
    let passes = case(many, 4160, 3).passes(&gpu());
    assert!(passes.is_ok(), "{}", passes.unwrap_err());
}

/// Deliberately wrong kernels: the comparison must catch every one, and nothing without.
#[test]
fn wrong_kernels_of_graphs_are_caught() {
    let gcn = r#"{"features":5,"edge_weight":true,"layers":[{"kind":"gcn","out":4},{"kind":"tanh"},{"kind":"gcn","out":3}]}"#;
    let mean = r#"{"features":3,"layers":[{"kind":"message_passing","out":5},{"kind":"tanh"},{"kind":"sage","out":2}]}"#;
    let gat = r#"{"features":4,"layers":[{"kind":"gat","out":3,"heads":2},{"kind":"tanh"},{"kind":"mean_pool"}]}"#;
    let gatv2 = r#"{"features":3,"layers":[{"kind":"gatv2","out":6,"heads":3},{"kind":"tanh"},{"kind":"max_pool"}]}"#;
    let gine = r#"{"features":3,"edge_features":2,"layers":[{"kind":"gine","out":4},{"kind":"tanh"},{"kind":"gin","out":3},{"kind":"pair_dot"}]}"#;
    let attention = r#"{"features":4,"layers":[{"kind":"self_attention","heads":2},{"kind":"dense","out":3},{"kind":"sum_pool"}]}"#;
    let mutants = [
        (
            gcn,
            "the last run of neighbours cut off",
            "let last = min(first + 64u, end);",
            "let last = min(first + 63u, end);",
        ),
        (
            gcn,
            "entries of the other side",
            "at = graph[sizes.slot + p];",
            "at = p;",
        ),
        (
            gcn,
            "one scale for both ends",
            "scale[j] * weight_of(p) * scale[i]",
            "scale[i] * weight_of(p) * scale[i]",
        ),
        (
            gcn,
            "the degree's share of the weights' gradient",
            "* s * scale[j] + d_degree",
            "* s * scale[j]",
        ),
        (
            mean,
            "the degree of the row",
            "graph[sizes.degrees + j + 1u] - graph[sizes.degrees + j]",
            "graph[sizes.start + j + 1u] - graph[sizes.start + j]",
        ),
        (
            mean,
            "the root's map overwrites",
            "if (ADD) { value += f32(c[at]); }",
            "",
        ),
        (
            gat,
            "softmax without its sum",
            "real(f32(scores[p * HEADS + h]) / sum)",
            "scores[p * HEADS + h]",
        ),
        (
            gat,
            "the softmax's mean forgotten",
            "(f32(d_scores[at]) - mean)",
            "f32(d_scores[at])",
        ),
        (
            gat,
            "the slope of the kink forgotten",
            "let d = f32(scores[at]) * select(SLOPE, 1.0, u > 0.0);",
            "let d = f32(scores[at]);",
        ),
        (
            gatv2,
            "att's share of the last edge alone",
            "share += d * leaky(u);",
            "share = d * leaky(u);",
        ),
        (
            gatv2,
            "the maximum's gradient to every node",
            "KIND == 2u && places_in[pooled] != i",
            "KIND == 3u",
        ),
        (
            gine,
            "messages without their ReLU",
            "d_l[index] = select(real(0.0), d, u > 0.0);",
            "d_l[index] = d;",
        ),
        (
            gine,
            "eps forgotten",
            "(1.0 + master[sizes.eps]) * f32(d_m_in[index])",
            "f32(d_m_in[index])",
        ),
        (
            gine,
            "one end of a pair",
            "let other = graph[sizes.other + p];",
            "let other = i;",
        ),
        (
            attention,
            "scores not scaled back",
            "* (f32(d_scores[at + j]) - mean) * scale",
            "* (f32(d_scores[at + j]) - mean)",
        ),
        (
            attention,
            "keys seen by themselves alone",
            "key += f32(d_scores[at]",
            "key = f32(d_scores[at]",
        ),
    ];
    for spec in [gcn, mean, gat, gatv2, gine, attention] {
        let passes = case(spec, 70, 66).passes(&gpu());
        assert!(passes.is_ok(), "{spec}\n{}", passes.unwrap_err());
    }
    for (spec, name, right, wrong) in mutants {
        let gpu = Gpu::open_mutated(&Choice::Auto, right, wrong).unwrap();
        assert!(
            case(spec, 70, 66).passes(&gpu).is_err(),
            "{name} went unseen"
        );
    }
}

/// An automaton of two channels on grids of 5 × 7 whose cells fire by a mask, or all of them.
fn automaton(masked: bool) -> (LogicCa, Vec<f32>, LogicBatch<f32>, Target<f32>) {
    let spec = r#"{"channels":2,"kernels":3,"perception":[9,8,4,2],"update":[14,8,4,2],"steps":3,"boundary":"zero"}"#;
    let spec: LogicSpec = serde_json::from_str(spec).unwrap();
    let model = LogicCa::new(spec, 5).unwrap();
    let params = numbers(model.layout().len(), "logits");
    let cells = 2 * 5 * 7;
    let state = numbers(2 * cells, "state")
        .iter()
        .map(|v| 0.5 + 0.5 * v)
        .collect();
    let mask = numbers(3 * 35, "mask").iter().map(|v| *v > -0.3).collect();
    let fire = masked.then_some(mask);
    let batch = LogicBatch::new(&model, state, [2, 5, 7], fire).unwrap();
    let target = numbers(2 * cells, "target")
        .iter()
        .map(|v| 0.5 + 0.5 * v)
        .collect();
    (model, params, batch, Target::values(target))
}

fn automaton_passes(gpu: &Arc<Gpu>, masked: bool) -> Result<(), String> {
    let (model, params, batch, target) = automaton(masked);
    let loss = Loss::SumSquares;
    let subject = Subject::new("automaton", &model, &params, &batch, &target, loss).unwrap();
    let mut device = GpuVerifier::new(gpu);
    match verify::check_on(&subject, &mut device, &quick()) {
        Ok(report) => of_the_gpu(&report),
        Err(error) => Err(error.to_string()),
    }
}

#[test]
fn automata_agree_and_their_wrong_kernels_are_caught() {
    for masked in [false, true] {
        let passes = automaton_passes(&gpu(), masked);
        assert!(passes.is_ok(), "{}", passes.unwrap_err());
    }
    let mutants = [
        (
            "a cell that doesn't fire forgets its gradient",
            "sum += d_after[index];",
            "",
        ),
        (
            "the mask of the first step for all",
            "fire[sizes.step * grid + cell % grid]",
            "fire[cell % grid]",
        ),
        (
            "neighbours the wrong way",
            "neighbour(cell, 2u - n / 3u, 2u - n % 3u)",
            "neighbour(cell, n / 3u, n % 3u)",
        ),
        ("the border wraps", "if (ZERO && outside) {", "if (false) {"),
        (
            "sums of the last step alone",
            "sums[gate] = sums[gate] + sum;",
            "sums[gate] = sum;",
        ),
        (
            "gates of one channel",
            "let channels = select(1u, CHANNELS, gate < PERCEPTION);",
            "let channels = 1u;",
        ),
        ("the slope without ab", "g * (k.y + k.w * b)", "g * k.y"),
        (
            "softmax without its mean",
            "dot(table(i) - table(j), sum)",
            "dot(table(i), sum)",
        ),
    ];
    for (name, right, wrong) in mutants {
        let gpu = Gpu::open_mutated(&Choice::Auto, right, wrong).unwrap();
        assert!(automaton_passes(&gpu, true).is_err(), "{name} went unseen");
    }
}

/// Native steps of a model: the losses' bits and the weights'.
fn steps<M: Recorded>(
    on_gpu: &mut GpuNetwork<M>,
    batch: &M::Given,
    (target, loss): (&Target<f32>, Loss),
    count: usize,
) -> (Vec<u64>, Vec<f32>) {
    let mut optimizer = GpuOptimizer::new(on_gpu, OptimizerSpec::adam(0.01)).unwrap();
    let options = GpuTrainOptions::default();
    for _ in 0..count {
        on_gpu
            .train_step_gpu_native_with_options(batch, target, loss, &mut optimizer, &options)
            .unwrap();
    }
    let losses = on_gpu.finish().unwrap();
    let bits = losses.iter().map(|l| l.loss.to_bits()).collect();
    (bits, on_gpu.sync_weights_to_cpu().unwrap().to_vec())
}

/// A step is one submit and no wait; graphs and masks stay where they are; two runs have equal bits.
#[test]
fn a_native_step_of_a_graph_or_an_automaton_is_one_submit_and_repeats_to_the_bit() {
    let gpu = Gpu::open(&Choice::Auto).unwrap();
    let spec = r#"{"features":4,"layers":[{"kind":"gat","out":4,"heads":2,"dropout":0.3},{"kind":"elu"},{"kind":"dropout","p":0.5},{"kind":"gcn","out":3}]}"#;
    let Case {
        network,
        params,
        batch,
        target,
    } = case(spec, 70, 30);
    let (model, logits, grids, wanted) = automaton(true);
    let mut seen = Vec::new();
    for _ in 0..2 {
        let mut on_gpu = GpuNetwork::new(&gpu, &network, &params).unwrap();
        let graph = steps(&mut on_gpu, &batch, (&target, Loss::Mse), 6);
        let mut automaton = GpuNetwork::new(&gpu, &model, &logits).unwrap();
        let grids = steps(&mut automaton, &grids, (&wanted, Loss::SumSquares), 6);
        seen.push((graph, grids));
        // Once more, counted: everything is recorded and sent.
        let before = gpu.counters();
        steps(&mut on_gpu, &batch, (&target, Loss::Mse), 5);
        let after = gpu.counters().since(before);
        // The weights are brought back at the end: a submit and a wait, and one of each for the losses
        // that are waited for.
        assert!(after.submits <= 5 + 2, "{after:?}");
        // A step sends target, weights and constants, not the graph.
        let step = 4 * 2 * 3 * 72 + 1024;
        assert!(after.bytes_up <= 5 * step, "{after:?}");
    }
    assert_eq!(seen[0], seen[1]);
    // Not all alike: the steps did something.
    assert!(seen[0].0.0.windows(2).all(|w| w[0] != w[1]));
}

/// Sizes are rounded up on the device; what is added changes nothing, not even with other batches on
/// the same plan before.
#[test]
fn what_rounds_a_batch_up_changes_no_bit() {
    let spec = r#"{"features":3,"layers":[{"kind":"gin","out":4},{"kind":"layer_norm"},{"kind":"relu"},{"kind":"sum_pool"},{"kind":"dense","out":2}]}"#;
    let network = GraphNetwork::new(&serde_json::from_str(spec).unwrap()).unwrap();
    let params: Vec<f32> = numbers(network.layout().len(), "params");
    let graphs = |sizes: &[usize]| {
        let one = |&n: &usize| {
            let x = numbers(3 * n, "features");
            GraphBatch::dense(Arc::new(wheel(n, 2)), 3, x).unwrap()
        };
        let all: Vec<_> = sizes.iter().map(one).collect();
        let batch = GraphBatch::union(&all.iter().collect::<Vec<_>>()).unwrap();
        let classes = (0..sizes.len() as u32).map(|g| g % 2).collect();
        (batch, Target::classes(classes))
    };
    // 34 and 36 nodes are rounded up to 36; 17 graphs to 18.
    let (small, few) = graphs(&[8, 10, 9, 7]);
    let (large, more) = graphs(&[9, 10, 9, 8]);
    let gradient = |on_gpu: &mut GpuNetwork<GraphNetwork>, batch, target| {
        let options = GpuTrainOptions::default();
        let loss = Loss::CrossEntropy;
        let value = on_gpu
            .loss_and_gradients(batch, target, loss, &options)
            .unwrap();
        (value.to_bits(), on_gpu.gradients().unwrap())
    };
    let mut fresh = GpuNetwork::new(&gpu(), &network, &params).unwrap();
    let expected = gradient(&mut fresh, &small, &few);
    let mut used = GpuNetwork::new(&gpu(), &network, &params).unwrap();
    gradient(&mut used, &large, &more);
    assert_eq!(gradient(&mut used, &small, &few), expected);
    // And it is the gradient.
    let mut tape = Default::default();
    let pass = retrograd::Pass::inference();
    network.compute_forward(&params, &small, &pass, &mut tape);
    let y: Vec<f32> = network.output(&tape).to_vec();
    let loss = Loss::CrossEntropy.evaluate(&y, &few, None).unwrap();
    let on_gpu = f64::from_bits(expected.0);
    assert!(
        (on_gpu - f64::from(loss)).abs() < 1e-5 * f64::from(loss),
        "{on_gpu} {loss}"
    );
}
