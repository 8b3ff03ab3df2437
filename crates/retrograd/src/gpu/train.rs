//! Training steps: native (all on the device) and hybrid (the optimizer on the CPU).

use std::borrow::Cow;

use super::kernels::{LOSS, OPTIMIZER};
use super::layer::flag;
use super::loss_image;
use super::network::{GpuNetwork, Planned, Taken, check_len};
use super::optimizer::{GpuOptimizer, StepConstants};
use super::plan::{GpuPlan, STEP_BYTES, Shared, StepKey, key_words};
use super::precision::to_device;
use super::recorded::Recorded;
use super::recording::{Part, Recording, finish_with_download};
use super::status::{SLOTS, Status, StepLoss};
use crate::optim::{self, Optimizer};
use crate::plan::Input;
use crate::rng::Key;
use crate::train::Clip;
use crate::{Error, Loss, Pass, Result, Target};

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
}

impl Default for GpuTrainOptions {
    fn default() -> Self {
        GpuTrainOptions {
            lr: None,
            clip: Clip::default(),
            key: Key::new(0),
            skip_not_finite: false,
            compress_gradients: false,
        }
    }
}

/// Parameters per workgroup of the update, and per piece of the norm; as in optimizer.wgsl.
const UPDATE: usize = 1024;
const NORM: usize = 4096;

/// A target as the device takes it. Where a batch was rounded up, what was added has weight 0.
fn padded<'t>(target: &'t Target<f32>, taken: &Taken, outputs: usize) -> Cow<'t, Target<f32>> {
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
fn loss_kind(loss: Loss) -> u8 {
    match loss {
        Loss::Mse | Loss::SumSquares => 0,
        Loss::L1 => 1,
        Loss::Huber => 2,
        Loss::BceLogits => 3,
        Loss::CrossEntropy => 4,
    }
}

/// Marks the recordings of loss and gradients without an optimizer, with and without the input's.
const GRADIENTS: u64 = u64::MAX;

