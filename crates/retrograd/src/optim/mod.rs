//! Optimizers, clipping and schedules over the flat parameter vector.
//!
//! Each optimizer follows PyTorch's definition to the letter. With g the gradient (clipped), p the
//! parameter, η the rate, λ the weight decay, t the step counted from 1:
//!
//! - **SGD**: g ← g + λp; with momentum μ: b ← μb + g, and g ← g + μb (Nesterov) or g ← b;
//!   p ← p − ηg.
//! - **Adam**: g ← g + λp; m ← m + (1−β₁)(g − m); v ← β₂v + (1−β₂)g²;
//!   p ← p − η/(1−β₁ᵗ) · m / (√v/√(1−β₂ᵗ) + ε).
//! - **AdamW**: p ← (1 − ηλ)p, then Adam with λ = 0.
//!
//! Weight decay is applied to every trained tensor alike, biases too, as PyTorch does. Frozen
//! tensors are not touched. Element by element, so the result cannot depend on threads.

mod lbfgs;
mod schedule;
#[cfg(test)]
mod tests;

use crate::cuts::cuts;
use crate::math;
pub use lbfgs::{Lbfgs, Minimum, Stop};
pub use schedule::{Schedule, ScheduleKind};

use std::ops::Range;

use serde::{Deserialize, Serialize};

use crate::parallel::Tensors;
use crate::{Error, Layout, Result, Scalar, parallel};

/// An optimizer's kind and constants, as written in files. What is absent has PyTorch's default.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum OptimizerSpec {
    /// Gradient descent.
    Sgd {
        /// The rate.
        lr: f64,
        /// μ; 0 is none.
        #[serde(default)]
        momentum: f64,
        /// Nesterov's form of momentum.
        #[serde(default)]
        nesterov: bool,
        /// λ, added to the gradient.
        #[serde(default)]
        weight_decay: f64,
    },
    /// Adam; decay is added to the gradient.
    Adam {
        /// The rate.
        lr: f64,
        /// β₁ and β₂.
        #[serde(default = "default_betas")]
        betas: [f64; 2],
        /// ε.
        #[serde(default = "default_eps")]
        eps: f64,
        /// λ, added to the gradient.
        #[serde(default)]
        weight_decay: f64,
    },
    /// Adam with decoupled weight decay.
    #[serde(rename = "adamw")]
    AdamW {
        /// The rate.
        lr: f64,
        /// β₁ and β₂.
        #[serde(default = "default_betas")]
        betas: [f64; 2],
        /// ε.
        #[serde(default = "default_eps")]
        eps: f64,
        /// λ, shrinks the parameter itself.
        #[serde(default = "default_adamw_decay")]
        weight_decay: f64,
    },
}

fn default_betas() -> [f64; 2] {
    [0.9, 0.999]
}
fn default_eps() -> f64 {
    1e-8
}
fn default_adamw_decay() -> f64 {
    0.01
}

impl OptimizerSpec {
    /// Plain gradient descent.
    pub fn sgd(lr: f64) -> Self {
        OptimizerSpec::Sgd {
            lr,
            momentum: 0.0,
            nesterov: false,
            weight_decay: 0.0,
        }
    }

    /// Adam with PyTorch's defaults.
    pub fn adam(lr: f64) -> Self {
        OptimizerSpec::Adam {
            lr,
            betas: default_betas(),
            eps: default_eps(),
            weight_decay: 0.0,
        }
    }

    /// AdamW with PyTorch's defaults.
    pub fn adamw(lr: f64) -> Self {
        OptimizerSpec::AdamW {
            lr,
            betas: default_betas(),
            eps: default_eps(),
            weight_decay: default_adamw_decay(),
        }
    }

    /// The base rate.
    pub fn lr(&self) -> f64 {
        match *self {
            OptimizerSpec::Sgd { lr, .. }
            | OptimizerSpec::Adam { lr, .. }
            | OptimizerSpec::AdamW { lr, .. } => lr,
        }
    }

