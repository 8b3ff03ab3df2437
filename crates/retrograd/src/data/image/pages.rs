//! TIFF files: pages of equal size, in strips or tiles, decoded into the spool.

use std::fs::File;
use std::io::BufReader;
use std::path::Path;
use std::sync::Arc;

use super::file::luminance;
use super::{Format, ImageFile, Spool, TiffTags};
use crate::{Error, Result};

impl ImageFile {
    pub(super) fn open_tiff(path: &Path, spool: &Arc<Spool>) -> Result<Self> {
        let bad = |e: tiff::TiffError| Error::file(path, "TIFF", e);
        let reader = BufReader::new(File::open(path).map_err(Error::io(path, "open"))?);
        let mut decoder = tiff::decoder::Decoder::new(reader).map_err(bad)?;
        // The first pass counts the images and checks their kinds; the second decodes.
        let (width, height) = decoder.dimensions().map_err(bad)?;
        let mut sections = 0;
        let mut bits = 0;
        loop {
            let size = decoder.dimensions().map_err(bad)?;
            if size != (width, height) {
                return Err(Error::file(
                    path,
                    format!("image {sections}"),
                    format!(
                        "{} × {} pixels, needs {width} × {height} as the first",
                        size.0, size.1
                    ),
                ));
            }
            use tiff::ColorType::{Gray, GrayA, RGB, RGBA};
            let color = decoder.colortype().map_err(bad)?;
            let (Gray(depth) | GrayA(depth) | RGB(depth) | RGBA(depth)) = color else {
                return Err(Error::file(
                    path,
                    format!("image {sections}"),
                    format!("colours {color:?}, needs grey or RGB"),
                ));
            };
            let planes = decoder
                .find_tag_unsigned::<u16>(tiff::tags::Tag::PlanarConfiguration)
                .map_err(bad)?;
            if planes == Some(2) && color.num_samples() > 1 {
                return Err(Error::file(
                    path,
                    format!("image {sections}"),
                    "its colours are stored plane by plane, needs pixel by pixel",
                ));
            }
            bits = bits.max(depth);
            sections += 1;
            if !decoder.more_images() {
                break;
            }
            decoder.next_image().map_err(bad)?;
        }
        decoder.seek_to_image(0).map_err(bad)?;
        let tags = TiffTags::read(&mut decoder);
        let mut floats = false;
        let (width, height) = (width as usize, height as usize);
        let format = Format::Tiff { bits };
        let mut file = Self::spooled(path, width, height, sections, format, spool)?;
        file.tags = tags;
        for section in 0..sections {
            if section > 0 {
                decoder.next_image().map_err(bad)?;
            }
            floats |= file.spool_tiff(section, &mut decoder)?;
        }
        // Written back as it came where 8 or 16 bits hold it, as floats otherwise.
        let bits = if floats || bits > 16 {
            32
        } else {
            bits.max(8).next_power_of_two()
        };
        file.format = Format::Tiff { bits };
        Ok(file)
    }

    /// Decodes the current image of a TIFF, strip by strip or tile by tile. Whether its numbers
    /// need floats to be kept.
    fn spool_tiff(
        &self,
        section: usize,
        decoder: &mut tiff::decoder::Decoder<BufReader<File>>,
    ) -> Result<bool> {
        use tiff::decoder::DecodingResult as Numbers;
        let bad = |e: tiff::TiffError| Error::file(&self.path, format!("image {section}"), e);
        let samples = usize::from(decoder.colortype().map_err(bad)?.num_samples());
        let chunks = match decoder.get_chunk_type() {
            tiff::decoder::ChunkType::Strip => decoder.strip_count(),
            tiff::decoder::ChunkType::Tile => decoder.tile_count(),
        }
        .map_err(bad)?;
        let (chunk_width, chunk_height) = decoder.chunk_dimensions();
        let across = self.width.div_ceil((chunk_width as usize).max(1));
        let mut floats = false;
        for chunk in 0..chunks {
            let (x, y) = (
                (chunk as usize % across) * chunk_width as usize,
                (chunk as usize / across) * chunk_height as usize,
            );
            if y >= self.height {
                break;
            }
            let (width, _) = decoder.chunk_data_dimensions(chunk);
            let numbers = decoder.read_chunk(chunk).map_err(bad)?;
            let pixels: Vec<f32> = match &numbers {
                Numbers::U8(v) => luminance(v, samples),
                Numbers::U16(v) => luminance(v, samples),
                Numbers::F32(v) => {
                    floats = true;
                    luminance(v, samples)
                }
                other => {
                    floats = true;
                    let wide: Vec<f64> = match other {
                        Numbers::U32(v) => v.iter().map(|&v| f64::from(v)).collect(),
                        Numbers::U64(v) => v.iter().map(|&v| v as f64).collect(),
                        Numbers::F16(v) => v.iter().map(|v| v.to_f64()).collect(),
                        Numbers::F64(v) => v.clone(),
                        Numbers::I8(v) => v.iter().map(|&v| f64::from(v)).collect(),
                        Numbers::I16(v) => v.iter().map(|&v| f64::from(v)).collect(),
                        Numbers::I32(v) => v.iter().map(|&v| f64::from(v)).collect(),
                        Numbers::I64(v) => v.iter().map(|&v| v as f64).collect(),
                        _ => unreachable!("narrow ones are above"),
                    };
                    luminance(&wide, samples)
                }
            };
            let width = (width as usize).min(self.width - x);
            for (row, y) in pixels.chunks_exact(width.max(1)).zip(y..self.height) {
                self.spool_run(section, y, x, row)?;
            }
        }
        Ok(floats)
    }
}
