//! Graphs: nodes and directed edges, checked and indexed once.

use std::sync::OnceLock;

use super::pattern::{Pattern, Rows};
use crate::{Error, Result};

/// What to do with an edge that some rule forbids.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EdgeRule {
    /// An error that names the edge.
    #[default]
    Refuse,
    /// Keep it as an edge like any other.
    Keep,
    /// Leave it out (of duplicates, the first stays).
    Drop,
}

/// The rules a graph is built by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EdgeRules {
    /// Edges from a node to itself. Where a layer adds self-loops, a kept one stands in for the
    /// one that would have been added: it is never counted twice.
    pub self_loops: EdgeRule,
    /// The second and later edges with the same source and target.
    pub duplicates: EdgeRule,
}

impl EdgeRules {
    /// Keep everything.
    pub fn keep() -> Self {
        EdgeRules {
            self_loops: EdgeRule::Keep,
            duplicates: EdgeRule::Keep,
        }
    }

    /// Leave out self-loops and duplicates.
    pub fn drop() -> Self {
        EdgeRules {
            self_loops: EdgeRule::Drop,
            duplicates: EdgeRule::Drop,
        }
    }
}

/// Edges indexed by target and by source.
#[derive(Clone, Debug)]
pub struct Adjacency {
    /// Row = target, column = source.
    pub pattern: Pattern,
    /// For every slot its edge, or [`LOOP`] for an added self-loop.
    pub edge: Vec<u32>,
}

impl Adjacency {
    /// Becomes another one with a self-loop, first in its row, at every node that has none.
    fn add_loops(&mut self, of: &Adjacency) {
        let edge = &mut self.edge;
        edge.clear();
        self.pattern.add_diagonal(&of.pattern, |slot| {
            edge.push(slot.map_or(LOOP, |slot| of.edge[slot]));
        });
    }
}

/// 1/√(dᵢ·dⱼ) for every slot.
fn normalise(rows: &Rows, entries: &mut Vec<f32>) {
    entries.clear();
    let degree = |i: usize| rows.degree(i) as f64;
    for i in 0..rows.len() {
        let neighbours = &rows.neighbour[rows.range(i)];
        let own = degree(i);
        entries.extend(
            neighbours
                .iter()
                .map(|&j| (1.0 / (own * degree(j as usize)).sqrt()) as f32),
        );
    }
}

/// 1/degree of every row, 0 where that is 0.
fn invert_degrees(rows: &Rows, inverse: &mut Vec<f32>) {
    inverse.clear();
    inverse.extend((0..rows.len()).map(|i| match rows.degree(i) {
        0 => 0.0,
        degree => 1.0 / degree as f32,
    }));
}

/// The edge number of an added self-loop.
pub const LOOP: u32 = u32::MAX;

/// One graph, or the disjoint union of many: topology only, immutable and shared.
#[derive(Debug)]
pub struct Graph {
    nodes: usize,
    sources: Vec<u32>,
    targets: Vec<u32>,
    /// The first node of every graph of the union, and the number of nodes.
    graph_start: Vec<u32>,
    adjacency: Adjacency,
    looped: OnceLock<Adjacency>,
    normalisation: OnceLock<Vec<f32>>,
    inverse_degree: OnceLock<Vec<f32>>,
    /// Source and target of every edge, in order.
    sorted: OnceLock<Vec<[u32; 2]>>,
}

/// A graph and, for each of its edges, which of the given edges it was.
pub struct Built {
    /// The graph.
    pub graph: Graph,
    /// For every edge kept, its place in what was given: to select weights and features by.
    pub kept: Vec<u32>,
}

