//! MRC files, the images and stacks of electron microscopy (MRC2014).
//!
//! A file is a 1024-byte header, an extended header of any length, and the pixels, x fastest, then
//! y, then sections. Reading is by windows of a section, so that a file of any size is never
//! wholly in memory; writing is by rows, in order. The header is kept as it was read, byte order,
//! voxel size, origin and extended header included; on writing, the statistics are those of the
//! pixels written.
//!
//! Forgiven, with a warning: a word "MAP" with another fourth byte, a version of 0, an unknown or
//! wrong machine stamp, a file that is too long. Not forgiven: sizes that are not positive or
//! overflow, axes that are not a permutation, complex data, and a file that is too short.
//!
//! A file that starts with gzip's magic bytes is unpacked into an unnamed temporary file; a name
//! that ends in `.gz` is written packed.

mod header;
#[cfg(test)]
mod tests;

use crate::math;
use std::fs::File;
use std::io::{BufReader, BufWriter, ErrorKind, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

pub use header::{HEADER_BYTES, Header, MrcMode};

use super::image::{Image, Rect};
use crate::disk::NewFile;
use crate::{Error, Result};

/// Where the bytes are.
#[derive(Debug)]
enum Source {
    /// Opened for every window: thousands of files of a data set need no thousands of handles.
    Plain,
    /// Unpacked.
    Unpacked(Mutex<File>),
}

/// An MRC file, to be read by windows.
#[derive(Debug)]
pub struct MrcFile {
    path: PathBuf,
    header: Header,
    source: Source,
    /// What was forgiven.
    pub warnings: Vec<String>,
}

impl MrcFile {
    /// Opens a file and checks its header and its length.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        crate::data::sources::note(path);
        let mut file = File::open(path).map_err(Error::io(path, "open"))?;
        let mut magic = [0; 2];
        let n = read_up_to(&mut file, &mut magic).map_err(Error::io(path, "read"))?;
        file.rewind().map_err(Error::io(path, "read"))?;
        if magic[..n] == [0x1f, 0x8b] {
            return Self::open_gzip(path, file);
        }
        let (mut header, mut warnings) = read_header(path, &mut file)?;
        let length = file.metadata().map_err(Error::io(path, "read"))?.len();
        let needed = header.total_bytes().expect("checked with the header");
        check_length(path, &header, length)?;
        if length > needed {
            warnings.push(format!(
                "the file goes on for {} bytes after the data; they are ignored",
                length - needed
            ));
        }
        read_extended(path, &mut file, &mut header)?;
        Ok(MrcFile {
            path: path.to_path_buf(),
            header,
            source: Source::Plain,
            warnings,
        })
    }

    fn open_gzip(path: &Path, file: File) -> Result<Self> {
        let mut packed = flate2::read::MultiGzDecoder::new(BufReader::new(file));
        let (mut header, mut warnings) = read_header(path, &mut packed)?;
        let needed = header.total_bytes().expect("checked with the header");
        // The temporary file has the length of the whole, so that offsets are those of the format.
        // It grows with what is unpacked, whatever the header claims, and no further than that.
        let mut unpacked = crate::disk::unnamed_file().map_err(Error::io(path, "unpack"))?;
        unpacked
            .write_all(&[0; HEADER_BYTES])
            .map_err(Error::io(path, "unpack"))?;
        let rest = needed - HEADER_BYTES as u64;
        let copied = std::io::copy(&mut (&mut packed).take(rest), &mut unpacked)
            .map_err(|e| gzip_error(path, e))?;
        check_length(path, &header, HEADER_BYTES as u64 + copied)?;
        let more = read_up_to(&mut packed, &mut [0]).map_err(|e| gzip_error(path, e))?;
        if more > 0 {
            warnings.push("the file goes on after the data; the rest is ignored".to_string());
        }
        unpacked
            .seek(SeekFrom::Start(HEADER_BYTES as u64))
            .map_err(Error::io(path, "unpack"))?;
        read_extended(path, &mut unpacked, &mut header)?;
        Ok(MrcFile {
            path: path.to_path_buf(),
            header,
            source: Source::Unpacked(Mutex::new(unpacked)),
            warnings,
        })
    }

    /// The header.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// Reads a window of a section, row after row, into `out`.
    pub fn read_window(&self, section: usize, window: Rect, out: &mut [f32]) -> Result<()> {
        let [width, height, sections] = self.header.size();
        window.check(&self.path, width, height)?;
        if section >= sections {
            return Err(Error::invalid(
                format!("section of {}", self.path.display()),
                section,
                format!("a number below {sections}"),
            ));
        }
        assert_eq!(out.len(), window.pixels());
        match &self.source {
            Source::Plain => {
                let mut file = File::open(&self.path).map_err(Error::io(&self.path, "open"))?;
                self.read_from(&mut file, section, window, out)
            }
            Source::Unpacked(file) => {
                let mut file = file.lock().expect("no reader panicked");
                self.read_from(&mut file, section, window, out)
            }
        }
    }

    fn read_from(
        &self,
        file: &mut File,
        section: usize,
        window: Rect,
        out: &mut [f32],
    ) -> Result<()> {
        let [width, height, _] = self.header.size();
        let mode = self.header.mode();
        let row_bytes = mode.row_bytes(width);
        let (skip, len) = mode.columns(window.x, window.width);
        // Whole rows are read at once, in pieces of about 1 MiB; parts of rows one by one.
        let rows_at_once = if window.width == width {
            (1 << 20) / len.max(1) + 1
        } else {
            1
        };
        let mut bytes = vec![0; rows_at_once.min(window.height) * len];
        let rows = out.chunks_mut(rows_at_once * window.width);
        for (i, rows) in rows.enumerate() {
            let row = window.y + i * rows_at_once;
            let at = self.header.data_offset()
                + (section as u64 * height as u64 + row as u64) * row_bytes
                + skip;
            let n = rows.len() / window.width;
            let bytes = &mut bytes[..n * len];
            file.seek(SeekFrom::Start(at))
                .map_err(Error::io(&self.path, "read"))?;
            let got = read_up_to(file, bytes).map_err(Error::io(&self.path, "read"))?;
            if got < bytes.len() {
                return Err(Error::file(
                    &self.path,
                    format!("byte {}", at + got as u64),
                    "the file ends here, shorter than when it was opened",
                ));
            }
            for (k, (out, bytes)) in rows
                .chunks_exact_mut(window.width)
                .zip(bytes.chunks_exact(len))
                .enumerate()
            {
                let odd = mode == MrcMode::Packed4 && window.x % 2 == 1;
                mode.decode(bytes, self.header.big_endian(), odd, out);
                if let Some(x) = out.iter().position(|v| !v.is_finite()) {
                    let size = mode.row_bytes(1);
                    let byte = at + k as u64 * row_bytes + x as u64 * size;
                    return Err(Error::file(
                        &self.path,
                        format!("byte {byte}"),
                        format!(
                            "the pixel at x = {}, y = {} of section {section} is {}, needs a \
                             finite number",
                            window.x + x,
                            row + k,
                            out[x]
                        ),
                    ));
                }
            }
        }
        Ok(())
    }

    /// One whole section.
    pub fn read_section(&self, section: usize) -> Result<Image> {
        let [width, height, _] = self.header.size();
        let mut image = Image::new(width, height);
        self.read_window(section, Rect::whole(width, height), &mut image.pixels)?;
        Ok(image)
    }
}

