//! Gradients added over processes.

use std::ops::Range;

use super::{Group, Leaf, Tree, cut};
use crate::parallel;

/// The sums of a process's subtrees; none where all of their shards are empty.
pub(crate) type Roots = Vec<Option<Vec<f32>>>;

/// Memory of sums, reused from step to step.
#[derive(Default)]
pub(crate) struct Sums {
    /// Gradients that nobody needs any more.
    pub free: Vec<Vec<f32>>,
    sent: Vec<f32>,
    received: Vec<f32>,
}

/// Numbers that were added over all processes: a range of some memory.
pub(crate) struct Sum {
    pub memory: Vec<f32>,
    pub at: Range<usize>,
}

impl Sum {
    pub fn values(&self) -> &[f32] {
        &self.memory[self.at.clone()]
    }
}

/// What every rank owns of some ranges, where all numbers are cut into a slice for each: the parts of it, by
/// their place among the ranges one after the other.
fn owned(ranges: &[Range<usize>], all: usize, size: usize) -> Vec<Vec<Range<usize>>> {
    let of_rank = |rank| {
        let mut at = 0;
        let parts = ranges.iter().map(|range| {
            let part = common(range, &cut(all, rank, size));
            let place = at + part.start - range.start..at + part.end - range.start;
            at += range.len();
            place
        });
        parts.filter(|part| !part.is_empty()).collect()
    };
    (0..size).map(of_rank).collect()
}

/// What two ranges have in common; an empty part of the first where that is nothing.
fn common(a: &Range<usize>, b: &Range<usize>) -> Range<usize> {
    let start = a.start.max(b.start).min(a.end);
    start..a.end.min(b.end).max(start)
}

/// What a rank owns of some ranges.
pub(crate) fn owned_by(
    ranges: &[Range<usize>],
    all: usize,
    rank: usize,
    size: usize,
) -> Vec<Range<usize>> {
    let slice = cut(all, rank, size);
    let parts = ranges.iter().map(|range| common(range, &slice));
    parts.filter(|part| !part.is_empty()).collect()
}

impl Sums {
    /// The sum over all processes, at all of them: everybody owns a slice of the numbers, adds it, and
    /// shares what came out. `full` says which shards have samples. Beside it, the bytes that were sent.
    pub fn over_all(
        &mut self,
        group: &dyn Group,
        tree: Tree,
        roots: Roots,
        full: impl Fn(usize) -> bool,
        len: usize,
    ) -> (Vec<f32>, u64) {
        let (rank, size) = (group.rank(), group.size());
        let whole = 0..len;
        let (sum, sent) = self.of_owned(group, tree, roots, full, &[whole], len);
        let own = cut(len, rank, size);
        let mut total = match sum.memory.len() == len && sum.at == own {
            true => sum.memory,
            false => {
                let mut total = self.free.pop().unwrap_or_default();
                total.resize(len, 0.0);
                total[own.clone()].copy_from_slice(sum.values());
                self.free.push(sum.memory);
                total
            }
        };
        let lengths: Vec<usize> = (0..size).map(|r| cut(len, r, size).len()).collect();
        group.share(&mut total, &lengths);
        (total, sent + 4 * (size as u64 - 1) * own.len() as u64)
    }

    /// The sum over all processes of what this one owns of some ranges of all numbers: it gets the roots'
    /// parts of that and adds them in the order of the tree.
    pub fn of_owned(
        &mut self,
        group: &dyn Group,
        tree: Tree,
        mut roots: Roots,
        full: impl Fn(usize) -> bool,
        ranges: &[Range<usize>],
        all: usize,
    ) -> (Sum, u64) {
        let (rank, size) = (group.rank(), group.size());
        let parts = owned(ranges, all, size);
        let of_rank = |rank| {
            let mut roots = tree.roots(&tree.of_process(rank, size));
            roots.retain(|root| root.clone().any(&full));
            roots
        };
        let nodes: Vec<_> = (0..size).map(of_rank).collect();
        let bytes = self.exchange(group, &roots, &parts, &nodes);
        // This process's own numbers are added where they are, several parts of them side by side.
        let place = match &parts[rank][..] {
            [part] => part.clone(),
            several => {
                for root in roots.iter_mut().flatten() {
                    let mut packed = self.free.pop().unwrap_or_default();
                    packed.clear();
                    let parts = several.iter();
                    parts.for_each(|part| packed.extend_from_slice(&root[part.clone()]));
                    self.free.push(std::mem::replace(root, packed));
                }
                0..length(several)
            }
        };
        (self.added(tree, roots, place, rank, &nodes), bytes)
    }

