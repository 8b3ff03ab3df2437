//! What `retrograd verify --device gpu --precision mixed` can't check is a list in docs/verification.md, with
//! reasons. Without `RETROGRAD_FULL` models alone are checked, not their sizes.
#![cfg(feature = "gpu")]

use std::collections::BTreeSet;
use std::path::Path;

use retrograd::gpu::Precision;
use retrograd::verify::sizes::{self, Draw};
use retrograd::verify::{self, On, Options, Report, Verdict};

/// Model, row, and what becomes of it.
type Names = BTreeSet<(String, String, &'static str)>;

/// Models and rows of the table under that heading.
fn listed() -> Names {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/verification.md");
    let text = std::fs::read_to_string(path).unwrap();
    let section = text
        .split_once("### Unchecked in mixed precision")
        .unwrap()
        .1;
    let section = section.split("\n#").next().unwrap();
    let mut names = BTreeSet::new();
    let rows = section.lines().filter(|line| line.starts_with("| `"));
    for line in rows {
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        let [model, rows, verdict, because] = cells[..] else {
            panic!("{line}");
        };
        assert!(because.len() > 20, "{line}");
        // A row that fails has no place there.
        assert_eq!(verdict, "unchecked", "{line}");
        for row in rows.split(';') {
            names.insert((
                model.trim_matches('`').into(),
                row.trim().into(),
                "unchecked",
            ));
        }
    }
    names
}

fn is_size(model: &str) -> bool {
    model.starts_with("sizes: ")
}

#[test]
fn what_mixed_precision_leaves_unchecked_is_listed() {
    let is_full = std::env::var_os("RETROGRAD_FULL").is_some();
    let on = On::Gpu(Precision::Mixed);
    let options = Options {
        on,
        ..Options::default()
    };
    let mut report = Report::default();
    // Side by side on one adapter, which also shows whether they disturb each other.
    let models = verify::built_in();
    report.extend(verify::builtin::all(&models, |model| model.check(&options)).unwrap());
    if is_full {
        let stretched = sizes::all().into_iter().filter(|s| s.is_model());
        for stretch in stretched {
            report.extend(sizes::check(&stretch, Draw::Plain, &options));
        }
    }
    let rows = report.rows.iter().filter_map(|row| {
        let verdict = match row.verdict {
            Verdict::Pass => return None,
            Verdict::Fail => "fail",
            Verdict::Unchecked => "unchecked",
        };
        Some((row.model.clone(), row.tensor.clone(), verdict))
    });
    let found: Names = rows.collect();
    let mut listed = listed();
    listed.retain(|(model, ..)| is_full || !is_size(model));
    let new: Vec<_> = found.difference(&listed).collect();
    let gone: Vec<_> = listed.difference(&found).collect();
    assert!(new.is_empty(), "not checked, and not listed: {new:#?}");
    assert!(gone.is_empty(), "listed, and checked: {gone:#?}");
}
