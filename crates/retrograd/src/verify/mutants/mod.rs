//! Link 7: deliberate faults that the other links must catch.
//!
//! A mutant is a model of the same layout with one thing wrong, in the reference and the kernels
//! alike or in the f32 kernels alone. It is compared with what the right model says: central
//! differences (taken again where the fault touches the forward pass), the f64 values of the right
//! model in the place of PyTorch's (on real bundles the two agree to 1e-10), the predicted f32
//! bounds, reused memory, threads and trajectories. It is caught where any row fails. A fault that
//! changes nothing (a tensor of one element turned around) is no mutant and is left out.
//!
//! A family adds faults of its own as models that are wrong ([`judge`]); [`ModelFault`]s apply to
//! any model.

mod chosen;
mod layer;
mod model;
mod optimizer;
mod transform;

use std::collections::BTreeSet;

pub use chosen::Mistake;
pub(crate) use chosen::{GradientMistake, LayerMistakes};
pub(crate) use layer::{Fault, FaultKind, Mutation, Seat, general_faults, then_d_x};
pub use model::{Faulty, ModelFault, model_faults};
pub use optimizer::optimizer_mutants;
pub use transform::Transform;

use super::chain::{
    Expectation, Options, differences_of, differences_rows, precision_rows, reuse_rows, thread_rows,
};
use super::device::{Cpu, Device};
use super::differences::Numeric;
use super::machines::machine_rows;
use super::processes::process_rows;
use super::report::{Link, Row, Verdict, compare, largest};
use super::rounded::Granted;
use super::subject::{Evaluation, Runner, Subject};
use super::trajectories::trajectory_rows;
use crate::math;
use crate::{Kernels, Model};

/// What the right model says.
pub struct Honest {
    expected: Expectation,
    numeric: Vec<Numeric>,
    cpu: Evaluation<f64>,
    options: Options,
}

impl Honest {
    /// Runs the right model once.
    pub fn new<M: Model>(subject: &Subject<'_, M>, options: &Options) -> crate::Result<Self> {
        let optimizers: Vec<_> = options.optimizers.iter().map(|(_, o)| o).collect();
        let expected = Expectation::new(
            subject,
            &Granted::CPU,
            &optimizers,
            options.steps,
            &options.plan,
        );
        Ok(Honest {
            numeric: differences_of(subject, &expected, &options.coverage),
            cpu: Cpu.evaluate(subject)?,
            expected,
            options: options.clone(),
        })
    }
}

fn fails(rows: &[Row]) -> bool {
    rows.iter().any(|r| r.verdict == Verdict::Fail)
}

/// The links that saw something wrong in a mutant.
#[derive(Clone, Debug, Default)]
pub struct Caught {
    /// Which.
    pub links: BTreeSet<Link>,
    /// Whether the mutant's own f64 reference is the right one: the fault is in the f32 kernels alone.
    pub only_f32: bool,
}

impl Caught {
    /// Whether one of them needs no right model to compare with, as nobody has who has made the
    /// mistake. Kernels and trajectories are held against the reference: that sees a fault in the
    /// kernels alone, not one that the reference shares.
    pub fn independently(&self) -> bool {
        self.links.iter().any(|link| match link {
            Link::Oracle => false,
            Link::Cpu | Link::Gpu | Link::Trajectory => self.only_f32,
            _ => true,
        })
    }
}

