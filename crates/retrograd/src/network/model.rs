//! A network: layers in a row, with skips, over one flat parameter vector.

use std::ops::Range;

use super::spec::NetworkSpec;
use crate::layer::AnyLayer;
use crate::layer::kan::Kan;
use crate::layer::spec::{Given, build, check_size};
use crate::model::check_backward;
use crate::plan::{
    Input, Layers, Place, Plan, Request, RowsOf, Tape, Value, before, new_id, set_buffer,
    wrap_layer,
};
use crate::verify::mutants::{LayerMistakes, Mistake};
use crate::verify::{Bundle, Case, FromBundle};
#[cfg(feature = "gpu")]
use crate::verify::{Device, On};
use crate::{Buffer, Error, Grads, Layout, Model, Pass, Reported, Result, Scalar};

/// What a network's forward leaves for backward.
pub type NetworkTape<T> = Tape<T>;

/// A feed-forward network.
///
/// A batch is the samples' values, one sample after the other; its length decides the number of
/// samples.
pub struct Network {
    spec: NetworkSpec,
    pub(crate) places: Vec<Place>,
    layout: Layout,
    /// Tells plans of one network from those of another.
    id: u64,
}

impl Network {
    /// Builds a network; every shape and option is checked here.
    pub fn new(spec: &NetworkSpec) -> Result<Self> {
        if spec.family != "network" {
            return Err(Error::invalid("model.family", &spec.family, "network"));
        }
        if spec.input.is_empty() || spec.input.contains(&0) {
            let got = format!("{:?}", spec.input);
            return Err(Error::invalid("model.input", got, "sizes of at least 1"));
        }
        check_size("model", "an input", &spec.input)?;
        if let Some(sparsity) = &spec.sparsity {
            for (what, value) in [("l1", sparsity.l1), ("entropy", sparsity.entropy)] {
                if !(value >= 0.0 && value.is_finite()) {
                    let what = format!("model.sparsity.{what}");
                    return Err(Error::invalid(what, value, "a finite number ≥ 0"));
                }
            }
        }
        let given = Given {
            shape: &spec.input,
            rows: RowsOf::Samples,
            edge_features: None,
        };
        let (places, layout) = build(&spec.layers, &given)?;
        Ok(Network {
            spec: spec.clone(),
            places,
            layout,
            id: new_id(),
        })
    }

