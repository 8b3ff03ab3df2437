//! NPY, the file of one NumPy array: read in versions 1 to 3, all real number types, both byte
//! orders and both axis orders; written in version 1.
//!
//! The header is a Python literal such as `{'descr': '<f4', 'fortran_order': False, 'shape': (3,
//! 4), }`. Nothing that it says is believed before the file's length agrees, so a lying header
//! costs no memory.

use std::io::Write;
use std::path::Path;

use super::array::{Array, Stored, Values};
use super::dataset::size_of;
use super::files::{self, Cursor};
use crate::{Error, Result};

const MAGIC: &[u8; 6] = b"\x93NUMPY";
/// The longest header that is read: version 1 can have no longer one, and plain numbers need none.
const MAX_HEADER: usize = u16::MAX as usize;
/// No file's numbers start later than that.
pub(super) const MAX_START: usize = MAGIC.len() + 2 + 4 + MAX_HEADER;

/// Reads an NPY file.
pub fn read(path: impl AsRef<Path>) -> Result<Array> {
    let path = path.as_ref();
    decode(path, &files::read(path)?)
}

/// Reads an NPY file's bytes; `path` is for messages.
pub fn decode(path: &Path, bytes: &[u8]) -> Result<Array> {
    let mut cursor = Cursor::new(path, bytes);
    let header = Header::read(&mut cursor)?;
    let start = cursor.at();
    let what = format!("the shape {:?} of type {:?}", header.shape, header.descr);
    let data = cursor.take(header.size, &what)?;
    cursor.end("the array")?;
    let values = header.stored.decode(path, data, start, header.big)?;
    let array = Array::new(header.shape, values)?;
    Ok(if header.fortran_order {
        array.first_axis_slowest()
    } else {
        array
    })
}

/// Writes an array, whole or not at all.
pub fn write(path: impl AsRef<Path>, array: &Array) -> Result<()> {
    crate::disk::write_whole(path, |w| write_to(w, &array.shape, &array.values))
}

/// The bytes of an NPY file.
pub fn encode(array: &Array) -> Vec<u8> {
    let mut bytes = Vec::new();
    write_to(&mut bytes, &array.shape, &array.values).expect("memory takes every byte");
    bytes
}

/// Writes an NPY file's bytes.
pub(super) fn write_to(
    w: &mut (impl Write + ?Sized),
    shape: &[usize],
    values: &Values,
) -> std::io::Result<()> {
    let descr = match values {
        Values::F32(_) => "<f4",
        Values::F64(_) => "<f8",
        Values::I64(_) => "<i8",
        Values::U8(_) => "|u1",
    };
    let sizes: Vec<String> = shape.iter().map(usize::to_string).collect();
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
    w.write_all(MAGIC)?;
    w.write_all(&[1, 0])?;
    // A shape whose text reaches 65 kB can't come from an array in memory.
    w.write_all(&(header.len() as u16).to_le_bytes())?;
    w.write_all(header.as_bytes())?;
    w.write_all(values.bytes())
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

/// What stands before the numbers.
#[derive(Debug)]
pub(super) struct Header {
    /// The numbers' type, in NumPy's words.
    descr: String,
    pub stored: Stored,
    /// Whether the numbers are big-endian.
    pub big: bool,
    /// Whether the first axis is fastest.
    pub fortran_order: bool,
    pub shape: Vec<usize>,
    /// Bytes of all numbers.
    pub size: usize,
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

    /// The whole dictionary: type, order and shape. Every byte is passed once, and nothing nests:
    /// the time is linear in the length.
    fn header(mut self) -> Result<(String, bool, Vec<usize>), Problem> {
        let (mut descr, mut fortran_order, mut shape) = (None, None, None);
        self.expect("{")?;
        while !self.passes("}") {
            let key = self.string()?;
            self.expect(":")?;
            match key.as_str() {
                "descr" => {
                    let records = "the array holds records or objects; needs plain numbers";
                    descr = Some(self.string().map_err(|(at, _)| (at, records.into()))?);
                }
                "fortran_order" => fortran_order = Some(self.boolean()?),
                "shape" => shape = Some(self.tuple()?),
                _ => {
                    let needed = "one of 'descr', 'fortran_order' and 'shape'";
                    let problem = format!("the header has the key {key:?}, needs {needed}");
                    return Err((self.at, problem));
                }
            }
            if !self.passes(",") {
                self.expect("}")?;
                break;
            }
        }
        if !self.rest().is_empty() {
            return self.problem("its end");
        }
        let absent = |key: &str| (0, format!("the header has no '{key}'"));
        Ok((
            descr.ok_or_else(|| absent("descr"))?,
            fortran_order.ok_or_else(|| absent("fortran_order"))?,
            shape.ok_or_else(|| absent("shape"))?,
        ))
    }
}

impl Header {
    /// Reads the start of a file, up to the numbers. What is promised there is not yet compared
    /// with the file's length.
    pub(super) fn read(cursor: &mut Cursor<'_>) -> Result<Self> {
        let path = cursor.path();
        let magic = cursor.take(MAGIC.len(), "an NPY file's first word")?;
        if magic != MAGIC {
            let problem = format!("got {magic:02x?}, an NPY file starts with {MAGIC:02x?}");
            return Err(Error::file(path, "byte 0", problem));
        }
        let [major, minor] = cursor.array("the version")?;
        let start = cursor.at();
        let length = match major {
            1 => u16::from_le_bytes(cursor.array("the header's length")?).into(),
            2 | 3 => u32::from_le_bytes(cursor.array("the header's length")?) as usize,
            _ => {
                let problem = format!("got version {major}.{minor}, needs 1, 2 or 3");
                return Err(Error::file(path, "byte 6", problem));
            }
        };
        if length > MAX_HEADER {
            let problem = format!("got a header of {length} bytes, needs at most {MAX_HEADER}");
            return Err(Error::file(path, format!("byte {start}"), problem));
        }
        let start = cursor.at();
        let text = std::str::from_utf8(cursor.take(length, "the header")?).map_err(|e| {
            let at = format!("byte {}", start + e.valid_up_to());
            Error::file(path, at, "the header is not text")
        })?;
        let (descr, fortran_order, shape) = Literals { text, at: 0 }
            .header()
            .map_err(|(at, problem)| Error::file(path, format!("byte {}", start + at), problem))?;
        let (stored, big) = number_type(&descr).ok_or_else(|| {
            let problem = format!(
                "got {descr:?}, needs a type of real numbers, such as '<f4', '<f8', '<i8', '|u1' or '|b1'"
            );
            Error::file(path, "header, 'descr'", problem)
        })?;
        let size = size_of(&shape).and_then(|n| n.checked_mul(stored.size()));
        let size = size.ok_or_else(|| {
            let problem =
                format!("the header promises {shape:?}, which is more than this machine can count");
            Error::file(path, "header, 'shape'", problem)
        })?;
        Ok(Header {
            descr,
            stored,
            big,
            fortran_order,
            shape,
            size,
        })
    }
}
