//! The simplifier: every rule over all inputs, and whole circuits.

use crate::logic::BoundaryCondition::Zero;
use crate::logic::hard::Gate;
use crate::logic::{BitGrid, HardCircuit, Program};
use crate::rng::{Key, Stream};

/// Gates of all sixteen kinds at random, mostly on nodes not far back, so that they live.
pub(in crate::logic) fn random_circuit(channels: usize, gates: usize, seed: u64) -> HardCircuit {
    let mut stream = Key::new(seed).purpose("circuit").stream();
    let inputs = channels * 9;
    let read = |stream: &mut Stream, nodes: usize| {
        let near = nodes.min(40);
        if stream.below(4) == 0 {
            stream.below(nodes) as u32
        } else {
            (nodes - near + stream.below(near)) as u32
        }
    };
    let gates: Vec<Gate> = (0..gates)
        .map(|i| Gate {
            op: stream.below(16) as u8,
            a: read(&mut stream, inputs + i),
            b: read(&mut stream, inputs + i),
        })
        .collect();
    let last = (inputs + gates.len()) as u32;
    HardCircuit {
        channels,
        boundary: Zero,
        outputs: (0..channels as u32).map(|c| last - 1 - c).collect(),
        gates,
    }
}

/// The same of gates that need both inputs alone: little of it folds away.
fn lasting_circuit(channels: usize, gates: usize, seed: u64) -> HardCircuit {
    let mut circuit = random_circuit(channels, gates, seed);
    for gate in &mut circuit.gates {
        gate.op = [1, 2, 4, 6, 7, 8, 9, 11, 13, 14][usize::from(gate.op) % 10];
    }
    circuit
}

/// All outputs, 64 cells at a time.
fn outputs(circuit: &HardCircuit, inputs: &[u64]) -> Vec<u64> {
    let mut nodes = inputs.to_vec();
    for gate in &circuit.gates {
        let (a, b) = (nodes[gate.a as usize], nodes[gate.b as usize]);
        let row = |bit: u8, rows: u64| if gate.op >> bit & 1 == 1 { rows } else { 0 };
        nodes.push(row(3, !a & !b) | row(2, !a & b) | row(1, a & !b) | row(0, a & b));
    }
    circuit.outputs.iter().map(|&o| nodes[o as usize]).collect()
}

/// On random inputs, as many rows as asked for.
fn assert_equal(a: &HardCircuit, b: &HardCircuit, words: usize, what: &str) {
    b.check().unwrap();
    let mut stream = Key::new(9).purpose("rows").stream();
    for _ in 0..words {
        let inputs: Vec<u64> = (0..a.inputs()).map(|_| stream.u64()).collect();
        assert_eq!(outputs(a, &inputs), outputs(b, &inputs), "{what}");
    }
}

#[test]
fn circuits_of_10_to_2000_gates_stay_equal_and_shrink() {
    for (seed, gates, channels) in [
        (0, 10, 1),
        (1, 30, 2),
        (2, 100, 4),
        (3, 300, 6),
        (4, 700, 12),
        (5, 2000, 30),
        (6, 2000, 8),
    ] {
        let circuit = random_circuit(channels, gates, seed);
        let folded = circuit.fold(true).prune();
        let rewritten = folded.rewrite();
        let simplified = circuit.simplify();
        let what = format!("{gates} gates, seed {seed}");
        assert_equal(&circuit, &folded, 64, &what);
        assert_equal(&circuit, &rewritten, 64, &what);
        assert_equal(&circuit, &simplified, 64, &what);
        assert!(rewritten.gates.len() <= folded.gates.len(), "{what}");
        assert!(simplified.gates.len() <= rewritten.gates.len(), "{what}");
        assert_eq!(simplified, circuit.simplify(), "{what}: not the same twice");
    }
}

/// A random circuit that reads the first of its eighteen inputs alone.
pub(in crate::logic) fn of_few_inputs(used: u32, gates: usize, seed: u64) -> HardCircuit {
    let mut circuit = random_circuit(2, gates, seed);
    for gate in &mut circuit.gates {
        for node in [&mut gate.a, &mut gate.b] {
            if *node < 18 {
                *node %= used;
            }
        }
    }
    circuit
}

