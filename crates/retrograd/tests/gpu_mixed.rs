//! Mixed precision on the GPU: 16-bit activations and products, 32-bit sums and weights, and a loss
//! scale that the device itself keeps in bounds.
#![cfg(feature = "gpu")]

mod gpu_helper;

use gpu_helper::{batch, gpu, gradients_only, kan, network_of, target};
use retrograd::gpu::{
    Choice, Gpu, GpuNetwork, GpuOptimizer, GpuTrainOptions, GpuVerifier, LossScale, Precision,
};
use retrograd::network::Network;
use retrograd::optim::{Optimizer, OptimizerSpec};
use retrograd::train::Clip;
use retrograd::verify::{Link, Report, Subject, check_on};
use retrograd::{Error, Loss, Model, Target};

fn mixed(network: &Network, scale: LossScale) -> GpuNetwork {
    GpuNetwork::mixed(&gpu(), network, &network.init(3), scale).unwrap()
}

/// Output, loss and gradients against the f64 reference. The bound is predicted by runs of the
/// reference whose every result is rounded to 11 bits. (What differences of the reference resolve
/// is no question of the device; other tests ask it.)
fn check(network: &Network, gpu: &std::sync::Arc<Gpu>) -> Report {
    let params = network.init(3);
    let (x, t) = (batch(network, 12), target(network, 12));
    let subject = Subject::new("mixed", network, &params, &x, &t, Loss::Mse).unwrap();
    let mut device = GpuVerifier::with_precision(gpu, Precision::Mixed);
    let mut report = check_on(&subject, &mut device, &gradients_only()).unwrap();
    report.rows.retain(|row| row.link == Link::Gpu);
    assert!(report.rows.len() >= 5);
    report
}

#[test]
fn every_kind_of_layer_stays_within_the_bound_that_eleven_bits_predict() {
    let nets = [
        kan(&[3, 6, 2], 3),
        network_of(
            &[5],
            r#"[{"kind":"dense","out":7},{"kind":"tanh"},{"kind":"layer_norm"},{"kind":"dense","out":5},{"kind":"add","with":-1},{"kind":"silu"},{"kind":"dense","out":3}]"#,
        ),
        network_of(
            &[2, 6, 7],
            r#"[{"kind":"conv2d","out":4,"kernel":3,"padding":1,"bias":false},{"kind":"batch_norm2d"},{"kind":"gelu"},{"kind":"avg_pool2d","kernel":2},{"kind":"conv_transpose2d","out":3,"kernel":2,"stride":2},{"kind":"upsample","scale":2},{"kind":"flatten"},{"kind":"dense","out":2}]"#,
        ),
    ];
    for network in nets {
        let report = check(&network, &gpu());
        assert!(report.passed(), "{}{}", report.table(), report.summary());
    }
}

