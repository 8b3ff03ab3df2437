//! One batch of graphs: topology, node features, edge weights and edge features.

use std::sync::Arc;

use super::pattern::Pattern;
use super::structure::Graph;
use crate::scalar::cast;
use crate::{Batch, Error, Result, Scalar};

/// How the nodes' features are given.
#[derive(Clone, Debug)]
pub enum Features {
    /// That many numbers per node.
    Dense(usize),
    /// The places of the non-zeros: row = node, column = feature.
    Sparse(Arc<Pattern>),
    /// One id per node: row = node, column = id. For networks that begin with an embedding.
    Ids(Arc<Pattern>),
}

impl Features {
    pub(crate) fn pattern(&self) -> Option<&Arc<Pattern>> {
        match self {
            Features::Dense(_) => None,
            Features::Sparse(pattern) | Features::Ids(pattern) => Some(pattern),
        }
    }
}

/// A batch: everything differentiable in one flat vector, first the node features (the non-zeros
/// where they are sparse), then a weight per edge, then the features of each edge.
#[derive(Clone, Debug)]
pub struct GraphBatch<T> {
    graph: Arc<Graph>,
    features: Features,
    values: Vec<T>,
    feature_values: usize,
    has_weights: bool,
    edge_features: usize,
    pairs: Arc<Vec<[u32; 2]>>,
}

/// What a layer reads: dense rows, or the non-zeros of a sparse matrix.
#[derive(Clone, Copy)]
pub enum NodeValues<'a, T> {
    /// Rows of equal width, one after the other.
    Dense(&'a [T]),
    /// A pattern and its values, by slot.
    Sparse(&'a Pattern, &'a [T]),
}

impl<T: Scalar> GraphBatch<T> {
    /// Dense features, `width` per node, node after node.
    pub fn dense(graph: Arc<Graph>, width: usize, features: Vec<T>) -> Result<Self> {
        if features.len() != graph.nodes() * width {
            return Err(Error::invalid(
                "node features",
                format!("{} values", features.len()),
                format!("{width} for each of {} nodes", graph.nodes()),
            ));
        }
        check_finite("node features", &features)?;
        Ok(Self::of(graph, Features::Dense(width), features))
    }

    /// Sparse features: for every non-zero its node, its feature and its value, in any order.
    pub fn sparse(
        graph: Arc<Graph>,
        width: usize,
        node_of: &[u32],
        feature_of: &[u32],
        values: &[T],
    ) -> Result<Self> {
        if node_of.len() != values.len() || feature_of.len() != values.len() {
            return Err(Error::invalid(
                "sparse node features",
                format!(
                    "{} nodes, {} features, {} values",
                    node_of.len(),
                    feature_of.len(),
                    values.len()
                ),
                "one of each for every non-zero",
            ));
        }
        for (what, numbers, limit) in [
            ("node", node_of, graph.nodes()),
            ("feature", feature_of, width),
        ] {
            if let Some(i) = numbers.iter().position(|&x| x as usize >= limit) {
                return Err(Error::invalid(
                    format!("non-zero {i} of the node features"),
                    format!("{what} {}", numbers[i]),
                    format!("a {what} below {limit}"),
                ));
            }
        }
        check_finite("node features", values)?;
        let (pattern, order) = Pattern::new(graph.nodes(), width, node_of, feature_of);
        let values = order.iter().map(|&i| values[i as usize]).collect();
        Ok(Self::of(graph, Features::Sparse(Arc::new(pattern)), values))
    }

    /// One id below `vocabulary` per node.
    pub fn ids(graph: Arc<Graph>, vocabulary: usize, ids: &[u32]) -> Result<Self> {
        check_ids(graph.nodes(), vocabulary, ids)?;
        let pattern = Pattern::one_per_row(vocabulary, ids);
        Ok(Self::of(
            graph,
            Features::Ids(Arc::new(pattern)),
            Vec::new(),
        ))
    }

    /// Other ids for the nodes of a batch that has ids, in the memory of the earlier ones.
    pub fn set_ids(&mut self, ids: &[u32]) -> Result<()> {
        check_ids(self.graph.nodes(), self.width(), ids)?;
        let Features::Ids(pattern) = &mut self.features else {
            return Err(Error::invalid("node ids", "ids", "a batch that has ids"));
        };
        Arc::make_mut(pattern).set_columns(ids);
        Ok(())
    }