/// Records the loss; returns its pieces.
fn record_loss(
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
    // The rows' kernel has no branches on the kind.
    let constants = if entry == "loss_rows" {
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

fn record_update(
    shared: &Shared<'_>,
    plan: &GpuPlan,
    status: &Status,
    recording: &mut Recording,
    optimizer: &GpuOptimizer,
    norms: &Part,
    loss_pieces: usize,
    growth: Option<u32>,
) -> Result<()> {
    let gpu = shared.gpu;
    let len = shared.layers.layout.len();
    let pieces = len.div_ceil(NORM).max(1);
    recording.dispatch(
        gpu,
        "optimizer_norm",
        (&OPTIMIZER, "optimizer_norm"),
        &[],
        &[
            ("len", len),
            ("norm_pieces", pieces),
            ("not_a_number", f32::NAN.to_bits() as usize),
        ],
        &[shared.grads, &status.ring, norms, &plan.step],
        pieces,
    )?;
    let constants = [
        ("KIND", f64::from(optimizer.kind())),
        ("SLOTS", SLOTS as f64),
        ("GROWTH", growth.map_or(1.0, f64::from)),
    ];
    // State that the kind doesn't have is never touched.
    let [first, second] = match &optimizer.state[..] {
        [] => [&plan.spare[0], &plan.spare[1]],
        [b] => [b, &plan.spare[0]],
        [m, v, ..] => [m, v],
    };
    for (i, range) in shared.layers.layout.trainable().enumerate() {
        let sizes = [
            ("first", range.start),
            ("end", range.end),
            ("norm_pieces", pieces),
            ("loss_pieces", loss_pieces),
            ("writes_status", usize::from(i == 0)),
        ];
        recording.dispatch(
            gpu,
            "optimizer_update",
            (&OPTIMIZER, "optimizer_update"),
            &constants,
            &sizes,
            &[
                shared.master,
                shared.grads,
                first,
                second,
                norms,
                &plan.losses,
                &status.ring,
                &plan.step,
                shared.scales,
            ],
            (range.end.div_ceil(4) - range.start / 4).div_ceil(UPDATE / 4),
        )?;
    }
    Ok(())
}

/// Writes everything of a step into a buffer of the ring, in one piece, and encodes the copy of it
/// and the step's recording. Returns the buffer's number too, for [`Ring::submitted`].
fn encode(
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
fn loss_scale(loss: Loss, target: &Target<f32>) -> f32 {
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
        let key = (loss_kind(loss), weighted, GRADIENTS - rows as u64);
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
    fn padded_outputs(&mut self, taken: &Taken) -> Result<usize> {
        let planned = self.plan(taken)?;
        Ok(planned.plan.output_len(planned.shared.layers))
    }

    /// Loss and gradients, brought back. In mixed precision a gradient that overflowed is computed
    /// again with half the loss scale, until it is finite or nothing is left to halve.
    pub(crate) fn bring_gradients(
        &mut self,
        x: &M::Given,
        target: &Target<f32>,
        loss: Loss,
        options: &GpuTrainOptions,
    ) -> Result<(f64, Vec<f32>)> {
        loop {
            let value = self.loss_and_gradients(x, target, loss, options)?;
            let grads = if options.compress_gradients {
                self.gradients_f16()?
            } else {
                self.gradients()?
            };
            let Some(scale) = &mut self.status.scale else {
                return Ok((value, grads));
            };
            self.status.scale_changed = true;
            if grads.iter().all(|g| g.is_finite()) {
                scale.went_well();
                return Ok((value, grads));
            }
            if !value.is_finite() || scale.value <= 1.0 {
                return Ok((value, grads));
            }
            scale.halve();
            self.absorbed -= 1;
        }
    }

    /// Loss and gradients where the CPU evaluates the loss: the output comes back, `evaluate` writes
    /// its gradient, which goes up, and the parameters' is brought back.
    pub(crate) fn bring_gradients_through(
        &mut self,
        x: &M::Given,
        options: &GpuTrainOptions,
        evaluate: impl FnOnce(&[f32], &mut [f32]) -> f64,
    ) -> Result<(f64, Vec<f32>)> {
        let output = self.forward_batch_training(x, &Pass::training(options.key))?;
        let mut d_output = vec![0.0; output.len()];
        let value = evaluate(&output, &mut d_output);
        if !value.is_finite() {
            return Ok((value, vec![0.0; self.network.layout().len()]));
        }
        self.backward_batch(&d_output)?;
        self.absorb_batch()?;
        let grads = match options.compress_gradients {
            true => self.gradients_f16()?,
            false => self.gradients()?,
        };
        Ok((value, grads))
    }

    /// Running statistics follow the last forward for training.
    fn absorb_batch(&mut self) -> Result<()> {
        const ABSORB: StepKey = (u8::MAX, false, GRADIENTS);
        let taken = self.taped()?;
        let planned = self.plan(&taken)?;
        let (shared, plan) = (&planned.shared, &mut *planned.plan);
        if !plan.steps.contains_key(&ABSORB) {
            let mut recording = Recording::new(shared.half);
            plan.record_absorb(shared, &mut recording)?;
            plan.steps.insert(ABSORB, recording);
        }
        let mut encoder = shared
            .gpu
            .device
            .create_command_encoder(&Default::default());
        plan.steps[&ABSORB].replay(shared.gpu, &mut encoder, None);
        shared.gpu.submit(encoder);
        self.absorbed += 1;
        self.gpu.check()
    }

    /// A hybrid step: loss and gradients on the device, the optimizer on the CPU, the new weights
    /// sent back. Returns the loss.
    pub fn train_step_with_options(
        &mut self,
        x: &M::Given,
        target: &Target<f32>,
        loss: Loss,
        optimizer: &mut Optimizer<f32>,
        options: &GpuTrainOptions,
    ) -> Result<f64> {
        // The optimizer works on the CPU's copy.
        self.sync_weights_to_cpu()?;
        let (mut value, mut grads) = self.bring_gradients(x, target, loss, options)?;
        value += f64::from(self.network.penalty(&self.cpu_params, Some(&mut grads)));
        let bad = grads.iter().position(|g| !g.is_finite());
        if !value.is_finite() || bad.is_some() {
            if options.skip_not_finite {
                return Ok(value);
            }
            let layout = self.network.layout();
            let (tensor, number) = match bad.filter(|_| value.is_finite()) {
                None => ("the loss".to_string(), value),
                Some(i) => {
                    let name = layout.locate(i).map_or("a tensor", |(t, _)| &t.name);
                    (format!("the gradient of {name}"), f64::from(grads[i]))
                }
            };
            return Err(not_finite(optimizer.steps(), tensor, number));
        }
        if let Some(limit) = options.clip.element {
            optim::clip_elements(&mut grads, limit);
        }
        if let Some(limit) = options.clip.norm {
            optim::clip_global_norm(&mut grads, self.network.layout(), limit);
        }
        let lr = options.lr.unwrap_or(optimizer.spec().lr());
        optimizer.step(&mut self.cpu_params, &grads, self.network.layout(), lr);
        // Only what is trained has changed.
        for range in self.network.layout().trainable() {
            let bytes = bytemuck::cast_slice(&self.cpu_params[range.clone()]);
            self.gpu
                .write(&self.params.buffer, 4 * range.start as u64, bytes);
        }
        Ok(value)
    }

    /// A hybrid step with the optimizer's own rate and no clipping.
    pub fn train_step(
        &mut self,
        x: &M::Given,
        target: &Target<f32>,
        loss: Loss,
        optimizer: &mut Optimizer<f32>,
    ) -> Result<f64> {
        self.train_step_with_options(x, target, loss, optimizer, &GpuTrainOptions::default())
    }

    /// A native step with the optimizer's own rate and no clipping.
    pub fn train_step_gpu_native(
        &mut self,
        x: &M::Given,
        target: &Target<f32>,
        loss: Loss,
        optimizer: &mut GpuOptimizer,
    ) -> Result<()> {
        self.train_step_gpu_native_with_options(
            x,
            target,
            loss,
            optimizer,
            &GpuTrainOptions::default(),
        )
    }

    /// A native step: forward, loss, backward, clipping and optimizer in one submit, without
    /// waiting. Its loss comes later, from [`GpuNetwork::losses`].
    pub fn train_step_gpu_native_with_options(
        &mut self,
        x: &M::Given,
        target: &Target<f32>,
        loss: Loss,
        optimizer: &mut GpuOptimizer,
        options: &GpuTrainOptions,
    ) -> Result<()> {
        let taken = self.take(x)?;
        loss.check(taken.outputs, target)?;
        self.status.advance(&self.gpu)?;
        self.check_failure(options)?;
        let (encoder, sent) =
            self.encode_native(&taken, x, target, loss, optimizer, options, None)?;
        self.submit_native(encoder, sent, optimizer, taken);
        self.gpu.check()
    }

    /// Sends a native step.
    fn submit_native(
        &mut self,
        mut encoder: wgpu::CommandEncoder,
        sent: usize,
        optimizer: &mut GpuOptimizer,
        taken: Taken,
    ) {
        let staging = self.status.copy(&mut encoder);
        let submission = self.gpu.submit(encoder);
        self.ring.submitted(sent);
        self.status.submitted(submission, staging);
        self.device_ahead = true;
        optimizer.count_step();
        self.set_taped(taken);
        self.absorbed += 1;
    }

    fn check_failure(&mut self, options: &GpuTrainOptions) -> Result<()> {
        match self.status.failure {
            Some(failed) if !options.skip_not_finite => {
                let tensor = if failed.loss.is_finite() {
                    "a gradient"
                } else {
                    "the loss"
                };
                Err(not_finite(failed.step, tensor.into(), failed.loss))
            }
            _ => Ok(()),
        }
    }

    /// Encodes a native step, its upload before it, with a pass per kernel where it is timed.
    pub(crate) fn encode_native(
        &mut self,
        taken: &Taken,
        x: &M::Given,
        target: &Target<f32>,
        loss: Loss,
        optimizer: &mut GpuOptimizer,
        options: &GpuTrainOptions,
        times: Option<&wgpu::QuerySet>,
    ) -> Result<(wgpu::CommandEncoder, usize)> {
        let share = loss_scale(loss, target);
        let outputs = self.padded_outputs(taken)?;
        let target = &*padded(target, taken, outputs);
        let weighted = target.weights.is_some();
        let rows = target.classes.len();
        let key = (loss_kind(loss), weighted, optimizer.id);
        if optimizer.is_new() {
            if self.status.unknown() > 0 {
                self.status.flush(&self.gpu)?;
            }
            optimizer.begin();
        }
        self.status.send_scale(&self.gpu);
        let norms = self.norms.clone();
        let growth = self.status.scale.map(|scale| scale.growth_interval);
        let input = self.network.input_of(x);
        let planned = self.plan(taken)?;
        let (shared, plan, status) = (&planned.shared, &mut *planned.plan, planned.status);
        if !plan.steps.contains_key(&key) {
            let mut recording = Recording::new(shared.half);
            plan.record_forward(shared, &mut recording, true)?;
            let pieces = record_loss(shared, plan, &mut recording, loss, weighted, rows)?;
            plan.record_backward(shared, &mut recording, false)?;
            plan.record_absorb(shared, &mut recording)?;
            plan.record_unscale(shared, &mut recording)?;
            plan.record_penalty(shared, &mut recording)?;
            record_update(
                shared,
                plan,
                status,
                &mut recording,
                optimizer,
                &norms,
                pieces,
                growth,
            )?;
            plan.steps.insert(key, recording);
        }
        let constants = constants_of(status, optimizer, options, share, shared.half);
        encode(
            planned,
            &key,
            &constants,
            options.key,
            &input,
            target,
            times,
        )
    }

    /// The update of a native step, with a gradient that was added up elsewhere and the loss that
    /// belongs to it: penalty, clipping and optimizer on the device, without waiting. After a
    /// [`GpuNetwork::loss_and_gradients`], in 32 bits.
    pub(crate) fn update_native(
        &mut self,
        grads: &[f32],
        loss: f32,
        optimizer: &mut GpuOptimizer,
        options: &GpuTrainOptions,
    ) -> Result<()> {
        /// Marks the recording among those of steps.
        const UPDATE: u8 = u8::MAX - 1;
        check_len("the gradient", grads.len(), self.network.layout().len())?;
        let taken = self.taped()?;
        self.check_failure(options)?;
        if optimizer.is_new() {
            optimizer.begin();
        }
        let key = (UPDATE, false, optimizer.id);
        let norms = self.norms.clone();
        let planned = self.plan(&taken)?;
        let (shared, plan, status) = (&planned.shared, &mut *planned.plan, planned.status);
        let gpu = shared.gpu;
        if !plan.steps.contains_key(&key) {
            let mut recording = Recording::new(shared.half);
            plan.record_penalty(shared, &mut recording)?;
            record_update(
                shared,
                plan,
                status,
                &mut recording,
                optimizer,
                &norms,
                1,
                None,
            )?;
            plan.steps.insert(key, recording);
        }
        let constants = constants_of(status, optimizer, options, 1.0, shared.half);
        gpu.write(&plan.upload, 0, constants.bytes());
        gpu.write(
            &shared.grads.buffer,
            shared.grads.offset,
            bytemuck::cast_slice(grads),
        );
        gpu.write(
            &plan.losses.buffer,
            plan.losses.offset,
            bytemuck::bytes_of(&loss),
        );
        let mut encoder = gpu.device.create_command_encoder(&Default::default());
        plan.steps[&key].replay(gpu, &mut encoder, None);
        let staging = self.status.copy(&mut encoder);
        let submission = self.gpu.submit(encoder);
        self.status.submitted(submission, staging);
        self.device_ahead = true;
        optimizer.count_step();
        self.gpu.check()
    }

    /// The time that every kernel of a native step takes on the device, in order, in seconds: the
    /// step is made, and waited for. An error where the adapter has no timestamps.
    pub fn profile_native_step(
        &mut self,
        x: &M::Given,
        target: &Target<f32>,
        loss: Loss,
        optimizer: &mut GpuOptimizer,
        options: &GpuTrainOptions,
    ) -> Result<Vec<(String, f64)>> {
        let taken = self.take(x)?;
        loss.check(taken.outputs, target)?;
        if !self.gpu.timestamps {
            return Err(Error::Gpu {
                what: "the adapter has no timestamps".into(),
                advice: "profile on another adapter of `retrograd devices`".into(),
            });
        }
        // Recorded and compiled before anything is timed.
        self.train_step_gpu_native_with_options(x, target, loss, optimizer, options)?;
        self.finish()?;
        let outputs = self.padded_outputs(&taken)?;
        let weighted = padded(target, &taken, outputs).weights.is_some();
        let key = (loss_kind(loss), weighted, optimizer.id);
        let plan = self.plan(&taken)?.plan;
        let labels: Vec<String> = plan.steps[&key].labels().map(String::from).collect();
        let count = 2 * labels.len() as u32;
        let gpu = std::sync::Arc::clone(&self.gpu);
        let queries = gpu.device.create_query_set(&wgpu::QuerySetDescriptor {
            label: None,
            ty: wgpu::QueryType::Timestamp,
            count,
        });
        let bytes = 8 * u64::from(count);
        let usage = wgpu::BufferUsages::QUERY_RESOLVE | wgpu::BufferUsages::COPY_SRC;
        let resolved = gpu.buffer("timestamps", bytes, usage)?;
        let times = Some(&queries);
        let (mut encoder, sent) =
            self.encode_native(&taken, x, target, loss, optimizer, options, times)?;
        encoder.resolve_query_set(&queries, 0..count, &resolved, 0);
        self.submit_native(encoder, sent, optimizer, taken);
        let part = Part::whole(&resolved);
        let words = super::recording::download(&gpu, &Part { bytes, ..part })?;
        let ticks: &[u64] = &bytemuck::pod_collect_to_vec::<f32, u64>(&words);
        let period = f64::from(gpu.queue.get_timestamp_period()) * 1e-9;
        let spans = ticks
            .chunks_exact(2)
            .map(|t| t[1].saturating_sub(t[0]) as f64 * period);
        Ok(labels.into_iter().zip(spans).collect())
    }

    /// The losses of native steps that have arrived, each once; never waits.
    pub fn losses(&mut self) -> Result<Vec<StepLoss>> {
        self.gpu.check()?;
        let _ = self.gpu.device.poll(wgpu::PollType::Poll);
        self.status.advance(&self.gpu)?;
        Ok(self.status.take())
    }

    /// Waits until all steps are done, and returns the losses that had not been taken.
    pub fn finish(&mut self) -> Result<Vec<StepLoss>> {
        self.gpu.check()?;
        self.status.flush(&self.gpu)?;
        Ok(self.status.take())
    }

    /// The loss scale of mixed precision, as far as steps have arrived; 1 without it.
    pub fn loss_scale(&self) -> f32 {
        self.status.scale.map_or(1.0, |scale| scale.value)
    }

    /// Native steps of mixed precision that changed nothing because the loss scale was too large.
    pub fn overflowed_steps(&self) -> u64 {
        self.status.overflows
    }

    /// Native steps that changed nothing because their loss or gradient was not finite.
    pub fn skipped_steps(&self) -> u64 {
        self.status.skipped
    }

    /// Forgets a failed native step: the weights are those before it, and training may go on.
    pub fn clear_failure(&mut self) -> Result<()> {
        self.status.flush(&self.gpu)?;
        self.status.failure = None;
        self.status.forgiven = self.status.steps;
        Ok(())
    }
}

/// The constants of a native step.
fn constants_of(
    status: &Status,
    optimizer: &GpuOptimizer,
    options: &GpuTrainOptions,
    share: f32,
    half: bool,
) -> StepConstants {
    let slot = status.steps % SLOTS;
    let follows = !options.skip_not_finite && status.steps > status.forgiven;
    let before = if follows {
        (status.steps - 1) % SLOTS
    } else {
        slot
    };
    let scale_at = if half { slot } else { SLOTS };
    let lr = options.lr.unwrap_or(optimizer.spec().lr());
    StepConstants::loss(share, 1.0).with_optimizer(
        optimizer.spec(),
        optimizer.steps() + 1,
        lr,
        &options.clip,
        [slot, before, scale_at].map(|at| at as u32),
        (status.left_out(), status.unknown()),
    )
}

fn not_finite(step: u64, tensor: String, value: f64) -> Error {
    Error::NotFinite {
        step,
        tensor,
        value,
        advice: "the weights are those of the last good step; lower the learning rate, set clip, \
                 look at the data, or leave such steps out with --on-nan skip"
            .into(),
    }
}
