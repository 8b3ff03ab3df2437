//! The family's entry: training and predictions.

use std::path::{Path, PathBuf};

use super::Network;
use crate::data::csv;
use crate::family::{Console, ExportOptions, Family, RunOptions};
use crate::train::{Experiment, NetworkTask, Placement, Session, Summary, TrainedNetwork};
use crate::verify::{Check, against};
use crate::{Error, Result};

/// Feed-forward networks on tables and arrays.
pub const FAMILY: Family = Family {
    train: Some(train),
    run: Some(|_, options, console| predict(options, console, TrainedNetwork::open)),
    export: Some(export),
    auto_batch: Some(|experiment, placement, console| {
        auto_batch(NetworkTask::new(experiment), placement, console)
    }),
    checks: &[Check::of_bundles(against::<Network>)],
    built_in: crate::verify::builtin::network::built_in,
    draft: Some(super::draft::draft),
    folds: true,
    explain: Some(|_, options, console| {
        crate::kan::explain::explain_run(NetworkTask::of_run, options, console)
    }),
    workloads: &[super::bench::WORKLOADS],
    growths: super::bench::GROWTHS,
    ..Family::new("network")
};

fn train(session: &mut Session<'_>) -> Result<Summary> {
    let mut task = NetworkTask::new(session.experiment())?;
    session.fit(&mut task)
}

/// Writes the trained network as ONNX, preparation and predictions included.
fn export(_: &Experiment, options: &ExportOptions, console: &mut dyn Console) -> Result<()> {
    if !options.onnx {
        return Err(Error::refused("export", "a network needs --onnx"));
    }
    let make = || TrainedNetwork::open(&options.run)?.to_onnx();
    options.write_onnx(make, console)
}

/// The batch size that the adapter can hold, said with its reason.
pub(crate) fn auto_batch(
    task: Result<NetworkTask>,
    placement: &Placement,
    console: &mut dyn Console,
) -> Result<usize> {
    let Placement::Gpu {
        adapter, precision, ..
    } = placement
    else {
        return Err(Error::invalid(
            "--batch",
            "auto with --device cpu",
            "--device gpu, or a number",
        ));
    };
    #[cfg(feature = "gpu")]
    {
        use crate::gpu::{Choice, Gpu, auto_batch as auto_batch_on};
        use crate::train::Task;
        let task = task?;
        let gpu = Gpu::open(&Choice::parse(adapter))?;
        let chosen = auto_batch_on(&gpu, task.model(), *precision, task.train_samples())?;
        let chosen = chosen.tried(&gpu, task.model(), *precision)?;
        console.note(&format!(
            "batch {}: {:.0} MiB on the device; {}",
            chosen.samples,
            chosen.bytes as f64 / f64::from(1 << 20),
            chosen.reason
        ));
        Ok(chosen.samples)
    }
    #[cfg(not(feature = "gpu"))]
    {
        let _ = (task?, adapter, precision, console);
        Err(crate::train::no_gpu())
    }
}

/// Writes predictions for a file of new data, and measures them where it has targets.
pub(crate) fn predict(
    options: &RunOptions,
    console: &mut dyn Console,
    open: impl FnOnce(&Path) -> Result<TrainedNetwork>,
) -> Result<()> {
    let [input] = options.inputs.as_slice() else {
        return Err(Error::invalid(
            "run",
            format!("{} input files", options.inputs.len()),
            "one file of new data",
        ));
    };
    let out = options.out.clone().unwrap_or_else(|| {
        let mut name = input.file_stem().unwrap_or_default().to_os_string();
        name.push(".predictions.csv");
        PathBuf::from(name)
    });
    options.check_outputs([&out])?;
    let trained = open(&options.run)?;
    let predictions = trained.predict(input, &options.keep)?;
    csv::write(&out, &predictions.columns)?;
    let rows = predictions.columns.first().map_or(0, |(_, c)| c.len());
    for note in &predictions.notes {
        console.note(note);
    }
    if predictions.unpredicted > 0 {
        console.note(&format!(
            "{} of {rows} rows lack an input: their predictions are empty",
            predictions.unpredicted
        ));
    }
    if predictions.measured > 0 && predictions.measured < rows {
        console.note(&format!(
            "measured on the {} of {rows} rows whose target is known and was seen in training",
            predictions.measured
        ));
    }
    for (name, value) in &predictions.metrics {
        console.value(name, value);
    }
    console.value("rows", &rows);
    console.value("predictions", &out.display());
    Ok(())
}
