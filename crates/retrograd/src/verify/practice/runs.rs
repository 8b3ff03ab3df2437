//! Whole runs beside a plain loop: which batches make a step and what each counts, the penalty, clipping, the
//! rate, frozen tensors, steps that are left out, a pipeline's older parameters, the losses that are reported, the
//! parameters and running statistics that are kept; and a run that is stopped and resumed beside one that isn't.
//!
//! The loop below is written from the definitions of `[train]`, for any scalar: in f64 it is the oracle, and with
//! every result rounded at random it says how far f32 may be from it. Gradients, optimizers, schedules and batches
//! are those that other checks hold to oracles of their own.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use super::{FEW, holds, row};
use crate::data::{Batches, Dataset};
use crate::network::{Network, NetworkSpec};
use crate::optim::Optimizer;
use crate::rng::Key;
use crate::scalar::cast;
use crate::train::{
    Event, Experiment, NetworkTask, Observer, OnNan, Record, Session, Task, TrainSpec,
};
use crate::verify::builtin::structured;
use crate::verify::precision::Bounds;
use crate::verify::report::{Link, Row, compare};
use crate::verify::rounded::{Granted, Rounded};
use crate::{Error, Grads, Loss, Model, Pass, Result, Scalar, Target, parallel};

/// Runs that predict rounding.
const RUNS: usize = 8;

/// Images of this shape, or as many values.
const SAMPLE: [usize; 3] = [1, 2, 3];

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

/// Samples for training and for validation.
const SAMPLES: [usize; 2] = [13, 7];

fn experiment(model: &str, train: &str) -> Result<Experiment> {
    let text = format!(
        "name = \"run\"\n[model]\nfamily = \"network\"\n{model}\n[data]\n[train]\nbatch = 3\nseed = 5\n{train}\n"
    );
    Experiment::parse(&text, "the verifier's run")
}

/// Structured samples with two values or one of three classes each; `broken` has one whose loss is no f32.
fn data(part: usize, classes: bool, broken: bool, weighted: bool) -> Result<Dataset> {
    let (n, len) = (SAMPLES[part], SAMPLE.iter().product::<usize>());
    let numbers = |count: usize, phase: f64| -> Vec<f32> { cast(&structured(count, phase)) };
    let shape = if classes { SAMPLE.to_vec() } else { vec![len] };
    let data = Dataset::new(shape, numbers(n * len, part as f64))?;
    let data = if classes {
        data.with_classes(
            3,
            (0..n as u32).map(|i| (i * i + part as u32) % 3).collect(),
        )?
    } else {
        let mut values = numbers(n * 2, 0.5 + part as f64);
        if broken {
            values[9] = 3e38;
        }
        data.with_values(vec![2], values)?
    };
    match weighted {
        true => data.with_weights((0..n).map(|i| [1.0, 0.5, 2.0, 0.0][i % 4]).collect()),
        false => Ok(data),
    }
}

/// What a run came to after an epoch.
struct Epoch<T> {
    params: Vec<T>,
    loss: T,
    validation: T,
    rate: f64,
}

/// The loop as `[train]` defines it.
struct Plain<'a> {
    network: &'a Network,
    spec: &'a TrainSpec,
    loss: Loss,
    train: &'a Dataset,
    validation: &'a Dataset,
}

