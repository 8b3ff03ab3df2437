//! `retrograd bench --traffic`: training steps on a GPU by what they move.

use anyhow::{Context, bail};
use retrograd::bench::{GpuStep, GpuSteps};

use super::Threads;
use super::bench::choose;
use crate::bench::{self, Device};
use crate::exit::{Outcome, Result};

/// Some of every family.
const WORKLOADS: &[&str] = &[
    "mlp-256",
    "kan-poker-64",
    "kan-poker-256",
    "cnn-128",
    "graph-gcn16",
    "graph-gat8",
    "dag-10k",
    "logic-life",
    "logic-checkerboard",
];

pub fn run(names: &[String], threads: Threads) -> Result {
    let names = match names {
        [] => WORKLOADS.iter().map(|name| name.to_string()).collect(),
        names => names.to_vec(),
    };
    let workloads = choose(&names, Some(Device::Cpu))?;
    let details = workloads.len() == 1;
    println!(
        "| workload | CPU's step | native | hybrid | submits | waits | dispatches | sent | brought back | \
         kernels read and write | every operand and result once | times | whole step fused |"
    );
    println!("|---|{}", "--:|".repeat(12));
    for workload in workloads {
        let on_cpu = threads.install(|| bench::time(workload, Device::Cpu, false))?;
        let on_cpu = on_cpu.context("a time")?;
        let prepared = bench::build(workload, Device::Cpu)?;
        let Some(measure) = prepared.on_gpu else {
            bail!("--traffic: got {}, needs training steps", workload.name);
        };
        let steps = measure().with_context(|| format!("workload {}", workload.name))?;
        let cpu = 1e3 * on_cpu.median.as_secs_f64();
        println!("| {} | {cpu:.2} ms {}", workload.name, row(&steps));
        if details {
            kernels(&steps);
        }
    }
    Ok(Outcome::Done)
}

/// Native and hybrid numbers of a step, where they differ with a slash between.
fn both(steps: &GpuSteps, of: impl Fn(&GpuStep) -> f64, write: fn(f64) -> String) -> String {
    let [native, hybrid] = [&steps.native, &steps.hybrid].map(|step| write(of(step)));
    match native == hybrid {
        true => native,
        false => format!("{native} / {hybrid}"),
    }
}

fn row(steps: &GpuSteps) -> String {
    let count = |n: f64| format!("{n:.0}");
    let time = |step: &GpuStep| format!("{:.2} ms", 1e3 * step.median.as_secs_f64());
    let cells = [
        time(&steps.native),
        time(&steps.hybrid),
        both(steps, |s| s.submits, count),
        both(steps, |s| s.waits, count),
        both(steps, |s| s.dispatches, count),
        both(steps, |s| s.sent, kib),
        both(steps, |s| s.brought, kib),
        kib(steps.bytes as f64),
        kib(steps.least as f64),
        format!("{:.2}", steps.bytes as f64 / steps.least as f64),
        kib(steps.fused as f64),
    ];
    format!("| {} |", cells.join(" | "))
}

fn kib(bytes: f64) -> String {
    match bytes < 1024.0 {
        true => format!("{bytes:.0} B"),
        false => format!("{:.1} KiB", bytes / 1024.0),
    }
}

/// Kernel by kernel.
fn kernels(steps: &GpuSteps) {
    println!(
        "\n{}\n\n| kernel | reads and writes | once | times |\n|---|--:|--:|--:|",
        steps.adapter
    );
    for (label, bytes, least) in &steps.kernels {
        let times = *bytes as f64 / (*least).max(1) as f64;
        let [bytes, least] = [bytes, least].map(|n| kib(*n as f64));
        println!("| {label} | {bytes} | {least} | {times:.2} |");
    }
}
