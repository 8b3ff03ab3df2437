//! Everything that `retrograd verify --device gpu` runs, one check at a time: the built-in models of all
//! families, in f32 and with 16-bit activations, sizes around the cuts of kernels, and what models don't
//! reach (`cases`, `large`, `native`, `routines`, `forms`).

mod cases;
mod forms;
mod large;
mod native;
mod routines;

use super::builtin::BuiltIn;
use super::chain::Options;
use super::families::{On, built_in};
use super::report::Report;
use super::sizes::{self, Draw};
use crate::Result;
use crate::train::Precision;

/// A check that runs on a device.
pub struct DeviceCheck {
    /// What is checked: a model, or a kernel at some size.
    pub name: String,
    /// With 16-bit activations.
    pub half: bool,
    run: Run,
}

pub(super) type Run = Box<dyn Fn(&Options) -> Result<Report> + Send + Sync>;

impl DeviceCheck {
    /// Runs it on the adapter that is chosen where none is named.
    pub fn run(&self, options: &Options) -> Result<Report> {
        let precision = match self.half {
            true => Precision::Mixed,
            false => Precision::F32,
        };
        (self.run)(&Options {
            on: On::Gpu(precision),
            ..options.clone()
        })
    }

    pub(super) fn of(name: String, half: bool, run: Run) -> Self {
        DeviceCheck { name, half, run }
    }

    fn of_model(model: BuiltIn, half: bool) -> Self {
        let name = match half {
            true => format!("mixed precision, {}", model.name),
            false => model.name.clone(),
        };
        Self::of(name, half, Box::new(move |options| model.check(options)))
    }
}

/// All checks that a device can run; with 16-bit floats where it has them.
pub fn all(half: bool) -> Vec<DeviceCheck> {
    let mut all = beside_models(half);
    all.extend(models(half));
    all
}

/// From here on, and before any device is opened, a kernel that goes beyond its buffers is seen.
pub fn guard_buffers() {
    crate::gpu::guard::set_up();
}

/// Whether the adapter that is chosen where none is named has 16-bit floats.
pub fn has_f16() -> Result<bool> {
    Ok(crate::gpu::GpuVerifier::shared()?.description().f16)
}

/// Checks that `retrograd verify --device gpu` runs beside the models and their sizes.
pub fn beside_models(half: bool) -> Vec<DeviceCheck> {
    let mut all = cases::all();
    all.extend(large::all());
    all.extend(native::all(half));
    all.extend(routines::all(half));
    all.extend(forms::all());
    all.extend(cases::folded_models(plain_models()));
    all
}

/// The built-in models in f32.
fn plain_models() -> Vec<DeviceCheck> {
    let models = built_in().into_iter();
    models
        .map(|model| DeviceCheck::of_model(model, false))
        .collect()
}

fn models(half: bool) -> Vec<DeviceCheck> {
    let mut all = plain_models();
    if half {
        // The gradient of an automaton's state exceeds 16 bits at the first loss scale, and only those of
        // the parameters make the scale smaller.
        let mixed = (built_in().into_iter()).filter(|model| !model.name.starts_with("logic_ca"));
        all.extend(mixed.map(|model| DeviceCheck::of_model(model, true)));
    }
    for (i, stretch) in sizes::all().into_iter().enumerate() {
        for size in stretch.sizes(Draw::Plain, On::Gpu(Precision::F32)) {
            let name = format!("sizes: {}, {}", stretch.name, stretch.label(&size));
            // Made anew: a stretched thing is a few words and functions.
            let run = move |options: &Options| {
                let all = sizes::all();
                Ok(sizes::check_one(&all[i], &size, options))
            };
            all.push(DeviceCheck::of(name, false, Box::new(run)));
        }
    }
    all
}
