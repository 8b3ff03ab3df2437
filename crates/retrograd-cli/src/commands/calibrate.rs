//! `retrograd verify --calibrate`: the rate of false alarms on random right models.

use std::path::Path;

use indicatif::ProgressBar;
use retrograd::data::write_whole;
use retrograd::verify::calibrate::{self, Calibration};
use retrograd::verify::{Options, Report};

use crate::exit::{Outcome, Result};

/// Models that are checked at a time: between two of these the accused ones are printed.
const AT_A_TIME: u64 = 28;

/// The smallest faults that are found, over so many random models.
pub fn resolution(models: u64, seed: u64, options: &Options, bar: &ProgressBar) -> Result {
    bar.set_length(models);
    let table = calibrate::resolution(seed..seed + models, options, || bar.inc(1))?;
    bar.finish_and_clear();
    print!("{table}");
    Ok(Outcome::Done)
}

/// Draws so many models, from this seed on, and counts what is accused.
pub fn run(
    models: u64,
    seed: u64,
    options: &Options,
    bar: &ProgressBar,
    json: Option<&Path>,
) -> Result {
    bar.set_length(models);
    let mut calibration = Calibration::default();
    let mut accused = Report::default();
    for first in (0..models).step_by(AT_A_TIME as usize) {
        let count = AT_A_TIME.min(models - first);
        let first = seed + first;
        let outcomes = calibrate::check_all(first..first + count, options, || bar.inc(1))?;
        for outcome in outcomes {
            calibration.add(&outcome, options.on);
            let lines = calibrate::accusations(&outcome);
            bar.suspend(|| lines.iter().for_each(|line| println!("{line}")));
            if models == 1 {
                bar.suspend(|| println!("{}\n{}", outcome.words, outcome.report.table()));
            }
            accused.rows.extend(outcome.report.problems().cloned());
        }
    }
    bar.finish_and_clear();
    if let Some(path) = json {
        let text = serde_json::to_string_pretty(&accused.to_json())?;
        write_whole(path, |file| writeln!(file, "{text}"))?;
    }
    print!("{}", calibration.table());
    let refuted = calibration.refuted();
    println!(
        "{} models from seed {seed}: a rate of one wrong accusation in {:.0} rows is {}",
        calibration.models,
        1.0 / calibrate::PROMISED,
        if refuted { "refuted" } else { "not refuted" }
    );
    Ok(match refuted {
        true => Outcome::CheckFailed,
        false => Outcome::Done,
    })
}
