//! Differentiable-logic automata on the command line.

use std::io::Write as _;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use retrograd::logic::evaluate::Player;
use retrograd::logic::patterns::{self, Goal, Start};
use retrograd::logic::{HardCircuit, LogicTask, picture, write_circuit};
use retrograd::rng::Key;
use retrograd::train::{Experiment, Session, Summary, Task, load_weights, model_file};

use super::Family;
use crate::commands::{ExportArgs, RunArgs};
use crate::exit::Outcome;

pub const FAMILY: Family = Family {
    name: "logic_ca",
    train,
    run: Some(run),
    export: Some(export),
};

fn train(session: &mut Session<'_>) -> retrograd::Result<Summary> {
    let mut task = LogicTask::new(session.experiment())?;
    session.fit(&mut task)
}

/// The exact circuit of a trained run.
fn circuit_of(experiment: &Experiment, run: &Path) -> Result<(LogicTask, HardCircuit)> {
    let mut task = LogicTask::new(experiment)?;
    let (params, _) = load_weights(&model_file(run), task.model_mut())?;
    let circuit = HardCircuit::of(task.model(), &params).simplify();
    Ok((task, circuit))
}

/// Plays the automaton: on a terminal, into an animation, or to its last state.
fn run(experiment: &Experiment, args: &RunArgs) -> Result<Outcome> {
    if let Some(input) = args.inputs.first() {
        bail!(
            "run: got the file {}, an automaton needs none; see --steps, --size, --damage, --gif",
            input.display()
        );
    }
    let (task, circuit) = circuit_of(experiment, &args.run)?;
    let (data, spec) = (task.data(), task.model().spec());
    let size = match &args.size {
        Some(size) => parse_size(size)?,
        None if data.target == Goal::Life => [64, 64],
        None => data.grid,
    };
    let steps = args.steps.unwrap_or(match data.target {
        Goal::Life => 200,
        _ => spec.steps,
    });
    let damage = args
        .damage
        .iter()
        .map(|text| parse_damage(text))
        .collect::<Result<Vec<_>>>()?;
    let start = match data.target {
        Goal::Life => Start::Random,
        _ => data.start,
    };
    let key = Key::new(args.seed).purpose("run");
    let mut player = Player::new(&circuit, start, spec.fire_rate, size, key)?;
    let read = data.read_channels();
    let mut film = vec![player.grid.clone()];
    let live = args.gif.is_none() && crate::log::animates();
    let mut busy = Duration::ZERO;
    for t in 0..steps {
        let before = Instant::now();
        player.step();
        busy += before.elapsed();
        for (place, from, to) in &damage {
            if (*from..*to).contains(&t) {
                player.grid.erase(0, *place);
            }
        }
        if args.gif.is_some() {
            film.push(player.grid.clone());
        }
        if live {
            let text = picture::text(&player.grid, read);
            let lines = text.lines().count();
            let up = if t == 0 {
                String::new()
            } else {
                format!("\x1b[{}A", lines + 1)
            };
            println!("{up}{text}step {}", t + 1);
            std::io::stdout().flush()?;
            std::thread::sleep(Duration::from_millis(60));
        }
    }
    if let Some(path) = &args.gif {
        std::fs::write(path, picture::gif(&film, read, 80)?)
            .with_context(|| format!("{}: cannot write", path.display()))?;
        println!("{:20} {}", "animation", path.display());
    } else if !live {
        print!("{}", picture::text(&player.grid, read));
    }
    let [height, width] = size;
    println!("{:20} {width}×{height}", "cells");
    println!("{:20} {steps}", "steps");
    println!("{:20} {}", "gates", circuit.gates.len());
    if data.target == Goal::Checkerboard {
        println!(
            "{:20} {}",
            "wrong cells",
            player.wrong(patterns::checkerboard)
        );
    }
    let updates = (height * width * steps) as f64 / busy.as_secs_f64().max(1e-9);
    println!("{:20} {updates:.3e} a second", "cell updates");
    Ok(Outcome::Done)
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
        _ => bail!("--size: got {text:?}, needs WIDTHxHEIGHT, as in 64x64"),
    }
}

/// `x,y,w,h,from,to`: a rectangle, and the steps in which it is erased.
fn parse_damage(text: &str) -> Result<([usize; 4], usize, usize)> {
    let parts: Vec<_> = text.split(',').map(|p| p.trim().parse::<usize>()).collect();
    match parts[..] {
        [Ok(x), Ok(y), Ok(w), Ok(h), Ok(from), Ok(to)] if from < to => Ok(([x, y, w, h], from, to)),
        _ => bail!("--damage: got {text:?}, needs x,y,width,height,from,to with from < to"),
    }
}

/// The circuit as JSON, C, Verilog and a drawing: one of them by the ending of --out, or all of
/// them in a folder.
fn export(experiment: &Experiment, args: &ExportArgs) -> Result<Outcome> {
    let (_, circuit) = circuit_of(experiment, &args.run)?;
    let out = args.out.as_deref().unwrap_or(&args.run);
    let ending = out.extension().and_then(|e| e.to_str());
    let text = match ending {
        Some("json") => circuit.to_json(),
        Some("c") => circuit.to_c(),
        Some("v") => circuit.to_verilog(),
        Some("svg") => match circuit.to_svg() {
            Some(svg) => svg,
            None => bail!(
                "{}: {} gates are too many to draw",
                out.display(),
                circuit.gates.len()
            ),
        },
        Some(_) if !out.is_dir() => bail!(
            "--out: got {}, needs a file that ends in .json, .c, .v or .svg, or a folder",
            out.display()
        ),
        _ => {
            std::fs::create_dir_all(out)
                .with_context(|| format!("{}: cannot create the folder", out.display()))?;
            write_circuit(&circuit, out)?;
            println!("{:20} {}", "gates", circuit.gates.len());
            println!(
                "{:20} {}/circuit.{{json,c,v,svg}}",
                "circuit",
                out.display()
            );
            return Ok(Outcome::Done);
        }
    };
    std::fs::write(out, text).with_context(|| format!("{}: cannot write", out.display()))?;
    println!("{:20} {}", "gates", circuit.gates.len());
    println!("{:20} {}", "circuit", out.display());
    Ok(Outcome::Done)
}
