//! The first grid of a batch as a page shows it while the automaton learns.

use crate::data::image::encode_png;
use crate::train::{Content, Figure};
use crate::{Error, Result};

/// A picture of one grid of numbers between 0 and 1, (y, x, channel) with `channels` a cell, of which
/// the first one or three are shown: a pixel a cell.
pub(super) fn grid(
    title: &str,
    caption: &str,
    [height, width]: [usize; 2],
    channels: usize,
    read: usize,
    values: &[f32],
) -> Result<Figure> {
    let mix = |share: f32, from: u8, to: u8| {
        let (from, to) = (f32::from(from), f32::from(to));
        (from + (to - from) * share.clamp(0.0, 1.0)).round() as u8
    };
    let mut samples = Vec::with_capacity(height * width * 3);
    for cell in values.chunks_exact(channels).take(height * width) {
        samples.extend(match read {
            3.. => [0, 1, 2].map(|c| mix(cell[c], 0x14, 0xe6)),
            _ => {
                let (off, on) = (super::picture::OFF, super::picture::ON);
                [0, 1, 2].map(|c| mix(cell[0], off[c], on[c]))
            }
        });
    }
    let (colour, depth) = (png::ColorType::Rgb, png::BitDepth::Eight);
    let png = encode_png([width, height], colour, depth, &samples)
        .map_err(|e| Error::invalid("picture", e, "a PNG"))?;
    Ok(Figure {
        title: title.into(),
        caption: caption.into(),
        content: Content::Png(png),
    })
}
