//! A first SIGINT or SIGTERM ends every long part within a second, with what is on the disk whole.
#![cfg(unix)]

mod common;

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use common::{listing, parts, retrograd, run, state};

/// Starts the command and waits until a line on stderr has such a word; at once without one.
fn start(
    folder: &Path,
    args: &[&str],
    word: &str,
) -> (Child, BufReader<std::process::ChildStderr>) {
    let mut child = retrograd(folder)
        .args(args)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stderr = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    while !word.is_empty() && !line.contains(word) {
        line.clear();
        assert_ne!(
            stderr.read_line(&mut line).unwrap(),
            0,
            "it ended: {args:?}"
        );
    }
    (child, stderr)
}

/// A second of an idle core: longer where cores are slow or shared. It is measured by 50 million products, each of
/// which waits for the one before; they keep an idle core busy for some 100 ms.
fn a_second() -> Duration {
    let start = Instant::now();
    let mut product = 1_u64;
    for i in 0..50_000_000_u64 {
        product = std::hint::black_box(product.wrapping_mul(i | 1));
    }
    std::hint::black_box(product);
    let slower = start.elapsed().as_secs_f64() / 0.1;
    Duration::from_secs_f64(slower.max(1.0))
}

/// Sends a signal after a while; what was said afterwards. It must end within a second.
fn stops(folder: &Path, args: &[&str], word: &str, signal: &str) -> String {
    let (mut child, mut stderr) = start(folder, args, word);
    std::thread::sleep(Duration::from_millis(500));
    assert!(
        child.try_wait().unwrap().is_none(),
        "{args:?} ended by itself"
    );
    // While the command has a core, as when it is told to stop.
    let second = a_second();
    let sent = Instant::now();
    let kill = Command::new("kill")
        .args([signal, &child.id().to_string()])
        .status();
    assert!(kill.unwrap().success());
    let status = child.wait().unwrap();
    let took = sent.elapsed();
    let mut said = String::new();
    std::io::Read::read_to_string(&mut stderr, &mut said).unwrap();
    assert_eq!(status.code(), Some(130), "{args:?}: {status:?} {said}");
    assert!(took < second, "{args:?}: {took:?} of {second:?}");
    println!("{args:?}: {took:?} of {second:?}");
    said
}

#[test]
fn data_that_is_prepared_leaves_nothing_behind() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    // Minutes of drawing.
    let text = "name = \"slow\"\n[model]\nfamily = \"denoise\"\narchitecture = \"simple-cnn\"\n\
        [data]\nmethod = \"supervised\"\n\
        generate = { kind = \"photograph\", count = 400, width = 1024, height = 1024, sigma = 25.0 }\n\
        [train]\nepochs = 1\noptimizer = { kind = \"adam\", lr = 0.001 }\n";
    std::fs::write(folder.join("slow.toml"), text).unwrap();
    let before = listing(folder);
    for signal in ["-INT", "-TERM"] {
        let said = stops(folder, &["train", "slow.toml", "--out", "a"], "", signal);
        assert!(said.contains("stopped before the first step"), "{said}");
        assert_eq!(listing(folder), before);
    }
}

#[test]
fn the_end_of_a_run_can_be_made_up_for() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    // Formulas are found at the end, which takes its time.
    let args = [
        "train",
        "kan-feynman",
        "--epochs",
        "2",
        "--out",
        "a",
        "--log-format",
        "json",
    ];
    let said = stops(folder, &args, "\"epoch\":2,", "-TERM");
    assert!(said.contains("retrograd train --resume a"), "{said}");
    let (code, stdout, stderr) = run(folder, &["check", "a"]);
    assert_eq!(code, 0, "{stdout}{stderr}");
    assert!(stdout.contains("from checkpoint.safetensors"), "{stdout}");
    assert!(!folder.join("a/summary.json").exists());
    // And again, from there.
    let args = ["train", "--resume", "a", "--log-format", "json"];
    stops(folder, &args, "\"event\":\"start\"", "-INT");
}

#[test]
fn an_evaluation_is_made_up_for_with_the_same_bits() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    // An epoch of some steps, and then a hundred times as many samples to evaluate.
    let text = "name = \"slow\"\n[model]\nfamily = \"network\"\n\
        layers = [{ kind = \"dense\", out = 512 }, { kind = \"gelu\" }, { kind = \"dense\", out = 512 }, \
        { kind = \"gelu\" }, { kind = \"dense\", out = 2 }]\n\
        [data]\ngenerate = { name = \"two_moons\", samples = 100000 }\nvalidation = 0.999\n\
        [train]\nepochs = 1\nbatch = 50\noptimizer = { kind = \"adam\", lr = 0.001 }\n";
    std::fs::write(folder.join("slow.toml"), text).unwrap();
    let args = [
        "train",
        "slow.toml",
        "--threads",
        "1",
        "--no-verify",
        "--out",
    ];
    let (code, _, stderr) = run(folder, &[&args[..], &["whole"]].concat());
    assert_eq!(code, 0, "{stderr}");
    let part = [&args[..], &["part", "--log-format", "json"]].concat();
    stops(folder, &part, "\"event\":\"start\"", "-INT");
    assert!(!folder.join("part/summary.json").exists());
    let (code, _, stderr) = run(folder, &["train", "--resume", "part", "--no-verify"]);
    assert_eq!(code, 0, "{stderr}");
    let [part, whole] = ["part", "whole"].map(|name| folder.join(name));
    assert_eq!(state(&part), state(&whole));
    let rows = |run: &Path| {
        let text = std::fs::read_to_string(run.join("metrics.csv")).unwrap();
        let row = |line: &str| line.rsplit_once(',').unwrap().0.to_string();
        text.lines().map(row).collect::<Vec<_>>()
    };
    assert_eq!(rows(&part), rows(&whole));
}

