//! The f32 path: bilinear gates, sixteen cells to a vector, blocks of cells spread over threads.
//!
//! - Only the cells that fire are computed: they are packed into lanes.
//! - Forward keeps, for every step, the packed neighbourhoods and the inputs of the update circuit;
//!   backward recomputes the rest, a block of cells at a time, in memory that fits a core's cache.
//!   No gradient is stored per cell.
//! - Blocks are cut by the number of cells alone. Each has its own sums, which are added in the
//!   order of the blocks, in f64. So any number of threads gives the same bits.

mod block;
mod kernels;
mod lanes;
mod plan;

pub use plan::GatePlan;

use block::{
    BLOCK, Block, SCRATCH, block_backward, block_count, block_forward, block_start, fill_wanted,
};
use kernels::{logit_gradient, soften};
use lanes::{Aligned, Geometry, Lanes, RowPiece};

use super::gates::GATES;
use super::{LogicBatch, LogicCa};
use crate::model::Model;
use crate::parallel;
use crate::simd::{dispatch, level};

/// Gates on vectors in a step from which blocks go to threads: some 20 µs of work forward, and
/// three times that backward.
const PARALLEL_GATES: usize = 20_000;

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
    /// Which layers are trained.
    wanted: Vec<bool>,
}

/// Gates in a chunk when logits become coefficients or sums become gradients, and the number from
/// which chunks go to threads.
const GATE_CHUNK: usize = 256;
const PARALLEL_LOGITS: usize = 2048;
crate::cuts::cuts!(PARALLEL_GATES, PARALLEL_PLACES, GATE_CHUNK, PARALLEL_LOGITS);
pub(super) use block::CUTS as BLOCK_CUTS;

fn soften_all(model: &LogicCa, params: &[f32], tape: &mut Tape) {
    let gates = model.gates();
    tape.p.resize(gates, [0.0; GATES]);
    tape.coefficients.resize(gates, [0.0; 4]);
    let logits: &[[f32; GATES]] = params.as_chunks().0;
    let order = &model.plan.order;
    parallel::for_each_chunk2(
        &mut tape.p,
        GATE_CHUNK,
        &mut tape.coefficients,
        GATE_CHUNK,
        gates >= PARALLEL_LOGITS,
        |i, p, coefficients| {
            let order = &order[i * GATE_CHUNK..];
            dispatch!(level(), simd => {
                for ((p, c), &gate) in p.iter_mut().zip(coefficients).zip(order) {
                    (*p, *c) = soften(simd, &logits[gate as usize]);
                }
            });
        },
    );
}

/// All steps; the last state goes to `output`.
pub(super) fn forward(
    model: &LogicCa,
    params: &[f32],
    grids: &Grids,
    tape: &mut Tape,
    output: &mut [f32],
) {
    let (channels, geometry) = (model.spec().channels, grids.geometry);
    soften_all(model, params, tape);
    load_planes(geometry, channels, grids.state, &mut tape.planes);
    fit(model, grids, tape);
    for t in 0..model.spec().steps {
        forward_step(model, geometry, tape, t);
    }
    store_planes(geometry, channels, &tape.planes, output);
}

/// Workspace for every cell, however many fire: later steps allocate nothing. And which cells fire.
fn fit(model: &LogicCa, grids: &Grids, tape: &mut Tape) {
    let (channels, count) = (model.spec().channels, model.spec().steps);
    let geometry = grids.geometry;
    let cells = geometry.height * geometry.width;
    let most = (geometry.batch * cells).div_ceil(16);
    tape.steps.resize_with(count, Step::default);
    for (t, step) in tape.steps.iter_mut().enumerate() {
        let fire = grids.fire.map(|f| &f[t * cells..(t + 1) * cells]);
        step.vectors = geometry.pieces(fire, &mut step.pieces).div_ceil(16);
        step.neighbourhoods.resize(channels * (9 * most + 1));
    }
    let blocks = block_count(most);
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
}

