//! Training on the GPU: it converges, native and hybrid and the CPU follow the same path, weights
//! and optimizer state move between them, and failures leave the last good weights.
#![cfg(feature = "gpu")]

mod gpu_helper;

use gpu_helper::{batch, gpu, kan};
use retrograd::gpu::{Choice, Gpu, GpuNetwork, GpuOptimizer, GpuTrainOptions};
use retrograd::network::Network;
use retrograd::optim::{Optimizer, OptimizerSpec, global_norm};
use retrograd::rng::Key;
use retrograd::train::{Clip, Example, Stepper};
use retrograd::verify::precision::{Bounds, SamplePlan, sample};
use retrograd::verify::{BundleOptimizer, Granted, Runner, Subject};
use retrograd::{Error, Kernels, Loss, Model, Pass, Target};

fn put(network: &Network) -> GpuNetwork {
    GpuNetwork::new(&gpu(), network, &network.init(3)).unwrap()
}

/// A function to learn: two smooth outputs of three inputs.
fn lesson(network: &Network, samples: usize) -> (Vec<f32>, Target<f32>) {
    let x = batch(network, samples);
    let rows = x.chunks_exact(3);
    let y = rows
        .flat_map(|r| [(2.0 * r[0]).sin() * r[1], r[2] * r[2] - 0.5 * r[0]])
        .collect();
    (x, Target::values(y))
}

fn options(clip: Option<f64>) -> GpuTrainOptions {
    GpuTrainOptions {
        clip: Clip {
            norm: clip,
            element: None,
        },
        ..Default::default()
    }
}

/// Native steps; first and last loss.
fn train(
    network: &Network,
    spec: OptimizerSpec,
    samples: usize,
    steps: usize,
    clip: Option<f64>,
) -> (f64, f64) {
    let mut on_gpu = put(network);
    let mut optimizer = GpuOptimizer::new(&on_gpu, spec).unwrap();
    let (x, t) = lesson(network, samples);
    let mut losses = Vec::new();
    for _ in 0..steps {
        on_gpu
            .train_step_gpu_native_with_options(&x, &t, Loss::Mse, &mut optimizer, &options(clip))
            .unwrap();
        losses.extend(on_gpu.losses().unwrap());
    }
    losses.extend(on_gpu.finish().unwrap());
    assert_eq!(losses.len(), steps);
    assert!(losses.iter().all(|l| l.updated && l.loss.is_finite()));
    assert!(
        on_gpu
            .sync_weights_to_cpu()
            .unwrap()
            .iter()
            .all(|w| w.is_finite())
    );
    (losses[0].loss, losses[steps - 1].loss)
}

/// Sixty steps with the optimizer on the CPU, all on the device, and all on the CPU: all three learn, and
/// equally well. (How far they may be apart step by step is held by the tests of modes below.)
#[test]
fn test_gpu_training_convergence() {
    let network = kan(&[3, 6, 2], 3);
    let spec = OptimizerSpec::adam(0.02);
    let (x, t) = lesson(&network, 32);
    let mut on_gpu = put(&network);
    let mut optimizer = Optimizer::new(spec, network.layout().len());
    let mut hybrid = Vec::new();
    for _ in 0..60 {
        let loss = on_gpu.train_step(&x, &t, Loss::Mse, &mut optimizer);
        hybrid.push(loss.unwrap());
    }
    let native = train(&network, spec, 32, 60, None);
    let example = Example {
        input: x,
        target: t,
    };
    let mut stepper = Stepper::new(&network, network.init(3), spec);
    let pass = Pass::training(Key::new(0));
    let mut step = || stepper.step(&network, Loss::Mse, &example, &pass).unwrap();
    let cpu: Vec<f64> = (0..60).map(|_| step()).collect();
    for (first, last) in [(hybrid[0], hybrid[59]), native, (cpu[0], cpu[59])] {
        assert!(last < 0.1 * first, "{first} → {last}");
        // The same weights and batch: a sum of 64 squares.
        assert!((first - cpu[0]).abs() < 64.0 * 2.0_f64.powi(-24) * cpu[0] * 4.0);
        assert!((0.5..2.0).contains(&(last / cpu[59])), "{last} {}", cpu[59]);
    }
}

