//! Hybrid steps: loss and gradients on the device, the optimizer on the CPU.
//!
//! Backward is submitted in groups of layers, all at once. A group ends with a copy of the gradients that
//! it completes into a buffer of its own, which is mapped when that is done; so the first groups'
//! gradients are on the CPU, and may be stepped with, while the device computes the next. Whoever steps
//! them has the new weights sent behind what was submitted: nothing that the device still has to do reads
//! them. The CPU stands still for the device to be idle at the end of a step alone.
//!
//! Where the CPU shares the device's memory (`Gpu::mapped`), the new weights are written where the device
//! reads them, and the gradient of a step with one group is read where the device left it.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use super::counters::{GpuEvent, count};
use super::landing::{
    AWAY, FAILED, Flight, Group, Landing, Landings, READY, copy_ranges, groups_of,
};
use super::network::GpuNetwork;
use super::optimizer::StepConstants;
use super::plan::{Form, GpuPlan, Shared, StepKey};
use super::recorded::Recorded;
use super::recording::Recording;
use super::staging::map_when_done;
use super::train::{
    GpuTrainOptions, encode, loss_kind, loss_scale, not_finite, padded, record_loss,
};
use crate::optim::{self, Optimizer};
use crate::{Error, Loss, Pass, Reported, Result, Target};

impl<M: Recorded> GpuNetwork<M> {
    /// Sends a batch, and all that leads to its gradient, without waiting. What was under way before is
    /// forgotten. Finished by [`GpuNetwork::land_gradients`].
    pub(crate) fn begin_gradients(
        &mut self,
        x: &M::Given,
        target: &Target<f32>,
        loss: Loss,
        options: &GpuTrainOptions,
    ) -> Result<()> {
        if self.is_half() || options.compress_gradients {
            // Looked at as a whole, and computed again where the loss scale was too large.
            let brought = self.bring_gradients(x, target, loss, options)?;
            self.land_later(brought);
            return Ok(());
        }
        let taken = self.take(x)?;
        loss.check(taken.outputs, target)?;
        let share = loss_scale(loss, target);
        let outputs = self.padded_outputs(&taken)?;
        let target = &*padded(target, &taken, outputs);
        let mut landings = std::mem::take(&mut self.landings);
        let sent = self.submit_groups(x, target, loss, (share, &taken), options, &mut landings);
        self.landings = landings;
        sent?;
        self.set_taped(taken);
        self.absorbed += 1;
        self.input_scale = 1.0;
        self.gpu.check()
    }

    /// Keeps a loss and a gradient that are here already for [`GpuNetwork::land_gradients`].
    pub(crate) fn land_later(&mut self, brought: (f64, Vec<f32>)) {
        self.landings.flight = Some(Flight {
            groups: Vec::new(),
            pieces: 0,
            in_place: false,
            brought: Some(brought),
        });
    }

    fn submit_groups(
        &mut self,
        x: &M::Given,
        target: &Target<f32>,
        loss: Loss,
        (share, taken): (f32, &super::network::Taken),
        options: &GpuTrainOptions,
        landings: &mut Landings,
    ) -> Result<()> {
        let (weighted, rows) = (target.weights.is_some(), target.classes.len());
        let gpu = Arc::clone(&self.gpu);
        let input = self.network.input_of(x);
        let grads = self.grads.clone();
        let planned = self.plan(taken)?;
        let (shared, plan) = (&planned.shared, &mut *planned.plan);
        let groups = groups_of(plan, shared.layers.layout);
        let in_place = gpu.mapped && groups.len() == 1;
        let key =
            |i: usize| -> StepKey { (loss_kind(loss), weighted, rows as u64, Form::Group(i)) };
        record_groups(shared, plan, &groups, (loss, weighted, rows), key)?;
        let outputs = plan.output_len(shared.layers);
        let pieces = match loss {
            Loss::CrossEntropy => rows.div_ceil(64),
            _ => outputs.div_ceil(1024),
        };
        let losses = plan.losses.clone();
        let constants = StepConstants::loss(share, 1.0);
        // Before the batch is written: what fails here has taken nothing.
        let loss_bytes = 4 * pieces as u64;
        landings.prepare(&gpu, 0, loss_bytes)?;
        for (i, group) in groups.iter().enumerate().filter(|_| !in_place) {
            landings.prepare(&gpu, i + 1, 4 * group.parameters() as u64)?;
        }
        let (encoder, sent) = encode(
            planned,
            &key(0),
            &constants,
            options.key,
            &input,
            target,
            None,
        )?;
        let mut first = Some(encoder);
        for (i, group) in groups.iter().enumerate() {
            let mut encoder = match first.take() {
                Some(mut encoder) => {
                    let to = &landings.all[0].buffer;
                    let (from, at) = (&losses.buffer, losses.offset);
                    encoder.copy_buffer_to_buffer(from, at, to, 0, loss_bytes);
                    encoder
                }
                None => {
                    let mut encoder = gpu.device.create_command_encoder(&Default::default());
                    let recording = &self.plan(taken)?.plan.steps[&key(i)];
                    recording.replay(&gpu, &mut encoder, None);
                    encoder
                }
            };
            if !in_place {
                let to = &landings.all[i + 1].buffer;
                copy_ranges(&mut encoder, &grads, &group.ranges, to);
            }
            let submission = gpu.submit(encoder);
            gpu.log(GpuEvent::Submitted(i));
            if i == 0 {
                self.ring.submitted(sent);
                landings.all[0].submitted(submission.clone());
            }
            if !in_place {
                landings.all[i + 1].submitted(submission);
            }
        }
        landings.flight = Some(Flight {
            groups,
            pieces,
            in_place,
            brought: None,
        });
        Ok(())
    }

