//! What follows a gradient: the search for what is not finite, clipping, the optimizer.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};

use super::{BadNumber, Clip, Hooks, StepError};
use crate::optim::{self, Optimizer};
use crate::{Error, Layout, Model, parallel};

/// What happens to a range whose gradient is complete.
pub(in crate::train) struct Update<'a, M: Model> {
    model: &'a M,
    pub(in crate::train) optimizer: &'a mut Optimizer<f32>,
    clip: &'a Clip,
    lr: f64,
    hooks: Option<&'a mut dyn Hooks<M>>,
    /// Whether the optimizer has counted this step: from then on parameters are changed.
    begun: bool,
}

impl<'a, M: Model> Update<'a, M> {
    pub(in crate::train) fn new(
        model: &'a M,
        optimizer: &'a mut Optimizer<f32>,
        clip: &'a Clip,
        lr: f64,
    ) -> Self {
        Update {
            model,
            optimizer,
            clip,
            lr,
            hooks: None,
            begun: false,
        }
    }

    /// The same with what a caller does beside it.
    pub(super) fn beside(self, hooks: &'a mut dyn Hooks<M>) -> Self {
        Update {
            hooks: Some(hooks),
            ..self
        }
    }

    /// Hooks, the search for what isn't finite, clipping, the optimizer.
    pub(super) fn range(
        &mut self,
        range: Range<usize>,
        params: &mut [f32],
        grads: &mut [f32],
    ) -> Result<(), BadNumber> {
        let layout = self.model.layout();
        if let Some(hooks) = &mut self.hooks {
            hooks.gradient(self.model, range.clone(), grads);
        }
        if let Some(mut bad) = find_bad(grads, layout, range.clone(), "the gradient of") {
            bad.half_updated = self.begun;
            return Err(bad);
        }
        self.apply(range, params, grads);
        Ok(())
    }

    /// Clipping and the optimizer.
    pub(in crate::train) fn apply(
        &mut self,
        range: Range<usize>,
        params: &mut [f32],
        grads: &mut [f32],
    ) {
        let layout = self.model.layout();
        if let Some(limit) = self.clip.element {
            optim::clip_elements(&mut grads[range.clone()], limit);
        }
        if let Some(norm) = self.clip.norm {
            optim::clip_global_norm(grads, layout, norm);
        }
        if let Some(hooks) = &mut self.hooks {
            hooks.before_update(self.model, range.clone(), params);
        }
        let trained = layout.within(range.clone()).any(|(t, _)| !t.frozen);
        if trained && !self.begun {
            self.optimizer.begin();
            self.begun = true;
        }
        self.optimizer
            .step_range(params, grads, layout, range, self.lr);
    }

    /// Counts a step in which everything was frozen.
    pub(in crate::train) fn end(self) {
        if !self.begun {
            self.optimizer.begin();
        }
    }

    /// The same with the penalty's gradient before it.
    pub(in crate::train) fn fused_range(
        &mut self,
        range: Range<usize>,
        params: &mut [f32],
        grads: &mut [f32],
    ) -> Result<(), StepError> {
        if !self.model.penalty_range(range.clone(), params, grads) {
            return Err(StepError::Other(Error::invalid(
                "the model's penalty in a fused step",
                format!("no gradient of parameters {range:?} alone"),
                "a penalty that is a sum over the tensors that are updated together",
            )));
        }
        Ok(self.range(range, params, grads)?)
    }
}

/// The first element that is not finite, named.
pub(in crate::train) fn find_bad(
    values: &[f32],
    layout: &Layout,
    range: Range<usize>,
    what: &str,
) -> Option<BadNumber> {
    if all_finite(values, layout, range.clone()) {
        return None;
    }
    let index = range.clone().find(|&i| !values[i].is_finite())?;
    let tensor = match layout.locate(index) {
        Some((tensor, element)) => format!("{what} {}, element {element},", tensor.name),
        None => format!("{what} element {index}"),
    };
    Some(BadNumber::new(tensor, f64::from(values[index])))
}

/// NaN and the infinities are those whose exponent bits are all set. Written without a branch per
/// element, so that the compiler makes vectors of it.
fn all_finite(values: &[f32], layout: &Layout, range: Range<usize>) -> bool {
    const EXPONENT: u32 = 0x7f80_0000;
    /// 1 to 2 µs.
    const CHUNK: usize = 8192;
    let finite = AtomicBool::new(true);
    let pieces = range.len().div_ceil(CHUNK);
    let tensors = parallel::Tensors::all(layout.tensors()).within(range);
    parallel::for_each_share::<f32, 0>([], tensors, pieces, pieces > 2, |share, []| {
        let bad = values[share].iter().fold(0, |bad, v| {
            bad | u32::from(v.to_bits() & EXPONENT == EXPONENT)
        });
        if bad != 0 {
            finite.store(false, Ordering::Relaxed);
        }
    });
    finite.into_inner()
}
