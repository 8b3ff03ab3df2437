//! A batch size from what the adapter can hold.

use std::sync::Arc;

use super::device::Gpu;
use super::extent::Extent;
use super::network::GpuNetwork;
use super::optimizer::GpuOptimizer;
use super::plan::{Measure, WIDEST};
use super::precision::{LossScale, Precision};
use crate::budget::free_main_memory;
use crate::network::Network;
use crate::optim::OptimizerSpec;
use crate::{Error, Loss, Model, Result, Target};

/// The steps that an epoch keeps: fewer and larger ones train worse than they are fast.
const STEPS: usize = 16;

/// A batch size chosen by [`auto_batch`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AutoBatch {
    /// Samples in a batch.
    pub samples: usize,
    /// Bytes on the device with it, weights, gradients and two vectors of optimizer state included.
    pub bytes: u64,
    /// Why it is not twice as large.
    pub reason: String,
}

/// The largest power of two for which
/// - an epoch over the `samples` of a data set still has 16 steps,
/// - every buffer fits into what the adapter lets a kernel see at once, and no layer has more
///   values than kernels count,
/// - all buffers together take at most half of the memory there is: the main memory that is free
///   where the device shares it with the CPU; else what the adapter allows in one buffer, which
///   drivers keep below the card's memory (wgpu doesn't tell that).
///
/// An error where one sample doesn't fit.
pub fn auto_batch(
    gpu: &Gpu,
    network: &Network,
    precision: Precision,
    samples: usize,
) -> Result<AutoBatch> {
    let half = precision == Precision::Mixed;
    // Weights, gradients and two vectors of state; their 16-bit copy.
    let fixed = network.layout().len() as u64 * if half { 18 } else { 16 };
    let (memory, kind) = match (gpu.mapped, free_main_memory()) {
        (true, Some(bytes)) => (bytes, "main memory that is free"),
        _ => (2 * gpu.limits.max_buffer_size, "the device's memory"),
    };
    let limits = Limits {
        binding: gpu
            .limits
            .max_storage_buffer_binding_size
            .min(gpu.limits.max_buffer_size),
        memory: memory / 2,
        kind,
        samples,
    };
    choose(&limits, |batch| {
        let extent = Extent::of_samples(batch, network.input_len());
        let mut buffers = Measure::new(gpu, network.layers(), &extent, half).buffers();
        let total = fixed + buffers.iter().map(|(_, bytes)| bytes).sum::<u64>();
        // Kernels count values up to WIDEST, whatever they are made of.
        let widest = network
            .places
            .iter()
            .map(|p| p.shape.iter().product::<usize>());
        let widest = widest.max().unwrap_or(1).max(network.input_len());
        if batch * widest > WIDEST {
            buffers.push(("one layer's values".into(), u64::MAX));
        }
        (buffers, total)
    })
}

impl AutoBatch {
    /// Makes a training step of this size, before a run depends on it. What is computed of a device's memory
    /// is a guess: where it runs out, half the size is tried.
    pub fn tried(
        mut self,
        gpu: &Arc<Gpu>,
        network: &Network,
        precision: Precision,
    ) -> Result<Self> {
        loop {
            match try_step(gpu, network, precision, self.samples) {
                Err(error) if self.samples > 1 && error.is_no_memory() => {
                    self.reason = format!("{} was tried: {error}", self.samples);
                    self.bytes /= 2;
                    self.samples /= 2;
                }
                tried => return tried.map(|()| self),
            }
        }
    }
}

/// A native step with two vectors of state; what the numbers are doesn't matter.
fn try_step(gpu: &Arc<Gpu>, network: &Network, precision: Precision, samples: usize) -> Result<()> {
    let params = network.init(0);
    let mut on_gpu = match precision {
        Precision::F32 => GpuNetwork::new(gpu, network, &params)?,
        Precision::Mixed => GpuNetwork::mixed(gpu, network, &params, LossScale::default())?,
    };
    let mut adam = GpuOptimizer::new(&on_gpu, OptimizerSpec::adam(1e-3))?;
    let x = vec![0.0; samples * network.input_len()];
    let target = Target::values(vec![0.0; samples * on_gpu.output_width()]);
    on_gpu.train_step_gpu_native(&x, &target, Loss::Mse, &mut adam)?;
    on_gpu.finish().map(|_| ())
}

