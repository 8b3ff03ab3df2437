//! Generated images: a micrograph as an electron microscope would see it, and a scene with the
//! edges, gradients and textures of a photograph. No download is needed to try a denoiser, and the
//! clean image is known.

use crate::Result;
use crate::math;
use crate::rng::{Key, Stream};

use super::image::Image;

/// What a generated micrograph shows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Micrograph {
    /// Columns.
    pub width: usize,
    /// Rows.
    pub height: usize,
    /// Particles per megapixel (million pixels).
    pub density: f64,
    /// The outer radius of a particle in pixels.
    pub radius: f64,
    /// The share of the electrons that a particle takes away at its densest.
    pub contrast: f64,
    /// Electrons per pixel of the whole exposure, both halves together.
    pub dose: f64,
    /// The standard deviation of the detector's own noise per half, in electrons.
    pub readout: f64,
}

impl Default for Micrograph {
    fn default() -> Self {
        Micrograph {
            width: 512,
            height: 512,
            density: 260.0,
            radius: 14.0,
            contrast: 0.25,
            dose: 20.0,
            readout: 0.5,
        }
    }
}

/// A micrograph with what it would be without noise.
#[derive(Clone, Debug, PartialEq)]
pub struct Exposure {
    /// The expected electrons per pixel of one half.
    pub clean: Image,
    /// Electrons seen in the odd frames.
    pub odd: Image,
    /// Electrons seen in the even frames, the noise independent of the odd ones'.
    pub even: Image,
}

impl Exposure {
    /// Both halves averaged: the micrograph that users have.
    pub fn both(&self) -> Result<Image> {
        Image::mean(&[self.odd.clone(), self.even.clone()])
    }
}

impl Micrograph {
    /// The micrograph of a seed and a number.
    pub fn generate(&self, seed: u64, number: u64) -> Exposure {
        let key = Key::new(seed).index(number);
        let clean = self.clean(key);
        let half = |purpose: &str| {
            let mut stream = key.purpose(purpose).stream();
            let pixels = clean.pixels.iter().map(|&mean| {
                let electrons = poisson(&mut stream, f64::from(mean));
                (electrons as f64 + self.readout * stream.normal()) as f32
            });
            Image {
                pixels: pixels.collect(),
                ..clean
            }
        };
        let (odd, even) = (half("odd frames"), half("even frames"));
        Exposure { clean, odd, even }
    }

    /// Expected electrons per pixel of one half: ice of varying thickness, and particles in it.
    fn clean(&self, key: Key) -> Image {
        let (width, height) = (self.width, self.height);
        let mut stream = key.purpose("ice").stream();
        // The ice thickens along a direction and bulges: a plane and a slow wave, up to ±15 %.
        let direction = stream.range(0.0, std::f64::consts::TAU);
        let slope = stream.range(0.04, 0.10);
        let bulge = stream.range(0.02, 0.05);
        let phase = stream.range(0.0, std::f64::consts::TAU);
        let mut transmission = vec![0.0; width * height];
        for (i, t) in transmission.iter_mut().enumerate() {
            let u = 2.0 * ((i % width) as f64 + 0.5) / width as f64 - 1.0;
            let v = 2.0 * ((i / width) as f64 + 0.5) / height as f64 - 1.0;
            let along = u * math::cos(direction) + v * math::sin(direction);
            *t = 1.0 - slope * along - bulge * math::sin(2.0 * u - 1.5 * v + phase);
        }
        let count = (self.density * (width * height) as f64 / 1e6).round() as u64;
        for particle in 0..count {
            let mut stream = key.purpose("particle").step(particle).stream();
            self.add_particle(&mut stream, &mut transmission);
        }
        let half_dose = self.dose / 2.0;
        Image {
            width,
            height,
            pixels: transmission
                .iter()
                .map(|&t| (half_dose * math::max(t, 0.0)) as f32)
                .collect(),
        }
    }

