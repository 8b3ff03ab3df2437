//! Networks of dense layers.

use crate::math;
use crate::network::{LayerSpec, Network, NetworkSpec};
use crate::optim::OptimizerSpec;
use crate::rng::Key;
use crate::train::Example;
use crate::{Loss, Target};

use crate::bench::{BenchDevice, Cut, Prepared, Workload, inference, training};

/// This file's workloads.
pub(crate) const WORKLOADS: &[Workload] = &[
    Workload {
        name: "mlp-256",
        about: "64-256-256-10, exact GELU, cross-entropy, Adam, batch 256",
        build: |device, _| mlp_256(device),
    },
    Workload {
        name: "mlp-1-forward",
        about: "64-256-256-10, exact GELU, one sample, forward",
        build: |device, _| mlp_1_forward(device),
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

fn network() -> crate::Result<Network> {
    let layers = vec![
        LayerSpec::dense(256),
        LayerSpec::gelu(),
        LayerSpec::dense(256),
        LayerSpec::gelu(),
        LayerSpec::dense(10),
    ];
    Network::new(&NetworkSpec::new(&[64], layers))
}

fn example(batch: usize) -> Example<Network> {
    Example {
        input: samples(batch, 64),
        target: Target::classes((0..batch as u32).map(|i| i % 10).collect()),
    }
}

fn mlp_256(device: BenchDevice) -> crate::Result<Prepared> {
    const BATCH: usize = 256;
    let network = network()?;
    let flops = BATCH as f64 * network.flops();
    training(
        device,
        network,
        Loss::CrossEntropy,
        OptimizerSpec::adam(1e-3),
        example(BATCH),
        Some(flops),
        Cut::rows(BATCH),
    )
}

fn mlp_1_forward(device: BenchDevice) -> crate::Result<Prepared> {
    inference(device, network()?, Loss::CrossEntropy, example(1), None)
}