    fn of(graph: Arc<Graph>, features: Features, values: Vec<T>) -> Self {
        GraphBatch {
            graph,
            features,
            feature_values: values.len(),
            values,
            has_weights: false,
            edge_features: 0,
            pairs: Arc::new(Vec::new()),
        }
    }

    /// With a weight per edge. Before edge features.
    pub fn with_edge_weights(mut self, weights: &[T]) -> Result<Self> {
        if weights.len() != self.graph.edges() {
            return Err(Error::invalid(
                "edge weights",
                format!("{} weights", weights.len()),
                format!("{}, one for every edge", self.graph.edges()),
            ));
        }
        check_finite("edge weights", weights)?;
        let edge_features = self.edge_features().to_vec();
        self.values.truncate(self.feature_values);
        self.values.extend_from_slice(weights);
        self.values.extend_from_slice(&edge_features);
        self.has_weights = true;
        Ok(self)
    }

    /// With `width` features per edge, edge after edge.
    pub fn with_edge_features(mut self, width: usize, features: &[T]) -> Result<Self> {
        if features.len() != self.graph.edges() * width {
            return Err(Error::invalid(
                "edge features",
                format!("{} values", features.len()),
                format!("{width} for each of {} edges", self.graph.edges()),
            ));
        }
        check_finite("edge features", features)?;
        let start = self.edge_features_start();
        self.values.truncate(start);
        self.values.extend_from_slice(features);
        self.edge_features = width;
        Ok(self)
    }

    /// With pairs of nodes for a layer that scores pairs (link prediction).
    pub fn with_pairs(mut self, pairs: Vec<[u32; 2]>) -> Result<Self> {
        self.set_pairs(&pairs)?;
        Ok(self)
    }

    /// Other pairs, in the memory of the earlier ones.
    pub fn set_pairs(&mut self, pairs: &[[u32; 2]]) -> Result<()> {
        let nodes = self.graph.nodes();
        if let Some(i) = pairs
            .iter()
            .position(|p| p.iter().any(|&n| n as usize >= nodes))
        {
            return Err(Error::invalid(
                format!("pair {i}"),
                format!("nodes {} and {}", pairs[i][0], pairs[i][1]),
                format!("nodes below {nodes}"),
            ));
        }
        let own = Arc::make_mut(&mut self.pairs);
        own.clear();
        own.extend_from_slice(pairs);
        Ok(())
    }

    /// The topology.
    pub fn graph(&self) -> &Arc<Graph> {
        &self.graph
    }

    /// How node features are given.
    pub fn features(&self) -> &Features {
        &self.features
    }

    /// The pairs of nodes to score.
    pub fn pairs(&self) -> &[[u32; 2]] {
        &self.pairs
    }

    /// The same, to hold on to.
    #[cfg(feature = "gpu")]
    pub(crate) fn shared_pairs(&self) -> &Arc<Vec<[u32; 2]>> {
        &self.pairs
    }

    /// Numbers per node, or the size of the vocabulary.
    pub fn width(&self) -> usize {
        match &self.features {
            Features::Dense(width) => *width,
            Features::Sparse(pattern) | Features::Ids(pattern) => pattern.by_column.len(),
        }
    }

    /// The number of [`Batch::values`] that are node features.
    pub fn feature_values(&self) -> usize {
        self.feature_values
    }

