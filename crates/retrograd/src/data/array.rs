//! An array of numbers as a file holds it.

use std::path::Path;

use super::dataset::size_of;
use crate::{Error, Result};

/// Numbers of one of the types that files have. Smaller types widen to the next one here, so
/// nothing is lost: half floats to f32, integers to i64 (bytes stay bytes: images are large).
#[derive(Clone, Debug, PartialEq)]
pub enum Values {
    /// 16- and 32-bit floats.
    F32(Vec<f32>),
    /// 64-bit floats.
    F64(Vec<f64>),
    /// Integers that are not bytes.
    I64(Vec<i64>),
    /// Unsigned bytes, and booleans as 0 and 1.
    U8(Vec<u8>),
}

impl Values {
    /// In f32, rounded.
    pub fn to_f32(&self) -> Vec<f32> {
        match self {
            Values::F32(v) => v.clone(),
            Values::F64(v) => v.iter().map(|&v| v as f32).collect(),
            Values::I64(v) => v.iter().map(|&v| v as f32).collect(),
            Values::U8(v) => v.iter().map(|&v| v.into()).collect(),
        }
    }

    /// In f64, exactly but for integers beyond 2⁵³.
    pub fn to_f64(&self) -> Vec<f64> {
        match self {
            Values::F32(v) => v.iter().map(|&v| v.into()).collect(),
            Values::F64(v) => v.clone(),
            Values::I64(v) => v.iter().map(|&v| v as f64).collect(),
            Values::U8(v) => v.iter().map(|&v| v.into()).collect(),
        }
    }

    /// As files have them.
    pub(crate) fn bytes(&self) -> &[u8] {
        const { assert!(cfg!(target_endian = "little"), "files are little-endian") };
        match self {
            Values::F32(v) => bytemuck::cast_slice(v),
            Values::F64(v) => bytemuck::cast_slice(v),
            Values::I64(v) => bytemuck::cast_slice(v),
            Values::U8(v) => v,
        }
    }
}

/// An array with its shape, the last axis fastest.
#[derive(Clone, Debug, PartialEq)]
pub struct Array {
    /// The size of each axis.
    pub shape: Vec<usize>,
    /// As many values as the product of the sizes.
    pub values: Values,
}

impl Array {
    /// An array, if there are as many values as its shape says.
    pub fn new(shape: Vec<usize>, values: Values) -> Result<Self> {
        let array = Array { shape, values };
        if size_of(&array.shape) != Some(array.len()) {
            return Err(Error::invalid(
                "an array",
                format!("{} values", array.len()),
                format!("as many as the shape {:?} has", array.shape),
            ));
        }
        Ok(array)
    }

    /// The number of values.
    pub fn len(&self) -> usize {
        match &self.values {
            Values::F32(v) => v.len(),
            Values::F64(v) => v.len(),
            Values::I64(v) => v.len(),
            Values::U8(v) => v.len(),
        }
    }

    /// Whether there are no values.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The i-th value. Integers beyond 2⁵³ are rounded.
    pub fn get(&self, i: usize) -> f64 {
        match &self.values {
            Values::F32(v) => f64::from(v[i]),
            Values::F64(v) => v[i],
            Values::I64(v) => v[i] as f64,
            Values::U8(v) => f64::from(v[i]),
        }
    }

    /// The i-th value as text that reads back as the same number.
    pub fn text(&self, i: usize) -> String {
        match &self.values {
            Values::F32(v) => v[i].to_string(),
            Values::F64(v) => v[i].to_string(),
            Values::I64(v) => v[i].to_string(),
            Values::U8(v) => v[i].to_string(),
        }
    }

    /// Whether the values are whole by their type.
    pub fn is_integer(&self) -> bool {
        matches!(self.values, Values::I64(_) | Values::U8(_))
    }

    /// The number of samples: the size of the first axis.
    pub fn samples(&self) -> usize {
        self.shape.first().copied().unwrap_or(0)
    }

    /// The shape of one sample: the axes after the first, or \[1\] where there is only one.
    pub fn sample_shape(&self) -> Vec<usize> {
        match self.shape.as_slice() {
            [] | [_] => vec![1],
            [_, rest @ ..] => rest.to_vec(),
        }
    }

