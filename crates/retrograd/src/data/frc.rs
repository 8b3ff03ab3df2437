//! Fourier ring correlation: how fine the detail is that two images share.
//!
//! The images are cut to a square in their middle whose side n is a power of two, their means taken
//! off and their edges faded by a Hann window (their jump at the border is no detail). With F and G
//! their Fourier transforms, ring r holds the frequencies whose distance from 0 rounds to r:
//!
//! ```text
//! FRC(r) = Re Σ F·G* / √(Σ |F|² · Σ |G|²)        r = 1 … n/2
//! ```
//!
//! Where it falls below 0.5 (or 0.143, as halves of a data set are judged in electron microscopy), a
//! period has n/r pixels. Independent noise has 0; what is common to both has 1, signal and bias
//! alike: denoising both halves with one network raises it by its bias, too.

use super::image::{Image, Rect};
use crate::math;
use crate::{Error, Result};

/// The largest side that is looked at.
const MAX_SIDE: usize = 1024;

/// The correlation of every ring, from ring 1 on.
#[derive(Clone, Debug, PartialEq)]
pub struct RingCorrelation {
    /// The side of the square, in pixels.
    pub side: usize,
    /// One for every ring up to the highest frequency, side / 2.
    pub rings: Vec<f64>,
}

impl RingCorrelation {
    /// Of two images of one size.
    pub fn of(a: &Image, b: &Image) -> Result<Self> {
        if (a.width, a.height) != (b.width, b.height) {
            return Err(Error::invalid(
                "the second image",
                format!("{} × {}", b.width, b.height),
                format!("{} × {}, as the first", a.width, a.height),
            ));
        }
        let smaller = a.width.min(a.height).min(MAX_SIDE);
        if smaller < 8 {
            let got = format!("{} × {} pixels", a.width, a.height);
            return Err(Error::invalid("images", got, "at least 8 × 8"));
        }
        let side = 1 << smaller.ilog2();
        let [f, g] = [a, b].map(|image| transform(image, side));
        let half = side / 2;
        let mut sums = vec![[0.0_f64; 3]; half + 1];
        let centred = |i: usize| i as f64 - if i > half { side as f64 } else { 0.0 };
        for y in 0..side {
            for x in 0..side {
                let ring = math::hypot(centred(y), centred(x)).round() as usize;
                if let Some(sums) = sums.get_mut(ring) {
                    let ([fr, fi], [gr, gi]) = (f[y * side + x], g[y * side + x]);
                    sums[0] += fr * gr + fi * gi;
                    sums[1] += fr * fr + fi * fi;
                    sums[2] += gr * gr + gi * gi;
                }
            }
        }
        let correlation = |&[fg, ff, gg]: &[f64; 3]| match ff * gg > 0.0 {
            true => fg / (ff * gg).sqrt(),
            false => 0.0,
        };
        Ok(RingCorrelation {
            side,
            rings: sums[1..].iter().map(correlation).collect(),
        })
    }

    /// The pixels of a period at which the correlation first falls below a threshold, between rings
    /// by a straight line; none where it stays above.
    pub fn crossing(&self, threshold: f64) -> Option<f64> {
        let ring = self.rings.iter().position(|&c| c < threshold)?;
        let below = self.rings[ring];
        let exact = match ring.checked_sub(1).map(|before| self.rings[before]) {
            // Rings are counted from 1.
            Some(above) => ring as f64 + (above - threshold) / (above - below),
            None => 1.0,
        };
        Some(self.side as f64 / exact)
    }
}

/// The Fourier transform of the middle of an image.
fn transform(image: &Image, side: usize) -> Vec<[f64; 2]> {
    let window = Rect {
        x: (image.width - side) / 2,
        y: (image.height - side) / 2,
        width: side,
        height: side,
    };
    let mut pixels = vec![0.0; window.pixels()];
    image.window(window, &mut pixels);
    let mean = pixels.iter().map(|&p| f64::from(p)).sum::<f64>() / pixels.len() as f64;
    let fade = |i: usize| {
        let turn = std::f64::consts::TAU * (i as f64 + 0.5) / side as f64;
        0.5 - 0.5 * math::cos(turn)
    };
    let mut values: Vec<[f64; 2]> = pixels
        .iter()
        .enumerate()
        .map(|(i, &p)| [(f64::from(p) - mean) * fade(i / side) * fade(i % side), 0.0])
        .collect();
    // Rows, and after a transposition columns.
    for _ in 0..2 {
        values.chunks_exact_mut(side).for_each(fourier);
        for y in 0..side {
            for x in 0..y {
                values.swap(y * side + x, x * side + y);
            }
        }
    }
    values
}

