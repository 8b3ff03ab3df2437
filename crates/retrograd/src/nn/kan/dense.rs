//! f32, the batch as matrix products: every one of the G+k basis functions, zeros included.
//!
//! With φ the values of all basis functions and of the base function (a row for each, samples in
//! columns), forward is y = φᵀ·W, the weights' gradient φ·d_y, and the gradient of φ is W·d_yᵀ, of
//! which d_x takes the slopes' share. That is (G+k+1)/(k+2) times the multiply-adds of
//! [`cpu`](super::cpu)'s loops, in the form that comes closest to the machine's peak.
//!
//! Samples are taken in blocks of [`BLOCK`], inputs in groups: φ of a group and block stays in the
//! first-level cache. Forward's pieces are blocks of samples, backward's are groups of inputs, so
//! that every gradient has one owner.

use super::Kan;
use super::basis::{kept, lanes};
use super::cpu::{Gradients, RUN, by_sample, sum_rows, work};
use crate::nn::gemm::{self, Onto, PANEL, Stride};
use crate::nn::layer::room;
use crate::parallel;
use crate::simd::{self, LANES, Simd, dispatch, f32x16, mask32x16, prelude::*, u32x16};

/// Samples per block.
const BLOCK: usize = 64;
/// Inputs whose φ is made at a time, and summed in one chain.
const INPUTS: usize = super::cpu::INPUT_TILE;
/// Groups of inputs that backward is cut into at least, where there are as many inputs.
const PIECES: usize = 8;
/// Multiply-adds from which work goes to threads (two cores: some 10 µs of work against 5 µs to
/// wake a thread).
const PARALLEL: usize = 1 << 19;
/// Samples from which packing the weights pays.
const ROWS: usize = 16;

/// Whether this form is the faster one. Measured at degree 3 on AVX-512, 64 × 64 edges, batch 256:
/// both forms take the same time at a grid of about 12 intervals, 2.8 times the rows that are
/// needed.
pub(super) fn pays(kan: &Kan, rows: usize) -> bool {
    rows >= ROWS && 5 * (kan.bases() + 1) <= 14 * (kan.degree + 2)
}

/// The most intervals that `pays` lets through: (14/5)·(k+2) − k − 1 at degree 7.
const GRID: usize = 18;

/// φ of a group of inputs at a block of samples, [`BLOCK`] columns a row.
struct Planes<'a> {
    /// G+k rows an input.
    values: &'a mut [f32],
    silu: &'a mut [f32],
}

impl<'a> Planes<'a> {
    /// Numbers that planes of a group take.
    fn len(bases: usize) -> usize {
        INPUTS * (bases + 1) * BLOCK
    }

    fn new(room: &'a mut [f32], bases: usize) -> Self {
        let (values, silu) = room.split_at_mut(INPUTS * bases * BLOCK);
        Planes { values, silu }
    }
}

/// Evaluates the inputs `first` … at some samples of `kan.inputs` values each.
fn fill(
    kan: &Kan,
    first: usize,
    count: usize,
    x: &[f32],
    values: &mut Planes<'_>,
    slopes: Option<&mut Planes<'_>>,
) {
    by_degree!(kan.degree, N => dispatch!(simd::level(), simd =>
        fill_planes::<_, N>(simd, kan, first, count, x, values, slopes)));
}