    /// Node features as a layer reads them. Ids have none.
    pub fn rows(&self) -> NodeValues<'_, T> {
        let values = &self.values[..self.feature_values];
        match &self.features {
            Features::Dense(_) | Features::Ids(_) => NodeValues::Dense(values),
            Features::Sparse(pattern) => NodeValues::Sparse(pattern, values),
        }
    }

    /// A weight per edge, where there are weights.
    pub fn edge_weights(&self) -> Option<&[T]> {
        self.has_weights
            .then(|| &self.values[self.feature_values..self.edge_features_start()])
    }

    /// The number of features per edge.
    pub fn edge_width(&self) -> usize {
        self.edge_features
    }

    /// The features of the edges.
    pub fn edge_features(&self) -> &[T] {
        &self.values[self.edge_features_start()..]
    }

    /// Where the edge features start in [`Batch::values`].
    pub fn edge_features_start(&self) -> usize {
        self.feature_values + usize::from(self.has_weights) * self.graph.edges()
    }

    /// The same in another scalar.
    pub fn cast<U: Scalar>(&self) -> GraphBatch<U> {
        GraphBatch {
            graph: self.graph.clone(),
            features: self.features.clone(),
            values: cast(&self.values),
            feature_values: self.feature_values,
            has_weights: self.has_weights,
            edge_features: self.edge_features,
            pairs: self.pairs.clone(),
        }
    }

    /// The disjoint union of batches of one kind (dense features, sparse ones or ids, weights and
    /// edge features in all or in none).
    pub fn union(batches: &[&Self]) -> Result<Self> {
        let graph = Arc::new(Graph::union([]));
        let mut union = Self::of(graph, Features::Dense(0), Vec::new());
        union.fill(batches.iter().copied())?;
        Ok(union)
    }

    /// Becomes the [`GraphBatch::union`], in the memory of what was here.
    pub fn fill<'a>(&mut self, batches: impl Iterator<Item = &'a Self> + Clone) -> Result<()>
    where
        T: 'a,
    {
        let Some(first) = batches.clone().next() else {
            *self = Self::dense(Arc::new(Graph::union([])), 0, Vec::new())?;
            return Ok(());
        };
        for (i, b) in batches.clone().enumerate() {
            first.check_same_kind(b, i)?;
        }
        let graphs = batches.clone().map(|b| b.graph.as_ref());
        match Arc::get_mut(&mut self.graph) {
            Some(graph) => graph.fill(graphs),
            None => self.graph = Arc::new(Graph::union(graphs)),
        }
        self.values.clear();
        for b in batches.clone() {
            self.values.extend_from_slice(&b.values[..b.feature_values]);
        }
        self.feature_values = self.values.len();
        for b in batches.clone() {
            let weights = b.edge_weights().unwrap_or_default();
            self.values.extend_from_slice(weights);
        }
        for b in batches.clone() {
            self.values.extend_from_slice(b.edge_features());
        }
        self.has_weights = first.has_weights;
        self.edge_features = first.edge_features;
        if let Features::Dense(width) = first.features {
            self.features = Features::Dense(width);
        } else {
            let mut pattern = match std::mem::replace(&mut self.features, Features::Dense(0)) {
                Features::Sparse(pattern) | Features::Ids(pattern) => pattern,
                Features::Dense(_) => Arc::new(Pattern::empty()),
            };
            let patterns = batches.filter_map(|b| Some(&**b.features.pattern()?));
            Arc::make_mut(&mut pattern).stack(patterns, false);
            self.features = match first.features {
                Features::Sparse(_) => Features::Sparse(pattern),
                _ => Features::Ids(pattern),
            };
        }
        Arc::make_mut(&mut self.pairs).clear();
        Ok(())
    }

    fn check_same_kind(&self, other: &Self, index: usize) -> Result<()> {
        let same = std::mem::discriminant(&other.features)
            == std::mem::discriminant(&self.features)
            && other.width() == self.width()
            && other.has_weights == self.has_weights
            && other.edge_features == self.edge_features;
        if same {
            return Ok(());
        }
        let words = |b: &Self| {
            let (nodes, edges) = (b.width(), b.edge_features);
            let weights = b.has_weights;
            format!("{nodes} node features, {edges} edge features, edge weights: {weights}")
        };
        Err(Error::invalid(
            format!("graph {index} of the batch"),
            words(other),
            format!("as graph 0 has: {}", words(self)),
        ))
    }
}

impl<T: Scalar> Batch<T> for GraphBatch<T> {
    fn values(&self) -> &[T] {
        &self.values
    }
    fn values_mut(&mut self) -> &mut [T] {
        &mut self.values
    }
}

fn check_ids(nodes: usize, vocabulary: usize, ids: &[u32]) -> Result<()> {
    if ids.len() != nodes {
        return Err(Error::invalid(
            "node ids",
            format!("{} ids", ids.len()),
            format!("{nodes}, one for every node"),
        ));
    }
    if let Some(i) = ids.iter().position(|&id| id as usize >= vocabulary) {
        return Err(Error::invalid(
            format!("id of node {i}"),
            ids[i],
            format!("an id below {vocabulary}, the vocabulary"),
        ));
    }
    Ok(())
}

