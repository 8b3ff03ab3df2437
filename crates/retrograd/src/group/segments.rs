//! Neighbouring shards of a batch that are computed as one batch.
//!
//! Forward, and backward as far as the values of samples go, compute every sample by itself: shards that
//! follow one another may be computed at once, weights read once for all of them. Only the sums over
//! samples, the gradients of parameters, must not know of it: they are made shard by shard, and added
//! along the [tree](super::Tree) over the shards.

use std::ops::Range;

use super::cut;

/// Levels of the deepest tree: 2¹⁶ shards and more than a batch of several segments has samples.
const LEVELS: usize = 17;

/// Where the shards of a batch are whose samples are computed together; see the text of this module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segments {
    /// Samples of the whole batch, and the shards it is cut into.
    samples: usize,
    shards: usize,
    /// Of which these are here.
    first: usize,
    end: usize,
    /// Rows of a sample.
    each: usize,
}

impl Segments {
    /// All samples in one.
    pub(crate) fn whole(samples: usize) -> Self {
        Segments::new(samples, 1, 0..1)
    }

    /// Some shards, a subtree of all, of a batch of so many samples.
    pub(crate) fn new(samples: usize, shards: usize, here: Range<usize>) -> Self {
        Segments {
            samples,
            shards,
            first: here.start,
            end: here.end,
            each: 1,
        }
    }

    /// The same where every sample has so many rows.
    pub(crate) fn of_rows(self, each: usize) -> Self {
        Segments { each, ..self }
    }

    /// How many there are.
    pub(crate) fn count(&self) -> usize {
        self.end - self.first
    }

    /// The rows of one, counted from the first here.
    pub(crate) fn rows(&self, segment: usize) -> Range<usize> {
        let start = cut(self.samples, self.first, self.shards).start;
        let rows = cut(self.samples, self.first + segment, self.shards);
        (rows.start - start) * self.each..(rows.end - start) * self.each
    }

    /// How deep their tree is: sums that are open at once, but for one.
    pub(crate) fn levels(&self) -> usize {
        self.count().next_power_of_two().ilog2() as usize
    }

    /// What is made of every segment, added along the tree.
    #[inline(always)]
    pub(crate) fn sum<V>(
        &self,
        mut of: impl FnMut(Range<usize>) -> V,
        mut add: impl FnMut(V, V) -> V,
    ) -> V {
        // Open sums of 2^k segments each, the largest first: what a walk from left to right leaves.
        let mut open = [const { None }; LEVELS];
        for segment in 0..self.count() {
            let mut sum = of(self.rows(segment));
            let mut level = 0;
            while let Some(left) = open[level].take() {
                sum = add(left, sum);
                level += 1;
            }
            open[level] = Some(sum);
        }
        let whole = open
            .into_iter()
            .flatten()
            .reduce(|right, left| add(left, right));
        whole.expect("a segment at least")
    }
}
