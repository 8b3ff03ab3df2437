//! How good a denoised image is.
//!
//! - **PSNR** = 10·log₁₀(L² / mean (x − r)²) in dB, with L the range of the data (255 for 8 bits;
//!   where the format has no range, the reference's maximum − minimum). Equal images: ∞.
//! - **SSIM**: the mean of the structural similarity over all places of an 11 × 11 Gaussian window
//!   (σ = 1.5) that lie wholly in the image, K₁ = 0.01, K₂ = 0.03, variances over n: what
//!   scikit-image computes with `gaussian_weights=True, sigma=1.5, use_sample_covariance=False`.
//!   The formula stands in [`loss_image`](crate::loss_image).
//! - **RMSE** and **R²** = 1 − Σ (x − r)² / Σ (r − r̄)², in the reference's own units.
//! - **Odd/even correlation**: Pearson's r of two images. Denoising the two halves of a movie
//!   separately should raise it: the noise of the halves is independent, so what they share is
//!   signal (or a bias common to both, which no measure without a reference can see).

use super::image::{ImageFile, Rect};
use crate::loss_image::{WINDOW, Workspace, ssim};
use crate::math;
use crate::{Error, Result};

/// The comparison of an image with a reference.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Quality {
    /// Peak signal-to-noise ratio in dB.
    pub psnr: f64,
    /// Mean structural similarity; none for images smaller than its window.
    pub ssim: Option<f64>,
    /// Pearson's correlation; 0 where one of the two is constant.
    pub correlation: f64,
    /// The root of the mean square error, in the reference's units.
    pub rmse: f64,
    /// The share of the reference's variance that is explained; 0 where it has none.
    pub r2: f64,
}

/// Rows that are compared at a time.
const BAND: usize = 64;

/// Sums from which PSNR, correlation and the range follow.
#[derive(Clone, Copy, Debug, Default)]
struct Moments {
    count: f64,
    mean: [f64; 2],
    /// Σ of squared deviations of a, of b, and of their products.
    deviations: [f64; 3],
    squared_error: f64,
}

impl Moments {
    /// Adds a run of pixels (Chan, Golub and LeVeque's merging).
    fn add(&mut self, a: &[f32], b: &[f32]) {
        let n = a.len() as f64;
        let mean = [a, b].map(|x| x.iter().map(|&v| f64::from(v)).sum::<f64>() / n);
        let mut deviations = [0.0; 3];
        for (&a, &b) in a.iter().zip(b) {
            let (a, b) = (f64::from(a), f64::from(b));
            self.squared_error += math::powi(a - b, 2);
            let (da, db) = (a - mean[0], b - mean[1]);
            deviations[0] += da * da;
            deviations[1] += db * db;
            deviations[2] += da * db;
        }
        let shift = [mean[0] - self.mean[0], mean[1] - self.mean[1]];
        let count = self.count + n;
        let weight = self.count * n / count;
        self.deviations[0] += deviations[0] + weight * shift[0] * shift[0];
        self.deviations[1] += deviations[1] + weight * shift[1] * shift[1];
        self.deviations[2] += deviations[2] + weight * shift[0] * shift[1];
        for i in 0..2 {
            self.mean[i] += shift[i] * n / count;
        }
        self.count = count;
    }

    fn correlation(&self) -> f64 {
        let [aa, bb, ab] = self.deviations;
        if aa > 0.0 && bb > 0.0 {
            ab / (aa.sqrt() * bb.sqrt())
        } else {
            0.0
        }
    }
}

/// Peak signal-to-noise ratio in dB of pixels against a reference, with the range of the data.
pub fn psnr(pixels: &[f32], reference: &[f32], range: f64) -> f64 {
    let mut moments = Moments::default();
    moments.add(pixels, reference);
    psnr_of(&moments, range)
}

fn psnr_of(moments: &Moments, range: f64) -> f64 {
    10.0 * math::log10(range * range * moments.count / moments.squared_error)
}

/// Pearson's correlation of two images.
pub fn correlation(a: &[f32], b: &[f32]) -> f64 {
    let mut moments = Moments::default();
    moments.add(a, b);
    moments.correlation()
}

