//! What a command says beside its results: notes, progress, warnings and errors, all on stderr.
//! Results go to stdout.
//!
//! With `--log-format json` every line on stderr is an object of its own. All have `event` and
//! `time` (seconds since the command began); numbers that are not finite are `null`:
//!
//! | event | beside them |
//! |---|---|
//! | `note` | `text`: something found out |
//! | `start` | `params`, `step`, `steps`, `steps_per_epoch` |
//! | `step` | `step`, `loss`; at most ten a second |
//! | `epoch` | `epoch`, `step`, `train_loss`, `lr`, `metrics`, `seconds`, `best` |
//! | `picture` | `text`: the state drawn with letters |
//! | `skipped` | `step`, `tensor` that was not finite |
//! | `saved` | `path` of a checkpoint |
//! | `stopped_early` | `best` epoch |
//! | `verified` | `checks`, `passed`, `failed`, `unchecked`, … as in `summary.json` |
//! | `reproduced` | `comparable`, and `same` of how many `compared`, or `why` not |
//! | `done` | `run`, `report`, `summary` of a run that was trained |
//! | `warning`, `error` | `text`; an error also `code`, the exit code |
//!
//! Where `mpirun` or `srun` started several processes, rank 0 speaks, and every object has `rank` and
//! `processes`.

use std::io::{IsTerminal, Write as _};
use std::sync::OnceLock;
use std::time::Instant;

pub use retrograd::command::plain;
use serde_json::{Value, json};

/// How things are said.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Style {
    /// No notes and no progress; warnings, errors and results stay.
    pub quiet: bool,
    /// One JSON object a line.
    pub json: bool,
}

static STYLE: OnceLock<(Style, Instant)> = OnceLock::new();

/// Sets the style.
pub fn install(style: Style) {
    // Fails only where it is set already, and nothing else sets it.
    let _ = STYLE.set((style, Instant::now()));
}

/// The style in use.
pub fn style() -> Style {
    STYLE.get().map_or(Style::default(), |&(style, _)| style)
}

/// Which of how many processes this is.
static PROCESS: OnceLock<(usize, usize)> = OnceLock::new();

/// From here on this process is one of several. Rank 0 speaks for all.
pub fn speak_as(rank: usize, size: usize) {
    let _ = PROCESS.set((rank, size));
}

/// Whether another process speaks.
pub fn silent() -> bool {
    PROCESS.get().is_some_and(|&(rank, _)| rank > 0)
}

/// Whether stderr is a terminal that progress bars can be drawn on.
pub fn draws() -> bool {
    let Style { quiet, json } = style();
    !quiet && !json && !silent() && std::io::stderr().is_terminal() && !is_dumb()
}

/// Whether stdout is a terminal that animations can be drawn on.
pub fn animates() -> bool {
    std::io::stdout().is_terminal() && !is_dumb()
}

fn is_dumb() -> bool {
    std::env::var_os("TERM").is_some_and(|term| term == "dumb")
}

/// Something found out or decided.
pub fn note(text: &str) {
    if style().json {
        event("note", json!({ "text": text }));
    } else if !style().quiet {
        say(&plain(text));
    }
}

/// Something that may be wrong.
pub fn warn(text: &str) {
    if style().json {
        event("warning", json!({ "text": text }));
    } else {
        say(&format!("{} {}", painted("warning:", "33"), plain(text)));
    }
}

/// What ends the command, with its exit code.
pub fn error(text: &str, code: u8) {
    if style().json {
        event("error", json!({ "text": text, "code": code }));
    } else if code == 130 {
        say(&plain(text));
    } else {
        say(&format!("{} {}", painted("error:", "31"), plain(text)));
    }
}

/// A line on stderr. A terminal that is gone is no reason to end what is worth saving.
fn say(line: &str) {
    if silent() {
        return;
    }
    let _ = writeln!(std::io::stderr().lock(), "{line}");
}

/// One JSON line, where that is the style.
pub fn event(name: &str, more: Value) {
    let Some((Style { json: true, .. }, start)) = STYLE.get() else {
        return;
    };
    let time = (start.elapsed().as_secs_f64() * 1e3).round() / 1e3;
    let mut line = json!({ "event": name, "time": time });
    if let (Some(line), Some((rank, size))) = (line.as_object_mut(), PROCESS.get()) {
        line.insert("rank".into(), json!(rank));
        line.insert("processes".into(), json!(size));
    }
    if let (Some(line), Value::Object(more)) = (line.as_object_mut(), more) {
        line.extend(more);
    }
    say(&line.to_string());
}

/// Bold and coloured on a terminal, unless `NO_COLOR` is set.
fn painted(text: &str, colour: &str) -> String {
    let wanted = std::env::var_os("NO_COLOR").is_none_or(|v| v.is_empty());
    if wanted && std::io::stderr().is_terminal() && !is_dumb() {
        format!("\x1b[1;{colour}m{text}\x1b[0m")
    } else {
        text.to_string()
    }
}
