//! Link 6: optimizer steps in f32 against the f64 reference's.
//!
//! Adam divides by the size of the gradient, so that an error of a small gradient moves a parameter as far as
//! one of a large gradient. With b_t what rounding can explain in the gradient of step t ([`Bounds`]), an
//! element of |g_t| ≤ b_t has no direction and is left out. The others are followed twice more for
//! every step, with g_t + b_t and g_t − b_t in that step alone, and with all of them at once:
//!
//! c = max( Σ_t max± |p(g_t ± b_t) − p|, |p(g + b) − p|, |p(g − b) − p| )
//!
//! is what the steps make of errors that the gradients are granted. The spread of drawn runs says the same where
//! steps are nearly linear in the gradient, and less where a gradient has no error in the reference's order of
//! operations and its tensor's floor grants it one.

use super::bundle::BundleOptimizer;
use super::chain::{Expectation, SCALE_FLOOR, bounds_fit};
use super::precision::Bounds;
use super::report::{Link, Row, Verdict, Worst, compare, largest};
use super::subject::{Subject, Trajectory, divides_by_size, follow};
use crate::Model;
use crate::math;

/// What the gradients' errors make of the elements of a trajectory.
pub struct Reach {
    /// Which elements have a direction at every step. Gradients that are 0 in every run (a row that the
    /// batch never touches) have one: nothing moves.
    pub defined: Vec<bool>,
    /// How far errors within their bounds may move each; 0 where steps are linear in the gradient.
    pub moved: Vec<f64>,
}

impl Reach {
    /// In f32 (`share` 1) or f64 ([`F64_SHARE`](super::chain::F64_SHARE)).
    pub fn new<M: Model>(
        subject: &Subject<'_, M>,
        optimizer: &BundleOptimizer,
        exact: &Trajectory<f64>,
        runs: &[Trajectory<f64>],
        share: f64,
    ) -> Self {
        let mut reach = Reach {
            defined: vec![true; exact.params.len()],
            moved: vec![0.0; exact.params.len()],
        };
        if !divides_by_size(&optimizer.spec) {
            return reach;
        }
        let bounds: Vec<Vec<f64>> = (0..exact.grads.len())
            .map(|step| gradient_bounds(subject, exact, runs, step, share))
            .collect();
        for (step, grads) in exact.grads.iter().enumerate() {
            for (i, &g) in grads.iter().enumerate() {
                let untouched = || g == 0.0 && runs.iter().all(|r| r.grads[step][i] == 0.0);
                if g.abs() <= bounds[step][i] && !untouched() {
                    reach.defined[i] = false;
                }
            }
        }
        reach.moved = moved(subject, optimizer, exact, &bounds);
        reach
    }
}

/// What the gradient of a step may be off by; nothing where it is 0 in every run.
fn gradient_bounds<M: Model>(
    subject: &Subject<'_, M>,
    exact: &Trajectory<f64>,
    runs: &[Trajectory<f64>],
    step: usize,
    share: f64,
) -> Vec<f64> {
    let grads = &exact.grads[step];
    let mut all = vec![0.0; grads.len()];
    for tensor in subject.model.layout().tensors() {
        let range = tensor.range();
        let drawn = runs.iter().map(|r| &r.grads[step][range.clone()]);
        let bounds = Bounds::new(&grads[range.clone()], drawn);
        for (i, bound) in range.zip(bounds.values()) {
            let untouched = grads[i] == 0.0 && runs.iter().all(|r| r.grads[step][i] == 0.0);
            all[i] = if untouched { 0.0 } else { share * bound };
        }
    }
    all
}

/// See the module's text.
fn moved<M: Model>(
    subject: &Subject<'_, M>,
    optimizer: &BundleOptimizer,
    exact: &Trajectory<f64>,
    bounds: &[Vec<f64>],
) -> Vec<f64> {
    let (layout, steps) = (subject.model.layout(), exact.grads.len());
    let along = |sign: f64, only: Option<usize>| {
        let mut step = 0;
        let gradients = |_: &[f64], d: &mut [f64]| {
            let sign = if only.is_none_or(|t| t == step) {
                sign
            } else {
                0.0
            };
            let own = exact.grads[step].iter().zip(&bounds[step]);
            for (d, (g, b)) in d.iter_mut().zip(own) {
                *d = g + sign * b;
            }
            step += 1;
            0.0
        };
        follow(layout, &subject.params, optimizer, steps, gradients).params
    };
    let right = along(0.0, None);
    let far = |sign: f64, only: Option<usize>| -> Vec<f64> {
        let params = along(sign, only);
        let pairs = params.iter().zip(&right);
        pairs.map(|(p, r)| (p - r).abs()).collect()
    };
    let either = |only: Option<usize>| -> Vec<f64> {
        let (up, down) = (far(1.0, only), far(-1.0, only));
        up.iter()
            .zip(&down)
            .map(|(&u, &d)| math::max(u, d))
            .collect()
    };
    let mut sum = vec![0.0; right.len()];
    for step in 0..steps {
        for (sum, one) in sum.iter_mut().zip(either(Some(step))) {
            *sum += one;
        }
    }
    let both = sum.iter().zip(either(None));
    both.map(|(&s, all)| math::max(s, all)).collect()
}

