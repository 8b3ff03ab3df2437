//! Forward and backward on the GPU against the f64 reference, within the bound that the verifier
//! predicts from WGSL's granted accuracies.
#![cfg(feature = "gpu")]

mod gpu_helper;

use std::sync::Arc;

use gpu_helper::{
    ByParts, assert_parity, batch, gpu, gradients_only, kan, kan_layer, key, network_of, parts,
    target,
};
use retrograd::gpu::{Choice, Gpu, GpuNetwork, LossScale};
use retrograd::layer::dense::DenseSpec;
use retrograd::network::{LayerSpec, Network, NetworkSpec};
use retrograd::verify::precision::{Bounds, SamplePlan, sample};
use retrograd::verify::{Device, Granted, Subject, check_on};
use retrograd::{Grads, Loss, Model, Pass};

#[test]
fn test_backward_parity() {
    let network = kan(&[3, 6, 5, 2], 3);
    assert_parity("kan", &network, 16, &mut parts(&network));
}

#[test]
fn test_forward_training_parity() {
    // Inference and training compute the same where nothing is random, bit for bit.
    let network = kan(&[4, 7, 3], 3);
    assert_parity("kan", &network, 9, &mut parts(&network));
    let mut on_gpu = parts(&network).0;
    let x = batch(&network, 9);
    let training = on_gpu
        .forward_batch_training(&x, &Pass::training(key()))
        .unwrap();
    assert_eq!(training, on_gpu.forward_batch(&x).unwrap());
}

#[test]
fn test_gpu_cpu_weight_gradient_parity_single_layer() {
    for network in [kan(&[5, 3], 3), dense(&[5, 3])] {
        assert_parity("one layer", &network, 12, &mut parts(&network));
    }
}

#[test]
fn test_gpu_cpu_weight_gradient_parity_multi_layer() {
    for network in [kan(&[4, 8, 6, 3], 3), dense(&[4, 9, 6, 3])] {
        assert_parity("layers", &network, 12, &mut parts(&network));
    }
}

fn dense(widths: &[usize]) -> Network {
    let mut layers = Vec::new();
    for &out in &widths[1..] {
        layers.push(LayerSpec::Dense(DenseSpec { out, bias: true }));
        layers.push(LayerSpec::silu());
    }
    layers.pop();
    Network::new(&NetworkSpec::new(&widths[..1], layers)).unwrap()
}

#[test]
fn test_gpu_bias_gradient_isolated() {
    for network in [kan(&[3, 5], 3), dense(&[3, 5])] {
        let mut on_gpu = parts(&network).0;
        let samples = 100;
        on_gpu
            .forward_batch_training(&batch(&network, samples), &Pass::training(key()))
            .unwrap();
        let d_y: Vec<f32> = (0..samples * 5)
            .map(|j| ((j * 11 % 17) as f32 - 8.0) / 7.0)
            .collect();
        on_gpu.backward_batch(&d_y).unwrap();
        let grads = on_gpu.gradients().unwrap();
        let bias = network.layout().get("0.bias").unwrap();
        for (j, &d_b) in grads[bias.range()].iter().enumerate() {
            let column = || d_y.iter().skip(j).step_by(5).map(|&d| f64::from(d));
            let exact: f64 = column().sum();
            // Runs of 64 terms, then two runs: at most 66 roundings of partial sums.
            let bound = 66.0 * 2.0_f64.powi(-24) * column().map(f64::abs).sum::<f64>();
            assert!(
                (f64::from(d_b) - exact).abs() <= bound,
                "{j}: {d_b} and {exact}"
            );
        }
    }
}

#[test]
fn test_gpu_cpu_input_gradient_parity() {
    // One layer has an input gradient as well as many.
    for network in [
        kan(&[4, 3], 3),
        kan(&[4, 6, 3], 3),
        dense(&[4, 3]),
        dense(&[4, 6, 3]),
    ] {
        assert_parity("input", &network, 10, &mut parts(&network));
    }
}

