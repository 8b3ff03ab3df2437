//! The copy of the project with every mutant in it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use quote::quote;
use serde_json::Value;
use syn::visit_mut::VisitMut;

use crate::rewrite::{Mutant, Rewriter};
use crate::{build, list, reach};

/// What is rewritten, below the library's `src`: arithmetic and what decides over it. Not the words:
/// files' options, formats of others, pictures.
const PLACES: &[&str] = &[
    "layer",
    "loss.rs",
    "loss_image.rs",
    "optim",
    "parallel.rs",
    "parallel/parts.rs",
    "plan",
    "model.rs",
    "network/model.rs",
    "math.rs",
    "simd.rs",
    "linalg.rs",
    "scalar.rs",
    "layout.rs",
    "rng.rs",
    "group",
    "graph/ops",
    "graph/dag",
    "graph/batch.rs",
    "graph/network.rs",
    "graph/pattern.rs",
    "graph/sample.rs",
    "graph/sinkhorn.rs",
    "graph/structure.rs",
    "graph/thresholds.rs",
    "graph/transform.rs",
    "graph/task/graphs.rs",
    "graph/task/links.rs",
    "graph/task/mod.rs",
    "graph/task/nodes.rs",
    "logic/fast",
    "logic/batch.rs",
    "logic/evaluate.rs",
    "logic/gates.rs",
    "logic/grid.rs",
    "logic/hard/bits.rs",
    "logic/hard/program.rs",
    "logic/hard/rows.rs",
    "logic/hard/simplify.rs",
    "logic/model.rs",
    "logic/reference.rs",
    "logic/rounding.rs",
    "logic/training.rs",
    "logic/wiring.rs",
    "kan/frozen.rs",
    "kan/grid.rs",
    "kan/network.rs",
    "kan/prune.rs",
    "train/arriving.rs",
    "train/checkpoint.rs",
    "train/fit.rs",
    "train/fit",
    "train/folds.rs",
    "train/network.rs",
    "train/network",
    "train/session.rs",
    "train/shards.rs",
    "train/shards",
    "train/step.rs",
    "train/step",
    "data/array.rs",
    "data/csv/cells.rs",
    "data/csv/number.rs",
    "data/dataset.rs",
    "data/denoise.rs",
    "data/frc.rs",
    "data/idx.rs",
    "data/image/mod.rs",
    "data/metrics.rs",
    "data/mrc/mod.rs",
    "data/normalise.rs",
    "data/npy.rs",
    "data/patches",
    "data/prepare/arrays.rs",
    "data/prepare/columns.rs",
    "data/prepare/table.rs",
    "data/quality.rs",
    "data/split.rs",
    "data/tiles.rs",
    "denoise/data.rs",
    "denoise/infer.rs",
    "denoise/task.rs",
];
/// Files of those places that hold no arithmetic, or none that runs without a GPU or another program.
const LEFT: &[&str] = &[
    "spec.rs",
    "gpu.rs",
    "onnx.rs",
    "faults.rs",
    "memory.rs",
    "family.rs",
    "print.rs",
];
/// Never copied.
const IGNORED: &[&str] = &[".git", "target", "runs", "node_modules"];

/// Below the copy, the library's sources.
const INSIDE: &str = "crates/retrograd/src";

/// The project that this source lies in.
pub fn project() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// How many are put in, and which.
pub struct Drawn {
    pub count: usize,
    pub seed: u64,
}

