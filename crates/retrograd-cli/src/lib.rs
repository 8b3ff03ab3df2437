//! The `retrograd` command as a library, for the program of that name and for those that bring the
//! command along (the Python package).

#![cfg_attr(not(test), warn(clippy::disallowed_methods, clippy::disallowed_types))]

mod bench;
mod commands;
mod console;
mod exit;
pub mod experiments;
mod log;
mod memory;
mod processes;
mod progress;
mod signals;

use std::ffi::OsString;

use clap::Parser;

pub use memory::Aligned;

/// Runs the command with its arguments, the program's name first; returns its exit code.
pub fn run(args: Vec<OsString>) -> u8 {
    exit::end_quietly_with_the_reader();
    match commands::Cli::try_parse_from(&args) {
        Ok(cli) => {
            log::install(cli.style());
            signals::listen();
            let code = exit::report(cli.run());
            processes::leave();
            code
        }
        Err(error) => exit::usage(&error, &args),
    }
}
