//! How large a batch is, which is what a plan is made for.

use super::topology::Topic;
use crate::graph::{Features, GraphBatch};
use crate::plan::{Input, RowsOf};

/// The sizes of a batch. Those of graphs are rounded up, so that batches of nearly the same size
/// share a plan; what is added has no edges, belongs to no graph, and has no share of the loss.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Extent {
    /// Samples of a network's batch.
    pub samples: usize,
    /// Numbers of x: of all samples, of all nodes, or the non-zeros of sparse rows.
    pub values: usize,
    /// Whether the nodes' features are sparse.
    pub sparse: bool,
    pub nodes: usize,
    pub edges: usize,
    /// Edges with the self-loops that are added.
    pub looped: usize,
    pub graphs: usize,
    pub pairs: usize,
    /// Pairs of nodes of one graph, over all graphs.
    pub scores: usize,
    /// Rows and columns of an automaton's grids, and whether its cells fire by a mask.
    pub grid: [usize; 2],
    pub fires: bool,
}

impl Extent {
    /// Of a network's batch, as it is.
    pub fn of_samples(samples: usize, sample: usize) -> Self {
        Extent {
            samples,
            values: samples * sample,
            ..Extent::default()
        }
    }

    /// Of any batch, with what the layers look at in a graph.
    pub fn of(input: &Input<'_, f32>, topics: &[Topic]) -> Self {
        match input.batch {
            Some(batch) => Self::of_graphs(batch, topics),
            None => Extent {
                samples: input.samples,
                values: input.values.len(),
                grid: input.grids.map_or([0; 2], |grids| grids.size),
                fires: input.grids.is_some_and(|grids| grids.fire.is_some()),
                ..Extent::default()
            },
        }
    }

    fn of_graphs(batch: &GraphBatch<f32>, topics: &[Topic]) -> Self {
        let graph = batch.graph();
        let nodes = rounded(graph.nodes());
        let (values, sparse) = match batch.features() {
            Features::Dense(width) => (nodes * width, false),
            Features::Sparse(_) => (rounded(batch.feature_values()), true),
            Features::Ids(_) => (0, false),
        };
        let squares = (0..graph.graphs()).map(|g| graph.nodes_of(g).len());
        // What nobody looks at doesn't tell batches apart.
        let looked_at = |topic, count: &dyn Fn() -> usize| match topics.contains(&topic) {
            true => rounded(count()),
            false => 0,
        };
        Extent {
            values,
            sparse,
            nodes,
            edges: match batch.edge_weights() {
                Some(_) => rounded(graph.edges()),
                None => looked_at(Topic::Edges, &|| graph.edges()),
            },
            looped: looked_at(Topic::Looped, &|| graph.looped().pattern.len()),
            graphs: looked_at(Topic::Graphs, &|| graph.graphs()),
            pairs: looked_at(Topic::Pairs, &|| batch.pairs().len()),
            scores: looked_at(Topic::Scores, &|| squares.clone().map(|n| n * n).sum()),
            ..Extent::default()
        }
    }

    /// Whether it is one of graphs.
    pub fn is_of_graphs(&self) -> bool {
        self.nodes > 0
    }

    pub fn rows(&self, of: RowsOf) -> usize {
        match of {
            RowsOf::Samples => self.samples,
            RowsOf::Nodes => self.nodes,
            RowsOf::Graphs => self.graphs,
            RowsOf::Pairs => self.pairs,
        }
    }
}

/// At least 1, and with four leading bits: at most an eighth more.
fn rounded(count: usize) -> usize {
    let count = count.max(1);
    let step = 1 << count.ilog2().saturating_sub(3);
    count.next_multiple_of(step)
}

#[cfg(test)]
mod tests {
    use super::rounded;

    #[test]
    fn sizes_are_rounded_up_by_an_eighth_at_most() {
        assert_eq!(
            [0, 1, 15, 16, 17, 2708, 4096].map(rounded),
            [1, 1, 15, 16, 18, 2816, 4096]
        );
        for count in 1..5000 {
            let up = rounded(count);
            assert!(up >= count && 8 * (up - count) <= count, "{count} {up}");
            assert_eq!(rounded(up), up);
        }
    }
}