/// The place of a mutant in the order of a seed: of its name, so that it stays where it is when others come and go.
fn place(key: &str, seed: u64) -> u64 {
    let start = 0xcbf2_9ce4_8422_2325 ^ seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let hash = |h: u64, b: u8| (h ^ u64::from(b)).wrapping_mul(0x100_0000_01b3);
    let hash = key.bytes().fold(start, hash);
    (hash ^ (hash >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9)
}

/// Copies, rewrites, and builds until what does not compile is left out.
pub fn make(folder: &Path, drawn: &Drawn) -> Result<(), String> {
    let skip = [folder.to_path_buf(), build::target(folder)];
    copy(&project(), folder, &skip).map_err(|e| format!("{}: {e}", folder.display()))?;
    let mut all = rewrite(folder, None)?;
    write_counts(folder, &all)?;
    all.sort_by_key(|m| place(&m.key(), drawn.seed));
    let kept = folder.join("refused.txt");
    let text = fs::read_to_string(&kept).unwrap_or_default();
    let mut refused: BTreeSet<String> = text.lines().map(String::from).collect();
    for round in 1..=20 {
        let wanted = all
            .iter()
            .map(Mutant::key)
            .filter(|key| !refused.contains(key));
        let made = rewrite(folder, Some(&wanted.take(drawn.count).collect()))?;
        println!(
            "round {round}: {} of {} mutants, {} that do not compile",
            made.len(),
            all.len(),
            refused.len()
        );
        let bad = offenders(folder, &made, round > 10)?;
        if bad.is_empty() {
            let old = list::made(folder).unwrap_or_default();
            write_list(folder, &made)?;
            reach::renumber(folder, &old, &list::made(folder)?)?;
            return build::build(folder);
        }
        refused.extend(bad);
        let lines: Vec<&str> = refused.iter().map(String::as_str).collect();
        fs::write(&kept, lines.join("\n")).map_err(|e| e.to_string())?;
    }
    Err("still errors after twenty rounds: see `cargo check` in the copy".to_string())
}

/// Writes what differs, so that cargo builds no more than that.
fn write(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    if fs::read(path).is_ok_and(|there| there == bytes) {
        return Ok(());
    }
    fs::write(path, bytes)
}

fn copy(from: &Path, to: &Path, skip: &[PathBuf]) -> std::io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let name = entry.file_name();
        let (path, target) = (entry.path(), to.join(&name));
        let same = |other: &PathBuf| {
            other.exists() && fs::canonicalize(other).ok() == fs::canonicalize(&path).ok()
        };
        if IGNORED.iter().any(|i| name == *i) || skip.iter().any(same) {
            continue;
        }
        if path.is_dir() {
            copy(&path, &target, skip)?;
        } else if path.is_file() && !is_rewritten(&target) {
            write(&target, &fs::read(&path)?)?;
        }
    }
    Ok(())
}

/// Whether [`rewrite`] will write that file.
fn is_rewritten(target: &Path) -> bool {
    let Some((_, within)) = target
        .to_str()
        .and_then(|t| t.split_once(&format!("{INSIDE}/")))
    else {
        return false;
    };
    let place = |place: &str| within == place || within.starts_with(&format!("{place}/"));
    within.ends_with(".rs")
        && (within == "lib.rs" || PLACES.iter().any(|p| place(p)))
        && is_source(target)
}

fn is_source(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let test = path.components().any(|c| c.as_os_str() == "tests");
    name.ends_with(".rs") && !name.starts_with("tests") && !test && !LEFT.contains(&&*name)
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
        let inside = path.strip_prefix(project()).unwrap_or(&path);
        if path.is_dir() || is_source(inside) {
            sources(&path, found)?;
        }
    }
    Ok(())
}

