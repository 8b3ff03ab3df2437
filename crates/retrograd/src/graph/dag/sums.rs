//! Sums over the lanes of a batch.

use crate::Scalar;
use crate::simd::{self, dispatch};

/// out = start + Σ w_e·rows_e over the slots of one row; `batch` lanes.
pub(super) fn weighted_sum<T: Scalar>(
    terms: impl Iterator<Item = (T, usize)> + Clone,
    values: &[T],
    start: T,
    out: &mut [T],
    fast: bool,
) {
    let batch = out.len();
    if fast
        && let Some(values) = T::f32s(values)
        && let Some(out) = T::f32s_mut(out)
    {
        let terms = terms.map(|(w, at)| (w.to_f64(), at));
        let start = start.to_f64();
        return dispatch!(simd::level(), simd => {
            let _ = simd;
            lanes_sum(terms, values, start, out);
        });
    }
    for (b, out) in out.iter_mut().enumerate() {
        let mut sum = start;
        for (w, at) in terms.clone() {
            sum += w * values[at * batch + b];
        }
        *out = sum;
    }
}

/// Samples of one pass over a node's edges: their sums stay in registers.
const BLOCK: usize = 32;

/// The sums run in f64: along a deep graph the roundings of one node are the errors of all that
/// follow, and a node's number is then as good as f32 can hold it. Products of two f32 are exact in
/// f64, so there is nothing to fuse, and every machine gets the same bits.
#[inline(always)]
fn lanes_sum(
    terms: impl Iterator<Item = (f64, usize)> + Clone,
    values: &[f32],
    start: f64,
    out: &mut [f32],
) {
    let batch = out.len();
    let mut blocks = out.chunks_exact_mut(BLOCK);
    let mut first = 0;
    for out in &mut blocks {
        let mut sum = [start; BLOCK];
        for (w, at) in terms.clone() {
            let row = &values[at * batch + first..][..BLOCK];
            for k in 0..BLOCK {
                sum[k] += w * f64::from(row[k]);
            }
        }
        for k in 0..BLOCK {
            out[k] = sum[k] as f32;
        }
        first += BLOCK;
    }
    let out = blocks.into_remainder();
    let mut sum = [start; BLOCK];
    for (w, at) in terms {
        let row = &values[at * batch + first..][..out.len()];
        for (sum, &x) in sum.iter_mut().zip(row) {
            *sum += w * f64::from(x);
        }
    }
    for (out, sum) in out.iter_mut().zip(sum) {
        *out = sum as f32;
    }
}

/// Σ x, in f64 for f32.
pub(super) fn column_sum<T: Scalar>(x: &[T], fast: bool) -> T {
    if fast && let Some(x) = T::f32s(x) {
        let sum = dispatch!(simd::level(), simd => {
            let _ = simd;
            let mut lanes = [0.0_f64; 16];
            for x in x.chunks(16) {
                for (lane, &x) in lanes.iter_mut().zip(x) {
                    *lane += f64::from(x);
                }
            }
            lanes.iter().sum()
        });
        return T::from_f64(sum);
    }
    x.iter().copied().sum()
}

/// Σ a·b, in f64 for f32.
pub(super) fn product<T: Scalar>(a: &[T], b: &[T], fast: bool) -> T {
    if fast && let (Some(a), Some(b)) = (T::f32s(a), T::f32s(b)) {
        let sum = dispatch!(simd::level(), simd => {
            let _ = simd;
            let mut lanes = [0.0_f64; 16];
            for (a, b) in a.chunks(16).zip(b.chunks(16)) {
                for ((lane, &a), &b) in lanes.iter_mut().zip(a).zip(b) {
                    *lane += f64::from(a) * f64::from(b);
                }
            }
            lanes.iter().sum()
        });
        return T::from_f64(sum);
    }
    a.iter().zip(b).map(|(&a, &b)| a * b).sum()
}
