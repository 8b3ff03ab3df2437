//! The hard circuit: the same bits as hard mode, simplified or not, here, in C and in Verilog.

use std::process::Command;

use super::small;
use crate::logic::BoundaryCondition::{Periodic, Zero};
use crate::logic::gates::hardest;
use crate::logic::hard::Gate;
use crate::logic::{BitGrid, HardCircuit, LogicBatch, LogicCa, Program, reference};
use crate::model::Model;
use crate::rng::Key;

/// Logits at random, with ties.
fn random_params(model: &LogicCa, seed: u64) -> Vec<f32> {
    let mut stream = Key::new(seed).purpose("hard").stream();
    (0..model.layout().len())
        .map(|_| stream.below(5) as f32)
        .collect()
}

fn random_bits(n: usize, seed: u64) -> Vec<bool> {
    let mut stream = Key::new(seed).purpose("bits").stream();
    (0..n).map(|_| stream.below(2) == 1).collect()
}

/// All steps of the soft model in hard mode.
fn hard_mode(model: &LogicCa, params: &[f32], input: &LogicBatch<f32>) -> Vec<bool> {
    let mut tape = reference::Tape::default();
    model.harden(params, &mut tape.p);
    reference::forward(model, input, &mut tape);
    tape.last_state().iter().map(|&v| v > 0.5).collect()
}

fn stages(circuit: &HardCircuit) -> Vec<(&'static str, HardCircuit)> {
    vec![
        ("as it is", circuit.clone()),
        ("folded", circuit.fold(false)),
        ("merged", circuit.fold(true)),
        ("pruned", circuit.prune()),
        ("folded and pruned", circuit.fold(true).prune()),
        ("resubstituted", circuit.fold(true).prune().resubstitute()),
        ("simplified", circuit.simplify()),
    ]
}

#[test]
fn bits_equal_hard_mode_before_and_after_every_simplification() {
    for (boundary, rate, size) in [
        (Periodic, 1.0, [2, 5, 7]),
        (Zero, 0.6, [2, 4, 63]),
        (Periodic, 0.6, [1, 3, 62]),
        (Zero, 1.0, [1, 2, 130]),
        (Periodic, 1.0, [3, 1, 1]),
        (Periodic, 1.0, [1, 2, 64]),
    ] {
        let model = small(boundary, 3, rate);
        let [b, h, w] = size;
        let mut sizes = Vec::new();
        for seed in 0..3 {
            let params = random_params(&model, seed);
            let bits = random_bits(b * h * w * 2, seed);
            let state = bits.iter().map(|&x| f32::from(u8::from(x)));
            let fire = (rate < 1.0).then(|| random_bits(3 * h * w, seed + 50));
            let input = LogicBatch::new(&model, state.collect(), size, fire.clone()).unwrap();
            let expected = hard_mode(&model, &params, &input);
            let circuit = HardCircuit::of(&model, &params);
            for (stage, circuit) in stages(&circuit) {
                circuit.check().unwrap();
                sizes.push(circuit.gates.len());
                let (plain, compact) = (Program::new(&circuit), Program::compact(&circuit));
                assert!(compact.len() <= plain.len());
                for program in [plain, compact] {
                    let mut grid = BitGrid::new(size, 2, boundary).unwrap();
                    grid.load(&input.state);
                    for t in 0..3 {
                        let fire = fire.as_ref().map(|f| &f[t * h * w..(t + 1) * h * w]);
                        grid.step(&program, fire);
                    }
                    let got: Vec<bool> = (0..b).flat_map(|s| grid.bits(s)).collect();
                    assert_eq!(got, expected, "{size:?} {stage}");
                }
            }
        }
        assert!(sizes[6] < sizes[0] / 2, "{sizes:?}");
    }
}

#[test]
fn circuits_of_few_inputs_shrink_by_their_truth_tables() {
    let mut spec = small(Periodic, 1, 1.0).spec().clone();
    spec.channels = 1;
    spec.perception = vec![9, 8, 4, 2, 1];
    spec.update = vec![4, 6, 6, 3, 2, 1];
    let model = LogicCa::new(spec, 0).unwrap();
    for seed in 0..20 {
        let params = random_params(&model, seed);
        let raw = HardCircuit::of(&model, &params);
        let small = raw.simplify();
        assert!(small.gates.len() <= raw.fold(true).prune().gates.len());
        for board in 0..512 {
            let around: Vec<bool> = (0..9).map(|i| board >> i & 1 == 1).collect();
            assert_eq!(
                raw.cell(&around),
                small.cell(&around),
                "seed {seed} board {board}"
            );
        }
    }
}

