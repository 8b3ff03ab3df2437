//! Central differences, the fast path against the reference, and wrong gradients that must be seen.

use super::{case, small};
use crate::logic::BoundaryCondition::{Periodic, Zero};
use crate::logic::reference;
use crate::logic::{LogicBatch, LogicCa, Wires};
use crate::model::{Grads, Model, Pass};
use crate::rng::Key;
use crate::scalar::cast;
use crate::verify::Rounded;
use crate::{Scalar, Target};

/// A linear loss with weights of all sizes: every output matters, differently.
fn weights<T: Scalar>(n: usize) -> Vec<T> {
    let mut stream = Key::new(77).stream();
    (0..n)
        .map(|_| T::from_f64(f64::from(stream.range(-1.0, 1.0) as f32)))
        .collect()
}

fn gradients<T: Scalar>(
    model: &LogicCa,
    params: &[T],
    input: &LogicBatch<T>,
    pass: &Pass,
) -> (Vec<T>, Vec<T>) {
    let mut tape = Default::default();
    let (mut d_params, mut d_input) = (
        vec![T::ZERO; params.len()],
        vec![T::ZERO; input.state.len()],
    );
    model.compute_forward(params, input, pass, &mut tape);
    let d_output = weights(input.state.len());
    let grads = Grads::both(&mut d_params, &mut d_input);
    model.compute_backward(params, input, pass, &mut tape, &d_output, grads);
    (d_params, d_input)
}

#[test]
fn every_gradient_equals_its_central_difference() {
    for (boundary, rate) in [(Periodic, 1.0), (Zero, 1.0), (Periodic, 0.6), (Zero, 0.6)] {
        let model = small(boundary, 3, rate);
        let (params, input) = case(&model, [2, 3, 4], 1);
        let mut params: Vec<f64> = cast(&params);
        let mut input: LogicBatch<f64> = model.cast_input(&input);
        let pass = Pass::inference().reference();
        let (d_params, d_input) = gradients(&model, &params, &input, &pass);
        let w: Vec<f64> = weights(input.state.len());
        let mut tape = Default::default();
        let mut loss = |params: &[f64], input: &LogicBatch<f64>| -> f64 {
            model.compute_forward(params, input, &pass, &mut tape);
            model.output(&tape).iter().zip(&w).map(|(y, w)| y * w).sum()
        };
        // The error of a central difference is h²·f‴/6 + ε·f/h: 1e-8 of the largest gradient, and
        // 2.2e-16·10/1e-4 from rounding, the loss being below 10.
        let h = 1e-4;
        let close = |exact: f64, scale: f64, d: f64| (exact - d).abs() < 1e-8 * scale + 2.2e-11;
        for tensor in model.layout().tensors() {
            let largest = d_params[tensor.range()]
                .iter()
                .fold(0.0_f64, |m, d| m.max(d.abs()));
            assert!(largest > 1e-6, "{} has no power: {largest}", tensor.name);
        }
        let scale = |d: &[f64]| d.iter().fold(0.0_f64, |m, x| m.max(x.abs()));
        for i in 0..params.len() {
            let at = params[i];
            params[i] = at + h;
            let up = loss(&params, &input);
            params[i] = at - h;
            let down = loss(&params, &input);
            params[i] = at;
            let d = (up - down) / (2.0 * h);
            assert!(
                close(d_params[i], scale(&d_params), d),
                "{i}: {} {d}",
                d_params[i]
            );
        }
        for i in 0..input.state.len() {
            let at = input.state[i];
            input.state[i] = at + h;
            let up = loss(&params, &input);
            input.state[i] = at - h;
            let down = loss(&params, &input);
            input.state[i] = at;
            let d = (up - down) / (2.0 * h);
            assert!(
                close(d_input[i], scale(&d_input), d),
                "{i}: {} {d}",
                d_input[i]
            );
        }
    }
}

