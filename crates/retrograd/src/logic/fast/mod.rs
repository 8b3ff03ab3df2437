//! The f32 path: bilinear gates, sixteen cells to a vector, blocks of cells spread over threads.
//!
//! - Only the cells that fire are computed: they are packed into lanes.
//! - Forward keeps, for every step, the packed neighbourhoods and the inputs of the update circuit;
//!   backward recomputes the rest, a block of cells at a time, in memory that fits a core's cache.
//!   No gradient is stored per cell.
//! - Blocks are cut by the number of cells alone. Each has its own sums, which are added in the
//!   order of the blocks, in f64. So any number of threads gives the same bits.

mod kernels;
mod lanes;
mod plan;

pub use plan::Plan;

use std::cell::RefCell;

use kernels::{layer_backward, layer_forward, logit_gradient, soften};
use lanes::{Aligned, Geometry, Lanes, RowPiece};

use super::gates::GATES;
use super::{LogicBatch, LogicCa};
use crate::model::Model;
use crate::parallel;
use crate::simd::{Simd, dispatch, level};

/// The most vectors of sixteen cells in a block. Large blocks share the cost of a gate's
/// coefficients and sums; what backward recomputes must fit a core's cache. Measured for the
/// checkerboard on two cores with 1 MB each: 14.4, 13.9 and 15.6 ms a step with 2, 3 and 4.
const BLOCK: usize = 3;

/// Vectors in a block, for a step of that many: little work is cut finer, to be shared evenly.
fn block_size(vectors: usize) -> usize {
    if vectors >= 16 { BLOCK } else { 2 }
}

/// Gates on vectors in a step from which blocks go to threads. Measured: a step of the Game of Life
/// (30,000) takes 0.38 ms on one thread and 0.46 ms on two; one of the asynchronous checkerboard
/// (45,000) gains.
const PARALLEL_GATES: usize = 40_000;

/// Places moved between planes and lanes from which that goes to threads: some 10 µs of
/// work by count of operations, not measured.
const PARALLEL_PLACES: usize = 1 << 17;

/// A batch as the fast path sees it.
pub(super) struct Grids<'a> {
    state: &'a [f32],
    fire: Option<&'a [bool]>,
    geometry: Geometry,
}

impl<'a> Grids<'a> {
    pub fn of<T>(input: &'a LogicBatch<T>, state: &'a [f32]) -> Self {
        Grids {
            state,
            fire: input.fire.as_deref(),
            geometry: Geometry {
                batch: input.batch,
                height: input.height,
                width: input.width,
            },
        }
    }
}

/// One step's cells and what they saw.
#[derive(Default)]
struct Step {
    pieces: Vec<RowPiece>,
    /// Vectors of packed cells.
    vectors: usize,
    /// (channel, neighbour, vector) and one more vector for every channel.
    neighbourhoods: Aligned,
}

/// A block of cells: what it gives and what it keeps.
#[derive(Default)]
struct Block {
    /// (channel, vector) of the new state; in backward of its gradient.
    new: Aligned,
    /// For every step, the inputs of the update circuit, (input, vector).
    inputs: Vec<Aligned>,
    /// (channel, neighbour, vector).
    d_neighbourhoods: Aligned,
    /// Σ (g, ga, gb, gab) of every gate, in the order of visits.
    sums: Vec<[f32; 4]>,
}

/// What the fast path keeps between forward and backward, and from step to step.
#[derive(Default)]
pub(super) struct Tape {
    /// The softmax and the coefficients of every gate, in the order of visits.
    p: Vec<[f32; GATES]>,
    coefficients: Vec<[f32; 4]>,
    /// (channel, place): the state, then its gradient.
    planes: Vec<f32>,
    steps: Vec<Step>,
    blocks: Vec<Block>,
    /// (channel, vector) of all cells, and one more vector for every channel.
    packed: Aligned,
}

/// What a block needs while it is computed; each thread has one.
#[derive(Default)]
struct Scratch {
    update: Aligned,
    perception: Aligned,
    d_a: Aligned,
    d_b: Aligned,
}

thread_local! {
    static SCRATCH: RefCell<Scratch> = RefCell::default();
}

