//! Feed-forward networks on tables and arrays.

use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use retrograd::data::csv;
#[cfg(feature = "gpu")]
use retrograd::gpu::{Choice, Gpu, GpuTrainer, auto_batch as auto_batch_on};
#[cfg(feature = "gpu")]
use retrograd::network::Network;
use retrograd::train::{Experiment, NetworkTask, Session, Summary, TrainedNetwork};
#[cfg(feature = "gpu")]
use retrograd::train::{MakeAccelerator, Placement, Task};

use super::Family;
use crate::commands::RunArgs;
use crate::exit::Outcome;

pub const FAMILY: Family = Family {
    name: "network",
    train,
    run: Some(run),
    export: None,
};

fn train(session: &mut Session<'_>) -> retrograd::Result<Summary> {
    let mut task = NetworkTask::new(session.experiment())?;
    for note in task.notes() {
        session.note(note);
    }
    #[cfg(feature = "gpu")]
    if let Placement::Gpu {
        adapter,
        mode,
        precision,
        compress,
    } = session.placement().clone()
    {
        let make: MakeAccelerator<'_, Network> =
            Box::new(move |model, params, optimizer, carried| {
                let trainer = GpuTrainer::new(
                    &adapter, mode, precision, compress, model, params, optimizer,
                )?;
                Ok(Box::new(trainer.carry_on(carried)?))
            });
        return session.fit_on(&mut task, make);
    }
    session.fit(&mut task)
}

/// The batch size that the adapter can hold, said with its reason.
#[cfg(feature = "gpu")]
pub fn auto_batch(experiment: &Experiment, placement: &Placement) -> Result<usize> {
    let Placement::Gpu {
        adapter, precision, ..
    } = placement
    else {
        bail!("--batch: got auto with --device cpu, needs --device gpu, or a number");
    };
    let task = NetworkTask::new(experiment)?;
    let gpu = Gpu::open(&Choice::parse(adapter))?;
    let chosen = auto_batch_on(&gpu, task.model(), *precision, task.train_samples())?;
    crate::log::note(&format!(
        "batch {}: {:.0} MiB on the device; {}",
        chosen.samples,
        chosen.bytes as f64 / f64::from(1 << 20),
        chosen.reason
    ));
    Ok(chosen.samples)
}

fn run(_: &Experiment, args: &RunArgs) -> Result<Outcome> {
    predict(args, TrainedNetwork::open)
}

/// Writes predictions for a file of new data, and measures them where it has targets.
pub fn predict(
    args: &RunArgs,
    open: impl FnOnce(&Path) -> retrograd::Result<TrainedNetwork>,
) -> Result<Outcome> {
    let [input] = args.inputs.as_slice() else {
        bail!(
            "run: got {} input files, needs one file of new data",
            args.inputs.len()
        );
    };
    let trained = open(&args.run)?;
    let predictions = trained.predict(input)?;
    let out = args.out.clone().unwrap_or_else(|| {
        let stem = input.file_stem().unwrap_or_default().to_string_lossy();
        PathBuf::from(format!("{stem}.predictions.csv"))
    });
    csv::write(&out, &predictions.columns)?;
    let rows = predictions
        .columns
        .first()
        .map_or(0, |(_, cells)| cells.len());
    if predictions.left_out > 0 {
        let left_out = predictions.left_out;
        crate::log::note(&format!("{left_out} rows with missing values left out"));
    }
    for (name, value) in &predictions.metrics {
        println!("{name:20} {value}");
    }
    println!("{:20} {rows}", "rows");
    println!("{:20} {}", "predictions", out.display());
    Ok(Outcome::Done)
}
