//! What the machine can do: the number that other workloads' rates are a share of.

use retrograd::{parallel, simd};

use super::{Device, Prepared, Workload};

/// This file's workload.
pub const WORKLOADS: &[Workload] = &[Workload {
    name: "peak-f32",
    about: "fused multiply-adds in registers, on every thread: the peak of this machine",
    build: peak,
}];

fn peak(device: Device) -> anyhow::Result<Prepared> {
    if device == Device::Gpu {
        anyhow::bail!("it has no form for the GPU");
    }
    const ROUNDS: usize = 1000;
    let threads = parallel::threads();
    let flops = 2.0 * (simd::LANES * simd::FMA_ROUND * ROUNDS * threads) as f64;
    Ok(Prepared {
        step: Box::new(move || {
            parallel::for_each(threads, true, |_| {
                std::hint::black_box(simd::multiply_adds(std::hint::black_box(ROUNDS)));
            });
        }),
        flops: Some(flops),
        rate: None,
        problem: None,
    })
}
