//! Graphs from files: `.content`/`.cites`, plain Planetoid, TUDataset, edge lists with CSV or NPY
//! features, GraphML and GML, folders of graphs; and Zachary's karate club built in.

mod edge_list;
mod folder;
mod karate;
mod listed;
mod markup;
mod planetoid;
mod tudataset;

use std::path::{Path, PathBuf};

pub(crate) use edge_list::node_names;
pub use edge_list::{EdgeListFiles, read_edge_list, read_unlabelled};
pub use folder::{GraphFolder, read_folder};
pub(crate) use folder::{files as graph_files, tudataset_in};
pub use karate::{KARATE_EDGES, karate_club};
pub(crate) use listed::read_pairs;
pub(crate) use markup::{Marked, is_marked, number, read_marked};
pub use planetoid::{read_content_cites, read_planetoid};
pub use tudataset::read_tudataset;

use super::batch::GraphBatch;
use crate::Result;

/// What a node is used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Split {
    /// Nothing: its label is not looked at.
    None,
    /// Training.
    Train,
    /// Validation.
    Validation,
    /// Test.
    Test,
}

/// One graph whose nodes have classes.
#[derive(Clone, Debug)]
pub struct NodeData {
    /// The graph with its features.
    pub batch: GraphBatch<f32>,
    /// The class of every node; 0 where it is not known (its split is then `None`).
    pub classes: Vec<u32>,
    /// The classes' names.
    pub class_names: Vec<String>,
    /// What each node is used for.
    pub split: Vec<Split>,
    /// The nodes' names, where they are not their numbers.
    pub node_names: Option<Vec<String>>,
    /// What was found out about the files, to be said.
    pub notes: Vec<String>,
}

/// Many graphs with a class or a number each.
#[derive(Clone, Debug)]
pub struct GraphSet {
    /// The graphs with their features.
    pub graphs: Vec<GraphBatch<f32>>,
    /// The class of every graph; empty for regression.
    pub classes: Vec<u32>,
    /// The classes' names.
    pub class_names: Vec<String>,
    /// The number of every graph; empty for classification.
    pub targets: Vec<f32>,
    /// What is taken off the numbers, and what they are divided by, for training: figures and
    /// predictions are in their own units.
    pub scaling: [f32; 2],
    /// The graphs' names, where they are not their numbers.
    pub names: Option<Vec<String>>,
}

/// Where `data/fetch-graphs` puts its files: `$RETROGRAD_DATA/graphs`, or
/// `~/.cache/retrograd/graphs`.
pub fn cache_folder() -> PathBuf {
    let root = std::env::var_os("RETROGRAD_DATA").map(PathBuf::from);
    let home = || std::env::var_os("HOME").map(|h| PathBuf::from(h).join(".cache/retrograd"));
    root.or_else(home).unwrap_or_default().join("graphs")
}

/// Scales every row of sparse or dense features so that it sums to 1, as PyG's
/// `NormalizeFeatures` does; rows that sum to 0 stay as they are.
pub fn normalise_rows(node_of: &[u32], values: &mut [f32], nodes: usize) {
    let mut sums = vec![0.0_f64; nodes];
    for (&node, &value) in node_of.iter().zip(values.iter()) {
        sums[node as usize] += f64::from(value);
    }
    for (&node, value) in node_of.iter().zip(values) {
        let sum = sums[node as usize];
        if sum != 0.0 {
            *value = (f64::from(*value) / sum) as f32;
        }
    }
}

fn read_text(path: &Path) -> Result<String> {
    crate::data::files::read_text(path)
}

/// A line's place in messages.
fn line(index: usize) -> String {
    format!("line {}", index + 1)
}
