//! Link 1: central differences on the f64 reference against its gradients.
//!
//! With D(h) = (L(p+h) − L(p−h)) / 2h, the derivative is taken as Richardson's
//! (4·D(h/2) − D(h)) / 3 and its error as
//!
//! |D(h) − D(h/2)| + k · 1.9 · ν / h.
//!
//! The first part overestimates the truncation: where L has five derivatives it is about ¾·a·h²
//! while the error left is of order h⁴; where only the second derivative jumps within ±h (a knot of
//! a quadratic spline) the error is at most ⅔ of it. The second part is rounding: ν is the size of
//! the loss's rounding error in f64, taken from the spread of the loss on the number that rounds to
//! f32 at random, times 2⁻²⁹; the two differences combine to √2·√(16 + ¼)/3 · ν/h = 1.9·ν/h; k is
//! Student's factor of [`super::precision`].
//!
//! h starts at 10⁻⁴·max(1, |p|) and falls by 8, three times at most, while the two sides and the
//! centre differ in their [`Model::pattern`] (a kink) or the bound is more than 10⁻⁶ of the tensor's
//! largest gradient. What is still at a kink then is checked at another point nearby: batch and
//! parameters moved by a thousandth.
//!
//! A gradient may be so far below ν/h that no step resolves it (the first layers of a deep automaton), and an
//! element may be at a kink there, too. Then its derivative is the slope of one forward pass on [`Dual`]
//! numbers. It is held to what rounding explains in both of them: twice the predicted f32 bound of the gradient, times 2⁻²⁹.
//! It must agree with what the differences say within their own wide error; where it does not the
//! forward pass has steps that carry no slope, and the element is counted as unchecked, and the tensor with it.

use super::dual::Dual;
use super::report::{Link, Row, compare, largest};
use super::subject::{Runner, Subject};
use crate::math;
use crate::rng::Key;
use crate::scalar::cast;
use crate::{Batch, Kernels, Model, parallel};

/// Where the step starts, in units of max(1, |p|).
const STEP: f64 = 1e-4;
/// By what and how often it shrinks.
const SHRINK: f64 = 8.0;
const ATTEMPTS: usize = 4;
/// The widest bound that means something, relative to the tensor's largest gradient …
const CAP: f64 = 1e-6;
/// … or to this share of the model's largest, for tensors whose gradient is 0.
const SCALE_FLOOR: f64 = 1e-3;
/// How far the other point is.
const ELSEWHERE: f64 = 1e-3;

/// Which elements are checked.
#[derive(Clone, Copy, Debug)]
pub struct Coverage {
    /// Up to this many parameters and inputs, all of them.
    pub all_up_to: usize,
    /// Beyond, so many of every tensor, drawn from the seed.
    pub per_tensor: usize,
    /// So many of a tensor's elements by differences; the others by their slopes alone, which take one
    /// pass and not five or more.
    pub differenced: usize,
    /// The seed of the draw.
    pub seed: u64,
}

impl Default for Coverage {
    fn default() -> Self {
        Coverage {
            all_up_to: 4_000,
            per_tensor: 64,
            differenced: usize::MAX,
            seed: 0,
        }
    }
}

/// A derivative from differences.
#[derive(Clone, Copy, Debug)]
pub struct Derivative {
    /// Its value.
    pub value: f64,
    /// What it may be off by.
    pub bound: f64,
    /// The first step straddled a kink.
    pub kink: bool,
    /// No step was free of kinks with a bound that means something.
    pub unchecked: bool,
}

/// The elements of one tensor (or of the batch) that are checked, with their derivatives.
pub struct Numeric {
    /// The tensor's name, or `input`.
    pub tensor: String,
    /// Its length.
    pub len: usize,
    /// Indices within the flat parameters or within the batch's values.
    pub indices: Vec<usize>,
    /// One for each index.
    pub derivatives: Vec<Derivative>,
    /// What rounding explains in f64 of each, between two ways to compute it.
    pub explained: Vec<f64>,
    /// Whether it is the batch.
    pub is_input: bool,
}

