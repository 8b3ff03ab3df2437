//! Which checks reach which mutants, and how long each takes: measured once, kept in `reached.jsonl`.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use serde_json::Value;

use crate::build;
use crate::child::{self, End};
use crate::list::Made;

/// Seconds of the processor that a check may take where nothing is wrong; a longer one is left out.
const LONGEST: u64 = 120;

/// A part of `retrograd verify`, or a test.
#[derive(Clone, Debug)]
pub struct Check {
    pub name: String,
    pub program: PathBuf,
    pub args: Vec<String>,
    pub seconds: f64,
    pub sites: BTreeSet<u32>,
    /// Rows that this build cannot check.
    pub unchecked: usize,
    /// Whether it fails without a mutant, or takes too long.
    pub broken: bool,
}

/// The parts of `retrograd verify` that run on the CPU.
pub fn verify_parts(folder: &Path) -> Result<Vec<Check>, String> {
    let program = build::target(folder).join("release/retrograd");
    let listed = Command::new(&program).args(["verify", "--list"]).output();
    let listed = listed.map_err(|e| format!("{}: {e}", program.display()))?;
    let names = String::from_utf8_lossy(&listed.stdout).to_string();
    let parts: Vec<Check> = (names.lines())
        .filter(|name| !name.starts_with("device:"))
        .map(|name| {
            let args = ["verify", "--quiet", "--threads", "1", "--only", name];
            blank(name, &program, &args)
        })
        .collect();
    match parts.is_empty() {
        true => Err("`retrograd verify --list` names nothing".to_string()),
        false => Ok(parts),
    }
}

/// Every test of the library, those of its own and of its folder `tests`.
pub fn tests(folder: &Path) -> Result<Vec<Check>, String> {
    let mut all = Vec::new();
    for program in build::build_tests(folder)? {
        let listed = Command::new(&program)
            .args(["--list", "--format", "terse"])
            .output();
        let listed = listed.map_err(|e| format!("{}: {e}", program.display()))?;
        let stem = program
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .to_string();
        let stem = stem
            .rsplit_once('-')
            .map_or(stem.clone(), |(name, _)| name.to_string());
        for line in String::from_utf8_lossy(&listed.stdout).lines() {
            if let Some(name) = line.strip_suffix(": test") {
                let args = ["--exact", name, "--test-threads", "1"];
                all.push(blank(&format!("test {stem} {name}"), &program, &args));
            }
        }
    }
    Ok(all)
}

fn blank(name: &str, program: &Path, args: &[&str]) -> Check {
    Check {
        name: name.to_string(),
        program: program.to_path_buf(),
        args: args.iter().map(ToString::to_string).collect(),
        seconds: 0.0,
        sites: BTreeSet::new(),
        unchecked: 0,
        broken: false,
    }
}

/// Runs each once without a mutant and notes what it reaches; what `reached.jsonl` has is taken from there.
pub fn measured(folder: &Path, checks: Vec<Check>) -> Result<Vec<Check>, String> {
    let path = folder.join("reached.jsonl");
    let text = fs::read_to_string(&path).unwrap_or_default();
    let known: BTreeMap<String, Value> = (text.lines())
        .filter_map(|line| serde_json::from_str::<Value>(line).ok())
        .map(|v| (v["name"].as_str().unwrap_or_default().to_string(), v))
        .collect();
    let file = fs::OpenOptions::new().append(true).create(true).open(&path);
    let mut file = file.map_err(|e| format!("{}: {e}", path.display()))?;
    let mut found = Vec::new();
    for mut check in checks {
        match known.get(&check.name) {
            Some(value) => {
                check.seconds = value["seconds"].as_f64().unwrap_or(1.0);
                check.broken = value["broken"] == true;
                check.unchecked = value["unchecked"].as_u64().unwrap_or(0) as usize;
                let sites = value["sites"].as_array().into_iter().flatten();
                check.sites = sites.filter_map(|n| Some(n.as_u64()? as u32)).collect();
            }
            None => {
                measure(folder, &mut check);
                let line = serde_json::json!({
                    "name": check.name, "seconds": check.seconds, "broken": check.broken,
                    "unchecked": check.unchecked, "sites": check.sites,
                });
                writeln!(file, "{line}").map_err(|e| e.to_string())?;
                let note = if check.broken {
                    ", left out: it fails without a mutant"
                } else {
                    ""
                };
                println!(
                    "{}: {:.1} s, {} mutants within reach{note}",
                    check.name,
                    check.seconds,
                    check.sites.len()
                );
            }
        }
        if !check.broken {
            found.push(check);
        }
    }
    Ok(found)
}

fn measure(folder: &Path, check: &mut Check) {
    let trace = folder.join("trace.txt");
    let _ = fs::remove_file(&trace);
    let start = Instant::now();
    let trace_to = Some(trace.as_path());
    let said = child::run(
        &check.program,
        &check.args,
        folder,
        "traced",
        LONGEST,
        trace_to,
    );
    check.seconds = start.elapsed().as_secs_f64();
    check.unchecked = said.unchecked().unwrap_or(0);
    check.broken =
        said.end != End::Clean && !(said.end == End::Failed && said.unchecked().is_some());
    let text = fs::read_to_string(&trace).unwrap_or_default();
    check.sites = text.lines().filter_map(|l| l.parse().ok()).collect();
}

/// After a copy was made anew: the same places under their new numbers.
pub fn renumber(folder: &Path, old: &[Made], new: &[Made]) -> Result<(), String> {
    let path = folder.join("reached.jsonl");
    let Ok(text) = fs::read_to_string(&path) else {
        return Ok(());
    };
    let numbers: BTreeMap<&str, u32> = new.iter().map(|m| (m.key.as_str(), m.number)).collect();
    let to: BTreeMap<u64, u32> = (old.iter())
        .filter_map(|m| Some((u64::from(m.number), *numbers.get(m.key.as_str())?)))
        .collect();
    let mut lines = String::new();
    for line in text.lines() {
        let Ok(mut value) = serde_json::from_str::<Value>(line) else {
            continue;
        };
        let sites = value["sites"].as_array().into_iter().flatten();
        let sites: BTreeSet<u32> = sites
            .filter_map(|n| to.get(&n.as_u64()?).copied())
            .collect();
        value["sites"] = serde_json::json!(sites);
        lines += &format!("{value}\n");
    }
    fs::write(&path, lines).map_err(|e| format!("{}: {e}", path.display()))
}
