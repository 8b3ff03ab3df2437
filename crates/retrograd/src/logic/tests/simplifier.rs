//! The simplifier: every rule over all inputs, and whole circuits.

use crate::logic::BoundaryCondition::Zero;
use crate::logic::HardCircuit;
use crate::logic::hard::Gate;
use crate::rng::{Key, Stream};

/// Gates of all sixteen kinds at random, mostly on nodes not far back, so that they live.
fn random_circuit(channels: usize, gates: usize, seed: u64) -> HardCircuit {
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

/// Sixteen of eighteen inputs are read: all 65,536 rows.
#[test]
fn circuits_of_up_to_16_inputs_are_equal_in_every_row() {
    for (seed, used) in [(10, 9), (11, 12), (12, 14), (13, 16), (14, 16)] {
        let mut circuit = random_circuit(2, 150, seed);
        for gate in &mut circuit.gates {
            for node in [&mut gate.a, &mut gate.b] {
                if *node < 18 {
                    *node %= used;
                }
            }
        }
        let simplified = circuit.simplify();
        simplified.check().unwrap();
        for first in (0..1_u64 << used).step_by(64) {
            let input = |i: u32| -> u64 {
                let row = |r: u64| (first + r) >> i & 1;
                (0..64).map(|r| row(r) << r).sum()
            };
            let inputs: Vec<u64> = (0..18).map(input).collect();
            let expected = outputs(&circuit, &inputs);
            assert_eq!(expected, outputs(&simplified, &inputs), "{used} inputs");
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
