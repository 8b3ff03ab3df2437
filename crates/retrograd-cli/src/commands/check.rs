//! `retrograd check`

use std::path::PathBuf;

use retrograd::train::{Condition, examine};

use crate::exit::{Outcome, Result};
use crate::log::plain;

/// Examines the files of a run: what is damaged, and what can still be used. Nothing is changed.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  retrograd check runs/moons

Exit codes:
  0  everything is whole
  1  something is damaged; the last lines say what can still be used
  2  there is no such folder, or anything else that went wrong")]
pub struct CheckArgs {
    /// The folder of a run.
    #[arg(value_name = "RUN")]
    run: PathBuf,
}

pub fn run(args: CheckArgs) -> Result {
    let found = examine(&args.run)?;
    for (name, condition) in &found.files {
        let (word, remark) = match condition {
            Condition::Whole(remark) => ("whole", remark),
            Condition::Missing(remark) => ("missing", remark),
            Condition::Damaged(remark) => ("DAMAGED", remark),
        };
        let line = format!("{name:32} {word:8} {remark}");
        println!("{}", plain(line.trim_end()));
    }
    let no = "not possible";
    println!(
        "{:32} {}",
        "--resume goes on",
        found.resume.as_deref().unwrap_or(no)
    );
    println!(
        "{:32} {}",
        "run, export",
        if found.usable { "possible" } else { no }
    );
    Ok(if found.damaged() {
        Outcome::CheckFailed
    } else {
        Outcome::Done
    })
}
