//! Graph networks.

use std::path::PathBuf;

use anyhow::Result;
use retrograd::data::csv;
use retrograd::graph::task;
use retrograd::train::{Experiment, TensorFile, model_file};

use super::Family;
use crate::commands::{ExportArgs, RunArgs};
use crate::exit::Outcome;

pub const FAMILY: Family = Family {
    name: "graph",
    train: task::train,
    run: Some(run),
    export: Some(export),
};

/// Writes what the model says about nodes, graphs or links as a table.
fn run(_: &Experiment, args: &RunArgs) -> Result<Outcome> {
    let predictions = task::predict(&args.run, &args.inputs)?;
    let out = args
        .out
        .clone()
        .unwrap_or_else(|| PathBuf::from("predictions.csv"));
    csv::write(&out, &predictions.columns)?;
    let rows = predictions.columns.first().map_or(0, |(_, c)| c.len());
    for (name, value) in &predictions.metrics {
        println!("{name:20} {value}");
    }
    println!("{:20} {rows}", "rows");
    println!("{:20} {}", "predictions", out.display());
    Ok(Outcome::Done)
}

/// Writes the weights alone, under PyTorch's names and in its order.
fn export(_: &Experiment, args: &ExportArgs) -> Result<Outcome> {
    let mut file = TensorFile::read(&model_file(&args.run))?;
    file.metadata.clear();
    file.metadata.insert("format".into(), "pt".into());
    let out = args
        .out
        .clone()
        .unwrap_or_else(|| args.run.join("weights.safetensors"));
    file.write(&out)?;
    for tensor in &file.tensors {
        println!("{:20} {:?}", tensor.name, tensor.shape);
    }
    println!("{:20} {}", "weights", out.display());
    Ok(Outcome::Done)
}