    pub(crate) fn layers(&self) -> Layers<'_> {
        Layers {
            places: &self.places,
            layout: &self.layout,
            id: self.id,
        }
    }

    /// A batch as the layers are given it.
    pub(crate) fn input<'a, T>(&self, values: &'a [T]) -> Input<'a, T> {
        Input {
            values,
            samples: values.len() / self.input_len(),
            batch: None,
            grids: None,
        }
    }

    /// [`Model::forward`] of a batch that may be part of a longer slice.
    pub fn forward<T: Scalar>(
        &self,
        params: &[T],
        input: &[T],
        pass: &Pass,
        tape: &mut NetworkTape<T>,
    ) -> Result<()> {
        self.check_params(params)?;
        self.check_length(input.len())?;
        self.layers().forward(params, self.input(input), pass, tape);
        Ok(())
    }

    /// [`Model::backward`] of such a batch.
    pub fn backward<T: Scalar>(
        &self,
        params: &[T],
        input: &[T],
        pass: &Pass,
        tape: &mut NetworkTape<T>,
        d_output: &[T],
        grads: Grads<'_, T>,
    ) -> Result<()> {
        self.check_length(input.len())?;
        let output = input.len() / self.input_len() * self.output_len();
        check_backward(self, params, input, output, tape, d_output, &grads)?;
        let input = self.input(input);
        self.layers()
            .backward(params, input, pass, tape, d_output, grads);
        Ok(())
    }

    /// The same network with one layer replaced by what `wrap` makes of it.
    pub(crate) fn wrapping(
        mut self,
        layer: usize,
        wrap: impl FnOnce(Box<dyn AnyLayer>) -> Box<dyn AnyLayer>,
    ) -> Self {
        wrap_layer(&mut self.places, layer, wrap);
        self.id = new_id();
        self
    }

    /// The plan of a kind of step.
    pub(crate) fn plan(&self, params: bool, input: bool, fuse: bool) -> Plan {
        let request = Request {
            params,
            input,
            fuse,
        };
        Plan::new(&self.places, &self.layout, request)
    }

    /// What it was built from.
    pub fn spec(&self) -> &NetworkSpec {
        &self.spec
    }

    /// The shape of one sample of the output.
    pub fn output_shape(&self) -> &[usize] {
        &self.places.last().expect("at least one layer").shape
    }

    /// The length of one sample of the input.
    pub fn input_len(&self) -> usize {
        self.spec.input.iter().product()
    }

    /// The length of one sample of the output.
    pub fn output_len(&self) -> usize {
        self.output_shape().iter().product()
    }

    /// Multiplications and additions of the dense and convolution layers in a training step of one
    /// sample: forward, weight gradients, and input gradients of all layers but the first.
    pub fn flops(&self) -> f64 {
        let of = |(layer, place): (usize, &Place)| {
            let passes = if layer == 0 { 2.0 } else { 3.0 };
            passes * place.layer.flops() as f64
        };
        self.places.iter().enumerate().map(of).sum()
    }

    /// Whether a batch fits: whole samples, at least one, every value finite.
    pub fn check_batch(&self, batch: &[f32]) -> Result<()> {
        let sample = self.input_len();
        self.check_length(batch.len())?;
        if let Some(i) = batch.iter().position(|v| !v.is_finite()) {
            let what = format!("sample {}, value {}", i / sample, i % sample);
            return Err(Error::invalid(what, batch[i], "a finite number"));
        }
        Ok(())
    }

    /// The outputs of a batch from outside, sample after sample: inference. Lengths and numbers that
    /// are not the network's are errors.
    pub fn predict(&self, params: &[f32], batch: &[f32]) -> Result<Vec<f32>> {
        self.check_params(params)?;
        self.check_batch(batch)?;
        let mut tape = NetworkTape::default();
        let input = self.input(batch);
        self.layers()
            .forward(params, input, &Pass::inference(), &mut tape);
        Ok(self.layers().output(&tape).to_vec())
    }

    fn check_length(&self, batch: usize) -> Result<()> {
        let sample = self.input_len();
        if batch == 0 || !batch.is_multiple_of(sample) {
            let needed = format!("a multiple of {sample}, the input {:?}", self.spec.input);
            return Err(Error::invalid("batch", format!("{batch} values"), needed));
        }
        Ok(())
    }

    /// The penalty of the layers with a tensor in the range, with the gradients of those tensors.
    fn penalty_in<T: Scalar>(
        &self,
        range: &Range<usize>,
        params: &[T],
        mut d_params: Option<&mut [T]>,
    ) -> T {
        let mut sum = T::ZERO;
        let Some(sparsity) = &self.spec.sparsity else {
            return sum;
        };
        for (layer, place) in self.places.iter().enumerate() {
            let inside = |slot: usize| range.contains(&place.tensors[slot].start);
            if let Some(kan) = place.layer.shows::<Kan>()
                && (inside(0) || inside(1))
            {
                let [spline_weight, base_weight, ..] = self.layers().params_of(layer, params);
                let [d_spline, d_base, ..] =
                    self.layers().d_params_of(layer, d_params.as_deref_mut());
                let d_weights = [d_spline.filter(|_| inside(0)), d_base.filter(|_| inside(1))];
                sum += kan.penalty(sparsity, spline_weight, base_weight, d_weights);
            }
        }
        sum
    }

    pub(crate) fn shape_of(&self, value: Value) -> &[usize] {
        match value {
            Value::Input => &self.spec.input,
            Value::Of(layer) => &self.places[layer].shape,
        }
    }

    /// What a layer reads, after a forward.
    pub(crate) fn layer_input<'a, T: Scalar>(
        &self,
        layer: usize,
        input: &'a [T],
        tape: &'a NetworkTape<T>,
    ) -> &'a [T] {
        self.layers().layer_input(layer, input, tape)
    }
}

impl Model for Network {
    type Input<T: Scalar> = Vec<T>;
    type Tape<T: Scalar> = NetworkTape<T>;

    fn layout(&self) -> &Layout {
        &self.layout
    }

    fn layout_mut(&mut self) -> &mut Layout {
        &mut self.layout
    }

    fn init(&self, seed: u64) -> Vec<f32> {
        let stream = |layer, slot, _| layer * STREAMS + slot;
        self.layers().init(seed, stream)
    }

    fn compute_forward<T: Scalar>(
        &self,
        params: &[T],
        input: &Vec<T>,
        pass: &Pass,
        tape: &mut NetworkTape<T>,
    ) {
        self.layers().forward(params, self.input(input), pass, tape);
    }