    /// The projection of a hollow ellipsoid with a lobe, in a random place and direction.
    fn add_particle(&self, stream: &mut Stream, transmission: &mut [f64]) {
        let (cx, cy) = (
            stream.range(0.0, self.width as f64),
            stream.range(0.0, self.height as f64),
        );
        let angle = stream.range(0.0, std::f64::consts::TAU);
        let stretch = stream.range(0.75, 1.0);
        let hollow = stream.range(0.35, 0.6);
        let lobe = stream.range(0.0, std::f64::consts::TAU);
        let reach = self.radius.ceil() as i64 + 1;
        let (x0, y0) = (cx.floor() as i64, cy.floor() as i64);
        for y in (y0 - reach).max(0)..(y0 + reach + 1).min(self.height as i64) {
            for x in (x0 - reach).max(0)..(x0 + reach + 1).min(self.width as i64) {
                let (dx, dy) = (x as f64 + 0.5 - cx, y as f64 + 0.5 - cy);
                let u = (dx * math::cos(angle) + dy * math::sin(angle)) / self.radius;
                let v = (dy * math::cos(angle) - dx * math::sin(angle)) / (self.radius * stretch);
                let r2 = u * u + v * v;
                if r2 >= 1.0 {
                    continue;
                }
                // The length of the ray within the shell, of at most 1 in the middle of a full one.
                let outer = (1.0 - r2).sqrt();
                let inner = math::max(hollow * hollow - r2, 0.0).sqrt();
                let side = 1.0 + 0.3 * math::cos(math::atan2(v, u) - lobe) * r2;
                let depth = (outer - 0.6 * inner) * side;
                transmission[y as usize * self.width + x as usize] -= self.contrast * depth;
            }
        }
    }
}

/// A Poisson number. Below a mean of 10 by Knuth's product, above by Hörmann's transformed
/// rejection (PTRS, 1993), exact both.
fn poisson(stream: &mut Stream, mean: f64) -> u64 {
    if mean <= 0.0 {
        return 0;
    }
    if mean < 10.0 {
        let limit = math::exp(-mean);
        let mut product = stream.uniform();
        let mut count = 0;
        while product > limit {
            product *= stream.uniform();
            count += 1;
        }
        return count;
    }
    let b = 0.931 + 2.53 * mean.sqrt();
    let a = -0.059 + 0.02483 * b;
    let inverse_alpha = 1.1239 + 1.1328 / (b - 3.4);
    let v_r = 0.9277 - 3.6224 / (b - 2.0);
    loop {
        let u = stream.uniform() - 0.5;
        let v = stream.uniform();
        let us = 0.5 - u.abs();
        let k = ((2.0 * a / us + b) * u + mean + 0.43).floor();
        if us >= 0.07 && v <= v_r {
            return k as u64;
        }
        if k < 0.0 || (us < 0.013 && v > us) {
            continue;
        }
        let left = math::ln(v * inverse_alpha / (a / (us * us) + b));
        if left <= k * math::ln(mean) - mean - math::lgamma(k + 1.0) {
            return k as u64;
        }
    }
}

