//! Which device is faster for a run: a few of its steps on each.
//!
//! What is timed are whole steps, with their batches, from the state that the run begins with; nothing of
//! it is left behind. A device that can't take the run is out, with its reason.

use super::step::{Clip, Stepper};
use super::{Carried, MicroBatch, Mode, OnNan, Placement, Start, Task, TrainSpec, Updating};
use crate::rng::Key;
use crate::{Model, Pass, Result};

/// Steps before those that are timed: kernels are compiled and buffers made.
const WARM: u64 = 2;
/// Steps that are timed.
const TIMED: u64 = 5;

/// A clock in seconds; tests have their own.
pub type Clock<'a> = &'a mut (dyn FnMut() -> f64 + Send);

/// The fastest of some places, and a line that says why. The first is taken where none can be timed; it is
/// an error where that one fails.
pub(super) fn choose<T: Task>(
    task: &mut T,
    spec: &TrainSpec,
    places: &[Placement],
    clock: Clock<'_>,
) -> Result<(Placement, String)> {
    let mut best: Option<(f64, usize)> = None;
    let mut said = Vec::new();
    for (i, place) in places.iter().enumerate() {
        let name = place.to_text();
        match seconds_a_step(task, spec, place, clock) {
            Ok(seconds) => {
                said.push(format!("{name} {:.2} ms a step", 1e3 * seconds));
                if best.is_none_or(|(least, _)| seconds < least) {
                    best = Some((seconds, i));
                }
            }
            Err(error) if i == 0 => return Err(error),
            Err(error) => said.push(format!("not {name}: {error}")),
        }
    }
    let taken = &places[best.map_or(0, |(_, i)| i)];
    let line = format!("--device auto: {} ({})", taken.to_text(), said.join("; "));
    Ok((taken.clone(), line))
}

fn seconds_a_step<T: Task>(
    task: &mut T,
    spec: &TrainSpec,
    place: &Placement,
    clock: Clock<'_>,
) -> Result<f64> {
    let buffers = task.model().buffers();
    let timed = steps(task, spec, place, clock);
    // Running statistics are not the run's yet.
    buffers
        .iter()
        .try_for_each(|buffer| task.model_mut().set_buffer(buffer))?;
    timed
}

fn steps<T: Task>(
    task: &mut T,
    spec: &TrainSpec,
    place: &Placement,
    clock: Clock<'_>,
) -> Result<f64> {
    let loss = task.loss();
    let params = task.model().init(spec.seed);
    let mut stepper = Stepper::new(task.model(), params, spec.optimizer);
    stepper.image_loss = task.image_loss();
    let carried = Carried::default();
    let start = Start {
        params: &stepper.params,
        optimizer: &stepper.optimizer,
        carried: &carried,
        image_loss: stepper.image_loss.as_ref(),
    };
    let mut accelerator = task.model().accelerator(place, &start)?;
    let clip = Clip {
        element: spec.clip_element,
        norm: spec.clip,
    };
    let updating = Updating {
        clip: &clip,
        lr: spec.optimizer.lr(),
        skip_not_finite: spec.on_nan == OnNan::Skip,
        fused: spec.fused_updates,
    };
    let key = Key::new(spec.seed).purpose("step");
    let mut example = None;
    let mut begun = 0.0;
    for step in 0..WARM + TIMED {
        if step == WARM {
            if let Some(accelerator) = &mut accelerator {
                let (params, optimizer) = (&mut stepper.params, &mut stepper.optimizer);
                accelerator.sync(params, optimizer, task.model_mut())?;
            }
            begun = clock();
        }
        task.batch(step, &mut example)?;
        let example = example.as_ref().expect("a task gives a batch");
        let pass = Pass::training(key.step(step));
        match &mut accelerator {
            Some(device) if device.mode() == Mode::Native => {
                device.step(loss, example, &pass, MicroBatch::default(), &updating)?;
                continue;
            }
            Some(device) => stepper.gradient_from(1.0, false, |params, grads| {
                device.gradient(params, loss, example, &pass, grads)
            })?,
            None => stepper.gradient(task.model(), loss, example, &pass, 1.0, false)?,
        };
        // A step that is not finite takes its time, too.
        let _ = stepper.update(task.model(), &clip, updating.lr);
    }
    if let Some(accelerator) = &mut accelerator {
        let (params, optimizer) = (&mut stepper.params, &mut stepper.optimizer);
        accelerator.sync(params, optimizer, task.model_mut())?;
    }
    Ok((clock() - begun) / TIMED as f64)
}
