//! Small dense systems in f64: the Cholesky factorisation.

use crate::math;

/// Replaces the lower triangle of a symmetric, positive definite n × n matrix by its factor L with
/// L·Lᵀ = matrix. Pivots are at least `floor`, for matrices that are singular but for rounding.
pub(crate) fn cholesky(matrix: &mut [f64], n: usize, floor: f64) {
    for r in 0..n {
        for c in 0..=r {
            let done: f64 = (0..c).map(|k| matrix[r * n + k] * matrix[c * n + k]).sum();
            let value = matrix[r * n + c] - done;
            matrix[r * n + c] = if r == c {
                math::max(value, floor).sqrt()
            } else {
                value / matrix[c * n + c]
            };
        }
    }
}

/// Solves L·Lᵀ·x = right in place for several right sides, with the factor that [`cholesky`] left.
pub(crate) fn cholesky_solve(lower: &[f64], right: &mut [f64], n: usize, columns: usize) {
    for j in 0..columns {
        for r in 0..n {
            let done: f64 = (0..r)
                .map(|k| lower[r * n + k] * right[k * columns + j])
                .sum();
            right[r * columns + j] = (right[r * columns + j] - done) / lower[r * n + r];
        }
        for r in (0..n).rev() {
            let done: f64 = (r + 1..n)
                .map(|k| lower[k * n + r] * right[k * columns + j])
                .sum();
            right[r * columns + j] = (right[r * columns + j] - done) / lower[r * n + r];
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whole numbers and a factor of whole numbers: every operation is exact.
    #[test]
    fn a_system_is_solved_for_every_right_side() {
        let mut matrix = [4.0, 2.0, 6.0, 2.0, 10.0, 9.0, 6.0, 9.0, 22.0];
        let whole = matrix;
        cholesky(&mut matrix, 3, f64::MIN_POSITIVE);
        assert_eq!([matrix[0], matrix[3], matrix[4]], [2.0, 1.0, 3.0]);
        assert_eq!(matrix[6..], [3.0, 2.0, 3.0]);
        let x = [1.0, -2.0, 0.0, 5.0, 3.0, 1.0];
        let mut right = [0.0; 6];
        for r in 0..3 {
            for j in 0..2 {
                right[r * 2 + j] = (0..3).map(|k| whole[r * 3 + k] * x[k * 2 + j]).sum();
            }
        }
        cholesky_solve(&matrix, &mut right, 3, 2);
        assert_eq!(right, x);
    }
}