#[inline(always)]
fn fill_planes<S: Simd, const N: usize>(
    simd: S,
    kan: &Kan,
    first: usize,
    count: usize,
    x: &[f32],
    values: &mut Planes<'_>,
    mut slopes: Option<&mut Planes<'_>>,
) {
    let (inputs, bases) = (kan.inputs, kan.bases());
    let samples = x.len() / inputs;
    for from in (0..samples).step_by(LANES) {
        let n = LANES.min(samples - from);
        for l in 0..count {
            let mut x16 = [0.0; LANES];
            for (s, x16) in x16[..n].iter_mut().enumerate() {
                *x16 = x[(from + s) * inputs + first + l];
            }
            let x16 = f32x16::from_slice(simd, &x16[..]);
            let at = lanes::<S, N>(simd, &kan.table, kan.table.of(first + l), 0, x16);
            let mut begins = [mask32x16::splat(simd, false); GRID];
            for (j, begins) in begins[..kan.grid].iter_mut().enumerate() {
                *begins = at.start.simd_eq(u32x16::splat(simd, j as u32));
            }
            let begins = &begins[..kan.grid];
            let rows = l * bases * BLOCK..(l + 1) * bases * BLOCK;
            let place = l * BLOCK + from..l * BLOCK + from + LANES;
            spread(
                simd,
                kan.degree,
                begins,
                &at.values,
                from,
                &mut values.values[rows.clone()],
            );
            at.silu.store_slice(&mut values.silu[place.clone()]);
            if let Some(slopes) = &mut slopes {
                spread(
                    simd,
                    kan.degree,
                    begins,
                    &at.slopes,
                    from,
                    &mut slopes.values[rows],
                );
                at.silu_slope.store_slice(&mut slopes.silu[place]);
            }
        }
    }
}

/// Puts k+1 numbers a lane into the rows that they belong to, and zeros into the others. Lane l
/// begins with row j where `begins[j]` holds.
#[inline(always)]
fn spread<S: Simd, const N: usize>(
    simd: S,
    degree: usize,
    begins: &[mask32x16<S>],
    numbers: &[f32x16<S>; N],
    from: usize,
    to: &mut [f32],
) {
    for (r, to) in to.chunks_exact_mut(BLOCK).enumerate() {
        let mut value = f32x16::splat(simd, 0.0);
        for m in 0..kept::<N>(degree) {
            if let Some(begins) = begins.get(r.wrapping_sub(m)) {
                value = begins.select(numbers[m], value);
            }
        }
        value.store_slice(&mut to[from..from + LANES]);
    }
}

pub(super) fn forward(
    kan: &Kan,
    rows: usize,
    spline_weight: &[f32],
    base_weight: &[f32],
    bias: &[f32],
    x: &[f32],
    y: &mut [f32],
) {
    let (inputs, outputs, bases) = (kan.inputs, kan.outputs, kan.bases());
    let parallel = rows > BLOCK && work(kan, rows) >= PARALLEL;
    let pack_len = INPUTS * bases * outputs.next_multiple_of(PANEL);
    parallel::for_each_chunk(y, BLOCK * outputs, parallel, |block, y| {
        let samples = y.len() / outputs;
        let x = &x[block * BLOCK * inputs..][..samples * inputs];
        for y in y.chunks_exact_mut(outputs) {
            if bias.is_empty() {
                y.fill(0.0);
            } else {
                y.copy_from_slice(bias);
            }
        }
        parallel::with_scratch(Planes::len(bases) + pack_len, |room| {
            let (planes, pack) = room.split_at_mut(Planes::len(bases));
            let mut planes = Planes::new(planes, bases);
            // Samples in rows: φᵀ.
            let turned = Stride {
                row: 1,
                column: BLOCK,
            };
            let mut add = |phi: &[f32], weight: &[f32]| {
                let k = weight.len() / outputs;
                let pack = gemm::pack((weight, Stride::rows(outputs)), k, outputs, pack);
                gemm::multiply((phi, turned), pack, y, Onto::Itself, k, outputs);
            };
            for first in (0..inputs).step_by(INPUTS) {
                let count = INPUTS.min(inputs - first);
                fill(kan, first, count, x, &mut planes, None);
                let own = first * bases * outputs..(first + count) * bases * outputs;
                add(planes.values, &spline_weight[own]);
                if !base_weight.is_empty() {
                    add(
                        planes.silu,
                        &base_weight[first * outputs..(first + count) * outputs],
                    );
                }
            }
        });
    });
}

/// d_y of every block, packed for both products.
struct Packed<'a> {
    /// d_y: samples in rows.
    plain: &'a [f32],
    /// d_yᵀ: outputs in rows.
    turned: &'a [f32],
    plain_len: usize,
    turned_len: usize,
}

