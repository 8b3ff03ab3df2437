//! A process that judges one mutant, stopped after so many seconds of the processor.

use std::fs::{self, File};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// How it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Nothing was found.
    Clean,
    /// A check failed, or an error was reported.
    Failed,
    /// It panicked, ran out of memory or was killed by a signal.
    Panicked,
    /// Its time was up.
    Hung,
}

/// Memory that a mutant may ask for, in KiB: one that asks for terabytes ends as one that panics.
const MEMORY: &str = "12000000";

/// How a process ended, and the last line it wrote.
pub struct Said {
    pub end: End,
    pub last: String,
}

/// Runs a program with a mutant. Time is the processor's, so that a busy machine makes no mutant hang; one that
/// waits for ever is stopped after twenty times as long. `trace` is where the numbers of what is reached go.
pub fn run(
    program: &Path,
    args: &[String],
    folder: &Path,
    mutant: &str,
    seconds: u64,
    trace: Option<&Path>,
) -> Said {
    let said = folder.join("said.txt");
    let mut command = Command::new("bash");
    command
        .args(["-c", "ulimit -t $0 -v $1; shift; exec \"$@\""])
        .args([&seconds.to_string(), MEMORY])
        .arg(program)
        .args(args)
        .env("RETROGRAD_MUTANT", mutant)
        .env("CARGO_MANIFEST_DIR", folder.join("crates/retrograd"))
        .current_dir(folder.join("crates/retrograd"))
        .stderr(Stdio::null())
        .stdin(Stdio::null());
    if let Some(path) = trace {
        command.env("RETROGRAD_REACHED", path);
    }
    let child = File::create(&said).and_then(|file| command.stdout(file).spawn());
    let end = child.map_or(End::Panicked, |child| wait(child, seconds));
    let text = fs::read_to_string(&said).unwrap_or_default();
    let last = text.lines().last().unwrap_or_default().to_string();
    Said { end, last }
}

fn wait(mut child: Child, seconds: u64) -> End {
    let start = Instant::now();
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return end(status),
            Err(_) => return End::Panicked,
            Ok(None) => {}
        }
        if start.elapsed() > Duration::from_secs(20 * seconds) {
            let _ = child.kill();
            let _ = child.wait();
            return End::Hung;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn end(status: std::process::ExitStatus) -> End {
    use std::os::unix::process::ExitStatusExt as _;
    // SIGXCPU, and SIGKILL a second later.
    match (status.code(), status.signal()) {
        (Some(0), _) => End::Clean,
        (Some(101 | 134), _) => End::Panicked,
        (Some(137 | 152), _) | (None, Some(9 | 24)) => End::Hung,
        (Some(_), _) => End::Failed,
        (None, _) => End::Panicked,
    }
}

impl Said {
    /// What a table of `verify` could not check: a build for one instruction set has none to compare it with, and
    /// its exit code is 1 for that alone. None where something failed, or another line stands there.
    pub fn unchecked(&self) -> Option<usize> {
        let counts = self.last.split_once(" passed, ")?.1;
        let (failed, unchecked) = counts.split_once(" failed, ")?;
        // More may follow: `; 8 elements left out`.
        let unchecked = unchecked.split_once(" unchecked")?.0.parse().ok()?;
        (failed == "0").then_some(unchecked)
    }
}
