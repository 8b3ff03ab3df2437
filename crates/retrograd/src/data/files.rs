//! Reading whole files with errors that name the byte.

use std::path::Path;

use crate::{Error, Result};

/// The whole of a file.
pub(crate) fn read(path: &Path) -> Result<Vec<u8>> {
    crate::disk::read(path)
}

/// A position in a file that is held in memory; what isn't there is an error that names the byte.
pub(crate) struct Cursor<'a> {
    path: &'a Path,
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Cursor<'a> {
    pub fn new(path: &'a Path, bytes: &'a [u8]) -> Self {
        Cursor { path, bytes, at: 0 }
    }

    /// The file, for messages.
    pub fn path(&self) -> &'a Path {
        self.path
    }

    /// The byte reached.
    pub fn at(&self) -> usize {
        self.at
    }

    /// The next `n` bytes, which are `what`.
    pub fn take(&mut self, n: usize, what: &str) -> Result<&'a [u8]> {
        let left = self.bytes.len() - self.at;
        if n > left {
            return Err(Error::file(
                self.path,
                format!("byte {}", self.at),
                format!("the file ends too early: {what} needs {n} bytes, {left} are left"),
            ));
        }
        self.at += n;
        Ok(&self.bytes[self.at - n..self.at])
    }

    /// The next `N` bytes.
    pub fn array<const N: usize>(&mut self, what: &str) -> Result<[u8; N]> {
        Ok(self.take(N, what)?.try_into().expect("N bytes"))
    }

    /// That nothing is left.
    pub fn end(&self, what: &str) -> Result<()> {
        match self.bytes.len() - self.at {
            0 => Ok(()),
            left => Err(Error::file(
                self.path,
                format!("byte {}", self.at),
                format!("{left} bytes follow {what}, which should end the file"),
            )),
        }
    }
}

/// The suggestion for a name in a user's file, or nothing. Long cells are no misspelt names, and
/// the comparison takes quadratic time.
pub(crate) fn did_you_mean<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    const LONGEST: usize = 64;
    if name.len() > LONGEST {
        return String::new();
    }
    let known = known.into_iter().filter(|k| k.len() <= LONGEST);
    crate::suggest::did_you_mean(name, known)
}

/// At most 20 names, quoted, for a message.
pub(crate) fn list<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    const SHOWN: usize = 20;
    let mut names = names.into_iter();
    let shown: Vec<String> = names.by_ref().take(SHOWN).map(quote).collect();
    let more = names.count();
    let shown = shown.join(", ");
    if more > 0 {
        format!("{shown} and {more} more")
    } else {
        shown
    }
}

/// A text of a user's file in a message: quoted, and cut where it is long.
pub(crate) fn quote(text: &str) -> String {
    const SHOWN: usize = 60;
    match text.char_indices().nth(SHOWN) {
        None => format!("{text:?}"),
        Some((end, _)) => format!("{:?}…", &text[..end]),
    }
}
