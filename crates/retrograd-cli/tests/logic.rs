//! Automata as a user trains, plays and exports them.

mod common;

use std::path::Path;

use common::run;
use serde_json::Value;

/// Trains a ready experiment into `RUN` and returns its summary.
fn train(folder: &Path, arguments: &[&str]) -> Value {
    let all = [&["train"], arguments, &["--out", "RUN"]].concat();
    let (code, out, err) = run(folder, &all);
    assert_eq!(code, 0, "{arguments:?}\n{out}{err}");
    let text = std::fs::read_to_string(folder.join("RUN/summary.json")).unwrap();
    serde_json::from_str(&text).unwrap()
}

/// Whether tests that train for minutes run too.
fn full() -> bool {
    std::env::var_os("RETROGRAD_FULL").is_some()
}

#[test]
fn life_is_learned_from_nine_cells_and_right_everywhere() {
    let folder = tempfile::tempdir().unwrap();
    let summary = train(folder.path(), &["life"]);
    assert_eq!(summary["boards_right"], 512, "{summary}");
    assert_eq!(summary["life_wrong_cells_128x128x300"], 0, "{summary}");
    assert_eq!(summary["hard_loss"], 0, "{summary}");
}

/// The column of `metrics.csv`, with the epochs.
fn column(run: &Path, name: &str) -> Vec<(u64, f64)> {
    let text = std::fs::read_to_string(run.join("metrics.csv")).unwrap();
    let mut lines = text.lines().map(|line| line.split(',').collect::<Vec<_>>());
    let header = lines.next().unwrap();
    let place = header.iter().position(|h| *h == name).unwrap();
    lines
        .map(|cells| (cells[0].parse().unwrap(), cells[place].parse().unwrap()))
        .collect()
}

#[test]
fn the_epoch_with_the_fewest_wrong_cells_is_the_one_that_is_kept() {
    let folder = tempfile::tempdir().unwrap();
    let summary = train(folder.path(), &["lizard", "--small", "--epochs", "240"]);
    let run_folder = folder.path().join("RUN");
    let hard = column(&run_folder, "hard_loss");
    let (epoch, fewest) = hard
        .iter()
        .copied()
        .min_by(|a, b| a.1.total_cmp(&b.1))
        .unwrap();
    assert_eq!(summary["best_epoch"], epoch, "{summary}");
    // Measured again with the parameters that were kept, not copied from the table.
    assert_eq!(summary["hard_loss"], fewest as u64, "{summary}");
    let soft = column(&run_folder, "train_loss");
    let kept = soft.iter().find(|(e, _)| *e == epoch).unwrap().1;
    assert_eq!(summary["soft_loss"], kept);
    let first = hard.iter().find(|(_, wrong)| *wrong == 0.0);
    assert_eq!(summary["first_perfect_epoch"].as_u64(), first.map(|f| f.0));

    // What is left of the run can be played and exported.
    let (code, out, err) = run(folder.path(), &["run", "RUN", "--gif", "grow.gif"]);
    assert_eq!(code, 0, "{out}{err}");
    let gif = std::fs::read(folder.path().join("grow.gif")).unwrap();
    assert!(gif.starts_with(b"GIF89a"));
    for file in ["circuit.json", "circuit.c", "circuit.v"] {
        let (code, out, err) = run(folder.path(), &["export", "RUN", "--out", file]);
        assert_eq!(code, 0, "{file}\n{out}{err}");
        let exported = std::fs::read(folder.path().join(file)).unwrap();
        assert_eq!(exported, std::fs::read(run_folder.join(file)).unwrap());
    }
    for bad in [
        &["run", "RUN", "--size", "0x5"][..],
        &["run", "RUN", "--damage", "1,2,3"],
        &["export", "RUN", "--out", "circuit.pdf"],
    ] {
        let (code, _, err) = run(folder.path(), bad);
        assert_ne!(code, 0, "{bad:?}");
        assert!(err.contains("needs"), "{bad:?}: {err}");
    }
}

#[test]
fn the_small_variants_learn_what_they_show() {
    let folder = tempfile::tempdir().unwrap();
    for (name, figures) in [
        ("checkerboard", &["hard_loss", "cells_wrong_at_64"][..]),
        ("checkerboard-async", &["hard_loss", "cells_wrong_healed"]),
        ("lizard", &["hard_loss"]),
        ("colored-g", &["hard_loss"]),
        ("life", &["hard_loss", "life_wrong_cells_128x128x300"]),
    ] {
        let summary = train(folder.path(), &[name, "--small", "--no-verify"]);
        for figure in figures {
            assert_eq!(summary[figure], 0, "{name}: {summary}");
        }
        std::fs::remove_dir_all(folder.path().join("RUN")).unwrap();
    }
}

#[test]
fn the_patterns_are_learned_to_the_last_cell() {
    if !full() {
        return; // Minutes: with ./test --full.
    }
    let folder = tempfile::tempdir().unwrap();
    let wrong = |name: &str, figures: &[&str]| {
        let summary = train(folder.path(), &[name]);
        for figure in figures {
            assert_eq!(summary[figure], 0, "{name}: {summary}");
        }
        std::fs::remove_dir_all(folder.path().join("RUN")).unwrap();
    };
    wrong(
        "checkerboard",
        &["hard_loss", "cells_wrong_at_64", "cells_wrong_healed"],
    );
    wrong("checkerboard-async", &["cells_wrong_healed"]);
    wrong("colored-g", &["hard_loss"]);
    wrong("lizard", &["hard_loss"]);
}
