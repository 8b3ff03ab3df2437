//! Steps of a KAN on the GPU. Each is waited for: the time of the work, not of handing it over.

use crate::family::Console;
use crate::gpu::{BackwardForm, Choice, Gpu, GpuNetwork, GpuOptimizer, GpuTrainOptions};
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

fn kan() -> crate::Result<Network> {
    let kan = |out: usize| -> LayerSpec {
        let spec = format!(r#"{{"kind":"kan","out":{out},"grid":5,"degree":3}}"#);
        serde_json::from_str(&spec).expect("a layer")
    };
    let spec = NetworkSpec::new(&[21], vec![kan(64), kan(64), kan(24)]);
    Network::new(&spec)
}

fn batch(network: &Network, samples: usize) -> (Vec<f32>, Target<f32>) {
    let mut stream = Key::new(0).purpose("bench").stream();
    let mut draw =
        |len: usize| -> Vec<f32> { (0..len).map(|_| stream.range(-1.0, 1.0) as f32).collect() };
    let x = draw(network.input_len() * samples);
    (x, Target::values(draw(network.output_len() * samples)))
}

fn case(device: BenchDevice, samples: usize) -> crate::Result<Case> {
    if device != BenchDevice::Gpu {
        return Err(Error::invalid("--device", "cpu", "gpu"));
    }
    let network = kan()?;
    let gpu = Gpu::open(&Choice::Auto)?;
    let (x, target) = batch(&network, samples);
    let network = GpuNetwork::new(&gpu, &network, &network.init(0))?;
    Ok(Case { x, target, network })
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
        on_gpu: None,
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
        on_gpu: None,
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
        on_gpu: None,
    })
}

/// Says where the time of a native step goes, by timestamps on the device, the median of 15, and what every
/// kernel reads and writes in storage buffers: of the KAN and of a perceptron, with backward in one kernel
/// for a layer and in kernels of their own.
pub fn profile(samples: usize, console: &mut dyn Console) -> crate::Result<()> {
    let dense = |out: usize| LayerSpec::dense(out);
    let layers = vec![
        dense(256),
        LayerSpec::gelu(),
        dense(256),
        LayerSpec::gelu(),
        dense(10),
    ];
    let perceptron = Network::new(&NetworkSpec::new(&[64], layers))?;
    for (name, network) in [
        ("KAN [21,64,64,24]", kan()?),
        ("[64,256,256,10]", perceptron),
    ] {
        for form in [BackwardForm::Fused, BackwardForm::Separate] {
            let words = match form {
                BackwardForm::Separate => "separate kernels",
                _ => "one kernel a layer",
            };
            console.line(&format!(
                "a native Adam step with clipping, {name}, batch {samples}, backward in {words}"
            ));
            profile_of(&network, samples, form, console)?;
        }
    }
    Ok(())
}

fn profile_of(
    network: &Network,
    samples: usize,
    form: BackwardForm,
    console: &mut dyn Console,
) -> crate::Result<()> {
    let gpu = Gpu::open(&Choice::Auto)?;
    gpu.set_backward_form(form);
    let (x, target) = batch(network, samples);
    let fresh = || -> crate::Result<(GpuNetwork, GpuOptimizer)> {
        let on_gpu = GpuNetwork::new(&gpu, network, &network.init(0))?;
        let optimizer = GpuOptimizer::new(&on_gpu, OptimizerSpec::adam(1e-4))?;
        Ok((on_gpu, optimizer))
    };
    let (mut counting, mut adam) = fresh()?;
    let traffic = counting.traffic_of_native_step(&x, &target, Loss::Mse, &mut adam, &options())?;
    let (mut on_gpu, mut adam) = fresh()?;
    let mut runs = Vec::new();
    let before = gpu.counters();
    for _ in 0..15 {
        runs.push(on_gpu.profile_native_step(&x, &target, Loss::Mse, &mut adam, &options())?);
    }
    let dispatches = gpu.counters().since(before).dispatches;
    let median = |i: usize| {
        let mut times: Vec<f64> = runs.iter().map(|run| run[i].1).collect();
        times.sort_by(f64::total_cmp);
        times[times.len() / 2]
    };
    let total: f64 = (0..runs[0].len()).map(median).sum();
    let line = |name: &str, time: f64, bytes: u64, least: u64| {
        let share = 100.0 * time / total;
        let [bytes, least] = [bytes, least].map(|n| n as f64 / 1024.0);
        format!(
            "{name:34} {:>10.1} {share:>6.1}% {bytes:>10.1} {least:>10.1}",
            time * 1e6
        )
    };
    console.line(&format!(
        "{:34} {:>10} {:>7} {:>10} {:>10}",
        "kernel", "µs", "share", "KiB", "least KiB"
    ));
    for (i, kernel) in traffic.kernels.iter().enumerate() {
        let text = line(&kernel.label, median(i), kernel.bytes(), kernel.least());
        console.line(&text);
    }
    console.line(&line(
        "all kernels",
        total,
        traffic.bytes(),
        traffic.least(),
    ));
    // Every run makes one step unseen, and one timed.
    console.line(&format!("{} dispatches a step", dispatches / 30));
    Ok(())
}
