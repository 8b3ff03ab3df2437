//! Forward, loss and backward: of a batch, of a shard, and of several shards at once.

use std::ops::Range;

use super::Lesson;
use crate::clock::Instant;
use crate::group::Segments;
use crate::loss_image::ImageLoss;
use crate::{Error, Grads, Loss, Model, Reported, Result, Target};

/// What forward, loss and backward of one batch work in.
pub(super) struct Memory<'a, M: Model> {
    pub image_loss: &'a mut Option<ImageLoss>,
    pub d_output: &'a mut Vec<f32>,
    pub tape: &'a mut M::Tape<f32>,
    /// Of forward and loss, added up.
    pub seconds: &'a mut f64,
}

/// The same, owned, with a gradient: what a shard has that is computed beside others.
pub(in crate::train) struct Work<M: Model> {
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
pub(in crate::train) trait Watch {
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
pub(in crate::train) fn gradient_of<M: Model>(
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
pub(in crate::train) type Segment<'a> = &'a mut dyn FnMut(usize, &Target<f32>, f64) -> f32;

/// The gradient of several shards at once, added along their tree, in memory of its own: one forward and
/// one backward pass of all samples, the loss and the sums over samples shard by shard.
pub(in crate::train) fn gradient_of_segments<M: Model>(
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
pub(super) fn loss_of<M: Model>(
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
pub(super) fn differentiate<M: Model>(
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
