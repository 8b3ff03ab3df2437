//! A list of layers for batches of one extent: its buffers, and the recordings over them.

use std::collections::HashMap;
use std::ops::Range;

use super::device::{Gpu, storage_usage};
use super::extent::Extent;
use super::kernels::{CAST, OPTIMIZER};
use super::layer::{Io, Lengths, Record, groups};
use super::precision::{real_bytes, real_words};
use super::recording::{Part, Recording};
use super::topology::{Topic, Topology};
use crate::loss_image::ImageLoss;
use crate::network::Sparsity;
use crate::plan::{self, Derive, Input, Layers, Onto, Place, Request, Value, before, stored};
use crate::rng::Key;
use crate::{Error, Result};

/// What a plan shares with all others of its network.
pub(crate) struct Shared<'a> {
    pub gpu: &'a Gpu,
    pub layers: Layers<'a>,
    /// What the layers look at in a graph.
    pub topics: &'a [Topic],
    /// The penalty on the parameters.
    pub sparsity: Option<&'a Sparsity>,
    /// The weights as kernels read them: 16-bit in mixed precision, else the same as `master`.
    pub params: &'a Part,
    pub master: &'a Part,
    pub grads: &'a Part,
    /// The ring of loss scales.
    pub scales: &'a Part,
    /// Activations have 16 bits.
    pub half: bool,
    /// Every layer's numbers that are neither parameters nor of the batch.
    pub fixed: &'a [Part],
    /// What is added to the loss where outputs are images.
    pub image_loss: Option<&'a ImageLoss>,
}

/// The key of a recording of a training step: the loss, whether it is weighted, whose optimizer or how
/// many rows, and what is done.
pub(crate) type StepKey = (u8, bool, u64, Form);

/// What a recording of a training step does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Form {
    /// Loss and all gradients.
    Gradients,
    /// A part of the same: what its group of layers completes.
    Group(usize),
    /// A native step on one batch.
    Step,
    /// The same, every tensor updated when its gradient is complete.
    Fused,
    /// Of the batches that a native step accumulates: the first, one between, and the last with the update.
    First,
    Between,
    Last,
    /// The update alone, with a gradient from elsewhere.
    Update,
    /// Running statistics alone.
    Absorb,
}