/// Grids of many chunks, with rows of a few words, of whole cache lines and of neither.
#[test]
fn large_grids_are_computed_like_single_cells() {
    for (seed, boundary, [height, width]) in [
        (0, Periodic, [5, 2100]),
        (1, Zero, [3, 4094]),
        (2, Periodic, [90, 70]),
        (3, Zero, [40, 700]),
    ] {
        let mut spec = small(boundary, 1, 1.0).spec().clone();
        spec.channels = 1;
        spec.perception = vec![9, 8, 4, 2, 1];
        spec.update = vec![4, 6, 6, 3, 2, 1];
        let model = LogicCa::new(spec, 0).unwrap();
        let circuit = HardCircuit::of(&model, &random_params(&model, seed)).simplify();
        let bits = random_bits(height * width, seed);
        let state: Vec<f32> = bits.iter().map(|&b| f32::from(u8::from(b))).collect();
        let mut grid = BitGrid::new([1, height, width], 1, boundary).unwrap();
        grid.load(&state);
        grid.step(&Program::compact(&circuit), None);
        let got = grid.bits(0);
        let at = |y: usize, x: usize| {
            let inside = (1..=height).contains(&y) && (1..=width).contains(&x);
            let place = (y + height - 1) % height * width + (x + width - 1) % width;
            (boundary == Periodic || inside) && bits[place]
        };
        for (cell, &got) in got.iter().enumerate() {
            let (y, x) = (cell / width, cell % width);
            let around: Vec<bool> = (0..9).map(|i| at(y + i / 3, x + i % 3)).collect();
            assert_eq!(vec![got], circuit.cell(&around), "seed {seed} ({y}, {x})");
        }
    }
}

/// Every function of three neighbours, as a sum of products.
#[test]
fn any_function_of_three_inputs_is_one_instruction() {
    for table in 0..256_u32 {
        let mut gates = Vec::new();
        let mut node = |op: u8, a: u32, b: u32| {
            gates.push(Gate { op, a, b });
            9 + gates.len() as u32 - 1
        };
        let mut sum = node(0, 0, 0);
        for row in (0..8_u32).filter(|row| table >> row & 1 == 1) {
            // The product of three neighbours, inverted where the row has a 0.
            let (a, b, c) = (row >> 2 & 1, row >> 1 & 1, row & 1);
            let both = node([8, 4, 2, 1][(2 * a + b) as usize], 0, 1);
            let product = node([2, 1][c as usize], both, 2);
            sum = node(7, sum, product);
        }
        let circuit = HardCircuit {
            channels: 1,
            boundary: Periodic,
            gates,
            outputs: vec![sum],
        };
        let (height, width) = (6, 70);
        let bits = random_bits(height * width, u64::from(table));
        let state: Vec<f32> = bits.iter().map(|&b| f32::from(u8::from(b))).collect();
        let program = Program::compact(&circuit);
        assert!(
            program.len() <= 1,
            "table {table}: {} instructions",
            program.len()
        );
        let mut grid = BitGrid::new([1, height, width], 1, Periodic).unwrap();
        grid.load(&state);
        grid.step(&program, None);
        let got = grid.bits(0);
        for y in 0..height {
            for x in 0..width {
                let above = (y + height - 1) % height * width;
                let cell = |x: usize| u32::from(bits[above + x % width]);
                let row = 4 * cell(x + width - 1) + 2 * cell(x) + cell(x + 1);
                assert_eq!(got[y * width + x], table >> row & 1 == 1, "table {table}");
            }
        }
    }
}

#[test]
fn the_last_gate_on_ties_is_seen() {
    let model = small(Zero, 1, 1.0);
    let params = random_params(&model, 1);
    let last: Vec<u8> = params
        .chunks_exact(16)
        .map(|logits| {
            (0..16)
                .rev()
                .max_by(|&i, &j| logits[i].total_cmp(&logits[j]).then(i.cmp(&j)))
        })
        .map(|i| i.unwrap() as u8)
        .collect();
    let first: Vec<u8> = params.chunks_exact(16).map(hardest).collect();
    assert_ne!(first, last);
    let right = HardCircuit::with_ops(&model, &first);
    let wrong = HardCircuit::with_ops(&model, &last);
    assert_eq!(right, HardCircuit::of(&model, &params));
    let differs = (0..64).any(|seed| {
        let around = random_bits(18, seed);
        right.cell(&around) != wrong.cell(&around)
    });
    assert!(differs, "no board tells the two apart");
}

