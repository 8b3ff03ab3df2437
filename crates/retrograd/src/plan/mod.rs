//! From a list of layers to what is computed: in which order, into which buffer, what is wanted,
//! first written or added to, fused, and when a tensor's gradient is complete.
//!
//! A plan is data. It is made once for a model and a kind of step, can be printed (`retrograd train
//! … --show-plan`), and is executed by the CPU and recorded by the GPU; neither decides anything of
//! this by itself. It follows from three rules:
//!
//! - A layer's backward runs where something that is asked for depends on its output, and after all
//!   that read the output.
//! - The gradient of a value is written by the first that reads it, in the order of backward, and
//!   added to by the others.
//! - A tensor belongs to one layer, and only that layer's backward reads it (d_x needs W). So its
//!   gradient is complete, and the tensor may change, after that layer's last step of backward.
//!
//! Two fusions of the fast kernels are decided here: a layer and the ReLU after it in one pass, and
//! the backward pass of a stack of convolutions [over tiles](crate::layer::conv2d::stack).

mod execute;
mod layers;
mod print;
#[cfg(test)]
mod tests;

use std::ops::Range;

pub use execute::Tape;
#[cfg(feature = "gpu")]
pub(crate) use layers::Grids;
pub(crate) use layers::{Input, Layers, new_id, set_buffer, wrap_layer};

use crate::Layout;
use crate::layer::conv2d::Conv2d;
use crate::layer::conv2d::cpu::correlation;
use crate::layer::conv2d::stack;
use crate::layer::{AnyLayer, TENSORS};
use crate::network::PaddingMode;

/// The output of a layer, or the model's input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Value {
    Input,
    Of(usize),
}

/// What a value has a row for: the samples of a network's batch, or in a graph network one of the
/// others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RowsOf {
    Samples,
    Nodes,
    Graphs,
    Pairs,
}

impl RowsOf {
    pub fn name(self) -> &'static str {
        match self {
            RowsOf::Samples => "sample",
            RowsOf::Nodes => "node",
            RowsOf::Graphs => "graph",
            RowsOf::Pairs => "pair",
        }
    }
}

/// A layer at its place in a model.
pub(crate) struct Place {
    pub layer: Box<dyn AnyLayer>,
    /// Its name in files.
    pub kind: &'static str,
    /// The earlier value that a skip reads beside the one before it.
    pub with: Option<Value>,
    /// What it reads a row for, and writes one for.
    pub reads: RowsOf,
    pub rows: RowsOf,
    /// The shape of one sample, or of one row, of its output.
    pub shape: Vec<usize>,
    /// Where its tensors are in the flat vector, by slot.
    pub tensors: [Range<usize>; TENSORS],
}

/// What a step asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Request {
    /// The gradient of the parameters.
    pub params: bool,
    /// The gradient of the input.
    pub input: bool,
    /// Whether the fast kernels run, which compute some layers together.
    pub fuse: bool,
}

/// A layer's forward.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Compute {
    pub layer: usize,
    pub x: Value,
    pub other: Option<Value>,
    /// The buffer of its output: its own, or that of the ReLU that it does too.
    pub y: usize,
    pub relu: bool,
}

/// Where a gradient goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Onto {
    pub value: Value,
    /// Added to what is there, or the first to be written.
    pub adds: bool,
}

/// A layer's backward, or that of several layers at once.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Derive {
    /// The layer; the last one of a stack.
    pub layer: usize,
    /// The stack's layers, where it is one: their tensors' gradients and nothing else.
    pub stack: Vec<usize>,
    pub x: Value,
    pub other: Option<Value>,
    /// The buffers of y and d_y.
    pub y: usize,
    pub relu: bool,
    /// Whether the gradients of its tensors are wanted of this step.
    pub params: bool,
    pub d_x: Option<Onto>,
    pub d_other: Option<Onto>,
    /// What is complete after this step: ranges of the flat vector that are trained.
    pub complete: Vec<Range<usize>>,
}

/// Forward and backward of one kind of step.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Plan {
    pub request: Request,
    pub forward: Vec<Compute>,
    pub backward: Vec<Derive>,
    /// The buffer of the output, whose gradient backward is given.
    pub output: usize,
    /// The tensors that were frozen when it was made.
    frozen: Vec<bool>,
}

