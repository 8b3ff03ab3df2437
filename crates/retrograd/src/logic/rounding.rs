//! From the soft circuit to an exact one that is right.
//!
//! Every gate becomes the one with its largest logit. Where the soft circuit has learned and that one
//! has not, gates are undecided, and some were decided wrongly. The search changes one gate at a time,
//! first those whose largest logit is ahead by the least, and keeps what leaves fewer cells wrong. Where
//! no change does and little is wrong, gates drift: random changes that leave no more cells wrong are
//! kept, too, until one leads on. What is found is a circuit that is right, or nothing: then training goes on as if it had not been
//! tried.
//!
//! What is tried, in which order, and what is kept depend on the logits, the trial and a key alone.

use super::gates::{GATES, hardest};
use super::hard::Gate;
use super::trial::{Stripped, Trial, reads_a, reads_b};
use super::{HardCircuit, LogicCa, Wires};
use crate::rng::Key;

/// The lead of a gate's largest logit up to which others are tried: e⁸ to 1.
const UNDECIDED: f32 = 8.0;

/// One cell in so many is wrong at most where others are tried.
const NEARLY: usize = 32;

/// The lead of every gate in a circuit that was found: the paper's of a gate that passes its input.
const DECIDED: f32 = 10.0;

/// What a search came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Rounded {
    /// The gates' numbers, in the order of the parameters.
    pub ops: Vec<u8>,
    /// Cells that they get wrong.
    pub wrong: usize,
}

/// Circuits that are tried in each part, at least and at most.
const TRIES: [usize; 2] = [200, 40_000];

/// Gates on their way to a circuit that gets nothing wrong.
pub(super) struct Search<'a> {
    trial: &'a Trial,
    pub ops: Vec<u8>,
    pub circuit: HardCircuit,
    pub stripped: Stripped,
    /// The places in the circuit of every trained gate: kernels are there once for every channel.
    pub places: Vec<Vec<usize>>,
    pub wrong: usize,
    /// Which of the trained gates matter.
    pub live: Vec<usize>,
    /// Words that went through gates so far.
    pub spent: usize,
}

/// Looks for gates that get nothing wrong, near some and near the logits. In each of its two parts about
/// `work` words go through gates.
pub(super) fn round(
    model: &LogicCa,
    params: &[f32],
    ops: Vec<u8>,
    trial: &Trial,
    work: usize,
    key: Key,
) -> Rounded {
    let mut search = Search::new(model, ops, trial);
    search.climb(&undecided(params, &search.ops), work);
    if trial.nearly(search.wrong, NEARLY) {
        search.drift(work, key);
    }
    Rounded {
        ops: search.ops,
        wrong: search.wrong,
    }
}

impl<'a> Search<'a> {
    /// From gates in the order of the parameters.
    pub fn new(model: &LogicCa, ops: Vec<u8>, trial: &'a Trial) -> Self {
        let circuit = HardCircuit::with_ops(model, &ops);
        let stripped = Stripped::new(&circuit);
        let mut search = Search {
            trial,
            places: places(model, &circuit),
            wrong: trial.wrong(&circuit, &stripped),
            live: Vec::new(),
            spent: 0,
            stripped,
            circuit,
            ops,
        };
        search.find_live();
        search
    }

    pub fn set(&mut self, gate: usize, op: u8) {
        self.ops[gate] = op;
        for &place in &self.places[gate] {
            self.circuit.gates[place].op = op;
        }
    }

    /// Cells that are wrong with another gate. Where that gate is not to stay, it must be set back.
    fn wrong_with(&mut self, gate: usize, op: u8) -> usize {
        let old = self.ops[gate];
        self.set(gate, op);
        // What was stripped is of use as long as nothing is read that was not.
        let passes = matches!(old, 3 | 5);
        let reads_more = reads_a(op) && !reads_a(old) || reads_b(op) && !reads_b(old);
        let again;
        let stripped = match passes || reads_more {
            true => {
                again = Stripped::new(&self.circuit);
                &again
            }
            false => &self.stripped,
        };
        let wrong = self.trial.wrong(&self.circuit, stripped);
        // A circuit is stripped in the time of some words for each of its gates.
        self.spent += stripped.len() * self.trial.words(wrong) + 4 * self.circuit.gates.len();
        wrong
    }

