//! Terms that see an image as an image: structural similarity and differences of neighbours.
//!
//! They are added to a [`Loss`](crate::Loss) of pixels. With y the output and t the target, both
//! planes of height × width:
//!
//! **Similarity.** Under a Gaussian window g (11 × 11, σ = 1.5, Σg = 1) at every place p where it
//! fits wholly into the plane, μ_y = Σg·y, μ_t = Σg·t, s_yy = Σg·y² − μ_y², s_tt and s_yt likewise,
//! C₁ = (0.01 L)², C₂ = (0.03 L)² with L the range of the data:
//!
//! S = A₁A₂ / (B₁B₂), A₁ = 2μ_yμ_t + C₁, A₂ = 2s_yt + C₂, B₁ = μ_y² + μ_t² + C₁,
//! B₂ = s_yy + s_tt + C₂.
//!
//! The term is 1 − mean S. A pixel y_q enters μ_y with g, Σg·y² with 2g·y_q, Σg·yt with g·t_q, so
//!
//! ∂S/∂y_q = g·(a + b·y_q + c·t_q), c = ∂S/∂s_yt = 2A₁/(B₁B₂), b = 2·∂S/∂s_yy = −2S/B₂,
//! a = 2μ_tA₂/(B₁B₂) − 2μ_yS/B₁ − μ_t·c − μ_y·b
//!
//! and the gradient of the mean needs the maps a, b and c spread back through the window, the
//! adjoint of the filter: d_y = −(gᵀa + y·gᵀb + t·gᵀc) / places.
//!
//! **Gradient.** With e = y − t, the mean over all horizontal neighbours of (e_right − e_left)²
//! plus the mean over all vertical ones of (e_below − e_above)².
//!
//! Variances as differences of squares lose digits, so f32 images are computed in f64; the result
//! is exact to the last rounding.
//!
//! **On a device**, which has f32 alone, nothing is computed as a small difference of large numbers.
//! With e = y − t, so that μ_e = μ_y − μ_t, and variances as sums about their means,
//! s_yy = Σg·(y − μ_y)², B₁ − A₁ = μ_e² and B₂ − A₂ = s_yy + s_tt − 2s_yt = s_ee. Therefore with
//!
//! u = μ_e²/B₁ and v = s_ee/B₂: A₁/B₁ = 1 − u, A₂/B₂ = 1 − v and 1 − S = u + v − uv.
//!
//! In the gradient c = 2A₁/(B₁B₂) = 2(1 − u)/B₂ = k, b = −2S/B₂ = −k(1 − v), and a without its last
//! two parts is (2/B₁)(1 − v)(μ_t − μ_y(1 − u)) = (2/B₁)(1 − v)(μ_y·u − μ_e). The rest is
//! b·(y_q − μ_y) + c·(t_q − μ_t) = k·(μ_e − e_q + v·(y_q − μ_y)), so that
//!
//! ∂S/∂y_q = g·(α − k·e_q + kv·(y_q − μ_y)), α = k·μ_e + (2/B₁)(1 − v)(μ_y·u − μ_e).
//!
//! A place keeps (α, k, kv, μ_y); a pixel gathers those of the places that see it.

use crate::math;
use crate::model::check_length;
use serde::{Deserialize, Serialize};

use crate::{Error, Result, Scalar, parallel};

/// The window's width.
pub const WINDOW: usize = 11;
/// The window's σ in pixels.
const SIGMA: f64 = 1.5;
const K1: f64 = 0.01;
const K2: f64 = 0.03;

/// Which terms are added to the loss of the pixels, with which weights.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ImageTerms {
    /// The weight of 1 − mean structural similarity.
    pub ssim: f64,
    /// The range of the data that similarity assumes. Normalised images are of unit deviation;
    /// 6 is three of them to either side.
    pub ssim_range: f64,
    /// The weight of the squared differences between neighbours.
    pub gradient: f64,
}

impl Default for ImageTerms {
    fn default() -> Self {
        ImageTerms {
            ssim: 0.0,
            ssim_range: 6.0,
            gradient: 0.0,
        }
    }
}

