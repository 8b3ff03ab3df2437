//! `retrograd explain`

use std::path::PathBuf;

use retrograd::Family;
use retrograd::family::RunOptions;

use crate::console::Terminal;
use crate::exit::{Outcome, Result};
use crate::experiments;

/// Says what a trained KAN has learnt, as a formula by the names of the columns.
///
/// The functions on its edges are matched against a library and their constants tuned; formula and
/// network are measured on the rows that were kept aside.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  retrograd init wine.csv --target quality --kan
  retrograd train wine.toml
  retrograd explain runs/wine")]
pub struct ExplainArgs {
    /// The folder of a run.
    #[arg(value_name = "RUN")]
    run: PathBuf,
    /// The folder for formula.txt and explained.svg; the run's by default.
    #[arg(long, value_name = "FOLDER")]
    out: Option<PathBuf>,
    /// Takes out edges whose importance is below this share of the largest of their layer, before functions
    /// are looked for.
    #[arg(long, value_name = "SHARE")]
    prune: Option<f64>,
    #[command(flatten)]
    threads: super::Threads,
}

pub fn run(args: ExplainArgs) -> Result {
    let experiment = experiments::of_run(&args.run)?;
    let family = Family::find(experiment.family())?;
    let options = RunOptions {
        run: args.run,
        out: args.out,
        prune: args.prune,
        ..RunOptions::default()
    };
    let explain = || family.explain(&experiment, &options, &mut Terminal::default());
    args.threads.install(explain)?;
    Ok(Outcome::Done)
}
