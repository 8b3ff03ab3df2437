//! Inference on an image of any size, tile by tile, equal to the bit to inference on the whole.
//!
//! The image is cut into tiles. Around each a halo of at least the network's receptive radius is
//! read too, clipped at the image's border. So a network that pads (with zeros, or by reflection)
//! pads at the true border where it would pad the whole image, and at a border that the crop made
//! it spoils only pixels of the halo, which are thrown away: every pixel that is kept is computed
//! from the same neighbours as in the whole image, in the same order.
//!
//! A network with poolings sees the image in blocks of [`Tiling::align`] pixels; tiles, halos and
//! crops start at multiples of it, so that a tile is pooled in the same blocks as the whole. An
//! image whose sides aren't multiples is extended to the right and below by its last column and
//! row, for the whole image and for its tiles alike, and the extension is cut off again.
//!
//! Memory: a strip of tiles (image width × tile height) and, per lane, two crops and the lane's
//! own workspace, whatever the image's height.

use super::image::Rect;
use crate::{Error, Result, parallel};

/// How an image is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tiling {
    /// The side of a tile, without its halo.
    pub tile: usize,
    /// Pixels around a tile that its output depends on, at least the receptive radius.
    pub halo: usize,
    /// The block in which the network sees the image: the product of its poolings' strides, or 1.
    pub align: usize,
}

/// One tile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tile {
    /// What the network reads: tile and halo, clipped at the (extended) image's border.
    pub crop: Rect,
    /// What is kept of its output, in the image's coordinates: the tile, without extension.
    pub keep: Rect,
}

impl Tiling {
    /// A tiling whose tile and halo are rounded up to whole blocks.
    pub fn new(tile: usize, halo: usize, align: usize) -> Result<Self> {
        if tile == 0 || align == 0 {
            return Err(Error::invalid(
                "tiling",
                format!("tiles of {tile}, blocks of {align} pixels"),
                "both positive",
            ));
        }
        Ok(Tiling {
            tile: tile.next_multiple_of(align),
            halo: halo.next_multiple_of(align),
            align,
        })
    }

    /// One tile that holds an image of that size: whole-image inference.
    pub fn whole(width: usize, height: usize, align: usize) -> Result<Self> {
        Self::new(width.max(height).max(1), 0, align)
    }

    /// The side of the largest crop.
    pub fn crop_side(&self) -> usize {
        self.tile + 2 * self.halo
    }

    /// The tiles of one strip, from left to right.
    pub fn strip(
        &self,
        width: usize,
        height: usize,
        strip: usize,
    ) -> impl Iterator<Item = Tile> + '_ {
        let (y, keep_height, crop_y, crop_height) = self.cut(height, strip);
        (0..self.columns(width)).map(move |column| {
            let (x, keep_width, crop_x, crop_width) = self.cut(width, column);
            Tile {
                crop: Rect {
                    x: crop_x,
                    y: crop_y,
                    width: crop_width,
                    height: crop_height,
                },
                keep: Rect {
                    x,
                    y,
                    width: keep_width,
                    height: keep_height,
                },
            }
        })
    }

    /// Tiles side by side.
    pub fn columns(&self, width: usize) -> usize {
        width.div_ceil(self.tile)
    }

    /// Strips one below the other.
    pub fn strips(&self, height: usize) -> usize {
        height.div_ceil(self.tile)
    }

    /// Start and length of the kept part and of the crop along one axis.
    fn cut(&self, size: usize, index: usize) -> (usize, usize, usize, usize) {
        let extended = size.next_multiple_of(self.align);
        let start = index * self.tile;
        let end = (start + self.tile).min(extended);
        let crop_start = start.saturating_sub(self.halo);
        let crop_end = (end + self.halo).min(extended);
        (
            start,
            end.min(size) - start,
            crop_start,
            crop_end - crop_start,
        )
    }
}

/// The memory of one lane: tiles of a strip are computed in as many lanes as there are.
#[derive(Debug, Default)]
pub struct Lane<W> {
    /// What the inference keeps from tile to tile.
    pub workspace: W,
    input: Vec<f32>,
    output: Vec<f32>,
    error: Option<Error>,
}

