//! L-BFGS with a strong-Wolfe line search over the flat parameter vector, for every model.
//!
//! With g the gradient, s the last steps in the parameters and y the changes of the gradient that
//! they made, the two-loop recursion gives the direction d = −H·g, where H approximates the inverse
//! Hessian from the last pairs (s, y), starting from (sᵀy/yᵀy)·I. Along d the search looks for a
//! step t that meets the strong Wolfe conditions
//!
//! - f(t) ≤ f(0) + c₁·t·gᵀd, c₁ = 10⁻⁴ (enough descent),
//! - |f′(t)| ≤ c₂·|gᵀd|, c₂ = 0.9 (the slope has flattened),
//!
//! first by growing t until such a step is bracketed, then by cubic interpolation inside the
//! bracket. The definition follows PyTorch's `LBFGS(line_search_fn="strong_wolfe")`.
//!
//! The whole batch is evaluated at every step: a method for small data and smooth models. It
//! works in f32 and in f64; inner products are f64 in both.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use crate::math;
use crate::rng::Key;
use crate::{Grads, Layout, Loss, Model, Pass, Scalar, Target};

const C1: f64 = 1e-4;
const C2: f64 = 0.9;
/// Evaluations of one line search at most, as PyTorch has it.
const MAX_TRIALS: usize = 25;

/// The settings.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Lbfgs {
    /// Steps at most.
    pub iterations: usize,
    /// Pairs (s, y) that are kept.
    pub history: usize,
    /// Ends when the largest element of the gradient is not above this.
    pub tolerance_grad: f64,
    /// Ends when a step changes neither parameters nor loss by more than this.
    pub tolerance_change: f64,
}

impl Default for Lbfgs {
    fn default() -> Self {
        Lbfgs {
            iterations: 100,
            history: 10,
            tolerance_grad: 1e-7,
            tolerance_change: 1e-9,
        }
    }
}

/// Why it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// The gradient is small enough.
    Gradient,
    /// A step changes nothing any more.
    Change,
    /// All iterations are done.
    Iterations,
    /// The loss or the gradient is not finite where it would have to go on; the parameters are
    /// the last good ones.
    NotFinite,
}

/// Where it ended.
#[derive(Clone, Copy, Debug)]
pub struct Minimum {
    /// The loss there.
    pub loss: f64,
    /// Steps taken.
    pub iterations: usize,
    /// Evaluations of loss and gradient.
    pub evaluations: usize,
    /// Why it ended.
    pub stop: Stop,
}

