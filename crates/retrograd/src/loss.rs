//! Losses and their gradients.
//!
//! With y the model's output, t the target, w the weights (1 where there are none; a mask is a
//! weight of 0 or 1) and W = Σ w:
//!
//! | loss | value | gradient d_y |
//! |---|---|---|
//! | `mse` | Σ w(y−t)² / W | 2w(y−t) / W |
//! | `l1` | Σ w\|y−t\| / W | w·sign(y−t) / W, 0 at y = t |
//! | `huber`, δ | Σ w·h(y−t) / W, h(d) = d²/2 for \|d\| ≤ δ, else δ(\|d\| − δ/2) | w·clamp(y−t, ±δ) / W |
//! | `bce_logits` | Σ w(max(y,0) − y·t + ln(1+e^−\|y\|)) / W | w(σ(y) − t) / W |
//! | `cross_entropy` | Σ_rows w(ln Σ_c e^y_c − y_t) / W | w(softmax(y)_c − [c = t]) / W |
//! | `sum_squares` | Σ w(y−t)² | 2w(y−t) |
//!
//! Without weights W is the number of elements (of rows for `cross_entropy`): PyTorch's means.
//! A target whose weights are all 0 gives the loss 0 and the gradient 0.

use std::ops::Range;

use serde::{Deserialize, Serialize};

use crate::cuts::cuts;
use crate::math::{self, single};
use crate::model::check_length;

use crate::{Error, Result, Scalar, parallel, simd};

/// What is compared, and how the differences are added up.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Loss {
    /// The mean of squares.
    Mse,
    /// The mean of magnitudes.
    L1,
    /// Quadratic up to δ = 1, linear beyond.
    Huber,
    /// Binary cross-entropy on logits.
    BceLogits,
    /// Cross-entropy of logits against class numbers.
    CrossEntropy,
    /// The sum, not the mean, of squares.
    SumSquares,
}

/// δ of the Huber loss, PyTorch's default.
const HUBER_DELTA: f64 = 1.0;

/// What the output should have been.
#[derive(Clone, Debug, PartialEq)]
pub struct Target<T> {
    /// One value per output element; empty where there are classes.
    pub values: Vec<T>,
    /// One class number per row; empty where there are values.
    pub classes: Vec<u32>,
    /// A weight per element of `values` or per class; a mask is made of zeros and ones.
    pub weights: Option<Vec<T>>,
}

impl<T> Default for Target<T> {
    fn default() -> Self {
        Target {
            values: Vec::new(),
            classes: Vec::new(),
            weights: None,
        }
    }
}

impl<T: Scalar> Target<T> {
    /// A value per output element.
    pub fn values(values: Vec<T>) -> Self {
        Target {
            values,
            ..Self::default()
        }
    }

    /// A class number per row.
    pub fn classes(classes: Vec<u32>) -> Self {
        Target {
            classes,
            ..Self::default()
        }
    }

    /// With weights, or a mask.
    pub fn weighted(self, weights: Vec<T>) -> Self {
        Target {
            weights: Some(weights),
            ..self
        }
    }

    /// In another scalar.
    pub fn cast<U: Scalar>(&self) -> Target<U> {
        Target {
            values: crate::scalar::cast(&self.values),
            classes: self.classes.clone(),
            weights: self.weights.as_deref().map(crate::scalar::cast),
        }
    }

    /// What is for some of so many samples, into memory that is there.
    pub(crate) fn take_part(&self, samples: usize, some: &Range<usize>, part: &mut Target<T>)
    where
        T: Copy,
    {
        fn take<V: Copy>(all: &[V], samples: usize, some: &Range<usize>, part: &mut Vec<V>) {
            let each = all.len() / samples;
            part.clear();
            part.extend_from_slice(&all[some.start * each..some.end * each]);
        }
        take(&self.values, samples, some, &mut part.values);
        take(&self.classes, samples, some, &mut part.classes);
        match &self.weights {
            None => part.weights = None,
            Some(all) => take(all, samples, some, part.weights.get_or_insert_default()),
        }
    }

    /// The number of things that are averaged over.
    fn len(&self) -> usize {
        self.values.len().max(self.classes.len())
    }
}