/// Compares a section of a file with a section of a reference of equal size, band by band: neither
/// is wholly in memory. `range` is the range of the data; without one, the reference's format or
/// its extremes tell.
pub fn compare(
    image: (&ImageFile, usize),
    reference: (&ImageFile, usize),
    range: Option<f64>,
) -> Result<Quality> {
    let (width, height) = (reference.0.width, reference.0.height);
    if (image.0.width, image.0.height) != (width, height) {
        return Err(Error::invalid(
            format!("size of {}", image.0.path.display()),
            format!("{} × {}", image.0.width, image.0.height),
            format!("{width} × {height}, as {}", reference.0.path.display()),
        ));
    }
    let mut a = Vec::new();
    let mut b = Vec::new();
    let read = |y: usize, rows: usize, a: &mut Vec<f32>, b: &mut Vec<f32>| {
        let window = Rect {
            x: 0,
            y,
            width,
            height: rows,
        };
        a.resize(window.pixels(), 0.0);
        b.resize(window.pixels(), 0.0);
        image.0.read_window(image.1, window, a)?;
        reference.0.read_window(reference.1, window, b)
    };
    let mut moments = Moments::default();
    let (mut low, mut high) = (f32::INFINITY, f32::NEG_INFINITY);
    for y in (0..height).step_by(BAND) {
        read(y, BAND.min(height - y), &mut a, &mut b)?;
        moments.add(&a, &b);
        low = b.iter().copied().fold(low, math::min);
        high = b.iter().copied().fold(high, math::max);
    }
    let white = reference.0.format.white().map(f64::from);
    let range = range.or(white).unwrap_or(f64::from(high) - f64::from(low));
    // A constant reference has no range; any will do.
    let range = if range > 0.0 { range } else { 1.0 };
    let ssim = if width.min(height) < WINDOW {
        None
    } else {
        let places = height + 1 - WINDOW;
        let mut workspace = Workspace::default();
        let (mut wide_a, mut wide_b) = (Vec::new(), Vec::new());
        let mut sum = 0.0;
        for y in (0..places).step_by(BAND) {
            let rows = BAND.min(places - y);
            read(y, rows + WINDOW - 1, &mut a, &mut b)?;
            for (wide, x) in [(&mut wide_a, &a), (&mut wide_b, &b)] {
                wide.clear();
                wide.extend(x.iter().map(|&v| f64::from(v)));
            }
            let height = rows + WINDOW - 1;
            let mean = ssim(width, height, &wide_a, &wide_b, range, None, &mut workspace);
            sum += mean * rows as f64;
        }
        Some(sum / places as f64)
    };
    let spread = moments.deviations[1];
    Ok(Quality {
        psnr: psnr_of(&moments, range),
        ssim,
        correlation: moments.correlation(),
        rmse: (moments.squared_error / moments.count).sqrt(),
        r2: match spread > 0.0 {
            true => 1.0 - moments.squared_error / spread,
            false => 0.0,
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::image::Image;

    /// A formula that Python evaluates to the same integers.
    fn pair() -> (ImageFile, ImageFile) {
        let make = |f: &dyn Fn(usize, usize) -> usize| {
            let pixels = (0..150 * 37).map(|i| f(i % 37, i / 37) as f32).collect();
            let image = Image {
                width: 37,
                height: 150,
                pixels,
            };
            ImageFile::from_images("formula", vec![image]).unwrap()
        };
        let reference = make(&|x, y| (x * x + 3 * y + x * y / 7) % 200);
        let noisy =
            make(&|x, y| ((x * x + 3 * y + x * y / 7) % 200) + (x * 7919 + y * 104_729) % 41);
        (noisy, reference)
    }

    #[test]
    fn measures_agree_with_scikit_image_and_numpy() {
        let (noisy, reference) = pair();
        let quality = compare((&noisy, 0), (&reference, 0), Some(255.0)).unwrap();
        // scikit-image 0.26 peak_signal_noise_ratio and structural_similarity (options above,
        // float64 input, data_range=255), numpy 2.4 corrcoef, on the same formulas.
        assert!(
            (quality.psnr - 20.808_145_751_960_54).abs() < 1e-10,
            "{}",
            quality.psnr
        );
        assert!(
            (quality.ssim.unwrap() - 0.958_375_006_999_221_3).abs() < 1e-12,
            "{:?}",
            quality.ssim
        );
        assert!(
            (quality.correlation - 0.979_456_945_857_363_6).abs() < 1e-13,
            "{}",
            quality.correlation
        );
        // numpy: ((n − r)²).mean() ** 0.5 and 1 − ((n − r)²).sum() / ((r − r.mean())²).sum().
        assert!(
            (quality.rmse - 23.234_476_557_497_5).abs() < 1e-10,
            "{}",
            quality.rmse
        );
        assert!(
            (quality.r2 - 0.837_108_660_452_845_4).abs() < 1e-12,
            "{}",
            quality.r2
        );
    }

    #[test]
    fn the_same_image_is_perfect_and_sizes_must_agree() {
        let (noisy, reference) = pair();
        let quality = compare((&reference, 0), (&reference, 0), None).unwrap();
        assert_eq!(quality.psnr, f64::INFINITY);
        assert!((quality.ssim.unwrap() - 1.0).abs() < 1e-12);
        assert!((quality.correlation - 1.0).abs() < 1e-12);
        let other = Image::new(5, 5);
        let other = ImageFile::from_images("other", vec![other]).unwrap();
        assert!(compare((&noisy, 0), (&other, 0), None).is_err());
        let tiny = compare((&other, 0), (&other, 0), None).unwrap();
        assert_eq!((tiny.ssim, tiny.correlation), (None, 0.0));
        assert_eq!((quality.rmse, quality.r2, tiny.r2), (0.0, 1.0, 0.0));
    }
}
