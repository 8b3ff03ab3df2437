//! IDX, the format of MNIST: plain, or compressed with gzip.
//!
//! Two zero bytes, a byte for the type, a byte for the number of axes, each axis's size as a
//! 32-bit big-endian number, then the values, big-endian, the last axis fastest. gzip is known by
//! its first two bytes, not by the file's name, and no more is unpacked than the header announces.

use std::io::Read;
use std::path::Path;

use super::array::{Array, Stored};
use super::dataset::size_of;
use super::files;
use crate::{Error, Result};

/// Reads an IDX file.
pub fn read(path: impl AsRef<Path>) -> Result<Array> {
    let path = path.as_ref();
    decode(path, &files::read(path)?)
}

/// Reads an IDX file's bytes, plain or gzip; `path` is for messages.
pub fn decode(path: &Path, bytes: &[u8]) -> Result<Array> {
    if bytes.starts_with(&[0x1f, 0x8b]) {
        let mut reader = Counted {
            inner: flate2::read::MultiGzDecoder::new(bytes),
            at: 0,
            unpacked: " of the unpacked data",
        };
        parse(path, &mut reader)
    } else {
        let mut reader = Counted {
            inner: bytes,
            at: 0,
            unpacked: "",
        };
        parse(path, &mut reader)
    }
}

struct Counted<R> {
    inner: R,
    at: usize,
    unpacked: &'static str,
}

impl<R: Read> Counted<R> {
    /// The next `n` bytes. The memory grows with what really comes.
    fn take(&mut self, path: &Path, n: usize, what: &str) -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        let read = self.inner.by_ref().take(n as u64).read_to_end(&mut bytes);
        let at = format!("byte {}{}", self.at, self.unpacked);
        if let Err(e) = read {
            return Err(Error::file(path, at, format!("broken gzip data: {e}")));
        }
        if bytes.len() < n {
            let got = bytes.len();
            let problem =
                format!("the file ends too early: {what} needs {n} bytes, {got} are left");
            return Err(Error::file(path, at, problem));
        }
        self.at += n;
        Ok(bytes)
    }
}

fn parse<R: Read>(path: &Path, reader: &mut Counted<R>) -> Result<Array> {
    let place = |byte: usize| {
        format!(
            "byte {byte}{}",
            if byte == 0 { "" } else { " of the header" }
        )
    };
    let magic = reader.take(path, 4, "an IDX file's first word")?;
    if magic[..2] != [0, 0] {
        return Err(Error::file(
            path,
            place(0),
            format!(
                "got {:02x?}, an IDX file starts with two zero bytes",
                &magic[..2]
            ),
        ));
    }
    let stored = match magic[2] {
        0x08 => Stored::U8,
        0x09 => Stored::I8,
        0x0b => Stored::I16,
        0x0c => Stored::I32,
        0x0d => Stored::F32,
        0x0e => Stored::F64,
        other => {
            return Err(Error::file(
                path,
                place(2),
                format!("got type {other:#04x}, needs 0x08, 0x09, 0x0b, 0x0c, 0x0d or 0x0e"),
            ));
        }
    };
    let axes = usize::from(magic[3]);
    if axes == 0 {
        return Err(Error::file(path, place(3), "got 0 axes, needs at least 1"));
    }
    let sizes = reader.take(path, 4 * axes, &format!("the sizes of {axes} axes"))?;
    let shape: Vec<usize> = sizes
        .chunks_exact(4)
        .map(|b| u32::from_be_bytes(b.try_into().expect("4 bytes")) as usize)
        .collect();
    let size = size_of(&shape).and_then(|n| n.checked_mul(stored.size()));
    let size = size.ok_or_else(|| {
        let problem = format!("the shape {shape:?} is more than this machine can count");
        Error::file(path, place(4), problem)
    })?;
    let start = reader.at;
    let data = reader.take(path, size, &format!("the shape {shape:?}"))?;
    // Reading past the end also checks gzip's own sum.
    let mut one_more = [0];
    match reader.inner.read(&mut one_more) {
        Ok(0) => {}
        Ok(_) => {
            let at = format!("byte {}{}", reader.at, reader.unpacked);
            return Err(Error::file(path, at, "the file goes on after the array"));
        }
        Err(e) => {
            let at = format!("byte {}{}", reader.at, reader.unpacked);
            return Err(Error::file(path, at, format!("broken gzip data: {e}")));
        }
    }
    Array::new(shape, stored.decode(path, &data, start, true)?)
}
