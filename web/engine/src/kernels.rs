//! The library's kernels on the browser's GPU, held to the f64 reference.

use std::time::Instant;

use retrograd::Result;
use retrograd::train::{Precision, Verification};
use retrograd::verify::{On, Options, Report, Row, built_in};
use serde_json::{Value, json};

use crate::{tell, webgpu};

/// The models of `retrograd verify --device gpu`, one after the other: every layer's output, loss, gradients
/// and the steps of every optimizer. The host is told of every model, and may stop.
pub fn check(only: &[String]) -> Result<Value> {
    webgpu::begin();
    let options = Options {
        on: On::Gpu(Precision::F32),
        ..Options::default()
    };
    let mut models = built_in();
    models.retain(|m| only.is_empty() || only.iter().any(|word| m.name.contains(&word[..])));
    let (begin, of) = (Instant::now(), models.len());
    let mut report = Report::default();
    let mut stopped = false;
    for (i, model) in models.iter().enumerate() {
        let checked = model.check(&options)?;
        let bad: Vec<Value> = checked.problems().map(in_words).collect();
        let passed = checked.passed();
        report.extend(checked);
        stopped = tell(
            "kernels",
            json!({ "done": i + 1, "of": of, "model": model.name, "passed": passed, "problems": bad }),
        );
        if stopped {
            break;
        }
    }
    let seconds = begin.elapsed().as_secs_f64();
    let verification = Verification { report, seconds };
    Ok(json!({ "verification": verification.to_json(), "models": of, "stopped": stopped }))
}

/// A check that did not pass.
fn in_words(row: &Row) -> Value {
    json!({
        "model": row.model,
        "tensor": row.tensor,
        "link": row.link.name(),
        "verdict": row.verdict,
        "ratio": row.ratio.is_finite().then_some(row.ratio),
        "note": row.note,
    })
}