/// Cooley and Tukey's transform in place, of a power of two of numbers.
fn fourier(values: &mut [[f64; 2]]) {
    let n = values.len();
    let bits = n.ilog2();
    for i in 0..n {
        let j = i.reverse_bits() >> (usize::BITS - bits);
        if i < j {
            values.swap(i, j);
        }
    }
    let mut length = 2;
    while length <= n {
        let turn = -std::f64::consts::TAU / length as f64;
        for block in values.chunks_exact_mut(length) {
            let (low, high) = block.split_at_mut(length / 2);
            for (k, (a, b)) in low.iter_mut().zip(high).enumerate() {
                let angle = turn * k as f64;
                let (sin, cos) = (math::sin(angle), math::cos(angle));
                let product = [b[0] * cos - b[1] * sin, b[0] * sin + b[1] * cos];
                *b = [a[0] - product[0], a[1] - product[1]];
                *a = [a[0] + product[0], a[1] + product[1]];
            }
        }
        length *= 2;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Key;

    fn image(side: usize, pixel: impl FnMut(usize) -> f32) -> Image {
        Image {
            width: side,
            height: side,
            pixels: (0..side * side).map(pixel).collect(),
        }
    }

    /// The definition, every frequency by its own sum.
    fn plain(values: &[[f64; 2]], k: usize) -> [f64; 2] {
        let n = values.len();
        values.iter().enumerate().fold([0.0; 2], |sum, (i, v)| {
            let (sin, cos) = (-std::f64::consts::TAU * (i * k % n) as f64 / n as f64).sin_cos();
            [
                sum[0] + v[0] * cos - v[1] * sin,
                sum[1] + v[0] * sin + v[1] * cos,
            ]
        })
    }

    #[test]
    fn the_fast_transform_is_the_definition() {
        let mut stream = Key::new(3).stream();
        let values: Vec<[f64; 2]> = (0..64)
            .map(|_| [stream.uniform(), stream.uniform()])
            .collect();
        let mut fast = values.clone();
        fourier(&mut fast);
        for (k, fast) in fast.iter().enumerate() {
            let slow = plain(&values, k);
            // 64 terms below √2, each with some roundings of 2⁻⁵³.
            assert!((fast[0] - slow[0]).abs().max((fast[1] - slow[1]).abs()) < 1e-12);
        }
    }

    #[test]
    fn equal_images_correlate_wholly_and_noise_does_not() {
        let mut stream = Key::new(1).stream();
        let mut noise = || image(128, |_| stream.uniform_f32());
        let (a, b) = (noise(), noise());
        let same = RingCorrelation::of(&a, &a).unwrap();
        assert!(same.rings.iter().all(|c| (c - 1.0).abs() < 1e-12));
        assert_eq!(same.crossing(0.5), None);
        let apart = RingCorrelation::of(&a, &b).unwrap();
        // A ring of r has some 2πr independent values, half of them apart: its correlation has a
        // deviation of about 1/√(πr); the rings together have far less.
        let mean = apart.rings.iter().sum::<f64>() / apart.rings.len() as f64;
        assert!(mean.abs() < 0.1, "{mean}");
        assert!(apart.crossing(0.5).unwrap() > 20.0);
    }

    #[test]
    fn a_shared_coarse_pattern_is_lost_where_it_ends() {
        let mut stream = Key::new(2).stream();
        // Waves of 8 pixels and longer in both, noise of their own besides.
        let waves: Vec<(f64, f64, f64)> = (0..400)
            .map(|_| {
                let angle = stream.range(0.0, std::f64::consts::TAU);
                let frequency = stream.range(0.01, 1.0 / 8.0);
                (
                    frequency * angle.cos(),
                    frequency * angle.sin(),
                    stream.range(0.0, std::f64::consts::TAU),
                )
            })
            .collect();
        let signal = |i: usize| {
            let (y, x) = ((i / 128) as f64, (i % 128) as f64);
            let wave =
                |&(u, v, p): &(f64, f64, f64)| (std::f64::consts::TAU * (u * x + v * y) + p).sin();
            waves.iter().map(wave).sum::<f64>()
        };
        let shared: Vec<f64> = (0..128 * 128).map(signal).collect();
        let mut half = || image(128, |i| (shared[i] + 4.0 * stream.range(-1.0, 1.0)) as f32);
        let (a, b) = (half(), half());
        let correlation = RingCorrelation::of(&a, &b).unwrap();
        let period = correlation.crossing(0.5).unwrap();
        assert!((6.0..10.0).contains(&period), "{period}");
        assert!(correlation.crossing(0.143).unwrap() <= period);
        assert!(RingCorrelation::of(&a, &image(64, |_| 0.0)).is_err());
        assert!(RingCorrelation::of(&image(4, |_| 0.0), &image(4, |_| 0.0)).is_err());
    }
}
