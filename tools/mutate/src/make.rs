//! The copy of the project with every mutant in it.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use quote::quote;
use syn::visit_mut::VisitMut;

use crate::rewrite::{Mutant, Rewriter};

/// What is rewritten, below the library's `src`: arithmetic and what decides over it. Not the words:
/// files' options, formats of others, pictures.
const PLACES: &[&str] = &[
    "layer",
    "loss.rs",
    "loss_image.rs",
    "optim",
    "parallel.rs",
    "graph/ops",
    "graph/dag",
    "graph/pattern.rs",
    "graph/sample.rs",
    "logic/fast",
    "logic/gates.rs",
    "logic/reference.rs",
    "logic/hard/bits.rs",
    "logic/hard/simplify.rs",
    "train/step.rs",
    "data/metrics.rs",
    "data/split.rs",
    "data/dataset.rs",
    "data/normalise.rs",
    "math.rs",
    "plan",
];
/// Files of those places that hold no arithmetic, or none that runs without a GPU or another program.
const LEFT: &[&str] = &[
    "spec.rs",
    "gpu.rs",
    "onnx.rs",
    "faults.rs",
    "memory.rs",
    "family.rs",
    "frozen.rs",
];
/// Never copied.
const IGNORED: &[&str] = &[".git", "target", "runs", "node_modules"];

/// The project that this source lies in.
pub fn project() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

const CHOICE: &str = r##"//! Which mutant runs: the one whose number is in `RETROGRAD_MUTANT`.
use std::io::Write as _;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
const UNSET: u32 = u32::MAX;
const NONE: u32 = u32::MAX - 1;
const TRACED: u32 = u32::MAX - 2;
static CHOSEN: AtomicU32 = AtomicU32::new(UNSET);
static REACHED: [AtomicBool; COUNT] = [const { AtomicBool::new(false) }; COUNT];
/// Whether the mutant of that number runs.
#[inline(always)]
pub fn at(number: u32) -> bool {
    let chosen = CHOSEN.load(Relaxed);
    if chosen >= TRACED {
        return rare(number, chosen);
    }
    chosen == number
}
#[cold]
fn rare(number: u32, chosen: u32) -> bool {
    match chosen {
        NONE => false,
        TRACED => {
            if !REACHED[number as usize].swap(true, Relaxed)
                && let Ok(path) = std::env::var("RETROGRAD_REACHED")
                && let Ok(mut file) = std::fs::OpenOptions::new().append(true).create(true).open(path)
            {
                let _ = file.write_all(format!("{number}\n").as_bytes());
            }
            false
        }
        _ => {
            let chosen = match std::env::var("RETROGRAD_MUTANT") {
                Ok(text) if text == "traced" => TRACED,
                Ok(text) => text.parse().unwrap_or(NONE),
                Err(_) => NONE,
            };
            CHOSEN.store(chosen, Relaxed);
            at(number)
        }
    }
}
"##;

/// Copies, rewrites, and builds until what does not compile is left out.
pub fn make(folder: &Path) -> Result<(), String> {
    copy(&project(), folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    let mut refused = BTreeSet::new();
    for round in 1..=12 {
        let made = rewrite(folder, &refused)?;
        println!(
            "round {round}: {} mutants, {} that do not compile",
            made.len(),
            refused.len()
        );
        let bad = offenders(folder)?;
        if bad.is_empty() {
            write_list(folder, &made)?;
            return build(folder);
        }
        refused.extend(bad);
    }
    Err("still errors after twelve rounds: see `cargo check` in the copy".to_string())
}

fn copy(from: &Path, to: &Path) -> std::io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let name = entry.file_name();
        if IGNORED.iter().any(|i| name == *i) {
            continue;
        }
        let (path, target) = (entry.path(), to.join(&name));
        if entry.file_type()?.is_dir() {
            copy(&path, &target)?;
        } else if path.is_file() && !target.exists() {
            fs::copy(&path, &target)?;
        }
    }
    Ok(())
}

fn sources(at: &Path, found: &mut Vec<PathBuf>) -> Result<(), String> {
    if at.is_file() {
        found.push(at.to_path_buf());
        return Ok(());
    }
    let entries = fs::read_dir(at).map_err(|e| format!("{}: {e}", at.display()))?;
    let mut paths: Vec<PathBuf> = entries.flatten().map(|e| e.path()).collect();
    paths.sort();
    for path in paths {
        let name = path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        let wanted = name.ends_with(".rs") && !LEFT.contains(&name.as_str());
        if wanted || (path.is_dir() && name != "tests") {
            sources(&path, found)?;
        }
    }
    Ok(())
}

