//! Other people's kernels: a forward and a backward over flat buffers in f32, and a reference in f64 where
//! there is one.
//!
//! With L = Σ w·y, w normal numbers:
//!
//! 1. central differences of the reference's L in f64 ↔ the reference's gradients;
//! 3. the kernel's outputs and gradients ↔ the reference's, within what rounding explains
//!    ([`super::precision`]). The reference passes every result that a kernel would round through
//!    [`Round`]: the same number in f64, one of the two nearest of f32 in the runs that predict the bounds;
//! 5. equal calls, equal bits: called again, after another input, into memory filled with NaN; inputs and the
//!    outputs' gradients left as they were.
//!
//! Without a reference the kernel's gradients are held to differences of its own L in f32, which are rough.
//!
//! The rounding ν of L is measured, because a function shows no operations: of nine values at equal tiny steps
//! along a random direction what is smooth vanishes in the fourth differences, which have C(8, 4) = 70
//! times the variance of one value's rounding. Four tables count as eight degrees of freedom. A kink nearer
//! than 0.3·h, which D(h) − D(h/2) does not show, shows in the jump of the one-sided slopes
//! J(h) = (L(h) − 2·L(0) + L(−h))/h: where L is smooth it halves with h, at such a kink it keeps more than
//! 0.57 of itself. Then J(h/2), which is more than the error left, is added to the bound. What rounding makes
//! of the gradient itself, where terms cancel, is measured too: its scatter over points that are a few units
//! in the last place apart.

use super::precision::{Bounds, student_factor};
use super::report::{Link, Report, Row, compare, largest};
use super::rounded::{Granted, Rounded};
use crate::math;
use crate::rng::{Key, Stream};
use crate::{Error, Result, Scalar};

/// Runs of the reference that predict a bound.
const RUNS: u64 = 16;
/// Tensors up to this size are differenced element by element, larger ones at so many drawn ones.
const DIFFERENCED: usize = 64;
/// By what a step falls and how often.
const SHRINK: f64 = 8.0;
const ATTEMPTS: usize = 4;
/// The widest bound of a difference in f64 that means something, of the tensor's largest gradient …
const CAP: f64 = 1e-6;
/// … in f32, a hundredth …
const ROUGH_CAP: f64 = 1e-2;
/// … or of this share of the largest of all, for tensors whose gradient is 0.
const SCALE_FLOOR: f64 = 1e-3;
/// Steps of a table of differences in units of the last place.
const NOISE_STEP: f64 = 4096.0;
const TABLES: usize = 4;
/// Units in the last place between points whose gradients scatter by rounding.
const GRADIENT_STEP: f64 = 4.0;
/// See the module's text.
const KINK: f64 = 0.57;

/// What a reference passes its results through.
pub type Round<'r> = &'r dyn Fn(f64) -> f64;

/// An input: its name and values.
#[derive(Clone, Debug)]
pub struct Input {
    /// The name in reports.
    pub name: String,
    /// The values.
    pub values: Vec<f32>,
}

/// Outputs from inputs.
pub type Forward<'a, T> = dyn Fn(&[Vec<T>], &mut [Vec<T>]) + 'a;
/// The inputs' gradients from inputs and the outputs' gradients.
pub type Backward<'a, T> = dyn Fn(&[Vec<T>], &[Vec<T>], &mut [Vec<T>]) + 'a;

/// Outputs from inputs, every result passed through [`Round`].
pub type RoundedForward<'a> = dyn Fn(Round<'_>, &[Vec<f64>], &mut [Vec<f64>]) + 'a;
/// Gradients from inputs and the outputs' gradients, every result passed through [`Round`].
pub type RoundedBackward<'a> = dyn Fn(Round<'_>, &[Vec<f64>], &[Vec<f64>], &mut [Vec<f64>]) + 'a;
/// The gradients at a point.
type Gradients<'a> = dyn Fn(&[Vec<f64>]) -> Vec<Vec<f64>> + 'a;

/// The same in f64, with every result passed through [`Round`].
pub struct Reference<'a> {
    /// Outputs from inputs.
    pub forward: &'a RoundedForward<'a>,
    /// Gradients from inputs and the outputs' gradients.
    pub backward: &'a RoundedBackward<'a>,
}

