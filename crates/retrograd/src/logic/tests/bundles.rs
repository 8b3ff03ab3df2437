//! The bundles of PyTorch and the notebook's own run.

use crate::logic::{LogicBatch, LogicCa, LogicSpec, WiringKind, replay};
use crate::model::{Grads, Model, Pass};
use crate::optim::Optimizer;
use crate::scalar::cast;
use crate::verify::{Bundle, Case, FromBundle, Options};
use crate::{Loss, Target};

fn read(name: &str) -> Bundle {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/reference");
    Bundle::read(format!("{folder}/{name}.safetensors")).unwrap()
}

/// The largest difference, relative to the largest element.
fn worst(got: &[f64], exact: &[f64]) -> f64 {
    assert_eq!(got.len(), exact.len());
    let scale = exact.iter().fold(0.0_f64, |m, x| m.max(x.abs()));
    let difference = got.iter().zip(exact).map(|(g, e)| (g - e).abs());
    difference.fold(0.0_f64, f64::max) / scale.max(1e-300)
}

fn worst_per_tensor(model: &LogicCa, got: &[f64], exact: &[f64]) -> f64 {
    let tensors = model.layout().tensors().iter();
    tensors
        .map(|t| worst(&got[t.range()], &exact[t.range()]))
        .fold(0.0, f64::max)
}

#[test]
fn the_reference_equals_pytorch_in_f64() {
    for name in [
        "logic_life_small",
        "logic_checker_small",
        "logic_async_small",
        "logic_checkerboard",
    ] {
        let bundle = read(name);
        let Case {
            model,
            params,
            input,
            target,
        } = LogicCa::from_bundle(&bundle).unwrap();
        let pass = Pass::inference().reference();
        let mut tape = Default::default();
        let mut d_output = vec![0.0; input.state.len()];
        let mut d_params = vec![0.0; params.len()];
        for (kind, optimizer) in &bundle.optimizers {
            let mut params = params.clone();
            let mut state = Optimizer::new(optimizer.spec, params.len());
            for step in 0..bundle.steps {
                model.compute_forward(&params, &input, &pass, &mut tape);
                let output = model.output(&tape);
                let loss = Loss::SumSquares.compute(output, &target, Some(&mut d_output));
                if step == 0 {
                    let y = &bundle.array("output/y").unwrap().values;
                    assert!(
                        worst(output, y) < 1e-10,
                        "{name}: output {:e}",
                        worst(output, y)
                    );
                }
                let exact = bundle.array(&format!("losses/{kind}")).unwrap().values[step];
                assert!(
                    (loss - exact).abs() < 1e-10 * exact,
                    "{name} {kind}: {loss} {exact}"
                );
                let grads = Grads::params(&mut d_params);
                model.compute_backward(&params, &input, &pass, &mut tape, &d_output, grads);
                if step == 0 {
                    let exact = bundle.flat(&model, "grad").unwrap();
                    let error = worst_per_tensor(&model, &d_params, &exact);
                    assert!(error < 1e-10, "{name}: gradient {error:e}");
                }
                state.step(&mut params, &d_params, model.layout(), optimizer.spec.lr());
            }
            let exact = bundle.flat(&model, &format!("after/{kind}")).unwrap();
            let error = worst_per_tensor(&model, &params, &exact);
            // AdamW divides gradients near 0 by their own size: 1e-10 of the gradient is not 1e-10
            // of the step. Three digits more are
            // allowed for that.
            let limit = if kind == "sgd" { 1e-10 } else { 1e-7 };
            assert!(error < limit, "{name}: after {kind} {error:e}");
        }
    }
}

#[test]
fn the_fast_path_is_as_accurate_as_pytorch_in_f32() {
    for name in [
        "logic_life_small",
        "logic_checker_small",
        "logic_async_small",
        "logic_checkerboard",
    ] {
        let bundle = read(name);
        let Case {
            model,
            params,
            input,
            target,
        } = LogicCa::from_bundle(&bundle).unwrap();
        let params: Vec<f32> = cast(&params);
        let input: LogicBatch<f32> = model.cast_input(&input);
        let target: Target<f32> = target.cast();
        let mut tape = Default::default();
        let mut d_output = vec![0.0; input.state.len()];
        let mut d_params = vec![0.0; params.len()];
        let pass = Pass::inference();
        model.compute_forward(&params, &input, &pass, &mut tape);
        Loss::SumSquares.compute(model.output(&tape), &target, Some(&mut d_output));
        let grads = Grads::params(&mut d_params);
        model.compute_backward(&params, &input, &pass, &mut tape, &d_output, grads);
        let exact = bundle.flat(&model, "grad").unwrap();
        let torch = bundle.flat(&model, "grad32").unwrap();
        let ours = worst_per_tensor(&model, &cast(&d_params), &exact);
        let theirs = worst_per_tensor(&model, &torch, &exact);
        // Twice PyTorch's own error, and at least a few units in the last place.
        assert!(
            ours < 2.0 * theirs + 5e-7,
            "{name}: {ours:e}, PyTorch {theirs:e}"
        );
    }
}

#[test]
fn the_notebooks_first_five_steps() {
    let report = replay(&read("run_logic_checkerboard"), &Options::default()).unwrap();
    assert!(report.passed(), "{}", report.table());
    // Three perception layers and sixteen update layers, gradients and logits; two kinds of loss.
    assert_eq!(report.rows.len(), 2 * 19 + 2);
}

#[test]
fn the_notebooks_wires_come_from_its_seed() {
    let bundle = read("run_logic_checkerboard");
    let recorded = LogicCa::from_bundle(&bundle).unwrap().model;
    let spec = LogicSpec {
        wiring: WiringKind::Jax,
        ..recorded.spec().clone()
    };
    let drawn = LogicCa::new(spec.clone(), 23).unwrap();
    assert_eq!(drawn.perception_wires(), recorded.perception_wires());
    assert_eq!(drawn.update_wires(), recorded.update_wires());
    assert_ne!(
        LogicCa::new(spec, 24).unwrap().update_wires(),
        recorded.update_wires()
    );
}
