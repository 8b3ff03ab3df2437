use crate::layer::concat::ConcatSpec;
use crate::layer::conv_transpose2d::ConvTranspose2dSpec;
use crate::layer::conv2d::Conv2dSpec;
use proptest::prelude::*;

use super::Conv2d;
use crate::Scalar;
use crate::layer::{AnyLayer, Backward, Describe, Forward, Layer, TensorSpec};
use crate::network::Network;
use crate::network::tests::passes as compute;
use crate::network::{LayerSpec, NetworkSpec, PaddingMode};
use crate::rng::Key;
use crate::simd::{self, InstructionSet};
use crate::{Kernels, Model, parallel, scalar};

fn values(purpose: &str, len: usize) -> Vec<f64> {
    let mut stream = Key::new(5).purpose(purpose).stream();
    (0..len)
        .map(|_| f64::from(stream.range(-1.0, 1.0) as f32))
        .collect()
}

fn magnitudes(x: &[f64]) -> Vec<f64> {
    x.iter().map(|v| v.abs()).collect()
}

/// Checks one layer on an image: the adjoint identity on the reference, and the f32 kernels
/// against the reference within the worst case of rounding, (terms + 2)·u·Σ|terms|, for each of
/// the three products; and the same bits on any number of threads and on every instruction set.
fn check(layer: LayerSpec, shape: [usize; 3], samples: usize) {
    let text = format!("{layer:?} on {samples} × {shape:?}");
    let Ok(network) = Network::new(&NetworkSpec::new(&shape, vec![layer])) else {
        return;
    };
    let params = values("params", network.layout().len());
    let x = values("x", samples * network.input_len());
    let d_y = values("d_y", samples * network.output_len());
    let exact = compute(&network, &params, &x, &d_y, Kernels::Reference);

    // ⟨conv(x) − bias, d_y⟩ = ⟨x, convᵀ(d_y)⟩, and = ⟨W, d_W⟩: all three are the same sum.
    let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
    let of_input = dot(&x, &exact[1]);
    let weights = network.layout().tensors()[0].range();
    let of_weights = dot(&params[weights.clone()], &exact[2][weights]);
    let of_output = dot(&exact[0], &d_y) - {
        let bias = network.layout().tensors().get(1).map(|t| t.range());
        bias.map_or(0.0, |b| dot(&params[b.clone()], &exact[2][b]))
    };
    let sizes = [&params, &x, &d_y].map(|v| magnitudes(v));
    let size = compute(
        &network,
        &sizes[0],
        &sizes[1],
        &sizes[2],
        Kernels::Reference,
    );
    let scale = dot(&size[0], &sizes[2]);
    for (name, other) in [("input", of_input), ("weights", of_weights)] {
        assert!(
            (of_output - other).abs() <= 1e-12 * scale,
            "{text}: adjoint of {name}"
        );
    }

    let [params32, x32, d_y32] = [&params, &x, &d_y].map(|v| scalar::cast::<f64, f32>(v));
    let fast = compute(&network, &params32, &x32, &d_y32, Kernels::Fast);
    let u = 2.0_f64.powi(-24);
    // Terms of one sum: at most all taps of all channels, or all pixels of the batch.
    let terms = [params.len(), params.len(), d_y.len()];
    for (what, name) in ["output", "input gradient", "parameter gradient"]
        .iter()
        .enumerate()
    {
        for (i, (&ours, &exact)) in fast[what].iter().zip(&exact[what]).enumerate() {
            let bound = (terms[what] + 2) as f64 * u * size[what][i];
            let error = (f64::from(ours) - exact).abs();
            assert!(
                error <= bound,
                "{text}: {name} {i}: {ours} for {exact}, bound {bound}"
            );
        }
    }
    for threads in [2, 7] {
        let again = parallel::with_threads(threads, || {
            compute(&network, &params32, &x32, &d_y32, Kernels::Fast)
        });
        assert_eq!(fast, again, "{text}: {threads} threads");
    }
    for set in InstructionSet::available() {
        let again = simd::on(set, || {
            compute(&network, &params32, &x32, &d_y32, Kernels::Fast)
        });
        assert_eq!(fast, again, "{text}: {set}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn convolutions_are_adjoint_and_the_fast_form_agrees(
        (groups, group_in, group_out) in (1..4_usize, 1..5_usize, 1..10_usize),
        (kernel, stride, dilation) in (1..5_usize, 1..4_usize, 1..3_usize),
        padding in 0..8_usize,
        reflect in any::<bool>(),
        bias in any::<bool>(),
        (height, width, samples) in (1..20_usize, 1..40_usize, 1..4_usize),
    ) {
        let padding_mode = if reflect { PaddingMode::Reflect } else { PaddingMode::Zeros };
        let layer = LayerSpec::Conv2d(Conv2dSpec {
            out: groups * group_out, kernel, stride, padding, padding_mode, dilation, groups, bias,
        });
        check(layer, [groups * group_in, height, width], samples);
    }

    #[test]
    fn transposed_convolutions_are_adjoint_and_the_fast_form_agrees(
        (inputs, out) in (1..6_usize, 1..10_usize),
        (kernel, stride, padding) in (1..5_usize, 1..4_usize, 0..3_usize),
        bias in any::<bool>(),
        (height, width, samples) in (1..10_usize, 1..20_usize, 1..4_usize),
    ) {
        let layer = LayerSpec::ConvTranspose2d(ConvTranspose2dSpec { out, kernel, stride, padding, bias });
        check(layer, [inputs, height, width], samples);
    }
}

/// In one pass or in two, a convolution and its ReLU have the same bits: the same sums, then the
/// maximum with 0; and the same masked gradient through the same kernels.
fn check_relu(layer: &LayerSpec, shape: [usize; 3], samples: usize) {
    let text = format!("{layer:?} on {samples} × {shape:?}");
    let network = |layers: Vec<LayerSpec>| Network::new(&NetworkSpec::new(&shape, layers));
    let Ok(alone) = network(vec![layer.clone()]) else {
        return;
    };
    let fused = network(vec![layer.clone(), LayerSpec::relu()]).unwrap();
    let [params, x, d_y] = [
        ("params", alone.layout().len()),
        ("x", samples * alone.input_len()),
        ("d_y", samples * alone.output_len()),
    ]
    .map(|(purpose, len)| scalar::cast::<f64, f32>(&values(purpose, len)));
    let [mut y, ..] = compute(&alone, &params, &x, &d_y, Kernels::Fast);
    let mut masked = d_y.clone();
    for (y, d) in y.iter_mut().zip(&mut masked) {
        if *y <= 0.0 {
            (*y, *d) = (0.0, 0.0);
        }
    }
    let [_, d_x, d_params] = compute(&alone, &params, &x, &masked, Kernels::Fast);
    for threads in [1, 2, 7] {
        let ours = parallel::with_threads(threads, || {
            compute(&fused, &params, &x, &d_y, Kernels::Fast)
        });
        assert_eq!(ours[0], y, "{text}: output, {threads} threads");
        assert_eq!(ours[1], d_x, "{text}: input gradient, {threads} threads");
        assert_eq!(ours[2], d_params, "{text}: gradient, {threads} threads");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn a_relu_in_the_same_pass_changes_no_bit(
        (groups, group_in, group_out) in (1..3_usize, 1..5_usize, 1..10_usize),
        (kernel, stride, dilation) in (1..4_usize, 1..3_usize, 1..3_usize),
        (padding, reflect) in (0..3_usize, any::<bool>()),
        (height, width, samples) in (1..20_usize, 1..40_usize, 1..4_usize),
    ) {
        let padding_mode = if reflect { PaddingMode::Reflect } else { PaddingMode::Zeros };
        let layer = LayerSpec::Conv2d(Conv2dSpec {
            out: groups * group_out, kernel, stride, padding, padding_mode, dilation, groups,
            bias: true,
        });
        check_relu(&layer, [groups * group_in, height, width], samples);
    }
}

/// A value that a skip reads as well is not swallowed by the ReLU after it.
#[test]
fn a_skip_from_before_a_relu_reads_what_was_there() {
    let layers = vec![
        LayerSpec::conv2d(3, 3, 1),
        LayerSpec::relu(),
        LayerSpec::Concat(ConcatSpec { with: 0 }),
        LayerSpec::conv2d(2, 3, 1),
    ];
    let network = Network::new(&NetworkSpec::new(&[2, 9, 21], layers)).unwrap();
    let params = scalar::cast::<f32, f64>(&network.init(1));
    let (x, d_y) = (
        values("x", network.input_len()),
        values("d_y", network.output_len()),
    );
    let exact = compute(&network, &params, &x, &d_y, Kernels::Reference);
    let [params, x, d_y] = [&params, &x, &d_y].map(|v| scalar::cast::<f64, f32>(v));
    let fast = compute(&network, &params, &x, &d_y, Kernels::Fast);
    // Sums of at most 400 terms of size 1: 400 · 400 · 2⁻²⁴ in the worst case.
    for (fast, exact) in fast.iter().zip(&exact) {
        for (&fast, &exact) in fast.iter().zip(exact) {
            assert!((f64::from(fast) - exact).abs() < 1e-2, "{fast} for {exact}");
        }
    }
}

/// Sizes at which the kernels' blocks and the threads are full.
#[test]
fn larger_convolutions_agree_and_have_the_same_bits_on_every_number_of_threads() {
    check(LayerSpec::conv2d(16, 3, 1), [1, 70, 67], 2);
    check(LayerSpec::conv2d(16, 3, 1), [16, 66, 130], 2);
    check(LayerSpec::conv2d(1, 3, 1), [16, 65, 100], 1);
    // More columns than are copied together, more channels than are summed together, and few
    // pixels for many weights.
    check(LayerSpec::conv2d(2, 3, 1), [2, 5, 1100], 1);
    check(LayerSpec::conv2d(32, 3, 1), [70, 20, 33], 1);
    check_relu(&LayerSpec::conv2d(16, 3, 1), [16, 66, 130], 2);
}

/// Winograd's form: whole and partial blocks of channels and of tiles, tiles over both edges, one piece and
/// several, and the border that is wider than the kernel needs, none, or a mirror.
#[test]
fn convolutions_of_many_channels_agree_and_have_the_same_bits_on_every_number_of_threads() {
    check(LayerSpec::conv2d(32, 3, 1), [32, 5, 6], 1);
    check(LayerSpec::conv2d(47, 3, 1), [33, 13, 29], 2);
    check(LayerSpec::conv2d(64, 3, 1), [48, 24, 40], 3);
    check(LayerSpec::conv2d(130, 3, 1), [140, 9, 11], 2);
    for (padding, padding_mode) in [
        (0, PaddingMode::Zeros),
        (2, PaddingMode::Zeros),
        (1, PaddingMode::Reflect),
        (3, PaddingMode::Reflect),
    ] {
        let layer = LayerSpec::Conv2d(Conv2dSpec {
            out: 40,
            kernel: 3,
            stride: 1,
            padding,
            padding_mode,
            dilation: 1,
            groups: 1,
            bias: false,
        });
        check(layer, [32, 10, 17], 2);
    }
    check_relu(&LayerSpec::conv2d(32, 3, 1), [34, 21, 18], 2);
}

/// The denoiser 1-16-16-1.
fn simple_cnn(height: usize, width: usize) -> Network {
    let layers = vec![
        LayerSpec::conv2d(16, 3, 1),
        LayerSpec::relu(),
        LayerSpec::conv2d(16, 3, 1),
        LayerSpec::relu(),
        LayerSpec::conv2d(1, 3, 1),
    ];
    Network::new(&NetworkSpec::new(&[1, height, width], layers)).unwrap()
}

/// An image with structure: waves of different lengths along both axes and a disc.
fn picture(height: usize, width: usize) -> Vec<f64> {
    let of = |n: usize| {
        let (y, x) = ((n / width) as f64, (n % width) as f64);
        let (v, u) = (y / height as f64 - 0.4, x / width as f64 - 0.6);
        let disc = f64::from(u8::from(u * u + v * v < 0.05));
        f64::from((0.5 * (0.31 * y).sin() + 0.3 * (0.17 * x + 0.05 * y).cos() + disc) as f32)
    };
    (0..height * width).map(of).collect()
}

/// The largest error of every tensor's f32 gradient, and of the input's, against the f64
/// reference, relative to the tensor's largest element.
fn worst_gradient_error(height: usize, width: usize, samples: usize) -> f64 {
    let network = simple_cnn(height, width);
    let params = scalar::cast::<f32, f64>(&network.init(3));
    let clean: Vec<f64> = (0..samples).flat_map(|_| picture(height, width)).collect();
    let noise = values("noise", clean.len());
    let x: Vec<f64> = clean
        .iter()
        .zip(&noise)
        .map(|(c, n)| f64::from((c + 0.3 * n) as f32))
        .collect();
    // Of the mean squared error of an untrained network: about the target itself.
    let scale = 2.0 / clean.len() as f64;
    let d_y: Vec<f64> = clean
        .iter()
        .map(|c| f64::from((-scale * c) as f32))
        .collect();
    let exact = compute(&network, &params, &x, &d_y, Kernels::Reference);
    let [params32, x32, d_y32] = [&params, &x, &d_y].map(|v| scalar::cast::<f64, f32>(v));
    let fast = compute(&network, &params32, &x32, &d_y32, Kernels::Fast);
    let mut worst = 0.0_f64;
    let mut compare = |ours: &[f32], exact: &[f64]| {
        let largest = exact.iter().fold(0.0_f64, |m, v| m.max(v.abs()));
        for (&ours, &exact) in ours.iter().zip(exact) {
            worst = worst.max((f64::from(ours) - exact).abs() / largest);
        }
    };
    compare(&fast[1], &exact[1]);
    // Over tiles, as always, and layer by layer.
    assert_eq!(stack_of(&network).len(), 3);
    let layered = layer_by_layer(simple_cnn(height, width));
    let layered = compute(&layered, &params32, &x32, &d_y32, Kernels::Fast);
    for ours in [&fast[2], &layered[2]] {
        for tensor in network.layout().tensors() {
            compare(&ours[tensor.range()], &exact[2][tensor.range()]);
        }
    }
    worst
}

/// The layers whose backward pass is one.
fn stack_of(network: &Network) -> Vec<usize> {
    let steps = network.plan(true, false, true).backward;
    let whole = steps.into_iter().find(|step| !step.stack.is_empty());
    whole.map_or_else(Vec::new, |step| step.stack)
}

/// A layer that is not part of a stack, and otherwise the same.
struct Apart(Box<dyn AnyLayer>);

impl Describe for Apart {
    fn tensors(&self) -> Vec<Option<TensorSpec>> {
        self.0.tensors()
    }
    fn takes_relu(&self) -> bool {
        self.0.takes_relu()
    }
}

impl<T: Scalar> Layer<T> for Apart {
    fn forward(&self, io: Forward<'_, T>) {
        T::layer(&*self.0).forward(io);
    }
    fn backward(&self, io: Backward<'_, T>) {
        T::layer(&*self.0).backward(io);
    }
}

fn layer_by_layer(mut network: Network) -> Network {
    for layer in 0..network.places.len() {
        if network.places[layer].layer.downcast::<Conv2d>().is_some() {
            network = network.wrapping(layer, |inner| Box::new(Apart(inner)));
        }
    }
    network
}

/// Over tiles the gradients have the terms they have layer by layer (the same kernels in the same
/// order made them), added in another order. Either sum is within (terms + 2)·u of Σ|terms|, which
/// the network of all magnitudes, whose ReLUs are all open, bounds.
fn check_stack(layers: Vec<LayerSpec>, shape: [usize; 3], samples: usize) {
    let text = format!("{layers:?} on {samples} × {shape:?}");
    let spec = NetworkSpec::new(&shape, layers);
    let fused = Network::new(&spec).unwrap();
    let layered = layer_by_layer(Network::new(&spec).unwrap());
    assert!(stack_of(&layered).is_empty());
    if stack_of(&fused).is_empty() {
        return;
    }
    let params = scalar::cast::<f32, f64>(&fused.init(2));
    let x = values("x", samples * fused.input_len());
    let d_y = values("d_y", samples * fused.output_len());
    let sizes = [&params, &x, &d_y].map(|v| magnitudes(v));
    let [_, _, size] = compute(&fused, &sizes[0], &sizes[1], &sizes[2], Kernels::Reference);
    let [params, x, d_y] = [&params, &x, &d_y].map(|v| scalar::cast::<f64, f32>(v));
    let layered = compute(&layered, &params, &x, &d_y, Kernels::Fast);
    let fused = [1, 2, 7].map(|threads| {
        parallel::with_threads(threads, || {
            compute(&fused, &params, &x, &d_y, Kernels::Fast)
        })
    });
    assert_eq!(
        fused[0][..2],
        layered[..2],
        "{text}: output and input gradient"
    );
    assert_eq!(fused[0], fused[1], "{text}: 2 threads");
    assert_eq!(fused[0], fused[2], "{text}: 7 threads");
    let terms = (samples * shape[1] * shape[2] + 2) as f64;
    for (i, (&fused, &layered)) in fused[0][2].iter().zip(&layered[2]).enumerate() {
        let bound = 2.0 * terms * 2.0_f64.powi(-24) * size[i];
        let apart = f64::from(fused - layered).abs();
        assert!(
            apart <= bound,
            "{text}: {i}: {fused}, {layered}, bound {bound}"
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn a_stack_over_tiles_has_the_gradients_of_its_layers(
        (channels, convs) in (proptest::array::uniform5(1..10_usize), 2..5_usize),
        (half, dilation, relu_at_end) in (0..3_usize, 1..3_usize, any::<bool>()),
        (height, width, samples) in (1..40_usize, 1..150_usize, 1..3_usize),
        last_half in 0..2_usize,
    ) {
        let mut layers = Vec::new();
        for (l, &out) in channels[1..=convs].iter().enumerate() {
            let half = if l + 1 == convs { last_half } else { half.min(1) };
            layers.push(LayerSpec::Conv2d(Conv2dSpec {
                out, kernel: 2 * half + 1, stride: 1, padding: half * dilation,
                padding_mode: PaddingMode::Zeros, dilation, groups: 1, bias: l % 2 == 0,
            }));
            if relu_at_end || l + 1 < convs {
                layers.push(LayerSpec::relu());
            }
        }
        check_stack(layers, [channels[0], height, width], samples);
    }
}

/// Sizes at which tiles are full, and several wide.
#[test]
fn a_stack_over_several_tiles_has_the_gradients_of_its_layers() {
    let layers = |hidden| {
        vec![
            LayerSpec::conv2d(hidden, 3, 1),
            LayerSpec::relu(),
            LayerSpec::conv2d(hidden, 3, 1),
            LayerSpec::relu(),
            LayerSpec::conv2d(1, 3, 1),
        ]
    };
    check_stack(layers(16), [1, 50, 300], 2);
    check_stack(layers(5), [2, 33, 129], 1);
}

/// Two images of 128 × 128: 32,768 terms a weight. The gate is 5e-7 of the largest gradient,
/// which f32 sums of a row with f64 on top keep with room to spare and one f32 sum does not.
#[test]
fn gradients_of_128_squared_images_are_within_5e_7_of_the_largest() {
    let worst = worst_gradient_error(128, 128, 2);
    assert!(worst <= 5e-7, "{worst:e}");
}

/// The gate at 1024 × 1024 is 2e-6. The quick run takes an image of 256 × 384 with the same gate;
/// `RETROGRAD_FULL` takes the whole one (seven seconds, nearly all of them the f64 reference).
#[test]
fn gradients_of_large_images_are_within_2e_6_of_the_largest() {
    let (height, width) = match std::env::var_os("RETROGRAD_FULL") {
        Some(_) => (1024, 1024),
        None => (256, 384),
    };
    let worst = worst_gradient_error(height, width, 1);
    assert!(worst <= 2e-6, "{height} × {width}: {worst:e}");
}

/// Why a loss comparison proves nothing. A kernel turned by 180 degrees, or with height and width
/// swapped, gives on independent noise almost the loss of the right one: noise looks the same from
/// every side. On a picture, and in the gradient of the weights, the mistake stands out.
#[test]
fn a_loss_on_noise_does_not_see_kernels_that_are_turned_and_a_gradient_does() {
    let (height, width) = (96, 160);
    let network = simple_cnn(height, width);
    let params = scalar::cast::<f32, f64>(&network.init(3));
    let turned = |index: fn(usize) -> usize| -> Vec<f64> {
        let mut wrong = params.clone();
        for tensor in network.layout().tensors() {
            if tensor.name.ends_with("weight") {
                let stored: Vec<f64> = tensor.to_torch(&params[tensor.range()]);
                let mut kernels = stored.clone();
                for (to, from) in kernels.chunks_exact_mut(9).zip(stored.chunks_exact(9)) {
                    for (tap, to) in to.iter_mut().enumerate() {
                        *to = from[index(tap)];
                    }
                }
                tensor.from_torch(&kernels, &mut wrong[tensor.range()]);
            }
        }
        wrong
    };
    let noise = values("noise image", height * width);
    let other = values("noise target", height * width);
    let picture = picture(height, width);
    // The mean squared error, and the gradient of the weights.
    let measure = |params: &[f64], x: &[f64], target: &[f64]| {
        let zero = vec![0.0; x.len()];
        let y = &compute(&network, params, x, &zero, Kernels::Reference)[0];
        let error: Vec<f64> = y.iter().zip(target).map(|(y, t)| y - t).collect();
        let loss = error.iter().map(|e| e * e).sum::<f64>() / error.len() as f64;
        let d_y: Vec<f64> = error.iter().map(|e| 2.0 * e / error.len() as f64).collect();
        let [_, _, d_params] = compute(&network, params, x, &d_y, Kernels::Reference);
        (loss, d_params)
    };
    for (name, index) in [
        (
            "rotated by 180 degrees",
            (|tap| 8 - tap) as fn(usize) -> usize,
        ),
        ("height and width swapped", |tap| tap % 3 * 3 + tap / 3),
    ] {
        let wrong = turned(index);
        let (right_loss, _) = measure(&params, &noise, &other);
        let (wrong_loss, _) = measure(&wrong, &noise, &other);
        let on_noise = (wrong_loss - right_loss).abs() / right_loss;
        assert!(on_noise < 1e-3, "{name}: {on_noise:e} in the loss on noise");
        // The weights' gradients of the wrong network, put back in the right order, against the
        // right ones: what a comparison with PyTorch sees.
        let (_, right) = measure(&params, &picture, &noise);
        let (_, wrong) = measure(&wrong, &picture, &noise);
        let tensor = &network.layout().tensors()[2];
        let (right, wrong) = (&right[tensor.range()], &wrong[tensor.range()]);
        let largest = right.iter().fold(0.0_f64, |m, v| m.max(v.abs()));
        let apart = right.iter().zip(wrong).map(|(a, b)| (a - b).abs());
        let apart = apart.fold(0.0, f64::max) / largest;
        assert!(apart > 0.05, "{name}: {apart:e} in the gradient");
    }
}
