//! What a trained circuit can do beyond what it was trained on: larger grids, damage, noise.

use serde_json::{Map, Value, json};

#[cfg(feature = "gpu")]
use super::hard::GpuGrid;
use super::hard::Program;
use super::patterns::{self, Goal, LogicData, StartState};
use super::rule::Rule;
use super::trial::Grids;
use super::{BitGrid, BoundaryCondition, HardCircuit, LogicSpec, NGrid};
use crate::Result;
#[cfg(feature = "gpu")]
use crate::gpu::{Choice, Gpu};
use crate::rng::{Key, Stream};

/// A hard automaton with its random numbers: which cells fire, what a start looks like.
pub struct Player {
    /// The grid as it is.
    pub grid: BitGrid,
    program: Program,
    fire_rate: f64,
    stream: Stream,
    fire: Vec<bool>,
    /// Where it is played, if not here; the grid is then brought back when it is asked for.
    #[cfg(feature = "gpu")]
    on_gpu: Option<GpuGrid>,
}

impl Player {
    /// A grid of a size, at its start.
    pub fn new(
        circuit: &HardCircuit,
        start: StartState,
        fire_rate: f64,
        [height, width]: [usize; 2],
        key: Key,
    ) -> Result<Self> {
        let mut grid = BitGrid::new([1, height, width], circuit.channels, circuit.boundary)?;
        let mut stream = key.stream();
        match start {
            StartState::Random => grid.randomise(&mut stream),
            StartState::Zeros | StartState::Bitmap => {}
            StartState::Centre => {
                for c in 0..circuit.channels {
                    grid.set(0, height / 2, width / 2, c, true);
                }
            }
        }
        Ok(Player {
            grid,
            program: Program::compact(circuit),
            fire_rate,
            stream,
            fire: Vec::new(),
            #[cfg(feature = "gpu")]
            on_gpu: None,
        })
    }

    /// A grid of a size at an experiment's start; from random bits for rules of life.
    pub fn of_data(
        circuit: &HardCircuit,
        data: &LogicData,
        fire_rate: f64,
        size: [usize; 2],
        key: Key,
    ) -> Result<Self> {
        let start = match (data.target, data.start) {
            (_, StartState::Bitmap) => StartState::Bitmap,
            (Goal::Life, _) => StartState::Random,
            (_, start) => start,
        };
        let mut player = Player::new(circuit, start, fire_rate, size, key)?;
        if start == StartState::Bitmap {
            for [y, x, channel] in data.start_bits(size) {
                player.grid.set(0, y, x, channel, true);
            }
        }
        Ok(player)
    }

    /// Plays it on a GPU from now on.
    pub fn play_on(&mut self, adapter: &str, circuit: &HardCircuit) -> Result<()> {
        #[cfg(feature = "gpu")]
        {
            let gpu = Gpu::open(&Choice::parse(adapter))?;
            let masked = self.fire_rate < 1.0;
            self.on_gpu = Some(GpuGrid::new(&gpu, circuit, &self.grid, masked)?);
            Ok(())
        }
        #[cfg(not(feature = "gpu"))]
        {
            let _ = (adapter, circuit);
            Err(crate::train::no_gpu())
        }
    }

    /// Brings the grid back from where it is played.
    pub fn fetch(&mut self) -> Result<()> {
        #[cfg(feature = "gpu")]
        if let Some(on_gpu) = &self.on_gpu {
            on_gpu.read(&mut self.grid)?;
        }
        Ok(())
    }

    /// Erases a rectangle.
    pub fn erase(&mut self, place: [usize; 4]) -> Result<()> {
        self.fetch()?;
        self.grid.erase(0, place);
        #[cfg(feature = "gpu")]
        if let Some(on_gpu) = &mut self.on_gpu {
            on_gpu.load(&self.grid)?;
        }
        Ok(())
    }

    /// One step, wherever it is played; on a device it is not waited for.
    pub fn advance(&mut self) -> Result<()> {
        #[cfg(feature = "gpu")]
        if self.on_gpu.is_some() {
            let fire = match self.fire_rate < 1.0 {
                true => {
                    self.draw_fire();
                    Some(&self.fire[..])
                }
                false => None,
            };
            let on_gpu = self.on_gpu.as_mut().expect("just seen");
            return on_gpu.step(fire);
        }
        self.step();
        Ok(())
    }

