//! Named workloads, ready to be timed. A family's are in its own room, and in its entry of the
//! registry.

mod growth;
pub(crate) mod machine;
#[cfg(feature = "gpu")]
mod on_gpu;
mod peak;
mod problem;
mod sharded;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

pub use growth::{Growth, exponent, growths};
pub(crate) use problem::tensor;
pub use problem::{MakeProblem, problem};
pub(crate) use sharded::{Cut, Fixed, sharded};
pub use sharded::{Sharded, Sharing};

use crate::optim::OptimizerSpec;
use crate::rng::Key;
use crate::train::{Clip, Example, Experiment, Lesson, Stepper};
use crate::{Error, FAMILIES, Loss, Model, Pass, Result};

/// What a workload runs on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BenchDevice {
    /// SIMD and threads.
    Cpu,
    /// The adapter that wgpu chooses.
    Gpu,
}

impl BenchDevice {
    /// An error where it is another than the CPU.
    pub(crate) fn is_cpu(self) -> Result<()> {
        match self {
            BenchDevice::Cpu => Ok(()),
            BenchDevice::Gpu => Err(Error::invalid(
                "--device",
                "gpu",
                "cpu: it has no form for the GPU",
            )),
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
    /// Set to true, it makes the steps with fused updates; none where a step updates nothing.
    pub fused: Option<Arc<AtomicBool>>,
    /// Makes the same steps on batches that are cut into shards; none where they can't be.
    pub sharded: Option<Sharded>,
    /// Makes the same steps on the adapter that wgpu chooses; none where they are no training steps.
    pub on_gpu: Option<OnGpu>,
}

/// Measures a workload's steps on a device.
pub type OnGpu = Box<dyn FnOnce() -> Result<GpuSteps> + Send>;

/// A workload's training step on a device.
#[derive(Clone, Debug)]
pub struct GpuSteps {
    /// The device.
    pub adapter: String,
    /// Everything on the device.
    pub native: GpuStep,
    /// Gradients on the device, the update on the CPU.
    pub hybrid: GpuStep,
    /// Bytes of storage buffers that the kernels of a native step read and write.
    pub bytes: u64,
    /// With every operand of a kernel read once and every result written once.
    pub least: u64,
    /// With the whole step in one kernel.
    pub fused: u64,
    /// The first two kernel by kernel.
    pub kernels: Vec<(String, u64, u64)>,
}

/// How a step goes; counts and bytes are means of eight.
#[derive(Clone, Copy, Debug)]
pub struct GpuStep {
    /// Waited for.
    pub median: Duration,
    /// Command buffers.
    pub submits: f64,
    /// Times that the CPU stood still.
    pub waits: f64,
    /// Kernels.
    pub dispatches: f64,
    /// Bytes to the device.
    pub sent: f64,
    /// Bytes from it.
    pub brought: f64,
}

/// A model whose steps can be made on a device, where the build has any.
#[cfg(feature = "gpu")]
pub(crate) trait Benched: crate::gpu::Recorded + 'static {}
#[cfg(feature = "gpu")]
impl<M: crate::gpu::Recorded + 'static> Benched for M {}
/// The same in a build without.
#[cfg(not(feature = "gpu"))]
pub(crate) trait Benched: Model + 'static {}
#[cfg(not(feature = "gpu"))]
impl<M: Model + 'static> Benched for M {}

/// Measures steps of a model on a device.
pub(crate) fn on_gpu<M: Benched>(
    model: &M,
    loss: Loss,
    optimizer: OptimizerSpec,
    clip: Clip,
    example: &Example<M>,
) -> Result<GpuSteps> {
    #[cfg(feature = "gpu")]
    return on_gpu::steps(model, loss, optimizer, clip, example);
    #[cfg(not(feature = "gpu"))]
    {
        let _ = (model, loss, optimizer, clip, example);
        Err(Error::invalid(
            "--traffic",
            "a build without",
            "the feature gpu",
        ))
    }
}

impl Prepared {
    /// How long a step takes, median and minimum, on the threads of the caller: `warm_up` and
    /// `measure` are how long it is tried at least, five times each.
    pub fn time(&mut self, warm_up: Duration, measure: Duration) -> [Duration; 2] {
        const LEAST: usize = 5;
        // Enough for a steady median of the shortest steps.
        const MOST: usize = 100_000;
        let start = Instant::now();
        let mut warm = 0;
        while start.elapsed() < warm_up || warm < LEAST {
            (self.step)();
            warm += 1;
        }
        let mut times = Vec::with_capacity(MOST);
        let start = Instant::now();
        while (start.elapsed() < measure || times.len() < LEAST) && times.len() < MOST {
            let before = Instant::now();
            (self.step)();
            times.push(before.elapsed());
        }
        times.sort_unstable();
        [times[times.len() / 2], times[0]]
    }
}

/// One training step, in the order that a workload is asked for.
pub(crate) fn step_once<M: Model>(
    stepper: &mut Stepper<M>,
    model: &M,
    lesson: &Lesson<'_, M>,
    clip: &Clip,
    fused: &AtomicBool,
) {
    let lr = stepper.optimizer.spec().lr();
    if fused.load(Ordering::Relaxed) {
        let stepped = stepper.fused_step(model, lesson, clip, lr, &mut ());
        assert!(stepped.is_ok(), "a fused step: {stepped:?}");
    } else {
        let loss = stepper.gradient_of(model, lesson, 1.0, false);
        assert!(loss.is_ok(), "a gradient: {loss:?}");
        let penalty = stepper.update(model, clip, lr);
        assert!(penalty.is_ok(), "an update: {penalty:?}");
    }
}

/// The usual workload: training steps of a model on one batch, on the CPU.
pub(crate) fn training<M: Benched>(
    device: BenchDevice,
    model: M,
    loss: Loss,
    optimizer: OptimizerSpec,
    example: Example<M>,
    flops: Option<f64>,
    cut: Option<Cut<M>>,
) -> Result<Prepared> {
    device.is_cpu()?;
    let mut stepper = Stepper::new(&model, model.init(0), optimizer);
    let mut step = 0;
    let shared = Arc::new((model, example));
    let (same, for_gpu) = (shared.clone(), shared.clone());
    let of_shards = cut.map(|cut| {
        let task = Fixed::new(shared.clone(), loss, cut);
        sharded(move || Ok(task), optimizer, Clip::default())
    });
    let fused = Arc::new(AtomicBool::new(false));
    let switch = fused.clone();
    Ok(Prepared {
        step: Box::new(move || {
            let pass = Pass::training(Key::new(0).purpose("step").step(step));
            step += 1;
            let (model, example) = &*shared;
            let lesson = Lesson::new(loss, example, &pass);
            let clip = Clip::default();
            step_once(&mut stepper, model, &lesson, &clip, &switch);
        }),
        flops,
        rate: None,
        problem: Some(Box::new(move || {
            problem(&same.0, loss, optimizer, &Clip::default(), &same.1)
        })),
        fused: Some(fused),
        sharded: of_shards,
        on_gpu: Some(Box::new(move || {
            on_gpu(&for_gpu.0, loss, optimizer, Clip::default(), &for_gpu.1)
        })),
    })
}

/// Inference of a model on one batch, on the CPU, with its weights of seed 0.
pub(crate) fn inference<M: Model + 'static>(
    device: BenchDevice,
    model: M,
    loss: Loss,
    example: Example<M>,
    flops: Option<f64>,
) -> Result<Prepared> {
    device.is_cpu()?;
    let params = model.init(0);
    let mut tape = Default::default();
    let shared = Arc::new((model, example));
    let same = shared.clone();
    Ok(Prepared {
        step: Box::new(move || {
            let (model, example) = &*shared;
            model.compute_forward(&params, &example.input, &Pass::inference(), &mut tape);
            std::hint::black_box(model.output(&tape));
        }),
        flops,
        rate: None,
        problem: Some(Box::new(move || {
            let adam = OptimizerSpec::adam(1e-3);
            problem(&same.0, loss, adam, &Clip::default(), &same.1)
        })),
        fused: None,
        sharded: None,
        on_gpu: None,
    })
}

/// Gives a ready experiment by its name.
pub type ReadyExperiment<'a> = &'a dyn Fn(&str) -> Result<Experiment>;

/// A named workload.
pub struct Workload {
    /// Its name.
    pub name: &'static str,
    /// One line for lists.
    pub about: &'static str,
    /// Builds model and batch; an error where it has no form for the device.
    pub build: fn(BenchDevice, ReadyExperiment<'_>) -> Result<Prepared>,
}

/// All workloads: the families' and those of the machine.
pub fn all() -> impl Iterator<Item = &'static Workload> {
    let families = FAMILIES.iter().flat_map(|f| f.workloads).copied();
    let machine = [machine::WORKLOADS, peak::WORKLOADS];
    families.chain(machine).flatten()
}
