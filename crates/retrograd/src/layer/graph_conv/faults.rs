//! Mistakes that are made in the backward pass of a graph convolution, for the verifier to catch.

use std::sync::Arc;

use super::{Memory, Propagation};
use crate::Scalar;
use crate::graph::{EdgeRules, Graph, GraphBatch, LOOP};
use crate::layer::{Around, Backward, Layer};
use crate::verify::mutants::{Fault, Mutation, Seat};

/// What is wrong in backward.
#[derive(Clone, Copy, Debug, PartialEq)]
enum ConvolutionFault {
    /// The gradient flows along the edges, not against them.
    TransposedAdjacency,
    /// Sums where forward took means.
    MissingDegree,
    /// The self-loop counts twice.
    SelfLoopTwice,
}

pub(crate) fn faults(propagation: Propagation) -> Vec<Mutation> {
    use ConvolutionFault as F;
    let own = match propagation {
        Propagation::Normalised => Some((F::SelfLoopTwice, "self-loop counted twice")),
        Propagation::Sum => None,
        _ => Some((F::MissingDegree, "1/degree missing in backward")),
    };
    let reversed = (
        F::TransposedAdjacency,
        "gradient along the edges, not against them",
    );
    let all = std::iter::once(reversed).chain(own);
    all.map(|(fault, words)| match fault {
        F::MissingDegree => Mutation::new(words, fault),
        // Graphs whose edges go both ways don't notice the one, and the f32 kernels, which take the entries
        // that the graph keeps, not the other.
        _ => Mutation::new(words, fault).in_small_models(),
    })
    .collect()
}

impl<T: Scalar> Fault<T> for ConvolutionFault {
    fn backward(&self, inner: &dyn Layer<T>, io: Backward<'_, T>, _: &Seat) {
        let Some(batch) = io.around.batch else {
            return inner.backward(io);
        };
        match self {
            ConvolutionFault::TransposedAdjacency => {
                let reversed = reversed(batch);
                let around = Around {
                    batch: Some(&reversed),
                    ..io.around
                };
                inner.backward(Backward { around, ..io });
            }
            ConvolutionFault::MissingDegree => {
                io.saved.own.of::<Memory<T>>().scale.fill(T::ONE);
                inner.backward(io);
            }
            ConvolutionFault::SelfLoopTwice => {
                let entries = &mut io.saved.own.of::<Memory<T>>().entries;
                let two = T::from_f64(2.0);
                for (p, &edge) in entries.iter_mut().zip(&batch.graph().looped().edge) {
                    if edge == LOOP {
                        *p *= two;
                    }
                }
                inner.backward(io);
            }
        }
    }
}

/// The batch with every edge the other way round.
fn reversed<T: Scalar>(batch: &GraphBatch<T>) -> GraphBatch<T> {
    let graph = batch.graph();
    let rules = EdgeRules::keep();
    let built = Graph::build(graph.nodes(), graph.targets(), graph.sources(), rules);
    let graph = built.expect("the edges of a graph").graph;
    let features = vec![T::ZERO; graph.nodes()];
    let reversed = GraphBatch::dense(Arc::new(graph), 1, features).expect("a row for every node");
    match batch.edge_weights() {
        Some(weights) => reversed
            .with_edge_weights(weights)
            .expect("a weight for every edge"),
        None => reversed,
    }
}
