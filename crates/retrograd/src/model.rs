//! The contract that every model family fulfils.
//!
//! A model is a set of pure functions over one flat parameter vector. `forward` leaves on a tape
//! what `backward` needs; the tape is kept and reused, so that after the first step a training
//! step allocates nothing. The functions are generic over [`Scalar`]: a model written once can be
//! trained in f32, checked against central differences in f64, and have its rounding error
//! predicted.
//!
//! What a model is *not* given: optimizer, schedule, clipping, files, threads. Those are written
//! once, for all models.

use std::ops::Range;

use crate::group::Segments;
use crate::rng::Key;
use crate::train::{Accelerator, Placement, Start};
use crate::verify::{Cpu, Device, Mistake, On};
use crate::{Error, Layout, Result, Scalar};

/// Which kernels to run. They compute the same; only f32 has fast ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Kernels {
    /// SIMD and threads, where the scalar is f32 and the layer has such a kernel.
    #[default]
    Fast,
    /// Plain loops, the oracle.
    Reference,
}

/// What distinguishes one evaluation of a model from another of the same parameters and batch.
#[derive(Clone, Copy, Debug)]
pub struct Pass {
    /// Training (dropout drops, batch norm takes the batch's statistics) or inference.
    pub training: bool,
    /// The key of this step's random numbers. Forward and backward of a step share it.
    pub key: Key,
    /// Fast or reference kernels.
    pub kernels: Kernels,
    /// The place of the first sample (row, patch, graph) in the whole batch, where this is a shard of
    /// it: what is drawn for a sample doesn't depend on how the batch is cut.
    pub first: usize,
    /// The shards that the samples belong to, where several are computed at once: gradients of parameters
    /// are made shard by shard.
    pub segments: Option<Segments>,
}

impl Pass {
    /// A training step with its random key.
    pub fn training(key: Key) -> Self {
        Pass {
            training: true,
            key,
            kernels: Kernels::Fast,
            first: 0,
            segments: None,
        }
    }

    /// Inference: nothing random.
    pub fn inference() -> Self {
        Pass {
            training: false,
            key: Key::new(0),
            kernels: Kernels::Fast,
            first: 0,
            segments: None,
        }
    }

    /// The same for samples that begin there in the whole batch.
    pub fn from(self, first: usize) -> Self {
        Pass { first, ..self }
    }

    /// The same for samples of several shards.
    pub(crate) fn of_segments(self, segments: Segments) -> Self {
        let segments = Some(segments);
        Pass { segments, ..self }
    }

    /// The segments of that many samples of so many rows each: one, mostly.
    pub(crate) fn segments_of(&self, samples: usize, rows: usize) -> Segments {
        let whole = || Segments::whole(samples);
        self.segments.unwrap_or_else(whole).of_rows(rows)
    }

    /// The same with the reference kernels.
    pub fn reference(self) -> Self {
        Pass {
            kernels: Kernels::Reference,
            ..self
        }
    }
}

/// Where `backward` leaves the gradients. What is not asked for costs no work.
pub struct Grads<'a, T> {
    /// The gradient with respect to the parameters; frozen tensors get zeros.
    pub params: Option<&'a mut [T]>,
    /// The gradient with respect to [`Batch::values`].
    pub input: Option<&'a mut [T]>,
    /// Add to `params` (micro-batches) instead of overwriting. `input` is always overwritten.
    pub accumulate: bool,
}

impl<'a, T> Grads<'a, T> {
    /// Only the parameters' gradient, overwritten.
    pub fn params(params: &'a mut [T]) -> Self {
        Grads {
            params: Some(params),
            input: None,
            accumulate: false,
        }
    }

    /// Both gradients, overwritten.
    pub fn both(params: &'a mut [T], input: &'a mut [T]) -> Self {
        Grads {
            params: Some(params),
            input: Some(input),
            accumulate: false,
        }
    }
}