pub(crate) struct GpuPlan {
    /// What is computed, with the input's gradient and without.
    walks: [plan::Plan; 2],
    pub extent: Extent,
    /// The graphs, in a graph network.
    pub graph: Option<Topology>,
    /// Which cells of an automaton fire.
    pub fire: Option<Fire>,
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

/// The mask of the cells that fire, a word for a cell and a step.
pub(crate) struct Fire {
    part: Part,
    sent: Vec<bool>,
}

impl Fire {
    /// Sends a mask that is not the one that is there.
    pub fn send(&mut self, gpu: &Gpu, fire: &[bool]) {
        if self.sent != fire {
            let words: Vec<u32> = fire.iter().map(|&fires| fires.into()).collect();
            gpu.write(&self.part.buffer, 0, bytemuck::cast_slice(&words));
            self.sent.clear();
            self.sent.extend_from_slice(fire);
        }
    }
}

/// Bytes of the step's constants.
pub(crate) const STEP_BYTES: u64 = 80 + 8 * super::status::UNKNOWN;
/// Words of a random key.
const KEY_WORDS: usize = 8;

/// A layer's side of the device; refused by name where it has none.
pub(crate) fn record_of(place: &Place, index: usize) -> Result<&dyn Record> {
    place.layer.record().ok_or_else(|| Error::Gpu {
        what: format!("layer {index} ({}) has no kernels for a GPU", place.kind),
        advice: "train it with --device cpu".into(),
    })
}

/// Every layer's fixed numbers on the device.
pub(crate) fn fixed_parts(gpu: &Gpu, layers: Layers<'_>) -> Result<Vec<Part>> {
    let part = |place: &Place| {
        let mut numbers = place.layer.record().map_or_else(Vec::new, Record::fixed);
        numbers.resize(numbers.len().max(4), 0.0);
        let bytes = bytemuck::cast_slice(&numbers);
        let buffer = gpu.constant("fixed", bytes, storage_usage())?;
        Ok(Part::whole(&buffer))
    };
    layers.places.iter().map(part).collect()
}

/// The words of every drawing layer's key in a step, in the order of the layers.
pub(crate) fn key_words(layers: Layers<'_>, key: Key) -> Vec<u32> {
    let drawing = layers.places.iter().filter_map(|p| p.layer.draws());
    drawing
        .flat_map(|(purpose, index)| key.purpose(purpose).index(index).words())
        .collect()
}

/// The numbers of a value in a batch; those of sparse rows stay so as long as layers keep their
/// places.
fn len_of(layers: Layers<'_>, extent: &Extent, value: Value) -> usize {
    match value {
        Value::Input => extent.values,
        Value::Of(_) if is_sparse(layers, extent, value) => extent.values,
        Value::Of(layer) => {
            let place = &layers.places[layer];
            extent.rows(place.rows) * place.shape.iter().product::<usize>()
        }
    }
}

/// Whether a value is sparse: nothing but layers that keep the places of non-zeros before it.
fn is_sparse(layers: Layers<'_>, extent: &Extent, value: Value) -> bool {
    extent.sparse
        && match value {
            Value::Input => true,
            Value::Of(layer) => {
                let mut up_to = layers.places[..=layer].iter();
                up_to.all(|place| place.layer.keeps_sparse())
            }
        }
}

/// What a network needs at one batch size, before anything is made.
pub(crate) struct Measure {
    half: bool,
    extent: Extent,
    input_len: usize,
    output_len: usize,
    /// Offset and bytes of the parts that a step sends, and their sum.
    places: [(u64, u64); 5],
    upload: u64,
    /// Values of every layer's output; a flattened one has the buffer of the one before it.
    own: Vec<usize>,
    /// Words that every layer keeps for backward.
    saved: Vec<Vec<usize>>,
    /// The most values in one layer.
    widest: usize,
}

impl Measure {
    pub fn new(gpu: &Gpu, layers: Layers<'_>, extent: &Extent, half: bool) -> Self {
        let places = layers.places;
        let len = |value| len_of(layers, extent, value);
        let input_len = len(Value::Input);
        let output_len = len(Value::Of(places.len() - 1));
        let lens: Vec<usize> = (0..places.len()).map(|l| len(Value::Of(l))).collect();
        let widest = lens.iter().copied().chain([input_len]).max().unwrap_or(0);
        let align = u64::from(gpu.limits.min_storage_buffer_offset_alignment)
            .max(u64::from(gpu.limits.min_uniform_buffer_offset_alignment));
        let keys = keys_before(layers, places.len());
        let key_bytes = 4 * (KEY_WORDS * keys.max(1)) as u64;
        let mut upload = 0;
        let mut place = |bytes: u64| {
            let offset = upload;
            upload = (offset + bytes).next_multiple_of(align);
            (offset, bytes)
        };
        // Graphs stay on the device, and their features with them.
        let sent = match extent.is_of_graphs() {
            true => 0,
            false => real_words(half, input_len),
        };
        let parts = [
            place(STEP_BYTES),
            place(key_bytes),
            place(4 * sent as u64),
            place(4 * output_len as u64),
            place(4 * output_len as u64),
        ];
        let mut own = Vec::new();
        let mut saved = Vec::new();
        for (layer, place) in places.iter().enumerate() {
            let y_len = lens[layer];
            own.push(if place.layer.is_view() { 4 } else { y_len });
            let lengths = Lengths {
                samples: extent.rows(place.reads),
                extent,
                sparse: is_sparse(layers, extent, before(layer)),
                x_len: len(before(layer)),
                y_len,
                half,
            };
            let record = place.layer.record();
            saved.push(record.map_or_else(Vec::new, |r| r.saved(&lengths)));
        }
        Measure {
            half,
            extent: *extent,
            input_len,
            output_len,
            places: parts,
            upload,
            own,
            saved,
            widest,
        }
    }

