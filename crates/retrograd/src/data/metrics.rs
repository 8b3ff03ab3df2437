//! Measures of predictions, added up batch by batch in f64.
//!
//! With y the prediction, t the truth and w the weight (1 where there are none), and Σ over all
//! values seen:
//!
//! | measure | definition |
//! |---|---|
//! | `rmse` | √(Σ w(y−t)² / Σ w), over all outputs together |
//! | `mae` | Σ w\|y−t\| / Σ w, over all outputs together |
//! | `r2` | 1 − Σ w(y−t)² / Σ w(t−t̄)² for each output, t̄ its weighted mean; the plain mean over the outputs. An output that never varies counts 1 where it is met exactly and 0 otherwise |
//! | `accuracy` | Σ w\[predicted = true\] / Σ w |
//! | `f1` | macro F1: the plain mean over the classes that occur, as truth or as prediction, of 2·TP / (2·TP + FP + FN) |
//! | `best_action` | the share of samples whose largest output is that of the truth, among those of positive weight |
//! | confusion matrix | entry (t, p): Σ w of the samples of class t that were taken for class p |
//!
//! These are scikit-learn's `r2_score`, `accuracy_score`, `f1_score(average="macro")` and
//! `confusion_matrix`. The predicted class is the one with the largest output, the first of equal
//! ones; with a single output it is class 1 where the output, a logit, is above 0.

use serde::{Deserialize, Serialize};

use crate::{Error, Result, Target};

/// Sums for RMSE, MAE and R².
#[derive(Clone, Debug)]
pub struct Regression {
    outputs: Vec<OutputSums>,
}

/// Sums over one output.
#[derive(Clone, Debug)]
struct OutputSums {
    /// From the network's numbers to the user's: t·scale + shift.
    scale: f64,
    shift: f64,
    weight: f64,
    squares: f64,
    magnitudes: f64,
    /// Mean of the truth so far, and Σ w(t−t̄)² (West's update: no cancellation).
    mean: f64,
    spread: f64,
}

/// RMSE, MAE and R²; the module's docs define them.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct RegressionScores {
    /// Root of the mean square error.
    pub rmse: f64,
    /// Mean magnitude of the error.
    pub mae: f64,
    /// Share of the variance that is explained.
    pub r2: f64,
}

impl Regression {
    /// For predictions of `outputs` values a sample.
    pub fn new(outputs: usize) -> Self {
        Self::in_units(&vec![0.0; outputs], &vec![1.0; outputs])
    }

    /// The same in the units that the targets had before they were normalised: value·scale + shift
    /// for each output.
    pub fn in_units(shift: &[f64], scale: &[f64]) -> Self {
        let outputs = shift.iter().zip(scale);
        let outputs = outputs.map(|(&shift, &scale)| OutputSums {
            scale,
            shift,
            weight: 0.0,
            squares: 0.0,
            magnitudes: 0.0,
            mean: 0.0,
            spread: 0.0,
        });
        Regression {
            outputs: outputs.collect(),
        }
    }

    /// Forgets what was added.
    pub fn clear(&mut self) {
        for o in &mut self.outputs {
            (o.weight, o.squares, o.magnitudes) = (0.0, 0.0, 0.0);
            (o.mean, o.spread) = (0.0, 0.0);
        }
    }

    /// Adds a batch of predictions.
    pub fn add(&mut self, predictions: &[f32], target: &Target<f32>) -> Result<()> {
        let width = self.outputs.len();
        let n = predictions.len();
        if width == 0 || !n.is_multiple_of(width) || n != target.values.len() {
            return Err(Error::invalid(
                "predictions to measure",
                format!("{n} values for {} targets", target.values.len()),
                format!("as many as targets, {width} a sample"),
            ));
        }
        check_weights(target, n)?;
        for (i, (&y, &t)) in predictions.iter().zip(&target.values).enumerate() {
            let w = target.weights.as_ref().map_or(1.0, |w| f64::from(w[i]));
            if w == 0.0 {
                continue;
            }
            let o = &mut self.outputs[i % width];
            let (y, t) = (f64::from(y), f64::from(t));
            let error = (y - t) * o.scale;
            let t = t * o.scale + o.shift;
            o.weight += w;
            o.squares += w * error * error;
            o.magnitudes += w * error.abs();
            let off = t - o.mean;
            o.mean += off * w / o.weight;
            o.spread += w * off * (t - o.mean);
        }
        Ok(())
    }

