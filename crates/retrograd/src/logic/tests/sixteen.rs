//! All sixteen gates in a place at once leave as many cells wrong as one after the other.

use super::small;
use crate::logic::BoundaryCondition::{Periodic, Zero};
use crate::logic::gates::GATES;
use crate::logic::rounding::places;
use crate::logic::rule::Rule;
use crate::logic::trial::{Grids, Sixteen, Stripped, Trial};
use crate::logic::{BitGrid, BoundaryCondition, HardCircuit, LogicCa};
use crate::rng::{Key, Stream};

/// Random gates that read something, so that most of them live.
fn gates(model: &LogicCa, stream: &mut Stream) -> Vec<u8> {
    let some = [1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 13, 14];
    let drawn = (0..model.gates()).map(|_| some[stream.below(some.len())]);
    drawn.collect()
}

/// Tries all gates in random places of random circuits, and each of them alone.
fn compare(model: &LogicCa, trial: &Trial, seed: u64) {
    let mut stream = Key::new(seed).stream();
    let sixteen = Sixteen::new(trial);
    let mut different = 0;
    for _ in 0..20 {
        let ops = gates(model, &mut stream);
        let mut circuit = HardCircuit::with_ops(model, &ops);
        let all = places(model, &circuit);
        // Gates near the outputs make a difference more often.
        let gate = model.gates() - 1 - stream.below(model.gates()).min(stream.below(model.gates()));
        let set = |circuit: &mut HardCircuit, op| {
            all[gate]
                .iter()
                .for_each(|&place| circuit.gates[place].op = op);
        };
        set(&mut circuit, 6);
        let stripped = Stripped::new(&circuit);
        if !stripped.places().any(|place| all[gate].contains(&place)) {
            continue;
        }
        let wrong = sixteen.wrong(&circuit, &stripped, &all[gate]);
        let alone: Vec<usize> = (0..GATES as u8)
            .map(|op| {
                set(&mut circuit, op);
                trial.wrong_of(&circuit)
            })
            .collect();
        assert_eq!(wrong[..], alone);
        different += usize::from(alone.iter().any(|&w| w != alone[0]));
    }
    assert!(different >= 3, "{different} of 20 gates made a difference");
}

fn grids(size: [usize; 3], boundary: BoundaryCondition, steps: usize, fires: bool) -> Grids {
    let [_, height, width] = size;
    let mut start = BitGrid::new(size, 2, boundary).unwrap();
    let mut stream = Key::new(width as u64).stream();
    start.randomise(&mut stream);
    let fire: Vec<bool> = (0..steps * height * width)
        .map(|_| stream.below(3) > 0)
        .collect();
    let grids = Grids::new(&start, steps, fires.then_some(&fire));
    grids
        .want(0, |s, y, x| (s + y + x) % 2 == 0)
        .want(1, |s, y, x| (s + y * x) % 3 == 0)
}

#[test]
fn on_grids() {
    for (seed, boundary) in [Periodic, Zero].into_iter().enumerate() {
        for (size, steps) in [
            ([1, 8, 8], 4),
            ([3, 5, 7], 3),
            ([2, 3, 64], 3),
            ([1, 4, 70], 3),
        ] {
            for fires in [false, true] {
                let model = small(boundary, steps, 1.0);
                let trial = Trial::Grids(vec![grids(size, boundary, steps, fires)]);
                compare(&model, &trial, 10 * size[2] as u64 + seed as u64);
            }
        }
    }
}

#[test]
fn on_grids_that_are_damaged() {
    let model = small(Zero, 5, 1.0);
    let damaged = grids([2, 6, 12], Zero, 5, false).erase([2, 3], [3, 1, 4, 4]);
    compare(&model, &Trial::Grids(vec![damaged]), 3);
}

/// With two channels a gate of the perception is in two places.
#[test]
fn on_boards() {
    for channels in [1, 2] {
        let mut spec = small(Periodic, 1, 1.0).spec().clone();
        spec.channels = channels;
        spec.update = vec![7 * channels, 7, 4, 1 + channels, channels];
        let model = LogicCa::new(spec, 2).unwrap();
        compare(&model, &Trial::of_rule(Rule::LIFE), 7);
    }
}
