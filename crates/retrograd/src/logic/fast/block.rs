//! A block of cells on one thread: a step forward, and the same step backward.

use std::cell::RefCell;

use super::kernels::{layer_backward, layer_forward};
use super::lanes::{Aligned, Lanes};
use super::plan::LayerPlan;
use crate::logic::LogicCa;
use crate::logic::circuit::Circuit;
use crate::model::Model;
use crate::simd::Simd;

/// The most vectors of sixteen cells in a block. Large blocks share the cost of a gate's
/// coefficients and sums; what backward recomputes must fit a core's cache. Measured for the
/// checkerboard on two cores with 1 MB each: 14.4, 13.9 and 15.6 ms a step with 2, 3 and 4.
pub(super) const BLOCK: usize = 3;
crate::cuts::cuts!(BLOCK);

/// Blocks that a step of that many vectors is cut into: as few as possible, but an even number, so
/// that two cores get the same. Their sizes differ by at most one.
pub(super) fn block_count(vectors: usize) -> usize {
    vectors.div_ceil(BLOCK).next_multiple_of(2).min(vectors)
}

/// The first vector of a block; that of the block after the last is the number of vectors.
pub(super) fn block_start(block: usize, blocks: usize, vectors: usize) -> usize {
    block * vectors / blocks
}

/// A block of cells: what it gives and what it keeps.
#[derive(Default)]
pub(super) struct Block {
    /// (channel, vector) of the new state; in backward of its gradient.
    pub new: Aligned,
    /// For every step, the inputs of the update circuit, (input, vector).
    pub inputs: Vec<Aligned>,
    /// (channel, neighbour, vector).
    pub d_neighbourhoods: Aligned,
    /// Σ (g, ga, gb, gab) of every gate, in the order of visits.
    pub sums: Vec<[f32; 4]>,
}

/// What a block needs while it is computed; each thread has one.
#[derive(Default)]
pub(super) struct Workspace {
    update: Aligned,
    perception: Aligned,
    d_a: Aligned,
    d_b: Aligned,
}

thread_local! {
    pub(super) static SCRATCH: RefCell<Workspace> = RefCell::default();
}

impl Workspace {
    /// Workspace for a block of the model.
    pub fn fit(&mut self, model: &LogicCa) {
        let widest = |values: &Circuit| {
            let inputs = values.layers.iter().map(|l| l.inputs).max();
            inputs.unwrap_or(0).max(values.outputs())
        };
        let widest = widest(&model.update).max(widest(&model.perception));
        self.update.resize(model.update.values * BLOCK);
        self.perception.resize(model.perception.values * BLOCK);
        // Twice: the perception circuit needs two where the update circuit needs one.
        self.d_a.resize(2 * widest * BLOCK);
        self.d_b.resize(2 * widest * BLOCK);
    }
}

/// One step of V vectors of cells: perception of every channel, then the update circuit.
#[inline(always)]
pub(super) fn block_forward<S: Simd, const V: usize>(
    simd: S,
    model: &LogicCa,
    coefficients: &[[f32; 4]],
    t: usize,
    around: &[Lanes],
    vectors: usize,
    first: usize,
    block: &mut Block,
    scratch: &mut Workspace,
) {
    let channels = model.spec().channels;
    let outputs = model.perception.outputs();
    let inputs = block.inputs[t].lanes_mut();
    for c in 0..channels {
        let around = &around[c * (9 * vectors + 1) + first..];
        inputs[c * V..(c + 1) * V].copy_from_slice(&around[4 * vectors..][..V]);
        let out = &mut inputs[(channels + c * outputs) * V..][..outputs * V];
        let values = scratch.perception.lanes_mut();
        perception_forward::<S, V>(
            simd,
            model,
            coefficients,
            around,
            vectors,
            values,
            Some(out),
        );
    }
    let values = scratch.update.lanes_mut();
    update_forward::<S, V>(simd, model, coefficients, inputs, values);
    let last = model.update.values - model.update.inputs - channels;
    block.new.lanes_mut()[..channels * V].copy_from_slice(&values[last * V..][..channels * V]);
}

/// The perception circuit of one channel. Layer outputs follow one another in `values`; the last
/// layer's go to `outputs` where asked for, and are left out otherwise.
#[inline(always)]
fn perception_forward<S: Simd, const V: usize>(
    simd: S,
    model: &LogicCa,
    coefficients: &[[f32; 4]],
    around: &[Lanes],
    vectors: usize,
    values: &mut [Lanes],
    mut outputs: Option<&mut [Lanes]>,
) {
    let mut from = 0;
    let last = model.plan.perception.len() - 1;
    for (l, plan) in model.plan.perception.iter().enumerate() {
        if l == last && outputs.is_none() {
            return;
        }
        // The first layer reads the neighbourhoods, which take no room in `values`.
        let taken = if l == 0 { 0 } else { plan.inputs };
        let (inputs, next) = values[from * V..].split_at_mut(taken * V);
        let (inputs, stride) = if l == 0 {
            (around, vectors)
        } else {
            (&*inputs, V)
        };
        let out = match outputs.as_deref_mut() {
            Some(out) if l == last => out,
            _ => next,
        };
        layer_forward::<S, V>(simd, plan, coefficients, inputs, stride, out);
        from += taken;
    }
}

