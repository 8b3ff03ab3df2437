//! Optimizers whose state lives on the device.

use crate::math;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::device::Gpu;
use super::network::{GpuNetwork, check_len};
use super::recorded::Recorded;
use super::recording::{Part, download};
use super::status::{SLOTS, UNKNOWN};
use crate::Result;
use crate::optim::{Optimizer, OptimizerSpec};
use crate::train::Clip;

/// An optimizer with its state on the device: SGD with momentum, Adam or AdamW.
pub struct GpuOptimizer {
    gpu: Arc<Gpu>,
    spec: OptimizerSpec,
    /// Steps before it came to the device, and those sent since.
    before: u64,
    sent: u64,
    /// The network's count of steps that changed nothing, and what it was when this began.
    left_out: Arc<AtomicU64>,
    left_out_before: u64,
    pub(crate) state: Vec<Part>,
    len: usize,
    /// Recordings are bound to the state of one optimizer.
    pub(crate) id: u64,
}

/// Adam on the device; the same type holds AdamW and SGD.
pub type GpuAdam = GpuOptimizer;

impl GpuOptimizer {
    /// Fresh state for a network.
    pub fn new<M: Recorded>(network: &GpuNetwork<M>, spec: OptimizerSpec) -> Result<Self> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        spec.check()?;
        let len = network.network().layout().len();
        let gpu = Arc::clone(network.gpu());
        let names = spec.state_names().iter();
        let state: Result<Vec<_>> = names
            .map(|name| {
                Ok(Part::whole(
                    &gpu.model_floats(&format!("the optimizer's {name}"), len)?,
                ))
            })
            .collect();
        Ok(GpuOptimizer {
            state: state?,
            gpu,
            spec,
            before: 0,
            sent: 0,
            left_out_before: network.status.left_out(),
            left_out: Arc::clone(&network.status.left_out),
            len,
            id: NEXT.fetch_add(1, Ordering::Relaxed),
        })
    }

    /// With the state of an optimizer of the CPU.
    pub fn from_cpu<M: Recorded>(
        network: &GpuNetwork<M>,
        optimizer: &Optimizer<f32>,
    ) -> Result<Self> {
        let mut own = GpuOptimizer::new(network, *optimizer.spec())?;
        own.before = optimizer.steps();
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
        optimizer.restore(self.steps(), state?)?;
        Ok(optimizer)
    }

    /// Kind and constants.
    pub fn spec(&self) -> &OptimizerSpec {
        &self.spec
    }

    /// Steps taken: those sent, without those that are known to have changed nothing.
    pub fn steps(&self) -> u64 {
        let left_out = self.left_out.load(Ordering::Relaxed) - self.left_out_before;
        self.before + self.sent.saturating_sub(left_out)
    }

    /// A step was sent.
    pub(crate) fn count_step(&mut self) {
        self.sent += 1;
    }

    /// Whether none was sent yet; then what other optimizers' steps did has to be known.
    pub(crate) fn is_new(&self) -> bool {
        self.sent == 0
    }

    /// Nothing is on its way: what was left out so far was not of this optimizer.
    pub(crate) fn begin(&mut self) {
        self.left_out_before = self.left_out.load(Ordering::Relaxed);
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

/// Words of a step's constants before those that depend on the number of updates.
const PLAIN: usize = 20;

/// The constants of a step, in the order of `Step` in the kernels.
pub(crate) struct StepConstants {
    words: [u32; PLAIN + 2 * UNKNOWN as usize],
    /// Those that the step looks at.
    used: usize,
}

impl StepConstants {
    /// Of the loss alone, with its gradient multiplied by `share`.
    pub fn loss(scale: f32, share: f32) -> Self {
        let mut words = [0; PLAIN + 2 * UNKNOWN as usize];
        words[13] = SLOTS as u32;
        words[0] = scale.to_bits();
        words[1] = share.to_bits();
        let used = PLAIN;
        StepConstants { words, used }
    }

    /// Of one of the batches whose gradients are added: what it counts for in the step's gradient, and
    /// in its loss.
    pub fn with_shares(mut self, [gradient, loss]: [f32; 2]) -> Self {
        self.words[11] = gradient.to_bits();
        self.words[16] = loss.to_bits();
        self
    }

    /// As they are sent.
    pub fn bytes(&self) -> &[u8] {
        bytemuck::cast_slice(&self.words[..self.used])
    }

    /// Computed in f64, as on the CPU, for the `t`-th update counted from 1, or one of the
    /// `unknown` before it: `left_out` steps are known to have been left out, and it may be more.
    pub fn with_optimizer(
        mut self,
        spec: &OptimizerSpec,
        t: u64,
        lr: f64,
        clip: &Clip,
        [slot, before, scale_at]: [u32; 3],
        (left_out, unknown): (u64, u64),
    ) -> Self {
        let adam = |betas: [f64; 2], eps: f64, decay: f64, shrink: f64| {
            let [take1, take2] = betas.map(|b| 1.0 - b);
            [take1, betas[1], take2, eps, decay, shrink, 0.0, 0.0]
        };
        let of_t = |t: u64| {
            let t = i32::try_from(t).unwrap_or(i32::MAX);
            match *spec {
                OptimizerSpec::Sgd { .. } => [lr, 1.0],
                OptimizerSpec::Adam { betas, .. } | OptimizerSpec::AdamW { betas, .. } => [
                    lr / (1.0 - math::powi(betas[0], t)),
                    (1.0 - math::powi(betas[1], t)).sqrt(),
                ],
            }
        };
        let numbers = match *spec {
            OptimizerSpec::Sgd {
                momentum,
                nesterov,
                weight_decay,
                ..
            } => {
                let nesterov = f64::from(u8::from(nesterov));
                [momentum, 0.0, 0.0, 0.0, weight_decay, 1.0, 0.0, nesterov]
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
        let put = |words: &mut [u32], numbers: &[f64]| {
            for (word, &number) in words.iter_mut().zip(numbers) {
                *word = (number as f32).to_bits();
            }
        };
        put(&mut self.words[2..4], &clips);
        self.words[4] = left_out as u32;
        put(&mut self.words[5..13], &numbers);
        for (less, words) in (0..=unknown).zip(self.words[PLAIN..].chunks_exact_mut(2)) {
            put(words, &of_t(t.saturating_sub(less).max(1)));
            self.used = PLAIN + 2 * (less as usize + 1);
        }
        self.words[13] = scale_at;
        self.words[14] = slot;
        self.words[15] = before;
        self
    }
}
