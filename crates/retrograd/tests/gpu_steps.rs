//! Forms of a training step on the GPU: batches that are accumulated, tensors that are updated early.
#![cfg(feature = "gpu")]

mod gpu_helper;

use gpu_helper::{batch, gpu, kan, network_of, target};
use retrograd::gpu::{Choice, Gpu, GpuNetwork, GpuOptimizer, GpuTrainOptions};
use retrograd::network::Network;
use retrograd::optim::OptimizerSpec;
use retrograd::rng::Key;
use retrograd::train::{Clip, MicroBatch};
use retrograd::{Loss, Model, Target};

/// The batches of a step, of several sizes.
fn batches(network: &Network) -> Vec<(Vec<f32>, Target<f32>)> {
    let sizes = [5, 9, 2];
    let width = network.input_len();
    let lesson = |(i, &n): (usize, &usize)| {
        let x = batch(network, n + i).split_off(i * width);
        (x, target(network, n))
    };
    sizes.iter().enumerate().map(lesson).collect()
}

/// A step on accumulated batches is the step of the sum of their gradients, which are fetched one by one
/// from the same device.
#[test]
fn accumulated_batches_step_with_the_sum_of_their_gradients() {
    let network = kan(&[3, 40, 2], 3);
    let params = network.init(3);
    let lr = 0.5;
    let all = batches(&network);
    for loss in [Loss::Mse, Loss::SumSquares] {
        let mut apart = GpuNetwork::new(&gpu(), &network, &params).unwrap();
        let mut grads = Vec::new();
        let mut losses = Vec::new();
        for (x, t) in &all {
            let options = GpuTrainOptions::default();
            losses.push(apart.loss_and_gradients(x, t, loss, &options).unwrap());
            grads.push(apart.gradients().unwrap());
        }
        let mut on_gpu = GpuNetwork::new(&gpu(), &network, &params).unwrap();
        let mut sgd = GpuOptimizer::new(&on_gpu, OptimizerSpec::sgd(lr)).unwrap();
        let before = gpu().counters();
        for (index, (x, t)) in (0..).zip(&all) {
            let micro = MicroBatch { index, of: 3 };
            let options = GpuTrainOptions {
                micro,
                ..Default::default()
            };
            on_gpu
                .train_step_gpu_native_with_options(x, t, loss, &mut sgd, &options)
                .unwrap();
        }
        let after = gpu().counters().since(before);
        assert_eq!((after.submits, after.waits), (3, 0), "{after:?}");
        let arrived = on_gpu.finish().unwrap();
        assert_eq!(arrived.len(), 1);
        assert_eq!(sgd.steps(), 1);
        let mean = losses.iter().sum::<f64>() / 3.0;
        // Eight roundings: three products, two sums, the loss that comes back, and 1/3 itself.
        let bound = 8.0 * 2.0_f64.powi(-24) * losses.iter().map(|l| l.abs()).sum::<f64>();
        assert!((arrived[0].loss - mean).abs() <= bound, "{loss:?}");
        let share = if loss == Loss::Mse { 1.0 / 3.0 } else { 1.0 };
        let weights = on_gpu.sync_weights_to_cpu().unwrap();
        for (i, (&w, &p)) in weights.iter().zip(&params).enumerate() {
            let parts = grads.iter().map(|g| share * f64::from(g[i]));
            let sum: f64 = parts.clone().sum();
            let size: f64 = parts.map(f64::abs).sum();
            let expected = f64::from(p) - lr * sum;
            // Every product and sum is rounded once, and the parameter.
            let bound = 2.0_f64.powi(-24) * (8.0 * lr * size + expected.abs() + lr * sum.abs());
            let off = (f64::from(w) - expected).abs();
            assert!(
                off <= bound,
                "{loss:?} {i}: {w} {expected}, bound {bound:e}"
            );
        }
        // Something moved by far more than that.
        let moved = weights.iter().zip(&params).map(|(w, p)| (w - p).abs());
        assert!(moved.fold(0.0, f32::max) > 1e-3);
    }
}

/// A batch that is not finite spoils its step and no other, and nothing of it is left in the sum.
#[test]
fn an_accumulated_batch_that_is_not_finite_leaves_its_step_out() {
    let network = kan(&[3, 5, 2], 3);
    let params = network.init(3);
    let all = batches(&network);
    let run = |spoiled: bool| {
        let mut on_gpu = GpuNetwork::new(&gpu(), &network, &params).unwrap();
        let mut adam = GpuOptimizer::new(&on_gpu, OptimizerSpec::adam(0.01)).unwrap();
        for step in 0..3 {
            // Without the spoiled one the second step is not made at all.
            if step == 1 && !spoiled {
                continue;
            }
            for (index, (x, t)) in (0..).zip(&all) {
                let huge = Target::values(vec![3e38; t.values.len()]);
                let bad = step == 1 && index == 1;
                let options = GpuTrainOptions {
                    micro: MicroBatch { index, of: 3 },
                    skip_not_finite: true,
                    ..Default::default()
                };
                let t = if bad { &huge } else { t };
                on_gpu
                    .train_step_gpu_native_with_options(x, t, Loss::Mse, &mut adam, &options)
                    .unwrap();
            }
        }
        let updated: Vec<bool> = on_gpu.finish().unwrap().iter().map(|l| l.updated).collect();
        (updated, on_gpu.sync_weights_to_cpu().unwrap().to_vec())
    };
    let (updated, weights) = run(true);
    assert_eq!(updated, [true, false, true]);
    assert_eq!(weights, run(false).1);
}

