//! One training step: forward, loss, backward, penalty, clipping, optimizer.
//!
//! This is the only place on the CPU where these are put together. What a caller does beside them
//! (masks, decay of its own) it says by [`Hooks`].
//!
//! A step is made in one of two orders that give the same bits:
//!
//! - *plain*: the whole gradient, then the whole update;
//! - *fused*: a tensor is updated once its gradient is complete and nothing later in the backward
//!   pass reads it ([`Model::compute_backward_reporting`]), while both are still in the cache.
//!
//! They agree because everything after the backward pass is elementwise: an element's update reads
//! its gradient, its parameter and its optimizer state. What isn't elementwise has no fused form:
//! clipping by the norm over all parameters is refused, and a penalty must be a sum over the ranges
//! that the model reports. Its gradient is added after the backward pass has added everything else,
//! as in the plain order: begun with the penalty, the sums would be rounded otherwise.
//!
//! In a *pipeline* ([`Stepper::pipeline`]) a gradient is taken at the parameters from before the last
//! update, so that a device can compute it while the last update is made:
//!
//! w₍n+1₎ = w₍n₎ − step(g₍n₎(w₍n−1₎)), with w₍−1₎ = w₍0₎,
//!
//! where g₍n₎ is the gradient of batch n, the penalty's with it. The first two are both taken at w₍0₎. Here
//! a step needs nothing but w₍n−1₎ beside w₍n₎, whatever the order in which a device and the CPU get there.

mod gradient;
mod update;

use std::ops::Range;

pub(super) use self::gradient::{Watch, Work, gradient_of, gradient_of_segments};
pub(super) use self::update::{Update, find_bad};

use self::gradient::{Memory, differentiate, loss_of};
use super::Example;
use super::arriving::Undo;
use crate::loss_image::ImageLoss;
use crate::optim::{Optimizer, OptimizerSpec};
use crate::{Error, Loss, Model, Pass, Reported, Result, Target};

/// What is done to a gradient before the optimizer sees it: elements first, then the norm.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Clip {
    /// Clamping of every element to ± this.
    pub element: Option<f64>,
    /// The largest norm over all parameters.
    pub norm: Option<f64>,
}

/// The loss or an element of a gradient that is not finite.
#[derive(Clone, Debug, PartialEq)]
pub struct BadNumber {
    /// `the loss`, or `the gradient of NAME` with the element.
    pub tensor: String,
    /// NaN or an infinity.
    pub value: f64,
    /// Whether a part of the parameters had been updated when it was found. Only a fused step does
    /// that. Parameters and optimizer are then no state to save or to go on from.
    pub half_updated: bool,
}

impl BadNumber {
    /// Found before anything was changed.
    pub(crate) fn new(tensor: impl Into<String>, value: f64) -> Self {
        BadNumber {
            tensor: tensor.into(),
            value,
            half_updated: false,
        }
    }

    /// As the library's error.
    pub fn into_error(self, step: u64, advice: impl Into<String>) -> Error {
        let mut advice = advice.into();
        if self.half_updated {
            advice += "; some parameters are updated and some are not: load the last good ones";
        }
        Error::NotFinite {
            step,
            tensor: self.tensor,
            value: self.value,
            advice,
        }
    }
}

/// Why a step was not taken.
#[derive(Debug)]
pub enum StepError {
    /// A number that is not finite.
    NotFinite(BadNumber),
    /// A batch, a target or a setting that doesn't fit. Nothing has changed.
    Other(Error),
}

impl From<BadNumber> for StepError {
    fn from(bad: BadNumber) -> Self {
        StepError::NotFinite(bad)
    }
}

impl From<Error> for StepError {
    fn from(error: Error) -> Self {
        StepError::Other(error)
    }
}

/// What a caller does beside the plain step. Both are called for a range of the flat vector: the
/// whole one, or in a fused step every range once.
pub trait Hooks<M: Model> {
    /// The gradient is complete, the penalty's among it, and neither checked nor clipped yet:
    /// masks.
    fn gradient(&mut self, model: &M, range: Range<usize>, d_params: &mut [f32]) {
        let _ = (model, range, d_params);
    }