/// The names of those that are there: `ssim and gradient`.
impl std::fmt::Display for ImageTerms {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match (self.ssim != 0.0, self.gradient != 0.0) {
            (true, true) => "ssim and gradient",
            (true, false) => "ssim",
            (false, true) => "gradient",
            (false, false) => "none",
        })
    }
}

impl ImageTerms {
    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.ssim == 0.0 && self.gradient == 0.0
    }

    /// Whether they make sense for planes of that size.
    pub fn check(&self, width: usize, height: usize) -> Result<()> {
        for (name, value) in [("ssim", self.ssim), ("gradient", self.gradient)] {
            if !(value.is_finite() && value >= 0.0) {
                return Err(Error::invalid(
                    format!("the weight of the {name} term"),
                    value,
                    "a number ≥ 0",
                ));
            }
        }
        if !(self.ssim_range.is_finite() && self.ssim_range > 0.0) {
            return Err(Error::invalid(
                "ssim_range",
                self.ssim_range,
                "a number > 0",
            ));
        }
        if self.ssim > 0.0 && width.min(height) < WINDOW {
            return Err(Error::invalid(
                "the size of images for the ssim term",
                format!("{width} × {height}"),
                format!("at least {WINDOW} × {WINDOW}, the window"),
            ));
        }
        if self.gradient > 0.0 && width.min(height) < 2 {
            return Err(Error::invalid(
                "the size of images for the gradient term",
                format!("{width} × {height}"),
                "at least 2 × 2",
            ));
        }
        Ok(())
    }

    /// The terms of whole planes and, added to `d_y` where there is one, their gradient. Lengths that
    /// don't fit are errors.
    pub fn evaluate<T: Scalar>(
        &self,
        width: usize,
        height: usize,
        y: &[T],
        t: &[T],
        d_y: Option<&mut [T]>,
        workspace: &mut Workspace<T>,
    ) -> Result<T> {
        self.check(width, height)?;
        check_planes(
            width,
            height,
            y.len(),
            t.len(),
            d_y.as_ref().map(|d| d.len()),
        )?;
        Ok(self.compute(width, height, y, t, d_y, workspace))
    }

    /// [`evaluate`](ImageTerms::evaluate) where the lengths have been seen.
    pub(crate) fn compute<T: Scalar>(
        &self,
        width: usize,
        height: usize,
        y: &[T],
        t: &[T],
        mut d_y: Option<&mut [T]>,
        workspace: &mut Workspace<T>,
    ) -> T {
        let size = width * height;
        let planes = y.len() / size;
        let share = T::ONE / T::from_usize(planes);
        let mut sum = T::ZERO;
        for p in 0..planes {
            let range = p * size..(p + 1) * size;
            let (y, t) = (&y[range.clone()], &t[range.clone()]);
            let d_y = d_y.as_deref_mut().map(|d| &mut d[range]);
            sum += self.plane(width, height, y, t, share, d_y, workspace);
        }
        sum
    }

    /// One plane; its value and gradient are multiplied by `share`.
    fn plane<T: Scalar>(
        &self,
        width: usize,
        height: usize,
        y: &[T],
        t: &[T],
        share: T,
        mut d_y: Option<&mut [T]>,
        workspace: &mut Workspace<T>,
    ) -> T {
        let mut sum = T::ZERO;
        if self.ssim > 0.0 {
            let weight = T::from_f64(self.ssim) * share;
            let range = self.ssim_range;
            let d = d_y.as_deref_mut();
            let mean = ssim(
                width,
                height,
                y,
                t,
                range,
                d.map(|d| (d, -weight)),
                workspace,
            );
            sum += weight * (T::ONE - mean);
        }
        if self.gradient > 0.0 {
            let weight = T::from_f64(self.gradient) * share;
            sum += weight * gradient(width, height, y, t, d_y.map(|d| (d, weight)));
        }
        sum
    }
}

