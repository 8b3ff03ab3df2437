//! The subcommands, one file each.

mod bench;
mod devices;
mod export;
mod run;
mod train;
mod verify;

pub use export::ExportArgs;
pub use run::RunArgs;

use clap::{Parser, Subcommand};

use crate::exit::Result;

/// Trains small and unusual networks, with a backward pass that is fast, repeatable bit for bit,
/// and proven right.
#[derive(Debug, Parser)]
#[command(name = "retrograd", version, max_term_width = 100)]
#[command(after_help = "Exit codes: 0 done, 1 a check failed, 2 an error, 130 stopped by Ctrl-C.")]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Train(train::TrainArgs),
    Verify(verify::VerifyArgs),
    Run(RunArgs),
    Export(ExportArgs),
    Devices(devices::DevicesArgs),
    Bench(bench::BenchArgs),
}

impl Cli {
    /// Runs the subcommand.
    pub fn run(self) -> Result {
        match self.command {
            Command::Train(args) => train::run(args),
            Command::Verify(args) => verify::run(args),
            Command::Run(args) => run::run(args),
            Command::Export(args) => export::run(args),
            Command::Devices(args) => devices::run(args),
            Command::Bench(args) => bench::run(args),
        }
    }
}

/// `--threads N`, the same everywhere.
#[derive(Clone, Copy, Debug, clap::Args)]
pub struct Threads {
    /// Threads to work with; all cores where it isn't given. Results don't depend on it.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: Option<u16>,
}

impl Threads {
    /// Runs a closure with that many threads.
    pub fn install<R: Send>(self, run: impl FnOnce() -> R + Send) -> R {
        retrograd::parallel::with_threads(self.threads.unwrap_or(0).into(), run)
    }
}
