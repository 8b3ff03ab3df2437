//! The loop: batches, loss, penalty, backward, clipping, schedule, optimizer, evaluation,
//! checkpoints.
//!
//! What a step does is a function of the parameters, the optimizer's state, the seed and the
//! step's number. All of it is in a checkpoint, so N steps equal k steps, save, resume and N−k
//! steps, bit for bit.

use crate::clock::Instant;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

mod attempts;
mod ending;
mod halving;
mod pipelining;
mod saving;
mod stepping;

use super::checkpoint::{Best, Progress, take_weights};
use super::folder::{MetricsFile, RunFolder};
use super::report;
use super::shards::Shards;
use super::step::Stepper;
use super::{
    Accelerator, Carried, Event, Example, Experiment, Findings, Mode, Observer, Placement,
    Precision, Record, Start, Summary, Task, TensorFile, TrainSpec,
};
use crate::group::{Alone, Courier, Frame, Group, Tree, meet};
use crate::verify::Mistake;
use crate::{Buffer, Error, Model, Result};

pub(super) struct Fit<'a, T: Task> {
    experiment: &'a Experiment,
    spec: &'a TrainSpec,
    task: &'a mut T,
    folder: Option<RunFolder>,
    observer: &'a mut dyn Observer,
    stop: Option<&'a AtomicBool>,

    stepper: Stepper<T::Model>,
    /// The processes that share the work, and the shards of a batch.
    group: &'a dyn Group,
    courier: Option<&'a Courier<'a>>,
    shards: Option<Shards<'a, T::Model>>,
    /// Whether every process updates its slice of the parameters alone, and whether the optimizer's state of
    /// all slices is here.
    slices: bool,
    state_here: bool,
    /// Where steps are computed, if not here, and the step that it began with.
    accelerator: Option<Box<dyn Accelerator<T::Model>>>,
    accelerated_from: u64,
    /// In a pipeline: the rate of an update whose gradient is here, and which is made beside the next one's.
    pending: Option<f64>,
    /// What an accelerator knows beside parameters and optimizer, as of the last save.
    carried: Carried,
    example: Option<Example<T::Model>>,
    progress: Progress,
    records: Vec<Record>,
    metrics: MetricsFile,
    /// The best parameters and buffers so far; the last where nothing decides.
    best_params: Vec<f32>,
    best_buffers: Vec<Buffer>,
    /// Whether they differ from what is on the disk.
    best_changed: bool,
    saved: Instant,
    /// Whether the checkpoint on the disk is good enough to be kept beside the next one.
    keeps_previous: bool,
    lr: f64,
    /// How long the last step, evaluation and checkpoint took.
    last_step: Option<Duration>,
    last_evaluation: Option<Duration>,
    last_save: Duration,
    /// Whether the trained model is verified.
    pub(super) verify: bool,
    /// What is wrong with its gradients on purpose.
    pub(super) mistake: Option<&'a Mistake>,
    /// Whether curves and report are drawn.
    pub(super) report: bool,
    /// Where the best parameters are left at the end.
    pub(super) kept: Option<&'a mut Vec<f32>>,
    /// What others found out, for summary and report.
    pub(super) added: Findings,
    /// What computes the steps, for the report.
    device: String,
}

