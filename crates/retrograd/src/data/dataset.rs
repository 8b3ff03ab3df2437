//! Samples in memory, and the order in which batches are drawn from them.

use std::ops::Range;

use crate::rng::Key;
use crate::{Error, Result, Target};

/// What should come out for every sample.
#[derive(Clone, Debug, PartialEq)]
pub enum Targets {
    /// Nothing is known: data to predict.
    Unknown,
    /// Numbers, `shape` of them for every sample.
    Values {
        /// The shape for one sample.
        shape: Vec<usize>,
        /// All values, sample after sample.
        values: Vec<f32>,
    },
    /// One of `count` classes for every sample.
    Classes {
        /// How many classes there are; every number below it.
        count: usize,
        /// A class number per sample.
        classes: Vec<u32>,
    },
}

/// Samples: flat inputs, targets and, where there are any, weights.
///
/// Everything is checked when it is put in: lengths fit, there is at least one sample, and every
/// number is finite. What reads a `Dataset` can trust it.
#[derive(Clone, Debug, PartialEq)]
pub struct Dataset {
    sample_shape: Vec<usize>,
    inputs: Vec<f32>,
    len: usize,
    targets: Targets,
    weights: Option<Vec<f32>>,
}

impl Dataset {
    /// Inputs without targets: `inputs` holds one or more samples of `sample_shape`.
    pub fn new(sample_shape: Vec<usize>, inputs: Vec<f32>) -> Result<Self> {
        let size = size_of(&sample_shape);
        let size = match size {
            Some(n) if n > 0 => n,
            _ => {
                return Err(Error::invalid(
                    "a sample's shape",
                    format!("{sample_shape:?}"),
                    "sizes of at least 1 whose product fits the machine",
                ));
            }
        };
        if inputs.is_empty() || !inputs.len().is_multiple_of(size) {
            return Err(Error::invalid(
                "the data set's inputs",
                format!("{} values", inputs.len()),
                format!("at least one sample of {size} values (shape {sample_shape:?})"),
            ));
        }
        check_finite("the inputs", &inputs, size)?;
        Ok(Dataset {
            sample_shape,
            len: inputs.len() / size,
            inputs,
            targets: Targets::Unknown,
            weights: None,
        })
    }

    /// With numbers as targets, `shape` of them for every sample.
    pub fn with_values(mut self, shape: Vec<usize>, values: Vec<f32>) -> Result<Self> {
        let size = size_of(&shape).unwrap_or(0);
        if size == 0 || size.checked_mul(self.len) != Some(values.len()) {
            return Err(Error::invalid(
                "the data set's targets",
                format!("{} values of shape {shape:?} a sample", values.len()),
                format!("at least one for each of the {} samples", self.len),
            ));
        }
        check_finite("the targets", &values, size)?;
        self.targets = Targets::Values { shape, values };
        self.weights = None;
        Ok(self)
    }

    /// With a class number per sample, each below `count`.
    pub fn with_classes(mut self, count: usize, classes: Vec<u32>) -> Result<Self> {
        if classes.len() != self.len {
            return Err(Error::invalid(
                "the data set's classes",
                format!("{} class numbers", classes.len()),
                format!("{}, one for every sample", self.len),
            ));
        }
        if let Some(i) = classes.iter().position(|&c| c as usize >= count) {
            return Err(Error::invalid(
                format!("the class of sample {i}"),
                classes[i],
                format!("a number below {count}"),
            ));
        }
        self.targets = Targets::Classes { count, classes };
        self.weights = None;
        Ok(self)
    }

    /// With weights (a mask is made of zeros and ones): one per sample, or one per target value.
    /// They must be ≥ 0 and not all 0.
    pub fn with_weights(mut self, weights: Vec<f32>) -> Result<Self> {
        let outputs = match &self.targets {
            Targets::Values { shape, .. } => size_of(shape).unwrap_or(1),
            _ => 1,
        };
        let weights = if weights.len() == self.len && outputs > 1 {
            let repeat = |&w| std::iter::repeat_n(w, outputs);
            weights.iter().flat_map(repeat).collect()
        } else {
            weights
        };
        if weights.len() != self.len * outputs {
            return Err(Error::invalid(
                "the data set's weights",
                format!("{} weights", weights.len()),
                format!("one for each of the {} samples or targets", self.len),
            ));
        }
        if let Some(i) = weights.iter().position(|&w| !(w >= 0.0 && w.is_finite())) {
            return Err(Error::invalid(
                format!("the weight of sample {}", i / outputs),
                weights[i],
                "a finite number of at least 0",
            ));
        }
        if weights.iter().all(|&w| w == 0.0) {
            return Err(Error::invalid(
                "the data set's weights",
                "only zeros",
                "at least one that counts",
            ));
        }
        self.weights = Some(weights);
        Ok(self)
    }

