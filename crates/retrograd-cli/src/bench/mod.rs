//! Named workloads and their timing. A family adds one file with a list, and one line here.

mod conv;
mod graph;
mod graph_thresholds;
mod kan;
mod logic;
mod machine;
mod network;
mod peak;
mod problem;

#[cfg(feature = "gpu")]
pub mod gpu;

use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::ValueEnum;
use retrograd::optim::OptimizerSpec;
use retrograd::parallel;
use retrograd::rng::Key;
use retrograd::train::{Clip, Example, Stepper};
use retrograd::{Loss, Model, Pass};
use serde_json::{Map, Value, json};

pub use problem::{MakeProblem, problem};

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

/// A workload, ready to be timed.
pub struct Prepared {
    /// One step: usually a training step on one batch.
    pub step: Box<dyn FnMut() + Send>,
    /// Multiplications and additions in a step, where they are known.
    pub flops: Option<f64>,
    /// Another rate: its name in the JSON (`cell_updates_per_s`) and how many there are in a step.
    pub rate: Option<(&'static str, f64)>,
    /// What another framework needs to do the same work, where it can be written.
    pub problem: Option<MakeProblem>,
}

/// The usual workload: training steps of a model on one batch, on the CPU.
pub fn training<M: Model + 'static>(
    device: Device,
    model: M,
    loss: Loss,
    optimizer: OptimizerSpec,
    example: Example<M>,
    flops: Option<f64>,
) -> anyhow::Result<Prepared> {
    if device == Device::Gpu {
        anyhow::bail!("it has no form for the GPU");
    }
    let mut stepper = Stepper::new(&model, model.init(0), optimizer);
    let mut step = 0;
    let shared = Arc::new((model, example));
    let same = shared.clone();
    Ok(Prepared {
        step: Box::new(move || {
            let pass = Pass::training(Key::new(0).purpose("step").step(step));
            step += 1;
            let (model, example) = &*shared;
            let value = stepper.step(model, loss, example, &pass);
            assert!(value.is_ok(), "a number that is not finite: {value:?}");
        }),
        flops,
        rate: None,
        problem: Some(Box::new(move || {
            problem(&same.0, loss, optimizer, &Clip::default(), &same.1)
        })),
    })
}

/// A named workload.
pub struct Workload {
    /// Its name.
    pub name: &'static str,
    /// One line for lists.
    pub about: &'static str,
    /// Builds model and batch; an error where it has no form for the device.
    pub build: fn(Device) -> anyhow::Result<Prepared>,
}

/// The families' lists.
const ALL: &[&[Workload]] = &[
    kan::WORKLOADS,
    logic::WORKLOADS,
    network::WORKLOADS,
    conv::WORKLOADS,
    #[cfg(feature = "gpu")]
    gpu::WORKLOADS,
    graph::WORKLOADS,
    graph_thresholds::WORKLOADS,
    machine::WORKLOADS,
    peak::WORKLOADS,
];

/// All workloads, in order.
pub fn all() -> impl Iterator<Item = &'static Workload> {
    ALL.iter().flat_map(|list| list.iter())
}

/// Warm-up and measurement of a workload: at least this long and this often each.
const WARM_UP: Duration = Duration::from_millis(300);
const MEASURE: Duration = Duration::from_secs(2);
const LEAST: usize = 5;
/// Enough for a steady median of the shortest steps.
const MAX: usize = 100_000;

/// The times of a workload.
pub struct Timing {
    pub name: &'static str,
    pub device: Device,
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
pub fn time(workload: &'static Workload, device: Device) -> anyhow::Result<Timing> {
    let mut prepared = (workload.build)(device)?;
    let start = Instant::now();
    let mut warm = 0;
    while start.elapsed() < WARM_UP || warm < LEAST {
        (prepared.step)();
        warm += 1;
    }
    let mut times = Vec::with_capacity(MAX);
    let start = Instant::now();
    while (start.elapsed() < MEASURE || times.len() < LEAST) && times.len() < MAX {
        let before = Instant::now();
        (prepared.step)();
        times.push(before.elapsed());
    }
    times.sort_unstable();
    Ok(Timing {
        name: workload.name,
        device,
        threads: parallel::threads(),
        median: times[times.len() / 2],
        min: times[0],
        flops: prepared.flops,
        rate: prepared.rate,
    })
}
