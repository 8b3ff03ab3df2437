//! Names, shapes and places of the tensors in the flat parameter vector.
//!
//! Files and people speak of tensors by PyTorch's names, shapes and order. A kernel may store a
//! tensor with its axes in another order: [`Tensor::order`] says which, and
//! [`Tensor::to_torch`]/[`Tensor::from_torch`] convert.

use std::ops::Range;

use crate::{Error, Result};

/// One tensor of the flat vector.
#[derive(Clone, Debug, PartialEq)]
pub struct Tensor {
    /// PyTorch's name, as in a `state_dict`.
    pub name: String,
    /// PyTorch's shape.
    pub shape: Vec<usize>,
    /// The axes of `shape` in the order in which they are stored, slowest first.
    /// `[0, 1, …]` is PyTorch's own order.
    pub order: Vec<usize>,
    /// Where it starts in the flat vector.
    pub offset: usize,
    /// A frozen tensor keeps its value and costs no backward work.
    pub frozen: bool,
}

impl Tensor {
    /// The number of elements.
    pub fn len(&self) -> usize {
        // Sizes that no machine holds stay large: they are refused as such, before memory is asked for.
        self.shape.iter().fold(1, |len, &n| len.saturating_mul(n))
    }

    /// Whether it has no element.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Its place in the flat vector.
    pub fn range(&self) -> Range<usize> {
        self.offset..self.offset.saturating_add(self.len())
    }

    /// For every element in PyTorch's order, its index in the stored order.
    fn stored_indices(&self) -> impl Iterator<Item = usize> + '_ {
        let rank = self.shape.len();
        let mut strides = vec![0; rank];
        let mut stride = 1;
        for &axis in self.order.iter().rev() {
            strides[axis] = stride;
            stride *= self.shape[axis];
        }
        let mut index = vec![0; rank];
        (0..self.len()).map(move |_| {
            let stored = index.iter().zip(&strides).map(|(i, s)| i * s).sum();
            for axis in (0..rank).rev() {
                index[axis] += 1;
                if index[axis] < self.shape[axis] {
                    break;
                }
                index[axis] = 0;
            }
            stored
        })
    }

    /// The tensor's values in PyTorch's order, from its values as stored.
    pub fn to_torch<T: Copy>(&self, stored: &[T]) -> Vec<T> {
        assert_eq!(stored.len(), self.len());
        self.stored_indices().map(|i| stored[i]).collect()
    }

    /// Writes values in PyTorch's order into their stored place.
    pub fn from_torch<T: Copy>(&self, torch: &[T], stored: &mut [T]) {
        assert_eq!(stored.len(), self.len());
        assert_eq!(torch.len(), self.len());
        for (&value, i) in torch.iter().zip(self.stored_indices()) {
            stored[i] = value;
        }
    }
}

/// All tensors of a model, in the order of the flat vector, without gaps.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Layout {
    tensors: Vec<Tensor>,
    len: usize,
}

impl Layout {
    /// No tensors yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Appends a tensor stored in PyTorch's order; returns its place.
    pub fn push(&mut self, name: impl Into<String>, shape: &[usize]) -> Range<usize> {
        let order: Vec<usize> = (0..shape.len()).collect();
        self.push_stored(name, shape, &order)
    }

    /// Appends a tensor whose axes are stored in the given order, slowest first.
    pub fn push_stored(
        &mut self,
        name: impl Into<String>,
        shape: &[usize],
        order: &[usize],
    ) -> Range<usize> {
        let name = name.into();
        assert!(self.get(&name).is_none(), "tensor {name} twice");
        let mut sorted = order.to_vec();
        sorted.sort_unstable();
        assert!(
            sorted.iter().copied().eq(0..shape.len()),
            "order of {name} is not a permutation"
        );
        let tensor = Tensor {
            name,
            shape: shape.to_vec(),
            order: order.to_vec(),
            offset: self.len,
            frozen: false,
        };
        let range = tensor.range();
        self.len = range.end;
        self.tensors.push(tensor);
        range
    }

    /// The length of the flat vector.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is nothing to train.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The tensors, in order.
    pub fn tensors(&self) -> &[Tensor] {
        &self.tensors
    }

    /// The tensor of that name.
    pub fn get(&self, name: &str) -> Option<&Tensor> {
        self.tensors.iter().find(|t| t.name == name)
    }

