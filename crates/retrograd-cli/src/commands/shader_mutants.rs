//! `retrograd verify --device gpu --shader-mutants`: every mutant of every kernel through the checks that
//! reach it, in a process that is started anew where a mutant never ends.

use std::collections::{BTreeMap, HashMap};
use std::fs::OpenOptions;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use retrograd::gpu::mutants::{
    Class, Judge, Judged, Listed, Mutant, Reach, all, cpu_seconds, drawn, listed,
};
use serde::{Deserialize, Serialize};

use crate::exit::{Outcome, Result};

/// What is judged.
#[derive(Debug, clap::Args)]
pub struct ShaderArgs {
    /// Judges mutants of the GPU's kernels, made by machine, and prints a table by file.
    #[arg(long, conflicts_with_all = ["against", "mutants", "only", "deep", "list"])]
    shader_mutants: bool,
    /// Keeps what was judged, so that a campaign can be continued; survivors are judged again, by the checks
    /// that they haven't passed.
    #[arg(long, value_name = "FILE", requires = "shader_mutants")]
    state: Option<PathBuf>,
    /// Draws so many mutants at random. Those that are listed with a reason are counted, not judged.
    #[arg(long, value_name = "N", requires = "shader_mutants")]
    draw: Option<usize>,
    /// Judges the mutants of the files whose path has this in it.
    #[arg(long, value_name = "PATH", requires = "shader_mutants")]
    file: Option<String>,
    /// Judges by the models and by what they don't reach, without their sizes: a first pass. Survivors are judged by
    /// sizes when the campaign is continued without it.
    #[arg(long, requires = "shader_mutants")]
    without_sizes: bool,
    /// Begins no other check of a mutant after so many seconds of a CPU: it counts as a survivor until the campaign is
    /// continued with more.
    #[arg(long, value_name = "SECONDS", requires = "shader_mutants", default_value_t = f64::INFINITY)]
    budget: f64,
    /// Answers the process that judges mutants.
    #[arg(long, hide = true)]
    shader_judge: bool,
    /// Where that keeps what the reference says.
    #[arg(long, hide = true, value_name = "FOLDER", requires = "shader_judge")]
    expected: Option<PathBuf>,
}

impl ShaderArgs {
    /// Whether anything of it was asked for.
    pub fn wanted(&self) -> bool {
        self.shader_mutants || self.shader_judge
    }
}

/// A line to the judge.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Ask {
    /// All names of checks.
    Checks,
    /// What a check reaches.
    Reach(String),
    /// What all reach, as it is known.
    Known(BTreeMap<String, Reach>),
    /// A mutant by its key; the checks to begin with, those that it has passed, and seconds.
    Judge(String, [Vec<String>; 2], Option<f64>),
}

/// A line of the judge's.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Answer {
    Doing(String),
    Checks(Vec<String>),
    Reach(Reach),
    Known,
    Judged(Judged),
    Failed(String),
}

/// A line of the state file.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Kept {
    Reach(String, Reach),
    Judged(String, Verdict),
}

/// What became of a mutant, also where it stopped its judge.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Verdict {
    Judged(Judged),
    /// It didn't end.
    Endless,
    /// It ended its process.
    Crashed,
}

