//! Optimizers whose state lives on the device.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::device::Gpu;
use super::network::{GpuNetwork, check_len};
use super::recording::{Part, download};
use super::status::SLOTS;
use crate::optim::{Optimizer, OptimizerSpec};
use crate::train::Clip;
use crate::{Model, Result};

/// An optimizer with its state on the device: SGD with momentum, Adam or AdamW.
pub struct GpuOptimizer {
    gpu: Arc<Gpu>,
    spec: OptimizerSpec,
    pub(crate) steps: u64,
    pub(crate) state: Vec<Part>,
    len: usize,
    /// Recordings are bound to the state of one optimizer.
    pub(crate) id: u64,
}

/// Adam on the device; the same type holds AdamW and SGD.
pub type GpuAdam = GpuOptimizer;

impl GpuOptimizer {
    /// Fresh state for a network.
    pub fn new(network: &GpuNetwork, spec: OptimizerSpec) -> Result<Self> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        spec.check()?;
        let len = network.network().layout().len();
        let gpu = Arc::clone(network.gpu());
        let names = spec.state_names().iter();
        let state: Result<Vec<_>> = names
            .map(|name| Ok(Part::whole(&gpu.floats(name, len)?)))
            .collect();
        Ok(GpuOptimizer {
            state: state?,
            gpu,
            spec,
            steps: 0,
            len,
            id: NEXT.fetch_add(1, Ordering::Relaxed),
        })
    }

    /// With the state of an optimizer of the CPU.
    pub fn from_cpu(network: &GpuNetwork, optimizer: &Optimizer<f32>) -> Result<Self> {
        let mut own = GpuOptimizer::new(network, *optimizer.spec())?;
        own.steps = optimizer.steps();
        for (part, values) in own.state.iter().zip(optimizer.state()) {
            check_len("optimizer state", values.len(), own.len)?;
            own.gpu.write(&part.buffer, 0, bytemuck::cast_slice(values));
        }
        Ok(own)
    }

    /// Its state as an optimizer of the CPU.
    pub fn to_cpu(&self) -> Result<Optimizer<f32>> {
        let mut optimizer = Optimizer::new(self.spec, self.len);
        let state: Result<Vec<_>> = self
            .state
            .iter()
            .map(|part| {
                let bytes = 4 * self.len as u64;
                download(
                    &self.gpu,
                    &Part {
                        bytes,
                        ..part.clone()
                    },
                )
            })
            .collect();
        optimizer.restore(self.steps, state?)?;
        Ok(optimizer)
    }

    /// Kind and constants.
    pub fn spec(&self) -> &OptimizerSpec {
        &self.spec
    }

    /// Steps taken.
    pub fn steps(&self) -> u64 {
        self.steps
    }

    /// Which branch of the kernel.
    pub(crate) fn kind(&self) -> u8 {
        match self.spec {
            OptimizerSpec::Sgd { momentum: 0.0, .. } => 0,
            OptimizerSpec::Sgd { .. } => 1,
            _ => 2,
        }
    }
}

/// The constants of a step, in the order of `Step` in the kernels.
pub(crate) struct StepConstants {
    pub words: [u32; 16],
}

impl StepConstants {
    /// Of the loss alone, with its gradient multiplied by `share`.
    pub fn loss(scale: f32, share: f32) -> Self {
        let mut words = [0; 16];
        words[13] = SLOTS as u32;
        words[0] = scale.to_bits();
        words[1] = share.to_bits();
        StepConstants { words }
    }

    /// Computed in f64, as on the CPU, for the `t`-th step counted from 1.
    pub fn with_optimizer(
        mut self,
        spec: &OptimizerSpec,
        t: u64,
        lr: f64,
        clip: &Clip,
        [slot, before, scale_at]: [u32; 3],
    ) -> Self {
        let t = i32::try_from(t).unwrap_or(i32::MAX);
        let adam = |betas: [f64; 2], eps: f64, decay: f64, shrink: f64| {
            let correction = (1.0 - betas[1].powi(t)).sqrt();
            let rate = lr / (1.0 - betas[0].powi(t));
            [
                rate,
                1.0 - betas[0],
                betas[1],
                1.0 - betas[1],
                eps,
                decay,
                shrink,
                correction,
                0.0,
            ]
        };
        let numbers = match *spec {
            OptimizerSpec::Sgd {
                momentum,
                nesterov,
                weight_decay,
                ..
            } => {
                let nesterov = f64::from(u8::from(nesterov));
                [
                    lr,
                    momentum,
                    0.0,
                    0.0,
                    0.0,
                    weight_decay,
                    1.0,
                    1.0,
                    nesterov,
                ]
            }
            OptimizerSpec::Adam {
                betas,
                eps,
                weight_decay,
                ..
            } => adam(betas, eps, weight_decay, 1.0),
            OptimizerSpec::AdamW {
                betas,
                eps,
                weight_decay,
                ..
            } => adam(betas, eps, 0.0, 1.0 - lr * weight_decay),
        };
        let clips = [clip.norm.unwrap_or(0.0), clip.element.unwrap_or(0.0)];
        for (word, number) in self.words[2..]
            .iter_mut()
            .zip(clips.into_iter().chain(numbers))
        {
            *word = (number as f32).to_bits();
        }
        self.words[13] = scale_at;
        self.words[14] = slot;
        self.words[15] = before;
        self
    }
}