    /// The constants are in range.
    pub fn check(&self) -> Result<()> {
        let within = |what: &str, value: f64, ok: bool, needed: &str| {
            if ok {
                Ok(())
            } else {
                Err(Error::invalid(format!("optimizer.{what}"), value, needed))
            }
        };
        let lr = self.lr();
        within("lr", lr, lr.is_finite() && lr >= 0.0, "a finite number ≥ 0")?;
        let decay_ok = |d: f64| d.is_finite() && d >= 0.0;
        match *self {
            OptimizerSpec::Sgd {
                momentum,
                nesterov,
                weight_decay,
                ..
            } => {
                within(
                    "momentum",
                    momentum,
                    (0.0..1.0).contains(&momentum),
                    "0 ≤ momentum < 1",
                )?;
                within(
                    "nesterov",
                    momentum,
                    !nesterov || momentum > 0.0,
                    "a momentum > 0",
                )?;
                within(
                    "weight_decay",
                    weight_decay,
                    decay_ok(weight_decay),
                    "a finite number ≥ 0",
                )
            }
            OptimizerSpec::Adam {
                betas,
                eps,
                weight_decay,
                ..
            }
            | OptimizerSpec::AdamW {
                betas,
                eps,
                weight_decay,
                ..
            } => {
                for beta in betas {
                    within("betas", beta, (0.0..1.0).contains(&beta), "0 ≤ beta < 1")?;
                }
                within(
                    "eps",
                    eps,
                    eps.is_finite() && eps >= 0.0,
                    "a finite number ≥ 0",
                )?;
                within(
                    "weight_decay",
                    weight_decay,
                    decay_ok(weight_decay),
                    "a finite number ≥ 0",
                )
            }
        }
    }

    /// The names of its state vectors, PyTorch's.
    pub fn state_names(&self) -> &'static [&'static str] {
        match self {
            OptimizerSpec::Sgd { momentum, .. } if *momentum == 0.0 => &[],
            OptimizerSpec::Sgd { .. } => &["momentum_buffer"],
            _ => &["exp_avg", "exp_avg_sq"],
        }
    }
}

/// An optimizer with its state: flat vectors like the parameters.
#[derive(Clone, Debug)]
pub struct Optimizer<T> {
    spec: OptimizerSpec,
    steps: u64,
    state: Vec<Vec<T>>,
}

/// Elements per chunk, and the size from which chunks go to threads (measured on two cores: an
/// Adam update of 16k parameters takes about 5 µs, several times what a parallel part costs while
/// threads are awake).
const CHUNK: usize = 4096;
const PARALLEL: usize = 16_384;
/// Squares that are added before their sum joins the norm.
const NORM_CHUNK: usize = 1024;
cuts!(CHUNK, PARALLEL, NORM_CHUNK);

impl<T: Scalar> Optimizer<T> {
    /// Fresh state for that many parameters.
    pub fn new(spec: OptimizerSpec, params: usize) -> Self {
        Optimizer {
            spec,
            steps: 0,
            state: spec
                .state_names()
                .iter()
                .map(|_| vec![T::ZERO; params])
                .collect(),
        }
    }

    /// Kind and constants.
    pub fn spec(&self) -> &OptimizerSpec {
        &self.spec
    }

    /// Steps taken.
    pub fn steps(&self) -> u64 {
        self.steps
    }

    /// The state vectors, in the order of [`OptimizerSpec::state_names`].
    pub fn state(&self) -> &[Vec<T>] {
        &self.state
    }

    /// The same, to be changed.
    pub(crate) fn state_mut(&mut self) -> &mut [Vec<T>] {
        &mut self.state
    }

    /// Takes back a saved state.
    pub fn restore(&mut self, steps: u64, state: Vec<Vec<T>>) -> Result<()> {
        let fits = state.len() == self.state.len()
            && state
                .iter()
                .zip(&self.state)
                .all(|(a, b)| a.len() == b.len());
        if !fits {
            return Err(Error::invalid(
                "optimizer state",
                format!(
                    "{:?} values",
                    state.iter().map(Vec::len).collect::<Vec<_>>()
                ),
                format!("{:?}", self.state.iter().map(Vec::len).collect::<Vec<_>>()),
            ));
        }
        self.steps = steps;
        self.state = state;
        Ok(())
    }

