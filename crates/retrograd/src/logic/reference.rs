//! Plain loops over cells: the oracle.
//!
//! One cell at a time, one gate at a time, all sixteen relaxed gates of each. The gradient of a
//! cell is a pure function ([`compute_cell_gradients`]); [`accumulate_gradients`] merges cells in
//! their order, so that it makes no difference whether they were computed one after the other or
//! on many threads.

use super::circuit::Circuit;
use super::gates::{GATES, relaxed, relaxed_d_a, relaxed_d_b};
use super::grid::NEIGHBOURS;
use super::{LogicBatch, LogicCa};
use crate::{Scalar, parallel};

/// Cells whose gradients are held at the same time.
const CELLS: usize = 32;

/// What the reference keeps between forward and backward.
#[derive(Default)]
pub struct Tape<T> {
    /// The weights of the sixteen gates, for every gate: its softmax, or hard.
    pub p: Vec<T>,
    /// The state before every step and after the last, each (batch, height, width, channels).
    pub states: Vec<Vec<T>>,
    /// After backward, hᵢ = Σ g·gateᵢ(a, b) of every gate.
    pub h: Vec<T>,
}

impl<T> Tape<T> {
    /// The state after the last step.
    pub fn last_state(&self) -> &[T] {
        &self.states[self.states.len() - 1]
    }
}

/// The gradients that one cell contributes in one step.
#[derive(Clone, Debug, PartialEq)]
pub struct CellGradients<T> {
    /// g·gateᵢ(a, b) of every gate, added up over its uses in this cell.
    pub h: Vec<T>,
    /// With respect to the neighbourhoods, (channel, neighbour).
    pub d_neighbourhoods: Vec<T>,
}

/// The nine values around a cell for every channel, (channel, neighbour).
pub fn neighbourhoods<T: Scalar>(
    model: &LogicCa,
    input: &LogicBatch<T>,
    state: &[T],
    cell: usize,
) -> Vec<T> {
    let channels = model.spec().channels;
    let (height, width) = (input.height, input.width);
    let (sample, y, x) = place(input, cell);
    let mut values = vec![T::ZERO; channels * 9];
    for (n, &d) in NEIGHBOURS.iter().enumerate() {
        let boundary = model.spec().boundary;
        if let Some((y, x)) = boundary.neighbour((height, width), (y, x), d) {
            let first = ((sample * height + y) * width + x) * channels;
            for c in 0..channels {
                values[c * 9 + n] = state[first + c];
            }
        }
    }
    values
}

/// The grid, row and column of a cell counted over the whole batch.
fn place<T>(input: &LogicBatch<T>, cell: usize) -> (usize, usize, usize) {
    let (row, x) = (cell / input.width, cell % input.width);
    (row / input.height, row % input.height, x)
}

/// The values of a circuit, in place: inputs first, then each layer's outputs.
fn run_circuit<T: Scalar>(circuit: &Circuit, p: &[T], values: &mut [T]) {
    let mut first = 0;
    for layer in &circuit.layers {
        let (inputs, outputs) = values[first..].split_at_mut(layer.inputs);
        for j in 0..layer.a.len() {
            let (a, b) = (inputs[layer.a[j] as usize], inputs[layer.b[j] as usize]);
            let weights = &p[(layer.first + j) * GATES..][..GATES];
            outputs[j] = weights.iter().zip(relaxed(a, b)).map(|(&p, y)| p * y).sum();
        }
        first += layer.inputs;
    }
}

