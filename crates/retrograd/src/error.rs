//! The one error type: what, where, what it got and what it needs.

use std::path::{Path, PathBuf};

/// The result of everything here that can fail.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What can go wrong. Every message names the thing, what it got and what it needs.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A value, a shape or an option that doesn't fit.
    #[error("{what}: got {got}, needs {needed}")]
    Invalid {
        /// The thing that doesn't fit, as the user named it (`layers[3].kernel`, `column "age"`).
        what: String,
        /// What was given.
        got: String,
        /// What would be accepted.
        needed: String,
    },
    /// A file whose content is not what its format or its use demands.
    #[error("{}: {at}: {problem}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Where in it: a byte, a line, a field.
        at: String,
        /// What is wrong, with what was got and what is needed.
        problem: String,
    },
    /// What was asked for can't be done.
    #[error("{what}: {problem}")]
    Refused {
        /// The thing that it was asked of: an option, a file.
        what: String,
        /// Why, and what can be done instead.
        problem: String,
    },
    /// The operating system refused.
    #[error("{}: cannot {action}: {source}", path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// What was tried: "read", "write", "create".
        action: &'static str,
        /// The system's own error.
        source: std::io::Error,
    },
    /// A number that is not finite turned up in training.
    #[error("step {step}: {tensor} is not finite ({value}); {advice}")]
    NotFinite {
        /// The optimizer step, counted from 0.
        step: u64,
        /// The loss, or the tensor whose gradient it is.
        tensor: String,
        /// NaN or an infinity.
        value: f64,
        /// What to try.
        advice: String,
    },
    /// The GPU, its driver or its limits.
    #[error("GPU: {what}; {advice}")]
    Gpu {
        /// What happened.
        what: String,
        /// What to try.
        advice: String,
    },
    /// The user asked to stop (Ctrl-C); the state was saved first.
    #[error("stopped at step {step}; the state is saved")]
    Interrupted {
        /// Steps done.
        step: u64,
    },
}

impl Error {
    /// A value, shape or option that doesn't fit.
    pub fn invalid(
        what: impl Into<String>,
        got: impl std::fmt::Display,
        needed: impl std::fmt::Display,
    ) -> Self {
        Error::Invalid {
            what: what.into(),
            got: got.to_string(),
            needed: needed.to_string(),
        }
    }

    /// Something that can't be done, and why.
    pub fn refused(what: impl std::fmt::Display, problem: impl std::fmt::Display) -> Self {
        Error::Refused {
            what: what.to_string(),
            problem: problem.to_string(),
        }
    }

    /// A file whose content is wrong at a place.
    pub fn file(
        path: impl AsRef<Path>,
        at: impl std::fmt::Display,
        problem: impl std::fmt::Display,
    ) -> Self {
        Error::File {
            path: path.as_ref().to_path_buf(),
            at: at.to_string(),
            problem: problem.to_string(),
        }
    }

    /// For `map_err` on an operation on a file or a folder: `.map_err(Error::io(path, "read"))`.
    pub fn io(path: impl AsRef<Path>, action: &'static str) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.as_ref().to_path_buf();
        move |source| Error::Io {
            path,
            action,
            source,
        }
    }
}
