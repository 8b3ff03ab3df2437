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
    #[error("{}: cannot {action}: {error}", path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// What was tried: "read", "write", "create".
        action: &'static str,
        /// The system's own error.
        error: std::io::Error,
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
    /// A process of a group failed, and with it all.
    #[error("rank {rank}: {message}")]
    Process {
        /// Which.
        rank: usize,
        /// Its own error.
        message: String,
    },
    /// The user asked to stop (Ctrl-C); the state was saved first.
    #[error("stopped at step {step}; the state is saved")]
    Interrupted {
        /// Steps done.
        step: u64,
    },
}

/// Characters of what was given, and of a sentence, that a message shows.
const QUOTED: usize = 300;
const SAID: usize = 1200;

/// A text whose middle is left out where it is longer than so many characters: what it begins with
/// says what it is about, and what it ends with what to do.
pub fn shortened(text: &str, limit: usize) -> String {
    // Characters have a byte at least.
    if text.len() <= limit {
        return text.to_string();
    }
    let characters = text.chars().count();
    if characters <= limit {
        return text.to_string();
    }
    let place = |n| text.char_indices().nth(n).map_or(text.len(), |(at, _)| at);
    let (head, tail) = (place(limit * 2 / 3), place(characters - limit / 3));
    let left_out = characters - limit * 2 / 3 - limit / 3;
    format!(
        "{} … ({left_out} characters left out) … {}",
        &text[..head],
        &text[tail..]
    )
}

/// A text with its control characters escaped, line ends and tabs aside, and those that change the
/// direction of what follows: what comes from a file must not steer a terminal.
pub fn plain(text: &str) -> std::borrow::Cow<'_, str> {
    let steers = |c: char| {
        c.is_control() && c != '\n' && c != '\t'
            || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    if !text.contains(steers) {
        return text.into();
    }
    let mut out = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if steers(c) {
            out.extend(c.escape_default());
        } else {
            out.push(c);
        }
    }
    out.into()
}

/// What a device's error begins with where its memory ran out.
pub(crate) const NO_MEMORY: &str = "no memory for";

impl Error {
    /// Whether a device's memory ran out.
    pub(crate) fn is_no_memory(&self) -> bool {
        matches!(self, Error::Gpu { what, .. } if what.starts_with(NO_MEMORY))
    }

    /// A value, shape or option that doesn't fit.
    pub fn invalid(
        what: impl Into<String>,
        got: impl std::fmt::Display,
        needed: impl std::fmt::Display,
    ) -> Self {
        Error::Invalid {
            what: shortened(&what.into(), QUOTED),
            got: shortened(&got.to_string(), QUOTED),
            needed: shortened(&needed.to_string(), SAID),
        }
    }

    /// Something that can't be done, and why.
    pub fn refused(what: impl std::fmt::Display, problem: impl std::fmt::Display) -> Self {
        Error::Refused {
            what: shortened(&what.to_string(), SAID),
            problem: shortened(&problem.to_string(), SAID),
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
            at: shortened(&at.to_string(), QUOTED),
            problem: shortened(&problem.to_string(), SAID),
        }
    }

    /// For `map_err` on an operation on a file or a folder: `.map_err(Error::io(path, "read"))`.
    pub fn io(path: impl AsRef<Path>, action: &'static str) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.as_ref().to_path_buf();
        move |error| Error::Io {
            path,
            action,
            error,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_input_is_shortened_and_what_to_do_stays() {
        let key = "k".repeat(200_000);
        let errors = [
            Error::invalid("a", format!("{key:?}"), "a number"),
            Error::file(
                "a.toml",
                "line 1",
                format!("unknown key {key:?}, needs a number"),
            ),
            Error::file("a.toml", &key, "a number"),
            Error::refused(&key, format!("{key}, needs a number")),
        ];
        for error in errors {
            let message = error.to_string();
            assert!(message.len() < 3000, "{} bytes", message.len());
            assert!(message.ends_with("a number"), "{message}");
            assert!(message.contains("characters left out"), "{message}");
        }
        assert_eq!(shortened("größer", 6), "größer");
        assert_eq!(shortened("äöü", 2), "ä … (2 characters left out) … ");
    }

    #[test]
    fn what_steers_a_terminal_is_escaped() {
        assert_eq!(plain("a\u{1b}[31mb\u{7}"), "a\\u{1b}[31mb\\u{7}");
        assert_eq!(plain("x\u{202e}y\u{9b}2J"), "x\\u{202e}y\\u{9b}2J");
        assert_eq!(plain("two\nlines\tß…"), "two\nlines\tß…");
    }

    #[test]
    fn an_error_of_the_system_is_said_once() {
        let error = Error::io("a.csv", "read")(std::io::Error::other("no such thing"));
        assert_eq!(error.to_string(), "a.csv: cannot read: no such thing");
        assert!(std::error::Error::source(&error).is_none());
    }
}
