//! A network, its parameters and its optimizer in one object.

use std::ops::Range;

use crate::layer::kan::KanSpec;
use crate::network::{Base, LayerSpec, Network, NetworkSpec, NetworkTape, Outside, Sparsity};
use crate::optim::OptimizerSpec;
use crate::rng::Key;
use crate::train::{Clip, Hooks, Lesson, Stepper};
use crate::{Error, Grads, Loss, Model, Pass, Result, Target};

use super::EdgeMask;

/// The shape of a KAN: sizes, grid, degree and range, the same for all layers.
#[derive(Clone, Debug, PartialEq)]
pub struct KanConfig {
    /// Inputs, hidden widths, outputs.
    pub sizes: Vec<usize>,
    /// Grid intervals, 1 to 64.
    pub grid: usize,
    /// Spline degree, 1 to 7.
    pub degree: usize,
    /// The range that the grid covers.
    pub range: [f64; 2],
    /// The base function.
    pub base: Base,
    /// Whether layers have a bias.
    pub bias: bool,
    /// What happens outside the range.
    pub outside: Outside,
    /// The sparsity penalty.
    pub sparsity: Option<Sparsity>,
}

impl KanConfig {
    /// Grid 5, degree 3 over [−1, 1], SiLU base: efficient-kan's defaults.
    pub fn new(sizes: &[usize]) -> Self {
        KanConfig {
            sizes: sizes.to_vec(),
            grid: 5,
            degree: 3,
            range: [-1.0, 1.0],
            base: Base::Silu,
            bias: false,
            outside: Outside::Decay,
            sparsity: None,
        }
    }

    /// The network's spec.
    pub fn spec(&self) -> Result<NetworkSpec> {
        if self.sizes.len() < 2 {
            let got = format!("{:?}", self.sizes);
            return Err(Error::invalid(
                "KAN sizes",
                got,
                "inputs and outputs at least",
            ));
        }
        let layers = self.sizes[1..]
            .iter()
            .map(|&out| {
                LayerSpec::Kan(KanSpec {
                    out,
                    grid: self.grid,
                    degree: self.degree,
                    range: self.range,
                    base: self.base,
                    bias: self.bias,
                    outside: self.outside,
                    free_knots: false,
                })
            })
            .collect();
        let mut spec = NetworkSpec::new(&self.sizes[..1], layers);
        spec.sparsity = self.sparsity;
        Ok(spec)
    }
}

/// How a training step is done: Adam with what is said here.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TrainOptions {
    /// The rate.
    pub lr: f64,
    /// What is minimised.
    pub loss: Loss,
    /// The gradient is scaled down to this norm over all parameters, as PyTorch does.
    pub max_grad_norm: Option<f64>,
    /// Decoupled weight decay, of all parameters alike (AdamW's).
    pub weight_decay: f64,
}

impl Default for TrainOptions {
    fn default() -> Self {
        TrainOptions {
            lr: 1e-3,
            loss: Loss::Mse,
            max_grad_norm: None,
            weight_decay: 0.0,
        }
    }
}

/// A Kolmogorov–Arnold network with parameters, workspaces and Adam's state.
pub struct KanNetwork {
    network: Network,
    stepper: Stepper<Network>,
    mask: Option<EdgeMask>,
    single_tape: NetworkTape<f32>,
    batch: Vec<f32>,
    single: Vec<f32>,
    d_input: Vec<f32>,
}

/// What a KAN's step does beside the plain one.
struct MaskAndDecay<'a> {
    mask: Option<&'a EdgeMask>,
    /// What a step leaves of every parameter.
    shrink: Option<f32>,
}

impl Hooks<Network> for MaskAndDecay<'_> {
    fn gradient(&mut self, network: &Network, _: Range<usize>, d_params: &mut [f32]) {
        if let Some(mask) = self.mask {
            mask.apply(network, d_params);
        }
    }

    fn before_update(&mut self, network: &Network, range: Range<usize>, params: &mut [f32]) {
        let Some(shrink) = self.shrink else {
            return;
        };
        for (_, part) in network.layout().within(range).filter(|(t, _)| !t.frozen) {
            for p in &mut params[part] {
                *p *= shrink;
            }
        }
    }
}

impl KanNetwork {
    /// Fresh weights from the seed.
    pub fn new(config: &KanConfig, seed: u64) -> Result<Self> {
        let network = Network::new(&config.spec()?)?;
        let params = network.init(seed);
        Self::from_parts(network, params)
    }

    /// From a network whose layers are KAN layers (a `normalize` in front is allowed) and its
    /// parameters.
    pub fn from_parts(network: Network, params: Vec<f32>) -> Result<Self> {
        super::Layers::new(&network)?;
        if params.len() != network.layout().len() {
            return Err(Error::invalid(
                "KAN parameters",
                format!("{} numbers", params.len()),
                format!("{}", network.layout().len()),
            ));
        }
        Ok(KanNetwork {
            stepper: Stepper::new(&network, params, OptimizerSpec::adam(1e-3)),
            network,
            mask: None,
            single_tape: NetworkTape::default(),
            batch: Vec::new(),
            single: Vec::new(),
            d_input: Vec::new(),
        })
    }

