//! Runs that are killed, stopped or run out of disk: nothing is lost, and a resumed run has the
//! bits of an uninterrupted one.
#![cfg(unix)]

mod common;

use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use common::{experiment, listing, parts, retrograd, run, state};

/// How often a run is killed.
fn kills() -> usize {
    if std::env::var_os("RETROGRAD_FULL").is_some() {
        12
    } else {
        3
    }
}

/// 1000 steps for every kill, with a checkpoint every 25: long enough to be hit in the middle.
fn long() -> String {
    format!("epochs = {}\n{LONG}", 100 * kills())
}

const LONG: &str = "optimizer = { kind = \"adam\", lr = 0.003 }\n\
     schedule = { kind = \"cosine\" }\ncheckpoint_every = 25\n";

fn step(run: &Path) -> u64 {
    let progress: serde_json::Value =
        serde_json::from_str(&state(run).metadata["progress"]).unwrap();
    progress["step"].as_u64().unwrap()
}

fn start(folder: &Path, args: &[&str]) -> Child {
    retrograd(folder)
        .args(args)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

/// Waits until the run has done steps, and then for a time that nobody chose.
fn wait_for_steps(run: &Path, child: &mut Child, after: u64) {
    let deadline = Instant::now() + Duration::from_secs(60);
    let checkpoint = run.join("checkpoint.safetensors");
    while !checkpoint.exists() || step(run) <= after {
        assert!(Instant::now() < deadline, "no step in a minute");
        assert!(child.try_wait().unwrap().is_none(), "it ended by itself");
        std::thread::sleep(Duration::from_millis(2));
    }
    let clock = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap();
    std::thread::sleep(Duration::from_micros(
        u64::from(clock.subsec_nanos()) % 50_000,
    ));
}

fn uninterrupted(folder: &Path) -> std::path::PathBuf {
    let whole = folder.join("whole");
    let (code, _, stderr) = run(folder, &["train", "test.toml", "--out", "whole"]);
    assert_eq!(code, 0, "{stderr}");
    whole
}

#[test]
fn killed_at_random_steps_and_resumed_a_run_has_the_bits_of_an_uninterrupted_one() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    experiment(folder, &long());
    let whole = uninterrupted(folder);
    let part = folder.join("part");
    let mut args = vec!["train", "test.toml", "--out", "part"];
    let mut reached = 0;
    for _ in 0..kills() {
        let mut child = start(folder, &args);
        wait_for_steps(&part, &mut child, reached);
        child.kill().unwrap();
        assert_eq!(child.wait().unwrap().signal(), Some(9), "it was killed");
        reached = step(&part);
        assert!(
            reached > 0 && reached < 1000 * kills() as u64,
            "killed after step {reached}"
        );
        println!("killed after the checkpoint of step {reached}");
        args = vec!["train", "--resume", "part"];
    }
    let (code, _, stderr) = run(folder, &args);
    assert_eq!(code, 0, "{stderr}");
    assert!(stderr.contains("going on after step"), "{stderr}");
    assert_eq!(state(&part), state(&whole));
    let model = |run: &Path| std::fs::read(run.join("model.safetensors")).unwrap();
    assert_eq!(model(&part), model(&whole));
    let unfinished = listing(&part)
        .into_iter()
        .filter(|(path, _)| path.to_string_lossy().contains(".writing-"))
        .count();
    assert_eq!(unfinished, 0, "what the killed runs were writing is gone");
}

#[test]
fn ctrl_c_saves_says_how_to_resume_and_exits_with_130() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    // No checkpoints but the first: what is there afterwards was saved by the signal. Ten times as
    // long as the others: on a busy machine the signal takes its time to be sent.
    let epochs = 1000 * kills();
    let rest = LONG.replace("checkpoint_every = 25", "");
    experiment(folder, &format!("epochs = {epochs}\n{rest}"));
    let whole = uninterrupted(folder);
    let part = folder.join("part");
    let mut child = retrograd(folder)
        .args(["train", "test.toml", "--out", "part"])
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let metrics = part.join("metrics.csv");
    let deadline = Instant::now() + Duration::from_secs(60);
    while !metrics.exists() {
        assert!(Instant::now() < deadline, "no epoch in a minute");
        assert!(child.try_wait().unwrap().is_none(), "it ended by itself");
        std::thread::sleep(Duration::from_millis(1));
    }
    let interrupt = std::process::Command::new("kill")
        .args(["-INT", &child.id().to_string()])
        .status()
        .unwrap();
    assert!(interrupt.success());
    let (code, _, stderr) = parts(child.wait_with_output().unwrap());
    assert_eq!(code, 130, "{stderr}");
    assert!(stderr.contains("retrograd train --resume part"), "{stderr}");
    let stopped = step(&part);
    assert!(
        stopped > 0 && stopped < 10 * epochs as u64,
        "stopped after step {stopped}"
    );
    let (code, _, stderr) = run(folder, &["train", "--resume", "part"]);
    assert_eq!(code, 0, "{stderr}");
    assert_eq!(state(&part), state(&whole));
}

