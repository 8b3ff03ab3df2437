//! Bundles: links 2, 3 or 4, 5 and 6 against what another framework computed.
//!
//! In f64 both sides are what rounding to f64 leaves of the exact value: they agree within twice the predicted
//! f32 bound times 2⁻²⁹ ([`Expectation::in_f64`]). An element whose gradient is below that has no defined trajectory
//! under Adam even in f64; it is counted and left out. In f32 a device must stay within the predicted bound
//! around the f64 reference. On the CPU the bundle's worst error, relative to its tensor's largest element, must also be
//! one that the drawn runs' worst explain: with μ and σ the mean and the deviation of the logarithm of R runs'
//! worst, at most e^(μ + k·σ·√(1 + 1/R)), k Student's for R − 2 degrees and one chance in ten thousand. Bounds of single
//! elements are far from most errors; this one is close to the worst of them. PyTorch's own worst stands beside it.

use super::bundle::{Bundle, BundleOptimizer, Case, FromBundle};
use super::chain::{Expectation, Options, precision_rows, thread_rows};
use super::device::Device;
use super::machines::machine_rows;
use super::precision::{Bounds, MEANINGFUL, student_factor};
use super::processes::process_rows;
use super::report::{Link, Report, Row, Verdict, Worst, compare, compare_some, largest};
use super::subject::{Evaluation, Subject};
use super::trajectories::{Reach, trajectory_rows};
use crate::math;
use crate::rng::Key;
use crate::{Error, Layout, Model, Pass, Result};

/// Errors of tensors that are mathematically zero, or nearly so, are relative to this share of the bundle's
/// largest gradient.
const SCALE_FLOOR: f64 = 1e-6;

/// What the oracle says, in the model's stored order.
struct Oracle {
    output: Vec<f64>,
    loss: f64,
    grads: Vec<f64>,
    input: Option<Vec<f64>>,
    /// The bundle's largest gradient.
    largest: f64,
}

/// The part of the input gradient that `grad_input/x` speaks of: the features. The values of a
/// graph's batch go on with edge weights and edge features, which bundles have no gradient of.
fn features<'a>(d_input: &'a [f64], oracle: &[f64]) -> &'a [f64] {
    &d_input[..oracle.len().min(d_input.len())]
}

impl Oracle {
    fn read<M: Model>(bundle: &Bundle, model: &M) -> Result<Self> {
        let grads = bundle.flat(model, "grad")?;
        let input = values(bundle, "grad_input/x")?;
        let largest = math::max(largest(&grads), input.as_deref().map_or(0.0, largest));
        let loss = bundle.array("output/loss")?;
        if loss.values.len() != 1 {
            return Err(Error::file(
                &bundle.path,
                "output/loss",
                format!("{} numbers, needs 1", loss.values.len()),
            ));
        }
        Ok(Oracle {
            output: bundle.array("output/y")?.values.clone(),
            loss: loss.values[0],
            grads,
            input,
            largest,
        })
    }

    /// What errors in that tensor are relative to.
    fn scale(&self, tensor: &[f64]) -> f64 {
        math::max(largest(tensor), SCALE_FLOOR * self.largest)
    }
}

fn values(bundle: &Bundle, name: &str) -> Result<Option<Vec<f64>>> {
    let Some(array) = bundle.get(name) else {
        return Ok(None);
    };
    if let Some(i) = array.values.iter().position(|v| !v.is_finite()) {
        let value = array.values[i];
        return Err(Error::file(
            &bundle.path,
            name,
            format!("element {i} is {value}"),
        ));
    }
    Ok(Some(array.values.clone()))
}

/// Checks a bundle where the options say; unchecked where the model has no kernels there.
pub fn against<M: FromBundle>(bundle: &Bundle, options: &Options) -> Result<Report> {
    let case = case_of::<M>(bundle)?;
    match case.model.verifier(options.on)? {
        Some(mut device) => check_case(bundle, case, &mut *device, options),
        None => Ok(unchecked(bundle, Link::Gpu, no_kernels(bundle.family()))),
    }
}

/// What is said of a model that a device can't compute.
pub(crate) fn no_kernels(family: &str) -> String {
    format!("the family {family:?} has no GPU kernels")
}

fn case_of<M: FromBundle>(bundle: &Bundle) -> Result<Case<M>> {
    M::from_bundle(bundle).map_err(|error| match error {
        // A layer or a size that doesn't fit: said with the file that asks for it.
        Error::Invalid { .. } => Error::file(&bundle.path, "metadata \"model\"", error),
        other => other,
    })
}