    /// The model.
    pub fn network(&self) -> &Network {
        &self.network
    }

    /// The parameters, in the order of the network's layout.
    pub fn params(&self) -> &[f32] {
        &self.stepper.params
    }

    /// The parameters, to change.
    pub fn params_mut(&mut self) -> &mut [f32] {
        &mut self.stepper.params
    }

    /// Network and parameters.
    pub fn into_parts(self) -> (Network, Vec<f32>) {
        (self.network, self.stepper.params)
    }

    /// Edges that are held at zero from now on; applied to the parameters at once.
    pub fn set_mask(&mut self, mask: Option<EdgeMask>) {
        if let Some(mask) = &mask {
            mask.apply(&self.network, &mut self.stepper.params);
        }
        self.mask = mask;
    }

    /// The gradient of the last training step, masked and clipped.
    pub fn d_params_of_last_step(&self) -> &[f32] {
        &self.stepper.grads
    }

    /// One sample, without allocation after the first call and without threads: for search loops.
    pub fn forward_single(&mut self, x: &[f32], y: &mut [f32]) -> Result<()> {
        let (inputs, outputs) = (self.network.input_len(), self.network.output_len());
        if x.len() != inputs || y.len() != outputs {
            return Err(Error::invalid(
                "forward_single",
                format!("{} inputs and room for {} outputs", x.len(), y.len()),
                format!("{inputs} and {outputs}"),
            ));
        }
        self.single.resize(inputs, 0.0);
        self.single.copy_from_slice(x);
        let pass = Pass::inference();
        self.network.compute_forward(
            &self.stepper.params,
            &self.single,
            &pass,
            &mut self.single_tape,
        );
        y.copy_from_slice(self.network.output(&self.single_tape));
        Ok(())
    }

    /// A batch: whole samples, one after the other. The result stays valid until the next call.
    pub fn forward_batch(&mut self, x: &[f32]) -> Result<&[f32]> {
        self.take_batch(x)?;
        let pass = Pass::training(Key::new(0));
        self.network.compute_forward(
            &self.stepper.params,
            &self.batch,
            &pass,
            &mut self.stepper.tape,
        );
        Ok(self.network.output(&self.stepper.tape))
    }

    /// The gradients of the parameters and of the inputs for the batch of the last
    /// [`KanNetwork::forward_batch`], given the gradient of its output.
    pub fn backward_batch(&mut self, d_output: &[f32]) -> Result<(&[f32], &[f32])> {
        let samples = self.batch.len() / self.network.input_len();
        let needed = samples * self.network.output_len();
        if samples == 0 || d_output.len() != needed {
            return Err(Error::invalid(
                "backward_batch's gradient",
                format!("{} values", d_output.len()),
                format!("{needed}, one for every output of the last forward_batch"),
            ));
        }
        self.d_input.resize(self.batch.len(), 0.0);
        let pass = Pass::training(Key::new(0));
        self.network.compute_backward(
            &self.stepper.params,
            &self.batch,
            &pass,
            &mut self.stepper.tape,
            d_output,
            Grads::both(&mut self.stepper.grads, &mut self.d_input),
        );
        Ok((&self.stepper.grads, &self.d_input))
    }

    /// One step of Adam on a batch. Returns the loss, without the sparsity penalty. A batch or a
    /// target that doesn't fit, and a number that is not finite, are errors that change nothing.
    pub fn train_step_with_options(
        &mut self,
        x: &[f32],
        target: &Target<f32>,
        options: &TrainOptions,
    ) -> Result<f64> {
        self.take_batch(x)?;
        let samples = x.len() / self.network.input_len();
        options
            .loss
            .check(samples * self.network.output_len(), target)?;
        let pass = Pass::training(Key::new(0));
        let lesson = Lesson {
            loss: options.loss,
            input: &self.batch,
            target,
            pass: &pass,
        };
        let loss = self
            .stepper
            .gradient_of(&self.network, &lesson, 1.0, false)?;
        let clip = Clip {
            element: None,
            norm: options.max_grad_norm,
        };
        let decays = options.weight_decay != 0.0;
        let mut hooks = MaskAndDecay {
            mask: self.mask.as_ref(),
            shrink: decays.then_some((1.0 - options.lr * options.weight_decay) as f32),
        };
        let step = self.stepper.optimizer.steps();
        self.stepper
            .update_with(&self.network, &clip, options.lr, &mut hooks)
            .map_err(|bad| bad.into_error(step, "lower lr or set max_grad_norm"))?;
        Ok(loss)
    }

    fn take_batch(&mut self, x: &[f32]) -> Result<()> {
        self.network.check_batch(x)?;
        self.batch.resize(x.len(), 0.0);
        self.batch.copy_from_slice(x);
        Ok(())
    }
}
