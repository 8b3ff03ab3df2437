//! Safetensors files of weights and states.

use std::collections::BTreeMap;
use std::path::Path;

use safetensors::{Dtype, SafeTensors};
use serde_json::{Map, Value, json};

use crate::data::write_whole;
use crate::{Error, Result};

/// The values of a tensor in a safetensors file.
#[derive(Clone, Debug, PartialEq)]
pub enum Values {
    /// 32 bits.
    F32(Vec<f32>),
    /// 64 bits.
    F64(Vec<f64>),
}

impl Values {
    /// In f32; f64 is rounded.
    pub fn to_f32(&self) -> Vec<f32> {
        match self {
            Values::F32(v) => v.clone(),
            Values::F64(v) => v.iter().map(|&v| v as f32).collect(),
        }
    }

    /// In f64, exactly.
    pub fn to_f64(&self) -> Vec<f64> {
        match self {
            Values::F32(v) => v.iter().map(|&v| f64::from(v)).collect(),
            Values::F64(v) => v.clone(),
        }
    }

    fn dtype(&self) -> &'static str {
        match self {
            Values::F32(_) => "F32",
            Values::F64(_) => "F64",
        }
    }

    fn bytes(&self) -> &[u8] {
        match self {
            Values::F32(v) => bytemuck::cast_slice(v),
            Values::F64(v) => bytemuck::cast_slice(v),
        }
    }
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

    /// Writes it atomically. The same content gives the same bytes: the header is sorted.
    pub fn write(&self, path: &Path) -> Result<()> {
        const {
            assert!(
                cfg!(target_endian = "little"),
                "safetensors is little-endian"
            )
        };
        // The wider type first, so that both stay aligned.
        let mut order: Vec<&NamedTensor> = self.tensors.iter().collect();
        order.sort_by_key(|t| matches!(t.values, Values::F32(_)));
        let mut header = Map::new();
        if !self.metadata.is_empty() {
            header.insert("__metadata__".into(), json!(self.metadata));
        }
        let mut offset = 0;
        for tensor in &order {
            let end = offset + tensor.values.bytes().len();
            header.insert(
                tensor.name.clone(),
                json!({
                    "dtype": tensor.values.dtype(),
                    "shape": tensor.shape,
                    "data_offsets": [offset, end],
                }),
            );
            offset = end;
        }
        let mut header = Value::Object(header).to_string().into_bytes();
        header.resize(header.len().next_multiple_of(8), b' ');
        write_whole(path, |file| {
            file.write_all(&(header.len() as u64).to_le_bytes())?;
            file.write_all(&header)?;
            for tensor in &order {
                file.write_all(tensor.values.bytes())?;
            }
            Ok(())
        })
    }

    /// Reads a file that we or PyTorch wrote. Types other than floats are left out, but for
    /// whole numbers that stand for floats in PyTorch's buffers.
    pub fn read(path: &Path) -> Result<Self> {
        let bytes = std::fs::read(path).map_err(Error::io(path, "read"))?;
        let (_, header) = SafeTensors::read_metadata(&bytes)
            .map_err(|e| Error::file(path, "safetensors header", e))?;
        let file =
            SafeTensors::deserialize(&bytes).map_err(|e| Error::file(path, "safetensors", e))?;
        let mut tensors = Vec::with_capacity(file.len());
        for (name, view) in file.iter() {
            let values = decode(view.dtype(), view.data()).ok_or_else(|| {
                Error::file(
                    path,
                    format!("tensor {name}"),
                    format!(
                        "got type {:?}, needs F32, F64, F16, BF16 or I64",
                        view.dtype()
                    ),
                )
            })?;
            tensors.push(NamedTensor {
                name: name.to_string(),
                shape: view.shape().to_vec(),
                values,
            });
        }
        tensors.sort_by(|a, b| a.name.cmp(&b.name));
        let metadata = header.metadata().clone().unwrap_or_default();
        Ok(TensorFile {
            metadata: metadata.into_iter().collect(),
            tensors,
        })
    }
}

fn decode(dtype: Dtype, data: &[u8]) -> Option<Values> {
    fn words<const N: usize>(data: &[u8]) -> impl Iterator<Item = [u8; N]> + '_ {
        data.chunks_exact(N)
            .map(|b| b.try_into().expect("a chunk of its size"))
    }
    Some(match dtype {
        Dtype::F32 => Values::F32(words(data).map(f32::from_le_bytes).collect()),
        Dtype::F64 => Values::F64(words(data).map(f64::from_le_bytes).collect()),
        Dtype::F16 => Values::F32(
            words(data)
                .map(|b| half::f16::from_le_bytes(b).to_f32())
                .collect(),
        ),
        Dtype::BF16 => Values::F32(
            words(data)
                .map(|b| half::bf16::from_le_bytes(b).to_f32())
                .collect(),
        ),
        // PyTorch's `num_batches_tracked` and its like.
        Dtype::I64 => Values::F64(words(data).map(|b| i64::from_le_bytes(b) as f64).collect()),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn example() -> TensorFile {
        TensorFile {
            metadata: [("format".to_string(), "test".to_string())].into(),
            tensors: vec![
                NamedTensor {
                    name: "0.weight".into(),
                    shape: vec![3],
                    values: Values::F32(vec![1.0, -2.5, f32::MIN_POSITIVE]),
                },
                NamedTensor {
                    name: "0.knots".into(),
                    shape: vec![1, 2],
                    values: Values::F64(vec![0.1, 1e-300]),
                },
            ],
        }
    }

    #[test]
    fn a_file_comes_back_as_it_was_written_and_twice_the_same() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.safetensors");
        let file = example();
        file.write(&path).unwrap();
        let first = std::fs::read(&path).unwrap();
        let again = TensorFile::read(&path).unwrap();
        assert_eq!(again.metadata, file.metadata);
        assert_eq!(again.get("0.weight"), file.get("0.weight"));
        assert_eq!(again.get("0.knots"), file.get("0.knots"));
        again.write(&path).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), first);
        let names: Vec<_> = std::fs::read_dir(folder.path()).unwrap().collect();
        assert_eq!(names.len(), 1, "the temporary file is gone");
    }

    #[test]
    fn every_truncation_is_an_error_that_names_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.safetensors");
        example().write(&path).unwrap();
        let whole = std::fs::read(&path).unwrap();
        for len in 0..whole.len() {
            std::fs::write(&path, &whole[..len]).unwrap();
            let message = TensorFile::read(&path).unwrap_err().to_string();
            assert!(message.contains("a.safetensors"), "{message}");
        }
    }
}
