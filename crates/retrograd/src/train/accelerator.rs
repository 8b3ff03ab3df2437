//! Steps that are computed elsewhere than on the CPU.

use serde::{Deserialize, Serialize};

use super::{Clip, Example};
use crate::loss_image::ImageLoss;
use crate::optim::Optimizer;
use crate::verify::Device;
use crate::{Error, Loss, Model, Pass, Reported, Result};

/// Where a run computes its steps.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Placement {
    /// On the CPU.
    #[default]
    Cpu,
    /// On a GPU.
    Gpu {
        /// `auto`, its number in `retrograd devices`, or a part of its name.
        adapter: String,
        /// All on the device, or the optimizer on the CPU.
        mode: Mode,
        /// Of activations and products.
        precision: Precision,
        /// Hybrid: gradients come back as 16-bit floats, with error feedback.
        compress: bool,
    },
}

impl Placement {
    /// In one line, as `train.device` of an experiment keeps it: `cpu`, or `native gpu:ADAPTER` with what
    /// was asked for beside it.
    pub fn to_text(&self) -> String {
        let Placement::Gpu {
            adapter,
            mode,
            precision,
            compress,
        } = self
        else {
            return "cpu".into();
        };
        let mode = match mode {
            Mode::Native => "native",
            Mode::Hybrid => "hybrid",
        };
        let precision = match precision {
            Precision::F32 => "",
            Precision::Mixed => " mixed",
        };
        let compress = if *compress { " compressed" } else { "" };
        format!("{mode}{precision}{compress} gpu:{adapter}")
    }

    /// The same, read back.
    pub fn parse(text: &str) -> Result<Self> {
        if text == "cpu" {
            return Ok(Placement::Cpu);
        }
        let wrong = || {
            let needed = "cpu, or native, hybrid, mixed or compressed before gpu:ADAPTER";
            Error::invalid("train.device", text, needed)
        };
        let (words, adapter) = text.split_once("gpu:").ok_or_else(wrong)?;
        let mut placement = (Mode::Native, Precision::F32, false);
        for word in words.split_whitespace() {
            match word {
                "native" => placement.0 = Mode::Native,
                "hybrid" => placement.0 = Mode::Hybrid,
                "mixed" => placement.1 = Precision::Mixed,
                "compressed" => placement.2 = true,
                _ => return Err(wrong()),
            }
        }
        let (mode, precision, compress) = placement;
        Ok(Placement::Gpu {
            adapter: adapter.into(),
            mode,
            precision,
            compress,
        })
    }
}

/// What a GPU does of a step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// Everything: nothing waits, losses come later.
    #[default]
    Native,
    /// Loss and gradients; the optimizer is the CPU's.
    Hybrid,
}

/// The numbers that a GPU keeps activations in and multiplies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Precision {
    /// 32 bits everywhere.
    #[default]
    F32,
    /// 16 bits for activations, their gradients and a copy of the weights; 32 for sums, the
    /// weights' gradients, the weights themselves and the optimizer.
    Mixed,
}

/// The loss of a step that was computed elsewhere and has arrived.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Arrived {
    /// Steps before it on the accelerator.
    pub step: u64,
    /// Its loss.
    pub loss: f64,
    /// Whether it changed the parameters; it doesn't where something is not finite. (A step that
    /// mixed precision left out because its loss scale was too large counts: it is no failure.)
    pub updated: bool,
}

/// What an accelerator knows beside parameters and optimizer; a checkpoint holds it, so that a run
/// goes on to the same bits.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Carried {
    /// Mixed precision's scale on the loss.
    pub loss_scale: Option<CarriedScale>,
    /// What 16 bits took from gradients that were sent compressed, in the stored order; the next one
    /// gets it. Empty where none was.
    pub residual: Vec<f32>,
}

/// A loss scale in the middle of a run.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct CarriedScale {
    /// A power of two.
    pub value: f32,
    /// Good steps made with it.
    pub good_steps: u32,
}

/// Which of the batches whose gradients are accumulated in a step one is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MicroBatch {
    /// Batches of the step before it.
    pub index: u64,
    /// How many there are.
    pub of: u64,
}

impl Default for MicroBatch {
    /// The only one.
    fn default() -> Self {
        MicroBatch { index: 0, of: 1 }
    }
}

impl MicroBatch {
    /// Whether the step is made with it.
    pub fn is_last(&self) -> bool {
        self.index + 1 == self.of
    }

