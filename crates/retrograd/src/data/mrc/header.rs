//! The 1024-byte header of an MRC file and the number formats after it.

use half::f16;

/// The length of the header proper; the extended header follows, then the data.
pub const HEADER_BYTES: usize = 1024;

/// How a pixel is stored. The complex modes 3 and 4 hold Fourier transforms and are refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MrcMode {
    /// 0: signed bytes.
    I8,
    /// 1: signed 16-bit integers.
    I16,
    /// 2: 32-bit floats.
    F32,
    /// 6: unsigned 16-bit integers.
    U16,
    /// 12: 16-bit floats.
    F16,
    /// 101: unsigned 4-bit integers, two to a byte, the first in the lower half; a row of odd
    /// length ends with half a byte unused.
    Packed4,
}

impl MrcMode {
    /// All of them.
    pub const ALL: [MrcMode; 6] = [
        MrcMode::I8,
        MrcMode::I16,
        MrcMode::F32,
        MrcMode::U16,
        MrcMode::F16,
        MrcMode::Packed4,
    ];

    /// The number in the header.
    pub fn number(self) -> i32 {
        match self {
            MrcMode::I8 => 0,
            MrcMode::I16 => 1,
            MrcMode::F32 => 2,
            MrcMode::U16 => 6,
            MrcMode::F16 => 12,
            MrcMode::Packed4 => 101,
        }
    }

    /// The bytes of a row of `width` pixels.
    pub fn row_bytes(self, width: usize) -> u64 {
        let width = width as u64;
        match self {
            MrcMode::I8 => width,
            MrcMode::I16 | MrcMode::U16 | MrcMode::F16 => 2 * width,
            MrcMode::F32 => 4 * width,
            MrcMode::Packed4 => width.div_ceil(2),
        }
    }

    /// The bytes of a row that hold the columns `x .. x + width`: where they start and how many.
    pub(super) fn columns(self, x: usize, width: usize) -> (u64, usize) {
        match self {
            MrcMode::Packed4 => (x as u64 / 2, (x + width).div_ceil(2) - x / 2),
            _ => (self.row_bytes(x), self.row_bytes(width) as usize),
        }
    }

    /// Decodes one run of pixels. `odd` says that a packed run starts in the upper half of its
    /// first byte.
    pub(super) fn decode(self, bytes: &[u8], big_endian: bool, odd: bool, out: &mut [f32]) {
        macro_rules! numbers {
            ($t:ty, $convert:expr) => {
                for (o, b) in out.iter_mut().zip(bytes.chunks_exact(size_of::<$t>())) {
                    let b = b.try_into().expect("a chunk of its size");
                    let value = if big_endian {
                        <$t>::from_be_bytes(b)
                    } else {
                        <$t>::from_le_bytes(b)
                    };
                    *o = $convert(value);
                }
            };
        }
        match self {
            MrcMode::I8 => numbers!(i8, f32::from),
            MrcMode::I16 => numbers!(i16, f32::from),
            MrcMode::F32 => numbers!(f32, |v| v),
            MrcMode::U16 => numbers!(u16, f32::from),
            MrcMode::F16 => numbers!(f16, f32::from),
            MrcMode::Packed4 => {
                for (i, o) in out.iter_mut().enumerate() {
                    let i = i + usize::from(odd);
                    *o = f32::from((bytes[i / 2] >> (4 * (i % 2))) & 15);
                }
            }
        }
    }

    /// Appends one row, and replaces it by what was written: integers are rounded to the nearest
    /// and cut at the ends of their range.
    pub(super) fn encode(self, row: &mut [f32], big_endian: bool, bytes: &mut Vec<u8>) {
        macro_rules! numbers {
            ($t:ty, $from:expr, $to:expr) => {
                for value in row.iter_mut() {
                    let stored: $t = $from(*value);
                    bytes.extend_from_slice(&if big_endian {
                        stored.to_be_bytes()
                    } else {
                        stored.to_le_bytes()
                    });
                    *value = $to(stored);
                }
            };
        }
        match self {
            MrcMode::I8 => numbers!(i8, |v: f32| v.round_ties_even() as i8, f32::from),
            MrcMode::I16 => numbers!(i16, |v: f32| v.round_ties_even() as i16, f32::from),
            MrcMode::F32 => numbers!(f32, |v| v, |v| v),
            MrcMode::U16 => numbers!(u16, |v: f32| v.round_ties_even() as u16, f32::from),
            MrcMode::F16 => numbers!(
                f16,
                |v| f16::from_f32(v).clamp(f16::MIN, f16::MAX),
                f32::from
            ),
            MrcMode::Packed4 => {
                for pair in row.chunks_mut(2) {
                    let mut byte = 0;
                    for (i, value) in pair.iter_mut().enumerate() {
                        *value = value.round_ties_even().clamp(0.0, 15.0);
                        byte |= (*value as u8) << (4 * i);
                    }
                    bytes.push(byte);
                }
            }
        }
    }
}

