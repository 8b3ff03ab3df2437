//! What rounding can explain: bounds predicted by Monte Carlo arithmetic.
//!
//! The reference is run R times on [`Rounded`], whose every operation rounds to f32 at random. With
//! v the value in f64 and e_r the difference of run r to it, element i has the spread
//!
//! s_i = √( Σ_r e_r² / R ).
//!
//! A kernel's own error is one more draw of the same size or less: rounding to nearest has a mean
//! square of 1/12 spacing², rounding at random 1/6, and fast kernels add in shorter runs than the
//! reference. Taken as normal with that size, error / s_i is Student's t with R degrees of freedom:
//! the numerator normal, R·s_i² over the variance χ² with R degrees, because the runs are compared
//! with the exact value and not with their mean. The bound is
//!
//! b_i = k · max(s_i, floor),  k such that P(|t_R| > k) = α / n
//!
//! for n elements in the tensor: with α = 10⁻⁴ one tensor in ten thousand would be accused
//! wrongly if kernels were as bad as the reference with random rounding. (n = 1000: k = 8.7 for
//! R = 16, 18 for R = 8.) Runs are few where a run is long, and k grows by that same rule. Where
//! whole trajectories on [`Rounded`] would cost more than the plan allows, their gradients are
//! computed in f64 and perturbed by the spread that the evaluations have, element by element; the
//! optimizer's arithmetic still rounds at random.
//!
//! That spread is the start's, and the gradient of a model with kinks is not continuous: a ReLU
//! whose input comes within rounding of zero at a later step is turned over in f32 and not in f64,
//! and its whole share of the gradient, J, appears or vanishes. (`cnn_denoise_128` has a million of
//! them, none near zero at the start and one after two steps of SGD.) So those gradients are
//!
//! ( g(θ + δ) + g(θ − δ) ) / 2,  δ_i = M·η·θ_i·ξ_i, ξ normal,
//!
//! with η such that η·θ·ξ moves the output as much as rounding does, root mean square. What is
//! smooth in g cancels up to δ²; a kink that lies on one side of θ within δ stays, as J/2. A kink
//! at a distance of a times its rounding is turned over with a chance of Φ(−a) on a device, and is
//! missed in all of R = 8 runs with a chance of P(|ξ| < a/M)⁸: for M = 4 the product is 1.4·10⁻⁵
//! at most (at a = 2.5), below α.
//!
//! Half of the runs round what is equal alike, half draw every direction anew (`verify::rounded`): a kernel's
//! roundings are as dependent as the one or as the other, or between them. Where the mean squares of the two
//! halves differ by no more than a ratio that chance exceeds in one of a hundred elements (F with R/2 and
//! R/2 degrees), all R runs are one sample; at the edge of that the root of the pooled mean square is 0.75 of
//! the larger one. Where they differ by more the larger half alone is the sample, with Student's factor for
//! R/2 degrees. That is so where terms cancel to the last bit in the reference's order, and where errors
//! of equal terms add up.
//!
//! The floor is taken over the tensor: the root mean square of its s_i, and at least 2⁻²⁴ times
//! that of its values, the rounding of storing a result in f32. It is there for elements whose
//! arithmetic happens to be exact in the reference's order of operations and is not in another.
//!
//! f32 ends at 2⁻¹²⁶. A result that is smaller loses digits or is 0, in the kernels' order of factors and not in the
//! reference's, and what is lost may be multiplied by a weight and a datum afterwards: no bound is less than
//! 2⁻¹²⁶·(1 + max|θ|)·(1 + max|x|) ([`underflow`]).
//!
//! A bound that is a tenth of the tensor's scale or more would let real faults through: such a
//! tensor is reported as unchecked ([`Bounds::meaningful`]).

use super::bundle::BundleOptimizer;
use super::report::largest;
use super::rounded::{Granted, Rounded};
use super::subject::{Evaluation, Runner, Subject, Trajectory, follow};
use crate::math;
use crate::rng::Key;
use crate::scalar::cast;
use crate::{Kernels, Model, Scalar, parallel};

/// The chance of a wrong accusation for a tensor; see the module's text.
const ALPHA: f64 = 1e-4;

