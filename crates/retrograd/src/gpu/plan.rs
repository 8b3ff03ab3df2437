//! One network at one batch size: its buffers, and the recordings over them.

use std::collections::HashMap;

use super::device::{Gpu, storage_usage};
use super::kernels::ELEMENTWISE;
use super::layer::{Io, Lengths, Record, groups};
use super::recording::{Part, Recording};
use crate::nn::{Network, Node, Value};
use crate::rng::Key;
use crate::{Error, Model, Result};

/// What a plan shares with all others of its network.
pub(crate) struct Shared<'a> {
    pub gpu: &'a Gpu,
    pub network: &'a Network,
    pub params: &'a Part,
    pub grads: &'a Part,
    /// Every layer's numbers that are neither parameters nor of the batch.
    pub fixed: &'a [Part],
}

/// The key of a recording of a training step: what it is made of.
pub(crate) type StepKey = (u8, bool, u64);

pub(crate) struct Plan {
    pub samples: usize,
    /// Constants of the step, random keys, x, target and weights: what a step sends, in one piece.
    pub upload: wgpu::Buffer,
    pub step: Part,
    pub keys: Part,
    pub x: Part,
    pub target: Part,
    pub weights: Part,
    pub values: Vec<Part>,
    d_values: Vec<Part>,
    d_input: Part,
    /// For a gradient that is added to one already there.
    added: Part,
    saved: Vec<Vec<Part>>,
    pub forward: Recording,
    pub forward_training: Recording,
    /// With the input's gradient.
    pub backward: Recording,
    /// Loss and gradients, or whole native steps.
    pub steps: HashMap<StepKey, Recording>,
    /// Partial sums of the loss.
    pub losses: Part,
    /// Bound where an optimizer has no such state.
    pub spare: [Part; 2],
}

/// Bytes of the step's constants.
pub(crate) const STEP_BYTES: u64 = 64;
/// Words of a random key.
const KEY_WORDS: usize = 8;

/// The value whose numbers a flattened value shares.
pub(crate) fn stored(network: &Network, value: Value) -> Value {
    match value {
        Value::Of(layer) if matches!(network.nodes[layer], Node::Flatten) => {
            stored(network, before(layer))
        }
        other => other,
    }
}

fn before(layer: usize) -> Value {
    layer.checked_sub(1).map_or(Value::Input, Value::Of)
}

fn record_of(node: &Node) -> Option<&dyn Record> {
    match node {
        Node::Dense(layer) => Some(layer),
        Node::Kan(layer) => Some(layer),
        Node::Conv2d(layer) => Some(layer),
        Node::ConvTranspose2d(layer) => Some(layer),
        Node::Pool(layer) => Some(layer),
        Node::Upsample(layer) => Some(layer),
        Node::Norm(layer) => Some(layer),
        Node::Dropout(layer) => Some(layer),
        Node::Normalize(layer) => Some(layer),
        Node::Activation(layer) => Some(layer),
        Node::Flatten | Node::Concat(_) | Node::Add(_) => None,
    }
}

/// Every layer's fixed numbers on the device.
pub(crate) fn fixed_parts(gpu: &Gpu, network: &Network) -> Vec<Part> {
    let part = |node: &Node| {
        let mut numbers = record_of(node).map_or_else(Vec::new, Record::fixed);
        numbers.resize(numbers.len().max(4), 0.0);
        let bytes = bytemuck::cast_slice(&numbers);
        Part::whole(&gpu.constant("fixed", bytes, storage_usage()))
    };
    network.nodes.iter().map(part).collect()
}

/// The words of every dropout's key in a step, in the order of the layers.
pub(crate) fn key_words(network: &Network, key: Key) -> Vec<u32> {
    let dropouts = network.nodes.iter().filter_map(|node| match node {
        Node::Dropout(dropout) => Some(dropout.index),
        _ => None,
    });
    dropouts
        .flat_map(|index| key.purpose("dropout").index(index).words())
        .collect()
}

