//! The family's entry: training, predictions, and small graphs for the verifier.

use std::path::PathBuf;

use super::{GraphNetwork, task};
use crate::data::csv;
use crate::family::{Console, ExportOptions, Family, RunOptions};
use crate::train::{Experiment, TensorFile, model_file};
use crate::verify::builtin::bundled;
use crate::verify::builtin::graph::built_in as small_graphs;
use crate::verify::{BuiltIn, Check, against};
use crate::{Error, Result};

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
    growths: super::bench::GROWTHS,
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
fn export(
    experiment: &Experiment,
    options: &ExportOptions,
    console: &mut dyn Console,
) -> Result<()> {
    if options.onnx {
        let layers = experiment.model.get("layers");
        let first = layers.and_then(|l| l.get(0)?.get("kind")?.as_str().map(str::to_string));
        let layer = first.map_or("its first layer".into(), |kind| format!("layer 0, {kind},"));
        let why = format!("{layer} reads a graph and has no form in ONNX");
        return Err(Error::refused("export --onnx", why));
    }
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

/// PyTorch's models on its graphs, and a small one for every layer. A sample is a node.
fn built_in() -> Vec<BuiltIn> {
    let mut all = vec![
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
        bundled!(GraphNetwork, 60, "graph: gin, pooled", "graph_gin_pool"),
        bundled!(GraphNetwork, 48, "graph: gine", "graph_edge_features"),
        bundled!(GraphNetwork, 44, "graph: max pool", "graph_max_pool"),
    ];
    all.extend(small_graphs());
    all
}