/// The value before a layer.
pub(crate) fn before(layer: usize) -> Value {
    layer.checked_sub(1).map_or(Value::Input, Value::Of)
}

/// The value whose buffer a view shares.
pub(crate) fn stored(places: &[Place], value: Value) -> Value {
    match value {
        Value::Of(layer) if places[layer].layer.is_view() => stored(places, before(layer)),
        other => other,
    }
}

/// The trained ranges of a layer's tensors.
pub(crate) fn trained<'a>(
    place: &'a Place,
    layout: &'a Layout,
) -> impl Iterator<Item = Range<usize>> + 'a {
    let ranges = place.tensors.iter().filter(|r| !r.is_empty()).cloned();
    ranges.filter(|r| !layout.is_frozen(r.clone()))
}

impl Plan {
    pub fn new(places: &[Place], layout: &Layout, request: Request) -> Self {
        let fusions = Fusions::find(places, request.fuse);
        let output = match stored(places, Value::Of(places.len() - 1)) {
            Value::Of(layer) => layer,
            Value::Input => unreachable!("a model of nothing but views is refused when built"),
        };
        let mut plan = Plan {
            request,
            forward: forward(places, &fusions),
            backward: Vec::new(),
            output,
            frozen: layout.tensors().iter().map(|t| t.frozen).collect(),
        };
        Walk::new(places, layout, request, &fusions).run(&mut plan);
        plan
    }

    /// Whether it is still the plan for a request.
    pub fn fits(&self, layout: &Layout, request: Request) -> bool {
        let frozen = layout.tensors().iter().map(|t| t.frozen);
        self.request == request && frozen.eq(self.frozen.iter().copied())
    }
}

/// What is computed together.
pub(crate) struct Fusions {
    /// Whether a layer and the ReLU after it are one pass.
    relu_after: Vec<bool>,
    /// The convolutions from the input on whose backward pass is one; none, or at least two.
    stack: Vec<usize>,
}

impl Fusions {
    fn find(places: &[Place], fuse: bool) -> Self {
        let relu_after: Vec<bool> = (0..places.len())
            .map(|layer| {
                let next = places.get(layer + 1);
                fuse && places[layer].layer.takes_relu()
                    && next.is_some_and(|next| next.layer.is_relu())
                    && !is_skipped_from(places, layer)
            })
            .collect();
        let stack = match fuse {
            true => find_stack(places, &relu_after),
            false => Vec::new(),
        };
        Fusions { relu_after, stack }
    }

    /// Whether the layer is done by the one before it.
    fn is_done_before(&self, layer: usize) -> bool {
        layer > 0 && self.relu_after[layer - 1]
    }
}

/// Whether a skip further on reads this layer's output besides the next.
fn is_skipped_from(places: &[Place], layer: usize) -> bool {
    let value = Value::Of(layer);
    let mut skips = places.iter().filter_map(|place| place.with);
    skips.any(|with| stored(places, with) == value)
}

/// Convolutions of stride 1 that keep the size, from the input on, a ReLU after each but the last
/// and nobody else reading what is between; none where fusing them doesn't pay.
fn find_stack(places: &[Place], relu_after: &[bool]) -> Vec<usize> {
    let (mut found, mut shapes) = (Vec::new(), Vec::new());
    let mut layer = 0;
    while let Some(conv) = places.get(layer).and_then(|p| p.layer.downcast::<Conv2d>())
        && (conv.stride, conv.groups) == (1, 1)
        && conv.padding_mode == PaddingMode::Zeros
        && 2 * conv.padding == conv.dilation * (conv.kernel - 1)
    {
        found.push(layer);
        shapes.push(correlation(conv, 1));
        if !relu_after[layer] || is_skipped_from(places, layer + 1) {
            break;
        }
        layer += 2;
    }
    let pays = (2..=stack::MAX).contains(&found.len()) && stack::pays(&shapes);
    if pays { found } else { Vec::new() }
}

