//! `unsafe` is where docs/reliability.md lists it, with its argument and its test, and nowhere else.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The Rust files below a folder.
fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|e| e == "rs") {
            found.push(path);
        }
    }
}

/// How often the word stands in code: comments, texts and the lint's own name aside.
fn count(source: &str) -> usize {
    let code = source
        .lines()
        .map(|line| line.split("//").next().unwrap_or_default());
    let words = code.flat_map(|line| {
        let outside_quotes = line.split('"').step_by(2);
        outside_quotes.flat_map(|text| text.split(|c: char| !c.is_alphanumeric() && c != '_'))
    });
    words.filter(|word| *word == "unsafe").count()
}

#[test]
fn unsafe_code_is_where_the_documentation_says_with_reason_and_test() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let text = std::fs::read_to_string(root.join("docs/reliability.md")).expect("the document");
    let mut listed = BTreeMap::new();
    for line in text
        .lines()
        .filter(|l| l.starts_with("| `crates/") || l.starts_with("| `fuzz/"))
    {
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        let [file, number, why, test] = cells[..] else {
            panic!("four columns: {line}");
        };
        assert!(!why.is_empty() && !test.is_empty(), "{line}");
        let number: usize = number.parse().expect("a number");
        listed.insert(file.trim_matches('`').to_string(), number);
    }
    let mut files = Vec::new();
    for folder in ["crates", "fuzz/src"] {
        sources(&root.join(folder), &mut files);
    }
    assert!(files.len() > 100, "{} files", files.len());
    let mut found = BTreeMap::new();
    for file in files {
        let source = std::fs::read_to_string(&file).expect("a source");
        let number = count(&source);
        if number > 0 {
            assert!(source.contains("SAFETY:"), "{}", file.display());
            let name = file.strip_prefix(&root).expect("below the root");
            found.insert(name.to_string_lossy().replace('\\', "/"), number);
        }
    }
    assert_eq!(found, listed, "the source, and docs/reliability.md");
}

#[test]
fn comments_and_texts_do_not_count() {
    assert_eq!(
        count("unsafe { x } // unsafe\nlet s = \"unsafe\"; #[allow(unsafe_code)]"),
        1
    );
    assert_eq!(count("pub unsafe fn f() {} unsafe impl Send for X {}"), 2);
}