/// Lanes with their workspaces.
pub fn lanes<W: Default>(count: usize) -> Vec<Lane<W>> {
    (0..count.max(1)).map(|_| Lane::default()).collect()
}

/// Runs inference over an image of `width` × `height`.
///
/// - `read(window, pixels)` reads a part of the image;
/// - `infer(workspace, crop, input, output)` computes the crop of that size;
/// - `write(rows)` gets whole rows of the result, from the top.
pub fn run<W: Send>(
    width: usize,
    height: usize,
    tiling: &Tiling,
    lanes: &mut [Lane<W>],
    read: impl Fn(Rect, &mut [f32]) -> Result<()> + Send + Sync,
    infer: impl Fn(&mut W, Rect, &[f32], &mut [f32]) -> Result<()> + Send + Sync,
    mut write: impl FnMut(&[f32]) -> Result<()>,
) -> Result<()> {
    let tiles_of = |strip| tiling.strip(width, height, strip);
    let mut tiles = Vec::with_capacity(tiling.columns(width));
    let mut rows = Vec::new();
    for strip in 0..tiling.strips(height) {
        tiles.clear();
        tiles.extend(tiles_of(strip));
        let strip_height = tiles[0].keep.height;
        rows.resize(strip_height * width, 0.0);
        for group in tiles.chunks(lanes.len()) {
            let busy = &mut lanes[..group.len()];
            parallel::for_each_mut(busy, true, |i, lane| {
                let crop = group[i].crop;
                lane.input.resize(crop.pixels(), 0.0);
                lane.output.resize(crop.pixels(), 0.0);
                let result = read_extended(width, height, crop, &read, &mut lane.input)
                    .and_then(|()| infer(&mut lane.workspace, crop, &lane.input, &mut lane.output));
                lane.error = result.err();
            });
            for (lane, tile) in busy.iter_mut().zip(group) {
                if let Some(error) = lane.error.take() {
                    return Err(error);
                }
                let (crop, keep) = (tile.crop, tile.keep);
                for y in 0..keep.height {
                    let from = (keep.y - crop.y + y) * crop.width + keep.x - crop.x;
                    let to = y * width + keep.x;
                    rows[to..to + keep.width]
                        .copy_from_slice(&lane.output[from..from + keep.width]);
                }
            }
        }
        write(&rows)?;
    }
    Ok(())
}

