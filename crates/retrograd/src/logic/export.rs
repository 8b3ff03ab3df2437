//! `retrograd export`: the circuit of a run, or one that was written before, in another form.

use super::evaluate::Player;
use super::family::circuit_of;
use super::patterns::StartState;
use super::{BitGrid, HardCircuit, LogicTask, write_circuit};
use crate::data::write_whole;
use crate::family::{Console, ExportOptions};
use crate::rng::Key;
use crate::train::{Experiment, Task};
use crate::{Error, Result};

/// How far a circuit is simplified, and what that means.
pub const SIMPLIFICATIONS: [(&str, &str); 3] = [
    ("learned", "gate by gate as training left it"),
    ("equal", "equal to it on all inputs; the default"),
    (
        "reached",
        "equal to it on the states that are reached from the start, and on no others: damage heals \
         no more, if it did",
    ),
];

/// A circuit in its files in a folder.
const CIRCUIT_FILES: [&str; 4] = ["circuit.json", "circuit.c", "circuit.v", "circuit.svg"];

/// The circuit of a run as JSON, C, Verilog and a drawing: one of them by the ending of --out, or all
/// of them in a folder.
pub(super) fn export(
    experiment: &Experiment,
    options: &ExportOptions,
    console: &mut dyn Console,
) -> Result<()> {
    if options.onnx {
        let why = "a circuit has no form in ONNX; --out NAME.c, .v, .json or .svg writes it";
        return Err(Error::refused("export --onnx", why));
    }
    let (task, learned) = circuit_of(experiment, &options.run)?;
    let circuit = match options.circuit.as_deref() {
        Some("learned") => learned,
        Some("reached") => reached(&task, &learned, console)?,
        _ => learned.simplify(),
    };
    write(&circuit, options, console)
}

/// The same of a circuit in a file.
pub(super) fn export_file(options: &ExportOptions, console: &mut dyn Console) -> Result<()> {
    let path = &options.run;
    let text = std::fs::read_to_string(path).map_err(Error::io(path, "read"))?;
    let learned =
        HardCircuit::from_json(&text).map_err(|error| Error::file(path, "the circuit", error))?;
    let circuit = match options.circuit.as_deref() {
        Some("learned") => learned,
        Some("reached") => {
            let why = "a circuit in a file has no start; give the folder of its run";
            return Err(Error::refused("export --circuit reached", why));
        }
        _ => learned.simplify(),
    };
    if options.out.is_none() {
        let why = "needs --out: a file that ends in .json, .c, .v or .svg, or a folder";
        return Err(Error::refused("export of a circuit's file", why));
    }
    write(&circuit, options, console)
}

/// The circuit that goes the same way from the start. What becomes of it after damage is said, beside what
/// becomes of the learned one.
fn reached(
    task: &LogicTask,
    learned: &HardCircuit,
    console: &mut dyn Console,
) -> Result<HardCircuit> {
    let (spec, data) = (task.model().spec(), task.data());
    let Some(start) = task.only_start()? else {
        let why = "needs one start and cells that all fire: from random starts, or with cells that act \
                   at random times, no state is out of reach";
        return Err(Error::refused("export --circuit reached", why));
    };
    let circuit = learned.simplify_reached(&start, spec.steps);
    let goal = data.goal(spec.channels, spec.boundary, &[]);
    let read = data.read_channels();
    let wrong_at_end = |circuit: &HardCircuit, damaged: bool| -> Result<usize> {
        let size @ [height, width] = data.grid;
        let mut player = Player::of_data(circuit, data, 1.0, size, Key::new(0))?;
        for t in 0..spec.steps {
            if damaged && t == spec.steps / 2 {
                let place = [width / 4, height / 4, width / 4, height / 4];
                player.grid.erase(0, place);
            }
            player.step();
        }
        let cells = goal.iter().enumerate().filter(|&(i, &wanted)| {
            let (cell, c) = (i / read, i % read);
            player.grid.get(0, cell / width, cell % width, c) != (wanted > 0.5)
        });
        Ok(cells.count())
    };
    console.value("cells wrong", &wrong_at_end(&circuit, false)?);
    console.value("cells wrong, damaged", &wrong_at_end(&circuit, true)?);
    let before = wrong_at_end(learned, true)?;
    console.value("cells wrong, damaged, as learned", &before);
    Ok(circuit)
}

fn write(circuit: &HardCircuit, options: &ExportOptions, console: &mut dyn Console) -> Result<()> {
    let out = options.out.as_deref().unwrap_or(&options.run);
    let ending = out.extension().and_then(|e| e.to_str());
    let text = match ending {
        Some("json") => circuit.to_json(),
        Some("c") => circuit.to_c(),
        Some("v") => circuit.to_verilog(),
        Some("svg") => circuit.to_svg(),
        Some(_) if !out.is_dir() => {
            return Err(Error::invalid(
                "--out",
                out.display(),
                "a file that ends in .json, .c, .v or .svg, or a folder",
            ));
        }
        _ => {
            for name in CIRCUIT_FILES {
                options.check_output(&out.join(name))?;
            }
            std::fs::create_dir_all(out).map_err(Error::io(out, "create the folder"))?;
            write_circuit(circuit, out)?;
            console.value("gates", &circuit.gates.len());
            let files = format!("{}/circuit.{{json,c,v,svg}}", out.display());
            console.value("circuit", &files);
            return Ok(());
        }
    };
    options.check_output(out)?;
    write_whole(out, |file| file.write_all(text.as_bytes()))?;
    console.value("gates", &circuit.gates.len());
    console.value("circuit", &out.display());
    Ok(())
}

impl LogicTask {
    /// The one start that there is, where every cell fires in every step.
    fn only_start(&self) -> Result<Option<BitGrid>> {
        let (spec, data) = (self.model().spec(), self.data());
        if data.start == StartState::Random || spec.fire_rate < 1.0 {
            return Ok(None);
        }
        let [height, width] = data.grid;
        let mut state = vec![0.0; height * width * spec.channels];
        data.fill_start(spec.channels, &mut Key::new(0).stream(), &mut state);
        let mut start = BitGrid::new([1, height, width], spec.channels, spec.boundary)?;
        start.load(&state);
        Ok(Some(start))
    }
}
