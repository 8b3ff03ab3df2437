//! Models with a fault, for the tests that must see it.

use crate::{Grads, Layout, Model, Pass, Scalar};

/// A model and what is done wrong with it.
pub(super) trait Wrong: Send + Sync {
    /// What is right.
    type Right: Model;

    /// The right model.
    fn right(&self) -> &Self::Right;
    /// The same.
    fn right_mut(&mut self) -> &mut Self::Right;

    /// Whether forward is left out.
    fn skips_forward<T: Scalar>(&self, _tape: &<Self::Right as Model>::Tape<T>) -> bool {
        false
    }

    /// The wrong backward pass.
    fn compute_backward<T: Scalar>(
        &self,
        params: &[T],
        input: &<Self::Right as Model>::Input<T>,
        pass: &Pass,
        tape: &mut <Self::Right as Model>::Tape<T>,
        d_output: &[T],
        grads: Grads<'_, T>,
    );
}

/// The wrong model as a model: all that is not wrong is the right one's.
pub(super) struct Mutant<W>(pub W);

impl<W: Wrong> Model for Mutant<W> {
    type Input<T: Scalar> = <W::Right as Model>::Input<T>;
    type Tape<T: Scalar> = <W::Right as Model>::Tape<T>;

    fn layout(&self) -> &Layout {
        self.0.right().layout()
    }
    fn layout_mut(&mut self) -> &mut Layout {
        self.0.right_mut().layout_mut()
    }
    fn init(&self, seed: u64) -> Vec<f32> {
        self.0.right().init(seed)
    }
    fn compute_forward<T: Scalar>(
        &self,
        params: &[T],
        input: &Self::Input<T>,
        pass: &Pass,
        tape: &mut Self::Tape<T>,
    ) {
        if !self.0.skips_forward(tape) {
            self.0.right().compute_forward(params, input, pass, tape);
        }
    }
    fn output<'t, T: Scalar>(&self, tape: &'t Self::Tape<T>) -> &'t [T] {
        self.0.right().output(tape)
    }
    fn compute_backward<T: Scalar>(
        &self,
        params: &[T],
        input: &Self::Input<T>,
        pass: &Pass,
        tape: &mut Self::Tape<T>,
        d_output: &[T],
        grads: Grads<'_, T>,
    ) {
        self.0
            .compute_backward(params, input, pass, tape, d_output, grads);
    }
    fn cast_input<T: Scalar, U: Scalar>(&self, input: &Self::Input<T>) -> Self::Input<U> {
        self.0.right().cast_input(input)
    }
    fn pattern<T: Scalar>(
        &self,
        params: &[T],
        input: &Self::Input<T>,
        tape: &Self::Tape<T>,
        pattern: &mut Vec<u32>,
    ) {
        self.0.right().pattern(params, input, tape, pattern);
    }
}

/// The gradients to hand on, and to look at afterwards.
pub(super) fn reborrow<'a, T>(grads: &'a mut Grads<'_, T>) -> Grads<'a, T> {
    Grads {
        params: grads.params.as_deref_mut(),
        input: grads.input.as_deref_mut(),
        accumulate: grads.accumulate,
    }
}
