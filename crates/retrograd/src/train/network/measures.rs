//! What is measured of a network's outputs.

use super::EVALUATED;
use crate::data::metrics::{Choices, Confusion, Regression};
use crate::data::{Dataset, Preparation, TaskKind};
use crate::network::Network;
use crate::train::Metrics;
use crate::{Model, Pass, Result, Target};

/// A network's outputs for every sample.
pub(super) fn outputs(network: &Network, params: &[f32], data: &Dataset) -> Vec<f32> {
    let mut outputs = Vec::with_capacity(data.len() * network.output_len());
    let mut tape = Default::default();
    let mut batch = Vec::new();
    for chunk in data.inputs().chunks(EVALUATED * data.sample_len()) {
        batch.clear();
        batch.extend_from_slice(chunk);
        network.compute_forward(params, &batch, &Pass::inference(), &mut tape);
        outputs.extend_from_slice(network.output(&tape));
    }
    outputs
}

/// The measures of a regression, a classification, or of what would be chosen.
pub(super) enum Measures {
    Regression(Regression),
    Classification(Confusion),
    Choices(Choices),
}

impl Measures {
    pub fn new(preparation: &Preparation) -> Self {
        match preparation.task() {
            TaskKind::Regression => Measures::Regression(preparation.regression()),
            TaskKind::Classification => Measures::Classification(preparation.confusion()),
        }
    }

    pub fn add(&mut self, outputs: &[f32], target: &Target<f32>) -> Result<()> {
        match self {
            Measures::Regression(sums) => sums.add(outputs, target),
            Measures::Classification(matrix) => matrix.add(outputs, target),
            Measures::Choices(choices) => choices.add(outputs, target),
        }
    }

    pub fn named(&self) -> Metrics {
        let named = |name: &str, value| (name.to_string(), value);
        match self {
            Measures::Regression(sums) => {
                let scores = sums.scores();
                vec![
                    named("rmse", scores.rmse),
                    named("mae", scores.mae),
                    named("r2", scores.r2),
                ]
            }
            Measures::Classification(matrix) => vec![
                named("accuracy", matrix.accuracy()),
                named("f1", matrix.f1()),
            ],
            Measures::Choices(choices) => vec![named("best_action", choices.right())],
        }
    }
}