/// What is wrong with a header, and at which of its bytes.
pub(super) struct Problem {
    pub byte: u64,
    pub problem: String,
}

/// The header, kept as the bytes that were read, so that what this reader doesn't know survives
/// being written again. The extended header speaks the same byte order as the rest, so a file is
/// written in the order in which it was read.
#[derive(Clone, Debug, PartialEq)]
pub struct Header {
    bytes: Box<[u8; HEADER_BYTES]>,
    big_endian: bool,
    mode: MrcMode,
    /// The extended header, kept as it is; `exttyp` in the header names its kind.
    pub extended: Vec<u8>,
}

impl Header {
    /// The header of a new little-endian file of `sections` images. The voxel size is unknown (0).
    pub fn new(width: usize, height: usize, sections: usize, mode: MrcMode) -> Self {
        let mut header = Header {
            bytes: Box::new([0; HEADER_BYTES]),
            big_endian: false,
            mode,
            extended: Vec::new(),
        };
        for (i, n) in [width, height, sections].into_iter().enumerate() {
            header.set_i32(
                4 * i,
                i32::try_from(n).expect("a size that the format can say"),
            );
            // A stack of images is mz = 1 deep.
            header.set_i32(28 + 4 * i, if i == 2 { 1 } else { n as i32 });
            header.set_f32(52 + 4 * i, 90.0);
            header.set_i32(64 + 4 * i, i as i32 + 1);
        }
        header.set_i32(12, mode.number());
        header.set_i32(108, 20141);
        header.bytes[208..212].copy_from_slice(b"MAP ");
        header.bytes[212..216].copy_from_slice(&[0x44, 0x44, 0, 0]);
        header
    }

    /// Reads and checks a header. The stamp decides the byte order, unless the header makes sense
    /// in the other order only: a wrong stamp is common. Returns what was forgiven, too.
    pub(super) fn parse(bytes: &[u8; HEADER_BYTES]) -> Result<(Self, Vec<String>), Problem> {
        let stamp = [bytes[212], bytes[213]];
        let stamped_big = stamp == [0x11, 0x11];
        let mut warnings = Vec::new();
        let known = stamped_big || stamp == [0x44, 0x44] || stamp == [0x44, 0x41];
        let header = match Self::check(bytes, stamped_big) {
            Ok(header) => {
                if !known {
                    warnings.push(format!(
                        "the machine stamp {:02x} {:02x} is unknown; read as little-endian",
                        stamp[0], stamp[1]
                    ));
                }
                header
            }
            Err(problem) => {
                let other = Self::check(bytes, !stamped_big).map_err(|_| problem)?;
                warnings.push(format!(
                    "the machine stamp {:02x} {:02x} contradicts the header; read as {}-endian",
                    stamp[0],
                    stamp[1],
                    if stamped_big { "little" } else { "big" }
                ));
                other
            }
        };
        if &bytes[208..212] != b"MAP " {
            warnings.push(format!(
                "the word at byte 208 is {:?}, not \"MAP \"",
                String::from_utf8_lossy(&bytes[208..212])
            ));
        }
        Ok((header, warnings))
    }

