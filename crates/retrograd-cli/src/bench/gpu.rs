//! Steps of a KAN on the GPU. Each is waited for: the time of the work, not of handing it over.

use retrograd::gpu::{Choice, Gpu, GpuNetwork, GpuOptimizer, TrainOptions};
use retrograd::network::{LayerSpec, Network, NetworkSpec};
use retrograd::optim::{Optimizer, OptimizerSpec};
use retrograd::rng::Key;
use retrograd::train::Clip;
use retrograd::{Loss, Model, Target};

use super::{Device, Prepared, Workload};

pub const WORKLOADS: &[Workload] = &[
    Workload {
        name: "gpu-native-kan-64",
        about: "a native Adam step with clipping of a KAN [21,64,64,24], batch 64 (--device gpu)",
        build: |device| native(device, 64),
    },
    Workload {
        name: "gpu-native-kan-256",
        about: "a native Adam step with clipping of a KAN [21,64,64,24], batch 256 (--device gpu)",
        build: |device| native(device, 256),
    },
    Workload {
        name: "gpu-hybrid-kan-64",
        about: "a hybrid Adam step of a KAN [21,64,64,24], batch 64 (--device gpu)",
        build: |device| hybrid(device, 64),
    },
    Workload {
        name: "gpu-forward-kan-256",
        about: "inference of a KAN [21,64,64,24], batch 256 (--device gpu)",
        build: |device| forward(device, 256),
    },
];

struct Case {
    network: GpuNetwork,
    x: Vec<f32>,
    target: Target<f32>,
}

fn case(device: Device, samples: usize) -> anyhow::Result<Case> {
    if device != Device::Gpu {
        anyhow::bail!("it runs with --device gpu");
    }
    let kan = |out: usize| -> LayerSpec {
        let spec = format!(r#"{{"kind":"kan","out":{out},"grid":5,"degree":3}}"#);
        serde_json::from_str(&spec).expect("a layer")
    };
    let spec = NetworkSpec::new(&[21], vec![kan(64), kan(64), kan(24)]);
    let network = Network::new(&spec)?;
    let gpu = Gpu::open(&Choice::Auto)?;
    let mut stream = Key::new(0).purpose("bench").stream();
    let mut draw =
        |len: usize| -> Vec<f32> { (0..len).map(|_| stream.range(-1.0, 1.0) as f32).collect() };
    Ok(Case {
        x: draw(21 * samples),
        target: Target::values(draw(24 * samples)),
        network: GpuNetwork::new(&gpu, &network, &network.init(0))?,
    })
}

/// Clipping at a norm that is never reached costs the same as one that is.
fn options() -> TrainOptions {
    TrainOptions {
        clip: Clip {
            norm: Some(1e3),
            element: None,
        },
        ..Default::default()
    }
}

fn native(device: Device, samples: usize) -> anyhow::Result<Prepared> {
    let Case {
        mut network,
        x,
        target,
    } = case(device, samples)?;
    let mut optimizer = GpuOptimizer::new(&network, OptimizerSpec::adam(1e-4))?;
    Ok(Prepared {
        step: Box::new(move || {
            network
                .train_step_gpu_native_with_options(
                    &x,
                    &target,
                    Loss::Mse,
                    &mut optimizer,
                    &options(),
                )
                .and_then(|()| network.finish())
                .expect("a step");
        }),
        flops: None,
        rate: Some(("samples_per_s", samples as f64)),
        problem: None,
    })
}

fn hybrid(device: Device, samples: usize) -> anyhow::Result<Prepared> {
    let Case {
        mut network,
        x,
        target,
    } = case(device, samples)?;
    let len = network.network().layout().len();
    let mut optimizer = Optimizer::new(OptimizerSpec::adam(1e-4), len);
    Ok(Prepared {
        step: Box::new(move || {
            network
                .train_step_with_options(&x, &target, Loss::Mse, &mut optimizer, &options())
                .expect("a step");
        }),
        flops: None,
        rate: Some(("samples_per_s", samples as f64)),
        problem: None,
    })
}

fn forward(device: Device, samples: usize) -> anyhow::Result<Prepared> {
    let Case { mut network, x, .. } = case(device, samples)?;
    Ok(Prepared {
        step: Box::new(move || {
            network.forward_batch(&x).expect("an output");
        }),
        flops: None,
        rate: Some(("samples_per_s", samples as f64)),
        problem: None,
    })
}

/// Prints where the time of a native step goes, by timestamps on the device: the median of 15.
pub fn profile(samples: usize) -> anyhow::Result<()> {
    let Case {
        mut network,
        x,
        target,
    } = case(Device::Gpu, samples)?;
    let mut optimizer = GpuOptimizer::new(&network, OptimizerSpec::adam(1e-4))?;
    let mut runs = Vec::new();
    let before = network.gpu().counters();
    for _ in 0..15 {
        let run =
            network.profile_native_step(&x, &target, Loss::Mse, &mut optimizer, &options())?;
        runs.push(run);
    }
    let kernels = runs[0].len();
    println!("a native Adam step with clipping, KAN [21,64,64,24], batch {samples}");
    println!("{:34} {:>10} {:>7}", "kernel", "µs", "share");
    let median = |i: usize| {
        let mut times: Vec<f64> = runs.iter().map(|run| run[i].1).collect();
        times.sort_by(f64::total_cmp);
        times[times.len() / 2]
    };
    let total: f64 = (0..kernels).map(median).sum();
    for i in 0..kernels {
        let time = median(i);
        println!(
            "{:34} {:>10.1} {:>6.1}%",
            runs[0][i].0,
            time * 1e6,
            100.0 * time / total
        );
    }
    println!("{:34} {:>10.1}", "all kernels", total * 1e6);
    let counters = network.gpu().counters().since(before);
    // Every run makes one step unseen, and one timed.
    println!("{} dispatches a step", counters.dispatches / 30);
    Ok(())
}
