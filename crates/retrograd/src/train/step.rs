//! One training step: forward, loss, backward, penalty, clipping, optimizer.

use std::sync::atomic::{AtomicBool, Ordering};

use super::Example;
use crate::loss_image::ImageLoss;
use crate::optim::{self, Optimizer, OptimizerSpec};
use crate::{Grads, Layout, Loss, Model, Pass, parallel};

/// What is done to a gradient before the optimizer sees it: elements first, then the norm.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Clip {
    /// Clamping of every element to ± this.
    pub element: Option<f64>,
    /// The largest norm over all parameters.
    pub norm: Option<f64>,
}

/// The loss or an element of a gradient that is not finite.
#[derive(Clone, Debug, PartialEq)]
pub struct BadNumber {
    /// `the loss`, or `the gradient of NAME` with the element.
    pub tensor: String,
    /// NaN or an infinity.
    pub value: f64,
}

/// The parameters of a model with all that a step needs. After the first step of the largest batch
/// nothing is allocated.
pub struct Stepper<M: Model> {
    /// The parameters.
    pub params: Vec<f32>,
    /// The optimizer and its state.
    pub optimizer: Optimizer<f32>,
    /// What is added to the loss where outputs are images.
    pub image_loss: Option<ImageLoss>,
    grads: Vec<f32>,
    d_output: Vec<f32>,
    tape: M::Tape<f32>,
    bad: Option<BadNumber>,
}

impl<M: Model> Stepper<M> {
    /// With fresh optimizer state.
    pub fn new(model: &M, params: Vec<f32>, optimizer: OptimizerSpec) -> Self {
        let len = model.layout().len();
        assert_eq!(params.len(), len, "parameters of another model");
        Stepper {
            params,
            optimizer: Optimizer::new(optimizer, len),
            image_loss: None,
            grads: vec![0.0; len],
            d_output: Vec::new(),
            tape: Default::default(),
            bad: None,
        }
    }

    /// Forward, loss and backward of one batch; `share` scales the gradient, `add` adds it to the
    /// one that is there. Returns the loss.
    pub fn gradient(
        &mut self,
        model: &M,
        loss: Loss,
        example: &Example<M>,
        pass: &Pass,
        share: f32,
        add: bool,
    ) -> f64 {
        if !add {
            self.bad = None;
        }
        model.forward(&self.params, &example.input, pass, &mut self.tape);
        let output = model.output(&self.tape);
        self.d_output.resize(output.len(), 0.0);
        let value = loss.evaluate(output, &example.target, Some(&mut self.d_output));
        let mut value = f64::from(value);
        if let Some(terms) = &mut self.image_loss {
            value += terms.evaluate(output, &example.target.values, Some(&mut self.d_output));
        }
        if !value.is_finite() {
            self.bad.get_or_insert_with(|| BadNumber {
                tensor: "the loss".into(),
                value,
            });
            return value;
        }
        if share != 1.0 {
            for d in &mut self.d_output {
                *d *= share;
            }
        }
        model.backward(
            &self.params,
            &example.input,
            pass,
            &mut self.tape,
            &self.d_output,
            Grads {
                params: Some(&mut self.grads),
                input: None,
                accumulate: add,
            },
        );
        value
    }

    /// The same with the loss and the gradient computed elsewhere, from the parameters.
    pub fn gradient_from(
        &mut self,
        share: f32,
        add: bool,
        compute: impl FnOnce(&[f32], &mut [f32]) -> crate::Result<f64>,
    ) -> crate::Result<f64> {
        if !add {
            self.bad = None;
        }
        let value = if add || share != 1.0 {
            self.d_output.resize(self.params.len(), 0.0);
            let value = compute(&self.params, &mut self.d_output)?;
            for (g, &one) in self.grads.iter_mut().zip(&self.d_output) {
                *g = share * one + if add { *g } else { 0.0 };
            }
            value
        } else {
            compute(&self.params, &mut self.grads)?
        };
        if !value.is_finite() {
            self.bad.get_or_insert_with(|| BadNumber {
                tensor: "the loss".into(),
                value,
            });
        }
        Ok(value)
    }

    /// Adds the gradient of the model's penalty, clips and steps. Returns the penalty, or the
    /// number that is not finite: then nothing has changed.
    pub fn update(&mut self, model: &M, clip: &Clip, lr: f64) -> Result<f64, BadNumber> {
        if let Some(bad) = self.bad.take() {
            return Err(bad);
        }
        let penalty = f64::from(model.penalty(&self.params, Some(&mut self.grads)));
        let layout = model.layout();
        if !penalty.is_finite() {
            return Err(BadNumber {
                tensor: "the penalty".into(),
                value: penalty,
            });
        }
        if let Some(bad) = find_bad(&self.grads, layout, "the gradient of") {
            return Err(bad);
        }
        if let Some(limit) = clip.element {
            optim::clip_elements(&mut self.grads, limit);
        }
        if let Some(norm) = clip.norm {
            optim::clip_global_norm(&mut self.grads, layout, norm);
        }
        self.optimizer
            .step(&mut self.params, &self.grads, layout, lr);
        Ok(penalty)
    }

    /// A whole step on one batch, for benchmarks and small programs. Returns the loss.
    pub fn step(
        &mut self,
        model: &M,
        loss: Loss,
        example: &Example<M>,
        pass: &Pass,
    ) -> Result<f64, BadNumber> {
        let value = self.gradient(model, loss, example, pass, 1.0, false);
        let lr = self.optimizer.spec().lr();
        self.update(model, &Clip::default(), lr)?;
        Ok(value)
    }

    /// The tape of the last forward, for [`Model::absorb`] and pictures.
    pub fn tape(&self) -> &M::Tape<f32> {
        &self.tape
    }

    /// The gradient of the last step, clipped.
    pub fn grads(&self) -> &[f32] {
        &self.grads
    }
}

/// The first element that is not finite, named.
pub(super) fn find_bad(values: &[f32], layout: &Layout, what: &str) -> Option<BadNumber> {
    if all_finite(values, layout) {
        return None;
    }
    let index = values.iter().position(|v| !v.is_finite())?;
    let tensor = match layout.locate(index) {
        Some((tensor, element)) => format!("{what} {}, element {element},", tensor.name),
        None => format!("{what} element {index}"),
    };
    Some(BadNumber {
        tensor,
        value: f64::from(values[index]),
    })
}

/// NaN and the infinities are those whose exponent bits are all set. Written without a branch per
/// element, so that the compiler makes vectors of it.
fn all_finite(values: &[f32], layout: &Layout) -> bool {
    const EXPONENT: u32 = 0x7f80_0000;
    /// 1 to 2 µs.
    const CHUNK: usize = 8192;
    let finite = AtomicBool::new(true);
    let pieces = values.len().div_ceil(CHUNK);
    let tensors = parallel::Tensors::all(layout.tensors());
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