    /// Takes a range of the state back, and the count of steps, from before a step that is not to be.
    pub(crate) fn put_back(&mut self, steps: u64, range: Range<usize>, state: &[Vec<T>]) {
        self.steps = steps;
        for (own, kept) in self.state.iter_mut().zip(state) {
            own[range.clone()].copy_from_slice(&kept[range.clone()]);
        }
    }

    /// One step at rate `lr` on everything that is not frozen.
    pub fn step(&mut self, params: &mut [T], grads: &[T], layout: &Layout, lr: f64) {
        self.begin();
        self.step_range(params, grads, layout, 0..params.len(), lr);
    }

    /// Begins a step that is made range by range: it is counted once, however many follow.
    pub fn begin(&mut self) {
        self.steps += 1;
    }

    /// The part of the step begun last that concerns a range of the flat vector, frozen tensors
    /// left out. Ranges that cover the vector once make the same step as [`Optimizer::step`], bit
    /// for bit: an element's update reads that element alone.
    pub fn step_range(
        &mut self,
        params: &mut [T],
        grads: &[T],
        layout: &Layout,
        range: Range<usize>,
        lr: f64,
    ) {
        let trained = Tensors::trained(layout.tensors()).within(range);
        self.step_tensors(params, grads, trained, lr);
    }

    fn step_tensors(&mut self, params: &mut [T], grads: &[T], tensors: Tensors<'_>, lr: f64) {
        let update = Update::new(&self.spec, self.steps, lr);
        let len: usize = tensors.ranges().map(|t| t.len()).sum();
        let (pieces, parallel) = (len.div_ceil(CHUNK), len >= PARALLEL);
        match &mut self.state[..] {
            [] => parallel::for_each_share([params], tensors, pieces, parallel, |share, [p]| {
                update.apply(p, &grads[share], &mut [], &mut []);
            }),
            [b] => {
                let arrays = [params, b];
                parallel::for_each_share(arrays, tensors, pieces, parallel, |share, [p, b]| {
                    parallel::take_over(p);
                    update.apply(p, &grads[share], b, &mut []);
                });
            }
            [m, v, ..] => {
                let arrays = [params, m, v];
                parallel::for_each_share(arrays, tensors, pieces, parallel, |share, [p, m, v]| {
                    // Read by all threads since the last step, unlike the state.
                    parallel::take_over(p);
                    update.apply(p, &grads[share], m, v);
                });
            }
        }
    }
}

/// The constants of one step, computed in f64 as PyTorch does.
enum Update {
    Sgd {
        lr: f64,
        momentum: f64,
        nesterov: bool,
        weight_decay: f64,
    },
    Adam {
        betas: [f64; 2],
        eps: f64,
        /// λ added to the gradient.
        coupled: f64,
        /// Factor on the parameter.
        shrink: f64,
        step_size: f64,
        correction2_sqrt: f64,
    },
}

impl Update {
    fn new(spec: &OptimizerSpec, t: u64, lr: f64) -> Self {
        let adam = |betas: [f64; 2], eps, coupled, shrink| {
            let t = i32::try_from(t).unwrap_or(i32::MAX);
            Update::Adam {
                betas,
                eps,
                coupled,
                shrink,
                step_size: lr / (1.0 - math::powi(betas[0], t)),
                correction2_sqrt: (1.0 - math::powi(betas[1], t)).sqrt(),
            }
        };
        match *spec {
            OptimizerSpec::Sgd {
                momentum,
                nesterov,
                weight_decay,
                ..
            } => Update::Sgd {
                lr,
                momentum,
                nesterov,
                weight_decay,
            },
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
        }
    }

