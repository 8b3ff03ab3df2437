//! The memory that training a network takes, from its shapes alone.

use super::{Network, NetworkSpec};
use crate::Model;
use crate::budget::{Demand, product};
use crate::layer::conv2d::Conv2d;
use crate::layer::conv2d::cpu::bordered_len;
use crate::layer::kan::Kan;
use crate::optim::OptimizerSpec;
use crate::plan::{Place, Value};
use crate::train::memory::of_params;

/// Bytes of one number.
const NUMBER: u128 = 4;

impl Network {
    /// The numbers that a step holds for one sample: the input and the target twice (the data's and
    /// the batch's), the values of the plan, in training with their gradients and what layers keep for
    /// backward, and the largest scratch memory.
    fn sample_numbers(&self, training: bool) -> u128 {
        let plan = self.plan(true, false, true);
        let len = |layer: usize| numbers_of(&self.places[layer].shape);
        let value = |value: Value| match value {
            Value::Input => self.input_len() as u128,
            Value::Of(layer) => len(layer),
        };
        let mut numbers = 2 * (self.input_len() as u128 + len(plan.output));
        let mut scratch = 0;
        for step in &plan.forward {
            let own = len(step.y);
            let (kept, beside) = self.places[step.layer].keeps(value(step.x), own);
            numbers += own + if training { kept } else { 0 };
            scratch = beside.max(scratch);
        }
        if training {
            // The output's gradient is the caller's; where one is added to another it stands beside it.
            let onto = plan
                .backward
                .iter()
                .flat_map(|step| [step.d_x, step.d_other]);
            let gradients = || onto.clone().flatten().filter(|d| d.value != Value::Input);
            let written = gradients().filter(|d| !d.adds).map(|d| value(d.value));
            let added = gradients().filter(|d| d.adds).map(|d| value(d.value));
            numbers += len(plan.output) + written.sum::<u128>() + added.max().unwrap_or(0);
        }
        numbers + scratch
    }

    /// The bytes that KAN layers take whatever the batch: the largest weights in rows of whole vectors,
    /// and the knots that inputs have for themselves (the layer's, the best so far, and what is copied
    /// for a checkpoint and its file).
    fn kan_bytes(&self) -> u128 {
        let kans = || self.places.iter().filter_map(|p| p.layer.downcast::<Kan>());
        let padded = kans().map(Kan::padded_bytes).max().unwrap_or(0);
        let free = kans().filter(|kan| kan.free_knots.is_some()).map(|kan| {
            let copies = 6 * 8 * kan.knot_count() as u64;
            product([kan.inputs as u64, kan.free_knot_bytes() + copies])
        });
        free.fold(padded, u128::saturating_add)
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
            .saturating_add(self.kan_bytes())
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

fn numbers_of(shape: &[usize]) -> u128 {
    product(shape.iter().map(|&n| n as u64))
}

impl Place {
    /// What the layer keeps of one sample for backward, and its scratch memory, with so many numbers
    /// on either side.
    fn keeps(&self, before: u128, after: u128) -> (u128, u128) {
        if let Some(conv) = self.layer.downcast::<Conv2d>() {
            let stride = conv.stride as u128;
            return match (conv.stride, conv.mirrors()) {
                (1, false) => (0, 0),
                // The gradient of the bordered image.
                (1, true) => (0, bordered_len(conv, 1) as u128),
                // A bordered copy; the gradient of the output spread out to the input's pixels.
                _ => (bordered_len(conv, 1) as u128, after * stride * stride),
            };
        }
        match self.kind {
            "dense" | "relu" | "leaky_relu" | "flatten" | "add" | "concat" | "upsample" => (0, 0),
            // Masks, slopes, positions, values of splines: at most one for every number on either side.
            _ => (before.max(after), before.max(after)),
        }
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
