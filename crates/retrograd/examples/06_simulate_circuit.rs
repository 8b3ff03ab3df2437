//! Builds the Game of Life from logic gates, makes the circuit small, and runs it on bits.
//! (A trained automaton gives such a circuit through `HardCircuit::of`, and `retrograd train life`
//! leaves one as `circuit.json` for `HardCircuit::from_json`.)
//!
//! cargo run --release --example 06_simulate_circuit

use retrograd::logic::hard::Gate;
use retrograd::logic::{BitGrid, BoundaryCondition, HardCircuit, Program, picture};

const AND: u8 = 1;
const XOR: u8 = 6;
const OR: u8 = 7;
const NOT_A_AND_B: u8 = 4;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // Nodes 0 to 8 are the 3 × 3 neighbourhood, row by row; every gate is a new node.
    let mut gates = Vec::new();
    let mut gate = |op: u8, a: u32, b: u32| {
        gates.push(Gate { op, a, b });
        9 + gates.len() as u32 - 1
    };
    // Counts the living neighbours in three bits; from 4 on the highest stays set.
    let zero = gate(XOR, 0, 0);
    let (mut ones, mut twos, mut four) = (zero, zero, zero);
    for neighbour in [0, 1, 2, 3, 5, 6, 7, 8] {
        let carry = gate(AND, ones, neighbour);
        ones = gate(XOR, ones, neighbour);
        let carry_on = gate(AND, twos, carry);
        twos = gate(XOR, twos, carry);
        four = gate(OR, four, carry_on);
    }
    // Two or three neighbours, and three of them or alive already.
    let two_or_three = gate(NOT_A_AND_B, four, twos);
    let three_or_alive = gate(OR, ones, 4);
    let next = gate(AND, two_or_three, three_or_alive);
    let circuit = HardCircuit {
        channels: 1,
        boundary: BoundaryCondition::Periodic,
        gates,
        outputs: vec![next],
    };
    circuit.check()?;
    let small = circuit.simplify();
    let [before, after] = [&circuit, &small].map(|c| c.gates.len());
    println!("{before} gates, {after} after simplifying");
    let right = retrograd::logic::evaluate::life_boards_right(&small);
    println!("right on {right} of the 512 boards of 3 × 3 cells");

    let mut grid = BitGrid::new([1, 12, 24], 1, BoundaryCondition::Periodic)?;
    for (y, x) in [(1, 2), (2, 3), (3, 1), (3, 2), (3, 3)] {
        grid.set(0, y, x, 0, true); // a glider
    }
    let program = Program::new(&small);
    for _ in 0..24 {
        grid.step(&program, None); // 512 cells at a time
    }
    println!("after 24 steps the glider is 6 cells further:");
    print!("{}", picture::text(&grid, 1));
    Ok(())
}
