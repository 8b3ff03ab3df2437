//! `retrograd verify --library`: the example in C, right and with its mistakes, and what isn't a library.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const HERE: &str = env!("CARGO_MANIFEST_DIR");

/// Compiles C against the header that is shipped.
fn compiled(folder: &Path, name: &str, source: &Path, options: &[&str]) -> PathBuf {
    let library = folder.join(format!("lib{name}.so"));
    let output = Command::new("cc")
        .args([
            "-shared", "-fPIC", "-O2", "-Wall", "-Wextra", "-Werror", "-I",
        ])
        .arg(Path::new(HERE).join("include"))
        .args(options)
        .arg(source)
        .args(["-lm", "-o"])
        .arg(&library)
        .output()
        .expect("cc, which links Rust's programs too");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    library
}

fn layer_norm(folder: &Path, name: &str, options: &[&str]) -> PathBuf {
    let source = Path::new(HERE).join("examples/layer_norm.c");
    compiled(folder, name, &source, options)
}

fn verify(library: &Path) -> Output {
    Command::new(env!("CARGO_BIN_EXE_retrograd"))
        .args(["verify", "--library"])
        .arg(library)
        .output()
        .unwrap()
}

fn text(output: &Output) -> String {
    format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
}

#[test]
fn the_example_in_c_passes_at_every_size() {
    let folder = tempfile::tempdir().unwrap();
    let output = verify(&layer_norm(folder.path(), "right", &[]));
    let told = text(&output);
    assert_eq!(output.status.code(), Some(0), "{told}");
    for part in [
        "layer norm [5, 7]",
        "layer norm [33, 65]",
        "1 differences",
        "3 cpu f32",
        "5 reuse",
    ] {
        assert!(told.contains(part), "{part}: {told}");
    }
}

#[test]
fn mistakes_in_c_are_found_with_their_tensor() {
    let folder = tempfile::tempdir().unwrap();
    for (mistake, tensor) in [("1", "x"), ("2", "w"), ("3", "all"), ("4", "x")] {
        let option = format!("-DMISTAKE={mistake}");
        let output = verify(&layer_norm(folder.path(), mistake, &[&option]));
        let told = text(&output);
        assert_eq!(output.status.code(), Some(1), "{mistake}: {told}");
        let accused = |line: &str| line.contains("FAIL") && line.contains(&format!("]  {tensor} "));
        assert!(told.lines().any(accused), "{mistake}: {told}");
    }
}

#[test]
fn without_a_reference_a_missing_term_is_found_by_differences() {
    let folder = tempfile::tempdir().unwrap();
    let options = ["-DWITHOUT_REFERENCE", "-DMISTAKE=1"];
    let output = verify(&layer_norm(folder.path(), "rough", &options));
    let told = text(&output);
    assert_eq!(output.status.code(), Some(1), "{told}");
    let accused = |line: &str| line.contains("FAIL") && line.contains("1 differences");
    assert!(told.lines().any(accused), "{told}");
    assert!(told.contains("give a reference"), "{told}");
}

#[test]
fn what_is_no_library_says_what_it_needs() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("text.so");
    std::fs::write(&file, "text").unwrap();
    let output = verify(&file);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output).contains("not a library"), "{}", text(&output));
    let output = verify(&folder.path().join("missing.so"));
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output).contains("missing.so"), "{}", text(&output));

    let empty = folder.path().join("empty.c");
    std::fs::write(&empty, "int nothing(void) { return 0; }\n").unwrap();
    let output = verify(&compiled(folder.path(), "empty", &empty, &[]));
    assert_eq!(output.status.code(), Some(2));
    assert!(
        text(&output).contains("retrograd_functions"),
        "{}",
        text(&output)
    );

    let other = folder.path().join("other.c");
    let program = "#include \"retrograd.h\"\n\
        static const retrograd_function f = {.protocol = 99};\n\
        const retrograd_function *retrograd_functions(size_t i) { return i ? NULL : &f; }\n";
    std::fs::write(&other, program).unwrap();
    let output = verify(&compiled(folder.path(), "other", &other, &[]));
    assert_eq!(output.status.code(), Some(2));
    assert!(
        text(&output).contains("protocol: got 99, needs 1"),
        "{}",
        text(&output)
    );
}
