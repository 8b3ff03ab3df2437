//! `retrograd bench`

use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use retrograd::bench::{Workload, all};
use retrograd::command::did_you_mean;
use retrograd::data::write_whole;
use retrograd::group::Alone;
use retrograd::parallel;

use super::{bench_growth, bench_mpi, bench_traffic};
use crate::bench::{self, Device};
use crate::exit::{Outcome, Result};
use crate::{log, processes};

/// Times named workloads: the median and the minimum of a step, after warm-up.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  retrograd bench --list
  retrograd bench mlp-256 'kan-*' --threads 2 --json figures.json
  retrograd bench 'logic-*' --speedup
  retrograd bench --device gpu --profile
  retrograd bench --traffic
  retrograd bench --growth 'mlp-*'
  mpirun -np 2 retrograd bench kan-wide-256 --threads 1")]
pub struct BenchArgs {
    /// The workloads; all of them by default. A final * stands for any ending.
    #[arg(value_name = "NAME")]
    names: Vec<String>,
    /// Lists the workloads.
    #[arg(long)]
    list: bool,
    /// What they run on.
    #[arg(long, value_enum, default_value = "cpu")]
    device: Device,
    /// Makes training steps on the CPU with fused updates, each tensor's once its gradient is
    /// complete; leaves out workloads that aren't training steps.
    #[arg(long, conflicts_with_all = ["profile", "dump"])]
    fused_updates: bool,
    /// Makes training steps on the CPU on batches that are cut into shards; under mpirun the processes
    /// share them, and 8 are made where none are asked for. Leaves out workloads that can't be cut.
    #[arg(long, value_name = "N", conflicts_with_all = ["profile", "dump", "fused_updates"],
          value_parser = clap::value_parser!(u16).range(1..))]
    shards: Option<u16>,
    /// Times every workload on 1, 2, … threads, up to --threads, and shows what the others gain
    /// over one.
    #[arg(long, conflicts_with_all = ["profile", "dump", "shards"])]
    speedup: bool,
    /// Shows where the time of a native step goes, kernel by kernel, with --device gpu.
    #[arg(long)]
    profile: bool,
    /// Shows what a training step on a GPU sends, waits for, and lets kernels read and write, beside the least,
    /// and its time beside the CPU's; of a few workloads of every family where none are named. Kernel by
    /// kernel where one is.
    #[arg(long, conflicts_with_all = ["profile", "dump", "shards", "speedup", "fused_updates"])]
    traffic: bool,
    /// Doubles the size of a step (rows, width, depth, images, nodes, edges, cells, steps) until it takes a second
    /// or a gigabyte, and says with which power of the size time and memory grow.
    #[arg(long, conflicts_with_all = ["profile", "traffic", "shards", "speedup", "fused_updates"])]
    growth: bool,
    /// Measures that size of one growing workload alone and prints it as JSON; with --dump, writes it.
    #[arg(long, value_name = "N", requires = "growth")]
    size: Option<usize>,
    /// Writes the figures as a JSON array.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Writes one workload's weights, batch and first losses as safetensors instead of timing it:
    /// what another framework needs to do the same work.
    #[arg(long, value_name = "FILE", requires = "names", conflicts_with = "json")]
    dump: Option<PathBuf>,
    #[command(flatten)]
    threads: super::Threads,
}

/// The measures of processes among the names that were given, which are taken alone.
fn asked_of_mpi(names: &[String]) -> Vec<&'static str> {
    let asked = |name: &str| {
        let mut given = names.iter().filter(|given| given.starts_with("mpi-"));
        given.any(|given| match given.strip_suffix('*') {
            Some(start) => name.starts_with(start),
            None => name == given,
        })
    };
    let all = bench_mpi::NAMES.iter().map(|(name, _)| *name);
    all.filter(|name| asked(name)).collect()
}

