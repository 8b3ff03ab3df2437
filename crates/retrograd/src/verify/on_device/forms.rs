//! Backward passes that have two forms, in either: kernels of their own for the gradients of parameters and of the
//! input, and one kernel for both. The plan takes the one or the other by the shape.

use std::sync::Arc;

use super::{DeviceCheck, cases, large, models};
use crate::Result;
use crate::gpu::{BackwardForm, Gpu, GpuVerifier};
use crate::verify::chain::Options;

/// The layers that have two forms: checks whose names have one of these in them.
const WITH_TWO: &[&str] = &[
    "network: dense",
    "network: kan",
    "sizes: dense",
    "sizes: kan",
    "device: dense without",
    "device: kan without",
    "device: many rows",
    "device: many outputs",
    "device: whole tiles",
];

/// What the forms are called before a check's name.
const FORMS: [(BackwardForm, &str); 2] = [
    (BackwardForm::Separate, "separate kernels"),
    (BackwardForm::Fused, "one kernel"),
];

pub(super) fn all() -> Vec<DeviceCheck> {
    let in_form = |(form, words)| {
        let beside = cases::all().into_iter().chain(large::all());
        let all = beside.chain(models(false));
        all.filter(|check| WITH_TWO.iter().any(|name| check.name.starts_with(name)))
            .map(move |check| asked(check, form, words))
    };
    FORMS.into_iter().flat_map(in_form).collect()
}

/// The same check in one of the forms.
fn asked(check: DeviceCheck, form: BackwardForm, words: &'static str) -> DeviceCheck {
    let name = format!("{words}, {}", check.name);
    let run = move |options: &Options| {
        let _asked = Asked::new(form)?;
        let mut report = check.run(options)?;
        for row in &mut report.rows {
            row.model = format!("{words}, {}", row.model);
        }
        Ok(report)
    };
    DeviceCheck::of(name, false, Box::new(run))
}

/// A form, until it is dropped.
struct Asked(Arc<Gpu>);

impl Asked {
    fn new(form: BackwardForm) -> Result<Self> {
        let gpu = GpuVerifier::shared()?;
        gpu.set_backward_form(form);
        Ok(Asked(gpu))
    }
}

impl Drop for Asked {
    fn drop(&mut self) {
        self.0.set_backward_form(BackwardForm::default());
    }
}
