//! Patterns as text for terminals, as PNG strips and as animated GIFs.

use super::BitGrid;
use crate::data::image::encode_png;
use crate::{Error, Result};

/// Colours of a cell whose first channel is 0 and 1.
pub(super) const OFF: [u8; 3] = [0xf3, 0xef, 0xe4];
pub(super) const ON: [u8; 3] = [0x2b, 0x3a, 0x55];

/// The colour of a cell: of one channel dark or light, of three red, green and blue.
fn colour(grid: &BitGrid, y: usize, x: usize, read: usize) -> [u8; 3] {
    let bit = |c: usize| c < read && c < grid.channels() && grid.get(0, y, x, c);
    if read >= 3 {
        let level = |c: usize| if bit(c) { 0xe6 } else { 0x14 };
        [level(0), level(1), level(2)]
    } else if bit(0) {
        ON
    } else {
        OFF
    }
}

/// The first grid in block characters, two rows to a line; colours where three channels are read.
pub fn text(grid: &BitGrid, read: usize) -> String {
    let mut text = String::new();
    for y in (0..grid.height()).step_by(2) {
        for x in 0..grid.width() {
            let on = |y: usize| y < grid.height() && grid.get(0, y, x, 0);
            if read >= 3 {
                let above = colour(grid, y, x, read);
                let below = if y + 1 < grid.height() {
                    colour(grid, y + 1, x, read)
                } else {
                    [0x14; 3]
                };
                let [r, g, b] = above;
                let [br, bg, bb] = below;
                text += &format!("\x1b[38;2;{r};{g};{b};48;2;{br};{bg};{bb}m▀");
            } else {
                text.push(match (on(y), on(y + 1)) {
                    (true, true) => '█',
                    (true, false) => '▀',
                    (false, true) => '▄',
                    (false, false) => ' ',
                });
            }
        }
        if read >= 3 {
            text += "\x1b[0m";
        }
        text.push('\n');
    }
    text
}

/// Pixels for a cell, so that a picture of that many cells is about as wide as asked.
fn scale(cells: usize, pixels: usize) -> usize {
    (pixels / cells.max(1)).clamp(1, 16)
}

/// A row of grids, as the bytes of a PNG file.
pub fn strip(grids: &[BitGrid], read: usize) -> Result<Vec<u8>> {
    let Some(first) = grids.first() else {
        return Ok(Vec::new());
    };
    let (height, width) = (first.height(), first.width());
    let scale = scale(width, 128);
    let gap = 6;
    let columns = grids.len() * (width * scale + gap) + gap;
    let rows = height * scale + 2 * gap;
    let mut pixels = vec![[0xff; 3]; columns * rows];
    for (i, grid) in grids.iter().enumerate() {
        for y in 0..height * scale {
            for x in 0..width * scale {
                let place = gap + i * (width * scale + gap) + x;
                pixels[(gap + y) * columns + place] = colour(grid, y / scale, x / scale, read);
            }
        }
    }
    let (rgb, depth) = (png::ColorType::Rgb, png::BitDepth::Eight);
    encode_png([columns, rows], rgb, depth, pixels.as_flattened())
        .map_err(|e| Error::invalid("strip of pictures", e, "a picture that PNG can hold"))
}

/// Pixels of a cell's side in a film.
pub(super) fn film_scale(width: usize) -> usize {
    scale(width, 320)
}

/// Grids one after the other, as the bytes of an animated GIF that repeats.
pub fn gif(grids: &[BitGrid], read: usize, milliseconds: u32) -> Result<Vec<u8>> {
    let needed = "a picture that GIF can hold";
    let bad = |e: gif::EncodingError| Error::invalid("animation", e, needed);
    let size = |grid: &BitGrid| -> Result<[u16; 2]> {
        let scale = film_scale(grid.width());
        let [width, height] = [grid.width(), grid.height()].map(|n| u16::try_from(n * scale));
        let size = width.and_then(|width| Ok([width, height?]));
        size.map_err(|e| Error::invalid("animation", e, needed))
    };
    let mut bytes = Vec::new();
    let Some(first) = grids.first() else {
        return Ok(bytes);
    };
    let [width, height] = size(first)?;
    let mut encoder = gif::Encoder::new(&mut bytes, width, height, &[]).map_err(bad)?;
    encoder.set_repeat(gif::Repeat::Infinite).map_err(bad)?;
    for (i, grid) in grids.iter().enumerate() {
        let ([width, height], scale) = (size(grid)?, film_scale(grid.width()));
        // Eight colours at most: a cell reads three bits.
        let mut palette: Vec<[u8; 3]> = Vec::new();
        let mut indices = Vec::new();
        for y in 0..usize::from(height) {
            for x in 0..usize::from(width) {
                let colour = colour(grid, y / scale, x / scale, read);
                let known = palette.iter().position(|&c| c == colour);
                indices.push(known.unwrap_or(palette.len()) as u8);
                if known.is_none() {
                    palette.push(colour);
                }
            }
        }
        // The last picture stays for a while.
        let last = i + 1 == grids.len();
        let delay = if last { 1500 } else { milliseconds } / 10;
        let frame = gif::Frame {
            delay: delay.try_into().unwrap_or(u16::MAX),
            dispose: gif::DisposalMethod::Background,
            width,
            height,
            palette: Some(palette.as_flattened().to_vec()),
            buffer: indices.into(),
            ..gif::Frame::default()
        };
        encoder.write_frame(&frame).map_err(bad)?;
    }
    drop(encoder);
    Ok(bytes)
}