/// Memory that is kept from call to call.
#[derive(Clone, Debug, Default)]
pub struct Workspace<T> {
    window: Vec<T>,
    /// One filtered map after another.
    maps: Vec<T>,
    rows: Vec<T>,
    product: Vec<T>,
}

/// The terms for f32 images, computed in f64, planes in parallel.
#[derive(Clone, Debug)]
pub struct ImageLoss {
    terms: ImageTerms,
    width: usize,
    height: usize,
    planes: Vec<PlaneWork>,
}

#[derive(Clone, Debug, Default)]
struct PlaneWork {
    y: Vec<f64>,
    t: Vec<f64>,
    d_y: Vec<f64>,
    value: f64,
    workspace: Workspace<f64>,
}

impl ImageLoss {
    /// For planes of that size.
    pub fn new(terms: ImageTerms, width: usize, height: usize) -> Result<Self> {
        terms.check(width, height)?;
        Ok(ImageLoss {
            terms,
            width,
            height,
            planes: Vec::new(),
        })
    }

    /// The width and height of planes.
    pub fn size(&self) -> (usize, usize) {
        (self.width, self.height)
    }

    /// Which terms there are.
    pub fn terms(&self) -> &ImageTerms {
        &self.terms
    }

    /// The terms and, added to `d_y` where there is one, their gradient. The same bits for any
    /// number of threads: a plane is computed by one of them.
    /// Lengths that don't fit are errors.
    pub fn evaluate(&mut self, y: &[f32], t: &[f32], d_y: Option<&mut [f32]>) -> Result<f64> {
        let gradient = d_y.as_ref().map(|d| d.len());
        check_planes(self.width, self.height, y.len(), t.len(), gradient)?;
        Ok(self.compute(y, t, d_y))
    }

    /// [`evaluate`](ImageLoss::evaluate) where the lengths have been seen.
    pub(crate) fn compute(&mut self, y: &[f32], t: &[f32], d_y: Option<&mut [f32]>) -> f64 {
        if self.terms.is_empty() {
            return 0.0;
        }
        let (terms, width, height) = (self.terms, self.width, self.height);
        let size = width * height;
        let count = y.len() / size;
        if self.planes.len() < count {
            self.planes.resize_with(count, PlaneWork::default);
        }
        let planes = &mut self.planes[..count];
        let share = 1.0 / count as f64;
        let with_gradient = d_y.is_some();
        parallel::for_each_mut(planes, true, |p, work| {
            let widen = |to: &mut Vec<f64>, from: &[f32]| {
                to.clear();
                to.extend(from[p * size..(p + 1) * size].iter().map(|&v| f64::from(v)));
            };
            widen(&mut work.y, y);
            widen(&mut work.t, t);
            work.d_y.clear();
            work.d_y.resize(size, 0.0);
            let d_y = with_gradient.then_some(&mut work.d_y[..]);
            let (y, t, workspace) = (&work.y, &work.t, &mut work.workspace);
            work.value = terms.plane(width, height, y, t, share, d_y, workspace);
        });
        if let Some(d_y) = d_y {
            for (d_y, work) in d_y.chunks_exact_mut(size).zip(planes.iter()) {
                for (d, &extra) in d_y.iter_mut().zip(&work.d_y) {
                    *d = (f64::from(*d) + extra) as f32;
                }
            }
        }
        planes.iter().map(|work| work.value).sum()
    }
}

/// Whether output, target and gradient are the same number of whole planes, at least one.
fn check_planes(width: usize, height: usize, y: usize, t: usize, d_y: Option<usize>) -> Result<()> {
    if y == 0 || !y.is_multiple_of(width * height) {
        return Err(Error::invalid(
            "images",
            format!("{y} values"),
            format!("a multiple of {width} × {height}"),
        ));
    }
    check_length("the target", t, y, "the output")?;
    check_length("the output's gradient", d_y.unwrap_or(y), y, "the output")
}

/// C₁ and C₂.
pub(crate) fn constants(range: f64) -> [f64; 2] {
    [K1, K2].map(|k| math::powi(k * range, 2))
}

