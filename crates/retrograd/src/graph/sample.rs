//! Parts of a large graph: neighbour sampling, and pairs that are no edges.

use super::structure::{Built, Graph};
use crate::rng::Key;
use crate::{Error, Result};

/// A sampled part of a graph.
pub struct Sample {
    /// The nodes of the part, the seeds first; their numbers in the part are their places here.
    pub nodes: Vec<u32>,
    /// The graph they span along the sampled edges, and which edges those were.
    pub built: Built,
}

/// From every node at most `fanouts[k]` in-edges in round k, drawn without replacement, then from
/// the nodes found. The draw is a function of the key, the seeds and the graph alone.
pub fn sample_neighbors(
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
                let mut stream = key.step(round as u64).index(node as u64).stream();
                for k in 0..fanout {
                    let other = k + stream.below(slots.len() - k);
                    slots.swap(k, other);
                }
                slots.truncate(fanout);
                slots.sort_unstable();
            }
            for slot in slots {
                let source = rows.neighbor[slot];
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
        let sample = sample_neighbors(&star, &[0], &[7, 3], key).unwrap();
        assert_eq!(sample.nodes.len(), 8);
        assert_eq!(sample.built.graph.edges(), 7);
        let again = sample_neighbors(&star, &[0], &[7, 3], key).unwrap();
        assert_eq!(sample.nodes, again.nodes);
        let other = sample_neighbors(&star, &[0], &[7, 3], key.step(9).purpose("other")).unwrap();
        assert_ne!(sample.nodes, other.nodes);
        assert!(sample_neighbors(&star, &[51], &[1], key).is_err());
        assert!(sample_neighbors(&star, &[1, 1], &[1], key).is_err());
        // Two hops of a ring, everything kept.
        let part = sample_neighbors(&ring(10), &[5], &[9, 9], key).unwrap();
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
}