    fn output<'t, T: Scalar>(&self, tape: &'t NetworkTape<T>) -> &'t [T] {
        self.layers().output(tape)
    }

    fn compute_backward<T: Scalar>(
        &self,
        params: &[T],
        input: &Vec<T>,
        pass: &Pass,
        tape: &mut NetworkTape<T>,
        d_output: &[T],
        grads: Grads<'_, T>,
    ) {
        let input = self.input(input);
        self.layers()
            .backward(params, input, pass, tape, d_output, grads);
    }

    fn compute_backward_reporting<T: Scalar>(
        &self,
        params: Reported<'_, T>,
        input: &Vec<T>,
        pass: &Pass,
        tape: &mut NetworkTape<T>,
        d_output: &[T],
        d_params: &mut [T],
    ) {
        let input = self.input(input);
        self.layers()
            .backward_reporting(params, input, pass, tape, d_output, d_params);
    }

    fn penalty<T: Scalar>(&self, params: &[T], d_params: Option<&mut [T]>) -> T {
        self.penalty_in(&(0..self.layout.len()), params, d_params)
    }

    /// A sum over layers, and what is trained of a layer's weights is reported at once.
    fn penalty_range<T: Scalar>(
        &self,
        range: Range<usize>,
        params: &[T],
        d_params: &mut [T],
    ) -> bool {
        self.penalty_in(&range, params, Some(d_params));
        true
    }

    fn check_input<T: Scalar>(&self, input: &Vec<T>) -> Result<()> {
        self.check_length(input.len())
    }

    fn output_values<T: Scalar>(&self, input: &Vec<T>) -> Option<usize> {
        Some(input.len() / self.input_len() * self.output_len())
    }

    fn row_width(&self) -> Option<usize> {
        (self.output_shape().len() == 1).then(|| self.output_len())
    }

    fn couples_samples(&self) -> bool {
        self.places.iter().any(|place| place.layer.couples())
    }

    fn joins_shards(&self) -> bool {
        self.places.iter().all(|place| place.layer.joins_shards())
    }

    fn plan_text(&self) -> String {
        let plan = self.plan(true, false, true);
        plan.text(&self.places, &self.layout)
    }

    fn cast_input<T: Scalar, U: Scalar>(&self, input: &Vec<T>) -> Vec<U> {
        crate::scalar::cast(input)
    }

    fn pattern<T: Scalar>(
        &self,
        params: &[T],
        input: &Vec<T>,
        tape: &NetworkTape<T>,
        pattern: &mut Vec<u32>,
    ) {
        for (layer, place) in self.places.iter().enumerate() {
            if self.spec.sparsity.is_some() && place.layer.shows::<Kan>().is_some() {
                // The penalty has a kink where a weight is 0.
                let [spline_weight, base_weight, ..] = self.layers().params_of(layer, params);
                let weights = spline_weight.iter().chain(base_weight);
                pattern.extend(weights.map(|&w| u32::from(w > T::ZERO)));
            }
            let input = self.input(input);
            self.layers().pattern(layer, input, tape, pattern);
        }
    }

    fn buffers(&self) -> Vec<Buffer> {
        self.layers().buffers()
    }

    fn set_buffer(&mut self, buffer: &Buffer) -> Result<()> {
        set_buffer(&mut self.places, buffer)
    }

    #[cfg(feature = "gpu")]
    fn accelerator(
        &self,
        placement: &crate::train::Placement,
        start: &crate::train::Start<'_>,
    ) -> Result<Option<Box<dyn crate::train::Accelerator<Self>>>> {
        crate::gpu::GpuTrainer::placed(self, placement, start)
    }

    #[cfg(feature = "gpu")]
    fn verifier(&self, on: On) -> Result<Option<Box<dyn Device<Self>>>> {
        crate::gpu::GpuVerifier::on(on).map(Some)
    }

    fn mistakes(&self) -> Vec<String> {
        LayerMistakes::of(&self.places, &self.spec.layers).words()
    }

    fn make_mistake(&mut self, mistake: &Mistake) -> Result<()> {
        let all = LayerMistakes::of(&self.places, &self.spec.layers);
        let (layer, mutation) = all.find(mistake)?;
        let shapes = [before(layer), Value::Of(layer)].map(|value| self.shape_of(value).to_vec());
        wrap_layer(&mut self.places, layer, |inner| {
            mutation.wrap(inner, shapes, mistake.only_f32)
        });
        self.id = new_id();
        Ok(())
    }

    fn absorb(&mut self, tape: &NetworkTape<f32>) {
        for (place, saved) in self.places.iter_mut().zip(&tape.saved) {
            place.layer.absorb(saved, tape.samples);
        }
    }
}

/// Streams of random numbers that a layer's initial values may take.
const STREAMS: usize = 3;
impl FromBundle for Network {
    fn from_bundle(bundle: &Bundle) -> Result<Case<Self>> {
        let mut model = Network::new(&bundle.model_spec()?)?;
        for name in bundle.names().filter_map(|n| n.strip_prefix("buffer/")) {
            let array = bundle.array(&format!("buffer/{name}"))?;
            model.set_buffer(&Buffer {
                name: name.into(),
                shape: array.shape.clone(),
                values: array.values.clone(),
            })?;
        }
        let x = bundle.array("input/x")?;
        let sample = &model.spec.input;
        if x.shape.len() != sample.len() + 1 || x.shape[1..] != sample[..] || x.shape[0] == 0 {
            let problem = format!("shape {:?}, the model needs [samples, {sample:?}]", x.shape);
            return Err(Error::file(&bundle.path, "input/x", problem));
        }
        if let Some(i) = x.values.iter().position(|v| !v.is_finite()) {
            let problem = format!("element {i} is {}", x.values[i]);
            return Err(Error::file(&bundle.path, "input/x", problem));
        }
        let target = bundle.target()?;
        bundle
            .loss
            .check(x.shape[0] * model.output_len(), &target)?;
        Ok(Case {
            params: bundle.flat(&model, "param")?,
            input: x.values.clone(),
            target,
            model,
        })
    }
}
