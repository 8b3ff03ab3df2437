//! Zachary's karate club: 34 members, 78 friendships, and the two clubs it fell into.

use std::sync::Arc;

use super::{NodeData, Split};
use crate::Result;
use crate::graph::batch::GraphBatch;
use crate::graph::structure::Graph;

/// The friendships, members counted from 0 (Zachary 1977).
#[rustfmt::skip]
pub const KARATE_EDGES: [[u32; 2]; 78] = [
    [0, 1], [0, 2], [0, 3], [0, 4], [0, 5], [0, 6], [0, 7], [0, 8], [0, 10], [0, 11], [0, 12],
    [0, 13], [0, 17], [0, 19], [0, 21], [0, 31], [1, 2], [1, 3], [1, 7], [1, 13], [1, 17],
    [1, 19], [1, 21], [1, 30], [2, 3], [2, 7], [2, 8], [2, 9], [2, 13], [2, 27], [2, 28], [2, 32],
    [3, 7], [3, 12], [3, 13], [4, 6], [4, 10], [5, 6], [5, 10], [5, 16], [6, 16], [8, 30],
    [8, 32], [8, 33], [9, 33], [13, 33], [14, 32], [14, 33], [15, 32], [15, 33], [18, 32],
    [18, 33], [19, 33], [20, 32], [20, 33], [22, 32], [22, 33], [23, 25], [23, 27], [23, 29],
    [23, 32], [23, 33], [24, 25], [24, 27], [24, 31], [25, 31], [26, 29], [26, 33], [27, 33],
    [28, 31], [28, 33], [29, 32], [29, 33], [30, 32], [30, 33], [31, 32], [31, 33], [32, 33],
];

/// Who stayed with the instructor (member 0); the others followed the administrator (33).
const WITH_INSTRUCTOR: [u32; 17] = [0, 1, 2, 3, 4, 5, 6, 7, 8, 10, 11, 12, 13, 16, 17, 19, 21];

/// The club: every member's features are its own number, one-hot; the two leaders are labelled for
/// training, all others for the test.
pub fn karate_club() -> Result<NodeData> {
    let [a, b] = [0, 1].map(|end| KARATE_EDGES.map(|edge| edge[end]));
    let graph = Arc::new(Graph::undirected(34, &a, &b)?);
    let nodes: Vec<u32> = (0..34).collect();
    let batch = GraphBatch::sparse(graph, 34, &nodes, &nodes, &[1.0; 34])?;
    let class = |node: &u32| u32::from(!WITH_INSTRUCTOR.contains(node));
    let split = |&node: &u32| match node {
        0 | 33 => Split::Train,
        _ => Split::Test,
    };
    Ok(NodeData {
        batch,
        classes: nodes.iter().map(class).collect(),
        class_names: vec!["instructor".into(), "administrator".into()],
        split: nodes.iter().map(split).collect(),
        node_names: None,
        notes: Vec::new(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_club_has_34_members_78_friendships_and_two_halves() {
        let club = karate_club().unwrap();
        assert_eq!(club.batch.graph().nodes(), 34);
        assert_eq!(club.batch.graph().edges(), 156);
        assert_eq!(club.classes.iter().filter(|&&c| c == 0).count(), 17);
        // The leaders have the most friends: 16 and 17.
        let rows = &club.batch.graph().adjacency().pattern.by_row;
        assert_eq!((rows.degree(0), rows.degree(33)), (16, 17));
    }
}
