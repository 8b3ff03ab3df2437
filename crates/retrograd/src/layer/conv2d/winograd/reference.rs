//! [Winograd's form](super) in plain loops and any scalar.
//!
//! The oracle stays the direct sum. What rounding can explain is another matter: the transformations of inputs,
//! kernels and results round, too, so the verifier's number is run on them where the fast kernels make them.

use super::super::Conv2d;
use super::super::reference::{fold, pad};
use super::CHAIN;
use crate::Scalar;
use crate::layer::{Backward, Forward};

/// Bᵀ·x.
fn input_line<T: Scalar>(x: [T; 4]) -> [T; 4] {
    [x[0] - x[2], x[1] + x[2], x[2] - x[1], x[1] - x[3]]
}

/// G·w.
fn weight_line<T: Scalar>(w: [T; 3]) -> [T; 4] {
    let (half, outer) = (T::from_f64(0.5), w[0] + w[2]);
    [w[0], (outer + w[1]) * half, (outer - w[1]) * half, w[2]]
}

/// Aᵀ·m.
fn output_line<T: Scalar>(m: [T; 4]) -> [T; 2] {
    [m[0] + m[1] + m[2], m[1] - m[2] - m[3]]
}

/// A·d, the adjoint of [`output_line`].
fn gradient_line<T: Scalar>(d: [T; 2]) -> [T; 4] {
    [d[0], d[0] + d[1], d[0] - d[1], T::ZERO - d[1]]
}

/// Gᵀ·u, the adjoint of [`weight_line`].
fn kernel_line<T: Scalar>(u: [T; 4]) -> [T; 3] {
    let half = T::from_f64(0.5);
    let sum = (u[1] + u[2]) * half;
    [u[0] + sum, (u[1] - u[2]) * half, sum + u[3]]
}

/// A line's map on the columns and then on the rows of a square.
fn both<T: Scalar, const N: usize, const M: usize>(
    square: [[T; N]; N],
    line: fn([T; N]) -> [T; M],
) -> [[T; M]; M] {
    let columns: [[T; M]; N] = std::array::from_fn(|c| line(std::array::from_fn(|r| square[r][c])));
    std::array::from_fn(|r| line(std::array::from_fn(|c| columns[c][r])))
}

/// Planes of one size, 0 around them.
struct Planes<'a, T> {
    values: &'a [T],
    height: usize,
    width: usize,
}

impl<T: Scalar> Planes<'_, T> {
    /// The square of a plane from a row and column on.
    fn square<const N: usize>(&self, plane: usize, top: isize, left: isize) -> [[T; N]; N] {
        let at = |start: isize, k: usize, size: usize| {
            usize::try_from(start + k as isize)
                .ok()
                .filter(|&at| at < size)
        };
        std::array::from_fn(|r| {
            std::array::from_fn(
                |c| match (at(top, r, self.height), at(left, c, self.width)) {
                    (Some(r), Some(c)) => self.values[(plane * self.height + r) * self.width + c],
                    _ => T::ZERO,
                },
            )
        })
    }

    /// y (outputs × height × width) = the correlation with `kernels` (outputs × inputs, transformed), where the
    /// first square begins `before` the planes.
    fn correlate(
        &self,
        kernels: &[[[T; 4]; 4]],
        inputs: usize,
        before: isize,
        (height, width): (usize, usize),
        y: &mut [T],
    ) {
        for row in (0..height).step_by(2) {
            for column in (0..width).step_by(2) {
                let squares: Vec<_> = (0..inputs)
                    .map(|i| {
                        let (top, left) = (row as isize - before, column as isize - before);
                        both(self.square::<4>(i, top, left), input_line)
                    })
                    .collect();
                for (y, kernels) in y
                    .chunks_exact_mut(height * width)
                    .zip(kernels.chunks(inputs))
                {
                    let mut sums = [[T::ZERO; 4]; 4];
                    for (kernels, squares) in kernels.chunks(CHAIN).zip(squares.chunks(CHAIN)) {
                        let mut chain = [[T::ZERO; 4]; 4];
                        for (kernel, square) in kernels.iter().zip(squares) {
                            add_products(&mut chain, kernel, square);
                        }
                        for (sum, chain) in
                            sums.as_flattened_mut().iter_mut().zip(chain.as_flattened())
                        {
                            *sum += *chain;
                        }
                    }
                    for (r, line) in both(sums, output_line).into_iter().enumerate() {
                        for (c, value) in line.into_iter().enumerate() {
                            if row + r < height && column + c < width {
                                y[(row + r) * width + column + c] = value;
                            }
                        }
                    }
                }
            }
        }
    }
}

fn add_products<T: Scalar>(sums: &mut [[T; 4]; 4], a: &[[T; 4]; 4], b: &[[T; 4]; 4]) {
    for r in 0..4 {
        for c in 0..4 {
            sums[r][c] += a[r][c] * b[r][c];
        }
    }
}