/// A scene with what photographs have, in grey levels from 0 to 255: a sky with a gradient, hills
/// with texture, houses with windows, round shadows, stripes.
pub fn photograph(width: usize, height: usize, seed: u64) -> Image {
    let mut stream = Key::new(seed).purpose("photograph").stream();
    let (w, h) = (width as f64, height as f64);
    let mut pixels = vec![0.0_f64; width * height];
    let horizon = h * stream.range(0.35, 0.5);
    let waves: Vec<[f64; 3]> = (1..6)
        .map(|k| {
            let k = f64::from(k);
            [
                k * stream.range(1.5, 3.0) / w * std::f64::consts::TAU,
                stream.range(0.0, std::f64::consts::TAU),
                0.06 * h / k,
            ]
        })
        .collect();
    let sun = (w * stream.range(0.2, 0.8), h * stream.range(0.08, 0.2));
    let texture: Vec<[f64; 3]> = (0..8)
        .map(|k| {
            let angle = stream.range(0.0, std::f64::consts::TAU);
            let frequency = 0.12 * math::powi(1.35_f64, k);
            [
                frequency * math::cos(angle),
                frequency * math::sin(angle),
                stream.range(0.0, std::f64::consts::TAU),
            ]
        })
        .collect();
    for y in 0..height {
        for x in 0..width {
            let (fx, fy) = (x as f64 + 0.5, y as f64 + 0.5);
            let ridge = horizon
                + waves
                    .iter()
                    .map(|[f, p, a]| a * math::sin(f * fx + p))
                    .sum::<f64>();
            pixels[y * width + x] = if fy < ridge {
                let glow = (math::powi(fx - sun.0, 2) + math::powi(fy - sun.1, 2)) / (0.05 * w * h);
                150.0 + 70.0 * fy / math::max(horizon, 1.0) * 0.8 + 60.0 * math::exp(-glow)
            } else {
                let depth = (fy - ridge) / math::max(h - horizon, 1.0);
                let grain: f64 = texture
                    .iter()
                    .map(|[u, v, p]| math::sin(u * fx + v * fy + p))
                    .sum();
                95.0 - 35.0 * depth + 6.0 * grain
            };
        }
    }
    let houses = 3 + stream.below(3);
    for _ in 0..houses {
        let house_width = w * stream.range(0.10, 0.2);
        let house_height = h * stream.range(0.18, 0.35);
        let left = stream.range(0.0, math::max(w - house_width, 1.0));
        let bottom = h * stream.range(0.75, 0.97);
        let wall = stream.range(120.0, 225.0);
        let (rows, columns) = (2 + stream.below(3), 2 + stream.below(3));
        let light = stream.below(2) == 0;
        for y in math::max(bottom - house_height, 0.0) as usize..(bottom as usize).min(height) {
            for x in left as usize..((left + house_width) as usize).min(width) {
                let u = (x as f64 - left) / house_width;
                let v = (y as f64 - (bottom - house_height)) / house_height;
                let (cu, cv) = ((u * columns as f64).fract(), (v * rows as f64).fract());
                let window = (0.28..0.72).contains(&cu) && (0.25..0.7).contains(&cv);
                pixels[y * width + x] = match (window, light) {
                    (true, true) => 240.0,
                    (true, false) => 25.0,
                    // Boards: a thin dark line every few rows, and shade towards one side.
                    (false, _) if y % 5 == 0 => wall - 40.0,
                    (false, _) => wall - 30.0 * u,
                };
            }
        }
    }
    for _ in 0..5 {
        let (cx, cy) = (stream.range(0.0, w), h * stream.range(0.55, 0.95));
        let radius = math::min(w, h) * stream.range(0.02, 0.07);
        for y in math::max(cy - radius, 0.0) as usize..((cy + radius) as usize + 1).min(height) {
            for x in math::max(cx - radius, 0.0) as usize..((cx + radius) as usize + 1).min(width) {
                let (dx, dy) = ((x as f64 - cx) / radius, (y as f64 - cy) / radius);
                let r2 = dx * dx + dy * dy;
                if r2 < 1.0 {
                    // A lit ball.
                    let shade = (1.0 - r2).sqrt() * 0.7 - 0.5 * dx - 0.5 * dy;
                    pixels[y * width + x] = 60.0 + 110.0 * math::max(shade, 0.0);
                }
            }
        }
    }
    Image {
        width,
        height,
        pixels: pixels
            .iter()
            .map(|p| p.clamp(0.0, 255.0).round() as f32)
            .collect(),
    }
}

