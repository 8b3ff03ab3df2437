//! Safetensors, the files of named arrays: data, weights, checkpoints, reference bundles and other
//! libraries' states are all read and written here.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::Path;

pub(crate) use ::safetensors::Dtype;
use ::safetensors::SafeTensors;
use ::safetensors::tensor::{Metadata, TensorInfo};
use serde_json::{Map, Value, json};

use super::array::{Array, Stored, Values};
use super::digest;
use super::files::{self, did_you_mean, list};
use super::sha256::Sha256;
use crate::{Error, Result, disk};

/// A safetensors file in memory, its header checked.
pub struct Tensors<'a> {
    path: &'a Path,
    bytes: &'a [u8],
    header: Metadata,
    /// Where the values start.
    start: usize,
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
        let (length, header) = SafeTensors::read_metadata(bytes).map_err(|e| {
            Error::file(
                path,
                format!("byte 8, the safetensors header of {length} bytes"),
                format!("{e} (the values take {} bytes)", left as u64 - length),
            )
        })?;
        Ok(Tensors {
            path,
            bytes,
            header,
            start: cursor.at() + length,
        })
    }

    /// The texts of the header.
    pub fn metadata(&self) -> BTreeMap<String, String> {
        let texts = self.header.metadata().clone().unwrap_or_default();
        texts.into_iter().collect()
    }

    /// The names of the tensors, sorted.
    pub fn names(&self) -> Vec<String> {
        let mut names = self.header.offset_keys();
        names.sort_unstable();
        names
    }

    /// Whether there is a tensor of that name.
    pub fn contains(&self, name: &str) -> bool {
        self.header.info(name).is_some()
    }

    /// The shape of a tensor.
    pub fn shape(&self, name: &str) -> Result<&[usize]> {
        Ok(&self.info(name)?.shape)
    }

    fn info(&self, name: &str) -> Result<&TensorInfo> {
        self.header.info(name).ok_or_else(|| {
            let names = self.names();
            let names = || names.iter().map(String::as_str);
            let hint = did_you_mean(name, names());
            let problem = format!("there is none; there are {}{hint}", list(names()));
            self.bad(name, problem)
        })
    }

    /// An error about a tensor.
    pub(crate) fn bad(&self, name: &str, problem: impl std::fmt::Display) -> Error {
        Error::file(self.path, format!("tensor {name:?}"), problem)
    }

    /// The bytes of a tensor that has to have one type and shape.
    pub(crate) fn exactly(&self, name: &str, dtype: Dtype, shape: &[usize]) -> Result<&'a [u8]> {
        let info = self.info(name)?;
        if info.dtype != dtype || info.shape != shape {
            let (got, found) = (info.dtype, &info.shape);
            let problem = format!("got {got:?} {found:?}, needs {dtype:?} {shape:?}");
            return Err(self.bad(name, problem));
        }
        Ok(self.bytes_of(info))
    }

    fn bytes_of(&self, info: &TensorInfo) -> &'a [u8] {
        let (from, to) = info.data_offsets;
        &self.bytes[self.start + from..self.start + to]
    }

    /// The tensor of that name.
    pub fn array(&self, name: &str) -> Result<Array> {
        let info = self.info(name)?;
        let stored = match info.dtype {
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
                let problem = format!("got the type {other:?}, needs real numbers of 8 to 64 bits");
                return Err(self.bad(name, problem));
            }
        };
        let start = self.start + info.data_offsets.0;
        let values = stored.decode(self.path, self.bytes_of(info), start, false)?;
        Array::new(info.shape.clone(), values)
    }
}

/// A tensor to be written: its name, type, shape and bytes.
pub(crate) type Raw<'a> = (&'a str, Dtype, &'a [usize], &'a [u8]);

/// Writes a file whole or not at all. The same content gives the same bytes: the header is sorted.
pub(crate) fn write(
    path: &Path,
    metadata: &BTreeMap<String, String>,
    tensors: Vec<Raw<'_>>,
) -> Result<()> {
    write_keeping(path, None, metadata, tensors)
}

/// The same; the file that had the name gets another.
fn write_keeping(
    path: &Path,
    old: Option<&Path>,
    metadata: &BTreeMap<String, String>,
    tensors: Vec<Raw<'_>>,
) -> Result<()> {
    let (header, tensors) = encode(metadata, tensors);
    disk::write_keeping(path, old, |file| write_parts(file, &header, &tensors))
}