/// What is checked: a pair of functions over flat buffers.
pub struct Function<'a> {
    /// The name in reports.
    pub name: String,
    /// What it is called with.
    pub inputs: Vec<Input>,
    /// The lengths of its outputs.
    pub outputs: Vec<usize>,
    /// Outputs from inputs. What it writes to is filled with NaN.
    pub forward: &'a Forward<'a, f32>,
    /// Gradients from inputs and the outputs' gradients. What it writes to is filled with NaN.
    pub backward: &'a Backward<'a, f32>,
    /// The definition in f64.
    pub reference: Option<Reference<'a>>,
}

/// What one call told.
#[derive(Clone, PartialEq)]
struct Told<T> {
    outputs: Vec<Vec<T>>,
    gradients: Vec<Vec<T>>,
}

fn wide(values: &[Vec<f32>]) -> Vec<Vec<f64>> {
    let one = |v: &Vec<f32>| v.iter().map(|&x| f64::from(x)).collect();
    values.iter().map(one).collect()
}

fn narrow(values: &[Vec<f64>]) -> Vec<Vec<f32>> {
    let one = |v: &Vec<f64>| v.iter().map(|&x| x as f32).collect();
    values.iter().map(one).collect()
}

impl Function<'_> {
    fn unwritten<T: Scalar>(lengths: impl Iterator<Item = usize>) -> Vec<Vec<T>> {
        lengths.map(|n| vec![T::from_f64(f64::NAN); n]).collect()
    }

    fn output(&self, inputs: &[Vec<f32>]) -> Vec<Vec<f32>> {
        let mut outputs = Self::unwritten(self.outputs.iter().copied());
        (self.forward)(inputs, &mut outputs);
        outputs
    }

    fn call(&self, inputs: &[Vec<f32>], seeds: &[Vec<f32>]) -> Told<f32> {
        let outputs = self.output(inputs);
        let mut gradients = Self::unwritten(inputs.iter().map(Vec::len));
        (self.backward)(inputs, seeds, &mut gradients);
        Told { outputs, gradients }
    }

    fn reference_output(
        &self,
        of: &Reference<'_>,
        round: Round<'_>,
        inputs: &[Vec<f64>],
    ) -> Vec<Vec<f64>> {
        let mut outputs = Self::unwritten(self.outputs.iter().copied());
        (of.forward)(round, inputs, &mut outputs);
        outputs
    }

    fn call_reference(
        &self,
        of: &Reference<'_>,
        round: Round<'_>,
        inputs: &[Vec<f64>],
        seeds: &[Vec<f64>],
    ) -> Told<f64> {
        let outputs = self.reference_output(of, round, inputs);
        let mut gradients = Self::unwritten(inputs.iter().map(Vec::len));
        (of.backward)(round, inputs, seeds, &mut gradients);
        Told { outputs, gradients }
    }
}

/// Σ w·y in f64.
fn weighted(seeds: &[Vec<f64>], outputs: &[Vec<f64>]) -> f64 {
    let each = seeds.iter().flatten().zip(outputs.iter().flatten());
    each.map(|(w, y)| w * y).sum()
}

/// Checks a pair of functions. An error where it has no input or no output.
pub fn function(subject: &Function<'_>, seed: u64) -> Result<Report> {
    if subject.inputs.is_empty() || subject.outputs.is_empty() {
        let (inputs, outputs) = (subject.inputs.len(), subject.outputs.len());
        let got = format!("{inputs} inputs and {outputs} outputs");
        return Err(Error::invalid(&subject.name, got, "one of each at least"));
    }
    let mut stream = Key::new(seed).purpose("gradients of outputs").stream();
    let inputs: Vec<Vec<f32>> = subject.inputs.iter().map(|i| i.values.clone()).collect();
    let mut draw = |&n: &usize| (0..n).map(|_| stream.normal() as f32).collect();
    let seeds: Vec<Vec<f32>> = subject.outputs.iter().map(&mut draw).collect();
    let first = subject.call(&inputs, &seeds);
    let mut report = Report::default();
    match &subject.reference {
        Some(reference) => against(subject, reference, &inputs, &seeds, &first, &mut report),
        None => roughly(subject, &inputs, &seeds, &first, &mut report),
    }
    report
        .rows
        .push(reuse(subject, &inputs, &seeds, &first, &mut stream));
    Ok(report)
}

