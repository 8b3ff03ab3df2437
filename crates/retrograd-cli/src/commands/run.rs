//! `retrograd run`

use std::path::PathBuf;

use retrograd::Family;
use retrograd::family::RunOptions;

use super::train::{DeviceArg, parse_device};
use crate::console::Terminal;
use crate::exit::{Outcome, Result};
use crate::experiments;

/// Uses a trained model: the files or options that it takes depend on its family.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  retrograd run runs/wine new.csv --out predictions.csv --keep id
  retrograd run runs/denoise-micrograph one.mrc --out clean.mrc
  retrograd run runs/denoise-micrograph *.mrc --out denoised
  retrograd run runs/checkerboard --size 64x64 --gif growth.gif
  retrograd run runs/life --size 4096x4096 --steps 100 --device gpu")]
pub struct RunArgs {
    /// The folder of a run.
    #[arg(value_name = "RUN")]
    pub run: PathBuf,
    /// What the model is applied to.
    #[arg(value_name = "INPUT")]
    pub inputs: Vec<PathBuf>,
    /// Where the result goes: a file; for several images a folder.
    #[arg(long, value_name = "PATH")]
    pub out: Option<PathBuf>,
    /// Writes over files that are there.
    #[arg(long)]
    pub force: bool,
    /// For tables: columns of the input that stand before the predictions.
    #[arg(long, value_name = "COLUMN", num_args = 1..)]
    pub keep: Vec<String>,
    /// For images: what every input should look like; PSNR, SSIM and correlation are printed.
    #[arg(long, value_name = "FILE", num_args = 1..)]
    pub reference: Vec<PathBuf>,
    /// For images: the inputs are odd and even halves, alternately; their correlation is printed.
    #[arg(long)]
    pub halves: bool,
    /// For images: N × N pixels become one; as in training where nothing is said.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=64))]
    pub bin: Option<u64>,
    /// For images: TIFFs of 32-bit floats, whatever numbers the inputs have.
    #[arg(long)]
    pub float: bool,
    /// For images: memory for the tiles that are computed at a time.
    #[arg(long, value_name = "MIB", default_value_t = 1024,
          value_parser = clap::value_parser!(u64).range(1..=1 << 20))]
    pub memory_mib: u64,
    /// Automata: steps to play.
    #[arg(long, value_name = "N")]
    pub steps: Option<usize>,
    /// Automata: the grid's width and height.
    #[arg(long, value_name = "WxH")]
    pub size: Option<String>,
    /// Automata: erases a rectangle after each of the steps from … to−1; may be given again.
    #[arg(long, value_name = "x,y,w,h,from,to")]
    pub damage: Vec<String>,
    /// Automata: writes the steps as an animation.
    #[arg(long, value_name = "FILE")]
    pub gif: Option<PathBuf>,
    /// Automata: the seed of the start and of the cells that fire.
    #[arg(long, value_name = "S", default_value_t = 0)]
    pub seed: u64,
    /// Automata: where they are played: cpu, gpu, or gpu:N or gpu:NAME for an adapter of `devices`.
    #[arg(long, value_name = "DEVICE", default_value = "cpu", value_parser = parse_device)]
    pub device: DeviceArg,
    #[command(flatten)]
    pub threads: super::Threads,
}

pub fn run(args: RunArgs) -> Result {
    let experiment = experiments::of_run(&args.run)?;
    let family = Family::find(experiment.family())?;
    let options = RunOptions {
        run: args.run,
        inputs: args.inputs,
        out: args.out,
        force: args.force,
        keep: args.keep,
        prune: None,
        reference: args.reference,
        halves: args.halves,
        bin: args.bin.map(|bin| bin as usize),
        float: args.float,
        memory_mib: args.memory_mib,
        steps: args.steps,
        size: args.size,
        damage: args.damage,
        gif: args.gif,
        seed: args.seed,
        device: match args.device {
            DeviceArg::Cpu => None,
            DeviceArg::Gpu(adapter) => Some(adapter),
        },
    };
    let run = || family.run(&experiment, &options, &mut Terminal::default());
    args.threads.install(run)?;
    Ok(Outcome::Done)
}
