//! Odd names, hostile text, refused threads and damaged files: an error or a way on, never a panic.
#![cfg(unix)]

mod common;

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use common::{experiment, listing, parts, retrograd, run, state};

const SHORT: &str = "epochs = 2\noptimizer = { kind = \"adam\", lr = 0.003 }\n";

#[test]
fn a_folder_whose_name_is_no_text_works_throughout() {
    let outer = tempfile::tempdir().unwrap();
    let odd = outer.path().join(OsStr::from_bytes(b"gr\xf6\xdfe"));
    std::fs::create_dir(&odd).unwrap();
    let text = "name = \"kan\"\n[model]\nfamily = \"kan\"\nsizes = [2, 2, 2]\n\
        [data]\nfile = \"t.csv\"\ntargets = [\"c\"]\n[train]\nbatch = 8\n";
    let mut table = String::from("a,b,c\n");
    for i in 0..40 {
        table += &format!("{},{},{}\n", i % 7, i % 5, ["x", "y"][i % 2]);
    }
    std::fs::write(odd.join("t.csv"), table).unwrap();
    std::fs::write(odd.join("kan.toml"), format!("{text}{SHORT}")).unwrap();
    let path = |name: &[u8]| OsString::from(OsStr::from_bytes(name));
    let run_in = path(b"gr\xf6\xdfe/run-\xff");
    let weights = path(b"gr\xf6\xdfe/w-\xfe.safetensors");
    let call = |args: &[&OsStr]| {
        let output = retrograd(outer.path()).args(args).output().unwrap();
        let (code, stdout, stderr) = parts(output);
        assert_eq!(code, 0, "{args:?}: {stderr}");
        stdout
    };
    let word = OsStr::new;
    let file = path(b"gr\xf6\xdfe/kan.toml");
    call(&[word("train"), &file, word("--out"), &run_in]);
    let run_path = outer.path().join(&run_in);
    std::fs::copy(
        run_path.join("model.safetensors"),
        outer.path().join(&weights),
    )
    .unwrap();
    call(&[
        word("train"),
        word("--resume"),
        &run_in,
        word("--epochs"),
        word("3"),
    ]);
    call(&[word("check"), &run_in]);
    let csv = path(b"gr\xf6\xdfe/t.csv");
    let out = path(b"gr\xf6\xdfe/p-\xff.csv");
    call(&[word("run"), &run_in, &csv, word("--out"), &out]);
    call(&[word("export"), &run_in, word("--plot")]);
    assert!(run_path.join("network.svg").exists() && outer.path().join(out).exists());
    let tuned = path(b"gr\xf6\xdfe/tuned-\xff");
    call(&[
        word("train"),
        &file,
        word("--weights"),
        &weights,
        word("--out"),
        &tuned,
    ]);
    call(&[
        word("train"),
        word("--resume"),
        &tuned,
        word("--epochs"),
        word("3"),
    ]);
}

#[test]
fn a_name_does_not_lead_out_of_the_folder_of_runs() {
    let outer = tempfile::tempdir().unwrap();
    let inner = outer.path().join("a/b");
    std::fs::create_dir_all(&inner).unwrap();
    let path = experiment(&inner, SHORT);
    let text = std::fs::read_to_string(&path).unwrap();
    for name in ["../../x", "/tmp/x", "..", "", "a\\u001b[31m"] {
        let named = text.replace("name = \"test\"", &format!("name = \"{name}\""));
        std::fs::write(&path, named).unwrap();
        let (code, _, stderr) = run(&inner, &["train", "test.toml"]);
        assert_eq!(code, 2, "{name}: {stderr}");
        assert!(stderr.contains("a name for a folder"), "{stderr}");
    }
    assert_eq!(std::fs::read_dir(outer.path()).unwrap().count(), 1);
    assert_eq!(listing(&inner).len(), 1);
}

