//! Pictures as what automata start from or should become: colours to channels.
//!
//! - Two colours become one channel: 1 where the picture is not as its background, the colour that
//!   most of its border has.
//! - More become three, red, green and blue, each 1 where the colour has more of it than the middle
//!   between the picture's least and most; transparent pixels are 0 in all.

use std::collections::BTreeMap;
use std::path::Path;

use crate::data::image::read_colours;
use crate::{Error, Result};

/// The rows of every channel as hexadecimal numbers, and how the colours were understood.
pub(super) struct FromPng {
    pub size: [usize; 2],
    /// For every channel its bits, row after row.
    channels: Vec<Vec<bool>>,
    pub note: String,
}

type Colour = [u8; 4];

pub(super) fn read(path: &Path) -> Result<FromPng> {
    let (width, height, pixels) = read_colours(path)?;
    let mut counts: BTreeMap<Colour, usize> = BTreeMap::new();
    // What is not seen has no colour.
    let seen = |p: &Colour| {
        if p[3] < 128 {
            [0; 4]
        } else {
            [p[0], p[1], p[2], 255]
        }
    };
    let pixels: Vec<Colour> = pixels.iter().map(seen).collect();
    for &pixel in &pixels {
        *counts.entry(pixel).or_default() += 1;
    }
    let colours: Vec<Colour> = counts.keys().copied().collect();
    let name = path.display();
    if colours.len() < 2 {
        let problem = "all pixels have one colour, needs at least two";
        return Err(Error::file(path, "pixels", problem));
    }
    let (channels, note) = if let [a, b] = colours[..] {
        let background = border(&pixels, width, height, [a, b]);
        let bits = pixels.iter().map(|&p| p != background).collect();
        let other = if background == a { b } else { a };
        let note = format!(
            "{name}: {width} × {height}, two colours become one channel: {} is 1, {} is 0",
            hex(other),
            hex(background)
        );
        (vec![bits], note)
    } else {
        rgb(&name.to_string(), [width, height], &pixels, &colours)
    };
    Ok(FromPng {
        size: [height, width],
        channels,
        note,
    })
}

/// Three channels by the amounts of red, green and blue.
fn rgb(
    name: &str,
    [width, height]: [usize; 2],
    pixels: &[Colour],
    colours: &[Colour],
) -> (Vec<Vec<bool>>, String) {
    let middle = [0, 1, 2].map(|c| {
        let amounts = || colours.iter().filter(|p| p[3] > 0).map(|p| u16::from(p[c]));
        let (low, high) = (amounts().min().unwrap_or(0), amounts().max().unwrap_or(0));
        if low == high { 127 } else { (low + high) / 2 }
    });
    let bits = |p: &Colour| [0, 1, 2].map(|c| p[3] > 0 && u16::from(p[c]) > middle[c]);
    let mut kept: Vec<[bool; 3]> = colours.iter().map(bits).collect();
    kept.sort_unstable();
    kept.dedup();
    let together = match colours.len() - kept.len() {
        0 => String::new(),
        n => format!("; {n} of them fall together with others"),
    };
    let note = format!(
        "{name}: {width} × {height}, {} colours become three channels, red, green and blue{together}",
        colours.len()
    );
    let channels = [0, 1, 2].map(|c| pixels.iter().map(|p| bits(p)[c]).collect());
    (channels.to_vec(), note)
}

/// The colour that more of the border has; of equal ones the first.
fn border(pixels: &[Colour], width: usize, height: usize, [a, b]: [Colour; 2]) -> Colour {
    let at_edge = |i: usize| {
        let (y, x) = (i / width, i % width);
        y == 0 || x == 0 || y + 1 == height || x + 1 == width
    };
    let count = |colour| {
        let edge = (0..pixels.len()).filter(|&i| at_edge(i));
        edge.filter(|&i| pixels[i] == colour).count()
    };
    if count(b) > count(a) { b } else { a }
}

fn hex([r, g, b, a]: Colour) -> String {
    match a {
        0 => "transparent".into(),
        _ => format!("#{r:02x}{g:02x}{b:02x}"),
    }
}

impl FromPng {
    /// The picture in the middle of a grid, as [`LogicData::bitmap`](super::LogicData) has it.
    pub fn bitmap(&self, [height, width]: [usize; 2]) -> Result<Vec<Vec<String>>> {
        let [own_height, own_width] = self.size;
        if own_height > height || own_width > width {
            return Err(Error::invalid(
                "the picture",
                format!("{own_width} × {own_height}"),
                format!("at most {width} × {height}, the grid"),
            ));
        }
        let (top, left) = ((height - own_height) / 2, (width - own_width) / 2);
        let rows = |bits: &Vec<bool>| {
            let row = |y: usize| {
                let on = |x: usize| {
                    let inside = (top..top + own_height).contains(&y)
                        && (left..left + own_width).contains(&x);
                    inside && bits[(y - top) * own_width + x - left]
                };
                let digit = |d: usize| {
                    let bit = |i: usize| u32::from(4 * d + i < width && on(4 * d + i)) << (3 - i);
                    char::from_digit((0..4).map(bit).sum(), 16).expect("four bits")
                };
                (0..width.div_ceil(4)).map(digit).collect::<String>()
            };
            (0..height).map(row).collect()
        };
        Ok(self.channels.iter().map(rows).collect())
    }
}