/// The share of the scale that a bound may reach before it says nothing.
pub(super) const MEANINGFUL: f64 = 0.1;

/// The fewest runs whose factor is still of use (k = 18 for n = 1000).
const FEWEST_RUNS: usize = 8;

/// An evaluation in f64 costs about an eighth of one on the number that rounds (measured on
/// `cnn_denoise_128`: 0.71 s against 5.7 s on a busy machine).
const F64_CHEAPER: u64 = 8;

/// How many times further than rounding kinks are looked for; see the module's text.
const KINK_REACH: f64 = 4.0;

/// How many runs, and how much they may cost.
#[derive(Clone, Copy, Debug)]
pub struct SamplePlan {
    /// The most runs; even.
    pub runs: usize,
    /// Roundings that all runs together may cost; runs are fewer where this would be exceeded.
    /// Counted, not timed: the same on every machine.
    pub roundings: u64,
    /// The first run's seed.
    pub seed: u64,
}

impl Default for SamplePlan {
    fn default() -> Self {
        SamplePlan {
            runs: 16,
            // Some 5 ns each: about 4 seconds on two cores for the evaluations of a long subject,
            // and as much for its trajectories.
            roundings: 1_500_000_000,
            seed: 1,
        }
    }
}

/// Runs of a subject on the number that rounds at random.
pub struct Samples {
    /// What one evaluation costs.
    pub roundings: u64,
    /// One evaluation per run.
    pub evaluations: Vec<Evaluation<f64>>,
    /// For each optimizer, one trajectory per run. Runs may be fewer than evaluations.
    pub trajectories: Vec<Vec<Trajectory<f64>>>,
}

/// One run: an evaluation and, from it, the optimizers' trajectories.
fn run<M: Model>(
    subject: &Subject<'_, M>,
    granted: &'static Granted,
    optimizers: &[&BundleOptimizer],
    steps: usize,
    seed: u64,
    scale: Option<f64>,
) -> (Evaluation<f64>, Vec<Trajectory<f64>>, u64) {
    Rounded::start(seed, granted);
    if let Some(scale) = scale {
        Rounded::scale_gradients(scale);
    }
    let params: Vec<Rounded> = cast(&subject.params);
    let mut runner = Runner::<M, Rounded>::new(subject, Kernels::Reference);
    let first = runner.evaluate(&params);
    let roundings = Rounded::count();
    let trajectories = optimizers
        .iter()
        .map(|optimizer| {
            runner
                .trajectory(&params, optimizer, steps, Some(&first))
                .to_f64()
        })
        .collect();
    (first.to_f64(), trajectories, roundings)
}

/// The largest loss scale at which no gradient leaves the range of the numbers that it is kept in: a power of two,
/// from 1 to 2²⁴. None where they have f32's.
fn loss_scale<M: Model>(
    subject: &Subject<'_, M>,
    granted: &'static Granted,
    seed: u64,
) -> Option<f64> {
    let [_, most] = granted.kept?;
    let measured = parallel::isolated(1, |_| {
        let _ = run(subject, granted, &[], 0, seed, None);
        Rounded::largest_gradient()
    });
    let mut scale = f64::from(1 << 24);
    while scale > 1.0 && scale * measured[0] > most {
        scale *= 0.5;
    }
    Some(scale)
}

/// An even number of runs whose cost stays within what there is.
fn affordable(plan: &SamplePlan, available: u64, cost: u64) -> usize {
    let runs = usize::try_from(available / cost.max(1)).unwrap_or(usize::MAX);
    runs.clamp(FEWEST_RUNS, plan.runs.max(FEWEST_RUNS)) / 2 * 2
}

