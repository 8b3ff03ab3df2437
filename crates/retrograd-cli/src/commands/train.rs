//! `retrograd train`

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use clap::ValueEnum;
use retrograd::Family;
use retrograd::group::Group;
use retrograd::train::{
    Experiment, Findings, Mode, OnNan, Placement, Precision, Session, Summary, Verdict,
    Verification, number,
};
use serde_json::json;

use super::many_runs;
use crate::console::Terminal;
use crate::exit::{Outcome, Result};
use crate::log::plain;
use crate::progress::Progress;
use crate::{experiments, log, processes, signals};

/// Trains a model: a ready experiment or your own.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  retrograd train --list
  retrograd train moons --seed 1
  retrograd train wine.toml --out runs/first --threads 2
  retrograd train wine.toml --folds 5
  retrograd train life-small --seeds 5
  retrograd train --resume runs/moons --epochs 120
  mpirun -np 4 retrograd train wine.toml     (built with --features mpi)

Exit codes:
  0    trained
  1    trained, but the verification at the end failed, or, with
       --require-learned, the model did not learn
  2    bad input, or anything else that went wrong
  130  stopped by Ctrl-C or SIGTERM, the state saved: --resume goes on")]
pub struct TrainArgs {
    /// A ready experiment (see --list), or an experiment file.
    #[arg(value_name = "NAME|FILE.toml", required_unless_present_any = ["list", "resume"])]
    experiment: Option<OsString>,
    /// The experiment's smaller variant, NAME-small, for a quick look.
    #[arg(long, requires = "experiment")]
    small: bool,
    /// Lists the ready experiments.
    #[arg(long)]
    list: bool,
    /// The run's folder; runs/NAME by default.
    #[arg(long, value_name = "RUN")]
    out: Option<PathBuf>,
    /// Continues the run in this folder; a larger --epochs takes it past its old end.
    #[arg(long, value_name = "RUN", conflicts_with_all = ["out", "weights"])]
    resume: Option<PathBuf>,
    /// The seed of everything random.
    #[arg(long, value_name = "S")]
    seed: Option<u64>,
    /// Cross-validates: trains in every fold on the others, then on all rows, for the median of the
    /// folds' best epochs. Figures are mean and deviation over the folds' own rows.
    #[arg(long, value_name = "K", conflicts_with_all = ["resume", "weights", "show_plan"],
          value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(..=1_000_000))]
    folds: Option<usize>,
    /// Trains with this many seeds, from --seed on: a folder each, a table of mean and deviation, the
    /// best marked.
    #[arg(long, value_name = "N", conflicts_with_all = ["resume", "folds", "show_plan"],
          value_parser = clap::value_parser!(u64).range(2..=1000))]
    seeds: Option<u64>,
    /// Passes over the data.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    epochs: Option<u64>,
    /// Initial weights: a safetensors file of ours or of PyTorch's.
    #[arg(long, value_name = "FILE")]
    weights: Option<PathBuf>,
    /// What happens when a loss or a gradient is not finite.
    #[arg(long, value_name = "WHAT")]
    on_nan: Option<OnNanArg>,
    /// Where steps are computed: cpu, gpu, or gpu:N or gpu:NAME for an adapter of `devices`; several
    /// adapters share every batch as gpu:N,M or gpu:all. Of processes on one machine, gpu gives each
    /// an adapter of its own.
    /// auto times a few steps on the CPU and on the GPU and takes the faster; the run keeps it. Where
    /// nothing is said: the CPU, or what the run that goes on was placed on by auto.
    #[arg(long, value_name = "DEVICE", value_parser = parse_train_device)]
    device: Option<TrainDevice>,
    /// What a GPU does: native, whole steps; hybrid, gradients for the CPU's optimizer.
    /// Native by default.
    #[arg(long, value_name = "MODE")]
    mode: Option<ModeArg>,
    /// The numbers of a GPU's activations and products: f32, or mixed, 16 bits with 32-bit sums and
    /// weights and a scale on the loss.
    #[arg(long, value_name = "PRECISION", default_value = "f32")]
    precision: PrecisionArg,
    /// Hybrid mode: gradients come back as 16-bit floats, and what rounding takes away comes with
    /// the next ones.
    #[arg(long)]
    compress_gradients: bool,
    /// Samples in a batch; auto, with --device gpu, takes what the adapter's limits and memory
    /// allow.
    #[arg(long, value_name = "N|auto", value_parser = parse_batch, conflicts_with = "resume")]
    batch: Option<BatchArg>,
    /// The most memory that the run may take, in MiB; what the machine has where it isn't given. A
    /// run that needs more is refused before it begins.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    memory_mib: Option<u64>,
    /// Leaves out the verification of the trained model at the end: central differences, f32
    /// against f64, and threads on a small batch; it takes a few seconds at most.
    #[arg(long)]
    no_verify: bool,
    /// Leaves out the curves and the report.
    #[arg(long)]
    no_report: bool,
    /// Exits with 1 where the model did not learn, as the last line says.
    #[arg(long)]
    require_learned: bool,
    /// Prints what a training step computes, in which order and into which buffers, and when every
    /// gradient is complete; nothing is trained.
    #[arg(long)]
    show_plan: bool,
    #[command(flatten)]
    threads: super::Threads,
}

