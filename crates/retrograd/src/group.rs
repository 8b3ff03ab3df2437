//! Processes that train one model together, and the rule that keeps results the same for any number
//! of them.
//!
//! A batch is cut into shards by the experiment, never by the number of processes. What shards give
//! (gradients, losses, statistics) is added along a fixed binary [`Tree`] over the shards. A process
//! has some shards side by side; it adds what lies in subtrees that are wholly its own and sends their
//! roots. So which numbers are added, and in which order, doesn't depend on who adds them: 1, 2, 3 or 8
//! processes give the same bits, and so does one process that walks the whole tree.
//!
//! A [`Group`] is how processes reach each other: [`Alone`], threads that play processes
//! ([`threads`]), or MPI (the crate `retrograd-mpi`).

mod courier;
mod joint;
mod meeting;
mod pending;
mod played;
mod segments;
mod sums;
mod tree;

#[cfg(test)]
mod tests;

pub use courier::Exchanged;
pub(crate) use courier::{Bucket, Courier, with_courier};
pub(crate) use joint::{Shared, exchange, in_step, sum};
pub use meeting::agree;
pub(crate) use meeting::{Frame, meet};
pub(crate) use pending::{CUTS as PENDING_CUTS, Pending};
pub(crate) use played::size_played;
pub use played::threads;
pub use segments::Segments;
pub(crate) use sums::{CUTS as SUMS_CUTS, Roots, Sum, Sums, add_to};
pub(crate) use tree::cut;
pub use tree::{Leaf, Tree};

/// Processes that run the same program on parts of the same work. Every process makes the same calls
/// in the same order; a call returns when all have made it.
///
/// What fails for good (a process that died, a network that is gone) ends the program: there is
/// nothing to go on with but the last checkpoint.
pub trait Group: Send + Sync {
    /// Which of them this is, from 0 on. Rank 0 writes files and speaks to the user.
    fn rank(&self) -> usize;

    /// How many there are.
    fn size(&self) -> usize;

    /// Everybody's bytes at everybody, in the order of ranks. Lengths may differ.
    fn gather(&self, own: &[u8]) -> Vec<Vec<u8>>;

    /// Numbers from everybody to everybody else: of `send` the first `sent[0]` go to rank 0, the next
    /// `sent[1]` to rank 1, and so on; `received` is filled with what the others have for this one,
    /// `counts[r]` of them from rank r. What `send` has for this rank itself stays there: its own count
    /// is 0.
    fn exchange(&self, send: &[f32], sent: &[usize], received: &mut [f32], counts: &[usize]);

    /// `all` is cut into parts of those lengths, a part for every rank. Everybody has filled its own;
    /// afterwards everybody has all.
    fn share(&self, all: &mut [f32], counts: &[usize]);

    /// Rank 0's bytes at everybody.
    fn broadcast(&self, bytes: &mut Vec<u8>);

    /// Returns when everybody has come here.
    fn barrier(&self);

    /// Whether an exchange goes on while this process computes on so many threads: there is a network that
    /// carries it, or a core that nobody computes on. Where not, there is nothing to gain by sending parts of
    /// a gradient early.
    fn overlaps(&self, threads: usize) -> bool {
        let _ = threads;
        true
    }
}

/// A group of one.
#[derive(Clone, Copy, Debug, Default)]
pub struct Alone;

impl Group for Alone {
    fn rank(&self) -> usize {
        0
    }

    fn size(&self) -> usize {
        1
    }

    fn gather(&self, own: &[u8]) -> Vec<Vec<u8>> {
        vec![own.to_vec()]
    }

    fn exchange(&self, _: &[f32], _: &[usize], _: &mut [f32], _: &[usize]) {}

    fn share(&self, _: &mut [f32], _: &[usize]) {}

    fn broadcast(&self, _: &mut Vec<u8>) {}

    fn barrier(&self) {}
}