    /// The cells that fire in the next step.
    fn draw_fire(&mut self) {
        let cells = self.grid.height() * self.grid.width();
        self.fire.clear();
        for _ in 0..cells {
            self.fire.push(self.stream.uniform() < self.fire_rate);
        }
    }

    /// One step here.
    pub fn step(&mut self) {
        if self.fire_rate >= 1.0 {
            self.grid.step(&self.program, None);
            return;
        }
        self.draw_fire();
        self.grid.step(&self.program, Some(&self.fire));
    }

    /// Several steps.
    pub fn steps(&mut self, count: usize) {
        for _ in 0..count {
            self.step();
        }
    }

    /// Cells whose first channel is not as it should be.
    pub fn wrong(&self, goal: impl Fn(usize, usize) -> bool) -> usize {
        let (height, width) = (self.grid.height(), self.grid.width());
        let cells = (0..height).flat_map(|y| (0..width).map(move |x| (y, x)));
        cells
            .filter(|&(y, x)| self.grid.get(0, y, x, 0) != goal(y, x))
            .count()
    }
}

/// A checkerboard on a larger grid than it was trained on: cells that are wrong when it has grown, when
/// the central 20×20 were kept erased for 40 steps, and as many steps after that as it grew for.
pub(super) struct Grown {
    pub size: usize,
    pub steps: usize,
    pub wrong: usize,
    pub damaged: usize,
    pub healed: usize,
}

/// Steps for which the middle of a grid is kept erased.
const DAMAGED: usize = 40;

impl Grown {
    /// Rows and columns, and steps to grow and to heal: a cell that fires now and then needs more steps
    /// for the same way.
    fn size(spec: &LogicSpec) -> [usize; 2] {
        match spec.fire_rate < 1.0 {
            true => [56, 200],
            false => [64, 80],
        }
    }

    /// The same in less time: what is right by then on some boards is right at the end on others.
    pub fn size_in_haste(spec: &LogicSpec) -> [usize; 2] {
        let [size, steps] = Self::size(spec);
        [size, steps - steps / 10]
    }

    fn wound(size: usize) -> [usize; 4] {
        let corner = size / 2 - 10;
        [corner, corner, 20, 20]
    }

    /// The same as a trial.
    pub fn trial(spec: &LogicSpec, data: &LogicData, key: Key) -> Result<Grids> {
        let [size, steps] = Self::size_in_haste(spec);
        let mut start = BitGrid::new([1, size, size], spec.channels, spec.boundary)?;
        let mut stream = key.stream();
        match data.start {
            StartState::Random => start.randomise(&mut stream),
            _ => {
                for [y, x, channel] in data.start_bits([size, size]) {
                    start.set(0, y, x, channel, true);
                }
            }
        }
        let all = 2 * steps + DAMAGED;
        let fire: Option<Vec<bool>> = (spec.fire_rate < 1.0).then(|| {
            let draws = 0..all * size * size;
            draws.map(|_| stream.uniform() < spec.fire_rate).collect()
        });
        let grids = Grids::new(&start, all, fire.as_deref());
        let grids = grids.erase([steps + 1, steps + DAMAGED], Self::wound(size));
        Ok(grids.want(0, |_, y, x| patterns::checkerboard(y, x)))
    }

    pub fn new(
        spec: &LogicSpec,
        data: &LogicData,
        circuit: &HardCircuit,
        key: Key,
    ) -> Result<Self> {
        Self::on(Self::size(spec), spec, data, circuit, key)
    }

    /// On a grid of a size, with so many steps to grow and to heal.
    pub fn on(
        [size, steps]: [usize; 2],
        spec: &LogicSpec,
        data: &LogicData,
        circuit: &HardCircuit,
        key: Key,
    ) -> Result<Self> {
        let goal = patterns::checkerboard;
        let mut grid = Player::of_data(circuit, data, spec.fire_rate, [size, size], key.index(0))?;
        grid.steps(steps);
        let wrong = grid.wrong(goal);
        for _ in 0..DAMAGED {
            grid.step();
            grid.grid.erase(0, Self::wound(size));
        }
        let damaged = grid.wrong(goal);
        grid.steps(steps);
        Ok(Grown {
            size,
            steps,
            wrong,
            damaged,
            healed: grid.wrong(goal),
        })
    }
}

