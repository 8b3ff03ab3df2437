//! What an exact circuit is tried on while gates are looked for: thousands of circuits that differ in a
//! gate.
//!
//! Compiling each of them would take longer than running it. So a circuit is only stripped of what
//! passes an input on and of what nothing reads ([`Stripped`]), and interpreted on rows of cells: a
//! row of each grid is a part of a word, or several words where it is longer than one.
//! The results are those of [`BitGrid`], which a test compares.

mod sixteen;
mod stripped;

pub(super) use sixteen::Sixteen;
pub(super) use stripped::{Stripped, reads_a, reads_b};

use stripped::Various;

use super::grid::NEIGHBOURS;
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
        let one = Shape {
            height,
            width,
            abreast: 1,
            row: width.div_ceil(64),
            groups: 1,
            samples: 1,
            periodic: boundary == BoundaryCondition::Periodic,
        };
        one.of_samples(samples)
    }

    /// The same for another number of grids.
    fn of_samples(&self, samples: usize) -> Self {
        let abreast = (64 / self.width).clamp(1, samples);
        Shape {
            abreast,
            groups: samples.div_ceil(abreast),
            samples,
            ..*self
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
        let group = self.height * self.row;
        for (plane, seen) in plane.chunks_exact(group).zip(seen.chunks_exact_mut(group)) {
            // Rows from above or below, and the one beyond the border.
            let (rest, border) = (group - self.row, |row: &mut [u64], from: &[u64]| match self
                .periodic
            {
                true => row.copy_from_slice(from),
                false => row.fill(0),
            });
            match dy {
                0 => seen.copy_from_slice(plane),
                1 => {
                    seen[..rest].copy_from_slice(&plane[self.row..]);
                    border(&mut seen[rest..], &plane[..self.row]);
                }
                _ => {
                    seen[self.row..].copy_from_slice(&plane[..rest]);
                    border(&mut seen[..self.row], &plane[rest..]);
                }
            }
        }
        match self.row {
            1 => self.shift_words(seen, dx),
            row => seen
                .chunks_exact_mut(row)
                .for_each(|row| self.shift(row, dx)),
        }
    }

    /// What is beyond the border of a row, beside it.
    fn wrap(&self, bits: u64) -> u64 {
        if self.periodic { bits } else { 0 }
    }

    /// Rows of a word each, moved by a cell at most.
    fn shift_words(&self, rows: &mut [u64], dx: isize) {
        let (first, last, top) = (self.column(0), self.column(self.width - 1), self.width - 1);
        let (inner, wrap) = match dx {
            1 => (!last, self.wrap(first)),
            _ => (!first, self.wrap(last)),
        };
        match dx {
            0 => {}
            1 => rows
                .iter_mut()
                .for_each(|row| *row = *row >> 1 & inner | (*row & wrap) << top),
            _ => rows
                .iter_mut()
                .for_each(|row| *row = *row << 1 & inner | (*row & wrap) >> top),
        }
    }

    /// A row of several words, moved by a cell at most.
    fn shift(&self, row: &mut [u64], dx: isize) {
        let (first, last) = (self.column(0), self.column((self.width - 1) % 64));
        let (end, top) = (self.row - 1, (self.width - 1) % 64);
        match dx {
            0 => {}
            1 => {
                let beyond = self.wrap((row[0] & first) << top);
                for i in 0..=end {
                    let next = if i < end { row[i + 1] << 63 } else { 0 };
                    row[i] = row[i] >> 1 | next;
                }
                row[end] = row[end] & !last | beyond;
            }
            _ => {
                let beyond = self.wrap((row[end] & last) >> top);
                for i in (0..=end).rev() {
                    let before = if i > 0 { row[i - 1] >> 63 } else { 0 };
                    row[i] = row[i] << 1 | before;
                }
                row[0] = row[0] & !first | beyond;
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
        let mut wrong = 0;
        self.run(circuit, stripped, None, |differ| {
            wrong += differ.iter().map(|d| d.count_ones()).sum::<u32>() as usize;
        });
        wrong
    }

    /// Runs a circuit and shows the cells that are not as they should be, whenever they are looked at.
    fn run(
        &self,
        circuit: &HardCircuit,
        stripped: &Stripped,
        various: Option<Various>,
        mut show: impl FnMut(&[u64]),
    ) {
        let words = self.shape.words();
        let mut state = self.start.clone();
        let mut next = vec![0; state.len()];
        let mut seen = vec![0; stripped.inputs().len() * words];
        let mut differ = vec![0; words];
        for t in 1..=self.steps {
            for (&input, seen) in stripped.inputs().iter().zip(seen.chunks_exact_mut(words)) {
                let (channel, place) = (input as usize / 9, input as usize % 9);
                let plane = &state[channel * words..(channel + 1) * words];
                self.shape.look(plane, NEIGHBOURS[place], seen);
            }
            stripped.run(circuit, words, &seen, &mut next, various);
            if let Some(fire) = &self.fire {
                let fire = &fire[(t - 1) * words..t * words];
                for (new, old) in next.chunks_exact_mut(words).zip(state.chunks_exact(words)) {
                    for ((new, old), f) in new.iter_mut().zip(old).zip(fire) {
                        *new = old & !f | *new & f;
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
                    for (differ, ((a, b), cell)) in differ.iter_mut().zip(pairs) {
                        *differ = (a ^ b) & cell;
                    }
                    show(&differ);
                }
            }
        }
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
                let values = stripped.on_boards::<8>(circuit, None);
                let given = values[stripped.slot_of(0)];
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
        wrong <= self.after() + self.count() / one_in
    }

    /// Cells of the grids after the first: more are wrong where one of the first is.
    pub fn after(&self) -> usize {
        match self {
            Trial::Boards(_) => 0,
            Trial::Grids(grids) => grids[1..].iter().map(Grids::count).sum(),
        }
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
