//! Faults in the training step: the right gradients, applied wrongly.

use super::{Caught, Honest, mutant_row};
use crate::math;
use crate::optim::{self, Optimizer, OptimizerSpec};
use crate::scalar::cast;
use crate::verify::bundle::BundleOptimizer;
use crate::verify::report::{Link, Row, Verdict};
use crate::verify::subject::{Runner, Subject, Trajectory, divides_by_size};
use crate::verify::trajectories::trajectory_rows;
use crate::{Kernels, Model};

/// What is wrong.
#[derive(Clone, Copy, Debug, PartialEq)]
enum StepFault {
    /// No update at all.
    Never,
    /// One update is skipped.
    SkipsOne,
    /// The last tensor is never updated.
    SkipsTensor,
    /// Gradients are not cleared between steps.
    NotCleared,
    /// Every step takes the gradient of the step before.
    StaleGradient,
    /// The optimizer's state is lost after every step.
    StateLost,
    /// Clipping by the norm of every tensor instead of all together.
    ClipsEach,
    /// No clipping.
    NoClip,
    /// The rate is 1 % off.
    Rate,
    /// No momentum.
    NoMomentum,
    /// Nesterov's momentum is plain, or plain momentum is Nesterov's.
    OtherMomentum,
    /// No weight decay.
    NoDecay,
    /// Decay added to the gradient where it should shrink the parameter, and the reverse.
    OtherDecay,
    /// β₁ and β₂ exchanged.
    BetasExchanged,
    /// ε is a thousand times too large.
    Epsilon,
}

const FAULTS: &[(&str, StepFault)] = &[
    ("no update", StepFault::Never),
    ("one update skipped", StepFault::SkipsOne),
    ("last tensor not updated", StepFault::SkipsTensor),
    ("gradients not cleared", StepFault::NotCleared),
    ("gradient of the step before", StepFault::StaleGradient),
    ("optimizer state lost", StepFault::StateLost),
    ("clipped tensor by tensor", StepFault::ClipsEach),
    ("not clipped", StepFault::NoClip),
    ("rate 1 % off", StepFault::Rate),
    ("momentum missing", StepFault::NoMomentum),
    ("the other momentum", StepFault::OtherMomentum),
    ("decay missing", StepFault::NoDecay),
    ("decay of the other kind", StepFault::OtherDecay),
    ("betas exchanged", StepFault::BetasExchanged),
    ("epsilon 1000 times", StepFault::Epsilon),
];

/// The optimizer with the fault in its constants.
fn wrong_spec(spec: OptimizerSpec, fault: StepFault) -> OptimizerSpec {
    let mut wrong = spec;
    match &mut wrong {
        OptimizerSpec::Sgd {
            lr,
            momentum,
            nesterov,
            weight_decay,
        } => match fault {
            StepFault::Rate => *lr *= 1.01,
            StepFault::NoMomentum => (*momentum, *nesterov) = (0.0, false),
            StepFault::OtherMomentum if *momentum > 0.0 => *nesterov = !*nesterov,
            StepFault::NoDecay => *weight_decay = 0.0,
            _ => {}
        },
        OptimizerSpec::Adam {
            lr,
            betas,
            eps,
            weight_decay,
        }
        | OptimizerSpec::AdamW {
            lr,
            betas,
            eps,
            weight_decay,
        } => match fault {
            StepFault::Rate => *lr *= 1.01,
            StepFault::NoDecay => *weight_decay = 0.0,
            StepFault::BetasExchanged => betas.swap(0, 1),
            StepFault::Epsilon => *eps *= 1000.0,
            _ => {}
        },
    }
    match (wrong, fault) {
        (
            OptimizerSpec::AdamW {
                lr,
                betas,
                eps,
                weight_decay,
            },
            StepFault::OtherDecay,
        ) => OptimizerSpec::Adam {
            lr,
            betas,
            eps,
            weight_decay,
        },
        _ => wrong,
    }
}

/// A trajectory in f32 with the fault.
fn wrong_trajectory<M: Model>(
    subject: &Subject<'_, M>,
    optimizer: &BundleOptimizer,
    steps: usize,
    fault: StepFault,
) -> Trajectory<f64> {
    let layout = subject.model.layout();
    let mut runner = Runner::<M, f32>::new(subject, Kernels::Fast);
    let mut params: Vec<f32> = cast(&subject.params);
    let mut d_params = vec![0.0_f32; params.len()];
    let mut before = vec![0.0_f32; params.len()];
    let spec = wrong_spec(optimizer.spec, fault);
    let mut state = Optimizer::new(spec, params.len());
    let mut trajectory = Trajectory::default();
    for step in 0..steps {
        let adds = fault == StepFault::NotCleared && step > 0;
        let loss = runner.gradients(&params, &mut d_params, None, adds);
        trajectory.losses.push(f64::from(loss));
        if divides_by_size(&optimizer.spec) {
            trajectory.grads.push(cast(&d_params));
        }
        let mut used = d_params.clone();
        if fault == StepFault::StaleGradient && step > 0 {
            used.copy_from_slice(&before);
        }
        before.copy_from_slice(&d_params);
        match (optimizer.clip, fault) {
            (Some(_), StepFault::NoClip) | (None, _) => {}
            (Some(limit), StepFault::ClipsEach) => {
                for tensor in layout.tensors() {
                    let own = &mut used[tensor.range()];
                    let norm = own.iter().map(|g| f64::from(g * g)).sum::<f64>().sqrt();
                    let factor = math::min(limit / (norm + 1e-6), 1.0) as f32;
                    own.iter_mut().for_each(|g| *g *= factor);
                }
            }
            (Some(limit), _) => {
                optim::clip_global_norm(&mut used, layout, limit);
            }
        }
        if fault == StepFault::Never || (fault == StepFault::SkipsOne && step + 1 == steps) {
            continue;
        }
        let old = params.clone();
        state.step(&mut params, &used, layout, spec.lr());
        if fault == StepFault::SkipsTensor
            && let Some(tensor) = layout.tensors().last()
        {
            params[tensor.range()].copy_from_slice(&old[tensor.range()]);
        }
        if fault == StepFault::StateLost {
            state = Optimizer::new(spec, params.len());
        }
    }
    trajectory.params = cast(&params);
    trajectory
}

/// Every fault in the training step, with every optimizer that it applies to.
pub fn optimizer_mutants<M: Model>(subject: &Subject<'_, M>, honest: &Honest) -> Vec<Row> {
    let options = &honest.options;
    let mut rows = Vec::new();
    for (i, (name, optimizer)) in options.optimizers.iter().enumerate() {
        let right = Runner::<M, f32>::new(subject, Kernels::Fast)
            .trajectory(&cast(&subject.params), optimizer, options.steps, None)
            .to_f64();
        for &(words, fault) in FAULTS {
            let wrong = wrong_trajectory(subject, optimizer, options.steps, fault);
            if wrong.params == right.params && wrong.losses == right.losses {
                continue;
            }
            let compared = trajectory_rows(subject, &honest.expected, i, name, &wrong);
            let caught = compared.iter().any(|r| r.verdict == Verdict::Fail);
            let links = Caught {
                links: caught.then_some(Link::Trajectory).into_iter().collect(),
                only_f32: true,
            };
            rows.push(mutant_row(
                &subject.name,
                &format!("{name}: {words}"),
                &links,
            ));
        }
    }
    rows
}