/// Checks a bundle on a device.
pub fn against_on<M: FromBundle>(
    bundle: &Bundle,
    device: &mut dyn Device<M>,
    options: &Options,
) -> Result<Report> {
    check_case(bundle, case_of(bundle)?, device, options)
}

fn check_case<M: FromBundle>(
    bundle: &Bundle,
    case: Case<M>,
    device: &mut dyn Device<M>,
    options: &Options,
) -> Result<Report> {
    let name = bundle.name();
    let say = |what: &str| options.say(&format!("{name}: {what}"));
    let subject = Subject {
        name: name.clone(),
        model: &case.model,
        params: case.params,
        input: case.input,
        target: case.target,
        loss: bundle.loss,
        pass: Pass::training(Key::new(0).purpose("verify")),
    };
    subject.check()?;
    let oracle = Oracle::read(bundle, subject.model)?;
    check_trajectories(bundle, subject.model)?;
    let names: Vec<&str> = bundle.optimizers.keys().map(String::as_str).collect();
    let optimizers: Vec<&BundleOptimizer> = bundle.optimizers.values().collect();
    say("what rounding can explain");
    let expected = Expectation::new(
        &subject,
        device.granted(),
        &optimizers,
        bundle.steps,
        &options.plan,
    );
    let mut report = Report::default();
    report
        .rows
        .extend(oracle_rows(&subject, &oracle, &expected));
    for (i, name) in names.iter().enumerate() {
        report
            .rows
            .extend(oracle_trajectory(bundle, &subject, &expected, i, name)?);
    }
    say("f32");
    let evaluation = device.evaluate(&subject)?;
    let mut rows = precision_rows(&subject, &expected, &evaluation, device.link());
    if device.link() == Link::Cpu {
        if let Some(row) = peer(bundle, &subject, &oracle, &expected, &evaluation, &mut rows)? {
            rows.push(row);
        }
        let options = Options {
            thread_steps: bundle.steps.min(options.thread_steps),
            ..options.clone()
        };
        rows.extend(thread_rows(&subject, &options));
        rows.extend(process_rows(&subject));
        rows.extend(machine_rows(&subject, &options));
    }
    report.rows.extend(rows);
    for (i, name) in names.iter().enumerate() {
        say(&format!("{} steps of {name}", bundle.steps));
        let trajectory = device.trajectory(&subject, optimizers[i], bundle.steps)?;
        let rows = trajectory_rows(&subject, &expected, i, name, &trajectory);
        report.rows.extend(rows);
    }
    Ok(report)
}

/// The trajectories are all there and as long as the task says, before anything is computed.
fn check_trajectories<M: Model>(bundle: &Bundle, model: &M) -> Result<()> {
    for name in bundle.optimizers.keys() {
        bundle.flat(model, &format!("after/{name}"))?;
        let name = format!("losses/{name}");
        let losses = bundle.array(&name)?.values.len();
        if losses != bundle.steps {
            return Err(Error::file(
                &bundle.path,
                name,
                format!("{losses} losses, the task says {} steps", bundle.steps),
            ));
        }
    }
    Ok(())
}

/// Link 2: the reference in f64 against the oracle.
fn oracle_rows<M: Model>(
    subject: &Subject<'_, M>,
    oracle: &Oracle,
    expected: &Expectation,
) -> Vec<Row> {
    let exact = &expected.exact;
    let share = expected.in_f64();
    // What f64 rounds is a share of what the runs say, and they say nothing.
    let unknown = |tensor: &str| {
        let why = "the runs that predict rounding leave the range of the device's numbers";
        Row::unchecked(&subject.name, tensor, Link::Oracle, why)
    };
    let row = |tensor: &str, values: &[f64], oracle: &[f64], bounds: &Bounds| {
        if bounds.leaves_range() {
            return unknown(tensor);
        }
        let worst = compare(values, oracle, |i| share * bounds.at(i));
        Row::compared(&subject.name, tensor, Link::Oracle, &worst)
    };
    let bounds = expected.bounds(&exact.output, |e| &e.output);
    let mut rows = vec![row("output", &exact.output, &oracle.output, &bounds)];
    let losses = ([exact.loss], [oracle.loss]);
    let bounds = expected.bounds(&losses.0, |e| std::slice::from_ref(&e.loss));
    let loss = row("loss", &losses.0, &losses.1, &bounds);
    rows.push(if oracle.input.is_none() && !exact.d_input.is_empty() {
        loss.noted("the file has no gradient of the input")
    } else {
        loss
    });
    for tensor in subject.model.layout().tensors() {
        if tensor.is_empty() {
            continue;
        }
        let range = tensor.range();
        let here = &exact.d_params[range.clone()];
        let bounds = expected.bounds(here, |e| &e.d_params[range.clone()]);
        let [ours, theirs, rounding] = [here, &oracle.grads[range.clone()], bounds.values()]
            .map(|values| tensor.to_torch(values));
        let label = format!("d {}", tensor.name);
        if bounds.leaves_range() {
            rows.push(unknown(&label));
            continue;
        }
        let worst = compare(&ours, &theirs, |i| share * rounding[i]);
        rows.push(Row::compared(&subject.name, label, Link::Oracle, &worst));
    }
    if let Some(input) = &oracle.input {
        let ours = features(&exact.d_input, input);
        let bounds = expected.bounds(&exact.d_input, |e| &e.d_input);
        rows.push(row("d input", ours, input, &bounds));
    }
    rows
}

