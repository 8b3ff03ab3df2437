//! The colours of a PNG file, for pictures that are no measurements.

use std::fs::File;
use std::io::BufReader;
use std::path::Path;

use super::file::guarded;
use crate::{Error, Result};

/// Columns, rows, and red, green, blue and opacity of every pixel, row after row.
pub(crate) fn read_colours(path: &Path) -> Result<(usize, usize, Vec<[u8; 4]>)> {
    guarded(path, "PNG", || decode(path))
}

fn decode(path: &Path) -> Result<(usize, usize, Vec<[u8; 4]>)> {
    /// A picture of cells is small.
    const MAX_BYTES: usize = 16 << 20;
    let bad = |e: png::DecodingError| Error::file(path, "PNG", e);
    let reader = BufReader::new(File::open(path).map_err(Error::io(path, "open"))?);
    let limits = png::Limits { bytes: MAX_BYTES };
    let mut decoder = png::Decoder::new_with_limits(reader, limits);
    let transformations = png::Transformations::EXPAND | png::Transformations::STRIP_16;
    decoder.set_transformations(transformations);
    let mut reader = decoder.read_info().map_err(bad)?;
    let (width, height) = reader.info().size();
    let size = reader.output_buffer_size().filter(|&n| n <= MAX_BYTES);
    let size = size.ok_or_else(|| {
        let problem = format!("{width} × {height} pixels, needs at most {MAX_BYTES} bytes");
        Error::file(path, "PNG", problem)
    })?;
    let mut bytes = vec![0; size];
    reader.next_frame(&mut bytes).map_err(bad)?;
    let (colour, _) = reader.output_color_type();
    let pixels = bytes.chunks_exact(colour.samples()).map(|p| match *p {
        [grey] => [grey, grey, grey, 255],
        [grey, opacity] => [grey, grey, grey, opacity],
        [red, green, blue] => [red, green, blue, 255],
        [red, green, blue, opacity, ..] => [red, green, blue, opacity],
        [] => [0; 4],
    });
    let pixels = pixels.take((width * height) as usize).collect();
    Ok((width as usize, height as usize, pixels))
}
