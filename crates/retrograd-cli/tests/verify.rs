//! `retrograd verify` as a user runs it.

mod common;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn reference(name: &str) -> PathBuf {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../retrograd/tests/reference");
    Path::new(folder).join(format!("{name}.safetensors"))
}

fn verify(args: &[&Path]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_retrograd"))
        .args(["verify", "--against"])
        .args(args)
        .output()
        .unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn good_bundles_pass_and_the_report_is_written() {
    let folder = tempfile::tempdir().unwrap();
    let json = folder.path().join("report.json");
    let output = Command::new(env!("CARGO_BIN_EXE_retrograd"))
        .args(["verify", "--json"])
        .arg(&json)
        .arg("--against")
        .args([reference("loss_huber"), reference("kan_2_5_1")])
        .output()
        .unwrap();
    let out = text(&output.stdout);
    assert_eq!(
        output.status.code(),
        Some(0),
        "{out}{}",
        text(&output.stderr)
    );
    let last = out.lines().last().unwrap();
    assert!(last.contains("0 failed, 0 unchecked"), "{last}");
    assert!(out.contains("× PyTorch's"), "{out}");
    let report: serde_json::Value =
        serde_json::from_str(&std::fs::read_to_string(json).unwrap()).unwrap();
    assert_eq!(report["passed"], true);
    assert!(report["rows"].as_array().unwrap().len() > 60);
}

/// A copy with one number of one tensor changed, in its ninth digit and more.
fn with_wrong_number(tensor: &str, to: &Path) {
    let mut bytes = std::fs::read(reference("loss_huber")).unwrap();
    let header = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
    let json: serde_json::Value = serde_json::from_slice(&bytes[8..8 + header]).unwrap();
    let start = json[tensor]["data_offsets"][0].as_u64().unwrap() as usize + 8 + header;
    let value = f64::from_le_bytes(bytes[start..start + 8].try_into().unwrap());
    let wrong = value + value.abs().max(1e-3) * 1e-7;
    bytes[start..start + 8].copy_from_slice(&wrong.to_le_bytes());
    std::fs::write(to, bytes).unwrap();
}

#[test]
fn a_wrong_number_anywhere_in_the_oracle_fails_with_its_name() {
    let folder = tempfile::tempdir().unwrap();
    for (tensor, shown) in [
        ("grad/0.weight", "d 0.weight"),
        ("grad_input/x", "d input"),
        ("output/y", "output"),
        ("output/loss", "loss"),
        ("after/adam/2.bias", "after adam (f64)"),
        ("losses/sgd", "losses sgd (f64)"),
    ] {
        let path = folder.path().join("wrong.safetensors");
        with_wrong_number(tensor, &path);
        let output = verify(&[&path]);
        let out = text(&output.stdout);
        assert_eq!(output.status.code(), Some(1), "{tensor}\n{out}");
        let failed: Vec<&str> = out.lines().filter(|l| l.contains("FAIL")).collect();
        assert!(
            failed.iter().all(|l| l.contains(shown)),
            "{tensor}: {failed:?}"
        );
        assert!(!failed.is_empty(), "{tensor}");
    }
}

#[test]
fn files_that_are_no_bundles_are_errors_with_their_name() {
    let folder = tempfile::tempdir().unwrap();
    let good = std::fs::read(reference("loss_huber")).unwrap();
    let cases: [(&str, &[u8]); 4] = [
        ("empty", b""),
        (
            "words",
            b"this is no bundle, it is a sentence of some length",
        ),
        ("truncated", &good[..good.len() / 2]),
        ("header", &[255; 64]),
    ];
    for (name, bytes) in cases {
        let path = folder.path().join(format!("{name}.safetensors"));
        std::fs::write(&path, bytes).unwrap();
        let output = verify(&[&path]);
        let error = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{name}: {error}");
        assert!(error.contains(&format!("{name}.safetensors")), "{error}");
    }
    let missing = folder.path().join("missing.safetensors");
    let output = verify(&[&missing]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("missing.safetensors"));
}

/// The script for users' own models: its examples, which every kind of layer is in, pass.
#[test]
fn bundles_written_by_the_python_script_pass() {
    let python = common::python("torch, safetensors.torch");
    let folder = tempfile::tempdir().unwrap();
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../python/reference.py");
    let output = Command::new(&python)
        .arg(script)
        .arg(folder.path())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let mut bundles: Vec<PathBuf> = std::fs::read_dir(folder.path())
        .unwrap()
        .map(|e| e.unwrap().path())
        .collect();
    bundles.sort();
    assert!(bundles.len() > 30, "{bundles:?}");
    let paths: Vec<&Path> = bundles.iter().map(PathBuf::as_path).collect();
    let output = verify(&paths);
    let out = text(&output.stdout);
    assert_eq!(
        output.status.code(),
        Some(0),
        "{out}{}",
        text(&output.stderr)
    );
}
