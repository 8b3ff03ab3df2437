//! Kolmogorov–Arnold networks: grid 5, degree 3, SiLU base, MSE, Adam; inputs uniform over the
//! grid and a quarter beyond.

use crate::kan::{FrozenKan, FrozenPrecision};
use crate::network::{LayerSpec, Network, NetworkSpec};
use crate::optim::OptimizerSpec;
use crate::rng::Key;
use crate::train::Example;
use crate::{Loss, Model, Target};

use crate::bench::{BenchDevice, Cut, Growth, Prepared, Workload, inference, training};

const POKER: &[usize] = &[21, 64, 64, 24];
const WIDE: &[usize] = &[64, 128, 128, 10];
const MNIST: &[usize] = &[784, 64, 10];
const TINY: &[usize] = &[2, 5, 1];

macro_rules! workload {
    ($name:literal, $about:literal, $build:ident, $sizes:ident, $batch:literal) => {
        Workload {
            name: $name,
            about: $about,
            build: |device, _| $build(device, $sizes, $batch),
        }
    };
}

/// The family's workloads on the CPU.
pub(crate) const WORKLOADS: &[Workload] = &[
    workload!(
        "kan-poker-1",
        "KAN 21-64-64-24, one sample, Adam step",
        train,
        POKER,
        1
    ),
    workload!(
        "kan-poker-64",
        "KAN 21-64-64-24, batch 64, Adam step",
        train,
        POKER,
        64
    ),
    workload!(
        "kan-poker-256",
        "KAN 21-64-64-24, batch 256, Adam step",
        train,
        POKER,
        256
    ),
    workload!(
        "kan-wide-256",
        "KAN 64-128-128-10, batch 256, Adam step",
        train,
        WIDE,
        256
    ),
    workload!(
        "kan-mnist-256",
        "KAN 784-64-10, batch 256, Adam step",
        train,
        MNIST,
        256
    ),
    workload!(
        "kan-tiny-256",
        "KAN 2-5-1, batch 256, Adam step",
        train,
        TINY,
        256
    ),
    workload!(
        "kan-poker-1-forward",
        "KAN 21-64-64-24, one sample, forward",
        infer,
        POKER,
        1
    ),
    workload!(
        "kan-poker-64-forward",
        "KAN 21-64-64-24, batch 64, forward",
        infer,
        POKER,
        64
    ),
    workload!(
        "kan-poker-256-forward",
        "KAN 21-64-64-24, batch 256, forward",
        infer,
        POKER,
        256
    ),
    workload!(
        "kan-wide-256-forward",
        "KAN 64-128-128-10, batch 256, forward",
        infer,
        WIDE,
        256
    ),
    workload!(
        "kan-mnist-256-forward",
        "KAN 784-64-10, batch 256, forward",
        infer,
        MNIST,
        256
    ),
    workload!(
        "kan-tiny-256-forward",
        "KAN 2-5-1, batch 256, forward",
        infer,
        TINY,
        256
    ),
    workload!(
        "kan-poker-1-frozen-f32",
        "KAN 21-64-64-24 frozen, f32 weights, one sample",
        frozen_f32,
        POKER,
        1
    ),
    workload!(
        "kan-poker-1-frozen-f16",
        "KAN 21-64-64-24 frozen, f16 weights, one sample",
        frozen_f16,
        POKER,
        1
    ),
    workload!(
        "kan-poker-1-frozen-i8",
        "KAN 21-64-64-24 frozen, i8 weights, one sample",
        frozen_i8,
        POKER,
        1
    ),
];