impl Graph {
    /// From a list of edges, both ends below `nodes`, by the rules. Edges keep their order.
    pub fn build(
        nodes: usize,
        sources: &[u32],
        targets: &[u32],
        rules: EdgeRules,
    ) -> Result<Built> {
        if sources.len() != targets.len() {
            return Err(Error::invalid(
                "edges",
                format!("{} sources and {} targets", sources.len(), targets.len()),
                "as many sources as targets",
            ));
        }
        // The last number stands for an added self-loop, and loops share the range with edges.
        if nodes + sources.len() >= u32::MAX as usize {
            return Err(Error::invalid(
                "graph",
                format!("{nodes} nodes and {} edges", sources.len()),
                "fewer than 2³² − 1 of both together",
            ));
        }
        for (e, (&s, &t)) in sources.iter().zip(targets).enumerate() {
            for (end, node) in [("source", s), ("target", t)] {
                if node as usize >= nodes {
                    return Err(Error::invalid(
                        format!("edge {e}"),
                        format!("{end} {node}"),
                        format!("a node below {nodes}"),
                    ));
                }
            }
        }
        let mut drop = vec![false; sources.len()];
        let refuse = |e: usize, what: &str, needed: &str| {
            Err(Error::invalid(
                format!("edge {e} ({} → {})", sources[e], targets[e]),
                what,
                needed,
            ))
        };
        if rules.self_loops != EdgeRule::Keep {
            for e in (0..sources.len()).filter(|&e| sources[e] == targets[e]) {
                if rules.self_loops == EdgeRule::Refuse {
                    return refuse(
                        e,
                        "a self-loop",
                        "two different ends, or the rule keep or drop for self-loops",
                    );
                }
                drop[e] = true;
            }
        }
        if rules.duplicates != EdgeRule::Keep {
            let mut order: Vec<u32> = (0..sources.len() as u32).collect();
            // Stable: of equal edges the first given comes first.
            order.sort_by_key(|&e| (targets[e as usize], sources[e as usize]));
            for pair in order.windows(2) {
                let [a, b] = [pair[0] as usize, pair[1] as usize];
                if sources[a] != sources[b] || targets[a] != targets[b] || drop[b] {
                    continue;
                }
                if rules.duplicates == EdgeRule::Refuse {
                    return refuse(
                        b,
                        &format!("the same as edge {a}"),
                        "every edge once, or the rule keep or drop for duplicates",
                    );
                }
                drop[b] = true;
            }
        }
        let kept: Vec<u32> = (0..sources.len() as u32)
            .filter(|&e| !drop[e as usize])
            .collect();
        let pick = |ends: &[u32]| -> Vec<u32> { kept.iter().map(|&e| ends[e as usize]).collect() };
        let graph = Self::from_checked(nodes, pick(sources), pick(targets), vec![0, nodes as u32]);
        Ok(Built { graph, kept })
    }

    /// [`Graph::build`] that refuses self-loops and duplicates.
    pub fn new(nodes: usize, sources: &[u32], targets: &[u32]) -> Result<Self> {
        Ok(Self::build(nodes, sources, targets, EdgeRules::default())?.graph)
    }

    /// Every edge of the list in both directions, first all as given, then all reversed; self-loops
    /// and what would be a duplicate are left out.
    pub fn undirected(nodes: usize, a: &[u32], b: &[u32]) -> Result<Self> {
        let sources = [a, b].concat();
        let targets = [b, a].concat();
        Ok(Self::build(nodes, &sources, &targets, EdgeRules::drop())?.graph)
    }

    pub(crate) fn from_checked(
        nodes: usize,
        sources: Vec<u32>,
        targets: Vec<u32>,
        graph_start: Vec<u32>,
    ) -> Self {
        let (pattern, edge) = Pattern::new(nodes, nodes, &targets, &sources);
        Graph {
            nodes,
            sources,
            targets,
            graph_start,
            adjacency: Adjacency { pattern, edge },
            looped: OnceLock::new(),
            normalisation: OnceLock::new(),
            inverse_degree: OnceLock::new(),
            sorted: OnceLock::new(),
        }
    }

