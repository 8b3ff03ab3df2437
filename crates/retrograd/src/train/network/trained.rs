//! A trained network and new data.

use std::path::Path;

use super::measures::{Measures, outputs};
use super::{PREPARATION, build};
use crate::data::Preparation;
use crate::network::Network;
use crate::train::{Experiment, Metrics, TensorFile, experiment_of, load_weights, model_file};
use crate::{Error, Result, Target};

/// A trained network with the preparation of its data, for inference.
pub struct TrainedNetwork {
    network: Network,
    params: Vec<f32>,
    preparation: Preparation,
}

/// What a trained network says about a file.
pub struct Predictions {
    /// Columns in the user's units and words, for [`crate::data::csv::write`].
    pub columns: Vec<(String, Vec<String>)>,
    /// The measures, where the file has targets.
    pub metrics: Metrics,
    /// Rows of the file that lack an input and have no prediction.
    pub unpredicted: usize,
    /// Rows that the measures are of.
    pub measured: usize,
    /// What was found out about the file, to be said.
    pub notes: Vec<String>,
}

impl TrainedNetwork {
    /// The best weights of a run's folder.
    pub fn open(run: &Path) -> Result<Self> {
        Self::of(run, build)
    }

    /// The same for a family that builds its network in another way.
    pub(crate) fn of(
        run: &Path,
        build: impl FnOnce(&Experiment, &Preparation) -> Result<Network>,
    ) -> Result<Self> {
        let experiment = experiment_of(run)?;
        let path = model_file(run);
        let file = TensorFile::read(&path)?;
        let Some(text) = file.metadata.get(&format!("task/{PREPARATION}")) else {
            return Err(Error::file(
                &path,
                "metadata",
                "no \"task/preparation\"; a run on a data set has one",
            ));
        };
        let preparation =
            Preparation::from_json(text).map_err(|e| Error::file(&path, "metadata", e))?;
        let mut network = build(&experiment, &preparation)?;
        let (params, _) = load_weights(&path, &mut network)?;
        Ok(TrainedNetwork {
            network,
            params,
            preparation,
        })
    }

    /// The network as an ONNX file: `numbers`, texts and dates of a table's columns, or `x`, in;
    /// `values`, or `class` and `probabilities`, out, all in the user's units and words.
    pub fn to_onnx(&self) -> Result<Vec<u8>> {
        crate::onnx::prepared(&self.network, &self.params, &self.preparation)
    }

    /// Reads new data and predicts: a row for every row of the file, in its order, with the columns
    /// of the file that are to be kept before the predictions. Where a row lacks an input, its
    /// predictions are empty.
    pub fn predict(&self, path: &Path, keep: &[String]) -> Result<Predictions> {
        let data = self.preparation.read(path)?;
        let width = self.network.output_len();
        let outputs = outputs(&self.network, &self.params, &data.dataset);
        let mut columns = Vec::new();
        for name in keep {
            columns.push((name.clone(), data.column(name)?));
        }
        for (name, predicted) in self.preparation.predictions(&outputs, width)? {
            let mut cells = vec![String::new(); data.total];
            for (&row, cell) in data.rows.iter().zip(predicted) {
                cells[row] = cell;
            }
            columns.push((name, cells));
        }
        let mut metrics = Metrics::new();
        if let Some((known, samples)) = &data.known {
            let mut measures = Measures::new(&self.preparation);
            let (mut inputs, mut target) = (Vec::new(), Target::default());
            known.gather_range(0..known.len(), &mut inputs, &mut target);
            let rows = samples.iter();
            let of_known: Vec<f32> = rows
                .flat_map(|s| &outputs[s * width..(s + 1) * width])
                .copied()
                .collect();
            measures.add(&of_known, &target)?;
            metrics = measures.named();
        }
        Ok(Predictions {
            columns,
            metrics,
            notes: data.notes,
            unpredicted: data.total - data.rows.len(),
            measured: data.known.map_or(0, |(_, samples)| samples.len()),
        })
    }
}
