//! Steps whose gradient is computed elsewhere and arrives in pieces.
//!
//! A piece is stepped with when it arrives: everything after the backward pass is elementwise, so the bits
//! are those of the plain order (see [`super::step`]). The plain order also promises that a number that is
//! not finite changes nothing, wherever it turns up. Here tensors may have been updated by then: what they
//! were, with their optimizer state, is kept until the step is over, and put back.

use std::ops::Range;

use super::step::{BadNumber, Clip, StepError, Stepped, Stepper, Update};
use crate::clock::Instant;
use crate::optim::Optimizer;
use crate::{Model, Reported, Result};

/// Parameters and optimizer state from before a step, as far as it has changed them.
#[derive(Default)]
pub(super) struct Undo {
    params: Vec<f32>,
    state: Vec<Vec<f32>>,
    ranges: Vec<Range<usize>>,
    steps: u64,
}

impl Undo {
    fn begin(&mut self, params: usize, optimizer: &Optimizer<f32>) {
        self.ranges.clear();
        self.steps = optimizer.steps();
        self.params.resize(params, 0.0);
        self.state.resize_with(optimizer.state().len(), Vec::new);
        for state in &mut self.state {
            state.resize(params, 0.0);
        }
    }

    fn keep(&mut self, range: &Range<usize>, params: &[f32], optimizer: &Optimizer<f32>) {
        self.params[range.clone()].copy_from_slice(&params[range.clone()]);
        for (kept, state) in self.state.iter_mut().zip(optimizer.state()) {
            kept[range.clone()].copy_from_slice(&state[range.clone()]);
        }
        self.ranges.push(range.clone());
    }

    fn put_back(&self, params: &mut [f32], optimizer: &mut Optimizer<f32>) {
        for range in &self.ranges {
            params[range.clone()].copy_from_slice(&self.params[range.clone()]);
            optimizer.put_back(self.steps, range.clone(), &self.state);
        }
    }
}

impl<M: Model> Stepper<M> {
    /// Whether steps may be made piece by piece: nothing looks at the whole gradient first.
    pub(super) fn steps_in_pieces(&mut self, model: &M, clip: &Clip) -> bool {
        let penalty_too = model.penalty_range(0..0, &self.params, &mut self.grads);
        clip.norm.is_none() && penalty_too && self.stale.is_none()
    }

    /// A step with a gradient that `compute` gets from elsewhere: it tells of every range when it is
    /// there. It is also told whether the parameters are those that the last such step left. Returns the
    /// seconds in the optimizer, too. An error leaves parameters and optimizer as they were.
    pub(super) fn arriving_step(
        &mut self,
        model: &M,
        clip: &Clip,
        lr: f64,
        compute: impl FnOnce(Reported<'_, f32>, bool, &mut [f32]) -> Result<f64>,
    ) -> Result<(Stepped, f64), StepError> {
        self.bad = None;
        let penalty = f64::from(model.penalty(&self.params, None));
        if !penalty.is_finite() {
            return Err(BadNumber::new("the penalty", penalty).into());
        }
        let all = 0..self.params.len();
        let known = std::mem::take(&mut self.elsewhere);
        let undo = &mut self.undo;
        undo.begin(all.end, &self.optimizer);
        let mut seconds = 0.0;
        let mut update = Update::new(model, &mut self.optimizer, clip, lr);
        let mut outcome = Ok(());
        let mut ready = |range: Range<usize>, params: &mut [f32], d_params: &mut [f32]| {
            if outcome.is_ok() {
                let start = Instant::now();
                // What is one piece is checked before anything is changed.
                if range != all {
                    undo.keep(&range, params, update.optimizer);
                }
                outcome = update.fused_range(range, params, d_params);
                seconds += start.elapsed().as_secs_f64();
            }
        };
        let params = Reported::Updated(&mut self.params, &mut ready);
        let loss = compute(params, known, &mut self.grads);
        let outcome = match loss {
            Err(error) => Err(StepError::Other(error)),
            Ok(loss) if !loss.is_finite() => Err(BadNumber::new("the loss", loss).into()),
            Ok(loss) => outcome.map(|()| loss),
        };
        match outcome {
            Ok(loss) => {
                update.end();
                self.elsewhere = true;
                Ok((Stepped { loss, penalty }, seconds))
            }
            Err(mut error) => {
                undo.put_back(&mut self.params, &mut self.optimizer);
                if let StepError::NotFinite(bad) = &mut error {
                    bad.half_updated = false;
                }
                Err(error)
            }
        }
    }
}