/// One batch of a model's input.
pub trait Batch<T>: Send + Sync {
    /// The numbers that the output is differentiable in (features, pixels, states), flat.
    fn values(&self) -> &[T];
    /// The same, to perturb.
    fn values_mut(&mut self) -> &mut [T];
}

impl<T: Send + Sync> Batch<T> for Vec<T> {
    fn values(&self) -> &[T] {
        self
    }
    fn values_mut(&mut self) -> &mut [T] {
        self
    }
}

/// The parameters of a backward pass that says on its way what is complete, and what is called then; see
/// [`Model::compute_backward_reporting`].
pub enum Reported<'a, T> {
    /// Called with the range, the parameters and the gradient. It may change both within the range, as an
    /// optimizer does.
    Updated(&'a mut [T], Ready<'a, T>),
    /// Called with the range and the gradient. The parameters stay as they are, and may be read by others
    /// meanwhile: for gradients that are sent to other processes while those of earlier layers are computed.
    Told(&'a [T], Told<'a, T>),
}

/// What [`Reported::Updated`] calls.
pub type Ready<'a, T> = &'a mut dyn FnMut(Range<usize>, &mut [T], &mut [T]);

/// What [`Reported::Told`] calls.
pub type Told<'a, T> = &'a mut dyn FnMut(Range<usize>, &[T]);

impl<T> Reported<'_, T> {
    /// The parameters.
    pub fn params(&self) -> &[T] {
        match self {
            Reported::Updated(params, _) => params,
            Reported::Told(params, _) => params,
        }
    }

    /// Says that a range has its whole gradient.
    pub fn complete(&mut self, range: Range<usize>, d_params: &mut [T]) {
        match self {
            Reported::Updated(params, ready) => ready(range, params, d_params),
            Reported::Told(_, told) => told(range, d_params),
        }
    }
}

/// Numbers that belong to a model and are saved with it, but are not trained (knots, running
/// statistics, wiring).
#[derive(Clone, Debug, PartialEq)]
pub struct Buffer {
    /// PyTorch's name where PyTorch has one.
    pub name: String,
    /// Its shape.
    pub shape: Vec<usize>,
    /// Its values.
    pub values: Vec<f64>,
}

/// A differentiable model: pure functions over one flat parameter vector.
pub trait Model: Send + Sync {
    /// One batch.
    type Input<T: Scalar>: Batch<T>;
    /// What forward leaves for backward. Reused from step to step and batch to batch: a forward
    /// that gets a larger or smaller batch resizes what it needs.
    type Tape<T: Scalar>: Default + Send;

    /// Name, shape and place of every tensor in the flat vector.
    fn layout(&self) -> &Layout;
    /// To freeze tensors.
    fn layout_mut(&mut self) -> &mut Layout;

    /// Initial parameters, a function of the seed alone.
    fn init(&self, seed: u64) -> Vec<f32>;

    /// What a model brings: computes the output and leaves it, with what backward needs, on the tape.
    /// Lengths are trusted; [`forward`](Model::forward) is the same for a batch from outside.
    fn compute_forward<T: Scalar>(
        &self,
        params: &[T],
        input: &Self::Input<T>,
        pass: &Pass,
        tape: &mut Self::Tape<T>,
    );

