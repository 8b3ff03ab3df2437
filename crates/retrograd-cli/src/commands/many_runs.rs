//! `retrograd train --folds K` and `--seeds N`: one experiment many times, and a table.

use std::path::{Path, PathBuf};

use retrograd::data::csv;
use retrograd::train::folds::{self, Spread};
use retrograd::train::{Experiment, Findings};

use super::train::{Trainer, free_folder};
use crate::exit::{Outcome, Result};
use crate::log::plain;

/// Trains every fold, then on all rows.
pub(super) fn folds(
    trainer: &Trainer,
    experiment: &Experiment,
    count: usize,
    out: Option<&Path>,
) -> Result {
    let (run, beside) = folders(experiment, out, "folds")?;
    let mut spread = Spread::default();
    for number in 1..=count {
        println!("fold {number} of {count}");
        let fold = folds::fold(experiment, count, number);
        let folder = beside.join(number.to_string());
        let summary = trainer.train(fold, &folder, false, Findings::default())?;
        spread.add(&number.to_string(), &summary);
        println!();
    }
    let epoch = spread.median_epoch();
    println!("all rows, to epoch {epoch}, the median of the folds' best");
    let whole = folds::on_all_rows(experiment, epoch);
    let summary = trainer.train(whole, &run, false, spread.findings())?;
    println!();
    show(&spread, "fold", None, &beside)?;
    Ok(trainer.outcome(&summary))
}

/// Trains with every seed.
pub(super) fn seeds(
    trainer: &Trainer,
    experiment: &Experiment,
    count: u64,
    out: Option<&Path>,
) -> Result {
    // A run's file holds no larger one; found out now, not after the runs before it.
    let last = experiment.train.seed.checked_add(count - 1);
    if last.is_none_or(|last| last > i64::MAX as u64) {
        let first = experiment.train.seed;
        anyhow::bail!(
            "--seeds: got {count} from {first} on, needs seeds of at most {}",
            i64::MAX
        );
    }
    let (_, beside) = folders(experiment, out, "seeds")?;
    let mut spread = Spread::default();
    let mut best: Option<(usize, f64)> = None;
    let mut failed = false;
    for nth in 0..count {
        let mut one = experiment.clone();
        one.train.seed = experiment.train.seed + nth;
        let seed = one.train.seed.to_string();
        println!("seed {seed}, {} of {count}", nth + 1);
        let summary = trainer.train(one, &beside.join(&seed), false, Findings::default())?;
        failed |= trainer.outcome(&summary) == Outcome::CheckFailed;
        // By what chose the epoch: figures of the test must not choose.
        let (_, smaller, value) =
            summary
                .chosen_by
                .unwrap_or(("train_loss", true, summary.train_loss));
        let better = |b: f64| if smaller { value < b } else { value > b };
        if value.is_finite() && best.is_none_or(|(_, b)| better(b)) {
            best = Some((nth as usize, value));
        }
        spread.add(&seed, &summary);
        println!();
    }
    show(&spread, "seed", best.map(|(i, _)| i), &beside)?;
    if let Some(success) = spread.success() {
        println!("{:20} {success}", "learned");
    }
    if let Some((i, _)) = best {
        println!(
            "{:20} {}",
            "best run",
            plain(&beside.join(&spread.runs[i]).display().to_string())
        );
    }
    Ok(if failed {
        Outcome::CheckFailed
    } else {
        Outcome::Done
    })
}

/// The run's folder, and the one beside it for its parts; neither is there yet.
fn folders(
    experiment: &Experiment,
    out: Option<&Path>,
    what: &str,
) -> anyhow::Result<(PathBuf, PathBuf)> {
    let beside = |run: &Path| {
        let mut name = run.file_name().unwrap_or_default().to_os_string();
        name.push(format!("-{what}"));
        run.with_file_name(name)
    };
    let run = match out {
        Some(out) => out.to_path_buf(),
        None => {
            let taken = |name: &str| beside(&Path::new("runs").join(name)).exists();
            let mut name = experiment.name.clone();
            let mut n = 1;
            while taken(&name) || Path::new("runs").join(&name).exists() {
                n += 1;
                name = format!("{}-{n}", experiment.name);
            }
            free_folder(&name)
        }
    };
    let parts = beside(&run);
    for path in [&run, &parts] {
        if path.exists() {
            anyhow::bail!(
                "{}: is there already; --out chooses another",
                path.display()
            );
        }
    }
    Ok((run, parts))
}

/// Prints the table and writes it beside the runs.
fn show(spread: &Spread, first: &str, best: Option<usize>, folder: &Path) -> anyhow::Result<()> {
    let (header, rows) = spread.table(first, best);
    let widths: Vec<usize> = (0..header.len())
        .map(|c| {
            let cells = rows.iter().map(|row| &row[c]).chain([&header[c]]);
            cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
        })
        .collect();
    for row in std::iter::once(&header).chain(&rows) {
        let cells = row.iter().zip(&widths);
        let line: Vec<String> = cells.map(|(cell, &w)| format!("{cell:w$}")).collect();
        println!("{}", line.join("  ").trim_end());
    }
    let column = |(c, name): (usize, &String)| {
        let cells = rows.iter().map(|row| row[c].clone());
        (name.clone(), cells.collect())
    };
    let columns: Vec<_> = header.iter().enumerate().map(column).collect();
    let path = folder.join(format!("{first}s.csv"));
    csv::write(&path, &columns)?;
    println!("{:20} {}", "table", plain(&path.display().to_string()));
    Ok(())
}
