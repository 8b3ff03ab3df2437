//! `retrograd verify`

use std::io::Write as _;
use std::path::PathBuf;
use std::sync::Arc;

use indicatif::{ProgressBar, ProgressStyle};
use retrograd::data::write_whole;
#[cfg(feature = "gpu")]
use retrograd::gpu::Precision;
use retrograd::verify::sizes::Draw;
use retrograd::verify::{self, Bundle, On, Options, Report, table};

use super::Threads;
#[cfg(feature = "gpu")]
use super::shader_mutants::{self, ShaderArgs};
use super::train::PrecisionArg;
use crate::exit::{Outcome, Result};

/// Checks gradients against independent oracles: central differences in f64, PyTorch's bundles,
/// predicted f32 bounds, threads, trajectories, and mutants that every check must catch.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  retrograd verify             the built-in models, about a minute
  retrograd verify --deep      with sizes around the cuts of every kernel along two axes at a time
  retrograd verify --mutants   every deliberate fault, and what caught it
  retrograd verify --only 'sizes: dense' --only 'network: dense'
  retrograd verify --device gpu
  retrograd verify --against bundles/*.safetensors --json report.json
  retrograd verify --library libmine.so
  retrograd verify --calibrate 100 --seed 7
  retrograd verify --resolution

Exit codes:
  0  everything was checked and passed; the promised rate of false alarms is not refuted
  1  something failed, or could not be checked; that rate is refuted
  2  a file that isn't a bundle, or anything else that went wrong")]
pub struct VerifyArgs {
    /// Checks reference bundles (safetensors) instead of the built-in models.
    #[arg(long, value_name = "FILE", num_args = 1..)]
    against: Vec<PathBuf>,
    /// Checks the kernels of a shared library (include/retrograd.h has the protocol) instead.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["against", "deep", "mutants", "only", "list"])]
    library: Option<PathBuf>,
    /// Draws sizes around the cuts of kernels along two axes at a time too; minutes instead of seconds.
    #[arg(long, conflicts_with_all = ["against", "mutants"])]
    deep: bool,
    /// Lists every mutant (a deliberate fault) with the checks that caught it, and nothing else.
    #[arg(long, conflicts_with = "against")]
    mutants: bool,
    /// Checks the built-in models, kernels and routines of that name alone, without their mutants; may
    /// be given several times. `--list` shows the names.
    #[arg(long, value_name = "NAME", conflicts_with_all = ["against", "mutants"])]
    only: Vec<String>,
    /// Lists what is checked, a name a line.
    #[arg(long, conflicts_with_all = ["against", "mutants", "only"])]
    list: bool,
    /// Draws so many random right models of all families instead, and counts the rows that are accused:
    /// the rate of false alarms.
    #[arg(long, value_name = "N", conflicts_with_all = ["against", "library", "deep", "mutants", "only", "list"])]
    calibrate: Option<u64>,
    /// Makes the gradients of so many random models wrong by shares that shrink until they hide, and prints the
    /// smallest that every link finds.
    #[arg(long, value_name = "N", num_args = 0..=1, default_missing_value = "140", conflicts_with_all = ["against", "library", "deep", "mutants", "only", "list", "calibrate"])]
    resolution: Option<u64>,
    /// The seed of the first of them, or of the mutants that are drawn.
    #[arg(long, value_name = "SEED", default_value_t = 1)]
    seed: u64,
    /// Where f32 is computed: bundles', and the built-in models' (without mutants, which are the
    /// CPU's).
    #[arg(long, value_enum, default_value = "cpu")]
    device: DeviceArg,
    /// The numbers of a GPU's activations and products, and of the bounds: f32, or mixed, 16 bits.
    #[arg(long, value_name = "PRECISION", default_value = "f32")]
    precision: PrecisionArg,
    /// Writes the report as JSON.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    #[cfg(feature = "gpu")]
    #[command(flatten)]
    shaders: ShaderArgs,
    #[command(flatten)]
    threads: Threads,
}

#[derive(Clone, Copy, Debug, PartialEq, clap::ValueEnum)]
enum DeviceArg {
    Cpu,
    Gpu,
}

pub fn run(args: VerifyArgs) -> Result {
    let threads = args.threads;
    threads.install(|| check(args))
}

fn check(args: VerifyArgs) -> Result {
    #[cfg(feature = "gpu")]
    if args.shaders.wanted() {
        if args.device == DeviceArg::Cpu {
            anyhow::bail!("--shader-mutants: got --device cpu, needs --device gpu");
        }
        return shader_mutants::run(&args.shaders, args.seed);
    }
    if args.list {
        names().iter().for_each(|name| println!("{name}"));
        return Ok(Outcome::Done);
    }
    if let Some(unknown) = args.only.iter().find(|name| !names().contains(name)) {
        anyhow::bail!("--only: got {unknown:?}, needs a name of `retrograd verify --list`");
    }
    let bar = progress_bar();
    let shown = bar.clone();
    let on = match args.device {
        DeviceArg::Cpu if args.precision == PrecisionArg::Mixed => {
            anyhow::bail!("--precision: got mixed with --device cpu, needs --device gpu")
        }
        DeviceArg::Cpu => On::Cpu,
        DeviceArg::Gpu if args.mutants => {
            anyhow::bail!("--mutants: got --device gpu, needs --device cpu: mutants are the CPU's")
        }
        DeviceArg::Gpu => On::Gpu(args.precision.into()),
    };
    #[cfg(feature = "gpu")]
    if on != On::Cpu {
        verify::on_device::guard_buffers();
    }
    let options = Options {
        on,
        progress: Some(Arc::new(move |what: &str| {
            shown.set_message(what.to_string());
            crate::log::event("note", serde_json::json!({ "text": what }));
        })),
        ..Options::default()
    };
    if let Some(models) = args.calibrate {
        return super::calibrate::run(models, args.seed, &options, &bar, args.json.as_deref());
    }
    if let Some(models) = args.resolution {
        return super::calibrate::resolution(models, args.seed, &options, &bar);
    }
    let report = if let Some(path) = &args.library {
        let checked = super::library::check(path);
        checked.inspect(|report| print_rows(&bar, report))
    } else if args.against.is_empty() {
        built_in(&args, &options, &bar)
    } else {
        against(&args, &options, &bar)
    };
    bar.finish_and_clear();
    let report = report?;
    if let Some(path) = &args.json {
        let text = serde_json::to_string_pretty(&report.to_json())?;
        write_whole(path, |file| writeln!(file, "{text}"))?;
    }
    println!("{}", report.summary());
    Ok(if report.passed() {
        Outcome::Done
    } else {
        Outcome::CheckFailed
    })
}

fn against(args: &VerifyArgs, options: &Options, bar: &ProgressBar) -> Result<Report> {
    // Every file is read first: a mistyped name is said before minutes of work.
    let bundles = args
        .against
        .iter()
        .map(Bundle::read)
        .collect::<retrograd::Result<Vec<_>>>()?;
    bar.set_length(bundles.len() as u64);
    let mut report = Report::default();
    for bundle in &bundles {
        let checked = verify::check_bundle(bundle, options)?;
        print_rows(bar, &checked);
        report.extend(checked);
        bar.inc(1);
    }
    Ok(report)
}

/// The built-in models' chain and, on the CPU, their mutants.
fn built_in(args: &VerifyArgs, options: &Options, bar: &ProgressBar) -> Result<Report> {
    let mut models = verify::built_in();
    models.retain(|model| args.wants(&model.name));
    if options.on != On::Cpu {
        bar.set_length(models.len() as u64);
        let report = verify::builtin::all(&models, |model| {
            let report = model.check(options);
            bar.inc(1);
            report
        })?;
        print_rows(bar, &report);
        let mut report = report;
        #[cfg(feature = "gpu")]
        report.extend(beside_models(args, options, bar)?);
        report.extend(sizes(args, options, bar)?);
        return Ok(report);
    }
    let with_mutants = models.iter().filter(|m| m.has_mutants()).count();
    let chains = if args.mutants { 0 } else { models.len() };
    bar.set_length((chains + with_mutants) as u64);
    let mut report = Report::default();
    if !args.mutants {
        report = verify::builtin::all(&models, |model| {
            let report = model.check(options);
            bar.inc(1);
            report
        })?;
        print_rows(bar, &report);
        let mut practice = verify::practice::all();
        practice.retain(|p| args.wants(p.name));
        let practice = verify::practice::check_all(&practice)?;
        print_rows(bar, &practice);
        report.extend(practice);
        report.extend(sizes(args, options, bar)?);
    }
    if !args.only.is_empty() {
        return Ok(report);
    }
    let mutants = verify::builtin::all(&models, |model| {
        let report = model.mutants(options);
        if model.has_mutants() {
            bar.inc(1);
        }
        report
    })?;
    if args.mutants {
        print_rows(bar, &mutants);
    } else {
        // One by one with --mutants; here those that got away.
        let missed = Report {
            rows: mutants.problems().cloned().collect(),
        };
        if !missed.rows.is_empty() {
            print_rows(bar, &missed);
        }
    }
    bar.suspend(|| println!("{}", headline(&mutants)));
    report.extend(mutants);
    Ok(report)
}

/// What runs on a device beside the models.
#[cfg(feature = "gpu")]
fn beside_models(args: &VerifyArgs, options: &Options, bar: &ProgressBar) -> Result<Report> {
    let On::Gpu(Precision::F32) = options.on else {
        return Ok(Report::default());
    };
    let half = verify::on_device::has_f16()?;
    let mut report = Report::default();
    for check in verify::on_device::beside_models(half) {
        if args.wants(&check.name) {
            report.extend(check.run(options)?);
        }
    }
    print_rows(bar, &report);
    Ok(report)
}

impl VerifyArgs {
    fn wants(&self, name: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|only| only == name)
    }
}

fn size_name(stretch: &verify::sizes::Stretch) -> String {
    format!("sizes: {}", stretch.name)
}

/// What `--only` takes.
fn names() -> Vec<String> {
    let models = verify::built_in().into_iter().map(|model| model.name);
    let practice = verify::practice::all()
        .into_iter()
        .map(|p| p.name.to_string());
    let mut names: Vec<String> = models.chain(practice).collect();
    names.extend(verify::sizes::all().iter().map(size_name));
    #[cfg(feature = "gpu")]
    names.extend(
        verify::on_device::beside_models(true)
            .into_iter()
            .map(|c| c.name),
    );
    names.dedup();
    names
}

/// How many mutants were caught by what: first those that need no right model beside them.
fn headline(mutants: &Report) -> String {
    let (all, passed) = (mutants.rows.len(), mutants.counts().passed);
    let own = mutants.rows.iter().filter(|row| row.independent).count();
    format!(
        "{own} of {all} mutants caught by an independent link; {} more only beside the right model, \
         as a bundle would show them; {} missed",
        passed - own,
        all - passed
    )
}

/// Every kernel and shared routine on both sides of its cuts.
fn sizes(args: &VerifyArgs, options: &Options, bar: &ProgressBar) -> Result<Report> {
    let mut stretched = verify::sizes::all();
    stretched.retain(|s| args.wants(&size_name(s)) && (options.on == On::Cpu || s.is_model()));
    if stretched.is_empty() {
        return Ok(Report::default());
    }
    bar.inc_length(stretched.len() as u64);
    let draw = match args.deep {
        true => Draw::Deep,
        false => Draw::Plain,
    };
    let report = verify::sizes::check_all(&stretched, draw, options, || bar.inc(1));
    print_rows(bar, &report);
    let cuts: usize = stretched.iter().map(|s| s.cuts().count()).sum();
    let passed = report.counts().passed;
    bar.suspend(|| {
        println!(
            "{passed} of {} checks at sizes around {cuts} cuts of {} kernels and routines passed",
            report.rows.len(),
            stretched.len()
        );
    });
    Ok(report)
}

/// Prints rows above the progress bar; with --quiet those that did not pass.
fn print_rows(bar: &ProgressBar, report: &Report) {
    let rows: Vec<_> = match crate::log::style().quiet {
        true => report.problems().cloned().collect(),
        false => report.rows.clone(),
    };
    if rows.is_empty() {
        return;
    }
    bar.suspend(|| {
        let mut out = std::io::stdout().lock();
        let _ = writeln!(out, "{}", table(&rows));
    });
}

/// On a terminal only: elsewhere the tables themselves show how far it is.
fn progress_bar() -> ProgressBar {
    if !crate::log::draws() {
        return ProgressBar::hidden();
    }
    let style = "{bar:30} {pos}/{len} {elapsed} {msg}";
    ProgressBar::new(1).with_style(
        ProgressStyle::with_template(style).unwrap_or_else(|_| ProgressStyle::default_bar()),
    )
}