#[test]
fn text_of_a_file_neither_steers_the_terminal_nor_fills_it() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let path = experiment(folder, SHORT);
    let text = std::fs::read_to_string(&path).unwrap();
    let long = "k".repeat(200_000);
    for key in ["\"a\\u001b]0;title\\u0007\\u009b2J\"", &long] {
        for table in ["", "[data]\n", "[train]\n", "[model]\n"] {
            let named = match table {
                "" => format!("{key} = 1\n{text}"),
                table => text.replace(table, &format!("{table}{key} = 1\n")),
            };
            std::fs::write(&path, named).unwrap();
            let (code, _, stderr) = run(folder, &["train", "test.toml"]);
            assert_eq!(code, 2, "{stderr}");
            let steers = |c: char| c.is_control() && c != '\n';
            assert!(!stderr.contains(steers), "{table}: {stderr:?}");
            assert!(stderr.len() < 7000, "{table}: {} bytes", stderr.len());
        }
    }
    // The names of a table's columns come back in predictions and messages.
    std::fs::write(folder.join("t.csv"), "a\x1b[31m,b\n1,2\n3,4\n").unwrap();
    let (code, stdout, stderr) = run(folder, &["init", "t.csv", "--target", "c"]);
    assert_eq!(code, 2);
    assert!(!(stdout + &stderr).contains('\x1b'));
}

#[test]
fn an_error_of_the_system_is_said_once() {
    let folder = tempfile::tempdir().unwrap();
    let (code, _, stderr) = run(folder.path(), &["train", "missing.toml"]);
    assert_eq!(code, 2);
    assert_eq!(stderr.matches("os error 2").count(), 1, "{stderr}");
    // A file is written under a passing name, which is nobody's business.
    experiment(folder.path(), SHORT);
    let train = ["train", "test.toml", "--out", "run", "-q"];
    assert_eq!(run(folder.path(), &train).0, 0);
    let export = ["export", "run", "--onnx", "--out", "missing/model.onnx"];
    let (code, _, stderr) = run(folder.path(), &export);
    assert_eq!(code, 2);
    let said = "error: missing/model.onnx: cannot write: No such file or directory (os error 2)\n";
    assert_eq!(stderr, said);
}

/// TOML's whole numbers end at 2⁶³ − 1: a run with a larger one could not be read again.
#[test]
fn numbers_that_a_runs_file_cannot_hold_are_refused_before_the_run() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    experiment(folder, SHORT);
    for args in [
        &["--seed", "9223372036854775808"][..],
        &["--epochs", "18446744073709551615"],
        &["--batch", "9223372036854775808"],
        &["--seed", "9223372036854775807", "--seeds", "2"],
    ] {
        let train = ["train", "test.toml", "--out", "run"];
        let (code, _, stderr) = run(folder, &[&train[..], args].concat());
        assert_eq!(code, 2, "{args:?}: {stderr}");
        assert!(stderr.contains("at most 9223372036854775807"), "{stderr}");
        assert!(!folder.join("run").exists() && !folder.join("run-seeds").exists());
    }
    let largest = [
        "train",
        "test.toml",
        "--out",
        "run",
        "--seed",
        "9223372036854775807",
    ];
    assert_eq!(run(folder, &largest).0, 0);
    let (code, stdout, stderr) = run(folder, &["reproduce", "run"]);
    assert_eq!(code, 0, "{stdout}{stderr}");
}

/// What is printed goes to a disk, too, where `>` says so.
#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_under_standard_output_is_an_error_and_a_reader_that_leaves_is_none() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    experiment(folder, SHORT);
    let shell = |script: &str| {
        let script = script.replace("retrograd", env!("CARGO_BIN_EXE_retrograd"));
        let mut shell = std::process::Command::new("bash");
        shell.args(["-c", &script]).current_dir(folder);
        parts(shell.output().unwrap())
    };
    for args in [
        "completions bash",
        "train --list",
        "train test.toml --out a -q",
    ] {
        let (code, _, stderr) = shell(&format!("retrograd {args} > /dev/full"));
        assert_eq!(code, 2, "{args}: {stderr}");
        assert!(
            stderr.contains("error: cannot write to stdout: No space"),
            "{stderr}"
        );
        assert!(!stderr.contains("panicked"), "{stderr}");
    }
    // What was trained is there nevertheless.
    let (code, stdout, _) = run(folder, &["check", "a"]);
    assert_eq!(code, 0, "{stdout}");
    // By then nobody reads any more.
    let late = "{ sleep 0.3; retrograd completions bash; } | true; exit ${PIPESTATUS[0]}";
    let (code, _, stderr) = shell(late);
    assert_eq!(code, 141, "{stderr}");
}

