//! The `retrograd` command.

mod bench;
mod commands;
mod exit;
mod experiments;
mod families;
mod log;
mod progress;

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    log::install();
    exit::report(commands::Cli::parse().run())
}