fn forward(places: &[Place], fusions: &Fusions) -> Vec<Compute> {
    let computed =
        |&layer: &usize| !places[layer].layer.is_view() && !fusions.is_done_before(layer);
    let compute = |layer: usize| Compute {
        layer,
        x: stored(places, before(layer)),
        other: places[layer].with.map(|with| stored(places, with)),
        y: layer + usize::from(fusions.relu_after[layer]),
        relu: fusions.relu_after[layer],
    };
    (0..places.len()).filter(computed).map(compute).collect()
}

/// The walk through backward.
struct Walk<'a> {
    places: &'a [Place],
    layout: &'a Layout,
    request: Request,
    fusions: &'a Fusions,
    /// Whether anything that is asked for depends on a layer's output.
    wanted: Vec<bool>,
    /// Whether a value's gradient has its first contribution.
    written: Vec<bool>,
    input_written: bool,
}

impl<'a> Walk<'a> {
    fn new(
        places: &'a [Place],
        layout: &'a Layout,
        request: Request,
        fusions: &'a Fusions,
    ) -> Self {
        let mut walk = Walk {
            places,
            layout,
            request,
            fusions,
            wanted: Vec::new(),
            written: vec![false; places.len()],
            input_written: false,
        };
        for (layer, place) in places.iter().enumerate() {
            let with = place.with.is_some_and(|with| walk.wants(with));
            let own = request.params && trained(place, layout).next().is_some();
            walk.wanted.push(with || walk.wants(before(layer)) || own);
        }
        walk
    }

    fn wants(&self, value: Value) -> bool {
        match value {
            Value::Input => self.request.input,
            Value::Of(layer) => self.wanted[layer],
        }
    }

    /// Where a gradient goes, if it is wanted; from then on there is one.
    fn onto(&mut self, value: Value) -> Option<Onto> {
        if !self.wants(value) {
            return None;
        }
        let written = match value {
            Value::Input => &mut self.input_written,
            Value::Of(layer) => &mut self.written[layer],
        };
        let adds = std::mem::replace(written, true);
        Some(Onto { value, adds })
    }

    fn complete(&self, layers: &[usize]) -> Vec<Range<usize>> {
        let of = |&layer: &usize| trained(&self.places[layer], self.layout);
        layers.iter().flat_map(of).collect()
    }

    fn run(mut self, plan: &mut Plan) {
        self.written[plan.output] = true;
        let stack = &self.fusions.stack;
        // Whether the stack's tensors have their gradients already.
        let mut stack_done = false;
        for layer in (0..self.places.len()).rev() {
            let relu = self.fusions.relu_after[layer];
            let y = layer + usize::from(relu);
            let is_view = self.places[layer].layer.is_view();
            if is_view || self.fusions.is_done_before(layer) {
                continue;
            }
            if !self.wanted[layer] || !self.written[y] {
                // Nothing asked for depends on it, or nothing after it reads it.
                continue;
            }
            let mut step = Derive {
                layer,
                stack: Vec::new(),
                x: stored(self.places, before(layer)),
                other: self.places[layer]
                    .with
                    .map(|with| stored(self.places, with)),
                y,
                relu,
                params: self.request.params && !stack_done,
                d_x: None,
                d_other: None,
                complete: Vec::new(),
            };
            if stack.last() == Some(&layer) && step.params && !self.complete(stack).is_empty() {
                stack_done = true;
                step.params = false;
                let mut whole = Derive {
                    stack: stack.clone(),
                    ..step.clone()
                };
                if !self.request.input {
                    // It begins at the input: nothing is left to do.
                    whole.complete = self.complete(stack);
                    plan.backward.push(whole);
                    break;
                }
                plan.backward.push(whole);
            }
            self.push(plan, step);
        }
    }

    /// A layer's step; two, one after the other, where a skip reads one value twice.
    fn push(&mut self, plan: &mut Plan, mut step: Derive) {
        step.d_x = self.onto(step.x);
        if self.request.params {
            step.complete = self.complete(&[step.layer]);
        }
        match step.other {
            Some(other) if other == step.x => {
                let mut second = step.clone();
                plan.backward.push(step);
                second.d_x = None;
                second.d_other = self.onto(other);
                plan.backward.push(second);
            }
            Some(other) => {
                step.d_other = self.onto(other);
                plan.backward.push(step);
            }
            None => plan.backward.push(step),
        }
    }
}
