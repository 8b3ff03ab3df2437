//! What is checked: a model, its parameters, one batch and a loss; and how it is computed, in any
//! scalar.

use super::bundle::BundleOptimizer;
use crate::optim::{self, Optimizer, OptimizerSpec};
use crate::rng::Key;
use crate::scalar::cast;
use crate::{Batch, Error, Grads, Kernels, Layout, Loss, Model, Pass, Result, Scalar, Target};

/// A model, its parameters, one batch and a loss. Parameters, batch and target are held in f64;
/// f32 must hold them exactly, so that every scalar starts from the same numbers.
pub struct Subject<'a, M: Model> {
    /// The name in reports.
    pub name: String,
    /// The model.
    pub model: &'a M,
    /// Its parameters, in the stored order.
    pub params: Vec<f64>,
    /// The batch.
    pub input: M::Input<f64>,
    /// What the loss compares with.
    pub target: Target<f64>,
    /// The loss.
    pub loss: Loss,
    /// Training or inference, and the random key; the kernels are the checks' own choice.
    pub pass: Pass,
}

impl<'a, M: Model> Subject<'a, M> {
    /// From what a user has: everything in f32.
    pub fn new(
        name: impl Into<String>,
        model: &'a M,
        params: &[f32],
        input: &M::Input<f32>,
        target: &Target<f32>,
        loss: Loss,
    ) -> Result<Self> {
        let subject = Subject {
            name: name.into(),
            model,
            params: cast(params),
            input: model.cast_input(input),
            target: target.cast(),
            loss,
            pass: Pass::training(Key::new(0).purpose("verify")),
        };
        subject.check()?;
        Ok(subject)
    }

    /// The lengths fit and the numbers are finite f32s.
    pub fn check(&self) -> Result<()> {
        let needed = self.model.layout().len();
        if self.params.len() != needed {
            return Err(Error::invalid(
                format!("{}: parameters", self.name),
                format!("{} numbers", self.params.len()),
                format!("{needed}, as the layout says"),
            ));
        }
        let values = [
            ("parameters", &self.params[..]),
            ("input", self.input.values()),
            ("target", &self.target.values[..]),
        ];
        for (what, values) in values {
            if let Some(i) = values.iter().position(|v| !(*v as f32).is_finite()) {
                return Err(Error::invalid(
                    format!("{}: element {i} of the {what}", self.name),
                    values[i],
                    "a finite number",
                ));
            }
            let exact = |v: &f64| f64::from(*v as f32) == *v;
            if let Some(i) = values.iter().position(|v| !exact(v)) {
                return Err(Error::invalid(
                    format!("{}: element {i} of the {what}", self.name),
                    format!("{:e}", values[i]),
                    "a number that f32 holds exactly, so that f32 and f64 start from the same",
                ));
            }
        }
        let mut tape = M::Tape::<f64>::default();
        let pass = self.pass.reference();
        self.model
            .compute_forward(&self.params, &self.input, &pass, &mut tape);
        let outputs = self.model.output(&tape).len();
        self.loss.check(outputs, &self.target)
    }
}

/// Output, loss and gradients of a subject in some scalar.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Evaluation<T> {
    /// The model's output.
    pub output: Vec<T>,
    /// The loss, penalty included.
    pub loss: T,
    /// The gradient with respect to the parameters, in the stored order.
    pub d_params: Vec<T>,
    /// The gradient with respect to the batch's values.
    pub d_input: Vec<T>,
}

impl<T: Scalar> Evaluation<T> {
    /// In f64.
    pub fn to_f64(&self) -> Evaluation<f64> {
        Evaluation {
            output: cast(&self.output),
            loss: self.loss.to_f64(),
            d_params: cast(&self.d_params),
            d_input: cast(&self.d_input),
        }
    }
}

/// Some optimizer steps on the same batch.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Trajectory<T> {
    /// The loss before each step.
    pub losses: Vec<T>,
    /// The parameters after the last.
    pub params: Vec<T>,
    /// The gradient of each step before clipping, where the optimizer divides by its size.
    pub grads: Vec<Vec<T>>,
}

impl<T: Scalar> Trajectory<T> {
    /// In f64.
    pub fn to_f64(&self) -> Trajectory<f64> {
        Trajectory {
            losses: cast(&self.losses),
            params: cast(&self.params),
            grads: self.grads.iter().map(|g| cast(g)).collect(),
        }
    }
}

/// Whether the step is the gradient divided by its size: Adam and AdamW.
pub fn divides_by_size(spec: &OptimizerSpec) -> bool {
    !matches!(spec, OptimizerSpec::Sgd { .. })
}

/// Computes a subject in one scalar, with memory that is reused.
pub struct Runner<'a, M: Model, T: Scalar> {
    model: &'a M,
    loss: Loss,
    pass: Pass,
    input: M::Input<T>,
    target: Target<T>,
    tape: M::Tape<T>,
    d_output: Vec<T>,
}

