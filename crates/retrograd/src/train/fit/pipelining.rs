//! Steps whose gradients come from elsewhere while the CPU makes updates: in pieces, or a whole step late.

use super::super::step::{Clip, StepError, Stepped};
use super::super::{Event, Task};
use super::Fit;
use crate::clock::Instant;
use crate::{Loss, Model, Pass, Result};

impl<T: Task> Fit<'_, T> {
    /// What is done to gradients, by the settings.
    pub(super) fn clip(&self) -> Clip {
        Clip {
            element: self.spec.clip_element,
            norm: self.spec.clip,
        }
    }

    /// Makes the batch of a step.
    pub(super) fn load(&mut self, step: u64) -> Result<()> {
        let start = Instant::now();
        let loaded = self.task.batch(step, &mut self.example);
        self.progress.loading += start.elapsed().as_secs_f64();
        loaded
    }

    /// A step on one batch is over.
    pub(super) fn stepped(&mut self, loss: f64) {
        self.progress.step += 1;
        self.progress.loss_sum += loss;
        self.progress.loss_count += 1;
        let step = self.progress.step;
        self.observer.event(Event::Step { step, loss });
    }

    /// One step on one batch, tensors updated as their gradients arrive from where they are computed.
    pub(super) fn arriving_step(
        &mut self,
        loss: Loss,
        pass: &Pass,
        clip: &Clip,
    ) -> Result<(), StepError> {
        self.load(self.progress.step)?;
        let example = self.example.as_ref().expect("a task gives a batch");
        let accelerator = self.accelerator.as_mut().expect("in hybrid mode");
        let model = self.task.model();
        let stepped = self
            .stepper
            .arriving_step(model, clip, self.lr, |params, known, grads| {
                accelerator.gradient_in_pieces(params, known, loss, example, pass, grads)
            });
        let (Stepped { loss, penalty }, seconds) = stepped?;
        self.progress.updating += seconds;
        self.stepped(loss + penalty);
        Ok(())
    }

    /// One step on one batch of a pipeline: the update of the step before is made while the gradient is
    /// computed elsewhere, and this one's is left for the next.
    pub(super) fn pipelined_step(
        &mut self,
        loss: Loss,
        pass: &Pass,
        clip: &Clip,
    ) -> Result<(), StepError> {
        self.load(self.progress.step)?;
        let example = self.example.as_ref().expect("a task gives a batch");
        let accelerator = self.accelerator.as_mut().expect("in hybrid mode");
        // With an update to come, the parameters are those from before it.
        let at = match self.pending {
            Some(_) => &self.stepper.params[..],
            None => self.stepper.taken_at(),
        };
        accelerator.begin_gradient(at, loss, example, pass)?;
        self.apply_pending(clip)?;
        let accelerator = self.accelerator.as_mut().expect("in hybrid mode");
        let value = accelerator.finish_gradient(&mut self.stepper.grads)?;
        self.stepper.note_loss(value, false);
        let model = self.task.model();
        self.stepper.check_finite(model)?;
        let penalty = f64::from(model.penalty(self.stepper.taken_at(), None));
        self.pending = Some(self.lr);
        self.stepped(value + penalty);
        Ok(())
    }

    /// Makes the update that a pipeline has left for later.
    pub(super) fn apply_pending(&mut self, clip: &Clip) -> Result<(), StepError> {
        if let Some(lr) = self.pending.take() {
            let start = Instant::now();
            self.stepper.update(self.task.model(), clip, lr)?;
            self.progress.updating += start.elapsed().as_secs_f64();
        }
        Ok(())
    }
}