#[test]
fn test_native_adam_training_convergence() {
    let network = kan(&[3, 6, 2], 3);
    let (first, last) = train(&network, OptimizerSpec::adam(0.02), 32, 60, None);
    assert!(last < 0.1 * first, "{first} → {last}");
}

#[test]
fn test_weight_sync_roundtrip() {
    // G + k = 8 and 7: no padding may creep in between.
    for degree in [2, 3] {
        let network = kan(&[3, 5, 2], degree);
        let mut on_gpu = put(&network);
        assert_eq!(on_gpu.sync_weights_to_cpu().unwrap(), &network.init(3)[..]);
        let other = network.init(9);
        on_gpu.sync_weights_from_cpu(&other).unwrap();
        assert_eq!(on_gpu.sync_weights_to_cpu().unwrap(), &other[..]);
        assert_eq!(on_gpu.cpu_weights(), &other[..]);
    }
}

#[test]
fn test_weight_sync_after_native_training() {
    let network = kan(&[3, 5, 2], 3);
    let mut on_gpu = put(&network);
    let mut optimizer = GpuOptimizer::new(&on_gpu, OptimizerSpec::adam(0.01)).unwrap();
    let (x, t) = lesson(&network, 16);
    for _ in 0..5 {
        on_gpu
            .train_step_gpu_native(&x, &t, Loss::Mse, &mut optimizer)
            .unwrap();
    }
    let weights = on_gpu.sync_weights_to_cpu().unwrap().to_vec();
    assert_ne!(weights, network.init(3));
    // Another object with the same weights gives the same output.
    let mut other = GpuNetwork::new(&gpu(), &network, &weights).unwrap();
    assert_eq!(
        other.forward_batch(&x).unwrap(),
        on_gpu.forward_batch(&x).unwrap()
    );
}

#[test]
fn test_native_gradient_clipping_effect() {
    let network = kan(&[3, 5, 2], 3);
    let (x, t) = lesson(&network, 16);
    let (lr, limit) = (0.5, 0.01);
    let step = |clip: Option<f64>| -> (f64, Vec<f32>) {
        let mut on_gpu = put(&network);
        let mut optimizer = GpuOptimizer::new(&on_gpu, OptimizerSpec::sgd(lr)).unwrap();
        on_gpu
            .train_step_gpu_native_with_options(&x, &t, Loss::Mse, &mut optimizer, &options(clip))
            .unwrap();
        let after = on_gpu.sync_weights_to_cpu().unwrap().to_vec();
        let moved: Vec<f64> = after
            .iter()
            .zip(network.init(3))
            .map(|(a, b)| (f64::from(*a) - f64::from(b)) / lr)
            .collect();
        (
            global_norm(&moved, network.layout()),
            on_gpu.gradients().unwrap(),
        )
    };
    let (free, grads) = step(None);
    let norm = global_norm(&grads, network.layout());
    assert!(norm > 2.0 * limit, "{norm}");
    // A parameter of order 1 is rounded once: 2⁻²⁴ each, divided by the rate.
    let rounding = 2.0_f64.powi(-24) / lr * (grads.len() as f64).sqrt();
    assert!(
        (free - norm).abs() <= rounding + 1e-6 * norm,
        "{free} and {norm}"
    );
    let (clipped, _) = step(Some(limit));
    let expected = norm * limit / (norm + 1e-6);
    assert!(
        (clipped - expected).abs() <= rounding + 1e-6 * limit,
        "{clipped} and {expected}"
    );
}

