//! What the readers and the preparation promise.

mod prepared;
mod readers;

use std::path::Path;

use super::csv::{Reading, Table};
use super::{Data, DataSpec};
use crate::Result;

/// The table of a text.
fn table(text: &str) -> Result<Table> {
    Table::decode(Path::new("t.csv"), text.as_bytes(), &Reading::default())
}

/// Loads a `[data]` part on files in a folder of their own.
fn load(files: &[(&str, &[u8])], spec: &str) -> Result<Data> {
    let folder = tempfile::tempdir().unwrap();
    for (name, bytes) in files {
        std::fs::write(folder.path().join(name), bytes).unwrap();
    }
    let spec: DataSpec = toml::from_str(spec).unwrap_or_else(|e| panic!("{e}"));
    spec.load(folder.path(), 1)
}

/// The message of an error that must be one.
fn message<X>(result: Result<X>) -> String {
    match result {
        Ok(_) => panic!("this should have been refused"),
        Err(e) => e.to_string(),
    }
}

/// That a message says all of these.
#[track_caller]
fn says<X>(result: Result<X>, words: &[&str]) {
    let message = message(result);
    for word in words {
        assert!(message.contains(word), "{word:?} is not in: {message}");
    }
}