    /// The number of samples, at least 1.
    #[expect(clippy::len_without_is_empty, reason = "a data set is never empty")]
    pub fn len(&self) -> usize {
        self.len
    }

    /// The shape of one sample.
    pub fn sample_shape(&self) -> &[usize] {
        &self.sample_shape
    }

    /// The number of values in one sample.
    pub fn sample_len(&self) -> usize {
        self.inputs.len() / self.len
    }

    /// All inputs, sample after sample.
    pub fn inputs(&self) -> &[f32] {
        &self.inputs
    }

    /// The targets.
    pub fn targets(&self) -> &Targets {
        &self.targets
    }

    /// A weight per target value or per class, where there are weights.
    pub fn weights(&self) -> Option<&[f32]> {
        self.weights.as_deref()
    }

    /// The width of the output that the targets ask for: the values of one sample, or the number
    /// of classes; 0 where the targets are unknown.
    pub fn outputs(&self) -> usize {
        match &self.targets {
            Targets::Unknown => 0,
            Targets::Values { values, .. } => values.len() / self.len,
            Targets::Classes { count, .. } => *count,
        }
    }

    /// Copies samples into a batch, in the order given. The memory of `inputs` and `target` is
    /// reused.
    ///
    /// # Panics
    /// If an index is not below [`len`](Self::len).
    pub fn gather(&self, samples: &[u32], inputs: &mut Vec<f32>, target: &mut Target<f32>) {
        self.copy(samples.iter().map(|&i| i as usize), inputs, target);
    }

    /// Copies a run of samples into a batch, as [`gather`](Self::gather) does.
    pub fn gather_range(
        &self,
        samples: Range<usize>,
        inputs: &mut Vec<f32>,
        target: &mut Target<f32>,
    ) {
        self.copy(samples, inputs, target);
    }

    fn copy(
        &self,
        samples: impl Iterator<Item = usize> + Clone,
        inputs: &mut Vec<f32>,
        target: &mut Target<f32>,
    ) {
        gather_rows(&self.inputs, self.sample_len(), samples.clone(), inputs);
        target.values.clear();
        target.classes.clear();
        let mut width = 1;
        match &self.targets {
            Targets::Unknown => {}
            Targets::Values { values, .. } => {
                width = values.len() / self.len;
                gather_rows(values, width, samples.clone(), &mut target.values);
            }
            Targets::Classes { classes, .. } => {
                gather_rows(classes, 1, samples.clone(), &mut target.classes);
            }
        }
        match &self.weights {
            None => target.weights = None,
            Some(all) => {
                let weights = target.weights.get_or_insert_default();
                gather_rows(all, width, samples, weights);
            }
        }
    }

    /// A data set of some of the samples, in the order given; at least one, each below
    /// [`len`](Self::len). A part in which every weight is 0 is allowed here.
    pub fn subset(&self, samples: &[u32]) -> Result<Self> {
        if let Some(&bad) = samples.iter().find(|&&i| i as usize >= self.len) {
            return Err(Error::invalid(
                "a subset",
                format!("sample {bad}"),
                format!("numbers below {}", self.len),
            ));
        }
        let mut inputs = Vec::new();
        let mut target = Target::default();
        self.gather(samples, &mut inputs, &mut target);
        let part = Dataset::new(self.sample_shape.clone(), inputs)?;
        let mut part = match &self.targets {
            Targets::Unknown => part,
            Targets::Values { shape, .. } => part.with_values(shape.clone(), target.values)?,
            Targets::Classes { count, .. } => part.with_classes(*count, target.classes)?,
        };
        part.weights = target.weights;
        Ok(part)
    }

    /// Classes as numbers for losses that compare values (`bce_logits`, `mse`): two classes become
    /// one value, 0 or 1; more become one value per class, 1 for the sample's own and 0 elsewhere.
    /// Other targets stay as they are.
    pub fn with_classes_as_values(mut self) -> Self {
        if let Targets::Classes { count, classes } = &self.targets {
            let count = *count;
            let width = if count <= 2 { 1 } else { count };
            let mut values = vec![0.0; self.len * width];
            for (row, &class) in values.chunks_exact_mut(width).zip(classes) {
                if count <= 2 {
                    row[0] = class as f32;
                } else {
                    row[class as usize] = 1.0;
                }
            }
            self.weights = self.weights.map(|weights| {
                let repeat = |&w| std::iter::repeat_n(w, width);
                weights.iter().flat_map(repeat).collect()
            });
            self.targets = Targets::Values {
                shape: vec![width],
                values,
            };
        }
        self
    }