/// Error over predicted bound, the worst of all elements: the reference is run on numbers that
/// round at random, and five times the spread, at least its mean over the tensor, is allowed.
fn over_bound(
    model: &LogicCa,
    params: &[f32],
    input: &LogicBatch<f32>,
    got: &(Vec<f32>, Vec<f32>),
) -> f64 {
    let reference = Pass::inference().reference();
    let exact = gradients::<f64>(model, &cast(params), &model.cast_input(input), &reference);
    let runs: Vec<(Vec<f64>, Vec<f64>)> = (0..16)
        .map(|seed| {
            Rounded::seed(seed);
            let (p, i) =
                gradients::<Rounded>(model, &cast(params), &model.cast_input(input), &reference);
            (cast(&p), cast(&i))
        })
        .collect();
    let ratio = |got: &[f32], exact: &[f64], run: &dyn Fn(usize) -> Vec<f64>| -> f64 {
        let runs: Vec<Vec<f64>> = (0..16).map(run).collect();
        let spread: Vec<f64> = (0..exact.len())
            .map(|i| (runs.iter().map(|r| (r[i] - exact[i]).powi(2)).sum::<f64>() / 16.0).sqrt())
            .collect();
        let floor = (spread.iter().map(|s| s * s).sum::<f64>() / spread.len() as f64).sqrt();
        let errors = got.iter().zip(exact).zip(&spread);
        errors
            .map(|((&g, e), s)| (f64::from(g) - e).abs() / (5.0 * s.max(floor)))
            .fold(0.0, f64::max)
    };
    let tensors = model.layout().tensors().iter();
    let params = tensors.map(|t| {
        let range = t.range();
        ratio(&got.0[range.clone()], &exact.0[range.clone()], &|r| {
            runs[r].0[range.clone()].to_vec()
        })
    });
    let params = params.fold(0.0, f64::max);
    params.max(ratio(&got.1, &exact.1, &|r| runs[r].1.clone()))
}

#[test]
fn the_fast_path_stays_within_the_predicted_bound() {
    // Widths around sixteen, one cell, all remainders of a block.
    for ([b, h, w], boundary, rate) in [
        ([2, 5, 7], Periodic, 1.0),
        ([1, 3, 16], Zero, 1.0),
        ([3, 4, 17], Zero, 0.6),
        ([1, 1, 1], Periodic, 1.0),
        ([2, 2, 33], Periodic, 0.3),
    ] {
        let model = small(boundary, 3, rate);
        let (params, input) = case(&model, [b, h, w], 9);
        let fast = gradients(&model, &params, &input, &Pass::inference());
        let ratio = over_bound(&model, &params, &input, &fast);
        assert!(ratio < 1.0, "{b}×{h}×{w}: {ratio} of the bound");
        assert!(
            ratio > 1e-3,
            "{b}×{h}×{w}: the bound is {ratio} times too wide"
        );
    }
}

#[test]
fn every_kind_of_wiring_runs_fast() {
    let mut spec = small(Zero, 2, 1.0).spec().clone();
    for random in [false, true] {
        spec.per_kernel_wiring = !random;
        if random {
            spec.wiring = crate::logic::WiringKind::Random;
        }
        let model = LogicCa::new(spec.clone(), 4).unwrap();
        let (params, input) = case(&model, [1, 4, 5], 2);
        let fast = gradients(&model, &params, &input, &Pass::inference());
        let ratio = over_bound(&model, &params, &input, &fast);
        assert!(ratio < 1.0, "random {random}: {ratio}");
    }
}

#[test]
fn frozen_tensors_get_no_gradient_and_change_no_other() {
    let mut model = small(Zero, 2, 1.0);
    let (params, input) = case(&model, [1, 4, 5], 2);
    let (free, d_input) = gradients(&model, &params, &input, &Pass::inference());
    model.layout_mut().freeze("perception.*").unwrap();
    model.layout_mut().freeze("update.1.logits").unwrap();
    for pass in [Pass::inference(), Pass::inference().reference()] {
        let (frozen, d_same) = gradients(&model, &params, &input, &pass);
        for tensor in model.layout().tensors() {
            let range = tensor.range();
            if tensor.frozen {
                assert!(frozen[range].iter().all(|&d| d == 0.0));
            } else if pass.kernels == crate::Kernels::Fast {
                assert_eq!(frozen[range.clone()], free[range]);
            }
        }
        if pass.kernels == crate::Kernels::Fast {
            assert_eq!(d_input, d_same);
        }
    }
}

#[test]
fn micro_batches_add_up() {
    let model = small(Zero, 2, 1.0);
    let (params, input) = case(&model, [1, 4, 5], 2);
    let pass = Pass::inference();
    let (once, _) = gradients(&model, &params, &input, &pass);
    let mut d_params = vec![1.0; params.len()];
    let mut tape = Default::default();
    model.compute_forward(&params, &input, &pass, &mut tape);
    let d_output = weights(input.state.len());
    let grads = Grads {
        params: Some(&mut d_params),
        input: None,
        accumulate: true,
    };
    model.compute_backward(&params, &input, &pass, &mut tape, &d_output, grads);
    for (d, once) in d_params.iter().zip(&once) {
        assert!((d - 1.0 - once).abs() <= 1e-6 * (1.0 + once.abs()));
    }
}

