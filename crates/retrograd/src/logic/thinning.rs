//! Fewer gates of a circuit that is right.
//!
//! What was learned holds gates that do something and are of no use. Gates are made to pass an input on,
//! or to be constant, where the circuit still gets nothing wrong in a trial; from the outputs to the
//! inputs first, since a constant there lets all die that lived for it. Where nothing more can go,
//! gates are changed at random where that leaves the circuit right and no larger, and then others can.
//!
//! This is a part of training: the circuit computes something else afterwards wherever the trial does not
//! look. What computes the same is left to [`HardCircuit::simplify`](super::HardCircuit::simplify).

use super::LogicCa;
use super::gates::{GATES, PASS_A};
use super::rounding::Search;
use super::trial::{Stripped, Trial};
use crate::rng::{Key, Stream};

/// Words that go through gates in a search: two seconds or so.
const WORK: usize = 1 << 30;

/// What a gate may become: constants, its inputs, their opposites.
const SIMPLE: [u8; 6] = [0, 15, 3, 5, 12, 10];

/// Changes at random between two searches for gates that can go, for every gate that is left.
const WANDER: usize = 40;

/// The gates' numbers in the order of the parameters, with fewer and fewer gates that do something, which
/// get nothing wrong in the trial; none where the first ones do.
pub(super) fn thin(model: &LogicCa, ops: Vec<u8>, trial: &Trial, key: Key) -> Vec<Vec<u8>> {
    let mut thinner = Thinner {
        size: (usize::MAX, usize::MAX),
        search: Search::new(model, ops, trial),
        stream: key.stream(),
        found: Vec::new(),
    };
    if thinner.search.wrong == 0 {
        thinner.measure();
        thinner.run();
    }
    thinner.found
}

struct Thinner<'a> {
    search: Search<'a>,
    stream: Stream,
    /// Gates that need both inputs, and all that do more than pass one on.
    size: (usize, usize),
    found: Vec<Vec<u8>>,
}

impl Thinner<'_> {
    fn measure(&mut self) {
        self.size = self.search.stripped.size(&self.search.circuit);
    }

    fn is_spent(&self) -> bool {
        self.search.spent > WORK
    }

    /// Keeps what there is now. What nothing depends on passes an input on: it does nothing then.
    fn keep(&mut self) {
        let mut ops = vec![PASS_A as u8; self.search.ops.len()];
        for &gate in &self.search.live {
            ops[gate] = self.search.ops[gate];
        }
        self.found.push(ops);
    }

    /// Until the work is spent.
    fn run(&mut self) {
        let mut order: Vec<usize> = self.search.live.iter().rev().copied().collect();
        let mut kept = self.size;
        while !self.is_spent() && !self.search.live.is_empty() {
            let before = self.size;
            self.cut(&order);
            if self.size == before {
                let tries = WANDER * self.search.stripped.len().max(1);
                for _ in 0..tries {
                    self.wander();
                }
            }
            if self.size < kept {
                kept = self.size;
                self.keep();
            }
            order = self.search.live.clone();
            self.stream.shuffle(&mut order);
        }
    }

    /// Makes every gate simpler that can be.
    fn cut(&mut self, order: &[usize]) {
        for &gate in order {
            for op in SIMPLE {
                let simple = SIMPLE.contains(&self.search.ops[gate]);
                let passes = matches!(self.search.ops[gate], 3 | 5);
                if passes || simple && !matches!(op, 3 | 5) {
                    continue;
                }
                let size = self.size;
                if self.change(gate, op, |new| new < size) {
                    break;
                }
            }
        }
    }

    /// A change at random.
    fn wander(&mut self) {
        let search = &self.search;
        if search.live.is_empty() {
            return;
        }
        let gate = search.live[self.stream.below(search.live.len())];
        let others = 1 + self.stream.below(GATES - 1) as u8;
        let op = (search.ops[gate] + others) % GATES as u8;
        let size = self.size;
        self.change(gate, op, |new| new <= size);
    }

    /// Changes a gate where nothing is wrong then and the size is allowed.
    fn change(&mut self, gate: usize, op: u8, allowed: impl Fn((usize, usize)) -> bool) -> bool {
        if self.is_spent() || self.search.live.binary_search(&gate).is_err() {
            return false;
        }
        let fits = |stripped: &Stripped, circuit: &_| allowed(stripped.size(circuit));
        let changed = self.search.change(gate, op, 0, fits);
        if changed {
            self.measure();
        }
        changed
    }
}
