//! `retrograd bench --growth`: how time and memory grow with the size of a step.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, bail};
use retrograd::bench::{Growth, exponent, growths};
use retrograd::command::did_you_mean;
use retrograd::data::write_whole;
use serde_json::{Value, json};

use super::Threads;
use crate::bench;
use crate::exit::{Outcome, Result};
use crate::{experiments, log};

/// Sizes are doubled until a step takes so long, or the process so much memory.
const MAX_SECONDS: f64 = 1.0;
const MAX_BYTES: f64 = (1u64 << 30) as f64;
/// The power is fitted to so many of the largest sizes: what small ones have is what every step has.
const FITTED: usize = 4;
/// Above the arithmetic's power by more than this, a line is marked.
const MARKED: f64 = 0.05;
/// Warm-up and measurement of a size.
const WARM_UP: Duration = Duration::from_millis(100);
const MEASURE: Duration = Duration::from_millis(500);

/// What is asked for.
pub struct Asked<'a> {
    pub names: &'a [String],
    /// One size alone, in this process.
    pub size: Option<usize>,
    pub json: Option<&'a Path>,
    pub dump: Option<&'a Path>,
    pub list: bool,
    pub threads: Threads,
}

pub fn run(asked: &Asked<'_>) -> Result {
    let chosen = choose(asked.names)?;
    if asked.list {
        for growth in chosen {
            println!(
                "{:18} {}; {} from {}",
                growth.name, growth.about, growth.axis, growth.first
            );
        }
        return Ok(Outcome::Done);
    }
    if let Some(size) = asked.size {
        let [growth] = chosen[..] else {
            bail!(
                "--size: got {} workloads, needs the name of one",
                chosen.len()
            );
        };
        return one(growth, size, asked);
    }
    if asked.dump.is_some() {
        bail!("--dump: with --growth it needs --size");
    }
    let mut all = Vec::new();
    for growth in chosen {
        let grown = grow(growth, asked)?;
        all.push(grown);
    }
    if let Some(path) = asked.json.filter(|_| !log::silent()) {
        let text = serde_json::to_string_pretty(&all)? + "\n";
        write_whole(path, |file| file.write_all(text.as_bytes()))?;
    }
    Ok(Outcome::Done)
}

fn choose(names: &[String]) -> anyhow::Result<Vec<&'static Growth>> {
    if names.is_empty() {
        return Ok(growths().collect());
    }
    let mut chosen = Vec::new();
    for name in names {
        let is_meant = |growth: &&Growth| match name.strip_suffix('*') {
            Some(start) => growth.name.starts_with(start),
            None => growth.name == name,
        };
        let found: Vec<_> = growths().filter(is_meant).collect();
        if found.is_empty() {
            bail!(
                "workload {name:?}: none of that name grows{}; --growth --list shows all",
                did_you_mean(name, growths().map(|growth| growth.name))
            );
        }
        chosen.extend(found);
    }
    Ok(chosen)
}

/// A size in this process, so that its peak of memory is its own.
fn one(growth: &Growth, size: usize, asked: &Asked<'_>) -> Result {
    if size == 0 {
        bail!("--size: got 0, needs 1 or more {}", growth.axis);
    }
    let mut prepared = (growth.build)(size, &experiments::ready)?;
    if let Some(path) = asked.dump {
        let problem = prepared.problem.context("no form for others")?;
        problem()?.write(path)?;
        return Ok(Outcome::Done);
    }
    let threads = asked.threads;
    let [median, least] = threads.install(|| prepared.time(WARM_UP, MEASURE));
    let figures = json!({
        "name": growth.name,
        "size": size,
        "threads": threads.install(retrograd::parallel::threads),
        "step_ns": median.as_nanos() as u64,
        "min_ns": least.as_nanos() as u64,
        "peak_rss_bytes": bench::peak_memory(),
    });
    println!("{figures}");
    Ok(Outcome::Done)
}