#[test]
fn test_native_training_with_clipping_stability() {
    let network = kan(&[3, 6, 2], 3);
    let spec = OptimizerSpec::Sgd {
        lr: 5.0,
        momentum: 0.9,
        nesterov: true,
        weight_decay: 1e-4,
    };
    let (first, last) = train(&network, spec, 32, 200, Some(0.005));
    assert!(last < 0.5 * first, "{first} → {last}");
    // Without it the same steps explode: the last loss is no number, or far above the first.
    let mut on_gpu = put(&network);
    let mut optimizer = GpuOptimizer::new(&on_gpu, spec).unwrap();
    let (x, t) = lesson(&network, 32);
    let free = GpuTrainOptions {
        skip_not_finite: true,
        ..options(None)
    };
    for _ in 0..200 {
        on_gpu
            .train_step_gpu_native_with_options(&x, &t, Loss::Mse, &mut optimizer, &free)
            .unwrap();
    }
    let losses = on_gpu.finish().unwrap();
    let last = losses.last().unwrap();
    assert!(!last.updated || last.loss > 100.0 * first, "{last:?}");
}

#[test]
fn test_native_training_stability_1000_steps() {
    let network = kan(&[3, 6, 2], 3);
    let (first, last) = train(&network, OptimizerSpec::adamw(0.01), 16, 1000, Some(1.0));
    assert!(last < 0.01 * first, "{first} → {last}");
}

#[test]
fn test_native_training_batch_size_1() {
    let network = kan(&[3, 6, 2], 3);
    let (first, last) = train(&network, OptimizerSpec::adam(0.01), 1, 50, None);
    assert!(last < 0.1 * first, "{first} → {last}");
}

#[test]
fn test_native_training_large_batch() {
    let network = kan(&[3, 6, 2], 3);
    let (first, last) = train(&network, OptimizerSpec::adam(0.02), 2048, 40, Some(1.0));
    assert!(last < 0.5 * first, "{first} → {last}");
}

/// Native and hybrid, each against the f64 trajectory within the predicted bound, and against one
/// another within both. Elements whose gradient is below its own bound have no direction that Adam
/// could follow in f32; the verifier leaves them out, and so does this.
fn hybrid_vs_native(spec: OptimizerSpec, clip: Option<f64>) {
    let network = kan(&[3, 5, 2], 3);
    let params = network.init(3);
    let (x, t) = lesson(&network, 16);
    let steps = 10;
    let optimizer = BundleOptimizer {
        spec,
        clip,
        clip_element: None,
    };
    let subject = Subject::new("modes", &network, &params, &x, &t, Loss::Mse).unwrap();
    let samples = sample(
        &subject,
        &Granted::WGSL,
        &[&optimizer],
        steps,
        &SamplePlan::default(),
    );
    let runs = &samples.trajectories[0];
    let mut exact = Runner::<Network, f64>::new(&subject, Kernels::Reference);
    let exact = exact.trajectory(&subject.params, &optimizer, steps, None);
    let mut native = put(&network);
    let mut on_device = GpuOptimizer::new(&native, spec).unwrap();
    let mut hybrid = put(&network);
    let mut on_cpu = Optimizer::new(spec, params.len());
    for _ in 0..steps {
        native
            .train_step_gpu_native_with_options(&x, &t, Loss::Mse, &mut on_device, &options(clip))
            .unwrap();
        hybrid
            .train_step_with_options(&x, &t, Loss::Mse, &mut on_cpu, &options(clip))
            .unwrap();
    }
    let native = native.sync_weights_to_cpu().unwrap().to_vec();
    let hybrid = hybrid.sync_weights_to_cpu().unwrap().to_vec();
    let mut compared = 0;
    for tensor in network.layout().tensors() {
        let range = tensor.range();
        let bounds = Bounds::new(
            &exact.params[range.clone()],
            runs.iter().map(|r| &r.params[range.clone()]),
        );
        for i in range {
            let vague = exact.grads.iter().enumerate().any(|(step, g)| {
                let here = &g[tensor.range()];
                let b = Bounds::new(here, runs.iter().map(|r| &r.grads[step][tensor.range()]));
                g[i].abs() <= b.at(i - tensor.offset)
            });
            if vague {
                continue;
            }
            compared += 1;
            let bound = bounds.at(i - tensor.offset);
            let [a, b] = [native[i], hybrid[i]].map(f64::from);
            assert!(
                (a - exact.params[i]).abs() <= bound,
                "native {} {i}",
                tensor.name
            );
            assert!(
                (b - exact.params[i]).abs() <= bound,
                "hybrid {} {i}",
                tensor.name
            );
            assert!((a - b).abs() <= bound, "{} {i}: {a} and {b}", tensor.name);
        }
    }
    assert!(
        2 * compared > params.len(),
        "{compared} of {}",
        params.len()
    );
}

