//! y = x·W + b on dense or sparse rows.
//!
//! W is stored `[in][out]`, the transpose of PyTorch's `(out, in)`: a non-zero of x then reads one
//! contiguous row. Backward: d_W = xᵀ·d_y, d_b = Σ_rows d_y, d_x = d_y·Wᵀ; for sparse x only at its
//! non-zeros, d_x_p = d_y_i · W_{feature(p)}.

use crate::cuts::cuts;
use crate::graph::batch::NodeValues;
use crate::graph::ops::{Aggregate, Coefficient, aggregate, edge_dot};
use crate::layer::gemm::{Onto, Stride, gemm};
use crate::layer::graph::{Back, Context};
use crate::simd::{self, dispatch};
use crate::{Scalar, parallel};

/// A linear map's sizes, and the slots of its tensors in the layer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Linear {
    pub weight: usize,
    pub bias: Option<usize>,
    /// Width of x.
    pub inputs: usize,
    /// Width of y.
    pub outputs: usize,
}

impl Linear {
    /// The weight's slot, and the bias's in the next one.
    pub fn new(weight: usize, inputs: usize, outputs: usize) -> Self {
        Linear {
            weight,
            bias: Some(weight + 1),
            inputs,
            outputs,
        }
    }

    /// b, where there is one.
    pub fn bias<'p, T>(&self, c: &Context<'p, T>) -> Option<&'p [T]> {
        self.bias.map(|slot| c.params[slot])
    }

    /// y = x·W + b, or y += with `add`.
    pub fn forward<T: Scalar>(
        &self,
        c: &Context<'_, T>,
        x: NodeValues<'_, T>,
        y: &mut [T],
        add: bool,
    ) {
        self.multiply(c, x, y, add, self.bias(c));
    }

    /// y = x·W, without the bias.
    pub fn multiply_only<T: Scalar>(&self, c: &Context<'_, T>, x: NodeValues<'_, T>, y: &mut [T]) {
        self.multiply(c, x, y, false, None);
    }

    fn multiply<T: Scalar>(
        &self,
        c: &Context<'_, T>,
        x: NodeValues<'_, T>,
        y: &mut [T],
        add: bool,
        bias: Option<&[T]>,
    ) {
        let weight = c.params[self.weight];
        match x {
            NodeValues::Sparse(pattern, values) => {
                let sum = Aggregate {
                    bias,
                    add,
                    ..Aggregate::new(&pattern.by_row, Coefficient::Slot(values))
                };
                aggregate(&sum, weight, self.outputs, y, c.fast);
            }
            NodeValues::Dense(x) => {
                let (inputs, outputs) = (self.inputs, self.outputs);
                if c.fast
                    && let (Some(x), Some(w)) = (T::f32s(x), T::f32s(weight))
                {
                    let y = T::f32s_mut(y).expect("one scalar");
                    return forward_f32([inputs, outputs], x, w, bias.and_then(T::f32s), y, add);
                }
                for (n, y) in y.chunks_exact_mut(outputs).enumerate() {
                    for (o, y) in y.iter_mut().enumerate() {
                        let mut sum = bias.map_or(T::ZERO, |b| b[o]);
                        for i in 0..inputs {
                            sum += x[n * inputs + i] * weight[i * outputs + o];
                        }
                        *y = if add { *y + sum } else { sum };
                    }
                }
            }
        }
    }

    /// Adds d_W and d_b to the gradients that are asked for.
    pub fn backward_params<T: Scalar>(&self, b: &mut Back<'_, T>, x: NodeValues<'_, T>, d_y: &[T]) {
        self.backward_weight(b, x, d_y);
        self.backward_bias(b, d_y);
    }

    /// Adds d_W alone: for a bias that is added elsewhere.
    pub fn backward_weight<T: Scalar>(&self, b: &mut Back<'_, T>, x: NodeValues<'_, T>, d_y: &[T]) {
        let fast = b.c.fast;
        if let Some((d_weight, partial)) = b.gradient(self.weight) {
            self.add_weight_gradient(x, d_y, d_weight, partial, fast);
        }
    }

    fn add_weight_gradient<T: Scalar>(
        &self,
        x: NodeValues<'_, T>,
        d_y: &[T],
        d_weight: &mut [T],
        partial: &mut Vec<T>,
        fast: bool,
    ) {
        let (inputs, outputs) = (self.inputs, self.outputs);
        match x {
            NodeValues::Sparse(pattern, values) => {
                let c = Coefficient::Gather(values, &pattern.slot);
                let sum = Aggregate::new(&pattern.by_column, c).adding();
                aggregate(&sum, d_y, outputs, d_weight, fast);
            }
            NodeValues::Dense(x) => {
                if fast
                    && let (Some(x), Some(d_y)) = (T::f32s(x), T::f32s(d_y))
                    && let Some(partial) = T::f32_vec(partial)
                {
                    let d_weight = T::f32s_mut(d_weight).expect("one scalar");
                    return backward_weight_f32([inputs, outputs], x, d_y, d_weight, partial);
                }
                // Summed first, then added: what is already there must not change the roundings.
                let rows = x.len() / inputs;
                for i in 0..inputs {
                    for o in 0..outputs {
                        d_weight[i * outputs + o] += (0..rows)
                            .map(|n| x[n * inputs + i] * d_y[n * outputs + o])
                            .sum();
                    }
                }
            }
        }
    }

    /// Adds d_b alone, from the gradient of wherever the bias was added.
    pub fn backward_bias<T: Scalar>(&self, b: &mut Back<'_, T>, d_y: &[T]) {
        if let Some(bias) = self.bias {
            b.add_column_sums(bias, d_y);
        }
    }

    /// d_x = d_y·Wᵀ, or d_x += with `add`. For sparse x, one number per non-zero.
    pub fn backward_input<T: Scalar>(
        &self,
        c: &Context<'_, T>,
        x: NodeValues<'_, T>,
        d_y: &[T],
        d_x: &mut [T],
        add: bool,
    ) {
        let weight = c.params[self.weight];
        let (inputs, outputs) = (self.inputs, self.outputs);
        match x {
            NodeValues::Sparse(pattern, _) => {
                // Two maps of one sparse input happen in `sage` alone; input gradients of sparse
                // features are asked for by verification only, so memory is no concern.
                let mut part = vec![T::ZERO; d_x.len()];
                edge_dot(
                    &pattern.by_row,
                    d_y,
                    weight,
                    [outputs, 1],
                    &mut part,
                    c.fast,
                );
                for (d, part) in d_x.iter_mut().zip(part) {
                    *d = if add { *d + part } else { part };
                }
            }
            NodeValues::Dense(_) => {
                if c.fast
                    && let (Some(w), Some(d_y)) = (T::f32s(weight), T::f32s(d_y))
                {
                    let d_x = T::f32s_mut(d_x).expect("one scalar");
                    return backward_input_f32([inputs, outputs], w, d_y, d_x, add);
                }
                for (d_x, d_y) in d_x.chunks_exact_mut(inputs).zip(d_y.chunks_exact(outputs)) {
                    for (i, d_x) in d_x.iter_mut().enumerate() {
                        let w = &weight[i * outputs..(i + 1) * outputs];
                        let sum: T = w.iter().zip(d_y).map(|(&w, &d)| w * d).sum();
                        *d_x = if add { *d_x + sum } else { sum };
                    }
                }
            }
        }
    }
}

