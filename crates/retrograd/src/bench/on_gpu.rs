//! A workload's training step on the device, native and hybrid: its time, what is sent and waited for, and
//! what its kernels read and write.

use std::time::{Duration, Instant};

use super::{GpuStep, GpuSteps};
use crate::gpu::{Choice, Counters, Gpu, GpuNetwork, GpuOptimizer, GpuTrainOptions, Recorded};
use crate::optim::{Optimizer, OptimizerSpec};
use crate::rng::Key;
use crate::train::{Clip, Example};
use crate::{Loss, Result};

/// Steps whose counts are taken; fewer than the CPU may be ahead.
const COUNTED: u32 = 8;
/// Steps that are timed, at least, and for how long.
const LEAST: usize = 5;
const MEASURE: Duration = Duration::from_secs(2);

/// Steps of a model on one batch, with its weights of seed 0.
pub(super) fn steps<M: Recorded + 'static>(
    model: &M,
    loss: Loss,
    optimizer: OptimizerSpec,
    clip: Clip,
    example: &Example<M>,
) -> Result<GpuSteps> {
    let gpu = Gpu::open(&Choice::Auto)?;
    let params = model.init(0);
    let (x, target) = (M::given(&example.input), &example.target);
    let options = |step: u64| GpuTrainOptions {
        key: Key::new(0).purpose("step").step(step),
        clip,
        ..Default::default()
    };
    let fresh = || GpuNetwork::new(&gpu, model, &params);

    let mut network = fresh()?;
    let mut on_device = GpuOptimizer::new(&network, optimizer)?;
    let native = measure(&gpu, |step, waits| {
        network.train_step_gpu_native_with_options(
            x,
            target,
            loss,
            &mut on_device,
            &options(step),
        )?;
        if waits {
            network.finish()?;
        }
        Ok(())
    })?;

    let mut network = fresh()?;
    let mut on_cpu = Optimizer::new(optimizer, params.len());
    let hybrid = measure(&gpu, |step, _| {
        let options = options(step);
        (network.train_step_with_options(x, target, loss, &mut on_cpu, &options)).map(drop)
    })?;

    let mut network = fresh()?;
    let mut on_device = GpuOptimizer::new(&network, optimizer)?;
    let options = options(0);
    let traffic = network.traffic_of_native_step(x, target, loss, &mut on_device, &options)?;
    Ok(GpuSteps {
        adapter: gpu.description().name.clone(),
        native,
        hybrid,
        bytes: traffic.bytes(),
        least: traffic.least(),
        fused: traffic.fused,
        kernels: (traffic.kernels.iter())
            .map(|k| (k.label.clone(), k.bytes(), k.least()))
            .collect(),
    })
}

/// Counts of steps that nothing waits for, then times of steps that are waited for.
fn measure(gpu: &Gpu, mut step: impl FnMut(u64, bool) -> Result<()>) -> Result<GpuStep> {
    let mut made = 0;
    let mut one = |waits: bool| {
        made += 1;
        step(made - 1, waits)
    };
    for _ in 0..3 {
        one(true)?;
    }
    let before = gpu.counters();
    for _ in 0..COUNTED {
        one(false)?;
    }
    let mut counted = gpu.counters().since(before);
    // Losses arrive late; with the next step all have.
    one(true)?;
    counted.bytes_down = gpu.counters().since(before).bytes_down;
    let mut times = Vec::new();
    let start = Instant::now();
    while times.len() < LEAST || start.elapsed() < MEASURE {
        let before = Instant::now();
        one(true)?;
        times.push(before.elapsed());
    }
    times.sort_unstable();
    Ok(GpuStep::new(times[times.len() / 2], &counted))
}

impl GpuStep {
    fn new(median: Duration, counted: &Counters) -> Self {
        let each = |n: u64| n as f64 / f64::from(COUNTED);
        GpuStep {
            median,
            submits: each(counted.submits),
            waits: each(counted.waits),
            dispatches: each(counted.dispatches),
            sent: each(counted.bytes_up),
            brought: counted.bytes_down as f64 / f64::from(COUNTED + 1),
        }
    }
}