/// Links 1 and 3: the reference against differences, the kernel against the reference.
fn against(
    subject: &Function<'_>,
    reference: &Reference<'_>,
    inputs: &[Vec<f32>],
    seeds: &[Vec<f32>],
    first: &Told<f32>,
    report: &mut Report,
) {
    let (at, weights) = (wide(inputs), wide(seeds));
    let exact = subject.call_reference(reference, &|x| x, &at, &weights);
    let loss = |x: &[Vec<f64>]| weighted(&weights, &subject.reference_output(reference, &|x| x, x));
    let gradients =
        |x: &[Vec<f64>]| (subject.call_reference(reference, &|x| x, x, &weights)).gradients;
    let differences = Differences::new(&loss, &gradients, &at, 1e-4, f64::EPSILON);
    report
        .rows
        .extend(differences.rows(subject, &exact.gradients, CAP, "of the reference"));
    let runs: Vec<Told<f64>> = (1..=RUNS)
        .map(|run| {
            Rounded::start(run, &Granted::CPU);
            let round = |x: f64| Rounded::from_f64(x).to_f64();
            subject.call_reference(reference, &round, &at, &weights)
        })
        .collect();
    let row = |name: &str, got: &[f32], right: &[f64], runs: Vec<&[f64]>, scale: f64| {
        let bounds = Bounds::new(right, runs.into_iter());
        let got: Vec<f64> = got.iter().map(|&x| f64::from(x)).collect();
        let worst = compare(&got, right, |i| bounds.at(i));
        let row = Row::compared(&subject.name, name, Link::Cpu, &worst);
        if bounds.meaningful(scale) || right.is_empty() {
            row
        } else {
            row.doubted("the bound is a tenth of the tensor's scale or more")
        }
    };
    for (i, (got, right)) in first.outputs.iter().zip(&exact.outputs).enumerate() {
        let of_runs = runs.iter().map(|r| &r.outputs[i][..]).collect();
        report.rows.push(row(
            &format!("output {i}"),
            got,
            right,
            of_runs,
            largest(right),
        ));
    }
    let everywhere = exact
        .gradients
        .iter()
        .map(|g| largest(g))
        .fold(0.0, math::max);
    for (i, input) in subject.inputs.iter().enumerate() {
        let right = &exact.gradients[i];
        let of_runs = runs.iter().map(|r| &r.gradients[i][..]).collect();
        let scale = math::max(largest(right), SCALE_FLOOR * everywhere);
        report
            .rows
            .push(row(&input.name, &first.gradients[i], right, of_runs, scale));
    }
}

/// Without a reference: the kernel against differences of its own, in f32.
fn roughly(
    subject: &Function<'_>,
    inputs: &[Vec<f32>],
    seeds: &[Vec<f32>],
    first: &Told<f32>,
    report: &mut Report,
) {
    let (at, weights) = (wide(inputs), wide(seeds));
    let loss = |x: &[Vec<f64>]| weighted(&weights, &wide(&subject.output(&narrow(x))));
    let gradients = |x: &[Vec<f64>]| wide(&subject.call(&narrow(x), seeds).gradients);
    let epsilon = f64::from(f32::EPSILON);
    let differences = Differences::new(&loss, &gradients, &at, 0.03125, epsilon);
    let note = "in f32, rough: give a reference";
    report
        .rows
        .extend(differences.rows(subject, &wide(&first.gradients), ROUGH_CAP, note));
}

