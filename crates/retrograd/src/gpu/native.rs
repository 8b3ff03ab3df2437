//! Native steps: all of a step on the device, without waiting.
//!
//! A step on one batch is a recording: forward, loss, backward, norm, update. Where gradients are
//! accumulated over several batches, every batch has a submit of its own and adds to a sum on the device;
//! the last one's submit goes on with penalty, norm and update.
//!
//! In the fused order a tensor is updated once its gradient is complete and nothing later in backward
//! reads it. An update reads an element's gradient, parameter and state alone, so the bits are those of
//! the plain order. What has to look at the whole gradient first has no fused form: clipping by the norm,
//! and a loss scale. A number that is not finite may turn up when other tensors have been updated; the
//! step's status says so.

use std::ops::Range;

use super::device::storage_usage;
use super::kernels::OPTIMIZER;
use super::layer::groups;
use super::network::{GpuNetwork, Taken, check_len};
use super::optimizer::{GpuOptimizer, StepConstants};
use super::plan::{Form, GpuPlan, Shared, StepKey};
use super::recorded::Recorded;
use super::recording::{Part, Recording};
use super::status::{SLOTS, Status, StepLoss};
use super::traffic::StepTraffic;
use super::train::{
    GpuTrainOptions, encode, loss_kind, loss_scale, not_finite, padded, record_loss,
};
use crate::train::MicroBatch;
use crate::{Error, Layout, Loss, Result, Target};

/// Parameters per workgroup of the update, and per piece of the norm; as in optimizer.wgsl.
const UPDATE: usize = 1024;
const NORM: usize = 4096;

/// Pieces of the norm of a range.
fn norm_pieces(range: &Range<usize>) -> usize {
    (range.end.div_ceil(4) - range.start / 4).div_ceil(NORM / 4)
}

/// Room for the pieces of any order of updates: every tensor may have a range of its own.
pub(super) fn norm_room(layout: &Layout) -> usize {
    let tensors = layout.tensors().iter();
    let each: usize = tensors.map(|tensor| norm_pieces(&tensor.range())).sum();
    each.max(norm_pieces(&(0..layout.len()))).max(1)
}

/// What an update is recorded with.
struct Updater<'a> {
    shared: &'a Shared<'a>,
    plan: &'a GpuPlan,
    status: &'a Status,
    optimizer: &'a GpuOptimizer,
    norms: &'a Part,
    loss_pieces: usize,
    /// Mixed precision: good steps until the loss scale is doubled.
    growth: Option<u32>,
    /// Pieces of norms so far.
    pieces: usize,
}

impl Updater<'_> {
    /// The sums of squares of a range. Returns where its pieces are.
    fn norm(&mut self, recording: &mut Recording, range: &Range<usize>) -> Result<Range<usize>> {
        let pieces = self.pieces..self.pieces + norm_pieces(range);
        self.pieces = pieces.end;
        recording.dispatch(
            self.shared.gpu,
            "optimizer_norm",
            (&OPTIMIZER, "optimizer_norm"),
            &[],
            &[
                ("first", range.start),
                ("end", range.end),
                ("norm_first", pieces.start),
                ("norm_pieces", pieces.len()),
                ("not_a_number", f32::NAN.to_bits() as usize),
            ],
            &[
                self.shared.grads,
                &self.status.ring,
                self.norms,
                &self.plan.step,
            ],
            pieces.len(),
        )?;
        Ok(pieces)
    }

    /// The update of a range, where the norms of these pieces are finite. One of a step's updates writes
    /// its status.
    fn update(
        &self,
        recording: &mut Recording,
        range: &Range<usize>,
        norms: &Range<usize>,
        writes_status: bool,
    ) -> Result<()> {
        let (plan, optimizer) = (self.plan, self.optimizer);
        let constants = [
            ("KIND", f64::from(optimizer.kind())),
            ("SLOTS", SLOTS as f64),
            ("GROWTH", self.growth.map_or(1.0, f64::from)),
        ];
        // State that the kind doesn't have is never touched.
        let [first, second] = match &optimizer.state[..] {
            [] => [&plan.spare[0], &plan.spare[1]],
            [b] => [b, &plan.spare[0]],
            [m, v, ..] => [m, v],
        };
        let sizes = [
            ("first", range.start),
            ("end", range.end),
            ("norm_first", norms.start),
            ("norm_pieces", norms.len()),
            ("loss_pieces", self.loss_pieces),
            ("writes_status", usize::from(writes_status)),
        ];
        recording.dispatch(
            self.shared.gpu,
            "optimizer_update",
            (&OPTIMIZER, "optimizer_update"),
            &constants,
            &sizes,
            &[
                self.shared.master,
                self.shared.grads,
                first,
                second,
                self.norms,
                &plan.losses,
                &self.status.ring,
                &plan.step,
                self.shared.scales,
            ],
            (range.end.div_ceil(4) - range.start / 4).div_ceil(UPDATE / 4),
        )
    }

    /// The update of everything, once the whole gradient is there.
    fn all(&mut self, recording: &mut Recording) -> Result<()> {
        let layout = self.shared.layers.layout;
        let norms = self.norm(recording, &(0..layout.len()))?;
        for (i, range) in layout.trainable().enumerate() {
            self.update(recording, &range, &norms, i == 0)?;
        }
        Ok(())
    }

    /// Backward with every tensor's update behind the step that completes its gradient.
    fn fused(&mut self, recording: &mut Recording) -> Result<()> {
        let (shared, plan) = (self.shared, self.plan);
        let steps: Vec<(usize, Vec<Range<usize>>)> = plan
            .backward_steps()
            .map(|(layer, complete)| (layer, joined(complete)))
            .collect();
        // What backward has no gradient for: 0.
        let done = |range: &Range<usize>| {
            let mut all = steps.iter().flat_map(|(_, complete)| complete);
            all.any(|c| c.start <= range.start && range.end <= c.end)
        };
        let tensors = shared.layers.layout.tensors().iter();
        let rest = tensors.filter(|t| !t.frozen && !done(&t.range()));
        let rest: Vec<Range<usize>> = rest.map(|t| t.range()).collect();
        let mut left = rest.len() + steps.iter().map(|(_, c)| c.len()).sum::<usize>();
        let mut update = |own: &mut Self, recording: &mut Recording, range: &Range<usize>| {
            left -= 1;
            let norms = own.norm(recording, range)?;
            match left {
                // With the last one the whole gradient is known.
                0 => own.update(recording, range, &(0..norms.end), true),
                _ => own.update(recording, range, &norms, false),
            }
        };
        for range in &rest {
            update(self, recording, range)?;
        }
        let mut unpriced = shared.layers.places.len();
        for (i, (layer, complete)) in steps.iter().enumerate() {
            plan.record_backward_steps(shared, recording, i..i + 1)?;
            // The last step has the penalties of all layers before it, too.
            let from = if i + 1 == steps.len() { 0 } else { *layer };
            plan.record_penalty_of(shared, recording, from.min(unpriced)..unpriced)?;
            unpriced = unpriced.min(from);
            for range in complete {
                update(self, recording, range)?;
            }
        }
        Ok(())
    }
}

