//! What the layers are made of: each operation as plain loops over any [`Scalar`](crate::Scalar),
//! the oracle, and where the scalar is f32 as a kernel with SIMD and threads.

mod aggregate;
mod edge_dot;
mod linear;

pub(crate) use aggregate::CUTS as AGGREGATE_CUTS;
pub use aggregate::{Aggregate, Coefficient, aggregate, propagate_mean};
pub use edge_dot::edge_dot;
pub(crate) use edge_dot::heads_dot;
pub(crate) use linear::CUTS as LINEAR_CUTS;
pub(crate) use linear::{Linear, column_sums, dot};
