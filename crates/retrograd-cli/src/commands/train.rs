//! `retrograd train`

use std::path::PathBuf;

use clap::ValueEnum;
use retrograd::train::{OnNan, Session};

use crate::exit::{Outcome, Result};
use crate::{experiments, families};

/// Trains a model.
#[derive(Debug, clap::Args)]
pub struct TrainArgs {
    /// A ready experiment (see --list), or an experiment file.
    #[arg(value_name = "NAME|FILE.toml", required_unless_present_any = ["list"])]
    experiment: Option<String>,
    /// Lists the ready experiments.
    #[arg(long)]
    list: bool,
    /// The run's folder; runs/NAME where it isn't given.
    #[arg(long, value_name = "RUN")]
    out: Option<PathBuf>,
    /// The seed of everything random.
    #[arg(long, value_name = "S")]
    seed: Option<u64>,
    /// Passes over the data.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    epochs: Option<u64>,
    /// What happens when a loss or a gradient is not finite.
    #[arg(long, value_name = "WHAT")]
    on_nan: Option<OnNanArg>,
    #[command(flatten)]
    threads: super::Threads,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum OnNanArg {
    /// Stop with an error, keep the last good state.
    Stop,
    /// Leave the step out and go on.
    Skip,
}

pub fn run(args: TrainArgs) -> Result {
    if args.list {
        for name in experiments::names() {
            let experiment = experiments::open(name)?;
            println!("{name:22} {}", experiment.about);
        }
        return Ok(Outcome::Done);
    }
    let mut experiment = experiments::open(&args.experiment.unwrap_or_default())?;
    let train = &mut experiment.train;
    train.seed = args.seed.unwrap_or(train.seed);
    train.epochs = args.epochs.unwrap_or(train.epochs);
    match args.on_nan {
        Some(OnNanArg::Stop) => train.on_nan = OnNan::Stop,
        Some(OnNanArg::Skip) => train.on_nan = OnNan::Skip,
        None => {}
    }
    let family = families::find(experiment.family())?;
    let mut session = Session::new(experiment);
    let summary = args.threads.install(|| (family.train)(&mut session))?;
    println!("{}", serde_json::to_string_pretty(&summary.to_json())?);
    Ok(Outcome::Done)
}
