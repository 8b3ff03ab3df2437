//! The family's entry: training, the automaton played, its circuit written.

use crate::clock::Instant;
use std::path::Path;
use std::time::Duration;

use super::evaluate::Player;
use super::export::{export, export_file};
use super::patterns::{self, Goal};
use super::{HardCircuit, LogicCa, LogicTask, picture, replay};
use crate::budget::{self, Demand, product};
use crate::data::write_whole;
use crate::family::{Console, Family, RunOptions};
use crate::math;
use crate::rng::Key;
use crate::train::{Experiment, Session, Summary, Task, load_weights, model_file};
use crate::verify::builtin::bundled;
use crate::verify::{BuiltIn, Check, against};
use crate::{Error, Result};

/// Cellular automata of differentiable logic gates.
pub const FAMILY: Family = Family {
    train: Some(train),
    run: Some(run),
    runs_on_gpu: true,
    export: Some(export),
    export_file: Some(export_file),
    checks: &[
        Check::of_bundles(against::<LogicCa>),
        Check {
            format: "retrograd-logic-run-1",
            anywhere: false,
            ..Check::of_bundles(replay)
        },
    ],
    built_in,
    sizes: super::sizes::sizes,
    works: &[
        (
            "logic_ca",
            "F. Petersen, C. Borgelt, H. Kuehne, O. Deussen: Deep Differentiable Logic Gate \
             Networks. NeurIPS 2022.",
        ),
        (
            "logic_ca",
            "P. Miotti, E. Niklasson, E. Randazzo, A. Mordvintsev: Differentiable Logic Cellular \
             Automata. 2025.",
        ),
    ],
    workloads: &[super::bench::WORKLOADS],
    growths: super::bench::GROWTHS,
    ..Family::new("logic_ca")
};

fn train(session: &mut Session<'_>) -> Result<Summary> {
    let mut task = LogicTask::new(session.experiment())?;
    // Pictures as they were read: the run needs no other file.
    session.set_data(task.data_table());
    session.fit(&mut task)
}

/// A small automaton. A sample is a grid.
fn built_in() -> Vec<BuiltIn> {
    vec![bundled!(
        LogicCa,
        2,
        "logic_ca: asynchronous",
        "logic_async_small"
    )]
}

/// The exact circuit of a trained run, gate by gate.
pub(super) fn circuit_of(experiment: &Experiment, run: &Path) -> Result<(LogicTask, HardCircuit)> {
    let mut task = LogicTask::new(experiment)?;
    let (params, _) = load_weights(&model_file(run), task.model_mut())?;
    let circuit = HardCircuit::of(task.model(), &params);
    Ok((task, circuit))
}

