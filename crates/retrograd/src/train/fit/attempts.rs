//! Where a task can say that its model has learned: the end of the run by it, and starts that are
//! given up.
//!
//! What an attempt draws is a function of the run's seed and its number, and both the number and the
//! step at which it began are in every checkpoint: a run that was resumed within an attempt goes on as
//! if it had not been stopped. Steps are counted over all attempts, so that none of them sees the
//! batches of another.

use super::super::{Event, Task};
use super::Fit;
use crate::clock::Instant;
use crate::model::Model;
use crate::optim::Optimizer;
use crate::{Error, Result};

impl<T: Task> Fit<'_, T> {
    /// What is asked for is something that the task can do.
    pub(in super::super) fn check_attempts(&self) -> Result<()> {
        let asked = [
            ("train.stop_when_learned", self.spec.stop_when_learned),
            ("train.restart_after", self.spec.restart_after),
            ("train.round_every", self.spec.round_every),
            ("train.thin", self.spec.thin.then_some(1)),
        ];
        match asked.into_iter().find_map(|(key, n)| Some((key, n?))) {
            Some((key, got)) if !self.task.judges() => Err(Error::invalid(
                key,
                got,
                "no such setting: only automata have learned at some point, or not; \
                 early_stopping ends a run that gets no better",
            )),
            _ => Ok(()),
        }
    }

    /// Whether the run ends because nothing is left to learn.
    pub(super) fn has_learned(&mut self, epoch: u64) -> Result<bool> {
        let enough = self.spec.stop_when_learned;
        if enough.is_none_or(|enough| self.progress.perfect < enough)
            || !self.task.confirm(&self.stepper.params, epoch)?
        {
            return Ok(false);
        }
        self.thin_if_asked(epoch)?;
        self.progress.learned = true;
        self.observer.event(Event::Learned { epoch });
        Ok(true)
    }

    /// Looks for a smaller model in the place of the one that has learned, and keeps it as the best.
    fn thin_if_asked(&mut self, epoch: u64) -> Result<()> {
        if !self.spec.thin {
            return Ok(());
        }
        let start = Instant::now();
        if self.task.thin(&mut self.stepper.params, epoch)? {
            self.best_params.copy_from_slice(&self.stepper.params);
            self.best_buffers = self.task.model().buffers();
            self.best_changed = true;
            self.restart_accelerator()?;
        }
        self.progress.evaluating += start.elapsed().as_secs_f64();
        Ok(())
    }

    /// Whether something is left to learn after an evaluation: not all was right, or all was for long enough and what the
    /// model is for beside was not confirmed.
    fn is_unsure(&self) -> bool {
        let perfect = self.progress.perfect;
        let enough = self.spec.stop_when_learned;
        perfect == 0 || enough.is_some_and(|enough| perfect >= enough)
    }

    /// Looks for an exact model near the soft one; says whether there was one. It is evaluated from
    /// the next epoch on, as any other.
    pub(super) fn round_if_due(&mut self, epoch: u64) -> Result<bool> {
        let due = self.spec.round_every;
        let due = due.is_some_and(|every| epoch.is_multiple_of(every));
        let (true, Some(record)) = (due && self.is_unsure(), self.records.last()) else {
            return Ok(false);
        };
        let loss = record.train_loss;
        let start = Instant::now();
        let found = self.task.round(&mut self.stepper.params, loss, epoch)?;
        self.progress.evaluating += start.elapsed().as_secs_f64();
        if found {
            self.progress.rounded = true;
            self.restart_accelerator()?;
        }
        Ok(found)
    }

    /// Begins the next attempt where this one has had its epochs and there are some left.
    pub(super) fn restart_if_hopeless(&mut self, per_epoch: u64, total: u64) -> Result<()> {
        let (Some(attempts), Some(after)) = (self.spec.attempts(), self.spec.restart_after) else {
            return Ok(());
        };
        let step = self.progress.step;
        let spent = step - self.progress.attempt_step;
        let after = after.saturating_mul(per_epoch);
        // What has been right so far is first seen through, and what is nearly so gets half as long again.
        let loss = self.records.last().map_or(f64::NAN, |r| r.train_loss);
        let nearly = spent < after.saturating_add(after / 2) && self.task.hopeful(loss);
        if spent < after || step >= total || !self.is_unsure() || nearly {
            return Ok(());
        }
        let progress = &mut self.progress;
        progress.restarts += 1;
        progress.attempt_step = step;
        progress.perfect = 0;
        progress.rounded = false;
        let attempt = progress.restarts;
        let stepper = &mut self.stepper;
        stepper.params = self.task.begin_again(self.spec.seed, attempt)?;
        stepper.optimizer = Optimizer::new(self.spec.optimizer, stepper.params.len());
        self.state_here = true;
        self.example = None;
        self.restart_accelerator()?;
        self.observer.event(Event::Restarted {
            attempt: attempt + 1,
            attempts,
            epoch: step / per_epoch,
        });
        Ok(())
    }
}
