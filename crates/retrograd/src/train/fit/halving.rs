//! Steps on a device whose memory runs out in the middle of a run.
//!
//! Other programs may take it, or a batch of graphs be larger than those before. Nothing has changed when an
//! allocation fails: the step is made again, with its batch in two parts whose gradients are added, in four
//! if that is still too much, and so on, and those that follow in as many. It is the way of shards
//! ([`super::super::shards`]), so batches, rates and losses are those of the whole batch; only sums are
//! rounded otherwise.

use super::super::shards::Shards;
use super::super::step::StepError;
use super::super::{Event, Mode, Task};
use super::Fit;
use crate::group::Tree;
use crate::{Error, Model, Result};

impl<T: Task> Fit<'_, T> {
    /// A step, in as many parts as it needs.
    pub(super) fn step_as_it_fits(&mut self, per_epoch: u64) -> Result<(), StepError> {
        loop {
            match self.step(per_epoch) {
                Err(StepError::Other(error)) if error.is_no_memory() => self.halve(error)?,
                done => return done,
            }
        }
    }

    /// From here on batches have twice as many parts; the error where that can't be.
    fn halve(&mut self, error: Error) -> Result<()> {
        let step = self.progress.step;
        let parts = 2 * self.shards.as_ref().map_or(1, Shards::count);
        let samples = self.task.samples(step).unwrap_or(1);
        let (Some(accelerator), Some(courier)) = (&mut self.accelerator, self.courier) else {
            return Err(error);
        };
        let mixed = accelerator.carried()?.loss_scale.is_some();
        let whole = self.task.model().couples_samples()
            || (mixed && accelerator.mode() == Mode::Native)
            || self.spec.pipeline > 0
            || self.spec.fused_updates;
        // Where processes share a batch, its parts are the experiment's.
        if parts > samples || whole || self.group.size() > 1 {
            return Err(error);
        }
        self.shards = Some(Shards::new(Tree::new(parts), courier));
        let text = format!(
            "{error}. From step {step} on, batches are computed in {parts} parts whose gradients are added: \
             the same steps, rounded otherwise"
        );
        self.observer.event(Event::Warning(&text));
        Ok(())
    }
}
