//! One sample in f32: lanes of basis functions along the inputs, then along the outputs. No
//! allocation and no threads, for loops that search.
//!
//! A row of outputs is covered by vectors of 16; the last one ends with the row and overlaps the
//! one before. Both compute the same numbers for the outputs they share. Sums are taken in the
//! order of [`cpu`](super::cpu), so that a sample has the same bits alone and in any batch.

use super::Kan;
use super::basis::{Tile, kept};
use super::cpu::CHAIN;
use crate::simd::{self, Fused, LANES, Simd, dispatch, f32x16, prelude::*};

/// Sixteen values from `at` on; of a row of fewer than 16 outputs, what there is and zeros.
#[inline(always)]
fn load<S: Simd, const PART: bool>(simd: S, row: &[f32], at: usize) -> f32x16<S> {
    match PART {
        true => simd::load(simd, row),
        false => f32x16::from_slice(simd, &row[at..at + LANES]),
    }
}

/// Cuts a row into blocks of 4, 2 and 1 vectors, few kernels to compile. The
/// last vector of a block may overlap the one before; alone it is only part of a vector. Gives
/// (first output, width).
#[inline(always)]
fn blocks(outputs: usize) -> impl Iterator<Item = (usize, usize)> {
    let mut first = 0;
    std::iter::from_fn(move || {
        let vectors = (outputs - first).div_ceil(LANES);
        let count = match vectors {
            0 => return None,
            1 => 1,
            2 | 3 => 2,
            _ => 4,
        };
        let width = (count * LANES).min(outputs - first);
        first += width;
        Some((first - width, width))
    })
}

/// Where vector v of a block of that width begins.
#[inline(always)]
fn place(v: usize, width: usize) -> usize {
    (v * LANES).min(width.saturating_sub(LANES))
}

pub(super) fn forward(
    kan: &Kan,
    spline_weight: &[f32],
    base_weight: &[f32],
    bias: &[f32],
    x: &[f32],
    y: &mut [f32],
) {
    by_degree!(kan.degree, N => dispatch!(simd::level(), simd =>
        forward_simd::<_, N>(simd, kan, spline_weight, base_weight, bias, x, y)));
}

#[inline(always)]
fn forward_simd<S: Simd, const N: usize>(
    simd: S,
    kan: &Kan,
    spline_weight: &[f32],
    base_weight: &[f32],
    bias: &[f32],
    x: &[f32],
    y: &mut [f32],
) {
    let inputs = kan.inputs;
    if bias.is_empty() {
        y.fill(0.0);
    } else {
        y.copy_from_slice(bias);
    }
    let mut tile = Tile::new();
    for first in (0..inputs).step_by(CHAIN) {
        let range = first..inputs.min(first + CHAIN);
        tile.fill(&kan.table, first, x);
        for (output, width) in blocks(kan.outputs) {
            macro_rules! rows {
                ($nv:literal, $part:literal) => {
                    rows::<S, N, $nv, $part>(
                        simd,
                        kan,
                        &tile,
                        range.clone(),
                        spline_weight,
                        base_weight,
                        output,
                        &mut y[output..output + width],
                    )
                };
            }
            match width.div_ceil(LANES) {
                1 if width < LANES => rows!(1, true),
                1 => rows!(1, false),
                2 => rows!(2, false),
                _ => rows!(4, false),
            }
        }
    }
}

/// y += the share of a few inputs, for one block of outputs.
#[inline(always)]
fn rows<S: Simd, const N: usize, const NV: usize, const PART: bool>(
    simd: S,
    kan: &Kan,
    tile: &Tile,
    inputs: std::ops::Range<usize>,
    spline_weight: &[f32],
    base_weight: &[f32],
    output: usize,
    y: &mut [f32],
) {
    let (outputs, bases, width) = (kan.outputs, kan.bases(), y.len());
    let mut sum = [f32x16::splat(simd, 0.0); NV];
    for (l, i) in inputs.enumerate() {
        let l = l % LANES;
        let first = i * bases + tile.start[l] as usize;
        for m in 0..kept::<N>(kan.degree) {
            let b = f32x16::splat(simd, tile.values[m][l]);
            let row = &spline_weight[(first + m) * outputs + output..][..width];
            for v in 0..NV {
                let w = load::<S, PART>(simd, row, place(v, width));
                sum[v] = w.fma(b, sum[v]);
            }
        }
        if !base_weight.is_empty() {
            let b = f32x16::splat(simd, tile.silu[l]);
            let row = &base_weight[i * outputs + output..][..width];
            for v in 0..NV {
                let w = load::<S, PART>(simd, row, place(v, width));
                sum[v] = w.fma(b, sum[v]);
            }
        }
    }
    // All are read before any is written: the last two may overlap.
    for v in 0..NV {
        sum[v] += load::<S, PART>(simd, y, place(v, width));
    }
    for v in 0..NV {
        simd::store(sum[v], &mut y[place(v, width)..]);
    }
}