    /// The measures of everything added. Without anything added they are NaN.
    pub fn scores(&self) -> RegressionScores {
        let sum = |f: fn(&OutputSums) -> f64| self.outputs.iter().map(f).sum::<f64>();
        let weight = sum(|o| o.weight);
        // An output that was always masked has no R².
        let seen = || self.outputs.iter().filter(|o| o.weight > 0.0);
        let r2 = seen().map(|o| match (o.spread > 0.0, o.squares == 0.0) {
            (true, _) => 1.0 - o.squares / o.spread,
            (false, true) => 1.0,
            (false, false) => 0.0,
        });
        RegressionScores {
            rmse: (sum(|o| o.squares) / weight).sqrt(),
            mae: sum(|o| o.magnitudes) / weight,
            r2: r2.sum::<f64>() / seen().count() as f64,
        }
    }
}

/// How often the best of the outputs that are allowed is the truth's: what counts where one of many
/// values is acted on.
#[derive(Clone, Debug)]
pub struct Choices {
    width: usize,
    right: usize,
    samples: usize,
}

impl Choices {
    /// For predictions of `outputs` values a sample.
    pub fn new(outputs: usize) -> Self {
        Choices {
            width: outputs,
            right: 0,
            samples: 0,
        }
    }

    /// Adds a batch of predictions. Outputs of weight 0 are not allowed.
    pub fn add(&mut self, predictions: &[f32], target: &Target<f32>) -> Result<()> {
        let (n, width) = (predictions.len(), self.width);
        if width == 0 || !n.is_multiple_of(width) || n != target.values.len() {
            return Err(Error::invalid(
                "predictions to measure",
                format!("{n} values for {} targets", target.values.len()),
                format!("as many as targets, {width} a sample"),
            ));
        }
        check_weights(target, n)?;
        for (s, y) in predictions.chunks_exact(width).enumerate() {
            let own = s * width..(s + 1) * width;
            let weights = target.weights.as_ref().map(|w| &w[own.clone()]);
            let best = |values: &[f32]| {
                let allowed = (0..width).filter(|&j| weights.is_none_or(|w| w[j] > 0.0));
                allowed.max_by(|&a, &b| values[a].total_cmp(&values[b]))
            };
            self.right += usize::from(best(y) == best(&target.values[own]));
            self.samples += 1;
        }
        Ok(())
    }

    /// The share of samples that are right; NaN without any.
    pub fn right(&self) -> f64 {
        self.right as f64 / self.samples as f64
    }
}

/// The confusion matrix, from which the measures of a classification come.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Confusion {
    classes: usize,
    /// Entry (true, predicted) at true · classes + predicted.
    counts: Vec<f64>,
}

impl Confusion {
    /// For so many classes.
    pub fn new(classes: usize) -> Self {
        Confusion {
            classes,
            counts: vec![0.0; classes * classes],
        }
    }

    /// Forgets what was added.
    pub fn clear(&mut self) {
        self.counts.fill(0.0);
    }

    /// The number of classes.
    pub fn classes(&self) -> usize {
        self.classes
    }

    /// The weight (the number, where there are no weights) of the samples of class `truth` that
    /// were taken for class `predicted`.
    pub fn count(&self, truth: usize, predicted: usize) -> f64 {
        self.counts[truth * self.classes + predicted]
    }

    /// The rows of the matrix, one for each true class.
    pub fn rows(&self) -> impl Iterator<Item = &[f64]> {
        self.counts.chunks_exact(self.classes.max(1))
    }

    /// Adds a batch of outputs: one per class, or a single logit for two classes. The truth is
    /// `target.classes`, or `target.values` where [`with_classes_as_values`] made values of them.
    ///
    /// [`with_classes_as_values`]: super::Dataset::with_classes_as_values
    pub fn add(&mut self, outputs: &[f32], target: &Target<f32>) -> Result<()> {
        let as_values = target.classes.is_empty();
        let width = match (as_values, self.classes) {
            (true, 2) if target.values.len() == outputs.len() => 1,
            (false, 2) if target.classes.len() == outputs.len() => 1,
            (_, classes) => classes,
        };
        let rows = if as_values {
            target.values.len() / width.max(1)
        } else {
            target.classes.len()
        };
        if width == 0 || rows * width != outputs.len() {
            return Err(Error::invalid(
                "outputs to measure",
                format!("{} outputs for {rows} samples", outputs.len()),
                format!("{} for every sample", self.classes),
            ));
        }
        check_weights(target, if as_values { outputs.len() } else { rows })?;
        for (row, output) in outputs.chunks_exact(width).enumerate() {
            if let Some(c) = output.iter().position(|y| y.is_nan()) {
                return Err(Error::invalid(
                    format!("output {c} of sample {row}"),
                    "NaN",
                    "a number, to choose a class by",
                ));
            }
            let truth = if as_values {
                predicted_class(&target.values[row * width..(row + 1) * width], 0.5)
            } else {
                target.classes[row] as usize
            };
            if truth >= self.classes {
                return Err(Error::invalid(
                    format!("the class of sample {row}"),
                    truth,
                    format!("a number below {}", self.classes),
                ));
            }
            let weight = target.weights.as_ref().map_or(1.0, |w| {
                f64::from(w[if as_values { row * width } else { row }])
            });
            // Of a single class there is no other to choose, whatever its logit.
            let predicted = predicted_class(output, 0.0).min(self.classes - 1);
            self.counts[truth * self.classes + predicted] += weight;
        }
        Ok(())
    }