/// A point on the line: step, value, gradient, slope.
#[derive(Clone)]
struct Point {
    t: f64,
    f: f64,
    g: Vec<f64>,
    slope: f64,
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

fn largest(a: &[f64]) -> f64 {
    a.iter().fold(0.0, |m, v| math::max(m, v.abs()))
}

/// The minimum of the cubic through two points with slopes, within the bounds.
fn cubic_minimum(a: (f64, f64, f64), b: (f64, f64, f64), bounds: Option<(f64, f64)>) -> f64 {
    let (x1, f1, g1) = a;
    let (x2, f2, g2) = b;
    let (lo, hi) = bounds.unwrap_or(if x1 <= x2 { (x1, x2) } else { (x2, x1) });
    let d1 = g1 + g2 - 3.0 * (f1 - f2) / (x1 - x2);
    let square = d1 * d1 - g1 * g2;
    if square < 0.0 || square.is_nan() {
        return (lo + hi) / 2.0;
    }
    let d2 = square.sqrt();
    let at = if x1 <= x2 {
        x2 - (x2 - x1) * ((g2 + d2 - d1) / (g2 - g1 + 2.0 * d2))
    } else {
        x1 - (x1 - x2) * ((g1 + d2 - d1) / (g1 - g2 + 2.0 * d2))
    };
    if at.is_nan() {
        (lo + hi) / 2.0
    } else {
        at.clamp(lo, hi)
    }
}

/// Steps, the changes of the gradient over them, and one over their product; the oldest first.
type Pairs = VecDeque<(Vec<f64>, Vec<f64>, f64)>;

impl Lbfgs {
    /// Minimises a function of the flat vector. `evaluate(params, gradient)` returns the loss and
    /// overwrites the gradient. What the layout freezes is not moved.
    pub fn minimise<T: Scalar>(
        &self,
        params: &mut [T],
        layout: &Layout,
        mut evaluate: impl FnMut(&[T], &mut [T]) -> f64,
    ) -> Minimum {
        let n = params.len();
        let mut trained = vec![false; n];
        for range in layout.trainable() {
            trained[range].fill(true);
        }
        let mut evaluations = 0;
        let mut grad = vec![T::ZERO; n];
        let mut at = |params: &[T], count: &mut usize| -> (f64, Vec<f64>) {
            *count += 1;
            let f = evaluate(params, &mut grad);
            let masked = grad.iter().zip(&trained);
            (
                f,
                masked
                    .map(|(g, &t)| if t { g.to_f64() } else { 0.0 })
                    .collect(),
            )
        };
        let (mut f, mut g) = at(params, &mut evaluations);
        let end = |loss, iterations, evaluations, stop| Minimum {
            loss,
            iterations,
            evaluations,
            stop,
        };
        let finite = |f: f64, g: &[f64]| f.is_finite() && g.iter().all(|g| g.is_finite());
        if !finite(f, &g) {
            return end(f, 0, evaluations, Stop::NotFinite);
        }
        if largest(&g) <= self.tolerance_grad {
            return end(f, 0, evaluations, Stop::Gradient);
        }
        let mut pairs = Pairs::new();
        let mut scale = 1.0;
        let mut d: Vec<f64> = g.iter().map(|g| -g).collect();
        let mut trial = params.to_vec();
        for iteration in 0..self.iterations {
            if iteration > 0 {
                d = direction(&g, &pairs, scale);
            }
            let mut slope = dot(&g, &d);
            if slope > -f64::MIN_POSITIVE || !slope.is_finite() {
                // Not downhill any more: what is remembered misleads.
                pairs.clear();
                scale = 1.0;
                d = g.iter().map(|g| -g).collect();
                slope = dot(&g, &d);
            }
            let norm1: f64 = g.iter().map(|g| g.abs()).sum();
            let first = if pairs.is_empty() {
                math::min(1.0 / norm1, 1.0)
            } else {
                1.0
            };
            let start = Point {
                t: 0.0,
                f,
                g: g.clone(),
                slope,
            };
            let mut line = |t: f64| {
                for ((trial, p), d) in trial.iter_mut().zip(params.iter()).zip(&d) {
                    *trial = T::from_f64(p.to_f64() + t * d);
                }
                let (f, g) = at(&trial, &mut evaluations);
                let slope = dot(&g, &d);
                Point { t, f, g, slope }
            };
            let point = strong_wolfe(&mut line, start, first, largest(&d), self.tolerance_change);
            if point.t == 0.0 || !finite(point.f, &point.g) {
                let stop = if finite(point.f, &point.g) {
                    Stop::Change
                } else {
                    Stop::NotFinite
                };
                return end(f, iteration, evaluations, stop);
            }
            let s: Vec<f64> = d.iter().map(|d| d * point.t).collect();
            for (p, s) in params.iter_mut().zip(&s) {
                *p = T::from_f64(p.to_f64() + s);
            }
            let y: Vec<f64> = point.g.iter().zip(&g).map(|(a, b)| a - b).collect();
            let change = (point.f - f).abs();
            (f, g) = (point.f, point.g);
            self.remember(&mut pairs, &mut scale, &s, y);
            if largest(&g) <= self.tolerance_grad {
                return end(f, iteration + 1, evaluations, Stop::Gradient);
            }
            if largest(&s) <= self.tolerance_change && change <= self.tolerance_change {
                return end(f, iteration + 1, evaluations, Stop::Change);
            }
        }
        end(f, self.iterations, evaluations, Stop::Iterations)
    }

    /// Keeps a step s with the change y of the gradient, where they say that the function curves
    /// upwards, in the place of the oldest pair.
    fn remember(&self, pairs: &mut Pairs, scale: &mut f64, s: &[f64], y: Vec<f64>) {
        let ys = dot(&y, s);
        if ys > 1e-10 * math::max(dot(s, s), f64::MIN_POSITIVE) * math::min(scale.recip(), 1.0) {
            *scale = ys / dot(&y, &y);
            if pairs.len() == self.history.max(1) {
                pairs.pop_front();
            }
            pairs.push_back((s.to_vec(), y, 1.0 / ys));
        }
    }

