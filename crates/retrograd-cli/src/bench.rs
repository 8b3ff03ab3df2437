//! The timing of workloads.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use clap::ValueEnum;
use retrograd::bench::{self, Prepared, Workload};
use retrograd::group::{Exchanged, Group};
use retrograd::parallel;
use serde_json::{Map, Value, json};

use crate::experiments;

/// What a workload runs on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Device {
    /// SIMD and threads.
    Cpu,
    /// The adapter that wgpu chooses.
    Gpu,
}

impl Device {
    /// The name in the JSON.
    pub fn name(self) -> &'static str {
        match self {
            Device::Cpu => "cpu",
            Device::Gpu => "gpu",
        }
    }
}

/// Builds a workload, with the ready experiments at hand.
pub fn build(workload: &Workload, device: Device) -> retrograd::Result<Prepared> {
    let device = match device {
        Device::Cpu => bench::BenchDevice::Cpu,
        Device::Gpu => bench::BenchDevice::Gpu,
    };
    (workload.build)(device, &experiments::ready)
}

/// Warm-up and measurement of a workload: at least this long each.
const WARM_UP: Duration = Duration::from_millis(300);
const MEASURE: Duration = Duration::from_secs(2);
/// Shared steps are counted before they are made: so many at least, and at most.
const LEAST: usize = 5;
const MOST: usize = 100_000;

/// The times of a workload.
pub struct Timing {
    pub name: &'static str,
    pub device: Device,
    /// Whether steps were made with fused updates.
    pub fused: bool,
    pub threads: usize,
    pub median: Duration,
    pub min: Duration,
    pub flops: Option<f64>,
    pub rate: Option<(&'static str, f64)>,
    /// The most memory that this process had until then, in bytes, where the system says it.
    pub peak: Option<u64>,
    /// Where the batch was cut into shards.
    pub shared: Option<Shared>,
}

/// How a step was shared, and what its exchanges took: means over the steps.
#[derive(Clone, Copy, Debug)]
pub struct Shared {
    pub shards: usize,
    pub processes: usize,
    /// Numbers of a gradient.
    pub params: usize,
    pub exchanged: Exchanged,
}

impl Shared {
    /// The fewest bytes that a process can send for everybody to have the sum of whole gradients.
    pub fn least_bytes(&self) -> f64 {
        8.0 * self.params as f64 * (1.0 - 1.0 / self.processes as f64)
    }

    /// In a line.
    pub fn text(&self) -> String {
        let Shared {
            shards, processes, ..
        } = *self;
        if processes == 1 {
            return format!("{shards} shards");
        }
        let Exchanged {
            seconds,
            waited,
            bytes,
        } = self.exchanged;
        format!(
            "{shards} shards, {processes} processes: {bytes} bytes sent, {:.2} × the least; exchanges {:.0} µs, \
             {:.0} % hidden",
            bytes as f64 / self.least_bytes(),
            1e6 * seconds,
            100.0 * (1.0 - waited / seconds).clamp(0.0, 1.0),
        )
    }
}

impl Timing {
    /// Billions of floating-point operations a second at the median.
    pub fn gflops(&self) -> Option<f64> {
        Some(self.flops? / self.median.as_secs_f64() / 1e9)
    }

    /// The other rate, by the second.
    pub fn rate(&self) -> Option<(&'static str, f64)> {
        let (name, per_step) = self.rate?;
        Some((name, per_step / self.median.as_secs_f64()))
    }

    /// One object of the JSON array.
    pub fn to_json(&self) -> Value {
        let mut map = Map::new();
        map.insert("name".into(), json!(self.name));
        map.insert("device".into(), json!(self.device.name()));
        map.insert("threads".into(), json!(self.threads));
        if self.fused {
            map.insert("fused_updates".into(), json!(true));
        }
        map.insert("step_ns".into(), json!(self.median.as_nanos() as u64));
        map.insert("min_ns".into(), json!(self.min.as_nanos() as u64));
        if let Some(peak) = self.peak {
            map.insert("peak_rss_bytes".into(), json!(peak));
        }
        if let Some(gflops) = self.gflops() {
            map.insert("gflops".into(), json!(gflops));
        }
        if let Some((name, rate)) = self.rate() {
            map.insert(name.into(), json!(rate));
        }
        if let Some(shared) = &self.shared {
            let Exchanged {
                seconds,
                waited,
                bytes,
            } = shared.exchanged;
            map.insert("shards".into(), json!(shared.shards));
            map.insert("processes".into(), json!(shared.processes));
            map.insert("params".into(), json!(shared.params));
            map.insert("sent_bytes".into(), json!(bytes));
            map.insert("exchange_ns".into(), json!(1e9 * seconds));
            map.insert("waited_ns".into(), json!(1e9 * waited));
        }
        Value::Object(map)
    }
}

/// The most memory that this process had, in bytes, as Linux counts it.
pub fn peak_memory() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|l| l.strip_prefix("VmHWM:"))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kibibytes << 10)
}

/// Builds and times a workload on the threads of the caller.
/// None where fused updates are asked for and its steps have none.
pub fn time(
    workload: &'static Workload,
    device: Device,
    fused: bool,
) -> anyhow::Result<Option<Timing>> {
    let mut prepared = build(workload, device)?;
    if fused {
        let Some(switch) = &prepared.fused else {
            return Ok(None);
        };
        switch.store(true, Ordering::Relaxed);
    }
    let [median, min] = prepared.time(WARM_UP, MEASURE);
    Ok(Some(Timing {
        name: workload.name,
        device,
        fused,
        threads: parallel::threads(),
        median,
        min,
        flops: prepared.flops,
        rate: prepared.rate,
        peak: peak_memory(),
        shared: None,
    }))
}

/// Times a workload on batches that are cut into shards, shared by a group; every process makes the same
/// steps. None where they can't be cut.
pub fn time_shared(
    workload: &'static Workload,
    shards: Option<usize>,
    group: &dyn Group,
) -> anyhow::Result<Option<Timing>> {
    let prepared = build(workload, Device::Cpu)?;
    let (flops, rate) = (prepared.flops, prepared.rate);
    let Some(sharded) = prepared.sharded else {
        return Ok(None);
    };
    let mut timing = None;
    sharded(shards, group, &mut |sharing| {
        let bench::Sharing {
            shards,
            params,
            step,
        } = sharing;
        let start = Instant::now();
        for _ in 0..LEAST {
            step();
        }
        // The first steps allocate; rank 0's clock decides for all.
        let seconds = start.elapsed().as_secs_f64() / LEAST as f64;
        let wanted = (MEASURE.as_secs_f64() / (seconds + 1e-9)) as usize;
        let mut count = wanted.clamp(LEAST, MOST).to_le_bytes().to_vec();
        group.broadcast(&mut count);
        let count = count.try_into().map_or(LEAST, usize::from_le_bytes);
        let mut times = Vec::with_capacity(count);
        let mut total = Exchanged::default();
        for _ in 0..count {
            let before = Instant::now();
            let one = step();
            times.push(before.elapsed());
            total.seconds += one.seconds / count as f64;
            total.waited += one.waited / count as f64;
            total.bytes += one.bytes;
        }
        total.bytes /= count as u64;
        times.sort_unstable();
        timing = Some(Timing {
            name: workload.name,
            device: Device::Cpu,
            fused: false,
            threads: parallel::threads(),
            median: times[times.len() / 2],
            min: times[0],
            flops,
            rate,
            peak: peak_memory(),
            shared: Some(Shared {
                shards,
                processes: group.size(),
                params,
                exchanged: total,
            }),
        });
    })?;
    Ok(timing)
}
