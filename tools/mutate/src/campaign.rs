//! Judging mutants: a process for each, stopped after a time, on the checks that reach the changed line.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

/// How a campaign goes.
pub struct Options {
    draw: Option<usize>,
    seed: u64,
    limit: Duration,
    tests: bool,
}

impl Options {
    pub fn read(words: &[String]) -> Result<Self, String> {
        let mut options = Options {
            draw: None,
            seed: 1,
            limit: Duration::from_secs(60),
            tests: false,
        };
        let mut words = words.iter();
        while let Some(word) = words.next() {
            if word == "--tests" {
                options.tests = true;
                continue;
            }
            let value = words.next().ok_or(format!("{word}: needs a number"))?;
            let number: u64 = value
                .parse()
                .map_err(|_| format!("{word}: got {value:?}, needs a number"))?;
            match word.as_str() {
                "--draw" => options.draw = Some(number as usize),
                "--seed" => options.seed = number,
                "--seconds" => options.limit = Duration::from_secs(number),
                _ => return Err(format!("{word}: not an option of run")),
            }
        }
        Ok(options)
    }
}

/// What became of a mutant.
const VERDICTS: [&str; 6] = ["verify", "tests", "panic", "hang", "unreached", "survived"];

fn target(folder: &Path) -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| folder.join("target"), PathBuf::from)
}

/// Runs the command of the copy: its exit code, or none where the time was up.
fn verify(
    folder: &Path,
    mutant: &str,
    parts: &[String],
    limit: Duration,
    reached: Option<&Path>,
) -> Option<i32> {
    let mut command = Command::new(target(folder).join("release/retrograd"));
    command.args(["--quiet", "verify"]);
    for part in parts {
        command.args(["--only", part]);
    }
    command.env("RETROGRAD_MUTANT", mutant);
    if let Some(path) = reached {
        command.env("RETROGRAD_REACHED", path);
    }
    within(command, limit)
}