    /// Sends the others what they own of this process's roots, and receives what it owns of theirs. Returns
    /// the bytes that were sent.
    fn exchange(
        &mut self,
        group: &dyn Group,
        roots: &Roots,
        parts: &[Vec<Range<usize>>],
        nodes: &[Vec<Range<usize>>],
    ) -> u64 {
        let (rank, len) = (group.rank(), length(&parts[group.rank()]));
        let mut sent: Vec<usize> = parts
            .iter()
            .map(|p| nodes[rank].len() * length(p))
            .collect();
        let mut counts: Vec<usize> = nodes.iter().map(|nodes| nodes.len() * len).collect();
        counts[rank] = 0;
        self.received.resize(counts.iter().sum(), 0.0);
        // Where parts follow one another in the order of ranks, one root is sent as it is.
        let follow = |at: usize, part: &Range<usize>| (part.start == at).then_some(part.end);
        let end = parts.iter().flatten().try_fold(0, follow);
        if let [Some(root)] = &roots[..]
            && end == Some(root.len())
        {
            group.exchange(root, &sent, &mut self.received, &counts);
            sent[rank] = 0;
        } else {
            sent[rank] = 0;
            self.sent.clear();
            for (_, parts) in parts.iter().enumerate().filter(|&(r, _)| r != rank) {
                for root in roots.iter().flatten() {
                    let parts = parts.iter();
                    parts.for_each(|part| self.sent.extend_from_slice(&root[part.clone()]));
                }
            }
            group.exchange(&self.sent, &sent, &mut self.received, &counts);
        }
        4 * sent.iter().sum::<usize>() as u64
    }

    /// The values of the nodes where processes meet, added in the order of the tree: the others' as they were
    /// received, this one's at a place of its roots.
    fn added(
        &mut self,
        tree: Tree,
        mut roots: Roots,
        place: Range<usize>,
        rank: usize,
        nodes: &[Vec<Range<usize>>],
    ) -> Sum {
        let first = nodes[..rank].iter().map(Vec::len).sum();
        let own = first..first + nodes[rank].len();
        let nodes: Vec<&Range<usize>> = nodes.iter().flatten().collect();
        let mut received = &mut self.received[..];
        let mut mine = roots.iter_mut().flatten();
        let value = |node: usize| match own.contains(&node) {
            true => mine.next().map(|root| &mut root[place.clone()]),
            false => received.split_off_mut(..place.len()),
        };
        let mut values: Vec<Option<&mut [f32]>> = (0..nodes.len()).map(value).collect();
        let mut leaf = |node: &Range<usize>| match nodes.iter().position(|root| *root == node) {
            Some(at) => Leaf::Value(at),
            None if node.len() > 1 => Leaf::Inner,
            None => Leaf::Nothing,
        };
        // a + b and b + a have the same bits: the sum is made here where one of them is.
        let mut add = |a: usize, b: usize| {
            let [to, from] = if own.contains(&b) { [b, a] } else { [a, b] };
            let from = values[from].take().expect("added once");
            add_to(values[to].as_mut().expect("not added yet"), from);
            to
        };
        let sum = tree.sum(0..tree.shards(), &mut leaf, &mut add);
        let received = sum.filter(|at| !own.contains(at));
        let received = received.and_then(|at| Some(values[at].as_ref()?.to_vec()));
        let mut roots: Vec<Vec<f32>> = roots.into_iter().flatten().collect();
        let sum = match (sum, received) {
            (Some(at), None) => Sum {
                memory: roots.swap_remove(at - own.start),
                at: place,
            },
            (_, received) => Sum {
                at: 0..place.len(),
                memory: received.unwrap_or_else(|| vec![0.0; place.len()]),
            },
        };
        self.free.extend(roots);
        sum
    }
}

fn length(parts: &[Range<usize>]) -> usize {
    parts.iter().map(ExactSizeIterator::len).sum()
}

/// Elements of a piece: 32 kB of each.
const PIECE: usize = 1 << 13;
crate::cuts::cuts!(PIECE);

/// a += b.
pub(crate) fn add_to(a: &mut [f32], b: &[f32]) {
    let parallel = a.len() > 2 * PIECE;
    parallel::for_each_chunk(a, PIECE, parallel, |piece, a| {
        let b = &b[piece * PIECE..][..a.len()];
        for (a, b) in a.iter_mut().zip(b) {
            *a += b;
        }
    });
}