/// Name and both values of every tensor, in PyTorch's order.
fn tensors<'l>(
    layout: &'l Layout,
    ours: &'l [f64],
    theirs: &'l [f64],
) -> impl Iterator<Item = (&'l str, Vec<f64>, Vec<f64>)> {
    layout
        .tensors()
        .iter()
        .filter(|t| !t.is_empty())
        .map(move |t| {
            let [ours, theirs] = [ours, theirs].map(|flat| t.to_torch(&flat[t.range()]));
            (t.name.as_str(), ours, theirs)
        })
}

/// Link 6 in f64: parameters and losses after the steps, against the oracle's.
fn oracle_trajectory<M: Model>(
    bundle: &Bundle,
    subject: &Subject<'_, M>,
    expected: &Expectation,
    which: usize,
    name: &str,
) -> Result<[Row; 2]> {
    let exact = &expected.trajectories[which];
    let after = bundle.flat(subject.model, &format!("after/{name}"))?;
    let runs = &expected.samples.trajectories[which];
    let optimizer = &bundle.optimizers[name];
    let share = expected.in_f64();
    let reach = Reach::new(subject, optimizer, exact, runs, share);
    let mut worst = Worst::default();
    let mut worst_tensor = "";
    for tensor in subject.model.layout().tensors() {
        let range = tensor.range();
        let [ours, theirs] = [&exact.params, &after].map(|v| tensor.to_torch(&v[range.clone()]));
        let included = tensor.to_torch(&reach.defined[range.clone()]);
        let drawn = runs.iter().map(|r| &r.params[range.clone()]);
        let rounding = Bounds::new(&exact.params[range.clone()], drawn);
        let [rounding, moved] =
            [rounding.values(), &reach.moved[range]].map(|v| tensor.to_torch(v));
        let bound = |i: usize| math::max(share * rounding[i], moved[i]);
        let elements = worst.elements;
        let w = compare_some(&ours, &theirs, bound, |i| included[i]);
        if worst.index.is_none() || w.ratio > worst.ratio {
            worst_tensor = &tensor.name;
            worst = w.clone();
        }
        worst.elements = elements + w.elements;
    }
    let label = format!("after {name} (f64)");
    let mut after = Row::compared(&subject.name, label, Link::Trajectory, &worst)
        .noted(format!("worst in {worst_tensor}"));
    after.left_out = reach.defined.iter().filter(|d| !**d).count();
    let name = format!("losses/{name}");
    let losses = &bundle.array(&name)?.values;
    let rounding = Bounds::new(&exact.losses, runs.iter().map(|r| &r.losses[..]));
    let worst = compare(&exact.losses, losses, |i| share * rounding.at(i));
    let label = format!("{} (f64)", name.replace('/', " "));
    let losses = Row::compared(&subject.name, label, Link::Trajectory, &worst);
    Ok([after, losses])
}

