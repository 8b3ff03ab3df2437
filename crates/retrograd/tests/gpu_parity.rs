//! Whole steps on the GPU: they run, they agree with the reference for every layer kind, they cost
//! what they should, they repeat to the bit, and wrong kernels are caught.
#![cfg(feature = "gpu")]

mod gpu_helper;

use gpu_helper::{
    assert_parity, batch, gpu, gradients_only, kan, kan_layer, network_of, parts, target,
};
use retrograd::gpu::{
    Choice, Gpu, GpuNetwork, GpuOptimizer, GpuTrainOptions, GpuVerifier, Precision, auto_batch,
};
use retrograd::network::{LayerSpec, Network, NetworkSpec};
use retrograd::optim::{Optimizer, OptimizerSpec};
use retrograd::rng::Key;
use retrograd::train::Clip;
use retrograd::verify::{
    Bundle, BundleOptimizer, Device, Evaluation, Granted, Link, Options, Subject, Trajectory,
    against_on, check_on,
};
use retrograd::{Loss, Model, Target};

#[test]
fn test_train_step_runs() {
    let network = kan(&[3, 6, 2], 3);
    let params = network.init(1);
    let mut on_gpu = GpuNetwork::new(&gpu(), &network, &params).unwrap();
    let (x, t) = (batch(&network, 32), target(&network, 32));
    let mut optimizer = Optimizer::new(OptimizerSpec::adam(0.02), params.len());
    let first = on_gpu
        .train_step(&x, &t, Loss::Mse, &mut optimizer)
        .unwrap();
    let mut last = first;
    for _ in 0..20 {
        last = on_gpu
            .train_step(&x, &t, Loss::Mse, &mut optimizer)
            .unwrap();
    }
    assert!(last < 0.8 * first, "{first} → {last}");
}

/// Five steps of every optimizer, each within the predicted bound around the f64 trajectory; and
/// output, loss and gradients.
#[test]
fn test_train_step_parity() {
    let network = kan(&[3, 6, 2], 3);
    let params = network.init(3);
    let (x, t) = (batch(&network, 16), target(&network, 16));
    let subject = Subject::new("steps", &network, &params, &x, &t, Loss::Mse).unwrap();
    let report = check_on(&subject, &mut GpuVerifier::new(&gpu()), &Options::default()).unwrap();
    assert!(report.passed(), "{}{}", report.table(), report.summary());
    // The same with the optimizer on the CPU.
    let mut hybrid = Hybrid(GpuVerifier::new(&gpu()), 1.0);
    let report = check_on(&subject, &mut hybrid, &Options::default()).unwrap();
    assert!(report.passed(), "{}{}", report.table(), report.summary());
    // That has power: a step at half the rate does not pass.
    let mut slow = Hybrid(GpuVerifier::new(&gpu()), 0.5);
    let report = check_on(&subject, &mut slow, &Options::default()).unwrap();
    assert!(!report.passed(), "{}", report.table());
}

/// The device with trajectories of hybrid steps, at a share of the rate.
struct Hybrid(GpuVerifier, f64);

impl Device<Network> for Hybrid {
    fn link(&self) -> Link {
        Device::<Network>::link(&self.0)
    }

    fn granted(&self) -> &'static Granted {
        Device::<Network>::granted(&self.0)
    }

    fn evaluate(&mut self, subject: &Subject<'_, Network>) -> retrograd::Result<Evaluation<f64>> {
        self.0.evaluate(subject)
    }

    fn trajectory(
        &mut self,
        subject: &Subject<'_, Network>,
        optimizer: &BundleOptimizer,
        steps: usize,
    ) -> retrograd::Result<Trajectory<f64>> {
        let narrow = |v: &[f64]| -> Vec<f32> { v.iter().map(|&v| v as f32).collect() };
        let wide = |v: &[f32]| -> Vec<f64> { v.iter().map(|&v| f64::from(v)).collect() };
        let (params, x) = (narrow(&subject.params), narrow(&subject.input));
        let target: Target<f32> = subject.target.cast();
        let mut on_gpu = GpuNetwork::new(&gpu(), subject.model, &params)?;
        let mut on_cpu = Optimizer::new(optimizer.spec, params.len());
        let options = GpuTrainOptions {
            lr: Some(self.1 * optimizer.spec.lr()),
            clip: Clip {
                norm: optimizer.clip,
                element: optimizer.clip_element,
            },
            key: subject.pass.key,
            ..Default::default()
        };
        let mut taken = Trajectory::default();
        for _ in 0..steps {
            let loss = subject.loss;
            let value = on_gpu.train_step_with_options(&x, &target, loss, &mut on_cpu, &options)?;
            taken.losses.push(value);
            taken.grads.push(wide(&on_gpu.gradients()?));
        }
        taken.params = wide(on_gpu.sync_weights_to_cpu()?);
        Ok(taken)
    }
}

