//! Every file of the fuzzer's corpus at its reader: what was once found stays mended.

#[path = "../../../fuzz/src/experiments.rs"]
mod experiments;
#[path = "../../../fuzz/src/targets.rs"]
mod targets;

use std::collections::BTreeSet;
use std::panic::catch_unwind;
use std::path::{Path, PathBuf};

use retrograd::rng::{Key, Stream};

fn fuzz() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz")
}

fn names(folder: &Path) -> BTreeSet<String> {
    let entries = std::fs::read_dir(folder).expect("a folder");
    let names = entries.map(|e| e.expect("an entry").path());
    names
        .map(|path| path.file_stem().expect("a name").to_string_lossy().into())
        .collect()
}

#[test]
fn every_target_has_a_corpus_and_a_dictionary_and_nothing_else_has() {
    let targets: BTreeSet<String> = targets::TARGETS.iter().map(|t| t.0.to_string()).collect();
    assert_eq!(names(&fuzz().join("corpus")), targets);
    let mut with_words = names(&fuzz().join("dictionaries"));
    // Its bytes are choices, not words.
    with_words.insert("training".into());
    assert_eq!(with_words, targets);
}

#[test]
fn every_file_of_the_corpus_is_an_error_or_a_value() {
    for (name, target) in targets::TARGETS {
        let mut files = 0;
        for entry in std::fs::read_dir(fuzz().join("corpus").join(name)).expect("a corpus") {
            let path = entry.expect("an entry").path();
            let bytes = std::fs::read(&path).expect("a small file");
            let outcome = catch_unwind(|| target(&bytes));
            assert!(outcome.is_ok(), "{}", path.display());
            files += 1;
        }
        assert!(files > 0, "{name}: nothing in its corpus");
    }
}

/// The words of a target's dictionary.
fn words(name: &str) -> Vec<Vec<u8>> {
    let path = fuzz().join("dictionaries").join(format!("{name}.dict"));
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let unquoted = text
        .lines()
        .filter_map(|l| l.strip_prefix('"')?.strip_suffix('"'));
    let word = |text: &str| {
        let mut bytes = Vec::new();
        let mut rest = text;
        while let Some(c) = rest.chars().next() {
            match rest.strip_prefix("\\x") {
                Some(hex) => {
                    bytes.push(u8::from_str_radix(&hex[..2], 16).expect("two digits"));
                    rest = &hex[2..];
                }
                None => {
                    bytes.push(c as u8);
                    rest = &rest[1..];
                }
            }
        }
        bytes
    };
    unquoted.map(word).collect()
}

/// A few changes at random: bytes, cuts, copies of a part, and words of the format.
fn changed(bytes: &[u8], other: &[u8], words: &[Vec<u8>], stream: &mut Stream) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    for _ in 0..1 + stream.below(4) {
        let at = stream.below(bytes.len() + 1);
        let rest = bytes.len() - at;
        match stream.below(7) {
            0 if rest > 0 => bytes[at] = stream.u32() as u8,
            1 if rest > 0 => bytes[at] ^= 1 << stream.below(8),
            2 if rest > 0 => bytes[at] = [0, 1, 127, 128, 255, b'9', b'-'][stream.below(7)],
            3 => drop(bytes.drain(at..at + stream.below(rest + 1).min(16))),
            4 if !words.is_empty() => {
                let word = &words[stream.below(words.len())];
                let over = stream.below(2) * word.len().min(rest);
                drop(bytes.splice(at..at + over, word.iter().copied()));
            }
            5 => {
                let from = stream.below(other.len() + 1);
                let part = &other[from..(from + stream.below(64)).min(other.len())];
                drop(bytes.splice(at..at, part.iter().copied()));
            }
            _ => bytes.truncate(at.max(1)),
        }
    }
    bytes
}

/// The fuzzer's little sister: no coverage guides it, and it is always there. RETROGRAD_MUTATIONS says
/// how many changed files each target sees.
#[test]
fn changed_files_of_the_corpus_are_errors_or_values() {
    let count = std::env::var("RETROGRAD_MUTATIONS").ok();
    let count: u64 = count.map_or(200, |n| n.parse().expect("a number"));
    let only = std::env::var("RETROGRAD_TARGET").ok();
    let chosen = |name: &str| only.as_ref().is_none_or(|only| only == name);
    for (name, target) in targets::TARGETS.iter().filter(|(name, _)| chosen(name)) {
        let words = words(name);
        let mut files: Vec<PathBuf> = std::fs::read_dir(fuzz().join("corpus").join(name))
            .expect("a corpus")
            .map(|e| e.expect("an entry").path())
            .collect();
        files.sort();
        let files: Vec<Vec<u8>> = files
            .iter()
            .map(|path| std::fs::read(path).expect("a small file"))
            .collect();
        // Whole experiments take milliseconds, not microseconds.
        let count = if *name == "training" {
            count / 5
        } else {
            count
        };
        for n in 0..count {
            let mut stream = Key::new(n).purpose(name).stream();
            let [a, b] = [0, 1].map(|_| &files[stream.below(files.len())]);
            let bytes = changed(a, b, &words, &mut stream);
            if catch_unwind(|| target(&bytes)).is_err() {
                let kept = std::env::temp_dir().join(format!("found-{name}-{n}"));
                std::fs::write(&kept, &bytes).expect("a small file");
                panic!("{name}, changed file {n}: kept as {}", kept.display());
            }
        }
    }
}