    fn check(bytes: &[u8; HEADER_BYTES], big_endian: bool) -> Result<Self, Problem> {
        let bad = |byte: usize, problem: String| {
            Err(Problem {
                byte: byte as u64,
                problem,
            })
        };
        let mut header = Header {
            bytes: Box::new(*bytes),
            big_endian,
            mode: MrcMode::F32,
            extended: Vec::new(),
        };
        if &bytes[208..211] != b"MAP" {
            return bad(
                208,
                "there is no \"MAP \" here: not an MRC file".to_string(),
            );
        }
        for (i, name) in ["nx", "ny", "nz"].into_iter().enumerate() {
            let n = header.i32(4 * i);
            if n <= 0 {
                return bad(4 * i, format!("{name} is {n}, needs a positive size"));
            }
        }
        let number = header.i32(12);
        header.mode = match MrcMode::ALL.into_iter().find(|m| m.number() == number) {
            Some(mode) => mode,
            None => {
                let what = match number {
                    3 | 4 => " (complex numbers: a Fourier transform)",
                    _ => "",
                };
                return bad(
                    12,
                    format!("mode {number}{what}, needs a real one: 0, 1, 2, 6, 12 or 101"),
                );
            }
        };
        let mut axes = [64, 68, 72].map(|at| header.i32(at));
        axes.sort_unstable();
        if axes != [1, 2, 3] {
            let got = [64, 68, 72].map(|at| header.i32(at));
            return bad(
                64,
                format!("the axes are {got:?}, need a permutation of 1, 2, 3"),
            );
        }
        if header.i32(92) < 0 {
            return bad(
                92,
                format!("the extended header has {} bytes", header.i32(92)),
            );
        }
        if header.total_bytes().is_none() {
            let [x, y, z] = header.size();
            return bad(0, format!("{x} × {y} × {z} pixels overflow 64 bits"));
        }
        Ok(header)
    }

    fn word(&self, at: usize) -> [u8; 4] {
        self.bytes[at..at + 4].try_into().expect("four bytes")
    }

    /// The 32-bit integer at a byte.
    pub fn i32(&self, at: usize) -> i32 {
        if self.big_endian {
            i32::from_be_bytes(self.word(at))
        } else {
            i32::from_le_bytes(self.word(at))
        }
    }

    /// The 32-bit float at a byte.
    pub fn f32(&self, at: usize) -> f32 {
        f32::from_bits(self.i32(at) as u32)
    }

    pub(super) fn set_i32(&mut self, at: usize, value: i32) {
        let bytes = if self.big_endian {
            value.to_be_bytes()
        } else {
            value.to_le_bytes()
        };
        self.bytes[at..at + 4].copy_from_slice(&bytes);
    }

    fn set_f32(&mut self, at: usize, value: f32) {
        self.set_i32(at, value.to_bits() as i32);
    }

    /// Columns, rows and sections.
    pub fn size(&self) -> [usize; 3] {
        [0, 4, 8].map(|at| self.i32(at) as usize)
    }

    /// How pixels are stored.
    pub fn mode(&self) -> MrcMode {
        self.mode
    }

    /// Whether numbers are stored with their highest byte first.
    pub fn big_endian(&self) -> bool {
        self.big_endian
    }

    /// Where the data starts.
    pub(super) fn data_offset(&self) -> u64 {
        HEADER_BYTES as u64 + self.i32(92) as u64
    }

    /// The length of the whole file, unless it overflows.
    pub(super) fn total_bytes(&self) -> Option<u64> {
        let [width, height, sections] = self.size();
        self.mode
            .row_bytes(width)
            .checked_mul(height as u64)?
            .checked_mul(sections as u64)?
            .checked_add(self.data_offset())
    }

    /// The size of a voxel in Å along x, y and z: cell / m; 0 where the header doesn't say.
    pub fn voxel_size(&self) -> [f32; 3] {
        [0, 4, 8].map(|i| {
            let m = self.i32(28 + i);
            if m > 0 {
                self.f32(40 + i) / m as f32
            } else {
                0.0
            }
        })
    }

    /// Sets the cell so that a voxel has this size in Å.
    pub fn set_voxel_size(&mut self, voxel: [f32; 3]) {
        for (i, v) in voxel.into_iter().enumerate() {
            let m = self.i32(28 + 4 * i).max(1);
            self.set_f32(40 + 4 * i, v * m as f32);
        }
    }

    /// The origin in Å.
    pub fn origin(&self) -> [f32; 3] {
        [196, 200, 204].map(|at| self.f32(at))
    }

