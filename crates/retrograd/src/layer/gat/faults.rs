//! Mistakes that are made in the backward pass of graph attention, for the verifier to catch.

use super::{Gat, Memory};
use crate::Scalar;
use crate::layer::{Backward, Layer};
use crate::verify::mutants::{Fault, Mutation, Seat};

/// The softmax's weights taken over the out-edges of every source.
#[derive(Clone, Copy, Debug)]
struct SoftmaxOverSources;

pub(crate) fn faults() -> Vec<Mutation> {
    vec![Mutation::new("softmax over sources", SoftmaxOverSources)]
}

impl<T: Scalar> Fault<T> for SoftmaxOverSources {
    fn backward(&self, inner: &dyn Layer<T>, io: Backward<'_, T>, seat: &Seat) {
        let (Some(batch), Some(gat)) = (io.around.batch, seat.layer::<Gat>()) else {
            return inner.backward(io);
        };
        let pattern = &batch.graph().looped().pattern;
        let alpha = &mut io.saved.own.of::<Memory<T>>().attention.alpha;
        for j in 0..batch.graph().nodes() {
            for h in 0..gat.heads {
                let at = |q: usize| pattern.slot[q] as usize * gat.heads + h;
                let sum: T = pattern.by_column.range(j).map(|q| alpha[at(q)]).sum();
                for q in pattern.by_column.range(j) {
                    alpha[at(q)] /= sum;
                }
            }
        }
        inner.backward(io);
    }
}
