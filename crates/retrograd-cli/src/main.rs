//! The `retrograd` command.

mod bench;
mod commands;
mod console;
mod exit;
mod experiments;
mod log;
mod memory;
mod progress;
mod signals;

use std::process::ExitCode;

use clap::Parser;

#[global_allocator]
static ALLOCATOR: memory::Aligned = memory::Aligned;

fn main() -> ExitCode {
    exit::end_quietly_with_the_reader();
    match commands::Cli::try_parse() {
        Ok(cli) => {
            log::install(cli.style());
            signals::listen();
            exit::report(cli.run())
        }
        Err(error) => exit::usage(&error),
    }
}