/// From the gradient of the last layer's outputs, at the end of `d_values`, to that of the inputs,
/// at its start; adds to `h`.
fn run_circuit_backward<T: Scalar>(
    circuit: &Circuit,
    p: &[T],
    values: &[T],
    d_values: &mut [T],
    h: &mut [T],
) {
    let mut first = circuit.values - circuit.outputs();
    for layer in circuit.layers.iter().rev() {
        first -= layer.inputs;
        let inputs = &values[first..first + layer.inputs];
        let (d_inputs, d_outputs) = d_values[first..].split_at_mut(layer.inputs);
        for j in 0..layer.a.len() {
            let (at_a, at_b) = (layer.a[j] as usize, layer.b[j] as usize);
            let (a, b) = (inputs[at_a], inputs[at_b]);
            let gate = (layer.first + j) * GATES;
            let weights = &p[gate..gate + GATES];
            let g = d_outputs[j];
            for (h, y) in h[gate..gate + GATES].iter_mut().zip(relaxed(a, b)) {
                *h += g * y;
            }
            let slope = |d: [T; GATES]| -> T { weights.iter().zip(d).map(|(&p, d)| p * d).sum() };
            d_inputs[at_a] += g * slope(relaxed_d_a(b));
            d_inputs[at_b] += g * slope(relaxed_d_b(a));
        }
    }
}

/// The values of the update circuit and, for every channel, of the perception circuit.
struct CellValues<T> {
    perception: Vec<T>,
    update: Vec<T>,
}

fn run_cell<T: Scalar>(model: &LogicCa, p: &[T], neighbourhoods: &[T]) -> CellValues<T> {
    let channels = model.spec().channels;
    let (perception, update) = (&model.perception, &model.update);
    let outputs = perception.outputs();
    let mut values = CellValues {
        perception: vec![T::ZERO; channels * perception.values],
        update: vec![T::ZERO; update.values],
    };
    for c in 0..channels {
        let neighbourhood = &neighbourhoods[c * 9..c * 9 + 9];
        let of_channel = &mut values.perception[c * perception.values..][..perception.values];
        of_channel[..9].copy_from_slice(neighbourhood);
        run_circuit(perception, p, of_channel);
        values.update[c] = neighbourhood[4];
        values.update[channels + c * outputs..][..outputs]
            .copy_from_slice(&of_channel[perception.values - outputs..]);
    }
    run_circuit(update, p, &mut values.update);
    values
}

/// The new channels of a cell.
pub fn step_cell<T: Scalar>(model: &LogicCa, p: &[T], neighbourhoods: &[T]) -> Vec<T> {
    let mut values = run_cell(model, p, neighbourhoods).update;
    values.split_off(model.update.values - model.spec().channels)
}

/// The gradients of one cell in one step: a pure function of the gates' weights, the cell's
/// neighbourhoods (channel, neighbour) and the gradient of its new channels.
pub fn compute_cell_gradients<T: Scalar>(
    model: &LogicCa,
    p: &[T],
    neighbourhoods: &[T],
    d_new: &[T],
) -> CellGradients<T> {
    let channels = model.spec().channels;
    let (perception, update) = (&model.perception, &model.update);
    let outputs = perception.outputs();
    let values = run_cell(model, p, neighbourhoods);
    let mut gradients = CellGradients {
        h: vec![T::ZERO; p.len()],
        d_neighbourhoods: vec![T::ZERO; channels * 9],
    };
    let mut d_update = vec![T::ZERO; update.values];
    d_update[update.values - channels..].copy_from_slice(d_new);
    run_circuit_backward(update, p, &values.update, &mut d_update, &mut gradients.h);
    let mut d_perception = vec![T::ZERO; perception.values];
    for c in 0..channels {
        d_perception.fill(T::ZERO);
        d_perception[perception.values - outputs..]
            .copy_from_slice(&d_update[channels + c * outputs..][..outputs]);
        run_circuit_backward(
            perception,
            p,
            &values.perception[c * perception.values..][..perception.values],
            &mut d_perception,
            &mut gradients.h,
        );
        let d_neighbourhood = &mut gradients.d_neighbourhoods[c * 9..c * 9 + 9];
        d_neighbourhood.copy_from_slice(&d_perception[..9]);
        d_neighbourhood[4] += d_update[c];
    }
    gradients
}

