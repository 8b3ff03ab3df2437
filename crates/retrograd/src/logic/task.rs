//! Automata in the training loop: the five experiments and your own patterns.

mod exact;

use std::ops::Range;
use std::path::Path;

use serde_json::json;

use super::evaluate::{Player, evaluations};
use super::gates::{GATES, NAMES, activity, hardest};
use super::hard::{Program, active_gates, gate_counts};
use super::history::History;
use super::memory::demand;
use super::patterns::{Goal, LogicData, StartState};
use super::{BitGrid, HardCircuit, LogicBatch, LogicCa, LogicSpec, channel_target, picture, view};
use crate::budget::{self, Demand};
use crate::data::write_whole;
use crate::rng::Key;
use crate::train::{
    Content, Example, Experiment, Figure, Findings, MeasuredOn, Metrics, Specimen, Summary, Task,
    TrainSpec, Verdict,
};
use crate::{Error, Loss, Model, Pass, Result};

/// The soft loss of a cell up to which an exact circuit is looked for: an error of a quarter.
const WORTH_ROUNDING: f64 = 0.0625;

/// Steps of what a trained automaton is verified on, and the least logit that it may have there.
const SPECIMEN_STEPS: usize = 3;
const LEAST: f32 = -2.0;

/// An automaton's experiment.
pub struct LogicTask {
    model: LogicCa,
    data: LogicData,
    batch: usize,
    seed: u64,
    /// The last batch's start, masks and goal: hard and soft loss are compared on the same.
    start: Vec<f32>,
    fire: Option<Vec<bool>>,
    goal: Vec<f32>,
    /// The step that they are of, where shards of it are asked for one by one.
    drawn: Option<u64>,
    /// The gates as they were chosen at the last evaluation, and their program.
    ops: Vec<u8>,
    program: Option<Program>,
    grid: BitGrid,
    /// Words that go through gates in each part of a search for an exact circuit.
    rounding_work: usize,
    notes: Vec<String>,
}

impl LogicTask {
    /// From an experiment file.
    pub fn new(experiment: &Experiment) -> Result<Self> {
        let spec: LogicSpec = experiment.model_as()?;
        let mut data: LogicData = experiment.data_as()?;
        let mut notes = Vec::new();
        data.resolve(|file| experiment.resolve(file), &mut notes)?;
        spec.check()?;
        data.check(spec.channels)?;
        if let Some(loss) = experiment.train.loss
            && loss != Loss::SumSquares
        {
            return Err(Error::invalid("train.loss", loss.name(), "sum_squares"));
        }
        let batch = experiment.train.batch.unwrap_or(1);
        budget::allow(&demand(&spec, &data, batch, experiment.train.optimizer))?;
        let seed = experiment.train.seed;
        let [height, width] = data.grid;
        let grid = BitGrid::new([batch, height, width], spec.channels, spec.boundary)?;
        let model = LogicCa::new(spec, seed)?;
        let rounding_work = match data.target {
            // All boards at once are soon tried.
            Goal::Life => 1 << 27,
            // A word takes less time than a soft gate: each part takes some of the time of training.
            _ => {
                let cells = batch * height * width * model.spec().steps;
                let every = experiment.train.round_every.unwrap_or(0);
                (model.gates_per_cell() * cells).saturating_mul(every as usize)
            }
        };
        Ok(LogicTask {
            model,
            data,
            batch,
            seed,
            start: Vec::new(),
            fire: None,
            goal: Vec::new(),
            drawn: None,
            ops: Vec::new(),
            program: None,
            grid,
            rounding_work,
            notes,
        })
    }

    /// The `[data]` table with pictures in the place of their files.
    pub(super) fn data_table(&self) -> toml::Table {
        toml::Table::try_from(&self.data).expect("plain values")
    }

    /// What the cells start from and should become.
    pub fn data(&self) -> &LogicData {
        &self.data
    }

