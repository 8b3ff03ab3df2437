//! Mutants that no check can catch, or that none catches yet, each with its reason.

use serde::Deserialize;

use super::make::Mutant;
use crate::{Error, Result};

/// Why a mutant is no fault that a check could see.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Class {
    /// It computes the same.
    Equivalent,
    /// It doesn't show on software Vulkan: a barrier among invocations that run together, an access
    /// beyond a buffer that is checked there.
    NotObservable,
    /// It is a fault that no check catches yet, or nobody has shown that it is none. It counts as survived.
    Open,
}

/// Some mutants of a file with one reason.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Listed {
    /// The file's path below `src`.
    pub file: String,
    /// Of which sort they are.
    pub class: Class,
    /// Why, for a person to check.
    pub reason: String,
    /// Lines as they are and as they become, without the spaces around them.
    pub changes: Vec<[String; 2]>,
}

impl Listed {
    /// Whether a mutant is one of them.
    pub fn has(&self, mutant: &Mutant) -> bool {
        self.file == mutant.file
            && (self.changes.iter())
                .any(|[was, becomes]| *was == mutant.was && *becomes == mutant.becomes)
    }
}

#[derive(Deserialize)]
struct File {
    #[serde(default)]
    listed: Vec<Listed>,
}

/// All that are listed, in `gpu/mutants/listed.toml`.
pub fn listed() -> Result<Vec<Listed>> {
    let file: File = toml::from_str(include_str!("listed.toml"))
        .map_err(|e| Error::invalid("gpu/mutants/listed.toml", e, "lists of mutants"))?;
    Ok(file.listed)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A mutant that is not made any more is not listed any more.
    #[test]
    fn what_is_listed_is_made_and_has_a_reason() {
        let all = super::super::all().unwrap();
        for listed in listed().unwrap() {
            assert!(listed.reason.len() > 20, "{listed:?}");
            for [was, becomes] in &listed.changes {
                let made =
                    |m: &&Mutant| m.file == listed.file && m.was == *was && m.becomes == *becomes;
                assert!(
                    all.iter().any(|m| made(&m)),
                    "{}: {was} -> {becomes}",
                    listed.file
                );
            }
        }
    }
}
