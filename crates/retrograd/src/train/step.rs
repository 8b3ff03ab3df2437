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

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};

use super::Example;
use super::arriving::Undo;
use crate::clock::Instant;
use crate::group::Segments;
use crate::loss_image::ImageLoss;
use crate::optim::{self, Optimizer, OptimizerSpec};
use crate::{Error, Grads, Layout, Loss, Model, Pass, Reported, Result, Target, parallel};

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
        let mut update = Update {
            hooks: Some(hooks),
            ..Update::new(model, &mut self.optimizer, clip, lr)
        };
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
        let mut update = Update {
            hooks: Some(hooks),
            ..Update::new(model, &mut self.optimizer, clip, lr)
        };
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

/// What forward, loss and backward of one batch work in.
struct Memory<'a, M: Model> {
    image_loss: &'a mut Option<ImageLoss>,
    d_output: &'a mut Vec<f32>,
    tape: &'a mut M::Tape<f32>,
    /// Of forward and loss, added up.
    seconds: &'a mut f64,
}

/// The same, owned, with a gradient: what a shard has that is computed beside others.
pub(super) struct Work<M: Model> {
    pub image_loss: Option<ImageLoss>,
    pub grads: Vec<f32>,
    d_output: Vec<f32>,
    /// Of one of several shards.
    target: Target<f32>,
    pub tape: M::Tape<f32>,
}

impl<M: Model> Default for Work<M> {
    fn default() -> Self {
        Work {
            image_loss: None,
            grads: Vec::new(),
            d_output: Vec::new(),
            target: Target::default(),
            tape: Default::default(),
        }
    }
}

/// What wants to know of a shard's gradient while it is computed.
pub(super) trait Watch {
    /// The forward pass is over, with this loss.
    fn loss(&mut self, loss: f64) {
        let _ = loss;
    }

    /// A range of the gradient is complete.
    fn complete(&mut self, range: Range<usize>, grads: &[f32]) {
        let _ = (range, grads);
    }
}

/// Nothing.
impl Watch for () {}

/// Loss and gradient of a shard in memory of its own. Of a loss that is not finite, too: other shards may
/// wait for what this one says in its backward pass.
pub(super) fn gradient_of<M: Model>(
    model: &M,
    params: &[f32],
    lesson: &Lesson<'_, M>,
    share: f32,
    work: &mut Work<M>,
    watch: &mut dyn Watch,
) -> Result<f64> {
    let memory = Memory {
        image_loss: &mut work.image_loss,
        d_output: &mut work.d_output,
        tape: &mut work.tape,
        // Shards side by side have no time of their own.
        seconds: &mut 0.0,
    };
    let value = loss_of(model, params, lesson, memory)?;
    watch.loss(value);
    scale(&mut work.d_output, share);
    model.compute_backward_reporting(
        Reported::Told(params, &mut |range, grads| watch.complete(range, grads)),
        lesson.input,
        lesson.pass,
        &mut work.tape,
        &work.d_output,
        &mut work.grads,
    );
    Ok(value)
}

/// What is asked about every segment: its number, its target and its loss. The answer is what its
/// gradient is scaled by.
pub(super) type Segment<'a> = &'a mut dyn FnMut(usize, &Target<f32>, f64) -> f32;