/// Where the model is differentiated.
struct Point {
    params: Vec<f64>,
    input: Vec<f64>,
}

/// What a derivative is held to.
#[derive(Clone, Copy)]
struct Limits {
    /// The widest bound of a difference that means something.
    cap: f64,
    /// The part of its bound that grows as the step shrinks, times the step.
    rounding: f64,
    /// A derivative at a kink is taken from its side, too.
    at_kinks: bool,
}

/// The slope of the loss along one element, by one pass on numbers that carry it.
fn slope<'m, M: Model>(
    subject: &Subject<'m, M>,
    runner: &mut Option<Runner<'m, M, Dual>>,
    point: &Point,
    is_input: bool,
    index: usize,
) -> f64 {
    let runner = runner.get_or_insert_with(|| Runner::new(subject, Kernels::Reference));
    let mut params: Vec<Dual> = cast(&point.params);
    let mut input: Vec<Dual> = cast(&point.input);
    let moving = if is_input { &mut input } else { &mut params };
    moving[index].slope = 1.0;
    runner.input_mut().values_mut().copy_from_slice(&input);
    runner.loss(&params).slope
}

/// One element at one point.
fn derivative<M: Model>(
    runner: &mut Runner<'_, M, f64>,
    point: &mut Point,
    is_input: bool,
    index: usize,
    limits: Limits,
) -> Derivative {
    let centre = if is_input {
        point.input[index]
    } else {
        point.params[index]
    };
    let mut at = |value: f64, pattern: &mut Vec<u32>| {
        if is_input {
            runner.input_mut().values_mut()[index] = value;
        } else {
            point.params[index] = value;
        }
        let loss = runner.loss(&point.params);
        pattern.clear();
        runner.pattern(&point.params, pattern);
        loss
    };
    let (mut here, mut there) = (Vec::new(), Vec::new());
    at(centre, &mut here);
    let mut best = Derivative {
        value: f64::NAN,
        bound: f64::INFINITY,
        kink: false,
        unchecked: true,
    };
    let mut h = STEP * math::max(centre.abs(), 1.0);
    for _ in 0..ATTEMPTS {
        let mut smooth = true;
        let mut slope = |h: f64| {
            // The step that f64 really takes.
            let (up, down) = (centre + h, centre - h);
            let above = at(up, &mut there);
            smooth &= here == there;
            let below = at(down, &mut there);
            smooth &= here == there;
            (above - below) / (up - down)
        };
        let (whole, half) = (slope(h), slope(0.5 * h));
        if smooth {
            let bound = (whole - half).abs() + limits.rounding / h;
            if bound < best.bound {
                best.value = (4.0 * half - whole) / 3.0;
                best.bound = bound;
            }
            if best.bound <= limits.cap {
                best.unchecked = false;
                break;
            }
        } else {
            best.kink = true;
        }
        h /= SHRINK;
        // Rounding alone would take a smaller step's bound beyond the best one: no step is better.
        if limits.rounding / h >= best.bound {
            break;
        }
    }
    at(centre, &mut there);
    best
}

/// An element by differences or, where they don't resolve it, by its slope.
struct Differentiator<'s, 'm, M: Model> {
    subject: &'s Subject<'m, M>,
    runner: Runner<'m, M, f64>,
    duals: Option<Runner<'m, M, Dual>>,
    point: Point,
}

impl<'s, 'm, M: Model> Differentiator<'s, 'm, M> {
    fn new(subject: &'s Subject<'m, M>, point: Point) -> Self {
        let mut runner = Runner::<M, f64>::new(subject, Kernels::Reference);
        runner
            .input_mut()
            .values_mut()
            .copy_from_slice(&point.input);
        Differentiator {
            subject,
            runner,
            duals: None,
            point,
        }
    }

