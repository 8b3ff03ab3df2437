//! f32 with SIMD, planes spread over threads; the same operations in the same order as the
//! reference, so the same bits.

use super::{Pool, PoolKind};
use crate::cuts::cuts;
use crate::parallel;
use crate::simd::{self, dispatch};

/// Input elements from which planes go to threads.
const PARALLEL: usize = 1 << 15;
cuts!(PARALLEL);

pub(super) fn forward(pool: &Pool, x: &[f32], y: &mut [f32], indices: &mut [u32]) {
    let (plane, out) = (
        pool.height * pool.width,
        pool.out_height() * pool.out_width(),
    );
    let parallel = x.len() >= PARALLEL;
    match pool.kind {
        PoolKind::Max => {
            parallel::for_each_chunk2(y, out, indices, out, parallel, |p, y, indices| {
                let x = &x[p * plane..][..plane];
                dispatch!(simd::level(), _ => largest(pool, x, y, indices));
            });
        }
        PoolKind::Average => parallel::for_each_chunk(y, out, parallel, |p, y| {
            let x = &x[p * plane..][..plane];
            dispatch!(simd::level(), _ => mean(pool, x, y));
        }),
    }
}

pub(super) fn backward(pool: &Pool, indices: &[u32], d_y: &[f32], d_x: &mut [f32]) {
    let (plane, out) = (
        pool.height * pool.width,
        pool.out_height() * pool.out_width(),
    );
    let parallel = d_x.len() >= PARALLEL;
    parallel::for_each_chunk(d_x, plane, parallel, |p, d_x| {
        let d_y = &d_y[p * out..][..out];
        d_x.fill(0.0);
        match pool.kind {
            PoolKind::Max => {
                for (&best, &d) in indices[p * out..][..out].iter().zip(d_y) {
                    d_x[best as usize] += d;
                }
            }
            PoolKind::Average => dispatch!(simd::level(), _ => spread(pool, d_y, d_x)),
        }
    });
}

/// The first largest of every window, and where it is; a NaN wins.
#[inline(always)]
fn largest(pool: &Pool, x: &[f32], y: &mut [f32], indices: &mut [u32]) {
    let (wide, k, s) = (pool.width, pool.kernel, pool.stride);
    let out_width = pool.out_width();
    let rows = y.chunks_exact_mut(out_width);
    for (r, (y, best)) in rows.zip(indices.chunks_exact_mut(out_width)).enumerate() {
        let top = r * s * wide;
        if (k, s) == (2, 2) {
            // Pairs side by side, which the compiler turns into vectors.
            let upper = x[top..top + wide].as_chunks::<2>().0;
            let lower = x[top + wide..top + 2 * wide].as_chunks::<2>().0;
            let columns = y.iter_mut().zip(best).zip(upper.iter().zip(lower));
            for (c, ((y, best), (upper, lower))) in columns.enumerate() {
                let first = (top + 2 * c) as u32;
                let below = first + wide as u32;
                let (mut value, mut at) = (upper[0], first);
                for (x, i) in [
                    (upper[1], first + 1),
                    (lower[0], below),
                    (lower[1], below + 1),
                ] {
                    let wins = x > value || x.is_nan();
                    value = if wins { x } else { value };
                    at = if wins { i } else { at };
                }
                (*y, *best) = (value, at);
            }
            continue;
        }
        for (c, (y, best)) in y.iter_mut().zip(best).enumerate() {
            let mut at = top + c * s;
            for u in 0..k {
                for i in top + u * wide + c * s..top + u * wide + c * s + k {
                    if x[i] > x[at] || x[i].is_nan() {
                        at = i;
                    }
                }
            }
            (*y, *best) = (x[at], at as u32);
        }
    }
}

/// The mean of every window, its elements added in order.
#[inline(always)]
fn mean(pool: &Pool, x: &[f32], y: &mut [f32]) {
    let (wide, k, s) = (pool.width, pool.kernel, pool.stride);
    let share = (1.0 / (k * k) as f64) as f32;
    for (r, y) in y.chunks_exact_mut(pool.out_width()).enumerate() {
        y.fill(0.0);
        for u in 0..k {
            let row = &x[(r * s + u) * wide..][..wide];
            for v in 0..k {
                for (y, x) in y.iter_mut().zip(row[v..].iter().step_by(s)) {
                    *y += x;
                }
            }
        }
        for y in y {
            *y *= share;
        }
    }
}

/// Every d_y shared out over its window.
#[inline(always)]
fn spread(pool: &Pool, d_y: &[f32], d_x: &mut [f32]) {
    let (wide, k, s) = (pool.width, pool.kernel, pool.stride);
    let share = (1.0 / (k * k) as f64) as f32;
    for (r, d_y) in d_y.chunks_exact(pool.out_width()).enumerate() {
        for u in 0..k {
            let row = &mut d_x[(r * s + u) * wide..][..wide];
            for (c, &d) in d_y.iter().enumerate() {
                for d_x in &mut row[c * s..c * s + k] {
                    *d_x += d * share;
                }
            }
        }
    }
}
