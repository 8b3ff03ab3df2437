//! Parts of a large graph: neighbour sampling, and pairs that are not edges.

use std::sync::Arc;

use super::batch::{Features, GraphBatch};
use super::structure::{Built, Graph};
use crate::rng::Key;
use crate::{Batch, Error, Result, Scalar};

/// A sampled part of a graph.
pub struct Sample {
    /// The nodes of the part, the seeds first; their numbers in the part are their places here.
    pub nodes: Vec<u32>,
    /// The graph they span along the sampled edges, and which edges those were.
    pub built: Built,
}

/// From every node at most `fanouts[k]` in-edges in round k, drawn without replacement, then from
/// the nodes found. The draw is a function of the key, the seeds and the graph alone.
pub fn sample_neighbours(
    graph: &Graph,
    seeds: &[u32],
    fanouts: &[usize],
    key: Key,
) -> Result<Sample> {
    const ABSENT: u32 = u32::MAX;
    let mut place = vec![ABSENT; graph.nodes()];
    let mut nodes = Vec::new();
    for &seed in seeds {
        match place.get_mut(seed as usize) {
            Some(at) if *at == ABSENT => {
                *at = nodes.len() as u32;
                nodes.push(seed);
            }
            Some(_) => {
                return Err(Error::invalid(
                    "seeds",
                    format!("node {seed} twice"),
                    "every node once",
                ));
            }
            None => {
                let needed = format!("nodes below {}", graph.nodes());
                return Err(Error::invalid("seeds", format!("node {seed}"), needed));
            }
        }
    }
    let adjacency = graph.adjacency();
    let rows = &adjacency.pattern.by_row;
    let mut kept: Vec<u32> = Vec::new();
    let mut frontier = 0..nodes.len();
    for (round, &fanout) in fanouts.iter().enumerate() {
        for at in frontier.clone() {
            let node = nodes[at] as usize;
            let mut slots: Vec<usize> = rows.range(node).collect();
            if slots.len() > fanout {
                let mut stream = key.among(round as u64).among(node as u64).stream();
                for k in 0..fanout {
                    let other = k + stream.below(slots.len() - k);
                    slots.swap(k, other);
                }
                slots.truncate(fanout);
                slots.sort_unstable();
            }
            for slot in slots {
                let source = rows.neighbour[slot];
                if place[source as usize] == ABSENT {
                    place[source as usize] = nodes.len() as u32;
                    nodes.push(source);
                }
                kept.push(adjacency.edge[slot]);
            }
        }
        frontier = frontier.end..nodes.len();
    }
    kept.sort_unstable();
    kept.dedup();
    let ends = |of: &[u32]| -> Vec<u32> {
        kept.iter()
            .map(|&e| place[of[e as usize] as usize])
            .collect()
    };
    let (sources, targets) = (ends(graph.sources()), ends(graph.targets()));
    let part = Graph::from_checked(nodes.len(), sources, targets, vec![0, nodes.len() as u32]);
    Ok(Sample {
        nodes,
        built: Built { graph: part, kept },
    })
}

impl<T: Scalar> GraphBatch<T> {
    /// What a part of its graph has of a batch: the features of those nodes, and the weights and
    /// features of the edges that were kept. For [`sample_neighbours`] and [`Graph::subgraph`].
    pub fn part(&self, nodes: &[u32], built: Built) -> Result<Self> {
        let Built { graph, kept } = built;
        let whole = self.graph();
        let fits = nodes.iter().all(|&n| (n as usize) < whole.nodes())
            && kept.iter().all(|&e| (e as usize) < whole.edges());
        if graph.nodes() != nodes.len() || graph.edges() != kept.len() || !fits {
            return Err(Error::invalid(
                "part of a batch",
                format!("{} nodes, {} edges kept", nodes.len(), kept.len()),
                format!(
                    "the {} nodes and {} edges of the part, as they are numbered in the batch",
                    graph.nodes(),
                    graph.edges()
                ),
            ));
        }
        let graph = Arc::new(graph);
        let values = &self.values()[..self.feature_values()];
        let mut part = match self.features() {
            Features::Dense(width) => {
                let rows = nodes.iter().map(|&n| n as usize * width);
                let features = rows.flat_map(|at| values[at..at + width].iter().copied());
                GraphBatch::dense(graph, *width, features.collect())?
            }
            Features::Sparse(pattern) => {
                let rows = &pattern.by_row;
                let (mut node_of, mut slots) = (Vec::new(), Vec::new());
                for (place, &node) in nodes.iter().enumerate() {
                    let range = rows.range(node as usize);
                    node_of.extend(range.clone().map(|_| place as u32));
                    slots.extend(range);
                }
                let features: Vec<u32> = slots.iter().map(|&s| rows.neighbour[s]).collect();
                let values: Vec<T> = slots.iter().map(|&s| values[s]).collect();
                GraphBatch::sparse(graph, self.width(), &node_of, &features, &values)?
            }
            Features::Ids(pattern) => {
                let ids: Vec<u32> = nodes
                    .iter()
                    .map(|&n| pattern.by_row.neighbour[n as usize])
                    .collect();
                GraphBatch::ids(graph, self.width(), &ids)?
            }
        };
        if let Some(weights) = self.edge_weights() {
            let weights: Vec<T> = kept.iter().map(|&e| weights[e as usize]).collect();
            part = part.with_edge_weights(&weights)?;
        }
        let width = self.edge_width();
        if width > 0 {
            let rows = kept.iter().map(|&e| e as usize * width);
            let features = rows.flat_map(|at| self.edge_features()[at..at + width].iter().copied());
            part = part.with_edge_features(width, &features.collect::<Vec<T>>())?;
        }
        Ok(part)
    }
}