#[test]
fn test_gpu_backward_batch_size_variations() {
    let network = kan(&[3, 6, 2], 3);
    let mut one = parts(&network);
    for samples in [1, 7, 16, 64, 128, 64, 16, 7, 1, 128] {
        assert_parity(&format!("batch {samples}"), &network, samples, &mut one);
    }
}

/// Every parameter and input: central differences of the f64 reference against the GPU.
#[test]
fn test_gpu_numerical_gradient_check() {
    let network = kan(&[3, 4, 2], 3);
    let params = network.init(3);
    let (x, t) = (batch(&network, 6), target(&network, 6));
    let subject = Subject::new("numeric", &network, &params, &x, &t, Loss::Mse).unwrap();
    let on_gpu = parts(&network).evaluate(&subject).unwrap();
    let samples = sample(&subject, &Granted::WGSL, &[], 0, &SamplePlan::default());
    let pass = subject.pass.reference();
    let mut tape = Default::default();
    let mut wide = subject.params.clone();
    let mut loss = |params: &[f64], x: &Vec<f64>| {
        network.compute_forward(params, x, &pass, &mut tape);
        Loss::Mse
            .evaluate(network.output(&tape), &subject.target, None)
            .unwrap()
    };
    let h = 1e-5;
    // h² times a third derivative of order 10², and the rounding of two losses of order 1.
    let difference_error = 1e2 * h * h + 4.0 * f64::EPSILON / h;
    let mut numeric = Vec::new();
    for i in 0..wide.len() {
        let centre = wide[i];
        wide[i] = centre + h;
        let up = loss(&wide, &subject.input);
        wide[i] = centre - h;
        let down = loss(&wide, &subject.input);
        wide[i] = centre;
        numeric.push((up - down) / (2.0 * h));
    }
    let bounds = Bounds::new(
        &numeric,
        samples.evaluations.iter().map(|e| &e.d_params[..]),
    );
    let passed = |i: &usize| {
        let error = (on_gpu.d_params[*i] - numeric[*i]).abs();
        error <= bounds.at(*i) + difference_error
    };
    let passing = (0..numeric.len()).filter(passed).count();
    assert_eq!(
        passing,
        numeric.len(),
        "100 % of {} parameters",
        numeric.len()
    );
    let mut input = subject.input.clone();
    for i in 0..input.len() {
        let centre = input[i];
        input[i] = centre + h;
        let up = loss(&subject.params, &input);
        input[i] = centre - h;
        let down = loss(&subject.params, &input);
        input[i] = centre;
        let slope = (up - down) / (2.0 * h);
        let runs = samples.evaluations.iter().map(|e| &e.d_input[i..=i]);
        let bound = Bounds::new(&[slope], runs).at(0);
        assert!(
            (on_gpu.d_input[i] - slope).abs() <= bound + difference_error,
            "input {i}"
        );
    }
}

#[test]
fn test_gpu_gradient_accumulation() {
    let network = kan(&[3, 5, 2], 3);
    let mut on_gpu = parts(&network).0;
    let x = batch(&network, 8);
    let pass = Pass::training(key());
    let d_y: Vec<f32> = (0..16).map(|j| j as f32 / 8.0 - 1.0).collect();
    on_gpu.forward_batch_training(&x, &pass).unwrap();
    on_gpu.backward_batch(&d_y).unwrap();
    let first = (
        on_gpu.gradients().unwrap(),
        on_gpu.input_gradient().unwrap(),
    );
    let other: Vec<f32> = d_y.iter().map(|d| 3.0 - d).collect();
    on_gpu.backward_batch(&other).unwrap();
    assert_ne!(on_gpu.gradients().unwrap(), first.0);
    // Nothing of the earlier ones is left.
    on_gpu.backward_batch(&d_y).unwrap();
    assert_eq!(on_gpu.gradients().unwrap(), first.0);
    assert_eq!(on_gpu.input_gradient().unwrap(), first.1);
}

#[test]
fn test_gpu_backward_spline_order_variations() {
    for degree in 1..=7 {
        let network = kan(&[3, 5, 2], degree);
        assert_parity(
            &format!("degree {degree}"),
            &network,
            10,
            &mut parts(&network),
        );
    }
}

