//! `retrograd reproduce`

use std::path::PathBuf;

use retrograd::Family;
use retrograd::train::{CONTRACT, Recorded, Session};
use serde_json::json;

use crate::exit::{Outcome, Result};
use crate::log::plain;
use crate::progress::Progress;
use crate::{experiments, log, signals};

/// Trains a finished run again, from its folder, and compares the bits.
///
/// Weights and figures must come out the same on every processor, with any number of threads. Nothing in
/// the run's folder is changed. A GPU, changed data or another version of the contract of bits is said, and
/// then nothing is trained.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  retrograd reproduce runs/moons
  RETROGRAD_SIMD=scalar retrograd reproduce runs/moons --threads 1

Exit codes:
  0  every bit is the same
  1  something differs, and should not
  2  there is no such run, or anything else that went wrong
  3  the same bits can't be expected: a GPU, other data, another contract")]
pub struct ReproduceArgs {
    /// The folder of a finished run.
    #[arg(value_name = "RUN")]
    run: PathBuf,
    #[command(flatten)]
    threads: super::Threads,
}

pub fn run(args: ReproduceArgs) -> Result {
    let experiment = experiments::of_run(&args.run)?;
    let recorded = Recorded::read(&args.run)?;
    let obstacles = recorded.obstacles(&experiment);
    for obstacle in &obstacles {
        println!("not comparable: {}", plain(obstacle));
    }
    if !obstacles.is_empty() {
        log::event(
            "reproduced",
            json!({ "comparable": false, "why": obstacles }),
        );
        return Ok(Outcome::NotComparable);
    }
    let family = Family::find(experiment.family())?;
    let stopped = "stopped; nothing was written";
    signals::last_words(stopped.to_string());
    let mut progress = Progress::new(stopped.to_string());
    let mut session = Session::new(experiment)
        .observed_by(&mut progress)
        .stopped_by(signals::stop());
    let summary = args.threads.install(|| family.train(&mut session));
    drop(session);
    drop(progress);
    let compared = recorded.compare(&summary?);
    for one in &compared {
        let what = plain(&one.what);
        match one.same() {
            true => println!("{what:24} same     {}", plain(&one.now)),
            false => println!(
                "{what:24} DIFFERS  was {}, is {}",
                plain(&one.recorded),
                plain(&one.now)
            ),
        }
    }
    let differing = compared.iter().filter(|c| !c.same()).count();
    let set = retrograd::command::instruction_set();
    println!(
        "{}: {} of {} the same, on {set}, by version {CONTRACT} of the contract of bits",
        if differing == 0 {
            "reproduced"
        } else {
            "NOT REPRODUCED"
        },
        compared.len() - differing,
        compared.len(),
    );
    log::event(
        "reproduced",
        json!({ "comparable": true, "same": compared.len() - differing, "compared": compared.len() }),
    );
    Ok(if differing == 0 {
        Outcome::Done
    } else {
        Outcome::CheckFailed
    })
}
