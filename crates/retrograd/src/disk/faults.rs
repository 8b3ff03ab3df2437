//! Disks that fail at a chosen call, and disks whose power is cut.
//!
//! What the thread that asks for it does to its files is counted, and refused at one call; or it is
//! noted down, and [`Disk`] says what a disk may hold after any of the calls when the power goes: all
//! that was synced, and of the rest any part in any order.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};

use super::Call;
use crate::rng::Stream;

/// What was done.
#[derive(Clone, Debug)]
pub(crate) enum Done {
    MakeFolder(PathBuf),
    RemoveFolder(PathBuf),
    Create(PathBuf),
    Write(PathBuf, u64, Vec<u8>),
    SyncFile(PathBuf),
    SyncFolder(PathBuf),
    Rename(PathBuf),
    Link(PathBuf, PathBuf),
    Remove(PathBuf),
    Look,
}

/// What a run did to its files.
#[derive(Debug, Default)]
pub(crate) struct Log {
    /// All calls but the one that failed.
    pub done: Vec<Done>,
    /// The file of the call that failed.
    pub failed: Option<PathBuf>,
    calls: usize,
    fail_at: Option<usize>,
}

thread_local! {
    static LOG: RefCell<Option<Log>> = const { RefCell::new(None) };
}

/// Whether the thread's disk is simulated.
pub(super) fn simulated() -> bool {
    LOG.with_borrow(Option::is_some)
}

/// Runs a closure whose call of that number fails, counted from 0; none fails without one.
pub(crate) fn failing_at<R>(call: Option<usize>, run: impl FnOnce() -> R) -> (R, Log) {
    let log = Log {
        fail_at: call,
        ..Log::default()
    };
    LOG.set(Some(log));
    let result = run();
    (result, LOG.take().expect("nobody else takes it"))
}

pub(super) fn before(call: Call<'_>) -> io::Result<()> {
    LOG.with_borrow_mut(|log| {
        let Some(log) = log else {
            return Ok(());
        };
        let (path, done) = noted(call);
        let number = log.calls;
        log.calls += 1;
        if log.fail_at == Some(number) {
            log.failed = Some(path.to_path_buf());
            return Err(io::Error::other(format!("injected at call {number}")));
        }
        log.done.push(done);
        Ok(())
    })
}

/// The file of a call, and the call to keep.
fn noted(call: Call<'_>) -> (&Path, Done) {
    let own = Path::to_path_buf;
    match call {
        Call::MakeFolder(p) => (p, Done::MakeFolder(own(p))),
        Call::RemoveFolder(p) => (p, Done::RemoveFolder(own(p))),
        Call::Create(p) => (p, Done::Create(own(p))),
        Call::Write(p, at, bytes) => (p, Done::Write(own(p), at, bytes.to_vec())),
        Call::SyncFile(p) => (p, Done::SyncFile(own(p))),
        Call::SyncFolder(p) => (p, Done::SyncFolder(own(p))),
        Call::Rename(p) => (p, Done::Rename(own(p))),
        Call::Link(p, to) => (p, Done::Link(own(p), own(to))),
        Call::Remove(p) => (p, Done::Remove(own(p))),
        Call::List(p) | Call::Read(p) => (p, Done::Look),
    }
}

/// A disk, and what has not reached it yet.
#[derive(Debug, Default)]
pub(crate) struct Disk {
    contents: Vec<Content>,
    /// What the running process sees.
    now: BTreeMap<PathBuf, usize>,
    /// Files that have no name yet, by the one they will get.
    unnamed: BTreeMap<PathBuf, usize>,
    /// What is on the disk for certain.
    names: BTreeMap<PathBuf, usize>,
    folders: BTreeSet<PathBuf>,
    /// Changes of folders that are not synced.
    pending: Vec<Change>,
}

#[derive(Debug, Default)]
struct Content {
    synced: Vec<u8>,
    pending: Vec<(u64, Vec<u8>)>,
}

#[derive(Clone, Debug)]
enum Change {
    Set(PathBuf, usize),
    Clear(PathBuf),
    Make(PathBuf),
    Unmake(PathBuf),
}

impl Change {
    fn folder(&self) -> Option<&Path> {
        match self {
            Change::Set(p, _) | Change::Clear(p) | Change::Make(p) | Change::Unmake(p) => {
                p.parent()
            }
        }
    }
}

impl Disk {
    /// A call is made.
    pub fn apply(&mut self, done: &Done) {
        match done {
            Done::MakeFolder(path) => self.pending.push(Change::Make(path.clone())),
            Done::RemoveFolder(path) => self.pending.push(Change::Unmake(path.clone())),
            Done::Create(path) => {
                self.contents.push(Content::default());
                self.unnamed.insert(path.clone(), self.contents.len() - 1);
            }
            Done::Write(path, at, bytes) => {
                let content = self.content(path);
                self.contents[content].pending.push((*at, bytes.clone()));
            }
            Done::SyncFile(path) => {
                let content = self.content(path);
                let content = &mut self.contents[content];
                for (at, bytes) in std::mem::take(&mut content.pending) {
                    write(&mut content.synced, at, &bytes);
                }
            }
            Done::SyncFolder(folder) => {
                let changes = std::mem::take(&mut self.pending);
                for change in changes {
                    if change.folder() == Some(folder) {
                        apply(&change, &mut self.names, &mut self.folders);
                    } else {
                        self.pending.push(change);
                    }
                }
            }
            Done::Rename(path) => {
                let content = self.unnamed.remove(path).expect("a file was written");
                self.set(path, content);
            }
            Done::Link(path, to) => {
                let content = self.now[path];
                self.set(to, content);
            }
            Done::Remove(path) => {
                self.now.remove(path);
                self.pending.push(Change::Clear(path.clone()));
            }
            Done::Look => {}
        }
    }