/// The figures of an experiment's kind, for `summary.json`.
pub fn evaluations(
    spec: &LogicSpec,
    data: &LogicData,
    circuit: &HardCircuit,
    seed: u64,
) -> Result<Map<String, Value>> {
    let mut figures = Map::new();
    let key = Key::new(seed).purpose("evaluations");
    match data.target {
        Goal::Life => {
            figures.insert(
                "boards_right".into(),
                json!(boards_right(data.rule(), circuit)),
            );
            let wrong = life_on_a_torus(data.rule(), circuit, [128, 300], key)?;
            figures.insert("life_wrong_cells_128x128x300".into(), json!(wrong));
        }
        Goal::Checkerboard => {
            let rate = spec.fire_rate;
            let player = |size: usize, rate: f64, index: u64| {
                Player::of_data(circuit, data, rate, [size, size], key.index(index))
            };
            let goal = patterns::checkerboard;
            let grown = Grown::new(spec, data, circuit, key)?;
            let name = format!("cells_wrong_at_{}", grown.size);
            figures.insert(name, json!(grown.wrong));
            if grown.size != 64 {
                let mut large = player(64, rate, 4)?;
                // As many steps for the same way.
                large.steps((grown.steps * 64).div_ceil(grown.size));
                figures.insert("cells_wrong_at_64".into(), json!(large.wrong(goal)));
            }
            figures.insert("cells_wrong_damaged".into(), json!(grown.damaged));
            figures.insert("cells_wrong_healed".into(), json!(grown.healed));
            // The published test fires with 0.6, whatever the training.
            let mut noisy = player(64, 0.6, 1)?;
            let mut places = key.index(2).stream();
            let mut error = 0;
            for t in 0..4000 {
                noisy.step();
                let (x, y) = (places.below(55), places.below(55));
                noisy.grid.erase(0, [x, y, 10, 10]);
                if t >= 2000 {
                    error += noisy.wrong(goal);
                }
            }
            figures.insert("robustness_mean_error".into(), json!(error as f64 / 2000.0));
        }
        Goal::Bitmap => {
            // A torus twice as large shows the same picture around the middle, and nothing else.
            let [height, width] = data.grid;
            if data.start == StartState::Centre && spec.boundary == BoundaryCondition::Periodic {
                let size = [2 * height, 2 * width];
                let rate = spec.fire_rate;
                let mut grid = Player::new(circuit, data.start, rate, size, key.index(3))?;
                grid.steps(spec.steps);
                let picture = data.goal(spec.channels, spec.boundary, &[]);
                let read = data.read_channels();
                let wrong = grid.wrong(|y, x| {
                    let inside = |i: usize, n: usize| (n / 2..n / 2 + n).contains(&i);
                    inside(y, height)
                        && inside(x, width)
                        && picture[((y - height / 2) * width + x - width / 2) * read] > 0.5
                });
                let name = format!("cells_wrong_at_{}x{}", 2 * height, 2 * width);
                figures.insert(name, json!(wrong));
            }
        }
    }
    Ok(figures)
}

/// Of all 512 neighbourhoods, those whose middle becomes what Life says.
pub fn life_boards_right(circuit: &HardCircuit) -> usize {
    boards_right(Rule::LIFE, circuit)
}

/// Of all 512 neighbourhoods, those whose middle becomes what a rule says.
pub fn boards_right(rule: Rule, circuit: &HardCircuit) -> usize {
    let right = |board: &usize| {
        let around: Vec<bool> = (0..9).map(|i| board >> i & 1 == 1).collect();
        let neighbours = around.iter().filter(|&&n| n).count() - usize::from(around[4]);
        circuit.cell(&around)[0] == rule.lives(around[4], neighbours)
    };
    (0..512).filter(right).count()
}

/// Cells that differ from the true rule, added up over the steps, from a random start on a torus.
fn life_on_a_torus(
    rule: Rule,
    circuit: &HardCircuit,
    [size, steps]: [usize; 2],
    key: Key,
) -> Result<usize> {
    let mut player = Player::new(circuit, StartState::Random, 1.0, [size, size], key)?;
    let torus = BoundaryCondition::Periodic;
    let mut exact = NGrid::from_values(size, size, 1, torus, player.grid.bits(0))?;
    let mut wrong = 0;
    for _ in 0..steps {
        player.step();
        exact = patterns::step_by(rule, &exact);
        wrong += player.wrong(|y, x| exact.cell(y, x)[0]);
    }
    Ok(wrong)
}