impl Loss {
    /// The name in files.
    pub fn name(self) -> &'static str {
        match self {
            Loss::Mse => "mse",
            Loss::L1 => "l1",
            Loss::Huber => "huber",
            Loss::BceLogits => "bce_logits",
            Loss::CrossEntropy => "cross_entropy",
            Loss::SumSquares => "sum_squares",
        }
    }

    /// Whether a target fits an output of that length, and is finite. Done once per data set;
    /// kernels trust it.
    pub fn check<T: Scalar>(self, outputs: usize, target: &Target<T>) -> Result<()> {
        self.check_lengths(outputs, target)?;
        for (name, values) in [
            ("target", Some(&target.values)),
            ("target's weights", target.weights.as_ref()),
        ] {
            if let Some(i) = values.and_then(|v| v.iter().position(|x| !x.is_finite())) {
                return Err(Error::invalid(
                    format!("element {i} of the {name}"),
                    values.unwrap()[i].to_f64(),
                    "a finite number",
                ));
            }
        }
        Ok(())
    }

    /// Whether a target fits an output of that length: what would be read past an end or left out.
    /// Cheap enough for every step.
    pub fn check_lengths<T: Scalar>(self, outputs: usize, target: &Target<T>) -> Result<()> {
        if self == Loss::CrossEntropy {
            let rows = target.classes.len();
            if rows == 0 || outputs == 0 || !outputs.is_multiple_of(rows) {
                return Err(Error::invalid(
                    "cross_entropy's target",
                    format!("{rows} class numbers for {outputs} outputs"),
                    "one class number for every row of the output",
                ));
            }
            let classes = outputs / rows;
            if let Some(bad) = target.classes.iter().find(|&&c| c as usize >= classes) {
                return Err(Error::invalid(
                    "cross_entropy's target",
                    format!("class {bad}"),
                    format!("class numbers below {classes}, the width of the output"),
                ));
            }
        } else if target.values.len() != outputs {
            return Err(Error::invalid(
                format!("{}'s target", self.name()),
                format!("{} values", target.values.len()),
                format!("{outputs}, one for every output"),
            ));
        }
        if let Some(weights) = &target.weights
            && weights.len() != target.len()
        {
            return Err(Error::invalid(
                "the target's weights",
                format!("{} weights", weights.len()),
                format!("{}, one for every target", target.len()),
            ));
        }
        Ok(())
    }

    /// The loss, and its gradient with respect to the output where asked for. Lengths that don't fit
    /// are errors.
    pub fn evaluate<T: Scalar>(
        self,
        y: &[T],
        target: &Target<T>,
        d_y: Option<&mut [T]>,
    ) -> Result<T> {
        self.check_lengths(y.len(), target)?;
        if let Some(d_y) = &d_y {
            check_length("the output's gradient", d_y.len(), y.len(), "the output")?;
        }
        Ok(self.compute(y, target, d_y))
    }

    /// What a mean loss divides by: the sum of the weights, or the number of targets. 1 for a sum.
    pub(crate) fn weight(self, target: &Target<f32>) -> f64 {
        match (self, &target.weights) {
            (Loss::SumSquares, _) => 1.0,
            (_, Some(weights)) => weights.iter().map(|&w| f64::from(w)).sum(),
            (_, None) => target.len() as f64,
        }
    }

    /// [`evaluate`](Loss::evaluate) where [`check_lengths`](Loss::check_lengths) has seen the lengths.
    pub(crate) fn compute<T: Scalar>(
        self,
        y: &[T],
        target: &Target<T>,
        d_y: Option<&mut [T]>,
    ) -> T {
        if let Some(y) = T::f32s(y) {
            // The target is of the same scalar: f32 as well.
            let values = T::f32s(&target.values).expect("one scalar");
            let weights = target
                .weights
                .as_deref()
                .map(|w| T::f32s(w).expect("one scalar"));
            let d_y = d_y.map(|d| T::f32s_mut(d).expect("one scalar"));
            return T::from_f64(fast(self, y, values, &target.classes, weights, d_y));
        }
        reference(self, y, target, d_y)
    }
}

/// Weight of the i-th element or row.
fn weight<T: Scalar>(weights: Option<&[T]>, i: usize) -> T {
    weights.map_or(T::ONE, |w| w[i])
}

/// The value and derivative of one element of an elementwise loss.
#[inline(always)]
fn element<T: Scalar>(loss: Loss, y: T, t: T) -> (T, T) {
    let two = T::from_f64(2.0);
    let d = y - t;
    match loss {
        Loss::Mse | Loss::SumSquares => (d * d, two * d),
        Loss::L1 => {
            let sign = if d > T::ZERO {
                T::ONE
            } else if d < T::ZERO {
                -T::ONE
            } else {
                T::ZERO
            };
            (d.abs(), sign)
        }
        Loss::Huber => {
            let delta = T::from_f64(HUBER_DELTA);
            if d.abs() <= delta {
                (d * d / two, d)
            } else if d > T::ZERO {
                (delta * (d - delta / two), delta)
            } else {
                (delta * (-d - delta / two), -delta)
            }
        }
        Loss::BceLogits => {
            let value = y.max(T::ZERO) - y * t + (-y.abs()).exp().ln_1p();
            (value, y.sigmoid() - t)
        }
        Loss::CrossEntropy => unreachable!("not an elementwise loss"),
    }
}

