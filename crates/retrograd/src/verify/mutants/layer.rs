//! Faults of one layer, from outside: a wrong layer wraps the right one, calls its functions with
//! something wrong, or does something wrong with what they leave.
//!
//! [`FaultKind`]s apply to any layer. A layer kind adds its own in `faults.rs` of its folder: a type
//! that is a [`Fault`], as a [`Mutation`].

use std::any::Any;

use super::transform::Transform;
use crate::layer::{
    AnyLayer, Backward, Describe, Forward, Layer, Saved, Seen, TENSORS, TensorSpec,
};
use crate::rng::Stream;
use crate::verify::{Dual, Rounded};
use crate::{Buffer, Layout, Result, Scalar};

/// Something wrong with a layer, in one scalar.
pub(crate) trait Fault<T: Scalar>: Send + Sync {
    /// The layer's forward, right unless said otherwise.
    fn forward(&self, inner: &dyn Layer<T>, io: Forward<'_, T>, seat: &Seat) {
        let _ = seat;
        inner.forward(io);
    }

    /// The layer's backward.
    fn backward(&self, inner: &dyn Layer<T>, io: Backward<'_, T>, seat: &Seat);
}

/// The right layer, and the shapes around it.
pub(crate) struct Seat {
    inner: Box<dyn AnyLayer>,
    /// Of one sample of x and of y.
    pub shapes: [Vec<usize>; 2],
}

impl Seat {
    /// The right layer, where it is of that kind.
    pub fn layer<L: Any>(&self) -> Option<&L> {
        self.inner.downcast()
    }
}

/// A fault that can be put into a layer.
pub(crate) struct Mutation {
    pub words: String,
    /// Whether it spoils a training, too, whatever it trains on.
    pub spoils_training: bool,
    wrap: Box<dyn Fn(Seat, bool) -> Box<dyn AnyLayer>>,
}

impl Mutation {
    pub fn new<F>(words: impl Into<String>, fault: F) -> Self
    where
        F: Fault<f32> + Fault<f64> + Fault<Rounded> + Fault<Dual> + Clone + 'static,
    {
        let wrap = move |seat, only_f32| -> Box<dyn AnyLayer> {
            let fault = fault.clone();
            Box::new(Wrong {
                seat,
                fault,
                only_f32,
            })
        };
        Mutation {
            words: words.into(),
            spoils_training: true,
            wrap: Box::new(wrap),
        }
    }

    /// One that is for the verifier's small models: what is trained may not notice it.
    pub fn in_small_models(self) -> Self {
        Mutation {
            spoils_training: false,
            ..self
        }
    }

    /// The layer with the fault; in f32 alone, in the kernel and not in the reference, where asked.
    pub fn wrap(
        &self,
        inner: Box<dyn AnyLayer>,
        shapes: [Vec<usize>; 2],
        only_f32: bool,
    ) -> Box<dyn AnyLayer> {
        (self.wrap)(Seat { inner, shapes }, only_f32)
    }
}

/// A layer with a fault. Nothing is fused with it, and it is no view.
struct Wrong<F> {
    seat: Seat,
    fault: F,
    only_f32: bool,
}

impl<F> Wrong<F> {
    fn is_wrong<T: Scalar>(&self) -> bool {
        !self.only_f32 || T::NAME == f32::NAME
    }
}

impl<F> Describe for Wrong<F> {
    fn tensors(&self) -> Vec<Option<TensorSpec>> {
        self.seat.inner.tensors()
    }
    fn init(&self, slot: usize, len: usize, stream: &mut Stream) -> Vec<f32> {
        self.seat.inner.init(slot, len, stream)
    }
    fn buffers(&self) -> Vec<Buffer> {
        self.seat.inner.buffers()
    }
    fn set_buffer(&mut self, name: &str, buffer: &Buffer) -> Result<bool> {
        self.seat.inner.set_buffer(name, buffer)
    }
    fn absorb(&mut self, saved: &Saved<f32>, samples: usize) {
        self.seat.inner.absorb(saved, samples);
    }
    fn inner(&self) -> Option<&dyn AnyLayer> {
        Some(&*self.seat.inner)
    }
    fn reads_sparse(&self) -> bool {
        self.seat.inner.reads_sparse()
    }
    fn keeps_sparse(&self) -> bool {
        self.seat.inner.keeps_sparse()
    }
}

impl<T: Scalar, F: Fault<T>> Layer<T> for Wrong<F> {
    fn forward(&self, io: Forward<'_, T>) {
        let inner = T::layer(&*self.seat.inner);
        match self.is_wrong::<T>() {
            true => self.fault.forward(inner, io, &self.seat),
            false => inner.forward(io),
        }
    }

    fn backward(&self, io: Backward<'_, T>) {
        let inner = T::layer(&*self.seat.inner);
        match self.is_wrong::<T>() {
            true => self.fault.backward(inner, io, &self.seat),
            false => inner.backward(io),
        }
    }

