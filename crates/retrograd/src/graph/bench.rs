//! Graph networks on a graph of Cora's shape, propagation over a large graph, and a DAG.

use std::sync::Arc;

use crate::graph::{
    DagNN, DagSpec, EdgeRules, Features, Graph, GraphBatch, GraphNetwork, GraphSpec, data,
    propagate_mean,
};
use crate::layer::LayerSpec;
use crate::layer::activation::EluSpec;
use crate::optim::OptimizerSpec;
use crate::rng::Key;
use crate::train::{Example, NamedTensor};
use crate::{Loss, Target};

use crate::bench::machine::read_bandwidth;
use crate::bench::tensor;
use crate::bench::{BenchDevice, Growth, Prepared, Workload, training};

/// This file's workloads.
pub(crate) const WORKLOADS: &[Workload] = &[
    Workload {
        name: "graph-gcn16",
        about: "an epoch of GCN-16 on Cora (or a graph of its shape), dropout, Adam",
        build: |device, _| epoch(device, gcn(16), cora()?),
    },
    Workload {
        name: "graph-gcn64",
        about: "an epoch of GCN-64 on Cora (or a graph of its shape), dropout, Adam",
        build: |device, _| epoch(device, gcn(64), cora()?),
    },
    Workload {
        name: "graph-gat8",
        about: "an epoch of GAT, 8 heads of 8, on Cora (or a graph of its shape), dropout, Adam",
        build: |device, _| epoch(device, gat(), cora()?),
    },
    Workload {
        name: "graph-large",
        about: "mean over neighbours, forward and backward: 200,000 nodes, 2 million edges, 64 wide",
        build: |device, _| large(device),
    },
    Workload {
        name: "dag-10k",
        about: "a training step of a DAG of 10,000 nodes and 79,000 edges, batch 64, Adam",
        build: |device, _| dag(device),
    },
];

/// Graph convolutions on graphs like Cora that grow.
pub(crate) const GROWTHS: &[Growth] = &[
    Growth {
        name: "graph-gcn-nodes",
        about: "an epoch of GCN-16 on a graph like Cora: 4 neighbours and 18 features a node",
        axis: "nodes",
        first: 256,
        power: 1,
        build: |nodes, _| epoch(BenchDevice::Cpu, gcn(16), like_cora(nodes, 2 * nodes)?),
    },
    Growth {
        name: "graph-gcn-edges",
        about: "an epoch of GCN-64 on 8,192 nodes with 18 features each",
        axis: "edges, counted once",
        first: 4096,
        power: 1,
        build: |edges, _| epoch(BenchDevice::Cpu, gcn(64), like_cora(8192, edges)?),
    },
];

/// Cora where it is fetched; otherwise a graph of its size: 2,708 nodes, 10,556 edges, 1,433 features, 1.27 %
/// non-zero.
fn cora() -> crate::Result<(GraphBatch<f32>, Target<f32>)> {
    let folder = data::cache_folder().join("cora");
    let [content, cites] = ["content", "cites"].map(|end| folder.join(format!("cora.{end}")));
    if content.exists() {
        let cora = data::read_content_cites(&content, &cites)?;
        let weights = cora
            .split
            .iter()
            .map(|&s| f32::from(u8::from(s == data::Split::Train)));
        let target = Target::classes(cora.classes).weighted(weights.collect());
        return Ok((cora.batch, target));
    }
    like_cora(2708, 5278)
}

/// A graph like Cora with so many nodes and edges, each counted once.
fn like_cora(count: usize, edges: usize) -> crate::Result<(GraphBatch<f32>, Target<f32>)> {
    const FEATURES: usize = 1433;
    let mut stream = Key::new(0).purpose("bench cora").stream();
    let mut seen = std::collections::BTreeSet::new();
    while seen.len() < edges {
        // A power of a uniform number: few nodes with many edges, as in Cora.
        let u = stream.uniform();
        let a = (count as f64 * u * u) as u32;
        let b = stream.below(count) as u32;
        if a != b {
            seen.insert((a.min(b), a.max(b)));
        }
    }
    let (a, b): (Vec<u32>, Vec<u32>) = seen.into_iter().unzip();
    let graph = Arc::new(Graph::undirected(count, &a, &b)?);
    let mut entries = std::collections::BTreeSet::new();
    while entries.len() < count * 49_216 / 2708 {
        entries.insert((stream.below(count) as u32, stream.below(FEATURES) as u32));
    }
    let (nodes, features): (Vec<u32>, Vec<u32>) = entries.into_iter().unzip();
    let values = vec![0.055; nodes.len()];
    let batch = GraphBatch::sparse(graph, FEATURES, &nodes, &features, &values)?;
    let classes = (0..count as u32).map(|i| i % 7).collect();
    let weights = (0..count).map(|i| f32::from(u8::from(i < 140)));
    Ok((batch, Target::classes(classes).weighted(weights.collect())))
}

