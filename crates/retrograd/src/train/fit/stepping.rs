//! One step after the other: the rate, the batch, what shards, devices and fused updates make of it, and
//! numbers that are not finite.

use super::super::shards::{Asked, Shards};
use super::super::step::{BadNumber, Clip, Lesson, StepError, Stepped};
use super::super::{Arrived, Event, MicroBatch, Mode, OnNan, Start, Task, Updating};
use super::Fit;
use crate::clock::Instant;
use crate::rng::Key;
use crate::{Error, Loss, Model, Pass, Result};

impl<T: Task> Fit<'_, T> {
    /// The learning rate of the update that a step is part of.
    pub(super) fn rate(&self, step: u64, per_epoch: u64) -> f64 {
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
    pub(super) fn adapt(&mut self, step: u64, per_epoch: u64) -> Result<()> {
        let ended = step / per_epoch;
        if step == 0 || !step.is_multiple_of(per_epoch) || !self.task.adapts(ended) {
            return Ok(());
        }
        self.sync()?;
        self.task.adapt(&mut self.stepper.params)?;
        self.restart_accelerator()
    }

    /// What computes steps elsewhere goes on from the parameters that are here.
    pub(super) fn restart_accelerator(&mut self) -> Result<()> {
        self.stepper.restart_pipeline();
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
    pub(super) fn step(&mut self, per_epoch: u64) -> Result<(), StepError> {
        let spec = self.spec;
        let loss = self.task.loss();
        let key = Key::new(spec.seed).purpose("step");
        let first = self.progress.step;
        let batches = spec.accumulate.min(per_epoch - first % per_epoch);
        self.lr = self.rate(first, per_epoch);
        let of_step = |index| MicroBatch { index, of: batches };
        let [share, _] = of_step(0).shares(loss);
        let clip = self.clip();
        let updating = Updating {
            clip: &clip,
            lr: self.lr,
            skip_not_finite: spec.on_nan == OnNan::Skip,
            fused: spec.fused_updates,
        };
        let mode = self.accelerator.as_ref().map(|a| a.mode());
        let native = mode == Some(Mode::Native);
        if native && self.shards.is_none() {
            for i in 0..batches {
                let pass = Pass::training(key.step(first + i));
                self.native_batch(loss, &pass, of_step(i), &updating)?;
            }
            return Ok(());
        }
        let pass = Pass::training(key.step(first));
        if mode == Some(Mode::Hybrid) && self.shards.is_none() && batches == 1 {
            if spec.pipeline > 0 {
                return self.pipelined_step(loss, &pass, &clip);
            }
            if self.stepper.steps_in_pieces(self.task.model(), &clip) {
                return self.arriving_step(loss, &pass, &clip);
            }
        }
        if spec.fused_updates && mode.is_none() {
            return self.fused_step(loss, &pass, &clip);
        }
        self.apply_pending(&clip)?;
        let sliced = |shards: &Shards<'_, _>| shards.slices(&clip, &self.stepper);
        self.slices = mode.is_none() && self.shards.as_ref().is_some_and(sliced);
        let mut value = 0.0;
        for i in 0..batches {
            let step = first + i;
            if self.shards.is_some() {
                value += self.shard_gradients(loss, key, step, share, i > 0)? / batches as f64;
                continue;
            }
            self.load(step)?;
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
            let grads = self.stepper.grads();
            let arrived = accelerator.update(grads, value, &updating)?;
            self.take_losses(&arrived)?;
            self.progress.step += batches;
            let step = self.progress.step;
            self.observer.event(Event::Step { step, loss: value });
            return Ok(());
        }
        let start = Instant::now();
        let (model, stepper) = (self.task.model(), &mut self.stepper);
        let penalty = match &self.shards {
            Some(shards) if self.slices => shards.update(stepper, model, &clip, self.lr),
            _ => Ok(stepper.update(model, &clip, self.lr)?),
        };
        self.progress.updating += start.elapsed().as_secs_f64();
        let penalty = penalty?;
        self.state_here &= !self.slices;
        self.progress.step += batches;
        self.progress.loss_sum += value + penalty;
        self.progress.loss_count += 1;
        self.observer.event(Event::Step {
            step: self.progress.step,
            loss: value + penalty,
        });
        Ok(())
    }

    /// A batch of a step that is made whole elsewhere.
    fn native_batch(
        &mut self,
        loss: Loss,
        pass: &Pass,
        micro: MicroBatch,
        updating: &Updating<'_>,
    ) -> Result<(), StepError> {
        self.load(self.progress.step + micro.index)?;
        let example = self.example.as_ref().expect("a task gives a batch");
        let accelerator = self.accelerator.as_mut().expect("in native mode");
        let arrived = accelerator.step(loss, example, pass, micro, updating)?;
        self.take_losses(&arrived)?;
        if micro.is_last() {
            self.progress.step += micro.of;
        }
        if let Some(last) = arrived.last() {
            let (step, loss) = (self.progress.step, last.loss);
            self.observer.event(Event::Step { step, loss });
        }
        Ok(())
    }

    /// The first batch of the step that is so many steps after the accelerator's first.
    fn accelerated_step(&self, steps: u64) -> u64 {
        let per_epoch = self.task.steps_per_epoch().max(1);
        let (from, each) = (self.accelerated_from, self.spec.accumulate);
        // The epoch that it began in may have been cut by another number of batches before.
        let left = per_epoch - from % per_epoch;
        match steps.checked_sub(left.div_ceil(each)) {
            None => from + steps * each,
            Some(beyond) => {
                let in_epoch = per_epoch.div_ceil(each);
                from + left + beyond / in_epoch * per_epoch + beyond % in_epoch * each
            }
        }
    }

    /// Loss and gradient of a batch that is cut into shards.
    pub(super) fn shard_gradients(
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
            sliced: self.slices,
            save: self.is_to_save(),
        };
        let shards = self.shards.as_mut().expect("where there are shards");
        let accelerator = self.accelerator.as_mut();
        let value = shards.gradient(self.task, &mut self.stepper, accelerator, &asked);
        self.progress.loading += std::mem::take(&mut shards.loading);
        value
    }

    /// One step on one batch, tensors updated as their gradients are complete.
    pub(super) fn fused_step(
        &mut self,
        loss: Loss,
        pass: &Pass,
        clip: &Clip,
    ) -> Result<(), StepError> {
        self.load(self.progress.step)?;
        let example = self.example.as_ref().expect("a task gives a batch");
        let lesson = Lesson::new(loss, example, pass);
        let (stepper, model) = (&mut self.stepper, self.task.model());
        let Stepped { loss, penalty } =
            stepper.fused_step(model, &lesson, clip, self.lr, &mut ())?;
        self.task.model_mut().absorb(stepper.tape());
        self.stepped(loss + penalty);
        Ok(())
    }

    /// Takes in losses of steps computed elsewhere. The first that was not finite ends the run, at
    /// the state before it: no step after it has changed anything.
    pub(super) fn take_losses(&mut self, arrived: &[Arrived]) -> Result<(), StepError> {
        for one in arrived {
            let step = self.accelerated_step(one.step);
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
                let mut bad = BadNumber::new(tensor, one.loss);
                bad.half_updated = self.spec.fused_updates && one.loss.is_finite();
                return Err(bad.into());
            }
            self.progress.skipped += 1;
            self.observer.event(Event::Skipped { step, tensor });
        }
        Ok(())
    }

    /// Brings the state back from where steps are computed.
    pub(super) fn sync(&mut self) -> Result<()> {
        let clip = self.clip();
        if let Err(error) = self.apply_pending(&clip) {
            return self.not_finite(error);
        }
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
    pub(super) fn not_finite(&mut self, error: StepError) -> Result<()> {
        let step = self.progress.step;
        let bad = match error {
            StepError::Other(error) => return Err(error),
            StepError::NotFinite(bad) => bad,
        };
        if self.spec.on_nan == OnNan::Skip {
            let per_epoch = self.task.steps_per_epoch().max(1);
            self.progress.step += self.spec.accumulate.min(per_epoch - step % per_epoch);
            self.progress.skipped += 1;
            self.stepper.restart_pipeline();
            self.observer.event(Event::Skipped {
                step,
                tensor: &bad.tensor,
            });
            return Ok(());
        }
        self.gather_state();
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
}
