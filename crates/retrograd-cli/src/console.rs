//! What a family says, on the terminal.

use std::io::Write as _;
use std::path::Path;
use std::time::Duration;

use retrograd::family::Console;

use crate::log;
use crate::progress::Rows;

/// Results on stdout; notes, warnings and progress as [`log`] writes them.
#[derive(Default)]
pub struct Terminal {
    rows: Option<Rows>,
    /// Lines of the picture that stands there.
    picture: usize,
}

impl Console for Terminal {
    fn line(&mut self, text: &str) {
        println!("{}", log::plain(text));
    }

    fn note(&mut self, text: &str) {
        log::note(text);
    }

    fn warn(&mut self, text: &str) {
        log::warn(text);
    }

    fn rows(&mut self, file: &Path, done: usize, all: usize) {
        let rows = self.rows.get_or_insert_with(|| Rows::new(file, all));
        rows.done(done);
        if done >= all
            && let Some(rows) = self.rows.take()
        {
            rows.finish();
        }
    }

    fn animates(&self) -> bool {
        log::animates()
    }

    fn frame(&mut self, text: &str) {
        let up = match self.picture {
            0 => String::new(),
            lines => format!("\x1b[{lines}A"),
        };
        println!("{up}{text}");
        self.picture = text.lines().count();
        // Nothing can be done where the terminal is gone.
        let _ = std::io::stdout().flush();
        std::thread::sleep(Duration::from_millis(60));
    }
}
