//! Faults around any model: the right functions, followed by something wrong.

use super::transform::Transform;
use crate::simd::{self, InstructionSet};
use crate::{Batch, Buffer, Grads, Layout, Model, Pass, Scalar, group, parallel};

/// What is wrong.
#[derive(Clone, Debug, PartialEq)]
pub enum ModelFault {
    /// The gradient of the tensor of that number.
    Tensor(usize, Transform),
    /// The gradient of the input.
    Input(Transform),
    /// The output's gradient, before backward.
    DOutput(Transform),
    /// Gradients are added to what is there, asked to or not.
    Accumulates,
    /// Gradients overwrite what is there, asked to add or not.
    Overwrites,
    /// The tape of the first forward is kept.
    StaleTape,
    /// The input's gradient is left as it was.
    InputForgotten,
    /// Two tensors have each other's gradient, as far as they fit.
    Exchanged(usize, usize),
    /// With more than one thread, a sum comes out in its last bit.
    ThreadDependent,
    /// A sum over shards in as many parts as there are processes.
    GroupDependent,
    /// A sum in as many parts as a register has lanes.
    WidthDependent,
    /// Only right when the input's gradient is asked for too.
    NeedsInput,
}

/// A model with a fault.
pub struct Faulty<'a, M> {
    inner: &'a M,
    layout: Layout,
    fault: ModelFault,
    only_f32: bool,
    /// Samples in the batch, for faults that mix them up.
    samples: usize,
}

impl<'a, M: Model> Faulty<'a, M> {
    /// A model that is wrong in every scalar, or in f32 only.
    pub fn new(inner: &'a M, fault: ModelFault, only_f32: bool, samples: usize) -> Self {
        Faulty {
            layout: inner.layout().clone(),
            inner,
            fault,
            only_f32,
            samples,
        }
    }

    fn is_wrong<T: Scalar>(&self) -> bool {
        !self.only_f32 || T::NAME == f32::NAME
    }
}

/// A tape that knows whether it was used.
pub struct FaultyTape<A> {
    inner: A,
    used: bool,
}

impl<A: Default> Default for FaultyTape<A> {
    fn default() -> Self {
        FaultyTape {
            inner: A::default(),
            used: false,
        }
    }
}

impl<M: Model> Model for Faulty<'_, M> {
    type Input<T: Scalar> = M::Input<T>;
    type Tape<T: Scalar> = FaultyTape<M::Tape<T>>;

    fn layout(&self) -> &Layout {
        &self.layout
    }
    fn layout_mut(&mut self) -> &mut Layout {
        &mut self.layout
    }
    fn init(&self, seed: u64) -> Vec<f32> {
        self.inner.init(seed)
    }
    fn compute_forward<T: Scalar>(
        &self,
        params: &[T],
        input: &M::Input<T>,
        pass: &Pass,
        tape: &mut Self::Tape<T>,
    ) {
        if self.fault == ModelFault::StaleTape && tape.used && self.is_wrong::<T>() {
            return;
        }
        tape.used = true;
        self.inner
            .compute_forward(params, input, pass, &mut tape.inner);
    }
    fn output<'t, T: Scalar>(&self, tape: &'t Self::Tape<T>) -> &'t [T] {
        self.inner.output(&tape.inner)
    }
    fn compute_backward<T: Scalar>(
        &self,
        params: &[T],
        input: &M::Input<T>,
        pass: &Pass,
        tape: &mut Self::Tape<T>,
        d_output: &[T],
        grads: Grads<'_, T>,
    ) {
        if !self.is_wrong::<T>() {
            return self.inner.compute_backward(
                params,
                input,
                pass,
                &mut tape.inner,
                d_output,
                grads,
            );
        }
        let mut d_output = d_output.to_vec();
        if let ModelFault::DOutput(transform) = self.fault {
            let width = d_output.len() / self.samples.max(1);
            transform.apply(&mut d_output, &[width], self.samples);
        }
        let wants_input = grads.input.is_some();
        let mut d_params = vec![T::ZERO; params.len()];
        let mut d_input = vec![T::ZERO; input.values().len()];
        self.inner.compute_backward(
            params,
            input,
            pass,
            &mut tape.inner,
            &d_output,
            Grads::both(&mut d_params, &mut d_input),
        );
        match self.fault {
            ModelFault::Tensor(number, transform) => {
                let tensor = &self.layout.tensors()[number];
                let mut torch = tensor.to_torch(&d_params[tensor.range()]);
                transform.apply(&mut torch, &tensor.shape, self.samples);
                tensor.from_torch(&torch, &mut d_params[tensor.range()]);
            }
            ModelFault::Input(transform) => {
                let width = d_input.len() / self.samples.max(1);
                transform.apply(&mut d_input, &[width], self.samples);
            }
            ModelFault::Exchanged(a, b) => {
                let [a, b] = [a, b].map(|i| self.layout.tensors()[i].range());
                for (i, j) in a.zip(b) {
                    d_params.swap(i, j);
                }
            }
            ModelFault::ThreadDependent if parallel::threads() > 1 => {
                for d in &mut d_params {
                    *d += *d * T::from_f64(f64::from(f32::EPSILON));
                }
            }
            ModelFault::GroupDependent if group::size_played() > 1 => {
                for d in &mut d_params {
                    *d += *d * T::from_f64(f64::from(f32::EPSILON));
                }
            }
            ModelFault::WidthDependent => {
                let error = error_by_width();
                for d in &mut d_params {
                    *d += *d * error;
                }
            }
            ModelFault::NeedsInput if !wants_input => {
                let half = d_params.len() / 2;
                d_params[..half.max(1)].fill(T::ZERO);
            }
            _ => {}
        }
        if let Some(to) = grads.params {
            let adds = match self.fault {
                ModelFault::Accumulates => true,
                ModelFault::Overwrites => false,
                _ => grads.accumulate,
            };
            for (to, from) in to.iter_mut().zip(d_params) {
                *to = if adds { *to + from } else { from };
            }
        }
        if let Some(to) = grads.input
            && self.fault != ModelFault::InputForgotten
        {
            to.copy_from_slice(&d_input);
        }
    }
    fn cast_input<T: Scalar, U: Scalar>(&self, input: &M::Input<T>) -> M::Input<U> {
        self.inner.cast_input(input)
    }
    fn penalty<T: Scalar>(&self, params: &[T], d_params: Option<&mut [T]>) -> T {
        self.inner.penalty(params, d_params)
    }
    fn pattern<T: Scalar>(
        &self,
        params: &[T],
        input: &M::Input<T>,
        tape: &Self::Tape<T>,
        pattern: &mut Vec<u32>,
    ) {
        self.inner.pattern(params, input, &tape.inner, pattern);
    }
    fn buffers(&self) -> Vec<Buffer> {
        self.inner.buffers()
    }
}

