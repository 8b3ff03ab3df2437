//! Mistakes that are made in the gradient of a maximum over nodes, for the verifier to catch.

use super::NONE;
use crate::Scalar;
use crate::layer::{Backward, Layer};
use crate::verify::mutants::{Fault, Mutation, Seat};

/// The gradient goes to the node after the largest.
#[derive(Clone, Copy, Debug)]
struct WrongNode;

pub(crate) fn faults() -> Vec<Mutation> {
    vec![Mutation::new(
        "gradient to the node after the largest",
        WrongNode,
    )]
}

impl<T: Scalar> Fault<T> for WrongNode {
    fn backward(&self, inner: &dyn Layer<T>, io: Backward<'_, T>, _: &Seat) {
        let nodes = io.samples as u32;
        for node in io.saved.indices.iter_mut().filter(|node| **node != NONE) {
            *node = (*node + 1) % nodes;
        }
        inner.backward(io);
    }
}