#[test]
fn folds_beyond_every_table_are_refused_as_they_were_written() {
    let folder = tempfile::tempdir().unwrap();
    experiment(folder.path(), SHORT);
    let folds = u64::MAX.to_string();
    let (code, _, stderr) = run(folder.path(), &["train", "test.toml", "--folds", &folds]);
    assert_eq!(code, 2, "{stderr}");
    assert!(
        stderr.contains(&folds) && !stderr.contains("-1"),
        "{stderr}"
    );
}

/// Every thread has a stack of its own to reserve, and the address space is what it is.
#[test]
fn with_threads_refused_a_run_ends_with_the_same_bits() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    experiment(folder, SHORT);
    let (code, _, stderr) = run(folder, &["train", "test.toml", "--out", "whole"]);
    assert_eq!(code, 0, "{stderr}");
    let script = format!(
        "ulimit -v 700000; exec '{}' train test.toml --out few --threads 250",
        env!("CARGO_BIN_EXE_retrograd")
    );
    let mut shell = std::process::Command::new("sh");
    let output = shell.args(["-c", &script]).current_dir(folder).output();
    let (code, _, stderr) = parts(output.unwrap());
    assert_eq!(code, 0, "{stderr}");
    assert_eq!(
        stderr.matches("threads were started").count(),
        1,
        "{stderr}"
    );
    let [few, whole] = ["few", "whole"].map(|name| folder.join(name));
    assert_eq!(state(&few), state(&whole));
    assert_eq!(model(&few), model(&whole));
}

/// Not one thread beside the first: as a user who has as many processes as allowed already.
#[test]
fn without_a_second_thread_a_run_ends_with_the_same_bits() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    experiment(folder, SHORT);
    let (code, _, stderr) = run(folder, &["train", "test.toml", "--out", "whole"]);
    assert_eq!(code, 0, "{stderr}");
    // The superuser is exempt from the limit; some other user is not.
    use std::os::unix::fs::{MetadataExt, PermissionsExt};
    let everyone = std::fs::Permissions::from_mode(0o777);
    std::fs::set_permissions(folder, everyone).unwrap();
    let binary = folder.join("retrograd");
    std::fs::copy(env!("CARGO_BIN_EXE_retrograd"), &binary).unwrap();
    let superuser = std::fs::metadata("/proc/self").unwrap().uid() == 0;
    let other = if superuser {
        "setpriv --reuid=54321 --regid=54321 --clear-groups"
    } else {
        ""
    };
    // A shell that is replaced by the command needs no process beside it.
    let script = "ulimit -u 1; exec ./retrograd train test.toml --out one";
    let command = format!("exec {other} bash -c '{script}'");
    let mut shell = std::process::Command::new("sh");
    let output = shell.args(["-c", &command]).current_dir(folder).output();
    let (code, _, stderr) = parts(output.unwrap());
    assert_eq!(code, 0, "{stderr}");
    assert_eq!(
        stderr.matches("threads were started").count(),
        1,
        "{stderr}"
    );
    let [one, whole] = ["one", "whole"].map(|name| folder.join(name));
    assert_eq!(state(&one), state(&whole));
    assert_eq!(model(&one), model(&whole));
}