/// A rounding error of a sum that is taken in as many partial sums as a register has lanes.
fn error_by_width<T: Scalar>() -> T {
    let lanes = match simd::instruction_set() {
        InstructionSet::Scalar => 1,
        InstructionSet::Sse2 | InstructionSet::Neon | InstructionSet::Simd128 => 4,
        InstructionSet::Avx2 => 8,
        InstructionSet::Avx512 => 16,
    };
    // Harmonic terms, whose sum comes out another for every number of lanes.
    let term = |i: usize| 1.0 / (i + 3) as f32;
    let mut partial = vec![0.0_f32; lanes];
    for i in 0..1000 {
        partial[i % lanes] += term(i);
    }
    let exact: f64 = (0..1000).map(|i| f64::from(term(i))).sum();
    let error = f64::from(partial.into_iter().sum::<f32>()) - exact;
    T::from_f64(error)
}

/// The faults that apply to any model with these tensors, in words.
pub fn model_faults(layout: &Layout, has_input: bool) -> Vec<(String, ModelFault)> {
    let mut faults = Vec::new();
    let each = [
        Transform::Zero,
        Transform::Negate,
        Transform::Scale(1.0 + 1e-4),
        Transform::TimesSamples,
        Transform::OverSamples,
        Transform::Shift,
        Transform::Reverse,
        Transform::DropFirst,
        Transform::DropHalf,
        Transform::SwapFirst,
        Transform::SwapLast,
        Transform::Rotate,
        Transform::Average,
    ];
    for (i, tensor) in layout.tensors().iter().enumerate() {
        for transform in each {
            let words = format!("d {} {}", tensor.name, transform.words());
            faults.push((words, ModelFault::Tensor(i, transform)));
        }
    }
    for i in 1..layout.tensors().len() {
        let [a, b] = [i - 1, i].map(|i| &layout.tensors()[i].name);
        let words = format!("d {a} and d {b} exchanged");
        faults.push((words, ModelFault::Exchanged(i - 1, i)));
    }
    if has_input {
        let input = [
            Transform::Zero,
            Transform::Negate,
            Transform::Scale(1.0 + 1e-4),
            Transform::TimesSamples,
            Transform::Shift,
            Transform::Reverse,
            Transform::RollSamples,
            Transform::LastSampleOnly,
            Transform::DropHalf,
        ];
        for transform in input {
            let words = format!("d input {}", transform.words());
            faults.push((words, ModelFault::Input(transform)));
        }
        faults.push(("d input never written".into(), ModelFault::InputForgotten));
    }
    for transform in [
        Transform::RollSamples,
        Transform::LastSampleOnly,
        Transform::TimesSamples,
        Transform::Shift,
    ] {
        let words = format!("d output {}", transform.words());
        faults.push((words, ModelFault::DOutput(transform)));
    }
    faults.extend([
        (
            "gradients added, not asked to".into(),
            ModelFault::Accumulates,
        ),
        (
            "gradients overwritten, asked to add".into(),
            ModelFault::Overwrites,
        ),
        ("stale tape".into(), ModelFault::StaleTape),
        (
            "right only with the input's gradient".into(),
            ModelFault::NeedsInput,
        ),
        (
            "sums that depend on threads".into(),
            ModelFault::ThreadDependent,
        ),
        (
            "sums that depend on the number of processes".into(),
            ModelFault::GroupDependent,
        ),
        (
            "sums that depend on the vector width".into(),
            ModelFault::WidthDependent,
        ),
    ]);
    faults
}
