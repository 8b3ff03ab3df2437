//! Mutants by machine: `mutate make FOLDER` copies the project and rewrites kernels, optimizers, losses,
//! the loop and the data's code so that each of thousands of single changes is chosen at run time by its
//! number, in `RETROGRAD_MUTANT`; `mutate run FOLDER` starts a process for each and writes what caught it.
//!
//! One build serves all of them. What a change is: [`rewrite`]; how one is judged: [`campaign`].

mod campaign;
mod make;
mod rewrite;

use std::path::PathBuf;
use std::process::ExitCode;

const USAGE: &str = "\
mutate make FOLDER              copies the project to FOLDER with every mutant in it, and builds it
mutate run FOLDER [--draw N] [--seed S] [--seconds T] [--verify WORDS] [--tests]
                                judges the mutants that have no verdict yet, or N drawn ones
mutate table FOLDER             the table by file, from what has been judged

The project is the one that this source lies in. FOLDER is created; CARGO_TARGET_DIR is respected.";

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let outcome = match (words.first().map(String::as_str), words.get(1)) {
        (Some("make"), Some(folder)) => make::make(&PathBuf::from(folder)),
        (Some("run"), Some(folder)) => campaign::Options::read(&words[2..])
            .and_then(|o| campaign::run(&PathBuf::from(folder), &o)),
        (Some("table"), Some(folder)) => campaign::print_table(&PathBuf::from(folder)),
        _ => Err(USAGE.to_string()),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("{why}");
            ExitCode::from(2)
        }
    }
}