/// KANs with one of their numbers growing.
pub(crate) const GROWTHS: &[Growth] = &[
    Growth {
        name: "kan-rows",
        about: "KAN 64-128-128-10, Adam",
        axis: "rows of a batch",
        first: 16,
        power: 1,
        build: |rows, _| train(BenchDevice::Cpu, WIDE, rows),
    },
    Growth {
        name: "kan-width",
        about: "KAN 64-N-N-10, Adam, batch 256",
        axis: "width N",
        first: 16,
        power: 2,
        build: |width, _| train(BenchDevice::Cpu, &[64, width, width, 10], 256),
    },
    Growth {
        name: "kan-depth",
        about: "KAN 64-(64 × N)-10, Adam, batch 256",
        axis: "hidden layers N",
        first: 2,
        power: 1,
        build: |depth, _| {
            train(
                BenchDevice::Cpu,
                &[&vec![64; depth + 1][..], &[10]].concat(),
                256,
            )
        },
    },
];

const GRID: usize = 5;
const DEGREE: usize = 3;

fn network(sizes: &[usize]) -> crate::Result<Network> {
    let layers = sizes[1..]
        .iter()
        .map(|&out| LayerSpec::kan(out, GRID, DEGREE, [-1.0, 1.0]))
        .collect();
    Network::new(&NetworkSpec::new(&sizes[..1], layers))
}

/// Inputs uniform in ±1.25, targets in [0, 1).
fn example(sizes: &[usize], batch: usize) -> Example<Network> {
    let mut stream = Key::new(0).purpose("bench").stream();
    let input = (0..batch * sizes[0])
        .map(|_| stream.range(-1.25, 1.25) as f32)
        .collect();
    let outputs = sizes[sizes.len() - 1];
    let target = (0..batch * outputs).map(|_| stream.uniform_f32()).collect();
    Example {
        input,
        target: Target::values(target),
    }
}

/// k+1 splines and a base: multiply-adds per edge, two operations each.
fn forward_flops(sizes: &[usize], batch: usize) -> f64 {
    let edges: usize = sizes.windows(2).map(|w| w[0] * w[1]).sum();
    (2 * edges * (DEGREE + 2) * batch) as f64
}

fn train(device: BenchDevice, sizes: &[usize], batch: usize) -> crate::Result<Prepared> {
    let model = network(sizes)?;
    // Forward, weights, and inputs of all but the first layer.
    let flops = 3.0 * forward_flops(sizes, batch) - forward_flops(&sizes[..2], batch);
    training(
        device,
        model,
        Loss::Mse,
        OptimizerSpec::adam(1e-3),
        example(sizes, batch),
        Some(flops),
        Cut::rows(batch),
    )
}

fn infer(device: BenchDevice, sizes: &[usize], batch: usize) -> crate::Result<Prepared> {
    let flops = forward_flops(sizes, batch);
    let example = example(sizes, batch);
    inference(device, network(sizes)?, Loss::Mse, example, Some(flops))
}

fn frozen_f32(device: BenchDevice, sizes: &[usize], batch: usize) -> crate::Result<Prepared> {
    frozen(device, sizes, batch, FrozenPrecision::F32)
}

fn frozen_f16(device: BenchDevice, sizes: &[usize], batch: usize) -> crate::Result<Prepared> {
    frozen(device, sizes, batch, FrozenPrecision::F16)
}

fn frozen_i8(device: BenchDevice, sizes: &[usize], batch: usize) -> crate::Result<Prepared> {
    frozen(device, sizes, batch, FrozenPrecision::I8)
}

fn frozen(
    device: BenchDevice,
    sizes: &[usize],
    batch: usize,
    precision: FrozenPrecision,
) -> crate::Result<Prepared> {
    let mut prepared = infer(device, sizes, batch)?;
    let model = network(sizes)?;
    let mut frozen = FrozenKan::freeze(&model, &model.init(0), precision)?;
    let input = example(sizes, batch).input;
    let mut output = vec![0.0; sizes[sizes.len() - 1]];
    prepared.step = Box::new(move || {
        let done = frozen.forward_single(&input, &mut output);
        assert!(done.is_ok(), "{done:?}");
        std::hint::black_box(&output);
    });
    Ok(prepared)
}
