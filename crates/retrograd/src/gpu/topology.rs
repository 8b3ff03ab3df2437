//! Graphs on the device: the places of their edges, by row and by column, as one buffer of words.
//!
//! What a layer looks at is one of a few topics; those that no layer of a network asks for are not
//! sent. Arrays lie at the same places for every batch of an extent.

use std::sync::Arc;

use super::device::{Gpu, storage_usage};
use super::extent::Extent;
use super::precision::{real_bytes, to_device};
use super::recording::Part;
use crate::graph::{Adjacency, Features, Graph, GraphBatch, Pattern};
use crate::plan::Place;
use crate::{Batch, Result};

/// What a layer looks at in a graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Topic {
    /// The edges by target and by source.
    Edges,
    /// The same with a self-loop at every node.
    Looped,
    /// The entries of gcn's matrix.
    Normalisation,
    /// The nodes of every graph, and the graph of every node.
    Graphs,
    /// The pairs of nodes of one graph.
    Scores,
    /// The pairs of nodes that are scored.
    Pairs,
}

/// Where the two sides of a pattern are, in words.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PatternAt {
    /// The rows' starts, and the neighbour of every slot.
    pub rows: [usize; 2],
    /// The columns' starts, the neighbour and the row side's slot of every entry.
    pub columns: [usize; 3],
    /// The edge of every slot; an added self-loop has none.
    pub edge: usize,
}

/// Where everything is, in words.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Places {
    pub edges: PatternAt,
    pub looped: PatternAt,
    /// The places of sparse features, or the ids.
    pub features: PatternAt,
    /// The ends of every edge.
    pub sources: usize,
    pub targets: usize,
    /// The first node of every graph, the graph of every node, and the first score of every graph.
    pub graph_start: usize,
    pub graph_of: usize,
    pub score_start: usize,
    /// The two nodes of every pair; by node the starts, the pairs and the other nodes.
    pub pairs: usize,
    pub of_node: [usize; 3],
}

/// No graph, for a node that was added to round a size up; no end, for such an edge.
pub(crate) const NONE: u32 = u32::MAX;

/// A batch of graphs on the device.
pub(crate) struct Topology {
    extent: Extent,
    topics: Vec<Topic>,
    columns: usize,
    pub at: Places,
    pub words: Part,
    /// Entries of gcn's matrix where edges have no weights, as activations are kept.
    pub normalisation: Part,
    pub has_edge_weights: bool,
    pub edge_weights: Part,
    pub edge_features: Part,
    /// Their gradients.
    pub d_edge_weights: Part,
    pub d_edge_features: Part,
    /// What is there: as long as it is held here, it can't change.
    held: Option<Held>,
    values: Vec<f32>,
}

struct Held {
    graph: Arc<Graph>,
    features: Option<Arc<Pattern>>,
    pairs: Arc<Vec<[u32; 2]>>,
}

/// Counts words as arrays are laid out.
struct Cursor(usize);

impl Cursor {
    fn take(&mut self, words: usize) -> usize {
        let at = self.0;
        self.0 += words;
        at
    }

    fn pattern(&mut self, rows: usize, columns: usize, slots: usize, edges: bool) -> PatternAt {
        PatternAt {
            rows: [self.take(rows + 1), self.take(slots)],
            columns: [self.take(columns + 1), self.take(slots), self.take(slots)],
            edge: self.take(if edges { slots } else { 0 }),
        }
    }
}

/// The topics of a network's layers.
pub(crate) fn topics(places: &[Place]) -> Vec<Topic> {
    let mut all = Vec::new();
    for place in places {
        for &topic in place.layer.record().map_or(&[][..], |r| r.looks_at()) {
            if !all.contains(&topic) {
                all.push(topic);
            }
        }
    }
    all
}

