//! A process that judges one mutant, stopped after so many seconds of the processor.

use std::path::Path;
use std::process::{Command, Stdio};
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

/// Runs a program with a mutant. Time is the processor's, so that a busy machine makes no mutant hang; one that
/// waits for ever is stopped after twenty times as long. `trace` is where the numbers of what is reached go.
pub fn run(
    program: &Path,
    args: &[String],
    folder: &Path,
    mutant: &str,
    seconds: u64,
    trace: Option<&Path>,
) -> End {
    let mut command = Command::new("bash");
    command
        .args([
            "-c",
            "ulimit -t $0 -v $1; shift; exec \"$@\"",
            &seconds.to_string(),
            MEMORY,
        ])
        .arg(program)
        .args(args)
        .env("RETROGRAD_MUTANT", mutant)
        .env("CARGO_MANIFEST_DIR", folder.join("crates/retrograd"))
        .current_dir(folder.join("crates/retrograd"))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .stdin(Stdio::null());
    if let Some(path) = trace {
        command.env("RETROGRAD_REACHED", path);
    }
    let Ok(mut child) = command.spawn() else {
        return End::Panicked;
    };
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
