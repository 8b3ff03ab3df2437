//! Patterns as text for terminals, as PNG strips and as animated GIFs.

use image::codecs::gif::{GifEncoder, Repeat};
use image::{Delay, Frame, Rgb, RgbImage, Rgba, RgbaImage};

use super::BitGrid;
use crate::{Error, Result};

/// Colours of a cell whose first channel is 0 and 1.
const OFF: [u8; 3] = [0xf3, 0xef, 0xe4];
const ON: [u8; 3] = [0x2b, 0x3a, 0x55];

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
    let mut image = RgbImage::from_pixel(
        columns as u32,
        (height * scale + 2 * gap) as u32,
        Rgb([0xff; 3]),
    );
    for (i, grid) in grids.iter().enumerate() {
        for y in 0..height * scale {
            for x in 0..width * scale {
                let place = (gap + i * (width * scale + gap) + x) as u32;
                let cell = colour(grid, y / scale, x / scale, read);
                image.put_pixel(place, (gap + y) as u32, Rgb(cell));
            }
        }
    }
    let mut bytes = std::io::Cursor::new(Vec::new());
    image
        .write_to(&mut bytes, image::ImageFormat::Png)
        .map_err(|e| Error::invalid("strip of pictures", e, "a picture that PNG can hold"))?;
    Ok(bytes.into_inner())
}

/// Grids one after the other, as the bytes of an animated GIF that repeats.
pub fn gif(grids: &[BitGrid], read: usize, milliseconds: u32) -> Result<Vec<u8>> {
    let bad = |e| Error::invalid("animation", e, "a picture that GIF can hold");
    let mut bytes = Vec::new();
    let mut encoder = GifEncoder::new_with_speed(&mut bytes, 30);
    encoder.set_repeat(Repeat::Infinite).map_err(bad)?;
    for (i, grid) in grids.iter().enumerate() {
        let scale = scale(grid.width(), 320);
        let mut image = RgbaImage::new(
            (grid.width() * scale) as u32,
            (grid.height() * scale) as u32,
        );
        for (x, y, pixel) in image.enumerate_pixels_mut() {
            let [r, g, b] = colour(grid, y as usize / scale, x as usize / scale, read);
            *pixel = Rgba([r, g, b, 255]);
        }
        // The last picture stays for a while.
        let last = i + 1 == grids.len();
        let delay = Delay::from_numer_denom_ms(if last { 1500 } else { milliseconds }, 1);
        encoder
            .encode_frame(Frame::from_parts(image, 0, 0, delay))
            .map_err(bad)?;
    }
    drop(encoder);
    Ok(bytes)
}