/// The gradient of several shards at once, added along their tree, in memory of its own: one forward and
/// one backward pass of all samples, the loss and the sums over samples shard by shard.
pub(super) fn gradient_of_segments<M: Model>(
    model: &M,
    params: &[f32],
    lesson: &Lesson<'_, M>,
    segments: Segments,
    each: Segment<'_>,
    work: &mut Work<M>,
    watch: &mut dyn Watch,
) -> Result<()> {
    model.check_input(lesson.input)?;
    model.compute_forward(params, lesson.input, lesson.pass, &mut work.tape);
    let (output, target) = (model.output(&work.tape), lesson.target);
    lesson.loss.check_lengths(output.len(), target)?;
    if lesson.loss == Loss::CrossEntropy {
        check_rows(model.row_width(), output.len(), target.classes.len())?;
    }
    work.d_output.resize(output.len(), 0.0);
    let samples = segments.rows(segments.count() - 1).end;
    let width = output.len() / samples;
    for segment in 0..segments.count() {
        let rows = segments.rows(segment);
        target.take_part(samples, &rows, &mut work.target);
        let place = rows.start * width..rows.end * width;
        let d_output = &mut work.d_output[place.clone()];
        let value = lesson
            .loss
            .compute(&output[place], &work.target, Some(&mut *d_output));
        scale(d_output, each(segment, &work.target, f64::from(value)));
    }
    model.compute_backward_reporting(
        Reported::Told(params, &mut |range, grads| watch.complete(range, grads)),
        lesson.input,
        lesson.pass,
        &mut work.tape,
        &work.d_output,
        &mut work.grads,
    );
    Ok(())
}

/// Forward and loss, with the gradient of the output.
fn loss_of<M: Model>(
    model: &M,
    params: &[f32],
    lesson: &Lesson<'_, M>,
    memory: Memory<'_, M>,
) -> Result<f64> {
    let Memory {
        image_loss,
        d_output,
        tape,
        seconds,
    } = memory;
    model.check_input(lesson.input)?;
    let start = Instant::now();
    model.compute_forward(params, lesson.input, lesson.pass, tape);
    let (output, target) = (model.output(tape), lesson.target);
    lesson.loss.check_lengths(output.len(), target)?;
    if lesson.loss == Loss::CrossEntropy {
        check_rows(model.row_width(), output.len(), target.classes.len())?;
    }
    d_output.resize(output.len(), 0.0);
    let mut value = f64::from(lesson.loss.compute(output, target, Some(d_output)));
    if let Some(terms) = image_loss {
        // Values, too, where the loss itself compares with something else.
        Loss::Mse.check_lengths(output.len(), target)?;
        value += terms.compute(output, &target.values, Some(d_output));
    }
    *seconds += start.elapsed().as_secs_f64();
    Ok(value)
}

/// Loss and gradient; of a loss that is not finite there is no gradient.
fn differentiate<M: Model>(
    model: &M,
    params: &[f32],
    lesson: &Lesson<'_, M>,
    memory: Memory<'_, M>,
    share: f32,
    add: bool,
    grads: &mut [f32],
) -> Result<f64> {
    let Memory {
        image_loss,
        d_output,
        tape,
        seconds,
    } = memory;
    let forward = Memory {
        image_loss,
        d_output: &mut *d_output,
        tape: &mut *tape,
        seconds,
    };
    let value = loss_of(model, params, lesson, forward)?;
    if value.is_finite() {
        let wanted = Grads {
            params: Some(grads),
            input: None,
            accumulate: add,
        };
        scale(d_output, share);
        model.compute_backward(params, lesson.input, lesson.pass, tape, d_output, wanted);
    }
    Ok(value)
}

fn scale(d_output: &mut [f32], share: f32) {
    if share != 1.0 {
        for d in d_output.iter_mut() {
            *d *= share;
        }
    }
}

/// What happens to a range whose gradient is complete.
pub(super) struct Update<'a, M: Model> {
    model: &'a M,
    pub(super) optimizer: &'a mut Optimizer<f32>,
    clip: &'a Clip,
    lr: f64,
    hooks: Option<&'a mut dyn Hooks<M>>,
    /// Whether the optimizer has counted this step: from then on parameters are changed.
    begun: bool,
}

impl<'a, M: Model> Update<'a, M> {
    pub(super) fn new(
        model: &'a M,
        optimizer: &'a mut Optimizer<f32>,
        clip: &'a Clip,
        lr: f64,
    ) -> Self {
        Update {
            model,
            optimizer,
            clip,
            lr,
            hooks: None,
            begun: false,
        }
    }

