//! The one way to the files of a run: opened, written, synced, renamed, read and removed here.
//!
//! A file is written under another name, synced, renamed, and its folder synced: after a crash or a
//! power cut there is the old file or the new one, whole. What goes through here can be made to fail
//! at any call, and its power be cut after any, in tests (`disk/faults.rs`).

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::{Error, Result};

#[cfg(test)]
pub(crate) mod faults;

/// How the names of files begin that were being written when the process was killed.
pub(crate) const UNFINISHED: &str = ".writing-";

/// What is about to be done to a file.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(not(test), allow(dead_code, reason = "tests look at it"))]
pub(crate) enum Call<'a> {
    MakeFolder(&'a Path),
    RemoveFolder(&'a Path),
    List(&'a Path),
    Create(&'a Path),
    /// Bytes at a place.
    Write(&'a Path, u64, &'a [u8]),
    SyncFile(&'a Path),
    SyncFolder(&'a Path),
    /// What was written gets its name.
    Rename(&'a Path),
    Link(&'a Path, &'a Path),
    Remove(&'a Path),
    Read(&'a Path),
}

#[cfg(test)]
use faults::before;

/// Nothing fails but what the system refuses.
#[cfg(not(test))]
#[inline(always)]
fn before(_: Call<'_>) -> io::Result<()> {
    Ok(())
}

/// Whether syncs reach the disk; where the disk is a simulated one they needn't.
fn syncs() -> bool {
    #[cfg(test)]
    return !faults::simulated();
    #[cfg(not(test))]
    true
}

/// The files that are being written under other names, by all threads.
static WRITING: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

fn writing() -> MutexGuard<'static, Vec<PathBuf>> {
    WRITING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Keeps files from being begun or finished, as long as it lives.
pub struct Halted(#[allow(dead_code, reason = "held")] MutexGuard<'static, Vec<PathBuf>>);

/// Removes what is being written, and lets nothing be begun or finished any more: before the process
/// ends at once, so that it leaves nothing half done behind.
pub fn halt() -> Halted {
    let mut files = writing();
    for file in files.drain(..) {
        // One that cannot be removed is removed when the folder is used next.
        let _ = std::fs::remove_file(file);
    }
    Halted(files)
}

/// The system's error alone, without the passing name, which nobody has heard of.
fn plain(error: io::Error) -> io::Error {
    let text = error.to_string();
    match text.rsplit_once(" at path \"") {
        Some((said, _)) => io::Error::new(error.kind(), said),
        None => error,
    }
}

/// The folder of files that nobody else should see. WASI has none and can't be asked for it; the files of its host
/// are in memory.
pub(crate) fn passing_folder() -> PathBuf {
    match cfg!(target_os = "wasi") {
        true => "/".into(),
        false => std::env::temp_dir(),
    }
}

/// A file without a name, which is gone when it is closed.
pub(crate) fn unnamed_file() -> io::Result<File> {
    tempfile::tempfile_in(passing_folder())
}

/// A file that appears under its name when it is finished, or not at all.
#[derive(Debug)]
pub(crate) struct NewFile {
    /// Gone when it has got its name.
    file: Option<tempfile::NamedTempFile>,
    path: PathBuf,
}

impl NewFile {
    /// Beside its later place, in the same folder.
    pub fn beside(path: &Path) -> io::Result<Self> {
        let mut files = writing();
        before(Call::Create(path))?;
        let mut builder = tempfile::Builder::new();
        builder.prefix(UNFINISHED);
        if let Some(permissions) = permissions_of(path) {
            builder.permissions(permissions);
        }
        let file = builder.tempfile_in(folder_of(path)).map_err(plain)?;
        files.push(file.path().to_path_buf());
        Ok(NewFile {
            file: Some(file),
            path: path.to_path_buf(),
        })
    }

    /// The file itself: errors of the other speak of its passing name.
    fn file(&mut self) -> &mut File {
        self.file
            .as_mut()
            .expect("until it is finished")
            .as_file_mut()
    }

    /// Gives it its name, in place of the file that has it.
    pub fn finish(self) -> io::Result<()> {
        self.finish_keeping(None)
    }

    /// The same; the file that had the name gets another.
    pub fn finish_keeping(mut self, old: Option<&Path>) -> io::Result<()> {
        let file = self.file.take().expect("until it is finished");
        let temporary = file.path().to_path_buf();
        let done = self.put_in_place(file, old);
        forget(&temporary);
        done
    }

    fn put_in_place(&self, file: tempfile::NamedTempFile, old: Option<&Path>) -> io::Result<()> {
        before(Call::SyncFile(&self.path))?;
        if syncs() {
            file.as_file().sync_all()?;
        }
        if let Some(old) = old
            && self.path.try_exists()?
        {
            keep(&self.path, old)?;
        }
        {
            let _others = writing();
            before(Call::Rename(&self.path))?;
            file.persist(&self.path).map_err(|e| e.error)?;
        }
        sync_folder(folder_of(&self.path))
    }
}

impl Drop for NewFile {
    fn drop(&mut self) {
        if let Some(file) = self.file.take() {
            forget(file.path());
        }
    }
}

fn forget(temporary: &Path) {
    writing().retain(|file| file != temporary);
}

impl Write for NewFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        #[cfg(test)]
        {
            let at = self.file().stream_position()?;
            if let Err(error) = before(Call::Write(&self.path, at, bytes)) {
                // As a disk that fills up: a part of it is there.
                self.file().write_all(&bytes[..bytes.len() / 2])?;
                return Err(error);
            }
        }
        self.file().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file().flush()
    }
}

impl Read for NewFile {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        self.file().read(bytes)
    }
}

impl Seek for NewFile {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.file().seek(to)
    }
}

/// Gives a file a second name, in place of the file that has it; where the file system has no such
/// thing, the second instead of the first.
fn keep(path: &Path, old: &Path) -> io::Result<()> {
    let aside = old.with_file_name(format!("{UNFINISHED}previous"));
    match std::fs::remove_file(&aside) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    before(Call::Link(path, old))?;
    if std::fs::hard_link(path, &aside).is_err() {
        return std::fs::rename(path, old);
    }
    std::fs::rename(&aside, old)?;
    // Where both are names of one file, the renaming does nothing at all.
    let _ = std::fs::remove_file(&aside);
    Ok(())
}

/// Writes a file whole or not at all: into a temporary file in the same folder, which then takes
/// the name. A crash or a full disk leaves the old file as it was.
pub fn write_whole(
    path: impl AsRef<Path>,
    content: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> Result<()> {
    write_keeping(path.as_ref(), None, content)
}

/// The same; the file that had the name gets another.
pub(crate) fn write_keeping(
    path: &Path,
    old: Option<&Path>,
    content: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> Result<()> {
    let write = || -> io::Result<()> {
        if is_device(path) {
            let mut file = io::BufWriter::new(File::options().write(true).open(path)?);
            content(&mut file)?;
            return file.flush();
        }
        let mut file = io::BufWriter::with_capacity(1 << 16, NewFile::beside(path)?);
        content(&mut file)?;
        let file = file.into_inner().map_err(io::IntoInnerError::into_error)?;
        file.finish_keeping(old)
    };
    write().map_err(Error::io(path, "write"))
}

/// Adds to the end of a file.
pub(crate) fn append(path: &Path, bytes: &[u8]) -> Result<()> {
    let write = || -> io::Result<()> {
        let mut file = File::options().append(true).open(path)?;
        #[cfg(test)]
        if let Err(error) = before(Call::Write(path, file.metadata()?.len(), bytes)) {
            file.write_all(&bytes[..bytes.len() / 2])?;
            return Err(error);
        }
        file.write_all(bytes)
    };
    write().map_err(Error::io(path, "write"))
}

/// Sees to it that a file that was appended to is on the disk.
pub(crate) fn sync(path: &Path) -> Result<()> {
    let sync = || -> io::Result<()> {
        before(Call::SyncFile(path))?;
        if syncs() {
            File::options().append(true).open(path)?.sync_all()?;
        }
        Ok(())
    };
    sync().map_err(Error::io(path, "write"))
}

/// The whole of a file.
pub(crate) fn read(path: &Path) -> Result<Vec<u8>> {
    before(Call::Read(path)).map_err(Error::io(path, "read"))?;
    crate::data::files::read_bounded(path)
}

/// Makes a folder with those above it; new ones are on the disk when it returns.
pub(crate) fn make_folder(path: &Path) -> Result<()> {
    let mut new: Vec<&Path> = path.ancestors().take_while(|p| !p.exists()).collect();
    new.retain(|p| !p.as_os_str().is_empty());
    let make = || -> io::Result<()> {
        for folder in new.iter().rev() {
            before(Call::MakeFolder(folder))?;
        }
        std::fs::create_dir_all(path)?;
        new.iter().rev().try_for_each(|p| sync_folder(folder_of(p)))
    };
    make().map_err(Error::io(path, "create the folder"))
}

/// Opens a file for a lock, and makes it where there is none.
pub(crate) fn lock_file(path: &Path) -> Result<File> {
    let open = || {
        if !path.try_exists()? {
            before(Call::Create(path))?;
        }
        File::options().create(true).append(true).open(path)
    };
    open().map_err(Error::io(path, "create"))
}

/// What is in a folder.
pub(crate) fn list(path: &Path) -> Result<Vec<PathBuf>> {
    let list = || -> io::Result<Vec<PathBuf>> {
        before(Call::List(path))?;
        std::fs::read_dir(path)?.map(|e| Ok(e?.path())).collect()
    };
    list().map_err(Error::io(path, "read"))
}

/// Removes a file.
pub(crate) fn remove(path: &Path) -> Result<()> {
    before(Call::Remove(path))
        .and_then(|()| std::fs::remove_file(path))
        .map_err(Error::io(path, "remove"))
}

/// Removes an empty folder.
pub(crate) fn remove_folder(path: &Path) -> Result<()> {
    before(Call::RemoveFolder(path))
        .and_then(|()| std::fs::remove_dir(path))
        .map_err(Error::io(path, "remove"))
}

/// A new name is on the disk once its folder is. Only Unix lets a folder be opened.
fn sync_folder(folder: &Path) -> io::Result<()> {
    before(Call::SyncFolder(folder))?;
    if cfg!(unix) && syncs() {
        File::open(folder)?.sync_all()?;
    }
    Ok(())
}

/// A pipe, a terminal or the like: it is written to, a file in its place would be no help to anyone.
fn is_device(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|m| !m.is_file() && !m.is_dir())
}

fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    }
}

/// A temporary file is readable by its owner alone; a user's data file should get what any other
/// new file gets, or keep what the replaced file had.
fn permissions_of(path: &Path) -> Option<std::fs::Permissions> {
    if let Ok(old) = std::fs::metadata(path) {
        return Some(old.permissions());
    }
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        // The process's umask still applies.
        Some(std::fs::Permissions::from_mode(0o666))
    }
    #[cfg(not(unix))]
    None
}
