//! The memory that training an automaton takes, from its description alone: nothing is built.

use super::{LogicData, LogicSpec};
use crate::budget::{Demand, product};
use crate::optim::OptimizerSpec;
use crate::train::memory::of_params;

/// Bytes of a vector of 16 numbers, the unit of the fast kernels.
const VECTOR: u128 = 64;

/// The demand of training: batch, grid, steps and kernels could be smaller.
pub(super) fn demand(
    spec: &LogicSpec,
    data: &LogicData,
    batch: usize,
    optimizer: OptimizerSpec,
) -> Demand<'static> {
    let [height, width] = data.grid.map(|n| n as u64);
    let sizes = [
        ("train.batch", batch as u64),
        ("data.grid[0]", height),
        ("data.grid[1]", width),
        ("model.steps", spec.steps as u64),
        ("model.kernels", spec.kernels as u64),
    ];
    let spec = spec.clone();
    Demand::of(sizes, move |[batch, height, width, steps, kernels]| {
        let gates = gates(&spec, kernels);
        let cells = product([batch, height, width]);
        let mut bytes = of_params(1, &optimizer).saturating_mul(gates.saturating_mul(16));
        // Probabilities, coefficients and wires of every gate.
        let mut add = |factors: [u128; 3]| {
            let part = factors.into_iter().fold(1, u128::saturating_mul);
            bytes = bytes.saturating_add(part);
        };
        add([gates, 120, 1]);
        let vectors = cells.div_ceil(16);
        let channels = spec.channels as u128;
        let steps = u128::from(steps);
        let inputs = spec.update.first().map_or(0, |&n| n as u128);
        // Neighbourhoods of every step, the inputs of the update circuit, and partial sums.
        add([steps, channels * 9 * VECTOR, vectors.saturating_add(1)]);
        add([steps, inputs * VECTOR, vectors.saturating_add(6)]);
        add([vectors.div_ceil(3).saturating_add(1), gates, 16]);
        // States, goals, outputs and their gradients; and which cells fire.
        add([cells, channels, 40]);
        if spec.fire_rate < 1.0 {
            add([steps, cells, 10]);
        }
        bytes
    })
}

/// The gates of so many kernels and of the update circuit.
fn gates(spec: &LogicSpec, kernels: u64) -> u128 {
    let after = |widths: &[usize]| widths.iter().skip(1).map(|&w| w as u128).sum::<u128>();
    let kernel = after(&spec.perception).saturating_mul(kernels.into());
    kernel.saturating_add(after(&spec.update))
}