/// Every layer kind and option that bundles don't hold, and every loss.
#[test]
fn every_layer_kind_and_loss_agrees_with_the_reference() {
    let nets = [
        (
            "acts",
            network_of(
                &[6],
                r#"[{"kind":"dense","out":7},{"kind":"relu"},{"kind":"dense","out":6,"bias":false},{"kind":"leaky_relu","slope":0.2},{"kind":"dense","out":5},{"kind":"elu","alpha":0.8},{"kind":"dense","out":5},{"kind":"gelu"},{"kind":"dense","out":4},{"kind":"tanh"},{"kind":"dense","out":3},{"kind":"sigmoid"},{"kind":"layer_norm"}]"#,
            ),
        ),
        (
            "normal",
            network_of(
                &[3],
                r#"[{"kind":"normalize"},{"kind":"kan","out":4,"grid":4,"degree":2,"outside":"clamp","bias":true},{"kind":"dropout","p":0.4},{"kind":"kan","out":2,"grid":7,"degree":3,"base":"none","free_knots":true}]"#,
            ),
        ),
        (
            "conv",
            network_of(
                &[4, 7, 9],
                r#"[{"kind":"conv2d","out":6,"kernel":3,"padding":1,"groups":2,"dilation":1},{"kind":"batch_norm2d"},{"kind":"silu"},{"kind":"conv2d","out":5,"kernel":3,"padding":2,"padding_mode":"reflect","stride":2},{"kind":"group_norm","groups":5},{"kind":"conv2d","out":3,"kernel":2,"dilation":2,"bias":false},{"kind":"flatten"},{"kind":"dense","out":3}]"#,
            ),
        ),
        (
            "pools",
            network_of(
                &[2, 8, 10],
                r#"[{"kind":"max_pool2d","kernel":3,"stride":2},{"kind":"upsample","scale":2},{"kind":"avg_pool2d","kernel":3,"stride":1},{"kind":"conv_transpose2d","out":3,"kernel":3,"stride":2,"padding":1},{"kind":"concat","with":3},{"kind":"flatten"},{"kind":"dense","out":2}]"#,
            ),
        ),
        (
            "skips",
            network_of(
                &[5],
                r#"[{"kind":"dense","out":5},{"kind":"add","with":-1},{"kind":"tanh"},{"kind":"concat","with":0},{"kind":"add","with":3},{"kind":"dense","out":3}]"#,
            ),
        ),
    ];
    for (name, mut network) in nets {
        if name == "normal" {
            let mut buffers = network.buffers();
            for b in &mut buffers {
                match b.name.as_str() {
                    "0.mean" => b.values = vec![0.1, -0.2, 0.3],
                    "0.std" => b.values = vec![0.7, 1.3, 0.9],
                    _ => {
                        for (i, v) in b.values.iter_mut().enumerate() {
                            *v += 0.01 * ((i * 5 % 7) as f64 - 3.0);
                        }
                    }
                }
                network.set_buffer(b).unwrap();
            }
        }
        // The small initial splines of the KAN layers would leave its first bias a gradient that
        // differences of the loss cannot resolve.
        let gain = if name == "normal" { 8.0 } else { 1.0 };
        let params: Vec<f32> = network.init(3).iter().map(|p| gain * p).collect();
        let samples = 5;
        let (x, t) = (batch(&network, samples), target(&network, samples));
        let positive = t.values.iter().map(|v| v.abs()).collect();
        let weights = (0..t.values.len()).map(|i| 0.5 + (i % 3) as f32).collect();
        let classes: Vec<u32> = (0..samples as u32)
            .map(|n| n % network.output_len() as u32)
            .collect();
        let cases = [
            (Loss::Mse, t.clone().weighted(weights)),
            (Loss::L1, t.clone()),
            (Loss::Huber, t.clone()),
            (Loss::SumSquares, t.clone()),
            (Loss::BceLogits, Target::values(positive)),
            (Loss::CrossEntropy, Target::classes(classes)),
        ];
        for (loss, t) in cases {
            let subject = Subject::new(name, &network, &params, &x, &t, loss).unwrap();
            let mut device = GpuVerifier::new(&gpu());
            let report = check_on(&subject, &mut device, &gradients_only()).unwrap();
            assert!(
                report.passed(),
                "{name} {loss:?}\n{}{}",
                report.table(),
                report.summary()
            );
        }
    }
}

