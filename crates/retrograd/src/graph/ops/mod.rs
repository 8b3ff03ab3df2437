//! What the layers are made of: each operation as plain loops over any [`Scalar`](crate::Scalar),
//! the oracle, and where the scalar is f32 as a kernel with SIMD and threads.

mod aggregate;
mod linear;

pub(crate) use aggregate::heads_dot;
pub use aggregate::{Aggregate, Coefficient, aggregate, edge_dot, propagate_mean};
pub use linear::{Linear, column_sums, dot};
