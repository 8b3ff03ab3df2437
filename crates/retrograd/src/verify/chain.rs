//! The links of the chain on one subject.

use crate::math;
use std::sync::Arc;

use super::bundle::BundleOptimizer;
use super::device::Device;
use super::differences::{self, Coverage, Numeric};
use super::families::On;
use super::kept::Kept;
use super::machines::machine_rows;
use super::precision::{self, Bounds, SamplePlan, Samples};
use super::processes::process_rows;
use super::report::{Link, Report, Row, Verdict, Worst, compare, largest};
use super::rounded::Granted;
use super::subject::{Evaluation, Runner, Subject, Trajectory};
use super::trajectories::{Reach, trajectory_rows};
use crate::optim::OptimizerSpec;
use crate::rng::Key;
use crate::scalar::cast;
use crate::{Batch, Kernels, Model, Result, Scalar, parallel};

/// A tensor whose gradient is 0 is held to this share of the model's largest gradient.
pub(super) const SCALE_FLOOR: f64 = 1e-3;

/// Called with what is being checked.
pub type OnProgress = Arc<dyn Fn(&str) + Send + Sync>;

/// How thoroughly to check.
#[derive(Clone)]
pub struct Options {
    /// The runs that predict rounding.
    pub plan: SamplePlan,
    /// The elements that are differenced.
    pub coverage: Coverage,
    /// The optimizers whose trajectories are followed where no bundle says which.
    pub optimizers: Vec<(String, BundleOptimizer)>,
    /// Their steps.
    pub steps: usize,
    /// The numbers of threads that must give equal bits.
    pub threads: Vec<usize>,
    /// The training steps after which they must.
    pub thread_steps: usize,
    /// Where the f32 side is computed, for models that are checked by name.
    pub on: On,
    /// Where the same models are checked again and again, on kernels that change: what the reference
    /// said. Then only kernels are looked at, to the first failure.
    pub kept: Option<Kept>,
    /// Runs a device's kernels and compares nothing: to see which those are.
    pub touches: bool,
    /// Called with what is being checked.
    pub progress: Option<OnProgress>,
}

impl Default for Options {
    fn default() -> Self {
        let plain = |spec| BundleOptimizer {
            spec,
            clip: None,
            clip_element: None,
        };
        let momentum = |nesterov, weight_decay| OptimizerSpec::Sgd {
            lr: 0.02,
            momentum: 0.9,
            nesterov,
            weight_decay,
        };
        let clipped = BundleOptimizer {
            clip: Some(0.5),
            ..plain(momentum(false, 1e-3))
        };
        let optimizers = [
            ("sgd", plain(OptimizerSpec::sgd(0.05))),
            ("momentum_clip", clipped),
            ("nesterov", plain(momentum(true, 0.0))),
            ("adam", plain(OptimizerSpec::adam(0.01))),
            ("adamw", plain(OptimizerSpec::adamw(0.01))),
        ];
        Options {
            plan: SamplePlan::default(),
            coverage: Coverage::default(),
            optimizers: optimizers.map(|(n, o)| (n.to_string(), o)).to_vec(),
            steps: 5,
            threads: vec![1, 2, 7],
            thread_steps: 10,
            on: On::Cpu,
            touches: false,
            kept: None,
            progress: None,
        }
    }
}

impl Options {
    /// What the reference says of a subject: as it was kept, or computed.
    pub(crate) fn expectation<M: Model>(
        &self,
        subject: &Subject<'_, M>,
        compute: impl FnOnce() -> Expectation,
    ) -> Arc<Expectation> {
        match &self.kept {
            Some(kept) => kept.or_computed(subject, self, compute),
            None => Arc::new(compute()),
        }
    }

    /// Whether enough is known: a failure, where no more is wanted.
    fn suffices(&self, report: &Report) -> bool {
        self.kept.is_some() && report.rows.iter().any(|row| row.verdict == Verdict::Fail)
    }

    /// Tells what is being checked.
    pub fn say(&self, what: &str) {
        if let Some(progress) = &self.progress {
            progress(what);
        }
    }
}

