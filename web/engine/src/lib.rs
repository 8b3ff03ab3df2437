//! The library behind one call, for pages and for Node.
//!
//! The host asks for memory ([`reserve`]), writes a request there as JSON, calls [`call`], and reads the
//! answer, JSON too, from where [`answer`] says. While a run trains, what happens is told through the host's
//! function `event`; a run stops, and saves, where that returns 1. Files are those that the host gives
//! through WASI: a page keeps them in memory, and a run's folder is downloaded from there.

mod kernels;
#[cfg(target_os = "wasi")]
mod libc;
mod training;
mod webgpu;
mod workers;

use std::cell::RefCell;
use std::path::PathBuf;
use std::time::Duration;

use retrograd::bench::BenchDevice;
use retrograd::family::draft::{self, InitOptions, Place};
use retrograd::family::{ExportOptions, Lines, RunOptions};
use retrograd::logic::HardCircuit;
use retrograd::logic::evaluate::Player;
use retrograd::logic::patterns::StartState;
use retrograd::rng::Key;
use retrograd::train::{Experiment, experiment_of};
use retrograd::{Error, Family, Result};
use serde::Deserialize;
use serde_json::{Value, json};

use training::{Device, Train, Wrong};

#[link(wasm_import_module = "retrograd")]
unsafe extern "C" {
    /// Tells the host what happened, as JSON; 1 where the run should stop.
    fn event(text: *const u8, length: usize) -> u32;
}

fn tell(kind: &str, more: Value) -> bool {
    let text = json!({ "kind": kind, "more": more }).to_string();
    // SAFETY: the host reads that many bytes from there before it returns.
    unsafe { event(text.as_ptr(), text.len()) == 1 }
}

thread_local! {
    static TEXT: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
    static PLAYER: RefCell<Option<Player>> = const { RefCell::new(None) };
}

/// The address of that many bytes, for the host to write a request to.
#[unsafe(no_mangle)]
pub extern "C" fn reserve(bytes: usize) -> *mut u8 {
    TEXT.with_borrow_mut(|text| {
        text.clear();
        text.resize(bytes, 0);
        text.as_mut_ptr()
    })
}

/// Does what the request asks for; the length of the answer.
#[unsafe(no_mangle)]
pub extern "C" fn call() -> usize {
    let text = TEXT.with_borrow_mut(std::mem::take);
    let answer = match serde_json::from_slice::<Request>(&text) {
        Ok(request) => request.serve(),
        Err(error) => Err(Error::invalid(
            "the request",
            error,
            "one that the engine knows",
        )),
    };
    let answer = match answer {
        Ok(answer) => json!({ "ok": answer }),
        Err(error) => json!({ "error": error.to_string() }),
    };
    TEXT.with_borrow_mut(|text| {
        *text = answer.to_string().into_bytes();
        text.len()
    })
}

/// The address of the answer.
#[unsafe(no_mangle)]
pub extern "C" fn answer() -> *const u8 {
    TEXT.with_borrow(|text| text.as_ptr())
}

/// What a host may ask for.
#[derive(Deserialize)]
#[serde(tag = "do", rename_all = "snake_case", deny_unknown_fields)]
enum Request {
    /// What this is.
    About,
    /// Trains an experiment, in a folder or without files.
    Train(Train),
    /// The mistakes that can be put into the gradients of an experiment's model, in words.
    Mistakes { experiment: String },
    /// Checks the gradients of a finished run's model once more, with a mistake or without. Its report is
    /// written anew: with a mistake, a copy of the run should be given.
    Check {
        run: PathBuf,
        #[serde(default)]
        mistake: Option<Wrong>,
        #[serde(default)]
        device: Device,
    },
    /// Holds the library's kernels on the browser's GPU to the f64 reference: the models of `retrograd verify
    /// --device gpu`, or those whose names have one of these words. Suspends.
    Kernels {
        #[serde(default)]
        only: Vec<String>,
    },
    /// The milliseconds of a step of one of the command's workloads; without a name, their names.
    Bench {
        #[serde(default)]
        workload: Option<String>,
        /// The ready experiment that it takes, where it takes one.
        #[serde(default)]
        experiment: Option<String>,
    },
    /// An experiment for a user's own data.
    Draft {
        path: PathBuf,
        #[serde(default)]
        target: Option<String>,
        #[serde(default)]
        kan: bool,
        /// Graphs: a class per node, or which nodes are linked.
        #[serde(default)]
        labels: Option<PathBuf>,
        #[serde(default)]
        links: bool,
    },
    /// What a trained model says about files.
    Run {
        run: PathBuf,
        #[serde(default)]
        inputs: Vec<PathBuf>,
        #[serde(default)]
        out: Option<PathBuf>,
    },
    /// A trained KAN as a formula; edges below a share of the largest of their layer taken out first.
    Explain {
        run: PathBuf,
        #[serde(default)]
        prune: Option<f64>,
    },
    /// A trained model in another form.
    Export {
        run: PathBuf,
        #[serde(default)]
        format: Option<String>,
        #[serde(default)]
        onnx: bool,
    },
    /// Lays out a grid for an exact circuit to play on.
    Play {
        circuit: PathBuf,
        size: [usize; 2],
        start: StartState,
        #[serde(default = "every")]
        fire_rate: f64,
        #[serde(default)]
        seed: u64,
    },
    /// Steps of the circuit, and the grid after them: a character a cell, '0' + the bits of its first
    /// three channels.
    Steps { count: usize },
    /// Sets the cells of a disc, all channels, and answers as [`Request::Steps`] does.
    Paint {
        at: [i64; 2],
        radius: i64,
        value: bool,
    },
}

fn every() -> f64 {
    1.0
}