    /// What its gradient and its loss count for: means are averaged, the gradients of sums added.
    pub fn shares(&self, loss: Loss) -> [f32; 2] {
        let mean = 1.0 / self.of as f32;
        match loss {
            Loss::SumSquares => [1.0, mean],
            _ => [mean, mean],
        }
    }
}

/// What is done with the gradient of a whole step.
#[derive(Clone, Copy, Debug)]
pub struct Updating<'a> {
    /// Clipping.
    pub clip: &'a Clip,
    /// The rate.
    pub lr: f64,
    /// Leave steps out whose loss or gradient is not finite, and go on.
    pub skip_not_finite: bool,
    /// Update every tensor once its gradient is complete.
    pub fused: bool,
}

/// Computes steps of a model on another device.
pub trait Accelerator<M: Model> {
    /// The device's name, for the report.
    fn name(&self) -> String;
    /// Whether whole steps are taken ([`Accelerator::step`]), or gradients brought back.
    fn mode(&self) -> Mode;

    /// Loss and gradient of one batch, brought back. In hybrid mode of these parameters; in native mode
    /// of the device's own, for an [`Accelerator::update`].
    fn gradient(
        &mut self,
        params: &[f32],
        loss: Loss,
        example: &Example<M>,
        pass: &Pass,
        grads: &mut [f32],
    ) -> Result<f64>;

    /// The same, told piece by piece as it arrives: of every range once, after the loss is known, and not
    /// at all where that is not finite. Parameters that are changed when a range is told are those of the
    /// next gradient. `known` says that the parameters are as the last call left them.
    fn gradient_in_pieces(
        &mut self,
        params: Reported<'_, f32>,
        known: bool,
        loss: Loss,
        example: &Example<M>,
        pass: &Pass,
        grads: &mut [f32],
    ) -> Result<f64>;

    /// Begins a gradient at these parameters, and returns while it is computed.
    fn begin_gradient(
        &mut self,
        params: &[f32],
        loss: Loss,
        example: &Example<M>,
        pass: &Pass,
    ) -> Result<()>;

    /// The loss and the gradient that were begun.
    fn finish_gradient(&mut self, grads: &mut [f32]) -> Result<f64>;

    /// A whole step, without waiting, or one of the batches that are accumulated in it. Returns the
    /// losses that have arrived; where one of them did not update and such steps are not to be left out,
    /// this step is not taken.
    fn step(
        &mut self,
        loss: Loss,
        example: &Example<M>,
        pass: &Pass,
        micro: MicroBatch,
        updating: &Updating<'_>,
    ) -> Result<Vec<Arrived>>;

    /// The update of a whole step with a gradient that was added over processes, and its loss; without
    /// waiting. Returns the losses that have arrived, as [`Accelerator::step`] does.
    fn update(&mut self, grads: &[f32], loss: f64, updating: &Updating<'_>)
    -> Result<Vec<Arrived>>;

    /// Waits, and brings parameters, optimizer state and buffers back. Returns the losses that
    /// arrived meanwhile.
    fn sync(
        &mut self,
        params: &mut Vec<f32>,
        optimizer: &mut Optimizer<f32>,
        model: &mut M,
    ) -> Result<Vec<Arrived>>;

    /// Begins anew from a state that was changed here, on the same device.
    fn restart(&mut self, model: &M, start: &Start<'_>) -> Result<()>;

    /// What checks a trained model with the kernels of this device.
    fn verifier(&self) -> Option<Box<dyn Device<M>>> {
        None
    }

    /// What a checkpoint holds beside what was synchronised.
    fn carried(&mut self) -> Result<Carried> {
        Ok(Carried::default())
    }
}

/// The state that a run begins or goes on with, for [`Model::accelerator`].
pub struct Start<'a> {
    /// The parameters.
    pub params: &'a [f32],
    /// The optimizer with its state.
    pub optimizer: &'a Optimizer<f32>,
    /// What a checkpoint held beside them.
    pub carried: &'a Carried,
    /// What is added to the loss where outputs are images.
    pub image_loss: Option<&'a ImageLoss>,
}

/// The error of a build that reaches no GPU.
pub(crate) fn no_gpu() -> Error {
    Error::invalid(
        "--device",
        "gpu",
        "cpu: this build has no GPU; it needs the feature gpu",
    )
}