pub fn run(args: &ShaderArgs, seed: u64) -> Result {
    if args.shader_judge {
        return answer(args.expected.clone());
    }
    let mut mutants = all()?;
    if let Some(part) = &args.file {
        mutants.retain(|m| m.file.contains(&part[..]));
        if mutants.is_empty() {
            anyhow::bail!("--file: got {part:?}, needs a part of the path of a WGSL file");
        }
    }
    let lists = listed()?;
    if let Some(count) = args.draw {
        mutants = drawn(mutants, count, seed);
    }
    // One that is listed runs through all of its checks, for what is known: most of the time of a draw.
    let is_known = |m: &Mutant| args.draw.is_some() && lists.iter().any(|l| l.has(m));
    let mut state = State::read(args.state.as_deref())?;
    let mut campaign = Campaign::new(args.state.as_deref())?;
    campaign.learn(&mut state, |name| {
        !(args.without_sizes && name.contains("sizes: "))
    })?;
    let mut left: Vec<(&Mutant, String)> = (mutants.iter())
        .filter(|m| !is_known(m))
        .map(|m| (m, m.key()))
        .filter(|(_, key)| !state.is_settled(key))
        .collect();
    // Survivors come last: a campaign that is continued goes on where it was.
    left.sort_by_key(|(_, key)| state.verdicts.contains_key(key));
    let mut catchers = Catchers::of(&mutants, &state);
    for (i, (mutant, key)) in left.iter().enumerate() {
        let words = [catchers.first(mutant), state.passed(key)];
        // JSON has no number for a time without end.
        let budget = Some(args.budget).filter(|seconds| seconds.is_finite());
        let verdict = campaign.judge(key, (words, budget), &state.reach)?;
        catchers.learn(mutant, &verdict);
        if matches!(verdict, Verdict::Judged(Judged::Survived { .. })) {
            let is_listed = lists.iter().any(|l| l.has(mutant));
            let word = if is_listed { "listed" } else { "SURVIVED" };
            println!(
                "{}/{} {word}: {}:{} {}\n    {}\n    {}",
                i + 1,
                left.len(),
                mutant.file,
                mutant.line,
                mutant.kind,
                mutant.was,
                mutant.becomes
            );
        }
        state.keep_verdict(key, verdict)?;
    }
    let table = Table::of(&mutants, &state, &lists, args.draw.is_some());
    print!("{table}");
    Ok(match table.is_clean() {
        true => Outcome::Done,
        false => Outcome::CheckFailed,
    })
}

/// What is known, and the file that keeps it.
#[derive(Default)]
struct State {
    reach: BTreeMap<String, Reach>,
    verdicts: HashMap<String, Verdict>,
    path: Option<PathBuf>,
}

impl State {
    fn read(path: Option<&Path>) -> Result<Self> {
        let mut state = State {
            path: path.map(Path::to_path_buf),
            ..State::default()
        };
        let Some(text) = path.and_then(|p| std::fs::read_to_string(p).ok()) else {
            return Ok(state);
        };
        for line in text.lines() {
            // The last line of a process that was ended may be half a line.
            match serde_json::from_str(line) {
                Ok(Kept::Reach(name, reach)) => drop(state.reach.insert(name, reach)),
                Ok(Kept::Judged(key, verdict)) => drop(state.verdicts.insert(key, verdict)),
                Err(_) => {}
            }
        }
        Ok(state)
    }

    fn keep(&self, line: &Kept) -> Result<()> {
        let Some(path) = &self.path else {
            return Ok(());
        };
        let file = OpenOptions::new().append(true).create(true).open(path);
        let mut file = file.with_context(|| format!("{} can't be written", path.display()))?;
        writeln!(file, "{}", serde_json::to_string(line)?)?;
        Ok(())
    }

    fn keep_verdict(&mut self, key: &str, verdict: Verdict) -> Result<()> {
        self.keep(&Kept::Judged(key.into(), verdict.clone()))?;
        self.verdicts.insert(key.into(), verdict);
        Ok(())
    }

    /// The checks that a mutant has survived.
    fn passed(&self, key: &str) -> Vec<String> {
        match self.verdicts.get(key) {
            Some(Verdict::Judged(Judged::Survived { passed, .. })) => passed.clone(),
            _ => Vec::new(),
        }
    }

    /// Whether there is a verdict that better checks could not change.
    fn is_settled(&self, key: &str) -> bool {
        let verdict = self.verdicts.get(key);
        verdict.is_some_and(|v| !matches!(v, Verdict::Judged(Judged::Survived { .. })))
    }
}