/// Ranges that follow one another as one.
pub(super) fn joined(ranges: &[Range<usize>]) -> Vec<Range<usize>> {
    let mut sorted = ranges.to_vec();
    sorted.sort_by_key(|range| range.start);
    let mut all: Vec<Range<usize>> = Vec::new();
    for range in sorted {
        match all.last_mut() {
            Some(last) if last.end == range.start => last.end = range.end,
            _ => all.push(range),
        }
    }
    all
}

/// Adds a batch's gradient and loss to those before it.
fn record_accumulate(
    shared: &Shared<'_>,
    plan: &GpuPlan,
    recording: &mut Recording,
    sums: &Part,
    form: Form,
    loss_pieces: usize,
) -> Result<()> {
    let len = shared.layers.layout.len();
    let sizes = [
        ("len", len),
        ("loss_pieces", loss_pieces),
        ("is_first", usize::from(form == Form::First)),
        ("is_last", usize::from(form == Form::Last)),
    ];
    for (entry, part, count) in [
        ("optimizer_accumulate", shared.grads, groups(len)),
        ("optimizer_accumulate_loss", &plan.losses, 1),
    ] {
        recording.dispatch(
            shared.gpu,
            entry,
            (&OPTIMIZER, entry),
            &[],
            &sizes,
            &[part, sums, &plan.step],
            count,
        )?;
    }
    Ok(())
}

/// What a native step does with a batch.
fn form_of(options: &GpuTrainOptions) -> Form {
    let MicroBatch { index, of } = options.micro;
    match (options.fused, index, index + 1 == of) {
        (true, ..) => Form::Fused,
        (_, 0, true) => Form::Step,
        (_, 0, false) => Form::First,
        (_, _, false) => Form::Between,
        (_, _, true) => Form::Last,
    }
}

