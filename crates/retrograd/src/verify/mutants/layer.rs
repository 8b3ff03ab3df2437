//! Faults inside one layer of a network: the layer's own right functions, called with something
//! wrong or followed by something wrong.

use super::transform::Transform;
use crate::layer::kan::Kan;
use crate::layer::norm::Norm;
use crate::layer::pool::{Pool, PoolKind};
use crate::layer::{Backward, Forward, Layer, TENSORS};
use crate::network::model::Node;
use crate::network::{Activation, Outside};
use crate::{Layout, Scalar};

/// What is wrong.
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
    /// The derivative of another function.
    SlopeOf(Activation),
    /// The derivative taken at the output instead of at the input.
    SlopeAtOutput,
    /// The derivative applied twice.
    SlopeTwice,
    /// An activation whose derivative is cut off beyond ±1.
    SlopeClamped,
    /// A KAN layer's d_x.
    Spline(SplineFault),
    /// Normalisation whose statistics are taken as constants.
    ConstantStatistics,
    /// … with the mean's part only.
    WithoutVarianceTerm,
    /// … with a variance over n−1.
    UnbiasedVariance,
    /// Max pooling whose gradient goes to the first element of the window.
    FirstOfWindow,
    /// Max pooling whose gradient is spread over the window.
    SpreadOverWindow,
    /// Upsampling whose gradient is taken from one pixel of every block.
    OneOfBlock,
    /// A skip that drops the gradient of a branch: 0 the layer before, 1 the earlier one.
    DropBranch(usize),
    /// A skip whose second branch gets the first one's gradient.
    SwapBranches,
}

/// What is wrong with the derivative of a KAN layer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum SplineFault {
    /// The splines' derivative is that of one degree lower.
    LowerDegree,
    /// The factor k is 3 whatever the degree.
    Cubic,
    /// The factor k is missing.
    NoFactor,
    /// The second term of the derivative is missing.
    OneTerm,
    /// The splines have no part in d_x.
    NoSpline,
    /// The base function has no part in d_x.
    NoBase,
    /// silu′ is taken to be σ.
    BaseIsSigmoid,
    /// Beyond the clamp, x still gets a gradient.
    ClampedMoves,
    /// The splines of the neighbouring interval.
    Neighbour,
}

/// A fault in one layer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct LayerFault {
    pub layer: usize,
    pub kind: FaultKind,
    /// Only where the scalar is f32: in the kernel, not in the reference.
    pub only_f32: bool,
}

impl FaultKind {
    pub fn words(self) -> String {
        let tensor = |slot: usize| ["first", "second", "third"][slot];
        match self {
            FaultKind::DX(t) => format!("d_x {}", t.words()),
            FaultKind::DY(t) => format!("d_y {}", t.words()),
            FaultKind::X(t) => format!("stale x: {}", t.words()),
            FaultKind::DParam(s, t) => format!("d of its {} tensor {}", tensor(s), t.words()),
            FaultKind::Param(s, t) => format!("{} tensor in backward {}", tensor(s), t.words()),
            FaultKind::Convention(s, t) => format!("{} tensor everywhere {}", tensor(s), t.words()),
            FaultKind::Y(t) => format!("output {}", t.words()),
            FaultKind::NoDerivative => "derivative missing".into(),
            FaultKind::SlopeOf(a) => format!("derivative of {a:?}"),
            FaultKind::SlopeAtOutput => "derivative at the output".into(),
            FaultKind::SlopeTwice => "derivative twice".into(),
            FaultKind::SlopeClamped => "derivative cut off beyond ±1".into(),
            FaultKind::Spline(s) => match s {
                SplineFault::LowerDegree => "spline derivative one degree lower".into(),
                SplineFault::Cubic => "spline derivative cubic for every degree".into(),
                SplineFault::NoFactor => "spline derivative without its factor".into(),
                SplineFault::OneTerm => "spline derivative's second term missing".into(),
                SplineFault::NoSpline => "d_x without the splines".into(),
                SplineFault::NoBase => "d_x without the base".into(),
                SplineFault::BaseIsSigmoid => "base derivative is σ".into(),
                SplineFault::ClampedMoves => "gradient beyond the clamp".into(),
                SplineFault::Neighbour => "derivative of the neighbouring spline".into(),
            },
            FaultKind::ConstantStatistics => "statistics as constants".into(),
            FaultKind::WithoutVarianceTerm => "variance's part missing".into(),
            FaultKind::UnbiasedVariance => "variance over n−1".into(),
            FaultKind::FirstOfWindow => "gradient to the first of the window".into(),
            FaultKind::SpreadOverWindow => "gradient spread over the window".into(),
            FaultKind::OneOfBlock => "gradient of one pixel of the block".into(),
            FaultKind::DropBranch(b) => format!("branch {b} gets no gradient"),
            FaultKind::SwapBranches => "branches swapped".into(),
        }
    }
}

