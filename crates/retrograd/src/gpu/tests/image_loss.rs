//! The image terms on a device against the f64 reference, within the bound that the verifier's
//! number predicts from WGSL's granted accuracies.

use std::sync::Arc;

use crate::gpu::{Choice, Gpu, GpuNetwork, GpuOptimizer, GpuTrainOptions};
use crate::loss_image::{ImageLoss, ImageTerms, Workspace};
use crate::network::Network;
use crate::optim::OptimizerSpec;
use crate::parallel;
use crate::rng::Key;
use crate::scalar::cast;
use crate::verify::precision::Bounds;
use crate::verify::{Granted, Rounded};
use crate::{Loss, Model, Target};

const BOTH: ImageTerms = ImageTerms {
    ssim: 0.7,
    ssim_range: 4.0,
    gradient: 0.3,
};
const SSIM: ImageTerms = ImageTerms {
    gradient: 0.0,
    ..BOTH
};
const GRADIENT: ImageTerms = ImageTerms { ssim: 0.0, ..BOTH };

/// Structure plus noise.
fn planes(count: usize, width: usize, height: usize, seed: u64) -> Vec<f32> {
    let mut stream = Key::new(seed).purpose("image loss test").stream();
    (0..count * width * height)
        .map(|i| {
            let (x, y) = (i % width, i / width % height);
            let shape = (0.7 * x as f64).sin() + 0.1 * y as f64;
            (shape + 0.3 * stream.normal()) as f32
        })
        .collect()
}

/// A network that hands its input on: the gradient of its input is that of its output.
fn as_it_is(channels: usize, width: usize, height: usize) -> (Network, Vec<f32>) {
    let spec = format!(
        r#"{{"input":[{channels},{height},{width}],"layers":[
        {{"kind":"conv2d","out":{channels},"kernel":1,"groups":{channels},"bias":false}}]}}"#
    );
    let network = Network::new(&serde_json::from_str(&spec).unwrap()).unwrap();
    let ones = vec![1.0; network.layout().len()];
    (network, ones)
}

/// Value and gradient on the device. The pixels have no weight: the terms are alone.
fn on_device(
    gpu: &Arc<Gpu>,
    terms: ImageTerms,
    [samples, channels, width, height]: [usize; 4],
    y: &[f32],
    t: &[f32],
) -> (f64, Vec<f32>) {
    let (network, ones) = as_it_is(channels, width, height);
    let mut on_gpu = GpuNetwork::new(gpu, &network, &ones).unwrap();
    let image_loss = ImageLoss::new(terms, width, height).unwrap();
    on_gpu.set_image_loss(&image_loss).unwrap();
    let mut target = Target::values(t.to_vec());
    target.weights = Some(vec![0.0; samples * channels * width * height]);
    let options = GpuTrainOptions::default();
    let value = on_gpu.loss_and_gradients(y, &target, Loss::Mse, &options);
    (value.unwrap(), on_gpu.input_gradient().unwrap())
}

/// What the reference gives in f64, and on runs of the number that rounds at random.
fn predicted(
    terms: ImageTerms,
    width: usize,
    height: usize,
    y: &[f32],
    t: &[f32],
) -> (Vec<f64>, Vec<Vec<f64>>) {
    let exact = {
        let (y, t): (Vec<f64>, Vec<f64>) = (cast(y), cast(t));
        let mut d_y = vec![0.0; y.len()];
        let value = terms.compute(
            width,
            height,
            &y,
            &t,
            Some(&mut d_y),
            &mut Workspace::default(),
        );
        d_y.push(value);
        d_y
    };
    let runs = parallel::isolated(16, |run| {
        Rounded::start(run as u64 + 1, &Granted::WGSL);
        let (y, t): (Vec<Rounded>, Vec<Rounded>) = (cast(y), cast(t));
        let mut d_y: Vec<Rounded> = cast(&vec![0.0_f64; y.len()]);
        let value = terms.compute(
            width,
            height,
            &y,
            &t,
            Some(&mut d_y),
            &mut Workspace::default(),
        );
        d_y.push(value);
        cast(&d_y)
    });
    (exact, runs)
}

/// One size: within the bounds, and not where the images, the axes or the terms are others.
fn compare(gpu: &Arc<Gpu>, terms: ImageTerms, size: [usize; 4]) {
    let [samples, channels, width, height] = size;
    let y = planes(samples * channels, width, height, 1);
    let t = planes(samples * channels, width, height, 2);
    let (value, d_y) = on_device(gpu, terms, size, &y, &t);
    let (exact, runs) = predicted(terms, width, height, &y, &t);
    let last = exact.len() - 1;
    let bounds = Bounds::new(&exact[..last], runs.iter().map(|r| &r[..last]));
    for (i, (&ours, exact)) in d_y.iter().zip(&exact).enumerate() {
        let off = (f64::from(ours) - exact).abs();
        assert!(
            off <= bounds.at(i),
            "{terms:?} {size:?} {i}: {off:e}, {:e}",
            bounds.at(i)
        );
    }
    let of_value = Bounds::new(&exact[last..], runs.iter().map(|r| &r[last..]));
    let off = (value - exact[last]).abs();
    assert!(
        off <= of_value.at(0),
        "{terms:?} {size:?}: {off:e}, {:e}",
        of_value.at(0)
    );
    // A wrong gradient is far outside.
    let (_, exchanged) = on_device(gpu, terms, size, &t, &y);
    let wrong = exchanged.iter().zip(&exact).enumerate();
    let outside = wrong.filter(|(i, (w, e))| (f64::from(**w) - **e).abs() > bounds.at(*i));
    assert!(2 * outside.count() > last, "{terms:?} {size:?}");
}

