//! What each model family brings to the verifier: the checks of its entry in [`FAMILIES`].

use super::against::unchecked;
use super::builtin::BuiltIn;
use super::bundle::Bundle;
use super::chain::Options;
use super::report::{Link, Report};
use crate::train::Precision;
use crate::{FAMILIES, Result};

/// Where a bundle is computed in f32.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum On {
    /// The CPU's kernels.
    #[default]
    Cpu,
    /// A GPU, in 32 bits or mixed precision.
    Gpu(Precision),
}

/// The check of a bundle.
pub type Against = fn(&Bundle, &Options) -> Result<Report>;

/// The check of a bundle on a GPU.
pub type AgainstOnGpu = fn(&Bundle, Precision, &Options) -> Result<Report>;

/// What checks a file of a family.
pub struct Check {
    /// `format` of the files that it checks.
    pub format: &'static str,
    /// A bundle on the CPU: usually [`against`] of the family's model.
    ///
    /// [`against`]: super::against()
    pub cpu: Against,
    /// A bundle on the GPU, where the family has kernels for one.
    pub gpu: Option<AgainstOnGpu>,
}

impl Check {
    /// Of reference bundles, on the CPU.
    pub const fn of_bundles(cpu: Against) -> Self {
        Check {
            format: "retrograd-reference-1",
            cpu,
            gpu: None,
        }
    }
}

/// The built-in models of all families.
pub fn built_in() -> Vec<BuiltIn> {
    FAMILIES.iter().flat_map(|f| (f.built_in)()).collect()
}

/// Checks a bundle of any family. One that nothing here can check is reported as unchecked.
pub fn check_bundle(bundle: &Bundle, on: On, options: &Options) -> Result<Report> {
    let own = FAMILIES.iter().filter(|f| f.name == bundle.family());
    let mut checks = own.flat_map(|f| f.checks);
    let Some(check) = checks.find(|c| c.format == bundle.format) else {
        return Ok(unchecked(
            bundle,
            Link::Oracle,
            format!(
                "no check for the family {:?} in a file of format {:?}",
                bundle.family(),
                bundle.format
            ),
        ));
    };
    match (on, check.gpu) {
        (On::Cpu, _) => (check.cpu)(bundle, options),
        (On::Gpu(precision), Some(gpu)) => gpu(bundle, precision, options),
        (On::Gpu(_), None) => Ok(unchecked(
            bundle,
            Link::Gpu,
            format!("the family {:?} has no GPU kernels", bundle.family()),
        )),
    }
}