    /// The optimizer is about to change the parameters: decay, constraints.
    fn before_update(&mut self, model: &M, range: Range<usize>, params: &mut [f32]) {
        let _ = (model, range, params);
    }
}

/// Nothing.
impl<M: Model> Hooks<M> for () {}

/// What a step learns from.
pub struct Lesson<'a, M: Model> {
    /// What is minimised.
    pub loss: Loss,
    /// The batch.
    pub input: &'a M::Input<f32>,
    /// What should come out.
    pub target: &'a Target<f32>,
    /// Its random key and its kernels.
    pub pass: &'a Pass,
}

impl<'a, M: Model> Lesson<'a, M> {
    /// Of an example.
    pub fn new(loss: Loss, example: &'a Example<M>, pass: &'a Pass) -> Self {
        Lesson {
            loss,
            input: &example.input,
            target: &example.target,
            pass,
        }
    }
}

/// What a step came to, both before the update.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Stepped {
    /// The loss, without the penalty.
    pub loss: f64,
    /// The model's penalty.
    pub penalty: f64,
}

/// The parameters of a model with all that a step needs. After the first step of the largest batch
/// nothing is allocated.
pub struct Stepper<M: Model> {
    /// The parameters.
    pub params: Vec<f32>,
    /// The optimizer and its state.
    pub optimizer: Optimizer<f32>,
    /// What is added to the loss where outputs are images.
    pub image_loss: Option<ImageLoss>,
    pub(crate) grads: Vec<f32>,
    d_output: Vec<f32>,
    pub(crate) tape: M::Tape<f32>,
    pub(super) bad: Option<BadNumber>,
    /// What an arriving step may have to put back.
    pub(super) undo: Undo,
    /// Whether what computes gradients elsewhere has these parameters.
    pub(super) elsewhere: bool,
    /// In a pipeline, the parameters that the next gradient is taken at: those from before the last update.
    pub(super) stale: Option<Vec<f32>>,
    spare: Vec<f32>,
    /// Seconds in forward and the loss since they were last asked for.
    forward_seconds: f64,
}

impl<M: Model> Stepper<M> {
    /// With fresh optimizer state.
    ///
    /// # Panics
    /// With parameters of another length than the model's.
    pub fn new(model: &M, params: Vec<f32>, optimizer: OptimizerSpec) -> Self {
        let len = model.layout().len();
        assert_eq!(params.len(), len, "parameters of another model");
        Stepper {
            params,
            optimizer: Optimizer::new(optimizer, len),
            image_loss: None,
            grads: vec![0.0; len],
            d_output: Vec::new(),
            tape: Default::default(),
            bad: None,
            undo: Undo::default(),
            elsewhere: false,
            stale: None,
            spare: Vec::new(),
            forward_seconds: 0.0,
        }
    }

    /// From here on the gradient of every step is taken at the parameters from before the last update
    /// (module docs); the first two are both taken at these, or at those that a checkpoint held.
    pub fn pipeline(&mut self, stale: Option<Vec<f32>>) {
        self.stale = Some(stale.unwrap_or_else(|| self.params.clone()));
    }

    /// The parameters that the next gradient is taken at.
    pub fn taken_at(&self) -> &[f32] {
        self.stale.as_deref().unwrap_or(&self.params)
    }

    /// A pipeline begins anew at the parameters: a step was left out, or they were changed otherwise.
    pub(super) fn restart_pipeline(&mut self) {
        if let Some(stale) = &mut self.stale {
            stale.copy_from_slice(&self.params);
        }
    }

    /// Seconds in forward and the loss since this was last asked.
    pub(super) fn take_forward_seconds(&mut self) -> f64 {
        std::mem::take(&mut self.forward_seconds)
    }

