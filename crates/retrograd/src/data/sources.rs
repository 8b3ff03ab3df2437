//! The files that a run's data came from, for its summary.
//!
//! Readers note what they open. While no run is on nothing is kept; two runs at once in one process know
//! of each other's files.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

#[derive(Default)]
struct Ledger {
    runs: usize,
    files: BTreeSet<PathBuf>,
}

fn ledger() -> MutexGuard<'static, Ledger> {
    static LEDGER: Mutex<Ledger> = Mutex::new(Ledger {
        runs: 0,
        files: BTreeSet::new(),
    });
    LEDGER.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A file was opened to read data from it.
pub(crate) fn note(path: &Path) {
    let mut ledger = ledger();
    if ledger.runs > 0 {
        ledger.files.insert(path.to_path_buf());
    }
}

/// Keeps what readers note until the closure is done.
pub(crate) fn during<R>(run: impl FnOnce() -> R) -> R {
    struct End;
    impl Drop for End {
        fn drop(&mut self) {
            let mut ledger = ledger();
            ledger.runs -= 1;
            if ledger.runs == 0 {
                ledger.files.clear();
            }
        }
    }
    ledger().runs += 1;
    let _end = End;
    run()
}

/// The files that were read since the run began.
pub(crate) fn so_far() -> Vec<PathBuf> {
    ledger().files.iter().cloned().collect()
}