    fn set(&mut self, path: &Path, content: usize) {
        self.now.insert(path.to_path_buf(), content);
        self.pending.push(Change::Set(path.to_path_buf(), content));
    }

    fn content(&self, path: &Path) -> usize {
        let unnamed = self.unnamed.get(path);
        *unnamed.or_else(|| self.now.get(path)).expect("it was made")
    }

    /// The power goes: writes what the disk may hold then into another folder. Of what was not synced,
    /// the part that `kept` says of every piece.
    pub fn cut(&self, from: &Path, to: &Path, mut kept: impl FnMut() -> bool) {
        let (mut names, mut folders) = (self.names.clone(), self.folders.clone());
        for change in &self.pending {
            if kept() {
                apply(change, &mut names, &mut folders);
            }
        }
        std::fs::create_dir_all(to).unwrap();
        for folder in &folders {
            // A folder whose parent is lost is lost with it.
            let _ = std::fs::create_dir(to.join(folder.strip_prefix(from).unwrap()));
        }
        for (path, content) in &names {
            let Content { synced, pending } = &self.contents[*content];
            let mut bytes = synced.clone();
            for (at, piece) in pending {
                if kept() {
                    write(&mut bytes, *at, piece);
                }
            }
            let _ = std::fs::write(to.join(path.strip_prefix(from).unwrap()), bytes);
        }
    }
}

/// What is written beyond the end leaves zeros before it.
fn write(file: &mut Vec<u8>, at: u64, bytes: &[u8]) {
    let at = at as usize;
    if file.len() < at + bytes.len() {
        file.resize(at + bytes.len(), 0);
    }
    file[at..at + bytes.len()].copy_from_slice(bytes);
}

fn apply(change: &Change, names: &mut BTreeMap<PathBuf, usize>, folders: &mut BTreeSet<PathBuf>) {
    match change {
        Change::Set(path, content) => {
            names.insert(path.clone(), *content);
        }
        Change::Clear(path) => {
            names.remove(path);
        }
        Change::Make(path) => {
            folders.insert(path.clone());
        }
        Change::Unmake(path) => {
            folders.remove(path);
        }
    }
}

/// Which of the pieces that were not synced reach the disk.
pub(crate) fn any_of(mut stream: Stream) -> impl FnMut() -> bool {
    move || stream.u32() & 1 == 1
}

mod tests {
    use super::super::*;
    use super::*;

    #[test]
    fn a_failed_write_leaves_the_old_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.txt");
        write_whole(&path, |w| w.write_all(b"old")).unwrap();
        let error = write_whole(&path, |w| {
            w.write_all(b"half")?;
            Err(io::Error::other("disk full"))
        });
        assert!(error.unwrap_err().to_string().contains("disk full"));
        assert_eq!(std::fs::read(&path).unwrap(), b"old");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
        assert!(!writing().iter().any(|file| file.starts_with(folder.path())));
    }

    /// The simulation has teeth: without a sync of its own a file is empty or half there.
    #[test]
    fn what_is_not_synced_may_be_lost_and_what_is_may_not() {
        let from = Path::new("/run");
        let folder = tempfile::tempdir().unwrap();
        let after = |calls: &[Done], kept: bool, name: &str| {
            let mut disk = Disk::default();
            calls.iter().for_each(|done| disk.apply(done));
            let to = folder.path().join(name);
            disk.cut(from, &to, || kept);
            std::fs::read(to.join("a")).ok()
        };
        let path = || from.join("a");
        let [create, write, sync, rename, folders] = [
            Done::Create(path()),
            Done::Write(path(), 0, b"new".to_vec()),
            Done::SyncFile(path()),
            Done::Rename(path()),
            Done::SyncFolder(from.into()),
        ];
        let whole = [
            create.clone(),
            write.clone(),
            sync,
            rename.clone(),
            folders.clone(),
        ];
        assert_eq!(after(&whole[..4], false, "1"), None);
        assert_eq!(after(&whole[..4], true, "2").unwrap(), b"new");
        assert_eq!(after(&whole, false, "3").unwrap(), b"new");
        let unsynced = [create, write, rename, folders];
        assert_eq!(after(&unsynced, false, "4").unwrap(), b"");
    }

    #[test]
    fn the_old_file_is_kept_under_its_other_name() {
        let folder = tempfile::tempdir().unwrap();
        let [path, old] = ["a", "a.old"].map(|name| folder.path().join(name));
        for text in ["one", "two", "three"] {
            let write = |w: &mut dyn Write| w.write_all(text.as_bytes());
            write_keeping(&path, Some(&old), write).unwrap();
        }
        assert_eq!(std::fs::read(&path).unwrap(), b"three");
        assert_eq!(std::fs::read(&old).unwrap(), b"two");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 2);
    }

    #[cfg(unix)]
    #[test]
    fn a_pipe_is_written_to_and_not_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let link = folder.path().join("null");
        std::os::unix::fs::symlink("/dev/null", &link).unwrap();
        write_whole(&link, |w| w.write_all(b"gone")).unwrap();
        assert!(std::fs::symlink_metadata(&link).unwrap().is_symlink());
    }
}
