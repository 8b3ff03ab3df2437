//! Backward passes that have two forms, in the one that the plan doesn't take: kernels of their own for the
//! gradients of parameters and of the input.

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
];

pub(super) fn all() -> Vec<DeviceCheck> {
    let beside = cases::all().into_iter().chain(large::all());
    let all = beside.chain(models(false));
    all.filter(|check| WITH_TWO.iter().any(|name| check.name.starts_with(name)))
        .map(separate)
        .collect()
}

/// The same check with kernels of their own.
fn separate(check: DeviceCheck) -> DeviceCheck {
    let name = format!("separate kernels, {}", check.name);
    let run = move |options: &Options| {
        let _asked = Asked::new(BackwardForm::Separate)?;
        let mut report = check.run(options)?;
        for row in &mut report.rows {
            row.model = format!("separate kernels, {}", row.model);
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