/// The Gaussian window along one axis.
pub(crate) fn window<T: Scalar>(out: &mut Vec<T>) {
    let centre = (WINDOW / 2) as f64;
    let weight = |i: usize| math::exp(-math::powi(i as f64 - centre, 2) / (2.0 * SIGMA * SIGMA));
    let sum: f64 = (0..WINDOW).map(weight).sum();
    out.clear();
    out.extend((0..WINDOW).map(|i| T::from_f64(weight(i) / sum)));
}

/// Filters a plane where the window fits: (height, width) → (height − 10, width − 10).
fn filter<T: Scalar>(
    window: &[T],
    width: usize,
    height: usize,
    x: &[T],
    rows: &mut Vec<T>,
    out: &mut [T],
) {
    let columns = width + 1 - WINDOW;
    rows.clear();
    rows.resize(height * columns, T::ZERO);
    for (row, x) in rows.chunks_exact_mut(columns).zip(x.chunks_exact(width)) {
        for (k, &g) in window.iter().enumerate() {
            for (r, &x) in row.iter_mut().zip(&x[k..]) {
                *r += g * x;
            }
        }
    }
    out.fill(T::ZERO);
    for (i, out) in out.chunks_exact_mut(columns).enumerate() {
        for (k, &g) in window.iter().enumerate() {
            let row = &rows[(i + k) * columns..(i + k + 1) * columns];
            for (o, &r) in out.iter_mut().zip(row) {
                *o += g * r;
            }
        }
    }
}

/// The adjoint of [`filter`]: spreads a map of places back over the plane.
fn spread<T: Scalar>(
    window: &[T],
    width: usize,
    height: usize,
    map: &[T],
    rows: &mut Vec<T>,
    out: &mut Vec<T>,
) {
    let columns = width + 1 - WINDOW;
    rows.clear();
    rows.resize(height * columns, T::ZERO);
    for (i, map) in map.chunks_exact(columns).enumerate() {
        for (k, &g) in window.iter().enumerate() {
            let row = &mut rows[(i + k) * columns..(i + k + 1) * columns];
            for (r, &m) in row.iter_mut().zip(map) {
                *r += g * m;
            }
        }
    }
    out.clear();
    out.resize(height * width, T::ZERO);
    for (out, row) in out.chunks_exact_mut(width).zip(rows.chunks_exact(columns)) {
        for (k, &g) in window.iter().enumerate() {
            for (o, &r) in out[k..].iter_mut().zip(row) {
                *o += g * r;
            }
        }
    }
}

/// The mean structural similarity of two planes; its gradient with respect to y, times a factor,
/// is added to `d_y`. The planes must be at least as large as the window.
pub fn ssim<T: Scalar>(
    width: usize,
    height: usize,
    y: &[T],
    t: &[T],
    range: f64,
    d_y: Option<(&mut [T], T)>,
    workspace: &mut Workspace<T>,
) -> T {
    let places = (width + 1 - WINDOW) * (height + 1 - WINDOW);
    let Workspace {
        window: g,
        maps,
        rows,
        product,
    } = workspace;
    window(g);
    maps.clear();
    maps.resize(5 * places, T::ZERO);
    let (mean_y, rest) = maps.split_at_mut(places);
    let (mean_t, rest) = rest.split_at_mut(places);
    let (mean_yy, rest) = rest.split_at_mut(places);
    let (mean_tt, mean_yt) = rest.split_at_mut(places);
    filter(g, width, height, y, rows, mean_y);
    filter(g, width, height, t, rows, mean_t);
    for (a, b, out) in [(y, y, &mut *mean_yy), (t, t, mean_tt), (y, t, mean_yt)] {
        product.clear();
        product.extend(a.iter().zip(b).map(|(&a, &b)| a * b));
        filter(g, width, height, product, rows, out);
    }
    let two = T::from_f64(2.0);
    let [c1, c2] = constants(range).map(T::from_f64);
    let mut sum = T::ZERO;
    for p in 0..places {
        let (my, mt) = (mean_y[p], mean_t[p]);
        let s_yy = mean_yy[p] - my * my;
        let s_tt = mean_tt[p] - mt * mt;
        let s_yt = mean_yt[p] - my * mt;
        let (a1, a2) = (two * my * mt + c1, two * s_yt + c2);
        let (b1, b2) = (my * my + mt * mt + c1, s_yy + s_tt + c2);
        let s = a1 * a2 / (b1 * b2);
        sum += s;
        let c = two * a1 / (b1 * b2);
        let b = -two * s / b2;
        let a = two * mt * a2 / (b1 * b2) - two * my * s / b1 - mt * c - my * b;
        // The maps take the places of means that are no longer needed.
        (mean_y[p], mean_yy[p], mean_yt[p]) = (a, b, c);
    }
    if let Some((d_y, factor)) = d_y {
        let factor = factor / T::from_usize(places);
        for (map, times) in [(&*mean_y, None), (mean_yy, Some(y)), (mean_yt, Some(t))] {
            spread(g, width, height, map, rows, product);
            for (q, d) in d_y.iter_mut().enumerate() {
                let pixel = times.map_or(T::ONE, |x| x[q]);
                *d += factor * product[q] * pixel;
            }
        }
    }
    sum / T::from_usize(places)
}

