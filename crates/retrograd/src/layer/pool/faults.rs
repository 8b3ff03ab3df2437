//! Mistakes that are made in the derivative of pooling, for the verifier to catch.

use super::{Pool, PoolKind};
use crate::Scalar;
use crate::layer::{Backward, Layer};
use crate::verify::mutants::{Fault, FaultKind, Mutation, Seat, Transform, then_d_x};

#[derive(Clone, Copy, Debug, PartialEq)]
enum PoolFault {
    /// The gradient goes to the first element of the window.
    FirstOfWindow,
    /// The gradient is spread over the window.
    SpreadOverWindow,
}

pub(crate) fn faults(pool: &Pool) -> Vec<Mutation> {
    match pool.kind {
        PoolKind::Max => vec![
            Mutation::new(
                "gradient to the first of the window",
                PoolFault::FirstOfWindow,
            ),
            Mutation::new(
                "gradient spread over the window",
                PoolFault::SpreadOverWindow,
            ),
        ],
        PoolKind::Average => {
            let all = (pool.kernel * pool.kernel) as f64;
            vec![FaultKind::DX(Transform::Scale(all)).into()]
        }
    }
}

impl<T: Scalar> Fault<T> for PoolFault {
    fn backward(&self, inner: &dyn Layer<T>, io: Backward<'_, T>, seat: &Seat) {
        let Some(pool) = seat.layer::<Pool>() else {
            return inner.backward(io);
        };
        then_d_x(inner, io, |shown, d_x| {
            pool_d_x(pool, *self, shown.d_y, d_x)
        });
    }
}

fn pool_d_x<T: Scalar>(pool: &Pool, kind: PoolFault, d_y: &[T], d_x: &mut [T]) {
    let (height, width) = (pool.out_height(), pool.out_width());
    let share = T::from_f64(1.0 / (pool.kernel * pool.kernel) as f64);
    d_x.fill(T::ZERO);
    let planes = d_x.chunks_exact_mut(pool.height * pool.width);
    for (d_x, d_y) in planes.zip(d_y.chunks_exact(height * width)) {
        for row in 0..height {
            for column in 0..width {
                let d = d_y[row * width + column];
                let first = row * pool.stride * pool.width + column * pool.stride;
                if kind == PoolFault::FirstOfWindow {
                    d_x[first] += d;
                    continue;
                }
                for r in 0..pool.kernel {
                    for c in 0..pool.kernel {
                        d_x[first + r * pool.width + c] += share * d;
                    }
                }
            }
        }
    }
}
