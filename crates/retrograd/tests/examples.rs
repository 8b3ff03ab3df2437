//! Every example runs, says what it should, and is short enough to read.

use std::path::{Path, PathBuf};
use std::process::Command;

fn sources() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("examples")
}

/// Runs an example that cargo built beside this test and returns what it printed.
fn run(name: &str) -> String {
    let test = std::env::current_exe().expect("the test's own path");
    let profile = test.ancestors().nth(2).expect("target/PROFILE/deps/TEST");
    let program = profile
        .join("examples")
        .join(name)
        .with_extension(std::env::consts::EXE_EXTENSION);
    assert!(
        program.exists(),
        "{} is not built: cargo test and nextest build it where no single target is chosen",
        program.display()
    );
    let output = Command::new(&program).output().expect("it starts");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{name}:\n{text}{errors}");
    text
}

/// The last number of the line that contains a text.
fn number(text: &str, line: &str) -> f64 {
    let line = text.lines().find(|l| l.contains(line));
    let line = line.unwrap_or_else(|| panic!("no such line in:\n{text}"));
    let numbers = line.split(|c: char| !(c.is_ascii_digit() || "e.-".contains(c)));
    let last = numbers.filter_map(|n| n.parse().ok()).next_back();
    last.unwrap_or_else(|| panic!("no number in {line:?}"))
}

#[test]
fn examples_have_at_most_60_lines() {
    let mut seen = 0;
    for entry in std::fs::read_dir(sources()).unwrap() {
        let path = entry.unwrap().path();
        let lines = std::fs::read_to_string(&path).unwrap().lines().count();
        assert!(lines <= 60, "{}: {lines} lines", path.display());
        seen += 1;
    }
    assert_eq!(seen, 10, "a new example needs a test here");
}

#[test]
fn a_kan_is_trained_and_explained() {
    let text = run("01_train_kan");
    assert!(number(&text, "step 500") < 1e-3, "{text}");
    let formula = text.lines().find(|l| l.starts_with("y = ")).unwrap();
    assert_eq!(formula, "y = exp(x_2) + sin(3*x_1)", "{text}");
}

#[test]
fn a_layer_of_ones_own_is_verified() {
    let text = run("02_own_layer");
    assert!(text.contains("0 failed, 0 unchecked"), "{text}");
}

#[test]
fn frozen_layers_keep_their_bits_in_fine_tuning() {
    let text = run("03_freeze_and_fine_tune");
    assert!(text.contains("33 of 97 parameters"), "{text}");
    assert!(number(&text, "sin(3x)/2 + x") < 1e-2, "{text}");
}

#[test]
fn pytorch_weights_are_loaded() {
    let text = run("04_load_pytorch_weights");
    // gelu(0.5) − gelu(−1) + 2·gelu(−1) + 0.25 and gelu(2) − gelu(0) + 2·gelu(1.5) + 0.25.
    let gelu = |x: f64| x * 0.5 * (1.0 + libm::erf(x / 2_f64.sqrt()));
    let first = gelu(0.5) + gelu(-1.0) + 0.25;
    let second = gelu(2.0) + 2.0 * gelu(1.5) + 0.25;
    let numbers: Vec<f64> = text
        .rsplit_once('[')
        .unwrap()
        .1
        .trim()
        .trim_end_matches(']')
        .split(", ")
        .map(|n| n.parse().unwrap())
        .collect();
    assert!((numbers[0] - first).abs() < 1e-6, "{text} {first}");
    assert!((numbers[1] - second).abs() < 1e-6, "{text} {second}");
}

#[cfg(feature = "gpu")]
#[test]
fn networks_are_trained_and_run_on_the_gpu() {
    let text = run("05_train_on_gpu_native");
    assert!(number(&text, "last loss") < 0.01, "{text}");
    let text = run("05_train_on_gpu_hybrid");
    assert!(text.contains("32 of 32 right"), "{text}");
    let text = run("05_run_on_gpu");
    assert!(text.contains("d input"), "{text}");
}

#[test]
fn a_circuit_plays_the_game_of_life() {
    let text = run("06_simulate_circuit");
    assert!(text.contains("right on 512 of the 512"), "{text}");
    // A glider has five cells, wherever it is.
    let cells = |c: char| usize::from(c == '▀') + usize::from(c == '▄') + 2 * usize::from(c == '█');
    assert_eq!(text.chars().map(cells).sum::<usize>(), 5, "{text}");
}

#[test]
fn an_mrc_file_is_denoised() {
    let text = run("07_denoise_mrc");
    let gain = number(&text, "denoised PSNR") - number(&text, "noisy    PSNR");
    assert!(gain > 5.0, "{text}");
}

#[test]
fn members_of_the_karate_club_are_classified() {
    let text = run("08_classify_nodes");
    let last = text.lines().last().expect("a line");
    let right: u32 = last.split(' ').next().unwrap().parse().unwrap();
    assert!(right >= 31, "{text}");
}
