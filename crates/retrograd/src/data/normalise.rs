//! Robust normalisation of an image, and its way back.
//!
//! An image becomes `(x − centre) / scale` with the median as centre and 1.4826 times the median
//! absolute deviation as scale: the standard deviation of a Gaussian, untouched by hot pixels,
//! gold beads and dark edges. Where more than half of the pixels are equal the deviation is 0 and
//! the standard deviation stands in for it; a constant image keeps the scale 1. Inference undoes
//! it, so that the output has the input's units.
//!
//! The medians are taken over all pixels of images up to [`SAMPLE`] pixels, and over as many whole
//! rows, evenly spaced, of larger ones: an image is never wholly in memory for it.

use crate::math;
use serde::{Deserialize, Serialize};

use super::image::{ImageFile, Rect};
use crate::Result;

/// The most pixels that the medians are taken over. The standard error of a median of so many
/// Gaussian pixels is 1.25/√2²⁰ = 0.12 % of their deviation.
pub const SAMPLE: usize = 1 << 20;

/// A Gaussian's standard deviation over its median absolute deviation, 1/Φ⁻¹(3/4).
pub(crate) const DEVIATION_OVER_MAD: f64 = 1.482_602_218_505_602;

/// Centre and scale of an image.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Normalisation {
    /// What becomes 0.
    pub centre: f32,
    /// What becomes 1 above it.
    pub scale: f32,
}

impl Normalisation {
    /// Changes nothing.
    pub const IDENTITY: Self = Normalisation {
        centre: 0.0,
        scale: 1.0,
    };

    /// Of these pixels, which are put in another order.
    pub fn of(pixels: &mut [f32]) -> Self {
        if pixels.is_empty() {
            return Self::IDENTITY;
        }
        let centre = median(pixels);
        let (mut sum, mut squares) = (0.0_f64, 0.0_f64);
        for &p in pixels.iter() {
            let d = f64::from(p) - f64::from(centre);
            sum += d;
            squares += d * d;
        }
        let n = pixels.len() as f64;
        let deviation = math::max(squares / n - math::powi(sum / n, 2), 0.0).sqrt();
        for p in pixels.iter_mut() {
            *p = (*p - centre).abs();
        }
        let robust = f64::from(median(pixels)) * DEVIATION_OVER_MAD;
        let scale = [robust, deviation]
            .into_iter()
            .map(|s| s as f32)
            .find(|&s| s > 0.0 && s.is_finite() && (1.0 / s).is_finite())
            .unwrap_or(1.0);
        Normalisation { centre, scale }
    }

    /// Of the mean of some sections of a file.
    pub fn of_file(file: &ImageFile, sections: &[usize]) -> Result<Self> {
        // Evenly spaced rows, the first half a gap from the border.
        let rows = (SAMPLE / file.width).clamp(1, file.height);
        let mut sample = Vec::with_capacity(rows * file.width);
        let mut row = vec![0.0; file.width];
        let mut sum = vec![0.0_f64; file.width];
        for i in 0..rows {
            let y = (2 * i + 1) * file.height / (2 * rows);
            let window = Rect {
                x: 0,
                y,
                width: file.width,
                height: 1,
            };
            sum.fill(0.0);
            for &section in sections {
                file.read_window(section, window, &mut row)?;
                for (s, &p) in sum.iter_mut().zip(&row) {
                    *s += f64::from(p);
                }
            }
            sample.extend(sum.iter().map(|s| (s / sections.len() as f64) as f32));
        }
        Ok(Self::of(&mut sample))
    }

    /// Into the network's units.
    pub fn apply(&self, pixels: &mut [f32]) {
        let factor = 1.0 / self.scale;
        for p in pixels {
            *p = (*p - self.centre) * factor;
        }
    }

    /// Back into the image's units.
    pub fn undo(&self, pixels: &mut [f32]) {
        for p in pixels {
            *p = *p * self.scale + self.centre;
        }
    }
}

/// The lower median.
fn median(values: &mut [f32]) -> f32 {
    let middle = (values.len() - 1) / 2;
    *values.select_nth_unstable_by(middle, f32::total_cmp).1
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::image::Image;
    use crate::rng::Key;

    fn noisy(n: usize) -> Vec<f32> {
        let mut stream = Key::new(3).purpose("normalise test").stream();
        (0..n)
            .map(|_| (100.0 + 7.0 * stream.normal()) as f32)
            .collect()
    }

    #[test]
    fn hot_pixels_do_not_move_it() {
        let n = 100_000;
        let clean = Normalisation::of(&mut noisy(n));
        // Five standard errors: of the median 1.25 σ/√n, of the robust deviation 1.17 σ/√n.
        let error = 5.0 * 1.25 * 7.0 / (n as f32).sqrt();
        assert!((clean.centre - 100.0).abs() < error);
        assert!((clean.scale - 7.0).abs() < error);
        let mut hot = noisy(n);
        for p in hot.iter_mut().step_by(200) {
            *p = 1e9;
        }
        // Half a per cent of the pixels at the top moves the quantiles by no more than half a per
        // cent of the distribution: 0.0063 σ in the middle, twice that at the quartiles.
        let with_hot = Normalisation::of(&mut hot);
        assert!((with_hot.centre - clean.centre).abs() < 0.0126 * 7.0);
        assert!((with_hot.scale - clean.scale).abs() < 0.0252 * 7.0);
    }

    #[test]
    fn undo_brings_the_units_back() {
        let image = noisy(1000);
        let normalisation = Normalisation::of(&mut image.clone());
        let mut there = image.clone();
        normalisation.apply(&mut there);
        let mut back = there.clone();
        normalisation.undo(&mut back);
        for (a, b) in image.iter().zip(&back) {
            // Three roundings of values of about 100.
            assert!((a - b).abs() <= 4.0 * f32::EPSILON * 130.0);
        }
    }

    #[test]
    fn constant_and_mostly_constant_images_have_a_scale() {
        let constant = Normalisation::of(&mut [5.0; 64]);
        assert_eq!(
            constant,
            Normalisation {
                centre: 5.0,
                scale: 1.0
            }
        );
        let mut mostly = [0.0; 100];
        mostly[0] = 10.0;
        let scale = Normalisation::of(&mut mostly).scale;
        // The standard deviation of 99 zeros and a 10.
        assert!((scale - 0.99_f32.sqrt()).abs() < 1e-5);
        assert_eq!(Normalisation::of(&mut []), Normalisation::IDENTITY);
    }

    #[test]
    fn a_file_is_normalised_by_the_mean_of_its_frames() {
        let frame = |offset: f32| Image {
            width: 10,
            height: 7,
            pixels: (0..70).map(|i| offset + (i * i % 31) as f32).collect(),
        };
        let file =
            ImageFile::from_images("frames", vec![frame(0.0), frame(500.0), frame(4.0)]).unwrap();
        let expected = Normalisation::of(&mut frame(2.0).pixels);
        assert_eq!(Normalisation::of_file(&file, &[0, 2]).unwrap(), expected);
    }
}
