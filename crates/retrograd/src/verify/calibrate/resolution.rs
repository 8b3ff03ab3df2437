//! The smallest fault of a gradient that each link finds.
//!
//! A right model's gradient of one tensor is made wrong in two ways, by a share r:
//!
//! - **scaled**: g·(1 + r), as a wrong factor makes it;
//! - **one element**: one of its elements, drawn at random, off by r times the tensor's largest.
//!
//! An element is accused where |e + r·f| > b, with e the error that it has anyway, f the fault's direction and b
//! its bound, so that the smallest share that is found is the least of (b − e·sign f)/|f| over the tensor. After steps the
//! share is halved until the steps hide it. The table has the median over tensors of random models, and what 99 of
//! 100 are below: the resolution. Rows that are unchecked say nothing and are not counted, nor are tensors whose gradient is
//! below a thousandth of the model's largest: of one that is nothing but rounding no share is found.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::ops::Range;

use super::models::Drawn;
use super::{OnDrawn, with_drawn};
use crate::math;
use crate::rng::{Key, Stream};
use crate::scalar::cast;
use crate::verify::builtin::subject;
use crate::verify::chain::{Expectation, Options, SCALE_FLOOR, differences_of};
use crate::verify::differences::Coverage;
use crate::verify::precision::Bounds;
use crate::verify::report::{Verdict, largest};
use crate::verify::subject::{Evaluation, Runner, Subject, follow};
use crate::verify::trajectories::trajectory_rows;
use crate::{Kernels, Model, Result, parallel};

/// Beyond this share a fault counts as hidden.
const MOST: f64 = 1e3;

/// Whether a tensor's gradient is more than rounding; see the module's text.
fn matters(gradient: &[f64], expected: &Expectation) -> bool {
    let exact = &expected.exact;
    let everywhere = math::max(largest(&exact.d_params), largest(&exact.d_input));
    !gradient.is_empty() && largest(gradient) > SCALE_FLOOR * everywhere
}

/// One fault's smallest share that a link finds; [`MOST`] where it finds none.
struct Found {
    link: String,
    fault: &'static str,
    share: f64,
}

/// The faults of a tensor: their direction, element by element.
fn faults(gradient: &[f64], stream: &mut Stream) -> [(&'static str, Vec<f64>); 2] {
    let mut one = vec![0.0; gradient.len()];
    one[stream.below(gradient.len())] = largest(gradient);
    [("scaled", gradient.to_vec()), ("one element", one)]
}

/// The smallest share at which an element leaves its bound.
fn smallest(fault: &[f64], error: impl Fn(usize) -> f64, bound: impl Fn(usize) -> f64) -> f64 {
    let share = |(i, &f): (usize, &f64)| match f == 0.0 {
        true => MOST,
        false => math::max(bound(i) - error(i) * f.signum(), 0.0) / f.abs(),
    };
    fault.iter().enumerate().map(share).fold(MOST, math::min)
}

/// Halves a share until it is hidden; the last that was found.
fn halved(found: impl Fn(f64) -> bool) -> f64 {
    let (mut low, mut high) = (0.0, MOST);
    if !found(high) {
        return MOST;
    }
    let mut share = 1.0;
    while share > 1e-18 && found(share) {
        high = share;
        share *= 0.5;
    }
    low = math::max(low, share);
    for _ in 0..3 {
        let middle = 0.5 * (low + high);
        match found(middle) {
            true => high = middle,
            false => low = middle,
        }
    }
    high
}

struct Resolve<'o> {
    seed: u64,
    options: &'o Options,
}

