//! The `retrograd` command.

mod bench;
mod commands;
mod exit;
mod experiments;
mod families;
mod progress;

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    exit::report(commands::Cli::parse().run())
}