    /// Sets the origin in Å.
    pub fn set_origin(&mut self, origin: [f32; 3]) {
        for (i, v) in origin.into_iter().enumerate() {
            self.set_f32(196 + 4 * i, v);
        }
    }

    /// The kind of the extended header: `CCP4`, `FEI1`, `MRCO`, `SERI` …
    pub fn extended_kind(&self) -> [u8; 4] {
        self.word(104)
    }

    /// Sets the extended header and its kind.
    pub fn set_extended(&mut self, kind: [u8; 4], extended: Vec<u8>) {
        self.bytes[104..108].copy_from_slice(&kind);
        self.extended = extended;
    }

    /// Minimum, maximum, mean and standard deviation of the pixels, as the header claims them.
    pub fn statistics(&self) -> [f32; 4] {
        [76, 80, 84, 216].map(|at| self.f32(at))
    }

    pub(super) fn set_statistics(&mut self, statistics: [f32; 4]) {
        for (at, v) in [76, 80, 84, 216].into_iter().zip(statistics) {
            self.set_f32(at, v);
        }
    }

    /// The number of labels in use; a header that lies is cut to what fits.
    fn labels_used(&self) -> usize {
        self.i32(220).clamp(0, 10) as usize
    }

    /// The labels, without the blanks at their ends.
    pub fn labels(&self) -> Vec<String> {
        (0..self.labels_used())
            .map(|i| {
                let text = String::from_utf8_lossy(&self.bytes[224 + 80 * i..304 + 80 * i]);
                text.trim_end_matches(['\0', ' ']).to_string()
            })
            .collect()
    }

    /// Adds a label of at most 80 ASCII characters. Where all ten are taken, the oldest goes.
    pub fn add_label(&mut self, text: &str) {
        let mut used = self.labels_used();
        if used == 10 {
            self.bytes.copy_within(304..HEADER_BYTES, 224);
            used = 9;
        }
        let label = &mut self.bytes[224 + 80 * used..304 + 80 * used];
        label.fill(b' ');
        for (place, c) in label.iter_mut().zip(text.chars()) {
            *place = if c.is_ascii_graphic() || c == ' ' {
                c as u8
            } else {
                b'?'
            };
        }
        self.set_i32(220, used as i32 + 1);
    }

    /// The same header for data of another mode and another number of sections, of equal size in
    /// x and y. The voxel size stays.
    pub fn with_data(&self, sections: usize, mode: MrcMode) -> Self {
        let mut header = self.clone();
        let voxel = self.voxel_size();
        if header.i32(36) == header.i32(8) {
            header.set_i32(36, sections as i32);
            header.set_f32(48, voxel[2] * sections as f32);
        }
        header.set_i32(8, sections as i32);
        header.set_i32(12, mode.number());
        header.mode = mode;
        header
    }

    /// For images whose pixels are that many times as wide and high, as many as fill whole ones: cell,
    /// origin and grid follow.
    pub fn binned(&self, bin: usize) -> Self {
        let mut header = self.clone();
        let voxel = self.voxel_size();
        let size = self.size();
        for axis in 0..2 {
            let pixels = (size[axis] / bin.max(1)) as i32;
            header.set_i32(4 * axis, pixels);
            header.set_i32(28 + 4 * axis, pixels);
            header.set_f32(40 + 4 * axis, voxel[axis] * bin as f32 * pixels as f32);
            // Where the image begins, in pixels.
            let start = header.i32(16 + 4 * axis);
            header.set_i32(16 + 4 * axis, start / bin.max(1) as i32);
        }
        header
    }

    /// The bytes to write: whatever was forgiven on reading is put right.
    pub(super) fn to_bytes(&self) -> [u8; HEADER_BYTES] {
        let mut header = self.clone();
        header.set_i32(92, header.extended.len() as i32);
        let used = header.labels_used() as i32;
        header.set_i32(220, used);
        if !matches!(header.i32(108), 20140 | 20141) {
            header.set_i32(108, 20141);
        }
        header.bytes[208..212].copy_from_slice(b"MAP ");
        let stamp = match (header.big_endian, header.bytes[213]) {
            (true, _) => [0x11, 0x11],
            (false, 0x41) => [0x44, 0x41],
            (false, _) => [0x44, 0x44],
        };
        header.bytes[212..214].copy_from_slice(&stamp);
        *header.bytes
    }
}
