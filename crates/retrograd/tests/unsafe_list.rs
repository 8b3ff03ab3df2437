//! docs/reliability.md is true to the source: `unsafe` is where it lists it, with its argument and its test,
//! and nowhere else; the tests that it names are there, and the fuzzer's targets are in its table.

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

/// Where code of ours is; folders that are built into are not below them.
const FOLDERS: [&str; 4] = ["crates", "fuzz/src", "tools", "web/engine/src"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn document() -> String {
    std::fs::read_to_string(root().join("docs/reliability.md")).expect("the document")
}

fn all_sources() -> Vec<PathBuf> {
    let mut files = Vec::new();
    for folder in FOLDERS {
        sources(&root().join(folder), &mut files);
    }
    files.retain(|file| !file.components().any(|part| part.as_os_str() == "target"));
    assert!(files.len() > 100, "{} files", files.len());
    files
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
    let (root, text) = (root(), document());
    let mut listed = BTreeMap::new();
    let of_a_file = |line: &&str| {
        FOLDERS
            .iter()
            .any(|f| line.starts_with(&format!("| `{f}/")))
    };
    for line in text.lines().filter(of_a_file) {
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        let [file, number, why, test] = cells[..] else {
            panic!("four columns: {line}");
        };
        assert!(!why.is_empty() && !test.is_empty(), "{line}");
        let number: usize = number.parse().expect("a number");
        listed.insert(file.trim_matches('`').to_string(), number);
    }
    let mut found = BTreeMap::new();
    for file in all_sources() {
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

/// The cells of a table's last column, below a heading.
fn last_cells<'a>(text: &'a str, heading: &str) -> Vec<&'a str> {
    let (_, section) = text.split_once(heading).expect("the heading");
    let section = section.split("\n## ").next().unwrap_or_default();
    let rows = section.lines().filter(|l| l.starts_with("| "));
    let cells = rows.map(|row| row.trim_matches('|').rsplit('|').next().unwrap_or_default());
    cells.skip(1).collect()
}

#[test]
fn the_tests_that_the_documentation_names_are_there() {
    let text = document();
    let mut tests = String::new();
    for file in all_sources() {
        let source = std::fs::read_to_string(&file).expect("a source");
        let lines: Vec<&str> = source.lines().map(str::trim).collect();
        for (i, line) in lines.iter().enumerate() {
            let before = &lines[i.saturating_sub(3)..i];
            if line.starts_with("fn ") && before.contains(&"#[test]") {
                tests += &format!("{line}\n");
            }
        }
    }
    let cells = last_cells(&text, "\n## What once went wrong\n");
    assert!(cells.len() > 20, "{} rows", cells.len());
    for cell in cells {
        let names: Vec<&str> = cell.split('`').skip(1).step_by(2).collect();
        assert!(!names.is_empty(), "{cell}");
        for name in names {
            assert!(tests.contains(&format!("fn {name}(")), "no test {name}");
        }
    }
}

#[test]
fn every_target_of_the_fuzzer_has_a_row_with_its_figures() {
    let targets = std::fs::read_to_string(root().join("fuzz/src/targets.rs")).expect("a source");
    let (_, list) = targets.split_once("TARGETS:").expect("the list");
    let (list, _) = list.split_once("];").expect("its end");
    let names: Vec<&str> = list.split('"').skip(1).step_by(2).collect();
    assert!(names.len() > 20, "{names:?}");
    let text = document();
    for name in names {
        let row = format!("| `{name}` | ");
        let row = text.lines().find(|line| line.starts_with(&row));
        let row = row.unwrap_or_else(|| panic!("no row for {name}"));
        let number = row
            .split('|')
            .nth(2)
            .expect("a cell")
            .replace([',', ' '], "");
        let number: u64 = number.parse().expect("executions");
        assert!(number > 0, "{row}");
    }
}
