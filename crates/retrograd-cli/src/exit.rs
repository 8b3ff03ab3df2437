//! Exit codes and the printing of errors, in one place.
//!
//! | code | meaning |
//! |---|---|
//! | 0 | done |
//! | 1 | a check failed (`verify`, `check`, `reproduce`, or the verification at the end of `train`) |
//! | 2 | bad input, or anything else that went wrong |
//! | 3 | `reproduce`: the same bits can't be expected, and the command has said why |
//! | 130 | stopped by Ctrl-C or SIGTERM, the state saved |
//! | 141 | what read standard output has closed it |

use std::ffi::OsString;

use crate::{log, processes};

/// How a command ended that did what it was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// All is well.
    Done,
    /// What was checked is not right. The command has said what.
    CheckFailed,
    /// What should be compared can't be expected to be the same. The command has said why.
    NotComparable,
}

/// The result of a command.
pub type Result<T = Outcome> = anyhow::Result<T>;

/// Characters of an error that are printed.
const MAX_MESSAGE: usize = 6000;

/// Prints the error, if any, and chooses the exit code.
pub fn report(result: Result) -> u8 {
    let error = match result {
        Ok(Outcome::Done) => return 0,
        Ok(Outcome::CheckFailed) => return 1,
        Ok(Outcome::NotComparable) => return 3,
        Err(error) => error,
    };
    let (text, code) = match error.downcast_ref() {
        Some(retrograd::Error::Interrupted { .. }) => (error.to_string(), 130),
        _ => (format!("{error:#}"), 2),
    };
    log::error(&retrograd::command::shortened(&text, MAX_MESSAGE), code);
    code
}

/// A command line that isn't understood, or one that asks for help.
pub fn usage(error: &clap::Error, args: &[OsString]) -> u8 {
    // The style is what could not be read; the word alone must do.
    let json = args.iter().any(|a| a == "json" || a == "--log-format=json");
    if error.use_stderr() && json {
        log::install(log::Style {
            json: true,
            quiet: false,
        });
        let text = error.to_string();
        let text = text.strip_prefix("error: ").unwrap_or(&text);
        log::error(text.trim_end(), 2);
        return 2;
    }
    // Nothing can be done where even this cannot be written.
    let _ = error.print();
    u8::try_from(error.exit_code()).unwrap_or(2)
}

/// `retrograd train --list | head -1`: a reader that has enough is no fault of ours. Without this
/// the printing would panic; where a disk is full, too, which is an error like another. And a panic that
/// the library catches becomes an error, which says it.
pub fn end_quietly_with_the_reader() {
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        // What a formatted panic leaves; the standard library's own are formatted.
        let text = info.payload().downcast_ref::<String>();
        let text = text.map_or("", String::as_str);
        if let Some(problem) = text.strip_prefix("failed printing to std") {
            if problem.contains("Broken pipe") {
                std::process::exit(141);
            }
            log::error(&format!("cannot write to std{problem}"), 2);
            std::process::exit(2);
        }
        if !retrograd::command::panic_is_caught() {
            usual(info);
            processes::abandon();
        }
    }));
}