/// The update circuit. Layer outputs follow one another in `values`.
#[inline(always)]
fn update_forward<S: Simd, const V: usize>(
    simd: S,
    model: &LogicCa,
    coefficients: &[[f32; 4]],
    inputs: &[Lanes],
    values: &mut [Lanes],
) {
    let mut from = 0;
    for (l, plan) in model.plan.update.iter().enumerate() {
        let taken = if l == 0 { 0 } else { plan.inputs };
        let (before, next) = values[from * V..].split_at_mut(taken * V);
        let inputs = if l == 0 { inputs } else { &*before };
        layer_forward::<S, V>(simd, plan, coefficients, inputs, V, next);
        from += taken;
    }
}

/// Which layers' sums are needed: those that are trained. Perception first, then update.
pub(super) fn fill_wanted(model: &LogicCa, params: bool, wanted: &mut Vec<bool>) {
    wanted.clear();
    let tensors = model.layout().tensors().iter();
    wanted.extend(tensors.map(|t| params && !t.frozen));
}

/// One step backward of V vectors of cells: from the gradient of their new state in `block.new` to
/// that of their neighbourhoods, and the sums of every gate.
#[inline(always)]
pub(super) fn block_backward<S: Simd, const V: usize>(
    simd: S,
    model: &LogicCa,
    coefficients: &[[f32; 4]],
    wanted: &[bool],
    t: usize,
    around: &[Lanes],
    vectors: usize,
    first: usize,
    block: &mut Block,
    scratch: &mut Workspace,
) {
    let channels = model.spec().channels;
    let Workspace {
        update,
        perception,
        d_a,
        d_b,
    } = scratch;
    let (perception_wanted, update_wanted) = wanted.split_at(model.plan.perception.len());
    let inputs = block.inputs[t].lanes();
    let values = update.lanes_mut();
    update_forward::<S, V>(simd, model, coefficients, inputs, values);
    let (mut d_outputs, mut d_inputs) = (d_a.lanes_mut(), d_b.lanes_mut());
    d_outputs[..channels * V].copy_from_slice(&block.new.lanes()[..channels * V]);
    // Where the inputs of a layer are among the values.
    let mut from = model.update.values - model.update.inputs - channels;
    for (l, plan) in model.plan.update.iter().enumerate().rev() {
        let layer_inputs = if l == 0 {
            inputs
        } else {
            from -= plan.inputs;
            &values[from * V..]
        };
        backward_either::<S, V>(
            simd,
            update_wanted[l],
            plan,
            coefficients,
            layer_inputs,
            V,
            d_outputs,
            d_inputs,
            &mut block.sums,
        );
        std::mem::swap(&mut d_outputs, &mut d_inputs);
    }
    // d_outputs now holds the gradient of the update circuit's inputs.
    let d_update = d_outputs;
    let outputs = model.perception.outputs();
    let values = perception.lanes_mut();
    let last = model.plan.perception.len() - 1;
    for c in 0..channels {
        let around = &around[c * (9 * vectors + 1) + first..];
        perception_forward::<S, V>(simd, model, coefficients, around, vectors, values, None);
        let d_around = &mut block.d_neighbourhoods.lanes_mut()[c * 9 * V..(c + 1) * 9 * V];
        let (d_cell, d_perception) = d_update.split_at_mut(channels * V);
        let d_top = &mut d_perception[c * outputs * V..][..outputs * V];
        // Gradients of inner layers lie over one another's remains: one half of d_inputs each.
        let half = d_inputs.len() / 2;
        let (mut x, mut y) = d_inputs.split_at_mut(half);
        let mut from = model.perception.values - 9 - outputs;
        for (l, plan) in model.plan.perception.iter().enumerate().rev() {
            let (layer_inputs, stride) = if l == 0 {
                (around, vectors)
            } else {
                from -= plan.inputs;
                (&values[from * V..], V)
            };
            let d_out: &[Lanes] = if l == last { d_top } else { x };
            let d_in: &mut [Lanes] = if l == 0 { d_around } else { y };
            backward_either::<S, V>(
                simd,
                perception_wanted[l],
                plan,
                coefficients,
                layer_inputs,
                stride,
                d_out,
                d_in,
                &mut block.sums,
            );
            std::mem::swap(&mut x, &mut y);
        }
        for v in 0..V {
            let own = &mut d_around[4 * V + v];
            for (d, g) in own.iter_mut().zip(&d_cell[c * V + v]) {
                *d += g;
            }
        }
    }
}

#[inline(always)]
fn backward_either<S: Simd, const V: usize>(
    simd: S,
    sums_wanted: bool,
    plan: &LayerPlan,
    coefficients: &[[f32; 4]],
    inputs: &[Lanes],
    stride: usize,
    d_outputs: &[Lanes],
    d_inputs: &mut [Lanes],
    sums: &mut [[f32; 4]],
) {
    if sums_wanted {
        layer_backward::<S, V, true>(
            simd,
            plan,
            coefficients,
            inputs,
            stride,
            d_outputs,
            d_inputs,
            sums,
        );
    } else {
        layer_backward::<S, V, false>(
            simd,
            plan,
            coefficients,
            inputs,
            stride,
            d_outputs,
            d_inputs,
            sums,
        );
    }
}