fn rewrite(folder: &Path, refused: &BTreeSet<u32>) -> Result<Vec<Mutant>, String> {
    let inside = "crates/retrograd/src";
    let origin = project().join(inside);
    let mut files = Vec::new();
    for place in PLACES {
        sources(&origin.join(place), &mut files)?;
    }
    let mut made = Vec::new();
    let mut next = 0;
    for path in files {
        let text = fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))?;
        let mut tree = syn::parse_file(&text).map_err(|e| format!("{}: {e}", path.display()))?;
        let within = path.strip_prefix(&origin).map_err(|e| e.to_string())?;
        let mut rewriter = Rewriter::new(within.display().to_string(), next, refused);
        rewriter.visit_file_mut(&mut tree);
        next = rewriter.next;
        made.append(&mut rewriter.made);
        let target = folder.join(inside).join(within);
        fs::write(&target, quote!(#tree).to_string())
            .map_err(|e| format!("{}: {e}", target.display()))?;
    }
    let root = folder.join(inside).join("lib.rs");
    let text = fs::read_to_string(origin.join("lib.rs")).map_err(|e| e.to_string())?;
    let text = text.replace("#![deny(missing_docs)]", "#![allow(warnings)]");
    fs::write(root, text + "\n#[doc(hidden)]\npub mod mutant;\n").map_err(|e| e.to_string())?;
    let choice = CHOICE.replace("COUNT", &(next + 1).to_string());
    fs::write(folder.join(inside).join("mutant.rs"), choice).map_err(|e| e.to_string())?;
    Ok(made)
}

/// The mutants that the compiler's errors point at: those within the place of an error, or the last one
/// before it. Files are written on one line, so that a place is a range of bytes.
fn offenders(folder: &Path) -> Result<BTreeSet<u32>, String> {
    let output = Command::new("cargo")
        .args([
            "check",
            "--release",
            "-p",
            "retrograd",
            "--lib",
            "--message-format=json",
        ])
        .current_dir(folder)
        .output()
        .map_err(|e| format!("cargo check: {e}"))?;
    let mut bad = BTreeSet::new();
    let mut errors = Vec::new();
    for line in String::from_utf8_lossy(&output.stdout).lines() {
        let Ok(message) = serde_json::from_str::<serde_json::Value>(line) else {
            continue;
        };
        let message = &message["message"];
        if message["level"] != "error" {
            continue;
        }
        errors.push(message["message"].as_str().unwrap_or_default().to_string());
        for span in message["spans"].as_array().into_iter().flatten() {
            let path = folder.join(span["file_name"].as_str().unwrap_or_default());
            let Ok(text) = fs::read_to_string(&path) else {
                continue;
            };
            let byte = |end: &str| span[end].as_u64().unwrap_or(0) as usize;
            bad.extend(numbers_at(&text, byte("byte_start"), byte("byte_end")));
        }
    }
    if bad.is_empty() && !output.status.success() {
        return Err(format!("errors that point at no mutant: {errors:#?}"));
    }
    Ok(bad)
}

/// The numbers of the mutants within a range of bytes, or of the last before it.
fn numbers_at(text: &str, start: usize, end: usize) -> Vec<u32> {
    const CALL: &str = "crate :: mutant :: at (";
    let number = |at: usize| -> Option<u32> {
        let digits = text[at + CALL.len()..].trim_start();
        let digits: String = digits.chars().take_while(char::is_ascii_digit).collect();
        digits.parse().ok()
    };
    let within: Vec<u32> = (text.get(start..end).unwrap_or_default().match_indices(CALL))
        .filter_map(|(at, _)| number(start + at))
        .collect();
    if !within.is_empty() && within.len() < 40 {
        return within;
    }
    let before = text.get(..start).unwrap_or_default().rfind(CALL);
    before.and_then(number).into_iter().collect()
}

fn write_list(folder: &Path, made: &[Mutant]) -> Result<(), String> {
    let list: Vec<serde_json::Value> = (made.iter())
        .map(|m| {
            serde_json::json!({
                "number": m.number, "file": m.file, "line": m.line, "kind": m.kind, "was": m.was,
            })
        })
        .collect();
    let text = serde_json::to_string(&list).map_err(|e| e.to_string())?;
    fs::write(folder.join("mutants.json"), text).map_err(|e| e.to_string())
}

fn build(folder: &Path) -> Result<(), String> {
    let status = Command::new("cargo")
        .args(["build", "--release", "-p", "retrograd-cli"])
        .current_dir(folder)
        .status()
        .map_err(|e| format!("cargo build: {e}"))?;
    match status.success() {
        true => Ok(()),
        false => Err("the copy does not build".to_string()),
    }
}