impl<'a, M: Model, T: Scalar> Runner<'a, M, T> {
    /// With fast or reference kernels.
    pub fn new(subject: &Subject<'a, M>, kernels: Kernels) -> Self {
        Runner {
            model: subject.model,
            loss: subject.loss,
            pass: Pass {
                kernels,
                ..subject.pass
            },
            input: subject.model.cast_input(&subject.input),
            target: subject.target.cast(),
            tape: Default::default(),
            d_output: Vec::new(),
        }
    }

    /// The batch, to perturb.
    pub fn input_mut(&mut self) -> &mut M::Input<T> {
        &mut self.input
    }

    /// The loss alone, penalty included.
    pub fn loss(&mut self, params: &[T]) -> T {
        self.model
            .compute_forward(params, &self.input, &self.pass, &mut self.tape);
        let y = self.model.output(&self.tape);
        self.loss.compute(y, &self.target, None) + self.model.penalty(params, None)
    }

    /// On which smooth piece the last forward was: the model's pattern and the loss's.
    pub fn pattern(&self, params: &[T], pattern: &mut Vec<u32>) {
        self.model.pattern(params, &self.input, &self.tape, pattern);
        let y = self.model.output(&self.tape);
        let differences = || y.iter().zip(&self.target.values).map(|(&y, &t)| y - t);
        match self.loss {
            Loss::L1 => pattern.extend(differences().map(|d| u32::from(d > T::ZERO))),
            Loss::Huber => pattern
                .extend(differences().map(|d| u32::from(d > T::ONE) + 2 * u32::from(d < -T::ONE))),
            _ => {}
        }
    }

    /// Forward and backward. The gradients are overwritten, whatever was there.
    pub fn gradients(
        &mut self,
        params: &[T],
        d_params: &mut [T],
        d_input: Option<&mut [T]>,
        accumulate: bool,
    ) -> T {
        self.model
            .compute_forward(params, &self.input, &self.pass, &mut self.tape);
        let y = self.model.output(&self.tape);
        self.d_output.clear();
        self.d_output.resize(y.len(), T::ZERO);
        let loss = self.loss.compute(y, &self.target, Some(&mut self.d_output));
        T::keep_gradient(&mut self.d_output);
        let grads = Grads {
            params: Some(&mut *d_params),
            input: d_input,
            accumulate,
        };
        self.model.compute_backward(
            params,
            &self.input,
            &self.pass,
            &mut self.tape,
            &self.d_output,
            grads,
        );
        loss + self.model.penalty(params, Some(d_params))
    }

    /// Output, loss and both gradients. The memory that the gradients are left in holds NaN
    /// before: what backward forgets to write is seen.
    pub fn evaluate(&mut self, params: &[T]) -> Evaluation<T> {
        let nan = T::from_f64(f64::NAN);
        let mut d_params = vec![nan; params.len()];
        let mut d_input = vec![nan; self.input.values().len()];
        let loss = self.gradients(params, &mut d_params, Some(&mut d_input), false);
        Evaluation {
            output: self.model.output(&self.tape).to_vec(),
            loss,
            d_params,
            d_input,
        }
    }

    /// Optimizer steps from `start`. `first` is the evaluation there, when it is already known.
    pub fn trajectory(
        &mut self,
        start: &[T],
        optimizer: &BundleOptimizer,
        steps: usize,
        first: Option<&Evaluation<T>>,
    ) -> Trajectory<T> {
        let layout = self.model.layout();
        let mut step = 0;
        follow(layout, start, optimizer, steps, |params, d_params| {
            step += 1;
            match first {
                Some(first) if step == 1 => {
                    d_params.copy_from_slice(&first.d_params);
                    first.loss
                }
                _ => self.gradients(params, d_params, None, false),
            }
        })
    }
}

/// Optimizer steps from `start` on gradients from anywhere.
pub fn follow<T: Scalar>(
    layout: &Layout,
    start: &[T],
    optimizer: &BundleOptimizer,
    steps: usize,
    mut gradients: impl FnMut(&[T], &mut [T]) -> T,
) -> Trajectory<T> {
    let mut params = start.to_vec();
    let mut d_params = vec![T::ZERO; params.len()];
    let mut state = Optimizer::new(optimizer.spec, params.len());
    let mut trajectory = Trajectory::default();
    for _ in 0..steps {
        let loss = gradients(&params, &mut d_params);
        trajectory.losses.push(loss);
        if divides_by_size(&optimizer.spec) {
            trajectory.grads.push(d_params.clone());
        }
        // As [`Clip`](crate::train::Clip) says: elements first, then the norm.
        if let Some(limit) = optimizer.clip_element {
            optim::clip_elements(&mut d_params, limit);
        }
        if let Some(limit) = optimizer.clip {
            optim::clip_global_norm(&mut d_params, layout, limit);
        }
        state.step(&mut params, &d_params, layout, optimizer.spec.lr());
    }
    trajectory.params = params;
    trajectory
}
