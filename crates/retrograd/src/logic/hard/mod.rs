//! The exact circuit that training leaves: every gate is the one with the largest logit.
//!
//! A [`HardCircuit`] computes the new channels of one cell from the nine neighbours of every
//! channel. [`HardCircuit::simplify`] makes it small, [`BitGrid`] runs it on 512 cells at a time,
//! and it can be written as JSON, C, Verilog and a drawing.

mod bits;
mod cover;
mod drawing;
mod drift;
mod export;
#[cfg(feature = "gpu")]
mod gpu;
mod library;
mod overview;
mod program;
mod rearrange;
mod resubstitute;
mod rewrite;
mod rows;
mod simplify;
mod symmetric;
mod window;

pub use bits::BitGrid;
#[cfg(feature = "gpu")]
pub use gpu::GpuGrid;
pub use program::Program;

use super::circuit::Circuit;
use super::gates::{GATES, PASS_A, PASS_B, hardest, on_bits};
use super::{BoundaryCondition, LogicCa};
use crate::{Error, Result};

/// One gate: its number among the sixteen and the nodes it reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Gate {
    /// The gate's number.
    pub op: u8,
    /// The first node read.
    pub a: u32,
    /// The second.
    pub b: u32,
}

/// A circuit for one cell. Nodes are numbered: first the inputs, channel by channel with nine
/// neighbours each, row-major; then the gates, each after what it reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HardCircuit {
    /// Channels of a cell.
    pub channels: usize,
    /// What lies beyond the border.
    pub boundary: BoundaryCondition,
    /// The gates in order.
    pub gates: Vec<Gate>,
    /// The node of every channel's new value.
    pub outputs: Vec<u32>,
}

impl HardCircuit {
    /// Everything that hard mode evaluates for one cell, gate by gate.
    pub fn of(model: &LogicCa, params: &[f32]) -> Self {
        let ops: Vec<u8> = params.chunks_exact(GATES).map(hardest).collect();
        Self::with_ops(model, &ops)
    }

    /// The same from the gates' numbers, in the order of the parameters.
    pub fn with_ops(model: &LogicCa, ops: &[u8]) -> Self {
        let channels = model.spec().channels;
        let mut gates = Vec::with_capacity(model.gates_per_cell());
        let inputs = (channels * 9) as u32;
        let mut run = |circuit: &Circuit, mut nodes: Vec<u32>| -> Vec<u32> {
            for layer in &circuit.layers {
                let reads = layer.a.iter().zip(&layer.b).enumerate();
                nodes = reads
                    .map(|(j, (&a, &b))| {
                        gates.push(Gate {
                            op: ops[layer.first + j],
                            a: nodes[a as usize],
                            b: nodes[b as usize],
                        });
                        inputs + gates.len() as u32 - 1
                    })
                    .collect();
            }
            nodes
        };
        let mut update_inputs: Vec<u32> = (0..channels as u32).map(|c| c * 9 + 4).collect();
        for c in 0..channels as u32 {
            update_inputs.extend(run(&model.perception, (c * 9..c * 9 + 9).collect()));
        }
        let outputs = run(&model.update, update_inputs);
        HardCircuit {
            channels,
            boundary: model.spec().boundary,
            gates,
            outputs,
        }
    }

    /// The number of inputs: nine for every channel.
    pub fn inputs(&self) -> usize {
        self.channels * 9
    }

    /// Sizes and wires fit: what is read from files is checked.
    pub fn check(&self) -> Result<()> {
        super::grid::check_shape(1, 1, self.channels)?;
        let inputs = self.inputs();
        for (i, gate) in self.gates.iter().enumerate() {
            let before = (inputs + i) as u32;
            if gate.op as usize >= GATES {
                return Err(Error::invalid(
                    format!("gate {i}"),
                    format!("number {}", gate.op),
                    "a number from 0 to 15",
                ));
            }
            if let Some(wire) = [gate.a, gate.b].into_iter().find(|&w| w >= before) {
                return Err(Error::invalid(
                    format!("gate {i}"),
                    format!("wire {wire}"),
                    format!("wires below {before}, the nodes before it"),
                ));
            }
        }
        if self.outputs.len() != self.channels {
            return Err(Error::invalid(
                "the circuit's outputs",
                self.outputs.len(),
                format!("{}, one for every channel", self.channels),
            ));
        }
        let nodes = inputs + self.gates.len();
        match self.outputs.iter().find(|&&o| o as usize >= nodes) {
            Some(wire) => Err(Error::invalid(
                "the circuit's outputs",
                format!("wire {wire}"),
                format!("wires below {nodes}"),
            )),
            None => Ok(()),
        }
    }

    /// One cell, bit by bit: the plain form that the others are compared with.
    pub fn cell(&self, neighbourhoods: &[bool]) -> Vec<bool> {
        let mut values = neighbourhoods.to_vec();
        for gate in &self.gates {
            let (a, b) = (values[gate.a as usize], values[gate.b as usize]);
            values.push(on_bits(gate.op, a, b));
        }
        self.outputs.iter().map(|&o| values[o as usize]).collect()
    }
}

/// How many gates of each kind training chose, kernels once.
pub fn gate_counts(params: &[f32]) -> [usize; GATES] {
    let mut counts = [0; GATES];
    for logits in params.chunks_exact(GATES) {
        counts[hardest(logits) as usize] += 1;
    }
    counts
}

/// Gates that do more than pass one of their inputs on.
pub fn active_gates(params: &[f32]) -> usize {
    let counts = gate_counts(params);
    counts.iter().sum::<usize>() - counts[PASS_A] - counts[PASS_B]
}
