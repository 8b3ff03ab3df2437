//! The plan executed on the CPU, for networks and graph networks alike.

use std::ops::Range;

use super::{Compute, Derive, Input, Layers, Onto, Plan, Request, Value, before, stored};
use crate::layer::conv2d::cpu::correlation;
use crate::layer::conv2d::{Conv2d, stack, tile};
use crate::layer::pieces::{add, zero};
use crate::layer::{Around, Backward, Forward, Saved, Seen, sized};
use crate::{Grads, Kernels, Pass, Reported, Scalar};

/// What a model's forward leaves for backward.
pub struct Tape<T> {
    /// Every layer's output (empty where it is another name for an earlier one).
    values: Vec<Vec<T>>,
    d_values: Vec<Vec<T>>,
    pub(crate) saved: Vec<Saved<T>>,
    /// For a gradient that is added to one already there.
    added: Vec<T>,
    pub(crate) samples: usize,
    /// The plan of the last step, and of which model it is.
    plan: Option<(u64, Plan)>,
}

impl<T> Default for Tape<T> {
    fn default() -> Self {
        Tape {
            values: Vec::new(),
            d_values: Vec::new(),
            saved: Vec::new(),
            added: Vec::new(),
            samples: 0,
            plan: None,
        }
    }
}

impl<T> Tape<T> {
    fn value<'a>(&'a self, value: Value, input: &'a [T]) -> &'a [T] {
        match value {
            Value::Input => input,
            Value::Of(layer) => &self.values[layer],
        }
    }

    /// Memory for that many layers.
    fn prepare(&mut self, layers: usize)
    where
        T: Scalar,
    {
        self.values.resize_with(layers, Vec::new);
        self.d_values.resize_with(layers, Vec::new);
        self.saved.resize_with(layers, Saved::default);
    }

    /// Takes the gradient's memory of a value out, so that others can be read beside it.
    fn take_d(&mut self, onto: Option<Onto>) -> Vec<T> {
        match onto {
            Some(Onto {
                value: Value::Of(layer),
                ..
            }) => std::mem::take(&mut self.d_values[layer]),
            _ => Vec::new(),
        }
    }

    fn give_d(&mut self, onto: Option<Onto>, d: Vec<T>) {
        if let Some(Onto {
            value: Value::Of(layer),
            ..
        }) = onto
        {
            self.d_values[layer] = d;
        }
    }
}

/// Whether a pass computes layers together.
fn fuses<T: Scalar>(pass: &Pass) -> bool {
    pass.kernels == Kernels::Fast && T::f32s(&[]).is_some()
}

/// What a step of backward is given, beside its place in the plan.
struct Given<'a, T> {
    params: &'a [T],
    input: Input<'a, T>,
    pass: &'a Pass,
    d_y: &'a [T],
}

/// Where a backward pass leaves its gradients.
struct Wanted<'a, T> {
    params: Option<&'a mut [T]>,
    input: Option<&'a mut [T]>,
    /// Of the edges' weights and features.
    edges: [Option<&'a mut [T]>; 2],
}

impl<'a, T: Scalar> Wanted<'a, T> {
    /// The input's gradient cut as a batch of graphs cuts its values: node features, then a weight
    /// per edge, then the edges' features.
    fn new(grads: Grads<'a, T>, input: &Input<'_, T>) -> Self {
        let Grads {
            params,
            input: d_input,
            ..
        } = grads;
        let Some(batch) = input.batch else {
            let edges = [None, None];
            return Wanted {
                params,
                input: d_input,
                edges,
            };
        };
        let Some(d) = d_input else {
            let edges = [None, None];
            return Wanted {
                params,
                input: None,
                edges,
            };
        };
        let (features, rest) = d.split_at_mut(batch.feature_values());
        let weights = batch.edge_features_start() - batch.feature_values();
        let (weights, edge_features) = rest.split_at_mut(weights);
        let edges = [weights, edge_features].map(|d| (!d.is_empty()).then_some(d));
        Wanted {
            params,
            input: Some(features),
            edges,
        }
    }
}

