//! f32 with SIMD, in blocks of samples and pieces of levels.
//!
//! The batch is cut into blocks of [`BLOCK`] samples, each with a tape of its own: `[block][place]
//! [sample]`. A block needs nothing of another, so a thread takes blocks through all levels, forward
//! and backward, without waiting for anyone; only the sums over samples, d_w and d_bias, meet. Each
//! part of the batch (a run of blocks, at most [`PARTS`]) has sums of its own, added at the end in
//! the order of the parts. Where there are fewer parts than threads and levels are wide, the nodes
//! of a level go to threads instead, block after block ([`DagNN::by_parts`]). Both ways do the same
//! sums in the same order: the bits don't tell which it was.

use std::ops::Range;

use super::DagNN;
use super::lanes::{BLOCK, Products, Sums, Values};
use crate::Kernels::Fast;
use crate::graph::pattern::Rows;
use crate::parallel::{self, Uneven, for_each_chunks, for_each_cut};

/// Parts of a batch at most: each keeps a sum for every parameter.
const PARTS: usize = 16;
/// From this many multiply-adds on, parts of the batch go to threads: some 2 µs forward and 5 µs
/// backward on one thread (`retrograd bench threshold-dag-batch` measures that).
const PARALLEL: usize = 1 << 14;
/// The same for the nodes of a level (`threshold-dag`): twice as many, since the next level reads
/// half of their results from the other core.
const PARALLEL_LEVEL: usize = 1 << 15;
/// Slots of a piece of a level, in-edges and out-edges together.
const PIECE: usize = 512;
/// What a node counts for besides its slots.
const NODE: usize = 4;
/// Parameters whose sums are added up in one piece.
const CHUNK: usize = 4096;
crate::cuts::cuts!(PARTS, PARALLEL, PARALLEL_LEVEL, PIECE, CHUNK);

/// A level's places, without inputs, and the pieces they are cut into.
#[derive(Clone)]
pub(super) struct Level {
    places: Range<usize>,
    /// In-edges and nodes.
    work: usize,
    /// Where each piece's places and slots begin, counted from the level's first, and their number.
    piece_places: Vec<u32>,
    piece_slots: Vec<u32>,
}

impl Level {
    pub fn new(places: Range<usize>, rows: &Rows, columns: &Rows) -> Self {
        let mut piece_places = vec![0];
        let mut load = 0;
        for (k, v) in places.clone().enumerate() {
            let own = NODE + rows.degree(v) + columns.degree(v);
            if load > 0 && load + own > PIECE {
                piece_places.push(k as u32);
                load = 0;
            }
            load += own;
        }
        if !places.is_empty() {
            piece_places.push(places.len() as u32);
        }
        let slot = |k: &u32| rows.start[places.start + *k as usize] - rows.start[places.start];
        let piece_slots: Vec<u32> = piece_places.iter().map(slot).collect();
        Level {
            work: places.len() + piece_slots[piece_slots.len() - 1] as usize,
            places,
            piece_places,
            piece_slots,
        }
    }

    fn pieces(&self) -> usize {
        self.piece_places.len() - 1
    }

    fn piece(&self, piece: usize) -> Range<usize> {
        let [start, end] = [piece, piece + 1].map(|p| self.piece_places[p] as usize);
        self.places.start + start..self.places.start + end
    }
}

/// Which gradients are wanted, and whether they are added to what is there.
#[derive(Clone, Copy)]
pub(super) struct Wanted {
    pub weights: bool,
    pub biases: bool,
    pub accumulate: bool,
}

/// Samples of a part of the batch.
pub(super) fn part_len(batch: usize) -> usize {
    batch.div_ceil(BLOCK).div_ceil(PARTS).max(1) * BLOCK
}

/// The number of parts of a batch.
pub(super) fn parts(batch: usize) -> usize {
    batch.div_ceil(part_len(batch))
}

impl DagNN {
    /// Whether parts of the batch go to threads, rather than nodes of a level: where there is a part
    /// for every thread, or one for every share of a mean level that would be worth a thread.
    pub(super) fn by_parts(&self, batch: usize, threads: usize) -> bool {
        let parts = parts(batch);
        let slots = self.edges() + self.spec.nodes();
        let shares = slots * BLOCK / (self.level.len() * PARALLEL_LEVEL);
        parts > 1 && slots * batch >= PARALLEL && parts >= shares.min(threads)
    }

    /// Calls `run` for every run of places that share an activation.
    fn for_each_run(
        &self,
        places: Range<usize>,
        mut run: impl FnMut(Range<usize>, super::Activation),
    ) {
        let mut at = places.start;
        let mut next = self.runs.partition_point(|&(end, _)| end <= at);
        while at < places.end {
            let (end, activation) = self.runs[next];
            run(at..end.min(places.end), activation);
            at = end;
            next += 1;
        }
    }
}