#[test]
fn every_network_bundle_agrees_on_the_gpu() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/reference");
    let mut checked = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let bundle = Bundle::read(&path).unwrap();
        if bundle.model.get("family").and_then(|f| f.as_str()) != Some("network") {
            continue;
        }
        // The reference of the two large ones takes most of a minute.
        let large = std::fs::metadata(&path).unwrap().len() > 600_000;
        if large && std::env::var_os("RETROGRAD_FULL").is_none() {
            continue;
        }
        let mut device = GpuVerifier::new(&gpu());
        let report = against_on::<Network>(&bundle, &mut device, &Options::default()).unwrap();
        assert!(report.passed(), "{}{}", report.table(), report.summary());
        checked += 1;
    }
    assert!(checked >= 12, "{checked}");
}

#[test]
fn a_native_step_is_one_submit_no_wait_and_eight_bytes_back() {
    let gpu = Gpu::open(&Choice::Auto).unwrap();
    let network = kan(&[21, 64, 64, 24], 3);
    let mut on_gpu = GpuNetwork::new(&gpu, &network, &network.init(1)).unwrap();
    let mut optimizer = GpuOptimizer::new(&on_gpu, OptimizerSpec::adam(1e-3)).unwrap();
    let (x, t) = (batch(&network, 64), target(&network, 64));
    let options = GpuTrainOptions {
        clip: Clip {
            norm: Some(1.0),
            element: None,
        },
        ..Default::default()
    };
    let mut step = |on_gpu: &mut GpuNetwork| {
        on_gpu
            .train_step_gpu_native_with_options(&x, &t, Loss::Mse, &mut optimizer, &options)
            .unwrap();
    };
    step(&mut on_gpu);
    on_gpu.finish().unwrap();
    let before = gpu.counters();
    let steps = 20;
    for _ in 0..steps {
        step(&mut on_gpu);
    }
    let after = gpu.counters().since(before);
    assert_eq!(after.submits, steps);
    assert_eq!(after.waits, 0);
    assert_eq!(after.throttles, 0);
    assert!(after.dispatches <= 16 * steps, "{after:?}");
    assert!(after.bytes_down <= 8 * steps, "{after:?}");
    let batch_bytes = 4 * 64 * (21 + 24);
    assert!(after.bytes_up <= steps * (batch_bytes + 1024), "{after:?}");
    let losses = on_gpu.finish().unwrap();
    assert_eq!(losses.len() as u64, steps);
    assert_eq!(gpu.counters().since(before).bytes_down, 8 * steps);
    assert!(losses.windows(2).all(|w| w[0].step + 1 == w[1].step));
}

/// Batches go through a ring of buffers while earlier steps run: nothing waits, the ring stops
/// growing, and every step sees its own batch.
#[test]
fn uploads_through_the_ring_never_wait_and_arrive_whole() {
    let network = kan(&[3, 8, 2], 3);
    let run = |stop_after_each: bool| {
        let gpu = Gpu::open(&Choice::Auto).unwrap();
        let mut on_gpu = GpuNetwork::new(&gpu, &network, &network.init(1)).unwrap();
        let mut optimizer = GpuOptimizer::new(&on_gpu, OptimizerSpec::adam(1e-2)).unwrap();
        let before = gpu.counters();
        let mut losses = Vec::new();
        for step in 0..200_usize {
            // Another batch, and now and then another size.
            let samples = if step % 7 == 3 { 24 } else { 16 };
            let x: Vec<f32> = batch(&network, samples + step).split_off(3 * step);
            let t = target(&network, samples);
            on_gpu
                .train_step_gpu_native(&x, &t, Loss::Mse, &mut optimizer)
                .unwrap();
            if stop_after_each {
                losses.extend(on_gpu.finish().unwrap());
            }
        }
        let counters = gpu.counters().since(before);
        losses.extend(on_gpu.finish().unwrap());
        let losses: Vec<f64> = losses.iter().map(|l| l.loss).collect();
        (
            losses,
            on_gpu.sync_weights_to_cpu().unwrap().to_vec(),
            counters,
        )
    };
    let (losses, weights, counters) = run(false);
    assert_eq!(losses.len(), 200);
    assert_eq!((counters.submits, counters.waits), (200, 0));
    // At most 32 steps are under way, and one is being written; each buffer may once have been too
    // small for the larger batch.
    assert!(counters.staging_buffers <= 2 * 33, "{counters:?}");
    let (slow_losses, slow_weights, _) = run(true);
    assert_eq!(losses, slow_losses);
    assert_eq!(weights, slow_weights);
}