/// Runs under a limit on the size of files, which a write meets as it meets a full disk.
fn with_small_files(folder: &Path, args: &str) -> (i32, String, String) {
    // 8 blocks of 512 bytes (of 1024 in some shells): less than the 17 kB of a checkpoint.
    let script = format!(
        "ulimit -f 8; exec '{}' {args}",
        env!("CARGO_BIN_EXE_retrograd")
    );
    let mut command = std::process::Command::new("sh");
    command.args(["-c", &script]).current_dir(folder);
    parts(command.output().unwrap())
}

/// Wide enough for files above the limit.
fn wide(folder: &Path) {
    let path = experiment(
        folder,
        "epochs = 2\noptimizer = { kind = \"adam\", lr = 0.003 }\n",
    );
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, text.replace("out = 16", "out = 500")).unwrap();
}

#[test]
fn a_full_disk_at_the_start_is_an_error_before_training() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    wide(folder);
    let (code, _, stderr) = with_small_files(folder, "train test.toml --out part");
    assert_eq!(code, 2, "{stderr}");
    assert!(
        stderr.contains("model.safetensors: cannot write"),
        "{stderr}"
    );
    assert!(!folder.join("part").exists(), "nothing half begun is left");
    // With room again the same command works.
    let (code, _, stderr) = run(folder, &["train", "test.toml", "--out", "part"]);
    assert_eq!(code, 0, "{stderr}");
}

#[test]
fn a_disk_that_fills_up_keeps_the_last_checkpoint_and_the_run_goes_on_from_it() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    wide(folder);
    let (code, _, stderr) = run(folder, &["train", "test.toml", "--out", "part"]);
    assert_eq!(code, 0, "{stderr}");
    let part = folder.join("part");
    let kept = [
        "checkpoint.safetensors",
        "model.safetensors",
        "summary.json",
    ];
    let content = || kept.map(|name| std::fs::read(part.join(name)).unwrap());
    let before = content();
    let (code, _, stderr) = with_small_files(folder, "train --resume part --epochs 4");
    assert_eq!(code, 2, "{stderr}");
    assert!(stderr.contains("safetensors: cannot write"), "{stderr}");
    assert!(content() == before, "what was there is whole");
    let (code, _, stderr) = run(folder, &["train", "--resume", "part", "--epochs", "4"]);
    assert_eq!(code, 0, "{stderr}");
    let (code, _, stderr) = run(
        folder,
        &["train", "test.toml", "--out", "whole", "--epochs", "4"],
    );
    assert_eq!(code, 0, "{stderr}");
    assert_eq!(state(&part), state(&folder.join("whole")));
}

#[test]
fn a_read_only_folder_is_an_error_that_names_it() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    experiment(
        folder,
        "epochs = 2\noptimizer = { kind = \"adam\", lr = 0.003 }\n",
    );
    let locked = folder.join("locked");
    std::fs::create_dir(&locked).unwrap();
    std::fs::set_permissions(&locked, std::fs::Permissions::from_mode(0o555)).unwrap();
    // The superuser may write everywhere but in the kernel's own folders.
    let superuser = std::fs::write(locked.join("probe"), "").is_ok();
    let out = if superuser {
        Path::new("/proc/self/run").to_path_buf()
    } else {
        locked.join("run")
    };
    let out = out.to_str().unwrap();
    let (code, _, stderr) = run(folder, &["train", "test.toml", "--out", out]);
    assert_eq!(code, 2, "{stderr}");
    assert!(
        stderr.contains(out) && stderr.contains("cannot create"),
        "{stderr}"
    );
}