#[test]
fn test_gpu_backward_spline_order_2_regression() {
    // A derivative written for cubic splines alone was wrong here: inputs in every interval.
    let network = kan(&[1, 3], 2);
    assert_parity("degree 2", &network, 40, &mut parts(&network));
    // Without the splines' share of d_x this would not pass.
    let params = network.init(3);
    let without = GpuNetwork::new(&without_splines(), &network, &params).unwrap();
    let (x, t) = (batch(&network, 40), target(&network, 40));
    let subject = Subject::new("degree 2", &network, &params, &x, &t, Loss::Mse).unwrap();
    let report = check_on(&subject, &mut ByParts(without), &gradients_only()).unwrap();
    assert!(!report.passed(), "{}", report.table());
}

/// A device whose kernels leave the splines out of the input's gradient.
fn without_splines() -> Arc<Gpu> {
    let from = "return f32(slopes[(row * INPUTS + input) * (BASES + BASE) + feature]);";
    let to = format!("if (feature % (BASES + BASE) < BASES) {{ return 0.0; }}\n    {from}");
    Gpu::open_mutated(&Choice::Auto, from, &to).unwrap()
}

#[test]
fn test_gpu_backward_wide_layer() {
    let network = kan(&[32, 256], 3);
    assert_parity("32 → 256", &network, 64, &mut parts(&network));
    // More than 65,535 workgroups of 64, folded into two dimensions: every value is there once.
    let network = network_of(&[2100], r#"[{"kind":"relu"}]"#);
    let samples = 2001;
    let x: Vec<f32> = (0..samples * 2100)
        .map(|j| j as f32 - 2_000_000.5)
        .collect();
    let mut on_gpu = parts(&network).0;
    let y = on_gpu.forward_batch_training(&x, &Pass::training(key()));
    assert!(y.unwrap().iter().zip(&x).all(|(y, x)| *y == x.max(0.0)));
    on_gpu.backward_batch(&x).unwrap();
    let d_x = on_gpu.input_gradient().unwrap();
    assert!(d_x.iter().zip(&x).all(|(d, x)| *d == x.max(0.0)));
    // 1024 → 600: 5.5 million parameters; their 16-bit copy alone takes more than 65,535
    // workgroups. The reference in f64, and a bound by hand: an f32 sum of 2 products has at most 3 roundings in the weights'
    // gradient, one of 600 times 9 in the input's.
    let network = Network::new(&NetworkSpec::new(&[1024], vec![kan_layer(600, 3)])).unwrap();
    let params = network.init(3);
    let x = batch(&network, 2);
    let mut on_gpu = GpuNetwork::new(&gpu(), &network, &params).unwrap();
    let scale = LossScale::default();
    let mut mixed = GpuNetwork::mixed(&gpu(), &network, &params, scale).unwrap();
    let [y, coarse] = [&mut on_gpu, &mut mixed].map(|n| n.forward_batch(&x).unwrap());
    // 11 bits of 1024 · 9 products' factors, whose errors add up as their root.
    let size = y.iter().fold(0.0_f32, |m, v| m.max(v.abs()));
    let off = y.iter().zip(&coarse).map(|(a, b)| (a - b).abs());
    assert!(off.fold(0.0, f32::max) <= 2.0_f32.powi(-11) * 96.0 * size);
    on_gpu
        .forward_batch_training(&x, &Pass::training(key()))
        .unwrap();
    let d_y: Vec<f32> = (0..1200)
        .map(|j| ((j * 7 % 31) as f32 - 15.0) / 16.0)
        .collect();
    on_gpu.backward_batch(&d_y).unwrap();
    let (mut tape, pass) = (Default::default(), Pass::training(key()).reference());
    let wide = |v: &[f32]| -> Vec<f64> { v.iter().map(|&v| f64::from(v)).collect() };
    let (params, x, d_y) = (wide(&params), wide(&x), wide(&d_y));
    network.compute_forward(&params, &x, &pass, &mut tape);
    let (mut d_params, mut d_x) = (vec![0.0; params.len()], vec![0.0; x.len()]);
    let grads = Grads::both(&mut d_params, &mut d_x);
    network.compute_backward(&params, &x, &pass, &mut tape, &d_y, grads);
    let largest = |v: &[f64]| v.iter().fold(0.0_f64, |a, v| a.max(v.abs()));
    let u = 2.0_f64.powi(-24);
    // The basis: some 30 roundings of numbers up to 5 (the place in the grid) for values up to 1;
    // exp within 3 + 2·|x| units.
    let basis = 200.0 * u;
    let worst = |a: &[f32], b: &[f64]| {
        let errors = a.iter().zip(b).map(|(&a, &b)| (f64::from(a) - b).abs());
        errors.fold(0.0, f64::max)
    };
    let bound = (basis + 3.0 * u) * 2.0 * largest(&d_y);
    assert!(worst(&on_gpu.gradients().unwrap(), &d_params) <= bound);
    // Slopes are up to 2.5 times larger than values; 600 products of d_y and weights each.
    let terms = 600.0 * largest(&d_y) * largest(&params) * 9.0 * 2.5;
    let d_input = on_gpu.input_gradient().unwrap();
    assert!(worst(&d_input, &d_x) <= (basis + 700.0 * u) * terms);
}

#[test]
fn test_gpu_backward_zero_grad_output() {
    let network = kan(&[3, 5, 2], 3);
    // Base functions of weight 0: what reaches the input comes through splines.
    let mut params = network.init(3);
    for tensor in network.layout().tensors() {
        if tensor.name.contains("base") {
            params[tensor.range()].fill(0.0);
        }
    }
    let x = batch(&network, 8);
    let backward = |gpu: &Arc<Gpu>, d_y: &[f32]| -> (GpuNetwork, Vec<f32>) {
        let mut on_gpu = GpuNetwork::new(gpu, &network, &params).unwrap();
        on_gpu
            .forward_batch_training(&x, &Pass::training(key()))
            .unwrap();
        on_gpu.backward_batch(d_y).unwrap();
        let d_x = on_gpu.input_gradient().unwrap();
        (on_gpu, d_x)
    };
    // A gradient of 0 for every other sample: nothing reaches it, and something reaches the others.
    let every_other: Vec<f32> = (0..16)
        .map(|j| f32::from(u8::from(j / 2 % 2 == 0)))
        .collect();
    let reached = |d_x: &[f32]| -> Vec<bool> {
        let rows = d_x.chunks_exact(3);
        rows.map(|row| row.iter().any(|&d| d != 0.0)).collect()
    };
    let alternating: Vec<bool> = (0..8).map(|n| n % 2 == 0).collect();
    let (mut on_gpu, d_x) = backward(&gpu(), &every_other);
    assert_eq!(reached(&d_x), alternating);
    // Without the splines' share nothing would.
    let (_, without) = backward(&without_splines(), &every_other);
    assert_ne!(reached(&without), alternating);
    on_gpu.backward_batch(&[0.0; 16]).unwrap();
    assert!(on_gpu.gradients().unwrap().iter().all(|&g| g == 0.0));
    assert!(on_gpu.input_gradient().unwrap().iter().all(|&g| g == 0.0));
}

#[test]
fn calls_that_do_not_fit_are_errors() {
    let network = kan(&[3, 2], 3);
    let ByParts(mut on_gpu) = parts(&network);
    assert!(
        on_gpu
            .backward_batch(&[0.0; 2])
            .unwrap_err()
            .to_string()
            .contains("tape")
    );
    assert!(on_gpu.forward_batch(&[0.0; 4]).is_err());
    assert!(on_gpu.forward_batch(&[]).is_err());
    assert!(on_gpu.forward_batch(&[0.0, f32::NAN, 0.0]).is_err());
    on_gpu
        .forward_batch_training(&[0.1; 6], &Pass::training(key()))
        .unwrap();
    assert!(on_gpu.backward_batch(&[0.0; 2]).is_err());
    assert!(GpuNetwork::new(&gpu(), &network, &[0.0]).is_err());
}