#[test]
fn an_automatic_batch_is_the_largest_that_fits() {
    let gpu = gpu();
    let network = kan(&[21, 64, 64, 24], 3);
    let chosen = auto_batch(&gpu, &network, Precision::F32, 64 * 16 + 5).unwrap();
    assert_eq!(chosen.samples, 64);
    assert!(chosen.reason.contains("1029 samples"), "{}", chosen.reason);
    // 16 MiB a sample in the output of the convolution: what the adapter lets a kernel see decides.
    let wide = network_of(
        &[1, 256, 256],
        r#"[{"kind":"conv2d","out":64,"kernel":3,"padding":1},{"kind":"avg_pool2d","kernel":16}]"#,
    );
    let allowed = gpu
        .description()
        .max_binding
        .min(gpu.description().max_buffer);
    let largest = (allowed / (16 << 20)) as usize;
    let chosen = auto_batch(&gpu, &wide, Precision::F32, 1 << 30).unwrap();
    assert!(chosen.samples.is_power_of_two() && chosen.samples <= largest);
    assert!(chosen.bytes > 32 * chosen.samples as u64 * (1 << 20));
    // Half the bytes, so up to twice the samples.
    let mixed = auto_batch(&gpu, &wide, Precision::Mixed, 1 << 30).unwrap();
    assert!(mixed.samples >= chosen.samples);
    if 2 * chosen.samples > largest {
        assert_eq!(mixed.samples, 2 * chosen.samples);
        let mut on_gpu = GpuNetwork::new(&gpu, &wide, &wide.init(0)).unwrap();
        let x = vec![0.0; 2 * chosen.samples * wide.input_len()];
        let error = on_gpu.forward_batch(&x).unwrap_err().to_string();
        assert!(error.contains("layer 0's output"), "{error}");
    }
}

#[test]
fn two_runs_on_one_adapter_have_equal_bits() {
    let run = || {
        let network = network_of(
            &[2, 6, 5],
            r#"[{"kind":"conv2d","out":5,"kernel":3},{"kind":"batch_norm2d"},{"kind":"dropout","p":0.3},{"kind":"flatten"},{"kind":"kan","out":3,"grid":5,"degree":3}]"#,
        );
        let gpu = Gpu::open(&Choice::Auto).unwrap();
        let mut on_gpu = GpuNetwork::new(&gpu, &network, &network.init(1)).unwrap();
        let mut optimizer = GpuOptimizer::new(&on_gpu, OptimizerSpec::adamw(0.01)).unwrap();
        let (x, t) = (batch(&network, 13), target(&network, 13));
        for step in 0..10 {
            let options = GpuTrainOptions {
                key: Key::new(5).step(step),
                ..Default::default()
            };
            on_gpu
                .train_step_gpu_native_with_options(&x, &t, Loss::Mse, &mut optimizer, &options)
                .unwrap();
        }
        let losses: Vec<f64> = on_gpu.finish().unwrap().iter().map(|l| l.loss).collect();
        (losses, on_gpu.sync_weights_to_cpu().unwrap().to_vec())
    };
    assert_eq!(run(), run());
}

/// A layer whose weights are frozen, and all before it, cost no kernel in backward.
#[test]
fn frozen_layers_record_no_dispatch() {
    let gpu = Gpu::open(&Choice::Auto).unwrap();
    let mut network = kan(&[3, 6, 5, 2], 3);
    let dispatches = |network: &Network| {
        let mut on_gpu = GpuNetwork::new(&gpu, network, &network.init(1)).unwrap();
        let mut optimizer = GpuOptimizer::new(&on_gpu, OptimizerSpec::adamw(0.1)).unwrap();
        let (x, t) = (batch(network, 4), target(network, 4));
        let before = gpu.counters();
        on_gpu
            .train_step_gpu_native(&x, &t, Loss::Mse, &mut optimizer)
            .unwrap();
        on_gpu.finish().unwrap();
        let weights = on_gpu.sync_weights_to_cpu().unwrap().to_vec();
        (gpu.counters().since(before).dispatches, weights)
    };
    let (all, _) = dispatches(&network);
    network.layout_mut().freeze("0.*").unwrap();
    network.layout_mut().freeze("1.*").unwrap();
    let (fewer, weights) = dispatches(&network);
    // Two kernels less, each of which makes the gradients of weights and input.
    assert_eq!(fewer + 2, all);
    let frozen = network.layout().get("2.spline_weight").unwrap().offset;
    assert_eq!(
        weights[..frozen],
        network.init(1)[..frozen],
        "decay must not touch them"
    );
    assert_ne!(weights[frozen..], network.init(1)[frozen..]);
}