struct Limits {
    binding: u64,
    memory: u64,
    kind: &'static str,
    samples: usize,
}

/// Doubles while everything fits; `measure` gives the buffers of a batch size and all their bytes.
fn choose(
    limits: &Limits,
    measure: impl Fn(usize) -> (Vec<(String, u64)>, u64),
) -> Result<AutoBatch> {
    let problem = |batch: usize| -> Option<String> {
        if batch > 1 && batch * STEPS > limits.samples {
            let samples = limits.samples;
            return Some(format!(
                "would leave fewer than {STEPS} steps in an epoch of {samples} samples"
            ));
        }
        let (buffers, total) = measure(batch);
        let (name, bytes) = buffers.into_iter().max_by_key(|(_, bytes)| *bytes)?;
        if bytes > limits.binding {
            let allowed = mebibytes(limits.binding);
            return Some(match bytes {
                u64::MAX => {
                    format!("would have more values in one layer than kernels count, {WIDEST}")
                }
                _ => format!(
                    "would need {} for {name}, and the adapter allows {allowed} in one buffer",
                    mebibytes(bytes)
                ),
            });
        }
        (total > limits.memory).then(|| {
            format!(
                "would need {} in all, more than half of {}, {}",
                mebibytes(total),
                limits.kind,
                mebibytes(2 * limits.memory)
            )
        })
    };
    if let Some(problem) = problem(1) {
        return Err(Error::Gpu {
            what: format!("one sample {problem}"),
            advice: "a smaller model, or --device cpu".into(),
        });
    }
    let mut batch = 1;
    loop {
        if let Some(problem) = problem(2 * batch) {
            return Ok(AutoBatch {
                samples: batch,
                bytes: measure(batch).1,
                reason: format!("{} {problem}", 2 * batch),
            });
        }
        batch *= 2;
    }
}

fn mebibytes(bytes: u64) -> String {
    format!("{:.0} MiB", bytes as f64 / f64::from(1 << 20))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn limits() -> Limits {
        Limits {
            binding: 128 * MIB,
            memory: 1000 * MIB,
            kind: "memory",
            samples: 1 << 20,
        }
    }

    /// One mebibyte a sample in the largest of two buffers, three mebibytes in all.
    fn measure(batch: usize) -> (Vec<(String, u64)>, u64) {
        let bytes = batch as u64 * MIB;
        let buffers = vec![
            ("the batch".into(), bytes / 2),
            ("layer 3's output".into(), bytes),
        ];
        (buffers, 3 * bytes)
    }

    #[test]
    fn the_first_limit_that_is_reached_decides_and_is_named() {
        let chosen = choose(&limits(), measure).unwrap();
        assert_eq!((chosen.samples, chosen.bytes), (128, 384 * MIB));
        assert!(chosen.reason.contains("256") && chosen.reason.contains("layer 3's output"));
        let little = Limits {
            memory: 100 * MIB,
            ..limits()
        };
        let chosen = choose(&little, measure).unwrap();
        assert_eq!(chosen.samples, 32);
        assert!(
            chosen.reason.contains("192 MiB in all"),
            "{}",
            chosen.reason
        );
        let few = Limits {
            samples: 300,
            ..limits()
        };
        let chosen = choose(&few, measure).unwrap();
        assert_eq!(chosen.samples, 16);
        assert!(chosen.reason.contains("300 samples"), "{}", chosen.reason);
        // One sample is always allowed by the data.
        let one = Limits {
            samples: 1,
            ..limits()
        };
        assert_eq!(choose(&one, measure).unwrap().samples, 1);
    }

    #[test]
    fn a_sample_that_does_not_fit_is_an_error_with_the_buffer_that_is_too_large() {
        let small = Limits {
            binding: MIB / 2,
            ..limits()
        };
        let error = choose(&small, measure).unwrap_err().to_string();
        assert!(error.contains("layer 3's output"), "{error}");
    }
}
