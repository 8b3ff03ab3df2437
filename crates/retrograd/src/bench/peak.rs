//! What the machine can do: the number that other workloads' rates are a share of.

use crate::{parallel, simd};

use crate::bench::{BenchDevice, Prepared, Workload};

/// This file's workload.
pub(crate) const WORKLOADS: &[Workload] = &[Workload {
    name: "peak-f32",
    about: "fused multiply-adds in registers, on every thread: the peak of this machine",
    build: |device, _| peak(device),
}];

fn peak(device: BenchDevice) -> crate::Result<Prepared> {
    device.is_cpu()?;
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
        fused: None,
        sharded: None,
        on_gpu: None,
    })
}