    /// The output of the last forward on this tape.
    fn output<'t, T: Scalar>(&self, tape: &'t Self::Tape<T>) -> &'t [T];

    /// What a model brings: the gradients, given the gradient of the output; after a forward with the
    /// same arguments. Lengths are trusted; [`backward`](Model::backward) is the same for those from
    /// outside.
    fn compute_backward<T: Scalar>(
        &self,
        params: &[T],
        input: &Self::Input<T>,
        pass: &Pass,
        tape: &mut Self::Tape<T>,
        d_output: &[T],
        grads: Grads<'_, T>,
    );

    /// The gradient of the parameters, as `compute_backward` leaves it, that says on its way what is
    /// complete: `params` is told once a range of the flat vector has its whole gradient and nothing
    /// later in the pass reads its parameters or its gradient.
    ///
    /// Every range holds whole tensors, frozen ones among them, and the ranges cover the vector
    /// once. A model of layers reports them one by one, from the last to the first; where a
    /// gradient is complete at the very end only, this default does: all at once.
    fn compute_backward_reporting<T: Scalar>(
        &self,
        mut params: Reported<'_, T>,
        input: &Self::Input<T>,
        pass: &Pass,
        tape: &mut Self::Tape<T>,
        d_output: &[T],
        d_params: &mut [T],
    ) {
        let grads = Grads::params(d_params);
        self.compute_backward(params.params(), input, pass, tape, d_output, grads);
        params.complete(0..d_params.len(), d_params);
    }

    /// What a training step computes, in which order and into which buffers, as text: a line a step,
    /// with what is complete after it.
    fn plan_text(&self) -> String {
        "forward, then backward: every gradient is complete at its end\n".into()
    }

    /// Whether a batch's lengths are the model's, for what is called with batches from outside.
    /// Looks at lengths alone: it is called at every step.
    fn check_input<T: Scalar>(&self, input: &Self::Input<T>) -> Result<()> {
        let _ = input;
        Ok(())
    }

    /// Whether there are as many parameters as the layout has.
    fn check_params<T: Scalar>(&self, params: &[T]) -> Result<()> {
        let needed = self.layout().len();
        check_length("parameters", params.len(), needed, "the model's layout")
    }

    /// Computes the output and leaves it, with what backward needs, on the tape. Lengths that are not
    /// the model's are errors.
    fn forward<T: Scalar>(
        &self,
        params: &[T],
        input: &Self::Input<T>,
        pass: &Pass,
        tape: &mut Self::Tape<T>,
    ) -> Result<()> {
        self.check_params(params)?;
        self.check_input(input)?;
        self.compute_forward(params, input, pass, tape);
        Ok(())
    }

    /// The gradients, given the gradient of the output; after a forward with the same arguments.
    /// Lengths that are not the model's, or not those of the tape's output, are errors.
    fn backward<T: Scalar>(
        &self,
        params: &[T],
        input: &Self::Input<T>,
        pass: &Pass,
        tape: &mut Self::Tape<T>,
        d_output: &[T],
        grads: Grads<'_, T>,
    ) -> Result<()> {
        self.check_input(input)?;
        let left = self.output(tape).len();
        let output = self.output_values(input).unwrap_or(left);
        check_backward(self, params, input.values(), output, tape, d_output, &grads)?;
        self.compute_backward(params, input, pass, tape, d_output, grads);
        Ok(())
    }

    /// How many values the output of a batch has, where the model knows it beforehand.
    fn output_values<T: Scalar>(&self, input: &Self::Input<T>) -> Option<usize> {
        let _ = input;
        None
    }

    /// The length of a row of the output, where outputs are rows that a class number belongs to.
    fn row_width(&self) -> Option<usize> {
        None
    }

    /// Whether a sample's output in training depends on the other samples of its batch (batch norm):
    /// shards of a batch are then computed side by side, and exchange what they need.
    fn couples_samples(&self) -> bool {
        false
    }

    /// Whether neighbouring shards of a batch may be computed as one batch: every sample by itself, and
    /// gradients of parameters by [`Pass::segments`]. Bits are those of shards that are computed alone.
    fn joins_shards(&self) -> bool {
        false
    }

    /// The same batch in another scalar.
    fn cast_input<T: Scalar, U: Scalar>(&self, input: &Self::Input<T>) -> Self::Input<U>;

    /// A loss that depends on the parameters alone (sparsity). Its gradient is *added* to
    /// `d_params`.
    fn penalty<T: Scalar>(&self, params: &[T], d_params: Option<&mut [T]>) -> T {
        let _ = (params, d_params);
        T::ZERO
    }

    /// Adds the part of the penalty's gradient that concerns a range which
    /// [`Model::compute_backward_reporting`] reports. It must be a function of the parameters in the range alone:
    /// those after it have been changed by then. False, with nothing added, where the model can't.
    ///
    /// The default can for the whole vector. A model that reports parts has its own.
    fn penalty_range<T: Scalar>(
        &self,
        range: Range<usize>,
        params: &[T],
        d_params: &mut [T],
    ) -> bool {
        let whole = range == (0..params.len());
        if whole {
            self.penalty(params, Some(d_params));
        }
        whole
    }

    /// Appends what decides on which smooth piece of the function the last forward was: signs
    /// under a ReLU, positions of maxima, knot intervals of low-degree splines. Central
    /// differences whose two sides differ in it straddle a kink.
    fn pattern<T: Scalar>(
        &self,
        params: &[T],
        input: &Self::Input<T>,
        tape: &Self::Tape<T>,
        pattern: &mut Vec<u32>,
    ) {
        let _ = (params, input, tape, pattern);
    }

    /// What is saved with the parameters but not trained.
    fn buffers(&self) -> Vec<Buffer> {
        Vec::new()
    }

    /// Takes back a saved buffer. An error if there is no such buffer or it doesn't fit.
    fn set_buffer(&mut self, buffer: &Buffer) -> Result<()> {
        Err(Error::invalid(
            format!("buffer {}", buffer.name),
            format!("shape {:?}", buffer.shape),
            "a model that has it",
        ))
    }

    /// What computes training steps of this model elsewhere than here, from the state that they
    /// begin with; nothing where they are computed here. An error names what has no kernels there.
    fn accelerator(
        &self,
        placement: &Placement,
        start: &Start<'_>,
    ) -> Result<Option<Box<dyn Accelerator<Self>>>>
    where
        Self: Sized,
    {
        let _ = start;
        match placement {
            Placement::Cpu => Ok(None),
            Placement::Gpu { .. } if cfg!(not(feature = "gpu")) => Err(crate::train::no_gpu()),
            Placement::Gpu { .. } => Err(Error::invalid(
                "--device",
                "gpu",
                format!("cpu: {} has no kernels for a GPU", self.first_layer()),
            )),
        }
    }

    /// What computes the f32 side of the verifier's chain there; nothing where the model has no
    /// kernels there.
    fn verifier(&self, on: On) -> Result<Option<Box<dyn Device<Self>>>>
    where
        Self: Sized,
    {
        match on {
            On::Cpu => Ok(Some(Box::new(Cpu))),
            On::Gpu(_) => Ok(None),
        }
    }

    /// The first of its layers, by kind and name, for errors about all of them.
    fn first_layer(&self) -> String {
        match self.layout().tensors().first() {
            Some(tensor) => format!("the layer of {:?}", tensor.name),
            None => "the model".into(),
        }
    }

    /// The mistakes that can be put into this model's gradients, in words: to see what they do to a training,
    /// and which check sees them.
    fn mistakes(&self) -> Vec<String> {
        Vec::new()
    }

    /// Puts one of them in. An error where the model has none of these words.
    fn make_mistake(&mut self, mistake: &Mistake) -> Result<()> {
        Err(mistake.unknown())
    }

    /// Called after a training step with its tape, to let running statistics follow.
    fn absorb(&mut self, tape: &Self::Tape<f32>) {
        let _ = tape;
    }
}