    /// Accuracy; NaN where nothing was added.
    pub fn accuracy(&self) -> f64 {
        let right: f64 = (0..self.classes).map(|c| self.count(c, c)).sum();
        right / self.counts.iter().sum::<f64>()
    }

    /// Macro F1; NaN where nothing was added.
    pub fn f1(&self) -> f64 {
        let (mut sum, mut occurring) = (0.0, 0.0);
        for c in 0..self.classes {
            let truth: f64 = (0..self.classes).map(|p| self.count(c, p)).sum();
            let predicted: f64 = (0..self.classes).map(|t| self.count(t, c)).sum();
            // TP + FN and TP + FP.
            if truth + predicted > 0.0 {
                sum += 2.0 * self.count(c, c) / (truth + predicted);
                occurring += 1.0;
            }
        }
        sum / occurring
    }
}

fn check_weights(target: &Target<f32>, needed: usize) -> Result<()> {
    match &target.weights {
        Some(weights) if weights.len() != needed => Err(Error::invalid(
            "the target's weights",
            format!("{} weights", weights.len()),
            format!("{needed}, one for every target"),
        )),
        _ => Ok(()),
    }
}

/// The class that a sample's outputs choose: the first of the largest, or for a single output 1
/// where it is above `threshold` (0 for a logit, 0.5 for a probability).
pub fn predicted_class(outputs: &[f32], threshold: f32) -> usize {
    if let [single] = outputs {
        return usize::from(*single > threshold);
    }
    let mut best = 0;
    for (c, y) in outputs.iter().enumerate() {
        if *y > outputs[best] {
            best = c;
        }
    }
    best
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_single_class_is_predicted_whatever_its_logit() {
        let mut confusion = Confusion::new(1);
        let target = Target::classes(vec![0, 0]);
        confusion.add(&[2.0, -1.0], &target).unwrap();
        assert_eq!(confusion.accuracy(), 1.0);
    }

    #[test]
    fn regression_scores_are_those_of_the_definitions() {
        // Errors 0.5, -0.5, 0, -1; truth 3, -0.5, 2, 7 with mean 2.875 and Σ(t−t̄)² = 29.1875:
        // scikit-learn's documentation gives R² 0.9486081370449679 and MAE 0.5 for these.
        let mut sums = Regression::new(1);
        let target = Target::values(vec![3.0, -0.5, 2.0, 7.0]);
        sums.add(&[2.5, 0.0, 2.0, 8.0], &target).unwrap();
        let scores = sums.scores();
        assert!((scores.r2 - 0.948_608_137_044_967_9).abs() < 1e-14);
        assert_eq!(scores.mae, 0.5);
        assert!((scores.rmse - 0.375_f64.sqrt()).abs() < 1e-15);
        // In two pieces, and from scratch after clear.
        sums.clear();
        let half = |r: std::ops::Range<usize>| Target::values(target.values[r].to_vec());
        sums.add(&[2.5], &half(0..1)).unwrap();
        sums.add(&[0.0, 2.0, 8.0], &half(1..4)).unwrap();
        assert!((sums.scores().r2 - scores.r2).abs() < 1e-14);
        assert!(sums.add(&[1.0], &target).is_err());
    }

    #[test]
    fn regression_over_several_outputs_weights_and_units() {
        // scikit-learn's documentation: r2_score of these, uniform average, 0.936800526662…
        let target = Target::values(vec![0.5, 1.0, -1.0, 1.0, 7.0, -6.0]);
        let y = [0.0, 2.0, -1.0, 2.0, 8.0, -5.0];
        let mut sums = Regression::new(2);
        sums.add(&y, &target).unwrap();
        let r2 = (1.0 - 1.25 / 36.166_666_666_666_664 + 1.0 - 3.0 / 32.666_666_666_666_664) / 2.0;
        assert!((sums.scores().r2 - r2).abs() < 1e-14);
        // A weight of 0 is the same as not there.
        let mut masked = Regression::new(1);
        let target = Target::values(vec![1.0, 100.0, 2.0]).weighted(vec![1.0, 0.0, 1.0]);
        masked.add(&[1.5, -7.0, 2.0], &target).unwrap();
        let mut without = Regression::new(1);
        without
            .add(&[1.5, 2.0], &Target::values(vec![1.0, 2.0]))
            .unwrap();
        assert_eq!(masked.scores(), without.scores());
        // Units scale the errors and leave R² alone.
        let mut units = Regression::in_units(&[10.0], &[4.0]);
        units
            .add(&[1.5, 2.0], &Target::values(vec![1.0, 2.0]))
            .unwrap();
        assert_eq!(units.scores().mae, 4.0 * without.scores().mae);
        assert!((units.scores().r2 - without.scores().r2).abs() < 1e-15);
        // A truth that never varies.
        let mut constant = Regression::new(1);
        constant
            .add(&[2.0, 2.0], &Target::values(vec![2.0, 2.0]))
            .unwrap();
        assert_eq!(constant.scores().r2, 1.0);
        constant.add(&[3.0], &Target::values(vec![2.0])).unwrap();
        assert_eq!(constant.scores().r2, 0.0);
    }

    #[test]
    fn a_small_spread_far_from_zero_keeps_its_r2() {
        // Σt² − n·t̄² would lose every digit here.
        let t: Vec<f32> = (0..1000)
            .map(|i| 1_000_000.0 + f32::from(i as i16 % 2))
            .collect();
        let mut sums = Regression::new(1);
        let y = vec![1_000_000.5; 1000];
        sums.add(&y, &Target::values(t)).unwrap();
        // The prediction is the mean: R² is 0.
        assert!(sums.scores().r2.abs() < 1e-9);
    }

    #[test]
    fn confusion_accuracy_and_macro_f1() {
        // True 0 1 2 0 1 2, predicted 0 2 1 0 0 1: scikit-learn's documentation gives macro F1
        // 0.26666… for them.
        let logits = |c: usize| (0..3).map(move |i| if i == c { 1.0 } else { 0.0 });
        let outputs: Vec<f32> = [0, 2, 1, 0, 0, 1].into_iter().flat_map(logits).collect();
        let mut confusion = Confusion::new(3);
        let target = Target::classes(vec![0, 1, 2, 0, 1, 2]);
        confusion.add(&outputs, &target).unwrap();
        assert!((confusion.f1() - 4.0 / 15.0).abs() < 1e-15);
        assert!((confusion.accuracy() - 1.0 / 3.0).abs() < 1e-15);
        assert_eq!(confusion.count(1, 2), 1.0);
        assert_eq!(confusion.count(2, 1), 2.0);
        // A class that never occurs doesn't count in F1.
        let mut five = Confusion::new(5);
        let outputs: Vec<f32> = outputs
            .chunks_exact(3)
            .flat_map(|row| [row[0], row[1], row[2], -1.0, -1.0])
            .collect();
        five.add(&outputs, &target).unwrap();
        assert_eq!(five.f1(), confusion.f1());
        five.clear();
        assert!(five.accuracy().is_nan());
    }

    #[test]
    fn a_single_logit_decides_between_two_classes() {
        let mut confusion = Confusion::new(2);
        let target = Target::classes(vec![0, 1, 1]);
        confusion.add(&[-0.1, 0.1, -3.0], &target).unwrap();
        let mut as_values = Confusion::new(2);
        let target = Target::values(vec![0.0, 1.0, 1.0]);
        as_values.add(&[-0.1, 0.1, -3.0], &target).unwrap();
        assert_eq!(confusion, as_values);
        assert_eq!(
            confusion.rows().collect::<Vec<_>>(),
            [[1.0, 0.0], [1.0, 1.0]]
        );
        // Three classes as values.
        let mut three = Confusion::new(3);
        let target = Target::values(vec![0.0, 0.0, 1.0]).weighted(vec![2.0; 3]);
        three.add(&[0.0, 3.0, 1.0], &target).unwrap();
        assert_eq!(three.count(2, 1), 2.0);
    }

    #[test]
    fn what_cannot_be_measured_is_named() {
        let mut confusion = Confusion::new(3);
        let target = Target::classes(vec![0]);
        let nan = confusion.add(&[0.0, f32::NAN, 0.0], &target).unwrap_err();
        assert!(nan.to_string().contains("output 1 of sample 0"));
        assert!(confusion.add(&[0.0; 4], &target).is_err());
        let far = confusion.add(&[0.0; 3], &Target::classes(vec![3]));
        assert!(far.unwrap_err().to_string().contains("below 3"));
    }
}
