//! The chain of checks on any model, on bundles, and on what is built in.

use std::path::PathBuf;

use numpy::PyUntypedArrayMethods;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use retrograd::verify::{self, Bundle, Options, Report};
use retrograd::{Loss, Model, Target, parallel};

use crate::convert::{array, compute, elements};

/// Whether all passed, the report as JSON, and its table.
pub type Checked = (bool, String, String);

fn told(report: &Report) -> Checked {
    let text = format!("{}\n{}", report.table(), report.summary());
    (report.passed(), report.to_json().to_string(), text)
}

/// Class numbers (int64), or values (float32).
pub fn target(object: &Bound<'_, PyAny>) -> PyResult<Target<f32>> {
    if let Ok(classes) = array::<i64>("y", object) {
        let whole = elements(&classes)?.iter().map(|&c| u32::try_from(c));
        let whole: Result<Vec<u32>, _> = whole.collect();
        let negative = |_| PyValueError::new_err("y: got a negative class, needs 0 and more");
        return Ok(Target::classes(whole.map_err(negative)?));
    }
    let values = array::<f32>("y", object)?;
    let _ = values.shape();
    Ok(Target::values(elements(&values)?.to_vec()))
}

/// A loss by its name.
pub fn loss(name: &str) -> PyResult<Loss> {
    let json = serde_json::Value::String(name.into());
    serde_json::from_value(json).map_err(|error| PyValueError::new_err(format!("loss: {error}")))
}

/// The chain on one model.
pub fn model<M: Model>(
    py: Python<'_>,
    name: &str,
    model: &M,
    params: &[f32],
    input: &M::Input<f32>,
    target: &Target<f32>,
    named: &str,
    quick: bool,
) -> PyResult<Checked> {
    let loss = loss(named)?;
    let report = compute(py, || {
        parallel::within(|| match quick {
            true => verify::check_trained(name, model, params, input, target, loss),
            false => {
                let options = Options::default();
                verify::check(name, model, params, input, target, loss, &options)
            }
        })
    })?;
    Ok(told(&report))
}

/// Bundles of other frameworks.
#[pyfunction]
pub fn verify_bundles(py: Python<'_>, paths: Vec<PathBuf>) -> PyResult<Checked> {
    let report = compute(py, || {
        // Every file first: a mistyped name is said before minutes of work.
        let bundles = paths.iter().map(Bundle::read);
        let bundles: Vec<Bundle> = bundles.collect::<retrograd::Result<_>>()?;
        let mut report = Report::default();
        for bundle in &bundles {
            let options = Options::default();
            let checked = parallel::within(|| verify::check_bundle(bundle, &options))?;
            report.extend(checked);
        }
        Ok(report)
    })?;
    Ok(told(&report))
}

/// What is built in, with or without its mutants.
#[pyfunction]
pub fn verify_built_in(py: Python<'_>, mutants: bool) -> PyResult<Checked> {
    let report = compute(py, || {
        let (models, options) = (verify::built_in(), Options::default());
        parallel::within(|| {
            let mut report = verify::builtin::all(&models, |model| model.check(&options))?;
            if mutants {
                let caught = verify::builtin::all(&models, |model| model.mutants(&options))?;
                report.extend(caught);
            }
            Ok(report)
        })
    })?;
    Ok(told(&report))
}