    /// The same samples with another shape of the same size (64 columns as 1 × 8 × 8).
    pub fn reshaped(mut self, sample_shape: Vec<usize>) -> Result<Self> {
        if size_of(&sample_shape) != Some(self.sample_len()) {
            return Err(Error::invalid(
                "a sample's shape",
                format!("{sample_shape:?}"),
                format!(
                    "a shape of {} values, as {:?} has",
                    self.sample_len(),
                    self.sample_shape
                ),
            ));
        }
        self.sample_shape = sample_shape;
        Ok(self)
    }
}

/// The number of elements of a shape, if the machine can count them.
pub(crate) fn size_of(shape: &[usize]) -> Option<usize> {
    shape.iter().try_fold(1_usize, |n, &s| n.checked_mul(s))
}

fn gather_rows<X: Copy>(
    all: &[X],
    width: usize,
    rows: impl Iterator<Item = usize>,
    into: &mut Vec<X>,
) {
    into.clear();
    for row in rows {
        into.extend_from_slice(&all[row * width..(row + 1) * width]);
    }
}

fn check_finite(what: &str, values: &[f32], width: usize) -> Result<()> {
    match values.iter().position(|v| !v.is_finite()) {
        None => Ok(()),
        Some(i) => Err(Error::invalid(
            format!("{what}: sample {}, element {}", i / width, i % width),
            values[i],
            "a finite number",
        )),
    }
}

/// Which samples make up the batch of a step: a function of the seed and the step alone.
///
/// Every epoch visits every sample once, in an order drawn from (seed, epoch). The last batch of
/// an epoch is smaller where the size doesn't divide the number of samples.
#[derive(Clone, Debug)]
pub struct Batches {
    size: usize,
    key: Option<Key>,
    /// The epoch that `order` belongs to.
    epoch: u64,
    order: Vec<u32>,
}

impl Batches {
    /// Batches of `size` of `samples` samples, shuffled anew in every epoch.
    pub fn new(samples: usize, size: usize, seed: u64) -> Result<Self> {
        let mut batches = Self::in_order(samples, size)?;
        batches.key = Some(Key::new(seed).purpose("shuffle"));
        batches.arrange(0);
        Ok(batches)
    }

    /// Batches in the order of the data, the same in every epoch.
    pub fn in_order(samples: usize, size: usize) -> Result<Self> {
        if samples == 0 || u32::try_from(samples).is_err() {
            return Err(Error::invalid(
                "batches",
                format!("{samples} samples"),
                format!("1 to {}", u32::MAX),
            ));
        }
        if size == 0 {
            return Err(Error::invalid("batch_size", 0, "at least 1"));
        }
        Ok(Batches {
            size,
            key: None,
            epoch: 0,
            order: (0..samples as u32).collect(),
        })
    }

    /// Samples in a batch, the last one of an epoch aside.
    pub fn size(&self) -> usize {
        self.size
    }

    /// Batches in an epoch.
    pub fn per_epoch(&self) -> u64 {
        self.order.len().div_ceil(self.size) as u64
    }

    /// The samples of a step, counted from 0 over the whole run.
    pub fn of_step(&mut self, step: u64) -> &[u32] {
        let epoch = step / self.per_epoch();
        if epoch != self.epoch {
            self.arrange(epoch);
        }
        let start = (step % self.per_epoch()) as usize * self.size;
        let end = (start + self.size).min(self.order.len());
        &self.order[start..end]
    }

    /// How many they are.
    pub fn len_of_step(&self, step: u64) -> usize {
        let start = (step % self.per_epoch()) as usize * self.size;
        self.size.min(self.order.len() - start)
    }

