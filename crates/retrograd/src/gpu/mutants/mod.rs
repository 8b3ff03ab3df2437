//! Mutants of kernels, made by machine: every single change of a WGSL file that naga still accepts must
//! be caught by the checks of `retrograd verify --device gpu`.
//!
//! [`all`] makes them. A [`Judge`] runs one through the checks that reach its kernel: only the pipelines
//! that it changes are compiled anew, and what the f64 reference says of a model is computed once. A
//! mutant may never end, so a judge runs in a process of its own (`retrograd verify --device gpu
//! --shader-mutants` starts it, and another one after a mutant that had to be stopped).

mod accepted;
mod judge;
mod listed;
mod make;
pub(super) mod tokens;

pub(crate) use accepted::layout;
#[cfg(test)]
pub(super) use accepted::parses;
pub use judge::{Judge, Judged, Reach, cpu_seconds};
pub use listed::{Class, Listed, listed};
pub use make::Mutant;

use super::kernels;
use crate::Result;
use crate::rng::Key;

/// Every mutant of every file, in the order of the files.
pub fn all() -> Result<Vec<Mutant>> {
    let mut all = make::of_file(None)?;
    for kernel in kernels::all() {
        all.extend(make::of_file(Some(kernel))?);
    }
    Ok(all)
}

/// So many of some mutants, drawn at random; the same ones for the same seed. Each has a place of its own in
/// the order, so a file that is added or changed leaves the draw among the others as it is.
pub fn drawn(mutants: Vec<Mutant>, count: usize, seed: u64) -> Vec<Mutant> {
    let key = Key::new(seed);
    let mut ordered: Vec<(u64, Mutant)> = (mutants.into_iter())
        .map(|mutant| (key.purpose(&mutant.key()).stream().u64(), mutant))
        .collect();
    ordered.sort_by_key(|(place, _)| *place);
    ordered.truncate(count);
    ordered.into_iter().map(|(_, mutant)| mutant).collect()
}

impl Mutant {
    /// Its name: the same as long as its file and what all files share stay as they are.
    pub fn key(&self) -> String {
        let file = kernels::all().into_iter().find(|k| k.name == self.file);
        let text = file.map_or(kernels::COMMON.to_string(), |k| k.text(false));
        // Fowler, Noll and Vo's hash.
        let hash = text.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        let (start, end) = (self.range.start, self.range.end);
        format!("{}:{start}-{end}:{}:{hash:016x}", self.file, self.to)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::Path;

    use super::*;

    fn files(folder: &Path, found: &mut BTreeSet<String>) {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                files(&path, found);
            } else if path.extension().is_some_and(|e| e == "wgsl") {
                let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
                let path = path.strip_prefix(root).unwrap().to_str().unwrap();
                found.insert(path.replace('\\', "/"));
            }
        }
    }

    #[test]
    fn every_file_has_mutants_of_which_naga_accepts_most() {
        let all = all().unwrap();
        assert!(all.len() >= 2000, "{}", all.len());
        let mut wanted = BTreeSet::new();
        files(
            &Path::new(env!("CARGO_MANIFEST_DIR")).join("src"),
            &mut wanted,
        );
        let made: BTreeSet<String> = all.iter().map(|m| m.file.to_string()).collect();
        assert_eq!(made, wanted);
        let kinds: BTreeSet<&str> = all.iter().map(|m| m.kind).collect();
        let named = [
            "barrier", "constant", "edge", "f16", "index", "operands", "operator", "store",
        ];
        assert_eq!(kinds.into_iter().collect::<Vec<_>>(), named);
        let sample = drawn(all, 300, 1);
        let accepted = sample.iter().filter(|m| m.accepted(false).is_ok()).count();
        assert!(accepted > 200, "{accepted} of 300");
    }

    /// Each mutant is one change, within its own file.
    #[test]
    fn a_mutant_changes_one_place() {
        for mutant in drawn(all().unwrap(), 200, 2) {
            let file = kernels::all().into_iter().find(|k| k.name == mutant.file);
            let text = file.map_or(kernels::COMMON, |k| k.source());
            let changed = mutant.applied(text);
            assert_ne!(changed, text, "{mutant:?}");
            assert!(changed.starts_with(&text[..mutant.range.start]));
            assert!(changed.ends_with(&text[mutant.range.end..]));
        }
    }

    #[test]
    fn a_draw_stays_when_files_are_added() {
        let all = all().unwrap();
        let fewer: Vec<Mutant> = (all.iter().filter(|m| !m.file.contains("kan")))
            .cloned()
            .collect();
        let of_all = drawn(all, 400, 3);
        let same = (of_all.iter()).filter(|m| !m.file.contains("kan"));
        let drawn: Vec<Mutant> = drawn(fewer, 400, 3);
        assert!(
            same.eq(drawn
                .iter()
                .take(of_all.iter().filter(|m| !m.file.contains("kan")).count()))
        );
        assert_ne!(drawn[0], super::drawn(super::all().unwrap(), 1, 4)[0]);
    }

    #[test]
    fn keys_are_unique() {
        let all = all().unwrap();
        let keys: BTreeSet<String> = all.iter().map(Mutant::key).collect();
        assert_eq!(keys.len(), all.len());
    }
}
