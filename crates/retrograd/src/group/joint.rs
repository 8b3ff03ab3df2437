//! Layers that look at the whole batch, such as batch norm, while every shard is computed alone.
//!
//! The shards of a process are computed side by side, each on a thread of its own. A layer that needs
//! the others says what it has of its own shard ([`exchange`]) and waits; when all have said theirs,
//! the processes meet, and every shard goes on with everybody's values, by shard.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

use super::Tree;
use crate::parallel;

/// Everybody's values, by shard; none where a shard is empty.
pub(crate) type Shared = Arc<Vec<Option<Vec<f64>>>>;

/// Where a shard's thread says and hears.
struct Seat {
    place: usize,
    say: Sender<(usize, Option<Vec<f64>>)>,
    hear: Receiver<Shared>,
}

impl Drop for Seat {
    /// The shard is done, or its thread panicked.
    fn drop(&mut self) {
        let _ = self.say.send((self.place, None));
    }
}

thread_local! {
    static SEAT: RefCell<Option<Seat>> = const { RefCell::new(None) };
}

/// Everybody's values in the place of one's own, where the batch is cut into shards that look at each
/// other; none elsewhere.
pub(crate) fn exchange(values: impl FnOnce() -> Vec<f64>) -> Option<Shared> {
    SEAT.with_borrow(|seat| {
        let seat = seat.as_ref()?;
        let own = values();
        // Whoever conducts is there as long as a shard isn't done.
        seat.say.send((seat.place, Some(own))).ok()?;
        seat.hear.recv().ok()
    })
}

/// The sum of everybody's values in the order of the tree.
pub(crate) fn sum(
    shared: &Shared,
    add: impl FnMut(Vec<f64>, Vec<f64>) -> Vec<f64>,
) -> Option<Vec<f64>> {
    if shared.is_empty() {
        return None;
    }
    Tree::new(shared.len()).sum_all(|shard| shared[shard].clone(), add)
}

/// Computes some shards of a step side by side, at most as many at once as there are threads. Whenever
/// all have [said](exchange) something, `exchange` makes everybody's of it; a shard that is done
/// already has said nothing.
pub(crate) fn in_step<R: Send>(
    shards: usize,
    exchange: impl FnMut(Vec<Option<Vec<f64>>>) -> Shared,
    work: impl Fn(usize) -> R + Send + Sync,
) -> Vec<R> {
    let threads = parallel::threads();
    let (say, heard) = channel();
    let (mut go, mut hear) = (Vec::new(), Vec::new());
    for _ in 0..shards {
        let (sender, receiver) = channel::<Shared>();
        go.push(sender);
        hear.push(std::sync::Mutex::new(Some(receiver)));
    }
    let say = std::sync::Mutex::new(say);
    let take = |place: usize| {
        let hear = hear[place].lock().ok()?.take()?;
        let say = say.lock().ok()?.clone();
        Some(Seat { place, say, hear })
    };
    let run = |place: usize| {
        let seat = take(place).expect("every place is taken once");
        // Not before it is this shard's turn.
        let _ = seat.hear.recv();
        SEAT.set(Some(seat));
        let result = work(place);
        SEAT.set(None);
        result
    };
    parallel::conducted(shards, run, || conduct(threads, &go, &heard, exchange))
}

/// Lets as many shards go on at once as there are threads, until all have said something or are done.
fn conduct(
    threads: usize,
    go: &[Sender<Shared>],
    heard: &Receiver<(usize, Option<Vec<f64>>)>,
    mut exchange: impl FnMut(Vec<Option<Vec<f64>>>) -> Shared,
) {
    let mut reply = Shared::default();
    let mut working: Vec<usize> = (0..go.len()).collect();
    while !working.is_empty() {
        let mut said = vec![None; go.len()];
        let mut next = working.iter();
        let mut start = || {
            let started = next.next().map(|&place| go[place].send(reply.clone()));
            started.is_some()
        };
        let mut running = (0..threads.max(1)).filter(|_| start()).count();
        while running > 0 {
            // A copy of the other end is here: it never closes.
            let Ok((place, values)) = heard.recv() else {
                return;
            };
            said[place] = values;
            if !start() {
                running -= 1;
            }
        }
        working.retain(|&place| said[place].is_some());
        if !working.is_empty() {
            reply = exchange(said);
        }
    }
}