fn check_finite<T: Scalar>(what: &str, values: &[T]) -> Result<()> {
    match values.iter().position(|v| !v.is_finite()) {
        None => Ok(()),
        Some(i) => Err(Error::invalid(
            format!("element {i} of the {what}"),
            values[i].to_f64(),
            "a finite number",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair() -> Arc<Graph> {
        Arc::new(Graph::new(2, &[0], &[1]).unwrap())
    }

    #[test]
    fn features_that_do_not_fit_the_graph_are_named() {
        let message = |r: Result<GraphBatch<f32>>| r.unwrap_err().to_string();
        assert!(message(GraphBatch::dense(pair(), 3, vec![0.0; 5])).contains("5 values"));
        assert!(message(GraphBatch::ids(pair(), 4, &[0, 4])).contains("id of node 1"));
        let bad = GraphBatch::sparse(pair(), 4, &[0, 2], &[0, 1], &[1.0, 1.0]);
        assert!(message(bad).contains("node 2"));
        assert!(message(GraphBatch::dense(pair(), 1, vec![0.0, f32::NAN])).contains("finite"));
        let batch = GraphBatch::dense(pair(), 1, vec![0.0_f32; 2]).unwrap();
        assert!(message(batch.clone().with_edge_weights(&[1.0, 2.0])).contains("2 weights"));
        assert!(message(batch.clone().with_edge_features(2, &[1.0])).contains("2 for each"));
        assert!(message(batch.with_pairs(vec![[0, 2]])).contains("pair 0"));
    }

    #[test]
    fn values_are_features_then_weights_then_edge_features() {
        let batch = GraphBatch::dense(pair(), 1, vec![1.0_f32, 2.0])
            .unwrap()
            .with_edge_features(2, &[4.0, 5.0])
            .unwrap()
            .with_edge_weights(&[3.0])
            .unwrap();
        assert_eq!(batch.values(), [1.0, 2.0, 3.0, 4.0, 5.0]);
        assert_eq!(batch.edge_weights().unwrap(), [3.0]);
        assert_eq!(batch.edge_features(), [4.0, 5.0]);
        let union = GraphBatch::union(&[&batch, &batch]).unwrap();
        assert_eq!(
            union.values(),
            [1.0, 2.0, 1.0, 2.0, 3.0, 3.0, 4.0, 5.0, 4.0, 5.0]
        );
        assert_eq!(union.graph().graphs(), 2);
    }

    #[test]
    fn batches_of_ids_and_of_sparse_features_are_refilled_in_place() {
        let one = GraphBatch::<f32>::ids(pair(), 4, &[3, 1]).unwrap();
        let two = GraphBatch::<f32>::ids(pair(), 4, &[2, 2]).unwrap();
        let mut batch = GraphBatch::union(&[&one, &two, &one]).unwrap();
        batch.fill([&two, &one].into_iter()).unwrap();
        batch.set_ids(&[2, 2, 3, 0]).unwrap();
        assert!(batch.set_ids(&[2, 2, 3, 4]).is_err());
        let ids = Features::pattern(batch.features()).unwrap();
        assert_eq!(**ids, Pattern::one_per_row(4, &[2, 2, 3, 0]));
        let sparse = |f: u32| GraphBatch::sparse(pair(), 3, &[1, 0], &[f, 2], &[0.5_f32, 2.0]);
        let (a, b) = (sparse(0).unwrap(), sparse(1).unwrap());
        batch.fill([&a, &b].into_iter()).unwrap();
        let whole = [[0, 1, 2, 3], [2, 0, 2, 1]];
        let values = [2.0, 0.5, 2.0, 0.5];
        let exact = GraphBatch::sparse(batch.graph().clone(), 3, &whole[0], &whole[1], &values);
        let exact = exact.unwrap();
        assert_eq!(batch.values(), exact.values());
        assert_eq!(batch.features().pattern(), exact.features().pattern());
        assert!(batch.fill([&a, &one].into_iter()).is_err());
    }
}