/// Our f32 gradients' error beside the drawn runs' and PyTorch's own: the ratio to PyTorch's goes to every tensor's
/// row, the verdict over the bundle's worst is a row of its own. None where the file has no f32 gradients.
///
/// A tensor whose gradient is nothing but rounding (a bias before a norm, whose exact gradient is 0)
/// has no relative error: both sides' noise there says nothing about either, and the verdict leaves
/// it out.
fn peer<M: Model>(
    bundle: &Bundle,
    subject: &Subject<'_, M>,
    oracle: &Oracle,
    expected: &Expectation,
    evaluation: &Evaluation<f64>,
    rows: &mut [Row],
) -> Result<Option<Row>> {
    if !bundle.names().any(|n| n.starts_with("grad32/")) {
        return Ok(None);
    }
    let relative = |values: &[f64], oracle_values: &[f64]| -> Worst {
        let scale = oracle.scale(oracle_values);
        let mut worst = compare(values, oracle_values, |_| scale);
        worst.error = worst.ratio;
        worst
    };
    let theirs = bundle.flat(subject.model, "grad32")?;
    let layout = subject.model.layout();
    let mut pairs: Vec<(String, [Worst; 2], f64)> = Vec::new();
    let mut pair = |name: String, our: &[f64], their: &[f64], exact: &[f64]| {
        let errors = [our, their].map(|values| relative(values, exact));
        pairs.push((name, errors, oracle.scale(exact)));
    };
    let ours = tensors(layout, &evaluation.d_params, &oracle.grads);
    for ((name, our, exact), (_, their, _)) in ours.zip(tensors(layout, &theirs, &oracle.grads)) {
        pair(format!("d {name}"), &our, &their, &exact);
    }
    let input32 = values(bundle, "grad_input32/x")?;
    if let (Some(input), Some(input32)) = (&oracle.input, &input32) {
        let our = features(&evaluation.d_input, input);
        pair("d input".to_string(), our, input32, input);
    }
    let mut worst = [0.0_f64; 2];
    let (mut elements, mut judged) = (0, Vec::new());
    for (name, [our, their], scale) in &pairs {
        let ratio = if our.error == 0.0 {
            0.0
        } else {
            our.error / their.error
        };
        let mut noise = false;
        if let Some(row) = rows.iter_mut().find(|r| r.tensor == *name) {
            row.peer = Some(ratio);
            noise = row.bound > MEANINGFUL * scale;
        }
        if !noise {
            judged.push(&name[..]);
            elements += our.elements;
            worst[0] = math::max(worst[0], our.error);
            worst[1] = math::max(worst[1], their.error);
        }
    }
    if elements == 0 {
        let why = "every gradient is nothing but rounding";
        let row = Row::unchecked(&subject.name, "worst gradient", Link::Peer, why);
        return Ok(Some(row));
    }
    let bound = explained_worst(subject, oracle, expected, &judged);
    let ratio = worst[0] / bound;
    let mut row = Row::unchecked(&subject.name, "worst gradient", Link::Peer, "");
    row.error = worst[0];
    row.bound = bound;
    row.ratio = ratio;
    row.elements = elements;
    row.peer = Some(worst[0] / worst[1]);
    row.verdict = if ratio <= 1.0 {
        Verdict::Pass
    } else {
        Verdict::Fail
    };
    Ok(Some(row))
}

/// The worst error relative to its tensor's scale that the drawn runs explain in these tensors' gradients; see the
/// module's text.
fn explained_worst<M: Model>(
    subject: &Subject<'_, M>,
    oracle: &Oracle,
    expected: &Expectation,
    judged: &[&str],
) -> f64 {
    let (layout, exact) = (subject.model.layout(), &expected.exact);
    let of = |run: &Evaluation<f64>| {
        let relative = |values: &[f64], exact: &[f64]| {
            let scale = oracle.scale(exact);
            compare(values, exact, |_| scale).ratio
        };
        let params = tensors(layout, &run.d_params, &exact.d_params)
            .filter(|(name, ..)| judged.contains(&&format!("d {name}")[..]))
            .map(|(_, values, exact)| relative(&values, &exact));
        let input = judged
            .contains(&"d input")
            .then(|| relative(&run.d_input, &exact.d_input));
        params.chain(input).fold(0.0, math::max)
    };
    // A run without any error has that of storing its results.
    let stored = 1.0 / f64::from(1 << 24);
    let logarithms: Vec<f64> = (expected.samples.evaluations.iter())
        .map(|run| math::ln(math::max(of(run), stored)))
        .collect();
    let n = logarithms.len() as f64;
    let mean = logarithms.iter().sum::<f64>() / n;
    let squares: f64 = logarithms.iter().map(|l| (l - mean) * (l - mean)).sum();
    let deviation = (squares / (n - 1.0)).sqrt();
    let factor = student_factor(logarithms.len() - 2, 1);
    math::exp(mean + factor * deviation * (1.0 + 1.0 / n).sqrt())
}

/// A bundle that nothing here can check.
pub fn unchecked(bundle: &Bundle, link: Link, why: impl Into<String>) -> Report {
    Report {
        rows: vec![Row::unchecked(bundle.name(), "everything", link, why)],
    }
}
