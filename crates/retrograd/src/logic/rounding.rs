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
use super::hard::{Gate, Program};
use super::patterns::StartState;
use super::rule::Rule;
use super::{BitGrid, HardCircuit, LogicCa, LogicData, LogicSpec, Wires};
use crate::Result;
use crate::rng::Key;

/// The lead of a gate's largest logit up to which others are tried: e⁸ to 1.
const UNDECIDED: f32 = 8.0;

/// One cell in so many is wrong at most where others are tried.
const NEARLY: usize = 32;

/// The lead of every gate in a circuit that was found: the paper's of a gate that passes its input.
const DECIDED: f32 = 10.0;

/// What a circuit is tried on.
pub(super) enum Trial {
    /// All boards of a rule at once, and what becomes of the cell in the middle, which sees its whole
    /// board: a bit a board.
    Boards(Table),
    /// Starts, and what their cells should become.
    Grids(Grids),
}

/// A bit for each of the 512 boards of nine cells.
pub(super) type Table = [u64; 8];

/// Grids before the first step and after the last.
pub(super) struct Grids {
    pub start: BitGrid,
    pub steps: usize,
    /// Which cells fire, (step, y, x).
    pub fire: Option<Vec<bool>>,
    /// The cells that count, (sample, y, x, channel), and their bits.
    pub wanted: Vec<([usize; 4], bool)>,
}

/// Random starts of a trial.
const STARTS: usize = 8;

impl Trial {
    /// All boards of a rule.
    pub fn of_rule(rule: Rule) -> Self {
        let mut wanted = [0; 8];
        for board in 0..512_usize {
            let alive = board >> 4 & 1 == 1;
            let neighbours = board.count_ones() as usize - usize::from(alive);
            let lives = rule.lives(alive, neighbours);
            wanted[board / 64] |= u64::from(lives) << (board % 64);
        }
        Trial::Boards(wanted)
    }

    /// The one start of a pattern, or several random ones.
    pub fn of_pattern(spec: &LogicSpec, data: &LogicData, key: Key) -> Result<Self> {
        let samples = match data.start {
            StartState::Random => STARTS,
            _ => 1,
        };
        let [height, width] = data.grid;
        let mut state = vec![0.0; samples * height * width * spec.channels];
        data.fill_start(spec.channels, &mut key.stream(), &mut state);
        let size = [samples, height, width];
        let mut start = BitGrid::new(size, spec.channels, spec.boundary)?;
        start.load(&state);
        let goal = data.goal(spec.channels, spec.boundary, &[]);
        let read = data.read_channels();
        let mut wanted = Vec::new();
        for sample in 0..samples {
            for (i, &bit) in goal.iter().enumerate() {
                let (cell, channel) = (i / read, i % read);
                let place = [sample, cell / width, cell % width, channel];
                wanted.push((place, bit > 0.5));
            }
        }
        let mut stream = key.index(1).stream();
        let mut fires = || stream.uniform() < spec.fire_rate;
        let draws = spec.steps * height * width;
        Ok(Trial::Grids(Grids {
            start,
            steps: spec.steps,
            fire: (spec.fire_rate < 1.0).then(|| (0..draws).map(|_| fires()).collect()),
            wanted,
        }))
    }

    /// Cells, or boards, that count.
    pub fn count(&self) -> usize {
        match self {
            Trial::Boards(_) => 512,
            Trial::Grids(grids) => grids.wanted.len(),
        }
    }

    /// Those that are not as they should be.
    pub fn wrong(&self, circuit: &HardCircuit) -> usize {
        match self {
            Trial::Boards(wanted) => {
                let given = first_output(circuit);
                let differ = given.iter().zip(wanted).map(|(g, w)| (g ^ w).count_ones());
                differ.sum::<u32>() as usize
            }
            Trial::Grids(grids) => grids.wrong(circuit),
        }
    }

    /// Circuits that are tried at most, first with changes for the better alone and then with others:
    /// half a second or so of work. A circuit is compiled for grids, and run gate by gate for boards.
    fn tries(&self, model: &LogicCa) -> usize {
        let (gates, most) = match self {
            Trial::Boards(_) => (40_000_000, 40_000),
            Trial::Grids(_) => (4_000_000, 2000),
        };
        (gates / model.gates_per_cell()).clamp(200, most)
    }
}

impl Grids {
    fn wrong(&self, circuit: &HardCircuit) -> usize {
        let program = Program::new(circuit);
        let mut grid = self.start.clone();
        let cells = grid.height() * grid.width();
        for t in 0..self.steps {
            let fire = self.fire.as_ref().map(|f| &f[t * cells..(t + 1) * cells]);
            grid.step(&program, fire);
        }
        let differs =
            |&&([sample, y, x, c], bit): &&([usize; 4], bool)| grid.get(sample, y, x, c) != bit;
        self.wanted.iter().filter(differs).count()
    }
}

