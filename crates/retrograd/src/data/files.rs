//! Reading whole files with errors that name the byte.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use super::sources;
use crate::{Error, Result, budget};

/// The whole of a file.
pub(crate) fn read(path: &Path) -> Result<Vec<u8>> {
    sources::note(path);
    crate::disk::read(path)
}

/// All of standard input, as far as a quarter of the memory that is free.
pub(crate) fn read_stdin() -> Result<Vec<u8>> {
    let most = budget::free() / 4;
    let mut bytes = Vec::new();
    let limited = std::io::stdin().lock().take(most.saturating_add(1));
    read_into(limited, &mut bytes).map_err(Error::io(Path::new("standard input"), "read"))?;
    if bytes.len() as u64 > most {
        let problem = format!("goes on after {most} bytes, more than memory is kept for");
        return Err(Error::refused("standard input", problem));
    }
    Ok(bytes)
}

/// The whole of a file. A device is refused: it may have no end. What else doesn't say how long it
/// is (a named pipe) is read as far as a quarter of the memory that is free.
pub(crate) fn read_bounded(path: &Path) -> Result<Vec<u8>> {
    sources::note(path);
    let file = File::open(path).map_err(Error::io(path, "read"))?;
    let about = file.metadata().map_err(Error::io(path, "read"))?;
    if is_device(&about) {
        return Err(Error::refused(
            path.display(),
            "is a device, which may have no end; needs a file",
        ));
    }
    let most = match about.is_file() && about.len() > 0 {
        true => {
            budget::allow_file(path, about.len())?;
            about.len()
        }
        false => budget::free() / 4,
    };
    let mut bytes = Vec::new();
    let length = if about.is_file() { about.len() } else { 0 };
    let told = usize::try_from(length).unwrap_or(usize::MAX);
    bytes.try_reserve_exact(told).map_err(|_| {
        let problem = format!("there is no memory for its {length} bytes");
        Error::refused(path.display(), problem)
    })?;
    // One byte more shows that there is more.
    let limited = (&file).take(most.saturating_add(1));
    read_into(limited, &mut bytes).map_err(Error::io(path, "read"))?;
    if bytes.len() as u64 > most {
        let problem = match about.is_file() {
            true => "grew while it was read; needs a file at rest".to_string(),
            false => format!("goes on after {most} bytes, more than memory is kept for"),
        };
        return Err(Error::refused(path.display(), problem));
    }
    Ok(bytes)
}

/// Appends all that is left; where memory ends, that is an error like another.
fn read_into(mut from: impl Read, bytes: &mut Vec<u8>) -> std::io::Result<()> {
    const PIECE: usize = 1 << 16;
    loop {
        let have = bytes.len();
        if bytes.capacity() - have < PIECE && bytes.try_reserve(PIECE).is_err() {
            return Err(std::io::ErrorKind::OutOfMemory.into());
        }
        match from.by_ref().take(PIECE as u64).read_to_end(bytes)? {
            0 => return Ok(()),
            _ => continue,
        }
    }
}

#[cfg(unix)]
fn is_device(about: &std::fs::Metadata) -> bool {
    use std::os::unix::fs::FileTypeExt;
    about.file_type().is_char_device() || about.file_type().is_block_device()
}

#[cfg(not(unix))]
fn is_device(_: &std::fs::Metadata) -> bool {
    false
}

/// The whole of a text.
pub(crate) fn read_text(path: &Path) -> Result<String> {
    String::from_utf8(read(path)?).map_err(|e| {
        let at = e.utf8_error().valid_up_to();
        let byte = e.as_bytes()[at];
        let problem = format!("got the byte {byte:#04x}, needs UTF-8 text");
        Error::file(path, format!("byte {at}"), problem)
    })
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

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(unix)]
    #[test]
    fn devices_are_refused_and_pipes_are_read_to_their_end() {
        let error = read(Path::new("/dev/zero")).unwrap_err().to_string();
        assert!(error.contains("is a device"), "{error}");
        // Says that it has no bytes, and has some.
        assert!(read(Path::new("/dev/null")).is_err());
        if cfg!(target_os = "linux") {
            assert!(!read(Path::new("/proc/self/status")).unwrap().is_empty());
        }
        let mut bytes = vec![1];
        read_into(&[7_u8; 200_000][..], &mut bytes).unwrap();
        assert_eq!((bytes.len(), bytes[200_000]), (200_001, 7));
    }
}
