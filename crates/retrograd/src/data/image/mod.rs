//! Grey images in memory, and image files of any kind read by windows.
//!
//! Files are recognised by their first bytes, not by their names. MRC files are read in place;
//! PNG, TIFF and NPY files, which can't be read from the middle, are decoded once into one unnamed
//! temporary file (the [`Spool`]), so that a data set of many files never has to fit in memory.
//! Values are kept as stored (0 … 255, 0 … 65535, or floats); colours become Rec. 709 luminance,
//! transparency is ignored.

mod colours;
mod file;
mod pages;
mod tags;
#[cfg(test)]
mod tests;
mod writer;

use std::path::Path;

pub(crate) use colours::read_colours;
pub(crate) use file::panic_is_caught;
pub use file::{ImageFile, Spool};
pub use tags::TiffTags;
pub use writer::ImageWriter;
pub(crate) use writer::encode_png;

use super::mrc::Header;
use crate::math;
use crate::{Error, Result};

/// A rectangle of pixels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rect {
    /// First column.
    pub x: usize,
    /// First row.
    pub y: usize,
    /// Columns.
    pub width: usize,
    /// Rows.
    pub height: usize,
}

impl Rect {
    /// The whole of an image.
    pub fn whole(width: usize, height: usize) -> Self {
        Rect {
            x: 0,
            y: 0,
            width,
            height,
        }
    }

    /// The number of pixels.
    pub fn pixels(&self) -> usize {
        self.width * self.height
    }

    /// Whether it is a part, not empty, of an image of that size.
    pub(in crate::data) fn check(&self, path: &Path, width: usize, height: usize) -> Result<()> {
        let inside = |start: usize, len: usize, size: usize| {
            len > 0 && start.checked_add(len).is_some_and(|end| end <= size)
        };
        if inside(self.x, self.width, width) && inside(self.y, self.height, height) {
            return Ok(());
        }
        Err(Error::invalid(
            format!("window of {}", path.display()),
            format!(
                "{} × {} pixels from ({}, {})",
                self.width, self.height, self.x, self.y
            ),
            format!("a part of the image of {width} × {height}"),
        ))
    }
}

/// A grey image.
#[derive(Clone, Debug, PartialEq)]
pub struct Image {
    /// Columns.
    pub width: usize,
    /// Rows.
    pub height: usize,
    /// Row after row.
    pub pixels: Vec<f32>,
}

impl Image {
    /// All zeros.
    pub fn new(width: usize, height: usize) -> Self {
        Image {
            width,
            height,
            pixels: vec![0.0; width * height],
        }
    }

    /// Copies a window of it into `out`.
    pub fn window(&self, window: Rect, out: &mut [f32]) {
        let rows = out.chunks_exact_mut(window.width);
        for (row, y) in rows.zip(window.y..) {
            let start = y * self.width + window.x;
            row.copy_from_slice(&self.pixels[start..start + window.width]);
        }
    }

    /// The arithmetic mean of images of equal size.
    pub fn mean(images: &[Image]) -> Result<Image> {
        let [first, ..] = images else {
            return Err(Error::invalid("images to average", 0, "at least one"));
        };
        let mut sum = vec![0.0_f64; first.pixels.len()];
        for image in images {
            if (image.width, image.height) != (first.width, first.height) {
                return Err(Error::invalid(
                    "images to average",
                    format!("{} × {}", image.width, image.height),
                    format!("{} × {}, as the first", first.width, first.height),
                ));
            }
            for (s, &p) in sum.iter_mut().zip(&image.pixels) {
                *s += f64::from(p);
            }
        }
        let n = images.len() as f64;
        Ok(Image {
            pixels: sum.iter().map(|s| (s / n) as f32).collect(),
            ..*first
        })
    }

    /// Writes it as an 8-bit PNG, `black` and `white` at the ends of the scale: a picture to look
    /// at.
    pub fn write_picture(&self, path: impl AsRef<Path>, black: f32, white: f32) -> Result<()> {
        let scale = 255.0 / math::max(white - black, f32::MIN_POSITIVE);
        let scaled = Image {
            pixels: self.pixels.iter().map(|p| (p - black) * scale).collect(),
            ..*self
        };
        scaled.write(path.as_ref(), &Format::Png { bits: 8 })
    }

    /// Writes it as a file of that format.
    pub fn write(&self, path: impl AsRef<Path>, format: &Format) -> Result<()> {
        let mut writer = ImageWriter::create(path, self.width, self.height, 1, format)?;
        writer.write_rows(&self.pixels)?;
        writer.finish()
    }
}

/// What kind of file an image came from, or goes to.
#[derive(Clone, Debug, PartialEq)]
pub enum Format {
    /// MRC, with the header to keep. Written in the header's mode.
    Mrc(Box<Header>),
    /// PNG of 8 or 16 bits.
    Png {
        /// 8 or 16.
        bits: u8,
    },
    /// TIFF of 8- or 16-bit integers, or of 32-bit floats.
    Tiff {
        /// 8, 16 or 32.
        bits: u8,
    },
    /// NPY of 32-bit floats.
    Npy,
    /// Only in memory.
    Memory,
}

impl Format {
    /// The largest value of an integer format, the data range of quality measures.
    pub fn white(&self) -> Option<f32> {
        match self {
            Format::Png { bits: 8 } | Format::Tiff { bits: 8 } => Some(255.0),
            Format::Png { .. } | Format::Tiff { bits: 16 } => Some(65535.0),
            _ => None,
        }
    }
}
