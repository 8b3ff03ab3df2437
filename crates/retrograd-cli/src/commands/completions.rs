//! `retrograd completions`

use clap::CommandFactory;
use clap_complete::Shell;

use crate::exit::{Outcome, Result};

/// Prints a script that completes commands and options in a shell.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  source <(retrograd completions bash)         for this session
  retrograd completions zsh > ~/.zfunc/_retrograd
  retrograd completions fish > ~/.config/fish/completions/retrograd.fish")]
pub struct CompletionsArgs {
    /// Which shell.
    #[arg(value_name = "SHELL")]
    shell: Shell,
}

pub fn run(args: CompletionsArgs) -> Result {
    let mut command = super::Cli::command();
    // Not to standard output itself: where that fails, clap panics.
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut command, "retrograd", &mut script);
    print!("{}", String::from_utf8(script)?);
    Ok(Outcome::Done)
}