/// Merges one cell's gradients into the totals; to be called in the order of the cells.
pub fn accumulate_gradients<T: Scalar>(
    model: &LogicCa,
    input: &LogicBatch<T>,
    cell: usize,
    gradients: &CellGradients<T>,
    h: &mut [T],
    d_state: &mut [T],
) {
    for (total, &x) in h.iter_mut().zip(&gradients.h) {
        *total += x;
    }
    let channels = model.spec().channels;
    let (height, width) = (input.height, input.width);
    let (sample, y, x) = place(input, cell);
    for (n, &d) in NEIGHBOURS.iter().enumerate() {
        let boundary = model.spec().boundary;
        if let Some((y, x)) = boundary.neighbour((height, width), (y, x), d) {
            let first = ((sample * height + y) * width + x) * channels;
            for c in 0..channels {
                d_state[first + c] += gradients.d_neighbourhoods[c * 9 + n];
            }
        }
    }
}

/// Adds d_lᵢ = pᵢ (hᵢ − Σⱼ pⱼhⱼ) of one gate.
pub fn add_logit_gradient<T: Scalar>(p: &[T], h: &[T], d_logits: &mut [T]) {
    let mean: T = p.iter().zip(h).map(|(&p, &h)| p * h).sum();
    for ((d, &p), &h) in d_logits.iter_mut().zip(p).zip(h) {
        *d += p * (h - mean);
    }
}

/// Whether threads may share the work: a number that rounds at random has its own state on every
/// thread, and would not be repeatable.
fn threads<T: Scalar>(model: &LogicCa) -> bool {
    model.parallel && T::NAME != crate::verify::Rounded::NAME
}

/// All steps, with the weights `tape.p`. Leaves every state on the tape.
pub fn forward<T: Scalar>(model: &LogicCa, input: &LogicBatch<T>, tape: &mut Tape<T>) {
    let (channels, steps) = (model.spec().channels, model.spec().steps);
    tape.states.resize(steps + 1, Vec::new());
    tape.states[0].clone_from(&input.state);
    for t in 0..steps {
        let (before, after) = tape.states.split_at_mut(t + 1);
        let (old, new) = (&before[t], &mut after[0]);
        new.clone_from(old);
        parallel::for_each_chunk(new, channels, threads::<T>(model), |cell, new| {
            let (_, y, x) = place(input, cell);
            if input.fires(t, y, x) {
                let around = neighbourhoods(model, input, old, cell);
                new.copy_from_slice(&step_cell(model, &tape.p, &around));
            }
        });
    }
}

/// After [`forward`]: leaves h of every gate on the tape and returns the gradient of the first
/// state.
pub fn backward<T: Scalar>(
    model: &LogicCa,
    input: &LogicBatch<T>,
    tape: &mut Tape<T>,
    d_output: &[T],
) -> Vec<T> {
    let channels = model.spec().channels;
    let cells = input.batch * input.height * input.width;
    tape.h.clear();
    tape.h.resize(tape.p.len(), T::ZERO);
    let mut d_state = d_output.to_vec();
    let mut gradients: Vec<Option<CellGradients<T>>> = vec![None; CELLS.min(cells)];
    for t in (0..model.spec().steps).rev() {
        let d_new = std::mem::replace(&mut d_state, vec![T::ZERO; cells * channels]);
        for first in (0..cells).step_by(CELLS) {
            let some = &mut gradients[..CELLS.min(cells - first)];
            parallel::for_each_mut(some, threads::<T>(model), |i, gradients| {
                let cell = first + i;
                let (_, y, x) = place(input, cell);
                *gradients = input.fires(t, y, x).then(|| {
                    let around = neighbourhoods(model, input, &tape.states[t], cell);
                    let d_new = &d_new[cell * channels..][..channels];
                    compute_cell_gradients(model, &tape.p, &around, d_new)
                });
            });
            for (i, gradients) in some.iter().enumerate() {
                let cell = first + i;
                match gradients {
                    Some(g) => {
                        accumulate_gradients(model, input, cell, g, &mut tape.h, &mut d_state);
                    }
                    None => {
                        let own = cell * channels..(cell + 1) * channels;
                        for (d, &g) in d_state[own.clone()].iter_mut().zip(&d_new[own]) {
                            *d += g;
                        }
                    }
                }
            }
        }
    }
    d_state
}