impl<M: Recorded> GpuNetwork<M> {
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
        self.check_form(options)?;
        let taken = self.take(x)?;
        loss.check(taken.outputs, target)?;
        self.status.advance(&self.gpu)?;
        self.check_failure(options)?;
        let (encoder, sent) =
            self.encode_native(&taken, x, target, loss, optimizer, options, None)?;
        if options.micro.is_last() {
            self.submit_native(encoder, sent, optimizer, taken);
        } else {
            let submission = self.gpu.submit(encoder);
            self.ring.submitted(sent);
            self.status.under_way(submission);
            self.set_taped(taken);
            self.absorbed += 1;
        }
        self.gpu.check()
    }

    /// That what is asked for goes together.
    fn check_form(&self, options: &GpuTrainOptions) -> Result<()> {
        let MicroBatch { index, of } = options.micro;
        if index >= of {
            return Err(Error::invalid(
                "the number of an accumulated batch",
                index,
                format!("less than {of}, how many are accumulated"),
            ));
        }
        if !options.fused {
            return Ok(());
        }
        let with = match () {
            () if options.clip.norm.is_some() => "clipping by the norm",
            () if self.is_half() => "mixed precision",
            () if of > 1 => "accumulated batches",
            () if options.skip_not_finite => "steps that may be left out",
            () => return Ok(()),
        };
        Err(Error::invalid(
            "fused updates",
            format!("{with} beside them"),
            "the plain order: the first tensors are updated before the whole gradient is known",
        ))
    }

    /// Where batches are added up: a gradient, and a loss behind it.
    fn sums(&mut self) -> Result<Part> {
        if let Some(sums) = &self.sums {
            return Ok(sums.clone());
        }
        let bytes = 4 * (self.network.layout().len() as u64 + 1);
        let buffer = self
            .gpu
            .model_buffer("accumulated gradients", bytes, storage_usage())?;
        Ok(self.sums.insert(Part::whole(&buffer)).clone())
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
        let form = form_of(options);
        let key: StepKey = (loss_kind(loss), weighted, optimizer.id, form);
        if optimizer.is_new() {
            if self.status.unknown() > 0 {
                self.status.flush(&self.gpu)?;
            }
            optimizer.begin();
        }
        self.status.send_scale(&self.gpu);
        let norms = self.norms.clone();
        let sums = match form {
            Form::Step | Form::Fused => norms.clone(),
            _ => self.sums()?,
        };
        let growth = self.status.scale.map(|scale| scale.growth_interval);
        let input = self.network.input_of(x);
        let planned = self.plan(taken)?;
        let (shared, plan, status) = (&planned.shared, &mut *planned.plan, planned.status);
        if !plan.steps.contains_key(&key) {
            let mut recording = Recording::new(shared.half);
            plan.record_forward(shared, &mut recording, true)?;
            let pieces = record_loss(shared, plan, &mut recording, loss, weighted, rows)?;
            let mut updater = Updater {
                shared,
                plan,
                status,
                optimizer,
                norms: &norms,
                loss_pieces: pieces,
                growth,
                pieces: 0,
            };
            if form == Form::Fused {
                updater.fused(&mut recording)?;
                plan.record_absorb(shared, &mut recording)?;
            } else {
                plan.record_backward(shared, &mut recording, false)?;
                plan.record_absorb(shared, &mut recording)?;
                plan.record_unscale(shared, &mut recording)?;
                if form != Form::Step {
                    record_accumulate(shared, plan, &mut recording, &sums, form, pieces)?;
                    updater.loss_pieces = 1;
                }
                if options.micro.is_last() {
                    plan.record_penalty(shared, &mut recording)?;
                    updater.all(&mut recording)?;
                }
            }
            plan.steps.insert(key, recording);
        }
        let constants = constants_of(status, optimizer, options, share, shared.half)
            .with_shares(options.micro.shares(loss));
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
        check_len("the gradient", grads.len(), self.network.layout().len())?;
        let taken = self.taped()?;
        self.check_failure(options)?;
        if optimizer.is_new() {
            optimizer.begin();
        }
        let key: StepKey = (0, false, optimizer.id, Form::Update);
        let norms = self.norms.clone();
        let planned = self.plan(&taken)?;
        let (shared, plan, status) = (&planned.shared, &mut *planned.plan, planned.status);
        let gpu = shared.gpu;
        if !plan.steps.contains_key(&key) {
            let mut recording = Recording::new(shared.half);
            plan.record_penalty(shared, &mut recording)?;
            let mut updater = Updater {
                shared,
                plan,
                status,
                optimizer,
                norms: &norms,
                loss_pieces: 1,
                growth: None,
                pieces: 0,
            };
            updater.all(&mut recording)?;
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
        let key = self.step_key(&taken, target, loss, optimizer, options)?;
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

    /// What the kernels of a native step read and write in storage buffers: the step is made by kernels that
    /// count. An error where a step of this kind was made before, by others.
    pub fn traffic_of_native_step(
        &mut self,
        x: &M::Given,
        target: &Target<f32>,
        loss: Loss,
        optimizer: &mut GpuOptimizer,
        options: &GpuTrainOptions,
    ) -> Result<StepTraffic> {
        let taken = self.take(x)?;
        loss.check(taken.outputs, target)?;
        self.gpu.tally(true);
        let stepped = self.train_step_gpu_native_with_options(x, target, loss, optimizer, options);
        self.gpu.tally(false);
        stepped?;
        self.finish()?;
        let key = self.step_key(&taken, target, loss, optimizer, options)?;
        let gpu = std::sync::Arc::clone(&self.gpu);
        let plan = self.plan(&taken)?.plan;
        let traffic = StepTraffic::of(&gpu, &plan.steps[&key])?;
        match traffic.kernels.is_empty() {
            false => Ok(traffic),
            true => Err(Error::Gpu {
                what: "kernels that were recorded before don't count".into(),
                advice: "count the first step of a network".into(),
            }),
        }
    }

    /// The key of a native step's recording.
    fn step_key(
        &mut self,
        taken: &Taken,
        target: &Target<f32>,
        loss: Loss,
        optimizer: &GpuOptimizer,
        options: &GpuTrainOptions,
    ) -> Result<StepKey> {
        let outputs = self.padded_outputs(taken)?;
        let weighted = padded(target, taken, outputs).weights.is_some();
        Ok((loss_kind(loss), weighted, optimizer.id, form_of(options)))
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