    /// Minimises a model's loss and penalty on one batch.
    pub fn fit<M: Model, T: Scalar>(
        &self,
        model: &M,
        params: &mut [T],
        loss: Loss,
        input: &M::Input<T>,
        target: &Target<T>,
    ) -> Minimum {
        let pass = Pass::training(Key::new(0).purpose("lbfgs"));
        let mut tape = M::Tape::<T>::default();
        let mut d_output = Vec::new();
        self.minimise(params, model.layout(), |params, grad| {
            model.compute_forward(params, input, &pass, &mut tape);
            let output = model.output(&tape);
            d_output.resize(output.len(), T::ZERO);
            let value = loss.compute(output, target, Some(&mut d_output));
            model.compute_backward(
                params,
                input,
                &pass,
                &mut tape,
                &d_output,
                Grads::params(grad),
            );
            let penalty = model.penalty(params, Some(grad));
            value.to_f64() + penalty.to_f64()
        })
    }
}

/// The two-loop recursion.
fn direction(g: &[f64], pairs: &Pairs, scale: f64) -> Vec<f64> {
    let mut q: Vec<f64> = g.iter().map(|g| -g).collect();
    let mut alphas = Vec::with_capacity(pairs.len());
    for (s, y, rho) in pairs.iter().rev() {
        let alpha = rho * dot(s, &q);
        for (q, y) in q.iter_mut().zip(y) {
            *q -= alpha * y;
        }
        alphas.push(alpha);
    }
    for q in &mut q {
        *q *= scale;
    }
    for ((s, y, rho), alpha) in pairs.iter().zip(alphas.iter().rev()) {
        let beta = rho * dot(y, &q);
        for (q, s) in q.iter_mut().zip(s) {
            *q += (alpha - beta) * s;
        }
    }
    q
}

/// The step along the line; t = 0 where there is none that descends.
fn strong_wolfe(
    line: &mut impl FnMut(f64) -> Point,
    start: Point,
    first: f64,
    d_largest: f64,
    tolerance_change: f64,
) -> Point {
    let (f0, slope0) = (start.f, start.slope);
    let mut previous = start.clone();
    let mut current = line(first);
    let mut trials = 1;
    let armijo = |p: &Point| p.f <= f0 + C1 * p.t * slope0;
    // Bracket.
    let mut bracket;
    loop {
        if !current.f.is_finite() {
            // Too far: come back towards the last good point.
            if trials >= MAX_TRIALS {
                return if previous.t > 0.0 { previous } else { start };
            }
            current = line((previous.t + current.t) / 2.0);
            trials += 1;
            continue;
        }
        if !armijo(&current) || (trials > 1 && current.f >= previous.f && previous.t > 0.0) {
            bracket = [previous, current];
            break;
        }
        if current.slope.abs() <= -C2 * slope0 {
            return current;
        }
        if current.slope >= 0.0 {
            bracket = [previous, current];
            break;
        }
        if trials >= MAX_TRIALS {
            return current;
        }
        let least = current.t + 0.01 * (current.t - previous.t);
        let most = current.t * 10.0;
        let t = cubic_minimum(
            (previous.t, previous.f, previous.slope),
            (current.t, current.f, current.slope),
            Some((least, most)),
        );
        previous = current;
        current = line(t);
        trials += 1;
    }
    // Zoom.
    let mut insufficient = false;
    let (mut low, mut high) = if bracket[0].f <= bracket[1].f {
        (0, 1)
    } else {
        (1, 0)
    };
    while trials < MAX_TRIALS {
        if (bracket[1].t - bracket[0].t).abs() * d_largest < tolerance_change {
            break;
        }
        let (a, b) = (&bracket[0], &bracket[1]);
        let mut t = cubic_minimum((a.t, a.f, a.slope), (b.t, b.f, b.slope), None);
        let (least, most) = (math::min(a.t, b.t), math::max(a.t, b.t));
        let margin = 0.1 * (most - least);
        if math::min(most - t, t - least) < margin {
            if insufficient || t >= most || t <= least {
                t = if (t - most).abs() < (t - least).abs() {
                    most - margin
                } else {
                    least + margin
                };
                insufficient = false;
            } else {
                insufficient = true;
            }
        } else {
            insufficient = false;
        }
        let new = line(t);
        trials += 1;
        if !new.f.is_finite() || !armijo(&new) || new.f >= bracket[low].f {
            bracket[high] = new;
            (low, high) = if bracket[0].f <= bracket[1].f || bracket[1].f.is_nan() {
                (0, 1)
            } else {
                (1, 0)
            };
        } else {
            if new.slope.abs() <= -C2 * slope0 {
                return new;
            }
            if new.slope * (bracket[high].t - bracket[low].t) >= 0.0 {
                bracket[high] = bracket[low].clone();
            }
            bracket[low] = new;
        }
    }
    let [a, b] = bracket;
    if low == 0 { a } else { b }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout(n: usize) -> Layout {
        let mut layout = Layout::new();
        layout.push("p", &[n]);
        layout
    }

    fn rosenbrock(p: &[f64], g: &mut [f64]) -> f64 {
        let mut f = 0.0;
        g.fill(0.0);
        for i in 0..p.len() - 1 {
            let (a, b) = (1.0 - p[i], p[i + 1] - p[i] * p[i]);
            f += a * a + 100.0 * b * b;
            g[i] += -2.0 * a - 400.0 * b * p[i];
            g[i + 1] += 200.0 * b;
        }
        f
    }

    /// The valley of Rosenbrock's function, minimum 0 at (1, 1). Its second derivatives there are 802,
    /// −400 and 200, the smaller eigenvalue 0.399; where no element of the gradient is above 10⁻⁷
    /// the minimum is √2·10⁻⁷/0.399 away at most, and the loss half of 2·10⁻¹⁴/0.399. (Within that
    /// distance the derivatives change by a thousandth.)
    #[test]
    fn rosenbrocks_valley_is_followed_to_its_end() {
        let mut p = vec![-1.2, 1.0];
        let lbfgs = Lbfgs {
            iterations: 200,
            ..Lbfgs::default()
        };
        let minimum = lbfgs.minimise(&mut p, &layout(2), rosenbrock);
        assert_eq!(minimum.stop, Stop::Gradient, "{minimum:?} {p:?}");
        let tolerance = lbfgs.tolerance_grad;
        let eigenvalue = 0.39;
        let distance = (p[0] - 1.0).hypot(p[1] - 1.0);
        assert!(distance <= 2.0_f64.sqrt() * tolerance / eigenvalue, "{p:?}");
        assert!(
            minimum.loss <= tolerance * tolerance / eigenvalue,
            "{minimum:?}"
        );
        assert!(minimum.evaluations < 200, "{minimum:?}");
    }

    /// Curvatures h from 0.5 to 10 in four dimensions. Where no element of the gradient is above
    /// 10⁻⁷ the loss is Σ g²/(2h) at most.
    #[test]
    fn a_quadratic_takes_few_steps() {
        let mut p = vec![3.0, -2.0, 5.0, 1.0];
        let h = [1.0, 10.0, 3.0, 0.5];
        let lbfgs = Lbfgs::default();
        let minimum = lbfgs.minimise(&mut p, &layout(4), |p: &[f64], g: &mut [f64]| {
            for i in 0..4 {
                g[i] = h[i] * (p[i] - 1.0);
            }
            (0..4).map(|i| 0.5 * h[i] * (p[i] - 1.0).powi(2)).sum()
        });
        assert_eq!(minimum.stop, Stop::Gradient, "{minimum:?}");
        let bound = lbfgs.tolerance_grad.powi(2) * h.iter().map(|h| 0.5 / h).sum::<f64>();
        assert!(minimum.loss <= bound, "{minimum:?}, bound {bound:e}");
        // Steepest descent with exact line searches lessens the loss by ((κ − 1)/(κ + 1))² in a
        // step, κ = 20: a sixth of the steps that it may need.
        let (start, rate) = (71.0_f64, (19.0_f64 / 21.0).powi(2));
        let steepest = (start / bound).ln() / -rate.ln();
        assert!(
            (minimum.iterations as f64) < steepest / 6.0,
            "{minimum:?}, {steepest}"
        );
    }

    #[test]
    fn frozen_parameters_stay_and_nan_ends_it_with_the_last_good_ones() {
        let mut layout = Layout::new();
        layout.push("free", &[2]);
        layout.push("held", &[1]);
        layout.freeze("held").unwrap();
        let square = |p: &[f32], g: &mut [f32]| {
            for i in 0..3 {
                g[i] = 2.0 * p[i];
            }
            f64::from(p.iter().map(|p| p * p).sum::<f32>())
        };
        let mut p = vec![1.0_f32, -2.0, 7.0];
        Lbfgs::default().minimise(&mut p, &layout, square);
        assert_eq!(p[2], 7.0);
        // The loss is 49 more in f32: a decrease below its spacing there, 2⁻¹⁸, is not seen.
        let left = p[0] * p[0] + p[1] * p[1];
        assert!(left <= 2.0_f32.powi(-18), "{p:?}");
        let mut p = vec![1.0_f32, -2.0, 7.0];
        let minimum = Lbfgs::default().minimise(&mut p, &layout, |_: &[f32], g: &mut [f32]| {
            g.fill(1.0);
            f64::NAN
        });
        assert_eq!((p, minimum.stop), (vec![1.0, -2.0, 7.0], Stop::NotFinite));
    }
}