/// Reads until the buffer is full or the file ends; how much there was.
fn read_up_to(file: &mut impl Read, buffer: &mut [u8]) -> std::io::Result<usize> {
    let mut got = 0;
    while got < buffer.len() {
        match file.read(&mut buffer[got..]) {
            Ok(0) => break,
            Ok(n) => got += n,
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(got)
}

fn gzip_error(path: &Path, error: std::io::Error) -> Error {
    match error.kind() {
        ErrorKind::InvalidData | ErrorKind::InvalidInput | ErrorKind::UnexpectedEof => {
            Error::file(path, "gzip", format!("broken or cut short: {error}"))
        }
        _ => Error::io(path, "unpack")(error),
    }
}

fn read_header(path: &Path, file: &mut impl Read) -> Result<(Header, Vec<String>)> {
    let mut bytes = [0; HEADER_BYTES];
    let got = read_up_to(file, &mut bytes).map_err(|e| gzip_error(path, e))?;
    if got < HEADER_BYTES {
        return Err(Error::file(
            path,
            format!("byte {got}"),
            "the file ends within its header of 1024 bytes",
        ));
    }
    Header::parse(&bytes).map_err(|p| Error::file(path, format!("byte {}", p.byte), p.problem))
}

fn check_length(path: &Path, header: &Header, length: u64) -> Result<()> {
    let needed = header.total_bytes().expect("checked with the header");
    if length >= needed {
        return Ok(());
    }
    let [x, y, z] = header.size();
    Err(Error::file(
        path,
        format!("byte {length}"),
        format!(
            "the file ends here; its header promises {needed} bytes ({HEADER_BYTES} of header, {} \
             of extended header, {x} × {y} × {z} pixels of mode {})",
            header.data_offset() - HEADER_BYTES as u64,
            header.mode().number()
        ),
    ))
}

/// After the length was checked: the extended header is no longer than the file.
fn read_extended(path: &Path, file: &mut File, header: &mut Header) -> Result<()> {
    let len = header.data_offset() - HEADER_BYTES as u64;
    header.extended = vec![0; len as usize];
    file.read_exact(&mut header.extended)
        .map_err(Error::io(path, "read"))
}

/// Minimum, maximum, mean and squared deviations, merged row by row (Chan, Golub and LeVeque).
#[derive(Clone, Copy, Debug)]
struct Statistics {
    count: f64,
    min: f32,
    max: f32,
    mean: f64,
    squares: f64,
}

impl Statistics {
    fn new() -> Self {
        Statistics {
            count: 0.0,
            min: f32::INFINITY,
            max: f32::NEG_INFINITY,
            mean: 0.0,
            squares: 0.0,
        }
    }

    fn add(&mut self, row: &[f32]) {
        let n = row.len() as f64;
        let mean = row.iter().map(|&v| f64::from(v)).sum::<f64>() / n;
        let squares: f64 = row
            .iter()
            .map(|&v| math::powi(f64::from(v) - mean, 2))
            .sum();
        let delta = mean - self.mean;
        let count = self.count + n;
        self.squares += squares + delta * delta * self.count * n / count;
        self.mean += delta * n / count;
        self.count = count;
        self.min = row.iter().copied().fold(self.min, math::min);
        self.max = row.iter().copied().fold(self.max, math::max);
    }

    fn values(&self) -> [f32; 4] {
        let rms = (self.squares / self.count).sqrt();
        [self.min, self.max, self.mean as f32, rms as f32]
    }
}

/// Writes an MRC file row by row. It appears under its name when it is finished, or not at all.
#[derive(Debug)]
pub struct MrcWriter {
    path: PathBuf,
    header: Header,
    out: BufWriter<NewFile>,
    rows: u64,
    statistics: Statistics,
    bytes: Vec<u8>,
    row: Vec<f32>,
}

impl MrcWriter {
    /// Starts a file with this header, whose size says how many rows must follow.
    pub fn create(path: impl AsRef<Path>, header: Header) -> Result<Self> {
        let path = path.as_ref();
        if i32::try_from(header.extended.len()).is_err() {
            return Err(Error::invalid(
                format!("extended header of {}", path.display()),
                format!("{} bytes", header.extended.len()),
                "less than 2 GiB",
            ));
        }
        let file = temporary_beside(path)?;
        let mut out = BufWriter::with_capacity(1 << 20, file);
        out.write_all(&[0; HEADER_BYTES])
            .and_then(|()| out.write_all(&header.extended))
            .map_err(Error::io(path, "write"))?;
        Ok(MrcWriter {
            path: path.to_path_buf(),
            header,
            out,
            rows: 0,
            statistics: Statistics::new(),
            bytes: Vec::new(),
            row: Vec::new(),
        })
    }

    /// Appends whole rows, section after section.
    pub fn write_rows(&mut self, rows: &[f32]) -> Result<()> {
        let [width, height, sections] = self.header.size();
        let total = height as u64 * sections as u64;
        if !rows.len().is_multiple_of(width) || self.rows + (rows.len() / width) as u64 > total {
            return Err(Error::invalid(
                format!("rows of {}", self.path.display()),
                format!("{} pixels after {} rows", rows.len(), self.rows),
                format!("whole rows of {width}, {total} of them in all"),
            ));
        }
        for row in rows.chunks_exact(width) {
            if let Some(x) = row.iter().position(|v| !v.is_finite()) {
                return Err(Error::invalid(
                    format!("pixel {x} of row {} of {}", self.rows, self.path.display()),
                    row[x],
                    "a finite number",
                ));
            }
            self.row.clear();
            self.row.extend_from_slice(row);
            self.bytes.clear();
            self.header
                .mode()
                .encode(&mut self.row, self.header.big_endian(), &mut self.bytes);
            self.statistics.add(&self.row);
            self.out
                .write_all(&self.bytes)
                .map_err(Error::io(&self.path, "write"))?;
            self.rows += 1;
        }
        Ok(())
    }

    /// Writes the header with the pixels' statistics and gives the file its name.
    pub fn finish(mut self) -> Result<Header> {
        let [_, height, sections] = self.header.size();
        let total = height as u64 * sections as u64;
        if self.rows != total {
            return Err(Error::invalid(
                format!("rows of {}", self.path.display()),
                self.rows,
                total,
            ));
        }
        self.header.set_statistics(self.statistics.values());
        let path = &self.path;
        let mut file = self
            .out
            .into_inner()
            .map_err(|e| Error::io(path, "write")(e.into_error()))?;
        file.rewind()
            .and_then(|()| file.write_all(&self.header.to_bytes()))
            .map_err(Error::io(path, "write"))?;
        if path
            .extension()
            .is_some_and(|e| e.eq_ignore_ascii_case("gz"))
        {
            let packed = temporary_beside(path)?;
            let mut encoder = flate2::write::GzEncoder::new(packed, flate2::Compression::default());
            file.rewind()
                .and_then(|()| std::io::copy(&mut file, &mut encoder))
                .map_err(Error::io(path, "pack"))?;
            file = encoder.finish().map_err(Error::io(path, "pack"))?;
        }
        file.finish().map_err(Error::io(path, "write"))?;
        Ok(self.header)
    }
}

/// A file in the folder of `path` that gets its name when it is finished.
pub(in crate::data) fn temporary_beside(path: &Path) -> Result<NewFile> {
    NewFile::beside(path).map_err(Error::io(path, "create"))
}

/// Writes images of equal size as one file.
pub fn write(path: impl AsRef<Path>, header: Header, images: &[&Image]) -> Result<Header> {
    let mut writer = MrcWriter::create(path, header)?;
    for image in images {
        writer.write_rows(&image.pixels)?;
    }
    writer.finish()
}