/// A kernel as a square.
fn kernel<T: Scalar>(weight: &[T], at: usize) -> [[T; 3]; 3] {
    std::array::from_fn(|u| std::array::from_fn(|v| weight[at * 9 + u * 3 + v]))
}

/// The padded planes of a sample.
fn padded<T: Scalar>(conv: &Conv2d, x: &[T], n: usize) -> Vec<T> {
    let ((high, wide), plane) = (conv.padded(), conv.height * conv.width);
    let mut padded = vec![T::ZERO; conv.inputs * high * wide];
    for (i, padded) in padded.chunks_exact_mut(high * wide).enumerate() {
        pad(conv, &x[(n * conv.inputs + i) * plane..][..plane], padded);
    }
    padded
}

pub(in super::super) fn forward<T: Scalar>(conv: &Conv2d, io: Forward<'_, T>) {
    let [weight, bias, ..] = io.params;
    let (high, wide) = conv.padded();
    let size = (conv.out_height(), conv.out_width());
    let kernels: Vec<_> = (0..conv.outputs * conv.inputs)
        .map(|at| both_of_kernel(kernel(weight, at)))
        .collect();
    let sample = conv.outputs * size.0 * size.1;
    for (n, y) in io.y.chunks_exact_mut(sample).enumerate() {
        let planes = Planes {
            values: &padded(conv, io.x, n),
            height: high,
            width: wide,
        };
        planes.correlate(&kernels, conv.inputs, 0, size, y);
        for (o, y) in y.chunks_exact_mut(size.0 * size.1).enumerate() {
            if let Some(&bias) = bias.get(o) {
                y.iter_mut().for_each(|y| *y += bias);
            }
        }
    }
}

/// G·w·Gᵀ.
fn both_of_kernel<T: Scalar>(w: [[T; 3]; 3]) -> [[T; 4]; 4] {
    both(w, weight_line)
}

pub(in super::super) fn backward<T: Scalar>(conv: &Conv2d, io: Backward<'_, T>) {
    let [weight, ..] = io.params;
    let [d_weight, d_bias, ..] = io.d_params;
    let (high, wide) = conv.padded();
    let (inputs, outputs, plane) = (conv.inputs, conv.outputs, conv.height * conv.width);
    let (out_height, out_width) = (conv.out_height(), conv.out_width());
    let sample = outputs * out_height * out_width;
    if let Some(d_bias) = d_bias {
        for d_y in io.d_y.chunks_exact(sample) {
            for (d_b, d_y) in d_bias
                .iter_mut()
                .zip(d_y.chunks_exact(out_height * out_width))
            {
                *d_b += d_y.iter().copied().sum();
            }
        }
    }
    let gradients = |n: usize| Planes {
        values: &io.d_y[n * sample..][..sample],
        height: out_height,
        width: out_width,
    };
    if let Some(d_x) = io.d_x {
        // Flipped, from the inputs' side.
        let kernels: Vec<_> = (0..inputs * outputs)
            .map(|at| {
                let w = kernel(weight, at % outputs * inputs + at / outputs);
                both_of_kernel(std::array::from_fn(|u| {
                    std::array::from_fn(|v| w[2 - u][2 - v])
                }))
            })
            .collect();
        let mut d_padded = vec![T::ZERO; inputs * high * wide];
        for (n, d_x) in d_x.chunks_exact_mut(inputs * plane).enumerate() {
            gradients(n).correlate(&kernels, outputs, 2, (high, wide), &mut d_padded);
            let planes = d_padded.chunks_exact(high * wide);
            for (d_x, d_padded) in d_x.chunks_exact_mut(plane).zip(planes) {
                fold(conv, d_padded, d_x);
            }
        }
    }
    let Some(d_weight) = d_weight else { return };
    let mut sums = vec![[[T::ZERO; 4]; 4]; outputs * inputs];
    for n in 0..io.samples {
        let planes = Planes {
            values: &padded(conv, io.x, n),
            height: high,
            width: wide,
        };
        for row in (0..out_height as isize).step_by(2) {
            for column in (0..out_width as isize).step_by(2) {
                let squares: Vec<_> = (0..inputs)
                    .map(|i| both(planes.square::<4>(i, row, column), input_line))
                    .collect();
                for (o, sums) in sums.chunks_exact_mut(inputs).enumerate() {
                    let d = both(gradients(n).square::<2>(o, row, column), gradient_line);
                    for (sums, square) in sums.iter_mut().zip(&squares) {
                        add_products(sums, &d, square);
                    }
                }
            }
        }
    }
    for (d_weight, sums) in d_weight.chunks_exact_mut(9).zip(sums) {
        let kernel = both(sums, kernel_line);
        for (d, sum) in d_weight.iter_mut().zip(kernel.as_flattened()) {
            *d += *sum;
        }
    }
}
