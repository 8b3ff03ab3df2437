//! The command as a user runs it.
#![allow(dead_code, reason = "not every test file needs all of it")]

#[cfg(feature = "mpi")]
pub mod mpi;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use retrograd::train::TensorFile;

/// The built command, in a folder of its own.
pub fn retrograd(folder: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_retrograd"));
    command.current_dir(folder);
    command
}

/// Exit code, stdout and stderr.
pub fn run(folder: &Path, args: &[&str]) -> (i32, String, String) {
    parts(retrograd(folder).args(args).output().unwrap())
}

pub fn parts(output: Output) -> (i32, String, String) {
    let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
    (
        output.status.code().unwrap_or(-1),
        text(&output.stdout),
        text(&output.stderr),
    )
}

/// Writes an experiment on two moons and returns its path. `train` is appended to `[train]`.
pub fn experiment(folder: &Path, train: &str) -> PathBuf {
    let path = folder.join("test.toml");
    let text = format!(
        "name = \"test\"\n\
         [model]\nfamily = \"network\"\n\
         layers = [{{ kind = \"dense\", out = 16 }}, {{ kind = \"gelu\" }}, \
         {{ kind = \"dropout\", p = 0.1 }}, {{ kind = \"dense\", out = 2 }}]\n\
         [data]\ngenerate = {{ name = \"two_moons\", samples = 200 }}\n\
         [train]\nbatch = 16\n{train}\n"
    );
    std::fs::write(&path, text).unwrap();
    path
}

/// Weights, optimizer state and counters of a checkpoint; not the time it took.
pub fn state(run: &Path) -> TensorFile {
    let mut file = TensorFile::read(&run.join("checkpoint.safetensors")).unwrap();
    let progress = file.metadata.get_mut("progress").unwrap();
    let mut value: serde_json::Value = serde_json::from_str(progress).unwrap();
    for time in [
        "stepping",
        "loading",
        "forward",
        "updating",
        "evaluating",
        "saving",
    ] {
        assert!(value.as_object_mut().unwrap().remove(time).is_some());
    }
    *progress = value.to_string();
    file
}

/// The files of a folder with their content, sorted.
pub fn listing(folder: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut files: Vec<_> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .map(|path| (path.clone(), std::fs::read(path).unwrap()))
        .collect();
    files.sort();
    files
}

/// A Python with these modules: `python3`, or the one that `RETROGRAD_PYTHON` names.
pub fn python(modules: &str) -> String {
    let python = std::env::var("RETROGRAD_PYTHON").unwrap_or_else(|_| "python3".to_string());
    let import = format!("import {modules}");
    let found = Command::new(&python).args(["-c", &import]).output();
    assert!(
        found.is_ok_and(|output| output.status.success()),
        "{python} can't `{import}`: set RETROGRAD_PYTHON to what tests/python-environment prints"
    );
    python
}
