//! What each model family brings to the verifier: the checks of its entry in [`FAMILIES`].

use super::against::unchecked;
use super::builtin::BuiltIn;
use super::bundle::Bundle;
use super::chain::Options;
use super::report::{Link, Report};
use crate::train::Precision;
use crate::{FAMILIES, Result};

/// Where f32 is computed.
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

/// What checks a file of a family.
pub struct Check {
    /// `format` of the files that it checks.
    pub format: &'static str,
    /// Usually [`against`] of the family's model.
    ///
    /// [`against`]: super::against()
    pub run: Against,
    /// Whether it looks at [`Options::on`]; else it is one of the CPU alone.
    pub anywhere: bool,
}

impl Check {
    /// Of reference bundles.
    pub const fn of_bundles(run: Against) -> Self {
        Check {
            format: "retrograd-reference-1",
            run,
            anywhere: true,
        }
    }
}

/// The built-in models of all families.
pub fn built_in() -> Vec<BuiltIn> {
    FAMILIES.iter().flat_map(|f| (f.built_in)()).collect()
}

/// Checks a bundle of any family, where the options say. One that nothing here can check is reported
/// as unchecked.
pub fn check_bundle(bundle: &Bundle, options: &Options) -> Result<Report> {
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
    match options.on {
        On::Gpu(_) if !check.anywhere => Ok(unchecked(
            bundle,
            Link::Gpu,
            format!("files of format {:?} are checked on the CPU", bundle.format),
        )),
        _ => (check.run)(bundle, options),
    }
}
