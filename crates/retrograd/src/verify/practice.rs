//! What users trust beside gradients, each beside an oracle of its own: what a layer does by chance or
//! remembers, schedules, the order of samples, splits, measures, hard circuits.
//!
//! Nothing here is a gradient, so nothing of the chain would see it wrong; and where it is one source for
//! every scalar (dropout's scale, a pool's ties, running statistics), the f64 reference would be wrong
//! alike. The oracles are definitions written a second time: the recursion instead of the closed form, a
//! count instead of a sum, truth tables instead of polynomials.

use std::collections::BTreeSet;

use super::report::{Link, Report, Row, Verdict, compare};
use crate::data::metrics::{Confusion, Regression};
use crate::data::split::{Fold, Parts, Plan, Rule};
use crate::data::{Batches, Dataset};
use crate::logic::{HardCircuit, LogicBatch, LogicCa, LogicSpec};
use crate::network::{LayerSpec, Network, NetworkSpec};
use crate::optim::{Schedule, ScheduleKind};
use crate::rng::Key;
use crate::{Error, Grads, Model, Pass, Result, Target, math, parallel};

/// f64's rounding of a few dozen operations of numbers up to 1.
const FEW: f64 = 64.0 * f64::EPSILON;

/// A group of such checks.
pub struct Practice {
    /// What is checked.
    pub name: &'static str,
    check: fn() -> Result<Vec<Row>>,
}

/// All of them.
pub fn all() -> Vec<Practice> {
    vec![
        Practice {
            name: "dropout",
            check: dropout,
        },
        Practice {
            name: "max_pool2d",
            check: max_pool,
        },
        Practice {
            name: "running statistics",
            check: running_statistics,
        },
        Practice {
            name: "schedules",
            check: schedules,
        },
        Practice {
            name: "batches",
            check: batches,
        },
        Practice {
            name: "splits",
            check: splits,
        },
        Practice {
            name: "measures",
            check: measures,
        },
        Practice {
            name: "hard circuits",
            check: hard_circuits,
        },
    ]
}

/// Runs them, several at a time.
pub fn check_all(all: &[Practice]) -> Result<Report> {
    let mut report = Report::default();
    for rows in parallel::isolated(all.len(), |i| (all[i].check)()) {
        report.rows.extend(rows?);
    }
    Ok(report)
}

fn row(
    model: &str,
    what: impl Into<String>,
    link: Link,
    got: &[f64],
    is: &[f64],
    bound: f64,
) -> Row {
    Row::compared(model, what, link, &compare(got, is, |_| bound))
}

