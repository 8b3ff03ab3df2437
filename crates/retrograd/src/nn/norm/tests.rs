use proptest::prelude::*;

use super::super::Network;
use super::super::spec::{LayerSpec, NetworkSpec};
use super::super::tests::passes;
use crate::rng::Key;
use crate::{Kernels, Model, parallel, scalar};

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// In f32, plane by plane, against the reference in f64. x̂ is of size 1, and so are weights
    /// and d_y; with n elements in a set no sum of them loses more than (n + 2)·u of n, and a
    /// result is a handful of such means: 16·(n + 2)·u bounds every element of y and d_x (their
    /// scale is that of 1/σ, at most 10 here), and n times that the gradients, which are sums.
    #[test]
    fn group_and_batch_norms_agree_with_the_reference(
        (groups, each, samples) in (1..4_usize, 1..4_usize, 1..4_usize),
        (height, width) in (2..20_usize, 2..40_usize),
        batch in any::<bool>(),
    ) {
        let channels = groups * each;
        let layer = if batch {
            LayerSpec::BatchNorm2d {}
        } else {
            LayerSpec::GroupNorm { groups }
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
        let n = if batch { samples * height * width } else { each * height * width };
        let u = 2.0_f64.powi(-24);
        for threads in [1, 2, 7] {
            let fast = parallel::with_threads(threads, || {
                passes(&network, &params, &x, &d_y, Kernels::Fast)
            });
            let terms = (samples * height * width) as f64;
            for (what, scale) in [(0, 10.0), (1, 10.0), (2, 10.0 * terms)] {
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
