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

impl Sums {
    /// The sum over all processes, at all of them: everybody owns a slice of the numbers, gets the
    /// roots' parts of it, adds them in the order of the tree, and shares what came out. `full` says
    /// which shards have samples. Beside it, the bytes that were sent.
    pub fn over_all(
        &mut self,
        group: &dyn Group,
        tree: Tree,
        mut roots: Roots,
        full: impl Fn(usize) -> bool,
        len: usize,
    ) -> (Vec<f32>, u64) {
        let (rank, size) = (group.rank(), group.size());
        if size == 1 {
            let sum = roots.pop().flatten();
            return (sum.unwrap_or_else(|| vec![0.0; len]), 0);
        }
        let of_rank = |rank| {
            let mut roots = tree.roots(&tree.of_process(rank, size));
            roots.retain(|root| root.clone().any(&full));
            roots
        };
        let everybodys: Vec<_> = (0..size).map(of_rank).collect();
        let slices: Vec<Range<usize>> = (0..size).map(|r| cut(len, r, size)).collect();
        let own = slices[rank].clone();
        // The slices of one root follow one another as they are.
        let send = match &roots[..] {
            [Some(root)] => &root[..],
            _ => {
                self.sent.clear();
                for slice in &slices {
                    for root in roots.iter().flatten() {
                        self.sent.extend_from_slice(&root[slice.clone()]);
                    }
                }
                &self.sent
            }
        };
        let count = everybodys[rank].len();
        let sent: Vec<usize> = slices.iter().map(|s| count * s.len()).collect();
        let counts: Vec<usize> = everybodys.iter().map(|r| r.len() * own.len()).collect();
        self.received.resize(counts.iter().sum(), 0.0);
        group.exchange(send, &sent, &mut self.received, &counts);

        let places: Vec<Range<usize>> = everybodys.into_iter().flatten().collect();
        let received = &mut self.received;
        let mut leaf = |node: &Range<usize>| match places.iter().position(|root| root == node) {
            Some(place) => Leaf::Value(place * own.len()),
            None if node.len() > 1 => Leaf::Inner,
            None => Leaf::Nothing,
        };
        let mut add = |a: usize, b: usize| {
            let (before, after) = received.split_at_mut(b);
            add_to(&mut before[a..a + own.len()], &after[..own.len()]);
            a
        };
        let sum = tree.sum(0..tree.shards(), &mut leaf, &mut add);
        self.free.extend(roots.drain(..).flatten());
        let mut total = self.free.pop().unwrap_or_default();
        total.resize(len, 0.0);
        match sum {
            Some(at) => total[own.clone()].copy_from_slice(&received[at..at + own.len()]),
            None => total[own].fill(0.0),
        }
        let lengths: Vec<usize> = slices.iter().map(Range::len).collect();
        group.share(&mut total, &lengths);
        let others = size - 1;
        let numbers = sent.iter().sum::<usize>() - sent[rank] + others * lengths[rank];
        (total, 4 * numbers as u64)
    }
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