/// One step: neighbourhoods out of the planes, the new state of the cells that fire back into them.
fn forward_step(model: &LogicCa, geometry: Geometry, tape: &mut Tape, t: usize) {
    let (channels, boundary) = (model.spec().channels, model.spec().boundary);
    let offsets = geometry.offsets();
    let before = geometry.stride() + 1;
    let Tape {
        planes,
        steps,
        blocks,
        packed,
        coefficients,
        ..
    } = tape;
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
                let before = before.wrapping_sub(offsets[n]);
                lanes::pack(simd, pieces, plane, before, packed.as_flattened_mut());
            });
        },
    );
    let around = step.neighbourhoods.lanes();
    let count = block_count(vectors);
    let gates = model.gates_per_cell() * vectors;
    parallel::for_each_mut(&mut blocks[..count], gates >= PARALLEL_GATES, |i, block| {
        let first = block_start(i, count, vectors);
        let size = block_start(i + 1, count, vectors) - first;
        SCRATCH.with_borrow_mut(|scratch| {
            scratch.fit(model);
            macro_rules! run {
                ($v:literal) => {
                    dispatch!(level(), simd => block_forward::<_, $v>(
                        simd, model, coefficients, t, around, vectors, first, block, scratch,
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
    // The new state into the planes.
    let used = &blocks[..count];
    let each = packed.lanes().len() / channels;
    parallel::for_each_chunk2(
        packed.lanes_mut(),
        each,
        planes,
        geometry.plane(),
        moved,
        |c, packed, plane| {
            collect(used, vectors, packed, |block, v, size| {
                block.new.lanes()[c * size + v]
            });
            dispatch!(level(), simd => {
                lanes::unpack(simd, pieces, packed.as_flattened(), plane);
            });
        },
    );
}

fn parallel_places(channels: usize, vectors: usize) -> bool {
    channels * vectors * 9 * 16 >= PARALLEL_PLACES
}

/// Puts the blocks' vectors of one kind in a row.
fn collect(
    blocks: &[Block],
    vectors: usize,
    packed: &mut [Lanes],
    of: impl Fn(&Block, usize, usize) -> Lanes,
) {
    for (i, block) in blocks.iter().enumerate() {
        let first = block_start(i, blocks.len(), vectors);
        let size = block_start(i + 1, blocks.len(), vectors) - first;
        for v in 0..size {
            packed[first + v] = of(block, v, size);
        }
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
    let (channels, geometry) = (model.spec().channels, grids.geometry);
    fill_wanted(model, d_params.is_some(), &mut tape.wanted);
    load_planes(geometry, channels, d_output, &mut tape.planes);
    let large = tape.blocks.len() * model.gates() >= PARALLEL_LOGITS;
    parallel::for_each_mut(&mut tape.blocks, large, |_, block| {
        block.sums.clear();
        block.sums.resize(model.gates(), [0.0; 4]);
        block.d_neighbourhoods.resize(channels * 9 * BLOCK);
    });
    for t in (0..model.spec().steps).rev() {
        backward_step(model, geometry, tape, t);
    }
    if let Some(d_params) = d_params {
        add_gradients(model, tape, accumulate, d_params);
    }
    if let Some(d_input) = d_input {
        store_planes(geometry, channels, &tape.planes, d_input);
    }
}

/// The gradient of one step, from the planes into the planes.
fn backward_step(model: &LogicCa, geometry: Geometry, tape: &mut Tape, t: usize) {
    let (channels, boundary) = (model.spec().channels, model.spec().boundary);
    let offsets = geometry.offsets();
    let before = geometry.stride() + 1;
    let Tape {
        planes,
        steps,
        blocks,
        packed,
        coefficients,
        wanted,
        ..
    } = tape;
    let (coefficients, wanted) = (&coefficients[..], &wanted[..]);
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
    let count = block_count(vectors);
    let gates = model.gates_per_cell() * vectors;
    parallel::for_each_mut(&mut blocks[..count], gates >= PARALLEL_GATES, |i, block| {
        let first = block_start(i, count, vectors);
        let size = block_start(i + 1, count, vectors) - first;
        for c in 0..channels {
            block.new.lanes_mut()[c * size..(c + 1) * size]
                .copy_from_slice(&d_new[c * each + first..][..size]);
        }
        SCRATCH.with_borrow_mut(|scratch| {
            scratch.fit(model);
            macro_rules! run {
                ($v:literal) => {
                    dispatch!(level(), simd => block_backward::<_, $v>(
                        simd, model, coefficients, wanted, t, around, vectors, first, block,
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
    let used = &blocks[..count];
    parallel::for_each_chunk2(
        packed.lanes_mut(),
        each,
        planes,
        geometry.plane(),
        moved,
        |c, packed, plane| {
            for n in 0..9 {
                collect(used, vectors, packed, |block, v, size| {
                    block.d_neighbourhoods.lanes()[(c * 9 + n) * size + v]
                });
                let before = before.wrapping_sub(offsets[n]);
                dispatch!(level(), simd => {
                    lanes::unpack_add(simd, pieces, packed.as_flattened(), before, plane);
                });
            }
            geometry.fold_border(boundary, plane);
        },
    );
}

/// Adds the blocks' sums and turns them into the logits' gradients.
fn add_gradients(model: &LogicCa, tape: &Tape, accumulate: bool, d_params: &mut [f32]) {
    let trained: usize = model.layout().trainable().map(|r| r.len()).sum();
    if !accumulate && trained < d_params.len() {
        d_params.fill(0.0);
    }
    for range in model.layout().trainable() {
        let first = range.start / GATES;
        let d_trained = &mut d_params[range];
        let large = d_trained.len() >= PARALLEL_LOGITS * GATES;
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