impl OnDrawn for Resolve<'_> {
    type Out = Vec<Found>;

    fn on<M: Model>(self, name: &str, drawn: &Drawn<M>) -> Result<Vec<Found>> {
        let subject = subject(name, &drawn.case, drawn.loss);
        let Some(mut device) = drawn.case.model.verifier(self.options.on)? else {
            return Ok(Vec::new());
        };
        let optimizers: Vec<_> = self.options.optimizers.iter().map(|(_, o)| o).collect();
        let (granted, steps, plan) = (device.granted(), self.options.steps, &self.options.plan);
        let expected = Expectation::new(&subject, granted, &optimizers, steps, plan);
        let mut stream = Key::new(self.seed).purpose("faults").stream();
        let mut found = by_differences(&subject, &expected, &mut stream);
        let evaluation = device.evaluate(&subject)?;
        let link = device.link().name();
        found.extend(by_bounds(
            &subject,
            &expected,
            &evaluation,
            link,
            &mut stream,
        ));
        if link == "3 cpu f32" {
            found.extend(after_steps(&subject, &expected, self.options, &mut stream));
        }
        Ok(found)
    }
}

/// Link 1.
fn by_differences<M: Model>(
    subject: &Subject<'_, M>,
    expected: &Expectation,
    stream: &mut Stream,
) -> Vec<Found> {
    let coverage = Coverage {
        all_up_to: 6_000,
        ..Coverage::default()
    };
    let mut all = Vec::new();
    for section in differences_of(subject, expected, &coverage) {
        let flat = match section.is_input {
            true => &expected.exact.d_input,
            false => &expected.exact.d_params,
        };
        let gradient: Vec<f64> = section.indices.iter().map(|&i| flat[i]).collect();
        let derivatives = &section.derivatives;
        if !matters(&gradient, expected) || derivatives.iter().any(|d| d.unchecked) {
            continue;
        }
        for (fault, direction) in faults(&gradient, stream) {
            let error = |i: usize| gradient[i] - derivatives[i].value;
            let share = smallest(&direction, error, |i| derivatives[i].bound);
            let link = "1 differences".to_string();
            all.push(Found { link, fault, share });
        }
    }
    all
}

/// The tensors that are trained, and the batch: their exact gradients, a device's, and what rounding explains.
fn tensors<'e, M: Model>(
    subject: &Subject<'_, M>,
    expected: &'e Expectation,
    evaluation: &'e Evaluation<f64>,
) -> Vec<(&'e [f64], &'e [f64], Bounds)> {
    let (exact, trained) = (&expected.exact, subject.model.layout().tensors());
    let params = trained
        .iter()
        .filter(|t| !t.frozen && !t.is_empty())
        .map(|t| {
            let range = t.range();
            let own = &exact.d_params[range.clone()];
            let bounds = expected.bounds(own, |e| &e.d_params[range.clone()]);
            (own, &evaluation.d_params[range], bounds)
        });
    let bounds = expected.bounds(&exact.d_input, |e| &e.d_input);
    let input = (&exact.d_input[..], &evaluation.d_input[..], bounds);
    params
        .chain((!exact.d_input.is_empty()).then_some(input))
        .collect()
}

/// Links 3, 4 and 5.
fn by_bounds<M: Model>(
    subject: &Subject<'_, M>,
    expected: &Expectation,
    evaluation: &Evaluation<f64>,
    link: &str,
    stream: &mut Stream,
) -> Vec<Found> {
    let mut all = Vec::new();
    for (exact, values, bounds) in tensors(subject, expected, evaluation) {
        if !matters(exact, expected) || !bounds.meaningful(largest(exact)) {
            continue;
        }
        for (fault, direction) in faults(exact, stream) {
            let share = smallest(&direction, |i| values[i] - exact[i], |i| bounds.at(i));
            let link = link.to_string();
            all.push(Found { link, fault, share });
            let other = |share: f64| {
                let wrong = values.iter().zip(&direction).map(|(v, f)| v + share * f);
                wrong.zip(values).any(|(w, v)| w as f32 != *v as f32)
            };
            let (link, share) = ("5 equal bits".to_string(), halved(other));
            all.push(Found { link, fault, share });
        }
    }
    all
}