    /// Every buffer that grows with the batch: what it is and its bytes.
    pub fn buffers(&self) -> Vec<(String, u64)> {
        let real = |len: usize| real_bytes(self.half) * len as u64;
        let mut all = vec![
            ("the batch".into(), self.upload),
            ("the input's gradient".into(), real(self.input_len)),
            ("gradients to add".into(), real(self.widest)),
        ];
        for (layer, &len) in self.own.iter().enumerate() {
            all.push((output_name(layer), real(len)));
            all.push((output_name(layer), real(len)));
            let words = self.saved[layer].iter();
            all.extend(words.map(|&words| (saved_name(layer), 4 * words as u64)));
        }
        all
    }

    /// Kernels index with 32 bits, and KAN features are the widest of all.
    fn check(&self) -> Result<()> {
        if self.widest <= WIDEST {
            return Ok(());
        }
        Err(Error::Gpu {
            what: format!(
                "{} values in one layer's output, kernels count up to {WIDEST}",
                self.widest
            ),
            advice: match self.extent.is_of_graphs() {
                true => "fewer or smaller graphs in a batch, or --device cpu".into(),
                false => format!(
                    "a batch of {} would fit",
                    self.extent.samples * WIDEST / self.widest
                ),
            },
        })
    }
}

/// The most values of one layer in a batch.
pub(crate) const WIDEST: usize = 1 << 28;

fn output_name(layer: usize) -> String {
    format!("layer {layer}'s output")
}

fn saved_name(layer: usize) -> String {
    format!("what layer {layer} keeps for backward")
}

impl GpuPlan {
    pub fn new(shared: &Shared<'_>, extent: &Extent, input: &Input<'_, f32>) -> Result<Self> {
        let (gpu, layers, half) = (shared.gpu, shared.layers, shared.half);
        let measure = Measure::new(gpu, layers, extent, half);
        measure.check()?;
        let reals = |name: &str, len: usize| -> Result<Part> {
            let bytes = real_bytes(half) * len as u64;
            Ok(Part::whole(&gpu.buffer(name, bytes, storage_usage())?))
        };
        let usage = storage_usage() | wgpu::BufferUsages::UNIFORM;
        let upload = gpu.buffer("the batch", measure.upload, usage)?;
        let [step, keys, mut x, target, weights] = measure.places.map(|(offset, bytes)| Part {
            buffer: upload.clone(),
            offset,
            bytes,
        });
        let graph = match input.batch {
            Some(batch) => Some(Topology::new(gpu, shared.topics, extent, batch, half)?),
            None => None,
        };
        if graph.is_some() {
            x = reals("the nodes' features", measure.input_len)?;
        }
        let mut values = Vec::new();
        let mut d_values = Vec::new();
        let mut saved = Vec::new();
        for (layer, &own) in measure.own.iter().enumerate() {
            values.push(reals(&output_name(layer), own)?);
            d_values.push(reals(&output_name(layer), own)?);
            let name = saved_name(layer);
            let parts: Result<Vec<_>> = measure.saved[layer]
                .iter()
                .map(|&words| Ok(Part::whole(&gpu.floats(&name, words)?)))
                .collect();
            saved.push(parts?);
        }
        let losses = gpu.floats("partial losses", measure.output_len.div_ceil(64))?;
        let mut plan = GpuPlan {
            walks: [false, true].map(|input| {
                let request = Request {
                    params: true,
                    input,
                    fuse: false,
                };
                plan::Plan::new(layers.places, layers.layout, request)
            }),
            extent: *extent,
            graph,
            fire: match input.grids {
                Some(grids) if grids.fire.is_some() => Some(Fire {
                    part: Part::whole(&gpu.floats("the mask", grids.fire.map_or(0, <[_]>::len))?),
                    sent: Vec::new(),
                }),
                _ => None,
            },
            upload,
            step,
            keys,
            x,
            target,
            weights,
            values,
            d_values,
            d_input: reals("the input's gradient", measure.input_len)?,
            added: reals("gradients to add", measure.widest)?,
            saved,
            forward: Recording::new(half),
            forward_training: Recording::new(half),
            backward: Recording::new(half),
            steps: HashMap::new(),
            losses: Part::whole(&losses),
            spare: [
                Part::whole(&gpu.floats("spare", 4)?),
                Part::whole(&gpu.floats("spare", 4)?),
            ],
        };
        let mut forward = Recording::new(half);
        plan.record_forward(shared, &mut forward, false)?;
        let mut forward_training = Recording::new(half);
        plan.record_forward(shared, &mut forward_training, true)?;
        let mut backward = Recording::new(half);
        plan.record_backward(shared, &mut backward, true)?;
        plan.record_unscale(shared, &mut backward)?;
        plan.forward = forward;
        plan.forward_training = forward_training;
        plan.backward = backward;
        Ok(plan)
    }