/// The first channel's new value on every board; other channels are 0.
fn first_output(circuit: &HardCircuit) -> Table {
    let mut values: Vec<Table> = vec![[0; 8]; circuit.inputs()];
    for (i, value) in values.iter_mut().take(9).enumerate() {
        for board in (0..512).filter(|board| board >> i & 1 == 1) {
            value[board / 64] |= 1 << (board % 64);
        }
    }
    values.reserve(circuit.gates.len());
    for gate in &circuit.gates {
        let (a, b) = (&values[gate.a as usize], &values[gate.b as usize]);
        // The rows of the gate's table, as masks.
        let row = |n: u8| 0_u64.wrapping_sub(u64::from(gate.op >> n & 1));
        let (both, only_a, only_b, none) = (row(0), row(1), row(2), row(3));
        values.push(std::array::from_fn(|w| {
            let (a, b) = (a[w], b[w]);
            both & a & b | only_a & a & !b | only_b & !a & b | none & !(a | b)
        }));
    }
    values[circuit.outputs[0] as usize]
}

/// What a search came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Rounded {
    /// The gates' numbers, in the order of the parameters.
    pub ops: Vec<u8>,
    /// Cells that they get wrong.
    pub wrong: usize,
}

/// Gates on their way to a circuit that gets nothing wrong.
struct Search<'a> {
    trial: &'a Trial,
    tries: usize,
    ops: Vec<u8>,
    circuit: HardCircuit,
    /// The places in the circuit of every trained gate: kernels are there once for every channel.
    places: Vec<Vec<usize>>,
    wrong: usize,
    /// Which of the trained gates matter.
    live: Vec<usize>,
}

/// Looks for gates near the logits that get nothing wrong.
pub(super) fn round(model: &LogicCa, params: &[f32], trial: &Trial, key: Key) -> Rounded {
    let ops: Vec<u8> = params.chunks_exact(GATES).map(hardest).collect();
    let circuit = HardCircuit::with_ops(model, &ops);
    let mut search = Search {
        trial,
        tries: trial.tries(model),
        places: places(model, &circuit),
        wrong: trial.wrong(&circuit),
        live: Vec::new(),
        circuit,
        ops,
    };
    search.find_live();
    search.climb(&undecided(params, &search.ops));
    if search.wrong <= trial.count() / NEARLY {
        search.drift(key);
    }
    Rounded {
        ops: search.ops,
        wrong: search.wrong,
    }
}

impl Search<'_> {
    fn set(&mut self, gate: usize, op: u8) {
        self.ops[gate] = op;
        for &place in &self.places[gate] {
            self.circuit.gates[place].op = op;
        }
    }

    /// Changes a gate where that leaves at most so many wrong.
    fn change(&mut self, gate: usize, op: u8, most: usize) {
        let old = self.ops[gate];
        self.set(gate, op);
        let wrong = self.trial.wrong(&self.circuit);
        if wrong <= most {
            self.wrong = wrong;
            self.find_live();
        } else {
            self.set(gate, old);
        }
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
                // A gate ignores an input where both halves of its table are the same.
                used[a as usize] |= op >> 2 != op & 3;
                used[b as usize] |= op >> 1 & 5 != op & 5;
            }
        }
        let is_used = |&gate: &usize| self.places[gate].iter().any(|&p| used[inputs + p]);
        self.live = (0..self.ops.len()).filter(is_used).collect();
    }

    /// Takes every change that is for the better, until there is none.
    fn climb(&mut self, changes: &[(usize, u8)]) {
        let mut left = self.tries;
        loop {
            // A change may be of use after another one.
            let before = self.wrong;
            for &(gate, op) in changes {
                if self.wrong == 0 || left == 0 {
                    return;
                }
                if self.ops[gate] != op && self.live.binary_search(&gate).is_ok() {
                    left -= 1;
                    self.change(gate, op, self.wrong - 1);
                }
            }
            if self.wrong == before {
                return;
            }
        }
    }

    /// Changes gates at random where that is not for the worse: a way out where no single change is
    /// for the better.
    fn drift(&mut self, key: Key) {
        let mut stream = key.stream();
        for _ in 0..self.tries {
            if self.wrong == 0 {
                return;
            }
            let gate = self.live[stream.below(self.live.len())];
            let others = 1 + stream.below(GATES - 1) as u8;
            let op = (self.ops[gate] + others) % GATES as u8;
            self.change(gate, op, self.wrong);
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
