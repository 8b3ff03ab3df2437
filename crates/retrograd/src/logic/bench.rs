//! Differentiable-logic automata: training steps of the five experiments, and Life on bits.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use crate::logic::{BitGrid, BoundaryCondition, HardCircuit, LogicCa, LogicTask, Program};
use crate::model::Model;
use crate::rng::Key;
use crate::train::{Clip, Example, Experiment, Lesson, Stepper, Task, TensorFile};
use crate::{Error, Loss, Pass, Result};

use crate::bench::tensor;
use crate::bench::{BenchDevice, Growth, Prepared, Workload, on_gpu, problem, sharded, step_once};

pub(crate) const WORKLOADS: &[Workload] = &[
    Workload {
        name: "logic-life",
        about: "Game of Life, a training step on 20 boards",
        build: |device, ready| step_of(ready("life")?, device),
    },
    Workload {
        name: "logic-checkerboard",
        about: "checkerboard, a training step through 20 steps of two 16×16 grids",
        build: |device, ready| step_of(ready("checkerboard")?, device),
    },
    Workload {
        name: "logic-async",
        about: "asynchronous checkerboard, a training step through 50 steps of 14×14 cells",
        build: |device, ready| step_of(published_async(ready("checkerboard-async")?), device),
    },
    Workload {
        name: "logic-lizard",
        about: "lizard, a training step through 12 steps of 20×20 cells of 128 channels",
        build: |device, ready| step_of(ready("lizard")?, device),
    },
    Workload {
        name: "logic-g",
        about: "coloured G, a training step through 15 steps of 16×16 cells of 64 channels",
        build: |device, ready| step_of(ready("colored-g")?, device),
    },
    Workload {
        name: "logic-hard-life",
        about: "a circuit of the Game of Life on a torus of 2046×1024 bits, on one thread",
        build: |device, _| hard_life(device),
    },
];

/// The checkerboard's training step with one of its numbers growing.
pub(crate) const GROWTHS: &[Growth] = &[
    Growth {
        name: "logic-cells",
        about: "checkerboard, a training step through 20 steps of two grids",
        axis: "cells of a grid",
        first: 64,
        power: 1,
        build: |cells, ready| step_of(with_cells(ready("checkerboard")?, cells), BenchDevice::Cpu),
    },
    Growth {
        name: "logic-steps",
        about: "checkerboard, a training step on two 16×16 grids",
        axis: "steps of the automaton",
        first: 2,
        power: 1,
        build: |steps, ready| step_of(with_steps(ready("checkerboard")?, steps), BenchDevice::Cpu),
    },
];

/// A grid of so many cells, a power of two: square, or twice as wide as high.
fn with_cells(mut experiment: Experiment, cells: usize) -> Experiment {
    let height = 1 << (cells.ilog2() / 2);
    let grid = vec![height as i64, (cells / height) as i64];
    experiment.data.insert("grid".into(), grid.into());
    experiment
}

fn with_steps(mut experiment: Experiment, steps: usize) -> Experiment {
    experiment
        .model
        .insert("steps".into(), (steps as i64).into());
    experiment
}

/// As the experiments clip.
const CLIP: Clip = Clip {
    element: Some(100.0),
    norm: None,
};

/// The asynchronous checkerboard with the paper's sizes: what others are compared on. The ready one has fewer
/// layers and steps, and a larger grid.
fn published_async(mut experiment: Experiment) -> Experiment {
    let mut widths = vec![264];
    widths.extend([256; 14]);
    widths.extend([128, 64, 32, 16, 8, 8]);
    experiment.model.insert("update".into(), widths.into());
    experiment.model.insert("steps".into(), 50.into());
    experiment.data.insert("grid".into(), vec![14, 14].into());
    experiment
}

