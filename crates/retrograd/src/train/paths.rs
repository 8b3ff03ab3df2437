//! Paths in experiment files: text, or a list of bytes where a name is no UTF-8, as Unix allows.

use std::ffi::OsString;
use std::path::PathBuf;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};

#[derive(Deserialize)]
#[serde(untagged)]
enum Written {
    Text(PathBuf),
    Bytes(Vec<u8>),
}

pub fn serialize<S: Serializer>(path: &Option<PathBuf>, s: S) -> Result<S::Ok, S::Error> {
    let Some(path) = path else {
        return s.serialize_none();
    };
    match path.to_str() {
        Some(text) => s.serialize_str(text),
        None => path.as_os_str().as_encoded_bytes().serialize(s),
    }
}

pub fn deserialize<'de, D: Deserializer<'de>>(d: D) -> Result<Option<PathBuf>, D::Error> {
    match Written::deserialize(d) {
        Ok(Written::Text(path)) => Ok(Some(path)),
        Ok(Written::Bytes(bytes)) => from_bytes(bytes)
            .map(|name| Some(name.into()))
            .ok_or_else(|| D::Error::custom("a path of another system")),
        Err(_) => Err(D::Error::custom("invalid type: needs a path, as text")),
    }
}

#[cfg(unix)]
fn from_bytes(bytes: Vec<u8>) -> Option<OsString> {
    Some(std::os::unix::ffi::OsStringExt::from_vec(bytes))
}

#[cfg(not(unix))]
fn from_bytes(bytes: Vec<u8>) -> Option<OsString> {
    String::from_utf8(bytes).ok().map(OsString::from)
}
