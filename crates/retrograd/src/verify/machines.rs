//! Link 5, beside threads: every instruction set that this machine has gives the same bits.

use super::bundle::BundleOptimizer;
use super::chain::{Options, equal_bits, evaluation_bits, worst_of};
use super::report::{Link, Row};
use super::subject::{Runner, Subject};
use crate::optim::OptimizerSpec;
use crate::scalar::cast;
use crate::simd::{self, InstructionSet};
use crate::{Kernels, Model, parallel};

/// One evaluation and some steps of Adam, on one thread: what depends on their number is the business of
/// the rows about threads.
pub fn machine_rows<M: Model>(subject: &Subject<'_, M>, options: &Options) -> Vec<Row> {
    let optimizer = BundleOptimizer {
        spec: OptimizerSpec::adam(1e-3),
        clip: Some(1.0),
        clip_element: None,
    };
    let params: Vec<f32> = cast(&subject.params);
    let run = |set: InstructionSet| {
        parallel::with_threads(1, || {
            simd::on(set, || {
                let mut runner = Runner::<M, f32>::new(subject, Kernels::Fast);
                let evaluation = runner.evaluate(&params);
                let steps = options.thread_steps;
                let trajectory = runner.trajectory(&params, &optimizer, steps, None);
                (evaluation, trajectory)
            })
        })
    };
    let sets: Vec<InstructionSet> = InstructionSet::available().collect();
    let Some((&best, others)) = sets.split_last().filter(|(_, others)| !others.is_empty()) else {
        let why = "this machine has one instruction set";
        let name = &subject.name;
        return vec![Row::unchecked(name, "gradients", Link::Machines, why)];
    };
    let reference = run(best);
    let row = |&set: &InstructionSet| {
        let (evaluation, trajectory) = run(set);
        let worst = worst_of([
            evaluation_bits(&evaluation, &reference.0),
            equal_bits(&trajectory.params, &reference.1.params),
            equal_bits(&trajectory.losses, &reference.1.losses),
        ]);
        let note = format!("as {best}, gradients and {} steps", options.thread_steps);
        Row::compared(&subject.name, set.to_string(), Link::Machines, &worst).noted(note)
    };
    others.iter().map(row).collect()
}
