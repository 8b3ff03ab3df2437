//! The price of gates that do something.

use super::{case, small};
use crate::logic::BoundaryCondition::{Periodic, Zero};
use crate::logic::gates::GATES;
use crate::logic::{LogicCa, LogicSpec};
use crate::rng::Key;
use crate::{Loss, Model, Target, verify};

fn priced(price: f64) -> LogicCa {
    let spec = LogicSpec {
        gate_penalty: price,
        ..small(Zero, 2, 1.0).spec().clone()
    };
    LogicCa::new(spec, 3).unwrap()
}

#[test]
fn the_price_of_gates_passes_the_verifier() {
    // The differences of the input are of the whole loss, whose rounding grows with the price.
    let model = priced(0.01);
    let (params, input) = case(&model, [1, 3, 4], 2);
    let mut stream = Key::new(8).stream();
    let goal = (0..input.state.len()).map(|_| stream.uniform_f32());
    let target = Target::values(goal.collect());
    let options = verify::Options {
        steps: 3,
        ..Default::default()
    };
    let report = verify::check(
        "gates",
        &model,
        &params,
        &input,
        &target,
        Loss::SumSquares,
        &options,
    );
    let report = report.unwrap();
    assert!(report.passed(), "{}", report.table());
}

/// Three logits that are not 0, by hand: a gate that passes a with e², b with e, and is 0 with e³, of
/// sixteen; all others of the model are even.
#[test]
fn the_price_is_what_it_says() {
    let model = priced(2.0);
    let mut params = vec![0.0_f64; model.layout().len()];
    params[..4].copy_from_slice(&[3.0, 0.0, 0.0, 2.0]);
    params[5] = 1.0;
    let (a, b, zero) = (2.0_f64.exp(), 1.0_f64.exp(), 3.0_f64.exp());
    let all = a + b + zero + 13.0;
    let others = (model.gates() - 1) as f64;
    let expected = 2.0 * (others * 14.0 / 16.0 + (zero + 13.0) / all);
    let mut d = vec![0.25; params.len()];
    let got = model.penalty(&params, Some(&mut d));
    // As many roundings as gates, of a sum no larger than the result.
    assert!((got - expected).abs() <= model.gates() as f64 * f64::EPSILON * expected);
    // Added to what is there: −p_i·([i is a or b] − q).
    let q = (a + b) / all;
    let d_a = 0.25 + 2.0 * a / all * (q - 1.0);
    let d_zero = 0.25 + 2.0 * zero / all * q;
    assert!((d[3] - d_a).abs() < 8.0 * f64::EPSILON, "{} {d_a}", d[3]);
    assert!((d[0] - d_zero).abs() < 8.0 * f64::EPSILON);
    assert_eq!(priced(0.0).penalty(&params, None), 0.0);
}

#[test]
fn a_frozen_tensor_has_a_price_and_no_gradient() {
    let mut model = priced(1.0);
    let (params, _) = case(&model, [1, 3, 4], 2);
    let whole = model.penalty(&params, None);
    model.layout_mut().freeze("update.1.logits").unwrap();
    let mut d = vec![0.0; params.len()];
    assert_eq!(model.penalty(&params, Some(&mut d)), whole);
    for tensor in model.layout().tensors() {
        let touched = d[tensor.range()].iter().any(|&d| d != 0.0);
        assert_eq!(touched, tensor.name != "update.1.logits", "{}", tensor.name);
    }
}

#[test]
fn a_price_below_nothing_is_refused() {
    for price in [-1.0, f64::NAN, f64::INFINITY] {
        let spec = LogicSpec {
            gate_penalty: price,
            ..small(Periodic, 1, 1.0).spec().clone()
        };
        let error = LogicCa::new(spec, 1).unwrap_err().to_string();
        assert!(error.contains("gate_penalty"), "{error}");
    }
    assert_eq!(priced(0.0).layout().len() % GATES, 0);
}