impl Plain<'_> {
    /// Loss and gradient of one batch.
    fn gradient<T: Scalar>(&self, params: &[T], samples: &[u32], step: u64) -> (T, Vec<T>) {
        let (mut x, mut target) = (Vec::new(), Target::default());
        self.train.gather(samples, &mut x, &mut target);
        let (x, target): (Vec<T>, _) = (cast(&x), target.cast());
        let pass = Pass::training(Key::new(self.spec.seed).purpose("step").step(step)).reference();
        let mut tape = Default::default();
        self.network.compute_forward(params, &x, &pass, &mut tape);
        let y = self.network.output(&tape);
        let mut d_y = vec![T::ZERO; y.len()];
        let loss = self.loss.compute(y, &target, Some(&mut d_y));
        let mut d_params = vec![T::ZERO; params.len()];
        let grads = Grads {
            params: Some(&mut d_params),
            input: None,
            accumulate: false,
        };
        self.network
            .compute_backward(params, &x, &pass, &mut tape, &d_y, grads);
        (loss, d_params)
    }

    /// The loss on the validation samples, all at once.
    fn validation<T: Scalar>(&self, params: &[T]) -> T {
        let (mut x, mut target) = (Vec::new(), Target::default());
        self.validation
            .gather_range(0..self.validation.len(), &mut x, &mut target);
        let mut tape = Default::default();
        let pass = Pass::inference().reference();
        self.network
            .compute_forward(params, &cast(&x), &pass, &mut tape);
        self.loss
            .compute(self.network.output(&tape), &target.cast(), None)
    }

    /// Elements to ± a limit, then all that are trained to a norm.
    fn clip<T: Scalar>(&self, d: &mut [T]) {
        if let Some(limit) = self.spec.clip_element.map(T::from_f64) {
            for d in d.iter_mut() {
                *d = if *d > limit {
                    limit
                } else if *d < -limit {
                    -limit
                } else {
                    *d
                };
            }
        }
        let Some(most) = self.spec.clip else { return };
        let frozen = |i: usize| {
            self.network
                .layout()
                .locate(i)
                .is_some_and(|(tensor, _)| tensor.frozen)
        };
        let squares = (0..d.len())
            .filter(|&i| !frozen(i))
            .map(|i| d[i].to_f64() * d[i].to_f64());
        let norm = squares.sum::<f64>().sqrt();
        if norm > most {
            let factor = T::from_f64(most / (norm + 1e-6));
            d.iter_mut().for_each(|d| *d *= factor);
        }
    }

    fn run<T: Scalar>(&self) -> Result<Vec<Epoch<T>>> {
        let spec = self.spec;
        let mut batches = Batches::new(self.train.len(), spec.batch.unwrap_or(1), spec.seed)?;
        let per_epoch = batches.per_epoch();
        let updates = spec.epochs * per_epoch.div_ceil(spec.accumulate);
        let mut params: Vec<T> = cast(&self.network.init(spec.seed));
        let mut older = params.clone();
        let mut optimizer = Optimizer::new(spec.optimizer, params.len());
        let (mut update, mut epochs) = (0, Vec::new());
        let (mut sum, mut count) = (T::ZERO, 0);
        for epoch in 0..spec.epochs {
            let steps: Vec<u64> = (epoch * per_epoch..(epoch + 1) * per_epoch).collect();
            let mut rate = 0.0;
            for together in steps.chunks(spec.accumulate as usize) {
                let (mut d, mut value) = (vec![T::ZERO; params.len()], T::ZERO);
                let n = T::from_usize(together.len());
                let at = if spec.pipeline > 0 {
                    older.clone()
                } else {
                    params.clone()
                };
                for &step in together {
                    let (loss, own) = self.gradient(&at, batches.of_step(step), step);
                    value += loss / n;
                    let share = if self.loss == Loss::SumSquares {
                        T::ONE
                    } else {
                        T::ONE / n
                    };
                    for (d, own) in d.iter_mut().zip(own) {
                        *d += own * share;
                    }
                }
                rate = spec.optimizer.lr() * spec.schedule.factor(update, updates);
                update += 1;
                // What f32 does not hold is infinite there.
                if spec.on_nan == OnNan::Skip && value.to_f64() > f64::from(f32::MAX) {
                    continue;
                }
                value += self.network.penalty(&at, Some(&mut d));
                self.clip(&mut d);
                older.clone_from(&params);
                optimizer.step(&mut params, &d, self.network.layout(), rate);
                sum += value;
                count += 1;
            }
            if (epoch + 1) % spec.evaluate_every == 0 || epoch + 1 == spec.epochs {
                epochs.push(Epoch {
                    validation: self.validation(&params),
                    params: params.clone(),
                    loss: sum / T::from_usize(count),
                    rate,
                });
                (sum, count) = (T::ZERO, 0);
            }
        }
        Ok(epochs)
    }
}

/// Keeps the records, and asks for an end after a step.
#[derive(Default)]
struct Watch<'a> {
    records: Vec<Record>,
    stop: Option<(u64, &'a AtomicBool)>,
}

impl Observer for Watch<'_> {
    fn event(&mut self, event: Event<'_>) {
        match event {
            Event::Epoch(record) => self.records.push(record.clone()),
            Event::Step { step, .. } => {
                if let Some((after, stop)) = self.stop
                    && step >= after
                {
                    stop.store(true, Ordering::SeqCst);
                }
            }
            _ => {}
        }
    }
}

