//! Mutants by machine: `mutate make FOLDER` copies the project and rewrites kernels, optimizers, losses,
//! the loop and the data's code so that each of thousands of single changes is chosen at run time by its
//! number, in `RETROGRAD_MUTANT`; `mutate run FOLDER` starts a process for each and writes what caught it.
//!
//! One build serves all of them. What a change is: [`rewrite`]; what reaches it: [`reach`]; how it is
//! judged: [`campaign`].

mod build;
mod campaign;
mod child;
mod list;
mod make;
mod reach;
mod rewrite;
mod table;
mod words;

use std::path::PathBuf;
use std::process::ExitCode;

const USAGE: &str = "\
mutate make FOLDER [--draw N] [--seed S]
                                copies the project to FOLDER with every mutant in it, or N drawn ones, and builds it
mutate run FOLDER [--file PATH] [--deep] [--tests] [--again] [--one NUMBER] [--allow N]
                                judges the mutants that have no verdict yet by `retrograd verify`, then its
                                --deep, then the tests that reach the change; --again judges those that
                                survived; --one judges a single one
mutate table FOLDER             the table by file, from what has been judged, and what survived

The project is the one that this source lies in. FOLDER is created; CARGO_TARGET_DIR is respected.
Exit code 1: more than N (0) survived that tools/mutate/equivalent.toml does not list.";

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let outcome = match (words.first().map(String::as_str), words.get(1)) {
        (Some("make"), Some(folder)) => {
            drawn(&words[2..]).and_then(|d| make::make(&PathBuf::from(folder), &d).map(|()| true))
        }
        (Some("run"), Some(folder)) => campaign::Options::read(&words[2..])
            .and_then(|o| campaign::run(&PathBuf::from(folder), &o)),
        (Some("table"), Some(folder)) => table::print(&PathBuf::from(folder)),
        _ => Err(USAGE.to_string()),
    };
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(why) => {
            eprintln!("{why}");
            ExitCode::from(2)
        }
    }
}

fn drawn(words: &[String]) -> Result<make::Drawn, String> {
    let mut drawn = make::Drawn {
        count: usize::MAX,
        seed: 1,
    };
    for pair in words.chunks(2) {
        let number = pair.get(1).and_then(|n| n.parse::<u64>().ok());
        match (pair[0].as_str(), number) {
            ("--draw", Some(n)) => drawn.count = n as usize,
            ("--seed", Some(n)) => drawn.seed = n,
            (word, _) => return Err(format!("make: got {word:?}, needs --draw N or --seed S")),
        }
    }
    Ok(drawn)
}