/// The words of a network's graphs of an extent, and where they are.
fn lay_out(extent: &Extent, topics: &[Topic], columns: usize) -> (Places, usize) {
    let Extent {
        nodes,
        edges,
        looped,
        graphs,
        pairs,
        ..
    } = *extent;
    let mut cursor = Cursor(0);
    let mut at = Places::default();
    let has = |topic| topics.contains(&topic);
    if has(Topic::Edges) {
        at.edges = cursor.pattern(nodes, nodes, edges, true);
        at.sources = cursor.take(edges);
        at.targets = cursor.take(edges);
    }
    if has(Topic::Looped) {
        at.looped = cursor.pattern(nodes, nodes, looped, true);
    }
    if columns > 0 {
        let slots = if extent.sparse { extent.values } else { nodes };
        at.features = cursor.pattern(nodes, columns, slots, false);
    }
    if has(Topic::Graphs) {
        at.graph_start = cursor.take(graphs + 1);
        at.graph_of = cursor.take(nodes);
    }
    if has(Topic::Scores) {
        at.score_start = cursor.take(graphs);
    }
    if has(Topic::Pairs) {
        at.pairs = cursor.take(2 * pairs);
        at.of_node = [
            cursor.take(nodes + 1),
            cursor.take(2 * pairs),
            cursor.take(2 * pairs),
        ];
    }
    (at, cursor.0)
}

/// The columns of a batch's pattern of features: 0 where they are dense.
pub(crate) fn feature_columns(batch: &GraphBatch<f32>) -> usize {
    match batch.features() {
        Features::Dense(_) => 0,
        Features::Sparse(pattern) | Features::Ids(pattern) => pattern.by_column.len(),
    }
}

impl Topology {
    /// Memory for the graphs of a batch like this one.
    pub fn new(
        gpu: &Gpu,
        topics: &[Topic],
        extent: &Extent,
        batch: &GraphBatch<f32>,
        half: bool,
    ) -> Result<Self> {
        let columns = feature_columns(batch);
        let (at, words) = lay_out(extent, topics, columns);
        let part = |label: &str, bytes: u64| -> Result<Part> {
            // Zeroed and sent as a whole.
            let bytes = bytes.max(16).next_multiple_of(16);
            Ok(Part::whole(&gpu.buffer(label, bytes, storage_usage())?))
        };
        let reals = |label: &str, len: usize| part(label, real_bytes(half) * len as u64);
        let weights = match batch.edge_weights() {
            Some(_) => extent.edges,
            None => 0,
        };
        let features = extent.edges * batch.edge_width();
        Ok(Topology {
            extent: *extent,
            at,
            words: part("the graph", 4 * words as u64)?,
            normalisation: reals(
                "the graph's normalisation",
                match weights == 0 && topics.contains(&Topic::Normalisation) {
                    true => extent.looped,
                    false => 0,
                },
            )?,
            has_edge_weights: batch.edge_weights().is_some(),
            edge_weights: part("the edges' weights", 4 * weights as u64)?,
            edge_features: reals("the edges' features", features)?,
            d_edge_weights: part("the edges' weights' gradient", 4 * weights as u64)?,
            d_edge_features: reals("the edges' features' gradient", features)?,
            topics: topics.to_vec(),
            columns,
            held: None,
            values: Vec::new(),
        })
    }

    /// Sends what differs from what is there; x goes to its own buffer.
    pub fn send(&mut self, gpu: &Gpu, batch: &GraphBatch<f32>, x: &Part, half: bool) {
        if !self.held.as_ref().is_some_and(|held| held.is_of(batch)) {
            let words = self.words_of(batch);
            gpu.write(&self.words.buffer, 0, bytemuck::cast_slice(&words));
            if self.topics.contains(&Topic::Normalisation) && batch.edge_weights().is_none() {
                let entries = batch.graph().normalisation();
                let mut scratch = Vec::new();
                let bytes = to_device(half, entries, &mut scratch);
                gpu.write(&self.normalisation.buffer, 0, bytes);
            }
            self.held = Some(Held::of(batch));
        }
        let values = batch.values();
        let same = values.len() == self.values.len()
            && values
                .iter()
                .zip(&self.values)
                .all(|(a, b)| a.to_bits() == b.to_bits());
        if same {
            return;
        }
        let mut scratch = Vec::new();
        let mut features = values[..batch.feature_values()].to_vec();
        features.resize(self.extent.values, 0.0);
        if !features.is_empty() {
            gpu.write(
                &x.buffer,
                x.offset,
                to_device(half, &features, &mut scratch),
            );
        }
        if let Some(weights) = batch.edge_weights().filter(|w| !w.is_empty()) {
            gpu.write(&self.edge_weights.buffer, 0, bytemuck::cast_slice(weights));
        }
        if !batch.edge_features().is_empty() {
            let bytes = to_device(half, batch.edge_features(), &mut scratch);
            gpu.write(&self.edge_features.buffer, 0, bytes);
        }
        self.values.clear();
        self.values.extend_from_slice(values);
    }