/// An epoch on one graph.
fn epoch(
    device: BenchDevice,
    layers: Vec<LayerSpec>,
    (input, target): (GraphBatch<f32>, Target<f32>),
) -> crate::Result<Prepared> {
    let network = GraphNetwork::new(&GraphSpec::new(input.width(), layers))?;
    network.check(&input)?;
    let adam = OptimizerSpec::Adam {
        lr: 0.01,
        betas: [0.9, 0.999],
        eps: 1e-8,
        weight_decay: 5e-4,
    };
    let structure = structure(&input);
    let example = Example { input, target };
    let loss = Loss::CrossEntropy;
    let mut prepared = training(device, network, loss, adam, example, None, None)?;
    if let Some(make) = prepared.problem.take() {
        prepared.problem = Some(Box::new(move || {
            let mut file = make()?;
            file.tensors.extend(structure);
            Ok(file)
        }));
    }
    Ok(prepared)
}

/// Edges as (source, target), and the places of the features' non-zeros as (node, feature).
fn structure(batch: &GraphBatch<f32>) -> Vec<NamedTensor> {
    let pairs = |name: &str, a: &[u32], b: &[u32]| {
        let values = a.iter().chain(b).map(|&v| v as f32).collect();
        tensor(name, &[2, a.len()], values)
    };
    let graph = batch.graph();
    let mut tensors = vec![pairs("batch/edges", graph.sources(), graph.targets())];
    if let Features::Sparse(pattern) = batch.features() {
        let rows = &pattern.by_row;
        let nodes: Vec<u32> = (0..rows.len())
            .flat_map(|row| std::iter::repeat_n(row as u32, rows.degree(row)))
            .collect();
        tensors.push(pairs("batch/features", &nodes, &rows.neighbour));
    }
    tensors
}

fn gcn(hidden: usize) -> Vec<LayerSpec> {
    vec![
        LayerSpec::dropout(0.5),
        LayerSpec::gcn(hidden),
        LayerSpec::relu(),
        LayerSpec::dropout(0.5),
        LayerSpec::gcn(7),
    ]
}

fn gat() -> Vec<LayerSpec> {
    let gat = |out, heads| LayerSpec::gat(out, heads, 0.6);
    vec![
        LayerSpec::dropout(0.6),
        gat(8, 8),
        LayerSpec::Elu(EluSpec { alpha: 1.0 }),
        LayerSpec::dropout(0.6),
        gat(7, 1),
    ]
}

fn large(device: BenchDevice) -> crate::Result<Prepared> {
    device.is_cpu()?;
    const NODES: usize = 200_000;
    const EDGES: usize = 2_000_000;
    const WIDTH: usize = 64;
    let mut stream = Key::new(0).purpose("bench large").stream();
    let mut ends = || -> Vec<u32> { (0..EDGES).map(|_| stream.below(NODES) as u32).collect() };
    let (sources, targets) = (ends(), ends());
    let graph = Graph::build(NODES, &sources, &targets, EdgeRules::keep())?.graph;
    let x: Vec<f32> = (0..NODES * WIDTH).map(|i| (i % 97) as f32 * 0.01).collect();
    let (mut y, mut d_x) = (vec![0.0; NODES * WIDTH], vec![0.0; NODES * WIDTH]);
    // Each direction reads a row and an index per edge, and writes a row per node; caches that
    // hold a part of the 51 MB of rows are not counted. Its share of the bandwidth is what the
    // bytes would take in order, divided by what the step takes.
    let rows = (EDGES + NODES) as f64 * (WIDTH * 4) as f64;
    let bytes = 2.0 * (rows + EDGES as f64 * 4.0 + NODES as f64 * 8.0);
    let seconds_in_order = bytes / read_bandwidth();
    Ok(Prepared {
        step: Box::new(move || {
            propagate_mean(&graph, &x, WIDTH, false, &mut y);
            propagate_mean(&graph, &y, WIDTH, true, &mut d_x);
        }),
        flops: None,
        rate: Some(("of_the_bandwidth_of_memory_read", seconds_in_order)),
        problem: None,
        fused: None,
        sharded: None,
        on_gpu: None,
    })
}

fn dag(device: BenchDevice) -> crate::Result<Prepared> {
    const INPUTS: usize = 64;
    const HIDDEN: usize = 9900;
    const OUTPUTS: usize = 36;
    const BATCH: usize = 64;
    let mut stream = Key::new(0).purpose("bench dag").stream();
    let (mut sources, mut targets) = (Vec::new(), Vec::new());
    for v in INPUTS..INPUTS + HIDDEN + OUTPUTS {
        // Eight in-edges, from anywhere among the 2,000 nodes before it.
        let before = v.min(INPUTS + HIDDEN);
        let mut chosen = std::collections::BTreeSet::new();
        while chosen.len() < 8 {
            chosen.insert(before - 1 - stream.below(before.min(2000)));
        }
        for s in chosen {
            sources.push(s as u32);
            targets.push(v as u32);
        }
    }
    let spec = DagSpec::new(INPUTS, HIDDEN, OUTPUTS, "tanh");
    let model = DagNN::new(&spec, &sources, &targets)?;
    let mut numbers =
        |n: usize| -> Vec<f32> { (0..n).map(|_| stream.range(-1.0, 1.0) as f32).collect() };
    let example = Example {
        input: numbers(BATCH * INPUTS),
        target: Target::values(numbers(BATCH * OUTPUTS)),
    };
    let flops = 3.0 * 2.0 * sources.len() as f64 * BATCH as f64;
    let adam = OptimizerSpec::adam(1e-3);
    training(device, model, Loss::Mse, adam, example, Some(flops), None)
}