/// Where a run is trained.
#[derive(Clone, Debug, PartialEq)]
pub enum TrainDevice {
    /// Where steps are faster.
    Auto,
    On(DeviceArg),
}

fn parse_train_device(text: &str) -> std::result::Result<TrainDevice, String> {
    match text {
        "auto" => Ok(TrainDevice::Auto),
        _ => parse_device(text).map(TrainDevice::On),
    }
}

/// `cpu`, or the adapter after `gpu:`.
#[derive(Clone, Debug, PartialEq)]
pub enum DeviceArg {
    Cpu,
    Gpu(String),
}

pub fn parse_device(text: &str) -> std::result::Result<DeviceArg, String> {
    match text.split_once(':') {
        None if text == "cpu" => Ok(DeviceArg::Cpu),
        None if text == "gpu" => Ok(DeviceArg::Gpu("auto".into())),
        Some(("gpu", adapter)) => Ok(DeviceArg::Gpu(adapter.into())),
        _ => Err("needs cpu, gpu, gpu:N, gpu:NAME, gpu:N,M or gpu:all".into()),
    }
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum ModeArg {
    /// Forward, loss, backward, clipping and optimizer on the device.
    Native,
    /// The optimizer on the CPU.
    Hybrid,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum PrecisionArg {
    /// 32 bits.
    F32,
    /// 16 bits for activations and products, 32 for sums, weights and the optimizer.
    Mixed,
}

impl From<PrecisionArg> for Precision {
    fn from(arg: PrecisionArg) -> Self {
        match arg {
            PrecisionArg::F32 => Precision::F32,
            PrecisionArg::Mixed => Precision::Mixed,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum BatchArg {
    Auto,
    Samples(usize),
}

fn parse_batch(text: &str) -> std::result::Result<BatchArg, String> {
    match (text, text.parse()) {
        ("auto", _) => Ok(BatchArg::Auto),
        (_, Ok(samples)) if samples > 0 => Ok(BatchArg::Samples(samples)),
        _ => Err("needs a number from 1 on, or auto".into()),
    }
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum OnNanArg {
    /// Stop with an error, keep the last good state.
    Stop,
    /// Leave the step out and go on.
    Skip,
}

pub fn run(args: TrainArgs) -> Result {
    retrograd::budget::limit_to(args.memory_mib.map(|mib| mib.saturating_mul(1 << 20)));
    if args.list {
        for name in experiments::names() {
            let experiment = experiments::open(name)?;
            println!("{name:22} {}", experiment.about);
        }
        return Ok(Outcome::Done);
    }
    let group = processes::join()?;
    let prepared = prepare(&args, group);
    // Where one process can't go on, none does.
    let told = prepared.as_ref().map(|_| ()).map_err(|e| format!("{e:#}"));
    let agreed = group.map_or(Ok(()), |group| retrograd::group::agree(group, &told));
    let (experiment, family, placements) = prepared?;
    agreed?;
    if args.show_plan {
        let mut plan = String::new();
        let mut session = Session::new(experiment).planned_into(&mut plan);
        family.train(&mut session)?;
        drop(session);
        if !log::silent() {
            print!("{plan}");
        }
        return Ok(Outcome::Done);
    }
    let trainer = Trainer {
        family,
        placements,
        by_time: args.device == Some(TrainDevice::Auto),
        group,
        verify: !args.no_verify,
        report: !args.no_report,
        require_learned: args.require_learned,
        threads: args.threads,
    };
    if let Some(folds) = args.folds {
        family.check_folds(&experiment, folds)?;
        return many_runs::folds(&trainer, &experiment, folds, args.out.as_deref());
    }
    if let Some(seeds) = args.seeds {
        return many_runs::seeds(&trainer, &experiment, seeds, args.out.as_deref());
    }
    let summary = match (args.resume, args.out) {
        (Some(run), _) => trainer.train(experiment, &run, true, Findings::default())?,
        (None, out) => {
            let run = out.unwrap_or_else(|| free_folder(&experiment.name));
            trainer.train(experiment, &run, false, Findings::default())?
        }
    };
    Ok(trainer.outcome(&summary))
}

/// The experiment with what the command line changes, its family, and where it is trained.
fn prepare(
    args: &TrainArgs,
    group: Option<&dyn Group>,
) -> anyhow::Result<(Experiment, &'static Family, Vec<Placement>)> {
    if let Some(group) = group.filter(|group| group.size() > 1)
        && let Some(option) = [
            ("--folds", args.folds.is_some()),
            ("--seeds", args.seeds.is_some()),
        ]
        .iter()
        .find(|(_, given)| *given)
    {
        anyhow::bail!(
            "{}: many runs, and {} processes that share one; start a process for each run",
            option.0,
            group.size()
        );
    }
    let mut experiment = match (&args.experiment, &args.resume) {
        (Some(name), _) if args.small => experiments::small(name)?,
        (Some(name), _) => experiments::open(name)?,
        (None, Some(run)) => experiments::of_run(run)?,
        (None, None) => anyhow::bail!("train: needs an experiment or --resume RUN"),
    };
    let train = &mut experiment.train;
    train.seed = args.seed.unwrap_or(train.seed);
    train.epochs = args.epochs.unwrap_or(train.epochs);
    match args.on_nan {
        Some(OnNanArg::Stop) => train.on_nan = OnNan::Stop,
        Some(OnNanArg::Skip) => train.on_nan = OnNan::Skip,
        None => {}
    }
    if let Some(weights) = &args.weights {
        // As the user typed it: from the current folder, not the experiment's.
        train.weights = Some(std::path::absolute(weights)?);
    }
    let family = Family::find(experiment.family())?;
    let mut placements = placements(args, group.is_some())?;
    if let (None, Some(_), Some(kept)) = (&args.device, &args.resume, &experiment.train.device) {
        placements = vec![Placement::parse(kept)?];
    } else if let Some(TrainDevice::On(_)) = &args.device {
        // What was found by timing no longer holds.
        experiment.train.device = None;
    }
    let many = placements.len() > 1 && args.device != Some(TrainDevice::Auto);
    if many && (args.folds.is_some() || args.seeds.is_some()) {
        anyhow::bail!(
            "--device: got several adapters for many runs; start a command for each adapter"
        );
    }
    match args.batch {
        None => {}
        Some(BatchArg::Samples(samples)) => experiment.train.batch = Some(samples),
        Some(BatchArg::Auto) => {
            let console = &mut Terminal::default();
            // Of several places, the last is a GPU.
            let place = placements.last().expect("there is one");
            let batch = family.auto_batch(&experiment, place, console)?;
            experiment.train.batch = Some(batch);
        }
    }
    Ok((experiment, family, placements))
}

/// Trains experiments of a family, all in the same way.
pub(super) struct Trainer {
    family: &'static Family,
    /// Where steps are computed: one place, or several adapters that share them.
    placements: Vec<Placement>,
    /// Whether the faster of them is taken.
    by_time: bool,
    group: Option<&'static dyn Group>,
    verify: bool,
    report: bool,
    require_learned: bool,
    threads: super::Threads,
}

impl Trainer {
    /// What the exit code says of a trained model.
    pub(super) fn outcome(&self, summary: &Summary) -> Outcome {
        let wrong = summary
            .verification
            .as_ref()
            .is_some_and(Verification::failed);
        let learned = !matches!(summary.verdict, Some(Verdict::NotLearned { .. }));
        match wrong || (self.require_learned && !learned) {
            true => Outcome::CheckFailed,
            false => Outcome::Done,
        }
    }

    /// Trains in a folder, and says how it went.
    pub(super) fn train(
        &self,
        experiment: Experiment,
        run: &Path,
        resume: bool,
        added: Findings,
    ) -> anyhow::Result<Summary> {
        let go_on = format!("retrograd train --resume {}", run.display());
        signals::last_words(match resume {
            false => "stopped before the first step".to_string(),
            true => format!("stopped before the next step; go on with: {go_on}"),
        });
        let mut progress = Progress::new(format!("stopped; go on with: {go_on}"));
        let order = Order {
            experiment,
            run,
            resume,
            added,
        };
        let one = self.by_time || self.placements.len() == 1;
        let result = if let ([placement, ..], true) = (&self.placements[..], one) {
            let mut session = self.session(&order, placement).observed_by(&mut progress);
            if self.by_time {
                session = session.placed_by_time(self.placements.clone());
            }
            if let Some(group) = self.group {
                session = session.in_group(group);
            }
            self.threads.install(|| self.family.train(&mut session))
        } else {
            self.train_on_all(&order, &mut progress)
        };
        drop(progress);
        let summary = match result {
            Err(error @ retrograd::Error::Interrupted { .. }) => {
                let message = format!("{error}; go on with: {go_on}");
                return Err(anyhow::Error::new(error).context(message));
            }
            result => result?,
        };
        if log::silent() {
            return Ok(summary);
        }
        print_summary(&summary, run);
        log::event(
            "done",
            json!({
                "run": run.display().to_string(),
                "report": run.join("report.html").display().to_string(),
                "summary": summary.to_json(),
            }),
        );
        Ok(summary)
    }

    fn session<'s>(&self, order: &Order<'_>, placement: &Placement) -> Session<'s> {
        let session = Session::new(order.experiment.clone())
            .placed(placement.clone())
            .verified(self.verify)
            .reported(self.report)
            .with_findings(order.added.clone())
            .stopped_by(signals::stop());
        match order.resume {
            true => session.resuming(order.run),
            false => session.in_folder(order.run),
        }
    }

    /// A thread for every adapter, as if each were a process; the first speaks.
    fn train_on_all(
        &self,
        order: &Order<'_>,
        progress: &mut Progress,
    ) -> retrograd::Result<Summary> {
        let progress = Mutex::new(Some(progress));
        let mut all = retrograd::group::threads(self.placements.len(), |group| {
            let speaker = match group.rank() {
                0 => progress
                    .lock()
                    .ok()
                    .and_then(|mut progress| progress.take()),
                _ => None,
            };
            let placement = &self.placements[group.rank()];
            let mut session = self.session(order, placement).in_group(group);
            if let Some(speaker) = speaker {
                session = session.observed_by(speaker);
            }
            self.family.train(&mut session)
        });
        all.swap_remove(0)
    }
}

/// A run that is asked for.
struct Order<'a> {
    experiment: Experiment,
    run: &'a Path,
    resume: bool,
    added: Findings,
}

/// The adapters of `--device gpu:…`.
#[cfg(feature = "gpu")]
fn adapters(asked: &str, joined: bool) -> anyhow::Result<Vec<String>> {
    use retrograd::gpu::Gpu;
    let listed: Vec<String> = asked
        .split(',')
        .map(|part| part.trim().to_string())
        .collect();
    if joined && (asked == "all" || listed.len() > 1) {
        anyhow::bail!(
            "--device: got gpu:{asked} for one of several processes, needs gpu: each takes an adapter of its \
             own"
        );
    }
    match asked {
        "all" => Ok(Gpu::best_adapters()?.iter().map(usize::to_string).collect()),
        "auto" if joined => {
            let all = Gpu::best_adapters()?;
            Ok(vec![all[processes::local_rank() % all.len()].to_string()])
        }
        _ => Ok(listed),
    }
}

/// Without them, training says so.
#[cfg(not(feature = "gpu"))]
fn adapters(asked: &str, _: bool) -> anyhow::Result<Vec<String>> {
    Ok(vec![asked.to_string()])
}

/// Where the steps are computed, and how.
fn placements(args: &TrainArgs, joined: bool) -> anyhow::Result<Vec<Placement>> {
    let on_cpu = matches!(args.device, None | Some(TrainDevice::On(DeviceArg::Cpu)));
    if let (Some(mode), true) = (args.mode, on_cpu) {
        let mode = match mode {
            ModeArg::Native => "native",
            ModeArg::Hybrid => "hybrid",
        };
        anyhow::bail!("--mode: got {mode} with --device cpu, needs --device gpu");
    }
    let mode = match args.mode {
        None | Some(ModeArg::Native) => Mode::Native,
        Some(ModeArg::Hybrid) => Mode::Hybrid,
    };
    let precision = Precision::from(args.precision);
    if precision == Precision::Mixed && on_cpu {
        anyhow::bail!("--precision: got mixed with --device cpu, needs --device gpu");
    }
    if args.compress_gradients && (mode != Mode::Hybrid || on_cpu) {
        anyhow::bail!("--compress-gradients: needs --device gpu --mode hybrid");
    }
    let placed = |adapter| Placement::Gpu {
        adapter,
        mode,
        precision,
        compress: args.compress_gradients,
    };
    match &args.device {
        None | Some(TrainDevice::On(DeviceArg::Cpu)) => Ok(vec![Placement::Cpu]),
        Some(TrainDevice::On(DeviceArg::Gpu(asked))) => {
            Ok(adapters(asked, joined)?.into_iter().map(placed).collect())
        }
        Some(TrainDevice::Auto) if joined => anyhow::bail!(
            "--device: got auto for one of several processes, needs cpu or gpu: all take the same"
        ),
        Some(TrainDevice::Auto) => Ok(vec![Placement::Cpu, placed("auto".into())]),
    }
}

/// `runs/NAME`, or the first of `runs/NAME-2`, … that isn't there yet.
pub(super) fn free_folder(name: &str) -> PathBuf {
    let folder = Path::new("runs");
    let numbered = (2..).map(|n| folder.join(format!("{name}-{n}")));
    std::iter::once(folder.join(name))
        .chain(numbered)
        .find(|path| !path.exists())
        .expect("numbers don't end")
}

fn print_summary(summary: &Summary, run: &Path) {
    let json = summary.to_json();
    for (name, value) in json.as_object().into_iter().flatten() {
        // Whole numbers as they are; the file has all digits of the others.
        let text = match value.as_f64() {
            Some(x) if value.is_f64() => number(x),
            _ if value.is_null() || value.is_array() || value.is_object() => continue,
            _ => match value.as_str() {
                Some(text) => plain(text).into_owned(),
                None => value.to_string(),
            },
        };
        // Which data a measure is from, and which epoch.
        match summary.source(name) {
            Some(source) => println!("{name:20} {text:12} {}", source.sentence()),
            None => println!("{name:20} {text}"),
        }
    }
    if let Some(verification) = &summary.verification {
        println!("{:20} {}", "verification", verification.sentence());
    }
    println!("{:20} {}", "run", plain(&run.display().to_string()));
    if run.join("report.html").exists() {
        let report = run.join("report.html").display().to_string();
        println!("{:20} {}", "report", plain(&report));
    }
    let attempts = match summary.attempts {
        None => String::new(),
        Some((1, _)) => " at the first attempt".to_string(),
        Some((n, _)) => format!(" after {n} attempts"),
    };
    match &summary.verdict {
        Some(Verdict::NotLearned { why, advice }) => {
            println!("{:20} {why}{attempts}; {advice}", "did not learn:");
        }
        Some(Verdict::Learned) if summary.attempts.is_some() => {
            println!("{:20} by epoch {}{attempts}", "learned:", summary.epochs);
        }
        _ => {}
    }
}