#[test]
fn test_hybrid_vs_native_parity_sgd() {
    let spec = OptimizerSpec::Sgd {
        lr: 0.1,
        momentum: 0.9,
        nesterov: false,
        weight_decay: 1e-3,
    };
    hybrid_vs_native(spec, None);
    hybrid_vs_native(OptimizerSpec::sgd(0.1), Some(0.1));
}

#[test]
fn test_hybrid_vs_native_parity_adam() {
    hybrid_vs_native(OptimizerSpec::adam(0.01), Some(0.1));
}

#[test]
fn test_hybrid_vs_native_parity_adamw() {
    hybrid_vs_native(OptimizerSpec::adamw(0.01), Some(0.1));
}

/// Five steps native, state to the CPU, five hybrid, back, five native: as fifteen native ones,
/// within a few roundings per step.
#[test]
fn optimizer_state_moves_between_native_and_hybrid_in_the_middle_of_a_run() {
    let network = kan(&[3, 5, 2], 3);
    let (x, t) = lesson(&network, 16);
    let spec = OptimizerSpec::Sgd {
        lr: 0.05,
        momentum: 0.9,
        nesterov: false,
        weight_decay: 1e-3,
    };
    let mut straight = put(&network);
    let mut state = GpuOptimizer::new(&straight, spec).unwrap();
    for _ in 0..15 {
        straight
            .train_step_gpu_native(&x, &t, Loss::Mse, &mut state)
            .unwrap();
    }
    let mut moved = put(&network);
    let mut native = GpuOptimizer::new(&moved, spec).unwrap();
    for _ in 0..5 {
        moved
            .train_step_gpu_native(&x, &t, Loss::Mse, &mut native)
            .unwrap();
    }
    moved.sync_weights_to_cpu().unwrap();
    let mut cpu = native.to_cpu().unwrap();
    assert_eq!(cpu.steps(), 5);
    for _ in 0..5 {
        moved.train_step(&x, &t, Loss::Mse, &mut cpu).unwrap();
    }
    let mut native = GpuOptimizer::from_cpu(&moved, &cpu).unwrap();
    for _ in 0..5 {
        moved
            .train_step_gpu_native(&x, &t, Loss::Mse, &mut native)
            .unwrap();
    }
    assert_eq!(native.steps(), 15);
    let a = straight.sync_weights_to_cpu().unwrap();
    let b = moved.sync_weights_to_cpu().unwrap();
    // Per step: a rounding of the parameter (of order 1) and of the momentum, which is carried on
    // up to 1/(1 − 0.9) times.
    let bound = 15.0 * 11.0 * 2.0_f32.powi(-24);
    for (a, b) in a.iter().zip(b) {
        assert!((a - b).abs() <= bound, "{a} and {b}");
    }
}

