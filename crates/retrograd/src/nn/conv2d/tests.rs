use proptest::prelude::*;

use super::super::spec::{LayerSpec, NetworkSpec, PaddingMode};
use super::super::{Network, NetworkTape};
use crate::rng::Key;
use crate::{Grads, Kernels, Model, Pass, Scalar, parallel, scalar};

/// What one configuration computes: output, input gradient, parameter gradient.
fn compute<T: Scalar>(
    network: &Network,
    params: &[T],
    x: &[T],
    d_y: &[T],
    kernels: Kernels,
) -> [Vec<T>; 3] {
    let pass = Pass {
        kernels,
        ..Pass::training(Key::new(0))
    };
    let mut tape = NetworkTape::default();
    let x = x.to_vec();
    network.forward(params, &x, &pass, &mut tape);
    let y = network.output(&tape).to_vec();
    let mut d_params = vec![T::ZERO; params.len()];
    let mut d_x = vec![T::ZERO; x.len()];
    let grads = Grads::both(&mut d_params, &mut d_x);
    network.backward(params, &x, &pass, &mut tape, d_y, grads);
    [y, d_x, d_params]
}

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
/// the three products.
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
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn convolutions_are_adjoint_and_the_fast_form_agrees(
        (groups, group_in, group_out) in (1..4_usize, 1..5_usize, 1..10_usize),
        (kernel, stride, dilation) in (1..5_usize, 1..4_usize, 1..3_usize),
        padding in 0..4_usize,
        reflect in any::<bool>(),
        bias in any::<bool>(),
        (height, width, samples) in (1..20_usize, 1..40_usize, 1..4_usize),
    ) {
        let padding_mode = if reflect { PaddingMode::Reflect } else { PaddingMode::Zeros };
        let layer = LayerSpec::Conv2d {
            out: groups * group_out, kernel, stride, padding, padding_mode, dilation, groups, bias,
        };
        check(layer, [groups * group_in, height, width], samples);
    }

    #[test]
    fn transposed_convolutions_are_adjoint_and_the_fast_form_agrees(
        (inputs, out) in (1..6_usize, 1..10_usize),
        (kernel, stride, padding) in (1..5_usize, 1..4_usize, 0..3_usize),
        bias in any::<bool>(),
        (height, width, samples) in (1..10_usize, 1..20_usize, 1..4_usize),
    ) {
        let layer = LayerSpec::ConvTranspose2d { out, kernel, stride, padding, bias };
        check(layer, [inputs, height, width], samples);
    }
}

/// Sizes at which the kernels' blocks and the threads are full.
#[test]
fn larger_convolutions_agree_and_have_the_same_bits_on_every_number_of_threads() {
    check(LayerSpec::conv2d(16, 3, 1), [1, 70, 67], 2);
    check(LayerSpec::conv2d(16, 3, 1), [16, 66, 130], 2);
    check(LayerSpec::conv2d(1, 3, 1), [16, 65, 100], 1);
}
