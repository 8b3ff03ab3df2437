use super::*;
use crate::layer::upsample::UpsampleSpec;
use crate::model::{Grads, Model, Pass};
use crate::optim::Optimizer;
use crate::rng::Key;
use crate::verify::{Bundle, FromBundle};
use crate::{Kernels, Scalar};

fn bundles() -> Vec<Bundle> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/reference");
    let mut all: Vec<Bundle> = std::fs::read_dir(folder)
        .unwrap()
        .map(|e| Bundle::read(e.unwrap().path()).unwrap())
        .filter(|b| b.family() == "network")
        .collect();
    all.sort_by_key(Bundle::name);
    all
}

fn worst(ours: &[f64], theirs: &[f64], floor: f64) -> f64 {
    let scale = theirs.iter().fold(floor, |a, v| a.max(v.abs()));
    ours.iter()
        .zip(theirs)
        .fold(0.0_f64, |a, (x, y)| a.max((x - y).abs() / scale))
}

/// What a network computes: output, input gradient, parameter gradient.
pub(crate) fn passes<T: Scalar>(
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
    network.compute_forward(params, &x, &pass, &mut tape);
    let y = network.output(&tape).to_vec();
    let mut d_params = vec![T::ZERO; params.len()];
    let mut d_x = vec![T::ZERO; x.len()];
    let grads = Grads::both(&mut d_params, &mut d_x);
    network.compute_backward(params, &x, &pass, &mut tape, d_y, grads);
    [y, d_x, d_params]
}

#[test]
fn every_network_bundle_agrees_with_pytorch_in_f64() {
    let all = bundles();
    assert!(all.len() >= 20, "{} bundles", all.len());
    for bundle in all {
        let case = Network::from_bundle(&bundle).unwrap();
        let (model, params, input) = (&case.model, &case.params, &case.input);
        let pass = Pass::training(Key::new(0));
        let mut tape = NetworkTape::default();
        model.compute_forward(params, input, &pass, &mut tape);
        let y = model.output(&tape).to_vec();
        let name = bundle.name();
        let out = &bundle.array("output/y").unwrap().values;
        assert!(
            worst(&y, out, 0.0) < 1e-10,
            "{name} output {}",
            worst(&y, out, 0.0)
        );
        let mut d_y = vec![0.0; y.len()];
        let loss = bundle.loss.compute(&y, &case.target, Some(&mut d_y));
        let theirs = bundle.array("output/loss").unwrap().values[0];
        assert!((loss - theirs).abs() < 1e-10 * theirs.abs(), "{name} loss");
        let mut d_params = vec![0.0; params.len()];
        let mut d_input = vec![0.0; input.len()];
        let grads = Grads::both(&mut d_params, &mut d_input);
        model.compute_backward(params, input, &pass, &mut tape, &d_y, grads);
        let oracle = bundle.flat(model, "grad").unwrap();
        let largest = oracle.iter().fold(0.0_f64, |a, g| a.max(g.abs()));
        for t in model.layout().tensors() {
            let error = worst(&d_params[t.range()], &oracle[t.range()], 1e-6 * largest);
            assert!(error < 1e-10, "{name} {} {error}", t.name);
        }
        let error = worst(
            &d_input,
            &bundle.array("grad_input/x").unwrap().values,
            1e-6 * largest,
        );
        assert!(error < 1e-10, "{name} input gradient {error}");
    }
}