    fn apply<T: Scalar>(&self, p: &mut [T], g: &[T], m: &mut [T], v: &mut [T]) {
        match *self {
            Update::Sgd {
                lr,
                momentum,
                nesterov,
                weight_decay,
            } => {
                let [lr, mu, decay] = [lr, momentum, weight_decay].map(T::from_f64);
                for (i, p) in p.iter_mut().enumerate() {
                    let mut g = g[i];
                    if weight_decay != 0.0 {
                        g += decay * *p;
                    }
                    if momentum != 0.0 {
                        m[i] = mu * m[i] + g;
                        g = if nesterov { g + mu * m[i] } else { m[i] };
                    }
                    *p -= lr * g;
                }
            }
            Update::Adam {
                betas,
                eps,
                coupled,
                shrink,
                step_size,
                correction2_sqrt,
            } => {
                let c = AdamConstants {
                    take1: T::from_f64(1.0 - betas[0]),
                    beta2: T::from_f64(betas[1]),
                    take2: T::from_f64(1.0 - betas[1]),
                    eps: T::from_f64(eps),
                    decay: T::from_f64(coupled),
                    shrink: T::from_f64(shrink),
                    step_size: T::from_f64(step_size),
                    correction2_sqrt: T::from_f64(correction2_sqrt),
                };
                adam(&c, p, g, m, v);
            }
        }
    }
}

struct AdamConstants<T> {
    take1: T,
    beta2: T,
    take2: T,
    eps: T,
    decay: T,
    shrink: T,
    step_size: T,
    correction2_sqrt: T,
}

/// Adam on one chunk. Elementwise; under `dispatch!` the compiler makes vectors of it.
fn adam<T: Scalar>(c: &AdamConstants<T>, p: &mut [T], g: &[T], m: &mut [T], v: &mut [T]) {
    use crate::simd::dispatch;
    dispatch!(crate::simd::level(), simd => {
        let _ = simd;
        adam_elements(c, p, g, m, v)
    });
}

#[inline(always)]
fn adam_elements<T: Scalar>(c: &AdamConstants<T>, p: &mut [T], g: &[T], m: &mut [T], v: &mut [T]) {
    for (((p, &g), m), v) in p.iter_mut().zip(g).zip(m).zip(v) {
        let g = g + c.decay * *p;
        *m += c.take1 * (g - *m);
        *v = c.beta2 * *v + c.take2 * g * g;
        let denominator = (*v).sqrt() / c.correction2_sqrt + c.eps;
        *p = c.shrink * *p - c.step_size * (*m / denominator);
    }
}

/// The 2-norm of the gradient over everything that is trained, added in f64 in a fixed order.
pub fn global_norm<T: Scalar>(grads: &[T], layout: &Layout) -> f64 {
    let sum: f64 = layout
        .trainable()
        .map(|range| {
            grads[range]
                .chunks(NORM_CHUNK)
                .map(|chunk| chunk.iter().map(|g| g.to_f64() * g.to_f64()).sum::<f64>())
                .sum::<f64>()
        })
        .sum();
    sum.sqrt()
}

/// Scales the gradient by min(1, max_norm / (‖g‖₂ + 1e-6)), as PyTorch does; returns ‖g‖₂.
pub fn clip_global_norm<T: Scalar>(grads: &mut [T], layout: &Layout, max_norm: f64) -> f64 {
    let norm = global_norm(grads, layout);
    let factor = max_norm / (norm + 1e-6);
    if factor < 1.0 {
        let factor = T::from_f64(factor);
        for g in grads {
            *g *= factor;
        }
    }
    norm
}

/// Clamps each element to ±limit. A NaN stays one.
pub fn clip_elements<T: Scalar>(grads: &mut [T], limit: f64) {
    let limit = T::from_f64(limit);
    let parallel = grads.len() >= 2 * PARALLEL;
    parallel::for_each_chunk(grads, CHUNK, parallel, |_, grads| {
        for g in grads {
            // Stored in any case, so that it becomes vectors. NaN stays NaN.
            *g = if *g > limit {
                limit
            } else if *g < -limit {
                -limit
            } else {
                *g
            };
        }
    });
}
