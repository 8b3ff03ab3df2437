//! Training an automaton step by step, without the command line's loop.

use super::{BitGrid, HardCircuit, LogicBatch, LogicCa, Program};
use crate::model::{Kernels, Model, Pass};
use crate::optim::OptimizerSpec;
use crate::train::{Clip, Lesson, Stepper};
use crate::{Loss, Result, Target};

/// The losses before an update.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StepLosses {
    /// Of the soft automaton: what is minimised.
    pub soft: f64,
    /// Of the hard automaton on the same start, with the same cells firing.
    pub hard: f64,
}

/// A model, its parameters and an optimizer. A step goes through all the automaton's steps and
/// back.
pub struct TrainingLoop {
    model: LogicCa,
    stepper: Stepper<LogicCa>,
    pass: Pass,
    /// Each element of the gradient is clamped to plus and minus this.
    pub clip_element: Option<f64>,
}

impl TrainingLoop {
    /// Starts from given parameters.
    pub fn new(
        model: LogicCa,
        params: Vec<f32>,
        optimizer: OptimizerSpec,
        kernels: Kernels,
    ) -> Result<Self> {
        optimizer.check()?;
        if params.len() != model.layout().len() {
            return Err(crate::Error::invalid(
                "parameters",
                params.len(),
                format!("{}, sixteen for every gate", model.layout().len()),
            ));
        }
        Ok(TrainingLoop {
            stepper: Stepper::new(&model, params, optimizer),
            pass: Pass {
                kernels,
                ..Pass::inference()
            },
            model,
            clip_element: None,
        })
    }

    /// The model.
    pub fn model(&self) -> &LogicCa {
        &self.model
    }

    /// The parameters as they are now.
    pub fn params(&self) -> &[f32] {
        &self.stepper.params
    }

    /// The gradient of the last step, clipped.
    pub fn gradient(&self) -> &[f32] {
        self.stepper.grads()
    }

    /// The hard automaton's loss, by the same steps on bits; values above one half count as 1.
    pub fn hard_loss(&mut self, input: &LogicBatch<f32>, target: &Target<f32>) -> Result<f64> {
        let spec = self.model.spec();
        let size = [input.batch, input.height, input.width];
        let program = Program::new(&HardCircuit::of(&self.model, &self.stepper.params));
        let mut grid = BitGrid::new(size, spec.channels, spec.boundary)?;
        grid.load(&input.state);
        let cells = input.height * input.width;
        for t in 0..spec.steps {
            let fire = input.fire.as_ref().map(|f| &f[t * cells..(t + 1) * cells]);
            grid.step(&program, fire);
        }
        let bits = (0..input.batch).flat_map(|sample| grid.bits(sample));
        let output: Vec<f32> = bits.map(|b| f32::from(u8::from(b))).collect();
        Loss::SumSquares.check(output.len(), target)?;
        Ok(f64::from(Loss::SumSquares.compute(&output, target, None)))
    }

    /// Forward, back through time, and one update. Returns the soft loss before the update. A number
    /// that is not finite is an error that changes nothing.
    pub fn train_step(&mut self, input: &LogicBatch<f32>, target: &Target<f32>) -> Result<f64> {
        let lesson = Lesson {
            loss: Loss::SumSquares,
            input,
            target,
            pass: &self.pass,
        };
        let soft = self.stepper.gradient_of(&self.model, &lesson, 1.0, false)?;
        let clip = Clip {
            element: self.clip_element,
            norm: None,
        };
        let optimizer = &self.stepper.optimizer;
        let (step, lr) = (optimizer.steps(), optimizer.spec().lr());
        self.stepper
            .update(&self.model, &clip, lr)
            .map_err(|bad| bad.into_error(step, "lower the rate or set clip_element"))?;
        Ok(soft)
    }

    /// [`TrainingLoop::train_step`] with both losses.
    pub fn train_step_with_hard(
        &mut self,
        input: &LogicBatch<f32>,
        target: &Target<f32>,
    ) -> Result<StepLosses> {
        let hard = self.hard_loss(input, target)?;
        let soft = self.train_step(input, target)?;
        Ok(StepLosses { soft, hard })
    }
}