    /// Draws start, masks and goal of a step.
    fn draw(&mut self, step: u64) {
        let spec = self.model.spec();
        let [height, width] = self.data.grid;
        let cells = self.batch * height * width;
        let key = Key::new(self.seed);
        self.start.resize(cells * spec.channels, 0.0);
        let mut stream = key.purpose("start").step(step).stream();
        self.data
            .fill_start(spec.channels, &mut stream, &mut self.start);
        if spec.fire_rate < 1.0 {
            let mut stream = key.purpose("fire").step(step).stream();
            let fire = self.fire.get_or_insert_default();
            fire.clear();
            let rate = spec.fire_rate as f32;
            fire.extend((0..spec.steps * height * width).map(|_| stream.uniform_f32() < rate));
        }
        if self.goal.is_empty() || self.data.target == Goal::Life {
            let read = self.data.read_channels();
            self.goal.resize(cells * read, 0.0);
            let grids = self.start.chunks_exact(height * width * spec.channels);
            let goals = self.goal.chunks_exact_mut(height * width * read);
            for (start, goal) in grids.zip(goals) {
                self.data
                    .fill_goal(spec.channels, spec.boundary, start, goal);
            }
        }
    }

    /// The program is of other wires, or may be.
    fn forget_program(&mut self) {
        self.ops.clear();
        self.program = None;
    }

    /// Runs the hard automaton from the last batch's start; its program is made anew only when a
    /// gate has changed.
    fn run_hard(&mut self, params: &[f32]) {
        if self.start.is_empty() {
            self.draw(0);
        }
        let logits = params.chunks_exact(GATES);
        let same = self.ops.len() == logits.len()
            && logits
                .clone()
                .zip(&self.ops)
                .all(|(l, &op)| hardest(l) == op);
        if !same {
            self.ops.clear();
            self.ops.extend(logits.map(hardest));
            self.program = None;
        }
        let circuit = || Program::new(&HardCircuit::with_ops(&self.model, &self.ops));
        let program = self.program.get_or_insert_with(circuit);
        self.grid.load(&self.start);
        let [height, width] = self.data.grid;
        for t in 0..self.model.spec().steps {
            let cells = t * height * width..(t + 1) * height * width;
            let fire = self.fire.as_ref().map(|f| &f[cells]);
            self.grid.step(program, fire);
        }
    }

    /// Cells of the last hard run that differ from the goal: each adds 1 to the sum of squares.
    fn hard_loss(&self) -> usize {
        let [height, width] = self.data.grid;
        let read = self.data.read_channels();
        let mut goal = self.goal.iter();
        let mut wrong = 0;
        for sample in 0..self.batch {
            for y in 0..height {
                for x in 0..width {
                    for c in 0..read {
                        let wanted = goal.next().is_some_and(|&g| g > 0.5);
                        wrong += usize::from(self.grid.get(sample, y, x, c) != wanted);
                    }
                }
            }
        }
        wrong
    }

    /// The grids of a run for pictures: larger than in training where the pattern has no size of
    /// its own, with a wound that heals where it can.
    fn film(&self, circuit: &HardCircuit) -> Result<Vec<BitGrid>> {
        let spec = self.model.spec();
        let size = match self.data.target {
            Goal::Life => [64, 64],
            Goal::Checkerboard => [48, 48],
            Goal::Bitmap => self.data.grid,
        };
        let key = Key::new(self.seed).purpose("film");
        let mut player = Player::of_data(circuit, &self.data, spec.fire_rate, size, key)?;
        let mut film = vec![player.grid.clone()];
        let slow = if spec.fire_rate < 1.0 { 3 } else { 1 };
        let (steps, wound) = match self.data.target {
            Goal::Life => (80, None),
            Goal::Checkerboard => (48 * slow, Some(48 * slow)),
            Goal::Bitmap => (spec.steps, None),
        };
        for t in 1..=steps {
            player.step();
            if t % slow == 0 {
                film.push(player.grid.clone());
            }
        }
        if let Some(steps) = wound {
            player
                .grid
                .erase(0, [size[1] / 2 - 8, size[0] / 2 - 8, 16, 16]);
            film.push(player.grid.clone());
            for t in 1..=steps {
                player.step();
                if t % slow == 0 {
                    film.push(player.grid.clone());
                }
            }
        }
        Ok(film)
    }

    /// The gates as they decide: a pixel a gate, dark where it computes something and light where it passes
    /// an input on, as all do in the beginning.
    fn decided(&self, params: &[f32]) -> Result<Figure> {
        const WIDTH: usize = 32;
        let gates = params.chunks_exact(GATES);
        let mut shares: Vec<f32> = gates.map(|logits| activity(logits, None)).collect();
        let (all, decided) = (shares.len(), active_gates(params));
        let open = shares.iter().filter(|&&s| s > 0.1 && s < 0.9).count();
        let caption = format!("{decided} of {all} compute something, {open} are undecided");
        let height = all.div_ceil(WIDTH);
        shares.resize(height * WIDTH, 0.0);
        view::grid("gates", &caption, [height, WIDTH], 1, 1, &shares)
    }
}

