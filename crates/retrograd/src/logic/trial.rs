//! What an exact circuit is tried on while gates are looked for: thousands of circuits that differ in a
//! gate.
//!
//! Compiling each of them would take longer than running it. So a circuit is only stripped of what
//! passes an input on and of what nothing reads ([`Stripped`]), and interpreted on rows of cells: a
//! row of each grid is a part of a word, or several words where it is longer than one.
//! The results are those of [`BitGrid`], which a test compares.

use super::grid::NEIGHBOURS;
use super::hard::Gate;
use super::patterns::StartState;
use super::rule::Rule;
use super::{BitGrid, BoundaryCondition, HardCircuit, LogicData, LogicSpec};
use crate::Result;
use crate::rng::Key;

/// What a circuit is tried on.
pub(super) enum Trial {
    /// All boards of a rule at once, and what becomes of the cell in the middle, which sees its whole
    /// board: a bit a board.
    Boards(Table),
    /// Starts, and what their cells should become; one after the other, until something is wrong.
    Grids(Vec<Grids>),
}

/// A bit for each of the 512 boards of nine cells.
pub(super) type Table = [u64; 8];

/// Random starts of a trial.
const STARTS: usize = 8;

/// Grids before the first step, and what they should be later.
pub(super) struct Grids {
    shape: Shape,
    /// (channel, word).
    start: Vec<u64>,
    steps: usize,
    /// Which cells fire, (step, word).
    fire: Option<Vec<u64>>,
    /// Cells that are erased after each of some steps: first and last step, and what is left.
    erased: Option<([usize; 2], Vec<u64>)>,
    /// After which steps the cells are looked at.
    looked_at: Vec<usize>,
    /// The bits that are cells.
    cells: Vec<u64>,
    /// The channels that count, with their bits.
    wanted: Vec<(usize, Vec<u64>)>,
}

/// How cells lie in words.
#[derive(Clone, Copy)]
struct Shape {
    height: usize,
    width: usize,
    /// Grids side by side in a word.
    abreast: usize,
    /// Words of a row.
    row: usize,
    /// Groups of grids side by side.
    groups: usize,
    samples: usize,
    periodic: bool,
}

impl Shape {
    fn new([samples, height, width]: [usize; 3], boundary: BoundaryCondition) -> Self {
        let abreast = (64 / width).clamp(1, samples);
        Shape {
            height,
            width,
            abreast,
            row: width.div_ceil(64),
            groups: samples.div_ceil(abreast),
            samples,
            periodic: boundary == BoundaryCondition::Periodic,
        }
    }

    fn words(&self) -> usize {
        self.groups * self.height * self.row
    }

    /// The word and bit of a cell.
    fn place(&self, sample: usize, y: usize, x: usize) -> (usize, usize) {
        let (group, beside) = (sample / self.abreast, sample % self.abreast);
        let row = (group * self.height + y) * self.row;
        (row + x / 64, beside * self.width + x % 64)
    }

    /// A plane with every cell's bit.
    fn filled(&self, bit: impl Fn(usize, usize, usize) -> bool) -> Vec<u64> {
        let mut plane = vec![0; self.words()];
        for sample in 0..self.samples {
            for y in 0..self.height {
                for x in 0..self.width {
                    let (word, place) = self.place(sample, y, x);
                    plane[word] |= u64::from(bit(sample, y, x)) << place;
                }
            }
        }
        plane
    }

    /// A column's bit in each of the grids side by side.
    fn column(&self, x: usize) -> u64 {
        (0..self.abreast).fold(0, |bits, k| bits | 1 << (k * self.width + x))
    }

    /// What every cell sees in a direction, from a channel's plane.
    fn look(&self, plane: &[u64], (dy, dx): (isize, isize), seen: &mut [u64]) {
        for group in 0..self.groups {
            for y in 0..self.height {
                let place = |y: usize| (group * self.height + y) * self.row;
                let from = match y.checked_add_signed(dy).filter(|&y| y < self.height) {
                    Some(y) => Some(y),
                    None if self.periodic => Some((y + self.height).wrapping_add_signed(dy)),
                    None => None,
                };
                let to = &mut seen[place(y)..place(y) + self.row];
                match from {
                    None => to.fill(0),
                    Some(from) => {
                        let from = place(from % self.height);
                        self.shift(&plane[from..from + self.row], dx, to);
                    }
                }
            }
        }
    }

