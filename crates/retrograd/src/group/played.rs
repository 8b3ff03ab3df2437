//! Threads that play processes.

use std::cell::Cell;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use super::Group;
use crate::parallel;

/// Runs `work` once for every member of a group of threads, each of which computes on its own thread
/// alone; what they return, in the order of ranks.
///
/// # Panics
/// Where a member panics, after all others were released.
pub fn threads<R: Send>(size: usize, work: impl Fn(&dyn Group) -> R + Send + Sync) -> Vec<R> {
    assert!(size > 0, "a group of nobody");
    let table = Table::new(size);
    parallel::beside(size, |rank| {
        let member = Member {
            table: &table,
            rank,
        };
        PLAYED.set(size);
        work(&member)
    })
}

thread_local! {
    static PLAYED: Cell<usize> = const { Cell::new(1) };
}

/// The size of the group that this thread plays a process of, for mutants: nothing that is computed may
/// depend on it.
pub(crate) fn size_played() -> usize {
    PLAYED.get()
}

/// Where members leave what the others take.
struct Table {
    size: usize,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// What members have left in this round; bytes, cut for those that they are for.
    left: Vec<Option<Vec<Vec<u8>>>>,
    /// Members that have taken what they wanted.
    taken: usize,
    /// A member has panicked: nobody waits for it.
    broken: bool,
}

impl Table {
    fn new(size: usize) -> Self {
        let mut state = State::default();
        state.left.resize_with(size, || None);
        Table {
            size,
            state: Mutex::new(state),
            changed: Condvar::new(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'a>(
        &self,
        mut state: MutexGuard<'a, State>,
        until: impl Fn(&State) -> bool,
    ) -> MutexGuard<'a, State> {
        while !until(&state) {
            assert!(!state.broken, "another member of the group has panicked");
            let waited = self.changed.wait(state);
            state = waited.unwrap_or_else(PoisonError::into_inner);
        }
        state
    }
}

struct Member<'a> {
    table: &'a Table,
    rank: usize,
}

impl Drop for Member<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.table.lock().broken = true;
            self.table.changed.notify_all();
        }
    }
}

impl Member<'_> {
    /// Leaves a part for every member (one for all of them where there is one), and takes from
    /// everybody what is for this one.
    fn pass(&self, parts: Vec<Vec<u8>>) -> Vec<Vec<u8>> {
        let table = self.table;
        let mut state = table.lock();
        // The round before may not be over for everybody.
        state = table.wait(state, |s| s.left[self.rank].is_none());
        state.left[self.rank] = Some(parts);
        table.changed.notify_all();
        state = table.wait(state, |s| s.left.iter().all(Option::is_some));
        let for_this = |parts: &Vec<Vec<u8>>| parts[self.rank.min(parts.len() - 1)].clone();
        let left = state.left.iter().flatten().map(for_this).collect();
        state.taken += 1;
        if state.taken == table.size {
            state.taken = 0;
            state.left.fill(None);
            table.changed.notify_all();
        }
        left
    }
}

impl Group for Member<'_> {
    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.table.size
    }

    fn gather(&self, own: &[u8]) -> Vec<Vec<u8>> {
        self.pass(vec![own.to_vec()])
    }

    fn exchange(&self, send: &[f32], sent: &[usize], received: &mut [f32], counts: &[usize]) {
        let mut rest = send;
        let parts = sent.iter().map(|&count| {
            let (part, after) = rest.split_at(count);
            rest = after;
            bytemuck::cast_slice(part).to_vec()
        });
        let all = self.pass(parts.collect());
        let mut rest = received;
        for (rank, part) in all
            .iter()
            .enumerate()
            .filter(|&(rank, _)| rank != self.rank)
        {
            let (to, after) = rest.split_at_mut(counts[rank]);
            bytemuck::cast_slice_mut(to).copy_from_slice(part);
            rest = after;
        }
    }

    fn share(&self, all: &mut [f32], counts: &[usize]) {
        let start: usize = counts[..self.rank].iter().sum();
        let own = &all[start..start + counts[self.rank]];
        let parts = self.gather(bytemuck::cast_slice(own));
        let mut rest = all;
        for (part, &count) in parts.iter().zip(counts) {
            let (to, after) = rest.split_at_mut(count);
            bytemuck::cast_slice_mut(to).copy_from_slice(part);
            rest = after;
        }
    }

    fn broadcast(&self, bytes: &mut Vec<u8>) {
        let own = if self.rank == 0 { &bytes[..] } else { &[] };
        *bytes = self.gather(own).swap_remove(0);
    }

    fn barrier(&self) {
        self.gather(&[]);
    }
}