#[test]
fn a_film_that_no_memory_holds_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let train = [
        "train",
        "life-small",
        "--epochs",
        "1",
        "--no-verify",
        "--out",
        "a",
    ];
    let (code, _, stderr) = run(folder, &train);
    assert_eq!(code, 0, "{stderr}");
    let steps = u64::MAX.to_string();
    for more in [
        &["--gif", "a.gif", "--steps", &*steps][..],
        &["--size", "65536x65536", "--gif", "a.gif"],
    ] {
        let (code, _, stderr) = run(folder, &[&["run", "a"], more].concat());
        assert_eq!(code, 2, "{stderr}");
        assert!(
            stderr.contains("of memory") && stderr.contains("fit"),
            "{stderr}"
        );
        assert!(!folder.join("a.gif").exists());
    }
}

fn model(run: &Path) -> Vec<u8> {
    std::fs::read(run.join("model.safetensors")).unwrap()
}

#[test]
fn check_says_what_is_damaged_and_what_can_be_used() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    experiment(folder, &format!("{SHORT}checkpoint_every = 5\n"));
    let (code, _, stderr) = run(folder, &["train", "test.toml", "--out", "a"]);
    assert_eq!(code, 0, "{stderr}");
    let (code, stdout, _) = run(folder, &["check", "a"]);
    assert_eq!(code, 0, "{stdout}");
    assert!(!stdout.contains("DAMAGED"), "{stdout}");
    let flip = |name: &str| {
        let path = folder.join("a").join(name);
        let mut bytes = std::fs::read(&path).unwrap();
        *bytes.last_mut().unwrap() ^= 4;
        std::fs::write(&path, bytes).unwrap();
    };
    flip("checkpoint.safetensors");
    let (code, stdout, _) = run(folder, &["check", "a"]);
    assert_eq!(code, 1, "{stdout}");
    assert!(
        stdout.contains("checkpoint.safetensors           DAMAGED"),
        "{stdout}"
    );
    assert!(
        stdout.contains("from checkpoint.previous.safetensors"),
        "{stdout}"
    );
    assert!(stdout.contains("possible"), "{stdout}");
    flip("model.safetensors");
    let (code, stdout, _) = run(folder, &["check", "a"]);
    assert_eq!(code, 1, "{stdout}");
    assert!(stdout.contains("not possible"), "{stdout}");
    let (code, _, stderr) = run(folder, &["train", "--resume", "a", "--epochs", "3"]);
    assert_eq!(code, 2, "{stderr}");
    for part in ["model.safetensors", "damaged", "remove it"] {
        assert!(stderr.contains(part), "{stderr}");
    }
    std::fs::remove_file(folder.join("a/model.safetensors")).unwrap();
    let (code, _, stderr) = run(folder, &["train", "--resume", "a", "--epochs", "3"]);
    assert_eq!(code, 0, "{stderr}");
    assert!(
        stderr.contains("going on from the checkpoint before it"),
        "{stderr}"
    );
    let (code, stdout, _) = run(folder, &["check", "a"]);
    assert_eq!(code, 0, "{stdout}");
    let (code, _, stderr) = run(folder, &["check", "nowhere"]);
    assert_eq!(code, 2, "{stderr}");
}

#[test]
fn a_run_that_was_killed_before_its_first_checkpoint_is_not_stuck() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    experiment(folder, SHORT);
    let (code, _, stderr) = run(folder, &["train", "test.toml", "--out", "whole"]);
    assert_eq!(code, 0, "{stderr}");
    let dead = folder.join("dead");
    std::fs::create_dir(&dead).unwrap();
    std::fs::copy(
        folder.join("whole/experiment.toml"),
        dead.join("experiment.toml"),
    )
    .unwrap();
    std::fs::write(dead.join(".writing-abc"), "half a mod").unwrap();
    let (code, _, stderr) = run(folder, &["train", "test.toml", "--out", "dead"]);
    assert_eq!(code, 2, "{stderr}");
    assert!(stderr.contains("--resume begins it at step 0"), "{stderr}");
    let (code, _, stderr) = run(folder, &["train", "--resume", "dead"]);
    assert_eq!(code, 0, "{stderr}");
    assert!(stderr.contains("it begins at step 0"), "{stderr}");
    assert_eq!(state(&dead), state(&folder.join("whole")));
    assert_eq!(model(&dead), model(&folder.join("whole")));
    assert!(!dead.join(".writing-abc").exists());
}