/// A size in a process of its own: its seconds a step, and the bytes at its peak.
fn measure(growth: &Growth, size: usize, threads: usize) -> anyhow::Result<(f64, Option<f64>)> {
    let command = std::env::current_exe().context("the path of this command")?;
    let (size_text, threads_text) = (size.to_string(), threads.to_string());
    let asked = [
        "bench",
        "--growth",
        growth.name,
        "--size",
        &size_text,
        "--threads",
        &threads_text,
    ];
    let done = Command::new(command)
        .args(asked)
        .output()
        .context("a process for a size")?;
    if !done.status.success() {
        let said = String::from_utf8_lossy(&done.stderr);
        bail!(
            "{} of {}: {size}: {}",
            growth.axis,
            growth.name,
            said.trim()
        );
    }
    let figures: Value =
        serde_json::from_slice(&done.stdout).context("what a size's process says")?;
    let step = figures["step_ns"].as_f64().context("its time")?;
    Ok((1e-9 * step, figures["peak_rss_bytes"].as_f64()))
}

/// All sizes of one, as lines, and what they say together.
fn grow(growth: &Growth, asked: &Asked<'_>) -> anyhow::Result<Value> {
    let threads = asked.threads.install(retrograd::parallel::threads);
    let print = |line: String| {
        if !log::silent() {
            println!("{line}");
        }
    };
    print(format!("{}: {}", growth.name, growth.about));
    print(format!(
        "  {:>12}  {:>10}  {:>9}",
        growth.axis.split([',', ' ']).next().unwrap_or("size"),
        "a step",
        "memory"
    ));
    let (mut times, mut peaks) = (Vec::new(), Vec::new());
    let mut size = growth.first;
    loop {
        let (seconds, bytes) = measure(growth, size, threads)?;
        times.push((size, seconds));
        peaks.extend(bytes.map(|bytes| (size, bytes)));
        let memory = bytes.map_or("unknown".into(), |bytes| format!("{:.1} MB", 1e-6 * bytes));
        let step = format!("{:.2?}", Duration::from_secs_f64(seconds));
        print(format!("  {size:>12}  {step:>10}  {memory:>9}"));
        if seconds >= MAX_SECONDS || bytes.is_some_and(|bytes| bytes >= MAX_BYTES) {
            break;
        }
        size *= 2;
    }
    let of_time = exponent(&times[times.len().saturating_sub(FITTED)..]);
    let of_memory = exponent(&largest_memory(&peaks));
    let power = f64::from(growth.power);
    let text = |found: Option<f64>| match found {
        None => "unknown".to_string(),
        Some(found) if found > power + MARKED => format!("N^{found:.2} (more than N^{power})"),
        Some(found) => format!("N^{found:.2}"),
    };
    print(format!(
        "  time {}, memory {}; its arithmetic N^{power}\n",
        text(of_time),
        text(of_memory)
    ));
    let sizes: Vec<_> = times.iter().map(|&(size, _)| size).collect();
    Ok(json!({
        "name": growth.name,
        "about": growth.about,
        "axis": growth.axis,
        "power": growth.power,
        "threads": threads,
        "sizes": sizes,
        "step_ns": times.iter().map(|&(_, seconds)| (1e9 * seconds) as u64).collect::<Vec<_>>(),
        "peak_rss_bytes": peaks.iter().map(|&(_, bytes)| bytes as u64).collect::<Vec<_>>(),
        "time_exponent": of_time,
        "memory_exponent": of_memory,
    }))
}

/// Memory beyond that of the smallest size, which a process has before it computes anything, where that is the
/// larger part of it.
fn largest_memory(peaks: &[(usize, f64)]) -> Vec<(usize, f64)> {
    let Some(&(_, base)) = peaks.first() else {
        return Vec::new();
    };
    let beyond = peaks.iter().map(|&(size, bytes)| (size, bytes - base));
    let large: Vec<_> = beyond.filter(|&(_, beyond)| beyond > base).collect();
    large[large.len().saturating_sub(FITTED)..].to_vec()
}
