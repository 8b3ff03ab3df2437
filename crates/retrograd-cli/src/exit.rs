//! Exit codes and the printing of errors, in one place.
//!
//! | code | meaning |
//! |---|---|
//! | 0 | done |
//! | 1 | a check failed (`verify`) |
//! | 2 | bad input, or anything else that went wrong |
//! | 130 | stopped by Ctrl-C, the state saved |

use std::process::ExitCode;

/// How a command ended that did what it was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// All is well.
    Done,
    /// What was checked is not right. The command has said what.
    CheckFailed,
}

/// The result of a command.
pub type Result<T = Outcome> = anyhow::Result<T>;

/// Prints the error, if any, and chooses the exit code.
pub fn report(result: Result) -> ExitCode {
    let error = match result {
        Ok(Outcome::Done) => return ExitCode::SUCCESS,
        Ok(Outcome::CheckFailed) => return ExitCode::from(1),
        Err(error) => error,
    };
    if let Some(retrograd::Error::Interrupted { .. }) = error.downcast_ref() {
        eprintln!("{error}");
        return ExitCode::from(130);
    }
    eprintln!("error: {error:#}");
    ExitCode::from(2)
}