/// Runs the reference on the number that rounds at random, with functions as wrong as granted.
pub fn sample<M: Model>(
    subject: &Subject<'_, M>,
    granted: &'static Granted,
    optimizers: &[&BundleOptimizer],
    steps: usize,
    plan: &SamplePlan,
) -> Samples {
    let scale = loss_scale(subject, granted, plan.seed);
    let alone = |_| run(subject, granted, &[], 0, plan.seed, scale);
    let first = parallel::isolated(1, alone).swap_remove(0);
    let cost = first.2;
    let evaluations = affordable(plan, plan.roundings, cost);
    // The first gradient of a trajectory is the evaluation's.
    let more = (optimizers.len() * steps.saturating_sub(1)) as u64;
    let whole = cost.saturating_mul(more);
    // The optimizer is f32's whatever the model's numbers are.
    let is_cheap = granted.bits == Granted::EXACT.bits
        && whole.saturating_mul(evaluations as u64) <= plan.roundings;
    // Without trajectories the run that showed the cost is the first one.
    let followed = if is_cheap { optimizers } else { &[] };
    let known = usize::from(followed.is_empty());
    let others = parallel::isolated(evaluations - known, |i| {
        let seed = plan.seed + (known + i) as u64;
        run(subject, granted, followed, steps, seed, scale)
    });
    let first = followed.is_empty().then_some(first);
    let runs = first.into_iter().chain(others);
    let mut samples = Samples {
        roundings: cost,
        evaluations: Vec::new(),
        trajectories: vec![Vec::new(); optimizers.len()],
    };
    for (evaluation, trajectories, _) in runs {
        samples.evaluations.push(evaluation);
        for (all, one) in samples.trajectories.iter_mut().zip(trajectories) {
            all.push(one);
        }
    }
    if !is_cheap {
        // Two evaluations a step: one on either side.
        let available = plan.roundings.saturating_mul(F64_CHEAPER / 2);
        let runs = affordable(plan, available, whole);
        samples.trajectories = perturbed(subject, optimizers, steps, plan, runs, &samples);
    }
    samples
}

/// The relative change of every parameter that moves the output as much as rounding does.
fn equivalent_change<M: Model>(
    subject: &Subject<'_, M>,
    plan: &SamplePlan,
    first: &Evaluation<f64>,
    samples: &Samples,
) -> f64 {
    let rounding = spread(&first.output, samples.evaluations.iter().map(|e| &e.output));
    let small = 1.0 / f64::from(1 << 24);
    let mut stream = Key::new(plan.seed).purpose("parameters' change").stream();
    let params: Vec<f64> = (subject.params.iter())
        .map(|p| p * (1.0 + small * stream.normal()))
        .collect();
    let mut tape = Default::default();
    let pass = subject.pass.reference();
    (subject.model).compute_forward(&params, &subject.input, &pass, &mut tape);
    let moved = spread(
        &first.output,
        std::iter::once(subject.model.output::<f64>(&tape)),
    );
    let moved = root_mean_square(&moved);
    if moved > 0.0 {
        small * root_mean_square(&rounding) / moved
    } else {
        0.0
    }
}

