//! Steps of a KAN on the GPU. Each is waited for: the time of the work, not of handing it over.

use crate::family::Console;
use crate::gpu::{Choice, Gpu, GpuNetwork, GpuOptimizer, GpuTrainOptions};
use crate::network::{LayerSpec, Network, NetworkSpec};
use crate::optim::{Optimizer, OptimizerSpec};
use crate::rng::Key;
use crate::train::Clip;
use crate::{Error, Loss, Model, Target};

use crate::bench::{BenchDevice, Prepared, Workload};

pub(crate) const WORKLOADS: &[Workload] = &[
    Workload {
        name: "gpu-native-kan-64",
        about: "a native Adam step with clipping of a KAN [21,64,64,24], batch 64 (--device gpu)",
        build: |device, _| native(device, 64),
    },
    Workload {
        name: "gpu-native-kan-256",
        about: "a native Adam step with clipping of a KAN [21,64,64,24], batch 256 (--device gpu)",
        build: |device, _| native(device, 256),
    },
    Workload {
        name: "gpu-hybrid-kan-64",
        about: "a hybrid Adam step of a KAN [21,64,64,24], batch 64 (--device gpu)",
        build: |device, _| hybrid(device, 64),
    },
    Workload {
        name: "gpu-forward-kan-256",
        about: "inference of a KAN [21,64,64,24], batch 256 (--device gpu)",
        build: |device, _| forward(device, 256),
    },
];

struct Case {
    network: GpuNetwork,
    x: Vec<f32>,
    target: Target<f32>,
}

fn case(device: BenchDevice, samples: usize) -> crate::Result<Case> {
    if device != BenchDevice::Gpu {
        return Err(Error::invalid("--device", "cpu", "gpu"));
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
fn options() -> GpuTrainOptions {
    GpuTrainOptions {
        clip: Clip {
            norm: Some(1e3),
            element: None,
        },
        ..Default::default()
    }
}

fn native(device: BenchDevice, samples: usize) -> crate::Result<Prepared> {
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
        fused: None,
        sharded: None,
    })
}

fn hybrid(device: BenchDevice, samples: usize) -> crate::Result<Prepared> {
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
        fused: None,
        sharded: None,
    })
}

fn forward(device: BenchDevice, samples: usize) -> crate::Result<Prepared> {
    let Case { mut network, x, .. } = case(device, samples)?;
    Ok(Prepared {
        step: Box::new(move || {
            network.forward_batch(&x).expect("an output");
        }),
        flops: None,
        rate: Some(("samples_per_s", samples as f64)),
        problem: None,
        fused: None,
        sharded: None,
    })
}

/// Says where the time of a native step goes, by timestamps on the device: the median of 15.
pub fn profile(samples: usize, console: &mut dyn Console) -> crate::Result<()> {
    let Case {
        mut network,
        x,
        target,
    } = case(BenchDevice::Gpu, samples)?;
    let mut optimizer = GpuOptimizer::new(&network, OptimizerSpec::adam(1e-4))?;
    let mut runs = Vec::new();
    let before = network.gpu().counters();
    for _ in 0..15 {
        let run =
            network.profile_native_step(&x, &target, Loss::Mse, &mut optimizer, &options())?;
        runs.push(run);
    }
    let kernels = runs[0].len();
    console.line(&format!(
        "a native Adam step with clipping, KAN [21,64,64,24], batch {samples}"
    ));
    console.line(&format!("{:34} {:>10} {:>7}", "kernel", "µs", "share"));
    let median = |i: usize| {
        let mut times: Vec<f64> = runs.iter().map(|run| run[i].1).collect();
        times.sort_by(f64::total_cmp);
        times[times.len() / 2]
    };
    let total: f64 = (0..kernels).map(median).sum();
    for i in 0..kernels {
        let time = median(i);
        console.line(&format!(
            "{:34} {:>10.1} {:>6.1}%",
            runs[0][i].0,
            time * 1e6,
            100.0 * time / total
        ));
    }
    console.line(&format!("{:34} {:>10.1}", "all kernels", total * 1e6));
    let counters = network.gpu().counters().since(before);
    // Every run makes one step unseen, and one timed.
    console.line(&format!("{} dispatches a step", counters.dispatches / 30));
    Ok(())
}
