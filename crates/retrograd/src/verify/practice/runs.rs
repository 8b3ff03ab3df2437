//! Whole runs beside a plain loop ([`super::plain`]): which batches make a step and what each counts, the penalty,
//! clipping, the rate, frozen tensors, steps that are left out, a pipeline's older parameters, the losses that are
//! reported, the parameters and running statistics that are kept; and a run that is stopped and resumed beside one
//! that isn't.

use std::sync::atomic::AtomicBool;

use super::holds;
use super::plain::{Plain, RUNS, Watch, data, experiment, fitted};
use crate::data::Dataset;
use crate::network::Network;
use crate::scalar::cast;
use crate::train::{Experiment, NetworkTask, OnNan, Record, Session, Task};
use crate::verify::precision::Bounds;
use crate::verify::report::{Link, Row, compare};
use crate::verify::rounded::{Granted, Rounded};
use crate::{Error, Model, Result, Scalar, parallel};

/// What is run: a name, `[model]` and `[train]`.
const CASES: [(&str, &str, &str); 5] = [
    (
        "accumulation, clipping",
        r#"input = [6]
        layers = [{ kind = "dense", out = 5 }, { kind = "tanh" }, { kind = "dropout", p = 0.25 }, { kind = "dense", out = 2 }]"#,
        r#"epochs = 4
        accumulate = 2
        loss = "mse"
        clip = 0.4
        clip_element = 0.2
        optimizer = { kind = "adam", lr = 0.02 }
        schedule = { kind = "cosine", min = 0.05, warmup = 3 }"#,
    ),
    (
        "sums, a penalty",
        r#"input = [6]
        layers = [{ kind = "kan", out = 2, degree = 3, grid = 3 }]
        sparsity = { l1 = 0.02, entropy = 0.01 }"#,
        r#"epochs = 3
        accumulate = 3
        loss = "sum_squares"
        clip = 1.5
        freeze = ["0.base_weight"]
        optimizer = { kind = "sgd", lr = 0.02, momentum = 0.9 }
        schedule = { kind = "step", every = 3, gamma = 0.5 }"#,
    ),
    (
        "a pipeline",
        r#"input = [6]
        layers = [{ kind = "dense", out = 4 }, { kind = "silu" }, { kind = "dense", out = 2 }]"#,
        r#"epochs = 3
        loss = "huber"
        pipeline = 1
        evaluate_every = 2
        optimizer = { kind = "adamw", lr = 0.01, weight_decay = 0.1 }"#,
    ),
    (
        "fused updates",
        r#"input = [6]
        layers = [{ kind = "dense", out = 4 }, { kind = "silu" }, { kind = "dense", out = 2 }]"#,
        r#"epochs = 2
        loss = "l1"
        fused_updates = true
        clip_element = 0.05
        optimizer = { kind = "sgd", lr = 0.1, momentum = 0.5, nesterov = true }"#,
    ),
    (
        "steps left out",
        r#"input = [6]
        layers = [{ kind = "dense", out = 2 }]"#,
        r#"epochs = 2
        loss = "mse"
        accumulate = 2
        on_nan = "skip"
        optimizer = { kind = "adam", lr = 0.05 }"#,
    ),
];

/// A run whose best epoch is not its last, with running statistics.
const KEPT: (&str, &str) = (
    r#"input = [1, 2, 3]
    layers = [{ kind = "conv2d", out = 2, kernel = 3, padding = 1 }, { kind = "batch_norm2d" }, { kind = "silu" },
              { kind = "flatten" }, { kind = "dense", out = 3 }]"#,
    r#"epochs = 6
    accumulate = 2
    loss = "cross_entropy"
    optimizer = { kind = "adam", lr = 0.3 }"#,
);

/// Runs beside the plain loop, and a run that goes on beside one that was never stopped.
pub fn runs() -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for (name, model, train) in CASES {
        rows.extend(beside_plain(name, model, train)?);
    }
    rows.extend(kept_and_resumed()?);
    Ok(rows)
}

