//! Pairs of closures: right ones pass, wrong ones are found by the link that they belong to.

use std::cell::Cell;

use retrograd::rng::Key;
use retrograd::verify::{
    Backward, Function, Input, Link, Reference, Report, Round, Row, Verdict, function,
};

/// y = x·w over rows of x, whose backward the test chooses.
fn checked(backward: &Backward<'_, f32>, reference: bool) -> Report {
    let (rows, width) = (7, 5);
    let mut stream = Key::new(3).purpose("data").stream();
    let mut draw = |n: usize| (0..n).map(|_| stream.normal() as f32).collect();
    let input = |name: &str, values| Input {
        name: name.to_string(),
        values,
    };
    let inputs = vec![input("x", draw(rows * width)), input("w", draw(width))];
    let forward = |x: &[Vec<f32>], y: &mut [Vec<f32>]| {
        for (i, y) in y[0].iter_mut().enumerate() {
            *y = x[0][i] * x[1][i % width];
        }
    };
    let plain = |round: Round<'_>, x: &[Vec<f64>], y: &mut [Vec<f64>]| {
        for (i, y) in y[0].iter_mut().enumerate() {
            *y = round(x[0][i] * x[1][i % width]);
        }
    };
    let plain_back = |round: Round<'_>, x: &[Vec<f64>], d: &[Vec<f64>], g: &mut [Vec<f64>]| {
        g[1].fill(0.0);
        for (i, &d) in d[0].iter().enumerate() {
            g[0][i] = round(d * x[1][i % width]);
            g[1][i % width] = round(g[1][i % width] + round(d * x[0][i]));
        }
    };
    let subject = Function {
        name: "product".to_string(),
        inputs,
        outputs: vec![rows * width],
        forward: &forward,
        backward,
        reference: reference.then_some(Reference {
            forward: &plain,
            backward: &plain_back,
        }),
    };
    function(&subject, 0).unwrap()
}

fn right(x: &[Vec<f32>], d: &[Vec<f32>], g: &mut [Vec<f32>]) {
    let width = x[1].len();
    g[1].fill(0.0);
    for (i, &d) in d[0].iter().enumerate() {
        g[0][i] = d * x[1][i % width];
        g[1][i % width] += d * x[0][i];
    }
}

#[test]
fn a_right_pair_of_closures_passes() {
    for reference in [true, false] {
        let report = checked(&right, reference);
        assert!(report.passed(), "{}", report.table());
    }
}

#[test]
fn a_wrong_gradient_is_found_with_and_without_a_reference() {
    let scaled = |x: &[Vec<f32>], d: &[Vec<f32>], g: &mut [Vec<f32>]| {
        right(x, d, g);
        g[1].iter_mut().for_each(|g| *g /= 7.0);
    };
    for (reference, link) in [(true, Link::Cpu), (false, Link::Differences)] {
        let report = checked(&scaled, reference);
        let failed: Vec<&Row> = report.problems().collect();
        assert!(failed.iter().all(|r| r.tensor == "w"), "{}", report.table());
        assert!(
            failed
                .iter()
                .any(|r| r.link == link && r.verdict == Verdict::Fail)
        );
    }
}

#[test]
fn a_part_in_a_hundred_thousand_is_found() {
    let off = |x: &[Vec<f32>], d: &[Vec<f32>], g: &mut [Vec<f32>]| {
        right(x, d, g);
        g[0].iter_mut().for_each(|g| *g *= 1.00001);
    };
    assert!(!checked(&off, true).passed());
}

#[test]
fn memory_that_is_not_written_or_not_cleared_is_found() {
    let accumulates = |x: &[Vec<f32>], d: &[Vec<f32>], g: &mut [Vec<f32>]| {
        let width = x[1].len();
        for (i, &d) in d[0].iter().enumerate() {
            g[0][i] = d * x[1][i % width];
            g[1][i % width] += d * x[0][i];
        }
    };
    assert!(!checked(&accumulates, true).passed());
    let calls = Cell::new(0.0f32);
    let stale = |x: &[Vec<f32>], d: &[Vec<f32>], g: &mut [Vec<f32>]| {
        right(x, d, g);
        g[1][0] += 1e-9 * calls.get();
        calls.set(g[1][0] * 1e6);
    };
    let report = checked(&stale, true);
    assert!(
        report.problems().any(|r| r.link == Link::Reuse),
        "{}",
        report.table()
    );
}

#[test]
fn a_reference_that_is_wrong_is_found_by_differences() {
    let plain = |_: Round<'_>, x: &[Vec<f64>], y: &mut [Vec<f64>]| y[0][0] = x[0][0] * x[0][0];
    let wrong = |_: Round<'_>, x: &[Vec<f64>], d: &[Vec<f64>], g: &mut [Vec<f64>]| {
        g[0][0] = d[0][0] * x[0][0];
    };
    let subject = Function {
        name: "square".to_string(),
        inputs: vec![Input {
            name: "x".to_string(),
            values: vec![1.5],
        }],
        outputs: vec![1],
        forward: &|x, y| y[0][0] = x[0][0] * x[0][0],
        backward: &|x, d, g| g[0][0] = d[0][0] * x[0][0],
        reference: Some(Reference {
            forward: &plain,
            backward: &wrong,
        }),
    };
    let report = function(&subject, 0).unwrap();
    assert!(report.problems().any(|r| r.link == Link::Differences));
    let nothing = Function {
        outputs: vec![],
        ..subject
    };
    let error = function(&nothing, 0).unwrap_err().to_string();
    assert!(error.contains("1 inputs and 0 outputs"), "{error}");
}