    /// The loss and the gradient of what [`GpuNetwork::begin_gradients`] sent, as it arrives: `params` is
    /// told of every range that is complete, and parameters that it changes are sent. Of a loss that is
    /// not finite nothing is told.
    pub(crate) fn land_gradients(
        &mut self,
        mut params: Reported<'_, f32>,
        grads: &mut [f32],
    ) -> Result<f64> {
        let Some(flight) = self.landings.flight.take() else {
            return Err(Error::invalid(
                "a gradient",
                "none under way",
                "one that was begun",
            ));
        };
        let all = 0..grads.len();
        if let Some((value, brought)) = flight.brought {
            grads.copy_from_slice(&brought);
            if value.is_finite() {
                params.complete(all.clone(), grads);
                self.send_changed(&params, &[all])?;
            }
            return Ok(value);
        }
        let gpu = Arc::clone(&self.gpu);
        let frozen = self.network.layout().tensors().iter().filter(|t| t.frozen);
        frozen.for_each(|tensor| grads[tensor.range()].fill(0.0));
        let mut losses = vec![0.0; flight.pieces];
        let only = flight.groups.len() == 1;
        let landing = &mut self.landings.all[0];
        landing.await_it(&gpu, only)?;
        let whole = 0..losses.len();
        landing.read(&gpu, std::iter::once((0, &whole)), &mut losses)?;
        landing.release(&gpu);
        let value = losses.iter().map(|&part| f64::from(part)).sum::<f64>();
        if !value.is_finite() {
            return Ok(value);
        }
        let mut changed = Vec::new();
        for (i, group) in flight.groups.iter().enumerate() {
            if flight.in_place {
                self.read_in_place(&group.ranges, grads)?;
            } else {
                let landing = &mut self.landings.all[i + 1];
                landing.await_it(&gpu, i + 1 == flight.groups.len())?;
                let mut at = 0;
                let places = group.ranges.iter().map(|range| {
                    at += 4 * range.len();
                    (at - 4 * range.len(), range)
                });
                landing.read(&gpu, places, grads)?;
                landing.release(&gpu);
            }
            gpu.log(GpuEvent::Arrived(i));
            for range in &group.ranges {
                params.complete(range.clone(), grads);
            }
            // Where memory is shared, all are written at once when the device is idle.
            match gpu.mapped {
                true => changed.extend_from_slice(&group.ranges),
                false => self.send_changed(&params, &group.ranges)?,
            }
        }
        self.send_changed(&params, &changed)?;
        Ok(value)
    }

    /// Sends parameters that were changed.
    fn send_changed(&mut self, params: &Reported<'_, f32>, ranges: &[Range<usize>]) -> Result<()> {
        match params {
            Reported::Updated(params, _) => self.send_params(params, ranges),
            Reported::Told(..) => Ok(()),
        }
    }