impl<'a, T: Task> Fit<'a, T> {
    pub(super) fn new(
        experiment: &'a Experiment,
        task: &'a mut T,
        observer: &'a mut dyn Observer,
        stop: Option<&'a AtomicBool>,
        resume: bool,
    ) -> Result<Self> {
        let spec = &experiment.train;
        for pattern in &spec.freeze {
            task.model_mut().layout_mut().freeze(pattern)?;
        }
        let params = if resume {
            // Those of the checkpoint come in their place.
            task.model().init(spec.seed)
        } else {
            first_params(experiment, task)?
        };
        let mut stepper = Stepper::new(task.model(), params, spec.optimizer);
        stepper.image_loss = task.image_loss();
        if spec.pipeline > 0 {
            stepper.pipeline(None);
        }
        Ok(Fit {
            experiment,
            spec,
            folder: None,
            observer,
            stop,
            best_params: stepper.params.clone(),
            best_buffers: task.model().buffers(),
            best_changed: true,
            task,
            stepper,
            group: &Alone,
            courier: None,
            shards: None,
            slices: false,
            state_here: true,
            accelerator: None,
            accelerated_from: 0,
            pending: None,
            carried: Carried::default(),
            example: None,
            progress: Progress {
                seed: spec.seed,
                ..Progress::default()
            },
            records: Vec::new(),
            metrics: MetricsFile::default(),
            saved: Instant::now(),
            keeps_previous: true,
            lr: 0.0,
            last_step: None,
            last_evaluation: None,
            last_save: Duration::ZERO,
            verify: false,
            mistake: None,
            report: true,
            kept: None,
            added: Findings::default(),
            device: report::cpu(),
        })
    }

    /// Lets steps be computed elsewhere, from the state that is here now.
    pub(super) fn accelerate(&mut self, placement: &Placement) -> Result<()> {
        let mixed = matches!(
            placement,
            Placement::Gpu {
                precision: Precision::Mixed,
                ..
            }
        );
        if self.spec.fused_updates && mixed {
            return Err(Error::invalid(
                "train.fused_updates",
                "true with --precision mixed",
                "false: whether the loss scale was too large, and the step doesn't count, is known \
                 when the whole gradient is",
            ));
        }
        let stepper = &self.stepper;
        let start = Start {
            params: &stepper.params,
            optimizer: &stepper.optimizer,
            carried: &self.carried,
            image_loss: stepper.image_loss.as_ref(),
        };
        let Some(made) = self.task.model().accelerator(placement, &start)? else {
            return Ok(());
        };
        if self.spec.pipeline > 0 && made.mode() == Mode::Native {
            return Err(Error::invalid(
                "train.pipeline",
                format!("{} with --mode native", self.spec.pipeline),
                "--mode hybrid: a native step makes its update on the device, there is nothing on the \
                 CPU to do beside it",
            ));
        }
        if let Some(shards) = self.spec.shards {
            let mixed = mixed && made.mode() == Mode::Native;
            let refused = match (mixed, self.task.model().couples_samples()) {
                (true, _) => Some((
                    "--precision mixed",
                    "--mode hybrid, or --precision f32: a native step in 16 bits scales its own loss",
                )),
                (_, true) => Some((
                    "batch norm on a GPU",
                    "--device cpu, or another norm: shards look at each other on the CPU alone",
                )),
                _ => None,
            };
            if let Some((with, instead)) = refused {
                return Err(Error::invalid(
                    "train.shards",
                    format!("{shards} with {with}"),
                    instead,
                ));
            }
        }
        let mode = match made.mode() {
            Mode::Native => "native",
            Mode::Hybrid => "hybrid, the optimizer on the CPU",
        };
        self.device = format!("{}, {mode}", made.name());
        self.accelerator = Some(made);
        self.accelerated_from = self.progress.step;
        Ok(())
    }

    /// Shares the work of every batch with the processes of a group, which the courier reaches.
    pub(super) fn share(&mut self, shards: Option<usize>, courier: &'a Courier<'a>) {
        self.group = courier.group();
        self.courier = Some(courier);
        self.shards = shards.map(|shards| Shards::new(Tree::new(shards), courier));
        if let (Some(shards), Some(samples)) = (&self.shards, self.task.samples(0)) {
            self.task.only(shards.own_samples(samples));
        }
    }

    /// That all processes have the same before them.
    pub(super) fn compare(&self) -> Result<()> {
        if self.group.size() == 1 {
            return Ok(());
        }
        let own = format!(
            "{}\n{} steps an epoch, {} parameters, step {}, contract {}",
            self.experiment.to_toml(),
            self.task.steps_per_epoch(),
            self.stepper.params.len(),
            self.progress.step,
            super::CONTRACT,
        );
        let met = meet(self.group, Frame::Fine(own.as_bytes()))?;
        match met.iter().position(|other| *other != met[0]) {
            None => Ok(()),
            Some(rank) => Err(Error::refused(
                "processes",
                format!(
                    "rank {rank} has another experiment, data of another size or another version \
                     than rank 0; give all the same files"
                ),
            )),
        }
    }