/// 64 rows of eighteen inputs, from one on.
pub(in crate::logic) fn rows_from(first: u64) -> Vec<u64> {
    let input = |i: u32| -> u64 {
        let row = |r: u64| (first + r) >> i & 1;
        (0..64).map(|r| row(r) << r).sum()
    };
    (0..18).map(input).collect()
}

/// Sixteen of eighteen inputs are read: all 65,536 rows, after every part of the simplifier alone and after
/// all of it.
#[test]
fn circuits_of_up_to_16_inputs_are_equal_in_every_row() {
    for (seed, used) in [(10, 9), (11, 12), (12, 14), (13, 16), (14, 16)] {
        let circuit = of_few_inputs(used, 150, seed);
        let folded = circuit.fold(true).prune();
        let parts = [
            ("folded", folded.clone()),
            ("rewritten", folded.rewrite()),
            ("resubstituted", folded.resubstitute()),
            ("in windows", folded.by_windows()),
            ("simplified", circuit.simplify()),
        ];
        for (part, smaller) in parts {
            smaller.check().unwrap();
            assert!(smaller.gates.len() <= folded.gates.len(), "{part}");
            for first in (0..1_u64 << used).step_by(64) {
                let inputs = rows_from(first);
                let expected = outputs(&circuit, &inputs);
                assert_eq!(
                    expected,
                    outputs(&smaller, &inputs),
                    "{part}, {used} inputs"
                );
            }
        }
    }
}

/// What is equal on reached states alone goes the same way from its start, all channels, step by step;
/// and somewhere else it does not, or nothing was gained.
#[test]
fn circuits_that_are_equal_where_they_are_reached_go_the_same_way() {
    for seed in [20, 21, 22] {
        let circuit = lasting_circuit(3, 120, seed);
        let mut start = BitGrid::new([1, 6, 7], 3, Zero).unwrap();
        start.set(0, 3, 3, seed as usize % 3, true);
        let steps = 5;
        let reached = circuit.simplify_reached(&start, steps);
        reached.check().unwrap();
        let equal = circuit.simplify();
        assert!(reached.gates.len() < equal.gates.len());
        let programs = [Program::new(&circuit), Program::new(&reached)];
        let mut grids = [start.clone(), start.clone()];
        for _ in 0..steps {
            for (grid, program) in grids.iter_mut().zip(&programs) {
                grid.step(program, None);
            }
            assert_eq!(grids[0].bits(0), grids[1].bits(0));
        }
    }
}

/// Each of the 256 pairs of gates in a row, in every arrangement of three inputs, over all of them:
/// what folding does to constants, wires, inverters and doubled inputs.
#[test]
fn every_rule_of_folding_holds_for_all_inputs() {
    for first in 0..16 {
        for second in 0..16 {
            for (a, b) in [(9, 2), (2, 9), (9, 9), (9, 0), (1, 9)] {
                let circuit = HardCircuit {
                    channels: 1,
                    boundary: Zero,
                    gates: vec![
                        Gate {
                            op: first,
                            a: 0,
                            b: 1,
                        },
                        Gate { op: second, a, b },
                    ],
                    outputs: vec![10],
                };
                let inputs: Vec<u64> = [0xAA, 0xCC, 0xF0, 0, 0, 0, 0, 0, 0].to_vec();
                let expected = outputs(&circuit, &inputs)[0] & 0xFF;
                for smaller in [
                    circuit.fold(false),
                    circuit.fold(true).prune(),
                    circuit.simplify(),
                ] {
                    smaller.check().unwrap();
                    let got = outputs(&smaller, &inputs)[0] & 0xFF;
                    assert_eq!(got, expected, "gates {first} and {second} on {a}, {b}");
                }
            }
        }
    }
}

