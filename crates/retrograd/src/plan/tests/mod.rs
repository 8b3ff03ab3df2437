//! What plans say, held against the rules that they follow from.

use super::*;
use crate::Model;
use crate::network::{LayerSpec, Network, NetworkSpec};

fn network(input: &[usize], layers: &str) -> Network {
    let layers: Vec<LayerSpec> = serde_json::from_str(layers).unwrap();
    Network::new(&NetworkSpec::new(input, layers)).unwrap()
}

const SKIPS: &str = r#"[{"kind":"conv2d","out":2,"kernel":3,"padding":1},{"kind":"relu"},
    {"kind":"add","with":-1},{"kind":"concat","with":1},{"kind":"flatten"},{"kind":"dense","out":3}]"#;

/// Every gradient that is asked for is written once before it is added to, and read after that.
#[test]
fn a_gradient_is_written_first_then_added_to_then_read() {
    let network = network(&[2, 4, 5], SKIPS);
    for (params, input, fuse) in [
        (true, false, false),
        (true, true, false),
        (true, false, true),
        (false, true, true),
    ] {
        let plan = network.plan(params, input, fuse);
        let mut written = vec![Value::Of(plan.output)];
        for step in &plan.backward {
            assert!(written.contains(&Value::Of(step.y)), "{plan:?}");
            for onto in [step.d_x, step.d_other].into_iter().flatten() {
                assert_eq!(onto.adds, written.contains(&onto.value), "{plan:?}");
                written.push(onto.value);
            }
        }
        assert_eq!(written.contains(&Value::Input), input);
    }
}

#[test]
fn every_trained_tensor_is_complete_once_and_nothing_reads_it_later() {
    let mut network = network(&[2, 4, 5], SKIPS);
    for frozen in [None, Some("0.weight")] {
        if let Some(name) = frozen {
            network.layout_mut().freeze(name).unwrap();
        }
        for (input, fuse) in [(false, false), (true, true), (false, true), (true, false)] {
            let plan = network.plan(true, input, fuse);
            let tensors = network.layout().tensors().iter();
            for tensor in tensors.filter(|t| !t.frozen) {
                let range = tensor.range();
                let holds = |step: &&Derive| step.complete.contains(&range);
                assert_eq!(plan.backward.iter().filter(holds).count(), 1);
                let at = plan
                    .backward
                    .iter()
                    .position(|s| s.complete.contains(&range));
                let owner = |place: &Place| place.tensors.contains(&range);
                let layer = network.places.iter().position(owner).unwrap();
                let reads = |step: &Derive| step.layer == layer || step.stack.contains(&layer);
                let last = plan.backward.iter().rposition(reads);
                assert_eq!(at, last, "{plan:?}");
            }
        }
    }
}

#[test]
fn what_nothing_asked_for_depends_on_is_left_out() {
    let mut network = network(
        &[3],
        r#"[{"kind":"dense","out":4},{"kind":"tanh"},{"kind":"dense","out":2}]"#,
    );
    network.layout_mut().freeze("0.weight").unwrap();
    network.layout_mut().freeze("0.bias").unwrap();
    let plan = network.plan(true, false, true);
    let layers: Vec<usize> = plan.backward.iter().map(|s| s.layer).collect();
    assert_eq!(layers, [2]);
    assert_eq!(plan.backward[0].d_x, None);
    assert!(network.plan(false, false, true).backward.is_empty());
}

#[test]
fn a_value_that_one_sum_reads_twice_gets_both_gradients() {
    let network = network(
        &[3],
        r#"[{"kind":"dense","out":3},{"kind":"add","with":0},{"kind":"dense","out":2}]"#,
    );
    let plan = network.plan(true, false, true);
    let sums: Vec<_> = plan.backward.iter().filter(|s| s.layer == 1).collect();
    let value = Value::Of(0);
    assert_eq!(sums[0].d_x, Some(Onto { value, adds: false }));
    assert_eq!(sums[1].d_other, Some(Onto { value, adds: true }));
}

#[test]
fn a_plan_prints_a_line_for_every_step() {
    let network = network(&[2, 4, 5], SKIPS);
    let text = network.plan_text();
    let plan = network.plan(true, false, true);
    assert_eq!(
        text.lines().count(),
        2 + plan.forward.len() + plan.backward.len()
    );
    for word in [
        "with the ReLU after it",
        "complete: 5.weight, 5.bias",
        "added to d(v1)",
    ] {
        assert!(text.contains(word), "{word}: {text}");
    }
}