/// Plays the automaton: on a terminal, into an animation, or to its last state.
fn run(experiment: &Experiment, options: &RunOptions, console: &mut dyn Console) -> Result<()> {
    if let Some(input) = options.inputs.first() {
        return Err(Error::refused(
            "run",
            format!(
                "got the file {}, an automaton needs none; see --steps, --size, --damage, --gif",
                input.display()
            ),
        ));
    }
    options.check_outputs(&options.gif)?;
    let (task, circuit) = circuit_of(experiment, &options.run)?;
    let circuit = circuit.fold(true).prune().rewrite();
    let (data, spec) = (task.data(), task.model().spec());
    let size = match &options.size {
        Some(size) => parse_size(size)?,
        None if data.target == Goal::Life => [64, 64],
        None => data.grid,
    };
    let steps = options.steps.unwrap_or(match data.target {
        Goal::Life => 200,
        _ => spec.steps,
    });
    let damage = options
        .damage
        .iter()
        .map(|text| parse_damage(text))
        .collect::<Result<Vec<_>>>()?;
    let filmed = options.gif.is_some();
    budget::allow(&demand_of_run(size, steps, circuit.channels, filmed))?;
    let key = Key::new(options.seed).purpose("run");
    let mut player = Player::of_data(&circuit, data, spec.fire_rate, size, key)?;
    let read = data.read_channels();
    if let Some(adapter) = &options.device {
        player.play_on(adapter, &circuit)?;
    }
    let mut film = vec![player.grid.clone()];
    let live = !filmed && console.animates();
    let mut busy = Duration::ZERO;
    for t in 0..steps {
        let before = Instant::now();
        player.advance()?;
        if filmed || live || t + 1 == steps {
            player.fetch()?;
        }
        busy += before.elapsed();
        for (place, from, to) in &damage {
            if (*from..*to).contains(&t) {
                player.erase(*place)?;
            }
        }
        if filmed {
            film.push(player.grid.clone());
        }
        if live {
            let text = picture::text(&player.grid, read);
            console.frame(&format!("{text}step {}", t + 1));
        }
    }
    if let Some(path) = &options.gif {
        let film = picture::gif(&film, read, 80)?;
        write_whole(path, |file| file.write_all(&film))?;
        console.value("animation", &path.display());
    } else if !live {
        let text = picture::text(&player.grid, read);
        text.lines().for_each(|line| console.line(line));
    }
    let [height, width] = size;
    console.value("cells", &format!("{width}×{height}"));
    console.value("steps", &steps);
    console.value("gates", &circuit.gates.len());
    if data.target == Goal::Checkerboard {
        console.value("wrong cells", &player.wrong(patterns::checkerboard));
    }
    let updates = [height, width, steps]
        .map(|n| n as f64)
        .iter()
        .product::<f64>()
        / math::max(busy.as_secs_f64(), 1e-9);
    console.value("cell updates", &format!("{updates:.3e} a second"));
    Ok(())
}

/// The memory of an automaton that is played: its grid, every step's in a film, and the picture.
fn demand_of_run(
    [height, width]: [usize; 2],
    steps: usize,
    channels: usize,
    filmed: bool,
) -> Demand<'static> {
    // The grid, the next one and what gates compute, in rows of whole cache lines.
    const GRIDS: u64 = 3;
    const LINE: u64 = 512;
    // A pixel of a film and its code; a cell in colours on a terminal.
    const PIXEL: u64 = 2;
    const CELL: u64 = 24;
    let (width, channels) = (width as u64, channels as u64);
    let sizes = [
        ("--steps", steps as u64),
        ("--size: the height", height as u64),
    ];
    Demand::of(sizes, move |[steps, height]| {
        let grid = product([height, width + LINE, channels, GRIDS]) / 8;
        if !filmed {
            return grid + product([height, width, CELL]);
        }
        let scale = picture::film_scale(width as usize) as u64;
        let frame = grid + product([height, width, scale * scale, PIXEL]);
        frame.saturating_mul(u128::from(steps) + 2)
    })
}

/// `WxH` as rows and columns.
fn parse_size(text: &str) -> Result<[usize; 2]> {
    let parts: Vec<_> = text.split(['x', '×']).map(str::parse).collect();
    match parts[..] {
        [Ok(width), Ok(height)]
            if (1..=1 << 16).contains(&width) && (1..=1 << 16).contains(&height) =>
        {
            Ok([height, width])
        }
        _ => Err(Error::invalid(
            "--size",
            format!("{text:?}"),
            "WIDTHxHEIGHT, as in 64x64",
        )),
    }
}

/// `x,y,w,h,from,to`: a rectangle, and the steps in which it is erased.
fn parse_damage(text: &str) -> Result<([usize; 4], usize, usize)> {
    let parts: Vec<_> = text.split(',').map(|p| p.trim().parse::<usize>()).collect();
    match parts[..] {
        [Ok(x), Ok(y), Ok(w), Ok(h), Ok(from), Ok(to)] if from < to => Ok(([x, y, w, h], from, to)),
        _ => Err(Error::invalid(
            "--damage",
            format!("{text:?}"),
            "x,y,width,height,from,to with from < to",
        )),
    }
}