/// What sees something wrong in a mutant; none at all if it computes what the right model computes, to
/// the bit.
pub fn judge<M: Model>(mutant: &Subject<'_, M>, honest: &Honest) -> Option<Caught> {
    let expected = &honest.expected;
    let mut caught = BTreeSet::new();
    let mut runner = Runner::<M, f64>::new(mutant, Kernels::Reference);
    let exact = runner.evaluate(&mutant.params);
    let cpu = Cpu.evaluate(mutant).ok()?;

    let same_forward = exact.output == expected.exact.output && exact.loss == expected.exact.loss;
    let differences = if same_forward {
        differences_rows(mutant, expected, &honest.numeric, &exact)
    } else {
        let numeric = differences_of(mutant, expected, &honest.options.coverage);
        differences_rows(mutant, expected, &numeric, &exact)
    };
    if fails(&differences) {
        caught.insert(Link::Differences);
    }
    let everywhere = math::max(
        largest(&expected.exact.d_params),
        largest(&expected.exact.d_input),
    );
    let differs = |ours: &[f64], right: &[f64]| {
        let scale = math::max(largest(right), 1e-6 * everywhere);
        compare(ours, right, |_| 1e-10 * scale).ratio > 1.0
    };
    let right = &expected.exact;
    if differs(&exact.output, &right.output)
        || differs(&exact.d_params, &right.d_params)
        || differs(&exact.d_input, &right.d_input)
    {
        caught.insert(Link::Oracle);
    }
    if fails(&precision_rows(mutant, expected, &cpu, Link::Cpu)) {
        caught.insert(Link::Cpu);
    }
    if fails(&reuse_rows(mutant, expected)) {
        caught.insert(Link::Reuse);
    }
    // One optimizer is enough to see a wrong gradient; the others are for faults of the step.
    if let Some((name, optimizer)) = honest.options.optimizers.first()
        && let Ok(trajectory) = Cpu.trajectory(mutant, optimizer, honest.options.steps)
        && fails(&trajectory_rows(mutant, expected, 0, name, &trajectory))
    {
        caught.insert(Link::Trajectory);
    }
    if caught.is_empty() {
        if fails(&thread_rows(mutant, &honest.options)) {
            caught.insert(Link::Threads);
        } else if fails(&process_rows(mutant)) {
            caught.insert(Link::Processes);
        } else if fails(&machine_rows(mutant, &honest.options)) {
            caught.insert(Link::Machines);
        } else if exact == *right && cpu == honest.cpu {
            return None;
        }
    }
    Some(Caught {
        links: caught,
        only_f32: exact == *right,
    })
}

/// The row of a mutant.
pub fn mutant_row(model: &str, fault: &str, caught: &Caught) -> Row {
    let mut row = Row::unchecked(model, fault, Link::Mutant, "");
    row.elements = 1;
    row.independent = caught.independently();
    if caught.links.is_empty() {
        row.verdict = Verdict::Fail;
        row.noted("NOT CAUGHT by any check")
    } else {
        row.verdict = Verdict::Pass;
        let names: Vec<&str> = caught.links.iter().map(|l| l.name()).collect();
        let how = match row.independent {
            true => "",
            false => ", beside the right model alone",
        };
        row.noted(format!("caught by {}{how}", names.join(", ")))
    }
}

/// All faults that apply to any model, in the reference and in the f32 kernels alone.
pub fn generic_mutants<M: Model>(
    subject: &Subject<'_, M>,
    honest: &Honest,
    samples: usize,
) -> Vec<Row> {
    let has_input = !honest.expected.exact.d_input.is_empty();
    let faults = model_faults(subject.model.layout(), has_input);
    let mut rows = Vec::new();
    for (words, fault) in &faults {
        for only_f32 in [false, true] {
            let model = Faulty::new(subject.model, fault.clone(), only_f32, samples);
            let mutant = on(subject, &model);
            if let Some(caught) = judge(&mutant, honest) {
                let words = format!("{words}{}", if only_f32 { ", in f32" } else { "" });
                rows.push(mutant_row(&subject.name, &words, &caught));
            }
        }
    }
    rows
}

/// The same parameters and batch with another model of the same kind.
pub fn on<'m, M: Model, N>(subject: &Subject<'_, M>, model: &'m N) -> Subject<'m, N>
where
    N: Model<Input<f64> = M::Input<f64>>,
{
    Subject {
        name: subject.name.clone(),
        model,
        params: subject.params.clone(),
        input: subject.model.cast_input::<f64, f64>(&subject.input),
        target: subject.target.clone(),
        loss: subject.loss,
        pass: subject.pass,
    }
}
