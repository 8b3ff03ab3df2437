//! The one matrix product, from the `gemm` crate, on the calling thread.
//!
//! Callers cut their product into pieces by its size and spread the pieces over threads: which
//! kernel a piece takes depends on its own shape alone, so the number of threads cannot change a
//! bit.

/// A matrix in a slice: row r, column c at r·row + c·column.
#[derive(Clone, Copy)]
pub struct Stride {
    /// Distance between rows.
    pub row: usize,
    /// Distance between columns.
    pub column: usize,
}

impl Stride {
    /// Rows of that many columns, one after the other.
    pub fn rows(columns: usize) -> Self {
        Stride {
            row: columns,
            column: 1,
        }
    }

    /// The transpose of rows of that many columns.
    pub fn transposed(columns: usize) -> Self {
        Stride {
            row: 1,
            column: columns,
        }
    }

    /// One past the last element of an m × n matrix.
    fn end(self, m: usize, n: usize) -> usize {
        if m == 0 || n == 0 {
            return 0;
        }
        (m - 1) * self.row + (n - 1) * self.column + 1
    }
}

/// C (m × n) = A (m × k) · B (k × n), added to C if `accumulate`.
///
/// # Panics
/// Where a slice is shorter than its matrix.
#[allow(
    unsafe_code,
    reason = "the gemm crate takes pointers; the lengths are asserted here"
)]
pub fn gemm(
    [m, n, k]: [usize; 3],
    a: (&[f32], Stride),
    b: (&[f32], Stride),
    c: (&mut [f32], Stride),
    accumulate: bool,
) {
    let ((a, sa), (b, sb), (c, sc)) = (a, b, c);
    assert!(a.len() >= sa.end(m, k), "A is shorter than {m} × {k}");
    assert!(b.len() >= sb.end(k, n), "B is shorter than {k} × {n}");
    assert!(c.len() >= sc.end(m, n), "C is shorter than {m} × {n}");
    if m == 0 || n == 0 {
        return;
    }
    let alpha = if accumulate { 1.0 } else { 0.0 };
    // SAFETY: every element that the strides reach lies within its slice, as asserted above; C is
    // borrowed mutably, so it overlaps neither A nor B.
    unsafe {
        gemm::gemm(
            m,
            n,
            k,
            c.as_mut_ptr(),
            sc.column as isize,
            sc.row as isize,
            accumulate,
            a.as_ptr(),
            sa.column as isize,
            sa.row as isize,
            b.as_ptr(),
            sb.column as isize,
            sb.row as isize,
            alpha,
            1.0,
            false,
            false,
            false,
            gemm::Parallelism::None,
        );
    }
}
