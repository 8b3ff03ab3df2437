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
mod saving;

use super::checkpoint::{Best, Progress, take_weights};
use super::folder::{MetricsFile, RunFolder};
use super::report;
use super::shards::{Asked, Shards};
use super::step::{BadNumber, Clip, Lesson, StepError, Stepped, Stepper};
use super::{
    Accelerator, Arrived, Carried, Digests, Event, Example, Experiment, Findings, Mode, Observer,
    OnNan, Placement, Precision, Record, Source, Specimen, Start, Summary, Task, TensorFile,
    TrainSpec, Verification,
};
use crate::group::{Alone, Courier, Frame, Group, Tree, meet};
use crate::rng::Key;
use crate::verify::{self, Link, Report, Row};
use crate::{Buffer, Error, Loss, Model, Pass, Result, Target};

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
    shards: Option<Shards<'a, T::Model>>,
    /// Where steps are computed, if not here, and the step that it began with.
    accelerator: Option<Box<dyn Accelerator<T::Model>>>,
    accelerated_from: u64,
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
            shards: None,
            accelerator: None,
            accelerated_from: 0,
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
            report: true,
            kept: None,
            added: Findings::default(),
            device: report::cpu(),
        })
    }

    /// Lets steps be computed elsewhere, from the state that is here now.
    pub(super) fn accelerate(&mut self, placement: &Placement) -> Result<()> {
        if self.spec.fused_updates && *placement != Placement::Cpu {
            return Err(Error::invalid(
                "train.fused_updates",
                "true with --device gpu",
                "false: a device's step is a recording with its updates at the end, where loss \
                 scaling (mixed precision) knows whether the step counts",
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
        if made.mode() == Mode::Native && self.spec.accumulate > 1 {
            return Err(Error::invalid(
                "train.accumulate",
                self.spec.accumulate,
                "1 with --mode native; --mode hybrid accumulates",
            ));
        }
        if let Some(shards) = self.spec.shards {
            let mixed = matches!(
                placement,
                Placement::Gpu {
                    mode: Mode::Native,
                    precision: Precision::Mixed,
                    ..
                }
            );
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
            if let Err(bad) = self.step(per_epoch) {
                self.not_finite(bad)?;
            } else if long {
                // Steps elsewhere are only begun here: how long they take is known when they end.
                self.sync()?;
            }
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
        if !step.is_multiple_of(per_epoch) || !due {
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

    /// The learning rate of the update that a step is part of.
    fn rate(&self, step: u64, per_epoch: u64) -> f64 {
        let spec = self.spec;
        // Every attempt has the whole schedule.
        let step = step.saturating_sub(self.progress.attempt_step);
        let (epoch, in_epoch) = (step / per_epoch, step % per_epoch);
        let updates_per_epoch = per_epoch.div_ceil(spec.accumulate);
        let update = epoch * updates_per_epoch + in_epoch / spec.accumulate;
        let updates = spec.attempt_epochs().saturating_mul(updates_per_epoch);
        spec.optimizer.lr() * spec.schedule.factor(update, updates)
    }

    /// Before the first step of an epoch the task may change its model. What computes steps elsewhere
    /// goes on from there.
    fn adapt(&mut self, step: u64, per_epoch: u64) -> Result<()> {
        let ended = step / per_epoch;
        if step == 0 || !step.is_multiple_of(per_epoch) || !self.task.adapts(ended) {
            return Ok(());
        }
        self.sync()?;
        self.task.adapt(&mut self.stepper.params)?;
        self.restart_accelerator()
    }

    /// What computes steps elsewhere goes on from the parameters that are here.
    fn restart_accelerator(&mut self) -> Result<()> {
        if let Some(accelerator) = &mut self.accelerator {
            self.carried = accelerator.carried()?;
            let start = Start {
                params: &self.stepper.params,
                optimizer: &self.stepper.optimizer,
                carried: &self.carried,
                image_loss: self.stepper.image_loss.as_ref(),
            };
            accelerator.restart(self.task.model(), &start)?;
            self.accelerated_from = self.progress.step;
        }
        Ok(())
    }

    /// One optimizer step, on as many batches as it accumulates within the epoch.
    fn step(&mut self, per_epoch: u64) -> Result<(), StepError> {
        let spec = self.spec;
        let loss = self.task.loss();
        let key = Key::new(spec.seed).purpose("step");
        let first = self.progress.step;
        let batches = spec.accumulate.min(per_epoch - first % per_epoch);
        self.lr = self.rate(first, per_epoch);
        let share = match loss {
            Loss::SumSquares => 1.0,
            _ => 1.0 / batches as f32,
        };
        let clip = Clip {
            element: spec.clip_element,
            norm: spec.clip,
        };
        let mode = self.accelerator.as_ref().map(|a| a.mode());
        let native = mode == Some(Mode::Native);
        if let Some(accelerator) = self.accelerator.as_mut().filter(|_| native)
            && self.shards.is_none()
        {
            let start = Instant::now();
            self.task.batch(first, &mut self.example)?;
            self.progress.loading += start.elapsed().as_secs_f64();
            let example = self.example.as_ref().expect("a task gives a batch");
            let pass = Pass::training(key.step(first));
            let skip = spec.on_nan == OnNan::Skip;
            let arrived = accelerator.step(loss, example, &pass, &clip, self.lr, skip)?;
            let last = arrived.last().map(|a| a.loss);
            self.take_losses(&arrived)?;
            self.progress.step += 1;
            if let Some(loss) = last {
                let step = self.progress.step;
                self.observer.event(Event::Step { step, loss });
            }
            return Ok(());
        }
        if spec.fused_updates {
            let pass = Pass::training(key.step(first));
            return self.fused_step(loss, &pass, &clip);
        }
        let mut value = 0.0;
        for i in 0..batches {
            let step = first + i;
            if self.shards.is_some() {
                value += self.shard_gradients(loss, key, step, share, i > 0)? / batches as f64;
                continue;
            }
            let start = Instant::now();
            self.task.batch(step, &mut self.example)?;
            self.progress.loading += start.elapsed().as_secs_f64();
            let example = self.example.as_ref().expect("a task gives a batch");
            let pass = Pass::training(key.step(step));
            let stepper = &mut self.stepper;
            let one = match &mut self.accelerator {
                Some(accelerator) => stepper.gradient_from(share, i > 0, |params, grads| {
                    accelerator.gradient(params, loss, example, &pass, grads)
                })?,
                None => stepper.gradient(self.task.model(), loss, example, &pass, share, i > 0)?,
            };
            value += one / batches as f64;
            // An accelerator keeps the running statistics until they are brought back.
            if one.is_finite() && self.accelerator.is_none() {
                self.task.model_mut().absorb(stepper.tape());
            }
        }
        if let Some(accelerator) = self.accelerator.as_mut().filter(|_| native) {
            self.stepper.check_finite(self.task.model())?;
            let skip = spec.on_nan == OnNan::Skip;
            let grads = self.stepper.grads();
            let arrived = accelerator.update(grads, value, &clip, self.lr, skip)?;
            self.take_losses(&arrived)?;
            self.progress.step += batches;
            let step = self.progress.step;
            self.observer.event(Event::Step { step, loss: value });
            return Ok(());
        }
        let start = Instant::now();
        let penalty = self.stepper.update(self.task.model(), &clip, self.lr);
        self.progress.updating += start.elapsed().as_secs_f64();
        let penalty = penalty?;
        self.progress.step += batches;
        self.progress.loss_sum += value + penalty;
        self.progress.loss_count += 1;
        self.observer.event(Event::Step {
            step: self.progress.step,
            loss: value + penalty,
        });
        Ok(())
    }

    /// Loss and gradient of a batch that is cut into shards.
    fn shard_gradients(
        &mut self,
        loss: Loss,
        key: Key,
        step: u64,
        share: f32,
        add: bool,
    ) -> Result<f64> {
        let asked = Asked {
            loss,
            key,
            step,
            share,
            add,
            stop: self.asked_to_stop(),
        };
        let shards = self.shards.as_mut().expect("where there are shards");
        let accelerator = self.accelerator.as_mut();
        let value = shards.gradient(self.task, &mut self.stepper, accelerator, &asked);
        self.progress.loading += std::mem::take(&mut shards.loading);
        value
    }

    /// One step on one batch, tensors updated as their gradients are complete.
    fn fused_step(&mut self, loss: Loss, pass: &Pass, clip: &Clip) -> Result<(), StepError> {
        let start = Instant::now();
        self.task.batch(self.progress.step, &mut self.example)?;
        self.progress.loading += start.elapsed().as_secs_f64();
        let example = self.example.as_ref().expect("a task gives a batch");
        let lesson = Lesson::new(loss, example, pass);
        let (stepper, model) = (&mut self.stepper, self.task.model());
        let Stepped { loss, penalty } =
            stepper.fused_step(model, &lesson, clip, self.lr, &mut ())?;
        self.task.model_mut().absorb(stepper.tape());
        self.progress.step += 1;
        self.progress.loss_sum += loss + penalty;
        self.progress.loss_count += 1;
        self.observer.event(Event::Step {
            step: self.progress.step,
            loss: loss + penalty,
        });
        Ok(())
    }

    /// Takes in losses of steps computed elsewhere. The first that was not finite ends the run, at
    /// the state before it: no step after it has changed anything.
    fn take_losses(&mut self, arrived: &[Arrived]) -> Result<(), StepError> {
        for one in arrived {
            let step = self.accelerated_from + one.step;
            if one.updated {
                self.progress.loss_sum += one.loss;
                self.progress.loss_count += 1;
                continue;
            }
            let tensor = if one.loss.is_finite() {
                "a gradient"
            } else {
                "the loss"
            };
            if self.spec.on_nan == OnNan::Stop {
                self.progress.step = step;
                return Err(BadNumber::new(tensor, one.loss).into());
            }
            self.progress.skipped += 1;
            self.observer.event(Event::Skipped { step, tensor });
        }
        Ok(())
    }

    /// Brings the state back from where steps are computed.
    fn sync(&mut self) -> Result<()> {
        let Some(mut accelerator) = self.accelerator.take() else {
            return Ok(());
        };
        let stepper = &mut self.stepper;
        let arrived = accelerator.sync(
            &mut stepper.params,
            &mut stepper.optimizer,
            self.task.model_mut(),
        )?;
        let taken = self.take_losses(&arrived);
        match taken {
            Ok(()) => {
                self.accelerator = Some(accelerator);
                Ok(())
            }
            Err(error) => {
                self.carried = accelerator.carried()?;
                self.not_finite(error)
            }
        }
    }

    /// The step after `progress.step` failed: nothing has changed in it but running statistics.
    fn not_finite(&mut self, error: StepError) -> Result<()> {
        let step = self.progress.step;
        let bad = match error {
            StepError::Other(error) => return Err(error),
            StepError::NotFinite(bad) => bad,
        };
        if self.spec.on_nan == OnNan::Skip {
            let per_epoch = self.task.steps_per_epoch().max(1);
            self.progress.step += self.spec.accumulate.min(per_epoch - step % per_epoch);
            self.progress.skipped += 1;
            self.observer.event(Event::Skipped {
                step,
                tensor: &bad.tensor,
            });
            return Ok(());
        }
        // What failed elsewhere is brought back here for the last time.
        if let Some(mut accelerator) = self.accelerator.take() {
            let stepper = &mut self.stepper;
            let model = self.task.model_mut();
            accelerator.sync(&mut stepper.params, &mut stepper.optimizer, model)?;
            self.carried = accelerator.carried()?;
        }
        let kept = self.keep_last_good(&bad);
        let (clip, skip) = if self.spec.fused_updates {
            ("clip_element", " and without fused_updates")
        } else {
            ("clip", "")
        };
        Err(Error::NotFinite {
            step,
            tensor: bad.tensor,
            value: bad.value,
            advice: format!(
                "lower the learning rate, set {clip}, look at the data, or leave such steps out \
                 with --on-nan skip{skip}{kept}"
            ),
        })
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

    fn finish(mut self, per_epoch: u64) -> Result<Summary> {
        self.save()?;
        self.observer.event(Event::Finishing);
        if self.is_stopped() {
            let step = self.progress.step;
            return Err(Error::Interrupted { step });
        }
        if self.group.rank() > 0 {
            return Ok(Summary::default());
        }
        let mut summary = self.figures(per_epoch)?;
        let weights = self.best_file()?;
        if let Some(kept) = self.kept.take() {
            kept.clone_from(&self.best_params);
        }
        let run = self.folder.as_ref().map(RunFolder::path);
        let device = self.accelerator.is_some().then_some(&*self.device);
        summary.digests = Some(Digests::new(&weights, self.experiment, run, device)?);
        drop(weights);
        let Some(folder) = &self.folder else {
            return Ok(summary);
        };
        let start = Instant::now();
        let findings = self.task.finish(&self.best_params, folder.path())?;
        let finishing = start.elapsed().as_secs_f64();
        summary.more.extend(findings.summary);
        self.add_sources(&mut summary);
        summary.verdict = self.task.verdict(&summary);
        let added = self.added.figures.iter().cloned();
        let figures: Vec<_> = added.chain(findings.figures).collect();
        summary.more.extend(self.added.summary.clone());
        if self.verify {
            let verification = self.verification();
            self.observer.event(Event::Verified(&verification));
            summary.verification = Some(verification);
        }
        let Some(folder) = &self.folder else {
            return Ok(summary);
        };
        self.metrics.rewrite(&folder.metrics(), &self.records)?;
        let json = serde_json::to_string_pretty(&summary.to_json()).expect("plain values");
        folder.write(&folder.summary(), &(json + "\n"))?;
        if !self.report {
            return Ok(summary);
        }
        let curves = report::curves(&self.records);
        folder.write(&folder.curves(), &curves)?;
        let page = report::page(&report::Page {
            experiment: self.experiment,
            folder: folder.path(),
            layout: self.task.model().layout(),
            summary: &summary,
            progress: &self.progress,
            records: &self.records,
            figures: &figures,
            finishing,
            device: &self.device,
        });
        folder.write(&folder.report(), &page)?;
        Ok(summary)
    }

    /// The figures of the parameters that were kept: all of one epoch.
    fn figures(&mut self, per_epoch: u64) -> Result<Summary> {
        let progress = &self.progress;
        let best = progress.best.map(|best| best.epoch);
        let kept = match best {
            Some(epoch) => self.records.iter().find(|r| r.epoch == epoch),
            None => self.records.last(),
        };
        let mut summary = Summary {
            epochs: progress.step / per_epoch,
            steps: progress.step,
            seconds: self.seconds(),
            ms_per_step: progress.stepping * 1e3 / progress.step.max(1) as f64,
            train_loss: kept.map_or(f64::NAN, |r| r.train_loss),
            validation_loss: kept.and_then(|r| r.get("validation_loss")),
            skipped_steps: progress.skipped,
            attempts: self
                .spec
                .attempts()
                .map(|most| (progress.restarts + 1, most)),
            best_epoch: best,
            chosen_by: progress.best.map(|best| {
                let (name, smaller) = self.task.best_by();
                (name, smaller, best.value)
            }),
            ..Summary::default()
        };
        for (name, value) in kept.iter().flat_map(|r| &r.metrics) {
            if !["validation_loss", "attempt"].contains(&name.as_str()) {
                summary.more.insert(name.clone(), (*value).into());
            }
        }
        if progress.rounded {
            summary.more.insert("rounded".into(), true.into());
        }
        set_buffers(self.task.model_mut(), &self.best_buffers)?;
        for (name, value) in self.task.measure(&self.best_params)? {
            summary.more.insert(name, value.into());
        }
        self.add_sources(&mut summary);
        Ok(summary)
    }

    /// Says of every measure where it comes from.
    fn add_sources(&self, summary: &mut Summary) {
        let epoch = summary.best_epoch.unwrap_or(summary.epochs);
        let losses = [
            ("train_loss", Some(summary.train_loss)),
            ("validation_loss", summary.validation_loss),
        ];
        let losses = losses.into_iter().filter(|l| l.1.is_some()).map(|l| l.0);
        let more = summary.more.iter().filter(|(_, value)| value.is_number());
        let names = losses.chain(more.map(|(name, _)| name.as_str()));
        let source = |name: &str| {
            Some(Source {
                name: name.to_string(),
                on: self.task.measured_on(name)?,
                epoch,
            })
        };
        summary.sources = names.filter_map(source).collect();
    }

    /// Checks the best parameters on the task's specimen. That it cannot be done is a finding, not
    /// the end of a run that is otherwise whole.
    fn verification(&mut self) -> Verification {
        let start = Instant::now();
        let name = &self.experiment.name;
        let report = self.check_specimen().unwrap_or_else(|error| Report {
            rows: vec![Row::unchecked(
                name,
                "the model",
                Link::Differences,
                error.to_string(),
            )],
        });
        Verification {
            report,
            seconds: start.elapsed().as_secs_f64(),
        }
    }

    fn check_specimen(&mut self) -> Result<Report> {
        let Specimen {
            mut example,
            mut model,
        } = self.task.specimen()?;
        if let Some(model) = &mut model {
            set_buffers(model, &self.best_buffers)?;
            for pattern in &self.spec.freeze {
                model.layout_mut().freeze(pattern)?;
            }
        }
        let model = model.as_ref().unwrap_or(self.task.model());
        let loss = self.task.loss();
        miss(&mut example.target, loss);
        let Example { input, target } = &example;
        let name = &self.experiment.name;
        // With the kernels that trained it.
        let own = self.accelerator.as_ref().and_then(|a| a.verifier());
        let mut device = own.unwrap_or_else(|| Box::new(verify::Cpu));
        let params = &self.best_params;
        verify::check_trained_on(&mut *device, name, model, params, input, target, loss)
    }
}

/// Makes a target one that the model has not learnt. At the end of a training gradients vanish, and
/// what vanishes can hardly be checked.
fn miss(target: &mut Target<f32>, loss: Loss) {
    for class in &mut target.classes {
        *class = u32::from(*class == 0);
    }
    for value in &mut target.values {
        *value = match loss {
            Loss::BceLogits => 1.0 - *value,
            // Sums of squares grow with it, and their rounding.
            Loss::SumSquares => *value,
            _ => *value + 1.0,
        };
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