/// A session's records, the parameters it kept, and its task.
type Fitted = (Vec<Record>, Vec<f32>, NetworkTask);

fn fitted(
    experiment: &Experiment,
    train: &Dataset,
    validation: &Dataset,
    resume: Option<&Path>,
) -> Result<Fitted> {
    let spec: NetworkSpec = experiment.model_as()?;
    let network = Network::new(&spec)?;
    let mut task = NetworkTask::on(experiment, network, train.clone(), Some(validation.clone()))?;
    let (mut kept, mut watch) = (Vec::new(), Watch::default());
    let session = Session::new(experiment.clone());
    let session = match resume {
        Some(path) => session.resuming(path),
        None => session,
    };
    session
        .kept_in(&mut kept)
        .observed_by(&mut watch)
        .reported(false)
        .fit(&mut task)?;
    Ok((watch.records, kept, task))
}

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
    let (records, kept, task) = fitted(&experiment, &train, &validation, None)?;
    let plain = Plain {
        network: task.model(),
        spec: &experiment.train,
        loss: task.loss(),
        train: &train,
        validation: &validation,
    };
    let exact = plain.run::<f64>()?;
    let runs = parallel::isolated(RUNS, |run| {
        Rounded::start(run as u64 + 1, &Granted::CPU);
        plain.run::<Rounded>()
    });
    let runs: Vec<Vec<Epoch<Rounded>>> = runs.into_iter().collect::<Result<_>>()?;
    let best = |epochs: &[f64]| -> usize {
        let least = epochs.iter().copied().enumerate();
        least
            .min_by(|a, b| a.1.total_cmp(&b.1))
            .map_or(0, |(i, _)| i)
    };
    let best = best(&exact.iter().map(|e| e.validation).collect::<Vec<_>>());
    let judged =
        |what: &str, got: &[f64], is: &[f64], of: &dyn Fn(&[Epoch<Rounded>]) -> Vec<f64>| {
            let drawn: Vec<Vec<f64>> = runs.iter().map(|run| of(run)).collect();
            let bounds = Bounds::new(is, drawn.iter().map(|d| &d[..]));
            let label = format!("{name}: {what}");
            match bounds.meaningful(crate::verify::largest(is)) {
                true => Row::compared(
                    "runs",
                    label,
                    Link::Training,
                    &compare(got, is, |i| bounds.at(i)),
                ),
                false => Row::unchecked(
                    "runs",
                    label,
                    Link::Training,
                    "rounding alone explains a tenth",
                ),
            }
        };
    let of_records = |f: &dyn Fn(&Record) -> f64| records.iter().map(f).collect::<Vec<f64>>();
    let of_plain = |f: &dyn Fn(&Epoch<f64>) -> f64| exact.iter().map(f).collect::<Vec<f64>>();
    let losses = |run: &[Epoch<Rounded>]| run.iter().map(|e| e.loss.to_f64()).collect();
    let validations = |run: &[Epoch<Rounded>]| run.iter().map(|e| e.validation.to_f64()).collect();
    Ok(vec![
        judged(
            "parameters",
            &cast::<f32, f64>(&kept),
            &exact[best].params,
            &|run| cast(&run[best].params),
        ),
        judged(
            "losses",
            &of_records(&|r| r.train_loss),
            &of_plain(&|e| e.loss),
            &losses,
        ),
        judged(
            "validation losses",
            &of_records(&|r| r.get("validation_loss").unwrap_or(f64::NAN)),
            &of_plain(&|e| e.validation),
            &validations,
        ),
        row(
            "runs",
            format!("{name}: rates"),
            Link::Training,
            &of_records(&|r| r.lr),
            &of_plain(&|e| e.rate),
            FEW,
        ),
    ])
}

/// The parameters and statistics that are kept are those of the best epoch, and a run that is stopped anywhere and
/// resumed ends with the same bits and the same records.
fn kept_and_resumed() -> Result<Vec<Row>> {
    let experiment = experiment(KEPT.0, KEPT.1)?;
    let (train, validation) = (data(0, true, false, false)?, data(1, true, false, false)?);
    let (records, kept, task) = fitted(&experiment, &train, &validation, None)?;
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
        validation: &validation,
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
    let (later, again, other) = fitted(experiment, train, validation, Some(&path))?;
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
