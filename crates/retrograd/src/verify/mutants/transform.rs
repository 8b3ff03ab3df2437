//! What a fault does to an array.

use crate::Scalar;

/// A wrong array made from a right one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Transform {
    /// Never computed.
    Zero,
    /// The sign is wrong.
    Negate,
    /// A factor is wrong.
    Scale(f64),
    /// The mean over the batch is a sum.
    TimesSamples,
    /// The mean over the batch is taken twice.
    OverSamples,
    /// Every element is its neighbour's: an offset that is off by one.
    Shift,
    /// Back to front.
    Reverse,
    /// The first element is lost.
    DropFirst,
    /// The second half is lost: a loop that ends too early.
    DropHalf,
    /// Each sample has the next one's.
    RollSamples,
    /// Only the last sample's is there: assigned where it should be added.
    LastSampleOnly,
    /// Height and width swapped (the last two axes).
    SwapLast,
    /// Read as if the first two axes were stored the other way round.
    SwapFirst,
    /// Turned by 180° (the last two axes).
    Rotate,
    /// Moved by one along the last axis, wrapping around.
    RollLast,
    /// All ones.
    Ones,
    /// The mean over all elements, everywhere.
    Average,
}

impl Transform {
    /// In words.
    pub fn words(self) -> String {
        match self {
            Transform::Zero => "never computed".into(),
            Transform::Negate => "sign wrong".into(),
            Transform::Scale(factor) => format!("times {factor}"),
            Transform::TimesSamples => "missing 1/N".into(),
            Transform::OverSamples => "1/N twice".into(),
            Transform::Shift => "shifted by one element".into(),
            Transform::Reverse => "back to front".into(),
            Transform::DropFirst => "first element lost".into(),
            Transform::DropHalf => "second half lost".into(),
            Transform::RollSamples => "of the next sample".into(),
            Transform::LastSampleOnly => "of the last sample only".into(),
            Transform::SwapLast => "height and width swapped".into(),
            Transform::SwapFirst => "in and out swapped".into(),
            Transform::Rotate => "rotated by 180°".into(),
            Transform::RollLast => "moved along the last axis".into(),
            Transform::Ones => "left out (1)".into(),
            Transform::Average => "averaged over everything".into(),
        }
    }

    /// Applies the fault to an array of that shape (the first axis first), of a batch of
    /// `samples`. Where it makes no sense for the shape, nothing changes.
    pub fn apply<T: Scalar>(self, values: &mut [T], shape: &[usize], samples: usize) {
        let n = values.len();
        if n == 0 {
            return;
        }
        let right = values.to_vec();
        let count = T::from_usize(samples.max(1));
        let last = shape.last().copied().unwrap_or(1).max(1);
        let rows = match shape {
            [.., rows, _] => *rows,
            _ => 1,
        }
        .max(1);
        let per_sample = n / samples.max(1);
        for (i, v) in values.iter_mut().enumerate() {
            let plane = rows * last;
            let (block, at) = (i / plane * plane, i % plane);
            let (r, c) = (at / last, at % last);
            *v = match self {
                Transform::Zero => T::ZERO,
                Transform::Negate => -*v,
                Transform::Scale(factor) => *v * T::from_f64(factor),
                Transform::TimesSamples => *v * count,
                Transform::OverSamples => *v / count,
                Transform::Shift => right[(i + 1) % n],
                Transform::Reverse => right[n - 1 - i],
                Transform::DropFirst if i == 0 => T::ZERO,
                Transform::DropHalf if i >= n.div_ceil(2) => T::ZERO,
                Transform::DropFirst | Transform::DropHalf => *v,
                Transform::RollSamples => right[(i + per_sample) % n],
                Transform::LastSampleOnly if i + per_sample < n => T::ZERO,
                Transform::LastSampleOnly => *v,
                // Read with the two sizes exchanged, in the same memory.
                Transform::SwapLast => right[block + c * rows + r],
                Transform::SwapFirst => match shape {
                    [a, b, ..] => {
                        let rest = n / (a * b);
                        let (o, i, k) = (i / (b * rest), i / rest % b, i % rest);
                        right[(i * a + o) * rest + k]
                    }
                    _ => *v,
                },
                Transform::Rotate => right[block + plane - 1 - at],
                Transform::RollLast => right[block + r * last + (c + 1) % last],
                Transform::Ones => T::ONE,
                Transform::Average => right.iter().copied().sum::<T>() / T::from_usize(n),
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transforms_do_what_they_say() {
        let apply = |transform: Transform, shape: &[usize], samples| {
            let n: usize = shape.iter().product();
            let mut values: Vec<f64> = (1..=n).map(|i| i as f64).collect();
            transform.apply(&mut values, shape, samples);
            values
        };
        assert_eq!(apply(Transform::Shift, &[3], 1), [2.0, 3.0, 1.0]);
        let rolled = apply(Transform::RollSamples, &[3, 2], 3);
        assert_eq!(rolled, [3.0, 4.0, 5.0, 6.0, 1.0, 2.0]);
        let last = apply(Transform::LastSampleOnly, &[3, 2], 3);
        assert_eq!(last, [0.0, 0.0, 0.0, 0.0, 5.0, 6.0]);
        let swapped = apply(Transform::SwapLast, &[2, 3], 1);
        assert_eq!(swapped, [1.0, 3.0, 5.0, 2.0, 4.0, 6.0]);
        let rotated = apply(Transform::Rotate, &[2, 2, 2], 1);
        assert_eq!(rotated, [4.0, 3.0, 2.0, 1.0, 8.0, 7.0, 6.0, 5.0]);
        let first = apply(Transform::SwapFirst, &[2, 3, 1], 1);
        assert_eq!(first, [1.0, 3.0, 5.0, 2.0, 4.0, 6.0]);
        assert_eq!(apply(Transform::TimesSamples, &[2], 4), [4.0, 8.0]);
    }
}
