//! What training steps have in common: their options, the loss, what they send, and gradients alone.

use std::borrow::Cow;

use super::kernels::LOSS;
use super::layer::flag;
use super::loss_image;
use super::network::{GpuNetwork, Planned, Taken};
use super::optimizer::StepConstants;
use super::plan::{Form, GpuPlan, STEP_BYTES, Shared, StepKey, key_words};
use super::precision::to_device;
use super::recorded::Recorded;
use super::recording::{Recording, finish_with_download};
use crate::plan::Input;
use crate::rng::Key;
use crate::train::{Clip, MicroBatch};
use crate::{Error, Loss, Result, Target};

/// What a step is given beside its batch.
#[derive(Clone, Copy, Debug)]
pub struct GpuTrainOptions {
    /// The rate of this step; the optimizer's own where there is none.
    pub lr: Option<f64>,
    /// Clipping, elements first, then the norm over all parameters.
    pub clip: Clip,
    /// The key of the step's random numbers (dropout).
    pub key: Key,
    /// Go on after a step whose loss or gradient is not finite; such a step changes nothing. Else
    /// all steps after it change nothing either, and the next call is an error.
    pub skip_not_finite: bool,
    /// Hybrid: gradients come back as 16-bit floats, with error feedback.
    pub compress_gradients: bool,
    /// Native: which of the batches whose gradients are accumulated this one is. The step is made with
    /// the last of them.
    pub micro: MicroBatch,
    /// Native: every tensor is updated once its gradient is complete. The same bits; not with clipping by
    /// the norm, mixed precision or steps that are left out. Where a number is not finite, some tensors
    /// may have been updated.
    pub fused: bool,
}

impl Default for GpuTrainOptions {
    fn default() -> Self {
        GpuTrainOptions {
            lr: None,
            clip: Clip::default(),
            key: Key::new(0),
            skip_not_finite: false,
            compress_gradients: false,
            micro: MicroBatch::default(),
            fused: false,
        }
    }
}

/// A target as the device takes it. Where a batch was rounded up, what was added has weight 0.
pub(super) fn padded<'t>(
    target: &'t Target<f32>,
    taken: &Taken,
    outputs: usize,
) -> Cow<'t, Target<f32>> {
    if outputs == taken.outputs || taken.outputs == 0 {
        return Cow::Borrowed(target);
    }
    let count = target.values.len().max(target.classes.len());
    let all = outputs * count / taken.outputs;
    let mut target = target.clone();
    let mut weights = target.weights.take().unwrap_or_else(|| vec![1.0; count]);
    weights.resize(all, 0.0);
    match target.classes.is_empty() {
        true => target.values.resize(all, 0.0),
        false => target.classes.resize(all, 0),
    }
    target.weights = Some(weights);
    Cow::Owned(target)
}

/// A distinct number for every loss and form of target.
pub(super) fn loss_kind(loss: Loss) -> u8 {
    match loss {
        Loss::Mse | Loss::SumSquares => 0,
        Loss::L1 => 1,
        Loss::Huber => 2,
        Loss::BceLogits => 3,
        Loss::CrossEntropy => 4,
    }
}

/// Records the loss; returns its pieces.
pub(super) fn record_loss(
    shared: &Shared<'_>,
    plan: &GpuPlan,
    recording: &mut Recording,
    loss: Loss,
    weighted: bool,
    rows: usize,
) -> Result<usize> {
    let outputs = plan.output_len(shared.layers);
    let constants = [
        ("KIND", f64::from(loss_kind(loss).min(3))),
        ("WEIGHTED", flag(weighted)),
    ];
    let (entry, pieces) = if loss == Loss::CrossEntropy {
        ("loss_rows", rows.div_ceil(64))
    } else {
        ("loss_elements", outputs.div_ceil(1024))
    };
    let sizes = [
        ("elements", outputs),
        ("rows", rows),
        ("classes", outputs / rows.max(1)),
        ("pieces", pieces),
    ];
    // The rows' kernel has no branches on the kind, and goes through the classes three times.
    let constants = if entry == "loss_rows" {
        shared.gpu.allow_loops(entry, 3 * outputs / rows.max(1))?;
        &constants[1..]
    } else {
        &constants[..]
    };
    recording.dispatch(
        shared.gpu,
        entry,
        (&LOSS, entry),
        constants,
        &sizes,
        &[
            plan.output(),
            &plan.target,
            &plan.weights,
            plan.d_output(),
            &plan.losses,
            &plan.step,
            shared.scales,
        ],
        pieces,
    )?;
    if let Some(image_loss) = shared.image_loss.filter(|_| loss != Loss::CrossEntropy) {
        loss_image::record(shared, plan, recording, image_loss)?;
    }
    Ok(pieces)
}

