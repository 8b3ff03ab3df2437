//! What may come from anywhere, at the command: one error of a line, and nothing eaten.

mod common;

use std::path::Path;
use std::time::{Duration, Instant};

use common::{experiment, run};

const ADAM: &str = "epochs = 1\noptimizer = { kind = \"adam\", lr = 0.01 }";

/// The error of a command that must end soon, with 2 and one line.
fn refused(folder: &Path, args: &[&str]) -> String {
    let begun = Instant::now();
    let (code, _, error) = run(folder, args);
    assert_eq!(code, 2, "{args:?}: {error}");
    assert!(!error.contains("panicked"), "{error}");
    // Notes about data may come before it.
    let error = error.lines().last().unwrap_or_default().to_string();
    assert!(error.starts_with("error: "), "{error}");
    assert!(begun.elapsed() < Duration::from_secs(20), "{args:?}");
    error
}

/// A PNG whose palette ends within a colour, at which the decoder panics.
#[test]
fn a_decoder_that_panics_is_one_error_and_prints_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let seed = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/png/half-a-colour");
    std::fs::copy(seed, folder.path().join("half.png")).unwrap();
    let text = "name = \"x\"\n[model]\nfamily = \"denoise\"\narchitecture = \"simple-cnn\"\n\
                [data]\nmethod = \"noise2void\"\ninputs = [\"half.png\"]\n[train]\n";
    std::fs::write(folder.path().join("x.toml"), format!("{text}{ADAM}")).unwrap();
    let error = refused(folder.path(), &["train", "x.toml"]);
    assert!(error.contains("half.png"), "{error}");
    let error = refused(folder.path(), &["init", "half.png"]);
    assert!(error.contains("half.png"), "{error}");
    let data = "[data]\nmethod = \"supervised\"\npatch = 16\nsteps_per_epoch = 1\n\
                generate = { kind = \"photograph\", count = 2, width = 32, height = 32, sigma = 25.0 }\n";
    let layer = "layers = [{ kind = \"conv2d\", out = 1, kernel = 3, padding = 1 }]";
    let text =
        format!("name = \"d\"\n[model]\nfamily = \"denoise\"\n{layer}\n{data}[train]\n{ADAM}");
    std::fs::write(folder.path().join("d.toml"), text).unwrap();
    let train = ["train", "d.toml", "--no-verify", "--out", "d"];
    let (code, _, error) = run(folder.path(), &train);
    assert_eq!(code, 0, "{error}");
    let error = refused(folder.path(), &["run", "d", "half.png", "--out", "out"]);
    assert!(error.contains("half.png"), "{error}");
}

#[cfg(unix)]
#[test]
fn what_has_no_end_is_not_read_for_ever() {
    let folder = tempfile::tempdir().unwrap();
    experiment(folder.path(), ADAM);
    let error = refused(
        folder.path(),
        &["train", "test.toml", "--weights", "/dev/zero"],
    );
    assert!(
        error.contains("/dev/zero") && error.contains("device"),
        "{error}"
    );
    let error = refused(folder.path(), &["init", "/dev/zero", "--target", "y"]);
    assert!(error.contains("/dev/zero"), "{error}");
    let error = refused(folder.path(), &["train", "/dev/zero"]);
    assert!(error.contains("/dev/zero"), "{error}");
    let error = refused(folder.path(), &["verify", "--against", "/dev/zero"]);
    assert!(error.contains("/dev/zero"), "{error}");
}

/// A file that says it is larger than any memory is not read at all.
#[cfg(target_os = "linux")]
#[test]
fn a_file_larger_than_memory_is_refused_by_its_length() {
    let folder = tempfile::tempdir().unwrap();
    experiment(folder.path(), ADAM);
    let file = std::fs::File::create(folder.path().join("huge.safetensors")).unwrap();
    // Where the file system has no files with holes of that size there is nothing to refuse.
    file.set_len(1 << 43).expect("a file of a hole");
    let error = refused(
        folder.path(),
        &["train", "test.toml", "--weights", "huge.safetensors"],
    );
    assert!(error.contains("huge.safetensors: needs 8.0 TiB"), "{error}");
}

#[test]
fn a_run_beyond_its_memory_is_refused_with_the_largest_value_that_fits() {
    let folder = tempfile::tempdir().unwrap();
    let text = "name = \"x\"\n[model]\nfamily = \"logic_ca\"\nchannels = 4\nkernels = 8\n\
                perception = [9, 8, 4, 2]\nupdate = [68, 64, 32, 16, 8, 4]\nsteps = 8\n\
                [data]\nstart = \"random\"\ntarget = \"checkerboard\"\ngrid = [1000000, 1000]\n\
                [train]\n";
    std::fs::write(folder.path().join("x.toml"), format!("{text}{ADAM}")).unwrap();
    let error = refused(folder.path(), &["train", "x.toml", "--memory-mib", "100"]);
    assert!(error.contains("data.grid[0] = 1000000"), "{error}");
    assert!(error.contains("100 MiB are allowed: at most "), "{error}");
    // And without a limit by what the machine has.
    let error = refused(folder.path(), &["train", "x.toml"]);
    assert!(error.contains("are free"), "{error}");
    assert!(!folder.path().join("runs").exists());
}

/// 24 edges and one of them far away: 3.7 GB once. Predictions keep the ids.
#[test]
fn ids_that_are_far_apart_are_numbered_anew_and_said() {
    let folder = tempfile::tempdir().unwrap();
    let mut edges = String::from("source,target\n");
    for i in 0..40 {
        edges += &format!("{i},{}\n{i},{}\n", (i + 1) % 40, (i + 7) % 40);
    }
    edges += "0,4000000000\n";
    std::fs::write(folder.path().join("edges.csv"), edges).unwrap();
    let text = "name = \"x\"\n[model]\nfamily = \"graph\"\nlayers = [{ kind = \"embedding\", \
                vocabulary = 41, out = 4 }, { kind = \"gcn\", out = 4 }, { kind = \"pair_dot\" }]\n\
                [data]\nkind = \"edge_list\"\nedges = \"edges.csv\"\npredict = \"links\"\n[train]\n";
    std::fs::write(folder.path().join("x.toml"), format!("{text}{ADAM}")).unwrap();
    let args = ["train", "x.toml", "--memory-mib", "256", "--out", "run"];
    let (code, _, error) = run(folder.path(), &args);
    assert_eq!(code, 0, "{error}");
    assert!(error.contains("41 of them up to 4000000000"), "{error}");
    std::fs::write(folder.path().join("pairs.csv"), "a,b\n5,4000000000\n39,0\n").unwrap();
    let args = ["run", "run", "pairs.csv", "--out", "out.csv"];
    let (code, _, error) = run(folder.path(), &args);
    assert_eq!(code, 0, "{error}");
    let out = std::fs::read_to_string(folder.path().join("out.csv")).unwrap();
    assert!(
        out.contains("\n5,4000000000,0.") && out.contains("\n39,0,0."),
        "{out}"
    );
    std::fs::write(folder.path().join("pairs.csv"), "a,b\n5,50\n").unwrap();
    let error = refused(
        folder.path(),
        &["run", "run", "pairs.csv", "--out", "no.csv"],
    );
    assert!(
        error.contains("line 2: the node \"50\" is none of the graph's"),
        "{error}"
    );
}