impl Packed<'_> {
    fn plain(&self, block: usize, samples: usize, outputs: usize) -> &[f32] {
        let len = samples * outputs.next_multiple_of(PANEL);
        &self.plain[block * self.plain_len..][..len]
    }

    fn turned(&self, block: usize, samples: usize, outputs: usize) -> &[f32] {
        let len = outputs * samples.next_multiple_of(PANEL);
        &self.turned[block * self.turned_len..][..len]
    }
}

pub(super) fn backward(
    kan: &Kan,
    rows: usize,
    spline_weight: &[f32],
    base_weight: &[f32],
    x: &[f32],
    d_y: &[f32],
    grads: Gradients<'_>,
    d_x: Option<&mut [f32]>,
    scratch: &mut Vec<f32>,
) {
    let (inputs, outputs) = (kan.inputs, kan.outputs);
    if !grads.d_bias.is_empty() {
        dispatch!(simd::level(), simd => sum_rows(simd, d_y, grads.d_bias));
    }
    let [spline_len, base_len] =
        [&grads.d_spline_weight, &grads.d_base_weight].map(|d| d.len() / inputs);
    let wants_weights = spline_len + base_len > 0;
    if !wants_weights && d_x.is_none() {
        return;
    }
    let parallel = work(kan, rows) >= PARALLEL / 2;
    let blocks = rows.div_ceil(BLOCK);
    let d_x_len = if d_x.is_some() { rows } else { 0 };
    // The sums of one run of a long batch.
    let run_len = if rows > RUN { spline_len + base_len } else { 0 };
    let plain_len = if wants_weights {
        BLOCK * outputs.next_multiple_of(PANEL)
    } else {
        0
    };
    let turned_len = if d_x.is_some() { BLOCK * outputs } else { 0 };
    let scratch = room(
        scratch,
        inputs * (d_x_len + run_len) + blocks * (plain_len + turned_len),
    );
    let (d_x_by_input, rest) = scratch.split_at_mut(inputs * d_x_len);
    let (runs, rest) = rest.split_at_mut(inputs * run_len);
    let (plain, turned) = rest.split_at_mut(blocks * plain_len);
    parallel::for_each_chunks(
        [&mut *plain, &mut *turned],
        [plain_len, turned_len],
        blocks,
        parallel,
        |block, [plain, turned]| {
            let d_y = &d_y[block * BLOCK * outputs..];
            let samples = BLOCK.min(d_y.len() / outputs);
            if !plain.is_empty() {
                gemm::pack((d_y, Stride::rows(outputs)), samples, outputs, plain);
            }
            if !turned.is_empty() {
                gemm::pack((d_y, Stride::transposed(outputs)), outputs, samples, turned);
            }
        },
    );
    let packed = Packed {
        plain,
        turned,
        plain_len,
        turned_len,
    };
    let group = inputs.div_ceil(PIECES).clamp(1, INPUTS);
    parallel::for_each_chunks(
        [
            grads.d_spline_weight,
            grads.d_base_weight,
            d_x_by_input,
            runs,
        ],
        [spline_len, base_len, d_x_len, run_len].map(|len| len * group),
        inputs.div_ceil(group),
        parallel,
        |piece, [d_spline, d_base, d_x, run]| {
            let group = Group {
                kan,
                first: piece * group,
                count: group.min(inputs - piece * group),
                rows,
                spline_weight,
                base_weight,
                x,
                packed: &packed,
            };
            if run.is_empty() {
                return group.backward(0..rows, d_spline, d_base, d_x);
            }
            let (run_spline, run_base) = run.split_at_mut(d_spline.len());
            for from in (0..rows).step_by(RUN) {
                run_spline.fill(0.0);
                run_base.fill(0.0);
                group.backward(from..(from + RUN).min(rows), run_spline, run_base, d_x);
                dispatch!(simd::level(), simd => {
                    simd::axpy(simd, 1.0, run_spline, d_spline);
                    simd::axpy(simd, 1.0, run_base, d_base);
                });
            }
        },
    );
    if let Some(d_x) = d_x {
        by_sample(&scratch[..inputs * rows], rows, inputs, d_x);
    }
}