    fn pattern(&self, seen: Seen<'_, T>, pattern: &mut Vec<u32>) {
        T::layer(&*self.seat.inner).pattern(seen, pattern);
    }
}

/// What backward was given, for a fault that computes d_x by itself.
pub(crate) struct Shown<'a, T> {
    pub params: [&'a [T]; TENSORS],
    pub x: &'a [T],
    pub y: &'a [T],
    pub d_y: &'a [T],
}

/// The layer's own backward, then the fault on d_x.
pub(crate) fn then_d_x<T: Scalar>(
    inner: &dyn Layer<T>,
    io: Backward<'_, T>,
    wrong: impl FnOnce(Shown<'_, T>, &mut [T]),
) {
    let shown = Shown {
        params: io.params,
        x: io.x,
        y: io.y,
        d_y: io.d_y,
    };
    let Some(d_x) = io.d_x else {
        return inner.backward(io);
    };
    inner.backward(Backward {
        d_x: Some(&mut *d_x),
        ..io
    });
    wrong(shown, d_x);
}

/// What can be wrong with any layer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum FaultKind {
    /// d_x, after it was computed.
    DX(Transform),
    /// d_y, before anything was computed from it.
    DY(Transform),
    /// The x that backward sees: another batch's, a stale tape.
    X(Transform),
    /// The gradient of the tensor in that slot.
    DParam(usize, Transform),
    /// The tensor in that slot, as backward sees it.
    Param(usize, Transform),
    /// The same in forward and backward alike, its gradient mapped back: another convention that
    /// is right in itself. Only an independent oracle sees it.
    Convention(usize, Transform),
    /// Forward's output.
    Y(Transform),
    /// d_x = d_y: the derivative is missing.
    NoDerivative,
    /// A skip that drops the gradient of a branch: 0 the layer before, 1 the earlier one.
    DropBranch(usize),
    /// A skip whose branches are cut from the wrong ends.
    SwapBranches,
}

impl FaultKind {
    pub fn words(self) -> String {
        let tensor = |slot: usize| match slot {
            0 => "first",
            1 => "second",
            2 => "third",
            _ => "later",
        };
        match self {
            FaultKind::DX(t) => format!("d_x {}", t.words()),
            FaultKind::DY(t) => format!("d_y {}", t.words()),
            FaultKind::X(t) => format!("stale x: {}", t.words()),
            FaultKind::DParam(s, t) => format!("d of its {} tensor {}", tensor(s), t.words()),
            FaultKind::Param(s, t) => format!("{} tensor in backward {}", tensor(s), t.words()),
            FaultKind::Convention(s, t) => format!("{} tensor everywhere {}", tensor(s), t.words()),
            FaultKind::Y(t) => format!("output {}", t.words()),
            FaultKind::NoDerivative => "derivative missing".into(),
            FaultKind::DropBranch(b) => format!("branch {b} gets no gradient"),
            FaultKind::SwapBranches => "branches swapped".into(),
        }
    }
}

impl From<FaultKind> for Mutation {
    fn from(kind: FaultKind) -> Self {
        Mutation::new(kind.words(), kind)
    }
}

/// The faults that any layer can have.
pub(crate) fn general_faults(layer: &dyn AnyLayer, is_skip: bool) -> Vec<Mutation> {
    use FaultKind as F;
    use Transform as T;
    let mut all: Vec<FaultKind> = [
        T::Zero,
        T::Negate,
        T::Scale(1.001),
        T::TimesSamples,
        T::OverSamples,
        T::Shift,
        T::Reverse,
        T::RollSamples,
        T::LastSampleOnly,
        T::SwapLast,
        T::Rotate,
        T::DropHalf,
    ]
    .into_iter()
    .flat_map(|t| [F::DX(t), F::DY(t)])
    .collect();
    all.extend([T::RollSamples, T::Shift, T::Reverse].map(F::X));
    all.extend([T::Shift, T::Scale(1.001)].map(F::Y));
    let tensors = layer.tensors();
    for slot in (0..tensors.len()).filter(|&slot| tensors[slot].is_some()) {
        for t in [
            T::Zero,
            T::Negate,
            T::TimesSamples,
            T::OverSamples,
            T::Shift,
            T::Reverse,
            T::SwapFirst,
            T::SwapLast,
            T::Rotate,
            T::RollLast,
            T::DropFirst,
            T::Scale(1.001),
        ] {
            all.push(F::DParam(slot, t));
        }
        for t in [T::SwapFirst, T::SwapLast, T::Rotate, T::Shift, T::Ones] {
            all.push(F::Param(slot, t));
        }
        for t in [T::Rotate, T::Reverse, T::Negate] {
            all.push(F::Convention(slot, t));
        }
    }
    if is_skip {
        all.extend([F::DropBranch(0), F::DropBranch(1), F::SwapBranches]);
    }
    all.into_iter().map(Mutation::from).collect()
}

/// A tensor as the fault shows it, in its stored order.
fn tensor<T: Scalar>(
    layer: &dyn Layer<T>,
    slot: usize,
    transform: Transform,
    values: &[T],
    samples: usize,
) -> Vec<T> {
    let specs = layer.tensors();
    let Some(Some(spec)) = specs.get(slot) else {
        return values.to_vec();
    };
    if values.is_empty() {
        return Vec::new();
    }
    let mut layout = Layout::new();
    layout.push_stored("tensor", &spec.shape, &spec.order);
    let tensor = &layout.tensors()[0];
    let mut torch = tensor.to_torch(values);
    transform.apply(&mut torch, &spec.shape, samples);
    let mut stored = values.to_vec();
    tensor.from_torch(&torch, &mut stored);
    stored
}

/// The layer's own backward, then the fault on what it added to one tensor's gradient.
fn wrong_d_param<T: Scalar>(
    layer: &dyn Layer<T>,
    mut io: Backward<'_, T>,
    slot: usize,
    transform: Transform,
) {
    let Some(to) = io.d_params[slot].take() else {
        return layer.backward(io);
    };
    let samples = io.samples;
    let mut own = vec![T::ZERO; to.len()];
    let mut d_params = io.d_params;
    d_params[slot] = Some(&mut own);
    layer.backward(Backward { d_params, ..io });
    let own = tensor(layer, slot, transform, &own, samples);
    for (to, own) in to.iter_mut().zip(own) {
        *to += own;
    }
}

impl<T: Scalar> Fault<T> for FaultKind {
    fn forward(&self, inner: &dyn Layer<T>, io: Forward<'_, T>, seat: &Seat) {
        match *self {
            FaultKind::Convention(slot, transform) => {
                let wrong = tensor(inner, slot, transform, io.params[slot], io.samples);
                let mut params = io.params;
                params[slot] = &wrong;
                inner.forward(Forward { params, ..io });
            }
            FaultKind::Y(transform) => {
                let samples = io.samples;
                let y = io.y;
                inner.forward(Forward { y: &mut *y, ..io });
                transform.apply(y, &seat.shapes[1], samples);
            }
            _ => inner.forward(io),
        }
    }