/// A step that is not finite changes nothing, is reported, and can be forgiven.
#[test]
fn a_loss_that_is_not_finite_stops_native_training_with_the_last_good_weights() {
    let network = kan(&[3, 5, 2], 3);
    let (x, t) = lesson(&network, 16);
    let mut on_gpu = put(&network);
    let mut optimizer = GpuOptimizer::new(&on_gpu, OptimizerSpec::sgd(0.1)).unwrap();
    on_gpu
        .train_step_gpu_native(&x, &t, Loss::Mse, &mut optimizer)
        .unwrap();
    let good = on_gpu.sync_weights_to_cpu().unwrap().to_vec();
    // Squares of this overflow f32.
    let huge = Target::values(vec![3e38; 32]);
    on_gpu
        .train_step_gpu_native(&x, &huge, Loss::Mse, &mut optimizer)
        .unwrap();
    // Steps already on their way change nothing either.
    let mut later = Ok(());
    for _ in 0..3 {
        later = on_gpu.train_step_gpu_native(&x, &t, Loss::Mse, &mut optimizer);
    }
    let losses = on_gpu.finish().unwrap();
    assert!(losses.iter().skip(1).all(|l| !l.updated), "{losses:?}");
    let error = match later {
        Err(error) => error,
        Ok(()) => on_gpu
            .train_step_gpu_native(&x, &t, Loss::Mse, &mut optimizer)
            .unwrap_err(),
    };
    assert!(
        matches!(&error, Error::NotFinite { tensor, .. } if tensor == "the loss"),
        "{error}"
    );
    assert_eq!(on_gpu.sync_weights_to_cpu().unwrap(), &good[..]);
    on_gpu.clear_failure().unwrap();
    on_gpu
        .train_step_gpu_native(&x, &t, Loss::Mse, &mut optimizer)
        .unwrap();
    assert!(on_gpu.finish().unwrap().iter().all(|l| l.updated));
    assert_ne!(on_gpu.sync_weights_to_cpu().unwrap(), &good[..]);
    // The same in hybrid mode.
    let mut cpu = Optimizer::new(OptimizerSpec::sgd(0.1), network.layout().len());
    let before = on_gpu.sync_weights_to_cpu().unwrap().to_vec();
    assert!(on_gpu.train_step(&x, &huge, Loss::Mse, &mut cpu).is_err());
    assert_eq!(on_gpu.sync_weights_to_cpu().unwrap(), &before[..]);
    // And left out where that is asked for.
    let skip = GpuTrainOptions {
        skip_not_finite: true,
        ..Default::default()
    };
    let skipped = on_gpu.skipped_steps();
    for target in [&huge, &t] {
        on_gpu
            .train_step_gpu_native_with_options(&x, target, Loss::Mse, &mut optimizer, &skip)
            .unwrap();
    }
    let losses = on_gpu.finish().unwrap();
    assert_eq!(
        losses.iter().map(|l| l.updated).collect::<Vec<_>>(),
        [false, true]
    );
    assert_eq!(on_gpu.skipped_steps(), skipped + 1);
}

#[test]
fn a_lost_device_is_an_error_and_the_cpu_copy_of_the_weights_is_kept() {
    let gpu = Gpu::open(&Choice::Auto).unwrap();
    let network = kan(&[3, 5, 2], 3);
    let (x, t) = lesson(&network, 16);
    let mut on_gpu = GpuNetwork::new(&gpu, &network, &network.init(3)).unwrap();
    let mut optimizer = GpuOptimizer::new(&on_gpu, OptimizerSpec::adam(0.1)).unwrap();
    on_gpu
        .train_step_gpu_native(&x, &t, Loss::Mse, &mut optimizer)
        .unwrap();
    let synced = on_gpu.sync_weights_to_cpu().unwrap().to_vec();
    gpu.destroy();
    let errors = [
        on_gpu
            .train_step_gpu_native(&x, &t, Loss::Mse, &mut optimizer)
            .unwrap_err(),
        on_gpu.forward_batch(&x).unwrap_err(),
        on_gpu.gradients().unwrap_err(),
        on_gpu.finish().unwrap_err(),
        on_gpu.sync_weights_to_cpu().map(|_| ()).unwrap_err(),
    ];
    for error in errors {
        assert!(error.to_string().contains("lost"), "{error}");
    }
    assert_eq!(on_gpu.cpu_weights(), &synced[..]);
}

