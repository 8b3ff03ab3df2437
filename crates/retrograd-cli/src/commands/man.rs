//! `retrograd man`

use std::path::PathBuf;

use anyhow::Context as _;
use clap::CommandFactory;

use crate::exit::{Outcome, Result};

/// Writes manual pages, one for every command.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  retrograd man --out ~/.local/share/man/man1
  retrograd man --out . && man ./retrograd-train.1")]
pub struct ManArgs {
    /// The folder that they go to; it is made where it isn't there.
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
}

pub fn run(args: ManArgs) -> Result {
    let folder = &args.out;
    std::fs::create_dir_all(folder)
        .with_context(|| format!("{}: cannot create the folder", folder.display()))?;
    let command = super::Cli::command();
    // `help` itself is no command to have a page.
    let command = command.disable_help_subcommand(true);
    clap_mangen::generate_to(command, folder)
        .with_context(|| format!("{}: cannot write", folder.display()))?;
    println!("{:20} {}", "pages", folder.join("retrograd.1").display());
    Ok(Outcome::Done)
}