/// What the f64 reference says about a subject, and what rounding can explain.
pub struct Expectation {
    /// The reference in f64.
    pub exact: Evaluation<f64>,
    /// Its trajectories, one for each optimizer.
    pub trajectories: Vec<Trajectory<f64>>,
    /// The runs on the number that rounds at random.
    pub samples: Samples,
    /// What the gradients' errors make of each optimizer's steps in f32.
    pub reach: Vec<Reach>,
    /// The size of the loss's rounding error in f64.
    pub noise: f64,
    /// What rounding to f64 is of the rounding that the runs predict.
    pub(super) share: f64,
    /// What may be lost below f32's normal numbers.
    pub(super) underflow: f64,
}

impl Expectation {
    /// Runs the reference in f64 and on the number that rounds at random.
    pub fn new<M: Model>(
        subject: &Subject<'_, M>,
        granted: &'static Granted,
        optimizers: &[&BundleOptimizer],
        steps: usize,
        plan: &SamplePlan,
    ) -> Self {
        let (exact, trajectories) = reference(subject, optimizers, steps);
        let samples = precision::sample(subject, granted, optimizers, steps, plan);
        let runs = samples.evaluations.len() as f64;
        let squares: f64 = samples
            .evaluations
            .iter()
            .map(|run| math::powi(run.loss - exact.loss, 2))
            .sum();
        let share = share_of(granted);
        let noise = (squares / runs).sqrt() * share;
        let noise = math::max(noise, 0.5 * f64::EPSILON * exact.loss.abs());
        let reach = (optimizers
            .iter()
            .zip(&trajectories)
            .zip(&samples.trajectories))
        .map(|((optimizer, exact), runs)| Reach::new(subject, optimizer, exact, runs, 1.0))
        .collect();
        Expectation {
            exact,
            trajectories,
            samples,
            reach,
            noise,
            share,
            underflow: precision::underflow(&subject.params, subject.input.values()),
        }
    }

    /// Two computations in f64 differ by at most this part of a bound.
    pub fn in_f64(&self) -> f64 {
        2.0 * self.share
    }

    /// Student's factor for that many elements.
    pub fn factor(&self, elements: usize) -> f64 {
        precision::student_factor(self.samples.evaluations.len(), elements)
    }

    /// What rounding to f32 can explain in one tensor.
    pub fn bounds<'s>(
        &'s self,
        exact: &[f64],
        of: impl Fn(&'s Evaluation<f64>) -> &'s [f64],
    ) -> Bounds {
        Bounds::new(exact, self.samples.evaluations.iter().map(of)).at_least(self.underflow)
    }
}

/// The f64 reference's evaluation and trajectories.
pub fn reference<M: Model>(
    subject: &Subject<'_, M>,
    optimizers: &[&BundleOptimizer],
    steps: usize,
) -> (Evaluation<f64>, Vec<Trajectory<f64>>) {
    let mut runner = Runner::<M, f64>::new(subject, Kernels::Reference);
    let exact = runner.evaluate(&subject.params);
    let trajectories = parallel::isolated(optimizers.len(), |i| {
        let mut runner = Runner::<M, f64>::new(subject, Kernels::Reference);
        runner.trajectory(&subject.params, optimizers[i], steps, Some(&exact))
    });
    (exact, trajectories)
}

/// The whole chain but the bundles and the mutants.
pub fn check_on<M: Model>(
    subject: &Subject<'_, M>,
    device: &mut dyn Device<M>,
    options: &Options,
) -> Result<Report> {
    subject.check()?;
    let say = |what: &str| options.say(&format!("{}: {what}", subject.name));
    let optimizers: Vec<&BundleOptimizer> = options.optimizers.iter().map(|(_, o)| o).collect();
    let names: Vec<&str> = options.optimizers.iter().map(|(n, _)| n.as_str()).collect();
    if options.touches {
        device.evaluate(subject)?;
        for optimizer in optimizers {
            device.trajectory(subject, optimizer, 1)?;
        }
        return Ok(Report::default());
    }
    say("what rounding can explain");
    let (granted, steps) = (device.granted(), options.steps);
    let expected = options.expectation(subject, || {
        Expectation::new(subject, granted, &optimizers, steps, &options.plan)
    });
    let mut report = Report::default();
    if options.kept.is_none() {
        say("central differences");
        let numeric = differences_of(subject, &expected, &options.coverage);
        let exact = &expected.exact;
        report
            .rows
            .extend(differences_rows(subject, &expected, &numeric, exact));
    }
    say("f32 kernels");
    let evaluation = device.evaluate(subject)?;
    report.rows.extend(precision_rows(
        subject,
        &expected,
        &evaluation,
        device.link(),
    ));
    if device.link() == Link::Cpu {
        say("threads");
        report.rows.extend(thread_rows(subject, options));
        report.rows.extend(process_rows(subject));
        report.rows.extend(machine_rows(subject, options));
        report.rows.extend(reuse_rows(subject, &expected));
    }
    for (i, optimizer) in optimizers.iter().enumerate() {
        if options.suffices(&report) {
            return Ok(report);
        }
        say(&format!("{} steps of {}", options.steps, names[i]));
        let trajectory = device.trajectory(subject, optimizer, options.steps)?;
        let rows = trajectory_rows(subject, &expected, i, names[i], &trajectory);
        report.rows.extend(rows);
    }
    Ok(report)
}