    /// What was read from a file whose first axis is fastest, in the order used here.
    pub(crate) fn first_axis_slowest(self) -> Self {
        fn transpose<X: Copy>(values: &[X], shape: &[usize]) -> Vec<X> {
            let mut transposed = Vec::with_capacity(values.len());
            let mut strides = vec![1; shape.len()];
            for axis in 1..shape.len() {
                strides[axis] = strides[axis - 1] * shape[axis - 1];
            }
            let mut index = vec![0; shape.len()];
            for _ in 0..values.len() {
                let from: usize = index.iter().zip(&strides).map(|(i, s)| i * s).sum();
                transposed.push(values[from]);
                for axis in (0..shape.len()).rev() {
                    index[axis] += 1;
                    if index[axis] < shape[axis] {
                        break;
                    }
                    index[axis] = 0;
                }
            }
            transposed
        }
        let shape = &self.shape;
        let values = match &self.values {
            Values::F32(v) => Values::F32(transpose(v, shape)),
            Values::F64(v) => Values::F64(transpose(v, shape)),
            Values::I64(v) => Values::I64(transpose(v, shape)),
            Values::U8(v) => Values::U8(transpose(v, shape)),
        };
        Array {
            values,
            shape: self.shape,
        }
    }
}

/// How a file stores one number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stored {
    F16,
    Bf16,
    F32,
    F64,
    I8,
    I16,
    I32,
    I64,
    U8,
    U16,
    U32,
    U64,
    Bool,
}

impl Stored {
    /// Bytes of one number.
    pub fn size(self) -> usize {
        match self {
            Stored::I8 | Stored::U8 | Stored::Bool => 1,
            Stored::F16 | Stored::Bf16 | Stored::I16 | Stored::U16 => 2,
            Stored::F32 | Stored::I32 | Stored::U32 => 4,
            Stored::F64 | Stored::I64 | Stored::U64 => 8,
        }
    }

    /// The numbers in `bytes`, which start at byte `start` of the file. `big` is big-endian.
    pub fn decode(self, path: &Path, bytes: &[u8], start: usize, big: bool) -> Result<Values> {
        // Each of these takes a copy of one number in the machine's order.
        fn each<const N: usize, X>(bytes: &[u8], big: bool, from: fn([u8; N]) -> X) -> Vec<X> {
            bytes
                .chunks_exact(N)
                .map(|chunk| {
                    let mut word: [u8; N] = chunk.try_into().expect("N bytes");
                    if big {
                        word.reverse();
                    }
                    from(word)
                })
                .collect()
        }
        let bad = |i: usize, problem: String| {
            Error::file(path, format!("byte {}", start + i * self.size()), problem)
        };
        Ok(match self {
            Stored::F16 => Values::F32(each(bytes, big, |b| half::f16::from_le_bytes(b).to_f32())),
            Stored::Bf16 => {
                Values::F32(each(bytes, big, |b| half::bf16::from_le_bytes(b).to_f32()))
            }
            Stored::F32 => Values::F32(each(bytes, big, f32::from_le_bytes)),
            Stored::F64 => Values::F64(each(bytes, big, f64::from_le_bytes)),
            Stored::I8 => Values::I64(each(bytes, big, |b| i8::from_le_bytes(b).into())),
            Stored::I16 => Values::I64(each(bytes, big, |b| i16::from_le_bytes(b).into())),
            Stored::I32 => Values::I64(each(bytes, big, |b| i32::from_le_bytes(b).into())),
            Stored::I64 => Values::I64(each(bytes, big, i64::from_le_bytes)),
            Stored::U8 => Values::U8(bytes.to_vec()),
            Stored::U16 => Values::I64(each(bytes, big, |b| u16::from_le_bytes(b).into())),
            Stored::U32 => Values::I64(each(bytes, big, |b| u32::from_le_bytes(b).into())),
            Stored::U64 => {
                let values = each(bytes, big, u64::from_le_bytes);
                let values = values.into_iter().enumerate().map(|(i, v)| {
                    i64::try_from(v)
                        .map_err(|_| bad(i, format!("got {v}, needs a number below 2⁶³")))
                });
                Values::I64(values.collect::<Result<_>>()?)
            }
            Stored::Bool => {
                if let Some(i) = bytes.iter().position(|&b| b > 1) {
                    return Err(bad(i, format!("got {}, a boolean needs 0 or 1", bytes[i])));
                }
                Values::U8(bytes.to_vec())
            }
        })
    }
}
