//! Reading whole files with errors that name the byte, and writing them whole or not at all.

use std::io::Write;
use std::path::Path;

use crate::{Error, Result};

/// The whole of a file.
pub(crate) fn read(path: &Path) -> Result<Vec<u8>> {
    std::fs::read(path).map_err(Error::io(path, "read"))
}

/// How the names of files begin that were being written when the process was killed.
pub(crate) const UNFINISHED: &str = ".writing-";

/// Writes a file whole or not at all: into a temporary file in the same folder, which then takes
/// the name. A crash or a full disk leaves the old file as it was.
pub fn write_whole(
    path: impl AsRef<Path>,
    content: impl FnOnce(&mut dyn Write) -> std::io::Result<()>,
) -> Result<()> {
    let path = path.as_ref();
    let write = || -> std::io::Result<()> {
        let folder = match path.parent() {
            Some(folder) if !folder.as_os_str().is_empty() => folder,
            _ => Path::new("."),
        };
        let mut file = tempfile::Builder::new()
            .prefix(UNFINISHED)
            .permissions_of(path)
            .tempfile_in(folder)?;
        let mut buffered = std::io::BufWriter::new(file.as_file_mut());
        content(&mut buffered)?;
        buffered.flush()?;
        drop(buffered);
        file.as_file().sync_all()?;
        file.persist(path).map_err(|e| e.error)?;
        // The new name is on the disk once the folder is. Only Unix lets a folder be opened.
        if cfg!(unix) {
            std::fs::File::open(folder)?.sync_all()?;
        }
        Ok(())
    };
    write().map_err(Error::io(path, "write"))
}

/// A temporary file is readable by its owner alone; a user's data file should get what any other
/// new file gets, or keep what the replaced file had.
trait PermissionsOf {
    fn permissions_of(&mut self, path: &Path) -> &mut Self;
}

impl PermissionsOf for tempfile::Builder<'_, '_> {
    fn permissions_of(&mut self, path: &Path) -> &mut Self {
        if let Ok(old) = std::fs::metadata(path) {
            return self.permissions(old.permissions());
        }
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            // The process's umask still applies.
            self.permissions(std::fs::Permissions::from_mode(0o666));
        }
        self
    }
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

    #[test]
    fn a_failed_write_leaves_the_old_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.txt");
        write_whole(&path, |w| w.write_all(b"old")).unwrap();
        let error = write_whole(&path, |w| {
            w.write_all(b"half")?;
            Err(std::io::Error::other("disk full"))
        });
        assert!(error.unwrap_err().to_string().contains("disk full"));
        assert_eq!(std::fs::read(&path).unwrap(), b"old");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}
