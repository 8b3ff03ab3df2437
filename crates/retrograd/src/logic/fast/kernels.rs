//! The gates on vectors of cells: forward, backward, and the way from logits to coefficients.
//!
//! A value of a circuit is V vectors of sixteen cells. A gate's four coefficients are broadcast.

use super::lanes::Lanes;
use super::plan::LayerPlan;
use crate::logic::gates::{GATES, TABLE};
use crate::simd::{Fused, Simd, array, exp, f32x16, prelude::*};
use fearless_simd::f32x4;

#[inline(always)]
fn load<S: Simd, const V: usize>(simd: S, at: &[Lanes]) -> [f32x16<S>; V] {
    let at: &[Lanes; V] = at[..V].try_into().expect("V vectors");
    array(
        #[inline(always)]
        |v| f32x16::load_array_ref(simd, &at[v]),
    )
}

#[inline(always)]
fn store<S: Simd, const V: usize>(x: [f32x16<S>; V], at: &mut [Lanes]) {
    let at: &mut [Lanes; V] = (&mut at[..V]).try_into().expect("V vectors");
    for v in 0..V {
        x[v].store_array(&mut at[v]);
    }
}

#[inline(always)]
fn add<S: Simd, const V: usize>(x: [f32x16<S>; V], y: [f32x16<S>; V]) -> [f32x16<S>; V] {
    array(
        #[inline(always)]
        |v| x[v] + y[v],
    )
}

/// One layer. The i-th input is at `inputs[i·stride..]`, the j-th output at `outputs[j·V..]`.
#[inline(always)]
pub(super) fn layer_forward<S: Simd, const V: usize>(
    simd: S,
    plan: &LayerPlan,
    coefficients: &[[f32; 4]],
    inputs: &[Lanes],
    stride: usize,
    outputs: &mut [Lanes],
) {
    let mut gates = coefficients[plan.first..].iter().zip(&plan.outputs);
    let mut last = [f32x16::splat(simd, 0.0); V];
    for group in &plan.groups {
        let a = if group.chained {
            last
        } else {
            load::<S, V>(simd, &inputs[group.a as usize * stride..])
        };
        let b = load::<S, V>(simd, &inputs[group.b as usize * stride..]);
        for _ in 0..group.gates {
            let Some((c, &j)) = gates.next() else { return };
            let c0 = f32x16::splat(simd, c[0]);
            let c1 = f32x16::splat(simd, c[1]);
            let c2 = f32x16::splat(simd, c[2]);
            let c3 = f32x16::splat(simd, c[3]);
            let y: [f32x16<S>; V] = array(
                #[inline(always)]
                |v| {
                    let slope = c3.fma(b[v], c1);
                    slope.fma(a[v], c2.fma(b[v], c0))
                },
            );
            store(y, &mut outputs[j as usize * V..]);
        }
        last = b;
    }
}

/// One layer backward: the gradient of the inputs, the i-th at `d_inputs[i·V..]`, overwritten, and
/// where `SUMS` the four sums of every gate, added to `sums`.
#[inline(always)]
pub(super) fn layer_backward<S: Simd, const V: usize, const SUMS: bool>(
    simd: S,
    plan: &LayerPlan,
    coefficients: &[[f32; 4]],
    inputs: &[Lanes],
    stride: usize,
    d_outputs: &[Lanes],
    d_inputs: &mut [Lanes],
    sums: &mut [[f32; 4]],
) {
    let zero = [f32x16::splat(simd, 0.0); V];
    let gates = coefficients[plan.first..].iter().zip(&plan.outputs);
    let mut gates = gates.zip(&mut sums[plan.first..]);
    let (mut last, mut carry) = (zero, zero);
    for group in &plan.groups {
        let at_a = group.a as usize;
        let at_b = group.b as usize;
        let (a, mut d_a) = if group.chained {
            (last, carry)
        } else {
            (load::<S, V>(simd, &inputs[at_a * stride..]), zero)
        };
        let b = load::<S, V>(simd, &inputs[at_b * stride..]);
        let mut d_b = zero;
        for _ in 0..group.gates {
            let Some(((c, &j), sum)) = gates.next() else {
                return;
            };
            let c1 = f32x16::splat(simd, c[1]);
            let c2 = f32x16::splat(simd, c[2]);
            let c3 = f32x16::splat(simd, c[3]);
            let g = load::<S, V>(simd, &d_outputs[j as usize * V..]);
            let (mut s, mut s_a, mut s_b, mut s_ab) = (zero[0], zero[0], zero[0], zero[0]);
            for v in 0..V {
                d_a[v] = g[v].fma(c3.fma(b[v], c1), d_a[v]);
                d_b[v] = g[v].fma(c3.fma(a[v], c2), d_b[v]);
                if SUMS {
                    let gb = g[v] * b[v];
                    if v == 0 {
                        s = g[0];
                        s_a = g[0] * a[0];
                        s_b = gb;
                        s_ab = gb * a[0];
                    } else {
                        s += g[v];
                        s_a = g[v].fma(a[v], s_a);
                        s_b += gb;
                        s_ab = gb.fma(a[v], s_ab);
                    }
                }
            }
            if SUMS {
                add_sums(simd, [s, s_a, s_b, s_ab], sum);
            }
        }
        let at = &mut d_inputs[at_a * V..];
        if group.add_a {
            d_a = add(d_a, load::<S, V>(simd, at));
        }
        store(d_a, at);
        if !group.carried {
            let at = &mut d_inputs[at_b * V..];
            let d_b = if group.add_b {
                add(d_b, load::<S, V>(simd, at))
            } else {
                d_b
            };
            store(d_b, at);
        }
        (last, carry) = (b, d_b);
    }
    for &i in &plan.unread {
        store(zero, &mut d_inputs[i as usize * V..]);
    }
}