    pub(super) fn run(mut self) -> Result<Summary> {
        let spec = self.spec;
        let per_epoch = self.task.steps_per_epoch().max(1);
        let total = spec.last_epoch().saturating_mul(per_epoch);
        self.observer.event(Event::Start {
            params: self
                .task
                .model()
                .layout()
                .trainable()
                .map(|r| r.len())
                .sum(),
            step: self.progress.step,
            steps: total,
            steps_per_epoch: per_epoch,
        });
        // An evaluation that a signal ended is made up for.
        let mut stopped_early = self.progress.loss_count > 0 && {
            self.lr = self.rate(self.progress.step.saturating_sub(1), per_epoch);
            self.evaluate_if_due(per_epoch, total)?
        };
        stopped_early |= self.progress.learned;
        while self.progress.step < total && !stopped_early {
            let before = self.progress.step;
            let long = self.steps_long();
            if long {
                self.before_long_step()?;
            }
            let start = Instant::now();
            self.adapt(before, per_epoch)?;
            if let Err(bad) = self.step_as_it_fits(per_epoch) {
                self.not_finite(bad)?;
            } else if long {
                // Steps elsewhere are only begun here: how long they take is known when they end.
                self.sync()?;
            }
            self.gather_state_to_save(before);
            self.last_step = Some(start.elapsed());
            self.progress.stepping += start.elapsed().as_secs_f64();
            self.progress.forward += self.stepper.take_forward_seconds();
            self.observer.event(Event::Stepped);
            if self.evaluates_long() {
                self.end_if_stopped()?;
            }
            stopped_early = self.evaluate_if_due(per_epoch, total)?;
            let at_end = self.progress.step >= total || stopped_early;
            if !at_end {
                self.end_if_stopped()?;
                self.save_at_interval(before);
            }
        }
        self.finish(per_epoch)
    }

    fn is_stopped(&self) -> bool {
        match &self.shards {
            // When all know of it.
            Some(shards) if self.group.size() > 1 => shards.stopped,
            _ => self.asked_to_stop(),
        }
    }

    fn asked_to_stop(&self) -> bool {
        self.stop.is_some_and(|stop| stop.load(Ordering::SeqCst))
    }

    /// Saves and ends the run where someone asked for it.
    fn end_if_stopped(&mut self) -> Result<()> {
        if !self.is_stopped() {
            return Ok(());
        }
        self.save()?;
        let step = self.progress.step;
        Err(Error::Interrupted { step })
    }

    /// Evaluates at the end of an epoch that is to be; says whether the run ends early by it.
    fn evaluate_if_due(&mut self, per_epoch: u64, total: u64) -> Result<bool> {
        let step = self.progress.step;
        let epoch = step / per_epoch;
        let due = epoch.is_multiple_of(self.spec.evaluate_every) || step == total;
        if !step.is_multiple_of(per_epoch) {
            return Ok(false);
        }
        if !due {
            let (sum, count) = (self.progress.loss_sum, self.progress.loss_count);
            self.observer.event(Event::EpochEnded {
                epoch,
                step,
                train_loss: (count > 0).then(|| sum / count as f64),
                lr: self.lr,
                seconds: self.seconds(),
            });
            return Ok(false);
        }
        self.save_before_evaluation();
        self.observer.event(Event::Evaluating);
        if self.evaluates_long() {
            // Whoever asked before this event saw nothing to wait for.
            self.end_if_stopped()?;
        }
        let start = Instant::now();
        self.evaluate(epoch)?;
        self.last_evaluation = Some(start.elapsed());
        if self.has_learned(epoch)? || self.no_better_since(epoch) {
            return Ok(true);
        }
        if !self.round_if_due(epoch)? {
            self.restart_if_hopeless(per_epoch, total)?;
        }
        Ok(false)
    }

