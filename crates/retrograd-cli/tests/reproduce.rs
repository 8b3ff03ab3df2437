//! A run has digests, and `retrograd reproduce` holds it to them on every instruction set.

mod common;

use std::path::Path;

use common::{experiment, listing, parts, retrograd, run};
use retrograd::command::InstructionSet;

const TRAIN: &str = "epochs = 4\noptimizer = { kind = \"adam\", lr = 0.01 }\n";

fn train(folder: &Path, file: &str) {
    let (code, _, stderr) = run(
        folder,
        &["train", file, "--out", "run", "-q", "--no-verify"],
    );
    assert_eq!(code, 0, "{stderr}");
}

/// Changes a number or a text of the run's summary.
fn change(folder: &Path, change: impl FnOnce(&mut serde_json::Value)) {
    let path = folder.join("run/summary.json");
    let mut summary = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    change(&mut summary);
    std::fs::write(path, summary.to_string()).unwrap();
}

#[test]
fn a_run_is_reproduced_on_every_instruction_set_and_left_as_it_was() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    experiment(folder, TRAIN);
    train(folder, "test.toml");
    let before = listing(&folder.join("run"));
    let sum = std::process::Command::new("sha256sum")
        .arg(folder.join("run/model.safetensors"))
        .output()
        .unwrap();
    let digest = String::from_utf8(sum.stdout).unwrap()[..64].to_string();
    for set in InstructionSet::available() {
        let mut command = retrograd(folder);
        command.args(["reproduce", "run", "-q"]);
        command.env("RETROGRAD_SIMD", set.to_string());
        let (code, stdout, stderr) = parts(command.output().unwrap());
        assert_eq!(code, 0, "{set}: {stdout}{stderr}");
        assert!(stdout.contains(&format!("same     {digest}")), "{stdout}");
        assert!(
            stdout.contains(&format!("on {set}, by version")),
            "{stdout}"
        );
    }
    assert_eq!(listing(&folder.join("run")), before);
    let report = std::fs::read_to_string(folder.join("run/report.html")).unwrap();
    assert!(report.contains(&digest), "the report has the digest");
}

/// Figures that are whole numbers are written as such by some families.
#[test]
fn an_automaton_is_reproduced() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let text = "name = \"x\"\n[model]\nfamily = \"logic_ca\"\nchannels = 4\nkernels = 8\n\
                perception = [9, 8, 4, 2]\nupdate = [68, 64, 32, 16, 8, 4]\nsteps = 8\n\
                [data]\nstart = \"random\"\ntarget = \"checkerboard\"\ngrid = [8, 8]\n[train]\n";
    std::fs::write(folder.join("x.toml"), format!("{text}{TRAIN}")).unwrap();
    train(folder, "x.toml");
    let (code, stdout, stderr) = run(folder, &["reproduce", "run"]);
    assert_eq!(code, 0, "{stdout}{stderr}");
    assert!(stdout.contains("hard_loss                same"), "{stdout}");
}

#[test]
fn what_differs_is_named_and_what_cannot_be_compared_is_no_failure() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let rows: String = (0..60).map(|i| format!("{},{}\n", i % 7, i % 3)).collect();
    std::fs::write(folder.join("table.csv"), format!("a,b\n{rows}")).unwrap();
    let text = "name = \"table\"\n[model]\nfamily = \"network\"\nlayers = [{ kind = \"dense\", out = 1 }]\n\
                [data]\nfile = \"table.csv\"\ntargets = \"b\"\n[train]\nbatch = 8\n";
    std::fs::write(folder.join("table.toml"), format!("{text}{TRAIN}")).unwrap();
    train(folder, "table.toml");
    let again = || run(folder, &["reproduce", "run", "-q"]);
    let (code, stdout, stderr) = again();
    assert_eq!(code, 0, "{stdout}{stderr}");

    change(folder, |summary| summary["train_loss"] = 0.5.into());
    let (code, stdout, _) = again();
    assert_eq!(code, 1, "{stdout}");
    assert!(stdout.contains("DIFFERS  was 0.5"), "{stdout}");

    change(folder, |summary| {
        summary["contract"] = 0.into();
        summary["device"] = "a card".into();
    });
    std::fs::write(folder.join("table.csv"), format!("a,b\n{rows}1,1\n")).unwrap();
    let (code, stdout, _) = again();
    assert_eq!(code, 3, "{stdout}");
    for said in [
        "version 0 of the contract",
        "on a card",
        "table.csv has changed",
    ] {
        assert!(stdout.contains(said), "{said}: {stdout}");
    }

    change(folder, |summary| {
        summary.as_object_mut().unwrap().remove("weights_sha256");
    });
    let (code, _, stderr) = again();
    assert_eq!(code, 2);
    assert!(stderr.contains("there are no digests"), "{stderr}");
}

#[test]
fn an_instruction_set_that_is_not_there_is_an_error_that_names_those_that_are() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = retrograd(folder.path());
    command.arg("devices").env("RETROGRAD_SIMD", "mmx");
    let (code, _, stderr) = parts(command.output().unwrap());
    assert_eq!(code, 2);
    assert!(stderr.contains("RETROGRAD_SIMD: got \"mmx\""), "{stderr}");
    for set in InstructionSet::available() {
        assert!(stderr.contains(&set.to_string()), "{stderr}");
        let mut command = retrograd(folder.path());
        command
            .arg("devices")
            .env("RETROGRAD_SIMD", set.to_string());
        let (code, stdout, _) = parts(command.output().unwrap());
        assert_eq!(code, 0);
        assert!(stdout.contains(&format!("threads, {set}\n")), "{stdout}");
    }
}