/// Trajectories of long subjects, and of models with fewer bits than their optimizer: gradients in f64 on both sides of the parameters, each element
/// and the loss off by a normal draw of the spread that the evaluation's runs have there, the
/// optimizer's own arithmetic on the number that rounds.
fn perturbed<M: Model>(
    subject: &Subject<'_, M>,
    optimizers: &[&BundleOptimizer],
    steps: usize,
    plan: &SamplePlan,
    runs: usize,
    samples: &Samples,
) -> Vec<Vec<Trajectory<f64>>> {
    let first = Runner::<M, f64>::new(subject, Kernels::Reference).evaluate(&subject.params);
    let of = |exact: &[f64], values: &dyn Fn(&Evaluation<f64>) -> Vec<f64>| {
        spread(exact, samples.evaluations.iter().map(values))
    };
    let d_params = of(&first.d_params, &|e| e.d_params.clone());
    let loss = of(&[first.loss], &|e| vec![e.loss])[0];
    let reach = KINK_REACH * equivalent_change(subject, plan, &first, samples);
    let jobs = parallel::isolated(runs * optimizers.len(), |job| {
        let (run, optimizer) = (job / optimizers.len(), optimizers[job % optimizers.len()]);
        Rounded::start(plan.seed + run as u64, &Granted::EXACT);
        let key = Key::new(plan.seed + run as u64).purpose("gradients' rounding");
        let mut stream = key.index((job % optimizers.len()) as u64).stream();
        let mut runner = Runner::<M, f64>::new(subject, Kernels::Reference);
        let mut gradient = vec![0.0; subject.params.len()];
        let mut other = gradient.clone();
        let gradients = |params: &[Rounded], d: &mut [Rounded]| {
            let params: Vec<f64> = cast(params);
            let value = if params == subject.params {
                gradient.copy_from_slice(&first.d_params);
                first.loss
            } else {
                let change: Vec<f64> = (params.iter())
                    .map(|p| p * reach * stream.normal())
                    .collect();
                let mut side = |sign: f64, gradient: &mut [f64]| {
                    let moved = params.iter().zip(&change).map(|(p, c)| p + sign * c);
                    let moved: Vec<f64> = moved.collect();
                    runner.gradients(&moved, gradient, None, false)
                };
                let values = side(1.0, &mut gradient) + side(-1.0, &mut other);
                for (g, o) in gradient.iter_mut().zip(&other) {
                    *g = 0.5 * (*g + o);
                }
                0.5 * values
            };
            for ((d, &g), &s) in d.iter_mut().zip(&gradient).zip(&d_params) {
                *d = Rounded::from_f64(if s > 0.0 { g + s * stream.normal() } else { g });
            }
            Rounded::from_f64(value + loss * stream.normal())
        };
        let start: Vec<Rounded> = cast(&subject.params);
        let layout = subject.model.layout();
        follow(layout, &start, optimizer, steps, gradients).to_f64()
    });
    let mut trajectories = vec![Vec::new(); optimizers.len()];
    for (job, trajectory) in jobs.into_iter().enumerate() {
        trajectories[job % optimizers.len()].push(trajectory);
    }
    trajectories
}

/// The root mean square difference of the runs to the exact values, element by element. Where a run is not a
/// number it is infinite: nothing can be said there.
fn spread(exact: &[f64], runs: impl Iterator<Item = impl AsRef<[f64]>>) -> Vec<f64> {
    let mut squares = vec![0.0; exact.len()];
    let mut count = 0.0;
    for run in runs {
        count += 1.0;
        for ((square, &value), &exact) in squares.iter_mut().zip(run.as_ref()).zip(exact) {
            *square += (value - exact) * (value - exact);
        }
    }
    let spread = |s: &f64| (s / count).sqrt();
    let known = |s: f64| if s.is_nan() { f64::INFINITY } else { s };
    squares.iter().map(spread).map(known).collect()
}

/// The larger of two independent mean squares over the smaller is beyond this with a chance of one in a
/// hundred, where each is of so many runs.
fn differing(runs: usize) -> f64 {
    let (mut low, mut high) = (1.0, 1e6);
    for _ in 0..100 {
        let middle = 0.5 * (low + high);
        match 2.0 * variance_tail(middle, runs) > 0.01 {
            true => low = middle,
            false => high = middle,
        }
    }
    high
}

/// P(F > x) with m and m degrees of freedom, m even: Σ_{j ≥ a} C(2a−1, j)·zʲ·(1−z)^{2a−1−j} with a = m/2 and
/// z = 1/(1+x).
fn variance_tail(x: f64, degrees: usize) -> f64 {
    assert!(degrees >= 2 && degrees.is_multiple_of(2), "even degrees");
    let (a, z) = (degrees / 2, 1.0 / (1.0 + x));
    let n = 2 * a - 1;
    let mut term = math::powi(1.0 - z, n as i32);
    let mut sum = 0.0;
    for j in 0..=n {
        if j >= a {
            sum += term;
        }
        term *= (n - j) as f64 / (j + 1) as f64 * z / (1.0 - z);
    }
    sum
}

/// What may be lost where a result is below f32's normal numbers; see the module's text.
pub fn underflow(params: &[f64], input: &[f64]) -> f64 {
    f64::from(f32::MIN_POSITIVE) * (1.0 + largest(params)) * (1.0 + largest(input))
}

/// What each element of a tensor may be off by.
#[derive(Clone, Debug)]
pub struct Bounds {
    values: Vec<f64>,
    /// The bound of elements at the floor.
    floor: f64,
}