/// Link 5: equal calls have equal bits, and leave alone what they read.
fn reuse(
    subject: &Function<'_>,
    inputs: &[Vec<f32>],
    seeds: &[Vec<f32>],
    first: &Told<f32>,
    stream: &mut Stream,
) -> Row {
    let bits = |told: &Told<f32>| -> Vec<u32> {
        let all = told.outputs.iter().chain(&told.gradients).flatten();
        all.map(|x| x.to_bits()).collect()
    };
    let mut elsewhere = inputs.to_vec();
    elsewhere.iter_mut().for_each(|x| stream.shuffle(x));
    let read = inputs.to_vec();
    let mut note = "";
    if bits(&subject.call(inputs, seeds)) != bits(first) {
        note = "called again: not deterministic, or memory that is never written";
    } else {
        subject.call(&elsewhere, seeds);
        if bits(&subject.call(inputs, seeds)) != bits(first) {
            note = "called after another input: memory that is stale";
        } else if read != inputs {
            note = "inputs are changed by the call";
        }
    }
    let row = Row::unchecked(&subject.name, "all", Link::Reuse, "");
    if note.is_empty() {
        let worst = compare(&[0.0], &[0.0], |_| 0.0);
        Row {
            elements: bits(first).len(),
            ..Row::compared(&subject.name, "all", Link::Reuse, &worst)
        }
    } else {
        Row {
            verdict: super::report::Verdict::Fail,
            ratio: f64::INFINITY,
            ..row
        }
        .noted(note)
    }
}

/// Central differences of L around a point; see the module's text.
struct Differences<'a> {
    loss: &'a dyn Fn(&[Vec<f64>]) -> f64,
    at: &'a [Vec<f64>],
    centre: f64,
    step: f64,
    /// k·1.9·ν.
    rounding: f64,
    /// What rounding makes of the gradients themselves.
    scatter: Vec<Vec<f64>>,
}

/// Of every element, k times the deviation over points a few units in the last place apart; at least that of the
/// tensor.
fn scatter(gradients: &Gradients<'_>, at: &[Vec<f64>], epsilon: f64) -> Vec<Vec<f64>> {
    let degrees = 2 * TABLES;
    let mut stream = Key::new(0).purpose("rounding of gradients").stream();
    let runs: Vec<Vec<Vec<f64>>> = (0..=degrees)
        .map(|_| {
            let mut off = |x: &f64| x * (1.0 + GRADIENT_STEP * epsilon * stream.range(-1.0, 1.0));
            let mut near = |x: &Vec<f64>| x.iter().map(&mut off).collect();
            gradients(&at.iter().map(&mut near).collect::<Vec<_>>())
        })
        .collect();
    let of_tensor = |t: usize| -> Vec<f64> {
        let deviation = |i: usize| {
            let mean = runs.iter().map(|r| r[t][i]).sum::<f64>() / runs.len() as f64;
            let squares: f64 = (runs.iter().map(|r| (r[t][i] - mean) * (r[t][i] - mean))).sum();
            let told = (squares / degrees as f64).sqrt();
            if told.is_finite() { told } else { 0.0 }
        };
        let each: Vec<f64> = (0..at[t].len()).map(deviation).collect();
        let n = each.len().max(1) as f64;
        let floor = (each.iter().map(|d| d * d).sum::<f64>() / n).sqrt();
        let factor = student_factor(degrees, each.len());
        each.iter().map(|&d| factor * math::max(d, floor)).collect()
    };
    (0..at.len()).map(of_tensor).collect()
}

impl<'a> Differences<'a> {
    fn new(
        loss: &'a dyn Fn(&[Vec<f64>]) -> f64,
        gradients: &Gradients<'_>,
        at: &'a [Vec<f64>],
        step: f64,
        epsilon: f64,
    ) -> Self {
        let mut stream = Key::new(0).purpose("rounding of a loss").stream();
        let size = at.iter().map(|x| largest(x)).fold(0.0, math::max);
        let size = if size > 0.0 { size } else { 1.0 };
        let (mut variance, mut scale) = (0.0, 0.0);
        for _ in 0..TABLES {
            let mut direct = |x: &Vec<f64>| -> Vec<f64> {
                let sign = |s: &mut Stream| if s.below(2) == 0 { -1.0 } else { 1.0 };
                let mut one = |_| sign(&mut stream) * stream.range(0.5, 1.0) * size;
                (0..x.len()).map(&mut one).collect()
            };
            let directions: Vec<Vec<f64>> = at.iter().map(&mut direct).collect();
            let value = |i: usize| {
                let step = (i as f64 - 4.0) * NOISE_STEP * epsilon;
                loss(&moved(at, &directions, step))
            };
            let mut table: Vec<f64> = (0..9).map(value).collect();
            scale = math::max(scale, largest(&table));
            for _ in 0..4 {
                table = table.windows(2).map(|w| w[1] - w[0]).collect();
            }
            variance += table.iter().map(|d| d * d).sum::<f64>() / table.len() as f64 / 70.0;
        }
        let noise = (variance / TABLES as f64).sqrt();
        let noise = math::max(noise, 0.5 * f64::EPSILON * scale);
        Differences {
            loss,
            at,
            centre: loss(at),
            step,
            rounding: student_factor(2 * TABLES, 1) * 1.9 * noise,
            scatter: scatter(gradients, at, epsilon),
        }
    }

