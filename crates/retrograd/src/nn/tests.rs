use super::*;
use crate::model::{Grads, Model, Pass};
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
pub(super) fn passes<T: Scalar>(
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

#[test]
fn every_network_bundle_agrees_with_pytorch_in_f64() {
    let all = bundles();
    assert!(all.len() >= 20, "{} bundles", all.len());
    for bundle in all {
        let case = Network::from_bundle(&bundle).unwrap();
        let (model, params, input) = (&case.model, &case.params, &case.input);
        let pass = Pass::training(Key::new(0));
        let mut tape = NetworkTape::default();
        model.forward(params, input, &pass, &mut tape);
        let y = model.output(&tape).to_vec();
        let name = bundle.name();
        let out = &bundle.array("output/y").unwrap().values;
        assert!(
            worst(&y, out, 0.0) < 1e-10,
            "{name} output {}",
            worst(&y, out, 0.0)
        );
        let mut d_y = vec![0.0; y.len()];
        let loss = bundle.loss.evaluate(&y, &case.target, Some(&mut d_y));
        let theirs = bundle.array("output/loss").unwrap().values[0];
        assert!((loss - theirs).abs() < 1e-10 * theirs.abs(), "{name} loss");
        let mut d_params = vec![0.0; params.len()];
        let mut d_input = vec![0.0; input.len()];
        let grads = Grads::both(&mut d_params, &mut d_input);
        model.backward(params, input, &pass, &mut tape, &d_y, grads);
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
