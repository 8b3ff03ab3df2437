//! What is said of images: the terms of a loss that see neighbours, and measures of quality.
//!
//! Similarity is summed here window by window over all 121 pixels, with variances about their means, where the
//! library filters rows and columns and subtracts squares; its gradient is the difference of two such sums.

use super::{FEW, row};
use crate::data::quality;
use crate::loss_image::{ImageLoss, ImageTerms, WINDOW};
use crate::scalar::cast;
use crate::verify::builtin::structured;
use crate::verify::report::{Link, Row, compare, largest};
use crate::{Result, math};

/// Planes, width and height: one window, a row of them, neither side a multiple of the other.
const SIZES: [(usize, usize, usize); 3] = [(1, 11, 11), (2, 14, 11), (3, 12, 17)];

/// Half of a difference's step, of numbers near 1.
const STEP: f64 = 1e-3;

fn gaussian(dx: usize, dy: usize) -> f64 {
    let centre = (WINDOW / 2) as f64;
    let squares = math::powi(dx as f64 - centre, 2) + math::powi(dy as f64 - centre, 2);
    math::exp(-squares / (2.0 * 1.5 * 1.5))
}

/// The mean similarity of two planes.
fn similarity(width: usize, height: usize, y: &[f64], t: &[f64], range: f64) -> f64 {
    let (c1, c2) = (math::powi(0.01 * range, 2), math::powi(0.03 * range, 2));
    let (mut sum, mut places) = (0.0, 0.0);
    for (top, left) in (0..=height - WINDOW).flat_map(|r| (0..=width - WINDOW).map(move |c| (r, c)))
    {
        let seen = || (0..WINDOW * WINDOW).map(|k| (k % WINDOW, k / WINDOW));
        let mean = |f: &dyn Fn(usize) -> f64| -> f64 {
            let all: f64 = seen().map(|(dx, dy)| gaussian(dx, dy)).sum();
            let weighed =
                seen().map(|(dx, dy)| gaussian(dx, dy) * f((top + dy) * width + left + dx));
            weighed.sum::<f64>() / all
        };
        let (m, n) = (mean(&|i| y[i]), mean(&|i| t[i]));
        let own = mean(&|i| math::powi(y[i] - m, 2));
        let other = mean(&|i| math::powi(t[i] - n, 2));
        let both = mean(&|i| (y[i] - m) * (t[i] - n));
        sum += (2.0 * m * n + c1) * (2.0 * both + c2) / ((m * m + n * n + c1) * (own + other + c2));
        places += 1.0;
    }
    sum / places
}

/// Mean squares of what neighbours differ by in y − t.
fn neighbours(width: usize, height: usize, y: &[f64], t: &[f64]) -> f64 {
    let e = |r: usize, c: usize| y[r * width + c] - t[r * width + c];
    let across = (0..height).flat_map(|r| (1..width).map(move |c| (r, c)));
    let down = (1..height).flat_map(|r| (0..width).map(move |c| (r, c)));
    let across: f64 = across
        .map(|(r, c)| math::powi(e(r, c) - e(r, c - 1), 2))
        .sum();
    let down: f64 = down
        .map(|(r, c)| math::powi(e(r, c) - e(r - 1, c), 2))
        .sum();
    across / (height * (width - 1)) as f64 + down / ((height - 1) * width) as f64
}

/// Value and gradient of the terms of a loss, added to a gradient that is there.
pub fn image_losses() -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for (planes, width, height) in SIZES {
        for terms in [
            ImageTerms {
                ssim: 0.75,
                ssim_range: 2.0,
                gradient: 0.0,
            },
            ImageTerms {
                ssim: 0.0,
                ssim_range: 6.0,
                gradient: 0.5,
            },
            ImageTerms {
                ssim: 0.25,
                ssim_range: 4.0,
                gradient: 2.0,
            },
        ] {
            rows.extend(terms_beside(planes, width, height, terms)?);
        }
    }
    Ok(rows)
}