/// Both sides of every cut: tiles of 8 × 8 places (sizes beyond the window of 11 by 7, 8 and 9), of
/// 8 × 8 pixels, and more partial sums than lanes.
#[test]
fn terms_and_gradients_agree_with_the_reference_on_both_sides_of_every_cut() {
    let gpu = Gpu::open(&Choice::Auto).unwrap();
    for size in [
        [1, 1, 11, 11],
        [2, 1, 12, 16],
        [1, 2, 17, 18],
        [2, 1, 18, 19],
        [1, 1, 19, 17],
        [3, 2, 33, 40],
    ] {
        compare(&gpu, BOTH, size);
        compare(&gpu, SSIM, size);
    }
    for size in [
        [1, 1, 2, 2],
        [2, 1, 7, 3],
        [1, 2, 8, 9],
        [1, 1, 9, 8],
        [5, 1, 33, 31],
    ] {
        compare(&gpu, GRADIENT, size);
    }
}

/// Images that are equal, and far from 0: the loss is 0 and its gradient, too, where differences of
/// squares would have lost every digit.
#[test]
fn equal_images_far_from_zero_have_neither_loss_nor_gradient() {
    let gpu = Gpu::open(&Choice::Auto).unwrap();
    let far: Vec<f32> = planes(1, 20, 15, 3).iter().map(|v| v + 4096.0).collect();
    let (value, d_y) = on_device(&gpu, BOTH, [1, 1, 20, 15], &far, &far);
    assert_eq!(value, 0.0);
    assert!(d_y.iter().all(|&d| d == 0.0), "{d_y:?}");
}

/// A native step follows the gradient of pixels and terms, and reports their sum.
#[test]
fn a_native_step_follows_the_gradient_with_its_terms() {
    let gpu = Gpu::open(&Choice::Auto).unwrap();
    let (network, ones) = as_it_is(2, 13, 12);
    let (y, t) = (planes(6, 13, 12, 4), planes(6, 13, 12, 5));
    let target = Target::values(t);
    let image_loss = ImageLoss::new(BOTH, 13, 12).unwrap();
    let mut on_gpu = GpuNetwork::new(&gpu, &network, &ones).unwrap();
    let without = {
        let options = GpuTrainOptions::default();
        on_gpu
            .loss_and_gradients(&y, &target, Loss::Mse, &options)
            .unwrap()
    };
    on_gpu.set_image_loss(&image_loss).unwrap();
    let options = GpuTrainOptions::default();
    let value = on_gpu
        .loss_and_gradients(&y, &target, Loss::Mse, &options)
        .unwrap();
    let added = image_loss.clone().compute(&y, &target.values, None);
    assert!(added > 0.1);
    // Sums of some hundred numbers in trees and pieces of 64.
    assert!((value - without - added).abs() < 1e2 * f64::from(f32::EPSILON) * value);
    let grads = on_gpu.gradients().unwrap();
    let mut sgd = GpuOptimizer::new(&on_gpu, OptimizerSpec::sgd(0.5)).unwrap();
    on_gpu
        .train_step_gpu_native(&y, &target, Loss::Mse, &mut sgd)
        .unwrap();
    let losses = on_gpu.finish().unwrap();
    assert!((losses[0].loss - value).abs() <= 4.0 * f64::from(f32::EPSILON) * value);
    let after = on_gpu.sync_weights_to_cpu().unwrap();
    for (after, grad) in after.iter().zip(&grads) {
        // One product, one difference of numbers near 1.
        assert!((after - (1.0 - 0.5 * grad)).abs() <= 2.0 * f32::EPSILON);
    }
}

#[test]
fn sizes_that_are_no_images_of_the_network_are_refused() {
    let gpu = Gpu::open(&Choice::Auto).unwrap();
    let (network, ones) = as_it_is(1, 13, 12);
    let mut on_gpu = GpuNetwork::new(&gpu, &network, &ones).unwrap();
    let other = ImageLoss::new(BOTH, 14, 12).unwrap();
    let error = on_gpu.set_image_loss(&other).unwrap_err().to_string();
    assert!(
        error.contains("156") && error.contains("14 × 12"),
        "{error}"
    );
}