/// Link 1's differences, which depend on the forward pass alone.
pub fn differences_of<M: Model>(
    subject: &Subject<'_, M>,
    expected: &Expectation,
    coverage: &Coverage,
) -> Vec<Numeric> {
    let exact = &expected.exact;
    let elements = exact.d_params.len() + exact.d_input.len();
    let mut of_params = vec![0.0; exact.d_params.len()];
    for tensor in subject.model.layout().tensors() {
        let range = tensor.range();
        let own = &exact.d_params[range.clone()];
        let bounds = expected.bounds(own, |e| &e.d_params[range.clone()]);
        let own = bounds.values().iter().map(|b| expected.in_f64() * b);
        of_params.splice(range, own);
    }
    let bounds = expected.bounds(&exact.d_input, |e| &e.d_input);
    let of_input: Vec<f64> = (bounds.values().iter())
        .map(|b| expected.in_f64() * b)
        .collect();
    differences::numeric(
        subject,
        coverage,
        [&exact.d_params, &exact.d_input],
        [&of_params, &of_input],
        expected.noise,
        expected.factor(elements),
    )
}

/// Link 1: gradients against differences.
pub fn differences_rows<M: Model>(
    subject: &Subject<'_, M>,
    expected: &Expectation,
    numeric: &[Numeric],
    gradients: &Evaluation<f64>,
) -> Vec<Row> {
    let elements = gradients.d_params.len() + gradients.d_input.len();
    differences::rows(
        subject,
        numeric,
        &gradients.d_params,
        &gradients.d_input,
        expected.noise,
        expected.factor(elements),
    )
}

/// Links 3 and 4: a device's evaluation against the f64 reference, within the predicted bounds.
pub fn precision_rows<M: Model>(
    subject: &Subject<'_, M>,
    expected: &Expectation,
    evaluation: &Evaluation<f64>,
    link: Link,
) -> Vec<Row> {
    let exact = &expected.exact;
    let row = |tensor: &str, values: &[f64], exact: &[f64], bounds: &Bounds, scale: f64| {
        if bounds.leaves_range() {
            let why = "beyond the range of the numbers that are kept between layers, or of f32";
            let row = Row::unchecked(&subject.name, tensor, link, why);
            let elements = exact.len();
            return Row { elements, ..row };
        }
        let worst = if bounds_fit(values, exact) {
            compare(values, exact, |i| bounds.at(i))
        } else {
            compare(values, exact, |_| 0.0)
        };
        let row = Row::compared(&subject.name, tensor, link, &worst);
        if bounds.meaningful(scale) {
            row
        } else {
            row.doubted("rounding alone may be more than a tenth of it")
        }
    };
    let mut rows = Vec::new();
    let bounds = expected.bounds(&exact.output, |e| &e.output);
    let scale = largest(&exact.output);
    rows.push(row(
        "output",
        &evaluation.output,
        &exact.output,
        &bounds,
        scale,
    ));
    let loss = [exact.loss];
    let bounds = expected.bounds(&loss, |e| std::slice::from_ref(&e.loss));
    rows.push(row(
        "loss",
        &[evaluation.loss],
        &loss,
        &bounds,
        exact.loss.abs(),
    ));
    let everywhere = math::max(largest(&exact.d_params), largest(&exact.d_input));
    for tensor in subject.model.layout().tensors() {
        if tensor.frozen || tensor.is_empty() {
            continue;
        }
        let range = tensor.range();
        let exact = &exact.d_params[range.clone()];
        let bounds = expected.bounds(exact, |e| &e.d_params[range.clone()]);
        let values = evaluation.d_params.get(range.clone()).unwrap_or(&[]);
        let scale = math::max(largest(exact), SCALE_FLOOR * everywhere);
        let name = format!("d {}", tensor.name);
        let mut row = row(&name, values, exact, &bounds, scale);
        row.worst = row
            .worst
            .and_then(|i| subject.model.layout().locate(tensor.offset + i))
            .map(|(_, i)| i);
        rows.push(row);
    }
    if !exact.d_input.is_empty() {
        let bounds = expected.bounds(&exact.d_input, |e| &e.d_input);
        let scale = math::max(largest(&exact.d_input), SCALE_FLOOR * everywhere);
        rows.push(row(
            "d input",
            &evaluation.d_input,
            &exact.d_input,
            &bounds,
            scale,
        ));
    }
    rows
}

