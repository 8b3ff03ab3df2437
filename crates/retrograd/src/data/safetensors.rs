//! Named arrays from a safetensors file.

use std::path::Path;

use ::safetensors::{Dtype, SafeTensors};

use super::array::{Array, Stored};
use super::files::{self, did_you_mean, list};
use crate::{Error, Result};

/// A safetensors file in memory, its header checked.
pub struct Tensors<'a> {
    path: &'a Path,
    tensors: SafeTensors<'a>,
    bytes: &'a [u8],
}

/// Reads one tensor of a file.
pub fn read(path: impl AsRef<Path>, name: &str) -> Result<Array> {
    let path = path.as_ref();
    let bytes = files::read(path)?;
    Tensors::new(path, &bytes)?.array(name)
}

impl<'a> Tensors<'a> {
    /// Checks a file's bytes; `path` is for messages.
    pub fn new(path: &'a Path, bytes: &'a [u8]) -> Result<Self> {
        let mut cursor = files::Cursor::new(path, bytes);
        let length = u64::from_le_bytes(cursor.array("the header's length")?);
        let left = bytes.len() - cursor.at();
        if length > left as u64 {
            return Err(Error::file(
                path,
                "byte 0",
                format!("the header should have {length} bytes, the file has {left} more"),
            ));
        }
        let tensors = SafeTensors::deserialize(bytes).map_err(|e| {
            Error::file(
                path,
                format!("byte 8, the safetensors header of {length} bytes"),
                format!("{e} (the values take {} bytes)", left as u64 - length),
            )
        })?;
        Ok(Tensors {
            path,
            tensors,
            bytes,
        })
    }

    /// The names of the tensors, sorted.
    pub fn names(&self) -> Vec<&str> {
        let mut names = self.tensors.names();
        names.sort_unstable();
        names
    }

    /// Whether there is a tensor of that name.
    pub fn contains(&self, name: &str) -> bool {
        self.tensors.names().contains(&name)
    }

    /// The tensor of that name.
    pub fn array(&self, name: &str) -> Result<Array> {
        let names = self.names();
        let view = self.tensors.tensor(name).map_err(|_| {
            let hint = did_you_mean(name, names.iter().copied());
            Error::file(
                self.path,
                format!("tensor {name:?}"),
                format!(
                    "there is none; there are {}{hint}",
                    list(names.iter().copied())
                ),
            )
        })?;
        let stored = match view.dtype() {
            Dtype::F16 => Stored::F16,
            Dtype::BF16 => Stored::Bf16,
            Dtype::F32 => Stored::F32,
            Dtype::F64 => Stored::F64,
            Dtype::I8 => Stored::I8,
            Dtype::I16 => Stored::I16,
            Dtype::I32 => Stored::I32,
            Dtype::I64 => Stored::I64,
            Dtype::U8 => Stored::U8,
            Dtype::U16 => Stored::U16,
            Dtype::U32 => Stored::U32,
            Dtype::U64 => Stored::U64,
            Dtype::BOOL => Stored::Bool,
            other => {
                return Err(Error::file(
                    self.path,
                    format!("tensor {name:?}"),
                    format!("got the type {other:?}, needs real numbers of 8 to 64 bits"),
                ));
            }
        };
        let data = view.data();
        let offset = (data.as_ptr() as usize).wrapping_sub(self.bytes.as_ptr() as usize);
        let values = stored.decode(self.path, data, offset, false)?;
        Array::new(view.shape().to_vec(), values)
    }
}
