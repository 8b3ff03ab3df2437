//! The gradients of a process's shards on their way to the sums of its subtrees.

use std::ops::Range;

use super::{Roots, Tree, add_to, tree::split};
use crate::parallel;

/// Gradients of shards, and sums of subtrees of them that are wholly there.
#[derive(Default)]
pub(crate) struct Pending {
    nodes: Vec<(Range<usize>, Vec<f32>)>,
}

impl Pending {
    /// Takes the gradient of a shard, or the sum of a subtree.
    pub fn push(&mut self, node: Range<usize>, grads: Vec<f32>) {
        self.nodes.push((node, grads));
    }

    /// How many are there.
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Adds the last ones as far as the tree allows; given shard after shard, no more are alive than the
    /// tree is deep. What is added to another is free.
    pub fn fold(&mut self, tree: Tree, free: &mut Vec<Vec<f32>>) {
        while let [.., (left, _), (right, _)] = &self.nodes[..]
            && let Some(parent) = tree.parent(right)
            && split(&parent)[0] == *left
        {
            let (_, right) = self.nodes.pop().expect("two of them");
            let (node, left) = self.nodes.last_mut().expect("two of them");
            add_to(left, &right);
            *node = parent;
            free.push(right);
        }
    }

    /// The sums of a process's subtrees, whole.
    pub fn into_roots(
        mut self,
        tree: Tree,
        own: &Range<usize>,
        len: usize,
        free: &mut Vec<Vec<f32>>,
    ) -> Roots {
        let mut roots = Vec::new();
        for root in tree.roots(own) {
            let whole = self.nodes.iter().position(|(node, _)| *node == root);
            roots.push(match whole {
                Some(at) => Some(self.nodes.swap_remove(at).1),
                None => {
                    let memory = free.pop().unwrap_or_default();
                    self.root(tree, &root, 0..len, None, memory)
                }
            });
        }
        self.clear(free);
        roots
    }

    /// Gives all memory back.
    pub fn clear(self, free: &mut Vec<Vec<f32>>) {
        free.extend(self.nodes.into_iter().map(|(_, grads)| grads));
    }

    /// A range of the sum of a subtree, into that memory; with what is still being computed where that
    /// is `last`. None where nothing of it is there.
    pub fn root(
        &self,
        tree: Tree,
        root: &Range<usize>,
        range: Range<usize>,
        last: Option<(&Range<usize>, &[f32])>,
        mut memory: Vec<f32>,
    ) -> Option<Vec<f32>> {
        let of = |node: &Range<usize>| -> Option<&[f32]> {
            if let Some((computed, grads)) = last
                && node == computed
            {
                return Some(grads);
            }
            let (_, grads) = self.nodes.iter().find(|(there, _)| there == node)?;
            Some(grads)
        };
        if !tree.any(root, &|node| of(node).is_some()) {
            return None;
        }
        memory.resize(range.len(), 0.0);
        let parallel = range.len() > 2 * PIECE;
        parallel::for_each_chunk(&mut memory, PIECE, parallel, |piece, sum| {
            let mut start = range.start + piece * PIECE;
            for sum in sum.chunks_mut(BLOCK) {
                let at = start..start + sum.len();
                start = at.end;
                tree_sum(root, &|node| Some(&of(node)?[at.clone()]), sum);
            }
        });
        Some(memory)
    }
}

/// Elements of a piece: 32 kB of each.
const PIECE: usize = 1 << 13;
/// Elements that are added along the whole tree at once: they stay in the first cache.
const BLOCK: usize = 1 << 10;
crate::cuts::cuts!(PIECE, BLOCK);

/// The sum of a subtree in the tree's order, every number read once; whether there is anything.
fn tree_sum<'g>(
    node: &Range<usize>,
    of: &dyn Fn(&Range<usize>) -> Option<&'g [f32]>,
    sum: &mut [f32],
) -> bool {
    if let Some(grads) = of(node) {
        sum.copy_from_slice(grads);
        return true;
    }
    if node.len() == 1 {
        return false;
    }
    let [left, right] = split(node);
    if !tree_sum(&left, of, sum) {
        return tree_sum(&right, of, sum);
    }
    let add = |sum: &mut [f32], other: &[f32]| {
        for (a, b) in sum.iter_mut().zip(other) {
            *a += b;
        }
    };
    match of(&right) {
        Some(grads) => add(sum, grads),
        None => {
            let mut other = [0.0; BLOCK];
            let other = &mut other[..sum.len()];
            if tree_sum(&right, of, other) {
                add(sum, other);
            }
        }
    }
    true
}