    fn backward(&self, inner: &dyn Layer<T>, io: Backward<'_, T>, seat: &Seat) {
        let [x_shape, y_shape] = &seat.shapes;
        let samples = io.samples;
        match *self {
            FaultKind::DY(transform) => {
                let mut d_y = io.d_y.to_vec();
                transform.apply(&mut d_y, y_shape, samples);
                inner.backward(Backward { d_y: &d_y, ..io });
            }
            FaultKind::X(transform) => {
                let mut x = io.x.to_vec();
                transform.apply(&mut x, x_shape, samples);
                inner.backward(Backward { x: &x, ..io });
            }
            FaultKind::Param(slot, transform) => {
                let wrong = tensor(inner, slot, transform, io.params[slot], samples);
                let mut params = io.params;
                params[slot] = &wrong;
                inner.backward(Backward { params, ..io });
            }
            FaultKind::DParam(slot, transform) => wrong_d_param(inner, io, slot, transform),
            FaultKind::Convention(slot, transform) => {
                let wrong = tensor(inner, slot, transform, io.params[slot], samples);
                let mut params = io.params;
                params[slot] = &wrong;
                // The transforms used as conventions are their own inverses.
                wrong_d_param(inner, Backward { params, ..io }, slot, transform);
            }
            FaultKind::DX(transform) => then_d_x(inner, io, |_, d_x| {
                transform.apply(d_x, x_shape, samples);
            }),
            FaultKind::NoDerivative => then_d_x(inner, io, |shown, d_x| {
                if d_x.len() == shown.d_y.len() {
                    d_x.copy_from_slice(shown.d_y);
                }
            }),
            FaultKind::DropBranch(branch) => drop_branch(inner, io, branch),
            FaultKind::SwapBranches => swap_branches(inner, io),
            FaultKind::Y(_) => inner.backward(io),
        }
    }
}

/// A skip's own backward, then zeros for one of its branches.
fn drop_branch<T: Scalar>(inner: &dyn Layer<T>, io: Backward<'_, T>, branch: usize) {
    let (mut d_x, mut d_other) = (io.d_x, io.d_other);
    inner.backward(Backward {
        d_x: d_x.as_deref_mut(),
        d_other: d_other.as_deref_mut(),
        ..io
    });
    if let Some(d) = [d_x, d_other].into_iter().nth(branch).flatten() {
        d.fill(T::ZERO);
    }
}

/// Joined values whose gradient is cut as if the second had come first.
fn swap_branches<T: Scalar>(inner: &dyn Layer<T>, io: Backward<'_, T>) {
    let samples = io.samples;
    let [a, b] = [io.x, io.other].map(|values| values.len() / samples);
    if a + b != io.d_y.len() / samples {
        return inner.backward(io);
    }
    let mut d_y = io.d_y.to_vec();
    for row in d_y.chunks_exact_mut(a + b) {
        row.rotate_left(b);
    }
    inner.backward(Backward { d_y: &d_y, ..io });
}
