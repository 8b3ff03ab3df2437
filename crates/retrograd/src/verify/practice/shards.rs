//! Batches that are cut into shards, through the loop: one after the other, side by side, at once, and where they look
//! at each other. The plain loop ([`super::plain`]) takes every batch whole and knows of no shards, so that each sample
//! must count for what it counts in the batch's mean: with weights, in a last batch with fewer samples than shards,
//! where gradients are accumulated. Groups of 2 and 3 processes must end with the bits of one.

use super::plain::{Plain, RUNS, experiment, fitted_in, samples, within};
use super::{FEW, holds, row};
use crate::data::{Batches, Dataset};
use crate::group::{self, Alone, Group};
use crate::network::Network;
use crate::scalar::cast;
use crate::train::{Experiment, Record, Task};
use crate::verify::report::{Link, Row};
use crate::verify::rounded::{Granted, Rounded};
use crate::{Buffer, Loss, Model, Result, Scalar, Target, parallel};

/// Records, parameters and running statistics of a run.
type Ended = (Vec<Record>, Vec<f32>, Vec<Buffer>);

struct Case {
    name: &'static str,
    model: &'static str,
    train: &'static str,
    threads: usize,
    samples: usize,
    weighted: bool,
}

const ROWS: &str = r#"input = [6]
    layers = [{ kind = "dense", out = 5 }, { kind = "tanh" }, { kind = "dropout", p = 0.25 }, { kind = "dense", out = 2 }]"#;
const KAN: &str = r#"input = [6]
    layers = [{ kind = "kan", out = 2, degree = 3, grid = 3 }]
    sparsity = { l1 = 0.02, entropy = 0.01 }"#;
const PLAIN_ROWS: &str = r#"input = [6]
    layers = [{ kind = "dense", out = 4 }, { kind = "silu" }, { kind = "dense", out = 2 }]"#;
/// The norm comes first: its statistics are those of the data, whatever the parameters are.
const COUPLED: &str = r#"input = [1, 2, 3]
    layers = [{ kind = "batch_norm2d" }, { kind = "flatten" }, { kind = "dense", out = 3 }]"#;

/// Batches of 6, 6 and 1: the last has fewer samples than shards.
const CASES: [Case; 4] = [
    Case {
        name: "one by one",
        model: ROWS,
        train: r#"epochs = 4
        batch = 6
        shards = 3
        accumulate = 2
        loss = "mse"
        clip = 0.4
        optimizer = { kind = "adam", lr = 0.02 }"#,
        threads: 1,
        samples: 13,
        weighted: true,
    },
    Case {
        name: "side by side",
        model: KAN,
        train: r#"epochs = 3
        batch = 6
        shards = 4
        accumulate = 2
        loss = "sum_squares"
        clip_element = 1.5
        optimizer = { kind = "sgd", lr = 0.02, momentum = 0.9 }"#,
        threads: 2,
        samples: 13,
        weighted: false,
    },
    Case {
        // 50 samples are enough to compute three shards at once, the last 20 are not.
        name: "at once",
        model: PLAIN_ROWS,
        train: r#"epochs = 3
        batch = 50
        shards = 3
        loss = "huber"
        optimizer = { kind = "adamw", lr = 0.01, weight_decay = 0.1 }"#,
        threads: 1,
        samples: 70,
        weighted: true,
    },
    Case {
        name: "a norm over all",
        model: COUPLED,
        train: r#"epochs = 3
        batch = 6
        shards = 3
        loss = "cross_entropy"
        optimizer = { kind = "adam", lr = 0.05 }"#,
        threads: 1,
        samples: 14,
        weighted: false,
    },
];

/// The loop on shards beside the plain one on whole batches, and groups of processes beside one.
pub fn shards() -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for case in &CASES {
        rows.extend(beside_whole(case)?);
    }
    Ok(rows)
}

