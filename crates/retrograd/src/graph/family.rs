//! The family's entry: training, predictions, and small graphs for the verifier.

use std::path::PathBuf;
use std::sync::Arc;

use super::{EdgeRules, Graph, GraphBatch, GraphNetwork, GraphSpec, task};
use crate::data::csv;
use crate::family::{Console, ExportOptions, Family, RunOptions};
use crate::rng::Key;
use crate::train::{Experiment, TensorFile, model_file};
use crate::verify::builtin::bundled;
use crate::verify::{BuiltIn, Case, Check, against};
use crate::{Error, Loss, Model, Result, Target};

/// Graph networks.
pub const FAMILY: Family = Family {
    train: Some(task::train),
    run: Some(run),
    export: Some(export),
    checks: &[Check::of_bundles(against::<GraphNetwork>)],
    built_in,
    works: &[
        (
            "gcn",
            "T. N. Kipf, M. Welling: Semi-Supervised Classification with Graph Convolutional \
             Networks. ICLR 2017.",
        ),
        (
            "gat",
            "P. Veličković et al.: Graph Attention Networks. ICLR 2018.",
        ),
        (
            "gatv2",
            "S. Brody, U. Alon, E. Yahav: How Attentive are Graph Attention Networks? ICLR 2022.",
        ),
        (
            "sage",
            "W. L. Hamilton, R. Ying, J. Leskovec: Inductive Representation Learning on Large \
             Graphs. NeurIPS 2017.",
        ),
        (
            "gin",
            "K. Xu, W. Hu, J. Leskovec, S. Jegelka: How Powerful are Graph Neural Networks? ICLR \
             2019.",
        ),
    ],
    draft: Some(super::draft::draft),
    workloads: &[super::bench::WORKLOADS, super::thresholds::WORKLOADS],
    ..Family::new("graph")
};

/// Writes what the model says about nodes, graphs or links as a table.
fn run(_: &Experiment, options: &RunOptions, console: &mut dyn Console) -> Result<()> {
    if let Some(column) = options.keep.first() {
        return Err(Error::invalid(
            "--keep",
            format!("{column:?}"),
            "a model of tables; nodes, graphs and pairs are named in the result",
        ));
    }
    let out = options.out.clone();
    let out = out.unwrap_or_else(|| PathBuf::from("predictions.csv"));
    options.check_outputs([&out])?;
    let predictions = task::predict(&options.run, &options.inputs)?;
    csv::write(&out, &predictions.columns)?;
    let rows = predictions.columns.first().map_or(0, |(_, c)| c.len());
    for (name, value) in &predictions.metrics {
        console.value(name, value);
    }
    console.value("rows", &rows);
    console.value("predictions", &out.display());
    Ok(())
}

/// Writes the weights alone, under PyTorch's names and in its order.
fn export(_: &Experiment, options: &ExportOptions, console: &mut dyn Console) -> Result<()> {
    let mut file = TensorFile::read(&model_file(&options.run))?;
    file.metadata.clear();
    file.metadata.insert("format".into(), "pt".into());
    let out = options.out.clone();
    let out = out.unwrap_or_else(|| options.run.join("weights.safetensors"));
    options.check_output(&out)?;
    file.write(&out)?;
    for tensor in &file.tensors {
        console.value(&tensor.name, &format!("{:?}", tensor.shape));
    }
    console.value("weights", &out.display());
    Ok(())
}

/// Small graphs. A sample is a node.
fn built_in() -> Vec<BuiltIn> {
    vec![
        bundled!(GraphNetwork, 40, "graph: gcn", "graph_gcn"),
        bundled!(
            GraphNetwork,
            50,
            "graph: message passing",
            "graph_message_passing"
        ),
        bundled!(
            GraphNetwork,
            30,
            "graph: gcn, edge weights",
            "graph_edge_weights"
        ),
        bundled!(GraphNetwork, 31, "graph: sage", "graph_sage"),
        bundled!(GraphNetwork, 35, "graph: gat", "graph_gat"),
        gatv2(),
        bundled!(GraphNetwork, 60, "graph: gin, pooled", "graph_gin_pool"),
        bundled!(GraphNetwork, 48, "graph: gine", "graph_edge_features"),
        bundled!(GraphNetwork, 44, "graph: max pool", "graph_max_pool"),
    ]
}

/// GATv2 on a graph of its own. Where all in-edges of a node i have a feature k of l_j + r_i on one
/// side of its kink, the slope is the same for all of them, so that d_r_ik = att_k·slope·Σ_p d_s_p;
/// and the gradients of a softmax's scores add up to 0. A mutant that loses such a gradient is none,
/// and in the bundle's graph there are such nodes alone for some features. Here every node has
/// enough in-edges, with features large enough, that kinks fall among them.
fn gatv2() -> BuiltIn {
    const NODES: usize = 14;
    const FEATURES: usize = 4;
    let make = || {
        let layers = r#"[{"kind": "gatv2", "out": 3, "heads": 2}, {"kind": "tanh"},
            {"kind": "dense", "out": 2}]"#;
        let spec = format!(r#"{{"features": {FEATURES}, "layers": {layers}}}"#);
        let spec: GraphSpec = serde_json::from_str(&spec)
            .map_err(|e| Error::invalid("built-in spec", e, "JSON of a graph network"))?;
        let model = GraphNetwork::new(&spec)?;
        let steps = [1_usize, 2, 4, 5, 9, 12];
        let (sources, targets): (Vec<u32>, Vec<u32>) = (0..NODES)
            .flat_map(|t| steps.map(|s| ((t * s + s) % NODES, t)))
            .filter(|(s, t)| s != t)
            .map(|(s, t)| (s as u32, t as u32))
            .unzip();
        let graph = Graph::build(NODES, &sources, &targets, EdgeRules::drop())?.graph;
        let mut stream = Key::new(0).purpose("gatv2").stream();
        let mut numbers = |count: usize, size: f64| -> Vec<f64> {
            let number = |_| f64::from(stream.range(-size, size) as f32);
            (0..count).map(number).collect()
        };
        let features = numbers(NODES * FEATURES, 2.0);
        let case = Case {
            input: GraphBatch::dense(Arc::new(graph), FEATURES, features)?,
            params: numbers(model.layout().len(), 0.8),
            target: Target::values(numbers(NODES * 2, 1.0)),
            model,
        };
        Ok((case, Loss::Mse))
    };
    BuiltIn::new("graph: gatv2", make, NODES, None)
}
