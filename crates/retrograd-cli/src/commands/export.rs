//! `retrograd export`

use std::path::PathBuf;

use clap::builder::{PossibleValue, PossibleValuesParser};
use retrograd::family::ExportOptions;
use retrograd::{FAMILIES, Family};

use crate::console::Terminal;
use crate::exit::{Outcome, Result};
use crate::experiments;

/// Writes a trained model in another form.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  retrograd export runs/checkerboard --out circuit.v   an automaton as Verilog
  retrograd export circuit.json --out circuit.c        one that was written before
  retrograd export runs/kan-digits --plot              a KAN's functions drawn
  retrograd export runs/kan-digits --kan frozen-i8     and its weights in bytes
  retrograd export runs/digits --onnx                  a network for other programs

Weights under PyTorch's names are in every run as model.safetensors.")]
pub struct ExportArgs {
    /// The folder of a run, or a circuit that was written as JSON.
    #[arg(value_name = "RUN")]
    pub run: PathBuf,
    /// Where the result goes.
    #[arg(long, value_name = "PATH")]
    pub out: Option<PathBuf>,
    /// Writes over files that are there.
    #[arg(long)]
    pub force: bool,
    /// Writes a network, a KAN or a denoiser as an ONNX file, with the preparation of its inputs and
    /// its predictions in the data's units and words: model.onnx in the run's folder, or --out.
    #[arg(long, conflicts_with_all = ["plot", "kan"])]
    pub onnx: bool,
    /// Draws a KAN, every edge with its function, as network.svg and network.png in the run's
    /// folder, or in the folder of --out.
    #[arg(long)]
    pub plot: bool,
    /// How far an automaton's circuit is simplified.
    #[arg(long, value_name = "KIND", value_parser = circuits())]
    pub circuit: Option<String>,
    /// Writes a KAN's weights in this form.
    #[arg(long, value_name = "FORMAT", value_parser = formats())]
    pub kan: Option<String>,
}

pub fn run(args: ExportArgs) -> Result {
    let options = ExportOptions {
        run: args.run,
        out: args.out,
        force: args.force,
        plot: args.plot,
        format: args.kan,
        onnx: args.onnx,
        circuit: args.circuit,
    };
    let console = &mut Terminal::default();
    if options.run.is_file()
        && let Some(export) = FAMILIES.iter().find_map(|family| family.export_file)
    {
        export(&options, console)?;
        return Ok(Outcome::Done);
    }
    let experiment = experiments::of_run(&options.run)?;
    let family = Family::find(experiment.family())?;
    family.export(&experiment, &options, console)?;
    Ok(Outcome::Done)
}

/// How far circuits can be simplified.
fn circuits() -> PossibleValuesParser {
    let values = retrograd::logic::SIMPLIFICATIONS;
    let values = values.map(|(name, about)| PossibleValue::new(name).help(about));
    PossibleValuesParser::new(values)
}

/// The forms that the families can write.
fn formats() -> PossibleValuesParser {
    let all = FAMILIES.iter().flat_map(|f| f.formats);
    let values = all.map(|&(name, about)| PossibleValue::new(name).help(about));
    PossibleValuesParser::new(values)
}