/// The checks that caught mutants of a function, the last one first: they are likely to catch others of it.
#[derive(Default)]
struct Catchers(HashMap<(&'static str, String), Vec<String>>);

impl Catchers {
    /// As many are tried first.
    const MOST: usize = 6;

    fn of(mutants: &[Mutant], state: &State) -> Self {
        let mut catchers = Catchers::default();
        for mutant in mutants {
            if let Some(verdict) = state.verdicts.get(&mutant.key()) {
                catchers.learn(mutant, verdict);
            }
        }
        catchers
    }

    fn learn(&mut self, mutant: &Mutant, verdict: &Verdict) {
        if let Verdict::Judged(Judged::Caught { by }) = verdict {
            let all = self.0.entry((mutant.file, mutant.function.clone()));
            let all = all.or_default();
            all.retain(|name| name != by);
            all.insert(0, by.clone());
            all.truncate(Self::MOST);
        }
    }

    fn first(&self, mutant: &Mutant) -> Vec<String> {
        let all = self.0.get(&(mutant.file, mutant.function.clone()));
        all.cloned().unwrap_or_default()
    }
}

/// CPU seconds of a judge's process that a check on the device may take, and how many times its usual
/// time. A mutant whose loop never ends takes them all.
const PATIENCE: f64 = 8.0;
const TIMES: f64 = 30.0;
/// CPU seconds of anything else: the reference of a large model.
const REFERENCE: f64 = 900.0;

/// A judge's process, and what it is asked.
struct Campaign {
    judge: Option<Process>,
    known: bool,
    /// What the reference says, in files beside the state's.
    expected: Option<PathBuf>,
}

struct Process {
    child: Child,
    stdin: ChildStdin,
    answers: Receiver<Answer>,
}

impl Process {
    fn start(expected: Option<&Path>) -> Result<Self> {
        let program = std::env::current_exe()?;
        let mut command = Command::new(program);
        command.args(["--quiet", "verify", "--device", "gpu", "--shader-judge"]);
        if let Some(folder) = expected {
            command.arg("--expected").arg(folder);
        }
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()?;
        let (Some(stdin), Some(stdout)) = (child.stdin.take(), child.stdout.take()) else {
            anyhow::bail!("a judge without pipes");
        };
        let (send, answers) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(stdout)
                .lines()
                .map_while(std::io::Result::ok)
            {
                let Ok(answer) = serde_json::from_str(&line) else {
                    continue;
                };
                if send.send(answer).is_err() {
                    break;
                }
            }
        });
        Ok(Process {
            child,
            stdin,
            answers,
        })
    }

    fn stop(mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Campaign {
    fn new(state: Option<&Path>) -> Result<Self> {
        let expected = state.map(|state| state.with_extension("expected"));
        if let Some(folder) = &expected {
            std::fs::create_dir_all(folder)
                .with_context(|| format!("{} can't be made", folder.display()))?;
        }
        Ok(Campaign {
            judge: None,
            known: false,
            expected,
        })
    }

    /// Asks and waits for the answer.
    fn ask(&mut self, ask: &Ask, reach: &BTreeMap<String, Reach>) -> Result<Asked> {
        let process = match self.judge.take() {
            Some(process) => process,
            None => {
                self.known = false;
                Process::start(self.expected.as_deref())?
            }
        };
        let mut process = process;
        if writeln!(process.stdin, "{}", serde_json::to_string(ask)?).is_err() {
            process.stop();
            return Ok(Asked::Crashed);
        }
        let mut since = Clock::of(&process.child);
        let mut limit = REFERENCE;
        loop {
            match process.answers.recv_timeout(Duration::from_millis(200)) {
                Ok(Answer::Doing(what)) => {
                    since = Clock::of(&process.child);
                    limit = limit_of(&what, reach);
                }
                Ok(answer) => {
                    self.judge = Some(process);
                    return Ok(Asked::Answer(answer));
                }
                Err(RecvTimeoutError::Timeout) if since.elapsed(&process.child) > limit => {
                    process.stop();
                    return Ok(Asked::Endless);
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => {
                    process.stop();
                    return Ok(Asked::Crashed);
                }
            }
        }
    }

    /// What checks reach, where it isn't known, of those that are wanted.
    fn learn(&mut self, state: &mut State, is_wanted: impl Fn(&str) -> bool) -> Result<()> {
        let none = BTreeMap::new();
        let names = match self.ask(&Ask::Checks, &none)? {
            Asked::Answer(Answer::Checks(names)) => names,
            other => anyhow::bail!("the judge could not start: {}", other.words()),
        };
        state
            .reach
            .retain(|name, _| names.contains(name) && is_wanted(name));
        for name in names.into_iter().filter(|name| is_wanted(name)) {
            if state.reach.contains_key(&name) {
                continue;
            }
            match self.ask(&Ask::Reach(name.clone()), &none)? {
                Asked::Answer(Answer::Reach(reach)) => {
                    state.keep(&Kept::Reach(name.clone(), reach.clone()))?;
                    state.reach.insert(name, reach);
                }
                other => anyhow::bail!("{name}: {}", other.words()),
            }
        }
        Ok(())
    }

    fn judge(
        &mut self,
        key: &str,
        (words, budget): ([Vec<String>; 2], Option<f64>),
        reach: &BTreeMap<String, Reach>,
    ) -> Result<Verdict> {
        if self.judge.is_none() || !self.known {
            match self.ask(&Ask::Known(reach.clone()), reach)? {
                Asked::Answer(Answer::Known) => self.known = true,
                other => anyhow::bail!("the judge could not start: {}", other.words()),
            }
        }
        match self.ask(&Ask::Judge(key.into(), words, budget), reach)? {
            Asked::Answer(Answer::Judged(judged)) => Ok(Verdict::Judged(judged)),
            Asked::Endless => Ok(Verdict::Endless),
            Asked::Crashed => Ok(Verdict::Crashed),
            other => anyhow::bail!("{key}: {}", other.words()),
        }
    }
}

impl Drop for Campaign {
    fn drop(&mut self) {
        if let Some(process) = self.judge.take() {
            process.stop();
        }
    }
}

/// What came of a question.
enum Asked {
    Answer(Answer),
    Endless,
    Crashed,
}

impl Asked {
    fn words(self) -> String {
        match self {
            Asked::Answer(Answer::Failed(why)) => why,
            Asked::Answer(_) => "an answer to another question".into(),
            Asked::Endless => "it took too long".into(),
            Asked::Crashed => "its process ended".into(),
        }
    }
}

/// What a step of a check may take: only kernels can be endless.
fn limit_of(what: &str, reach: &BTreeMap<String, Reach>) -> f64 {
    let on_device = what.ends_with("f32 kernels") || what.contains(" steps of ");
    if !on_device {
        return REFERENCE;
    }
    let longest = || reach.values().map(|r| r.seconds).max_by(f64::total_cmp);
    let name = what.rsplit_once(": ").map_or(what, |(name, _)| name);
    let usual = reach.get(name).map(|r| r.seconds).or_else(longest);
    let usual = usual.unwrap_or(0.0);
    PATIENCE + TIMES * usual
}

/// The CPU time of a process, which other programs don't make longer; where it isn't known, the time.
struct Clock {
    start: Instant,
    cpu: Option<f64>,
}

impl Clock {
    fn of(child: &Child) -> Self {
        Clock {
            start: Instant::now(),
            cpu: cpu_seconds(child.id()),
        }
    }

    fn elapsed(&self, child: &Child) -> f64 {
        match (self.cpu, cpu_seconds(child.id())) {
            (Some(before), Some(now)) => now - before,
            _ => self.start.elapsed().as_secs_f64(),
        }
    }
}

/// The judge's process: answers line by line until its input ends.
fn answer(expected: Option<PathBuf>) -> Result {
    let progress = Arc::new(|what: &str| say(&Answer::Doing(what.into())));
    let judge = match Judge::new(progress, expected) {
        Ok(judge) => judge,
        Err(error) => {
            say(&Answer::Failed(error.to_string()));
            return Ok(Outcome::CheckFailed);
        }
    };
    let mutants: HashMap<String, Mutant> = all()?.into_iter().map(|m| (m.key(), m)).collect();
    let mut known = BTreeMap::new();
    for line in std::io::stdin().lock().lines() {
        let answer = match serde_json::from_str(&line?)? {
            Ask::Checks => Answer::Checks(judge.checks().map(String::from).collect()),
            Ask::Reach(name) => match judge.reach(&name) {
                Ok(reach) => Answer::Reach(reach),
                Err(error) => Answer::Failed(error.to_string()),
            },
            Ask::Known(reach) => {
                known = reach;
                Answer::Known
            }
            Ask::Judge(key, [first, passed], seconds) => {
                let seconds = seconds.unwrap_or(f64::INFINITY);
                let judge = |m| judge.judge(m, &known, [&first, &passed], seconds);
                match mutants.get(&key).map(judge) {
                    Some(Ok(judged)) => Answer::Judged(judged),
                    Some(Err(error)) => Answer::Failed(error.to_string()),
                    None => Answer::Failed(format!("{key} is no mutant of these kernels")),
                }
            }
        };
        say(&answer);
    }
    Ok(Outcome::Done)
}

fn say(answer: &Answer) {
    let mut out = std::io::stdout().lock();
    if let Ok(text) = serde_json::to_string(answer) {
        let _ = writeln!(out, "{text}");
        let _ = out.flush();
    }
}

/// Counts by file.
struct Table {
    rows: BTreeMap<&'static str, [usize; COLUMNS.len()]>,
    /// Listed, and caught all the same.
    wrong: Vec<String>,
    /// Survivors that are listed as open.
    open: usize,
}

const COLUMNS: [&str; 7] = [
    "made",
    "rejected by naga",
    "caught",
    "equivalent",
    "not observable",
    "survived",
    "not judged",
];
const MADE: usize = 0;
const REJECTED: usize = 1;
const CAUGHT: usize = 2;
const EQUIVALENT: usize = 3;
const NOT_OBSERVABLE: usize = 4;
const SURVIVED: usize = 5;
const NOT_JUDGED: usize = 6;

impl Table {
    /// Of a draw those that are listed are what the list says.
    fn of(mutants: &[Mutant], state: &State, lists: &[Listed], is_draw: bool) -> Self {
        let mut table = Table {
            rows: BTreeMap::new(),
            wrong: Vec::new(),
            open: 0,
        };
        for mutant in mutants {
            let list = lists.iter().find(|l| l.has(mutant));
            let class = list.map(|list| list.class);
            let column = match (state.verdicts.get(&mutant.key()), list) {
                (None, Some(_)) if is_draw && class == Some(Class::Equivalent) => EQUIVALENT,
                (None, Some(_)) if is_draw && class == Some(Class::NotObservable) => NOT_OBSERVABLE,
                (None, Some(_)) if is_draw => {
                    table.open += 1;
                    SURVIVED
                }
                (None, _) => NOT_JUDGED,
                (Some(Verdict::Judged(Judged::Rejected)), _) => REJECTED,
                (Some(Verdict::Judged(Judged::Survived { .. })), Some(list)) => match list.class {
                    Class::Equivalent => EQUIVALENT,
                    Class::NotObservable => NOT_OBSERVABLE,
                    Class::Open => {
                        table.open += 1;
                        SURVIVED
                    }
                },
                (Some(Verdict::Judged(Judged::Survived { .. })), None) => SURVIVED,
                (Some(_), Some(_)) => {
                    let words = format!("{}: {}", mutant.file, mutant.becomes);
                    table.wrong.push(words);
                    CAUGHT
                }
                (Some(_), None) => CAUGHT,
            };
            let row = table.rows.entry(mutant.file).or_default();
            row[MADE] += 1;
            row[column] += 1;
        }
        table
    }

    fn total(&self) -> [usize; COLUMNS.len()] {
        let mut total = [0; COLUMNS.len()];
        for row in self.rows.values() {
            total.iter_mut().zip(row).for_each(|(t, n)| *t += n);
        }
        total
    }

    /// Nothing survived, and no more than one in twenty doesn't show on this adapter.
    fn is_clean(&self) -> bool {
        let total = self.total();
        let accepted = total[MADE] - total[REJECTED] - total[NOT_JUDGED];
        total[SURVIVED] == 0 && total[NOT_JUDGED] == 0 && 20 * total[NOT_OBSERVABLE] <= accepted
    }
}

impl std::fmt::Display for Table {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(f, "| file | {} |", COLUMNS.join(" | "))?;
        writeln!(f, "|---|{}", "--:|".repeat(COLUMNS.len()))?;
        let total = self.total();
        let rows = self.rows.iter().map(|(file, row)| (*file, row));
        for (file, row) in rows.chain([("all", &total)]) {
            let cells: Vec<String> = row.iter().map(usize::to_string).collect();
            writeln!(f, "| {file} | {} |", cells.join(" | "))?;
        }
        let rest = total[CAUGHT] + total[SURVIVED];
        let share = 100.0 * total[CAUGHT] as f64 / rest.max(1) as f64;
        writeln!(
            f,
            "{} of {rest} mutants caught ({share:.1} %)",
            total[CAUGHT]
        )?;
        if self.open > 0 {
            writeln!(f, "{} of those that survived are listed as open", self.open)?;
        }
        for wrong in &self.wrong {
            writeln!(f, "listed, and caught all the same: {wrong}")?;
        }
        Ok(())
    }
}