/// Every loss on the way, and the parameters at the end, of all convolutional bundles: ten steps
/// with each optimizer, three of the large one, and a hundred of `cnn_100_steps`. In f64, so that
/// what is left is the order of sums: 1e-10 of the tensor's largest element, as for one gradient.
/// Adam divides gradients near 0 by their own size, where 1e-10 of the gradient is not 1e-10 of
/// the step: three digits more. (In f32, within predicted bounds, the verifier's own test.)
#[test]
fn one_step_ten_and_a_hundred_follow_pytorch() {
    let mut longest = 0;
    for bundle in bundles() {
        let name = bundle.name();
        if !name.starts_with("cnn_") && !name.starts_with("unet_") {
            continue;
        }
        let case = Network::from_bundle(&bundle).unwrap();
        let (model, input) = (&case.model, &case.input);
        let pass = Pass::training(Key::new(0)).reference();
        let mut tape = NetworkTape::default();
        for (kind, optimizer) in &bundle.optimizers {
            // Clipping is the trainer's; running statistics are not part of the gradient.
            if optimizer.clip.is_some() {
                continue;
            }
            longest = longest.max(bundle.steps);
            let limit = if kind.starts_with("adam") {
                1e-7
            } else {
                1e-10
            };
            let mut params = case.params.clone();
            let mut state = Optimizer::new(optimizer.spec, params.len());
            let losses = &bundle.array(&format!("losses/{kind}")).unwrap().values;
            assert_eq!(losses.len(), bundle.steps);
            let mut d_params = vec![0.0; params.len()];
            for (step, &theirs) in losses.iter().enumerate() {
                model.compute_forward(&params, input, &pass, &mut tape);
                let y = model.output(&tape).to_vec();
                let mut d_y = vec![0.0; y.len()];
                let loss = bundle.loss.compute(&y, &case.target, Some(&mut d_y));
                assert!(
                    (loss - theirs).abs() <= limit * losses[0],
                    "{name} {kind}, step {step}: {loss} for {theirs}"
                );
                let grads = Grads::params(&mut d_params);
                model.compute_backward(&params, input, &pass, &mut tape, &d_y, grads);
                state.step(&mut params, &d_params, model.layout(), optimizer.spec.lr());
            }
            let after = bundle.flat(model, &format!("after/{kind}")).unwrap();
            let error = worst(&params, &after, 0.0);
            assert!(error <= limit, "{name}: after {kind} {error:e}");
        }
    }
    assert_eq!(longest, 100);
}

/// A border or a scale beyond reason is an error that names it, not an allocation.
#[test]
fn sizes_beyond_reason_are_named() {
    let conv = |padding, kernel| LayerSpec::conv2d(4, kernel, padding);
    for (layer, named) in [
        (conv(usize::MAX / 2, 3), "padding"),
        (conv(1_000_000_000, 3), "padding"),
        (conv(40_000, 3), "a padded image"),
        (conv(1, usize::MAX), "kernel"),
        (
            LayerSpec::Upsample(UpsampleSpec { scale: usize::MAX }),
            "scale",
        ),
        (
            LayerSpec::Upsample(UpsampleSpec { scale: 60_000 }),
            "values a sample",
        ),
    ] {
        let text = format!("{layer:?}");
        let spec = NetworkSpec::new(&[1, 28, 28], vec![layer]);
        let error = Network::new(&spec).err().expect(&text).to_string();
        assert!(error.contains(named), "{text}: {error}");
    }
}

/// The kinds are compared with PyTorch where their `torch.py` says what they are there.
#[test]
fn every_kind_has_its_counterpart_in_pytorch() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/src/layer");
    let counterparts: String = std::fs::read_dir(folder)
        .unwrap()
        .filter_map(|e| std::fs::read_to_string(e.unwrap().path().join("torch.py")).ok())
        .collect();
    let mut kinds = std::collections::BTreeSet::new();
    for (_, _, layers, ..) in crate::layer::small_models() {
        let layers: Vec<LayerSpec> = serde_json::from_str(layers).unwrap();
        kinds.extend(layers.iter().map(LayerSpec::kind));
    }
    for (_, spec) in crate::layer::small_graphs() {
        let spec: crate::graph::GraphSpec = serde_json::from_str(spec).unwrap();
        kinds.extend(spec.layers.iter().map(LayerSpec::kind));
    }
    assert!(kinds.len() >= 35, "{kinds:?}");
    for kind in kinds {
        let quoted = format!("\"{kind}\"");
        assert!(counterparts.contains(&quoted), "no torch.py has {kind}");
    }
}

#[test]
fn a_layer_of_graphs_asks_for_one() {
    for layer in [
        LayerSpec::gcn(2),
        LayerSpec::mean_pool(),
        LayerSpec::embedding(3, 2),
    ] {
        let spec = NetworkSpec::new(&[3], vec![layer.clone()]);
        let message = Network::new(&spec).err().unwrap().to_string();
        let kind = layer.kind();
        assert!(
            message.contains(&format!("layers[0] ({kind})")),
            "{message}"
        );
        assert!(message.contains("family = \"graph\""), "{message}");
    }
}

