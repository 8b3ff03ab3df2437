//! NPY, the file of one NumPy array: read in versions 1 to 3, all real number types, both byte
//! orders and both axis orders; written in version 1.
//!
//! The header is a Python literal such as `{'descr': '<f4', 'fortran_order': False, 'shape': (3,
//! 4), }`. Nothing that it says is believed before the file's length agrees, so a lying header
//! costs no memory.

use std::path::Path;

use super::array::{Array, Stored, Values};
use super::dataset::size_of;
use super::files::{self, Cursor};
use crate::{Error, Result};

const MAGIC: &[u8; 6] = b"\x93NUMPY";

/// Reads an NPY file.
pub fn read(path: impl AsRef<Path>) -> Result<Array> {
    let path = path.as_ref();
    decode(path, &files::read(path)?)
}

/// Reads an NPY file's bytes; `path` is for messages.
pub fn decode(path: &Path, bytes: &[u8]) -> Result<Array> {
    let mut cursor = Cursor::new(path, bytes);
    let magic = cursor.take(MAGIC.len(), "an NPY file's first word")?;
    if magic != MAGIC {
        return Err(Error::file(
            path,
            "byte 0",
            format!("got {magic:02x?}, an NPY file starts with {MAGIC:02x?}"),
        ));
    }
    let [major, minor] = cursor.array("the version")?;
    let header_len = match major {
        1 => usize::from(u16::from_le_bytes(cursor.array("the header's length")?)),
        2 | 3 => u32::from_le_bytes(cursor.array("the header's length")?) as usize,
        _ => {
            return Err(Error::file(
                path,
                "byte 6",
                format!("got version {major}.{minor}, needs 1, 2 or 3"),
            ));
        }
    };
    let header_start = cursor.at();
    let header = cursor.take(header_len, "the header")?;
    let header = std::str::from_utf8(header).map_err(|e| {
        Error::file(
            path,
            format!("byte {}", header_start + e.valid_up_to()),
            "the header is not text",
        )
    })?;
    let header = Header::parse(header).map_err(|(at, problem)| {
        Error::file(path, format!("byte {}", header_start + at), problem)
    })?;
    let (stored, big) = number_type(&header.descr).ok_or_else(|| {
        Error::file(
            path,
            "header, 'descr'",
            format!(
                "got {:?}, needs a type of real numbers, such as '<f4', '<f8', '<i8', '|u1' or '|b1'",
                header.descr
            ),
        )
    })?;
    let count = size_of(&header.shape);
    let size = count.and_then(|n| n.checked_mul(stored.size()));
    let size = size.ok_or_else(|| {
        Error::file(
            path,
            "header, 'shape'",
            format!("{:?} is more than this machine can count", header.shape),
        )
    })?;
    let start = cursor.at();
    let data = cursor.take(
        size,
        &format!("the shape {:?} of type {:?}", header.shape, header.descr),
    )?;
    cursor.end("the array")?;
    let values = stored.decode(path, data, start, big)?;
    let array = Array::new(header.shape, values)?;
    Ok(if header.fortran_order {
        array.first_axis_slowest()
    } else {
        array
    })
}

/// Writes an array, whole or not at all.
pub fn write(path: impl AsRef<Path>, array: &Array) -> Result<()> {
    files::write_whole(path, |w| w.write_all(&encode(array)))
}

/// The bytes of an NPY file.
pub fn encode(array: &Array) -> Vec<u8> {
    let (descr, data): (&str, Vec<u8>) = match &array.values {
        Values::F32(v) => ("<f4", v.iter().flat_map(|x| x.to_le_bytes()).collect()),
        Values::F64(v) => ("<f8", v.iter().flat_map(|x| x.to_le_bytes()).collect()),
        Values::I64(v) => ("<i8", v.iter().flat_map(|x| x.to_le_bytes()).collect()),
        Values::U8(v) => ("|u1", v.clone()),
    };
    let sizes: Vec<String> = array.shape.iter().map(usize::to_string).collect();
    // Python writes a tuple of one as (3,).
    let comma = if sizes.len() == 1 { "," } else { "" };
    let mut header = format!(
        "{{'descr': '{descr}', 'fortran_order': False, 'shape': ({}{comma}), }}",
        sizes.join(", ")
    );
    // The data starts at a multiple of 64 bytes, and the header ends with a new line.
    let before = MAGIC.len() + 4;
    let padding = 63 - (before + header.len()) % 64;
    header.extend(std::iter::repeat_n(' ', padding));
    header.push('\n');
    let mut bytes = MAGIC.to_vec();
    bytes.extend([1, 0]);
    // A shape whose text reaches 65 kB can't come from an array in memory.
    bytes.extend((header.len() as u16).to_le_bytes());
    bytes.extend(header.as_bytes());
    bytes.extend(data);
    bytes
}

