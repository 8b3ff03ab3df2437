//! Image files of any kind, read by windows.

use std::fs::File;
use std::io::{BufReader, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use super::{Format, Image, Rect, TiffTags};
use crate::data::files::Cursor;
use crate::data::mrc::MrcFile;
use crate::data::npy;
use crate::{Error, Result, disk};

/// An unnamed temporary file that holds the pixels of many decoded images.
#[derive(Debug)]
pub struct Spool {
    file: Mutex<SpoolFile>,
}

#[derive(Debug)]
struct SpoolFile {
    file: File,
    end: u64,
}

impl Spool {
    /// Empty.
    pub fn new() -> Result<Arc<Self>> {
        let file =
            disk::unnamed_file().map_err(Error::io(disk::passing_folder(), "create a file in"))?;
        Ok(Arc::new(Spool {
            file: Mutex::new(SpoolFile { file, end: 0 }),
        }))
    }

    /// Workspace for that many pixels; where it starts.
    fn reserve(&self, pixels: u64) -> u64 {
        let mut spool = self.file.lock().expect("no reader panicked");
        let start = spool.end;
        spool.end += 4 * pixels;
        start
    }

    fn write(&self, at: u64, pixels: &[f32]) -> std::io::Result<()> {
        let mut spool = self.file.lock().expect("no reader panicked");
        spool.file.seek(SeekFrom::Start(at))?;
        spool.file.write_all(bytemuck::cast_slice(pixels))
    }

    fn read(&self, at: u64, pixels: &mut [f32]) -> std::io::Result<()> {
        let mut spool = self.file.lock().expect("no reader panicked");
        spool.file.seek(SeekFrom::Start(at))?;
        spool.file.read_exact(bytemuck::cast_slice_mut(pixels))
    }
}

#[derive(Debug)]
enum Pixels {
    Mrc(MrcFile),
    Spooled { spool: Arc<Spool>, start: u64 },
    Memory(Vec<Image>),
}

/// A file of one or several images of equal size, read by windows.
#[derive(Debug)]
pub struct ImageFile {
    /// Where it came from.
    pub path: PathBuf,
    /// Columns.
    pub width: usize,
    /// Rows.
    pub height: usize,
    /// Images in the file.
    pub sections: usize,
    /// What kind of file it is.
    pub format: Format,
    /// What was forgiven in reading its header.
    pub warnings: Vec<String>,
    /// What a TIFF says about its images.
    pub tags: TiffTags,
    pixels: Pixels,
    /// Columns and rows of the stored images.
    stored: [usize; 2],
    /// What is seen of them.
    view: View,
}

/// How stored images become those that are read.
#[derive(Clone, Copy, Debug)]
struct View {
    /// A pixel is the mean of so many by so many stored ones.
    bin: usize,
    /// The stored images that are averaged to one; each stands for itself where there is one.
    averaged: usize,
}

impl View {
    const WHOLE: View = View {
        bin: 1,
        averaged: 1,
    };
}

impl ImageFile {
    /// Opens a file of any known kind. What can't be read in place is decoded into the spool.
    pub fn open(path: impl AsRef<Path>, spool: &Arc<Spool>) -> Result<Self> {
        let path = path.as_ref();
        crate::data::sources::note(path);
        let mut magic = Vec::new();
        File::open(path)
            .and_then(|file| file.take(8).read_to_end(&mut magic))
            .map_err(Error::io(path, "read"))?;
        if magic.starts_with(b"\x89PNG") {
            guarded(path, "PNG", || Self::open_png(path, spool))
        } else if magic.starts_with(b"II") || magic.starts_with(b"MM") {
            guarded(path, "TIFF", || Self::open_tiff(path, spool))
        } else if magic.starts_with(b"\x93NUMPY") {
            Self::open_npy(path, spool)
        } else {
            Self::open_mrc(path)
        }
    }

    /// Images in memory under a name for messages.
    pub fn from_images(name: impl Into<PathBuf>, images: Vec<Image>) -> Result<Self> {
        let path = name.into();
        let [first, ..] = &images[..] else {
            return Err(Error::invalid(
                path.display().to_string(),
                "no image",
                "one",
            ));
        };
        let (width, height) = (first.width, first.height);
        if let Some(other) = images
            .iter()
            .find(|i| (i.width, i.height) != (width, height))
        {
            return Err(Error::invalid(
                path.display().to_string(),
                format!("images of {} × {}", other.width, other.height),
                format!("all of {width} × {height}, as the first"),
            ));
        }
        Ok(ImageFile {
            path,
            width,
            height,
            sections: images.len(),
            format: Format::Memory,
            warnings: Vec::new(),
            tags: TiffTags::default(),
            pixels: Pixels::Memory(images),
            stored: [width, height],
            view: View::WHOLE,
        })
    }

    fn open_mrc(path: &Path) -> Result<Self> {
        let file = MrcFile::open(path)?;
        let [width, height, sections] = file.header().size();
        Ok(ImageFile {
            path: path.to_path_buf(),
            width,
            height,
            sections,
            format: Format::Mrc(Box::new(file.header().clone())),
            warnings: file.warnings.clone(),
            tags: TiffTags::default(),
            pixels: Pixels::Mrc(file),
            stored: [width, height],
            view: View::WHOLE,
        })
    }

    fn open_png(path: &Path, spool: &Arc<Spool>) -> Result<Self> {
        /// The bytes that a decoded image may take.
        const MAX_BYTES: usize = 512 << 20;
        let bad = |e: png::DecodingError| Error::file(path, "PNG", e);
        let reader = BufReader::new(File::open(path).map_err(Error::io(path, "open"))?);
        let limits = png::Limits { bytes: MAX_BYTES };
        let mut decoder = png::Decoder::new_with_limits(reader, limits);
        // Palettes become colours, and fewer bits become 8.
        decoder.set_transformations(png::Transformations::EXPAND);
        let mut reader = decoder.read_info().map_err(bad)?;
        let (width, height) = reader.info().size();
        let size = reader.output_buffer_size().filter(|&n| n <= MAX_BYTES);
        let size = size.ok_or_else(|| {
            let problem = format!("{width} × {height} pixels, needs at most {MAX_BYTES} bytes");
            Error::file(path, "PNG", problem)
        })?;
        let mut bytes = vec![0; size];
        reader.next_frame(&mut bytes).map_err(bad)?;
        let (colour, depth) = reader.output_color_type();
        let (bits, pixels) = if depth == png::BitDepth::Sixteen {
            let words = bytes.chunks_exact(2);
            let words: Vec<u16> = words.map(|b| u16::from_be_bytes([b[0], b[1]])).collect();
            (16, luminance(&words, colour.samples()))
        } else {
            (8, luminance(&bytes, colour.samples()))
        };
        let (width, height) = (width as usize, height as usize);
        let file = Self::spooled(path, width, height, 1, Format::Png { bits }, spool)?;
        file.spool_run(0, 0, 0, &pixels)?;
        Ok(file)
    }

    fn open_npy(path: &Path, spool: &Arc<Spool>) -> Result<Self> {
        let bad = |problem: String| Error::file(path, "NPY", problem);
        let mut reader = BufReader::new(File::open(path).map_err(Error::io(path, "open"))?);
        let mut start = Vec::new();
        (&mut reader)
            .take(npy::MAX_START as u64)
            .read_to_end(&mut start)
            .map_err(Error::io(path, "read"))?;
        let mut cursor = Cursor::new(path, &start);
        let npy::Header {
            stored,
            big,
            fortran_order,
            shape,
            size,
            ..
        } = npy::Header::read(&mut cursor)?;
        if fortran_order {
            return Err(bad("columns first, needs rows first (C order)".to_string()));
        }
        let (sections, height, width) = match shape[..] {
            [height, width] => (1, height, width),
            [sections, height, width] => (sections, height, width),
            _ => {
                return Err(bad(format!(
                    "shape {shape:?}, needs (height, width) or (images, height, width)"
                )));
            }
        };
        let length = std::fs::metadata(path)
            .map_err(Error::io(path, "look at"))?
            .len();
        let mut at = cursor.at();
        if length.saturating_sub(at as u64) < size as u64 {
            return Err(bad(format!(
                "the header promises the shape {shape:?}, the file has only {length} bytes"
            )));
        }
        let file = Self::spooled(path, width, height, sections, Format::Npy, spool)?;
        // Rows go to the spool as they are read: an array of any size needs little memory.
        let mut row = vec![0; width * stored.size()];
        let io = Error::io(path, "read");
        reader.seek(SeekFrom::Start(at as u64)).map_err(io)?;
        for y in 0..sections * height {
            reader
                .read_exact(&mut row)
                .map_err(Error::io(path, "read"))?;
            let pixels = stored.decode(path, &row, at, big)?.to_f32();
            file.spool_run(y / height, y % height, 0, &pixels)?;
            at += row.len();
        }
        Ok(file)
    }

    /// An entry whose pixels are still to be spooled.
    pub(super) fn spooled(
        path: &Path,
        width: usize,
        height: usize,
        sections: usize,
        format: Format,
        spool: &Arc<Spool>,
    ) -> Result<Self> {
        let pixels = (width as u64)
            .checked_mul(height as u64)
            .and_then(|n| n.checked_mul(sections as u64))
            .filter(|&n| n > 0 && n < 1 << 60)
            .ok_or_else(|| {
                Error::file(
                    path,
                    "header",
                    format!("{sections} images of {width} × {height} pixels"),
                )
            })?;
        Ok(ImageFile {
            path: path.to_path_buf(),
            width,
            height,
            sections,
            format,
            warnings: Vec::new(),
            tags: TiffTags::default(),
            pixels: Pixels::Spooled {
                spool: spool.clone(),
                start: spool.reserve(pixels),
            },
            stored: [width, height],
            view: View::WHOLE,
        })
    }

    /// Spools pixels that lie one after another.
    pub(super) fn spool_run(&self, section: usize, y: usize, x: usize, run: &[f32]) -> Result<()> {
        if let Some(i) = run.iter().position(|v| !v.is_finite()) {
            let at = (y * self.width + x + i) % (self.width * self.height);
            return Err(Error::file(
                &self.path,
                format!(
                    "image {section}, x = {}, y = {}",
                    at % self.width,
                    at / self.width
                ),
                format!("the pixel is {}, needs a finite number", run[i]),
            ));
        }
        let Pixels::Spooled { spool, start } = &self.pixels else {
            unreachable!("only spooled files are spooled");
        };
        let at = start + 4 * ((section * self.height + y) * self.width + x) as u64;
        spool
            .write(at, run)
            .map_err(Error::io(&self.path, "unpack"))
    }

    /// The file with all its images averaged to one: the frames of a movie.
    pub fn averaged(mut self) -> Self {
        self.view.averaged = self.sections;
        self.sections = 1;
        self
    }

    /// The file with the mean of `bin` × `bin` pixels for a pixel; rows and columns that fill no whole
    /// one are left out. Headers and tags say the new size.
    pub fn binned(mut self, bin: usize) -> Result<Self> {
        let (width, height) = (self.width / bin.max(1), self.height / bin.max(1));
        if bin == 0 || width == 0 || height == 0 {
            return Err(Error::invalid(
                format!("bin of {}", self.path.display()),
                bin,
                format!("1 to {}, its smaller side", self.width.min(self.height)),
            ));
        }
        self.view.bin *= bin;
        (self.width, self.height) = (width, height);
        self.tags = self.tags.binned(bin);
        if let Format::Mrc(header) = &mut self.format {
            **header = header.binned(bin);
        }
        Ok(self)
    }

    /// Reads a window of a section, row after row, into `out`.
    pub fn read_window(&self, section: usize, window: Rect, out: &mut [f32]) -> Result<()> {
        window.check(&self.path, self.width, self.height)?;
        if section >= self.sections {
            return Err(Error::invalid(
                format!("section of {}", self.path.display()),
                section,
                format!("a number below {}", self.sections),
            ));
        }
        assert_eq!(out.len(), window.pixels());
        let View { bin, averaged } = self.view;
        if bin == 1 && averaged == 1 {
            return self.read_stored(section, window, out);
        }
        let stored = Rect {
            x: window.x * bin,
            y: window.y * bin,
            width: window.width * bin,
            height: bin,
        };
        let mut rows = vec![0.0; stored.pixels()];
        let mut sums = vec![0.0_f64; window.width];
        let share = 1.0 / (bin * bin * averaged) as f64;
        for (y, out) in out.chunks_exact_mut(window.width).enumerate() {
            sums.fill(0.0);
            for section in section..section + averaged {
                let y = stored.y + y * bin;
                self.read_stored(section, Rect { y, ..stored }, &mut rows)?;
                for row in rows.chunks_exact(stored.width) {
                    for (sum, pixels) in sums.iter_mut().zip(row.chunks_exact(bin)) {
                        *sum += pixels.iter().map(|&p| f64::from(p)).sum::<f64>();
                    }
                }
            }
            for (pixel, sum) in out.iter_mut().zip(&sums) {
                *pixel = (sum * share) as f32;
            }
        }
        Ok(())
    }

    /// A window of an image as it is stored.
    fn read_stored(&self, section: usize, window: Rect, out: &mut [f32]) -> Result<()> {
        match &self.pixels {
            Pixels::Mrc(file) => file.read_window(section, window, out),
            Pixels::Memory(images) => {
                images[section].window(window, out);
                Ok(())
            }
            Pixels::Spooled { spool, start } => {
                let [width, height] = self.stored;
                let rows = out.chunks_exact_mut(window.width);
                for (row, y) in rows.zip(window.y..) {
                    let at = (section * height + y) * width + window.x;
                    spool
                        .read(start + 4 * at as u64, row)
                        .map_err(Error::io(&self.path, "read the unpacked pixels of"))?;
                }
                Ok(())
            }
        }
    }

    /// One whole section.
    pub fn read_section(&self, section: usize) -> Result<Image> {
        let mut image = Image::new(self.width, self.height);
        self.read_window(
            section,
            Rect::whole(self.width, self.height),
            &mut image.pixels,
        )?;
        Ok(image)
    }
}

thread_local! {
    static GUARDED: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
}

/// Whether a panic of this thread would come back as an error: a hook need not print it.
pub(crate) fn panic_is_caught() -> bool {
    GUARDED.with(std::cell::Cell::get)
}

/// Runs a decoder that is not ours: where it panics on a broken file, that is an error like any
/// other. What it had spooled is never read.
pub(super) fn guarded<X>(path: &Path, kind: &str, decode: impl FnOnce() -> Result<X>) -> Result<X> {
    let outer = GUARDED.with(|guarded| guarded.replace(true));
    let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(decode));
    GUARDED.with(|guarded| guarded.set(outer));
    result.unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref().copied());
        let problem = format!("its decoder gave up: {}", text.unwrap_or("a broken file"));
        Err(Error::file(path, kind, problem))
    })
}

/// Rec. 709 luminance of pixels of 1 (grey), 2 (grey, alpha), 3 or 4 (RGB, RGB with alpha) samples.
pub(super) fn luminance<V: Copy + Into<f64>>(samples: &[V], per_pixel: usize) -> Vec<f32> {
    if per_pixel < 3 {
        let grey = samples.iter().step_by(per_pixel.max(1));
        return grey.map(|&v| v.into() as f32).collect();
    }
    samples
        .chunks_exact(per_pixel)
        .map(|p| {
            let [r, g, b] = [p[0], p[1], p[2]].map(Into::into);
            (0.2126 * r + 0.7152 * g + 0.0722 * b) as f32
        })
        .collect()
}