impl Scratch {
    fn fit(&mut self, model: &LogicCa) {
        let widest = |values: &super::model::Circuit| {
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

/// Gates in a chunk when logits become coefficients or sums become gradients.
const GATE_CHUNK: usize = 256;

fn soften_all(model: &LogicCa, params: &[f32], tape: &mut Tape) {
    let gates = model.gates();
    tape.p.resize(gates, [0.0; GATES]);
    tape.coefficients.resize(gates, [0.0; 4]);
    let logits: &[[f32; GATES]] = params.as_chunks().0;
    dispatch!(level(), simd => {
        for (logits, &at) in logits.iter().zip(&model.plan.visit) {
            (tape.p[at as usize], tape.coefficients[at as usize]) = soften(simd, logits);
        }
    });
}

/// All steps; the last state goes to `output`.
pub(super) fn forward(
    model: &LogicCa,
    params: &[f32],
    grids: &Grids,
    tape: &mut Tape,
    output: &mut [f32],
) {
    let (channels, count) = (model.spec().channels, model.spec().steps);
    let geometry = grids.geometry;
    soften_all(model, params, tape);
    load_planes(grids.geometry, channels, grids.state, &mut tape.planes);
    let cells = geometry.height * geometry.width;
    // Room for every cell, however many fire: later steps allocate nothing.
    let most = (geometry.batch * cells).div_ceil(16);
    tape.steps.resize_with(count, Step::default);
    for (t, step) in tape.steps.iter_mut().enumerate() {
        let fire = grids.fire.map(|f| &f[t * cells..(t + 1) * cells]);
        step.vectors = geometry.pieces(fire, &mut step.pieces).div_ceil(16);
        step.neighbourhoods.resize(channels * (9 * most + 1));
    }
    // A step of few cells may be cut into more blocks than one of many.
    let few = most.min(15);
    let blocks = most
        .div_ceil(block_size(most))
        .max(few.div_ceil(block_size(few)));
    if tape.blocks.len() < blocks {
        tape.blocks.resize_with(blocks, Block::default);
    }
    for block in &mut tape.blocks[..blocks] {
        block.new.resize(channels * BLOCK);
        block.inputs.resize_with(count, Aligned::default);
        for inputs in &mut block.inputs {
            inputs.resize(model.update.inputs * BLOCK);
        }
    }
    tape.packed.resize(channels * (most + 1));
    let boundary = model.spec().boundary;
    let offsets = geometry.offsets();
    let before = geometry.stride() + 1;
    for t in 0..count {
        let Tape {
            planes,
            steps,
            blocks,
            packed,
            coefficients,
            ..
        } = &mut *tape;
        let coefficients = &coefficients[..];
        let step = &mut steps[t];
        let (vectors, pieces) = (step.vectors, &step.pieces[..]);
        let moved = parallel_places(channels, vectors);
        // Each channel's neighbourhoods.
        let len = 9 * vectors + 1;
        step.neighbourhoods.resize(channels * len);
        parallel::for_each_chunk2(
            step.neighbourhoods.lanes_mut(),
            len,
            planes,
            geometry.plane(),
            moved,
            |_, around, plane| {
                geometry.fill_border(boundary, plane);
                dispatch!(level(), simd => for n in 0..9 {
                    let packed = &mut around[n * vectors..(n + 1) * vectors + 1];
                    let before = before - offsets[n];
                    lanes::pack(simd, pieces, plane, before, packed.as_flattened_mut());
                });
            },
        );
        let around = step.neighbourhoods.lanes();
        let unit = block_size(vectors);
        let used = &mut blocks[..vectors.div_ceil(unit)];
        let gates = model.gates_per_cell() * vectors;
        parallel::for_each_mut(used, gates >= PARALLEL_GATES, |i, block| {
            let first = i * unit;
            SCRATCH.with_borrow_mut(|scratch| {
                scratch.fit(model);
                macro_rules! run {
                    ($v:literal) => {
                        dispatch!(level(), simd => block_forward::<_, $v>(
                            simd, model, coefficients, t, around, vectors, first, block, scratch,
                        ))
                    };
                }
                match unit.min(vectors - first) {
                    1 => run!(1),
                    2 => run!(2),
                    _ => run!(3),
                }
            });
        });
        // The new state into the planes.
        let used = &blocks[..vectors.div_ceil(unit)];
        let each = packed.lanes().len() / channels;
        parallel::for_each_chunk2(
            packed.lanes_mut(),
            each,
            planes,
            geometry.plane(),
            moved,
            |c, packed, plane| {
                collect(used, unit, vectors, packed, |block, v, size| {
                    block.new.lanes()[c * size + v]
                });
                dispatch!(level(), simd => {
                    lanes::unpack(simd, pieces, packed.as_flattened(), plane);
                });
            },
        );
    }
    store_planes(geometry, channels, &tape.planes, output);
}

fn parallel_places(channels: usize, vectors: usize) -> bool {
    channels * vectors * 9 * 16 >= PARALLEL_PLACES
}

/// Puts the blocks' vectors of one kind in a row.
fn collect(
    blocks: &[Block],
    unit: usize,
    vectors: usize,
    packed: &mut [Lanes],
    of: impl Fn(&Block, usize, usize) -> Lanes,
) {
    for (i, block) in blocks.iter().enumerate() {
        let size = unit.min(vectors - i * unit);
        for v in 0..size {
            packed[i * unit + v] = of(block, v, size);
        }
    }
}

/// One step of V vectors of cells: perception of every channel, then the update circuit.
#[inline(always)]
fn block_forward<S: Simd, const V: usize>(
    simd: S,
    model: &LogicCa,
    coefficients: &[[f32; 4]],
    t: usize,
    around: &[Lanes],
    vectors: usize,
    first: usize,
    block: &mut Block,
    scratch: &mut Scratch,
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

/// After [`forward`] with the same batch.
pub(super) fn backward(
    model: &LogicCa,
    grids: &Grids,
    tape: &mut Tape,
    d_output: &[f32],
    d_params: Option<&mut [f32]>,
    accumulate: bool,
    d_input: Option<&mut [f32]>,
) {
    let channels = model.spec().channels;
    let geometry = grids.geometry;
    let boundary = model.spec().boundary;
    let offsets = geometry.offsets();
    let before = geometry.stride() + 1;
    let wanted = Wanted::of(model, d_params.is_some());
    load_planes(geometry, channels, d_output, &mut tape.planes);
    for block in &mut tape.blocks {
        block.sums.clear();
        block.sums.resize(model.gates(), [0.0; 4]);
        block.d_neighbourhoods.resize(channels * 9 * BLOCK);
    }
    for t in (0..model.spec().steps).rev() {
        let Tape {
            planes,
            steps,
            blocks,
            packed,
            coefficients,
            ..
        } = &mut *tape;
        let coefficients = &coefficients[..];
        let step = &steps[t];
        let (vectors, pieces) = (step.vectors, &step.pieces[..]);
        let moved = parallel_places(channels, vectors);
        // The gradient of the new state of the cells that fired, which leaves the planes.
        let each = packed.lanes().len() / channels;
        parallel::for_each_chunk2(
            packed.lanes_mut(),
            each,
            planes,
            geometry.plane(),
            moved,
            |_, packed, plane| {
                dispatch!(level(), simd => {
                    let packed = packed[..vectors + 1].as_flattened_mut();
                    lanes::pack(simd, pieces, plane, 0, packed);
                    lanes::clear(simd, pieces, plane);
                });
            },
        );
        let around = step.neighbourhoods.lanes();
        let d_new = packed.lanes();
        let unit = block_size(vectors);
        let used = &mut blocks[..vectors.div_ceil(unit)];
        let gates = model.gates_per_cell() * vectors;
        parallel::for_each_mut(used, gates >= PARALLEL_GATES, |i, block| {
            let first = i * unit;
            let size = unit.min(vectors - first);
            for c in 0..channels {
                block.new.lanes_mut()[c * size..(c + 1) * size]
                    .copy_from_slice(&d_new[c * each + first..][..size]);
            }
            SCRATCH.with_borrow_mut(|scratch| {
                scratch.fit(model);
                macro_rules! run {
                    ($v:literal) => {
                        dispatch!(level(), simd => block_backward::<_, $v>(
                            simd, model, coefficients, &wanted, t, around, vectors, first, block,
                            scratch,
                        ))
                    };
                }
                match size {
                    1 => run!(1),
                    2 => run!(2),
                    _ => run!(3),
                }
            });
        });
        // The neighbourhoods' gradients go where they were read.
        let used = &blocks[..vectors.div_ceil(unit)];
        parallel::for_each_chunk2(
            packed.lanes_mut(),
            each,
            planes,
            geometry.plane(),
            moved,
            |c, packed, plane| {
                for n in 0..9 {
                    collect(used, unit, vectors, packed, |block, v, size| {
                        block.d_neighbourhoods.lanes()[(c * 9 + n) * size + v]
                    });
                    let before = before - offsets[n];
                    dispatch!(level(), simd => {
                        lanes::unpack_add(simd, pieces, packed.as_flattened(), before, plane);
                    });
                }
                geometry.fold_border(boundary, plane);
            },
        );
    }
    if let Some(d_params) = d_params {
        add_gradients(model, tape, accumulate, d_params);
    }
    if let Some(d_input) = d_input {
        store_planes(geometry, channels, &tape.planes, d_input);
    }
}

/// Which layers' sums are needed: those that are trained.
struct Wanted {
    perception: Vec<bool>,
    update: Vec<bool>,
}

impl Wanted {
    fn of(model: &LogicCa, params: bool) -> Self {
        let tensors = model.layout().tensors();
        let (perception, update) = tensors.split_at(model.plan.perception.len());
        let wanted = |t: &crate::Tensor| params && !t.frozen;
        Wanted {
            perception: perception.iter().map(wanted).collect(),
            update: update.iter().map(wanted).collect(),
        }
    }
}

/// One step backward of V vectors of cells: from the gradient of their new state in `block.new` to
/// that of their neighbourhoods, and the sums of every gate.
#[inline(always)]
fn block_backward<S: Simd, const V: usize>(
    simd: S,
    model: &LogicCa,
    coefficients: &[[f32; 4]],
    wanted: &Wanted,
    t: usize,
    around: &[Lanes],
    vectors: usize,
    first: usize,
    block: &mut Block,
    scratch: &mut Scratch,
) {
    let channels = model.spec().channels;
    let Scratch {
        update,
        perception,
        d_a,
        d_b,
    } = scratch;
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
            wanted.update[l],
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
                wanted.perception[l],
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
    plan: &plan::LayerPlan,
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

/// Adds the blocks' sums and turns them into the logits' gradients.
fn add_gradients(model: &LogicCa, tape: &Tape, accumulate: bool, d_params: &mut [f32]) {
    if !accumulate {
        d_params.fill(0.0);
    }
    for range in model.layout().trainable() {
        let first = range.start / GATES;
        let d_trained = &mut d_params[range];
        let large = d_trained.len() * tape.blocks.len() > 1 << 18;
        parallel::for_each_chunk(d_trained, GATE_CHUNK * GATES, large, |i, d_chunk| {
            dispatch!(level(), simd => {
                let _ = simd;
                for (j, d_logits) in d_chunk.chunks_exact_mut(GATES).enumerate() {
                    let at = model.plan.visit[first + i * GATE_CHUNK + j] as usize;
                    let mut total = [0.0_f64; 4];
                    for block in &tape.blocks {
                        for (t, &s) in total.iter_mut().zip(&block.sums[at]) {
                            *t += f64::from(s);
                        }
                    }
                    logit_gradient(&tape.p[at], total, accumulate, d_logits);
                }
            });
        });
    }
}

/// From (sample, y, x, channel) to planes with a border of zeros.
fn load_planes(geometry: Geometry, channels: usize, values: &[f32], planes: &mut Vec<f32>) {
    planes.clear();
    planes.resize(channels * geometry.plane(), 0.0);
    let cells = geometry.height * geometry.width;
    for (c, plane) in planes.chunks_exact_mut(geometry.plane()).enumerate() {
        for sample in 0..geometry.batch {
            for y in 0..geometry.height {
                let row = geometry.row(sample, y);
                let first = (sample * cells + y * geometry.width) * channels + c;
                let cells = values[first..].iter().step_by(channels);
                for (place, &v) in plane[row..row + geometry.width].iter_mut().zip(cells) {
                    *place = v;
                }
            }
        }
    }
}

fn store_planes(geometry: Geometry, channels: usize, planes: &[f32], values: &mut [f32]) {
    let cells = geometry.height * geometry.width;
    for (c, plane) in planes.chunks_exact(geometry.plane()).enumerate() {
        for sample in 0..geometry.batch {
            for y in 0..geometry.height {
                let row = geometry.row(sample, y);
                let first = (sample * cells + y * geometry.width) * channels + c;
                let cells = values[first..].iter_mut().step_by(channels);
                for (v, &place) in cells.zip(&plane[row..row + geometry.width]) {
                    *v = place;
                }
            }
        }
    }
}
