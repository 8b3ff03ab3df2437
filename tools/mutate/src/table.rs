//! The table by file.

use std::collections::BTreeMap;
use std::path::Path;

use crate::list::{self, Made};

/// What became of a mutant, in the order of the columns.
const VERDICTS: [&str; 7] = [
    "verify",
    "deep",
    "panic",
    "hang",
    "tests",
    "equivalent",
    "survived",
];

/// Of everything that was made.
pub fn print(folder: &Path) -> Result<bool, String> {
    Ok(print_of(folder, &list::made(folder)?)? == 0)
}

/// By file: made, judged, and what became of them; then those that survived, whose number is returned.
pub fn print_of(folder: &Path, mutants: &[Made]) -> Result<usize, String> {
    let (judged, equivalent) = (list::verdicts(folder), list::equivalent()?);
    let counts = list::counts(folder)?;
    let mut by_file: BTreeMap<&str, [usize; 9]> = BTreeMap::new();
    let mut total = [0; 9];
    let mut survivors = Vec::new();
    for mutant in mutants {
        let row = by_file.entry(&mutant.file).or_default();
        let verdict = judged
            .get(&mutant.key)
            .map(|(verdict, _)| match verdict.as_str() {
                "survived" | "unreached" if equivalent.contains_key(&mutant.key) => "equivalent",
                "unreached" => "survived",
                other => other,
            });
        if verdict == Some("survived") {
            survivors.push(mutant);
        }
        let column = verdict.and_then(|v| VERDICTS.iter().position(|w| *w == v));
        for counts in [&mut *row, &mut total] {
            counts[1] += usize::from(column.is_some());
            if let Some(column) = column {
                counts[2 + column] += 1;
            }
        }
    }
    for (file, row) in &mut by_file {
        row[0] = counts.get(*file).copied().unwrap_or(0);
    }
    total[0] = counts.values().sum();
    println!("| file | made | judged | {} |", VERDICTS.join(" | "));
    println!("|---|{}", "--:|".repeat(9));
    let line = |name: &str, row: &[usize; 9]| {
        let cells: Vec<String> = row.iter().map(usize::to_string).collect();
        println!("| {name} | {} |", cells.join(" | "));
    };
    for (file, row) in by_file.iter().filter(|(_, row)| row[1] > 0) {
        line(file, row);
    }
    line("all", &total);
    for mutant in &survivors {
        println!(
            "survived: {} (number {}, line {}, {})",
            mutant.key, mutant.number, mutant.line, mutant.kind
        );
    }
    Ok(survivors.len())
}
