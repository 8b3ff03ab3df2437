//! Building the copy: without a GPU, for one instruction set (the callers' RUSTFLAGS say so), little optimised.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::make::succeed;

/// Where the copy is built.
pub fn target(folder: &Path) -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| folder.join("target"), PathBuf::from)
}

/// A command of cargo's on the copy: one instruction set, so that one build takes minutes.
pub fn cargo(folder: &Path, command: &str) -> Command {
    let mut cargo = Command::new("cargo");
    cargo
        .args([command, "--release", "--no-default-features"])
        .args(["--config", "profile.release.package.retrograd.opt-level=1"])
        .args([
            "--config",
            "profile.release.package.retrograd.codegen-units=64",
        ])
        .args([
            "--config",
            "profile.release.package.retrograd.debug-assertions=false",
        ])
        .env("RUSTFLAGS", "--cfg one_level")
        .env("CARGO_INCREMENTAL", "0")
        .env("CARGO_TARGET_DIR", target(folder))
        .current_dir(folder);
    cargo
}

/// The command and the tests; their paths are kept in `tests.txt`.
pub fn build(folder: &Path) -> Result<(), String> {
    let mut command = cargo(folder, "build");
    command.args(["-p", "retrograd-cli", "--bins"]);
    succeed(command)
}

/// Builds the tests, and keeps the paths of their programs in `tests.txt`.
pub fn build_tests(folder: &Path) -> Result<Vec<PathBuf>, String> {
    let mut command = cargo(folder, "test");
    command.args(["-p", "retrograd", "--lib", "--tests", "--no-run"]);
    command.arg("--message-format=json-render-diagnostics");
    let output = command.output().map_err(|e| format!("cargo test: {e}"))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr).to_string();
        return Err(format!("the copy's tests don't build:\n{said}"));
    }
    let programs: Vec<String> = (String::from_utf8_lossy(&output.stdout).lines())
        .filter_map(|line| serde_json::from_str::<Value>(line).ok())
        .filter_map(|message| Some(message["executable"].as_str()?.to_string()))
        .collect();
    fs::write(folder.join("tests.txt"), programs.join("\n")).map_err(|e| e.to_string())?;
    Ok(programs.into_iter().map(PathBuf::from).collect())
}