/// Whether the steps lead away: a loss that is not finite, or ten times what it was. A rate that is too
/// large multiplies the parameters' errors at every step as it multiplies the loss.
fn diverges(trajectory: &Trajectory<f64>) -> bool {
    let losses = &trajectory.losses;
    let finite = losses
        .iter()
        .chain(&trajectory.params)
        .all(|v| v.is_finite());
    let grown = match (losses.first(), losses.last()) {
        (Some(first), Some(last)) => last.abs() > 10.0 * first.abs(),
        _ => false,
    };
    !finite || grown
}

/// Link 6 in f32: a device's trajectory against the f64 reference's, within the predicted bounds.
pub fn trajectory_rows<M: Model>(
    subject: &Subject<'_, M>,
    expected: &Expectation,
    which: usize,
    name: &str,
    trajectory: &Trajectory<f64>,
) -> Vec<Row> {
    let exact = &expected.trajectories[which];
    let runs = &expected.samples.trajectories[which];
    let Reach {
        defined,
        moved: reached,
    } = &expected.reach[which];
    let moved: Vec<f64> = exact
        .params
        .iter()
        .zip(&subject.params)
        .map(|(after, before)| after - before)
        .collect();
    let furthest = largest(&moved);
    let mut worst = Worst::default();
    let mut worst_tensor = String::new();
    let mut vague = Vec::new();
    let mut elements = 0;
    for tensor in subject.model.layout().tensors() {
        if tensor.frozen || tensor.is_empty() {
            continue;
        }
        let range = tensor.range();
        // An element without a direction moves by chance: it is not compared, and what it does is no
        // measure for the others.
        let kept: Vec<usize> = range.clone().filter(|&i| defined[i]).collect();
        let of = |params: &[f64]| kept.iter().map(|&i| params[i]).collect::<Vec<_>>();
        let here = of(&exact.params);
        let drawn: Vec<Vec<f64>> = runs.iter().map(|r| of(&r.params)).collect();
        let bounds = Bounds::new(&here, drawn.iter().map(|d| &d[..]));
        let values = match trajectory.params.len() == exact.params.len() {
            true => of(&trajectory.params),
            false => Vec::new(),
        };
        let mut w = if bounds_fit(&values, &here) {
            compare(&values, &here, |i| {
                math::max(bounds.at(i), reached[kept[i]])
            })
        } else {
            compare(&values, &here, |_| 0.0)
        };
        w.index = w.index.map(|i| kept[i] - range.start);
        elements += w.elements;
        if w.elements > 0
            && !bounds.meaningful(math::max(largest(&moved[range]), SCALE_FLOOR * furthest))
        {
            vague.push(tensor.name.clone());
        }
        if worst_tensor.is_empty() || w.ratio > worst.ratio {
            worst = w;
            worst_tensor.clone_from(&tensor.name);
        }
    }
    worst.elements = elements;
    let label = format!("after {name}");
    let mut row = Row::compared(&subject.name, label, Link::Trajectory, &worst)
        .noted(format!("worst in {worst_tensor}"));
    row.left_out = defined.iter().filter(|d| !**d).count();
    if row.left_out > elements {
        row = row.doubted("most of its elements have no direction in f32");
    }
    if !vague.is_empty() {
        row = row.doubted(format!(
            "rounding may be more than a tenth of the distance that {} moves",
            vague.join(", ")
        ));
    }
    let bounds = Bounds::new(&exact.losses, runs.iter().map(|r| &r.losses[..]));
    let losses = if bounds_fit(&trajectory.losses, &exact.losses) {
        compare(&trajectory.losses, &exact.losses, |i| bounds.at(i))
    } else {
        compare(&trajectory.losses, &exact.losses, |_| 0.0)
    };
    let label = format!("losses {name}");
    let losses = Row::compared(&subject.name, label, Link::Trajectory, &losses);
    let mut rows = vec![row, losses];
    if diverges(exact) || runs.iter().any(diverges) {
        for row in rows.iter_mut().filter(|row| row.verdict == Verdict::Fail) {
            row.verdict = Verdict::Unchecked;
            *row = row
                .clone()
                .noted("the steps diverge, and rounding with them");
        }
    }
    rows
}