fn beside_plain(name: &str, model: &str, train: &str) -> Result<Vec<Row>> {
    let experiment = experiment(model, train)?;
    let broken = experiment.train.on_nan == OnNan::Skip;
    // Weights of 0 in one case; elsewhere every sample counts.
    let weighted = experiment.train.pipeline > 0;
    let (train, validation) = (
        data(0, false, broken, weighted)?,
        data(1, false, false, false)?,
    );
    let (records, kept, task) = fitted(&experiment, &train, Some(&validation), None)?;
    let plain = Plain {
        network: task.model(),
        spec: &experiment.train,
        loss: task.loss(),
        train: &train,
        validation: Some(&validation),
        script: None,
    };
    plain.beside(name, &records, &kept)
}

/// The parameters and statistics that are kept are those of the best epoch, and a run that is stopped anywhere and
/// resumed ends with the same bits and the same records.
fn kept_and_resumed() -> Result<Vec<Row>> {
    let experiment = experiment(KEPT.0, KEPT.1)?;
    let (train, validation) = (data(0, true, false, false)?, data(1, true, false, false)?);
    let (records, kept, task) = fitted(&experiment, &train, Some(&validation), None)?;
    let values: Vec<f64> = records
        .iter()
        .filter_map(|r| r.get("validation_loss"))
        .collect();
    let least = values.iter().copied().fold(f64::INFINITY, crate::math::min);
    let plain = Plain {
        network: task.model(),
        spec: &experiment.train,
        loss: task.loss(),
        train: &train,
        validation: Some(&validation),
        script: None,
    };
    let exact = plain.validation::<f64>(&cast(&kept));
    let runs = parallel::isolated(RUNS, |run| {
        Rounded::start(run as u64 + 1, &Granted::CPU);
        [plain.validation::<Rounded>(&cast(&kept)).to_f64()]
    });
    let bounds = Bounds::new(&[exact], runs.iter().map(|r| &r[..]));
    let compared = compare(&[least], &[exact], |i| bounds.at(i));
    let mut rows = vec![Row::compared(
        "runs",
        "kept: validation loss",
        Link::Training,
        &compared,
    )];
    // Otherwise the row above says nothing about what was kept when.
    let last = usize::from(values.last() == Some(&least));
    rows.push(holds(
        "runs",
        "kept: before the last epoch",
        Link::Training,
        values.len(),
        last,
    ));
    for stop in [3, 6, 23] {
        rows.push(resumed(
            &experiment,
            (&train, &validation),
            stop,
            (&records, &kept, &task),
        )?);
    }
    Ok(rows)
}

/// Stops after so many batches, goes on in another session.
fn resumed(
    experiment: &Experiment,
    (train, validation): (&Dataset, &Dataset),
    stop: u64,
    (records, kept, task): (&[Record], &[f32], &NetworkTask),
) -> Result<Row> {
    let label = format!("resumed after {stop} batches");
    let Ok(folder) = tempfile::tempdir() else {
        let why = "no folder for temporary files";
        return Ok(Row::unchecked("runs", label, Link::Training, why));
    };
    let path = folder.path().join("run");
    let flag = AtomicBool::new(false);
    let network = Network::new(&experiment.model_as()?)?;
    let mut first = NetworkTask::on(experiment, network, train.clone(), Some(validation.clone()))?;
    let mut watch = Watch {
        stop: Some((stop, &flag)),
        ..Watch::default()
    };
    let session = Session::new(experiment.clone())
        .in_folder(&path)
        .reported(false);
    match session
        .stopped_by(&flag)
        .observed_by(&mut watch)
        .fit(&mut first)
    {
        Err(Error::Interrupted { .. }) => {}
        Err(error) => return Err(error),
        Ok(_) => return Ok(holds("runs", label, Link::Training, 1, 1)),
    }
    let (later, again, other) = fitted(experiment, train, Some(validation), Some(&path))?;
    let mut all = watch.records;
    all.extend(later);
    let bits = |v: &[f32]| v.iter().map(|v| v.to_bits()).collect::<Vec<_>>();
    let figures = |r: &Record| {
        (
            r.epoch,
            r.step,
            r.train_loss.to_bits(),
            r.lr.to_bits(),
            r.metrics.clone(),
            r.best,
        )
    };
    let mut wrong = usize::from(bits(&again) != bits(kept));
    wrong += usize::from(!all.iter().map(figures).eq(records.iter().map(figures)));
    wrong += usize::from(other.model().buffers() != task.model().buffers());
    Ok(holds("runs", label, Link::Training, kept.len(), wrong))
}