#[test]
fn short_memory_is_an_error_and_a_smaller_batch_goes_on() {
    let gpu = Gpu::open(&Choice::Auto).unwrap();
    let network = kan(&[3, 5, 2], 3);
    let mut on_gpu = GpuNetwork::new(&gpu, &network, &network.init(3)).unwrap();
    let mut optimizer = GpuOptimizer::new(&on_gpu, OptimizerSpec::sgd(0.1)).unwrap();
    let mut step = |on_gpu: &mut GpuNetwork, samples: usize| {
        let (x, t) = lesson(&network, samples);
        on_gpu.train_step_gpu_native(&x, &t, Loss::Mse, &mut optimizer)
    };
    step(&mut on_gpu, 16).unwrap();
    let before = on_gpu.sync_weights_to_cpu().unwrap().to_vec();
    gpu.simulate_short_memory(100_000);
    let error = step(&mut on_gpu, 4096).unwrap_err().to_string();
    assert!(
        error.contains("no memory for") && error.contains("smaller batch"),
        "{error}"
    );
    assert_eq!(on_gpu.sync_weights_to_cpu().unwrap(), &before[..]);
    step(&mut on_gpu, 16).unwrap();
    step(&mut on_gpu, 32).unwrap();
    assert!(on_gpu.finish().unwrap().iter().all(|l| l.updated));
    assert_ne!(on_gpu.sync_weights_to_cpu().unwrap(), &before[..]);
}

/// Weights go where they are needed, and only those that changed.
#[test]
fn only_what_changed_is_synchronised() {
    let gpu = Gpu::open(&Choice::Auto).unwrap();
    let mut network = kan(&[3, 5, 2], 3);
    network.layout_mut().freeze("0.*").unwrap();
    let params = network.init(3);
    let mut on_gpu = GpuNetwork::new(&gpu, &network, &params).unwrap();
    let bytes = |before| {
        let moved = gpu.counters().since(before);
        (moved.bytes_up, moved.bytes_down)
    };
    let before = gpu.counters();
    assert_eq!(on_gpu.sync_weights_to_cpu().unwrap(), &params[..]);
    on_gpu.sync_weights_from_cpu(&params).unwrap();
    assert_eq!(bytes(before), (0, 0));
    let mut other = params.clone();
    let tensor = network.layout().tensors()[4].clone();
    other[tensor.offset] += 1.0;
    on_gpu.sync_weights_from_cpu(&other).unwrap();
    assert_eq!(bytes(before), (4 * tensor.len() as u64, 0));
    let (x, t) = lesson(&network, 16);
    let mut optimizer = GpuOptimizer::new(&on_gpu, OptimizerSpec::sgd(0.1)).unwrap();
    on_gpu
        .train_step_gpu_native(&x, &t, Loss::Mse, &mut optimizer)
        .unwrap();
    on_gpu.finish().unwrap();
    let before = gpu.counters();
    let after = on_gpu.sync_weights_to_cpu().unwrap().to_vec();
    let trained: usize = network.layout().trainable().map(|r| r.len()).sum();
    assert_eq!(bytes(before).1, 4 * trained as u64);
    let frozen = network.layout().trainable().next().unwrap().start;
    assert_eq!(after[..frozen], params[..frozen]);
    assert_ne!(after[frozen..], other[frozen..]);
    // And the device has them all: its output is the CPU's with the same weights.
    let y = on_gpu.forward_batch(&x).unwrap();
    let again = GpuNetwork::new(&gpu, &network, &after)
        .unwrap()
        .forward_batch(&x)
        .unwrap();
    assert_eq!(y, again);
}

