//! The `retrograd` command.

use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: retrograd_cli::Aligned = retrograd_cli::Aligned;

fn main() -> ExitCode {
    ExitCode::from(retrograd_cli::run(std::env::args_os().collect()))
}
