//! Each measure by its definition, over all samples at once; classes that are only predicted, weights of
//! 0, a tie and an output that never varies among them.

use super::{FEW, row};
use crate::data::metrics::{Choices, Confusion, Regression};
use crate::graph::roc_auc;
use crate::rng::Key;
use crate::scalar::cast;
use crate::verify::builtin::structured;
use crate::verify::report::{Link, Row};
use crate::{Result, Target, math};

/// Samples.
const N: usize = 37;

pub fn measures() -> Result<Vec<Row>> {
    let mut rows = regression()?;
    rows.extend(classes()?);
    rows.extend(units()?);
    rows.extend(logits()?);
    rows.extend(choices()?);
    rows.push(ranks());
    rows.extend(super::images::quality_rows());
    Ok(rows)
}

/// R², RMSE and MAE of three outputs.
fn regression() -> Result<Vec<Row>> {
    let (n, width) = (N, 3);
    let mut stream = Key::new(8).purpose("measures").stream();
    let mut draw =
        |count: usize| -> Vec<f32> { (0..count).map(|_| stream.range(-2.0, 2.0) as f32).collect() };
    let (y, mut t) = (draw(n * width), draw(n * width));
    for t in t.iter_mut().skip(2).step_by(width) {
        *t = 0.25;
    }
    let weights: Vec<f32> = (0..n * width).map(|i| [1.0, 0.0, 2.5][i % 3]).collect();
    let mut rows = Vec::new();
    for weighted in [false, true] {
        let w = |i: usize| {
            if weighted {
                f64::from(weights[(i * 5) % weights.len()])
            } else {
                1.0
            }
        };
        let own: Vec<f32> = (0..n * width).map(|i| w(i) as f32).collect();
        let target = Target::values(t.clone());
        let target = if weighted {
            target.weighted(own)
        } else {
            target
        };
        let mut sums = Regression::new(width);
        // In batches of other sizes than the rows would suggest.
        for (from, to) in [(0, 5), (5, 6), (6, n)] {
            let part = Target {
                values: target.values[from * width..to * width].to_vec(),
                weights: target
                    .weights
                    .as_ref()
                    .map(|w| w[from * width..to * width].to_vec()),
                ..Target::default()
            };
            sums.add(&y[from * width..to * width], &part)?;
        }
        let scores = sums.scores();
        let error = |i: usize| f64::from(y[i]) - f64::from(t[i]);
        let total =
            |f: &dyn Fn(usize) -> f64, of: &[usize]| of.iter().map(|&i| w(i) * f(i)).sum::<f64>();
        let every: Vec<usize> = (0..n * width).collect();
        let all = total(&|_| 1.0, &every);
        let rmse = (total(&|i| math::powi(error(i), 2), &every) / all).sqrt();
        let mae = total(&|i| error(i).abs(), &every) / all;
        let mut r2 = Vec::new();
        for o in 0..width {
            let own: Vec<usize> = (0..n).map(|s| s * width + o).collect();
            let weight = total(&|_| 1.0, &own);
            if weight == 0.0 {
                continue;
            }
            let mean = total(&|i| f64::from(t[i]), &own) / weight;
            let spread = total(&|i| math::powi(f64::from(t[i]) - mean, 2), &own);
            let squares = total(&|i| math::powi(error(i), 2), &own);
            r2.push(if spread > 0.0 {
                1.0 - squares / spread
            } else {
                f64::from(squares == 0.0)
            });
        }
        let r2 = r2.iter().sum::<f64>() / r2.len() as f64;
        let label = if weighted {
            "regression, weighted"
        } else {
            "regression"
        };
        let got = [scores.rmse, scores.mae, scores.r2];
        rows.push(row(
            "measures",
            label,
            Link::Data,
            &got,
            &[rmse, mae, r2],
            64.0 * FEW,
        ));
    }
    Ok(rows)
}

