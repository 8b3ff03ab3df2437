//! `retrograd run`

use std::path::PathBuf;

use retrograd::train::experiment_of;

use crate::exit::Result;
use crate::families;

/// Uses a trained model: the files or options that it takes depend on its family.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: retrograd run runs/wine new.csv --out predictions.csv")]
pub struct RunArgs {
    /// The folder of a run.
    #[arg(value_name = "RUN")]
    pub run: PathBuf,
    /// What the model is applied to.
    #[arg(value_name = "INPUT")]
    pub inputs: Vec<PathBuf>,
    /// Where the result goes.
    #[arg(long, value_name = "PATH")]
    pub out: Option<PathBuf>,
    #[command(flatten)]
    pub threads: super::Threads,
}

pub fn run(args: RunArgs) -> Result {
    let experiment = experiment_of(&args.run)?;
    let family = families::find(experiment.family())?;
    let Some(run) = family.run else {
        anyhow::bail!("run: the family {:?} has nothing to run", family.name);
    };
    args.threads.install(|| run(&experiment, &args))
}