impl Bounds {
    /// From the exact values and the runs' values of one tensor; what is equal rounds alike in every other run,
    /// from the first on.
    pub fn new<'s>(exact: &[f64], runs: impl Iterator<Item = &'s [f64]>) -> Self {
        Self::of(exact, &runs.collect::<Vec<_>>())
    }

    fn of(exact: &[f64], runs: &[&[f64]]) -> Self {
        let of_each = |from: usize| spread(exact, runs.iter().skip(from).step_by(2).copied());
        let (alike, anew) = (of_each(0), of_each(1));
        let all = spread(exact, runs.iter().copied());
        let stored = root_mean_square(exact) / f64::from(1 << 24);
        let factor = student_factor(runs.len(), exact.len());
        // Halves of an even number of runs each, or no halves.
        let half = match runs.len() / 2 {
            half if half >= 2 && half.is_multiple_of(2) => Some(half),
            _ => None,
        };
        let (differing, of_half) = match half {
            Some(half) => (differing(half).sqrt(), student_factor(half, exact.len())),
            None => (f64::INFINITY, factor),
        };
        let bound_of = |i: usize| {
            let (more, less) = (math::max(alike[i], anew[i]), math::min(alike[i], anew[i]));
            match more > differing * less {
                true => math::max(of_half * more, factor * all[i]),
                false => factor * all[i],
            }
        };
        let floor = factor * math::max(root_mean_square(&all), stored);
        Bounds {
            values: (0..exact.len())
                .map(|i| math::max(bound_of(i), floor))
                .collect(),
            floor,
        }
    }

    /// With no bound below this one.
    pub fn at_least(mut self, least: f64) -> Self {
        for bound in self.values.iter_mut().chain([&mut self.floor]) {
            *bound = math::max(*bound, least);
        }
        self
    }

    /// The bound of element i.
    pub fn at(&self, i: usize) -> f64 {
        self.values[i]
    }

    /// All of them.
    pub fn values(&self) -> &[f64] {
        &self.values
    }

    /// Whether a run left the range of its numbers: then nothing can be said.
    pub fn leaves_range(&self) -> bool {
        self.floor.is_infinite()
    }

    /// Whether the bound is narrow enough to say something about numbers of that scale.
    pub fn meaningful(&self, scale: f64) -> bool {
        self.floor <= MEANINGFUL * scale || self.floor == 0.0
    }
}

fn root_mean_square(values: &[f64]) -> f64 {
    let n = values.len().max(1) as f64;
    (values.iter().map(|v| v * v).sum::<f64>() / n).sqrt()
}

/// k with P(|t_R| > k) = α/n, for an even number of runs R.
pub fn student_factor(runs: usize, elements: usize) -> f64 {
    let p = ALPHA / elements.max(1) as f64;
    let (mut low, mut high) = (0.0, 1e9);
    for _ in 0..200 {
        let middle: f64 = 0.5 * (low + high);
        if student_tail(middle, runs) > p {
            low = middle;
        } else {
            high = middle;
        }
    }
    high
}