    /// Changes a gate where that leaves at most so many wrong, and is allowed by its size.
    pub fn change(
        &mut self,
        gate: usize,
        op: u8,
        most: usize,
        allowed: impl Fn(&Stripped, &HardCircuit) -> bool,
    ) -> bool {
        let old = self.ops[gate];
        let wrong = self.wrong_with(gate, op);
        if wrong <= most {
            let stripped = Stripped::new(&self.circuit);
            if allowed(&stripped, &self.circuit) {
                self.stripped = stripped;
                self.wrong = wrong;
                self.find_live();
                return true;
            }
        }
        self.set(gate, old);
        false
    }

    /// Which of the trained gates an output depends on.
    fn find_live(&mut self) {
        let circuit = &self.circuit;
        let inputs = circuit.inputs();
        let mut used = vec![false; inputs + circuit.gates.len()];
        for &output in &circuit.outputs {
            used[output as usize] = true;
        }
        for (i, &Gate { op, a, b }) in circuit.gates.iter().enumerate().rev() {
            if used[inputs + i] {
                used[a as usize] |= reads_a(op);
                used[b as usize] |= reads_b(op);
            }
        }
        let is_used = |&gate: &usize| self.places[gate].iter().any(|&p| used[inputs + p]);
        self.live = (0..self.ops.len()).filter(is_used).collect();
    }

    /// Takes every change that is for the better, until there is none.
    fn climb(&mut self, changes: &[(usize, u8)], work: usize) {
        let end = self.spent.saturating_add(work);
        let mut tries = 0;
        loop {
            // A change may be of use after another one.
            let before = self.wrong;
            for &(gate, op) in changes {
                if self.wrong == 0 || tries >= TRIES[0] && self.spent >= end || tries == TRIES[1] {
                    return;
                }
                if self.ops[gate] != op && self.live.binary_search(&gate).is_ok() {
                    tries += 1;
                    self.change(gate, op, self.wrong - 1, |_, _| true);
                }
            }
            if self.wrong == before {
                return;
            }
        }
    }

    /// Changes gates at random where that is not for the worse: a way out where no single change is
    /// for the better.
    fn drift(&mut self, work: usize, key: Key) {
        let end = self.spent.saturating_add(work);
        let mut stream = key.stream();
        for tries in 0..TRIES[1] {
            if self.wrong == 0 || tries >= TRIES[0] && self.spent >= end {
                return;
            }
            let gate = self.live[stream.below(self.live.len())];
            let others = 1 + stream.below(GATES - 1) as u8;
            let op = (self.ops[gate] + others) % GATES as u8;
            self.change(gate, op, self.wrong, |_, _| true);
        }
    }
}

/// Other gates than those that were chosen, in the order of how far behind they are.
fn undecided(params: &[f32], ops: &[u8]) -> Vec<(usize, u8)> {
    let mut changes = Vec::new();
    for (gate, (logits, &op)) in params.chunks_exact(GATES).zip(ops).enumerate() {
        for (other, &logit) in logits.iter().enumerate() {
            let behind = logits[usize::from(op)] - logit;
            if other != usize::from(op) && behind < UNDECIDED {
                changes.push((behind, gate, other as u8));
            }
        }
    }
    changes.sort_by(|x, y| x.0.total_cmp(&y.0).then((x.1, x.2).cmp(&(y.1, y.2))));
    changes.into_iter().map(|(_, g, op)| (g, op)).collect()
}

/// Where a circuit has the trained gates: kernels for every channel in turn, then the update circuit.
fn places(model: &LogicCa, circuit: &HardCircuit) -> Vec<Vec<usize>> {
    let update: usize = model.update_wires().iter().map(Wires::gates).sum();
    let kernels = model.gates() - update;
    let shared = circuit.gates.len() - update;
    let of_kernels = (0..kernels).map(|gate| (gate..shared).step_by(kernels).collect());
    let of_update = (shared..circuit.gates.len()).map(|place| vec![place]);
    of_kernels.chain(of_update).collect()
}

/// Decides every gate.
pub(super) fn decide(params: &mut [f32], ops: &[u8]) {
    for (logits, &op) in params.chunks_exact_mut(GATES).zip(ops) {
        let largest = logits[usize::from(hardest(logits))];
        logits[usize::from(op)] = largest + DECIDED;
    }
}
