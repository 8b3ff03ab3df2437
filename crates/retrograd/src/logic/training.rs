//! Training an automaton step by step, without the command line's loop.

use super::{BitGrid, HardCircuit, LogicBatch, LogicCa, LogicTape, Program};
use crate::model::{Grads, Kernels, Model, Pass};
use crate::optim::{Optimizer, OptimizerSpec, clip_elements};
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
    params: Vec<f32>,
    optimizer: Optimizer<f32>,
    pass: Pass,
    /// Each element of the gradient is clamped to plus and minus this.
    pub clip_element: Option<f64>,
    tape: LogicTape<f32>,
    d_output: Vec<f32>,
    d_params: Vec<f32>,
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
            optimizer: Optimizer::new(optimizer, params.len()),
            d_params: vec![0.0; params.len()],
            pass: Pass {
                kernels,
                ..Pass::inference()
            },
            model,
            params,
            clip_element: None,
            tape: LogicTape::default(),
            d_output: Vec::new(),
        })
    }

    /// The model.
    pub fn model(&self) -> &LogicCa {
        &self.model
    }

    /// The parameters as they are now.
    pub fn params(&self) -> &[f32] {
        &self.params
    }

    /// The gradient of the last step, clipped.
    pub fn gradient(&self) -> &[f32] {
        &self.d_params
    }

    /// The hard automaton's loss, by the same steps on bits; values above one half count as 1.
    pub fn hard_loss(&mut self, input: &LogicBatch<f32>, target: &Target<f32>) -> Result<f64> {
        let spec = self.model.spec();
        let size = [input.batch, input.height, input.width];
        let program = Program::new(&HardCircuit::of(&self.model, &self.params));
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
        Ok(f64::from(Loss::SumSquares.evaluate(&output, target, None)))
    }

    /// Forward, back through time, and one update. Returns the soft loss before the update.
    pub fn train_step(&mut self, input: &LogicBatch<f32>, target: &Target<f32>) -> Result<f64> {
        self.model
            .forward(&self.params, input, &self.pass, &mut self.tape);
        let output = self.model.output(&self.tape);
        Loss::SumSquares.check(output.len(), target)?;
        self.d_output.resize(output.len(), 0.0);
        let soft = Loss::SumSquares.evaluate(output, target, Some(&mut self.d_output));
        self.model.backward(
            &self.params,
            input,
            &self.pass,
            &mut self.tape,
            &self.d_output,
            Grads::params(&mut self.d_params),
        );
        if let Some(limit) = self.clip_element {
            clip_elements(&mut self.d_params, limit);
        }
        let lr = self.optimizer.spec().lr();
        self.optimizer
            .step(&mut self.params, &self.d_params, self.model.layout(), lr);
        Ok(f64::from(soft))
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