    fn derivative(
        &mut self,
        is_input: bool,
        index: usize,
        explained: f64,
        limits: Limits,
        by_slope: bool,
    ) -> Derivative {
        if by_slope && explained <= limits.cap {
            let value = slope(self.subject, &mut self.duals, &self.point, is_input, index);
            if value.is_finite() {
                return Derivative {
                    value,
                    bound: explained,
                    kink: false,
                    unchecked: false,
                };
            }
        }
        let mut found = derivative(&mut self.runner, &mut self.point, is_input, index, limits);
        if !found.unchecked || found.kink && !limits.at_kinks {
            return found;
        }
        let slope = slope(self.subject, &mut self.duals, &self.point, is_input, index);
        let agrees = found.value.is_nan() || (slope - found.value).abs() <= found.bound + explained;
        if agrees && slope.is_finite() && explained <= limits.cap {
            found.value = slope;
            found.bound = explained;
            found.unchecked = false;
        }
        found
    }
}

/// Differences of everything that the coverage asks for. `d_params` and `d_input` give the scale
/// of each tensor, `explained` what rounding explains in f64 between two ways to compute them, `noise` is the size of the loss's
/// rounding error in f64, `factor` Student's.
pub fn numeric<M: Model>(
    subject: &Subject<'_, M>,
    coverage: &Coverage,
    [d_params, d_input]: [&[f64]; 2],
    explained: [&[f64]; 2],
    noise: f64,
    factor: f64,
) -> Vec<Numeric> {
    let layout = subject.model.layout();
    let total = layout.len() + d_input.len();
    let choose = |name: &str, len: usize, offset: usize| -> Vec<usize> {
        if total <= coverage.all_up_to || len <= coverage.per_tensor {
            return (offset..offset + len).collect();
        }
        let mut stream = Key::new(coverage.seed)
            .purpose(&format!("differences {name}"))
            .stream();
        let mut chosen: Vec<usize> = (0..coverage.per_tensor)
            .map(|_| offset + stream.below(len))
            .collect();
        chosen.sort_unstable();
        chosen.dedup();
        chosen
    };
    let mut sections: Vec<Numeric> = layout
        .tensors()
        .iter()
        .filter(|t| !t.frozen)
        .map(|t| Numeric {
            tensor: t.name.clone(),
            len: t.len(),
            indices: choose(&t.name, t.len(), t.offset),
            derivatives: Vec::new(),
            explained: Vec::new(),
            is_input: false,
        })
        .collect();
    if !d_input.is_empty() {
        sections.push(Numeric {
            tensor: "input".to_string(),
            len: d_input.len(),
            indices: choose("input", d_input.len(), 0),
            derivatives: Vec::new(),
            explained: Vec::new(),
            is_input: true,
        });
    }
    let everywhere = math::max(largest(d_params), largest(d_input));
    let rounding = factor * 1.9 * noise;
    for section in &mut sections {
        let gradient = if section.is_input { d_input } else { d_params };
        let of_tensor = match layout.get(&section.tensor) {
            Some(tensor) if !section.is_input => &gradient[tensor.range()],
            _ => gradient,
        };
        let cap = CAP * math::max(largest(of_tensor), SCALE_FLOOR * everywhere);
        let own = explained[usize::from(section.is_input)];
        section.explained = section.indices.iter().map(|&i| own[i]).collect();
        let limits = Limits {
            cap,
            rounding,
            at_kinks: false,
        };
        section.derivatives = differentiate(subject, section, limits, coverage.differenced);
    }
    sections
}

/// Pieces of the elements side by side, each with a model run of its own.
fn differentiate<M: Model>(
    subject: &Subject<'_, M>,
    section: &Numeric,
    limits: Limits,
    differenced: usize,
) -> Vec<Derivative> {
    const PIECE: usize = 64;
    let pieces = parallel::isolated(section.indices.len().div_ceil(PIECE), |piece| {
        let of = piece * PIECE..section.indices.len().min((piece + 1) * PIECE);
        let point = Point {
            params: subject.params.clone(),
            input: subject.input.values().to_vec(),
        };
        let mut differentiator = Differentiator::new(subject, point);
        let mut one = |i: usize| {
            let (index, explained) = (section.indices[i], section.explained[i]);
            let by_slope = i >= differenced;
            differentiator.derivative(section.is_input, index, explained, limits, by_slope)
        };
        of.map(&mut one).collect::<Vec<_>>()
    });
    pieces.into_iter().flatten().collect()
}

