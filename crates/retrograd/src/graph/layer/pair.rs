//! Scores of pairs of nodes: y_p = x_a · x_b, the logit of a link between a and b.
//!
//! d_x_a += d_y_p · x_b and d_x_b += d_y_p · x_a, in the order of the pairs.

use crate::Scalar;

/// y_p for every pair; rows of x are `width` wide.
pub(crate) fn pair_dot<T: Scalar>(pairs: &[[u32; 2]], x: &[T], width: usize, y: &mut [T]) {
    for (y, &pair) in y.iter_mut().zip(pairs) {
        let [a, b] = pair.map(|node| &x[node as usize * width..(node as usize + 1) * width]);
        *y = a.iter().zip(b).map(|(&a, &b)| a * b).sum();
    }
}

/// d_x, overwritten.
pub(crate) fn pair_dot_backward<T: Scalar>(
    pairs: &[[u32; 2]],
    x: &[T],
    width: usize,
    d_y: &[T],
    d_x: &mut [T],
) {
    d_x.fill(T::ZERO);
    for (&d, &[a, b]) in d_y.iter().zip(pairs) {
        let (a, b) = (a as usize * width, b as usize * width);
        for k in 0..width {
            d_x[a + k] += d * x[b + k];
            d_x[b + k] += d * x[a + k];
        }
    }
}
