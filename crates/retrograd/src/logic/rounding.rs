//! From the soft circuit to an exact one that is right.
//!
//! Every gate becomes the one with its largest logit. Where the soft circuit has learned and that one
//! has not, gates are undecided, and some were decided wrongly. The search goes from gate to gate,
//! first those whose largest logit is ahead by the least, tries all sixteen in its place at once
//! ([`Sixteen`]), and keeps the one that leaves the fewest cells wrong. Where no change is for the better and
//! not much is wrong, gates drift: one after the other, at random, becomes another one that leaves no more cells
//! wrong, until one leads on. What is found is a circuit that is right, or nothing: then training goes on as if it
//! had not been tried.
//!
//! What is tried, in which order, and what is kept depend on the logits, the trial and a key alone.

use super::gates::{GATES, hardest};
use super::hard::Gate;
use super::trial::{Sixteen, Stripped, Trial, reads_a, reads_b};
use super::{HardCircuit, LogicCa, Wires};
use crate::rng::Key;

/// One cell in so many is wrong at most where gates drift.
const NEARLY: usize = 8;

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

/// Gates that are visited in each part, at least.
const VISITS: usize = 100;

/// A gate that reads both of its inputs: what stands where all sixteen are tried.
const XOR: u8 = 6;

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
    let sixteen = Sixteen::new(trial);
    search.climb(&sixteen, &by_lead(params), work);
    if trial.nearly(search.wrong, NEARLY) {
        search.drift(&sixteen, work, key);
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

    /// Other gates in the place of one, and how many are wrong with each; of one that is right on the first grids
    /// that is not known, and 0.
    fn others(&mut self, sixteen: &Sixteen, gate: usize) -> Vec<(usize, u8)> {
        let old = self.ops[gate];
        self.set(gate, XOR);
        let stripped = Stripped::new(&self.circuit);
        let wrong = sixteen.wrong(&self.circuit, &stripped, &self.places[gate]);
        self.set(gate, old);
        self.spent += stripped.len() * sixteen.words() + 4 * self.circuit.gates.len();
        let after = self.trial.after();
        let ops = wrong.into_iter().zip(0..);
        ops.filter(|&(_, op)| op != old)
            .map(|(wrong, op)| (if wrong == 0 { 0 } else { wrong + after }, op))
            .collect()
    }

    /// Takes another gate, where it leaves at most so many wrong.
    fn take(&mut self, gate: usize, (wrong, op): (usize, u8), most: usize) -> bool {
        if wrong == 0 && self.trial.after() > 0 {
            return self.change(gate, op, most, |_, _| true);
        }
        if wrong <= most {
            self.set(gate, op);
            self.stripped = Stripped::new(&self.circuit);
            self.wrong = wrong;
            self.find_live();
        }
        wrong <= most
    }

    /// Takes the best of the other gates that are for the better.
    fn take_better(&mut self, gate: usize, mut others: Vec<(usize, u8)>) -> bool {
        others.retain(|&(wrong, _)| wrong < self.wrong);
        others.sort_unstable();
        let most = self.wrong.saturating_sub(1);
        others.into_iter().any(|other| self.take(gate, other, most))
    }

    /// Takes every change that is for the better, gate by gate, until there is none.
    fn climb(&mut self, sixteen: &Sixteen, order: &[usize], work: usize) {
        let end = self.spent.saturating_add(work);
        let mut visits = 0;
        loop {
            // A change may be of use after another one.
            let before = self.wrong;
            for &gate in order {
                if self.wrong == 0 || visits >= VISITS && self.spent >= end {
                    return;
                }
                if self.live.binary_search(&gate).is_ok() {
                    visits += 1;
                    let others = self.others(sixteen, gate);
                    self.take_better(gate, others);
                }
            }
            if self.wrong == before {
                return;
            }
        }
    }

    /// Changes gates at random where that is not for the worse: a way out where no single change is
    /// for the better.
    fn drift(&mut self, sixteen: &Sixteen, work: usize, key: Key) {
        let end = self.spent.saturating_add(work);
        let mut stream = key.stream();
        let mut visits = 0;
        while self.wrong > 0 && !self.live.is_empty() && (visits < VISITS || self.spent < end) {
            visits += 1;
            let gate = self.live[stream.below(self.live.len())];
            let mut others = self.others(sixteen, gate);
            others.retain(|&(wrong, _)| wrong <= self.wrong);
            if !others.is_empty() {
                let any = others[stream.below(others.len())];
                if !self.take_better(gate, others) {
                    self.take(gate, any, self.wrong);
                }
            }
        }
    }
}

/// The gates, those first whose largest logit is ahead by the least.
fn by_lead(params: &[f32]) -> Vec<usize> {
    let lead = |logits: &[f32]| {
        let best = usize::from(hardest(logits));
        let others = logits.iter().enumerate().filter(|(op, _)| *op != best);
        let behind = others.map(|(_, other)| logits[best] - other);
        behind.min_by(f32::total_cmp).unwrap_or(f32::INFINITY)
    };
    let leads: Vec<f32> = params.chunks_exact(GATES).map(lead).collect();
    let mut order: Vec<usize> = (0..leads.len()).collect();
    order.sort_by(|&x, &y| leads[x].total_cmp(&leads[y]).then(x.cmp(&y)));
    order
}

/// Where a circuit has the trained gates: kernels for every channel in turn, then the update circuit.
pub(super) fn places(model: &LogicCa, circuit: &HardCircuit) -> Vec<Vec<usize>> {
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