/// Pairs of different nodes without an edge between them in the given direction, from the key.
/// After 100 draws in vain a pair is taken as it comes: a complete graph has no others.
pub fn negative_pairs(graph: &Graph, count: usize, key: Key, pairs: &mut Vec<[u32; 2]>) {
    let mut stream = key.stream();
    for _ in 0..count {
        let mut pair = [0, 0];
        for _ in 0..100 {
            pair = [
                stream.below(graph.nodes()) as u32,
                stream.below(graph.nodes()) as u32,
            ];
            if pair[0] != pair[1] && !graph.has_edge(pair[0], pair[1]) {
                break;
            }
        }
        pairs.push(pair);
    }
}

/// The area under the ROC curve: the chance that a positive scores higher than a negative, ties
/// counted half. Without both kinds there is none.
pub fn roc_auc(scores: &[f32], positive: &[bool]) -> Option<f64> {
    let mut order: Vec<usize> = (0..scores.len()).collect();
    order.sort_by(|&a, &b| scores[a].total_cmp(&scores[b]));
    let positives = positive.iter().filter(|&&p| p).count();
    let negatives = positive.len() - positives;
    if positives == 0 || negatives == 0 {
        return None;
    }
    // The mean rank of every run of equal scores.
    let (mut rank_sum, mut start) = (0.0, 0);
    while start < order.len() {
        let score = scores[order[start]];
        let end = start
            + order[start..]
                .iter()
                .take_while(|&&i| scores[i] == score)
                .count()
                .max(1);
        let mean_rank = (start + 1 + end) as f64 / 2.0;
        let hits = order[start..end].iter().filter(|&&i| positive[i]).count();
        rank_sum += mean_rank * hits as f64;
        start = end;
    }
    let p = positives as f64;
    Some((rank_sum - p * (p + 1.0) / 2.0) / (p * negatives as f64))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ring(n: u32) -> Graph {
        let a: Vec<u32> = (0..n).collect();
        let b: Vec<u32> = (0..n).map(|i| (i + 1) % n).collect();
        Graph::undirected(n as usize, &a, &b).unwrap()
    }

    #[test]
    fn sampling_is_a_function_of_the_key_and_keeps_to_the_fanouts() {
        let targets: Vec<u32> = vec![0; 50];
        let sources: Vec<u32> = (1..51).collect();
        let star = Graph::new(51, &sources, &targets).unwrap();
        let key = Key::new(1).purpose("sample");
        let sample = sample_neighbours(&star, &[0], &[7, 3], key).unwrap();
        assert_eq!(sample.nodes.len(), 8);
        assert_eq!(sample.built.graph.edges(), 7);
        let again = sample_neighbours(&star, &[0], &[7, 3], key).unwrap();
        assert_eq!(sample.nodes, again.nodes);
        for other in [key.step(9), key.index(9), key.purpose("other")] {
            let other = sample_neighbours(&star, &[0], &[7, 3], other).unwrap();
            assert_ne!(sample.nodes, other.nodes);
        }
        assert!(sample_neighbours(&star, &[51], &[1], key).is_err());
        assert!(sample_neighbours(&star, &[1, 1], &[1], key).is_err());
        // Two hops of a ring, everything kept.
        let part = sample_neighbours(&ring(10), &[5], &[9, 9], key).unwrap();
        assert_eq!(part.nodes.len(), 5);
        for (k, &e) in part.built.kept.iter().enumerate() {
            let source = part.nodes[part.built.graph.sources()[k] as usize];
            assert_eq!(source, ring(10).sources()[e as usize]);
        }
    }

    #[test]
    fn negatives_are_no_edges_and_the_auc_counts_ties_half() {
        let graph = ring(12);
        let mut pairs = Vec::new();
        negative_pairs(&graph, 200, Key::new(3), &mut pairs);
        for [a, b] in pairs {
            let gap = (12 + b - a) % 12;
            assert!(gap != 0 && gap != 1 && gap != 11, "{a} {b}");
        }
        assert_eq!(
            roc_auc(&[0.1, 0.4, 0.35, 0.8], &[false, false, true, true]),
            Some(0.75)
        );
        assert_eq!(roc_auc(&[1.0, 1.0], &[false, true]), Some(0.5));
        assert_eq!(roc_auc(&[1.0], &[true]), None);
    }

    /// A network of two convolutions sees two steps far: with all neighbours sampled twice, a seed
    /// gets in the part what it gets in the whole.
    #[test]
    fn a_part_with_all_neighbours_gives_its_seeds_what_the_whole_gives() {
        use crate::graph::{GraphNetwork, GraphTape};
        use crate::{Model, Pass};
        let (n, edges) = (40, 90);
        let mut stream = Key::new(4).purpose("part test").stream();
        let mut below = |count: usize, limit: usize| -> Vec<u32> {
            (0..count).map(|_| stream.below(limit) as u32).collect()
        };
        let (sources, targets) = (below(edges, n), below(edges, n));
        let rules = crate::graph::EdgeRules::keep();
        let graph = Arc::new(Graph::build(n, &sources, &targets, rules).unwrap().graph);
        let edges = graph.edges();
        let ids = below(n, 5);
        let mut numbers = |count: usize| -> Vec<f32> {
            (0..count).map(|_| stream.range(-1.0, 1.0) as f32).collect()
        };
        let nodes: Vec<u32> = (0..n as u32).flat_map(|i| [i, i]).collect();
        let features: Vec<u32> = (0..2 * n as u32).map(|k| 2 * (k % 2) + k / 2 % 2).collect();
        let dense = GraphBatch::dense(graph.clone(), 4, numbers(4 * n)).unwrap();
        let sparse = GraphBatch::sparse(graph.clone(), 4, &nodes, &features, &numbers(2 * n));
        let embedded = GraphBatch::ids(graph.clone(), 5, &ids).unwrap();
        let gine = GraphBatch::dense(graph.clone(), 4, numbers(4 * n)).unwrap();
        let gine = gine.with_edge_features(3, &numbers(3 * edges)).unwrap();
        let cases = [
            (
                r#""features": 4, "layers": ["#,
                r#"{"kind": "gat", "out": 3}"#,
                dense,
            ),
            (
                r#""features": 4, "layers": ["#,
                r#"{"kind": "sage", "out": 3}"#,
                sparse.unwrap(),
            ),
            (
                r#""layers": [{"kind": "embedding", "vocabulary": 5, "out": 4}, "#,
                r#"{"kind": "message_passing", "out": 3}"#,
                embedded,
            ),
            (
                r#""features": 4, "edge_features": 3, "layers": ["#,
                r#"{"kind": "gine", "out": 3}"#,
                gine,
            ),
        ];
        for (head, layer, batch) in cases {
            let spec = format!("{{{head}{layer}, {layer}]}}");
            let network = GraphNetwork::new(&serde_json::from_str(&spec).unwrap()).unwrap();
            let params = network.init(0);
            let output = |batch: &GraphBatch<f32>| {
                network.check(batch).unwrap();
                let mut tape = GraphTape::default();
                network.compute_forward(&params, batch, &Pass::inference(), &mut tape);
                network.output(&tape).to_vec()
            };
            let seeds = [7, 3];
            let sample = sample_neighbours(batch.graph(), &seeds, &[n, n], Key::new(0)).unwrap();
            let part = batch.part(&sample.nodes, sample.built).unwrap();
            assert!(part.graph().nodes() < n);
            let (whole, own) = (output(&batch), output(&part));
            for (place, &seed) in seeds.iter().enumerate() {
                for k in 0..3 {
                    let (a, b) = (whole[seed as usize * 3 + k], own[place * 3 + k]);
                    assert!((a - b).abs() < 1e-5, "{layer} {seed} {k}: {a} {b}");
                }
            }
            let other = graph.subgraph(&[1, 2]).unwrap();
            assert!(batch.part(&[1], other).is_err());
        }
    }
}