impl LayerFault {
    /// Whether it is at work in this layer and scalar.
    pub fn at<T: Scalar>(&self, layer: usize) -> bool {
        self.layer == layer && (!self.only_f32 || T::NAME == f32::NAME)
    }

    /// A tensor as the fault shows it, in its stored order.
    fn tensor<T: Scalar>(
        node: &dyn Layer<T>,
        slot: usize,
        transform: Transform,
        values: &[T],
        samples: usize,
    ) -> Vec<T> {
        let specs = node.tensors();
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

    pub fn forward<T: Scalar>(&self, layer: &dyn Layer<T>, io: Forward<'_, T>, shape: &[usize]) {
        match self.kind {
            FaultKind::Convention(slot, transform) => {
                let wrong = Self::tensor(layer, slot, transform, io.params[slot], io.samples);
                let mut params = io.params;
                params[slot] = &wrong;
                layer.forward(Forward { params, ..io });
            }
            FaultKind::Y(transform) => {
                let samples = io.samples;
                let y = io.y;
                layer.forward(Forward { y: &mut *y, ..io });
                transform.apply(y, shape, samples);
            }
            _ => layer.forward(io),
        }
    }

    pub fn backward<T: Scalar>(
        &self,
        node: &Node,
        layer: &dyn Layer<T>,
        io: Backward<'_, T>,
        shapes: [&[usize]; 2],
    ) {
        let [x_shape, y_shape] = shapes;
        let samples = io.samples;
        match self.kind {
            FaultKind::DY(transform) => {
                let mut d_y = io.d_y.to_vec();
                transform.apply(&mut d_y, y_shape, samples);
                layer.backward(Backward { d_y: &d_y, ..io });
            }
            FaultKind::X(transform) => {
                let mut x = io.x.to_vec();
                transform.apply(&mut x, x_shape, samples);
                layer.backward(Backward { x: &x, ..io });
            }
            FaultKind::Param(slot, transform) => {
                let wrong = Self::tensor(layer, slot, transform, io.params[slot], samples);
                let mut params = io.params;
                params[slot] = &wrong;
                layer.backward(Backward { params, ..io });
            }
            FaultKind::DParam(slot, transform) => {
                Self::wrong_d_param(layer, io, slot, transform);
            }
            FaultKind::Convention(slot, transform) => {
                let wrong = Self::tensor(layer, slot, transform, io.params[slot], samples);
                let mut params = io.params;
                params[slot] = &wrong;
                // The transforms used as conventions are their own inverses.
                Self::wrong_d_param(layer, Backward { params, ..io }, slot, transform);
            }
            _ => self.wrong_d_x(node, layer, io, x_shape),
        }
    }

    /// The layer's own backward, then the fault on what it added to one tensor's gradient.
    fn wrong_d_param<T: Scalar>(
        layer: &dyn Layer<T>,
        io: Backward<'_, T>,
        slot: usize,
        transform: Transform,
    ) {
        let Backward {
            params,
            x,
            y,
            d_y,
            samples,
            saved,
            pass,
            mut d_params,
            d_x,
            relu,
        } = io;
        let to = d_params[slot].take();
        let mut own = vec![T::ZERO; to.as_ref().map_or(0, |to| to.len())];
        let mut shown = d_params.each_mut().map(Option::as_deref_mut);
        shown[slot] = to.is_some().then_some(&mut own[..]);
        layer.backward(Backward {
            params,
            x,
            y,
            d_y,
            samples,
            saved,
            pass,
            d_params: shown,
            d_x,
            relu,
        });
        if let Some(to) = to {
            let own = Self::tensor(layer, slot, transform, &own, samples);
            for (to, own) in to.iter_mut().zip(own) {
                *to += own;
            }
        }
    }

    /// The layer's own backward, then the fault on d_x.
    fn wrong_d_x<T: Scalar>(
        &self,
        node: &Node,
        layer: &dyn Layer<T>,
        io: Backward<'_, T>,
        x_shape: &[usize],
    ) {
        let (x, y, d_y, samples, params) = (io.x, io.y, io.d_y, io.samples, io.params);
        let Some(d_x) = io.d_x else {
            return layer.backward(io);
        };
        layer.backward(Backward {
            d_x: Some(&mut *d_x),
            ..io
        });
        match (self.kind, node) {
            (FaultKind::DX(transform), _) => transform.apply(d_x, x_shape, samples),
            (FaultKind::NoDerivative, _) if d_x.len() == d_y.len() => d_x.copy_from_slice(d_y),
            (FaultKind::SlopeOf(other), _) if d_x.len() == d_y.len() => {
                for i in 0..d_x.len() {
                    d_x[i] = d_y[i] * other.slope(x[i], other.value(x[i]));
                }
            }
            (FaultKind::SlopeAtOutput, Node::Activation(own)) => {
                for i in 0..d_x.len() {
                    d_x[i] = d_y[i] * own.slope(y[i], own.value(y[i]));
                }
            }
            (FaultKind::SlopeTwice, Node::Activation(own)) => {
                for i in 0..d_x.len() {
                    d_x[i] *= own.slope(x[i], y[i]);
                }
            }
            (FaultKind::SlopeClamped, _) => {
                for (d_x, &x) in d_x.iter_mut().zip(x) {
                    if x.abs() > T::ONE {
                        *d_x = T::ZERO;
                    }
                }
            }
            (FaultKind::Spline(fault), Node::Kan(kan)) => {
                spline_d_x(kan, fault, params, x, d_y, d_x);
            }
            (
                FaultKind::ConstantStatistics
                | FaultKind::WithoutVarianceTerm
                | FaultKind::UnbiasedVariance,
                Node::Norm(norm),
            ) => norm_d_x(norm, self.kind, params[0], x, d_y, d_x),
            (FaultKind::FirstOfWindow | FaultKind::SpreadOverWindow, Node::Pool(pool)) => {
                pool_d_x(pool, self.kind, d_y, d_x);
            }
            (FaultKind::OneOfBlock, Node::Upsample(up)) => {
                let (s, width) = (up.scale, up.width);
                let rows = d_x.chunks_exact_mut(width);
                for (d_x, d_y) in rows.zip(d_y.chunks_exact(width * s * s)) {
                    for (c, d_x) in d_x.iter_mut().enumerate() {
                        *d_x = d_y[c * s];
                    }
                }
            }
            _ => {}
        }
    }
}

/// B_{m,d}(x) by the recursion itself.
fn spline<T: Scalar>(m: usize, d: usize, t: &[T], x: T) -> T {
    if d == 0 {
        let inside = x >= t[m] && x < t[m + 1];
        return if inside { T::ONE } else { T::ZERO };
    }
    (x - t[m]) / (t[m + d] - t[m]) * spline(m, d - 1, t, x)
        + (t[m + d + 1] - x) / (t[m + d + 1] - t[m + 1]) * spline(m + 1, d - 1, t, x)
}

fn spline_d_x<T: Scalar>(
    kan: &Kan,
    fault: SplineFault,
    params: [&[T]; TENSORS],
    x: &[T],
    d_y: &[T],
    d_x: &mut [T],
) {
    let [spline_weight, base_weight, _] = params;
    let (outputs, bases, k) = (kan.outputs, kan.bases(), kan.degree);
    let slope = |m: usize, t: &[T], x: T| -> T {
        let m = match fault {
            SplineFault::Neighbour => (m + 1).min(bases - 1),
            _ => m,
        };
        let degree = match fault {
            SplineFault::LowerDegree => k - 1,
            _ => k,
        };
        if degree == 0 {
            return T::ZERO;
        }
        let factor = T::from_f64(match fault {
            SplineFault::Cubic => 3.0,
            SplineFault::NoFactor => 1.0,
            _ => degree as f64,
        });
        let left = factor / (t[m + degree] - t[m]) * spline(m, degree - 1, t, x);
        let right = factor / (t[m + degree + 1] - t[m + 1]) * spline(m + 1, degree - 1, t, x);
        match fault {
            SplineFault::NoSpline => T::ZERO,
            SplineFault::OneTerm => left,
            _ => left - right,
        }
    };
    for (row, d_x) in d_x.chunks_exact_mut(kan.inputs).enumerate() {
        let d_y = &d_y[row * outputs..(row + 1) * outputs];
        for (i, d_x) in d_x.iter_mut().enumerate() {
            let t: Vec<T> = crate::scalar::cast(&kan.knots(i));
            let own = x[row * kan.inputs + i];
            let (lo, hi) = (t[k], t[k + kan.grid]);
            let outside = kan.outside == Outside::Clamp && (own < lo || own > hi);
            if outside && fault != SplineFault::ClampedMoves {
                *d_x = T::ZERO;
                continue;
            }
            // Just inside, where the splines have a slope.
            let seen = if outside {
                own.max(lo).min(lo + (hi - lo) * T::from_f64(0.999))
            } else {
                own
            };
            let dot = |weights: &[T]| -> T { weights.iter().zip(d_y).map(|(&w, &d)| w * d).sum() };
            let mut sum = T::ZERO;
            for m in 0..bases {
                let weights = &spline_weight[(i * bases + m) * outputs..][..outputs];
                sum += slope(m, &t, seen) * dot(weights);
            }
            if !base_weight.is_empty() && fault != SplineFault::NoBase {
                let silu = Activation::Silu.value(seen);
                let slope = match fault {
                    SplineFault::BaseIsSigmoid => seen.sigmoid(),
                    _ => Activation::Silu.slope(seen, silu),
                };
                sum += slope * dot(&base_weight[i * outputs..][..outputs]);
            }
            *d_x = sum;
        }
    }
}

fn norm_d_x<T: Scalar>(
    norm: &Norm,
    kind: FaultKind,
    weight: &[T],
    x: &[T],
    d_y: &[T],
    d_x: &mut [T],
) {
    let (sets, size) = norm.sets(x.len());
    let n = T::from_usize(size);
    for s in 0..sets {
        let places: Vec<(usize, usize)> = (0..size).map(|j| norm.place(size, s, j)).collect();
        let mean = places.iter().map(|p| x[p.0]).sum::<T>() / n;
        let squares: T = places
            .iter()
            .map(|p| (x[p.0] - mean) * (x[p.0] - mean))
            .sum();
        let over = match kind {
            FaultKind::UnbiasedVariance => T::from_usize(size.max(2) - 1),
            _ => n,
        };
        let inverse = T::ONE / (squares / over + T::from_f64(1e-5)).sqrt();
        let g = |p: &(usize, usize)| weight[p.1] * d_y[p.0];
        let normal = |p: &(usize, usize)| (x[p.0] - mean) * inverse;
        let mean_g = places.iter().map(g).sum::<T>() / n;
        let mean_gx = places.iter().map(|p| g(p) * normal(p)).sum::<T>() / n;
        for p in &places {
            d_x[p.0] = match kind {
                FaultKind::ConstantStatistics => g(p) * inverse,
                FaultKind::WithoutVarianceTerm => (g(p) - mean_g) * inverse,
                _ => (g(p) - mean_g - normal(p) * mean_gx) * inverse,
            };
        }
    }
}

fn pool_d_x<T: Scalar>(pool: &Pool, kind: FaultKind, d_y: &[T], d_x: &mut [T]) {
    if pool.kind != PoolKind::Max {
        return;
    }
    let (height, width) = (pool.out_height(), pool.out_width());
    let share = T::from_f64(1.0 / (pool.kernel * pool.kernel) as f64);
    d_x.fill(T::ZERO);
    let planes = d_x.chunks_exact_mut(pool.height * pool.width);
    for (d_x, d_y) in planes.zip(d_y.chunks_exact(height * width)) {
        for row in 0..height {
            for column in 0..width {
                let d = d_y[row * width + column];
                let first = row * pool.stride * pool.width + column * pool.stride;
                if kind == FaultKind::FirstOfWindow {
                    d_x[first] += d;
                    continue;
                }
                for r in 0..pool.kernel {
                    for c in 0..pool.kernel {
                        d_x[first + r * pool.width + c] += share * d;
                    }
                }
            }
        }
    }
}

impl LayerFault {
    /// A skip's gradient and the parts of it that its two branches take.
    pub fn skip<T: Scalar>(
        &self,
        d_y: &[T],
        shape: &[usize],
        samples: usize,
        ranges: [std::ops::Range<usize>; 2],
    ) -> (Vec<T>, [std::ops::Range<usize>; 2]) {
        let mut d_y = d_y.to_vec();
        let [first, second] = ranges;
        match self.kind {
            FaultKind::DY(transform) => transform.apply(&mut d_y, shape, samples),
            // Each branch keeps its length, cut from the wrong end.
            FaultKind::SwapBranches if first != second => {
                let (a, b) = (first.len(), second.len());
                return (d_y, [b..a + b, 0..b]);
            }
            _ => {}
        }
        (d_y, [first, second])
    }

    /// The branch of a skip that gets nothing.
    pub fn drops(&self) -> Option<usize> {
        match self.kind {
            FaultKind::DropBranch(branch) => Some(branch),
            _ => None,
        }
    }
}