/// A group of inputs, and what its gradients are made of.
struct Group<'a> {
    kan: &'a Kan,
    first: usize,
    count: usize,
    rows: usize,
    spline_weight: &'a [f32],
    base_weight: &'a [f32],
    x: &'a [f32],
    packed: &'a Packed<'a>,
}

impl Group<'_> {
    /// Adds the gradients of a range of samples, which begins with a block; sets their d_x
    /// (`rows` values an input).
    fn backward(
        &self,
        range: std::ops::Range<usize>,
        d_spline: &mut [f32],
        d_base: &mut [f32],
        d_x: &mut [f32],
    ) {
        let (kan, first, count) = (self.kan, self.first, self.count);
        let (inputs, outputs, bases) = (kan.inputs, kan.outputs, kan.bases());
        let len = Planes::len(bases);
        parallel::with_scratch(3 * len, |room| {
            let (values, rest) = room.split_at_mut(len);
            let (slopes, d_phi) = rest.split_at_mut(len);
            let mut values = Planes::new(values, bases);
            let mut slopes = Planes::new(slopes, bases);
            let along = Stride {
                row: BLOCK,
                column: 1,
            };
            for at in range.clone().step_by(BLOCK) {
                let samples = BLOCK.min(range.end - at);
                let x = &self.x[at * inputs..][..samples * inputs];
                let wanted = if d_x.is_empty() {
                    None
                } else {
                    Some(&mut slopes)
                };
                fill(kan, first, count, x, &mut values, wanted);
                let block = at / BLOCK;
                for (phi, d_weight) in [
                    (&*values.values, &mut *d_spline),
                    (&*values.silu, &mut *d_base),
                ] {
                    if !d_weight.is_empty() {
                        let d_y = self.packed.plain(block, samples, outputs);
                        let onto = Onto::Itself;
                        gemm::multiply((phi, along), d_y, d_weight, onto, samples, outputs);
                    }
                }
                if d_x.is_empty() {
                    continue;
                }
                let d_y = self.packed.turned(block, samples, outputs);
                let d_phi = Planes::new(d_phi, bases);
                let spline = &self.spline_weight[first * bases * outputs..];
                let d_values = &mut d_phi.values[..count * bases * samples];
                let weight = (spline, Stride::rows(outputs));
                gemm::multiply(weight, d_y, d_values, Onto::Zero, outputs, samples);
                let d_silu = &mut d_phi.silu[..count * samples];
                if self.base_weight.is_empty() {
                    d_silu.fill(0.0);
                } else {
                    let weight = (&self.base_weight[first * outputs..], Stride::rows(outputs));
                    gemm::multiply(weight, d_y, d_silu, Onto::Zero, outputs, samples);
                }
                dispatch!(simd::level(), simd => for l in 0..count {
                    let d_x = &mut d_x[l * self.rows + at..][..samples];
                    let row = |r: usize| (&slopes.values[r * BLOCK..][..samples], &d_values[r * samples..][..samples]);
                    let base = (&slopes.silu[l * BLOCK..][..samples], &d_silu[l * samples..][..samples]);
                    along_slopes(simd, base, (l * bases..(l + 1) * bases).map(row), d_x);
                });
            }
        });
    }
}

/// d_x = Σ slopes·d_φ, over the base function and then the splines.
#[inline(always)]
fn along_slopes<'a, S: Simd>(
    simd: S,
    base: (&[f32], &[f32]),
    rows: impl Iterator<Item = (&'a [f32], &'a [f32])>,
    d_x: &mut [f32],
) {
    let _ = simd;
    for (d_x, (slope, d)) in d_x.iter_mut().zip(base.0.iter().zip(base.1)) {
        *d_x = slope * d;
    }
    for (slopes, d) in rows {
        for (d_x, (slope, d)) in d_x.iter_mut().zip(slopes.iter().zip(d)) {
            *d_x += slope * d;
        }
    }
}