/// Plain loops in the order of the elements: the oracle.
fn reference<T: Scalar>(loss: Loss, y: &[T], target: &Target<T>, d_y: Option<&mut [T]>) -> T {
    let weights = target.weights.as_deref();
    let total_weight = match loss {
        Loss::SumSquares => T::ONE,
        _ => match weights {
            Some(w) => w.iter().copied().sum(),
            None => T::from_usize(target.len()),
        },
    };
    let scale = if total_weight == T::ZERO {
        T::ZERO
    } else {
        T::ONE / total_weight
    };
    let mut sum = T::ZERO;
    if loss == Loss::CrossEntropy {
        let classes = y.len() / target.classes.len();
        let mut d_rows = d_y.map(|d| d.chunks_exact_mut(classes));
        for (r, row) in y.chunks_exact(classes).enumerate() {
            let class = target.classes[r] as usize;
            let largest = row.iter().copied().fold(row[0], T::max);
            let exp_sum: T = row.iter().map(|&v| (v - largest).exp()).sum();
            let w = weight(weights, r);
            sum += w * (exp_sum.ln() + largest - row[class]);
            if let Some(d_row) = d_rows.as_mut().and_then(Iterator::next) {
                // p − 1 of the class is minus the other classes' share: as exact where p is close to 1
                // as elsewhere, and rounded as the kernels round it.
                let mut others = T::ZERO;
                for (c, d) in d_row.iter_mut().enumerate() {
                    *d = w * scale * ((row[c] - largest).exp() / exp_sum);
                    if c != class {
                        others += *d;
                    }
                }
                d_row[class] = -others;
            }
        }
    } else {
        let mut d_y = d_y;
        for (i, (&y, &t)) in y.iter().zip(&target.values).enumerate() {
            let (value, slope) = element(loss, y, t);
            let w = weight(weights, i);
            sum += w * value;
            if let Some(d) = d_y.as_deref_mut() {
                d[i] = w * slope * scale;
            }
        }
    }
    sum * scale
}

/// The least number of elements per piece of the f32 form, and the most pieces.
const PIECE: usize = 1024;
const PIECES: usize = 64;
/// From this many elements on, pieces go to threads: one element costs about a nanosecond, and a
/// parallel part 0.4 µs.
const PARALLEL: usize = 1 << 12;
/// Sums side by side: one alone would wait for itself at every element.
const SUMS: usize = 8;
cuts!(PIECE, PIECES, PARALLEL, SUMS);

/// f32: pieces of the output are owned by threads; each element's value is added in f64, so the
/// loss itself is exact to the last bit of f32 whatever the length.
fn fast(
    loss: Loss,
    y: &[f32],
    values: &[f32],
    classes: &[u32],
    weights: Option<&[f32]>,
    d_y: Option<&mut [f32]>,
) -> f64 {
    let count = values.len().max(classes.len());
    let total_weight = match (loss, weights) {
        (Loss::SumSquares, _) => 1.0,
        (_, Some(w)) => w.iter().map(|&w| f64::from(w)).sum(),
        (_, None) => count as f64,
    };
    let scale = if total_weight == 0.0 {
        0.0
    } else {
        1.0 / total_weight
    };
    let width = y.len() / count.max(1);
    // Elements, or rows of `width`.
    let piece = (PIECE / width.max(1)).max(count.div_ceil(PIECES)).max(1);
    let pieces = count.div_ceil(piece);
    let value_of = |i: usize, d_y: Option<&mut [f32]>| -> f64 {
        let range = i * piece..((i + 1) * piece).min(count);
        let y = &y[range.start * width..range.end * width];
        let weights = weights.map(|w| &w[range.clone()]);
        if loss == Loss::CrossEntropy {
            rows_f32(y, &classes[range], weights, scale as f32, d_y)
        } else {
            elements_f32(loss, y, &values[range], weights, scale as f32, d_y)
        }
    };
    let parallel = y.len() >= PARALLEL;
    let mut sums = [0.0; PIECES];
    let sums = &mut sums[..pieces];
    match d_y {
        Some(d_y) => {
            let len = piece * width;
            parallel::for_each_chunk2(sums, 1, d_y, len, parallel, |i, sum, d_y| {
                sum[0] = value_of(i, Some(d_y));
            });
        }
        None => parallel::for_each_chunk(sums, 1, parallel, |i, sum| {
            sum[0] = value_of(i, None);
        }),
    }
    sums.iter().sum::<f64>() * scale
}