    /// The same edges, with the nodes divided among graphs: `graph_of_node` must not decrease.
    /// Graphs without nodes are allowed; there are at least as many graphs as the largest number
    /// says, plus one.
    pub fn with_graphs(mut self, graph_of_node: &[u32], graphs: usize) -> Result<Self> {
        if graph_of_node.len() != self.nodes {
            return Err(Error::invalid(
                "graph_of_node",
                format!("{} numbers", graph_of_node.len()),
                format!("{}, one for every node", self.nodes),
            ));
        }
        if let Some(i) = graph_of_node.windows(2).position(|w| w[0] > w[1]) {
            return Err(Error::invalid(
                format!("graph_of_node of node {}", i + 1),
                graph_of_node[i + 1],
                format!("{} or more: nodes sorted by their graph", graph_of_node[i]),
            ));
        }
        let needed = graph_of_node.last().map_or(0, |&g| g as usize + 1);
        if graphs < needed {
            return Err(Error::invalid(
                "number of graphs",
                graphs,
                format!("{needed} or more"),
            ));
        }
        let mut start = vec![0_u32; graphs + 1];
        for &g in graph_of_node {
            start[g as usize + 1] += 1;
        }
        for g in 0..graphs {
            start[g + 1] += start[g];
        }
        for (e, (&s, &t)) in self.sources.iter().zip(&self.targets).enumerate() {
            let (a, b) = (graph_of_node[s as usize], graph_of_node[t as usize]);
            if a != b {
                return Err(Error::invalid(
                    format!("edge {e} ({s} → {t})"),
                    format!("ends in graphs {a} and {b}"),
                    "both ends in one graph",
                ));
            }
        }
        self.graph_start = start;
        Ok(self)
    }