/// Backward by its own pieces, with one of them wrong or none.
fn by_pieces(
    model: &LogicCa,
    params: &[f32],
    input: &LogicBatch<f32>,
    mirrored: bool,
    second_term: bool,
) -> (Vec<f32>, Vec<f32>) {
    let mut tape = reference::Tape::<f64>::default();
    let params: Vec<f64> = cast(params);
    let input: LogicBatch<f64> = model.cast_input(input);
    model.soften(&params, &mut tape.p);
    reference::forward(model, &input, &mut tape);
    let channels = model.spec().channels;
    let mut h = vec![0.0; params.len()];
    let mut d_state: Vec<f64> = weights(input.state.len());
    for t in (0..model.spec().steps).rev() {
        let d_new = std::mem::replace(&mut d_state, vec![0.0; input.state.len()]);
        for cell in 0..input.state.len() / channels {
            let (y, x) = (cell / input.width % input.height, cell % input.width);
            let own = cell * channels..(cell + 1) * channels;
            if !input.fires(t, y, x) {
                for (d, g) in d_state[own.clone()].iter_mut().zip(&d_new[own]) {
                    *d += g;
                }
                continue;
            }
            let around = reference::neighbourhoods(model, &input, &tape.states[t], cell);
            let mut cell_gradients =
                reference::compute_cell_gradients(model, &tape.p, &around, &d_new[own]);
            if mirrored {
                for d in cell_gradients.d_neighbourhoods.chunks_exact_mut(9) {
                    d.reverse();
                }
            }
            reference::accumulate_gradients(
                model,
                &input,
                cell,
                &cell_gradients,
                &mut h,
                &mut d_state,
            );
        }
    }
    let mut d_params = vec![0.0; params.len()];
    for ((p, h), d) in tape
        .p
        .chunks(16)
        .zip(h.chunks(16))
        .zip(d_params.chunks_mut(16))
    {
        if second_term {
            reference::add_logit_gradient(p, h, d);
        } else {
            for i in 0..16 {
                d[i] = p[i] * h[i];
            }
        }
    }
    (cast(&d_params), cast(&d_state))
}

/// Wrong gradients: each is far outside the bound that the right one keeps.
#[test]
fn mutants_are_caught() {
    let model = small(Periodic, 3, 0.6);
    let (params, input) = case(&model, [2, 4, 5], 6);
    let pass = Pass::inference();
    let right = gradients(&model, &params, &input, &pass);
    assert!(over_bound(&model, &params, &input, &right) < 1.0);
    let caught = |name: &str, wrong: &(Vec<f32>, Vec<f32>)| {
        let ratio = over_bound(&model, &params, &input, wrong);
        assert!(ratio > 100.0, "{name} is within {ratio} times the bound");
    };

    let no_wrap = {
        let mut spec = model.spec().clone();
        spec.boundary = Zero;
        LogicCa::with_wires(
            spec,
            model.perception_wires().to_vec(),
            model.update_wires().to_vec(),
        )
    };
    caught(
        "a forgotten boundary wrap",
        &gradients(&no_wrap.unwrap(), &params, &input, &pass),
    );

    let swap = |w: &Wires| Wires {
        a: w.b.clone(),
        b: w.a.clone(),
    };
    let swapped = LogicCa::with_wires(
        model.spec().clone(),
        model.perception_wires().to_vec(),
        model.update_wires().iter().map(swap).collect(),
    );
    caught(
        "a and b swapped",
        &gradients(&swapped.unwrap(), &params, &input, &pass),
    );

    let mut late = input.clone();
    late.fire.as_mut().unwrap().rotate_left(4 * 5);
    caught(
        "masks of the next step",
        &gradients(&model, &params, &late, &pass),
    );

    let by_pieces =
        |mirrored, second_term| by_pieces(&model, &params, &input, mirrored, second_term);
    let pieces = by_pieces(false, true);
    assert!(over_bound(&model, &params, &input, &pieces) < 1.0);
    caught(
        "gradient sent to the wrong neighbour",
        &by_pieces(true, true),
    );
    caught(
        "the softmax's second term dropped",
        &by_pieces(false, false),
    );
}

#[test]
fn a_loss_reads_only_the_channels_with_weight() {
    let target: Target<f64> = crate::logic::channel_target(&[1.0, 2.0], 1, 3);
    assert_eq!(target.values, [1.0, 0.0, 0.0, 2.0, 0.0, 0.0]);
    assert_eq!(target.weights.unwrap(), [1.0, 0.0, 0.0, 1.0, 0.0, 0.0]);
}
