//! `retrograd export`

use std::path::PathBuf;

use crate::exit::Result;
use crate::{experiments, families};

/// Writes a trained model in another form.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  retrograd export runs/checkerboard --out circuit.v   an automaton as Verilog
  retrograd export runs/kan-digits --plot              a KAN's functions drawn
  retrograd export runs/kan-digits --kan frozen-i8     and its weights in bytes

Weights under PyTorch's names are in every run as model.safetensors.")]
pub struct ExportArgs {
    /// The folder of a run.
    #[arg(value_name = "RUN")]
    pub run: PathBuf,
    /// Where the result goes.
    #[arg(long, value_name = "PATH")]
    pub out: Option<PathBuf>,
    /// Draws a KAN, every edge with its function, as network.svg and network.png in the run's
    /// folder, or in the folder of --out.
    #[arg(long)]
    pub plot: bool,
    /// Writes a KAN's weights in this form.
    #[arg(long, value_name = "FORMAT")]
    pub kan: Option<families::KanFormat>,
}

pub fn run(args: ExportArgs) -> Result {
    let experiment = experiments::of_run(&args.run)?;
    let family = families::find(experiment.family())?;
    let Some(export) = family.export else {
        anyhow::bail!("export: the family {:?} has nothing to export", family.name);
    };
    export(&experiment, &args)
}
