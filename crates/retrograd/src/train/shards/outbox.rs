//! What a process's shards give in one step, on its way to the courier.
//!
//! When all shards have their losses, the process is ready for the step's meeting. Gradients follow:
//! in pieces as soon as a range is complete in all shards of the process, or whole at the end.

use std::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::Asked;
use crate::group::{Bucket, Courier, Pending, Roots, Tree, cut};
use crate::parallel;
use crate::train::step::Watch;

/// Numbers that are sent together, or more: a piece of 256 kB takes longer on its way than the two
/// calls that send it take to begin (some 10 µs each over TCP on one machine, `retrograd bench
/// mpi-meeting`). Sums are elementwise: results don't depend on it, and tests have pieces at all with
/// less.
const BUCKET: usize = if cfg!(test) { 32 } else { 1 << 16 };

/// What a shard says of its batch: the loss, the sum of its weights, and whether targets have any.
#[derive(Clone, Copy, Default)]
pub(super) struct Said {
    pub loss: f64,
    pub weight: f64,
    pub weighted: bool,
}

/// What the shards of this process give in a step.
pub(super) struct Outbox<'s> {
    courier: &'s Courier<'s>,
    tree: Tree,
    own: Range<usize>,
    /// The shards that have samples.
    full: &'s [bool],
    /// Numbers of a gradient.
    len: usize,
    /// Whether ranges are sent as they are complete.
    pub early: bool,
    /// Whether every process gets the sum of its own slice alone.
    sliced: bool,
    /// What the process says at the meeting, beside its shards.
    flags: u8,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    said: Vec<Said>,
    /// Own shards with samples whose loss is not known yet.
    missing: usize,
    met: bool,
    /// Whole gradients.
    pending: Pending,
    /// Ranges in the order in which they are complete, with the gradients of those shards that are so
    /// far, where shards are computed side by side.
    parts: Vec<(Range<usize>, Pending)>,
    /// What is sent next.
    ranges: Vec<Range<usize>>,
    roots: Roots,
    numbers: usize,
    free: Vec<Vec<f32>>,
}

impl<'s> Outbox<'s> {
    pub fn new(
        courier: &'s Courier<'s>,
        tree: Tree,
        own: Range<usize>,
        full: &'s [bool],
        len: usize,
        asked: &Asked,
        free: Vec<Vec<f32>>,
    ) -> Self {
        let size = courier.group().size();
        // A process without samples has no backward pass that would tell it the ranges.
        let has = |rank| full[tree.of_process(rank, size)].contains(&true);
        let state = State {
            said: vec![Said::default(); own.len()],
            missing: full[own.clone()].iter().filter(|&&full| full).count(),
            free,
            ..State::default()
        };
        Outbox {
            courier,
            tree,
            full,
            len,
            early: size > 1 && (0..size).all(has),
            sliced: asked.sliced,
            flags: [
                (asked.stop, STOP),
                (asked.save, SAVE),
                (courier.overlaps, OVERLAPS),
            ]
            .map(|(is, flag)| u8::from(is) * flag)
            .iter()
            .sum(),
            state: Mutex::new(state),
            own,
        }
    }