/// Everything of a batch: sample after sample outside, `[block][place][sample]` on the tape.
pub(super) fn forward(
    dag: &DagNN,
    params: &[f32],
    x: &[f32],
    u: &mut [f32],
    a: &mut [f32],
    output: &mut [f32],
) {
    let (n, inputs, outputs) = (dag.spec.nodes(), dag.spec.inputs, dag.spec.outputs);
    let batch = x.len() / inputs;
    let by_parts = dag.by_parts(batch, parallel::threads());
    let samples = part_len(batch);
    let lens = [samples * n, samples * n, samples * outputs];
    for_each_chunks(
        [u, a, output],
        lens,
        parts(batch),
        by_parts,
        |part, [u, a, output]| {
            let x = &x[part * samples * inputs..];
            let blocks = u
                .chunks_mut(BLOCK * n)
                .zip(a.chunks_mut(BLOCK * n))
                .zip(output.chunks_mut(BLOCK * outputs))
                .zip(x.chunks(BLOCK * inputs));
            for (((u, a), output), x) in blocks {
                forward_block(dag, params, x, u, a, output, !by_parts);
            }
        },
    );
}

fn forward_block(
    dag: &DagNN,
    params: &[f32],
    x: &[f32],
    u: &mut [f32],
    a: &mut [f32],
    output: &mut [f32],
    parallel: bool,
) {
    let (inputs, outputs) = (dag.spec.inputs, dag.spec.outputs);
    let width = x.len() / inputs;
    let (weight, bias) = params.split_at(dag.edges());
    for (i, a) in a.chunks_exact_mut(width).take(inputs).enumerate() {
        for (a, x) in a.iter_mut().zip(x.chunks_exact(inputs)) {
            *a = x[i];
        }
    }
    let sums = Sums {
        rows: &dag.pattern.by_row,
        edge: &dag.edge,
        weight,
        start: |v| bias[dag.bias_of(v)],
    };
    for level in &dag.level {
        let places = level.places.clone();
        let (earlier, rest) = a.split_at_mut(places.start * width);
        let a = &mut rest[..places.len() * width];
        let u = &mut u[places.start * width..places.end * width];
        let owned = (
            Uneven::new(u, &level.piece_places, width),
            Uneven::new(a, &level.piece_places, width),
        );
        let parallel = parallel && level.work * width >= PARALLEL_LEVEL;
        for_each_cut(level.pieces(), parallel, owned, |piece, (u, a)| {
            let places = level.piece(piece);
            let values = Values {
                rows: earlier,
                first: 0,
                width,
            };
            sums.of(places.clone(), values, u);
            let first = places.start;
            dag.for_each_run(places, |run, activation| {
                let lanes = (run.start - first) * width..(run.end - first) * width;
                activation.forward(&u[lanes.clone()], &mut a[lanes], Fast);
            });
        });
    }
    for &(place, o) in &dag.outputs {
        let a = &a[place as usize * width..][..width];
        for (y, &a) in output.chunks_exact_mut(outputs).zip(a) {
            y[o as usize] = a;
        }
    }
}

/// What forward left.
#[derive(Clone, Copy)]
pub(super) struct Left<'a> {
    pub u: &'a [f32],
    pub a: &'a [f32],
}

/// `sums` has room for a number per slot and place and part; `d_x` is empty where it isn't wanted.
pub(super) fn backward(
    dag: &DagNN,
    params: &[f32],
    left: Left<'_>,
    d_output: &[f32],
    d_u: &mut [f32],
    sums: &mut [f32],
    wanted: Wanted,
    d_x: &mut [f32],
) {
    let (n, inputs, outputs) = (dag.spec.nodes(), dag.spec.inputs, dag.spec.outputs);
    let batch = d_output.len() / outputs;
    let by_parts = dag.by_parts(batch, parallel::threads());
    let samples = part_len(batch);
    let lens = [samples * n, dag.edges() + n, samples * inputs];
    for_each_chunks(
        [d_u, sums, d_x],
        lens,
        parts(batch),
        by_parts,
        |part, [d_u, sums, d_x]| {
            let (first, mut d_x) = (part * samples, d_x);
            for (block, d_u) in d_u.chunks_mut(BLOCK * n).enumerate() {
                let width = d_u.len() / n;
                let first = first + block * BLOCK;
                let tape = first * n..(first + width) * n;
                let left = Left {
                    u: &left.u[tape.clone()],
                    a: &left.a[tape],
                };
                let d_output = &d_output[first * outputs..][..width * outputs];
                let wanted = Wanted {
                    accumulate: block > 0,
                    ..wanted
                };
                let own_d_x = d_x
                    .split_off_mut(..(width * inputs).min(d_x.len()))
                    .unwrap_or_default();
                let d = (d_u, &mut *sums, own_d_x);
                backward_block(dag, params, left, d_output, d, wanted, !by_parts);
            }
        },
    );
}