    /// A row, moved by a cell at most.
    fn shift(&self, row: &[u64], dx: isize, to: &mut [u64]) {
        let (first, last) = (self.column(0), self.column((self.width - 1) % 64));
        // What is beyond the border, beside it.
        let (end, top) = (self.row - 1, (self.width - 1) % 64);
        let wrap = |bits: u64| if self.periodic { bits } else { 0 };
        match dx {
            0 => to.copy_from_slice(row),
            1 => {
                for (i, to) in to.iter_mut().enumerate() {
                    let next = if i < end { row[i + 1] << 63 } else { 0 };
                    *to = row[i] >> 1 | next;
                }
                to[end] = to[end] & !last | wrap((row[0] & first) << top);
            }
            _ => {
                for (i, to) in to.iter_mut().enumerate() {
                    let before = if i > 0 { row[i - 1] >> 63 } else { 0 };
                    *to = row[i] << 1 | before;
                }
                to[0] = to[0] & !first | wrap((row[end] & last) >> top);
            }
        }
    }
}

impl Grids {
    /// From a start; (step, y, x) fire, where not all do. Nothing counts yet.
    pub fn new(start: &BitGrid, steps: usize, fire: Option<&[bool]>) -> Self {
        let size @ [_, height, width] = start.size();
        let shape = Shape::new(size, start.boundary());
        let words = shape.words();
        let mut grids = Grids {
            shape,
            start: Vec::with_capacity(start.channels() * words),
            steps,
            fire: None,
            erased: None,
            looked_at: vec![steps],
            cells: shape.filled(|_, _, _| true),
            wanted: Vec::new(),
        };
        for c in 0..start.channels() {
            let plane = shape.filled(|s, y, x| start.get(s, y, x, c));
            grids.start.extend(plane);
        }
        grids.fire = fire.map(|fire| {
            let steps = fire.chunks_exact(height * width).take(steps);
            let planes = steps.map(|cells| shape.filled(|_, y, x| cells[y * width + x]));
            planes.flatten().collect()
        });
        grids
    }

    /// Asks for a channel's bits.
    pub fn want(mut self, channel: usize, bit: impl Fn(usize, usize, usize) -> bool) -> Self {
        self.wanted.push((channel, self.shape.filled(bit)));
        self
    }

    /// Erases a square (x, y, width, height) after each of some steps, and looks at the cells before
    /// the first of them, too.
    pub fn erase(mut self, [first, last]: [usize; 2], place: [usize; 4]) -> Self {
        let [x0, y0, width, height] = place;
        let left = self
            .shape
            .filled(|_, y, x| !((y0..y0 + height).contains(&y) && (x0..x0 + width).contains(&x)));
        self.erased = Some(([first, last], left));
        self.looked_at.insert(0, first - 1);
        self
    }

    /// The cells that count.
    pub fn count(&self) -> usize {
        let Shape {
            samples,
            height,
            width,
            ..
        } = self.shape;
        samples * height * width * self.wanted.len()
    }