/// Link 6: the same fault at every step of the kernels, in one tensor.
fn after_steps<M: Model>(
    subject: &Subject<'_, M>,
    expected: &Expectation,
    options: &Options,
    stream: &mut Stream,
) -> Vec<Found> {
    let layout = subject.model.layout();
    let trained: Vec<Range<usize>> = layout
        .tensors()
        .iter()
        .filter(|t| !t.frozen && matters(&expected.exact.d_params[t.range()], expected))
        .map(|t| t.range())
        .collect();
    if trained.is_empty() {
        return Vec::new();
    }
    let range = trained[stream.below(trained.len())].clone();
    let at = range.start + stream.below(range.len());
    let start: Vec<f32> = cast(&subject.params);
    let mut all = Vec::new();
    for (which, (name, optimizer)) in options.optimizers.iter().enumerate() {
        let rows = |fault: &str, share: f64| {
            let mut runner = Runner::<M, f32>::new(subject, Kernels::Fast);
            let gradients = |params: &[f32], d: &mut [f32]| {
                let loss = runner.gradients(params, d, None, false);
                let own: Vec<f64> = cast(&d[range.clone()]);
                match fault {
                    "scaled" => d[range.clone()]
                        .iter_mut()
                        .for_each(|g| *g *= 1.0 + share as f32),
                    _ => d[at] += (share * largest(&own)) as f32,
                }
                loss
            };
            let wrong = follow(layout, &start, optimizer, options.steps, gradients);
            trajectory_rows(subject, expected, which, name, &wrong.to_f64())
        };
        let verdicts =
            |rows: Vec<crate::verify::Row>, is: Verdict| rows.iter().any(|r| r.verdict == is);
        if rows("scaled", 0.0)
            .iter()
            .any(|r| r.verdict != Verdict::Pass)
        {
            continue;
        }
        for fault in ["scaled", "one element"] {
            let share = halved(|share| verdicts(rows(fault, share), Verdict::Fail));
            let link = format!("6 after {name}");
            all.push(Found { link, fault, share });
        }
    }
    all
}

/// The table over the models of some seeds.
pub fn resolution(
    seeds: Range<u64>,
    options: &Options,
    done: impl Fn() + Send + Sync,
) -> Result<String> {
    let count = (seeds.end - seeds.start) as usize;
    let found = parallel::isolated(count, |i| {
        let seed = seeds.start + i as u64;
        let found = with_drawn(seed, Resolve { seed, options });
        done();
        found
    });
    let mut shares: BTreeMap<(String, &str), Vec<f64>> = BTreeMap::new();
    for found in found {
        for found in found? {
            let own = shares.entry((found.link, found.fault)).or_default();
            own.push(found.share);
        }
    }
    let mut text = String::from(
        "| link | fault | tensors | half are found from | 99 % are found from |\n|---|---|--:|--:|--:|\n",
    );
    for ((link, fault), mut shares) in shares {
        shares.sort_by(f64::total_cmp);
        let n = shares.len();
        let below = |share: f64| match shares[((share * n as f64).ceil() as usize).clamp(1, n) - 1]
        {
            found if found >= MOST => "not found".to_string(),
            found => format!("{found:.1e}"),
        };
        let _ = writeln!(
            text,
            "| {link} | {fault} | {n} | {} | {} |",
            below(0.5),
            below(0.99)
        );
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_smallest_share_is_the_one_that_leaves_a_bound() {
        // Errors 0.5 and −0.5 of bounds 1 and 1: the second element has room 1.5 upwards, 0.5 downwards.
        let error = |i: usize| [0.5, -0.5][i];
        let share = |fault: &[f64]| smallest(fault, error, |_| 1.0);
        assert_eq!(share(&[0.0, 2.0]), 0.75);
        assert_eq!(share(&[0.0, -2.0]), 0.25);
        assert_eq!(share(&[1.0, 1.0]), 0.5);
        assert_eq!(share(&[0.0, 0.0]), MOST);
        let found = halved(|share| share >= 0.1);
        assert!((0.1..0.107).contains(&found), "{found}");
        assert_eq!(halved(|_| false), MOST);
    }
}