fn backward_block(
    dag: &DagNN,
    params: &[f32],
    left: Left<'_>,
    d_output: &[f32],
    (d_u, sums, d_x): (&mut [f32], &mut [f32], &mut [f32]),
    wanted: Wanted,
    parallel: bool,
) {
    let (inputs, outputs) = (dag.spec.inputs, dag.spec.outputs);
    let width = d_output.len() / outputs;
    let (rows, columns) = (&dag.pattern.by_row, &dag.pattern.by_column);
    let (d_slot, d_place) = sums.split_at_mut(dag.edges());
    let passed_back = Sums {
        rows: columns,
        edge: &dag.column_edge,
        weight: params,
        start: |_| 0.0,
    };
    for level in dag.level.iter().rev() {
        let places = level.places.clone();
        let (rest, later) = d_u.split_at_mut(places.end * width);
        let d_u = &mut rest[places.start * width..];
        let slots = rows.start[places.start] as usize..rows.start[places.end] as usize;
        let owned = (
            Uneven::new(d_u, &level.piece_places, width),
            (
                Uneven::new(&mut d_slot[slots], &level.piece_slots, 1),
                Uneven::new(&mut d_place[places.clone()], &level.piece_places, 1),
            ),
        );
        let parallel = parallel && level.work * width >= PARALLEL_LEVEL;
        for_each_cut(level.pieces(), parallel, owned, |piece, (d_u, sums)| {
            let places = level.piece(piece);
            let first = places.start;
            parallel::with_scratch(d_u.len(), |d_a| {
                let values = Values {
                    rows: later,
                    first: level.places.end,
                    width,
                };
                passed_back.of(places.clone(), values, d_a);
                let from = dag.outputs.partition_point(|o| (o.0 as usize) < first);
                for &(place, o) in &dag.outputs[from..] {
                    if place as usize >= places.end {
                        break;
                    }
                    let d_a = &mut d_a[(place as usize - first) * width..][..width];
                    for (d, d_y) in d_a.iter_mut().zip(d_output.chunks_exact(outputs)) {
                        *d += d_y[o as usize];
                    }
                }
                dag.for_each_run(places.clone(), |run, activation| {
                    let own = (run.start - first) * width..(run.end - first) * width;
                    let all = run.start * width..run.end * width;
                    let (u, a) = (&left.u[all.clone()], &left.a[all]);
                    activation.backward(u, a, &d_a[own.clone()], &mut d_u[own], Fast);
                });
            });
            // While d_u is at hand: read later, it would come from another core or cache.
            if wanted.weights || wanted.biases {
                let (d_slot, d_place) = sums;
                let products = Products {
                    rows,
                    a: left.a,
                    width,
                    wanted,
                };
                products.of(places, d_u, d_slot, d_place);
            }
        });
    }
    if !d_x.is_empty() {
        let (d_inputs, later) = d_u.split_at_mut(inputs * width);
        let values = Values {
            rows: later,
            first: inputs,
            width,
        };
        passed_back.of(0..inputs, values, d_inputs);
        for (i, d) in d_inputs.chunks_exact(width).enumerate() {
            for (d_x, &d) in d_x.chunks_exact_mut(inputs).zip(d) {
                d_x[i] = d;
            }
        }
    }
}

/// d_params from the sums of the parts.
pub(super) fn add_up(dag: &DagNN, sums: &[f32], wanted: Wanted, d_params: &mut [f32]) {
    let row = dag.edges() + dag.spec.nodes();
    let (d_weight, d_bias) = d_params.split_at_mut(dag.edges());
    let (weight_at, bias_at) = dag.sum_at.split_at(dag.edges());
    for (d, at, wants) in [
        (d_weight, weight_at, wanted.weights),
        (d_bias, bias_at, wanted.biases),
    ] {
        if !wants {
            if !wanted.accumulate {
                d.fill(0.0);
            }
            continue;
        }
        let parallel = d.len() >= 2 * CHUNK;
        parallel::for_each_chunk(d, CHUNK, parallel, |chunk, d| {
            for (d, &at) in d.iter_mut().zip(&at[chunk * CHUNK..]) {
                let mut sum = if wanted.accumulate {
                    f64::from(*d)
                } else {
                    0.0
                };
                for part in sums.chunks_exact(row) {
                    sum += f64::from(part[at as usize]);
                }
                *d = sum as f32;
            }
        });
    }
}