    fn words_of(&self, batch: &GraphBatch<f32>) -> Vec<u32> {
        let (extent, at) = (&self.extent, &self.at);
        let graph = batch.graph();
        let mut words = vec![0; self.words.bytes as usize / 4];
        let has = |topic| self.topics.contains(&topic);
        let nodes = extent.nodes;
        let adjacent = |words: &mut [u32], at: &PatternAt, adjacency: &Adjacency| {
            put_pattern(words, at, &adjacency.pattern, [nodes, nodes]);
            put(words, at.edge, &adjacency.edge);
        };
        if has(Topic::Edges) {
            adjacent(&mut words, &at.edges, graph.adjacency());
            // An edge that rounds the number up has no ends.
            words[at.sources..at.sources + extent.edges].fill(NONE);
            put(&mut words, at.sources, graph.sources());
            put(&mut words, at.targets, graph.targets());
        }
        if has(Topic::Looped) {
            adjacent(&mut words, &at.looped, graph.looped());
        }
        if let Features::Sparse(pattern) | Features::Ids(pattern) = batch.features() {
            put_pattern(&mut words, &at.features, pattern, [nodes, self.columns]);
        }
        if has(Topic::Graphs) {
            words[at.graph_of..at.graph_of + nodes].fill(NONE);
            let mut scores = 0_u32;
            for g in 0..extent.graphs {
                let range = match g < graph.graphs() {
                    true => graph.nodes_of(g),
                    false => graph.nodes()..graph.nodes(),
                };
                words[at.graph_start + g] = range.start as u32;
                words[at.graph_start + g + 1] = range.end as u32;
                if has(Topic::Scores) {
                    words[at.score_start + g] = scores;
                    scores += (range.len() * range.len()) as u32;
                }
                words[at.graph_of + range.start..at.graph_of + range.end].fill(g as u32);
            }
        }
        if has(Topic::Pairs) {
            self.put_pairs(&mut words, batch.pairs());
        }
        words
    }

    /// The pairs, and by node those that it is in, in the order of the pairs.
    fn put_pairs(&self, words: &mut [u32], pairs: &[[u32; 2]]) {
        put(words, self.at.pairs, pairs.as_flattened());
        let ends = (0..pairs.len() as u32).flat_map(|p| [p, p]);
        let pair_of: Vec<u32> = ends.collect();
        let others: Vec<u32> = pairs.iter().flat_map(|&[a, b]| [b, a]).collect();
        let nodes = self.extent.nodes;
        let (by_node, entry) = Pattern::new(nodes, nodes, pairs.as_flattened(), &others);
        let pairs: Vec<u32> = entry.iter().map(|&e| pair_of[e as usize]).collect();
        put(words, self.at.of_node[0], &by_node.by_row.start);
        put(words, self.at.of_node[1], &pairs);
        put(words, self.at.of_node[2], &by_node.by_row.neighbour);
    }
}

impl Held {
    fn of(batch: &GraphBatch<f32>) -> Self {
        Held {
            graph: Arc::clone(batch.graph()),
            features: batch.features().pattern().cloned(),
            pairs: Arc::clone(batch.shared_pairs()),
        }
    }

    fn is_of(&self, batch: &GraphBatch<f32>) -> bool {
        let same_features = match (&self.features, batch.features().pattern()) {
            (None, None) => true,
            (Some(a), Some(b)) => Arc::ptr_eq(a, b),
            _ => false,
        };
        same_features
            && Arc::ptr_eq(&self.graph, batch.graph())
            && Arc::ptr_eq(&self.pairs, batch.shared_pairs())
    }
}

fn put(words: &mut [u32], at: usize, values: &[u32]) {
    words[at..at + values.len()].copy_from_slice(values);
}

/// Both sides; rows and columns that were added have no entries.
fn put_pattern(words: &mut [u32], at: &PatternAt, pattern: &Pattern, [rows, columns]: [usize; 2]) {
    let starts = |words: &mut [u32], at: usize, start: &[u32], count: usize| {
        put(words, at, start);
        let last = *start.last().expect("one more than there are rows");
        words[at + start.len()..at + count + 1].fill(last);
    };
    starts(words, at.rows[0], &pattern.by_row.start, rows);
    put(words, at.rows[1], &pattern.by_row.neighbour);
    starts(words, at.columns[0], &pattern.by_column.start, columns);
    put(words, at.columns[1], &pattern.by_column.neighbour);
    put(words, at.columns[2], &pattern.slot);
}