/// Reads a crop that may reach beyond the image to the right and below, where the last column and
/// the last row are repeated.
fn read_extended(
    width: usize,
    height: usize,
    crop: Rect,
    read: &impl Fn(Rect, &mut [f32]) -> Result<()>,
    pixels: &mut [f32],
) -> Result<()> {
    let inside = Rect {
        width: crop.width.min(width - crop.x),
        height: crop.height.min(height - crop.y),
        ..crop
    };
    read(inside, &mut pixels[..inside.pixels()])?;
    if inside.width < crop.width {
        // From the last row up, so that nothing is overwritten before it has moved.
        for y in (0..inside.height).rev() {
            let from = y * inside.width;
            let to = y * crop.width;
            pixels.copy_within(from..from + inside.width, to);
            let last = pixels[to + inside.width - 1];
            pixels[to + inside.width..to + crop.width].fill(last);
        }
    }
    for y in inside.height..crop.height {
        let last = (inside.height - 1) * crop.width;
        pixels.copy_within(last..last + crop.width, y * crop.width);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::image::Image;
    use crate::rng::Key;
    use proptest::prelude::*;

    fn noise(width: usize, height: usize) -> Image {
        let mut stream = Key::new(5).purpose("tiles test").stream();
        Image {
            width,
            height,
            pixels: (0..width * height)
                .map(|_| stream.normal() as f32)
                .collect(),
        }
    }

    /// A 3 × 3 convolution that pads with zeros, then a ReLU; weights without symmetry.
    fn convolve(width: usize, height: usize, x: &[f32]) -> Vec<f32> {
        let weight = [0.3, -0.2, 0.7, 0.11, 0.5, -0.4, 0.9, -0.6, 0.05];
        let mut y = vec![0.0; x.len()];
        for i in 0..height {
            for j in 0..width {
                let mut sum = 0.01;
                for (k, w) in weight.iter().enumerate() {
                    let (r, c) = (i + k / 3, j + k % 3);
                    if (1..=height).contains(&r) && (1..=width).contains(&c) {
                        sum += w * x[(r - 1) * width + c - 1];
                    }
                }
                y[i * width + j] = f32::max(sum, -0.1 * sum);
            }
        }
        y
    }

    /// Two convolutions; with `align` > 1 the second at a lower resolution, between a maximum
    /// pooling and nearest upsampling, added to the first.
    fn network(align: usize, crop: Rect, x: &[f32], out: &mut [f32]) {
        let (width, height) = (crop.width, crop.height);
        let first = convolve(width, height, x);
        let (w, h) = (width / align, height / align);
        let mut low = vec![f32::NEG_INFINITY; w * h];
        for i in 0..h * align {
            for j in 0..w * align {
                let l = &mut low[i / align * w + j / align];
                *l = l.max(first[i * width + j]);
            }
        }
        let low = convolve(w, h, &low);
        for i in 0..height {
            for j in 0..width {
                out[i * width + j] = first[i * width + j] + low[i / align * w + j / align];
            }
        }
    }

    fn tiled(image: &Image, tiling: &Tiling, lane_count: usize) -> Vec<f32> {
        let mut out = Vec::new();
        run(
            image.width,
            image.height,
            tiling,
            &mut lanes::<()>(lane_count),
            |window, pixels| {
                image.window(window, pixels);
                Ok(())
            },
            |(), crop, x, y| {
                network(tiling.align, crop, x, y);
                Ok(())
            },
            |rows| {
                out.extend_from_slice(rows);
                Ok(())
            },
        )
        .unwrap();
        out
    }

    proptest! {
        #[test]
        fn tiles_equal_the_whole_to_the_bit(
            width in 1_usize..70,
            height in 1_usize..70,
            tile in 1_usize..40,
            extra in 0_usize..5,
            align in prop::sample::select(vec![1_usize, 2, 4]),
            lane_count in 1_usize..4,
        ) {
            let image = noise(width, height);
            let whole = tiled(&image, &Tiling::whole(width, height, align).unwrap(), 1);
            prop_assert_eq!(whole.len(), width * height);
            // One pixel at full resolution, one block and a bit at the lower.
            let radius = if align == 1 { 2 } else { 2 * align };
            let tiling = Tiling::new(tile, radius + extra, align).unwrap();
            let parts = tiled(&image, &tiling, lane_count);
            prop_assert_eq!(parts, whole);
        }
    }

    #[test]
    fn a_halo_too_small_shows_seams() {
        // The check above has teeth: the same comparison fails with a halo below the radius.
        let image = noise(40, 30);
        let whole = tiled(&image, &Tiling::whole(40, 30, 1).unwrap(), 1);
        let tiling = Tiling::new(16, 1, 1).unwrap();
        assert_ne!(tiled(&image, &tiling, 1), whole);
    }

    #[test]
    fn errors_come_through_and_memory_is_a_strip() {
        let tiling = Tiling::new(8, 2, 1).unwrap();
        let fail = |_: Rect, _: &mut [f32]| Err(Error::invalid("tile", "this", "another"));
        let infer = |_: &mut (), _: Rect, _: &[f32], _: &mut [f32]| Ok(());
        let result = run(20, 20, &tiling, &mut lanes(2), fail, infer, |_| Ok(()));
        assert!(result.is_err());
        let mut strips = Vec::new();
        let read = |_: Rect, _: &mut [f32]| Ok(());
        run(20, 20, &tiling, &mut lanes(2), read, infer, |rows| {
            strips.push(rows.len());
            Ok(())
        })
        .unwrap();
        assert_eq!(strips, [160, 160, 80]);
        assert!(Tiling::new(0, 2, 1).is_err());
    }
}
