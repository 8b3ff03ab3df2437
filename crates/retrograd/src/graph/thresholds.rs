//! Work of exactly the size from which the graph kernels go to threads. Two threads against one
//! (`--threads`) say whether a threshold is where it should be: at it, the second thread must not
//! cost, and above it, gain.

use std::sync::Arc;

use crate::graph::{
    DagNN, DagSpec, EdgeRules, Graph, GraphBatch, GraphNetwork, GraphSpec, propagate_mean,
};
use crate::layer::LayerSpec;
use crate::rng::Key;
use crate::{Grads, Model, Pass};

use crate::bench::{BenchDevice, Prepared, Workload};

/// This file's workloads.
pub(crate) const WORKLOADS: &[Workload] = &[
    Workload {
        name: "threshold-aggregate",
        about: "a mean over neighbours of 4096 vectors: 512 nodes, 7 edges each, 16 wide",
        build: |device, _| aggregate(device),
    },
    Workload {
        name: "threshold-dense",
        about: "a dense layer of two pieces, forward and backward: 256 nodes, 16 to 16",
        build: |device, _| layer(device, LayerSpec::dense(16), 256, 1),
    },
    Workload {
        name: "threshold-dropout",
        about: "dropout of 6144 numbers, forward and backward",
        build: |device, _| layer(device, LayerSpec::dropout(0.5), 384, 1),
    },
    Workload {
        name: "threshold-gat",
        about: "a GAT of 4096 slots, forward and backward: 512 nodes, 7 edges each",
        build: |device, _| layer(device, LayerSpec::gat(8, 1, 0.0), 512, 1),
    },
    Workload {
        name: "threshold-gatv2",
        about: "a GATv2 of 2048 slots, 4 wide, forward and backward: 256 nodes, 7 edges each",
        build: |device, _| layer(device, LayerSpec::gatv2(4, 1, 0.0), 256, 1),
    },
    Workload {
        name: "threshold-gine",
        about: "a GINE of 1024 edges, 16 wide, forward and backward",
        build: |device, _| layer(device, LayerSpec::gine(16), 147, 1),
    },
    Workload {
        name: "threshold-self-attention",
        about: "self-attention of 4096 scores, forward and backward: 4 graphs of 32 nodes",
        build: |device, _| layer(device, LayerSpec::self_attention(1), 128, 4),
    },
    Workload {
        name: "threshold-pool",
        about: "the sums of 64 graphs of 16 nodes, 16 wide, forward and backward",
        build: |device, _| layer(device, LayerSpec::sum_pool(), 1024, 64),
    },
    Workload {
        name: "threshold-dag",
        about: "a DAG of 20 levels of 128 nodes, 7 edges each, batch 32, forward and backward",
        build: |device, _| dag(device, 20, 128, 32),
    },
    Workload {
        name: "threshold-dag-batch",
        about: "a DAG of one level of 32 nodes, 7 edges each, batch 64, forward and backward",
        build: |device, _| dag(device, 1, 32, 64),
    },
];

const WIDTH: usize = 16;
const EDGES: usize = 7;

/// Seven in-edges for every node.
fn graph(nodes: usize) -> crate::Result<Graph> {
    let mut stream = Key::new(0).purpose("bench thresholds").stream();
    let count = nodes * EDGES;
    let sources: Vec<u32> = (0..count).map(|_| stream.below(nodes) as u32).collect();
    let targets: Vec<u32> = (0..count).map(|e| (e / EDGES) as u32).collect();
    let rules = EdgeRules::keep();
    Ok(Graph::build(nodes, &sources, &targets, rules)?.graph)
}

fn numbers(count: usize) -> Vec<f32> {
    (0..count).map(|i| (i % 97) as f32 * 0.01 - 0.5).collect()
}

fn aggregate(device: BenchDevice) -> crate::Result<Prepared> {
    device.is_cpu()?;
    let graph = graph(512)?;
    let x = numbers(512 * WIDTH);
    let mut y = vec![0.0; x.len()];
    Ok(prepared(move || {
        propagate_mean(&graph, &x, WIDTH, false, &mut y);
    }))
}

fn layer(
    device: BenchDevice,
    layer: LayerSpec,
    nodes: usize,
    graphs: usize,
) -> crate::Result<Prepared> {
    let edge_features = if matches!(layer, LayerSpec::Gine(_)) {
        4
    } else {
        0
    };
    let graph = graph(nodes)?;
    let graph_of: Vec<u32> = (0..nodes).map(|i| (i * graphs / nodes) as u32).collect();
    let edges = graph.edges();
    // Edges between the graphs of a batch are an error: pooling and self-attention have none.
    let graph = if graphs == 1 {
        graph
    } else {
        Graph::new(nodes, &[], &[])?.with_graphs(&graph_of, graphs)?
    };
    let mut batch = GraphBatch::dense(Arc::new(graph), WIDTH, numbers(nodes * WIDTH))?;
    if edge_features > 0 {
        batch = batch.with_edge_features(edge_features, &numbers(edges * edge_features))?;
    }
    let spec = GraphSpec {
        edge_features,
        ..GraphSpec::new(WIDTH, vec![layer])
    };
    let network = GraphNetwork::new(&spec)?;
    network.check(&batch)?;
    both_ways(device, network, batch)
}

fn dag(device: BenchDevice, levels: usize, nodes: usize, batch: usize) -> crate::Result<Prepared> {
    let (mut sources, mut targets) = (Vec::new(), Vec::new());
    for v in nodes..(levels + 1) * nodes {
        let before = v / nodes * nodes - nodes;
        for e in 0..EDGES {
            sources.push((before + (v + e * 5) % nodes) as u32);
            targets.push(v as u32);
        }
    }
    let spec = DagSpec::new(nodes, (levels - 1) * nodes, nodes, "tanh");
    let model = DagNN::new(&spec, &sources, &targets)?;
    both_ways(device, model, numbers(batch * nodes))
}

/// Forward and backward with respect to parameters and input, without loss and update.
fn both_ways<M: Model + 'static>(
    device: BenchDevice,
    model: M,
    input: M::Input<f32>,
) -> crate::Result<Prepared>
where
    M::Input<f32>: Send,
    M::Tape<f32>: Send,
{
    device.is_cpu()?;
    let params = model.init(0);
    let mut d_params = vec![0.0; params.len()];
    let mut d_input = vec![0.0; crate::Batch::values(&input).len()];
    let mut tape = M::Tape::<f32>::default();
    let pass = Pass::training(Key::new(0).purpose("step"));
    let mut d_output = Vec::new();
    Ok(prepared(move || {
        model.compute_forward(&params, &input, &pass, &mut tape);
        d_output.resize(model.output(&tape).len(), 0.1);
        let grads = Grads::both(&mut d_params, &mut d_input);
        model.compute_backward(&params, &input, &pass, &mut tape, &d_output, grads);
    }))
}

fn prepared(step: impl FnMut() + Send + 'static) -> Prepared {
    Prepared {
        step: Box::new(step),
        flops: None,
        rate: None,
        problem: None,
        fused: None,
        sharded: None,
        on_gpu: None,
    }
}
