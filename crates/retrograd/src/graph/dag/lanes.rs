//! Sums over the edges of a node and over the samples of a block, in lanes.
//!
//! They run in f64: along a deep graph the roundings of one node are the errors of all that follow,
//! and a node's number is then as good as f32 can hold it. A product of two f32 is exact in f64, so
//! a fused multiply-add gives the bits of an unfused one, and every machine the same.

use std::ops::Range;

use super::cpu::Wanted;
use crate::graph::pattern::Rows;
use crate::simd::{self, LANES, Simd, dispatch, f32x16, f64x8, prelude::*};

/// Samples of a block: their sums are four vectors of f64, enough to hide the latency of an
/// addition. `dag-10k` on one thread takes a fifth longer with 16; 64 gain nothing.
pub(super) const BLOCK: usize = 32;
crate::cuts::cuts!(BLOCK);

/// The lanes of a row in f64. `FULL`: they fill all `N` vectors.
#[inline(always)]
fn wide<S: Simd, const N: usize, const FULL: bool>(simd: S, row: &[f32]) -> [[f64x8<S>; 2]; N] {
    simd::array(
        #[inline(always)]
        |i| {
            let (low, high) = if FULL {
                f32x16::from_slice(simd, &row[i * LANES..(i + 1) * LANES])
            } else {
                simd::load_short(simd, &row[i * LANES..])
            }
            .widen();
            [low, high]
        },
    )
}

/// Rows of values, `width` samples each, from that of place `first` on.
#[derive(Clone, Copy)]
pub(super) struct Values<'a> {
    pub rows: &'a [f32],
    pub first: usize,
    pub width: usize,
}

/// out_v = start_v + Σ w_e·values_e over the slots of v, in lanes.
pub(super) struct Sums<'a, F> {
    pub rows: &'a Rows,
    /// The edge of every slot.
    pub edge: &'a [u32],
    pub weight: &'a [f32],
    pub start: F,
}

impl<F: Fn(usize) -> f32> Sums<'_, F> {
    pub fn of(&self, places: Range<usize>, values: Values<'_>, out: &mut [f32]) {
        dispatch!(simd::level(), simd => match values.width {
            BLOCK => self.lanes::<_, 2, true>(simd, places, values, out),
            17.. => self.lanes::<_, 2, false>(simd, places, values, out),
            _ => self.lanes::<_, 1, false>(simd, places, values, out),
        });
    }

    #[inline(always)]
    fn lanes<S: Simd, const N: usize, const FULL: bool>(
        &self,
        simd: S,
        places: Range<usize>,
        values: Values<'_>,
        out: &mut [f32],
    ) {
        let width = if FULL { N * LANES } else { values.width };
        for (v, out) in places.zip(out.chunks_exact_mut(width)) {
            let start = f64x8::splat(simd, f64::from((self.start)(v)));
            let mut sum = [[start; 2]; N];
            let slots = self.rows.range(v);
            let neighbours = &self.rows.neighbour[slots.clone()];
            for (&neighbour, &edge) in neighbours.iter().zip(&self.edge[slots]) {
                let weight = f64x8::splat(simd, f64::from(self.weight[edge as usize]));
                let row = &values.rows[(neighbour as usize - values.first) * width..][..width];
                let row = wide::<S, N, FULL>(simd, row);
                for i in 0..N {
                    for half in 0..2 {
                        sum[i][half] = add_exact(row[i][half], weight, sum[i][half]);
                    }
                }
            }
            for (i, [low, high]) in sum.into_iter().enumerate() {
                let out = &mut out[i * LANES..];
                if FULL {
                    low.narrow(high).store_slice(&mut out[..LANES]);
                } else {
                    simd::store_short(low.narrow(high), out);
                }
            }
        }
    }
}

/// a·b + c of numbers that were f32: the product is exact, so that fused or not the result is rounded
/// once, and the same.
#[inline(always)]
#[allow(clippy::disallowed_methods, reason = "rounded once in either form")]
fn add_exact<S: Simd>(a: f64x8<S>, b: f64x8<S>, c: f64x8<S>) -> f64x8<S> {
    a.mul_add(b, c)
}

/// d_w of every slot of some places and d_bias of the places, over the samples of one block.
pub(super) struct Products<'a> {
    pub rows: &'a Rows,
    pub a: &'a [f32],
    pub width: usize,
    pub wanted: Wanted,
}

impl Products<'_> {
    pub fn of(&self, places: Range<usize>, d_u: &[f32], d_slot: &mut [f32], d_place: &mut [f32]) {
        dispatch!(simd::level(), simd => match self.width {
            BLOCK => self.lanes::<_, 2, true>(simd, places, d_u, d_slot, d_place),
            17.. => self.lanes::<_, 2, false>(simd, places, d_u, d_slot, d_place),
            _ => self.lanes::<_, 1, false>(simd, places, d_u, d_slot, d_place),
        });
    }

    #[inline(always)]
    fn lanes<S: Simd, const N: usize, const FULL: bool>(
        &self,
        simd: S,
        places: Range<usize>,
        d_u: &[f32],
        d_slot: &mut [f32],
        d_place: &mut [f32],
    ) {
        let (rows, wanted) = (self.rows, self.wanted);
        let width = if FULL { N * LANES } else { self.width };
        let first = rows.start[places.start] as usize;
        let zero = f64x8::splat(simd, 0.0);
        let put = |sum: f64x8<S>, to: &mut f32| {
            let before = if wanted.accumulate { *to } else { 0.0 };
            *to = (f64::from(before) + sum.reduce_sum()) as f32;
        };
        let nodes = places.zip(d_u.chunks_exact(width)).zip(d_place);
        for ((v, d_u), d_place) in nodes {
            let d_u = wide::<S, N, FULL>(simd, d_u);
            if wanted.weights {
                let slots = rows.range(v);
                let d_slot = &mut d_slot[slots.start - first..slots.end - first];
                for (&source, d_w) in rows.neighbour[slots].iter().zip(d_slot) {
                    let a = wide::<S, N, FULL>(simd, &self.a[source as usize * width..][..width]);
                    let mut sum = zero;
                    for i in 0..N {
                        for half in 0..2 {
                            sum = add_exact(a[i][half], d_u[i][half], sum);
                        }
                    }
                    put(sum, d_w);
                }
            }
            if wanted.biases {
                let mut sum = zero;
                for [low, high] in d_u {
                    sum = sum + low + high;
                }
                put(sum, d_place);
            }
        }
    }
}