fn elements_f32(
    loss: Loss,
    y: &[f32],
    t: &[f32],
    weights: Option<&[f32]>,
    scale: f32,
    d_y: Option<&mut [f32]>,
) -> f64 {
    // A loop for each loss, so that the compiler makes vectors of it.
    macro_rules! of {
        ($loss:expr) => {
            simd::dispatch!(simd::level(), _ => sum_of_elements(
                #[inline(always)]
                |y, t| element($loss, y, t),
                y, t, weights, scale, d_y,
            ))
        };
    }
    match loss {
        Loss::Mse | Loss::SumSquares => of!(Loss::Mse),
        Loss::L1 => of!(Loss::L1),
        Loss::Huber => of!(Loss::Huber),
        Loss::BceLogits => of!(Loss::BceLogits),
        Loss::CrossEntropy => unreachable!("not an elementwise loss"),
    }
}

/// Σ w·value, and the slopes; `element` gives the value and the slope.
#[inline(always)]
fn sum_of_elements(
    element: impl Fn(f32, f32) -> (f32, f32),
    y: &[f32],
    t: &[f32],
    weights: Option<&[f32]>,
    scale: f32,
    d_y: Option<&mut [f32]>,
) -> f64 {
    let mut sums = [0.0; SUMS];
    let mut unwanted = [0.0; SUMS];
    let mut d_y = d_y.map(|d_y| d_y.chunks_mut(SUMS));
    let chunks = y.chunks(SUMS).zip(t.chunks(SUMS)).enumerate();
    for (c, (y, t)) in chunks {
        let d_y = match &mut d_y {
            Some(d_y) => d_y.next().unwrap_or_default(),
            None => &mut unwanted[..],
        };
        let weights = weights.map(|w| &w[c * SUMS..]);
        let sum = |i: usize, y: f32, t: f32, sum: &mut f64, d: &mut f32| {
            let (value, slope) = element(y, t);
            let w = weight(weights, i);
            *sum += f64::from(w * value);
            *d = w * slope * scale;
        };
        if let (Some(y), Some(t)) = (y.first_chunk::<SUMS>(), t.first_chunk::<SUMS>())
            && let Some(d_y) = d_y.first_chunk_mut::<SUMS>()
        {
            for i in 0..SUMS {
                sum(i, y[i], t[i], &mut sums[i], &mut d_y[i]);
            }
        } else {
            for (i, (&y, &t)) in y.iter().zip(t).enumerate() {
                sum(i, y, t, &mut sums[i], &mut d_y[i]);
            }
        }
    }
    sums.iter().sum()
}