    /// Cells that are not as they should be.
    pub fn wrong(&self, circuit: &HardCircuit, stripped: &Stripped) -> usize {
        let words = self.shape.words();
        let mut state = self.start.clone();
        let mut next = vec![0; state.len()];
        let mut values = vec![0; (stripped.inputs.len() + stripped.gates.len()) * words];
        let mut wrong = 0;
        for t in 1..=self.steps {
            for (&input, value) in stripped.inputs.iter().zip(values.chunks_exact_mut(words)) {
                let (channel, place) = (input as usize / 9, input as usize % 9);
                let plane = &state[channel * words..(channel + 1) * words];
                self.shape.look(plane, NEIGHBOURS[place], value);
            }
            stripped.run(circuit, words, &mut values);
            next.copy_from_slice(&state);
            for &(channel, slot) in &stripped.outputs {
                let value = &values[slot as usize * words..][..words];
                let plane = channel * words..(channel + 1) * words;
                match &self.fire {
                    None => next[plane].copy_from_slice(value),
                    Some(fire) => {
                        let fire = &fire[(t - 1) * words..t * words];
                        for ((new, v), f) in next[plane].iter_mut().zip(value).zip(fire) {
                            *new = *new & !f | v & f;
                        }
                    }
                }
            }
            if let Some(([first, last], left)) = &self.erased
                && (first..=last).contains(&&t)
            {
                for plane in next.chunks_exact_mut(words) {
                    plane.iter_mut().zip(left).for_each(|(cell, l)| *cell &= l);
                }
            }
            std::mem::swap(&mut state, &mut next);
            if self.looked_at.contains(&t) {
                for (channel, bits) in &self.wanted {
                    let plane = &state[channel * words..(channel + 1) * words];
                    let pairs = plane.iter().zip(bits).zip(&self.cells);
                    let differ = pairs.map(|((a, b), cell)| ((a ^ b) & cell).count_ones());
                    wrong += differ.sum::<u32>() as usize;
                }
            }
        }
        wrong
    }
}

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

    /// The one start of a pattern, or several random ones. Cells that fire now and then are given seven eighths of
    /// their steps: what is right by then on a few boards is right at the end on others.
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
        let mut stream = key.index(1).stream();
        let steps = match spec.fire_rate < 1.0 && data.start == StartState::Random {
            true => spec.steps - spec.steps / 8,
            false => spec.steps,
        };
        let draws = steps * height * width;
        let fire: Option<Vec<bool>> = (spec.fire_rate < 1.0).then(|| {
            let fires = (0..draws).map(|_| stream.uniform() < spec.fire_rate);
            fires.collect()
        });
        let goal = data.goal(spec.channels, spec.boundary, &[]);
        let read = data.read_channels();
        let mut grids = Grids::new(&start, steps, fire.as_deref());
        for c in 0..read {
            grids = grids.want(c, |_, y, x| goal[(y * width + x) * read + c] > 0.5);
        }
        Ok(Trial::Grids(vec![grids]))
    }

    /// Tries the same on more grids, once a circuit gets nothing wrong on those before.
    pub fn and(&mut self, more: Grids) {
        if let Trial::Grids(grids) = self {
            grids.push(more);
        }
    }

    /// Cells, or boards, that count: of the first grids, where there are more.
    pub fn count(&self) -> usize {
        match self {
            Trial::Boards(_) => 512,
            Trial::Grids(grids) => grids[0].count(),
        }
    }

    /// Those that are not as they should be. A circuit is tried on grids one after the other, until something is
    /// wrong: all cells of the grids after them count as wrong, so that fewer are wrong the further it comes.
    pub fn wrong(&self, circuit: &HardCircuit, stripped: &Stripped) -> usize {
        match self {
            Trial::Boards(wanted) => {
                let given = first_output(circuit, stripped);
                let differ = given.iter().zip(wanted).map(|(g, w)| (g ^ w).count_ones());
                differ.sum::<u32>() as usize
            }
            Trial::Grids(grids) => {
                let mut after: usize = grids.iter().map(Grids::count).sum();
                for grids in grids {
                    after -= grids.count();
                    let wrong = grids.wrong(circuit, stripped);
                    if wrong > 0 {
                        return wrong + after;
                    }
                }
                0
            }
        }
    }

    /// The same of a circuit that is tried once.
    pub fn wrong_of(&self, circuit: &HardCircuit) -> usize {
        self.wrong(circuit, &Stripped::new(circuit))
    }

    /// Whether at most one cell in so many is wrong: of the first grids, where there are more.
    pub fn nearly(&self, wrong: usize, one_in: usize) -> bool {
        let after = match self {
            Trial::Boards(_) => 0,
            Trial::Grids(grids) => grids[1..].iter().map(Grids::count).sum(),
        };
        wrong <= after + self.count() / one_in
    }

    /// Words that went through a gate in a trial that left so many wrong: on the grids up to the first that has
    /// some.
    pub fn words(&self, wrong: usize) -> usize {
        let Trial::Grids(grids) = self else { return 8 };
        let mut after: usize = grids.iter().map(Grids::count).sum();
        let mut words = 0;
        for grids in grids {
            after -= grids.count();
            words += grids.shape.words() * grids.steps;
            if wrong > after {
                break;
            }
        }
        words
    }
}

/// The first channel's new value on every board; other channels are 0.
fn first_output(circuit: &HardCircuit, stripped: &Stripped) -> Table {
    let mut values = vec![0; (stripped.inputs.len() + stripped.gates.len()) * 8];
    for (&input, value) in stripped.inputs.iter().zip(values.chunks_exact_mut(8)) {
        for board in (0..512_usize).filter(|board| input < 9 && board >> input & 1 == 1) {
            value[board / 64] |= 1 << (board % 64);
        }
    }
    stripped.run(circuit, 8, &mut values);
    let mut given = [0; 8];
    for &(_, slot) in stripped.outputs.iter().filter(|o| o.0 == 0) {
        given.copy_from_slice(&values[slot as usize * 8..][..8]);
    }
    given
}

