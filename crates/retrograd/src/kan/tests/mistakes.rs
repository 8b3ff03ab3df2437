//! The mistakes of other implementations that concern a whole network. Those of the kernels are
//! in the layer's own tests.

use super::*;

/// 3: no input gradient for a one-layer network, or one from an earlier call.
#[test]
fn a_single_layer_has_an_input_gradient_and_a_fresh_one() {
    let mut kan = KanNetwork::new(&KanConfig::new(&[2, 3]), 1).unwrap();
    let x = samples(2, 4, 21);
    kan.forward_batch(&x).unwrap();
    let first = kan.backward_batch(&[1.0; 12]).unwrap().1.to_vec();
    assert!(first.iter().all(|&d| d != 0.0), "{first:?}");
    let second = kan.backward_batch(&[2.0; 12]).unwrap().1.to_vec();
    assert_eq!(second, first.iter().map(|d| 2.0 * d).collect::<Vec<_>>());
}

/// 5: a larger batch after a smaller one, in one object.
#[test]
fn batches_grow_and_shrink() {
    let config = KanConfig::new(&[3, 5, 2]);
    let mut one = KanNetwork::new(&config, 2).unwrap();
    for count in [1, 7, 16, 64, 128, 16, 2] {
        let mut fresh = KanNetwork::new(&config, 2).unwrap();
        // Other samples each time: what is left of the last batch must not pass for this one's.
        let x = samples(3, count, 100 + count as u64);
        let d_y = samples(2, count, 300 + count as u64);
        assert_eq!(
            one.forward_batch(&x).unwrap(),
            fresh.forward_batch(&x).unwrap()
        );
        assert_eq!(
            one.backward_batch(&d_y).unwrap(),
            fresh.backward_batch(&d_y).unwrap()
        );
    }
}

/// 6: an optimizer that sees padded weights. Nine basis functions, five outputs: the first
/// step of Adam moves every weight by lr·d/(|d| + ε) against its gradient. In f32 the moments,
/// the root, the quotients and the constants are a dozen roundings of the step, and the new
/// weight is one more.
#[test]
fn optimizers_and_gradients_share_one_layout() {
    let mut config = KanConfig::new(&[3, 5]);
    config.grid = 6;
    let mut kan = KanNetwork::new(&config, 3).unwrap();
    let before = kan.params().to_vec();
    let x = samples(3, 60, 24);
    let target = Target::values(samples(5, 60, 25));
    kan.train_step_with_options(&x, &target, &TrainOptions::default())
        .unwrap();
    let d = kan.d_params_of_last_step().to_vec();
    for (i, ((p, q), d)) in before.iter().zip(kan.params()).zip(d).enumerate() {
        let [p, q, d] = [*p, *q, d].map(f64::from);
        let error = (p - q - 1e-3 * d / (d.abs() + 1e-8)).abs();
        let bound = 2.0_f64.powi(-24) * (12.0 * 1e-3 + q.abs());
        assert!(error <= bound, "parameter {i}: {error:e}, bound {bound:e}");
    }
}

/// 8: the gradient of BCE without a sigmoid.
#[test]
fn bce_trains_logits() {
    let mut kan = KanNetwork::new(&KanConfig::new(&[1, 1]), 4).unwrap();
    let x: Vec<f32> = (0..64).map(|n| n as f32 / 32.0 - 1.0).collect();
    let target = Target::values(x.iter().map(|&x| f32::from(x > 0.1)).collect());
    let options = TrainOptions {
        lr: 0.05,
        loss: Loss::BceLogits,
        ..TrainOptions::default()
    };
    let mut loss = 0.0;
    for _ in 0..400 {
        loss = kan.train_step_with_options(&x, &target, &options).unwrap();
    }
    // Without the sigmoid logits follow the targets 0 and 1 by least squares. Were they half a
    // step beyond them everywhere, this is the loss they would leave.
    let ones = target.values.iter().sum::<f32>() / 64.0;
    let left = |beyond: f64| (-beyond).exp().ln_1p();
    let without = f64::from(1.0 - ones) * left(0.5) + f64::from(ones) * left(1.5);
    assert!(loss < without, "{loss}, {without}");
}