fn rows_f32(
    y: &[f32],
    classes: &[u32],
    weights: Option<&[f32]>,
    scale: f32,
    mut d_y: Option<&mut [f32]>,
) -> f64 {
    let width = y.len() / classes.len();
    let mut sum = 0.0;
    for (r, (row, &class)) in y.chunks_exact(width).zip(classes).enumerate() {
        let class = class as usize;
        let w = weight(weights, r);
        if w == 0.0 {
            // Masked out: no exponentials for what counts nothing.
            if let Some(d_y) = d_y.as_deref_mut() {
                d_y[r * width..(r + 1) * width].fill(0.0);
            }
            continue;
        }
        let largest = row.iter().copied().fold(f32::NEG_INFINITY, math::max);
        let mut exp_sum = 0.0_f32;
        if let Some(d_y) = d_y.as_deref_mut() {
            let d_row = &mut d_y[r * width..(r + 1) * width];
            for (d, &v) in d_row.iter_mut().zip(row) {
                *d = single::exp(v - largest);
                exp_sum += *d;
            }
            let factor = w * scale / exp_sum;
            for d in d_row.iter_mut() {
                *d *= factor;
            }
            // (p − 1) from the other classes' share, without cancellation.
            let others: f32 = (0..width).filter(|&c| c != class).map(|c| d_row[c]).sum();
            d_row[class] = -others;
        } else {
            exp_sum = row.iter().map(|&v| single::exp(v - largest)).sum();
        }
        sum += f64::from(w) * f64::from(single::ln(exp_sum) + (largest - row[class]));
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Key;

    const ALL: [Loss; 6] = [
        Loss::Mse,
        Loss::L1,
        Loss::Huber,
        Loss::BceLogits,
        Loss::CrossEntropy,
        Loss::SumSquares,
    ];

    /// Outputs of 7 rows × 5, a target and weights with a zero among them.
    fn example(loss: Loss, weighted: bool) -> (Vec<f64>, Target<f64>) {
        let mut stream = Key::new(11).purpose("loss test").stream();
        let y: Vec<f64> = (0..35)
            .map(|_| f64::from(stream.range(-3.0, 3.0) as f32))
            .collect();
        let target = if loss == Loss::CrossEntropy {
            Target::classes((0..7).map(|i| i % 5).collect())
        } else {
            Target::values(
                (0..35)
                    .map(|_| f64::from(stream.uniform() as f32))
                    .collect(),
            )
        };
        let n = target.len();
        let weights = (0..n)
            .map(|i| if i == 2 { 0.0 } else { 0.5 + (i % 3) as f64 })
            .collect();
        let target = if weighted {
            target.weighted(weights)
        } else {
            target
        };
        loss.check(35, &target).unwrap();
        (y, target)
    }

    #[test]
    fn gradients_agree_with_central_differences_with_and_without_weights() {
        for loss in ALL {
            for weighted in [false, true] {
                let (mut y, target) = example(loss, weighted);
                let mut d_y = vec![0.0; y.len()];
                loss.compute(&y, &target, Some(&mut d_y));
                let h = 1e-5;
                for i in 0..y.len() {
                    let centre = y[i];
                    y[i] = centre + h;
                    let up = loss.compute(&y, &target, None);
                    y[i] = centre - h;
                    let down = loss.compute(&y, &target, None);
                    y[i] = centre;
                    let numeric = (up - down) / (2.0 * h);
                    // Rounding of two losses of size up to 100 over 2h, and h² of a third
                    // derivative below 1.
                    let bound = 100.0 * f64::EPSILON / h + h * h;
                    assert!(
                        (numeric - d_y[i]).abs() < bound,
                        "{loss:?} weighted {weighted} element {i}: {numeric} and {}",
                        d_y[i]
                    );
                }
            }
        }
    }

    #[test]
    fn the_f32_form_agrees_with_the_f64_reference_within_a_few_roundings() {
        for loss in ALL {
            for weighted in [false, true] {
                let (y, target) = example(loss, weighted);
                let mut d_y = vec![0.0; y.len()];
                let value = loss.compute(&y, &target, Some(&mut d_y));
                let y32: Vec<f32> = crate::scalar::cast(&y);
                let mut d32 = vec![0.0; y.len()];
                let value32 = loss.compute(&y32, &target.cast(), Some(&mut d32));
                let u = 2.0_f64.powi(-24);
                assert!((f64::from(value32) - value).abs() <= 8.0 * u * value.abs());
                let largest = d_y.iter().fold(0.0_f64, |a, d| a.max(d.abs()));
                for (a, b) in d_y.iter().zip(&d32) {
                    assert!((a - f64::from(*b)).abs() <= 16.0 * u * largest, "{loss:?}");
                }
            }
        }
    }

    #[test]
    fn a_mask_of_zeros_gives_no_loss_and_no_gradient() {
        for loss in ALL {
            let (y, target) = example(loss, false);
            let weights = vec![0.0; target.len()];
            let target = target.weighted(weights);
            let mut d_y = vec![1.0; y.len()];
            assert_eq!(loss.compute(&y, &target, Some(&mut d_y)), 0.0);
            assert!(d_y.iter().all(|&d| d == 0.0));
        }
    }

    #[test]
    fn targets_that_do_not_fit_are_named() {
        let message =
            |loss: Loss, n, target: &Target<f64>| loss.check(n, target).unwrap_err().to_string();
        assert!(message(Loss::Mse, 3, &Target::values(vec![0.0; 4])).contains("4 values"));
        assert!(message(Loss::CrossEntropy, 6, &Target::classes(vec![0, 3])).contains("class 3"));
        assert!(message(Loss::Mse, 1, &Target::values(vec![f64::NAN])).contains("finite"));
        let weights = Target::values(vec![0.0; 3]).weighted(vec![1.0; 2]);
        assert!(message(Loss::L1, 3, &weights).contains("2 weights"));
    }
}
