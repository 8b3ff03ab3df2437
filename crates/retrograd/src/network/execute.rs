//! The plan executed on the CPU.

use std::ops::Range;

use super::Network;
use crate::layer::conv2d::cpu::correlation;
use crate::layer::conv2d::{Conv2d, stack, tile};
use crate::layer::pieces::add;
use crate::layer::{Backward, Forward, Saved, TENSORS, sized};
use crate::plan::{Compute, Derive, Onto, Plan, Request, Value};
use crate::{Kernels, Pass, Ready, Scalar};

/// What a network's forward leaves for backward.
pub struct NetworkTape<T> {
    /// Every layer's output (empty where it is another name for an earlier one).
    pub(super) values: Vec<Vec<T>>,
    d_values: Vec<Vec<T>>,
    pub(crate) saved: Vec<Saved<T>>,
    /// For a gradient that is added to one already there.
    added: Vec<T>,
    pub(super) samples: usize,
    /// The plan of the last step, and of which network it is.
    plan: Option<(u64, Plan)>,
}

impl<T> Default for NetworkTape<T> {
    fn default() -> Self {
        NetworkTape {
            values: Vec::new(),
            d_values: Vec::new(),
            saved: Vec::new(),
            added: Vec::new(),
            samples: 0,
            plan: None,
        }
    }
}

impl<T: Scalar> NetworkTape<T> {
    pub(super) fn value<'a>(&'a self, value: Value, input: &'a [T]) -> &'a [T] {
        match value {
            Value::Input => input,
            Value::Of(layer) => &self.values[layer],
        }
    }

    /// Memory for that many layers.
    pub(super) fn prepare(&mut self, layers: usize) {
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
pub(super) fn fuses<T: Scalar>(pass: &Pass) -> bool {
    pass.kernels == Kernels::Fast && T::f32s(&[]).is_some()
}

/// What a step of backward is given, beside its place in the plan.
struct Given<'a, T> {
    params: &'a [T],
    input: &'a [T],
    pass: &'a Pass,
    d_y: &'a [T],
}

impl Network {
    /// The tape's plan, made anew where another one is asked for.
    pub(super) fn plan_of<T: Scalar>(&self, tape: &mut NetworkTape<T>, request: Request) -> Plan {
        match tape.plan.take() {
            Some((id, plan)) if id == self.id && plan.fits(&self.layout, request) => plan,
            _ => Plan::new(&self.places, &self.layout, request),
        }
    }

    /// Any plan of this network does for a forward, as long as it computes the same layers
    /// together; a training step will ask for the parameters' gradient.
    pub(super) fn plan_for_forward<T: Scalar>(
        &self,
        tape: &mut NetworkTape<T>,
        fuse: bool,
    ) -> Plan {
        match tape.plan.take() {
            Some((id, plan)) if id == self.id && plan.request.fuse == fuse => plan,
            _ => {
                let request = Request {
                    params: true,
                    input: false,
                    fuse,
                };
                Plan::new(&self.places, &self.layout, request)
            }
        }
    }

    pub(super) fn keep_plan<T: Scalar>(&self, tape: &mut NetworkTape<T>, plan: Plan) {
        tape.plan = Some((self.id, plan));
    }

    pub(super) fn compute<T: Scalar>(
        &self,
        step: &Compute,
        params: &[T],
        input: &[T],
        pass: &Pass,
        tape: &mut NetworkTape<T>,
    ) {
        let place = &self.places[step.layer];
        if step.relu {
            tape.values[step.layer].clear();
        }
        let len = tape.samples * place.shape.iter().product::<usize>();
        // Taken out, so that the values before it can be read meanwhile.
        let mut y = std::mem::take(&mut tape.values[step.y]);
        let mut saved = std::mem::take(&mut tape.saved[step.layer]);
        T::layer(&*place.layer).forward(Forward {
            params: self.params_of(step.layer, params),
            x: tape.value(step.x, input),
            other: step.other.map_or(&[], |other| tape.value(other, input)),
            y: sized(&mut y, len),
            samples: tape.samples,
            saved: &mut saved,
            pass,
            relu: step.relu,
        });
        tape.saved[step.layer] = saved;
        tape.values[step.y] = y;
    }