    /// Forward, loss and backward of one batch; `share` scales the gradient, `add` adds it to the
    /// one that is there. Returns the loss; one that is not finite is the error of the update that
    /// follows. A batch or target whose length doesn't fit is an error that changes nothing.
    pub fn gradient(
        &mut self,
        model: &M,
        loss: Loss,
        example: &Example<M>,
        pass: &Pass,
        share: f32,
        add: bool,
    ) -> Result<f64> {
        self.gradient_of(model, &Lesson::new(loss, example, pass), share, add)
    }

    /// [`Stepper::gradient`] of what isn't kept as an [`Example`].
    pub fn gradient_of(
        &mut self,
        model: &M,
        lesson: &Lesson<'_, M>,
        share: f32,
        add: bool,
    ) -> Result<f64> {
        let mut grads = std::mem::take(&mut self.grads);
        let value = self.differentiate(model, lesson, share, add, &mut grads);
        self.grads = grads;
        let value = value?;
        self.note_loss(value, add);
        Ok(value)
    }

    /// A loss that is not finite is the error of the update that follows.
    pub(super) fn note_loss(&mut self, value: f64, add: bool) {
        if !add {
            self.bad = None;
        }
        if !value.is_finite() {
            let bad = || BadNumber::new("the loss", value);
            self.bad.get_or_insert_with(bad);
        }
    }

    fn differentiate(
        &mut self,
        model: &M,
        lesson: &Lesson<'_, M>,
        share: f32,
        add: bool,
        grads: &mut [f32],
    ) -> Result<f64> {
        let memory = Memory {
            image_loss: &mut self.image_loss,
            d_output: &mut self.d_output,
            tape: &mut self.tape,
            seconds: &mut self.forward_seconds,
        };
        let params = self.stale.as_deref().unwrap_or(&self.params);
        differentiate(model, params, lesson, memory, share, add, grads)
    }

    /// Forward and loss, with the gradient of the output.
    fn loss_of(&mut self, model: &M, lesson: &Lesson<'_, M>) -> Result<f64> {
        let memory = Memory {
            image_loss: &mut self.image_loss,
            d_output: &mut self.d_output,
            tape: &mut self.tape,
            seconds: &mut self.forward_seconds,
        };
        loss_of(model, &self.params, lesson, memory)
    }

    /// The same with the loss and the gradient computed elsewhere, from the parameters.
    pub fn gradient_from(
        &mut self,
        share: f32,
        add: bool,
        compute: impl FnOnce(&[f32], &mut [f32]) -> Result<f64>,
    ) -> Result<f64> {
        if !add {
            self.bad = None;
        }
        let params = self.stale.as_deref().unwrap_or(&self.params);
        let value = if add || share != 1.0 {
            self.d_output.resize(params.len(), 0.0);
            let value = compute(params, &mut self.d_output)?;
            for (g, &one) in self.grads.iter_mut().zip(&self.d_output) {
                *g = share * one + if add { *g } else { 0.0 };
            }
            value
        } else {
            compute(params, &mut self.grads)?
        };
        if !value.is_finite() {
            self.bad
                .get_or_insert_with(|| BadNumber::new("the loss", value));
        }
        Ok(value)
    }

    /// That the loss and the gradient are finite, for an update that is made elsewhere.
    pub(super) fn check_finite(&mut self, model: &M) -> Result<(), BadNumber> {
        let layout = model.layout();
        let found = || find_bad(&self.grads, layout, 0..self.grads.len(), "the gradient of");
        self.bad.take().or_else(found).map_or(Ok(()), Err)
    }

    /// Adds the gradient of the model's penalty, clips and steps. Returns the penalty, or the
    /// number that is not finite: then nothing has changed.
    pub fn update(&mut self, model: &M, clip: &Clip, lr: f64) -> Result<f64, BadNumber> {
        self.update_with(model, clip, lr, &mut ())
    }