/// Adds the lanes of four vectors, pairwise, to four numbers.
#[inline(always)]
fn add_sums<S: Simd>(simd: S, vectors: [f32x16<S>; 4], sum: &mut [f32; 4]) {
    let total = sum_lanes(vectors) + f32x4::load_array_ref(simd, sum);
    total.store_array(sum);
}

/// The sum of the lanes of each of four vectors.
#[inline(always)]
fn sum_lanes<S: Simd>([a, b, c, d]: [f32x16<S>; 4]) -> f32x4<S> {
    // Two vectors interleaved and halved: the lanes of one, then of the other, alternate.
    let x = a.zip_low(c) + a.zip_high(c);
    let y = b.zip_low(d) + b.zip_high(d);
    let (low, high) = (x.zip_low(y) + x.zip_high(y)).split();
    let (low, high) = (low + high).split();
    low + high
}

/// The columns of the gates' table: the coefficient of 1, a, b or ab of every gate.
const fn column(c: usize) -> [f32; GATES] {
    let mut column = [0.0; GATES];
    let mut i = 0;
    while i < GATES {
        column[i] = TABLE[i][c] as f32;
        i += 1;
    }
    column
}
const COLUMNS: [[f32; GATES]; 4] = [column(0), column(1), column(2), column(3)];

/// The softmax of sixteen logits and the four coefficients of the gate they make.
#[inline(always)]
pub(super) fn soften<S: Simd>(simd: S, logits: &[f32; GATES]) -> ([f32; GATES], [f32; 4]) {
    let x = f32x16::load_array_ref(simd, logits);
    #[allow(
        clippy::disallowed_methods,
        reason = "e⁰ is 1 for either zero, and one NaN makes the sum one"
    )]
    let largest = x.reduce_max();
    let e = exp(simd, x - f32x16::splat(simd, largest));
    let p = e / f32x16::splat(simd, e.reduce_sum());
    let [c0, c1, c2, c3] = COLUMNS;
    let c = sum_lanes([
        p * f32x16::load_array(simd, c0),
        p * f32x16::load_array(simd, c1),
        p * f32x16::load_array(simd, c2),
        p * f32x16::load_array(simd, c3),
    ]);
    (p.to_array(), c.to_array())
}

/// The columns in f64.
const COLUMNS_F64: [[f64; GATES]; 4] = {
    let mut columns = [[0.0; GATES]; 4];
    let mut i = 0;
    while i < 4 * GATES {
        columns[i / GATES][i % GATES] = COLUMNS[i / GATES][i % GATES] as f64;
        i += 1;
    }
    columns
};

/// The gradient of sixteen logits from the four sums: pᵢ (hᵢ − Σⱼ pⱼhⱼ) with h = TABLE·S.
///
/// In f64: hᵢ and the mean are nearly equal where a gate has made up its mind, and their
/// difference would lose what digits f32 has. Plain loops, which the compiler turns into vectors.
#[inline(always)]
pub(super) fn logit_gradient(
    p: &[f32; GATES],
    sums: [f64; 4],
    accumulate: bool,
    d_logits: &mut [f32],
) {
    let mut h = [0.0; GATES];
    for (sum, column) in sums.iter().zip(&COLUMNS_F64) {
        for i in 0..GATES {
            h[i] += sum * column[i];
        }
    }
    let p = p.map(f64::from);
    let (mut mean, mut whole) = ([0.0; 8], [0.0; 8]);
    for i in 0..GATES {
        mean[i % 8] += p[i] * h[i];
        whole[i % 8] += p[i];
    }
    let mean = mean.iter().sum::<f64>() / whole.iter().sum::<f64>();
    for (i, d) in d_logits.iter_mut().enumerate() {
        let own = p[i] * (h[i] - mean);
        *d = if accumulate {
            (f64::from(*d) + own) as f32
        } else {
            own as f32
        };
    }
}
