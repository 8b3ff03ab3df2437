use super::*;
use crate::model::{Batch, Grads, Pass};
use crate::optim::{Optimizer, clip_global_norm};
use crate::rng::Key;
use crate::verify::{Bundle, Case, FromBundle};
use crate::{Scalar, scalar};

fn bundles(family: &str) -> Vec<Bundle> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/reference");
    let mut all: Vec<Bundle> = std::fs::read_dir(folder)
        .unwrap()
        .map(|e| Bundle::read(e.unwrap().path()).unwrap())
        .filter(|b| b.family() == family)
        .collect();
    all.sort_by_key(Bundle::name);
    all
}

fn worst(ours: &[f64], theirs: &[f64], floor: f64) -> f64 {
    let scale = theirs.iter().fold(floor, |a, v| a.max(v.abs()));
    assert_eq!(ours.len(), theirs.len());
    ours.iter()
        .zip(theirs)
        .fold(0.0_f64, |a, (x, y)| a.max((x - y).abs() / scale))
}

/// Output, loss, gradients and trajectories against the bundle.
fn agrees<M: FromBundle, T: Scalar>(bundle: &Bundle, tolerance: f64) {
    let name = bundle.name();
    let case: Case<M> = M::from_bundle(bundle).unwrap();
    let model = &case.model;
    let params: Vec<T> = scalar::cast(&case.params);
    let input = model.cast_input::<f64, T>(&case.input);
    let target = case.target.cast::<T>();
    let pass = Pass::training(Key::new(0));
    let mut tape = M::Tape::default();
    let f64s = |x: &[T]| -> Vec<f64> { scalar::cast(x) };
    model.forward(&params, &input, &pass, &mut tape);
    let y = model.output(&tape).to_vec();
    let out = &bundle.array("output/y").unwrap().values;
    let error = worst(&f64s(&y), out, 0.0);
    assert!(error < tolerance, "{name} output {error:e}");
    let mut d_y = vec![T::ZERO; y.len()];
    let loss = bundle.loss.evaluate(&y, &target, Some(&mut d_y)).to_f64();
    let theirs = bundle.array("output/loss").unwrap().values[0];
    assert!(
        (loss - theirs).abs() < tolerance * theirs.abs(),
        "{name} loss"
    );
    let mut d_params = vec![T::ZERO; params.len()];
    let mut d_input = vec![T::ZERO; input.values().len()];
    let grads = Grads::both(&mut d_params, &mut d_input);
    model.backward(&params, &input, &pass, &mut tape, &d_y, grads);
    let oracle = bundle.flat(model, "grad").unwrap();
    let largest = oracle.iter().fold(0.0_f64, |a, g| a.max(g.abs()));
    for t in model.layout().tensors() {
        let ours = f64s(&d_params[t.range()]);
        let error = worst(&ours, &oracle[t.range()], 1e-3 * largest);
        assert!(error < tolerance, "{name} {} {error:e}", t.name);
    }
    if let Some(theirs) = bundle.get("grad_input/x") {
        let ours = f64s(&d_input[..theirs.values.len()]);
        let error = worst(&ours, &theirs.values, 1e-3 * largest);
        assert!(error < tolerance, "{name} input gradient {error:e}");
    }
    for (optimizer_name, optimizer) in &bundle.optimizers {
        let mut params = params.clone();
        let mut state = Optimizer::new(optimizer.spec, params.len());
        let losses = &bundle
            .array(&format!("losses/{optimizer_name}"))
            .unwrap()
            .values;
        for step in 0..bundle.steps {
            model.forward(&params, &input, &pass, &mut tape);
            let loss = bundle
                .loss
                .evaluate(model.output(&tape), &target, Some(&mut d_y));
            let error = (loss.to_f64() - losses[step]).abs() / losses[step].abs();
            assert!(
                error < 10.0 * tolerance,
                "{name} {optimizer_name} {step} {error:e}"
            );
            let grads = Grads::params(&mut d_params);
            model.backward(&params, &input, &pass, &mut tape, &d_y, grads);
            if let Some(clip) = optimizer.clip {
                clip_global_norm(&mut d_params, model.layout(), clip);
            }
            state.step(&mut params, &d_params, model.layout(), optimizer.spec.lr());
        }
        let theirs = bundle
            .flat(model, &format!("after/{optimizer_name}"))
            .unwrap();
        let largest = theirs.iter().fold(0.0_f64, |a, g| a.max(g.abs()));
        for t in model.layout().tensors() {
            let ours = f64s(&params[t.range()]);
            let error = worst(&ours, &theirs[t.range()], 1e-2 * largest);
            // Adam divides by the root of small squares: what is a rounding in the gradient is
            // amplified in the parameter.
            assert!(
                error < 1e3 * tolerance,
                "{name} {optimizer_name} {} {error:e}",
                t.name
            );
        }
    }
}

#[test]
fn every_graph_bundle_agrees_with_pytorch_in_f64() {
    let all = bundles("graph");
    assert!(all.len() >= 9, "{} bundles", all.len());
    for bundle in all {
        agrees::<GraphNetwork, f64>(&bundle, 1e-10);
    }
}

#[test]
fn every_graph_bundle_agrees_with_pytorch_in_f32_on_the_fast_path() {
    for bundle in bundles("graph") {
        agrees::<GraphNetwork, f32>(&bundle, 2e-5);
    }
}

#[test]
fn every_dag_bundle_agrees_with_pytorch() {
    let all = bundles("dag");
    assert!(all.len() >= 2, "{} bundles", all.len());
    for bundle in all {
        agrees::<DagNN, f64>(&bundle, 1e-10);
        agrees::<DagNN, f32>(&bundle, 2e-5);
    }
}