    /// The disjoint union, in order. Edges are numbered graph after graph.
    pub fn union<'a>(graphs: impl IntoIterator<Item = &'a Graph, IntoIter: Clone>) -> Self {
        let mut union = Self::from_checked(0, Vec::new(), Vec::new(), vec![0]);
        union.fill(graphs.into_iter());
        union
    }

    /// Becomes the disjoint union, in the memory of what was here: what was derived of the earlier
    /// graph is derived of this one.
    pub(crate) fn fill<'a>(&mut self, graphs: impl Iterator<Item = &'a Graph> + Clone) {
        for array in [
            &mut self.sources,
            &mut self.targets,
            &mut self.graph_start,
            &mut self.adjacency.edge,
        ] {
            array.clear();
        }
        self.graph_start.push(0);
        let mut nodes = 0;
        for graph in graphs.clone() {
            let edges = self.sources.len() as u32;
            let edge = graph.adjacency.edge.iter().map(|e| e + edges);
            self.adjacency.edge.extend(edge);
            self.sources.extend(graph.sources.iter().map(|s| s + nodes));
            self.targets.extend(graph.targets.iter().map(|t| t + nodes));
            let starts = graph.graph_start[1..].iter().map(|s| s + nodes);
            self.graph_start.extend(starts);
            nodes += graph.nodes as u32;
        }
        self.nodes = nodes as usize;
        let patterns = graphs.map(|g| &g.adjacency.pattern);
        self.adjacency.pattern.stack(patterns, true);
        if let Some(looped) = self.looped.get_mut() {
            looped.add_loops(&self.adjacency);
            if let Some(normalisation) = self.normalisation.get_mut() {
                normalise(&looped.pattern.by_row, normalisation);
            }
        }
        if let Some(inverse) = self.inverse_degree.get_mut() {
            invert_degrees(&self.adjacency.pattern.by_row, inverse);
        }
        self.sorted.take();
    }

    /// Whether there is such an edge.
    pub fn has_edge(&self, source: u32, target: u32) -> bool {
        let sorted = self.sorted.get_or_init(|| {
            let edges = self.sources.iter().zip(&self.targets);
            let mut sorted: Vec<[u32; 2]> = edges.map(|(&s, &t)| [s, t]).collect();
            sorted.sort_unstable();
            sorted
        });
        sorted.binary_search(&[source, target]).is_ok()
    }

    /// The number of nodes.
    pub fn nodes(&self) -> usize {
        self.nodes
    }

    /// The number of edges, added self-loops not counted.
    pub fn edges(&self) -> usize {
        self.sources.len()
    }

    /// The number of graphs in the union.
    pub fn graphs(&self) -> usize {
        self.graph_start.len() - 1
    }

    /// The source of every edge.
    pub fn sources(&self) -> &[u32] {
        &self.sources
    }

    /// The target of every edge.
    pub fn targets(&self) -> &[u32] {
        &self.targets
    }

    /// The nodes of a graph of the union.
    pub fn nodes_of(&self, graph: usize) -> std::ops::Range<usize> {
        self.graph_start[graph] as usize..self.graph_start[graph + 1] as usize
    }

    /// The edges by target and by source.
    pub fn adjacency(&self) -> &Adjacency {
        &self.adjacency
    }

    /// The edges with a self-loop at every node that has none, first in its row. Built on the first
    /// call.
    pub fn looped(&self) -> &Adjacency {
        self.looped.get_or_init(|| {
            let mut looped = Adjacency {
                pattern: Pattern::empty(),
                edge: Vec::new(),
            };
            looped.add_loops(&self.adjacency);
            looped
        })
    }

    /// 1/√(dᵢ·dⱼ) for every slot of [`Graph::looped`], without edge weights, computed once.
    pub fn normalisation(&self) -> &[f32] {
        self.normalisation.get_or_init(|| {
            let mut entries = Vec::new();
            normalise(&self.looped().pattern.by_row, &mut entries);
            entries
        })
    }

    /// 1/(in-degree) of every node, 0 without in-edges, computed once.
    pub fn inverse_degree(&self) -> &[f32] {
        self.inverse_degree.get_or_init(|| {
            let mut inverse = Vec::new();
            invert_degrees(&self.adjacency.pattern.by_row, &mut inverse);
            inverse
        })
    }

    /// The graph that some nodes span: their numbers in the new graph are their places in `nodes`.
    /// Also which edges were kept, in order. A node given twice is an error.
    pub fn subgraph(&self, nodes: &[u32]) -> Result<Built> {
        const ABSENT: u32 = u32::MAX;
        let mut place = vec![ABSENT; self.nodes];
        for (i, &node) in nodes.iter().enumerate() {
            if node as usize >= self.nodes {
                return Err(Error::invalid(
                    "subgraph",
                    format!("node {node}"),
                    format!("nodes below {}", self.nodes),
                ));
            }
            if place[node as usize] != ABSENT {
                return Err(Error::invalid(
                    "subgraph",
                    format!("node {node} twice"),
                    "every node once",
                ));
            }
            place[node as usize] = i as u32;
        }
        let ends = |e: u32| {
            [
                place[self.sources[e as usize] as usize],
                place[self.targets[e as usize] as usize],
            ]
        };
        let kept: Vec<u32> = (0..self.edges() as u32)
            .filter(|&e| ends(e).iter().all(|&end| end != ABSENT))
            .collect();
        let sources = kept.iter().map(|&e| ends(e)[0]).collect();
        let targets = kept.iter().map(|&e| ends(e)[1]).collect();
        let graph = Self::from_checked(nodes.len(), sources, targets, vec![0, nodes.len() as u32]);
        Ok(Built { graph, kept })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_edge_to_a_node_that_does_not_exist_is_named() {
        let message = Graph::new(3, &[0, 1], &[1, 3]).unwrap_err().to_string();
        assert!(
            message.contains("edge 1") && message.contains("target 3"),
            "{message}"
        );
        assert!(Graph::new(3, &[0], &[1, 2]).is_err());
    }

    #[test]
    fn self_loops_and_duplicates_go_by_the_rules() {
        let (sources, targets) = ([0, 1, 0, 2], [1, 1, 1, 0]);
        let message = Graph::new(3, &sources, &targets).unwrap_err().to_string();
        assert!(message.contains("edge 1 (1 → 1)"), "{message}");
        let rules = EdgeRules {
            self_loops: EdgeRule::Keep,
            ..EdgeRules::default()
        };
        let refused = Graph::build(3, &sources, &targets, rules).err().unwrap();
        assert!(refused.to_string().contains("the same as edge 0"));
        let built = Graph::build(3, &sources, &targets, EdgeRules::drop()).unwrap();
        assert_eq!(built.kept, [0, 3]);
        assert_eq!(built.graph.edges(), 2);
        let kept = Graph::build(3, &sources, &targets, EdgeRules::keep()).unwrap();
        assert_eq!(kept.graph.edges(), 4);
    }

    #[test]
    fn a_self_loop_of_the_data_is_not_added_again() {
        let graph = Graph::build(2, &[1, 0], &[1, 1], EdgeRules::keep())
            .unwrap()
            .graph;
        let looped = graph.looped();
        assert_eq!(looped.pattern.len(), 3);
        assert_eq!(looped.edge, [LOOP, 0, 1]);
        assert_eq!(looped.pattern.by_row.degree(1), 2);
    }

    #[test]
    fn unions_keep_empty_graphs_and_number_edges_in_order() {
        let a = Graph::new(2, &[0], &[1]).unwrap();
        let empty = Graph::new(0, &[], &[]).unwrap();
        let union = Graph::union([&a, &empty, &a]);
        assert_eq!((union.nodes(), union.edges(), union.graphs()), (4, 2, 3));
        assert_eq!(union.nodes_of(1), 2..2);
        assert_eq!(
            (union.sources(), union.targets()),
            (&[0, 2][..], &[1, 3][..])
        );
    }

    #[test]
    fn a_union_in_the_memory_of_another_is_the_same_as_a_new_one() {
        let a = Graph::build(4, &[0, 1, 1, 3], &[1, 1, 2, 1], EdgeRules::keep());
        let a = a.unwrap().graph;
        let b = Graph::new(3, &[0, 2, 1], &[1, 1, 0]).unwrap();
        let mut used = Graph::union([&a, &b, &a]);
        used.normalisation();
        used.inverse_degree();
        assert!(used.has_edge(1, 2) && !used.has_edge(2, 1));
        used.fill([&b, &a].into_iter());
        let new = Graph::union([&b, &a]);
        assert_eq!(used.adjacency().pattern, new.adjacency().pattern);
        assert_eq!(used.adjacency().edge, new.adjacency().edge);
        assert_eq!(used.looped().pattern, new.looped().pattern);
        assert_eq!(used.looped().edge, new.looped().edge);
        assert_eq!(used.normalisation(), new.normalisation());
        assert_eq!(used.inverse_degree(), new.inverse_degree());
        assert_eq!(used.nodes_of(1), 3..7);
        assert!(used.has_edge(0, 1) && used.has_edge(4, 5) && !used.has_edge(1, 2));
        // And as if the edges had been given at once.
        let (sources, targets) = (new.sources(), new.targets());
        let whole = Graph::build(7, sources, targets, EdgeRules::keep()).unwrap();
        assert_eq!(whole.graph.looped().pattern, new.looped().pattern);
    }

    #[test]
    fn graphs_of_a_batch_must_be_sorted_and_closed() {
        let graph = || Graph::new(3, &[0], &[1]).unwrap();
        assert!(graph().with_graphs(&[0, 0, 2], 4).unwrap().graphs() == 4);
        assert!(graph().with_graphs(&[0, 0], 1).is_err());
        assert!(graph().with_graphs(&[1, 0, 0], 2).is_err());
        assert!(graph().with_graphs(&[0, 1, 1], 2).is_err());
        assert!(graph().with_graphs(&[0, 0, 1], 1).is_err());
    }

    #[test]
    fn a_subgraph_keeps_the_edges_between_its_nodes() {
        let graph = Graph::new(4, &[0, 1, 2, 3], &[1, 2, 3, 0]).unwrap();
        let built = graph.subgraph(&[2, 1]).unwrap();
        assert_eq!(built.kept, [1]);
        assert_eq!(
            (built.graph.sources(), built.graph.targets()),
            (&[1][..], &[0][..])
        );
        assert!(graph.subgraph(&[1, 1]).is_err());
        assert!(graph.subgraph(&[4]).is_err());
    }
}