/// Five values into two inputs were taken, and a short target divided by zero.
#[test]
fn wrong_lengths_from_outside_are_errors_and_change_nothing() {
    let spec = NetworkSpec::new(&[2], vec![LayerSpec::dense(3)]);
    let network = Network::new(&spec).unwrap();
    let params = network.init(1);
    let five = vec![0.5; 5];
    invalid(
        network.predict(&params, &five).unwrap_err(),
        &["5 values", "multiple of 2"],
    );
    invalid(
        network.predict(&params[1..], &[0.5; 4]).unwrap_err(),
        &["8 values", "9"],
    );
    let mut tape = Default::default();
    let pass = Pass::inference();
    // By name and through the trait; forward, and backward after it.
    let error = network.forward(&params, &five[..], &pass, &mut tape);
    invalid(error.unwrap_err(), &["5 values", "multiple of 2"]);
    let error = Model::forward(&network, &params, &five, &pass, &mut tape);
    invalid(error.unwrap_err(), &["5 values", "multiple of 2"]);
    let error = network.forward(&params[1..], &five[..4], &pass, &mut tape);
    invalid(error.unwrap_err(), &["8 values", "9"]);
    network
        .forward(&params, &five[..4], &pass, &mut tape)
        .unwrap();
    let (mut d_params, mut d_x) = ([0.0; 9], [0.0; 4]);
    let mut backward = |x: &[f32], d_y: &[f32], d_params: &mut [f32], d_x: &mut [f32]| {
        let by_name = network.backward(
            &params,
            x,
            &pass,
            &mut tape,
            d_y,
            Grads::both(d_params, d_x),
        );
        let vector = x.to_vec();
        let grads = Grads::both(d_params, d_x);
        let by_trait = Model::backward(&network, &params, &vector, &pass, &mut tape, d_y, grads);
        assert_eq!(by_name.is_err(), by_trait.is_err());
        by_name
    };
    let four = &five[..4];
    let d_y = [0.0; 6];
    backward(four, &d_y, &mut d_params, &mut d_x).unwrap();
    for (error, says) in [
        (
            backward(&five, &d_y, &mut d_params, &mut d_x),
            ["5 values", "multiple of 2"],
        ),
        (
            backward(&five[..2], &d_y, &mut d_params, &mut d_x),
            ["tape's output", "3"],
        ),
        (
            backward(four, &d_y[1..], &mut d_params, &mut d_x),
            ["5 values", "6"],
        ),
        (
            backward(four, &d_y, &mut d_params[1..], &mut d_x),
            ["8 values", "9"],
        ),
        (
            backward(four, &d_y, &mut d_params, &mut d_x[1..]),
            ["3 values", "4"],
        ),
    ] {
        invalid(error.unwrap_err(), &says);
    }
    assert_eq!(network.predict(&params, &[0.5; 4]).unwrap().len(), 6);
}

/// An error of what was given, whose text has all these parts.
fn invalid(error: crate::Error, parts: &[&str]) {
    assert!(matches!(error, crate::Error::Invalid { .. }), "{error:?}");
    let text = error.to_string();
    assert!(parts.iter().all(|p| text.contains(p)), "{text}");
}

#[test]
fn targets_of_a_wrong_length_are_errors() {
    use crate::{Loss, Target};
    let y = [0.0_f32; 6];
    for loss in [
        Loss::CrossEntropy,
        Loss::Mse,
        Loss::BceLogits,
        Loss::SumSquares,
    ] {
        let error = loss.evaluate(&y, &Target::default(), None).unwrap_err();
        invalid(error, &["target"]);
    }
    let target = Target::classes(vec![0, 2]);
    invalid(
        Loss::CrossEntropy
            .evaluate(&y, &target, Some(&mut [0.0; 5]))
            .unwrap_err(),
        &["5 values"],
    );
    assert!(Loss::CrossEntropy.evaluate(&y, &target, None).unwrap() > 1.0);
}