pub(super) fn bounds_fit(values: &[f64], exact: &[f64]) -> bool {
    values.len() == exact.len()
}

/// f64 rounds by this share of what f32 does: 29 bits more.
pub const F64_SHARE: f64 = 1.0 / (1 << 29) as f64;

/// The same of runs that round to the bits that are granted.
fn share_of(granted: &Granted) -> f64 {
    F64_SHARE / f64::from(1 << (24 - granted.bits))
}

/// Whether two evaluations are equal to the bit, as a comparison that allows nothing.
pub(super) fn equal_bits<T: Scalar>(values: &[T], reference: &[T]) -> Worst {
    compare(&cast(values), &cast(reference), |_| 0.0)
}

/// The worst of several comparisons, with the elements of all.
pub(super) fn worst_of(all: impl IntoIterator<Item = Worst>) -> Worst {
    let mut worst = Worst::default();
    let mut elements = 0;
    for w in all {
        elements += w.elements;
        if worst.index.is_none() || w.ratio > worst.ratio {
            worst = w;
        }
    }
    worst.elements = elements;
    worst
}

pub(super) fn evaluation_bits<T: Scalar>(a: &Evaluation<T>, b: &Evaluation<T>) -> Worst {
    worst_of([
        equal_bits(&a.output, &b.output),
        equal_bits(&[a.loss], &[b.loss]),
        equal_bits(&a.d_params, &b.d_params),
        equal_bits(&a.d_input, &b.d_input),
    ])
}

/// Link 5: the same bits for every number of threads, for one evaluation and after some steps of
/// Adam.
pub fn thread_rows<M: Model>(subject: &Subject<'_, M>, options: &Options) -> Vec<Row> {
    let optimizer = BundleOptimizer {
        spec: OptimizerSpec::adam(1e-3),
        clip: Some(1.0),
        clip_element: None,
    };
    let params: Vec<f32> = cast(&subject.params);
    let run = |threads: usize| {
        parallel::with_threads(threads, || {
            let mut runner = Runner::<M, f32>::new(subject, Kernels::Fast);
            let evaluation = runner.evaluate(&params);
            let trajectory = runner.trajectory(&params, &optimizer, options.thread_steps, None);
            (evaluation, trajectory)
        })
    };
    let Some((&first, others)) = options.threads.split_first() else {
        return Vec::new();
    };
    let reference = run(first);
    let row = |threads: usize| {
        let (evaluation, trajectory) = run(threads);
        let worst = worst_of([
            evaluation_bits(&evaluation, &reference.0),
            equal_bits(&trajectory.params, &reference.1.params),
            equal_bits(&trajectory.losses, &reference.1.losses),
        ]);
        let label = format!("{threads} threads");
        Row::compared(&subject.name, label, Link::Threads, &worst).noted(format!(
            "as {first}, gradients and {} steps",
            options.thread_steps
        ))
    };
    others.iter().map(|&threads| row(threads)).collect()
}