/// A row about something that is so or not.
fn holds(model: &str, what: impl Into<String>, link: Link, count: usize, wrong: usize) -> Row {
    let mut row = Row::unchecked(model, what, link, "");
    (row.error, row.bound, row.elements) = (wrong as f64, 0.0, count);
    row.ratio = if wrong == 0 { 0.0 } else { f64::INFINITY };
    row.verdict = if wrong == 0 {
        Verdict::Pass
    } else {
        Verdict::Fail
    };
    row
}

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
fn dropout() -> Result<Vec<Row>> {
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
fn max_pool() -> Result<Vec<Row>> {
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
fn running_statistics() -> Result<Vec<Row>> {
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

/// The rate from step to step, as PyTorch's schedulers go on from the last one.
fn schedules() -> Result<Vec<Row>> {
    let total = 40;
    let factors = |schedule: &Schedule| -> Vec<f64> {
        (0..total)
            .map(|step| schedule.factor(step, total))
            .collect()
    };
    let mut rows = Vec::new();
    let mut is = |name: &str,
                  kind: ScheduleKind,
                  warmup: u64,
                  next: &dyn Fn(u64, f64) -> f64,
                  first: f64| {
        let schedule = Schedule { kind, warmup };
        let mut rates = vec![first];
        for step in 1..total {
            rates.push(next(step, rates[rates.len() - 1]));
        }
        for (step, rate) in (0..).zip(&mut rates) {
            if step < warmup {
                *rate = *rate / warmup as f64 * (step + 1) as f64;
            }
        }
        let got = factors(&schedule);
        rows.push(row(
            "schedules",
            name,
            Link::Training,
            &got,
            &rates,
            64.0 * FEW,
        ));
    };
    is("constant", ScheduleKind::Constant, 0, &|_, last| last, 1.0);
    is(
        "constant, warm-up",
        ScheduleKind::Constant,
        7,
        &|_, last| last,
        1.0,
    );
    let step = ScheduleKind::Step {
        every: 6,
        gamma: 0.3,
    };
    let drop = |step: u64, last: f64| {
        if step.is_multiple_of(6) {
            0.3 * last
        } else {
            last
        }
    };
    is("step", step, 0, &drop, 1.0);
    is("step, warm-up", step, 9, &drop, 1.0);
    // CosineAnnealingLR's recursion.
    let cosine = |step: u64, last: f64| {
        let at = |s: u64| 1.0 + math::cos(std::f64::consts::PI * s as f64 / total as f64);
        0.05 + at(step) / at(step - 1) * (last - 0.05)
    };
    is(
        "cosine",
        ScheduleKind::Cosine { min: 0.05 },
        0,
        &cosine,
        1.0,
    );
    // OneCycleLR by sin² of a quarter turn, from 1/10 up to 1 at step 0.25·40 − 1 and down to 1/1000.
    let cycle = ScheduleKind::OneCycle {
        rise: 0.25,
        div_factor: 10.0,
        final_div_factor: 100.0,
    };
    let quarter = |share: f64| math::powi(math::sin(0.5 * std::f64::consts::PI * share), 2);
    let one = |step: u64, _: f64| match step {
        0..=9 => 0.1 + 0.9 * quarter(step as f64 / 9.0),
        _ => 1.0 - (1.0 - 0.001) * quarter((step - 9) as f64 / 30.0),
    };
    is("one cycle", cycle, 0, &one, 0.1);
    Ok(rows)
}

/// Every sample once an epoch, every sample as often at every place, the numbers of the samples asked
/// for, and a step's batch whatever was asked for before.
fn batches() -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for (samples, size) in [(1, 1), (7, 3), (12, 4), (10, 16), (257, 16)] {
        let mut all = Batches::new(samples, size, 3)?;
        let per_epoch = all.per_epoch();
        let mut wrong = usize::from(per_epoch != (samples as f64 / size as f64).ceil() as u64);
        let mut drawn: Vec<Vec<u32>> = Vec::new();
        for epoch in 0..5 {
            let mut seen = Vec::new();
            for step in 0..per_epoch {
                let batch = all.of_step(epoch * per_epoch + step).to_vec();
                let last = step + 1 == per_epoch;
                let len = if last {
                    samples - (per_epoch as usize - 1) * size
                } else {
                    size
                };
                wrong += usize::from(batch.len() != len);
                seen.extend_from_slice(&batch);
                drawn.push(batch);
            }
            seen.sort_unstable();
            wrong += usize::from(!seen.iter().copied().eq(0..samples as u32));
        }
        // Backwards: a resumed run asks for any step first.
        let mut again = Batches::new(samples, size, 3)?;
        for (step, batch) in drawn.iter().enumerate().rev() {
            wrong += usize::from(again.of_step(step as u64) != &batch[..]);
        }
        let label = format!("{samples} samples by {size}");
        rows.push(holds("batches", label, Link::Training, 5 * samples, wrong));
    }
    // How often each of 6 samples stands at each of 6 places in 6,000 epochs: 1,000 ± 6 σ.
    let mut all = Batches::new(6, 6, 1)?;
    let mut counts = vec![0.0; 36];
    for epoch in 0..6000 {
        for (place, &sample) in all.of_step(epoch).iter().enumerate() {
            counts[place * 6 + sample as usize] += 1.0;
        }
    }
    let sigma = (6000.0_f64 * (1.0 / 6.0) * (5.0 / 6.0)).sqrt();
    rows.push(row(
        "batches",
        "places",
        Link::Training,
        &counts,
        &[1000.0; 36],
        6.0 * sigma,
    ));
    // What is gathered is what was asked for.
    let inputs: Vec<f32> = (0..30).map(|i| i as f32).collect();
    let weights: Vec<f32> = (0..10).map(|i| 1.0 + i as f32).collect();
    let data = Dataset::new(vec![3], inputs)?
        .with_values(vec![1], (0..10).map(|i| 100.0 + i as f32).collect())?
        .with_weights(weights)?;
    let asked = [7, 0, 3, 3, 9];
    let (mut x, mut target) = (Vec::new(), Target::default());
    data.gather(&asked, &mut x, &mut target);
    let is_x: Vec<f64> = asked
        .iter()
        .flat_map(|&s| (0..3).map(move |k| f64::from(3 * s + k)))
        .collect();
    let f64s = |v: &[f32]| v.iter().map(|&v| f64::from(v)).collect::<Vec<_>>();
    let of = |first: f64| {
        asked
            .iter()
            .map(|&s| first + f64::from(s))
            .collect::<Vec<_>>()
    };
    rows.push(row(
        "batches",
        "samples",
        Link::Training,
        &f64s(&x),
        &is_x,
        0.0,
    ));
    rows.push(row(
        "batches",
        "targets",
        Link::Training,
        &f64s(&target.values),
        &of(100.0),
        0.0,
    ));
    let got = target.weights.as_deref().map_or_else(Vec::new, f64s);
    rows.push(row(
        "batches",
        "weights",
        Link::Training,
        &got,
        &of(1.0),
        0.0,
    ));
    Ok(rows)
}

/// No sample on two sides and none lost; groups whole, the latest last, every class its share; every
/// sample in the test part of one fold.
fn splits() -> Result<Vec<Row>> {
    let n = 120;
    let classes: Vec<u32> = (0..n as u32)
        .map(|i| u32::from(i % 10 == 0) + u32::from(i % 3 == 0))
        .collect();
    let groups: Vec<u32> = (0..n as u32).map(|i| i * i % 17).collect();
    let times: Vec<f64> = (0..n).map(|i| f64::from((i as u32 * 53) % 97)).collect();
    let rules = [
        ("random", Rule::Random),
        ("in order", Rule::InOrder),
        ("stratified", Rule::Stratified(classes.clone())),
        ("groups", Rule::Groups(groups.clone())),
        ("time", Rule::Time(times.clone())),
    ];
    let mut rows = Vec::new();
    for (name, rule) in &rules {
        let plan = |fold| Plan {
            rule,
            validation: 0.25,
            test: 0.2,
            fold,
            key: Key::new(9),
        };
        let parts = plan(None).parts(n)?;
        let wrong = broken(name, &parts, n, &classes, &groups, &times);
        rows.push(holds("splits", *name, Link::Data, n, wrong));
        let mut tested = Vec::new();
        for number in 1..=4 {
            let parts = plan(Some(Fold { of: 4, number })).parts(n)?;
            tested.extend(parts.test.iter().copied());
        }
        let unique: BTreeSet<usize> = tested.iter().copied().collect();
        // By time the first block is trained on in every fold.
        let once = *name == "time" || unique.len() == n;
        let wrong = usize::from(unique.len() != tested.len()) + usize::from(!once);
        rows.push(holds(
            "splits",
            format!("{name}, four folds"),
            Link::Data,
            n,
            wrong,
        ));
    }
    Ok(rows)
}

/// Promises of a split that don't hold.
fn broken(
    name: &str,
    parts: &Parts,
    n: usize,
    classes: &[u32],
    groups: &[u32],
    times: &[f64],
) -> usize {
    let sides = [&parts.train, &parts.validation, &parts.test];
    let mut all: Vec<usize> = sides.iter().flat_map(|s| s.iter().copied()).collect();
    all.sort_unstable();
    let mut wrong = usize::from(!all.iter().copied().eq(0..n));
    let share = |part: usize, of: usize, is: f64, slack: f64| {
        usize::from((part as f64 - of as f64 * is).abs() > slack)
    };
    let rest = n - parts.test.len();
    // Whole samples; whole groups are as large as the largest, 24 of a square's rests.
    let slack = if name == "groups" {
        24.0
    } else {
        0.5 + if name == "stratified" { 3.0 } else { 0.0 }
    };
    wrong +=
        share(parts.test.len(), n, 0.2, slack) + share(parts.validation.len(), rest, 0.25, slack);
    match name {
        "stratified" => {
            for class in 0..3 {
                let count = |part: &[usize]| part.iter().filter(|&&i| classes[i] == class).count();
                let of: usize = sides.iter().map(|s| count(s)).sum();
                wrong += share(count(&parts.test), of, 0.2, 1.0);
            }
        }
        "groups" => {
            let of = |part: &[usize]| part.iter().map(|&i| groups[i]).collect::<BTreeSet<_>>();
            let [a, b, c] = sides.map(|s| of(s));
            wrong += a.intersection(&b).count()
                + b.intersection(&c).count()
                + a.intersection(&c).count();
        }
        "time" => {
            let last = |part: &[usize]| {
                part.iter()
                    .map(|&i| times[i])
                    .fold(f64::NEG_INFINITY, math::max)
            };
            let first = |part: &[usize]| {
                part.iter()
                    .map(|&i| times[i])
                    .fold(f64::INFINITY, math::min)
            };
            wrong += usize::from(last(&parts.train) > first(&parts.validation));
            wrong += usize::from(last(&parts.validation) > first(&parts.test));
        }
        "in order" => {
            let ordered = sides.iter().flat_map(|s| s.iter().copied());
            wrong += usize::from(!ordered.eq(0..n));
        }
        _ => {}
    }
    wrong
}

/// Each measure by its definition, over all samples at once; classes that are only predicted, weights of
/// 0, a tie and an output that never varies among them.
fn measures() -> Result<Vec<Row>> {
    let (n, width) = (37, 3);
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

/// Random automata of many gates: the circuit of bits gives what the soft gates give on 0 and 1 where one
/// logit outweighs the others, and a simplified circuit gives the same.
fn hard_circuits() -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for seed in 0..6_u64 {
        let spec = r#"{"channels":3,"kernels":2,"perception":[9,8,4,2],"update":[15,40,30,16,8,4,3],
            "steps":1,"boundary":"periodic"}"#;
        let spec: LogicSpec = serde_json::from_str(spec)
            .map_err(|e| Error::invalid("an automaton of the verifier", e, "a spec"))?;
        let model = LogicCa::new(spec, seed)?;
        let mut stream = Key::new(seed).purpose("random circuit").stream();
        // e^−60 of the other gates is far below a rounding of 1.
        let mut params = vec![0.0_f32; model.layout().len()];
        for logits in params.chunks_exact_mut(16) {
            logits[stream.below(16)] = 60.0;
        }
        let (height, width, channels) = (5, 7, 3);
        let state: Vec<f32> = (0..height * width * channels)
            .map(|_| stream.below(2) as f32)
            .collect();
        let batch = LogicBatch::new(&model, state.clone(), [1, height, width], None)?;
        let mut tape = Default::default();
        model.compute_forward(&params, &batch, &Pass::training(Key::new(0)), &mut tape);
        let soft: Vec<f64> = model.output(&tape).iter().map(|&v| f64::from(v)).collect();
        let whole = HardCircuit::of(&model, &params);
        for (words, circuit) in [("", whole.clone()), (", simplified", whole.simplify())] {
            let bit = |y: usize, x: usize, c: usize| state[(y * width + x) * channels + c] == 1.0;
            let mut bits = Vec::new();
            for (y, x) in (0..height).flat_map(|y| (0..width).map(move |x| (y, x))) {
                let mut around = Vec::new();
                for c in 0..channels {
                    for k in 0..9 {
                        let (v, u) = (
                            (y + height + k / 3 - 1) % height,
                            (x + width + k % 3 - 1) % width,
                        );
                        around.push(bit(v, u, c));
                    }
                }
                bits.extend(circuit.cell(&around).into_iter().map(f64::from));
            }
            let label = format!("circuit {seed}{words}");
            let bound = 64.0 * f64::from(f32::EPSILON);
            rows.push(row(
                "hard circuits",
                label,
                Link::Circuit,
                &soft,
                &bits,
                bound,
            ));
        }
    }
    Ok(rows)
}