    /// Hooks, the search for what isn't finite, clipping, the optimizer.
    fn range(
        &mut self,
        range: Range<usize>,
        params: &mut [f32],
        grads: &mut [f32],
    ) -> Result<(), BadNumber> {
        let layout = self.model.layout();
        if let Some(hooks) = &mut self.hooks {
            hooks.gradient(self.model, range.clone(), grads);
        }
        if let Some(mut bad) = find_bad(grads, layout, range.clone(), "the gradient of") {
            bad.half_updated = self.begun;
            return Err(bad);
        }
        self.apply(range, params, grads);
        Ok(())
    }

    /// Clipping and the optimizer.
    pub(super) fn apply(&mut self, range: Range<usize>, params: &mut [f32], grads: &mut [f32]) {
        let layout = self.model.layout();
        if let Some(limit) = self.clip.element {
            optim::clip_elements(&mut grads[range.clone()], limit);
        }
        if let Some(norm) = self.clip.norm {
            optim::clip_global_norm(grads, layout, norm);
        }
        if let Some(hooks) = &mut self.hooks {
            hooks.before_update(self.model, range.clone(), params);
        }
        let trained = layout.within(range.clone()).any(|(t, _)| !t.frozen);
        if trained && !self.begun {
            self.optimizer.begin();
            self.begun = true;
        }
        self.optimizer
            .step_range(params, grads, layout, range, self.lr);
    }

    /// Counts a step in which everything was frozen.
    pub(super) fn end(self) {
        if !self.begun {
            self.optimizer.begin();
        }
    }

    /// The same with the penalty's gradient before it.
    pub(super) fn fused_range(
        &mut self,
        range: Range<usize>,
        params: &mut [f32],
        grads: &mut [f32],
    ) -> Result<(), StepError> {
        if !self.model.penalty_range(range.clone(), params, grads) {
            return Err(StepError::Other(Error::invalid(
                "the model's penalty in a fused step",
                format!("no gradient of parameters {range:?} alone"),
                "a penalty that is a sum over the tensors that are updated together",
            )));
        }
        Ok(self.range(range, params, grads)?)
    }
}

/// Fewer class numbers than rows would pass for wider rows.
fn check_rows(width: Option<usize>, outputs: usize, classes: usize) -> Result<()> {
    match width {
        Some(width) if classes * width != outputs => Err(Error::invalid(
            "cross_entropy's target",
            format!("{classes} class numbers"),
            format!("{}, one for every row of {width} outputs", outputs / width),
        )),
        _ => Ok(()),
    }
}

/// The first element that is not finite, named.
pub(super) fn find_bad(
    values: &[f32],
    layout: &Layout,
    range: Range<usize>,
    what: &str,
) -> Option<BadNumber> {
    if all_finite(values, layout, range.clone()) {
        return None;
    }
    let index = range.clone().find(|&i| !values[i].is_finite())?;
    let tensor = match layout.locate(index) {
        Some((tensor, element)) => format!("{what} {}, element {element},", tensor.name),
        None => format!("{what} element {index}"),
    };
    Some(BadNumber::new(tensor, f64::from(values[index])))
}

/// NaN and the infinities are those whose exponent bits are all set. Written without a branch per
/// element, so that the compiler makes vectors of it.
fn all_finite(values: &[f32], layout: &Layout, range: Range<usize>) -> bool {
    const EXPONENT: u32 = 0x7f80_0000;
    /// 1 to 2 µs.
    const CHUNK: usize = 8192;
    let finite = AtomicBool::new(true);
    let pieces = range.len().div_ceil(CHUNK);
    let tensors = parallel::Tensors::all(layout.tensors()).within(range);
    parallel::for_each_share::<f32, 0>([], tensors, pieces, pieces > 2, |share, []| {
        let bad = values[share].iter().fold(0, |bad, v| {
            bad | u32::from(v.to_bits() & EXPONENT == EXPONENT)
        });
        if bad != 0 {
            finite.store(false, Ordering::Relaxed);
        }
    });
    finite.into_inner()
}