/// The gradients at another point nearby, for elements that could not be checked where they are:
/// (index within `numeric.indices`, derivative, gradient there).
fn elsewhere<M: Model>(
    subject: &Subject<'_, M>,
    numeric: &Numeric,
    which: &[usize],
    scale: f64,
    rounding: f64,
) -> Vec<(usize, Derivative, f64)> {
    let mut stream = Key::new(0).purpose("another point").stream();
    let mut moved = |values: &[f64]| -> Vec<f64> {
        values
            .iter()
            .map(|v| v + ELSEWHERE * math::max(v.abs(), 0.1) * stream.range(-1.0, 1.0))
            .collect()
    };
    let point = Point {
        params: moved(&subject.params),
        input: moved(subject.input.values()),
    };
    let params = point.params.clone();
    let mut differentiator = Differentiator::new(subject, point);
    let there = differentiator.runner.evaluate(&params);
    let gradient = if numeric.is_input {
        &there.d_input
    } else {
        &there.d_params
    };
    let limits = Limits {
        cap: CAP * scale,
        rounding,
        at_kinks: true,
    };
    which
        .iter()
        .map(|&w| {
            let (index, explained) = (numeric.indices[w], numeric.explained[w]);
            let d = differentiator.derivative(numeric.is_input, index, explained, limits, false);
            (w, d, gradient[index])
        })
        .collect()
}

/// Compares gradients with differences, one row a tensor. `subject` is asked again only for
/// elements at a kink.
pub fn rows<M: Model>(
    subject: &Subject<'_, M>,
    sections: &[Numeric],
    d_params: &[f64],
    d_input: &[f64],
    noise: f64,
    factor: f64,
) -> Vec<Row> {
    let everywhere = math::max(largest(d_params), largest(d_input));
    let rounding = factor * 1.9 * noise;
    let row = |section: &Numeric| {
        let gradient = if section.is_input { d_input } else { d_params };
        let mut analytic: Vec<f64> = section.indices.iter().map(|&i| gradient[i]).collect();
        let mut derivatives = section.derivatives.clone();
        let doubtful: Vec<usize> = (0..derivatives.len())
            .filter(|&i| derivatives[i].unchecked)
            .collect();
        if !doubtful.is_empty() {
            let scale = math::max(largest(&analytic), SCALE_FLOOR * everywhere);
            for (i, derivative, there) in elsewhere(subject, section, &doubtful, scale, rounding) {
                let kink = derivatives[i].kink;
                derivatives[i] = derivative;
                derivatives[i].kink |= kink;
                analytic[i] = there;
            }
        }
        let known: Vec<usize> = (0..derivatives.len())
            .filter(|&i| !derivatives[i].unchecked)
            .collect();
        let values: Vec<f64> = known.iter().map(|&i| analytic[i]).collect();
        let numeric: Vec<f64> = known.iter().map(|&i| derivatives[i].value).collect();
        let mut worst = compare(&values, &numeric, |i| derivatives[known[i]].bound);
        worst.index = worst.index.map(|i| section.indices[known[i]]);
        if let (Some(index), false) = (worst.index, section.is_input) {
            worst.index = subject.model.layout().locate(index).map(|(_, i)| i);
        }
        let mut row = Row::compared(&subject.name, &section.tensor, Link::Differences, &worst);
        row.at_kink = derivatives.iter().filter(|d| d.kink).count();
        if section.indices.len() < section.len {
            row = row.noted(format!(
                "a sample of {} of {}",
                section.indices.len(),
                section.len
            ));
        }
        // A gradient that is not a number is wrong whatever its neighbours are.
        if values.len() < analytic.len() {
            let missing = analytic.len() - values.len();
            row = row.doubted(format!("{missing} elements could not be differenced"));
        }
        row
    };
    sections.iter().map(row).collect()
}