    /// [`Stepper::update`] with what the caller does beside it.
    pub fn update_with(
        &mut self,
        model: &M,
        clip: &Clip,
        lr: f64,
        hooks: &mut dyn Hooks<M>,
    ) -> Result<f64, BadNumber> {
        let penalty = self.penalised(model)?;
        if self.stale.is_some() {
            self.spare.clone_from(&self.params);
        }
        let mut update = Update::new(model, &mut self.optimizer, clip, lr).beside(hooks);
        update.range(0..self.params.len(), &mut self.params, &mut self.grads)?;
        update.end();
        if let Some(stale) = &mut self.stale {
            std::mem::swap(stale, &mut self.spare);
        }
        Ok(penalty)
    }

    /// Adds the gradient of the model's penalty before an update; none follows a loss that is not finite.
    pub(super) fn penalised(&mut self, model: &M) -> Result<f64, BadNumber> {
        if let Some(bad) = self.bad.take() {
            return Err(bad);
        }
        self.elsewhere = false;
        let taken_at = self.stale.as_deref().unwrap_or(&self.params);
        let penalty = f64::from(model.penalty(taken_at, Some(&mut self.grads)));
        match penalty.is_finite() {
            true => Ok(penalty),
            false => Err(BadNumber::new("the penalty", penalty)),
        }
    }

    /// A whole step on one batch in the fused order, with the bits of [`Stepper::gradient`] and
    /// [`Stepper::update`]. Clipping by the norm is refused, and so is a penalty that is not a sum
    /// over the model's ranges. After a number that is not finite look at
    /// [`BadNumber::half_updated`].
    pub fn fused_step(
        &mut self,
        model: &M,
        lesson: &Lesson<'_, M>,
        clip: &Clip,
        lr: f64,
        hooks: &mut dyn Hooks<M>,
    ) -> Result<Stepped, StepError> {
        if let Some(norm) = clip.norm {
            return Err(StepError::Other(Error::invalid(
                "clipping by the norm in a fused step",
                norm,
                "no such clipping: the norm is known when the last gradient is, and the first \
                 tensors are updated by then",
            )));
        }
        self.bad = None;
        let loss = self.loss_of(model, lesson)?;
        if !loss.is_finite() {
            return Err(BadNumber::new("the loss", loss).into());
        }
        // In the order of the plain step: a sum from the last layer on would be rounded otherwise.
        let penalty = f64::from(model.penalty(&self.params, None));
        if !penalty.is_finite() {
            return Err(BadNumber::new("the penalty", penalty).into());
        }
        let mut update = Update::new(model, &mut self.optimizer, clip, lr).beside(hooks);
        let mut outcome = Ok(());
        let mut ready = |range, params: &mut [f32], d_params: &mut [f32]| {
            if outcome.is_ok() {
                outcome = update.fused_range(range, params, d_params);
            }
        };
        model.compute_backward_reporting(
            Reported::Updated(&mut self.params, &mut ready),
            lesson.input,
            lesson.pass,
            &mut self.tape,
            &self.d_output,
            &mut self.grads,
        );
        outcome?;
        update.end();
        Ok(Stepped { loss, penalty })
    }

    /// A whole step on one batch, for small programs. Returns the loss. A batch that doesn't fit and
    /// a number that is not finite are errors that change nothing.
    pub fn step(
        &mut self,
        model: &M,
        loss: Loss,
        example: &Example<M>,
        pass: &Pass,
    ) -> Result<f64> {
        let value = self.gradient(model, loss, example, pass, 1.0, false)?;
        let (steps, lr) = (self.optimizer.steps(), self.optimizer.spec().lr());
        let updated = self.update(model, &Clip::default(), lr);
        updated.map_err(|bad| bad.into_error(steps, "lower the learning rate, or clip"))?;
        Ok(value)
    }

    /// The tape of the last forward, for [`Model::absorb`] and pictures.
    pub fn tape(&self) -> &M::Tape<f32> {
        &self.tape
    }

    /// The gradient of the last step, clipped.
    pub fn grads(&self) -> &[f32] {
        &self.grads
    }
}
