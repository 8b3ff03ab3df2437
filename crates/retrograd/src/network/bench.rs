//! Networks of dense layers.

use crate::math;
use crate::network::{LayerSpec, Network, NetworkSpec};
use crate::optim::OptimizerSpec;
use crate::rng::Key;
use crate::train::Example;
use crate::{Loss, Target};

use crate::bench::{BenchDevice, Cut, Growth, Prepared, Workload, inference, training};

/// This file's workloads.
pub(crate) const WORKLOADS: &[Workload] = &[
    Workload {
        name: "mlp-256",
        about: "64-256-256-10, exact GELU, cross-entropy, Adam, batch 256",
        build: |device, _| train(device, HIDDEN, 256),
    },
    Workload {
        name: "mlp-1-forward",
        about: "64-256-256-10, exact GELU, one sample, forward",
        build: |device, _| mlp_1_forward(device),
    },
];

const HIDDEN: &[usize] = &[256, 256];

/// The same network with one of its numbers growing.
pub(crate) const GROWTHS: &[Growth] = &[
    Growth {
        name: "mlp-rows",
        about: "64-256-256-10, exact GELU, Adam",
        axis: "rows of a batch",
        first: 16,
        power: 1,
        build: |rows, _| train(BenchDevice::Cpu, &[256, 256], rows),
    },
    Growth {
        name: "mlp-width",
        about: "64-N-N-10, exact GELU, Adam, batch 256",
        axis: "width N",
        first: 16,
        power: 2,
        build: |width, _| train(BenchDevice::Cpu, &[width, width], 256),
    },
    Growth {
        name: "mlp-depth",
        about: "64-(128 × N)-10, exact GELU, Adam, batch 256",
        axis: "hidden layers N",
        first: 2,
        power: 1,
        build: |depth, _| train(BenchDevice::Cpu, &vec![128; depth], 256),
    },
];

/// Structured samples: waves of a frequency of their own, no two alike.
pub fn samples(count: usize, width: usize) -> Vec<f32> {
    let mut stream = Key::new(0).purpose("bench").stream();
    let mut x = Vec::with_capacity(count * width);
    for _ in 0..count {
        let (phase, frequency) = (
            stream.range(0.0, std::f64::consts::TAU),
            stream.range(0.05, 1.5),
        );
        x.extend((0..width).map(|i| math::sin(phase + frequency * i as f64) as f32));
    }
    x
}

/// Hidden layers of these widths.
fn network(hidden: &[usize]) -> crate::Result<Network> {
    let mut layers = Vec::new();
    for &width in hidden {
        layers.extend([LayerSpec::dense(width), LayerSpec::gelu()]);
    }
    layers.push(LayerSpec::dense(10));
    Network::new(&NetworkSpec::new(&[64], layers))
}

fn example(batch: usize) -> Example<Network> {
    Example {
        input: samples(batch, 64),
        target: Target::classes((0..batch as u32).map(|i| i % 10).collect()),
    }
}

fn train(device: BenchDevice, hidden: &[usize], batch: usize) -> crate::Result<Prepared> {
    let network = network(hidden)?;
    let flops = batch as f64 * network.flops();
    training(
        device,
        network,
        Loss::CrossEntropy,
        OptimizerSpec::adam(1e-3),
        example(batch),
        Some(flops),
        Cut::rows(batch),
    )
}

fn mlp_1_forward(device: BenchDevice) -> crate::Result<Prepared> {
    inference(
        device,
        network(HIDDEN)?,
        Loss::CrossEntropy,
        example(1),
        None,
    )
}