    /// Sends ranges of the parameters. The CPU's own copy here is not among what is kept: the device is
    /// ahead of it.
    pub(crate) fn send_params(&mut self, params: &[f32], ranges: &[Range<usize>]) -> Result<()> {
        let gpu = &self.gpu;
        if ranges.is_empty() {
            return Ok(());
        }
        self.device_ahead = true;
        let bytes = ranges.iter().map(|range| 4 * range.len() as u64).sum();
        gpu.log(GpuEvent::Sent(bytes));
        if !gpu.mapped {
            for range in ranges {
                let values = bytemuck::cast_slice(&params[range.clone()]);
                gpu.write(&self.params.buffer, 4 * range.start as u64, values);
            }
            return Ok(());
        }
        let buffer = &self.params.buffer;
        let state = Arc::new(AtomicU8::new(AWAY));
        map_when_done(buffer, wgpu::MapMode::Write, &state, [READY, FAILED]);
        gpu.settle(None)?;
        let view = buffer.get_mapped_range_mut(..);
        let mut view = view.map_err(|e| Error::Gpu {
            what: format!("weights could not be sent: {e}"),
            advice: "the device may have been lost; resume from the last checkpoint".into(),
        })?;
        for range in ranges {
            let values: &[u8] = bytemuck::cast_slice(&params[range.clone()]);
            let at = 4 * range.start;
            view.slice(at..at + values.len()).copy_from_slice(values);
        }
        drop(view);
        buffer.unmap();
        count(&gpu.counting.bytes_up, bytes);
        count(&gpu.counting.bytes_copied, bytes);
        count(&gpu.counting.bytes_mapped, bytes);
        Ok(())
    }

    /// Reads ranges of the gradient where the device left them.
    fn read_in_place(&mut self, ranges: &[Range<usize>], grads: &mut [f32]) -> Result<()> {
        let gpu = &self.gpu;
        let mut landing = Landing::new(self.grads.buffer.clone());
        landing.state.store(AWAY, Ordering::Release);
        map_when_done(
            &landing.buffer,
            wgpu::MapMode::Read,
            &landing.state,
            [READY, FAILED],
        );
        landing.await_it(gpu, true)?;
        let places = ranges.iter().map(|range| (4 * range.start, range));
        landing.read(gpu, places, grads)?;
        let bytes = ranges.iter().map(|range| 4 * range.len() as u64).sum();
        count(&gpu.counting.bytes_mapped, bytes);
        landing.release(gpu);
        Ok(())
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
        const ABSORB: StepKey = (0, false, 0, Form::Absorb);
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
        let mut params = std::mem::take(&mut self.cpu_params);
        let stepped = self.step_hybrid(x, target, loss, optimizer, options, &mut params);
        self.cpu_params = params;
        let (value, ranges) = stepped?;
        if !ranges.is_empty() {
            let params = std::mem::take(&mut self.cpu_params);
            let sent = self.send_params(&params, &ranges);
            self.cpu_params = params;
            sent?;
            self.device_ahead = false;
        }
        Ok(value)
    }

    /// The step of the parameters; returns the loss, and the ranges that changed.
    fn step_hybrid(
        &mut self,
        x: &M::Given,
        target: &Target<f32>,
        loss: Loss,
        optimizer: &mut Optimizer<f32>,
        options: &GpuTrainOptions,
        params: &mut [f32],
    ) -> Result<(f64, Vec<Range<usize>>)> {
        let mut grads = vec![0.0; params.len()];
        self.begin_gradients(x, target, loss, options)?;
        let mut value = self.land_gradients(Reported::Told(params, &mut |_, _| {}), &mut grads)?;
        value += f64::from(self.network.penalty(params, Some(&mut grads)));
        let bad = grads.iter().position(|g| !g.is_finite());
        if !value.is_finite() || bad.is_some() {
            if options.skip_not_finite {
                return Ok((value, Vec::new()));
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
        let layout = self.network.layout();
        optimizer.step(params, &grads, layout, lr);
        // Only what is trained has changed.
        Ok((value, layout.trainable().collect()))
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
}

/// Records every group of a step, where it isn't yet.
fn record_groups(
    shared: &Shared<'_>,
    plan: &mut GpuPlan,
    groups: &[Group],
    (loss, weighted, rows): (Loss, bool, usize),
    key: impl Fn(usize) -> StepKey,
) -> Result<()> {
    for (i, group) in groups.iter().enumerate() {
        if plan.steps.contains_key(&key(i)) {
            continue;
        }
        let mut recording = Recording::new(shared.half);
        if i == 0 {
            plan.record_forward(shared, &mut recording, true)?;
            record_loss(shared, plan, &mut recording, loss, weighted, rows)?;
        }
        plan.record_backward_steps(shared, &mut recording, group.steps.clone())?;
        if i + 1 == groups.len() {
            plan.record_absorb(shared, &mut recording)?;
        }
        plan.steps.insert(key(i), recording);
    }
    Ok(())
}