    /// Takes the loss scale of mixed precision off the weights' gradient.
    pub fn record_unscale(&self, shared: &Shared<'_>, recording: &mut Recording) -> Result<()> {
        let len = shared.layers.layout.len();
        if !shared.half || len == 0 {
            return Ok(());
        }
        recording.dispatch(
            shared.gpu,
            "optimizer_unscale",
            (&OPTIMIZER, "optimizer_unscale"),
            &[],
            &[("len", len)],
            &[shared.grads, shared.scales, &self.step],
            groups(len),
        )
    }

    /// The numbers of a value.
    fn value(&self, places: &[Place], value: Value) -> &Part {
        match stored(places, value) {
            Value::Input => &self.x,
            Value::Of(layer) => &self.values[layer],
        }
    }

    /// The network's output.
    pub fn output(&self) -> &Part {
        &self.values[self.walks[0].output]
    }

    /// The gradient of the network's output.
    pub fn d_output(&self) -> &Part {
        &self.d_values[self.walks[0].output]
    }

    /// The gradient of the network's input.
    pub fn d_input(&self) -> &Part {
        &self.d_input
    }

    /// The numbers of the output, with what rounded the batch up.
    pub fn output_len(&self, layers: Layers<'_>) -> usize {
        len_of(layers, &self.extent, Value::Of(layers.places.len() - 1))
    }

