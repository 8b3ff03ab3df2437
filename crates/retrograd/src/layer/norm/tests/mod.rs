use crate::layer::norm::GroupNormSpec;
use proptest::prelude::*;

use crate::network::Network;
use crate::network::tests::passes;
use crate::network::{LayerSpec, NetworkSpec};
use crate::rng::Key;
use crate::{Kernels, Model, parallel, scalar};

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// In f32, plane by plane or row by row, against the reference in f64. x̂ is of size 1, and so are weights
    /// and d_y; with n elements in a set no sum of them loses more than (n + 2)·u of n, and a
    /// result is a handful of such means. x − μ is off by u, x̂ by u/σ, d_x, which divides by σ once
    /// more, by u/σ²: 16·(n + 2)·u times that bounds every element, and times their number the
    /// gradients, which are sums. Sets of planes have 1/σ² < 10 here; short rows of a layer norm can
    /// be steeper.
    #[test]
    fn norms_agree_with_the_reference(
        (groups, each, samples) in (1..4_usize, 1..4_usize, 1..4_usize),
        (height, width) in (2..20_usize, 2..40_usize),
        kind in 0..3,
    ) {
        let channels = groups * each;
        // What is one set, and how many terms a parameter's gradient has.
        let (layer, n, terms) = match kind {
            0 => (LayerSpec::batch_norm2d(), samples * height * width, samples * height * width),
            1 => (LayerSpec::GroupNorm(GroupNormSpec { groups }), each * height * width, samples * height * width),
            _ => (LayerSpec::layer_norm(), width, samples * channels * height),
        };
        let spec = NetworkSpec::new(&[channels, height, width], vec![layer]);
        let network = Network::new(&spec).unwrap();
        let mut stream = Key::new(1).purpose("norm").stream();
        let mut values = |len: usize, from: f64| -> Vec<f32> {
            (0..len).map(|_| stream.range(from, 1.0) as f32).collect()
        };
        let params = values(network.layout().len(), 0.5);
        let x = values(samples * network.input_len(), -1.0);
        let d_y = values(samples * network.output_len(), -1.0);
        let [params64, x64, d_y64] = [&params, &x, &d_y].map(|v| scalar::cast::<f32, f64>(v));
        let exact = passes(&network, &params64, &x64, &d_y64, Kernels::Reference);
        let u = 2.0_f64.powi(-24);
        let steepest = x64.chunks_exact(width).fold(10.0_f64.sqrt(), |steepest, row| {
            let mean = row.iter().sum::<f64>() / width as f64;
            let var = row.iter().map(|x| (x - mean) * (x - mean)).sum::<f64>() / width as f64;
            if kind < 2 { steepest } else { steepest.max(1.0 / (var + 1e-5).sqrt()) }
        });
        let scales = [steepest, steepest * steepest, steepest * terms as f64];
        for threads in [1, 2, 7] {
            let fast = parallel::with_threads(threads, || {
                passes(&network, &params, &x, &d_y, Kernels::Fast)
            });
            for (what, scale) in scales.into_iter().enumerate() {
                let bound = 16.0 * (n + 2) as f64 * u * scale;
                for (i, (&fast, &exact)) in fast[what].iter().zip(&exact[what]).enumerate() {
                    prop_assert!(
                        (f64::from(fast) - exact).abs() <= bound,
                        "{what} {i}: {fast} for {exact}, bound {bound:e}"
                    );
                }
            }
            let one = passes(&network, &params, &x, &d_y, Kernels::Fast);
            prop_assert_eq!(fast, one, "{} threads", threads);
        }
    }
}
