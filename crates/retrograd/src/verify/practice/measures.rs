//! Each measure by its definition, over all samples at once; classes that are only predicted, weights of
//! 0, a tie and an output that never varies among them.

use super::{FEW, row};
use crate::data::metrics::{Confusion, Regression};
use crate::rng::Key;
use crate::verify::report::{Link, Row};
use crate::{Result, Target, math};

/// Samples.
const N: usize = 37;

pub fn measures() -> Result<Vec<Row>> {
    let mut rows = regression()?;
    rows.extend(classes()?);
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
