//! The timing of workloads.

use std::sync::atomic::Ordering;
use std::time::Duration;

use clap::ValueEnum;
use retrograd::bench::{self, Prepared, Workload};
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
        if let Some(gflops) = self.gflops() {
            map.insert("gflops".into(), json!(gflops));
        }
        if let Some((name, rate)) = self.rate() {
            map.insert(name.into(), json!(rate));
        }
        Value::Object(map)
    }
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
    }))
}