/// Writes everything of a step into a buffer of the ring, in one piece, and encodes the copy of it
/// and the step's recording. Returns the buffer's number too, for [`Ring::submitted`].
pub(super) fn encode(
    planned: Planned<'_>,
    step: &StepKey,
    constants: &StepConstants,
    key: Key,
    x: &Input<'_, f32>,
    target: &Target<f32>,
    times: Option<&wgpu::QuerySet>,
) -> Result<(wgpu::CommandEncoder, usize)> {
    let Planned {
        shared,
        plan,
        ring,
        scratch,
        ..
    } = planned;
    let gpu = shared.gpu;
    let mut encoder = gpu.device.create_command_encoder(&Default::default());
    let words = key_words(shared.layers, key);
    // Graphs are there already.
    let sent = if x.batch.is_some() { &[] } else { x.values };
    let values: &[u8] = if target.classes.is_empty() {
        bytemuck::cast_slice(&target.values)
    } else {
        bytemuck::cast_slice(&target.classes)
    };
    let mut end = plan.target.offset + values.len() as u64;
    let weights: &[u8] = target.weights.as_deref().map_or(&[], bytemuck::cast_slice);
    if !weights.is_empty() {
        end = plan.weights.offset + weights.len() as u64;
    }
    debug_assert!(constants.bytes().len() as u64 <= STEP_BYTES);
    let i = ring.take(gpu, end)?;
    let pieces = [
        (0, constants.bytes()),
        (plan.keys.offset, bytemuck::cast_slice(&words)),
        (plan.x.offset, to_device(shared.half, sent, scratch)),
        (plan.target.offset, values),
        (plan.weights.offset, weights),
    ];
    let staging = ring.write(gpu, i, &pieces)?;
    encoder.copy_buffer_to_buffer(staging, 0, &plan.upload, 0, end);
    plan.steps[step].replay(gpu, &mut encoder, times);
    Ok((encoder, i))
}

/// 1/W of the loss, in f64 as on the CPU.
pub(super) fn loss_scale(loss: Loss, target: &Target<f32>) -> f32 {
    let count = target.values.len().max(target.classes.len());
    let total: f64 = match (loss, &target.weights) {
        (Loss::SumSquares, _) => 1.0,
        (_, Some(weights)) => weights.iter().map(|&w| f64::from(w)).sum(),
        (_, None) => count as f64,
    };
    if total == 0.0 {
        0.0
    } else {
        (1.0 / total) as f32
    }
}

impl<M: Recorded> GpuNetwork<M> {
    /// Loss and gradients of a batch, which stay on the device: one submit, one wait for the loss.
    pub fn loss_and_gradients(
        &mut self,
        x: &M::Given,
        target: &Target<f32>,
        loss: Loss,
        options: &GpuTrainOptions,
    ) -> Result<f64> {
        let taken = self.take(x)?;
        loss.check(taken.outputs, target)?;
        let share = loss_scale(loss, target);
        let outputs = self.padded_outputs(&taken)?;
        let target = &*padded(target, &taken, outputs);
        let weighted = target.weights.is_some();
        let rows = target.classes.len();
        let key = (loss_kind(loss), weighted, rows as u64, Form::Gradients);
        // What native steps on their way will say of the scale counts here too.
        if self.is_half() && self.status.unknown() > 0 {
            self.status.flush(&self.gpu)?;
        }
        let scale = self.loss_scale();
        let input = self.network.input_of(x);
        let planned = self.plan(&taken)?;
        let (shared, plan) = (&planned.shared, &mut *planned.plan);
        if !plan.steps.contains_key(&key) {
            let mut recording = Recording::new(shared.half);
            plan.record_forward(shared, &mut recording, true)?;
            record_loss(shared, plan, &mut recording, loss, weighted, rows)?;
            plan.record_backward(shared, &mut recording, true)?;
            plan.record_absorb(shared, &mut recording)?;
            plan.record_unscale(shared, &mut recording)?;
            plan.steps.insert(key, recording);
        }
        let constants = StepConstants::loss(share, scale);
        let losses = plan.losses.clone();
        let (encoder, sent) = encode(planned, &key, &constants, options.key, &input, target, None)?;
        let pieces = if loss == Loss::CrossEntropy {
            rows.div_ceil(64)
        } else {
            outputs.div_ceil(1024)
        };
        let parts = finish_with_download(&self.gpu, encoder, &losses, pieces);
        self.ring.submitted(sent);
        let parts = parts?;
        self.set_taped(taken);
        self.absorbed += 1;
        self.input_scale = scale;
        Ok(parts.iter().map(|&part| f64::from(part)).sum())
    }

    /// The numbers of a batch's output on the device, with what rounds it up.
    pub(super) fn padded_outputs(&mut self, taken: &Taken) -> Result<usize> {
        let planned = self.plan(taken)?;
        Ok(planned.plan.output_len(planned.shared.layers))
    }
}

pub(super) fn not_finite(step: u64, tensor: String, value: f64) -> Error {
    Error::NotFinite {
        step,
        tensor,
        value,
        advice: "the weights are those of the last good step; lower the learning rate, set clip, \
                 look at the data, or leave such steps out with --on-nan skip"
            .into(),
    }
}
