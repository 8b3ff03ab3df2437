//! The loop of `[train]` written plainly, and what runs beside it.
//!
//! It is written from the definitions of `[train]`, for any scalar: in f64 it is the oracle, and with
//! every result rounded at random it says how far f32 may be from it. It knows of no shards, no threads and no
//! processes. Gradients, optimizers, schedules and batches are those that other checks hold to oracles of their own.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use super::{FEW, row};
use crate::data::{Batches, Dataset};
use crate::group::{Alone, Group};
use crate::network::{Network, NetworkSpec};
use crate::optim::Optimizer;
use crate::rng::Key;
use crate::scalar::cast;
use crate::train::{Event, Experiment, NetworkTask, Observer, OnNan, Record, Session, TrainSpec};
use crate::verify::builtin::structured;
use crate::verify::precision::Bounds;
use crate::verify::report::{Link, Row, compare, largest};
use crate::verify::rounded::{Granted, Rounded};
use crate::{Grads, Loss, Model, Pass, Result, Scalar, Target, parallel};

/// Runs that predict rounding.
pub(super) const RUNS: usize = 8;

/// Images of this shape, or as many values.
pub(super) const SAMPLE: [usize; 3] = [1, 2, 3];

/// Samples for training and for validation.
pub(super) const SAMPLES: [usize; 2] = [13, 7];

/// An experiment of `[model]` and `[train]`, in batches of 3 where that says nothing.
pub(super) fn experiment(model: &str, train: &str) -> Result<Experiment> {
    let batch = if train.contains("batch =") {
        ""
    } else {
        "batch = 3\n"
    };
    let text = format!(
        "name = \"run\"\n[model]\nfamily = \"network\"\n{model}\n[data]\n[train]\n{batch}seed = 5\n{train}\n"
    );
    Experiment::parse(&text, "the verifier's run")
}

/// Structured samples with two values or one of three classes each; `broken` has one whose loss is no f32.
pub(super) fn data(part: usize, classes: bool, broken: bool, weighted: bool) -> Result<Dataset> {
    samples(part, SAMPLES[part], classes, broken, weighted)
}