/// The type and whether it is big-endian.
fn number_type(descr: &str) -> Option<(Stored, bool)> {
    let (order, kind) = descr.split_at_checked(1)?;
    let big = match order {
        "<" | "|" => false,
        ">" => true,
        "=" => cfg!(target_endian = "big"),
        _ => return None,
    };
    let stored = match kind {
        "f2" => Stored::F16,
        "f4" => Stored::F32,
        "f8" => Stored::F64,
        "i1" => Stored::I8,
        "i2" => Stored::I16,
        "i4" => Stored::I32,
        "i8" => Stored::I64,
        "u1" => Stored::U8,
        "u2" => Stored::U16,
        "u4" => Stored::U32,
        "u8" => Stored::U64,
        "b1" => Stored::Bool,
        _ => return None,
    };
    Some((stored, big))
}

#[derive(Debug, PartialEq)]
struct Header {
    descr: String,
    fortran_order: bool,
    shape: Vec<usize>,
}

/// A place in the header and what is wrong there.
type Problem = (usize, String);

/// A reader of the few Python literals that a header is made of.
struct Literals<'a> {
    text: &'a str,
    at: usize,
}

impl Literals<'_> {
    fn rest(&mut self) -> &str {
        let rest = &self.text[self.at..];
        self.at += rest.len() - rest.trim_start().len();
        &self.text[self.at..]
    }

    fn problem<X>(&mut self, needed: &str) -> Result<X, Problem> {
        let at = self.at;
        let got: String = self.rest().chars().take(16).collect();
        Err((
            at,
            format!("the header has {got:?} where it needs {needed}"),
        ))
    }

    /// Whether the next thing is this; if so, it is passed.
    fn passes(&mut self, word: &str) -> bool {
        let here = self.rest().starts_with(word);
        if here {
            self.at += word.len();
        }
        here
    }

    fn expect(&mut self, word: &str) -> Result<(), Problem> {
        if self.passes(word) {
            return Ok(());
        }
        self.problem(&format!("{word:?}"))
    }

    fn string(&mut self) -> Result<String, Problem> {
        for quote in ['\'', '"'] {
            let rest = self.rest();
            if let Some(inside) = rest.strip_prefix(quote)
                && let Some(end) = inside.find(quote)
            {
                let text = inside[..end].to_string();
                self.at += end + 2;
                return Ok(text);
            }
        }
        self.problem("a text in quotes")
    }

    fn boolean(&mut self) -> Result<bool, Problem> {
        if self.passes("True") {
            return Ok(true);
        }
        if self.passes("False") {
            return Ok(false);
        }
        self.problem("True or False")
    }

    fn tuple(&mut self) -> Result<Vec<usize>, Problem> {
        self.expect("(")?;
        let mut sizes = Vec::new();
        while !self.passes(")") {
            let rest = self.rest();
            let digits = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit()).len();
            let Ok(size) = rest[..digits].parse() else {
                return self.problem("a size that fits 64 bits");
            };
            self.at += digits;
            // Python 2 wrote long integers as 3L.
            self.passes("L");
            sizes.push(size);
            if !self.passes(",") {
                self.expect(")")?;
                break;
            }
        }
        // NumPy's own limit; no array has more.
        if sizes.len() > 64 {
            return self.problem("at most 64 axes");
        }
        Ok(sizes)
    }
}

impl Header {
    fn parse(text: &str) -> Result<Self, Problem> {
        let mut literals = Literals { text, at: 0 };
        let (mut descr, mut fortran_order, mut shape) = (None, None, None);
        literals.expect("{")?;
        while !literals.passes("}") {
            let key = literals.string()?;
            literals.expect(":")?;
            match key.as_str() {
                "descr" => {
                    descr = Some(literals.string().map_err(|(at, _)| {
                        (
                            at,
                            "the array holds records or objects; needs plain numbers".into(),
                        )
                    })?)
                }
                "fortran_order" => fortran_order = Some(literals.boolean()?),
                "shape" => shape = Some(literals.tuple()?),
                _ => {
                    let needed = "one of 'descr', 'fortran_order' and 'shape'";
                    return Err((
                        literals.at,
                        format!("the header has the key {key:?}, needs {needed}"),
                    ));
                }
            }
            if !literals.passes(",") {
                literals.expect("}")?;
                break;
            }
        }
        if !literals.rest().is_empty() {
            return literals.problem("its end");
        }
        match (descr, fortran_order, shape) {
            (Some(descr), Some(fortran_order), Some(shape)) => Ok(Header {
                descr,
                fortran_order,
                shape,
            }),
            (None, ..) => Err((0, "the header has no 'descr'".into())),
            (_, None, _) => Err((0, "the header has no 'fortran_order'".into())),
            (.., None) => Err((0, "the header has no 'shape'".into())),
        }
    }
}