fn rewrite(folder: &Path, wanted: Option<&BTreeSet<String>>) -> Result<Vec<Mutant>, String> {
    let origin = project().join(INSIDE);
    let mut files = Vec::new();
    for place in PLACES {
        sources(&origin.join(place), &mut files)?;
    }
    let mut made = Vec::new();
    let mut next = 0;
    for path in files {
        let failed = |e: &dyn std::fmt::Display| format!("{}: {e}", path.display());
        let text = fs::read_to_string(&path).map_err(|e| failed(&e))?;
        let mut tree = syn::parse_file(&text).map_err(|e| failed(&e))?;
        let within = path.strip_prefix(&origin).map_err(|e| failed(&e))?;
        let mut rewriter = Rewriter::new(within.display().to_string(), next, wanted);
        rewriter.visit_file_mut(&mut tree);
        next = rewriter.next;
        made.append(&mut rewriter.made);
        // What is only counted is not written: cargo would build everything anew.
        let Some(_) = wanted else { continue };
        let target = folder.join(INSIDE).join(within);
        write(&target, quote!(#tree).to_string().as_bytes()).map_err(|e| failed(&e))?;
    }
    if wanted.is_none() {
        return Ok(made);
    }
    let root = folder.join(INSIDE).join("lib.rs");
    let text = fs::read_to_string(origin.join("lib.rs")).map_err(|e| e.to_string())?;
    let allowed = "#![allow(warnings, arithmetic_overflow, unconditional_panic)]";
    let text = text.replace("#![deny(missing_docs)]", allowed);
    let text = text + "\n#[doc(hidden)]\npub mod mutant;\n";
    write(&root, text.as_bytes()).map_err(|e| e.to_string())?;
    let choice = include_str!("choice.rs.txt").replace("COUNT", &(next + 1).to_string());
    write(&folder.join(INSIDE).join("mutant.rs"), choice.as_bytes()).map_err(|e| e.to_string())?;
    Ok(made)
}

/// The keys of the mutants that the compiler's errors point at: those within the place of an error, or the last
/// one before it; `whole` takes all of the function, where single ones did not help. Files are written on one
/// line, so that a place is a range of bytes.
fn offenders(folder: &Path, made: &[Mutant], whole: bool) -> Result<BTreeSet<String>, String> {
    let output = build::cargo(folder, "check")
        .args(["-p", "retrograd", "--lib", "--message-format=json"])
        .output()
        .map_err(|e| format!("cargo check: {e}"))?;
    let mut bad = BTreeSet::new();
    let mut errors = Vec::new();
    for line in String::from_utf8_lossy(&output.stdout).lines() {
        let Ok(message) = serde_json::from_str::<Value>(line) else {
            continue;
        };
        let message = &message["message"];
        if message["level"] != "error" {
            continue;
        }
        let mut numbers = Vec::new();
        let spans = message["spans"].as_array().into_iter().flatten();
        for span in spans.filter(|s| s["is_primary"] == true) {
            let path = folder.join(span["file_name"].as_str().unwrap_or_default());
            let text = fs::read_to_string(&path).unwrap_or_default();
            let byte = |end: &str| span[end].as_u64().unwrap_or(0) as usize;
            numbers.extend(numbers_at(&text, byte("byte_start"), byte("byte_end")));
        }
        if numbers.is_empty() {
            errors.push(
                message["rendered"]
                    .to_string()
                    .chars()
                    .take(600)
                    .collect::<String>(),
            );
        }
        for number in numbers {
            let own = &made[number as usize];
            let near = made.iter().filter(|m| {
                m.number == number || (whole && m.file == own.file && m.function == own.function)
            });
            bad.extend(near.map(Mutant::key));
        }
    }
    if bad.is_empty() && !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr).to_string();
        return Err(format!(
            "errors that point at no mutant: {errors:#?}\n{said}"
        ));
    }
    Ok(bad)
}

/// The numbers of the mutants within a range of bytes, or of the nearest: an operand stands before its number,
/// what is done with it after.
fn numbers_at(text: &str, start: usize, end: usize) -> Vec<u32> {
    const CALL: &str = "crate :: mutant :: ";
    let number = |at: usize| -> Option<u32> {
        let digits = text[at + CALL.len()..].split_once('(')?.1.trim_start();
        let digits: String = digits.chars().take_while(char::is_ascii_digit).collect();
        digits.parse().ok()
    };
    let part = |range: std::ops::Range<usize>| text.get(range).unwrap_or_default();
    let within: Vec<u32> = (part(start..end).match_indices(CALL))
        .filter_map(|(at, _)| number(start + at))
        .collect();
    if (1..8).contains(&within.len()) {
        return within;
    }
    let before = part(0..start).rfind(CALL).map(|at| (start - at, at));
    let after = part(end..text.len()).find(CALL).map(|at| (at, end + at));
    let nearest = before.into_iter().chain(after).min();
    nearest.and_then(|(_, at)| number(at)).into_iter().collect()
}

/// How many changes each file has, drawn or not.
fn write_counts(folder: &Path, all: &[Mutant]) -> Result<(), String> {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for mutant in all {
        *counts.entry(&mutant.file).or_default() += 1;
    }
    let text = serde_json::to_string(&counts).map_err(|e| e.to_string())?;
    fs::write(folder.join("counts.json"), text).map_err(|e| e.to_string())
}

fn write_list(folder: &Path, made: &[Mutant]) -> Result<(), String> {
    let list: Vec<Value> = (made.iter())
        .map(|m| {
            serde_json::json!({
                "number": m.number, "file": m.file, "function": m.function, "line": m.line, "kind": m.kind,
                "was": m.was, "becomes": m.becomes, "key": m.key(),
            })
        })
        .collect();
    let text = serde_json::to_string(&list).map_err(|e| e.to_string())?;
    fs::write(folder.join("mutants.json"), text).map_err(|e| e.to_string())
}

/// Runs a command that must succeed.
pub fn succeed(mut command: Command) -> Result<(), String> {
    let status = command.status().map_err(|e| format!("{command:?}: {e}"))?;
    match status.success() {
        true => Ok(()),
        false => Err(format!("{command:?}: {status}")),
    }
}
