//! Judging mutants: a process for each, stopped after a time, on the checks that reach the changed line.

use std::fs;
use std::io::Write as _;
use std::path::Path;

use crate::child::{self, End};
use crate::list::{self, Made};
use crate::reach::{self, Check};
use crate::table;

/// How a campaign goes.
#[derive(Default)]
pub struct Options {
    file: Option<String>,
    deep: bool,
    tests: bool,
    again: bool,
    one: Option<u32>,
    allow: usize,
}

impl Options {
    pub fn read(words: &[String]) -> Result<Self, String> {
        let mut options = Options::default();
        let mut words = words.iter();
        while let Some(word) = words.next() {
            match word.as_str() {
                "--tests" => options.tests = true,
                "--deep" => options.deep = true,
                "--again" => options.again = true,
                "--one" | "--file" | "--allow" => {
                    let value = words.next().ok_or(format!("{word}: needs a value"))?;
                    let number = || {
                        let number = value.parse::<u64>();
                        number.map_err(|_| format!("{word}: got {value:?}, needs a number"))
                    };
                    match word.as_str() {
                        "--one" => options.one = Some(number()? as u32),
                        "--allow" => options.allow = number()? as usize,
                        _ => options.file = Some(value.clone()),
                    }
                }
                _ => return Err(format!("{word}: not an option of run")),
            }
        }
        Ok(options)
    }
}

/// Seconds, measured without a mutant, of the parts of `verify` that a mutant meets: of more parts that reach it
/// those that reach the fewest others.
const BUDGET: f64 = 150.0;
/// Seconds of parts that run in one process.
const TOGETHER: f64 = 1.5;

/// The checks that reach a mutant and fit into the budget, the quickest first.
fn chosen(checks: &[Check], number: u32, budget: f64) -> Vec<&Check> {
    let mut reaching: Vec<&Check> = checks
        .iter()
        .filter(|c| c.sites.contains(&number))
        .collect();
    reaching.sort_by_key(|c| c.sites.len());
    let mut left = budget;
    reaching.retain(|c| {
        left -= c.seconds;
        left >= -c.seconds
    });
    reaching.sort_by(|a, b| a.seconds.total_cmp(&b.seconds));
    reaching
}

/// Several checks of one program as one call.
fn call(checks: &[&Check]) -> Vec<String> {
    let mut args = checks[0].args.clone();
    for check in &checks[1..] {
        match check.name.starts_with("test ") {
            true => args.insert(1, check.args[1].clone()),
            false => args.extend(["--only".to_string(), check.name.clone()]),
        }
    }
    args
}

/// The first check that does not stay clean, and how it ended.
fn first_failure(
    folder: &Path,
    number: u32,
    checks: &[&Check],
    more: &[&str],
) -> Option<(End, String)> {
    let mut rest = checks;
    while !rest.is_empty() {
        let (mut count, mut seconds) = (1, rest[0].seconds);
        while count < rest.len()
            && seconds + rest[count].seconds < TOGETHER
            && rest[count].program == rest[0].program
        {
            seconds += rest[count].seconds;
            count += 1;
        }
        let mut args = call(&rest[..count]);
        args.extend(more.iter().map(ToString::to_string));
        let patience = if more.is_empty() { 5.0 } else { 60.0 };
        let limit = 10 + (patience * seconds) as u64;
        let program = &rest[0].program;
        let said = child::run(program, &args, folder, &number.to_string(), limit, None);
        let unchecked: usize = rest[..count].iter().map(|c| c.unchecked).sum();
        // Other sizes leave other rows unchecked.
        let same = |now: usize| now == unchecked || !more.is_empty();
        let as_ever = said.end == End::Failed && said.unchecked().is_some_and(same);
        let end = if as_ever { End::Clean } else { said.end };
        if end != End::Clean {
            let names: Vec<&str> = rest[..count].iter().map(|c| c.name.as_str()).collect();
            return Some((end, names.join(", ")));
        }
        rest = &rest[count..];
    }
    None
}

fn judge(
    folder: &Path,
    number: u32,
    parts: &[Check],
    tests: &[Check],
    options: &Options,
) -> (&'static str, String) {
    let plain = chosen(parts, number, BUDGET);
    let said = |end: End, failed: &'static str| match end {
        End::Panicked => "panic",
        End::Hung => "hang",
        _ => failed,
    };
    if let Some((end, by)) = first_failure(folder, number, &plain, &[]) {
        return (said(end, "verify"), by);
    }
    if options.deep {
        let sizes: Vec<&Check> = plain
            .iter()
            .copied()
            .filter(|c| c.name.starts_with("sizes: "))
            .collect();
        if let Some((end, by)) = first_failure(folder, number, &sizes, &["--deep"]) {
            return (said(end, "deep"), by);
        }
    }
    let reaching = chosen(tests, number, BUDGET);
    if let Some((end, by)) = first_failure(folder, number, &reaching, &[]) {
        // A test that panics is a test that fails.
        let verdict = if end == End::Hung { "hang" } else { "tests" };
        return (verdict, by);
    }
    match plain.is_empty() && reaching.is_empty() {
        true => ("unreached", String::new()),
        false => (
            "survived",
            format!("{} parts, {} tests", plain.len(), reaching.len()),
        ),
    }
}

/// Judges what has no verdict yet. False where more survived that are not listed than are allowed.
pub fn run(folder: &Path, options: &Options) -> Result<bool, String> {
    let mut mutants = list::made(folder)?;
    let equivalent = list::equivalent()?;
    let parts = reach::measured(folder, reach::verify_parts(folder)?)?;
    let tests = match options.tests {
        true => reach::measured(folder, reach::tests(folder)?)?,
        false => Vec::new(),
    };
    mutants.retain(|m| {
        options
            .file
            .as_ref()
            .is_none_or(|f| m.file.starts_with(f.as_str()))
    });
    mutants.retain(|m| options.one.is_none_or(|n| m.number == n));
    let judged = list::verdicts(folder);
    let open = |m: &&Made| match judged.get(&m.key).map(|(verdict, _)| verdict.as_str()) {
        None => true,
        Some("survived" | "unreached") => options.again && !equivalent.contains_key(&m.key),
        Some(_) => options.one.is_some(),
    };
    let left: Vec<&Made> = mutants.iter().filter(open).collect();
    let path = folder.join("verdicts.txt");
    let file = fs::OpenOptions::new().append(true).create(true).open(&path);
    let mut file = file.map_err(|e| format!("{}: {e}", path.display()))?;
    for (i, mutant) in left.iter().enumerate() {
        let (verdict, by) = judge(folder, mutant.number, &parts, &tests, options);
        writeln!(file, "{verdict}\t{by}\t{}", mutant.key).map_err(|e| e.to_string())?;
        println!(
            "{}/{} {verdict} ({by}): line {}, {}",
            i + 1,
            left.len(),
            mutant.line,
            mutant.key
        );
    }
    Ok(table::print_of(folder, &mutants)? <= options.allow)
}