#[test]
fn a_step_of_seconds_is_not_waited_for_and_loses_nothing_before_it() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    // Some 180 GFLOP a step, on one thread.
    let layers = "{ kind = \"conv2d\", out = 96, kernel = 3, padding = 1 }, ".repeat(8);
    let text = format!(
        "name = \"slow\"\n[model]\nfamily = \"network\"\ninput = [1, 8, 8]\n\
         layers = [{layers}{{ kind = \"flatten\" }}, {{ kind = \"dense\", out = 10 }}]\n\
         [data]\ngenerate = {{ name = \"digits\" }}\n\
         [train]\nepochs = 9\nbatch = 700\noptimizer = {{ kind = \"adam\", lr = 0.001 }}\n"
    );
    std::fs::write(folder.join("slow.toml"), text).unwrap();
    let args = [
        "train",
        "slow.toml",
        "--threads",
        "1",
        "--log-format",
        "json",
        "--out",
    ];
    let steps = |run: &str| {
        let (code, stdout, stderr) = run_check(folder, run);
        assert_eq!(code, 0, "{stdout}{stderr}");
        let step = stdout.split("after step ").nth(1).unwrap();
        step.split(|c: char| !c.is_ascii_digit())
            .next()
            .unwrap()
            .parse::<u64>()
            .unwrap()
    };
    let said = stops(
        folder,
        &[&args[..], &["a"]].concat(),
        "\"event\":\"start\"",
        "-INT",
    );
    assert!(said.contains("retrograd train --resume a"), "{said}");
    assert_eq!(steps("a"), 0);
    stops(
        folder,
        &[&args[..], &["b"]].concat(),
        "\"event\":\"step\"",
        "-TERM",
    );
    assert!(steps("b") >= 1);
}

fn run_check(folder: &Path, name: &str) -> (i32, String, String) {
    run(folder, &["check", name])
}

#[test]
fn other_commands_end_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    stops(folder, &["verify"], "", "-INT");
    stops(folder, &["bench", "--json", "times.json"], "", "-TERM");
    let train = [
        "train",
        "life-small",
        "--epochs",
        "1",
        "--no-verify",
        "--out",
        "life",
    ];
    let (code, _, stderr) = run(folder, &train);
    assert_eq!(code, 0, "{stderr}");
    let before = listing(&folder.join("life"));
    let play = ["run", "life", "--size", "512x512", "--steps", "100000000"];
    stops(folder, &play, "", "-TERM");
    assert_eq!(listing(&folder.join("life")), before);
    assert!(!folder.join("times.json").exists());
}

#[test]
fn a_file_that_is_being_written_is_removed() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let text = "name = \"d\"\n[model]\nfamily = \"denoise\"\n\
        layers = [{ kind = \"conv2d\", out = 1, kernel = 3, padding = 1 }]\n\
        [data]\nmethod = \"supervised\"\npatch = 16\nsteps_per_epoch = 1\n\
        generate = { kind = \"photograph\", count = 2, width = 64, height = 64, sigma = 25.0 }\n\
        [train]\nepochs = 1\nbatch = 1\noptimizer = { kind = \"adam\", lr = 0.001 }\n";
    std::fs::write(folder.join("d.toml"), text).unwrap();
    let (code, _, stderr) = run(folder, &["train", "d.toml", "--no-verify", "--out", "d"]);
    assert_eq!(code, 0, "{stderr}");
    // A thousand sections of an MRC file, of one byte a pixel, all zero but the header.
    let mut header = vec![0_u8; 1024];
    for (at, n) in [
        (0, 1024),
        (4, 1024),
        (8, 1000),
        (28, 1024),
        (32, 1024),
        (36, 1000),
    ] {
        header[at..at + 4].copy_from_slice(&i32::to_le_bytes(n));
    }
    for (at, axis) in [(64, 1), (68, 2), (72, 3)] {
        header[at..at + 4].copy_from_slice(&i32::to_le_bytes(axis));
    }
    header[208..212].copy_from_slice(b"MAP ");
    header[212..214].copy_from_slice(&[0x44, 0x44]);
    let large = folder.join("large.mrc");
    std::fs::write(&large, header).unwrap();
    let file = std::fs::File::options().write(true).open(&large).unwrap();
    file.set_len(1024 + 1024 * 1024 * 1000).unwrap();
    let args = ["run", "d", "large.mrc", "--out", "out", "--threads", "1"];
    let (mut child, stderr) = start(folder, &args, "");
    // As with a terminal that is closed: what is said reaches nobody.
    drop(stderr);
    let deadline = Instant::now() + Duration::from_secs(30);
    let out = folder.join("out");
    while !out.is_dir() || std::fs::read_dir(&out).unwrap().count() == 0 {
        assert!(Instant::now() < deadline, "nothing is written");
        assert!(child.try_wait().unwrap().is_none(), "it ended by itself");
        std::thread::sleep(Duration::from_millis(5));
    }
    let kill = Command::new("kill")
        .args(["-TERM", &child.id().to_string()])
        .status();
    assert!(kill.unwrap().success());
    let (code, _, _) = parts(child.wait_with_output().unwrap());
    assert_eq!(code, 130);
    assert_eq!(
        std::fs::read_dir(&out).unwrap().count(),
        0,
        "nothing half written"
    );
}