    fn evaluate(&mut self, epoch: u64) -> Result<()> {
        self.sync()?;
        if self.progress.loss_count == 0 {
            return Err(Error::NotFinite {
                step: self.progress.step,
                tensor: "every loss or gradient since the last evaluation".into(),
                value: f64::NAN,
                advice: "no step is left to learn from: lower the learning rate or look at the \
                         data"
                    .into(),
            });
        }
        let start = Instant::now();
        let mut metrics = self.task.evaluate(&self.stepper.params, epoch)?;
        self.progress.perfect = match self.task.learned(&metrics) {
            true => self.progress.perfect + 1,
            false => 0,
        };
        if self.spec.attempts().is_some() {
            metrics.push(("attempt".into(), (self.progress.restarts + 1) as f64));
        }
        let picture = self.task.picture(&self.stepper.params);
        let view = match self.observer.views() {
            true => self.task.view(&self.stepper.params)?,
            false => Vec::new(),
        };
        self.progress.evaluating += start.elapsed().as_secs_f64();
        let mut record = Record {
            epoch,
            step: self.progress.step,
            train_loss: self.progress.loss_sum / self.progress.loss_count as f64,
            lr: self.lr,
            metrics,
            seconds: self.seconds(),
            best: false,
        };
        self.progress.loss_sum = 0.0;
        self.progress.loss_count = 0;
        let (name, smaller) = self.task.best_by();
        let value = record.get(name);
        // What is not finite is no measure: neither better nor worse than anything.
        if let Some(value) = value.filter(|value| value.is_finite())
            && self.progress.best.is_none_or(|best| {
                if smaller {
                    value < best.value
                } else {
                    value > best.value
                }
            })
        {
            self.progress.best = Some(Best { value, epoch });
            record.best = true;
        }
        // Where nothing decides the last are kept.
        if record.best || self.progress.best.is_none() {
            self.best_params.copy_from_slice(&self.stepper.params);
            self.best_buffers = self.task.model().buffers();
            self.best_changed = true;
        }
        self.observer.event(Event::Epoch(&record));
        if let Some(picture) = picture {
            self.observer.event(Event::Picture(&picture));
        }
        if !view.is_empty() {
            self.observer.event(Event::View(&view));
        }
        self.records.push(record);
        if let Some(folder) = &self.folder
            && let Err(error) = self.metrics.append(&folder.metrics(), &self.records)
        {
            // The file is written whole at the end, where a failure ends the run.
            self.observer.event(Event::SaveFailed(&error));
        }
        Ok(())
    }

    fn no_better_since(&mut self, epoch: u64) -> bool {
        let (Some(patience), Some(best)) = (self.spec.early_stopping, self.progress.best) else {
            return false;
        };
        let stop = epoch - best.epoch >= patience;
        if stop {
            self.observer
                .event(Event::StoppedEarly { best: best.epoch });
        }
        stop
    }

    fn seconds(&self) -> f64 {
        self.progress.stepping + self.progress.evaluating + self.progress.saving
    }
}

/// The parameters that a new run begins with.
fn first_params<T: Task>(experiment: &Experiment, task: &mut T) -> Result<Vec<f32>> {
    let Some(path) = &experiment.train.weights else {
        return Ok(task.model().init(experiment.train.seed));
    };
    let path = experiment.resolve(path);
    take_weights(&TensorFile::read(&path)?, &path, task.model_mut())
}

fn set_buffers<M: Model>(model: &mut M, buffers: &[Buffer]) -> Result<()> {
    buffers.iter().try_for_each(|b| model.set_buffer(b))
}

/// The `[model]` table as text, keys sorted.
fn model_text(experiment: &Experiment) -> String {
    serde_json::to_string(&experiment.model).expect("a table of plain values")
}
