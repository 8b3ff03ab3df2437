//! What graph networks are trained for: classes of nodes, classes or numbers of graphs, links, and
//! masked characters of text.

mod graphs;
mod links;
mod nodes;
#[cfg(test)]
mod tests;
mod text;

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

pub use graphs::GraphTask;
pub use links::LinkTask;
pub use nodes::NodeTask;
pub use text::TextTask;

use super::batch::GraphBatch;
use super::data::{
    EdgeListFiles, NodeData, cache_folder, karate_club, read_content_cites, read_edge_list,
    read_planetoid, read_tudataset,
};
use super::network::{GraphNetwork, GraphTape};
use super::spec::GraphSpec;
use crate::train::{Experiment, Session, Summary};
use crate::{Error, Model, Pass, Result};

/// What is predicted of a graph with node classes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Predict {
    /// The classes of the nodes.
    #[default]
    Nodes,
    /// Which nodes are linked; the network ends with `pair_dot`.
    Links,
}

/// The `[data]` table of a graph experiment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum GraphDataSpec {
    /// Zachary's karate club, built in.
    Karate {
        /// What is predicted.
        #[serde(default)]
        predict: Predict,
    },
    /// `FOLDER/NAME.content` and `FOLDER/NAME.cites`.
    ContentCites {
        /// The name of both files.
        name: String,
        /// Where they are; `data/fetch-graphs`' cache, in a folder of the name, where not written.
        #[serde(default)]
        folder: Option<PathBuf>,
        /// What is predicted.
        #[serde(default)]
        predict: Predict,
    },
    /// A folder as `data/fetch-graphs` writes it for Citeseer and Pubmed.
    Planetoid {
        /// The folder's name in the cache.
        name: String,
        /// Where it is, if not there.
        #[serde(default)]
        folder: Option<PathBuf>,
        /// What is predicted.
        #[serde(default)]
        predict: Predict,
    },
    /// Edges, features and labels of one's own.
    EdgeList(EdgeListFiles),
    /// Many graphs in TUDataset's text.
    Tudataset {
        /// The data set's name, with which its files begin.
        name: String,
        /// Where it is; in the cache, in a folder of the name, where not written.
        #[serde(default)]
        folder: Option<PathBuf>,
        /// Edge labels as edge features.
        #[serde(default)]
        edge_features: bool,
        /// Parts for cross-validation; one of them is the test.
        #[serde(default = "ten")]
        folds: usize,
        /// Which; all one after the other, with the mean in the summary, where not written.
        #[serde(default)]
        fold: Option<usize>,
    },
    /// Sentences from a small grammar, characters of which are masked and restored.
    Text {
        /// Characters of a sample.
        #[serde(default = "forty")]
        characters: usize,
        /// The share that is masked.
        #[serde(default = "fifteen_percent")]
        masked: f64,
        /// Skip edges over so many characters.
        #[serde(default)]
        skips: Vec<usize>,
        /// Samples of an epoch, and of the validation.
        #[serde(default = "samples")]
        samples: usize,
    },
}

fn ten() -> usize {
    10
}
fn forty() -> usize {
    40
}
fn fifteen_percent() -> f64 {
    0.15
}
fn samples() -> usize {
    512
}

/// A data set's folder, with advice where the cache doesn't have it.
fn folder(experiment: &Experiment, name: &str, given: Option<&PathBuf>) -> Result<PathBuf> {
    if let Some(path) = given {
        return Ok(experiment.resolve(path));
    }
    let path = cache_folder().join(name);
    if path.is_dir() {
        return Ok(path);
    }
    Err(Error::file(
        path,
        "folder",
        "is not there: data/fetch-graphs puts it there, or set [data] folder",
    ))
}

/// Builds the task of an experiment and trains it.
pub fn train(session: &mut Session<'_>) -> Result<Summary> {
    let experiment = session.experiment().clone();
    let spec: GraphSpec = experiment.model_as()?;
    let seed = experiment.train.seed;
    let data = |data: NodeData, predict: Predict, session: &mut Session<'_>| match predict {
        Predict::Nodes => session.fit(&mut NodeTask::new(&spec, data)?),
        Predict::Links => session.fit(&mut LinkTask::new(&spec, data.batch, seed)?),
    };
    match experiment.data_as::<GraphDataSpec>()? {
        GraphDataSpec::Karate { predict } => data(karate_club()?, predict, session),
        GraphDataSpec::ContentCites {
            name,
            folder: given,
            predict,
        } => {
            let folder = folder(&experiment, &name, given.as_ref())?;
            let file = |end: &str| folder.join(format!("{name}.{end}"));
            let read = read_content_cites(&file("content"), &file("cites"))?;
            data(read, predict, session)
        }
        GraphDataSpec::Planetoid {
            name,
            folder: given,
            predict,
        } => {
            let folder = folder(&experiment, &name, given.as_ref())?;
            data(read_planetoid(&folder)?, predict, session)
        }
        GraphDataSpec::EdgeList(mut files) => {
            for path in [&mut files.edges, &mut files.features, &mut files.labels] {
                *path = experiment.resolve(&path);
            }
            data(read_edge_list(&files, seed)?, Predict::Nodes, session)
        }
        GraphDataSpec::Tudataset {
            name,
            folder: given,
            edge_features,
            folds,
            fold,
        } => {
            let folder = folder(&experiment, &name, given.as_ref())?;
            let set = read_tudataset(&folder, &name, edge_features)?;
            let batch = experiment.train.batch.unwrap_or(32);
            let others = fold.is_none().then(|| experiment.clone());
            let fold = fold.unwrap_or(0);
            session.fit(&mut GraphTask::new(
                &spec,
                set,
                [fold, folds, batch],
                seed,
                others,
            )?)
        }
        GraphDataSpec::Text {
            characters,
            masked,
            skips,
            samples,
        } => {
            let batch = experiment.train.batch.unwrap_or(32);
            let sizes = [characters, samples, batch];
            session.fit(&mut TextTask::new(&spec, sizes, masked, &skips, seed)?)
        }
    }
}

/// The network's output and the rows before its last layer with weights: the embedding.
struct Inference {
    tape: GraphTape<f32>,
}

impl Inference {
    fn new() -> Self {
        Inference {
            tape: GraphTape::default(),
        }
    }

    fn output(
        &mut self,
        network: &GraphNetwork,
        params: &[f32],
        batch: &GraphBatch<f32>,
    ) -> &[f32] {
        network.forward(params, batch, &Pass::inference(), &mut self.tape);
        network.output(&self.tape)
    }

    /// Rows and width of the embedding, of the last forward.
    fn embedding(&self, network: &GraphNetwork) -> (&[f32], usize) {
        let last = network
            .tensors_of
            .iter()
            .rposition(|tensors| !tensors.is_empty())
            .unwrap_or(0);
        let layer = last.saturating_sub(1);
        (
            network.layer_output(&self.tape, layer),
            network.widths[layer],
        )
    }
}

fn write_picture(run: &Path, name: &str, svg: &str) -> Result<()> {
    let path = run.join(name);
    std::fs::write(&path, svg).map_err(Error::io(&path, "write"))
}
