//! The memory that training a network takes, from its shapes alone.

use super::{Network, NetworkSpec};
use crate::Model;
use crate::budget::Demand;
use crate::optim::OptimizerSpec;
use crate::train::memory::of_params;

/// Bytes of one number.
const NUMBER: u128 = 4;

impl Network {
    /// The numbers that a step holds for one sample: the input twice (the data's and the batch's),
    /// every layer's output, with its gradient in training, and what layers keep for backward.
    fn sample_numbers(&self, training: bool) -> u128 {
        let mut before = self.input_len() as u128;
        let mut numbers = 2 * before;
        let each = if training { 2 } else { 1 };
        for place in &self.places {
            let after: u128 = place.shape.iter().map(|&n| n as u128).product();
            let kept = match place.kind {
                "dense" | "flatten" | "add" | "concat" | "upsample" => 0,
                // Bordered inputs, masks, slopes, positions: at most one for every number on
                // either side.
                _ => before.max(after),
            };
            numbers += each * after + kept;
            before = after;
        }
        numbers
    }

    /// The bytes of training with batches of so many samples, so many being evaluated at a time.
    pub(crate) fn training_bytes(
        &self,
        batch: u64,
        evaluated: u64,
        optimizer: &OptimizerSpec,
    ) -> u128 {
        let samples = |training, count: u64| {
            let numbers = self.sample_numbers(training).saturating_mul(count.into());
            NUMBER.saturating_mul(numbers)
        };
        of_params(self.layout().len() as u64, optimizer)
            .saturating_add(samples(true, batch))
            .saturating_add(samples(false, evaluated))
    }

    /// The demand of training: the batch, and then the layers' outputs, could be smaller. `called`
    /// says what the outputs of a layer are called in the experiment.
    pub(crate) fn demand<'a>(
        &'a self,
        batch: (&str, u64),
        evaluated: u64,
        optimizer: OptimizerSpec,
        called: impl Fn(usize) -> String,
    ) -> Demand<'a> {
        let mut sizes = vec![(batch.0.to_string(), batch.1)];
        let mut layers = Vec::new();
        let outputs = self.spec().layers.len() - 1;
        for (index, layer) in self.spec().layers[..outputs].iter().enumerate() {
            let json = serde_json::to_value(layer).unwrap_or_default();
            if let Some(out) = json["out"].as_u64() {
                sizes.push((called(index), out));
                layers.push((index, out));
            }
        }
        Demand::of_list(sizes, move |values| {
            let (batch, outs) = (values[0], &values[1..]);
            let changed = || {
                layers
                    .iter()
                    .zip(outs)
                    .filter(|((_, own), out)| own != *out)
            };
            if changed().next().is_none() {
                return self.training_bytes(batch, evaluated, &optimizer);
            }
            let changes = changed().map(|((index, _), &out)| (*index, out));
            match changed_spec(self.spec(), changes).and_then(|spec| Network::new(&spec).ok()) {
                Some(network) => network.training_bytes(batch, evaluated, &optimizer),
                // What can't be built is no proposal.
                None => u128::MAX,
            }
        })
    }
}

/// The same layers with other numbers of outputs.
fn changed_spec(
    spec: &NetworkSpec,
    changes: impl Iterator<Item = (usize, u64)>,
) -> Option<NetworkSpec> {
    let mut spec = spec.clone();
    for (index, out) in changes {
        let mut json = serde_json::to_value(&spec.layers[index]).ok()?;
        json["out"] = out.into();
        spec.layers[index] = serde_json::from_value(json).ok()?;
    }
    Some(spec)
}
