//! The notebook's own first steps, made again: a file of format `retrograd-logic-run-1` has the
//! wires, the start of every step, the gradient of the first, soft and hard losses, and the logits
//! after the last, in float32 by JAX.

use super::{LogicBatch, LogicCa, TrainingLoop};
use crate::model::{Kernels, Model};
use crate::scalar::cast;
use crate::verify::{Bundle, Case, FromBundle, Link, Options, Report, Row, compare, largest};
use crate::{Error, Layout, Result, Target};

/// What soft losses may differ by, relative to the loss: both are sums of float32.
const SOFT: f64 = 1e-5;

/// What logits may differ by after five steps, and gradients relative to their tensor's largest.
/// The run is float32: exact arithmetic ends 1.3e-4 away from its logits.
const LOGITS: f64 = 1e-3;

/// Makes the recorded steps and compares everything that was recorded.
pub fn replay(bundle: &Bundle, options: &Options) -> Result<Report> {
    let Case {
        model,
        params,
        input,
        target,
    } = LogicCa::from_bundle(bundle)?;
    let Some(optimizer) = bundle.optimizers.get("optimizer") else {
        return Err(Error::file(
            &bundle.path,
            "metadata \"task\"",
            "no \"optimizer\"; a recorded run has one",
        ));
    };
    let layout = model.layout().clone();
    let target: Target<f32> = target.cast();
    let size = [input.batch, input.height, input.width];
    let soft = &bundle.array("run/soft_loss")?.values;
    let hard = &bundle.array("run/hard_loss")?.values;
    let mut run = TrainingLoop::new(model, cast(&params), optimizer.spec, Kernels::Fast)?;
    run.clip_element = optimizer.clip_element;
    let (mut soft_found, mut hard_found) = (Vec::new(), Vec::new());
    let mut report = Report::default();
    let name = bundle.name();
    for step in 0..soft.len() {
        options.say(&format!("{name}: step {step}"));
        let state = cast(&bundle.array(&format!("run/state.{step}"))?.values);
        let batch = LogicBatch::new(run.model(), state, size, input.fire.clone())?;
        let losses = run.train_step_with_hard(&batch, &target)?;
        soft_found.push(losses.soft);
        hard_found.push(losses.hard);
        if step == 0 {
            let gradient: Vec<f64> = cast(run.gradient());
            let recorded = bundle.flat(run.model(), "grad")?;
            let scaled = |tensor: &[f64]| LOGITS * largest(tensor);
            let rows = rows(
                &name,
                "d ",
                Link::Cpu,
                &layout,
                &gradient,
                &recorded,
                scaled,
            );
            report.rows.extend(rows);
        }
    }
    let losses = compare(&soft_found, soft, |i| SOFT * soft[i].abs());
    let row = |tensor: &str, worst| Row::compared(name.clone(), tensor, Link::Trajectory, &worst);
    report.rows.push(row("soft losses", losses));
    let hard = compare(&hard_found, hard, |_| 0.0);
    report.rows.push(row("hard losses", hard).noted("equal"));
    let after: Vec<f64> = cast(run.params());
    let recorded = bundle.flat(run.model(), &format!("after{}", soft.len()))?;
    let all = |_: &[f64]| LOGITS;
    let rows = rows(
        &name,
        "after ",
        Link::Trajectory,
        &layout,
        &after,
        &recorded,
        all,
    );
    report.rows.extend(rows);
    Ok(report)
}

/// A row for every tensor.
fn rows(
    name: &str,
    what: &str,
    link: Link,
    layout: &Layout,
    found: &[f64],
    recorded: &[f64],
    bound: impl Fn(&[f64]) -> f64,
) -> Vec<Row> {
    let row = |tensor: &crate::Tensor| {
        let recorded = &recorded[tensor.range()];
        let bound = bound(recorded);
        let worst = compare(&found[tensor.range()], recorded, |_| bound);
        Row::compared(name, format!("{what}{}", tensor.name), link, &worst)
    };
    layout.tensors().iter().map(row).collect()
}