    fn arrange(&mut self, epoch: u64) {
        self.epoch = epoch;
        if let Some(key) = self.key {
            for (i, sample) in self.order.iter_mut().enumerate() {
                *sample = i as u32;
            }
            key.step(epoch).stream().shuffle(&mut self.order);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(n: usize) -> Vec<f32> {
        (0..n).map(|i| i as f32).collect()
    }

    #[test]
    fn every_epoch_visits_every_sample_once_in_its_own_order() {
        let mut batches = Batches::new(10, 4, 5).unwrap();
        assert_eq!(batches.per_epoch(), 3);
        let mut epochs = Vec::new();
        for epoch in 0..4 {
            let mut seen = Vec::new();
            for step in 3 * epoch..3 * epoch + 3 {
                seen.extend_from_slice(batches.of_step(step));
            }
            let mut sorted = seen.clone();
            sorted.sort_unstable();
            assert_eq!(sorted, (0..10).collect::<Vec<u32>>());
            assert!(!epochs.contains(&seen));
            epochs.push(seen);
        }
    }

    #[test]
    fn a_step_gives_the_same_batch_whatever_was_drawn_before() {
        let mut in_order = Batches::new(23, 5, 9).unwrap();
        let expected: Vec<Vec<u32>> = (0..30).map(|s| in_order.of_step(s).to_vec()).collect();
        for step in [29, 3, 0, 12, 4, 5] {
            let mut fresh = Batches::new(23, 5, 9).unwrap();
            assert_eq!(fresh.of_step(step), expected[step as usize]);
            assert_eq!(in_order.of_step(step), expected[step as usize]);
        }
        assert_ne!(
            Batches::new(23, 5, 10).unwrap().of_step(0),
            expected[0],
            "another seed, another order"
        );
    }

    #[test]
    fn a_batch_carries_inputs_targets_and_weights_of_its_samples() {
        let data = Dataset::new(vec![2], numbers(6))
            .unwrap()
            .with_values(vec![2], numbers(6))
            .unwrap()
            .with_weights(vec![1.0, 0.0, 2.0])
            .unwrap();
        let (mut x, mut t) = (Vec::new(), Target::default());
        data.gather(&[2, 0], &mut x, &mut t);
        assert_eq!(x, [4.0, 5.0, 0.0, 1.0]);
        assert_eq!(t.values, [4.0, 5.0, 0.0, 1.0]);
        assert_eq!(t.weights.as_deref(), Some(&[2.0, 2.0, 1.0, 1.0][..]));

        let data = Dataset::new(vec![2], numbers(6))
            .unwrap()
            .with_classes(3, vec![2, 0, 1])
            .unwrap();
        data.gather_range(1..3, &mut x, &mut t);
        assert_eq!(t, Target::classes(vec![0, 1]));
        assert_eq!(data.outputs(), 3);
        assert_eq!(data.subset(&[1]).unwrap().inputs(), [2.0, 3.0]);
    }

    #[test]
    fn classes_become_values_for_losses_that_compare_values() {
        let data = Dataset::new(vec![1], numbers(3)).unwrap();
        let two = data.clone().with_classes(2, vec![1, 0, 1]).unwrap();
        let Targets::Values { values, .. } = two.with_classes_as_values().targets else {
            panic!("values");
        };
        assert_eq!(values, [1.0, 0.0, 1.0]);
        let three = data.with_classes(3, vec![1, 0, 2]).unwrap();
        let three = three.with_weights(vec![1.0, 2.0, 3.0]).unwrap();
        let three = three.with_classes_as_values();
        let Targets::Values { values, .. } = three.targets() else {
            panic!("values");
        };
        assert_eq!(values, &[0.0, 1.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 1.0]);
        assert_eq!(three.weights().unwrap().len(), 9);
    }

    #[test]
    fn what_does_not_fit_is_named() {
        let message = |r: Result<Dataset>| r.unwrap_err().to_string();
        let data = || Dataset::new(vec![2], numbers(6)).unwrap();
        assert!(message(Dataset::new(vec![2], vec![])).contains("0 values"));
        assert!(message(Dataset::new(vec![4], numbers(6))).contains("6 values"));
        assert!(message(Dataset::new(vec![0], numbers(6))).contains("[0]"));
        assert!(message(Dataset::new(vec![usize::MAX, 2], numbers(6))).contains("product"));
        let nan = Dataset::new(vec![2], vec![0.0, 1.0, f32::NAN, 3.0]);
        assert!(message(nan).contains("sample 1, element 0"));
        assert!(message(data().with_values(vec![1], numbers(2))).contains("2 values"));
        assert!(message(data().with_classes(2, vec![0, 1, 2])).contains("sample 2"));
        assert!(message(data().with_weights(vec![1.0, -1.0, 0.0])).contains("sample 1"));
        assert!(message(data().with_weights(vec![0.0; 3])).contains("only zeros"));
        assert!(message(data().subset(&[3])).contains("sample 3"));
        assert!(message(data().reshaped(vec![3])).contains("2 values"));
        assert!(Batches::new(0, 1, 0).is_err() && Batches::new(1, 0, 0).is_err());
    }
}