/// The mean squared differences between neighbours of y − t; the gradient with respect to y,
/// times a factor, is added to `d_y`.
fn gradient<T: Scalar>(
    width: usize,
    height: usize,
    y: &[T],
    t: &[T],
    mut d_y: Option<(&mut [T], T)>,
) -> T {
    let two = T::from_f64(2.0);
    let e = |q: usize| y[q] - t[q];
    let mut total = T::ZERO;
    // Horizontal neighbours are 1 apart, vertical ones a row.
    for (step, columns, rows) in [(1, width - 1, height), (width, width, height - 1)] {
        let pairs = T::from_usize(columns * rows);
        let mut sum = T::ZERO;
        for i in 0..rows {
            // Row sums keep long sums short.
            let mut row = T::ZERO;
            for j in 0..columns {
                let q = i * width + j;
                let d = e(q + step) - e(q);
                row += d * d;
                if let Some((d_y, factor)) = d_y.as_mut() {
                    let slope = *factor * two * d / pairs;
                    d_y[q + step] += slope;
                    d_y[q] -= slope;
                }
            }
            sum += row;
        }
        total += sum / pairs;
    }
    total
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Key;
    use crate::scalar::cast;

    /// Structure plus noise, in planes of 17 × 14 (width × height).
    fn planes(count: usize, seed: u64) -> Vec<f64> {
        let mut stream = Key::new(seed).purpose("image loss test").stream();
        (0..count * 17 * 14)
            .map(|i| {
                let (x, y) = (i % 17, i / 17 % 14);
                let shape = (0.7 * x as f64).sin() + 0.1 * y as f64;
                f64::from((shape + 0.3 * stream.normal()) as f32)
            })
            .collect()
    }

    const BOTH: ImageTerms = ImageTerms {
        ssim: 0.7,
        ssim_range: 4.0,
        gradient: 0.3,
    };

    fn value(terms: &ImageTerms, y: &[f64], t: &[f64]) -> f64 {
        terms.compute(17, 14, y, t, None, &mut Workspace::default())
    }

    /// The largest difference between the gradient and central differences, over the largest
    /// gradient.
    fn difference(terms: &ImageTerms, d_y: &[f64], y: &[f64], t: &[f64]) -> f64 {
        let mut y = y.to_vec();
        // Truncation ∝ h², rounding ∝ 10⁻¹⁶/h over gradients of about 10⁻³: least near 10⁻⁵.
        let h = 1e-5;
        let largest = d_y.iter().fold(0.0_f64, |a, d| a.max(d.abs()));
        let mut worst = 0.0_f64;
        for i in 0..y.len() {
            let centre = y[i];
            y[i] = centre + h;
            let up = value(terms, &y, t);
            y[i] = centre - h;
            let down = value(terms, &y, t);
            y[i] = centre;
            worst = worst.max(((up - down) / (2.0 * h) - d_y[i]).abs());
        }
        worst / largest
    }

    #[test]
    fn gradients_agree_with_central_differences_and_mutants_do_not() {
        let (y, t) = (planes(2, 1), planes(2, 2));
        let only_ssim = ImageTerms {
            gradient: 0.0,
            ..BOTH
        };
        let only_gradient = ImageTerms { ssim: 0.0, ..BOTH };
        for terms in [only_ssim, only_gradient, BOTH] {
            let mut d_y = vec![0.0; y.len()];
            terms.compute(17, 14, &y, &t, Some(&mut d_y), &mut Workspace::default());
            // The differences' own error is near 1e-9 here; a wrong term is off by per cents.
            let error = difference(&terms, &d_y, &y, &t);
            assert!(error < 1e-7, "{terms:?}: {error}");
            // Mutants: height and width swapped, y and t swapped, planes not averaged.
            let mut swapped = vec![0.0; y.len()];
            terms.compute(
                14,
                17,
                &y,
                &t,
                Some(&mut swapped),
                &mut Workspace::default(),
            );
            let mut exchanged = vec![0.0; y.len()];
            terms.compute(
                17,
                14,
                &t,
                &y,
                Some(&mut exchanged),
                &mut Workspace::default(),
            );
            let doubled: Vec<f64> = d_y.iter().map(|d| 2.0 * d).collect();
            for mutant in [swapped, exchanged, doubled] {
                assert!(difference(&terms, &mutant, &y, &t) > 1e-2, "{terms:?}");
            }
        }
    }

    #[test]
    fn the_gradient_is_added_and_equal_images_have_none() {
        let y = planes(1, 3);
        let mut d_y = vec![0.25; y.len()];
        let loss = BOTH.compute(17, 14, &y, &y, Some(&mut d_y), &mut Workspace::default());
        // 1 − S is 0 up to rounding where both images are the same.
        assert!(loss.abs() < 1e-14);
        assert!(d_y.iter().all(|d| (d - 0.25).abs() < 1e-14));
    }

    #[test]
    fn f32_images_are_exact_to_the_last_rounding_on_1_2_and_7_threads() {
        let (y, t) = (planes(5, 4), planes(5, 5));
        let mut expected = vec![0.0; y.len()];
        let mut workspace = Workspace::default();
        let loss = BOTH.compute(17, 14, &y, &t, Some(&mut expected), &mut workspace);
        let (y, t): (Vec<f32>, Vec<f32>) = (cast(&y), cast(&t));
        let run = |threads| {
            parallel::with_threads(threads, || {
                let mut image_loss = ImageLoss::new(BOTH, 17, 14).unwrap();
                let mut d_y = vec![0.0_f32; y.len()];
                let value = image_loss.compute(&y, &t, Some(&mut d_y));
                // Again, with memory of an earlier call.
                let mut again = vec![0.0_f32; y.len()];
                assert_eq!(value, image_loss.compute(&y, &t, Some(&mut again)));
                assert_eq!(d_y, again);
                assert_eq!(value, image_loss.compute(&y, &t, None));
                (value, d_y)
            })
        };
        let (value, d_y) = run(1);
        assert!((value - loss).abs() <= 1e-14 * loss.abs());
        for (a, b) in d_y.iter().zip(&expected) {
            assert!((f64::from(*a) - b).abs() <= 2.0_f64.powi(-24) * b.abs() + 1e-17);
        }
        assert_eq!(run(2), (value, d_y.clone()));
        assert_eq!(run(7), (value, d_y));
    }

    #[test]
    fn unfit_terms_are_refused() {
        assert!(BOTH.check(10, 30).is_err());
        assert!(ImageTerms { ssim: -1.0, ..BOTH }.check(30, 30).is_err());
        assert!(
            ImageTerms {
                ssim_range: 0.0,
                ..BOTH
            }
            .check(30, 30)
            .is_err()
        );
        assert!(ImageTerms::default().check(1, 1).is_ok());
    }
}