    fn io<'a>(
        &'a self,
        shared: &'a Shared<'_>,
        layer: usize,
        name: &'a str,
        training: bool,
    ) -> Io<'a> {
        let layers = shared.layers;
        let layout = layers.layout;
        let place = &layers.places[layer];
        let x = self.value(layers.places, before(layer));
        Io {
            gpu: shared.gpu,
            name,
            samples: self.extent.rows(place.reads),
            extent: &self.extent,
            graph: self.graph.as_ref(),
            fire: self.fire.as_ref().map(|fire| &fire.part),
            layout,
            sparse: is_sparse(layers, &self.extent, before(layer)),
            x_len: len_of(layers, &self.extent, before(layer)),
            y_len: len_of(layers, &self.extent, Value::Of(layer)),
            params: shared.params,
            master: shared.master,
            grads: shared.grads,
            ranges: &place.tensors,
            trained: place
                .tensors
                .clone()
                .map(|range| !range.is_empty() && !layout.is_frozen(range)),
            wants_edges: false,
            x,
            other: place.with.map_or(x, |with| self.value(layers.places, with)),
            d_other: None,
            adds: [false; 2],
            y: &self.values[layer],
            saved: &self.saved[layer],
            fixed: &shared.fixed[layer],
            keys: &self.keys,
            key_at: KEY_WORDS * keys_before(layers, layer),
            training,
        }
    }

    fn name(layers: Layers<'_>, layer: usize) -> String {
        format!("{layer}.{}", layers.places[layer].kind)
    }

    pub fn record_forward(
        &self,
        shared: &Shared<'_>,
        recording: &mut Recording,
        training: bool,
    ) -> Result<()> {
        let layers = shared.layers;
        let len = layers.layout.len();
        if shared.half && len > 0 {
            recording.dispatch(
                shared.gpu,
                "cast_weights",
                (&CAST, "cast_weights"),
                &[],
                &[("len", len)],
                &[shared.master, shared.params],
                groups(len),
            )?;
        }
        for step in &self.walks[0].forward {
            let name = Self::name(layers, step.layer);
            let io = self.io(shared, step.layer, &name, training);
            record_of(&layers.places[step.layer], step.layer)?.forward(recording, &io)?;
        }
        Ok(())
    }

    /// What the network's penalty on its parameters adds to the gradient and to the loss.
    pub fn record_penalty(&self, shared: &Shared<'_>, recording: &mut Recording) -> Result<()> {
        let layers = 0..shared.layers.places.len();
        self.record_penalty_of(shared, recording, layers)
    }

    /// The same of some layers, the last first: in the order of backward.
    pub fn record_penalty_of(
        &self,
        shared: &Shared<'_>,
        recording: &mut Recording,
        layers: Range<usize>,
    ) -> Result<()> {
        for layer in layers.rev() {
            if let Some(record) = shared.layers.places[layer].layer.record() {
                let name = Self::name(shared.layers, layer);
                let io = self.io(shared, layer, &name, true);
                record.penalty(recording, &io, shared.sparsity, &self.losses)?;
            }
        }
        Ok(())
    }

    /// Running statistics follow the step.
    pub fn record_absorb(&self, shared: &Shared<'_>, recording: &mut Recording) -> Result<()> {
        for (layer, place) in shared.layers.places.iter().enumerate() {
            if let Some(record) = place.layer.record() {
                let name = Self::name(shared.layers, layer);
                record.absorb(recording, &self.io(shared, layer, &name, true))?;
            }
        }
        Ok(())
    }

    /// The gradient's buffer of a value.
    fn d_value(&self, onto: Onto) -> &Part {
        match onto.value {
            Value::Input => &self.d_input,
            Value::Of(layer) => &self.d_values[layer],
        }
    }

    /// Backward, as planned.
    pub fn record_backward(
        &self,
        shared: &Shared<'_>,
        recording: &mut Recording,
        wants_input: bool,
    ) -> Result<()> {
        if wants_input {
            self.record_zero_edges(shared, recording)?;
        }
        for step in &self.walks[usize::from(wants_input)].backward {
            self.record_step(shared, recording, step, wants_input)?;
        }
        Ok(())
    }

    /// The steps of backward without the input's gradient: every step's layer, and what is complete
    /// after it.
    pub fn backward_steps(&self) -> impl Iterator<Item = (usize, &[Range<usize>])> {
        let steps = self.walks[0].backward.iter();
        steps.map(|step| (step.layer, &step.complete[..]))
    }

    /// Some of them.
    pub fn record_backward_steps(
        &self,
        shared: &Shared<'_>,
        recording: &mut Recording,
        steps: Range<usize>,
    ) -> Result<()> {
        for step in &self.walks[0].backward[steps] {
            self.record_step(shared, recording, step, false)?;
        }
        Ok(())
    }

    /// The gradients of edges' weights and features, which layers add to, begin at 0.
    fn record_zero_edges(&self, shared: &Shared<'_>, recording: &mut Recording) -> Result<()> {
        let Some(graph) = &self.graph else {
            return Ok(());
        };
        let io = self.io(shared, 0, "edges", true);
        for part in [&graph.d_edge_weights, &graph.d_edge_features] {
            io.zero(
                recording,
                (part.bytes / real_bytes(shared.half)) as usize,
                part,
            )?;
        }
        Ok(())
    }

    fn record_step(
        &self,
        shared: &Shared<'_>,
        recording: &mut Recording,
        step: &Derive,
        wants_input: bool,
    ) -> Result<()> {
        let place = &shared.layers.places[step.layer];
        let record = record_of(place, step.layer)?;
        let name = Self::name(shared.layers, step.layer);
        let mut io = self.io(shared, step.layer, &name, true);
        io.wants_edges = wants_input;
        io.d_other = step.d_other.map(|onto| self.d_value(onto));
        let adds = [step.d_x, step.d_other].map(|d| d.is_some_and(|d| d.adds));
        let d_y = &self.d_values[step.y];
        let d_x = step.d_x.map(|onto| self.d_value(onto));
        if !adds[0] || place.layer.adds() {
            io.adds = adds;
            return record.backward(recording, &io, d_y, d_x);
        }
        // A layer that can't add to a gradient writes beside it.
        record.backward(recording, &io, d_y, Some(&self.added))?;
        let row = [io.x_len, io.x_len, 0];
        let to = d_x.expect("added to");
        io.copy_rows(recording, 1, (&self.added, row), (to, row), true)
    }
}

/// Random keys of the layers before one.
fn keys_before(layers: Layers<'_>, layer: usize) -> usize {
    let earlier = layers.places[..layer].iter();
    earlier.filter(|p| p.layer.draws().is_some()).count()
}