/// Half the bytes, and the same path: what f16 takes from one gradient comes with the next, so the
/// sum of what was sent never differs from the sum of the gradients by more than one rounding.
#[test]
fn compressed_gradients_halve_the_bytes_and_lose_nothing_over_time() {
    let network = kan(&[3, 6, 2], 3);
    let (x, t) = lesson(&network, 32);
    let gpu = Gpu::open(&Choice::Auto).unwrap();
    let mut on_gpu = GpuNetwork::new(&gpu, &network, &network.init(3)).unwrap();
    let options = GpuTrainOptions::default();
    on_gpu
        .loss_and_gradients(&x, &t, Loss::Mse, &options)
        .unwrap();
    let whole = on_gpu.gradients().unwrap();
    let mut sent = vec![0.0_f64; whole.len()];
    let times = 50;
    for _ in 0..times {
        let before = gpu.counters();
        let part = on_gpu.gradients_f16().unwrap();
        let bytes = gpu.counters().since(before).bytes_down;
        assert_eq!(bytes, 4 * (whole.len() as u64).div_ceil(2));
        for (sum, g) in sent.iter_mut().zip(part) {
            *sum += f64::from(g);
        }
    }
    for (sum, &g) in sent.iter().zip(&whole) {
        let exact = f64::from(times) * f64::from(g);
        // Half a unit of f16 of the last number sent (11 bits, the least 2⁻²⁵), and the rounding of
        // the residual in f32 at every step.
        let bound =
            f64::from(g.abs()) * (2.0_f64.powi(-11) + 50.0 * 2.0_f64.powi(-23)) + 2.0_f64.powi(-25);
        assert!((sum - exact).abs() <= 2.0 * bound, "{sum} and {exact}");
    }
    let mut optimizer = Optimizer::new(OptimizerSpec::adam(0.02), whole.len());
    let compress = GpuTrainOptions {
        compress_gradients: true,
        ..Default::default()
    };
    let mut losses = Vec::new();
    for _ in 0..60 {
        let loss = on_gpu.train_step_with_options(&x, &t, Loss::Mse, &mut optimizer, &compress);
        losses.push(loss.unwrap());
    }
    assert!(
        losses[59] < 0.1 * losses[0],
        "{} → {}",
        losses[0],
        losses[59]
    );
}

/// A step that is left out counts for nothing: the bits are those of a run that never had it,
/// whether the CPU knew of it at the next step or long after.
#[test]
fn a_step_left_out_leaves_no_trace_in_adam() {
    let network = kan(&[3, 5, 2], 3);
    let (x, t) = lesson(&network, 16);
    let huge = Target::values(vec![3e38; 32]);
    let skip = GpuTrainOptions {
        skip_not_finite: true,
        ..Default::default()
    };
    let run = |bad: &[usize], stop: bool| {
        let mut on_gpu = put(&network);
        let mut optimizer = GpuOptimizer::new(&on_gpu, OptimizerSpec::adam(0.01)).unwrap();
        for step in 0..90 + bad.len() {
            let target = if bad.contains(&step) { &huge } else { &t };
            on_gpu
                .train_step_gpu_native_with_options(&x, target, Loss::Mse, &mut optimizer, &skip)
                .unwrap();
            if stop {
                on_gpu.finish().unwrap();
            }
        }
        on_gpu.finish().unwrap();
        assert_eq!(on_gpu.skipped_steps() as usize, bad.len());
        assert_eq!(optimizer.steps(), 90);
        on_gpu.sync_weights_to_cpu().unwrap().to_vec()
    };
    let whole = run(&[], false);
    assert_eq!(whole, run(&[0, 3, 4, 50], true));
    assert_eq!(whole, run(&[0, 3, 4, 50], false));
}

/// Compressed hybrid steps that go on in another object with what f16 still owed.
#[test]
fn compressed_gradients_go_on_with_what_is_owed() {
    let network = kan(&[3, 5, 2], 3);
    let (x, t) = lesson(&network, 16);
    let compress = GpuTrainOptions {
        compress_gradients: true,
        ..Default::default()
    };
    let run = |moves: bool| {
        let mut on_gpu = put(&network);
        let mut optimizer = Optimizer::new(OptimizerSpec::adam(0.02), network.layout().len());
        for step in 0..8 {
            if moves && step == 5 {
                let owed = on_gpu.compression_residual().unwrap().unwrap();
                assert!(owed.iter().any(|r| *r != 0.0));
                let weights = on_gpu.sync_weights_to_cpu().unwrap().to_vec();
                on_gpu = GpuNetwork::new(&gpu(), &network, &weights).unwrap();
                on_gpu.set_compression_residual(&owed).unwrap();
            }
            on_gpu
                .train_step_with_options(&x, &t, Loss::Mse, &mut optimizer, &compress)
                .unwrap();
        }
        on_gpu.cpu_weights().to_vec()
    };
    assert_eq!(run(true), run(false));
}