impl Request {
    fn serve(self) -> Result<Value> {
        match self {
            Request::About => Ok(json!({
                "version": env!("CARGO_PKG_VERSION"),
                "simd": retrograd::command::instruction_set().to_string(),
                "families": retrograd::FAMILIES.iter().map(|f| f.name).collect::<Vec<_>>(),
            })),
            Request::Train(asked) => training::train(asked),
            Request::Mistakes { experiment } => training::mistakes(&experiment),
            Request::Check {
                run,
                mistake,
                device,
            } => training::check(run, mistake, device),
            Request::Kernels { only } => kernels::check(&only),
            Request::Bench {
                workload,
                experiment,
            } => bench(workload.as_deref(), experiment.as_deref()),
            Request::Draft {
                path,
                target,
                kan,
                labels,
                links,
            } => draft_for(InitOptions {
                data: path,
                target,
                kan,
                labels,
                links,
                ..InitOptions::default()
            }),
            Request::Run { run, inputs, out } => {
                lines(&run.clone(), |family, experiment, lines| {
                    let options = RunOptions {
                        run,
                        inputs,
                        out,
                        force: true,
                        memory_mib: 256,
                        ..RunOptions::default()
                    };
                    family.run(experiment, &options, lines)
                })
            }
            Request::Explain { run, prune } => lines(&run.clone(), |family, experiment, lines| {
                let options = RunOptions {
                    run,
                    prune,
                    force: true,
                    ..RunOptions::default()
                };
                family.explain(experiment, &options, lines)
            }),
            Request::Export { run, format, onnx } => {
                lines(&run.clone(), |family, experiment, lines| {
                    let options = ExportOptions {
                        run,
                        format,
                        onnx,
                        force: true,
                        ..ExportOptions::default()
                    };
                    family.export(experiment, &options, lines)
                })
            }
            Request::Play {
                circuit,
                size,
                start,
                fire_rate,
                seed,
            } => {
                let text = std::fs::read_to_string(&circuit);
                let text = text.map_err(|error| {
                    Error::invalid(circuit.display().to_string(), error, "a circuit's file")
                })?;
                let circuit = HardCircuit::from_json(&text)?;
                let key = Key::new(seed).purpose("play");
                let player = Player::new(&circuit, start, fire_rate, size, key)?;
                PLAYER.set(Some(player));
                Ok(json!({ "gates": circuit.gates.len(), "channels": circuit.channels }))
            }
            Request::Steps { count } => played(|player| player.steps(count)),
            Request::Paint { at, radius, value } => {
                played(|player| paint(player, at, radius, value))
            }
        }
    }
}

fn bench(workload: Option<&str>, experiment: Option<&str>) -> Result<Value> {
    let mut all = retrograd::bench::all();
    let Some(name) = workload else {
        return Ok(json!(all.map(|w| w.name).collect::<Vec<_>>()));
    };
    let found = all.find(|workload| workload.name == name);
    let workload = found.ok_or_else(|| Error::invalid("workload", name, "one of the list"))?;
    let ready = |name: &str| match experiment {
        Some(text) => Experiment::parse(text, name),
        None => Err(Error::invalid("experiment", "none", format!("{name}'s"))),
    };
    let mut prepared = (workload.build)(BenchDevice::Cpu, &ready)?;
    let [median, min] = prepared.time(Duration::from_millis(200), Duration::from_millis(600));
    let milliseconds = |time: Duration| time.as_secs_f64() * 1e3;
    Ok(json!({ "median": milliseconds(median), "min": milliseconds(min) }))
}

fn draft_for(options: InitOptions) -> Result<Value> {
    let place = Place::new(&options.data, None)?;
    let draft = draft::draft(&options, &place)?;
    let findings = draft.findings.iter();
    Ok(json!({
        "text": draft.text,
        "findings": findings.map(|(word, text)| format!("{word}: {text}")).collect::<Vec<_>>(),
    }))
}

/// Calls a family with the experiment of a run, and answers what it said.
fn lines(
    run: &PathBuf,
    work: impl FnOnce(&Family, &Experiment, &mut Lines) -> Result<()>,
) -> Result<Value> {
    let experiment = experiment_of(run)?;
    let family = Family::find(experiment.family())?;
    let mut lines = Lines::default();
    work(family, &experiment, &mut lines)?;
    Ok(json!(lines.0))
}

fn played(change: impl FnOnce(&mut Player)) -> Result<Value> {
    PLAYER.with_borrow_mut(|player| {
        let player = player.as_mut();
        let player = player.ok_or_else(|| Error::refused("the grid", "none was laid out"))?;
        change(player);
        let grid = &player.grid;
        let channels = grid.channels().min(3);
        let mut cells = String::with_capacity(grid.height() * grid.width());
        for y in 0..grid.height() {
            for x in 0..grid.width() {
                let bits = (0..channels).map(|c| u8::from(grid.get(0, y, x, c)) << c);
                cells.push(char::from(b'0' + bits.sum::<u8>()));
            }
        }
        Ok(json!({ "cells": cells }))
    })
}

fn paint(player: &mut Player, [x, y]: [i64; 2], radius: i64, value: bool) {
    let grid = &mut player.grid;
    let (height, width, channels) = (grid.height(), grid.width(), grid.channels());
    for (dx, dy) in (-radius..=radius).flat_map(|dx| (-radius..=radius).map(move |dy| (dx, dy))) {
        let inside = dx * dx + dy * dy <= radius * radius;
        let place = (usize::try_from(x + dx), usize::try_from(y + dy));
        if let (true, (Ok(x), Ok(y))) = (inside, place)
            && x < width
            && y < height
        {
            for c in 0..channels {
                grid.set(0, y, x, c, value);
            }
        }
    }
}