/// Accuracy, F1 and the confusion matrix of five classes.
fn classes() -> Result<Vec<Row>> {
    let (n, mut rows) = (N, Vec::new());
    // Class 3 is never true, class 4 never anything; two logits tie: the first is meant.
    let classes = 5;
    let truth: Vec<u32> = (0..n as u32).map(|i| i % 3).collect();
    let outputs: Vec<f32> = (0..n)
        .flat_map(|s| {
            (0..classes).map(move |c| f32::from(c == (s * s) % 4 || (s % 5 == 0 && c == 1)))
        })
        .collect();
    let chosen = |s: usize| {
        (0..classes)
            .find(|&c| outputs[s * classes + c] == 1.0)
            .unwrap_or(0)
    };
    for weighted in [false, true] {
        let w = |s: usize| {
            if weighted {
                [0.5, 0.0, 3.0, 1.0][s % 4]
            } else {
                1.0
            }
        };
        let target = Target::classes(truth.clone());
        let target = match weighted {
            true => target.weighted((0..n).map(|s| w(s) as f32).collect()),
            false => target,
        };
        let mut confusion = Confusion::new(classes);
        confusion.add(&outputs, &target)?;
        let sum = |f: &dyn Fn(usize, usize) -> bool| -> f64 {
            let hits = (0..n).filter(|&s| f(truth[s] as usize, chosen(s)));
            hits.map(w).sum()
        };
        let accuracy = sum(&|t, p| t == p) / sum(&|_, _| true);
        let f1: Vec<f64> = (0..classes)
            .filter(|&c| sum(&|t, p| t == c || p == c) > 0.0)
            .map(|c| {
                let right = sum(&|t, p| t == c && p == c);
                let (missed, false_alarms) =
                    (sum(&|t, p| t == c && p != c), sum(&|t, p| t != c && p == c));
                2.0 * right / (2.0 * right + missed + false_alarms)
            })
            .collect();
        let f1 = f1.iter().sum::<f64>() / f1.len() as f64;
        let label = if weighted {
            "classes, weighted"
        } else {
            "classes"
        };
        let got = [confusion.accuracy(), confusion.f1()];
        rows.push(row(
            "measures",
            label,
            Link::Data,
            &got,
            &[accuracy, f1],
            FEW,
        ));
        let got: Vec<f64> = confusion.rows().flatten().copied().collect();
        let is: Vec<f64> = (0..classes * classes)
            .map(|e| sum(&|t, p| t == e / classes && p == e % classes))
            .collect();
        rows.push(row(
            "measures",
            format!("{label}, matrix"),
            Link::Data,
            &got,
            &is,
            FEW,
        ));
    }
    Ok(rows)
}

/// Errors in the units that targets had: those of value · scale + shift, which the shift cancels from.
fn units() -> Result<Vec<Row>> {
    let (shift, scale) = ([3.0, -20.0], [0.5, 8.0]);
    let numbers = |phase: f64| structured(2 * N, phase);
    let (y, t) = (numbers(0.1), numbers(0.6));
    let mut sums = Regression::in_units(&shift, &scale);
    sums.add(&[1.0; 4], &Target::values(vec![5.0; 4]))?;
    sums.clear();
    sums.add(&cast::<f64, f32>(&y), &Target::values(cast(&t)))?;
    let scores = sums.scores();
    let own = |v: &[f64], i: usize| v[i] * scale[i % 2] + shift[i % 2];
    let errors: Vec<f64> = (0..2 * N).map(|i| own(&y, i) - own(&t, i)).collect();
    let count = errors.len() as f64;
    let rmse = (errors.iter().map(|e| e * e).sum::<f64>() / count).sqrt();
    let mae = errors.iter().map(|e| e.abs()).sum::<f64>() / count;
    let explained = |o: usize| {
        let of = || (o..2 * N).step_by(2);
        let mean = of().map(|i| own(&t, i)).sum::<f64>() / N as f64;
        let spread: f64 = of().map(|i| math::powi(own(&t, i) - mean, 2)).sum();
        1.0 - of().map(|i| errors[i] * errors[i]).sum::<f64>() / spread
    };
    let is = [rmse, mae, (explained(0) + explained(1)) / 2.0];
    let got = [scores.rmse, scores.mae, scores.r2];
    let bound = 64.0 * FEW * math::max(rmse, is[2].abs());
    Ok(vec![row(
        "measures",
        "regression in units",
        Link::Data,
        &got,
        &is,
        bound,
    )])
}