/// A training step as the loop makes it, with a new start every time.
fn step_of(experiment: Experiment, device: BenchDevice) -> Result<Prepared> {
    device.is_cpu()?;
    let mut task = LogicTask::new(&experiment)?;
    let params = task.model().init(0);
    let mut stepper = Stepper::new(task.model(), params, experiment.train.optimizer);
    let mut example = None;
    let (same, for_gpu) = (experiment.clone(), experiment.clone());
    let optimizer = experiment.train.optimizer;
    let mut step = 0;
    let fused = Arc::new(AtomicBool::new(false));
    let switch = fused.clone();
    let spec = task.model().spec();
    let [height, width] = task.data().grid;
    let cells = height * width * experiment.train.batch.unwrap_or(1);
    let gates = task.model().gates_per_cell() * cells * spec.steps;
    // 3 multiply-adds forward, the same again in backward, and 9 more there.
    let flops = 2.0 * 15.0 * gates as f64 * spec.fire_rate;
    Ok(Prepared {
        step: Box::new(move || {
            task.batch(step, &mut example).expect("a batch");
            step += 1;
            let (Some(example), model) = (&example, task.model()) else {
                return;
            };
            let pass = Pass::training(Key::new(0));
            let lesson = Lesson::new(Loss::SumSquares, example, &pass);
            step_once(&mut stepper, model, &lesson, &CLIP, &switch);
        }),
        flops: Some(flops),
        rate: None,
        problem: Some(Box::new(move || problem_of(&experiment))),
        fused: Some(fused),
        sharded: Some(sharded(move || LogicTask::new(&same), optimizer, CLIP)),
        on_gpu: Some(Box::new(move || {
            let (task, example) = first_batch(&for_gpu)?;
            on_gpu(task.model(), Loss::SumSquares, optimizer, CLIP, &example)
        })),
    })
}

fn first_batch(experiment: &Experiment) -> Result<(LogicTask, Example<LogicCa>)> {
    let mut task = LogicTask::new(experiment)?;
    let mut example = None;
    task.batch(0, &mut example)?;
    match example {
        Some(example) => Ok((task, example)),
        None => Err(Error::invalid("the first step", "no batch", "one")),
    }
}

/// The first step's batch.
fn problem_of(experiment: &Experiment) -> Result<TensorFile> {
    let (task, example) = first_batch(experiment)?;
    let optimizer = experiment.train.optimizer;
    let mut file = problem(task.model(), Loss::SumSquares, optimizer, &CLIP, &example)?;
    let spec = serde_json::to_string(task.model().spec()).expect("plain values");
    file.metadata.insert("model".into(), spec);
    let input = &example.input;
    let shape = [input.batch, input.height, input.width].map(|n| n as f32);
    let shape = tensor("batch/shape", &[3], shape.to_vec());
    file.tensors.push(shape);
    if let Some(fire) = &input.fire {
        let values: Vec<f32> = fire.iter().map(|&f| f32::from(u8::from(f))).collect();
        file.tensors
            .push(tensor("batch/fire", &[values.len()], values));
    }
    Ok(file)
}

/// A circuit that training with the `life` experiment left.
const LIFE_CIRCUIT: &str = include_str!("life_circuit.json");

fn hard_life(device: BenchDevice) -> Result<Prepared> {
    device.is_cpu()?;
    let circuit = HardCircuit::from_json(LIFE_CIRCUIT)?.simplify();
    let right = crate::logic::evaluate::life_boards_right(&circuit);
    if right != 512 {
        let problem = format!("right on {right} of 512 boards");
        return Err(Error::refused("the circuit", problem));
    }
    let program = Program::compact(&circuit);
    let (height, width) = (1024, 2046);
    let mut grid = BitGrid::new([1, height, width], 1, BoundaryCondition::Periodic)?;
    grid.randomise(&mut Key::new(1).stream());
    Ok(Prepared {
        step: Box::new(move || grid.step(&program, None)),
        flops: None,
        rate: Some(("cell_updates_per_s", (height * width) as f64)),
        problem: None,
        fused: None,
        sharded: None,
        on_gpu: None,
    })
}