    /// The derivative by one element, and what it may be off by.
    fn derivative(&self, tensor: usize, index: usize, cap: f64) -> (f64, f64) {
        let x = self.at[tensor][index];
        let mut point = self.at.to_vec();
        let mut value = |x: f64| {
            point[tensor][index] = x;
            (self.loss)(&point)
        };
        let (mut best, mut limit) = (f64::NAN, f64::INFINITY);
        let mut h = self.step * math::max(x.abs(), 1.0);
        for _ in 0..ATTEMPTS {
            let (above, below) = (value(x + h), value(x - h));
            let (above2, below2) = (value(x + 0.5 * h), value(x - 0.5 * h));
            let (whole, half) = ((above - below) / (2.0 * h), (above2 - below2) / h);
            let jump = (above - 2.0 * self.centre + below).abs() / h;
            let jump2 = (above2 - 2.0 * self.centre + below2).abs() / (0.5 * h);
            let mut bound = (whole - half).abs() + self.rounding / h;
            if jump2 > KINK * jump {
                bound += jump2;
            }
            if bound < limit {
                (best, limit) = ((4.0 * half - whole) / 3.0, bound);
            }
            if limit <= cap {
                break;
            }
            h /= SHRINK;
        }
        (best, limit)
    }

    /// A row for every input.
    fn rows(
        &self,
        subject: &Function<'_>,
        gradients: &[Vec<f64>],
        cap: f64,
        note: &str,
    ) -> Vec<Row> {
        let everywhere = gradients.iter().map(|g| largest(g)).fold(0.0, math::max);
        let mut stream = Key::new(0)
            .purpose("elements that are differenced")
            .stream();
        let mut rows = Vec::new();
        for (tensor, gradient) in gradients.iter().enumerate() {
            let mut chosen: Vec<usize> = (0..gradient.len()).collect();
            if chosen.len() > DIFFERENCED {
                // The first and the last are where tails are.
                let mut drawn = vec![0, gradient.len() - 1];
                drawn.extend((2..DIFFERENCED).map(|_| stream.below(gradient.len())));
                chosen = drawn;
            }
            let cap = cap * math::max(largest(gradient), SCALE_FLOOR * everywhere);
            let (mut got, mut right, mut limits, mut known) = (vec![], vec![], vec![], vec![]);
            for &i in &chosen {
                let (value, limit) = self.derivative(tensor, i, cap);
                let limit = limit + self.scatter[tensor][i];
                // Beyond a bound is wrong, however wide the bound; so is what is no number.
                let is_wrong = (gradient[i] - value).abs() > limit || !gradient[i].is_finite();
                if limit <= cap || is_wrong {
                    got.push(gradient[i]);
                    right.push(value);
                    limits.push(limit);
                    known.push(i);
                }
            }
            let mut worst = compare(&got, &right, |i| limits[i]);
            worst.index = worst.index.map(|i| known[i]);
            let name = &subject.inputs[tensor].name;
            let row = Row::compared(&subject.name, name, Link::Differences, &worst).noted(note);
            rows.push(if 2 * known.len() < chosen.len() {
                row.doubted("most elements are at a kink, or their differences are too rough")
            } else {
                row
            });
        }
        rows
    }
}

fn moved(at: &[Vec<f64>], directions: &[Vec<f64>], step: f64) -> Vec<Vec<f64>> {
    let one = |(x, d): (&Vec<f64>, &Vec<f64>)| {
        let each = x.iter().zip(d).map(|(x, d)| x + step * d);
        each.collect()
    };
    at.iter().zip(directions).map(one).collect()
}
