//! Which instruction set kernels take.
//!
//! Every kernel is compiled once for each that the target can have, and once for none ("scalar"). All
//! give the same bits; the best that the machine has is the fastest. `RETROGRAD_SIMD` names another one.

use std::cell::Cell;
use std::fmt;
use std::sync::OnceLock;

use fearless_simd::Level;

use crate::{Error, Result};

/// Names one of the [`InstructionSet`]s.
pub const VARIABLE: &str = "RETROGRAD_SIMD";

/// What kernels are compiled for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InstructionSet {
    /// No vectors.
    Scalar,
    /// What every x86-64 has.
    Sse2,
    /// x86-64-v3: AVX2 with FMA.
    Avx2,
    /// AVX-512 as of Ice Lake.
    Avx512,
    /// What every 64-bit ARM has.
    Neon,
    /// WebAssembly's.
    Simd128,
}

impl InstructionSet {
    const ALL: [InstructionSet; 6] = [
        InstructionSet::Scalar,
        InstructionSet::Sse2,
        InstructionSet::Avx2,
        InstructionSet::Avx512,
        InstructionSet::Neon,
        InstructionSet::Simd128,
    ];

    /// Those that this machine has, from the slowest to the best.
    pub fn available() -> impl DoubleEndedIterator<Item = InstructionSet> {
        let compiled = |set: &InstructionSet| match set {
            InstructionSet::Avx2 => true,
            // See `dispatch!`.
            InstructionSet::Scalar if cfg!(target_feature = "simd128") => false,
            _ => cfg!(not(one_level)),
        };
        let sets = Self::ALL.into_iter().filter(compiled);
        sets.filter(|set| set.level().is_some())
    }

    /// The proof that the machine has it.
    fn level(self) -> Option<Level> {
        #[allow(
            clippy::disallowed_methods,
            reason = "the one place that asks the machine"
        )]
        let best = Level::new();
        match self {
            InstructionSet::Scalar => Some(Level::fallback()),
            #[cfg(target_arch = "x86_64")]
            InstructionSet::Sse2 => best.as_sse2().map(Level::Sse2),
            #[cfg(target_arch = "x86_64")]
            InstructionSet::Avx2 => best.as_avx2().map(Level::Avx2),
            #[cfg(target_arch = "x86_64")]
            InstructionSet::Avx512 => best.as_avx512().map(Level::Avx512),
            #[cfg(target_arch = "aarch64")]
            InstructionSet::Neon => best.as_neon().map(Level::Neon),
            #[cfg(all(target_arch = "wasm32", target_feature = "simd128"))]
            InstructionSet::Simd128 => best.as_wasm_simd128().map(Level::WasmSimd128),
            _ => {
                let _ = best;
                None
            }
        }
    }
}

impl fmt::Display for InstructionSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            InstructionSet::Scalar => "scalar",
            InstructionSet::Sse2 => "sse2",
            InstructionSet::Avx2 => "avx2",
            InstructionSet::Avx512 => "avx512",
            InstructionSet::Neon => "neon",
            InstructionSet::Simd128 => "simd128",
        })
    }
}

thread_local! {
    /// What [`on`] asks for on this thread.
    static HERE: Cell<Option<InstructionSet>> = const { Cell::new(None) };
}

/// The instruction set in use: what `RETROGRAD_SIMD` names, or else the best.
#[inline]
pub fn instruction_set() -> InstructionSet {
    HERE.get().unwrap_or_else(|| everywhere().0)
}

/// What threads use that are not told otherwise. Kept with its proof: to ask the processor anew takes some
/// thirty loads, which a layer of one sample would notice.
#[inline]
fn everywhere() -> (InstructionSet, Level) {
    static EVERYWHERE: OnceLock<(InstructionSet, Level)> = OnceLock::new();
    *EVERYWHERE.get_or_init(|| {
        let set = asked().ok().flatten().unwrap_or_else(best);
        (set, set.level().unwrap_or_else(Level::fallback))
    })
}

fn best() -> InstructionSet {
    let last = InstructionSet::available().next_back();
    last.unwrap_or(InstructionSet::Scalar)
}

/// What `RETROGRAD_SIMD` asks for: an error that names the possible ones where this machine has no such.
pub fn asked() -> Result<Option<InstructionSet>> {
    let Some(name) = std::env::var_os(VARIABLE).filter(|name| !name.is_empty()) else {
        return Ok(None);
    };
    let name = name.to_string_lossy();
    let found = InstructionSet::available().find(|set| set.to_string() == *name);
    found.map(Some).ok_or_else(|| {
        let names: Vec<String> = InstructionSet::available().map(|s| s.to_string()).collect();
        Error::invalid(
            VARIABLE,
            format!("{name:?}"),
            format!("one that this machine has: {}", names.join(", ")),
        )
    })
}

/// The instruction set in use, for [`dispatch!`](super::dispatch).
#[inline]
pub fn level() -> Level {
    match HERE.get() {
        Some(set) => set.level().unwrap_or_else(Level::fallback),
        None => everywhere().1,
    }
}

/// Computes something with an instruction set that this machine has, on this thread. Work that it spreads
/// over others takes theirs: run it with one thread.
pub fn on<R>(set: InstructionSet, work: impl FnOnce() -> R) -> R {
    /// Also where the work unwinds.
    struct Restore(Option<InstructionSet>);
    impl Drop for Restore {
        fn drop(&mut self) {
            HERE.set(self.0);
        }
    }
    let _restore = Restore(HERE.replace(Some(set)));
    work()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_instruction_set_is_in_use_while_it_is_asked_for() {
        let before = instruction_set();
        let sets: Vec<InstructionSet> = InstructionSet::available().collect();
        #[cfg(not(one_level))]
        assert_eq!(sets[0], InstructionSet::Scalar);
        for set in sets {
            on(set, || assert_eq!(instruction_set(), set));
            let unwound = std::panic::catch_unwind(|| on(set, || panic!("on purpose")));
            assert!(unwound.is_err());
            assert_eq!(instruction_set(), before);
        }
    }
}
