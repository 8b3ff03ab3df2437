//! Hybrid steps: loss and gradients on the device, the optimizer on the CPU.

use super::network::GpuNetwork;
use super::plan::{Form, StepKey};
use super::recorded::Recorded;
use super::recording::Recording;
use super::train::{GpuTrainOptions, not_finite};
use crate::optim::{self, Optimizer};
use crate::{Loss, Pass, Result, Target};

impl<M: Recorded> GpuNetwork<M> {
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
}
