//! The loop.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::step::{BadNumber, Clip, Stepper};
use super::{Event, Example, Experiment, Observer, OnNan, Quiet, Record, Summary, Task};
use crate::rng::Key;
use crate::{Error, Loss, Model, Pass, Result};

/// One run of an experiment: its settings, who watches, and how it is stopped.
pub struct Session<'a> {
    experiment: Experiment,
    stop: Option<&'a AtomicBool>,
    observer: Option<&'a mut (dyn Observer + Send)>,
}

impl<'a> Session<'a> {
    /// A run in memory, that writes no files.
    pub fn new(experiment: Experiment) -> Self {
        Session {
            experiment,
            stop: None,
            observer: None,
        }
    }

    /// The experiment, with what the command line changed.
    pub fn experiment(&self) -> &Experiment {
        &self.experiment
    }

    /// Who watches.
    pub fn observed_by(mut self, observer: &'a mut (dyn Observer + Send)) -> Self {
        self.observer = Some(observer);
        self
    }

    /// Training saves and ends when this becomes true.
    pub fn stopped_by(mut self, stop: &'a AtomicBool) -> Self {
        self.stop = Some(stop);
        self
    }
}

/// Where a run is: everything that decides how it goes on.
struct Progress {
    /// Steps done.
    step: u64,
    /// Losses of the good steps since the last record, and how many.
    loss_sum: f64,
    loss_count: u64,
    skipped: u64,
    /// Value and epoch of the best figure.
    best: Option<(f64, u64)>,
    /// Time spent in steps, and in everything.
    stepping: Duration,
    total: Duration,
}

impl Session<'_> {
    /// Trains a task to the end of the experiment.
    pub fn fit<T: Task>(&mut self, task: &mut T) -> Result<Summary> {
        let spec = self.experiment.train.clone();
        spec.check()?;
        for pattern in &spec.freeze {
            task.model_mut().layout_mut().freeze(pattern)?;
        }
        let params = task.model().init(spec.seed);
        let mut stepper = Stepper::new(task.model(), params, spec.optimizer);
        let mut progress = Progress {
            step: 0,
            loss_sum: 0.0,
            loss_count: 0,
            skipped: 0,
            best: None,
            stepping: Duration::ZERO,
            total: Duration::ZERO,
        };
        let mut records = Vec::new();
        let mut best_params = stepper.params.clone();
        let mut quiet = Quiet;
        let stop = self.stop;
        let observer: &mut dyn Observer = match self.observer.as_deref_mut() {
            Some(observer) => observer,
            None => &mut quiet,
        };

        let per_epoch = task.steps_per_epoch().max(1);
        let updates_per_epoch = per_epoch.div_ceil(spec.accumulate);
        let total = spec.epochs * per_epoch;
        let clip = Clip {
            element: spec.clip_element,
            norm: spec.clip,
        };
        let loss = task.loss();
        let key = Key::new(spec.seed).purpose("step");
        observer.event(Event::Start {
            params: task.model().layout().trainable().map(|r| r.len()).sum(),
            step: progress.step,
            steps: total,
            steps_per_epoch: per_epoch,
        });
        let started = Instant::now();
        let mut example: Option<Example<T::Model>> = None;
        while progress.step < total {
            let before = Instant::now();
            let in_epoch = progress.step % per_epoch;
            let epoch = progress.step / per_epoch;
            let batches = spec.accumulate.min(per_epoch - in_epoch);
            let update = epoch * updates_per_epoch + in_epoch / spec.accumulate;
            let lr = spec.optimizer.lr()
                * spec
                    .schedule
                    .factor(update, spec.epochs * updates_per_epoch);
            let share = match loss {
                Loss::SumSquares => 1.0,
                _ => 1.0 / batches as f32,
            };
            let mut value = 0.0;
            for i in 0..batches {
                let step = progress.step + i;
                task.batch(step, &mut example)?;
                let example = example.as_ref().expect("a task gives a batch");
                let pass = Pass::training(key.step(step));
                value += stepper.gradient(task.model(), loss, example, &pass, share, i > 0);
                task.model_mut().absorb(stepper.tape());
            }
            match stepper.update(task.model(), &clip, lr) {
                Ok(penalty) => {
                    progress.loss_sum += value / batches as f64 + penalty;
                    progress.loss_count += 1;
                }
                Err(bad) => not_finite(&spec.on_nan, &mut progress, bad, observer)?,
            }
            progress.step += batches;
            progress.stepping += before.elapsed();
            observer.event(Event::Step {
                step: progress.step,
                loss: value / batches as f64,
            });
            if stop.is_some_and(|stop| stop.load(Ordering::Relaxed)) {
                return Err(Error::Interrupted {
                    step: progress.step,
                });
            }
            let epochs = progress.step / per_epoch;
            let at_end = progress.step == total;
            if progress.step.is_multiple_of(per_epoch)
                && (epochs.is_multiple_of(spec.evaluate_every) || at_end)
            {
                let metrics = task.evaluate(&stepper.params, epochs)?;
                let record = Record {
                    epoch: epochs,
                    step: progress.step,
                    train_loss: progress.loss_sum / progress.loss_count as f64,
                    lr,
                    metrics,
                    seconds: started.elapsed().as_secs_f64(),
                    best: false,
                };
                progress.loss_sum = 0.0;
                progress.loss_count = 0;
                observer.event(Event::Epoch(&record));
                best_params.copy_from_slice(&stepper.params);
                records.push(record);
            }
        }
        progress.total = started.elapsed();
        let last = records.last();
        Ok(Summary {
            epochs: progress.step / per_epoch,
            steps: progress.step,
            seconds: progress.total.as_secs_f64(),
            ms_per_step: progress.stepping.as_secs_f64() * 1e3 / progress.step.max(1) as f64,
            train_loss: last.map_or(f64::NAN, |r| r.train_loss),
            validation_loss: last.and_then(|r| r.get("validation_loss")),
            skipped_steps: progress.skipped,
            best_epoch: progress.best.map(|(_, epoch)| epoch),
            more: Default::default(),
        })
    }
}

fn not_finite(
    on_nan: &OnNan,
    progress: &mut Progress,
    bad: BadNumber,
    observer: &mut dyn Observer,
) -> Result<()> {
    match on_nan {
        OnNan::Stop => Err(Error::NotFinite {
            step: progress.step,
            tensor: bad.tensor,
            value: bad.value,
            advice: "lower the learning rate, set clip, look at the data, or leave such steps \
                     out with --on-nan skip"
                .into(),
        }),
        OnNan::Skip => {
            progress.skipped += 1;
            observer.event(Event::Skipped {
                step: progress.step,
                tensor: &bad.tensor,
            });
            Ok(())
        }
    }
}