fn within(mut command: Command, limit: Duration) -> Option<i32> {
    let child = command
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .stdin(Stdio::null())
        .spawn();
    let mut child = child.ok()?;
    let start = Instant::now();
    loop {
        if let Ok(Some(status)) = child.try_wait() {
            return Some(status.code().unwrap_or(101));
        }
        if start.elapsed() > limit {
            let _ = child.kill();
            let _ = child.wait();
            return None;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Which parts of the verification reach which mutants, and how long each part takes; kept in the folder.
fn reach(folder: &Path) -> Result<BTreeMap<String, (f64, BTreeSet<u32>)>, String> {
    let kept = folder.join("reached.json");
    if let Ok(text) = fs::read_to_string(&kept) {
        return serde_json::from_str(&text).map_err(|e| format!("{}: {e}", kept.display()));
    }
    let command = target(folder).join("release/retrograd");
    let listed = Command::new(&command).args(["verify", "--list"]).output();
    let listed = listed.map_err(|e| format!("{}: {e}", command.display()))?;
    let parts: Vec<String> = String::from_utf8_lossy(&listed.stdout)
        .lines()
        .map(String::from)
        .collect();
    if parts.is_empty() {
        return Err("`retrograd verify --list` names nothing".to_string());
    }
    let mut all = BTreeMap::new();
    for part in parts {
        let trace = folder.join("trace.txt");
        let _ = fs::remove_file(&trace);
        let start = Instant::now();
        let only = std::slice::from_ref(&part);
        let code = verify(folder, "none", only, Duration::from_secs(600), None);
        if code != Some(0) {
            println!("{part}: not clean without a mutant (exit {code:?}); left out");
            continue;
        }
        let seconds = start.elapsed().as_secs_f64();
        verify(
            folder,
            "traced",
            only,
            Duration::from_secs(600),
            Some(&trace),
        );
        let text = fs::read_to_string(&trace).unwrap_or_default();
        let numbers: BTreeSet<u32> = text.lines().filter_map(|l| l.parse().ok()).collect();
        println!(
            "{part}: {seconds:.1} s, {} mutants within reach",
            numbers.len()
        );
        all.insert(part, (seconds, numbers));
    }
    let text = serde_json::to_string(&all).map_err(|e| e.to_string())?;
    fs::write(&kept, text).map_err(|e| e.to_string())?;
    Ok(all)
}

/// Parts of the verification that a mutant is run against at most, the quickest first.
const PARTS: usize = 24;

fn judge(
    folder: &Path,
    number: u32,
    reached: &BTreeMap<String, (f64, BTreeSet<u32>)>,
    options: &Options,
) -> &'static str {
    let mut parts: Vec<(&String, f64)> = (reached.iter())
        .filter(|(_, (_, numbers))| numbers.contains(&number))
        .map(|(name, (seconds, _))| (name, *seconds))
        .collect();
    parts.sort_by(|a, b| a.1.total_cmp(&b.1));
    let mut slow = false;
    // A few at a time: most are caught by the first.
    for some in parts[..parts.len().min(PARTS)].chunks(4) {
        let names: Vec<String> = some.iter().map(|(name, _)| (*name).clone()).collect();
        let usual: f64 = some.iter().map(|(_, seconds)| seconds).sum();
        let limit = options.limit.max(Duration::from_secs_f64(5.0 * usual));
        match verify(folder, &number.to_string(), &names, limit, None) {
            Some(0) => {}
            Some(1) => return "verify",
            Some(_) => return "panic",
            None => slow = true,
        }
        if slow {
            return "hang";
        }
    }
    if options.tests {
        let mut command = Command::new("cargo");
        command.args(["test", "--release", "-q", "-p", "retrograd", "--lib"]);
        command
            .current_dir(folder)
            .env("RETROGRAD_MUTANT", number.to_string());
        match within(command, Duration::from_secs(900)) {
            Some(0) => {}
            Some(_) => return "tests",
            None => return "hang",
        }
    }
    if parts.is_empty() {
        "unreached"
    } else {
        "survived"
    }
}

/// Judges what has no verdict yet.
pub fn run(folder: &Path, options: &Options) -> Result<(), String> {
    let mutants = list(folder)?;
    let reached = reach(folder)?;
    let mut judged = verdicts(folder);
    let mut left: Vec<&Value> = (mutants.iter())
        .filter(|m| !judged.contains_key(&number_of(m)))
        .collect();
    if let Some(draw) = options.draw {
        // A linear congruential order: the same mutants for the same seed, whoever draws them.
        left.sort_by_key(|m| {
            (u64::from(number_of(m)) + options.seed).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 16
        });
        left.truncate(draw);
    }
    let path = folder.join("verdicts.txt");
    let file = fs::OpenOptions::new().append(true).create(true).open(&path);
    let mut file = file.map_err(|e| format!("{}: {e}", path.display()))?;
    let all = left.len();
    for (i, mutant) in left.iter().enumerate() {
        let number = number_of(mutant);
        let verdict = judge(folder, number, &reached, options);
        writeln!(file, "{number} {verdict}").map_err(|e| e.to_string())?;
        judged.insert(number, verdict.to_string());
        let text = |key: &str| mutant[key].to_string();
        println!(
            "{}/{all} {number} {verdict}: {}:{} {} {}",
            i + 1,
            mutant["file"].as_str().unwrap_or_default(),
            mutant["line"],
            mutant["kind"].as_str().unwrap_or_default(),
            text("was")
        );
    }
    print_table(folder)
}

fn list(folder: &Path) -> Result<Vec<Value>, String> {
    let path = folder.join("mutants.json");
    let text = fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))?;
    serde_json::from_str(&text).map_err(|e| format!("{}: {e}", path.display()))
}

fn number_of(mutant: &Value) -> u32 {
    mutant["number"].as_u64().unwrap_or(0) as u32
}

fn verdicts(folder: &Path) -> BTreeMap<u32, String> {
    let text = fs::read_to_string(folder.join("verdicts.txt")).unwrap_or_default();
    let pairs = text.lines().filter_map(|line| line.split_once(' '));
    pairs
        .filter_map(|(n, v)| Some((n.parse().ok()?, v.to_string())))
        .collect()
}

/// By file: made, judged, and what became of them.
pub fn print_table(folder: &Path) -> Result<(), String> {
    let mutants = list(folder)?;
    let judged = verdicts(folder);
    let mut by_file: BTreeMap<&str, [usize; 8]> = BTreeMap::new();
    let mut total = [0; 8];
    for mutant in &mutants {
        let row = by_file
            .entry(mutant["file"].as_str().unwrap_or_default())
            .or_default();
        let verdict = judged.get(&number_of(mutant));
        let column = verdict.and_then(|v| VERDICTS.iter().position(|w| w == v));
        for counts in [row, &mut total] {
            counts[0] += 1;
            counts[1] += usize::from(column.is_some());
            if let Some(column) = column {
                counts[2 + column] += 1;
            }
        }
    }
    println!("| file | made | judged | {} |", VERDICTS.join(" | "));
    println!("|---|{}", "---|".repeat(8));
    let line = |name: &str, row: &[usize; 8]| {
        let cells: Vec<String> = row.iter().map(usize::to_string).collect();
        println!("| {name} | {} |", cells.join(" | "));
    };
    for (file, row) in by_file.iter().filter(|(_, row)| row[1] > 0) {
        line(file, row);
    }
    line("all", &total);
    Ok(())
}