/// 9: one seed restarted for every layer.
#[test]
fn layers_of_equal_shape_start_with_other_weights() {
    let network = Network::new(&KanConfig::new(&[4, 4, 4]).spec().unwrap()).unwrap();
    let params = network.init(5);
    let tensor = |name: &str| &params[network.layout().get(name).unwrap().range()];
    assert_ne!(tensor("0.spline_weight"), tensor("1.spline_weight"));
    assert_ne!(tensor("0.base_weight"), tensor("1.base_weight"));
    assert_eq!(network.init(5), params);
    assert_ne!(network.init(6), params);
}

/// 10: clipping by layers; decay of some tensors only.
#[test]
fn clipping_is_global_and_decay_is_for_all() {
    let mut config = KanConfig::new(&[3, 4, 2]);
    config.bias = true;
    let x = samples(3, 20, 26);
    let target = Target::values(samples(2, 20, 27));
    let mut kan = KanNetwork::new(&config, 6).unwrap();
    let step = |kan: &mut KanNetwork, max_grad_norm| {
        let options = TrainOptions {
            lr: 0.0,
            max_grad_norm,
            ..TrainOptions::default()
        };
        kan.train_step_with_options(&x, &target, &options).unwrap();
        kan.d_params_of_last_step().to_vec()
    };
    let free = step(&mut kan, None);
    let norm = free
        .iter()
        .map(|d| f64::from(*d).powi(2))
        .sum::<f64>()
        .sqrt();
    let clipped = step(&mut kan, Some(0.5 * norm));
    // As PyTorch has it; the factor and the product are rounded.
    let factor = 0.5 * norm / (norm + 1e-6);
    for (&a, &b) in free.iter().zip(&clipped) {
        let exact = factor * f64::from(a);
        assert!((exact - f64::from(b)).abs() <= f64::from(f32::EPSILON) * exact.abs());
    }
    let mut params = kan.params().to_vec();
    let bias = kan.network().layout().get("0.bias").unwrap().range();
    params[bias.clone()].fill(1.0);
    kan.params_mut().copy_from_slice(&params);
    let options = TrainOptions {
        lr: 1e-4,
        weight_decay: 1000.0,
        ..TrainOptions::default()
    };
    kan.train_step_with_options(&x, &target, &options).unwrap();
    // 1 − lr·decay = 0.9, and Adam's third step: with the shares a of the gradients in the mean
    // and b in the mean of squares it is lr·√(Σ a²/b) at most (Cauchy and Schwarz).
    let share = |beta: f64, n: i32| (1.0 - beta) * beta.powi(2 - n) / (1.0 - beta.powi(3));
    let steps = (0..3).map(|n| share(0.9, n).powi(2) / share(0.999, n));
    let bound = 1e-4 * steps.sum::<f64>().sqrt() + 2.0_f64.powi(-24) * 3.0;
    for i in bias {
        let error = (f64::from(kan.params()[i]) - 0.9).abs();
        assert!(error <= bound, "{}: {error:e}", kan.params()[i]);
    }
}

/// 11: NaN destroys weights; mismatched shapes panic or are cut.
#[test]
fn bad_input_is_refused_and_changes_nothing() {
    let mut kan = KanNetwork::new(&KanConfig::new(&[2, 2]), 7).unwrap();
    let before = kan.params().to_vec();
    let options = TrainOptions::default();
    let good = Target::values(vec![0.0; 4]);
    let mut refused = |x: &[f32], target: &Target<f32>, why: &str| {
        let error = kan
            .train_step_with_options(x, target, &options)
            .unwrap_err();
        assert!(error.to_string().contains(why), "{error}");
    };
    refused(&[0.1, f32::NAN, 0.3, 0.4], &good, "sample 0, value 1");
    refused(&[0.1, 0.2, 0.3], &good, "multiple of 2");
    refused(&[], &good, "multiple of 2");
    refused(
        &[0.1; 4],
        &Target::values(vec![0.0; 3]),
        "4, one for every output",
    );
    refused(&[0.1; 4], &Target::values(vec![f32::NAN; 4]), "finite");
    assert!(kan.forward_single(&[0.1], &mut [0.0; 2]).is_err());
    assert!(kan.backward_batch(&[0.0; 3]).is_err());
    assert_eq!(kan.params(), before);
    assert!(KanNetwork::new(&KanConfig::new(&[3]), 0).is_err());
    assert!(KanNetwork::new(&KanConfig::new(&[3, 0]), 0).is_err());
}