/// P(|t| > x) with an even number of degrees of freedom ν. With θ = atan(x/√ν), it is
/// 1 − sin θ · Σ_{j<ν/2} c_j cos^{2j} θ, c_0 = 1, c_j = c_{j−1}·(2j−1)/(2j). Since the whole series
/// of c_j·cos^{2j} θ sums to 1/sin θ, the tail is sin θ times the rest of the series, which has no
/// cancellation.
fn student_tail(x: f64, degrees: usize) -> f64 {
    assert!(degrees >= 2 && degrees.is_multiple_of(2), "even degrees");
    let nu = degrees as f64;
    let cos2 = nu / (nu + x * x);
    let sin = (1.0 - cos2).sqrt();
    let mut term = 1.0;
    let mut tail = 0.0;
    let mut j = 0;
    loop {
        if j >= degrees / 2 {
            tail += term;
            if term < 1e-17 * tail || j > 100_000 {
                return math::min(sin * tail, 1.0);
            }
        }
        j += 1;
        term *= cos2 * (2 * j - 1) as f64 / (2 * j) as f64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn student_tails_are_those_of_the_tables() {
        // Two-sided quantiles of the usual tables: ν, t, probability.
        for (nu, t, p) in [
            (2, 4.302_653, 0.05),
            (6, 3.707_428, 0.01),
            (10, 2.228_139, 0.05),
            (16, 4.014_996, 0.001),
            (30, 2.749_996, 0.01),
        ] {
            let tail = student_tail(t, nu);
            assert!((tail / p - 1.0).abs() < 1e-4, "ν = {nu}: {tail}");
        }
    }

    #[test]
    fn ratios_of_mean_squares_are_those_of_the_tables() {
        // F's quantiles of 0.5 % (the larger of the two may be either): 4 and 4, 8 and 8 degrees.
        for (runs, ratio) in [(4, 23.155), (8, 7.4959)] {
            assert!(
                (differing(runs) / ratio - 1.0).abs() < 1e-3,
                "{}",
                differing(runs)
            );
        }
    }

    #[test]
    fn what_f32_cannot_hold_is_no_error() {
        let least = underflow(&[0.5, -3.0], &[9.0]);
        assert_eq!(least, 40.0 * f64::from(f32::MIN_POSITIVE));
        let (exact, run) = ([1e-200], [0.0]);
        let bounds = Bounds::new(&exact, [&run[..]; 2].into_iter()).at_least(least);
        assert_eq!(bounds.at(0), least);
        assert!(bounds.meaningful(1.0));
    }

    #[test]
    fn the_larger_of_two_kinds_of_runs_counts_where_they_differ() {
        // The second kind of runs is off by a million times as much in element 1.
        let runs: Vec<[f64; 2]> = (0..16)
            .map(|r| {
                let sign = if r % 4 < 2 { 1.0 } else { -1.0 };
                [1e-6 * sign, if r % 2 == 1 { 1e-3 * sign } else { 0.0 }]
            })
            .collect();
        let bounds = Bounds::new(&[0.0; 2], runs.iter().map(|r| &r[..]));
        let of_half = student_factor(8, 2);
        assert!((bounds.at(1) / (of_half * 1e-3) - 1.0).abs() < 1e-9);
    }

    #[test]
    fn a_kernel_as_bad_as_the_runs_is_not_accused_and_one_ten_times_worse_is() {
        // Errors drawn as the derivation assumes, of sizes that differ between elements.
        let n = 2000;
        let exact = vec![1.0; n];
        let draw = |seed: u64| -> Vec<f64> {
            let mut stream = Key::new(seed).purpose("errors").stream();
            (0..n)
                .map(|i| 1.0 + 1e-7 * (1.0 + (i % 10) as f64) * stream.normal())
                .collect()
        };
        for runs in [6, 8, 16] {
            let mut accused = 0;
            for trial in 0..20_u64 {
                let drawn: Vec<_> = (0..runs).map(|r| draw(1000 * trial + r)).collect();
                let bounds = Bounds::new(&exact, drawn.iter().map(|d| &d[..]));
                let kernel = draw(1000 * trial + 999);
                let ratio = |scale: f64| {
                    let errors = kernel.iter().enumerate();
                    errors
                        .map(|(i, v)| scale * (v - 1.0).abs() / bounds.at(i))
                        .fold(0.0, f64::max)
                };
                if ratio(1.0) > 1.0 {
                    accused += 1;
                }
                assert!(
                    ratio(60.0) > 1.0,
                    "{runs} runs: 60 times the spread goes unseen"
                );
            }
            // The chance of one is 20·α.
            assert_eq!(accused, 0, "{runs} runs");
        }
    }

    #[test]
    fn elements_whose_arithmetic_is_exact_take_the_floor_of_their_tensor() {
        let exact = [1.0, 1.0];
        let runs = [[1.0 + 1e-6, 1.0], [1.0 - 1e-6, 1.0], [1.0 + 1e-6, 1.0]];
        let two = runs.iter().chain(&runs).map(|r| &r[..]);
        let bounds = Bounds::new(&exact, two);
        assert!(bounds.at(1) > 0.0 && bounds.at(1) < bounds.at(0));
        assert!(bounds.meaningful(1.0) && !bounds.meaningful(1e-5));
    }
}