impl Plan {
    pub fn new(shared: &Shared<'_>, samples: usize) -> Result<Self> {
        let (gpu, network) = (shared.gpu, shared.network);
        let len_of = |shape: &[usize]| samples * shape.iter().product::<usize>();
        let input_len = samples * network.input_len();
        let output_len = samples * network.output_len();
        let widest = network
            .shapes
            .iter()
            .map(|shape| len_of(shape))
            .chain([input_len])
            .max()
            .unwrap_or(0);
        // Kernels index with 32 bits, and KAN features are the widest of all.
        if widest > (1 << 28) {
            return Err(Error::Gpu {
                what: format!("{widest} values in one layer's output"),
                advice: "a smaller batch".into(),
            });
        }
        let align = u64::from(gpu.limits.min_storage_buffer_offset_alignment)
            .max(u64::from(gpu.limits.min_uniform_buffer_offset_alignment));
        let keys = network
            .nodes
            .iter()
            .filter(|n| matches!(n, Node::Dropout(_)));
        let key_bytes = 4 * (KEY_WORDS * keys.count().max(1)) as u64;
        let mut end = 0;
        let mut place = |bytes: u64| {
            let offset = end;
            end = (offset + bytes).next_multiple_of(align);
            (offset, bytes)
        };
        let places = [
            place(STEP_BYTES),
            place(key_bytes),
            place(4 * input_len as u64),
            place(4 * output_len as u64),
            place(4 * output_len as u64),
        ];
        let usage = storage_usage() | wgpu::BufferUsages::UNIFORM;
        let upload = gpu.buffer("the batch", end, usage)?;
        let [step, keys, x, target, weights] = places.map(|(offset, bytes)| Part {
            buffer: upload.clone(),
            offset,
            bytes,
        });
        let mut values = Vec::new();
        let mut d_values = Vec::new();
        let mut saved = Vec::new();
        for (layer, node) in network.nodes.iter().enumerate() {
            let y_len = len_of(&network.shapes[layer]);
            let name = format!("layer {layer}'s output");
            // A flattened value has the buffer of the one before it.
            let own = if matches!(node, Node::Flatten) {
                4
            } else {
                y_len
            };
            values.push(Part::whole(&gpu.floats(&name, own)?));
            d_values.push(Part::whole(&gpu.floats(&name, own)?));
            let x_len = match before(layer) {
                Value::Input => input_len,
                Value::Of(l) => len_of(&network.shapes[l]),
            };
            let lengths = Lengths {
                samples,
                x_len,
                y_len,
            };
            let lens = record_of(node).map_or_else(Vec::new, |r| r.saved(&lengths));
            let name = format!("what layer {layer} keeps for backward");
            let parts: Result<Vec<_>> = lens
                .into_iter()
                .map(|len| Ok(Part::whole(&gpu.floats(&name, len)?)))
                .collect();
            saved.push(parts?);
        }
        let mut plan = Plan {
            samples,
            upload,
            step,
            keys,
            x,
            target,
            weights,
            values,
            d_values,
            d_input: Part::whole(&gpu.floats("the input's gradient", input_len)?),
            added: Part::whole(&gpu.floats("gradients to add", widest)?),
            saved,
            forward: Recording::default(),
            forward_training: Recording::default(),
            backward: Recording::default(),
            steps: HashMap::new(),
            losses: Part::whole(&gpu.floats("partial losses", output_len.div_ceil(64))?),
            spare: [
                Part::whole(&gpu.floats("spare", 4)?),
                Part::whole(&gpu.floats("spare", 4)?),
            ],
        };
        let mut forward = Recording::default();
        plan.record_forward(shared, &mut forward, false)?;
        let mut forward_training = Recording::default();
        plan.record_forward(shared, &mut forward_training, true)?;
        let mut backward = Recording::default();
        plan.record_backward(shared, &mut backward, true)?;
        plan.forward = forward;
        plan.forward_training = forward_training;
        plan.backward = backward;
        Ok(plan)
    }

    /// The numbers of a value.
    fn value(&self, network: &Network, value: Value) -> &Part {
        match stored(network, value) {
            Value::Input => &self.x,
            Value::Of(layer) => &self.values[layer],
        }
    }

    /// The network's output.
    pub fn output(&self, network: &Network) -> &Part {
        self.value(network, Value::Of(network.nodes.len() - 1))
    }

    /// The gradient of the network's output.
    pub fn d_output(&self, network: &Network) -> &Part {
        match stored(network, Value::Of(network.nodes.len() - 1)) {
            Value::Input => &self.d_input,
            Value::Of(layer) => &self.d_values[layer],
        }
    }

    /// The gradient of the network's input.
    pub fn d_input(&self) -> &Part {
        &self.d_input
    }

    fn len(&self, network: &Network, value: Value) -> usize {
        let shape = match value {
            Value::Input => &network.spec().input,
            Value::Of(layer) => &network.shapes[layer],
        };
        self.samples * shape.iter().product::<usize>()
    }