/// An error unless a slice has the length that is needed.
pub(crate) fn check_length(what: &str, got: usize, needed: usize, of: &str) -> Result<()> {
    if got != needed {
        let needed = format!("{needed}, as {of} has");
        return Err(Error::invalid(what, format!("{got} values"), needed));
    }
    Ok(())
}

/// Whether what backward is given has the lengths of the forward before it: a batch of `values`, with
/// so many values of output.
pub(crate) fn check_backward<M: Model + ?Sized, T: Scalar>(
    model: &M,
    params: &[T],
    values: &[T],
    output: usize,
    tape: &M::Tape<T>,
    d_output: &[T],
    grads: &Grads<'_, T>,
) -> Result<()> {
    model.check_params(params)?;
    let left = model.output(tape).len();
    check_length("the tape's output", left, output, "that of the batch")?;
    check_length("the output's gradient", d_output.len(), left, "the output")?;
    if let Some(d_params) = &grads.params {
        let needed = model.layout().len();
        check_length(
            "the parameters' gradient",
            d_params.len(),
            needed,
            "the model's layout",
        )?;
    }
    if let Some(d_input) = &grads.input {
        check_length(
            "the input's gradient",
            d_input.len(),
            values.len(),
            "the batch",
        )?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::data::karate_club;
    use crate::graph::{DagNN, DagSpec, GraphBatch, GraphNetwork, GraphSpec};
    use crate::logic::{LogicBatch, LogicCa};

    /// Forward with the model's own lengths works; every length that is not the model's is
    /// `Error::Invalid`, of forward and of backward after it.
    fn refuses<M: Model>(model: &M, right: &M::Input<f64>, wrong: &M::Input<f64>) {
        let invalid = |result: Result<()>| {
            assert!(matches!(result, Err(Error::Invalid { .. })), "{result:?}");
        };
        let pass = Pass::inference();
        let mut tape: M::Tape<f64> = Default::default();
        let params = vec![0.1; model.layout().len()];
        let short = &params[1..];
        let mut d_params = params.clone();
        // Backward before any forward has nothing to go by.
        let grads = Grads::params(&mut d_params);
        invalid(model.backward(&params, right, &pass, &mut tape, &[], grads));
        invalid(model.forward(&params, wrong, &pass, &mut tape));
        invalid(model.forward(short, right, &pass, &mut tape));
        model.forward(&params, right, &pass, &mut tape).unwrap();
        let d_y = model.output(&tape).to_vec();
        let mut backward = |params: &[f64], input, d_y: &[f64], d_params: &mut [f64]| {
            let grads = Grads::params(d_params);
            model.backward(params, input, &pass, &mut tape, d_y, grads)
        };
        backward(&params, right, &d_y, &mut d_params).unwrap();
        invalid(backward(&params, wrong, &d_y, &mut d_params));
        invalid(backward(short, right, &d_y, &mut d_params));
        invalid(backward(&params, right, &d_y[1..], &mut d_params));
        invalid(backward(&params, right, &d_y, &mut d_params[1..]));
    }

    #[test]
    fn lengths_that_are_not_the_models_are_errors_in_every_family() {
        let dag = DagNN::new(&DagSpec::new(2, 1, 1, "tanh"), &[0, 1, 2], &[2, 2, 3]).unwrap();
        refuses(&dag, &vec![0.5; 4], &vec![0.5; 3]);
        let layers = "features = 34\nlayers = [{ kind = \"gcn\", out = 2 }]";
        let spec: GraphSpec = toml::from_str(layers).unwrap();
        let network = GraphNetwork::new(&spec).unwrap();
        let graph = karate_club().unwrap().batch.graph().clone();
        let wide = |width: usize| {
            let values = vec![1.0; 34 * width];
            GraphBatch::dense(graph.clone(), width, values).unwrap()
        };
        refuses(&network, &wide(34), &wide(1));
        let text = "channels = 2\nkernels = 3\nperception = [9, 8, 4, 2]\n\
                    update = [14, 12, 9, 5, 3, 2]\nsteps = 2";
        let automaton = LogicCa::new(toml::from_str(text).unwrap(), 3).unwrap();
        let batch = |values: usize| LogicBatch {
            state: vec![0.5; values],
            batch: 1,
            height: 3,
            width: 4,
            fire: None,
        };
        refuses(&automaton, &batch(24), &batch(23));
    }
}