impl Task for LogicTask {
    type Model = LogicCa;

    fn model(&self) -> &LogicCa {
        &self.model
    }

    fn model_mut(&mut self) -> &mut LogicCa {
        &mut self.model
    }

    fn loss(&self) -> Loss {
        Loss::SumSquares
    }

    fn notes(&self) -> &[String] {
        &self.notes
    }

    fn demand(&self, train: &TrainSpec) -> Demand<'_> {
        demand(self.model.spec(), &self.data, self.batch, train.optimizer)
    }

    fn steps_per_epoch(&self) -> u64 {
        1
    }

    fn batch(&mut self, step: u64, example: &mut Option<Example<LogicCa>>) -> Result<()> {
        self.part(step, 0..self.batch, example)
    }

    fn samples(&self, _: u64) -> Option<usize> {
        Some(self.batch)
    }

    fn shard_of(&self) -> (&'static str, usize) {
        ("grids", 1)
    }

    fn part(
        &mut self,
        step: u64,
        samples: Range<usize>,
        example: &mut Option<Example<LogicCa>>,
    ) -> Result<()> {
        // Once for all shards of a batch.
        if self.drawn != Some(step) || samples.len() == self.batch {
            self.draw(step);
            self.drawn = Some(step);
        }
        let [height, width] = self.data.grid;
        let channels = self.model.spec().channels;
        let read = self.data.read_channels();
        let of = |per_cell: usize| {
            let grid = height * width * per_cell;
            samples.start * grid..samples.end * grid
        };
        let (start, goals) = (&self.start[of(channels)], &self.goal[of(read)]);
        match example {
            Some(example) if example.input.batch == samples.len() => {
                example.input.state.copy_from_slice(start);
                if let (Some(to), Some(from)) = (&mut example.input.fire, &self.fire) {
                    to.copy_from_slice(from);
                }
                if self.data.target == Goal::Life {
                    let cells = example.target.values.chunks_exact_mut(channels);
                    for (cell, goal) in cells.zip(goals.chunks_exact(read)) {
                        cell[..read].copy_from_slice(goal);
                    }
                }
            }
            _ => {
                let size = [samples.len(), height, width];
                let (start, fire) = (start.to_vec(), self.fire.clone());
                *example = Some(Example {
                    input: LogicBatch::new(&self.model, start, size, fire)?,
                    target: channel_target(goals, read, channels),
                });
            }
        }
        Ok(())
    }

    /// A small grid, wider than high, of random states between 0 and 1 and a random goal, after few steps.
    fn specimen(&mut self) -> Result<Specimen<LogicCa>> {
        let model = self
            .model
            .with_steps(SPECIMEN_STEPS.min(self.model.spec().steps))?;
        let spec = model.spec();
        let size @ [_, height, width] = [1, 3, 4];
        let mut stream = Key::new(self.seed).purpose("specimen").stream();
        let cells = height * width;
        let state = (0..cells * spec.channels).map(|_| stream.uniform_f32());
        let state: Vec<f32> = state.collect();
        let fire = (spec.fire_rate < 1.0).then(|| {
            let rate = spec.fire_rate as f32;
            let draws = (0..spec.steps * cells).map(|_| stream.uniform_f32() < rate);
            draws.collect()
        });
        let read = self.data.read_channels();
        let goal = (0..cells * read).map(|_| (stream.u32() & 1) as f32);
        let goal: Vec<f32> = goal.collect();
        Ok(Specimen {
            example: Example {
                input: LogicBatch::new(&model, state, size, fire)?,
                target: channel_target(&goal, read, spec.channels),
            },
            model: Some(model),
        })
    }

    /// Of a gate whose chance is 1 − 10⁻⁵, what the others would do is lost in rounding. With a logit of ln 15d, and
    /// 0 of the others, more than a third of a gradient comes through d gates, and digits enough are left.
    fn soften(&self, params: &mut [f32]) -> Option<String> {
        let spec = self.model.spec();
        let layers = spec.perception.len() + spec.update.len() - 2;
        let depth = layers * SPECIMEN_STEPS.min(spec.steps);
        let most = crate::math::ln(15.0 * depth as f64) as f32;
        if params.iter().all(|p| (LEAST..=most).contains(p)) {
            return None;
        }
        params.iter_mut().for_each(|p| *p = p.clamp(LEAST, most));
        Some(format!(
            "logits between {LEAST} and {most:.1}, where gates are undecided"
        ))
    }

    fn evaluate(&mut self, params: &[f32], epoch: u64) -> Result<Metrics> {
        // A run that goes on with an evaluation has drawn nothing yet.
        if self.start.is_empty() {
            self.draw(epoch.saturating_sub(1));
        }
        self.run_hard(params);
        let mut metrics = vec![
            ("hard_loss".to_string(), self.hard_loss() as f64),
            ("active_gates".to_string(), active_gates(params) as f64),
        ];
        if self.data.target == Goal::Life {
            let circuit = HardCircuit::with_ops(&self.model, &self.ops)
                .fold(false)
                .prune();
            let right = super::evaluate::boards_right(self.data.rule(), &circuit);
            metrics.push(("boards_right".into(), right as f64));
        }
        Ok(metrics)
    }

    fn verdict(&self, summary: &Summary) -> Option<Verdict> {
        let figure = |name: &str| summary.more.get(name).and_then(serde_json::Value::as_f64);
        let (learned, what) = match self.data.target {
            Goal::Life => {
                let right = figure("boards_right")?;
                let what = format!(
                    "{} of 512 boards are not as {} says",
                    512.0 - right,
                    self.data.rule()
                );
                (right == 512.0, what)
            }
            _ => {
                let wrong = figure("hard_loss")?;
                let cells = if wrong == 1.0 { "cell is" } else { "cells are" };
                (
                    wrong == 0.0,
                    format!("{wrong} {cells} wrong after the last step"),
                )
            }
        };
        Some(match learned {
            true => Verdict::Learned,
            false => Verdict::NotLearned {
                why: what,
                advice: "try other seeds (--seeds 5), more epochs, or more gates (model.update)"
                    .into(),
            },
        })
    }

    /// Automata learn a rule or a pattern whole: what they are measured on is what they learn, larger
    /// grids and damage aside.
    fn measured_on(&self, figure: &str) -> Option<MeasuredOn> {
        let part = match figure {
            "train_loss" | "soft_loss" => "training boards",
            "hard_loss" => "the last training boards",
            "boards_right" => return Some(MeasuredOn::part("possible", Some((512, "boards")))),
            name if name.contains("wrong") || name.contains("error") => "new boards",
            _ => return None,
        };
        Some(MeasuredOn::part(part, None))
    }

    fn judges(&self) -> bool {
        true
    }

    fn learned(&self, metrics: &Metrics) -> bool {
        let (name, value) = match self.data.target {
            Goal::Life => ("boards_right", 512.0),
            _ => ("hard_loss", 0.0),
        };
        metrics.iter().any(|(n, v)| n == name && *v == value)
    }

    fn confirm(&mut self, params: &[f32], epoch: u64) -> Result<bool> {
        let circuit = HardCircuit::of(&self.model, params);
        self.stands(&circuit, epoch)
    }

    fn hopeful(&self, loss: f64) -> bool {
        loss <= WORTH_ROUNDING * self.goal.len() as f64
    }

    fn round(&mut self, params: &mut [f32], loss: f64, epoch: u64) -> Result<bool> {
        Ok(self.hopeful(loss) && self.decide_all(params, epoch)?)
    }

    fn thin(&mut self, params: &mut [f32], epoch: u64) -> Result<bool> {
        self.decide_on_fewer(params, epoch)
    }

    fn begin_again(&mut self, seed: u64, attempt: u64) -> Result<Vec<f32>> {
        let key = Key::new(seed).purpose("attempt").index(attempt);
        // Of 32 bits: the notebook's wirings have no larger seeds.
        self.model.rewire(u64::from(key.stream().u32()))?;
        self.forget_program();
        Ok(self.model.init(seed))
    }

    fn best_by(&self) -> (&'static str, bool) {
        match self.data.target {
            // Every epoch starts from the same cells: none wrong once is none wrong for good.
            Goal::Bitmap if self.data.start != StartState::Random => ("hard_loss", true),
            Goal::Life => ("boards_right", false),
            // From random starts the hard loss of one batch reaches 0 by luck before it stays
            // there. There is no validation loss: the last parameters are kept.
            _ => ("validation_loss", true),
        }
    }

    fn picture(&mut self, params: &[f32]) -> Option<String> {
        if self.data.target == Goal::Life {
            return None; // Nine cells show nothing.
        }
        let _ = params; // `evaluate` has just run it.
        Some(picture::text(&self.grid, self.data.read_channels()))
    }

    fn view(&mut self, params: &[f32]) -> Result<Vec<Figure>> {
        // `evaluate` has just drawn the batch and run the circuit on it.
        let size @ [height, width] = self.data.grid;
        let (spec, read) = (self.model.spec(), self.data.read_channels());
        let cells = height * width;
        let start = self.start[..cells * spec.channels].to_vec();
        let batch = LogicBatch::new(&self.model, start, [1, height, width], self.fire.clone())?;
        let mut tape = Default::default();
        self.model
            .compute_forward(params, &batch, &Pass::inference(), &mut tape);
        let soft = self.model.output(&tape);
        let bits = self.grid.bits(0);
        let hard: Vec<f32> = bits.iter().map(|&b| f32::from(u8::from(b))).collect();
        let goal = &self.goal[..cells * read];
        Ok(vec![
            view::grid("soft", "what is trained", size, spec.channels, read, soft)?,
            view::grid("hard", "the circuit", size, spec.channels, read, &hard)?,
            view::grid("target", "what it should be", size, read, read, goal)?,
            self.decided(params)?,
        ])
    }

    fn finish(&mut self, params: &[f32], run: &Path) -> Result<Findings> {
        self.forget_program();
        let raw = HardCircuit::of(&self.model, params);
        let circuit = raw.simplify();
        let read = self.data.read_channels();
        let mut findings = Findings::default();
        let summary = &mut findings.summary;
        self.run_hard(params);
        summary.insert("hard_loss".into(), json!(self.hard_loss()));
        summary.insert("active_gates".into(), json!(active_gates(params)));
        summary.insert("circuit_gates".into(), json!(circuit.gates.len()));
        if let Some(history) = History::read(&run.join("metrics.csv"))? {
            summary.insert("soft_loss".into(), json!(history.soft));
            summary.insert("first_perfect_epoch".into(), json!(history.first));
            summary.insert("perfect_since_epoch".into(), json!(history.since));
        }
        let spec = self.model.spec();
        summary.extend(evaluations(spec, &self.data, &circuit, self.seed)?);

        let film = self.film(&circuit)?;
        let chosen: Vec<BitGrid> = match film.len() {
            0..=8 => film.clone(),
            n => (0..8).map(|i| film[i * (n - 1) / 7].clone()).collect(),
        };
        let strip = picture::strip(&chosen, read)?;
        let gif = picture::gif(&film, read, 80)?;
        write(&run.join("pattern.png"), &strip)?;
        write(&run.join("pattern.gif"), &gif)?;
        write_circuit(&circuit, run)?;
        let counts = gate_counts(params);
        let mut table = String::from("gate,count\n");
        for (name, count) in NAMES.iter().zip(counts) {
            table += &format!("{name},{count}\n");
        }
        write(&run.join("gates.csv"), table.as_bytes())?;

        findings.figures = vec![
            Figure {
                title: "The pattern over time".into(),
                caption: "The hard automaton, bit by bit.".into(),
                content: Content::Png(strip),
            },
            Figure {
                title: "Animation".into(),
                caption: String::new(),
                content: Content::Gif(gif),
            },
        ];
        findings.figures.push(Figure {
            title: "The circuit".into(),
            caption: format!(
                "{} gates of a cell are left of {}. Inputs are channel and neighbour, outputs new channels.",
                circuit.gates.len(),
                raw.gates.len()
            ),
            content: Content::Svg(circuit.to_svg()),
        });
        findings.figures.push(Figure {
            title: "Gates".into(),
            caption: "Chosen by training, kernels counted once.".into(),
            content: Content::Table {
                header: vec!["gate".into(), "count".into()],
                rows: NAMES
                    .iter()
                    .zip(counts)
                    .map(|(name, count)| vec![name.to_string(), count.to_string()])
                    .collect(),
            },
        });
        Ok(findings)
    }
}

fn write(path: &Path, bytes: &[u8]) -> Result<()> {
    write_whole(path, |file| file.write_all(bytes))
}

/// The circuit in all its forms, into a folder.
pub fn write_circuit(circuit: &HardCircuit, folder: &Path) -> Result<()> {
    write(&folder.join("circuit.json"), circuit.to_json().as_bytes())?;
    write(&folder.join("circuit.c"), circuit.to_c().as_bytes())?;
    write(&folder.join("circuit.v"), circuit.to_verilog().as_bytes())?;
    write(&folder.join("circuit.svg"), circuit.to_svg().as_bytes())
}