/// Multiply-adds of one piece, 2 to 5 µs: work of two pieces goes to threads
/// (`retrograd bench threshold-dense` measures that).
const PIECE: usize = 1 << 15;

/// Rows of one piece, a multiple of 16; at least 64, since every piece packs the weights anew.
fn piece_rows([inputs, outputs]: [usize; 2]) -> usize {
    (PIECE / (inputs * outputs).max(1))
        .max(64)
        .next_multiple_of(16)
}

fn forward_f32(
    [inputs, outputs]: [usize; 2],
    x: &[f32],
    weight: &[f32],
    bias: Option<&[f32]>,
    y: &mut [f32],
    add: bool,
) {
    let piece = piece_rows([inputs, outputs]);
    parallel::for_each_chunk(y, piece * outputs, true, |i, y| {
        let rows = y.len() / outputs;
        if let Some(bias) = bias {
            for y in y.chunks_exact_mut(outputs) {
                for (y, &b) in y.iter_mut().zip(bias) {
                    *y = if add { *y + b } else { b };
                }
            }
        }
        gemm(
            [rows, outputs, inputs],
            (&x[i * piece * inputs..], Stride::rows(inputs)),
            (weight, Stride::rows(outputs)),
            y,
            if add || bias.is_some() {
                Onto::Itself
            } else {
                Onto::Zero
            },
        );
    });
}

