use crate::layer::pool::AvgPool2dSpec;
use crate::layer::pool::MaxPool2dSpec;
use crate::layer::upsample::UpsampleSpec;
use proptest::prelude::*;

use crate::network::Network;
use crate::network::tests::passes;
use crate::network::{LayerSpec, NetworkSpec};
use crate::rng::Key;
use crate::{Kernels, parallel};

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// The fast forms do the reference's operations in the reference's order.
    #[test]
    fn pools_and_upsampling_have_the_bits_of_the_reference(
        (kind, kernel, stride) in (0..3_usize, 1..4_usize, 1..4_usize),
        (channels, height, width, samples) in (1..4_usize, 3..40_usize, 3..40_usize, 1..3_usize),
        ties in any::<bool>(),
    ) {
        let layer = match kind {
            0 => LayerSpec::MaxPool2d(MaxPool2dSpec { kernel, stride: Some(stride) }),
            1 => LayerSpec::AvgPool2d(AvgPool2dSpec { kernel, stride: Some(stride) }),
            _ => LayerSpec::Upsample(UpsampleSpec { scale: stride }),
        };
        let network = Network::new(&NetworkSpec::new(&[channels, height, width], vec![layer])).unwrap();
        let mut stream = Key::new(1).purpose("pool").stream();
        let mut values = |len: usize| -> Vec<f32> {
            let mut value = || {
                let x = stream.range(-1.0, 1.0) as f32;
                if ties { (2.0 * x).round() } else { x }
            };
            (0..len).map(|_| value()).collect()
        };
        let x = values(samples * network.input_len());
        let d_y = values(samples * network.output_len());
        let reference = passes(&network, &[], &x, &d_y, Kernels::Reference);
        for threads in [1, 2, 7] {
            let fast = parallel::with_threads(threads, || passes(&network, &[], &x, &d_y, Kernels::Fast));
            prop_assert_eq!(&fast, &reference, "{} threads", threads);
        }
    }
}