fn beside_whole(case: &Case) -> Result<Vec<Row>> {
    let experiment = experiment(case.model, case.train)?;
    let coupled = case.model == COUPLED;
    let train = samples(0, case.samples, coupled, false, case.weighted)?;
    let ended = |group: &dyn Group| -> Result<Ended> {
        let (records, kept, task) = fitted_in(&experiment, &train, None, None, group)?;
        Ok((records, kept, task.model().buffers()))
    };
    let (records, kept, buffers) = parallel::with_threads(case.threads, || ended(&Alone))?;
    let plain = Plain {
        network: &Network::new(&experiment.model_as()?)?,
        spec: &experiment.train,
        loss: experiment.train.loss.unwrap_or(Loss::Mse),
        train: &train,
        validation: None,
        script: None,
    };
    let name = format!("shards, {}", case.name);
    let mut rows = plain.beside(&name, &records, &kept)?;
    if coupled {
        rows.extend(statistics(&name, &experiment, &train, &buffers)?);
    }
    let figures = |records: &[Record]| -> Vec<[u64; 2]> {
        let each = records.iter();
        each.map(|r| [r.train_loss.to_bits(), r.lr.to_bits()])
            .collect()
    };
    let bits = |values: &[f32]| values.iter().map(|v| v.to_bits()).collect::<Vec<_>>();
    for size in [2, 3] {
        let label = format!("{name}: {size} processes");
        if !parallel::can_start(size) {
            let why = format!("the system refuses {size} threads that would play processes");
            rows.push(Row::unchecked("runs", label, Link::Processes, why));
            continue;
        }
        let all = group::threads(size, ended);
        let all: Vec<Ended> = all.into_iter().collect::<Result<_>>()?;
        let (other, params, statistics) = &all[0];
        let mut wrong = usize::from(bits(params) != bits(&kept));
        wrong += usize::from(figures(other) != figures(&records));
        wrong += usize::from(*statistics != buffers);
        rows.push(holds("runs", label, Link::Processes, kept.len(), wrong));
    }
    Ok(rows)
}

/// Running statistics of whole batches: mean and variance (over n − 1) of each, a tenth at a time.
fn statistics(
    name: &str,
    experiment: &Experiment,
    train: &Dataset,
    buffers: &[Buffer],
) -> Result<Vec<Row>> {
    let exact = running::<f64>(experiment, train)?;
    let drawn = parallel::isolated(RUNS, |run| {
        Rounded::start(run as u64 + 1, &Granted::CPU);
        running::<Rounded>(experiment, train)
    });
    let drawn: Vec<Running<Rounded>> = drawn.into_iter().collect::<Result<_>>()?;
    let of = |name: &str| -> Vec<f64> {
        let own = buffers.iter().filter(|b| b.name.ends_with(name));
        own.flat_map(|b| b.values.iter().copied()).collect()
    };
    let judged = |what: &str, buffer: &str, at: usize| {
        let runs: Vec<Vec<f64>> = drawn
            .iter()
            .map(|run| vec![run.figures[at].to_f64()])
            .collect();
        let label = format!("{name}: {what}");
        within(
            ("runs", Link::Training),
            label,
            &of(buffer),
            &[exact.figures[at]],
            &runs,
        )
    };
    let label = format!("{name}: batches counted");
    let (counted, batches) = (of("num_batches_tracked"), [exact.batches]);
    Ok(vec![
        judged("running mean", "running_mean", 0),
        judged("running variance", "running_var", 1),
        row("runs", label, Link::Training, &counted, &batches, FEW),
    ])
}

struct Running<T> {
    /// Mean and variance.
    figures: [T; 2],
    batches: f64,
}

fn running<T: Scalar>(experiment: &Experiment, train: &Dataset) -> Result<Running<T>> {
    let spec = &experiment.train;
    let mut batches = Batches::new(train.len(), spec.batch.unwrap_or(1), spec.seed)?;
    let mut figures = [T::ZERO, T::ONE];
    let steps = spec.epochs * batches.per_epoch();
    for step in 0..steps {
        let (mut x, mut target) = (Vec::new(), Target::default());
        train.gather(batches.of_step(step), &mut x, &mut target);
        let x: Vec<T> = cast(&x);
        let n = T::from_usize(x.len());
        let mean = x.iter().copied().sum::<T>() / n;
        let squares = x.iter().map(|&x| (x - mean) * (x - mean)).sum::<T>();
        let of_batch = [mean, squares / (n - T::ONE)];
        for (figure, new) in figures.iter_mut().zip(of_batch) {
            *figure += T::from_f64(0.1) * (new - *figure);
        }
    }
    Ok(Running {
        figures,
        batches: steps as f64,
    })
}