/// The header of a file, its length before it, and the tensors in their order.
fn encode<'a>(
    metadata: &BTreeMap<String, String>,
    mut tensors: Vec<Raw<'a>>,
) -> (Vec<u8>, Vec<Raw<'a>>) {
    // The wider types first, so that all stay aligned.
    tensors.sort_by_key(|(_, dtype, ..)| Reverse(dtype.bitsize()));
    let mut header = Map::new();
    if !metadata.is_empty() {
        header.insert("__metadata__".into(), json!(metadata));
    }
    let mut offset = 0;
    for (name, dtype, shape, bytes) in &tensors {
        let offsets = [offset, offset + bytes.len()];
        let info = json!({ "dtype": dtype, "shape": shape, "data_offsets": offsets });
        header.insert(name.to_string(), info);
        offset = offsets[1];
    }
    let mut header = Value::Object(header).to_string().into_bytes();
    header.resize(header.len().next_multiple_of(8), b' ');
    (header, tensors)
}

fn write_parts(file: &mut dyn Write, header: &[u8], tensors: &[Raw<'_>]) -> io::Result<()> {
    file.write_all(&(header.len() as u64).to_le_bytes())?;
    file.write_all(header)?;
    tensors.iter().try_for_each(|t| file.write_all(t.3))
}

/// A named tensor of a safetensors file.
#[derive(Clone, Debug, PartialEq)]
pub struct NamedTensor {
    /// Its name.
    pub name: String,
    /// Its shape.
    pub shape: Vec<usize>,
    /// Its values, the last axis fastest.
    pub values: Values,
}

/// The content of a safetensors file.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TensorFile {
    /// The texts of its header.
    pub metadata: BTreeMap<String, String>,
    /// Its tensors.
    pub tensors: Vec<NamedTensor>,
}

impl TensorFile {
    /// The tensor of that name.
    pub fn get(&self, name: &str) -> Option<&NamedTensor> {
        self.tensors.iter().find(|t| t.name == name)
    }

    /// Writes it whole or not at all, with a digest of what it holds. The same content gives the same
    /// bytes.
    pub fn write(&self, path: &Path) -> Result<()> {
        self.write_keeping(path, None)
    }

    /// The same; the file that had the name gets another.
    pub(crate) fn write_keeping(&self, path: &Path, old: Option<&Path>) -> Result<()> {
        let (metadata, tensors) = self.parts();
        write_keeping(path, old, &metadata, tensors)
    }

    /// SHA-256 of the file that [`TensorFile::write`] makes, as `sha256sum` prints it.
    pub fn sha256(&self) -> String {
        let (metadata, tensors) = self.parts();
        let (header, tensors) = encode(&metadata, tensors);
        let mut digest = Sha256::default();
        write_parts(&mut digest, &header, &tensors).expect("a digest takes every byte");
        digest.finish()
    }

    /// The bytes of that file.
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let (metadata, tensors) = self.parts();
        let (header, tensors) = encode(&metadata, tensors);
        let mut bytes = Vec::new();
        write_parts(&mut bytes, &header, &tensors).expect("a vector takes every byte");
        bytes
    }

    fn parts(&self) -> (BTreeMap<String, String>, Vec<Raw<'_>>) {
        let tensors = self.tensors.iter().map(|t| {
            let dtype = match t.values {
                Values::F32(_) => Dtype::F32,
                Values::F64(_) => Dtype::F64,
                Values::I64(_) => Dtype::I64,
                Values::U8(_) => Dtype::U8,
            };
            (t.name.as_str(), dtype, &t.shape[..], t.values.bytes())
        });
        let mut metadata = self.metadata.clone();
        metadata.insert(digest::KEY.into(), digest::of(self));
        (metadata, tensors.collect())
    }

    /// Reads a file that we or PyTorch wrote. One whose digest says that it held something else is
    /// refused; one without a digest is taken.
    pub fn read(path: &Path) -> Result<Self> {
        Self::decode(path, &files::read(path)?)
    }

    /// Reads a file's bytes; `path` is for messages.
    pub fn decode(path: &Path, bytes: &[u8]) -> Result<Self> {
        let file = Tensors::new(path, bytes)?;
        let tensors = file.names().into_iter().map(|name| {
            let Array { shape, values } = file.array(&name)?;
            Ok(NamedTensor {
                name,
                shape,
                values,
            })
        });
        let mut read = TensorFile {
            tensors: tensors.collect::<Result<_>>()?,
            metadata: file.metadata(),
        };
        digest::check(&mut read, path)?;
        Ok(read)
    }
}