    /// The steps of backward; `then` is told what is complete after each.
    pub(super) fn derive_all<T: Scalar>(
        &self,
        plan: &Plan,
        params: &mut Params<'_, T>,
        input: &[T],
        pass: &Pass,
        tape: &mut NetworkTape<T>,
        d_output: &[T],
        d_params: &mut Option<&mut [T]>,
        mut d_input: Option<&mut [T]>,
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
                let d_params = d_params.as_deref_mut().filter(|_| step.params);
                self.derive(step, &given, tape, d_params, d_input.as_deref_mut());
            } else if let Some(d_params) = d_params.as_deref_mut() {
                self.derive_stack(step, &given, tape, d_params);
            }
            tape.d_values[step.y] = kept;
            if let Some(d_params) = d_params.as_deref_mut() {
                params.complete(&step.complete, d_params);
            }
        }
    }

    fn derive<T: Scalar>(
        &self,
        step: &Derive,
        given: &Given<'_, T>,
        tape: &mut NetworkTape<T>,
        d_params: Option<&mut [T]>,
        mut d_input: Option<&mut [T]>,
    ) {
        let layer = T::layer(&*self.places[step.layer].layer);
        let mut saved = std::mem::take(&mut tape.saved[step.layer]);
        let mut added = std::mem::take(&mut tape.added);
        let (mut d_x, mut d_other) = (tape.take_d(step.d_x), tape.take_d(step.d_other));
        let x = tape.value(step.x, given.input);
        let other = step.other.map_or(&[][..], |v| tape.value(v, given.input));
        let adds = [step.d_x, step.d_other].map(|d| d.is_some_and(|d| d.adds));
        // A layer that can't add to a gradient writes beside it.
        let beside = adds[0] && !layer.adds();
        {
            let to_input = |d: Option<Onto>| d.is_some_and(|d| d.value == Value::Input);
            let (first, second) = match to_input(step.d_x) {
                true => (d_input.as_deref_mut(), None),
                false => (None, d_input.as_deref_mut()),
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
            layer.backward(Backward {
                params: self.params_of(step.layer, given.params),
                x,
                other,
                y: &tape.values[step.y],
                d_y: given.d_y,
                samples: tape.samples,
                saved: &mut saved,
                pass: given.pass,
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
                _ => add(d_input.expect("wanted"), &added),
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
        tape: &mut NetworkTape<T>,
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
            let before = crate::plan::stored(&self.places, crate::plan::before(layer));
            stack::Layer {
                shape: shape_of(layer),
                weight: f32s(self.params_of(layer, given.params)[0]),
                x: f32s(tape.value(before, given.input)),
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

    pub(super) fn params_of<'a, T>(&self, layer: usize, params: &'a [T]) -> [&'a [T]; TENSORS] {
        std::array::from_fn(|slot| &params[self.places[layer].tensors[slot].clone()])
    }

    /// The gradients of a layer's trained tensors; frozen and absent ones are `None`.
    pub(super) fn d_params_of<'a, T>(
        &self,
        layer: usize,
        mut d_params: Option<&'a mut [T]>,
    ) -> [Option<&'a mut [T]>; TENSORS] {
        // The tensors of a layer follow one another: split off one at a time.
        let mut taken = 0;
        std::array::from_fn(|slot| {
            let range = self.places[layer].tensors[slot].clone();
            if range.is_empty() {
                return None;
            }
            let rest = d_params.take()?.split_at_mut(range.start - taken).1;
            let (own, rest) = rest.split_at_mut(range.len());
            taken = range.end;
            d_params = Some(rest);
            (!self.layout.is_frozen(range)).then_some(own)
        })
    }
}

/// The parameters in backward: read alone, or changed once their gradient is complete.
pub(super) enum Params<'a, T> {
    Read(&'a [T]),
    Updated(&'a mut [T], Ready<'a, T>),
}

impl<T> Params<'_, T> {
    fn read(&self) -> &[T] {
        match self {
            Params::Read(params) => params,
            Params::Updated(params, _) => params,
        }
    }

    pub(super) fn complete(&mut self, ranges: &[Range<usize>], d_params: &mut [T]) {
        if let Params::Updated(params, then) = self {
            // Neighbours together: a penalty couples the tensors of a layer.
            let mut ranges = ranges.iter().cloned().peekable();
            while let Some(mut range) = ranges.next() {
                while let Some(next) = ranges.next_if(|next| next.start == range.end) {
                    range.end = next.end;
                }
                then(range, params, d_params);
            }
        }
    }
}