/// Deliberately wrong kernels: the comparison must catch every one.
#[test]
fn gpu_mutants_are_caught() {
    let normal = || {
        let mut network = network_of(
            &[3],
            r#"[{"kind":"normalize"},{"kind":"kan","out":4,"grid":5,"degree":2,"bias":true},{"kind":"kan","out":3,"grid":6,"degree":4}]"#,
        );
        for mut b in network.buffers() {
            let values = if b.name == "0.mean" {
                vec![0.1, -0.2, 0.3]
            } else {
                vec![0.7, 1.3, 0.9]
            };
            b.values = values;
            network.set_buffer(&b).unwrap();
        }
        network
    };
    let mutants: [(&str, &str, &str); 8] = [
        (
            "cubic derivative for every degree",
            "j == DEGREE",
            "j == 3u",
        ),
        (
            "a stale tape after a larger batch",
            "index >= sizes.rows * INPUTS",
            "index >= min(sizes.rows, 7u) * INPUTS",
        ),
        (
            "weights misaligned",
            "return f32(b[sizes.b + k * sizes.b_row + column * sizes.b_column]);",
            "return f32(b[sizes.b + k * sizes.b_row + column * sizes.b_column + k / 5u]);",
        ),
        (
            "normalisation forgotten",
            "(f32(a[index]) - mean) / statistics[sizes.width + i]",
            "f32(a[index])",
        ),
        (
            "the mean forgotten",
            "let mean = select(0.0, statistics[i], sizes.subtracts_mean == 1u);",
            "let mean = 0.0;",
        ),
        (
            "the base's slope forgotten",
            "moves * silu_slope(x)",
            "0.0 * moves",
        ),
        (
            "the last rows left out of the weights' gradient",
            "let run_end = min(run + 64u, last);",
            "let run_end = min(run + 64u, last - 1u);",
        ),
        (
            "1/N forgotten",
            "return step.scale * step.share *",
            "return step.share *",
        ),
    ];
    let network = normal();
    let params = network.init(3);
    let (x, t) = (batch(&network, 12), target(&network, 12));
    let subject = Subject::new("mutant", &network, &params, &x, &t, Loss::Mse).unwrap();
    let passes = |gpu| {
        let report = check_on(&subject, &mut GpuVerifier::new(&gpu), &gradients_only()).unwrap();
        report.passed()
    };
    assert!(passes(gpu()), "the right kernels pass");
    for (name, from, to) in mutants {
        let wrong = Gpu::open_mutated(&Choice::Auto, from, to).unwrap();
        assert!(!passes(wrong), "{name} went unseen");
    }
}

#[test]
fn a_layer_of_every_kind_alone_in_one_network_agrees() {
    for kind in ["relu", "silu", "gelu", "tanh", "sigmoid", "layer_norm"] {
        let network = network_of(&[6], &format!(r#"[{{"kind":"{kind}"}}]"#));
        assert_parity(kind, &network, 4, &mut parts(&network));
    }
    let spec = NetworkSpec::new(&[2], vec![kan_layer(3, 1), LayerSpec::flatten()]);
    let network = Network::new(&spec).unwrap();
    assert_parity("flatten last", &network, 4, &mut parts(&network));
}

/// Software Vulkan ends loops after 65,535 iterations without an error, in the middle of a sum.
#[test]
fn kernels_that_an_adapter_would_leave_off_are_refused_and_long_products_made_in_parts() {
    for (kind, input, layers) in [
        (
            "conv2d",
            [2, 5, 7],
            r#"[{"kind":"conv2d","out":3,"kernel":63,"padding":31}]"#,
        ),
        (
            "norm",
            [1, 1190, 1190],
            r#"[{"kind":"group_norm","groups":1}]"#,
        ),
    ] {
        let network = network_of(&input, layers);
        if gpu().description().kind != "software" {
            assert_parity(kind, &network, 1, &mut parts(&network));
            continue;
        }
        let params = network.init(0);
        let mut on_gpu = GpuNetwork::new(&gpu(), &network, &params).unwrap();
        let (x, t) = (batch(&network, 1), target(&network, 1));
        let options = GpuTrainOptions::default();
        let error = on_gpu.loss_and_gradients(&x, &t, Loss::Mse, &options);
        let error = error.err().unwrap().to_string();
        assert!(error.contains("65535") && error.contains(kind), "{error}");
    }
    let long = network_of(
        &[70_001],
        r#"[{"kind":"dense","out":2},{"kind":"tanh"},{"kind":"dense","out":2}]"#,
    );
    assert_parity("70,001 inputs", &long, 2, &mut parts(&long));
}