impl Layers<'_> {
    /// Computes the output and leaves it, with what backward needs, on the tape.
    pub fn forward<T: Scalar>(
        &self,
        params: &[T],
        input: Input<'_, T>,
        pass: &Pass,
        tape: &mut Tape<T>,
    ) {
        tape.samples = input.samples;
        tape.prepare(self.places.len());
        // Backward will ask for the parameters' gradient, mostly.
        let plan = self.plan_for_forward(tape, fuses::<T>(pass));
        for step in &plan.forward {
            self.compute(step, params, input, pass, tape);
        }
        tape.plan = Some((self.id, plan));
    }

    /// The output of the last forward.
    pub fn output<'t, T>(&self, tape: &'t Tape<T>) -> &'t [T] {
        self.layer_output(self.places.len() - 1, tape)
    }

    /// A layer's output of the last forward; nothing where that is the input under another shape.
    pub fn layer_output<'t, T>(&self, layer: usize, tape: &'t Tape<T>) -> &'t [T] {
        match stored(self.places, Value::Of(layer)) {
            Value::Of(layer) => tape.values.get(layer).map_or(&[], |v| &v[..]),
            Value::Input => &[],
        }
    }

    /// What a layer read in the last forward.
    pub fn layer_input<'a, T>(&self, layer: usize, input: &'a [T], tape: &'a Tape<T>) -> &'a [T] {
        tape.value(stored(self.places, before(layer)), input)
    }

    /// The gradients, given the gradient of the output.
    pub fn backward<T: Scalar>(
        &self,
        params: &[T],
        input: Input<'_, T>,
        pass: &Pass,
        tape: &mut Tape<T>,
        d_output: &[T],
        mut grads: Grads<'_, T>,
    ) {
        assert!(
            !grads.accumulate || pass.segments.is_none(),
            "the gradient of several segments is overwritten"
        );
        if let Some(d_params) = grads.params.as_deref_mut()
            && !grads.accumulate
        {
            zero(d_params, self.layout);
        }
        if let Some(d_input) = grads.input.as_deref_mut() {
            d_input.fill(T::ZERO);
        }
        let request = Request {
            params: grads.params.is_some(),
            input: grads.input.is_some(),
            fuse: fuses::<T>(pass),
        };
        let plan = self.plan_of(tape, request);
        let mut wanted = Wanted::new(grads, &input);
        let mut params = Params::Read(params);
        self.derive_all(&plan, &mut params, input, pass, tape, d_output, &mut wanted);
        tape.plan = Some((self.id, plan));
    }

    /// The parameters' gradient, with word of what is complete; see
    /// [`Model::compute_backward_reporting`](crate::Model::compute_backward_reporting).
    pub fn backward_reporting<T: Scalar>(
        &self,
        mut params: Reported<'_, T>,
        input: Input<'_, T>,
        pass: &Pass,
        tape: &mut Tape<T>,
        d_output: &[T],
        d_params: &mut [T],
    ) {
        zero(d_params, self.layout);
        let request = Request {
            params: true,
            input: false,
            fuse: fuses::<T>(pass),
        };
        let plan = self.plan_of(tape, request);
        // What backward has no gradient for (frozen, or not read by anything) stays zero.
        let done = |range: &Range<usize>| {
            let mut steps = plan.backward.iter();
            steps.any(|step| step.complete.contains(range))
        };
        for tensor in self.layout.tensors() {
            let range = tensor.range();
            if !done(&range) {
                params.complete(range, d_params);
            }
        }
        let mut params = Params::Reported(params);
        let mut wanted = Wanted::new(Grads::params(d_params), &input);
        self.derive_all(&plan, &mut params, input, pass, tape, d_output, &mut wanted);
        tape.plan = Some((self.id, plan));
    }

    /// Appends what decides which smooth piece of a layer's function the last forward was on.
    pub fn pattern<T: Scalar>(
        &self,
        layer: usize,
        input: Input<'_, T>,
        tape: &Tape<T>,
        pattern: &mut Vec<u32>,
    ) {
        let place = &self.places[layer];
        if place.layer.is_view() {
            return;
        }
        let mut x = stored(self.places, before(layer));
        let around = self.around(x, input);
        if let Value::Of(l) = x
            && tape.values[l].is_empty()
        {
            // In one pass with this ReLU, whose output is positive where its input is.
            x = Value::Of(layer);
        }
        let seen = Seen {
            x: tape.value(x, input.values),
            saved: &tape.saved[layer],
            around,
        };
        T::layer(&*place.layer).pattern(seen, pattern);
    }

    /// The tape's plan, made anew where another one is asked for.
    fn plan_of<T>(&self, tape: &mut Tape<T>, request: Request) -> Plan {
        match tape.plan.take() {
            Some((id, plan)) if id == self.id && plan.fits(self.layout, request) => plan,
            _ => Plan::new(self.places, self.layout, request),
        }
    }

    /// Any plan of this model does for a forward, as long as it computes the same layers together; a
    /// training step will ask for the parameters' gradient.
    fn plan_for_forward<T>(&self, tape: &mut Tape<T>, fuse: bool) -> Plan {
        match tape.plan.take() {
            Some((id, plan)) if id == self.id && plan.request.fuse == fuse => plan,
            _ => {
                let request = Request {
                    params: true,
                    input: false,
                    fuse,
                };
                Plan::new(self.places, self.layout, request)
            }
        }
    }

    /// What is around a value that a layer reads. A value is sparse as long as nothing but layers
    /// that keep the places of its non-zeros stands before it.
    fn around<'a, T: Scalar>(&self, x: Value, input: Input<'a, T>) -> Around<'a, T> {
        let sparse = input.sparse().filter(|_| match x {
            Value::Input => true,
            Value::Of(layer) => {
                let mut up_to = self.places[..=layer].iter();
                up_to.all(|place| place.layer.keeps_sparse())
            }
        });
        Around {
            batch: input.batch,
            sparse,
        }
    }

    fn compute<T: Scalar>(
        &self,
        step: &Compute,
        params: &[T],
        input: Input<'_, T>,
        pass: &Pass,
        tape: &mut Tape<T>,
    ) {
        let place = &self.places[step.layer];
        if step.relu {
            tape.values[step.layer].clear();
        }
        // Taken out, so that the values before it can be read meanwhile.
        let mut y = std::mem::take(&mut tape.values[step.y]);
        let mut saved = std::mem::take(&mut tape.saved[step.layer]);
        let x = tape.value(step.x, input.values);
        let around = self.around(step.x, input);
        let len = match around.sparse {
            Some(_) if place.layer.keeps_sparse() => x.len(),
            _ => input.rows(place.rows) * place.shape.iter().product::<usize>(),
        };
        T::layer(&*place.layer).forward(Forward {
            params: self.params_of(step.layer, params),
            x,
            other: step
                .other
                .map_or(&[], |other| tape.value(other, input.values)),
            y: sized(&mut y, len),
            samples: input.rows(place.reads),
            saved: &mut saved,
            pass,
            around,
            relu: step.relu,
        });
        T::keep(&mut y);
        tape.saved[step.layer] = saved;
        tape.values[step.y] = y;
    }

    /// The steps of backward, with word of what is complete after each.
    fn derive_all<T: Scalar>(
        &self,
        plan: &Plan,
        params: &mut Params<'_, T>,
        input: Input<'_, T>,
        pass: &Pass,
        tape: &mut Tape<T>,
        d_output: &[T],
        wanted: &mut Wanted<'_, T>,
    ) {
        for step in &plan.backward {
            let kept = std::mem::take(&mut tape.d_values[step.y]);
            let given = Given {
                params: params.read(),
                input,
                pass,
                d_y: match step.y == plan.output {
                    true => d_output,
                    false => &kept,
                },
            };
            if step.stack.is_empty() {
                self.derive(step, &given, tape, wanted);
            } else if let Some(d_params) = wanted.params.as_deref_mut() {
                self.derive_stack(step, &given, tape, d_params);
            }
            tape.d_values[step.y] = kept;
            if let Some(d_params) = wanted.params.as_deref_mut() {
                params.complete(&step.complete, d_params);
            }
        }
    }

    fn derive<T: Scalar>(
        &self,
        step: &Derive,
        given: &Given<'_, T>,
        tape: &mut Tape<T>,
        wanted: &mut Wanted<'_, T>,
    ) {
        let place = &self.places[step.layer];
        let layer = T::layer(&*place.layer);
        let mut saved = std::mem::take(&mut tape.saved[step.layer]);
        let mut added = std::mem::take(&mut tape.added);
        let (mut d_x, mut d_other) = (tape.take_d(step.d_x), tape.take_d(step.d_other));
        let input = given.input;
        let x = tape.value(step.x, input.values);
        let other = step.other.map_or(&[][..], |v| tape.value(v, input.values));
        let adds = [step.d_x, step.d_other].map(|d| d.is_some_and(|d| d.adds));
        // A layer that can't add to a gradient writes beside it.
        let beside = adds[0] && !layer.adds();
        {
            let to_input = |d: Option<Onto>| d.is_some_and(|d| d.value == Value::Input);
            let (first, second) = match to_input(step.d_x) {
                true => (wanted.input.as_deref_mut(), None),
                false => (None, wanted.input.as_deref_mut()),
            };
            let d_x = match step.d_x {
                None => None,
                Some(_) if beside => Some(sized(&mut added, x.len())),
                Some(onto) if onto.value == Value::Input => first,
                Some(_) => Some(sized(&mut d_x, x.len())),
            };
            let d_other = match step.d_other {
                None => None,
                Some(onto) if onto.value == Value::Input => second,
                Some(_) => Some(sized(&mut d_other, other.len())),
            };
            let [d_weights, d_features] = &mut wanted.edges;
            let d_params = wanted.params.as_deref_mut().filter(|_| step.params);
            layer.backward(Backward {
                params: self.params_of(step.layer, given.params),
                x,
                other,
                y: &tape.values[step.y],
                d_y: given.d_y,
                samples: input.rows(place.reads),
                saved: &mut saved,
                pass: given.pass,
                around: self.around(step.x, input),
                d_edges: [d_weights.as_deref_mut(), d_features.as_deref_mut()],
                d_params: self.d_params_of(step.layer, d_params),
                d_x,
                d_other,
                adds: [adds[0] && !beside, adds[1]],
                relu: step.relu,
            });
        }
        if beside {
            match step.d_x.map(|d| d.value) {
                Some(Value::Of(_)) => add(&mut d_x, &added),
                _ => add(wanted.input.as_deref_mut().expect("wanted"), &added),
            }
        }
        for (onto, d) in [(step.d_x, &mut d_x), (step.d_other, &mut d_other)] {
            match (onto.map(|onto| onto.value), wanted.input.as_deref_mut()) {
                (Some(Value::Input), Some(d)) => T::keep_gradient(d),
                _ => T::keep_gradient(d),
            }
        }
        tape.give_d(step.d_x, d_x);
        tape.give_d(step.d_other, d_other);
        tape.saved[step.layer] = saved;
        tape.added = added;
    }

    /// The gradients of a stack's weights, added to what is there.
    fn derive_stack<T: Scalar>(
        &self,
        step: &Derive,
        given: &Given<'_, T>,
        tape: &mut Tape<T>,
        d_params: &mut [T],
    ) {
        let convs = &step.stack;
        let mut saved = std::mem::take(&mut tape.saved[step.layer]);
        let f32s = |x| T::f32s(x).expect("the fast kernels are those of f32");
        let shape_of = |layer: usize| {
            let conv = self.places[layer].layer.downcast::<Conv2d>();
            correlation(conv.expect("a stack is made of convolutions"), tape.samples)
        };
        let layers: [stack::Layer<'_>; stack::MAX] = std::array::from_fn(|l| {
            let layer = convs[l.min(convs.len() - 1)];
            let before = stored(self.places, before(layer));
            stack::Layer {
                shape: shape_of(layer),
                weight: f32s(self.params_of(layer, given.params)[0]),
                x: f32s(tape.value(before, given.input.values)),
            }
        });
        let d_y = tile::Source {
            values: f32s(given.d_y),
            relu: step.relu.then(|| f32s(&tape.values[step.y])),
        };
        let sums = T::f32_vec(&mut saved.scratch).expect("the fast kernels are those of f32");
        stack::backward(&layers[..convs.len()], d_y, sums);
        let mut rest = &sums[..];
        for &layer in convs {
            let mut own = self.d_params_of(layer, Some(&mut *d_params)).into_iter();
            let mut next = || own.next().flatten().and_then(T::f32s_mut);
            let (d_weight, d_bias) = (next(), next());
            rest = stack::add_sums(&shape_of(layer), rest, d_weight, d_bias);
        }
        tape.saved[step.layer] = saved;
    }
}

/// The parameters in backward: read alone, or with somebody who wants to know what is complete.
enum Params<'a, T> {
    Read(&'a [T]),
    Reported(Reported<'a, T>),
}

impl<T> Params<'_, T> {
    fn read(&self) -> &[T] {
        match self {
            Params::Read(params) => params,
            Params::Reported(params) => params.params(),
        }
    }

    fn complete(&mut self, ranges: &[Range<usize>], d_params: &mut [T]) {
        let Params::Reported(params) = self else {
            return;
        };
        // Neighbours together: a penalty couples the tensors of a layer.
        let mut ranges = ranges.iter().cloned().peekable();
        while let Some(mut range) = ranges.next() {
            while let Some(next) = ranges.next_if(|next| next.start == range.end) {
                range.end = next.end;
            }
            params.complete(range, d_params);
        }
    }
}