pub fn run(args: BenchArgs) -> Result {
    if args.profile {
        return profile(args.device);
    }
    if args.traffic {
        return bench_traffic::run(&args.names, args.threads);
    }
    if args.growth {
        return bench_growth::run(&bench_growth::Asked {
            names: &args.names,
            size: args.size,
            json: args.json.as_deref(),
            dump: args.dump.as_deref(),
            list: args.list,
            threads: args.threads,
        });
    }
    let of_mpi = asked_of_mpi(&args.names);
    if !of_mpi.is_empty() {
        return bench_mpi::run(&of_mpi);
    }
    let workloads = choose(&args.names, (!args.list).then_some(args.device))?;
    if args.list {
        list(&workloads, args.names.is_empty());
        return Ok(Outcome::Done);
    }
    if let Some(path) = &args.dump {
        return dump(&workloads, args.device, path);
    }
    let group = processes::join()?;
    let shares = args.shards.is_some() || group.is_some();
    let print = |line: String| {
        if !log::silent() {
            println!("{line}");
        }
    };
    print("workload                 device threads       median      minimum  rate".into());
    let most = args.threads.install(parallel::threads);
    let counts = if args.speedup { 1..=most } else { most..=most };
    let mut timings = Vec::new();
    let each = workloads
        .iter()
        .flat_map(|w| counts.clone().map(move |n| (*w, n)));
    let mut alone = None;
    for (workload, threads) in each {
        let timing = parallel::with_threads(threads, || match shares {
            true => {
                let shards = args.shards.map(usize::from);
                bench::time_shared(workload, shards, group.unwrap_or(&Alone))
            }
            false => bench::time(workload, args.device, args.fused_updates),
        });
        let timing = timing.with_context(|| format!("workload {}", workload.name))?;
        let Some(timing) = timing else {
            continue;
        };
        if threads == 1 {
            alone = Some(timing.median);
        }
        let gain = alone.filter(|_| args.speedup && threads > 1).map(|alone| {
            let times = alone.as_secs_f64() / timing.median.as_secs_f64();
            format!("{times:.2} × one thread")
        });
        let gflops = timing.gflops().map(|g| format!("{g:.1} GFLOP/s"));
        let rate = timing.rate().map(|(name, r)| format!("{r:.3e} {name}"));
        let shared = timing.shared.map(|shared| shared.text());
        print(format!(
            "{:24} {:6} {:7} {:>12} {:>12}  {}",
            timing.name,
            timing.device.name(),
            timing.threads,
            format!("{:.2?}", timing.median),
            format!("{:.2?}", timing.min),
            [gflops, rate, gain, shared]
                .into_iter()
                .flatten()
                .collect::<Vec<_>>()
                .join(", ")
        ));
        timings.push(timing.to_json());
    }
    if timings.is_empty() {
        let option = if shares {
            "--shards"
        } else {
            "--fused-updates"
        };
        bail!("{option}: got no workload of training steps on the CPU that has them, needs one");
    }
    if let Some(path) = args.json.as_ref().filter(|_| !log::silent()) {
        let text = serde_json::to_string_pretty(&timings)? + "\n";
        write_whole(path, |file| file.write_all(text.as_bytes()))?;
    }
    Ok(Outcome::Done)
}

/// The workloads, and those of processes, which are no training steps.
fn list(workloads: &[&Workload], all: bool) {
    let own = workloads.iter().map(|w| (w.name, w.about));
    let of_mpi = bench_mpi::NAMES.iter().copied().filter(|_| all);
    for (name, about) in own.chain(of_mpi) {
        println!("{name:24} {about}");
    }
}

fn dump(workloads: &[&'static Workload], device: Device, path: &Path) -> Result {
    let [workload] = workloads else {
        bail!("--dump: got {} workloads, needs one", workloads.len());
    };
    let prepared = bench::build(workload, device)?;
    let Some(problem) = prepared.problem else {
        bail!(
            "--dump: the workload {} has no form for others",
            workload.name
        );
    };
    problem()?.write(path)?;
    Ok(Outcome::Done)
}

#[cfg(feature = "gpu")]
fn profile(device: Device) -> Result {
    if device != Device::Gpu {
        bail!("--profile: got --device {}, needs gpu", device.name());
    }
    for samples in [64, 256] {
        retrograd::kan::profile(samples, &mut crate::console::Terminal::default())?;
    }
    Ok(Outcome::Done)
}

#[cfg(not(feature = "gpu"))]
fn profile(_: Device) -> Result {
    bail!("--profile: this build has no GPU; it needs the feature gpu");
}

pub(super) fn choose(
    names: &[String],
    device: Option<Device>,
) -> anyhow::Result<Vec<&'static Workload>> {
    if names.is_empty() {
        // Those of the device; a list shows all.
        let of = |w: &&Workload| match device {
            Some(device) => w.name.starts_with("gpu-") == (device == Device::Gpu),
            None => true,
        };
        return Ok(all().filter(of).collect());
    }
    let mut chosen = Vec::new();
    for name in names {
        let found: Vec<_> = all()
            .filter(|w| match name.strip_suffix('*') {
                Some(prefix) => w.name.starts_with(prefix),
                None => w.name == name,
            })
            .collect();
        if found.is_empty() {
            bail!(
                "workload {name:?}: there is none of that name{}; --list shows all",
                did_you_mean(name, all().map(|w| w.name))
            );
        }
        chosen.extend(found);
    }
    Ok(chosen)
}