#[test]
fn a_wrong_kernel_is_seen_in_mixed_precision_too() {
    let network = kan(&[3, 6, 2], 3);
    assert!(check(&network, &gpu()).passed());
    for (from, to) in [
        ("moves * silu_slope(x)", "0.0 * moves"),
        (
            "let run_end = min(run + 64u, last);",
            "let run_end = min(run + 64u, last - 1u);",
        ),
        ("grads_out[index] / scale", "grads_out[index]"),
    ] {
        let wrong = Gpu::open_mutated(&Choice::Auto, from, to).unwrap();
        assert!(!check(&network, &wrong).passed(), "{to} went unseen");
    }
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

#[test]
fn mixed_training_learns_natively_and_hybrid_with_the_usual_structure() {
    let network = kan(&[3, 8, 6, 2], 3);
    let (x, t) = lesson(&network, 32);
    let gpu = Gpu::open(&Choice::Auto).unwrap();
    let params = network.init(3);
    let mut on_gpu = GpuNetwork::mixed(&gpu, &network, &params, LossScale::default()).unwrap();
    let mut optimizer = GpuOptimizer::new(&on_gpu, OptimizerSpec::adam(0.02)).unwrap();
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
    let mut losses = Vec::new();
    let steps = 80;
    for _ in 0..steps {
        step(&mut on_gpu);
        losses.extend(on_gpu.losses().unwrap());
    }
    let after = gpu.counters().since(before);
    assert_eq!((after.submits, after.waits), (steps, 0));
    assert!(after.dispatches <= 16 * steps, "{after:?}");
    // The batch has 16 bits, the target 32, the step's constants 576 bytes at most.
    let bytes = 2 * x.len() + 4 * t.values.len();
    assert!(after.bytes_up <= steps * (bytes as u64 + 576), "{after:?}");
    losses.extend(on_gpu.finish().unwrap());
    let updated: Vec<f64> = losses
        .iter()
        .filter(|l| l.updated)
        .map(|l| l.loss)
        .collect();
    let (first, last) = (updated[0], updated[updated.len() - 1]);
    assert!(last < 0.1 * first, "{first} → {last}");

    let mut on_gpu = mixed(&network, LossScale::default());
    let mut optimizer = Optimizer::new(OptimizerSpec::adam(0.02), params.len());
    let mut losses = Vec::new();
    for _ in 0..60 {
        let loss = on_gpu.train_step(&x, &t, Loss::Mse, &mut optimizer);
        losses.push(loss.unwrap());
    }
    assert!(losses[59] < 0.1 * losses[0], "{losses:?}");
}

/// Updates far below f16's spacing add up in the f32 weights.
#[test]
fn small_updates_are_not_lost() {
    let network = kan(&[3, 4, 2], 3);
    let (x, t) = lesson(&network, 16);
    let mut on_gpu = mixed(&network, LossScale::default());
    let rate = 1e-5;
    let mut optimizer = GpuOptimizer::new(&on_gpu, OptimizerSpec::adam(rate)).unwrap();
    let steps = 50;
    for _ in 0..steps {
        on_gpu
            .train_step_gpu_native(&x, &t, Loss::Mse, &mut optimizer)
            .unwrap();
    }
    let skipped = on_gpu
        .finish()
        .unwrap()
        .iter()
        .filter(|l| !l.updated)
        .count();
    let after = on_gpu.sync_weights_to_cpu().unwrap();
    // Adam moves by the rate at every step whose gradient keeps its sign.
    let whole = rate * (steps - skipped) as f64;
    let moved = after.iter().zip(network.init(3));
    let far = moved.filter(|(a, b)| f64::from((*a - b).abs()) > 0.9 * whole);
    assert!(far.count() > after.len() / 4);
}

#[test]
fn an_overflow_leaves_the_weights_halves_the_scale_and_training_goes_on() {
    let network = kan(&[3, 4, 2], 3);
    let (x, t) = lesson(&network, 16);
    let gpu = Gpu::open(&Choice::Auto).unwrap();
    let scale = LossScale {
        initial: 16_777_216.0,
        growth_interval: 4,
        good_steps: 0,
    };
    let start = network.init(3);
    let mut on_gpu = GpuNetwork::mixed(&gpu, &network, &start, scale).unwrap();
    let mut optimizer = GpuOptimizer::new(&on_gpu, OptimizerSpec::sgd(0.1)).unwrap();
    on_gpu
        .train_step_gpu_native(&x, &t, Loss::Mse, &mut optimizer)
        .unwrap();
    let first = on_gpu.finish().unwrap()[0];
    assert!(
        first.overflowed && !first.updated && first.loss.is_finite(),
        "{first:?}"
    );
    assert_eq!(on_gpu.loss_scale(), 8_388_608.0);
    assert_eq!(on_gpu.sync_weights_to_cpu().unwrap(), &start[..]);
    // The device finds its scale by itself, without a wait.
    let before = gpu.counters();
    for _ in 0..30 {
        on_gpu
            .train_step_gpu_native(&x, &t, Loss::Mse, &mut optimizer)
            .unwrap();
    }
    let after = gpu.counters().since(before);
    assert_eq!((after.submits, after.waits), (30, 0));
    let losses = on_gpu.finish().unwrap();
    // Until the first update every step overflowed; then there are good ones, and after four of
    // them the scale is doubled, which may overflow again.
    let found = losses.iter().position(|l| l.updated).unwrap();
    assert!(losses[..found].iter().all(|l| l.overflowed));
    let good = losses.iter().filter(|l| l.updated).count();
    assert!(good >= 15, "{losses:?}");
    assert_eq!(on_gpu.overflowed_steps() as usize, 31 - good);
    assert_eq!(on_gpu.skipped_steps(), 0);
    let runs: Vec<bool> = losses.iter().map(|l| l.updated).collect();
    let mut expected = 8_388_608.0_f32;
    let mut run = 0;
    for updated in runs {
        if updated {
            run += 1;
            if run == 4 {
                (expected, run) = ((2.0 * expected).min(16_777_216.0), 0);
            }
        } else {
            (expected, run) = (0.5 * expected, 0);
        }
    }
    assert_eq!(on_gpu.loss_scale(), expected);
    assert!(
        losses[29].loss < 0.9 * first.loss,
        "{first:?} → {:?}",
        losses[29]
    );
    assert_ne!(on_gpu.sync_weights_to_cpu().unwrap(), &start[..]);
}

#[test]
fn a_loss_that_is_not_finite_is_a_failure_whatever_the_scale() {
    let network = kan(&[3, 4, 2], 3);
    let (x, t) = lesson(&network, 16);
    let mut on_gpu = mixed(&network, LossScale::default());
    let mut optimizer = GpuOptimizer::new(&on_gpu, OptimizerSpec::sgd(0.1)).unwrap();
    let huge = Target::values(vec![3e38; 32]);
    on_gpu
        .train_step_gpu_native(&x, &huge, Loss::Mse, &mut optimizer)
        .unwrap();
    let failed = on_gpu.finish().unwrap()[0];
    assert!(!failed.updated && !failed.overflowed, "{failed:?}");
    let error = on_gpu
        .train_step_gpu_native(&x, &t, Loss::Mse, &mut optimizer)
        .unwrap_err();
    assert!(matches!(error, Error::NotFinite { .. }), "{error}");
    assert_eq!(on_gpu.sync_weights_to_cpu().unwrap(), &network.init(3)[..]);
}

#[test]
fn a_scale_that_is_no_power_of_two_is_refused() {
    let network = kan(&[3, 4, 2], 3);
    for initial in [0.0, 0.5, 3.0, f32::NAN, f32::INFINITY] {
        let scale = LossScale {
            initial,
            ..LossScale::default()
        };
        let made = GpuNetwork::mixed(&gpu(), &network, &network.init(3), scale);
        assert!(made.is_err(), "{initial}");
    }
}

/// Native Adam steps that begin with a loss scale far too large: final weights and the optimizer's
/// steps. With `stop`, everything is waited for after each step; with `resume`, the run goes on in
/// another object after that step.
fn overflowing_run(stop: bool, resume: Option<usize>) -> (Vec<f32>, u64) {
    let network = kan(&[3, 4, 2], 3);
    let (x, t) = lesson(&network, 16);
    let scale = LossScale {
        initial: 16_777_216.0,
        growth_interval: 5,
        good_steps: 0,
    };
    let mut on_gpu = mixed(&network, scale);
    let mut optimizer = GpuOptimizer::new(&on_gpu, OptimizerSpec::adam(0.01)).unwrap();
    let mut overflows = 0;
    for step in 0..40 {
        if resume == Some(step) {
            on_gpu.finish().unwrap();
            overflows += on_gpu.overflowed_steps();
            let state = optimizer.to_cpu().unwrap();
            let scale = on_gpu.loss_scale_state().unwrap();
            let weights = on_gpu.sync_weights_to_cpu().unwrap().to_vec();
            on_gpu = GpuNetwork::mixed(&gpu(), &network, &weights, scale).unwrap();
            optimizer = GpuOptimizer::from_cpu(&on_gpu, &state).unwrap();
        }
        on_gpu
            .train_step_gpu_native(&x, &t, Loss::Mse, &mut optimizer)
            .unwrap();
        if stop {
            on_gpu.finish().unwrap();
        }
    }
    on_gpu.finish().unwrap();
    overflows += on_gpu.overflowed_steps();
    assert!(overflows >= 3, "{overflows}");
    assert_eq!(optimizer.steps(), 40 - overflows);
    let weights = on_gpu.sync_weights_to_cpu().unwrap().to_vec();
    (weights, optimizer.steps())
}

/// Steps that were left out don't count for Adam, whenever the CPU learns of them; and a run that is
/// resumed has the scale, and the steps made with it, that it had.
#[test]
fn overflows_give_the_same_bits_awaited_or_not_and_resumed() {
    let straight = overflowing_run(false, None);
    assert_eq!(straight, overflowing_run(true, None));
    for step in [1, 12, 23] {
        assert_eq!(straight, overflowing_run(false, Some(step)), "after {step}");
    }
}

/// The loss scale is one: what a hybrid step finds, the next native step begins with.
#[test]
fn the_loss_scale_goes_with_the_run_from_hybrid_to_native() {
    let network = kan(&[3, 4, 2], 3);
    let (x, t) = lesson(&network, 16);
    let scale = LossScale {
        initial: 16_777_216.0,
        ..LossScale::default()
    };
    let mut on_gpu = mixed(&network, scale);
    let mut on_cpu = Optimizer::new(OptimizerSpec::sgd(0.1), network.layout().len());
    on_gpu.train_step(&x, &t, Loss::Mse, &mut on_cpu).unwrap();
    let found = on_gpu.loss_scale();
    assert!(found < scale.initial, "{found}");
    let mut native = GpuOptimizer::from_cpu(&on_gpu, &on_cpu).unwrap();
    on_gpu
        .train_step_gpu_native(&x, &t, Loss::Mse, &mut native)
        .unwrap();
    assert!(on_gpu.finish().unwrap()[0].updated);
    assert_eq!(on_gpu.overflowed_steps(), 0);
    assert_eq!(on_gpu.loss_scale_state().unwrap().good_steps, 2);
}