/// So many of them.
pub(super) fn samples(
    part: usize,
    n: usize,
    classes: bool,
    broken: bool,
    weighted: bool,
) -> Result<Dataset> {
    let len = SAMPLE.iter().product::<usize>();
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
pub(super) struct Epoch<T> {
    pub params: Vec<T>,
    pub loss: T,
    pub validation: T,
    pub rate: f64,
    /// The attempt, counted from 1.
    pub attempt: u64,
}

/// What decides about the next attempt, where a task can say whether its model has learned.
#[derive(Clone, Copy)]
pub(super) struct Script {
    /// Whether the figures after an epoch are right, and whether what is asked for beside is.
    pub right: fn(u64) -> bool,
    pub confirmed: fn(u64) -> bool,
    /// Whether a start is about to learn.
    pub hopeful: bool,
    /// The seed of the first parameters of an attempt, counted from 0.
    pub seed: fn(u64, u64) -> u64,
}

/// The loop as `[train]` defines it.
pub(super) struct Plain<'a> {
    pub network: &'a Network,
    pub spec: &'a TrainSpec,
    pub loss: Loss,
    pub train: &'a Dataset,
    pub validation: Option<&'a Dataset>,
    pub script: Option<Script>,
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
    pub fn validation<T: Scalar>(&self, params: &[T]) -> T {
        let Some(validation) = self.validation else {
            return T::ZERO;
        };
        let (mut x, mut target) = (Vec::new(), Target::default());
        validation.gather_range(0..validation.len(), &mut x, &mut target);
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

    pub fn run<T: Scalar>(&self) -> Result<Vec<Epoch<T>>> {
        let spec = self.spec;
        let mut batches = Batches::new(self.train.len(), spec.batch.unwrap_or(1), spec.seed)?;
        let per_epoch = batches.per_epoch();
        // An attempt has the schedule of a whole run.
        let each = match self.script {
            Some(_) => spec.restart_after.unwrap_or(spec.epochs),
            None => spec.epochs,
        };
        let updates = each * per_epoch.div_ceil(spec.accumulate);
        let mut params: Vec<T> = cast(&self.network.init(spec.seed));
        let mut older = params.clone();
        let mut optimizer = Optimizer::new(spec.optimizer, params.len());
        let (mut update, mut epochs) = (0, Vec::new());
        let (mut sum, mut count) = (T::ZERO, 0);
        let (mut attempt, mut begun, mut right) = (1, 0, 0);
        for epoch in 0..spec.epochs {
            let steps: Vec<u64> = (epoch * per_epoch..(epoch + 1) * per_epoch).collect();
            let mut rate = 0.0;
            for together in steps.chunks(spec.accumulate as usize) {
                let at = if spec.pipeline > 0 { &older } else { &params };
                let (mut value, mut d) = self.mean_gradient(at, together, &mut batches);
                rate = spec.optimizer.lr() * spec.schedule.factor(update, updates);
                update += 1;
                // What f32 does not hold is infinite there.
                if spec.on_nan == OnNan::Skip && value.to_f64() > f64::from(f32::MAX) {
                    continue;
                }
                value += self.network.penalty(at, Some(&mut d));
                self.clip(&mut d);
                older.clone_from(&params);
                optimizer.step(&mut params, &d, self.network.layout(), rate);
                sum += value;
                count += 1;
            }
            if (epoch + 1) % spec.evaluate_every != 0 && epoch + 1 != spec.epochs {
                continue;
            }
            epochs.push(Epoch {
                validation: self.validation(&params),
                params: params.clone(),
                loss: sum / T::from_usize(count),
                rate,
                attempt,
            });
            (sum, count) = (T::ZERO, 0);
            let Some(script) = self.script else { continue };
            right = if (script.right)(epoch + 1) {
                right + 1
            } else {
                0
            };
            let enough = spec.stop_when_learned.is_some_and(|enough| right >= enough);
            if enough && (script.confirmed)(epoch + 1) {
                break;
            }
            // A start that is about to learn has half as many steps again, and what is right and not confirmed no more
            // than what is wrong.
            let spent = (epoch + 1 - begun) * per_epoch;
            let most = each * per_epoch;
            let most = if script.hopeful {
                most + most / 2
            } else {
                most
            };
            if spent >= most && (right == 0 || enough) && epoch + 1 < spec.epochs {
                params = cast(&self.network.init((script.seed)(spec.seed, attempt)));
                optimizer = Optimizer::new(spec.optimizer, params.len());
                (update, begun, attempt) = (0, epoch + 1, attempt + 1);
            }
        }
        Ok(epochs)
    }

    /// Loss and gradient of the batches of one update: their mean, or their sum where the loss is one.
    fn mean_gradient<T: Scalar>(
        &self,
        at: &[T],
        together: &[u64],
        batches: &mut Batches,
    ) -> (T, Vec<T>) {
        let (mut d, mut value) = (vec![T::ZERO; at.len()], T::ZERO);
        let n = T::from_usize(together.len());
        for &step in together {
            let (loss, own) = self.gradient(at, batches.of_step(step), step);
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
        (value, d)
    }

    /// Parameters, losses, rates and attempts of a run beside this loop's.
    pub fn beside(&self, name: &str, records: &[Record], kept: &[f32]) -> Result<Vec<Row>> {
        let exact = self.run::<f64>()?;
        let runs = parallel::isolated(RUNS, |run| {
            Rounded::start(run as u64 + 1, &Granted::CPU);
            self.run::<Rounded>()
        });
        let runs: Vec<Vec<Epoch<Rounded>>> = runs.into_iter().collect::<Result<_>>()?;
        // Where nothing is measured the last are kept.
        let best = match self.validation {
            Some(_) => first_least(exact.iter().map(|e| e.validation)),
            None => exact.len() - 1,
        };
        let judged =
            |what: &str, got: &[f64], is: &[f64], of: &dyn Fn(&[Epoch<Rounded>]) -> Vec<f64>| {
                let drawn: Vec<Vec<f64>> = runs.iter().map(|run| of(run)).collect();
                within(
                    ("runs", Link::Training),
                    format!("{name}: {what}"),
                    got,
                    is,
                    &drawn,
                )
            };
        let of_records = |f: &dyn Fn(&Record) -> f64| records.iter().map(f).collect::<Vec<f64>>();
        let of_plain = |f: &dyn Fn(&Epoch<f64>) -> f64| exact.iter().map(f).collect::<Vec<f64>>();
        let losses = |run: &[Epoch<Rounded>]| run.iter().map(|e| e.loss.to_f64()).collect();
        let kept = cast::<f32, f64>(kept);
        let params = |run: &[Epoch<Rounded>]| cast(&run[best].params);
        let mut rows = vec![
            judged("parameters", &kept, &exact[best].params, &params),
            judged(
                "losses",
                &of_records(&|r| r.train_loss),
                &of_plain(&|e| e.loss),
                &losses,
            ),
        ];
        if self.validation.is_some() {
            rows.push(judged(
                "validation losses",
                &of_records(&|r| r.get("validation_loss").unwrap_or(f64::NAN)),
                &of_plain(&|e| e.validation),
                &|run| run.iter().map(|e| e.validation.to_f64()).collect(),
            ));
        }
        let exactly = |what: &str, got: &[f64], is: &[f64]| {
            let label = format!("{name}: {what}");
            row("runs", label, Link::Training, got, is, FEW)
        };
        let rates = of_records(&|r| r.lr);
        rows.push(exactly("rates", &rates, &of_plain(&|e| e.rate)));
        if self.script.is_some() {
            let attempts = of_records(&|r| r.get("attempt").unwrap_or(f64::NAN));
            rows.push(exactly(
                "attempts",
                &attempts,
                &of_plain(&|e| e.attempt as f64),
            ));
        }
        Ok(rows)
    }
}

/// The first of the least.
fn first_least(values: impl Iterator<Item = f64>) -> usize {
    let least = values.enumerate().min_by(|a, b| a.1.total_cmp(&b.1));
    least.map_or(0, |(i, _)| i)
}

/// What was computed in f32 beside the same in f64, within what runs that round at random explain.
pub(super) fn within(
    (model, link): (&str, Link),
    label: String,
    got: &[f64],
    is: &[f64],
    drawn: &[Vec<f64>],
) -> Row {
    let bounds = Bounds::new(is, drawn.iter().map(|d| &d[..]));
    match bounds.meaningful(largest(is)) {
        true => Row::compared(model, label, link, &compare(got, is, |i| bounds.at(i))),
        false => Row::unchecked(model, label, link, "rounding alone explains a tenth"),
    }
}

/// Keeps the records, and asks for an end after a step.
#[derive(Default)]
pub(super) struct Watch<'a> {
    pub records: Vec<Record>,
    pub stop: Option<(u64, &'a AtomicBool)>,
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
pub(super) type Fitted = (Vec<Record>, Vec<f32>, NetworkTask);

pub(super) fn fitted(
    experiment: &Experiment,
    train: &Dataset,
    validation: Option<&Dataset>,
    resume: Option<&Path>,
) -> Result<Fitted> {
    fitted_in(experiment, train, validation, resume, &Alone)
}

/// The same as one process of a group.
pub(super) fn fitted_in(
    experiment: &Experiment,
    train: &Dataset,
    validation: Option<&Dataset>,
    resume: Option<&Path>,
    group: &dyn Group,
) -> Result<Fitted> {
    let spec: NetworkSpec = experiment.model_as()?;
    let network = Network::new(&spec)?;
    let mut task = NetworkTask::on(experiment, network, train.clone(), validation.cloned())?;
    let (mut kept, mut watch) = (Vec::new(), Watch::default());
    let mut session = Session::new(experiment.clone());
    if let Some(path) = resume {
        session = session.resuming(path);
    }
    if group.size() > 1 {
        session = session.in_group(group);
    }
    session
        .kept_in(&mut kept)
        .observed_by(&mut watch)
        .reported(false)
        .fit(&mut task)?;
    Ok((watch.records, kept, task))
}