/// Gate by gate up to 200, each box in a place of its own; beyond that by depth and channel.
#[test]
fn drawings_show_every_gate_once_and_overviews_every_depth() {
    let circuit = lasting_circuit(2, 150, 30).fold(true).prune();
    assert!((20..=200).contains(&circuit.gates.len()));
    let svg = circuit.to_svg();
    let boxes: Vec<(f64, f64)> = svg
        .lines()
        .filter_map(|line| line.strip_prefix("<rect x=\""))
        .map(|line| {
            let mut numbers = line.split('"');
            let x = numbers.next().unwrap().parse().unwrap();
            (x, numbers.nth(1).unwrap().parse().unwrap())
        })
        .collect();
    let mut read = [false; 18];
    for gate in circuit.gates.iter().filter(|g| !matches!(g.op, 0 | 15)) {
        for node in [gate.a, gate.b]
            .map(|n| n as usize)
            .into_iter()
            .filter(|&n| n < 18)
        {
            read[node] = true;
        }
    }
    let inputs = read.iter().filter(|&&r| r).count();
    assert_eq!(boxes.len(), inputs + circuit.gates.len() + 2);
    for (i, a) in boxes.iter().enumerate() {
        for b in &boxes[..i] {
            // A box is 13 high.
            assert!(a.0 != b.0 || (a.1 - b.1).abs() > 13.0, "{a:?} {b:?}");
        }
    }
    let large = lasting_circuit(12, 900, 31).fold(true).prune();
    assert!(large.gates.len() > 200);
    let svg = large.to_svg();
    assert!(svg.contains(&format!("{} gates by depth", large.gates.len())));
    assert!(svg.contains("11′") && svg.ends_with("</svg>\n"));
}

/// The sum of a table's rows, on the first inputs of nine.
fn of_table(inputs: u32, bit: impl Fn(u32) -> bool) -> HardCircuit {
    let mut gates: Vec<Gate> = Vec::new();
    let push = |gates: &mut Vec<Gate>, op, a, b| {
        gates.push(Gate { op, a, b });
        8 + gates.len() as u32
    };
    let mut sum = push(&mut gates, 0, 0, 0);
    for row in (0..1 << inputs).filter(|&row| bit(row)) {
        let mut all = push(&mut gates, 15, 0, 0);
        for input in 0..inputs {
            let op = if row >> input & 1 == 1 { 1 } else { 2 };
            all = push(&mut gates, op, all, input);
        }
        sum = push(&mut gates, 7, sum, all);
    }
    HardCircuit {
        channels: 1,
        boundary: Zero,
        gates,
        outputs: vec![sum],
    }
}

/// Functions of how many of their first inputs are 1, and of up to two others, in every row.
#[test]
fn what_is_rebuilt_from_a_count_is_equal_in_every_row() {
    let mut stream = Key::new(12).purpose("counts").stream();
    let mut rebuilt = 0;
    for counted in 4..8 {
        for beside in 0..3 {
            let values: Vec<bool> = (0..4 * (counted + 1))
                .map(|_| stream.below(2) == 1)
                .collect();
            let circuit = of_table(counted + beside, |row| {
                let count = (row & ((1 << counted) - 1)).count_ones();
                values[(count + (counted + 1) * (row >> counted)) as usize]
            });
            let small = circuit.fold(true).prune();
            let Some(made) = small.by_count() else {
                continue;
            };
            made.check().unwrap();
            rebuilt += 1;
            for first in (0..1_u64 << (counted + beside)).step_by(64) {
                let inputs = &rows_from(first)[..9];
                assert_eq!(
                    outputs(&small, inputs),
                    outputs(&made, inputs),
                    "{counted} + {beside}"
                );
            }
        }
    }
    assert!(rebuilt >= 10, "{rebuilt}");
}

/// Life, from the sum of its 140 rows.
#[test]
fn life_is_found_to_be_a_count() {
    let rule = crate::logic::rule::Rule::LIFE;
    let circuit = of_table(9, |row| {
        let alive = row >> 4 & 1 == 1;
        rule.lives(alive, (row.count_ones() - u32::from(alive)) as usize)
    });
    let counted = circuit.fold(true).prune().by_count().unwrap();
    let small = counted.simplify();
    assert_eq!(crate::logic::evaluate::boards_right(rule, &small), 512);
    assert!(small.gates.len() <= 27, "{}", small.gates.len());
}