/// The image with Gaussian noise added, a function of the seed.
pub fn with_gaussian_noise(image: &Image, sigma: f64, seed: u64) -> Image {
    let mut stream = Key::new(seed).purpose("gaussian noise").stream();
    Image {
        pixels: image
            .pixels
            .iter()
            .map(|&p| (f64::from(p) + sigma * stream.normal()) as f32)
            .collect(),
        ..*image
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::quality::correlation;

    #[test]
    fn poisson_numbers_have_their_mean_and_variance_on_both_sides_of_the_switch() {
        for mean in [0.3, 4.0, 9.99, 10.0, 37.0, 400.0] {
            let mut stream = Key::new(2).purpose("poisson test").stream();
            let n = 40_000;
            let draws: Vec<f64> = (0..n).map(|_| poisson(&mut stream, mean) as f64).collect();
            let average = draws.iter().sum::<f64>() / f64::from(n);
            let variance = draws.iter().map(|d| (d - mean).powi(2)).sum::<f64>() / f64::from(n);
            // Five standard errors: √(λ/n), and √((λ + 2λ²)/n) from the fourth moment λ + 3λ².
            let n = f64::from(n);
            assert!(
                (average - mean).abs() < 5.0 * (mean / n).sqrt(),
                "{mean}: {average}"
            );
            let error = ((mean + 2.0 * mean * mean) / n).sqrt();
            assert!((variance - mean).abs() < 5.0 * error, "{mean}: {variance}");
        }
        assert_eq!(poisson(&mut Key::new(1).stream(), 0.0), 0);
    }

    #[test]
    fn halves_share_the_signal_and_not_the_noise() {
        let micrograph = Micrograph {
            width: 200,
            height: 150,
            ..Micrograph::default()
        };
        let exposure = micrograph.generate(4, 0);
        assert_eq!(exposure, micrograph.generate(4, 0));
        assert_ne!(exposure.clean, micrograph.generate(4, 1).clean);
        let Exposure { clean, odd, even } = exposure;
        let noise = |half: &Image| -> Vec<f32> {
            let both = half.pixels.iter().zip(&clean.pixels);
            both.map(|(h, c)| h - c).collect()
        };
        let (odd_noise, even_noise) = (noise(&odd), noise(&even));
        // Uncorrelated: five standard errors of a correlation of 30,000 pixels.
        let error = 5.0 / 30_000.0_f64.sqrt();
        assert!(correlation(&odd_noise, &even_noise).abs() < error);
        assert!(correlation(&odd_noise, &clean.pixels).abs() < error);
        // The noise has the variance of Poisson (the mean) and of the detector (0.25).
        let n = clean.pixels.len() as f64;
        let variance = odd_noise.iter().map(|&v| f64::from(v).powi(2)).sum::<f64>() / n;
        let mean = clean.pixels.iter().map(|&v| f64::from(v)).sum::<f64>() / n;
        let expected = mean + 0.25;
        assert!(
            (variance / expected - 1.0).abs() < 5.0 * (2.2 / n).sqrt(),
            "{variance} {expected}"
        );
        // Particles and ice are there: the signal varies by more than a few per cent.
        let (low, high) = clean
            .pixels
            .iter()
            .fold((f32::MAX, 0.0_f32), |(l, h), &p| (l.min(p), h.max(p)));
        assert!(high > 10.0 && (0.0..8.0).contains(&low), "{low} … {high}");
    }

    #[test]
    fn photographs_are_grey_levels_with_structure_and_differ_by_seed() {
        let image = photograph(96, 64, 1);
        assert!(image.pixels.iter().all(|p| (0.0..=255.0).contains(p)));
        assert_eq!(image, photograph(96, 64, 1));
        assert_ne!(image, photograph(96, 64, 2));
        let distinct: std::collections::BTreeSet<u32> =
            image.pixels.iter().map(|&p| p as u32).collect();
        assert!(distinct.len() > 64);
        // Neighbours are alike, as in photographs and unlike in noise.
        let left: Vec<f32> = image.pixels[..image.pixels.len() - 1].to_vec();
        assert!(correlation(&left, &image.pixels[1..]) > 0.8);
        let noisy = with_gaussian_noise(&image, 25.0, 3);
        let variance = noisy
            .pixels
            .iter()
            .zip(&image.pixels)
            .map(|(a, b)| f64::from(a - b).powi(2))
            .sum::<f64>()
            / image.pixels.len() as f64;
        assert!((variance / 625.0 - 1.0).abs() < 5.0 * (2.0 / 6144.0_f64).sqrt());
        // Any size works.
        photograph(1, 1, 1);
        photograph(3, 50, 1);
    }
}