/// Two classes by the sign of one logit, the truth as a number; 0 is class 0. Then values of three classes.
fn logits() -> Result<Vec<Row>> {
    let outputs = [-1.0, 0.0, 0.3, 2.0, -0.2, 0.6, 0.0];
    let truth = [0.0, 1.0, 1.0, 0.0, 1.0, 1.0, 0.0];
    let weights = [1.0, 0.5, 2.0, 1.5, 0.25, 4.0, 3.0];
    let mut two = Confusion::new(2);
    two.add(
        &outputs,
        &Target::values(truth.to_vec()).weighted(weights.to_vec()),
    )?;
    // Right no: 1 + 3; no taken for yes: 1.5; yes taken for no: 0.5 + 0.25; right yes: 2 + 4.
    let got: Vec<f64> = two.rows().flatten().copied().collect();
    let mut rows = vec![row(
        "measures",
        "one logit",
        Link::Data,
        &got,
        &[4.0, 1.5, 0.75, 6.0],
        0.0,
    )];
    let values = [0.0, 0.0, 1.0, 1.0, 0.0, 0.0, 0.0, 1.0, 0.0];
    let outputs = [0.1, 0.2, 0.9, 0.3, 0.3, 0.2, 0.5, -0.1, 0.4];
    let mut three = Confusion::new(3);
    three.add(&[0.0; 3], &Target::classes(vec![0]))?;
    three.clear();
    three.add(
        &outputs,
        &Target::values(values.to_vec()).weighted((1..10).map(|w| w as f32).collect()),
    )?;
    let mut is = [0.0; 9];
    (is[8], is[0], is[3]) = (1.0, 4.0, 7.0);
    let got: Vec<f64> = three.rows().flatten().copied().collect();
    rows.push(row(
        "measures",
        "classes as values",
        Link::Data,
        &got,
        &is,
        0.0,
    ));
    Ok(rows)
}

/// The best of what is allowed, which the largest of all is not.
fn choices() -> Result<Vec<Row>> {
    let outputs = [0.9, 0.5, 0.1, 0.2, 0.8, 0.3, 0.4, 0.6, 0.5];
    let truth = [0.1, 0.9, 0.2, 0.9, 0.1, 0.7, 0.3, 0.2, 0.6];
    // Allowed: 1 and 2 (both best at 1); 0 and 2 (2 against 0); all (1 against 2).
    let weights = vec![0.0, 1.0, 2.0, 1.0, 0.0, 1.0, 1.0, 1.0, 1.0];
    let mut measured = Choices::new(3);
    measured.add(&outputs, &Target::values(truth.to_vec()).weighted(weights))?;
    let mut plain = Choices::new(3);
    plain.add(&outputs[..6], &Target::values(truth[..6].to_vec()))?;
    plain.add(&outputs[6..], &Target::values(outputs[6..].to_vec()))?;
    let got = [measured.right(), plain.right()];
    let is = [1.0 / 3.0, 1.0 / 3.0];
    Ok(vec![row("measures", "choices", Link::Data, &got, &is, FEW)])
}

/// The area under the curve as the share of pairs that stand in the right order, equal ones half.
fn ranks() -> Row {
    let mut stream = Key::new(8).purpose("ranks").stream();
    let scores: Vec<f32> = (0..N)
        .map(|_| (stream.range(0.0, 9.0) as f32).floor())
        .collect();
    let positive: Vec<bool> = (0..N).map(|i| i % 3 == 0 || scores[i] > 6.0).collect();
    let (mut right, mut pairs) = (0.0, 0.0);
    for i in (0..N).filter(|&i| positive[i]) {
        for j in (0..N).filter(|&j| !positive[j]) {
            pairs += 1.0;
            right += f64::from(scores[i] > scores[j]) + 0.5 * f64::from(scores[i] == scores[j]);
        }
    }
    let got = [
        roc_auc(&scores, &positive).unwrap_or(f64::NAN),
        f64::from(roc_auc(&scores, &[true; N]).is_none()),
    ];
    row(
        "measures",
        "area under the curve",
        Link::Data,
        &got,
        &[right / pairs, 1.0],
        FEW,
    )
}
