//! What layers do by chance, remember, or decide where values are equal.

use super::{holds, row};
use crate::network::{LayerSpec, Network, NetworkSpec};
use crate::rng::Key;
use crate::verify::report::{Link, Row};
use crate::{Error, Grads, Model, Pass, Result, math};

fn network(input: &[usize], layers: &str) -> Result<Network> {
    let layers: Vec<LayerSpec> = serde_json::from_str(layers)
        .map_err(|e| Error::invalid("a network of the verifier", e, "layers"))?;
    Network::new(&NetworkSpec::new(input, layers))
}

/// Forward, and backward from `d_y`: the output and d_x.
fn through(model: &Network, pass: &Pass, x: &[f32], d_y: Option<&[f32]>) -> (Vec<f32>, Vec<f32>) {
    let params = model.init(1);
    let (x, mut tape) = (x.to_vec(), Default::default());
    model.compute_forward(&params, &x, pass, &mut tape);
    let y = model.output(&tape).to_vec();
    let mut d_x = vec![f32::NAN; x.len()];
    let mut d_params = vec![0.0; params.len()];
    let d_y = d_y.map_or_else(|| vec![1.0; y.len()], <[f32]>::to_vec);
    let grads = Grads {
        params: Some(&mut d_params),
        input: Some(&mut d_x),
        accumulate: false,
    };
    model.compute_backward(&params, &x, pass, &mut tape, &d_y, grads);
    (y, d_x)
}