/// A circuit without gates that pass an input on, and without those that nothing reads. Which gates these
/// are is found once; the others may change afterwards.
pub(super) struct Stripped {
    /// The circuit's inputs that are read.
    inputs: Vec<u32>,
    /// Places in the circuit, and the slots that they read: inputs first, then gates.
    gates: Vec<(u32, [u32; 2])>,
    /// Channels that matter, and the slots of their new values.
    outputs: Vec<(usize, u32)>,
}

impl Stripped {
    /// Of all outputs.
    pub fn new(circuit: &HardCircuit) -> Self {
        let inputs = circuit.inputs();
        let nodes = inputs + circuit.gates.len();
        // What a node is: itself, or what it passes on.
        let mut stands: Vec<u32> = (0..inputs as u32).collect();
        stands.reserve(circuit.gates.len());
        for &Gate { op, a, b } in &circuit.gates {
            stands.push(match op {
                3 => stands[a as usize],
                5 => stands[b as usize],
                _ => stands.len() as u32,
            });
        }
        let mut used = vec![false; nodes];
        for &output in &circuit.outputs {
            used[stands[output as usize] as usize] = true;
        }
        for (i, &Gate { op, a, b }) in circuit.gates.iter().enumerate().rev() {
            if used[inputs + i] {
                used[stands[a as usize] as usize] |= reads_a(op);
                used[stands[b as usize] as usize] |= reads_b(op);
            }
        }
        let mut slots = vec![0; nodes];
        // Constants read something, too, which is of no account.
        used[0] = true;
        let read: Vec<u32> = (0..inputs as u32).filter(|&i| used[i as usize]).collect();
        for (slot, &input) in read.iter().enumerate() {
            slots[input as usize] = slot as u32;
        }
        let mut gates = Vec::new();
        for (i, &Gate { a, b, .. }) in circuit.gates.iter().enumerate() {
            if used[inputs + i] {
                let slot = |node: u32| slots[stands[node as usize] as usize];
                gates.push((i as u32, [slot(a), slot(b)]));
                slots[inputs + i] = (read.len() + gates.len() - 1) as u32;
            }
        }
        let slot = |&output: &u32| slots[stands[output as usize] as usize];
        Stripped {
            inputs: read,
            gates,
            outputs: circuit.outputs.iter().map(slot).enumerate().collect(),
        }
    }

    /// The places in the circuit of the gates that are left.
    pub fn places(&self) -> impl Iterator<Item = usize> + '_ {
        self.gates.iter().map(|gate| gate.0 as usize)
    }

    /// Gates that are left and need both of their inputs, and all that are left.
    pub fn size(&self, circuit: &HardCircuit) -> (usize, usize) {
        let op = |place: usize| circuit.gates[place].op;
        let both = self.places().filter(|&p| reads_a(op(p)) && reads_b(op(p)));
        (both.count(), self.gates.len())
    }

    /// Gates that are left.
    pub fn len(&self) -> usize {
        self.gates.len()
    }

    /// All gates, as they are in the circuit now. A value has so many words.
    fn run(&self, circuit: &HardCircuit, words: usize, values: &mut [u64]) {
        for (i, &(place, [a, b])) in self.gates.iter().enumerate() {
            let op = circuit.gates[place as usize].op;
            let (before, value) = values.split_at_mut((self.inputs.len() + i) * words);
            let a = &before[a as usize * words..][..words];
            let b = &before[b as usize * words..][..words];
            // y = c₀ ⊕ c₁a ⊕ c₂b ⊕ c₃ab: the table's Reed–Muller form. Bit 3 is the value at (0, 0).
            let mask = |bit: u8| 0_u64.wrapping_sub(u64::from(bit & 1));
            let (none, only_b, only_a, both) = (op >> 3, op >> 2, op >> 1, op);
            let (c0, c1, c2) = (mask(none), mask(none ^ only_a), mask(none ^ only_b));
            let c3 = mask(none ^ only_a ^ only_b ^ both);
            for ((y, a), b) in value[..words].iter_mut().zip(a).zip(b) {
                *y = c0 ^ (c1 & a) ^ (b & (c2 ^ (c3 & a)));
            }
        }
    }
}

/// A gate ignores an input where both halves of its table are the same.
pub(super) fn reads_a(op: u8) -> bool {
    op >> 2 != op & 3
}

pub(super) fn reads_b(op: u8) -> bool {
    op >> 1 & 5 != op & 5
}