#[test]
fn json_survives_and_broken_files_are_refused() {
    let model = small(Zero, 1, 1.0);
    let circuit = HardCircuit::of(&model, &random_params(&model, 2)).simplify();
    let text = circuit.to_json();
    assert_eq!(HardCircuit::from_json(&text).unwrap(), circuit);
    let mut bad = circuit.clone();
    bad.gates[0].a = 999;
    let error = HardCircuit::from_json(&bad.to_json())
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("gate 0") && error.contains("wire 999"),
        "{error}"
    );
    let mut bad = circuit.clone();
    bad.outputs[1] = 70_000;
    assert!(HardCircuit::from_json(&bad.to_json()).is_err());
    let mut bad = circuit.clone();
    bad.gates[0].op = 16;
    assert!(HardCircuit::from_json(&bad.to_json()).is_err());
    assert!(HardCircuit::from_json(&text[..text.len() / 2]).is_err());
    assert!(HardCircuit::from_json(&text.replace("circuit-1", "circuit-9")).is_err());
    assert!(circuit.to_svg().contains("</svg>"));
}

/// Runs a program that must be there.
fn tool(name: &str, arguments: &[&str], folder: &std::path::Path, input: &str) -> String {
    use std::io::Write;
    let mut child = Command::new(name)
        .args(arguments)
        .current_dir(folder)
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap_or_else(|e| panic!("{name}: {e}; the script ./test installs what tests need"));
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(input.as_bytes()).unwrap();
    drop(stdin);
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{name} {arguments:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn the_c_file_compiles_and_gives_the_same_bits() {
    for boundary in [Periodic, Zero] {
        let model = small(boundary, 1, 1.0);
        let circuit = HardCircuit::of(&model, &random_params(&model, 4));
        for circuit in [circuit.clone(), circuit.simplify()] {
            let folder = tempfile::tempdir().unwrap();
            std::fs::write(folder.path().join("circuit.c"), circuit.to_c()).unwrap();
            let arguments = [
                "-O1",
                "-Wall",
                "-Werror",
                "-Wno-unused-variable",
                "circuit.c",
                "-o",
                "circuit",
            ];
            tool("cc", &arguments, folder.path(), "");
            let (h, w, steps) = (7, 13, 5);
            let bits = random_bits(h * w * 2, 9);
            let text: String = bits.iter().map(|&b| if b { '1' } else { '0' }).collect();
            let input = format!("{h} {w} {steps}\n{text}\n");
            let got = tool("./circuit", &[], folder.path(), &input);
            let got: Vec<bool> = got
                .chars()
                .filter(|c| !c.is_whitespace())
                .map(|c| c == '1')
                .collect();
            let mut grid = BitGrid::new([1, h, w], 2, boundary).unwrap();
            let state: Vec<f32> = bits.iter().map(|&b| f32::from(u8::from(b))).collect();
            grid.load(&state);
            let program = Program::new(&circuit);
            (0..steps).for_each(|_| grid.step(&program, None));
            assert_eq!(got, grid.bits(0));
        }
    }
}

#[test]
fn the_verilog_module_gives_the_same_bits() {
    let model = small(Periodic, 1, 1.0);
    let circuit = HardCircuit::of(&model, &random_params(&model, 4));
    for circuit in [circuit.clone(), circuit.simplify()] {
        let folder = tempfile::tempdir().unwrap();
        let mut text = circuit.to_verilog();
        text.push_str(
            "module bench; reg [17:0] n; wire [1:0] y; logic_cell c(n, y);\ninitial begin\n",
        );
        let boards: Vec<Vec<bool>> = (0..200).map(|seed| random_bits(18, seed)).collect();
        for board in &boards {
            let number: u32 = board
                .iter()
                .enumerate()
                .map(|(i, &b)| u32::from(b) << i)
                .sum();
            text.push_str(&format!("n = 18'd{number}; #1 $display(\"%b\", y);\n"));
        }
        text.push_str("end endmodule\n");
        std::fs::write(folder.path().join("bench.v"), text).unwrap();
        let arguments = ["-g2005", "-o", "bench", "bench.v"];
        tool("iverilog", &arguments, folder.path(), "");
        let got = tool("vvp", &["-n", "bench"], folder.path(), "");
        let lines: Vec<&str> = got.split_whitespace().collect();
        assert_eq!(lines.len(), boards.len());
        for (line, board) in lines.iter().zip(&boards) {
            let y: Vec<bool> = line.chars().rev().map(|c| c == '1').collect();
            assert_eq!(y, circuit.cell(board));
        }
    }
}