fn terms_beside(planes: usize, width: usize, height: usize, terms: ImageTerms) -> Result<Vec<Row>> {
    let size = width * height;
    let (y, t) = (
        structured(planes * size, 0.3),
        structured(planes * size, 1.7),
    );
    let plane = |y: &[f64], t: &[f64]| {
        let unlike = 1.0 - similarity(width, height, y, t, terms.ssim_range);
        let similar = if terms.ssim > 0.0 {
            terms.ssim * unlike
        } else {
            0.0
        };
        similar + terms.gradient * neighbours(width, height, y, t)
    };
    let parts = || y.chunks_exact(size).zip(t.chunks_exact(size));
    let value = parts().map(|(y, t)| plane(y, t)).sum::<f64>() / planes as f64;
    // Every seventh pixel and the corners: a difference looks at all windows twice.
    let shown: Vec<usize> = (0..planes * size)
        .filter(|i| i % 7 == 0 || [0, width - 1, size - width, size - 1].contains(&(i % size)))
        .collect();
    let slope = |i: usize, h: f64| {
        let own = i / size * size..(i / size + 1) * size;
        let at = |moved: f64| {
            let mut y = y[own.clone()].to_vec();
            y[i - own.start] += moved;
            plane(&y, &t[own.clone()])
        };
        // Five points: the error falls with the fourth power of the step.
        (8.0 * (at(h) - at(-h)) - (at(2.0 * h) - at(-2.0 * h))) / (12.0 * h) / planes as f64
    };
    let before: Vec<f32> = (0..planes * size).map(|i| (i % 5) as f32 * 0.25).collect();
    let mut d_y = before.clone();
    let mut loss = ImageLoss::new(terms, width, height)?;
    let (y32, t32): (Vec<f32>, Vec<f32>) = (cast(&y), cast(&t));
    let got = loss.evaluate(&y32, &t32, Some(&mut d_y))?;
    let name = match (terms.ssim > 0.0, terms.gradient > 0.0) {
        (true, true) => "both",
        (true, false) => "ssim",
        _ => "gradient",
    };
    let label = |what: &str| format!("{name} of {planes} × {width} × {height}: {what}");
    let slopes: Vec<[f64; 2]> = shown
        .iter()
        .map(|&i| [slope(i, STEP), slope(i, 0.5 * STEP)])
        .collect();
    let is: Vec<f64> = shown
        .iter()
        .zip(&slopes)
        .map(|(&i, s)| f64::from(before[i]) + s[1])
        .collect();
    let got_d: Vec<f64> = shown.iter().map(|&i| f64::from(d_y[i])).collect();
    // Truncation as the two steps show it, the values' rounding over the step, and the last rounding to f32.
    let bound = |i: usize| {
        let [wide, near] = slopes[i];
        (wide - near).abs()
            + 64.0 * FEW * value.abs() / STEP
            + f64::from(f32::EPSILON) * largest(&is)
    };
    Ok(vec![
        row(
            "image losses",
            label("value"),
            Link::Form,
            &[got],
            &[value],
            64.0 * FEW * math::max(1.0, value),
        ),
        Row::compared(
            "image losses",
            label("d y"),
            Link::Form,
            &compare(&got_d, &is, bound),
        ),
    ])
}

/// PSNR and correlation by their definitions.
pub(super) fn quality_rows() -> Vec<Row> {
    let (a, b): (Vec<f32>, Vec<f32>) = (cast(&structured(301, 0.2)), cast(&structured(301, 0.9)));
    let n = a.len() as f64;
    let pairs = || {
        a.iter()
            .zip(&b)
            .map(|(&a, &b)| (f64::from(a), f64::from(b)))
    };
    let mean = |f: &dyn Fn(f64, f64) -> f64| pairs().map(|(a, b)| f(a, b)).sum::<f64>() / n;
    let (m, k) = (mean(&|a, _| a), mean(&|_, b| b));
    let both = mean(&|a, b| (a - m) * (b - k));
    let spread = mean(&|a, _| math::powi(a - m, 2)) * mean(&|_, b| math::powi(b - k, 2));
    // 20 log₁₀ of the range over the root mean square error.
    let psnr = 20.0 * math::log10(3.5 / mean(&|a, b| math::powi(a - b, 2)).sqrt());
    let got = [quality::psnr(&a, &b, 3.5), quality::correlation(&a, &b)];
    let is = [psnr, both / spread.sqrt()];
    vec![row("measures", "images", Link::Data, &got, &is, 64.0 * FEW)]
}