    /// Own shards with samples.
    pub fn shards(&self) -> Vec<usize> {
        self.own.clone().filter(|&s| self.full[s]).collect()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Memory for a gradient.
    pub fn memory(&self) -> Vec<f32> {
        let mut memory = self.state().free.pop().unwrap_or_default();
        memory.resize(self.len, 0.0);
        let group = self.courier.group();
        if group.size() > 1 && !self.early {
            // They are sent as they are, and others have read them.
            let own = cut(self.len, group.rank(), group.size());
            parallel::take_lines(&mut memory[..own.start]);
            parallel::take_lines(&mut memory[own.end..]);
        }
        memory
    }

    /// Memory that isn't needed any more.
    pub fn spare(&self, memory: Vec<f32>) {
        self.state().free.push(memory);
    }

    /// A shard's loss; the process meets the others when it was the last.
    pub fn loss(&self, shard: usize, said: Said) {
        let mut state = self.state();
        state.said[shard - self.own.start] = said;
        state.missing -= 1;
        if state.missing == 0 {
            self.meet(&mut state);
        }
    }

    fn meet(&self, state: &mut State) {
        let weighted = state.said.iter().any(|said| said.weighted);
        let mut bytes = vec![self.flags | if weighted { WEIGHTED } else { 0 }];
        for one in &state.said {
            bytes.extend_from_slice(&one.loss.to_le_bytes());
            bytes.extend_from_slice(&one.weight.to_le_bytes());
        }
        state.met = true;
        self.courier.meet_and(bytes, all_finite);
    }

    /// The whole gradient of a shard, or of a subtree of them. Shard after shard it is added at once, which takes less memory; side
    /// by side all are, at the end, which takes less time.
    pub fn give(&self, node: Range<usize>, grads: Vec<f32>, add: bool) {
        let mut state = self.state();
        let state = &mut *state;
        state.pending.push(node, grads);
        if add {
            state.pending.fold(self.tree, &mut state.free);
        }
    }

    /// A range is complete in the last of the shards, or subtrees; the others' gradients are here, whole.
    fn complete_last(&self, node: &Range<usize>, range: Range<usize>, grads: &[f32]) {
        let mut state = self.state();
        let roots = self.tree.roots(&self.own).into_iter().map(|root| {
            let last = Some((node, grads));
            let memory = state.free.pop().unwrap_or_default();
            let pending = &state.pending;
            pending.root(self.tree, &root, range.clone(), last, memory)
        });
        let roots = roots.collect();
        self.send(&mut state, range, roots);
    }

    /// A range, the k-th of a backward pass, is complete in one of shards that are computed side by
    /// side.
    fn complete(&self, k: usize, shard: usize, range: Range<usize>, grads: &[f32]) {
        let mut guard = self.state();
        let state = &mut *guard;
        let mut memory = state.free.pop().unwrap_or_default();
        memory.clear();
        memory.extend_from_slice(&grads[range.clone()]);
        if state.parts.len() == k {
            state.parts.push((range.clone(), Pending::default()));
        }
        state.parts[k].1.push(shard..shard + 1, memory);
        let all = self.full[self.own.clone()].iter().filter(|&&full| full);
        if state.parts[k].1.len() < all.count() {
            return;
        }
        let there = std::mem::take(&mut state.parts[k].1);
        let roots = there.into_roots(self.tree, &self.own, range.len(), &mut state.free);
        self.send(state, range, roots);
    }

    /// Puts a range to those that are sent next.
    fn send(&self, state: &mut State, range: Range<usize>, roots: Roots) {
        state.numbers += range.len();
        state.ranges.push(range);
        if state.roots.is_empty() {
            state.roots = roots;
        } else {
            for (to, root) in state.roots.iter_mut().zip(roots) {
                if let (Some(to), Some(root)) = (to, root) {
                    to.extend_from_slice(&root);
                    state.free.push(root);
                }
            }
        }
        if state.numbers >= BUCKET {
            self.post(state);
        }
    }

    fn post(&self, state: &mut State) {
        state.numbers = 0;
        self.courier.sum(Bucket {
            ranges: std::mem::take(&mut state.ranges),
            roots: std::mem::take(&mut state.roots),
            full: self.full.to_vec(),
            slices_of: self.sliced.then_some(self.len),
        });
    }

    /// All shards are done: posts what is left. Gives the memory back.
    pub fn close(self) -> Vec<Vec<f32>> {
        let mut guard = self.state();
        let state = &mut *guard;
        if !state.met {
            self.meet(state);
        }
        let pending = std::mem::take(&mut state.pending);
        if !self.early {
            let roots = pending.into_roots(self.tree, &self.own, self.len, &mut state.free);
            self.send(state, 0..self.len, roots);
        } else {
            pending.clear(&mut state.free);
        }
        if !state.ranges.is_empty() {
            self.post(state);
        }
        std::mem::take(&mut state.free)
    }
}

/// Whether the gradients of a step are to be added: every loss is finite.
fn all_finite(met: &[Vec<u8>]) -> bool {
    let losses = |bytes: &Vec<u8>| said_in(bytes).all(|said| said.loss.is_finite());
    met.iter().all(losses)
}

/// What a process says at a step's meeting: that it was asked to stop, that targets have weights, that the
/// state of the run is to be saved after the step, that its exchanges go on while it computes.
pub(super) const STOP: u8 = 1;
const WEIGHTED: u8 = 2;
pub(super) const SAVE: u8 = 4;
pub(super) const OVERLAPS: u8 = 8;

/// Whether a process has said that.
pub(super) fn says(bytes: &[u8], flag: u8) -> bool {
    bytes.first().is_some_and(|flags| flags & flag != 0)
}

/// What a process has said of its shards.
pub(super) fn said_in(bytes: &[u8]) -> impl Iterator<Item = Said> {
    let weighted = says(bytes, WEIGHTED);
    let numbers = bytes.get(1..).unwrap_or_default().as_chunks::<8>().0;
    let pairs = numbers.as_chunks::<2>().0.iter();
    pairs.map(move |&[loss, weight]| Said {
        loss: f64::from_le_bytes(loss),
        weight: f64::from_le_bytes(weight),
        weighted,
    })
}

/// Tells the outbox of one shard, or of a subtree that is computed at once.
pub(super) struct Watcher<'o, 's> {
    pub outbox: &'o Outbox<'s>,
    pub node: Range<usize>,
    /// What the shard says beside its loss.
    pub said: Said,
    pub tells: Tells,
}

/// What a watcher tells of gradients.
pub(super) enum Tells {
    /// Nothing: it is given whole.
    Nothing,
    /// Ranges of the last shard.
    Last,
    /// Ranges of one of several shards, of which so many were complete.
    Beside(usize),
}

impl Watch for Watcher<'_, '_> {
    fn loss(&mut self, loss: f64) {
        let said = Said { loss, ..self.said };
        self.outbox.loss(self.node.start, said);
    }

    fn complete(&mut self, range: Range<usize>, grads: &[f32]) {
        match &mut self.tells {
            Tells::Nothing => {}
            Tells::Last => self.outbox.complete_last(&self.node, range, grads),
            Tells::Beside(k) => {
                self.outbox.complete(*k, self.node.start, range, grads);
                *k += 1;
            }
        }
    }
}
