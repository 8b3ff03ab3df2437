//! The order in which shards are added.

use std::ops::Range;

/// A binary tree over shards 0 … n−1: of a node with more than one shard, the first child has the
/// largest power of two of them that leaves some for the second.
///
/// ```text
/// 6 shards:     ┌───────┴───────┐
///           ┌───┴───┐           │
///          ┌┴┐     ┌┴┐         ┌┴┐
///          0 1     2 3         4 5
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tree {
    shards: usize,
}

impl Tree {
    /// Over so many shards, at least one.
    ///
    /// # Panics
    /// Over none.
    pub fn new(shards: usize) -> Self {
        assert!(shards > 0, "a tree of no shards");
        Tree { shards }
    }

    /// How many there are.
    pub fn shards(&self) -> usize {
        self.shards
    }

    /// The shards of one of so many processes: as many as of any other, or one more.
    pub fn of_process(&self, rank: usize, size: usize) -> Range<usize> {
        cut(self.shards, rank, size)
    }

    /// The largest subtrees that lie within some neighbouring shards, from left to right.
    pub fn roots(&self, within: &Range<usize>) -> Vec<Range<usize>> {
        fn find(node: Range<usize>, within: &Range<usize>, roots: &mut Vec<Range<usize>>) {
            if node.start >= within.end || node.end <= within.start {
                return;
            }
            if within.start <= node.start && node.end <= within.end {
                roots.push(node);
                return;
            }
            for child in split(&node) {
                find(child, within, roots);
            }
        }
        let mut roots = Vec::new();
        find(0..self.shards, within, &mut roots);
        roots
    }

    /// The node that has this one as a child; none has the whole tree.
    pub(crate) fn parent(&self, node: &Range<usize>) -> Option<Range<usize>> {
        let mut parent = 0..self.shards;
        while parent.len() > node.len() {
            let children = split(&parent);
            if children.contains(node) {
                return Some(parent);
            }
            let [left, right] = children;
            parent = if node.start < left.end { left } else { right };
        }
        None
    }

    /// Whether anything in a subtree is there: a node of it, or one below.
    pub(crate) fn any(&self, node: &Range<usize>, there: &dyn Fn(&Range<usize>) -> bool) -> bool {
        let below = || split(node).iter().any(|child| self.any(child, there));
        there(node) || (node.len() > 1 && below())
    }

    /// The sum of a subtree. `leaf` is asked for every node and gives a value where it has one: for
    /// single shards, or for roots that were added elsewhere; a shard without one adds nothing.
    pub fn sum<V>(
        &self,
        node: Range<usize>,
        leaf: &mut impl FnMut(&Range<usize>) -> Leaf<V>,
        add: &mut impl FnMut(V, V) -> V,
    ) -> Option<V> {
        match leaf(&node) {
            Leaf::Value(value) => return Some(value),
            Leaf::Nothing => return None,
            Leaf::Inner => {}
        }
        assert!(node.len() > 1, "a shard without an answer");
        let [left, right] = split(&node).map(|child| self.sum(child, leaf, add));
        match (left, right) {
            (Some(left), Some(right)) => Some(add(left, right)),
            (one, other) => one.or(other),
        }
    }

    /// The sum over all shards, of values by shard.
    pub fn sum_all<V>(
        &self,
        mut value: impl FnMut(usize) -> Option<V>,
        mut add: impl FnMut(V, V) -> V,
    ) -> Option<V> {
        let mut leaf = |node: &Range<usize>| match node.len() {
            1 => value(node.start).map_or(Leaf::Nothing, Leaf::Value),
            _ => Leaf::Inner,
        };
        self.sum(0..self.shards, &mut leaf, &mut add)
    }
}

/// What [`Tree::sum`] finds at a node.
pub enum Leaf<V> {
    /// Its sum.
    Value(V),
    /// Nothing to add.
    Nothing,
    /// The sum of its children.
    Inner,
}

pub(super) fn split(node: &Range<usize>) -> [Range<usize>; 2] {
    let left = node.start + node.len().next_power_of_two() / 2;
    [node.start..left, left..node.end]
}

/// Part i of n things cut into so many parts: as many as in any other, or one more.
pub(crate) fn cut(things: usize, part: usize, parts: usize) -> Range<usize> {
    let at = |part| things * part / parts;
    at(part)..at(part + 1)
}