/// Every element is dropped or multiplied by 1/(1 − p), its gradient alike; as many as p says, each
/// element for itself, others in another step, and none at inference.
pub fn dropout() -> Result<Vec<Row>> {
    const N: usize = 40_000;
    let mut rows = Vec::new();
    for p in [0.1, 0.5, 0.75] {
        let model = network(&[N], &format!(r#"[{{"kind":"dropout","p":{p}}}]"#))?;
        let x: Vec<f32> = (0..N).map(|i| 1.0 + (i % 7) as f32).collect();
        let of = |step: u64| Pass::training(Key::new(2).purpose("dropout").step(step));
        let (y, d_x) = through(&model, &of(0), &x, None);
        let label = |what: &str| format!("p = {p}: {what}");
        let kept: Vec<usize> = (0..N).filter(|&i| y[i] != 0.0).collect();
        // p is held in 16 bits, and the factor belongs to what is held.
        let factor: Vec<f64> = kept
            .iter()
            .map(|&i| f64::from(y[i]) / f64::from(x[i]))
            .collect();
        let is = vec![1.0 / (1.0 - p); kept.len()];
        let bound = (0.5 / 65_536.0 / (1.0 - p) + f64::from(f32::EPSILON)) / (1.0 - p);
        rows.push(row(
            "dropout",
            label("factor"),
            Link::Form,
            &factor,
            &is,
            bound,
        ));
        let wrong = (0..N)
            .filter(|&i| f64::from(d_x[i]) != f64::from(y[i] / x[i]))
            .count();
        rows.push(holds("dropout", label("gradient"), Link::Form, N, wrong));
        // Of N draws the share lies within 5 σ of p, but for 6 chances in ten million; and so do those
        // where two neighbours are dropped, if each is drawn for itself.
        let share = |hits: usize, of: usize, p: f64, what: &str| {
            let sigma = (p * (1.0 - p) / of as f64).sqrt();
            let got = [hits as f64 / of as f64];
            row("dropout", label(what), Link::Form, &got, &[p], 5.0 * sigma)
        };
        rows.push(share(N - kept.len(), N, p, "share"));
        let pairs = (0..N)
            .step_by(2)
            .filter(|&i| y[i] == 0.0 && y[i + 1] == 0.0)
            .count();
        rows.push(share(pairs, N / 2, p * p, "neighbours"));
        let (other, _) = through(&model, &of(1), &x, None);
        let both = (0..N).filter(|&i| y[i] == 0.0 && other[i] == 0.0).count();
        rows.push(share(both, N, p * p, "two steps"));
        let (calm, d_calm) = through(&model, &Pass::inference(), &x, None);
        let wrong = (0..N)
            .filter(|&i| calm[i] != x[i] || d_calm[i] != 1.0)
            .count();
        rows.push(holds("dropout", label("inference"), Link::Form, N, wrong));
    }
    Ok(rows)
}

/// PyTorch's rule: of equal elements the first is the largest and gets the gradient; a NaN is larger than
/// all, and of several the last is taken.
pub fn max_pool() -> Result<Vec<Row>> {
    let nan = f32::NAN;
    let mut rows = Vec::new();
    for kernel in [2, 3] {
        let side = 2 * kernel;
        let layers = format!(r#"[{{"kind":"max_pool2d","kernel":{kernel}}}]"#);
        let model = network(&[1, side, side], &layers)?;
        let mut stream = Key::new(4).purpose("ties").stream();
        for trial in 0..24 {
            // Few different values, so that most windows have ties; now and then a NaN or an infinity.
            let x: Vec<f32> = (0..side * side)
                .map(|_| match (trial % 4, stream.below(12)) {
                    (3, 0) => nan,
                    (2, 0) => f32::NEG_INFINITY,
                    (1, _) => -1.0,
                    (_, n) => (n % 3) as f32 - 1.0,
                })
                .collect();
            let d_y: Vec<f32> = (0..4).map(|i| 1.0 + i as f32).collect();
            let (mut is_y, mut is_d) = (Vec::new(), vec![0.0; x.len()]);
            for (w, d) in d_y.iter().enumerate() {
                let cells = (0..kernel * kernel).map(|c| {
                    let (top, left) = (w / 2 * kernel, w % 2 * kernel);
                    (top + c / kernel) * side + left + c % kernel
                });
                let cells: Vec<usize> = cells.collect();
                let last_nan = cells.iter().rev().copied().find(|&i| x[i].is_nan());
                let most = cells
                    .iter()
                    .map(|&i| x[i])
                    .fold(f32::NEG_INFINITY, math::max);
                let best = last_nan.or_else(|| cells.iter().copied().find(|&i| x[i] == most));
                let best = best.unwrap_or(cells[0]);
                is_y.push(x[best]);
                is_d[best] += d;
            }
            let pass = Pass::training(Key::new(0));
            let (y, d_x) = through(&model, &pass, &x, Some(&d_y));
            let same = |a: &f32, b: &f32| a == b || (a.is_nan() && b.is_nan());
            let wrong = y.iter().zip(&is_y).filter(|(a, b)| !same(a, b)).count()
                + d_x.iter().zip(&is_d).filter(|(a, b)| !same(a, b)).count();
            let label = format!("ties, kernel {kernel}, batch {trial}");
            rows.push(holds("max_pool2d", label, Link::Form, x.len() + 4, wrong));
        }
    }
    Ok(rows)
}

/// PyTorch's: r ← 0.9·r + 0.1·s with s the batch's mean and its variance over n − 1.
pub fn running_statistics() -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for [samples, height, width] in [[1, 1, 2], [3, 2, 5], [2, 40, 60]] {
        let mut model = network(&[2, height, width], r#"[{"kind":"batch_norm2d"}]"#)?;
        let params = model.init(1);
        let plane = height * width;
        let (mut mean, mut var) = ([0.0; 2], [1.0; 2]);
        for step in 0..3 {
            let mut stream = Key::new(6).purpose("statistics").step(step).stream();
            let x: Vec<f32> = (0..samples * 2 * plane)
                .map(|i| (stream.range(-2.0, 3.0) + (i / plane % 2) as f64) as f32)
                .collect();
            let mut tape = Default::default();
            let pass = Pass::training(Key::new(0));
            model.compute_forward(&params, &x, &pass, &mut tape);
            model.absorb(&tape);
            for c in 0..2 {
                let own =
                    (0..samples).flat_map(|s| &x[(2 * s + c) * plane..(2 * s + c + 1) * plane]);
                let own: Vec<f64> = own.map(|&v| f64::from(v)).collect();
                let n = own.len() as f64;
                let centre = own.iter().sum::<f64>() / n;
                let spread = own.iter().map(|v| math::powi(v - centre, 2)).sum::<f64>() / (n - 1.0);
                mean[c] = 0.9 * mean[c] + 0.1 * centre;
                var[c] = 0.9 * var[c] + 0.1 * spread;
            }
        }
        let buffer = |end: &str| -> Vec<f64> {
            let all = model.buffers();
            let own = all.into_iter().find(|b| b.name.ends_with(end));
            own.map_or_else(Vec::new, |b| b.values)
        };
        let label = |what: &str| format!("{what}, {samples}×{height}×{width}");
        // The kernel's mean and deviation are f32s of numbers up to 5: the variance carries twice the
        // relative error of the deviation, and a tenth of three batches' errors is added.
        let eps = f64::from(f32::EPSILON);
        let name = "running statistics";
        rows.push(row(
            name,
            label("mean"),
            Link::Form,
            &buffer("mean"),
            &mean,
            0.3 * 5.0 * eps,
        ));
        rows.push(row(
            name,
            label("var"),
            Link::Form,
            &buffer("var"),
            &var,
            0.3 * 25.0 * 4.0 * eps,
        ));
        rows.push(row(
            name,
            label("batches"),
            Link::Form,
            &buffer("tracked"),
            &[3.0],
            0.0,
        ));
    }
    Ok(rows)
}
