//! What each model family brings to the verifier: one line in [`FAMILIES`].

use super::against::{against, unchecked};
use super::builtin::BuiltIn;
use super::bundle::Bundle;
use super::chain::Options;
use super::report::{Link, Report};
use crate::Result;
use crate::train::Precision;

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

/// A model family as the verifier sees it.
pub struct Family {
    /// `family` in a bundle's model.
    pub name: &'static str,
    /// `format` of the files that it checks.
    pub format: &'static str,
    /// A bundle on the CPU: usually [`against`] of the family's model.
    pub cpu: Against,
    /// Small models for the built-in chain and its mutants.
    pub built_in: fn() -> Vec<BuiltIn>,
    /// A bundle on the GPU, where the family has kernels for one.
    pub gpu: Option<AgainstOnGpu>,
}

const BUNDLE: &str = "retrograd-reference-1";

/// All families that can be checked against bundles.
pub const FAMILIES: &[Family] = &[
    Family {
        name: "network",
        format: BUNDLE,
        cpu: against::<crate::network::Network>,
        #[cfg(feature = "gpu")]
        gpu: Some(network_on_gpu),
        #[cfg(not(feature = "gpu"))]
        gpu: None,
        built_in: super::builtin::network::built_in,
    },
    Family {
        name: "logic_ca",
        format: BUNDLE,
        cpu: against::<crate::logic::LogicCa>,
        gpu: None,
        built_in: super::builtin::bundled::logic,
    },
    Family {
        name: "logic_ca",
        format: "retrograd-logic-run-1",
        cpu: crate::logic::replay,
        gpu: None,
        built_in: Vec::new,
    },
    Family {
        name: "graph",
        format: BUNDLE,
        cpu: against::<crate::graph::GraphNetwork>,
        gpu: None,
        built_in: super::builtin::bundled::graph,
    },
    Family {
        name: "dag",
        format: BUNDLE,
        cpu: against::<crate::graph::DagNN>,
        gpu: None,
        built_in: super::builtin::bundled::dag,
    },
];

/// The built-in models of all families.
pub fn built_in() -> Vec<BuiltIn> {
    FAMILIES.iter().flat_map(|f| (f.built_in)()).collect()
}

/// A network's bundle on the adapter that is chosen where none is named.
#[cfg(feature = "gpu")]
fn network_on_gpu(bundle: &Bundle, precision: Precision, options: &Options) -> Result<Report> {
    use crate::gpu::{Choice, Gpu, GpuVerifier};
    let gpu = Gpu::open(&Choice::Auto)?;
    let mut device = GpuVerifier::with_precision(&gpu, precision);
    super::against::against_on::<crate::network::Network>(bundle, &mut device, options)
}

/// Checks a bundle of any family. One that nothing here can check is reported as unchecked.
pub fn check_bundle(bundle: &Bundle, on: On, options: &Options) -> Result<Report> {
    let found = FAMILIES
        .iter()
        .find(|f| f.name == bundle.family() && f.format == bundle.format);
    let Some(family) = found else {
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
    match (on, family.gpu) {
        (On::Cpu, _) => (family.cpu)(bundle, options),
        (On::Gpu(precision), Some(gpu)) => gpu(bundle, precision, options),
        (On::Gpu(_), None) => Ok(unchecked(
            bundle,
            Link::Gpu,
            format!("the family {:?} has no GPU kernels", family.name),
        )),
    }
}