/// The options of a step in the fused order, with an element clipped now and then.
fn early(step: u64, fused: bool) -> GpuTrainOptions {
    GpuTrainOptions {
        key: Key::new(7).step(step),
        clip: Clip {
            element: Some(0.05),
            norm: None,
        },
        fused,
        ..Default::default()
    }
}

/// Skips, frozen tensors, norms, dropout, a penalty.
fn networks() -> Vec<Network> {
    let mut frozen = network_of(
        &[6],
        r#"[{"kind":"dense","out":7},{"kind":"layer_norm"},{"kind":"tanh"},{"kind":"dense","out":7},{"kind":"add","with":0},{"kind":"dropout","p":0.2},{"kind":"dense","out":3}]"#,
    );
    frozen.layout_mut().freeze("3.weight").unwrap();
    let penalised = r#"{"input":[3],"layers":[{"kind":"kan","out":4,"grid":5,"degree":3},{"kind":"kan","out":3,"grid":5,"degree":3}],"sparsity":{"l1":0.01,"entropy":0.02}}"#;
    vec![
        frozen,
        Network::new(&serde_json::from_str(penalised).unwrap()).unwrap(),
        network_of(
            &[2, 6, 5],
            r#"[{"kind":"conv2d","out":5,"kernel":3},{"kind":"batch_norm2d"},{"kind":"relu"},{"kind":"flatten"},{"kind":"dense","out":3}]"#,
        ),
    ]
}

#[test]
fn tensors_updated_as_their_gradients_are_complete_have_the_bits_of_the_plain_order() {
    for spec in [
        OptimizerSpec::sgd(0.1),
        OptimizerSpec::adam(0.01),
        OptimizerSpec::adamw(0.01),
    ] {
        for network in networks() {
            let run = |fused: bool| {
                let mut on_gpu = GpuNetwork::new(&gpu(), &network, &network.init(1)).unwrap();
                let mut optimizer = GpuOptimizer::new(&on_gpu, spec).unwrap();
                let (x, t) = (batch(&network, 6), target(&network, 6));
                for step in 0..5 {
                    let options = early(step, fused);
                    on_gpu
                        .train_step_gpu_native_with_options(
                            &x,
                            &t,
                            Loss::Mse,
                            &mut optimizer,
                            &options,
                        )
                        .unwrap();
                }
                let losses: Vec<f64> = on_gpu.finish().unwrap().iter().map(|l| l.loss).collect();
                let weights = on_gpu.sync_weights_to_cpu().unwrap().to_vec();
                (
                    losses,
                    weights,
                    optimizer.to_cpu().unwrap().state().to_vec(),
                )
            };
            assert_eq!(run(true), run(false));
        }
    }
}

/// The kernels' order is what early updates are about: an update stands right behind the kernel that
/// completes its gradient, before those of earlier layers.
#[test]
fn an_early_update_comes_before_the_gradients_of_earlier_layers() {
    let gpu = Gpu::open(&Choice::Auto).unwrap();
    let network = network_of(
        &[4],
        r#"[{"kind":"dense","out":5},{"kind":"tanh"},{"kind":"dense","out":6},{"kind":"tanh"},{"kind":"dense","out":2}]"#,
    );
    let mut on_gpu = GpuNetwork::new(&gpu, &network, &network.init(1)).unwrap();
    let mut optimizer = GpuOptimizer::new(&on_gpu, OptimizerSpec::adam(0.01)).unwrap();
    let (x, t) = (batch(&network, 6), target(&network, 6));
    let mut order = |fused: bool| -> Vec<char> {
        let labels = on_gpu
            .profile_native_step(&x, &t, Loss::Mse, &mut optimizer, &early(0, fused))
            .unwrap();
        let letter = |(label, _): &(String, f64)| match &label[..] {
            "optimizer_update" => Some('u'),
            label if label.contains("backward") => label.chars().next(),
            _ => None,
        };
        let mut letters: Vec<char> = labels.iter().filter_map(letter).collect();
        letters.dedup();
        letters
    };
    let fused: String = order(true)
        .into_iter()
        .filter(|c| "024u".contains(*c))
        .collect();
    assert_eq!(fused, "4u2u0u");
    let plain: String = order(false)
        .into_iter()
        .filter(|c| "024u".contains(*c))
        .collect();
    assert_eq!(plain, "420u");
}

#[test]
fn early_updates_are_refused_where_the_whole_gradient_has_to_be_known_first() {
    let network = kan(&[3, 5, 2], 3);
    let mut on_gpu = GpuNetwork::new(&gpu(), &network, &network.init(1)).unwrap();
    let mut optimizer = GpuOptimizer::new(&on_gpu, OptimizerSpec::adam(0.01)).unwrap();
    let (x, t) = (batch(&network, 6), target(&network, 6));
    let clipped = GpuTrainOptions {
        clip: Clip {
            norm: Some(1.0),
            element: None,
        },
        fused: true,
        ..Default::default()
    };
    let accumulated = GpuTrainOptions {
        micro: MicroBatch { index: 0, of: 2 },
        ..early(0, true)
    };
    let skipped = GpuTrainOptions {
        skip_not_finite: true,
        ..early(0, true)
    };
    let beyond = GpuTrainOptions {
        micro: MicroBatch { index: 2, of: 2 },
        ..Default::default()
    };
    for (options, word) in [
        (clipped, "clipping"),
        (accumulated, "accumulated"),
        (skipped, "left out"),
        (beyond, "less than 2"),
    ] {
        let error = on_gpu
            .train_step_gpu_native_with_options(&x, &t, Loss::Mse, &mut optimizer, &options)
            .unwrap_err()
            .to_string();
        assert!(error.contains(word), "{error}");
    }
}