fn backward_input_f32(
    [inputs, outputs]: [usize; 2],
    weight: &[f32],
    d_y: &[f32],
    d_x: &mut [f32],
    add: bool,
) {
    let piece = piece_rows([inputs, outputs]);
    parallel::for_each_chunk(d_x, piece * inputs, true, |i, d_x| {
        gemm(
            [d_x.len() / inputs, inputs, outputs],
            (&d_y[i * piece * outputs..], Stride::rows(outputs)),
            (weight, Stride::transposed(outputs)),
            d_x,
            if add { Onto::Itself } else { Onto::Zero },
        );
    });
}

/// Rows of x that one partial sum of d_W covers: short enough to be summed well in f32, long enough
/// that the partial sums cost little beside the products.
const RUN: usize = 256;
/// Columns and rows of a block that is added up in f32, and terms of a chain of products.
const COLUMNS: usize = 64;
const SUM_ROWS: usize = 64;
const TERMS: usize = 1024;
cuts!(PIECE, RUN, COLUMNS, SUM_ROWS, TERMS);

fn backward_weight_f32(
    [inputs, outputs]: [usize; 2],
    x: &[f32],
    d_y: &[f32],
    d_weight: &mut [f32],
    partial: &mut Vec<f32>,
) {
    let rows = x.len() / inputs.max(1);
    let run = RUN.max(rows.div_ceil(64));
    let parallel = x.len() * outputs >= 2 * PIECE;
    parallel::sum_pieces(
        rows.div_ceil(run),
        d_weight,
        partial,
        parallel,
        |i, d_weight| {
            gemm(
                [inputs, outputs, run.min(rows - i * run)],
                (&x[i * run * inputs..], Stride::transposed(inputs)),
                (&d_y[i * run * outputs..], Stride::rows(outputs)),
                d_weight,
                Onto::Zero,
            );
        },
    );
}

/// sums[c] += Σ_rows x[row][c].
pub(crate) fn column_sums<T: Scalar>(x: &[T], sums: &mut [T], partial: &mut Vec<T>, fast: bool) {
    let width = sums.len();
    if width == 0 {
        return;
    }
    if fast
        && let Some(x) = T::f32s(x)
        && let Some(partial) = T::f32_vec(partial)
    {
        let sums = T::f32s_mut(sums).expect("one scalar");
        // 0.1 to 0.3 ns a number: a piece takes some 2 µs.
        let rows = (PIECE / 4 / width).next_multiple_of(64);
        let pieces = x.len().div_ceil(rows * width);
        parallel::sum_pieces(pieces, sums, partial, pieces > 1, |piece, sums| {
            let x = &x[piece * rows * width..];
            let x = &x[..x.len().min(rows * width)];
            dispatch!(simd::level(), simd => {
                let _ = simd;
                add_rows(x, sums);
            });
        });
        return;
    }
    for (column, sum) in sums.iter_mut().enumerate() {
        *sum += x.iter().skip(column).step_by(width).copied().sum();
    }
}

/// Runs of [`SUM_ROWS`] rows in f32, their sums in f64, a block of columns at a time.
#[inline(always)]
fn add_rows(x: &[f32], sums: &mut [f32]) {
    let width = sums.len();
    for (block, sums) in sums.chunks_mut(COLUMNS).enumerate() {
        let first = block * COLUMNS;
        let mut total = [0.0_f64; COLUMNS];
        for rows in x.chunks(SUM_ROWS * width) {
            let mut run = [0.0_f32; COLUMNS];
            for row in rows.chunks_exact(width) {
                for (r, &x) in run.iter_mut().zip(&row[first..first + sums.len()]) {
                    *r += x;
                }
            }
            for (t, &r) in total.iter_mut().zip(&run) {
                *t += f64::from(r);
            }
        }
        for (s, t) in sums.iter_mut().zip(total) {
            *s = t as f32;
        }
    }
}

/// Σ a·b, in f64 on top for f32.
pub(crate) fn dot<T: Scalar>(a: &[T], b: &[T], fast: bool) -> T {
    if fast && let (Some(a), Some(b)) = (T::f32s(a), T::f32s(b)) {
        let sum: f64 = a
            .chunks(TERMS)
            .zip(b.chunks(TERMS))
            .map(|(a, b)| f64::from(dispatch!(simd::level(), simd => simd::dot(simd, a, b))))
            .sum();
        return T::from_f64(sum);
    }
    a.iter().zip(b).map(|(&a, &b)| a * b).sum()
}
