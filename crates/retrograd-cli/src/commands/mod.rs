//! The subcommands, one file each.

mod bench;
mod bench_growth;
mod bench_mpi;
mod bench_traffic;
mod calibrate;
mod check;
mod completions;
mod devices;
mod explain;
mod export;
mod init;
mod library;
mod man;
mod many_runs;
mod playground;
mod reproduce;
mod run;
#[cfg(feature = "gpu")]
mod shader_mutants;
mod train;
mod verify;

pub use export::ExportArgs;
pub use run::RunArgs;

use clap::{Parser, Subcommand, ValueEnum};

use crate::exit::Result;
use crate::log::Style;
use crate::processes;

/// Trains small and unusual networks, with a backward pass that is fast, repeatable bit for bit,
/// and proven right.
#[derive(Debug, Parser)]
#[command(name = "retrograd", version, max_term_width = 100)]
#[command(after_help = "\
Examples:
  retrograd train moons                      a first run, in a second
  retrograd train --list                     what else is ready
  retrograd init wine.csv --target quality   an experiment for your own table
  retrograd verify                           every gradient against its oracles

Exit codes:
  0    done
  1    a check failed: in verify, check or reproduce, or at the end of train
  2    bad input, or anything else that went wrong
  3    reproduce: the same bits can't be expected, and it says why
  130  stopped by Ctrl-C or SIGTERM, the state saved

Environment:
  NO_COLOR        no colours where it is set; there are none outside a terminal
  RETROGRAD_DATA  where fetched data sets are, instead of ~/.cache/retrograd
  RETROGRAD_SIMD  an instruction set that `devices` lists, instead of the best
                  one. Results don't depend on it")]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
    /// No progress and no notes; results, warnings and errors are still printed.
    #[arg(long, short, global = true, help_heading = "Output")]
    quiet: bool,
    /// How progress, notes, warnings and errors are written to stderr.
    #[arg(
        long,
        global = true,
        value_name = "FORMAT",
        default_value = "text",
        help_heading = "Output"
    )]
    log_format: LogFormat,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum LogFormat {
    /// For people.
    Text,
    /// One object per line: `event` (start, step, epoch, saved, verified, done, note, warning, error
    /// …), `time` in seconds, and what belongs to it.
    Json,
}

#[derive(Debug, Subcommand)]
enum Command {
    Init(init::InitArgs),
    Train(train::TrainArgs),
    Verify(verify::VerifyArgs),
    Run(RunArgs),
    Explain(explain::ExplainArgs),
    Export(ExportArgs),
    Check(check::CheckArgs),
    Reproduce(reproduce::ReproduceArgs),
    Playground(playground::PlaygroundArgs),
    Devices(devices::DevicesArgs),
    Bench(bench::BenchArgs),
    Completions(completions::CompletionsArgs),
    Man(man::ManArgs),
}

impl Cli {
    /// Runs the subcommand.
    pub fn run(self) -> Result {
        retrograd::command::asked_simd()?;
        match self.command {
            Command::Init(args) => init::run(args),
            Command::Train(args) => train::run(args),
            Command::Verify(args) => verify::run(args),
            Command::Run(args) => run::run(args),
            Command::Explain(args) => explain::run(args),
            Command::Export(args) => export::run(args),
            Command::Check(args) => check::run(args),
            Command::Reproduce(args) => reproduce::run(args),
            Command::Playground(args) => playground::run(args),
            Command::Devices(args) => devices::run(args),
            Command::Bench(args) => bench::run(args),
            Command::Completions(args) => completions::run(args),
            Command::Man(args) => man::run(args),
        }
    }

    /// How the command says things beside its results.
    pub fn style(&self) -> Style {
        Style {
            quiet: self.quiet,
            json: self.log_format == LogFormat::Json,
        }
    }
}

/// `--threads N`, the same everywhere.
#[derive(Clone, Copy, Debug, clap::Args)]
pub struct Threads {
    /// Threads to work with; all cores by default. Results don't depend on it.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: Option<u16>,
}

impl Threads {
    /// Runs a closure with that many threads.
    pub fn install<R: Send>(self, run: impl FnOnce() -> R + Send) -> R {
        let threads = self.threads.map(usize::from).or_else(processes::threads);
        retrograd::parallel::with_threads(threads.unwrap_or(0), run)
    }
}
