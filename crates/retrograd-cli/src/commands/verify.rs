//! `retrograd verify`

use std::io::{IsTerminal, Write as _};
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Context as _;
use indicatif::{ProgressBar, ProgressStyle};
use retrograd::verify::{self, Bundle, On, Options, Report, table};

use super::Threads;
use crate::exit::{Outcome, Result};

/// Checks gradients against independent oracles.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Exit codes: 0 everything was checked and passed, 1 something failed or \
                        could not be checked, 2 a file that is no bundle."
)]
pub struct VerifyArgs {
    /// Checks reference bundles (safetensors) instead of the built-in models.
    #[arg(long, value_name = "FILE", num_args = 1..)]
    against: Vec<PathBuf>,
    /// Where bundles are computed in f32.
    #[arg(long, value_enum, default_value = "cpu", requires = "against")]
    device: DeviceArg,
    /// Writes the report as JSON.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    #[command(flatten)]
    threads: Threads,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum DeviceArg {
    Cpu,
    Gpu,
}

pub fn run(args: VerifyArgs) -> Result {
    let threads = args.threads;
    threads.install(|| check(args))
}

fn check(args: VerifyArgs) -> Result {
    let bar = progress_bar();
    let shown = bar.clone();
    let options = Options {
        progress: Some(Arc::new(move |what: &str| {
            shown.set_message(what.to_string());
        })),
        ..Options::default()
    };
    let report = against(&args, &options, &bar)?;
    bar.finish_and_clear();
    if let Some(path) = &args.json {
        let text = serde_json::to_string_pretty(&report.to_json())?;
        std::fs::write(path, text + "\n").with_context(|| format!("{}", path.display()))?;
    }
    println!("{}", report.summary());
    Ok(if report.passed() {
        Outcome::Done
    } else {
        Outcome::CheckFailed
    })
}

fn against(args: &VerifyArgs, options: &Options, bar: &ProgressBar) -> Result<Report> {
    let on = match args.device {
        DeviceArg::Cpu => On::Cpu,
        DeviceArg::Gpu => On::Gpu,
    };
    // Every file is read first: a mistyped name is said before minutes of work.
    let bundles = args
        .against
        .iter()
        .map(Bundle::read)
        .collect::<retrograd::Result<Vec<_>>>()?;
    bar.set_length(bundles.len() as u64);
    let mut report = Report::default();
    for bundle in &bundles {
        let checked = verify::check_bundle(bundle, on, options)?;
        print_rows(bar, &checked);
        report.extend(checked);
        bar.inc(1);
    }
    Ok(report)
}

/// Prints rows above the progress bar.
fn print_rows(bar: &ProgressBar, report: &Report) {
    bar.suspend(|| {
        let mut out = std::io::stdout().lock();
        let _ = writeln!(out, "{}", table(&report.rows));
    });
}

/// On a terminal only: elsewhere the tables themselves show how far it is.
fn progress_bar() -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let style = "{bar:30} {pos}/{len} {elapsed} {msg}";
    ProgressBar::new(1).with_style(
        ProgressStyle::with_template(style).unwrap_or_else(|_| ProgressStyle::default_bar()),
    )
}