    /// The tensor that holds the element, and the element's index in PyTorch's order: for reports.
    pub fn locate(&self, index: usize) -> Option<(&Tensor, usize)> {
        let tensor = self.tensors.iter().find(|t| t.range().contains(&index))?;
        let stored = index - tensor.offset;
        let torch = tensor.stored_indices().position(|i| i == stored)?;
        Some((tensor, torch))
    }

    /// The tensors that a range of the flat vector meets, each with the part of it in the range.
    pub fn within(
        &self,
        range: Range<usize>,
    ) -> impl Iterator<Item = (&Tensor, Range<usize>)> + Clone + '_ {
        self.tensors.iter().filter_map(move |tensor| {
            let own = tensor.range();
            let part = own.start.max(range.start)..own.end.min(range.end);
            (part.start < part.end).then_some((tensor, part))
        })
    }

    /// Freezes every tensor whose name is the pattern, or starts with what stands before a final
    /// `*`. An error when nothing matches.
    pub fn freeze(&mut self, pattern: &str) -> Result<()> {
        self.set_frozen(pattern, true)
    }

    /// The reverse of [`Layout::freeze`].
    pub fn unfreeze(&mut self, pattern: &str) -> Result<()> {
        self.set_frozen(pattern, false)
    }

    fn set_frozen(&mut self, pattern: &str, frozen: bool) -> Result<()> {
        let matches = |name: &str| match pattern.strip_suffix('*') {
            Some(prefix) => name.starts_with(prefix),
            None => name == pattern,
        };
        let mut found = false;
        for tensor in &mut self.tensors {
            if matches(&tensor.name) {
                tensor.frozen = frozen;
                found = true;
            }
        }
        if found {
            return Ok(());
        }
        let names: Vec<_> = self.tensors.iter().map(|t| t.name.as_str()).collect();
        Err(Error::invalid(
            "tensor to freeze",
            format!("{pattern:?}"),
            format!("a name or a prefix with *, of: {}", names.join(", ")),
        ))
    }

    /// Whether every tensor within the range of the flat vector is frozen.
    pub fn is_frozen(&self, range: Range<usize>) -> bool {
        self.tensors
            .iter()
            .filter(|t| t.offset < range.end && t.range().end > range.start)
            .all(|t| t.frozen)
    }

    /// The ranges that are trained, neighbours joined, in order. Allocates nothing: it is asked for
    /// at every step.
    pub fn trainable(&self) -> impl Iterator<Item = Range<usize>> + '_ {
        let mut ranges = self
            .tensors
            .iter()
            .filter(|t| !t.frozen)
            .map(Tensor::range)
            .peekable();
        std::iter::from_fn(move || {
            let mut range = ranges.next()?;
            while let Some(next) = ranges.next_if(|next| next.start == range.end) {
                range.end = next.end;
            }
            Some(range)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn torch_order_round_trips_through_a_stored_order() {
        let mut layout = Layout::new();
        layout.push("bias", &[2]);
        layout.push_stored("weight", &[2, 3, 4], &[1, 2, 0]);
        let weight = layout.get("weight").unwrap();
        let torch: Vec<i32> = (0..24).collect();
        let mut stored = vec![0; 24];
        weight.from_torch(&torch, &mut stored);
        // Stored [in][basis][out]: the first two elements differ in `out` alone.
        assert_eq!(&stored[..2], &[0, 12]);
        assert_eq!(weight.to_torch(&stored), torch);
        let (tensor, index) = layout.locate(2 + 1).unwrap();
        assert_eq!((tensor.name.as_str(), index), ("weight", 12));
    }

    #[test]
    fn frozen_ranges_split_what_is_trained() {
        let mut layout = Layout::new();
        for name in ["0.weight", "0.bias", "1.weight"] {
            layout.push(name, &[2]);
        }
        let trained = |layout: &Layout| layout.trainable().collect::<Vec<_>>();
        assert_eq!(trained(&layout), vec![0..6]);
        layout.freeze("0.bias").unwrap();
        assert_eq!(trained(&layout), vec![0..2, 4..6]);
        layout.freeze("0.*").unwrap();
        assert!(layout.is_frozen(0..4) && !layout.is_frozen(2..6));
        let message = layout.freeze("2.*").unwrap_err().to_string();
        assert!(
            message.contains("\"2.*\"") && message.contains("1.weight"),
            "{message}"
        );
    }
}