    fn io<'a>(
        &'a self,
        shared: &'a Shared<'_>,
        layer: usize,
        name: &'a str,
        training: bool,
    ) -> Io<'a> {
        let network = shared.network;
        let earlier = network.nodes[..layer].iter();
        let dropouts = earlier.filter(|n| matches!(n, Node::Dropout(_))).count();
        let layout = network.layout();
        Io {
            gpu: shared.gpu,
            name,
            samples: self.samples,
            x_len: self.len(network, before(layer)),
            y_len: self.len(network, Value::Of(layer)),
            params: shared.params,
            grads: shared.grads,
            ranges: &network.tensors[layer],
            trained: [0, 1, 2].map(|slot| {
                let range = network.tensors[layer][slot].clone();
                !range.is_empty() && !layout.is_frozen(range)
            }),
            x: self.value(network, before(layer)),
            y: &self.values[layer],
            saved: &self.saved[layer],
            fixed: &shared.fixed[layer],
            keys: &self.keys,
            key_at: KEY_WORDS * dropouts,
            training,
        }
    }

    fn name(network: &Network, layer: usize) -> String {
        format!("{layer}.{}", network.spec().layers[layer].kind())
    }

    pub fn record_forward(
        &self,
        shared: &Shared<'_>,
        recording: &mut Recording,
        training: bool,
    ) -> Result<()> {
        let network = shared.network;
        for (layer, node) in network.nodes.iter().enumerate() {
            let name = Self::name(network, layer);
            let io = self.io(shared, layer, &name, training);
            if let Some(record) = record_of(node) {
                record.forward(recording, &io)?;
                continue;
            }
            match *node {
                Node::Add(with) => {
                    let other = self.value(network, with);
                    let buffers = [io.x, io.y, other];
                    let kernel = (&ELEMENTWISE, "add");
                    io.run(
                        recording,
                        kernel,
                        &[],
                        &[io.y_len],
                        &buffers,
                        groups(io.y_len),
                    )?;
                }
                Node::Concat(with) => {
                    let total = io.y_len / self.samples;
                    let mut at = 0;
                    for value in [before(layer), with] {
                        let len = self.len(network, value) / self.samples;
                        let sizes = [self.samples, len, len, 0, total, at, 0];
                        let buffers = [self.value(network, value), io.y];
                        let kernel = (&ELEMENTWISE, "copy_rows");
                        let count = groups(self.samples * len);
                        io.run(recording, kernel, &[], &sizes, &buffers, count)?;
                        at += len;
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Running statistics follow the step.
    pub fn record_absorb(&self, shared: &Shared<'_>, recording: &mut Recording) -> Result<()> {
        for (layer, node) in shared.network.nodes.iter().enumerate() {
            if let Some(record) = record_of(node) {
                let name = Self::name(shared.network, layer);
                record.absorb(recording, &self.io(shared, layer, &name, true))?;
            }
        }
        Ok(())
    }

    /// The same walk as the CPU's: layers that nothing trained or wanted depends on record
    /// nothing, and a value's second gradient is added to its first.
    pub fn record_backward(
        &self,
        shared: &Shared<'_>,
        recording: &mut Recording,
        wants_input: bool,
    ) -> Result<()> {
        let network = shared.network;
        let count = network.nodes.len();
        let is_trained = |layer: usize| {
            let ranges = network.tensors[layer].iter();
            let mut trained = ranges.filter(|r| !r.is_empty());
            trained.any(|r| !network.layout().is_frozen(r.clone()))
        };
        let mut wanted = vec![false; count];
        for layer in 0..count {
            let of = |v: Value| match v {
                Value::Input => wants_input,
                Value::Of(l) => wanted[l],
            };
            let with = match network.nodes[layer] {
                Node::Concat(v) | Node::Add(v) => of(v),
                _ => false,
            };
            wanted[layer] = with || of(before(layer)) || is_trained(layer);
        }
        let mut written = vec![false; count];
        let mut input_written = false;
        if let Value::Of(layer) = stored(network, Value::Of(count - 1)) {
            written[layer] = true;
        }
        for layer in (0..count).rev() {
            let node = &network.nodes[layer];
            if !wanted[layer] || matches!(node, Node::Flatten) || !written[layer] {
                continue;
            }
            let name = Self::name(network, layer);
            let io = self.io(shared, layer, &name, true);
            let d_y = &self.d_values[layer];
            // The gradients that go to a value: where, and whether one is there already.
            let mut visit = |value: Value| {
                let (part, is_wanted, flag) = match stored(network, value) {
                    Value::Input => (&self.d_input, wants_input, &mut input_written),
                    Value::Of(l) => (&self.d_values[l], wanted[l], &mut written[l]),
                };
                let adds = *flag;
                if is_wanted {
                    *flag = true;
                }
                is_wanted.then_some((part, adds))
            };
            if let Some(record) = record_of(node) {
                match visit(before(layer)) {
                    None => record.backward(recording, &io, d_y, None)?,
                    Some((d_x, false)) => record.backward(recording, &io, d_y, Some(d_x))?,
                    Some((d_x, true)) => {
                        record.backward(recording, &io, d_y, Some(&self.added))?;
                        let sizes = [1, io.x_len, io.x_len, 0, io.x_len, 0, 1];
                        let kernel = (&ELEMENTWISE, "copy_rows");
                        let buffers = [&self.added, d_x];
                        io.run(recording, kernel, &[], &sizes, &buffers, groups(io.x_len))?;
                    }
                }
                continue;
            }
            let (Node::Concat(with) | Node::Add(with)) = *node else {
                continue;
            };
            let total = io.y_len / self.samples;
            let mut at = 0;
            for value in [before(layer), with] {
                let len = self.len(network, value) / self.samples;
                if let Some((d_value, adds)) = visit(value) {
                    let sizes = [self.samples, len, total, at, len, 0, adds.into()];
                    let kernel = (&ELEMENTWISE, "copy_rows");
                    let buffers = [d_y, d_value];
                    let count = groups(self.samples * len);
                    io.run(recording, kernel, &[], &sizes, &buffers, count)?;
                }
                if matches!(node, Node::Concat(_)) {
                    at += len;
                }
            }
        }
        Ok(())
    }
}
