//! Image files of any kind, written by rows.

use std::io::{Seek, Write};
use std::path::{Path, PathBuf};

use super::{Format, TiffTags};
use crate::data::Values;
use crate::data::mrc::{Header, MrcMode, MrcWriter, temporary_beside};
use crate::data::npy;
use crate::{Error, Result};

/// Writes an image file row by row. MRC needs no more memory than a row; the other formats are
/// held until they are finished.
#[derive(Debug)]
pub struct ImageWriter {
    path: PathBuf,
    kind: Writing,
    tags: TiffTags,
}

#[derive(Debug)]
enum Writing {
    Mrc(Box<MrcWriter>),
    Whole {
        width: usize,
        height: usize,
        sections: usize,
        format: Format,
        pixels: Vec<f32>,
    },
}

impl ImageWriter {
    /// Starts a file. A format in memory is written as MRC.
    pub fn create(
        path: impl AsRef<Path>,
        width: usize,
        height: usize,
        sections: usize,
        format: &Format,
    ) -> Result<Self> {
        let path = path.as_ref();
        let mrc = |header: Header| -> Result<Writing> {
            Ok(Writing::Mrc(Box::new(MrcWriter::create(path, header)?)))
        };
        let kind = match format {
            Format::Mrc(header) => mrc(Header::clone(header))?,
            Format::Memory => mrc(Header::new(width, height, sections, MrcMode::F32))?,
            _ => Writing::Whole {
                width,
                height,
                sections,
                format: format.clone(),
                pixels: Vec::new(),
            },
        };
        Ok(ImageWriter {
            path: path.to_path_buf(),
            kind,
            tags: TiffTags::default(),
        })
    }

    /// With what a TIFF says about its images; another format has no place for it.
    pub fn with_tags(self, tags: &TiffTags) -> Self {
        ImageWriter {
            tags: tags.clone(),
            ..self
        }
    }

    /// Appends whole rows.
    pub fn write_rows(&mut self, rows: &[f32]) -> Result<()> {
        match &mut self.kind {
            Writing::Mrc(writer) => writer.write_rows(rows),
            Writing::Whole { pixels, .. } => {
                pixels.extend_from_slice(rows);
                Ok(())
            }
        }
    }

    /// Completes the file and gives it its name.
    pub fn finish(self) -> Result<()> {
        let path = &self.path;
        let (width, height, sections, format, pixels) = match self.kind {
            Writing::Mrc(writer) => return writer.finish().map(|_| ()),
            Writing::Whole {
                width,
                height,
                sections,
                format,
                pixels,
            } => (width, height, sections, format, pixels),
        };
        let needed = width * height * sections;
        if pixels.len() != needed {
            return Err(Error::invalid(
                format!("pixels of {}", path.display()),
                pixels.len(),
                needed,
            ));
        }
        let mut file = temporary_beside(path)?;
        match format {
            Format::Png { bits } => {
                if sections != 1 {
                    return Err(Error::invalid(
                        format!("images in {}", path.display()),
                        sections,
                        "1: a PNG holds a single image",
                    ));
                }
                let bytes = write_png(width, height, bits, &pixels)
                    .map_err(|e| Error::file(path, "PNG", e))?;
                file.write_all(&bytes).map_err(Error::io(path, "write"))?;
            }
            Format::Tiff { bits } => {
                write_tiff(&mut file, width, height, bits, &self.tags, &pixels)
                    .map_err(|e| Error::file(path, "TIFF", e))?;
            }
            Format::Npy => {
                let shape = [sections, height, width];
                let shape = &shape[usize::from(sections == 1)..];
                npy::write_to(&mut file, shape, &Values::F32(pixels))
                    .map_err(Error::io(path, "write"))?;
            }
            Format::Mrc(_) | Format::Memory => unreachable!("written row by row"),
        }
        file.finish().map_err(Error::io(path, "write"))
    }
}

fn write_png(
    width: usize,
    height: usize,
    bits: u8,
    pixels: &[f32],
) -> Result<Vec<u8>, png::EncodingError> {
    let whole = pixels.iter().map(|v| v.round_ties_even());
    let (depth, samples): (_, Vec<u8>) = if bits == 8 {
        (png::BitDepth::Eight, whole.map(|v| v as u8).collect())
    } else {
        let words = whole.flat_map(|v| (v as u16).to_be_bytes());
        (png::BitDepth::Sixteen, words.collect())
    };
    encode_png([width, height], png::ColorType::Grayscale, depth, &samples)
}

/// The bytes of a PNG file; samples of 16 bits are big-endian.
pub(crate) fn encode_png(
    [width, height]: [usize; 2],
    colour: png::ColorType,
    depth: png::BitDepth,
    samples: &[u8],
) -> Result<Vec<u8>, png::EncodingError> {
    let mut bytes = Vec::new();
    let mut encoder = png::Encoder::new(&mut bytes, width as u32, height as u32);
    encoder.set_color(colour);
    encoder.set_depth(depth);
    encoder.set_compression(png::Compression::Fast);
    encoder.set_filter(png::Filter::Adaptive);
    let mut writer = encoder.write_header()?;
    writer.write_image_data(samples)?;
    writer.finish()?;
    Ok(bytes)
}

fn write_tiff(
    out: &mut (impl Write + Seek),
    width: usize,
    height: usize,
    bits: u8,
    tags: &TiffTags,
    pixels: &[f32],
) -> tiff::TiffResult<()> {
    use tiff::encoder::colortype::{Gray8, Gray16, Gray32Float};
    let mut encoder = tiff::encoder::TiffEncoder::new(out)?;
    let (w, h) = (width as u32, height as u32);
    for image in pixels.chunks_exact(width * height) {
        match bits {
            8 => {
                let bytes: Vec<u8> = image.iter().map(|v| v.round_ties_even() as u8).collect();
                let mut image = encoder.new_image::<Gray8>(w, h)?;
                tags.write(image.encoder())?;
                image.write_data(&bytes)?;
            }
            16 => {
                let words: Vec<u16> = image.iter().map(|v| v.round_ties_even() as u16).collect();
                let mut image = encoder.new_image::<Gray16>(w, h)?;
                tags.write(image.encoder())?;
                image.write_data(&words)?;
            }
            _ => {
                let mut encoded = encoder.new_image::<Gray32Float>(w, h)?;
                tags.write(encoded.encoder())?;
                encoded.write_data(image)?;
            }
        }
    }
    Ok(())
}