/// With what stands beside them.
#[test]
fn weights_come_back_as_they_were_saved() {
    use crate::train::{load_weights, save_weights};
    let spec = NetworkSpec::new(&[2], vec![LayerSpec::dense(3)]);
    let mut network = Network::new(&spec).unwrap();
    let params = network.init(1);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("w.safetensors");
    let beside = vec![("note".to_string(), "mine".to_string())];
    save_weights(&path, &network, &params, &beside).unwrap();
    let (read, metadata) = load_weights(&path, &mut network).unwrap();
    assert_eq!((read, metadata), (params.clone(), beside));
    invalid(
        save_weights(&path, &network, &params[1..], &Vec::new()).unwrap_err(),
        &["8 values"],
    );
}

/// Shards that are computed at once give the bits of shards that are computed one by one: outputs, the
/// gradient of the input, and the parameters' gradients added along the tree.
#[test]
fn shards_computed_at_once_have_the_bits_of_shards_computed_alone() {
    use crate::group::{Segments, Tree, cut};
    let widths = [(3, 5), (21, 70), (64, 130)];
    // Shards of 8, around a block of samples, of half a block; trees of every shape.
    let batches = [
        (16, 2),
        (65, 3),
        (128, 2),
        (127, 2),
        (195, 3),
        (256, 8),
        (330, 5),
        (113, 7),
        (99, 6),
    ];
    for (inputs, hidden) in widths {
        for degree in [1, 3, 5] {
            let kan = LayerSpec::kan(hidden, 6, degree, [-2.0, 2.0]);
            let last = LayerSpec::kan(9, 5, 3, [-1.0, 1.0]);
            let layers = vec![
                LayerSpec::dense(hidden),
                LayerSpec::gelu(),
                kan,
                LayerSpec::dense(20),
                last,
            ];
            let network = Network::new(&NetworkSpec::new(&[inputs], layers)).unwrap();
            assert!(network.joins_shards());
            let params = network.init(1);
            for (samples, shards) in batches {
                let mut stream = Key::new(samples as u64).stream();
                let mut numbers =
                    |len| -> Vec<f32> { (0..len).map(|_| stream.normal() as f32).collect() };
                let (x, d_y) = (numbers(samples * inputs), numbers(samples * 9));
                let run = |rows: std::ops::Range<usize>, pass: Pass| {
                    let (x, d_y) = (
                        x[rows.start * inputs..rows.end * inputs].to_vec(),
                        &d_y[rows.start * 9..rows.end * 9],
                    );
                    let mut tape = Default::default();
                    network.forward(&params, &x, &pass, &mut tape).unwrap();
                    let (mut d_params, mut d_x) = (vec![0.0; params.len()], vec![0.0; x.len()]);
                    let grads = Grads::both(&mut d_params, &mut d_x);
                    network
                        .backward(&params, &x, &pass, &mut tape, d_y, grads)
                        .unwrap();
                    (network.output(&tape).to_vec(), d_x, d_params)
                };
                let pass = Pass::training(Key::new(0));
                let alone = |shard| run(cut(samples, shard, shards), pass);
                let (mut y, mut d_x) = (Vec::new(), Vec::new());
                let d_params = Tree::new(shards).sum_all(
                    |shard| {
                        let (one_y, one_d_x, d_params) = alone(shard);
                        y.extend(one_y);
                        d_x.extend(one_d_x);
                        Some(d_params)
                    },
                    |a: Vec<f32>, b| a.iter().zip(&b).map(|(a, b)| a + b).collect(),
                );
                let bits = |values: &[f32]| values.iter().map(|v| v.to_bits()).collect::<Vec<_>>();
                for threads in [1, 2, 7] {
                    let segments = Segments::new(samples, shards, 0..shards);
                    let at_once = crate::parallel::with_threads(threads, || {
                        run(0..samples, pass.of_segments(segments))
                    });
                    let what = format!(
                        "{inputs}-{hidden}, degree {degree}, {samples} in {shards}, {threads} threads"
                    );
                    assert!(bits(&at_once.0) == bits(&y), "output: {what}");
                    assert!(bits(&at_once.1) == bits(&d_x), "d_x: {what}");
                    for tensor in network.layout().tensors() {
                        let range = tensor.range();
                        let expected = d_params.as_ref().unwrap();
                        assert!(
                            bits(&at_once.2[range.clone()]) == bits(&expected[range]),
                            "{}: {what}",
                            tensor.name
                        );
                    }
                }
            }
        }
    }
}
