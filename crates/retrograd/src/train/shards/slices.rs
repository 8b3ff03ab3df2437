//! Every process updates a slice of the parameters.
//!
//! The gradient is added where it is needed: at the process that owns the slice. It updates that, and all
//! share the new parameters. Updates are elementwise, so whoever makes them makes the same bits. What looks
//! at the whole gradient first, clipping by its norm, has no such form; and the optimizer's state is here
//! for the own slice alone until it is [gathered](Shards::gather_state) to be saved.

use std::ops::Range;

use super::Shards;
use crate::group::{Courier, Frame, cut, meet};
use crate::optim::Optimizer;
use crate::train::Stepper;
use crate::train::step::{BadNumber, Clip, StepError, Update, find_bad};
use crate::{Model, Result, parallel};

impl<M: Model> Shards<'_, M> {
    /// Whether every process may update its own slice alone.
    pub fn slices(&self, clip: &Clip, stepper: &Stepper<M>) -> bool {
        self.courier.group().size() > 1 && clip.norm.is_none() && stepper.stale.is_none()
    }

    /// [`Stepper::update`] with every process's own slice of the gradient. A number that is not finite in any
    /// of them changes nothing anywhere.
    pub fn update(
        &self,
        stepper: &mut Stepper<M>,
        model: &M,
        clip: &Clip,
        lr: f64,
    ) -> Result<f64, StepError> {
        let own = self.slice(stepper.params.len());
        let penalty = stepper.penalised(model)?;
        let bad = find_bad(
            &stepper.grads,
            model.layout(),
            own.clone(),
            "the gradient of",
        );
        if let Some(bad) = self.first_bad(bad)? {
            return Err(bad.into());
        }
        parallel::take_lines(&mut stepper.params[own.clone()]);
        let mut update = Update::new(model, &mut stepper.optimizer, clip, lr);
        update.apply(own, &mut stepper.params, &mut stepper.grads);
        update.end();
        share(self.courier, &mut stepper.params);
        Ok(penalty)
    }

    /// The optimizer's state of all slices, at every process.
    pub fn gather_state(&self, optimizer: &mut Optimizer<f32>) {
        for state in optimizer.state_mut() {
            share(self.courier, state);
        }
    }

    fn slice(&self, len: usize) -> Range<usize> {
        let group = self.courier.group();
        cut(len, group.rank(), group.size())
    }

    /// The first number of all slices that is not finite, as all learn.
    fn first_bad(&self, own: Option<BadNumber>) -> Result<Option<BadNumber>> {
        let mut bytes = Vec::new();
        if let Some(bad) = own {
            bytes.extend_from_slice(&bad.value.to_le_bytes());
            bytes.extend_from_slice(bad.tensor.as_bytes());
        }
        let len = bytes.len();
        let met = self
            .courier
            .call(len, |group| meet(group, Frame::Fine(&bytes)))?;
        let bad = met.iter().find_map(|bytes| bytes.split_first_chunk());
        Ok(bad.map(|(value, tensor)| {
            BadNumber::new(String::from_utf8_lossy(tensor), f64::from_le_bytes(*value))
        }))
    }
}

/// Everybody's slice of some numbers, to everybody.
fn share(courier: &Courier<'_>, all: &mut [f32]) {
    let group = courier.group();
    let lengths = (0..group.size()).map(|rank| cut(all.len(), rank, group.size()).len());
    let lengths: Vec<usize> = lengths.collect();
    courier.call(4 * lengths[group.rank()], |group| {
        group.share(all, &lengths)
    });
}