/// One evaluation on every number of threads, to the bit.
pub(super) fn thread_evaluations<M: Model>(
    subject: &Subject<'_, M>,
    options: &Options,
) -> Vec<Row> {
    let params: Vec<f32> = cast(&subject.params);
    let run = |threads: usize| {
        parallel::with_threads(threads, || {
            Runner::<M, f32>::new(subject, Kernels::Fast).evaluate(&params)
        })
    };
    let Some((&first, others)) = options.threads.split_first() else {
        return Vec::new();
    };
    let reference = run(first);
    let row = |&threads: &usize| {
        let worst = evaluation_bits(&run(threads), &reference);
        let label = format!("{threads} threads");
        Row::compared(&subject.name, label, Link::Threads, &worst)
    };
    others.iter().map(row).collect()
}

/// The contract of memory: a tape that another batch went through gives the same bits, gradients
/// overwrite what is there unless asked to add, and what is not asked for changes nothing.
pub fn reuse_rows<M: Model>(subject: &Subject<'_, M>, expected: &Expectation) -> Vec<Row> {
    let bounds: Vec<Bounds> = subject
        .model
        .layout()
        .tensors()
        .iter()
        .map(|tensor| {
            let range = tensor.range();
            let exact = &expected.exact.d_params[range.clone()];
            expected.bounds(exact, |e| &e.d_params[range.clone()])
        })
        .collect();
    let bound: Vec<f64> = bounds
        .iter()
        .flat_map(|b| b.values().iter().copied())
        .collect();
    // What rounding can explain in f64 is that share of what it can in f32. The reference adds term by
    // term onto what is there: the partial sums run from g to 2g instead of from 0 to g, their squares
    // add up to 7 times as much, and twice the fresh gradient brings 4 times its own.
    let longer = F64_SHARE * 11.0_f64.sqrt();
    let mut rows = reuse_in::<M, f64>(subject, Kernels::Reference, |i, g| {
        longer * (bound[i] + 4.0 * f64::from(f32::EPSILON) * g.abs())
    });
    rows.extend(reuse_in::<M, f32>(subject, Kernels::Fast, |i, g| {
        bound[i] + 4.0 * f64::from(f32::EPSILON) * g.abs()
    }));
    rows
}

fn reuse_in<M: Model, T: Scalar>(
    subject: &Subject<'_, M>,
    kernels: Kernels,
    twice_bound: impl Fn(usize, f64) -> f64,
) -> Vec<Row> {
    let params: Vec<T> = cast(&subject.params);
    let mut runner = Runner::<M, T>::new(subject, kernels);
    let fresh = runner.evaluate(&params);
    // A tape that saw another batch and other parameters first.
    let mut runner = Runner::<M, T>::new(subject, kernels);
    let mut stream = Key::new(1).purpose("another batch").stream();
    let mut other = |values: &[f64]| -> Vec<T> {
        let moved = values.iter().map(|v| 0.5 * v + stream.range(-1.0, 1.0));
        moved.map(T::from_f64).collect()
    };
    let (other_params, other_input) = (other(&subject.params), other(subject.input.values()));
    runner
        .input_mut()
        .values_mut()
        .copy_from_slice(&other_input);
    runner.evaluate(&other_params);
    let input: Vec<T> = cast(subject.input.values());
    runner.input_mut().values_mut().copy_from_slice(&input);
    let used = runner.evaluate(&params);
    let label = |what: &str| format!("{what} ({})", T::NAME);
    let row =
        |what: &str, worst: &Worst| Row::compared(&subject.name, label(what), Link::Reuse, worst);
    let mut rows = vec![row("used tape", &evaluation_bits(&used, &fresh))];

    // Only the parameters' gradient: the same bits.
    let mut alone = vec![T::from_f64(f64::NAN); params.len()];
    runner.gradients(&params, &mut alone, None, false);
    rows.push(row("without d input", &equal_bits(&alone, &fresh.d_params)));

    // Added to itself: twice the gradient, each element within rounding.
    let mut twice = fresh.d_params.clone();
    let mut d_input = vec![T::from_f64(f64::NAN); fresh.d_input.len()];
    runner.gradients(&params, &mut twice, Some(&mut d_input), true);
    let two: Vec<f64> = fresh.d_params.iter().map(|g| 2.0 * g.to_f64()).collect();
    let added = compare(&cast(&twice), &two, |i| twice_bound(i, two[i]));
    rows.push(row("accumulated", &added));
    rows.push(row(
        "d input beside it",
        &equal_bits(&d_input, &fresh.d_input),
    ));
    rows
}
