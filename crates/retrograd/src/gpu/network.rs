//! A network on a device.

use crate::math;
use std::collections::HashMap;
use std::sync::Arc;

use half::f16;

use super::device::{Gpu, storage_usage};
use super::extent::Extent;
use super::kernels::COMPRESS;
use super::landing::Landings;
use super::layer::groups;
use super::native::norm_room;
use super::optimizer::StepConstants;
use super::plan::{GpuPlan, Shared, fixed_parts, key_words};
use super::precision::{LossScale, Precision, Scale, from_device, real_words, to_device};
use super::recorded::Recorded;
use super::recording::{Part, Recording, download, finish_with_download};
use super::staging::Ring;
use super::status::{SLOTS, Status};
use super::topology::{Topic, topics};
use crate::loss_image::ImageLoss;
use crate::network::Network;
use crate::plan::Input;
use crate::{Buffer, Error, Pass, Result};

/// Plans kept at the same time; the least recently used goes first.
const PLANS: usize = 8;

/// A [`Network`], or a graph network, with its parameters and gradients on a device.
///
/// Everything that depends on the batch size is recorded at its first use and replayed. Gradients
/// stay on the device until they are asked for.
pub struct GpuNetwork<M: Recorded = Network> {
    pub(crate) gpu: Arc<Gpu>,
    pub(crate) network: M,
    /// What its layers look at in a graph.
    topics: Vec<Topic>,
    pub(crate) params: Part,
    /// Mixed precision: the weights that kernels read.
    halves: Option<Part>,
    pub(crate) grads: Part,
    fixed: Vec<Part>,
    plans: HashMap<Extent, GpuPlan>,
    recent: Vec<Extent>,
    /// The batch of the last forward for training, whose tape backward may use.
    taped: Option<Taken>,
    /// The CPU's copy of the parameters: the last that were synchronised.
    pub(crate) cpu_params: Vec<f32>,
    /// Native steps were made since then.
    pub(crate) device_ahead: bool,
    pub(crate) status: Status,
    /// Batches on their way to the device.
    pub(crate) ring: Ring,
    /// Gradients on their way back.
    pub(super) landings: Landings,
    /// What the input's gradient was multiplied by.
    pub(crate) input_scale: f32,
    /// Activations on their way, where they have 16 bits.
    pub(crate) scratch: Vec<f16>,
    /// Partial sums of squares of the gradient.
    pub(crate) norms: Part,
    /// Gradients and losses of batches that are accumulated natively.
    pub(crate) sums: Option<Part>,
    /// What f16 took from gradients sent so far, the packed ones, and the kernel over them.
    compression: Option<(Part, Part, Recording)>,
    /// Training batches seen by running statistics since they were read back.
    pub(crate) absorbed: u64,
    /// What is added to the loss where outputs are images.
    pub(crate) image_loss: Option<ImageLoss>,
}

/// A batch that was taken.
#[derive(Clone, Copy)]
pub(crate) struct Taken {
    /// The plan's.
    pub extent: Extent,
    /// Numbers of its output, and of what has a gradient in it, without what rounds it up.
    pub outputs: usize,
    pub differentiable: [usize; 3],
}

impl<M: Recorded> GpuNetwork<M> {
    /// Puts a network on a device. Freezing is taken over from the network's layout.
    pub fn new(gpu: &Arc<Gpu>, network: &M, params: &[f32]) -> Result<Self> {
        Self::build(gpu, network, params, None)
    }

    /// The same in mixed precision: 16-bit activations, their gradients and a copy of the weights,
    /// 32-bit sums, weights and optimizer, and a scale on the loss. An error where the adapter has
    /// no 16-bit floats.
    pub fn mixed(gpu: &Arc<Gpu>, network: &M, params: &[f32], scale: LossScale) -> Result<Self> {
        if !gpu.f16 {
            return Err(Error::Gpu {
                what: format!("{} has no 16-bit floats", gpu.description().name),
                advice: "use --precision f32, or another adapter of `retrograd devices`".into(),
            });
        }
        scale.check()?;
        Self::build(gpu, network, params, Some(scale))
    }

    fn build(
        gpu: &Arc<Gpu>,
        network: &M,
        params: &[f32],
        scale: Option<LossScale>,
    ) -> Result<Self> {
        gpu.check()?;
        let mut own = network.built_anew()?;
        for buffer in network.buffers() {
            own.set_buffer(&buffer)?;
        }
        let frozen = network.layout().tensors().iter().filter(|t| t.frozen);
        for tensor in frozen {
            own.layout_mut().freeze(&tensor.name)?;
        }
        let len = own.layout().len();
        check_len("parameters", params.len(), len)?;
        let mut usage = storage_usage();
        if gpu.mapped {
            usage |= wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::MAP_WRITE;
        }
        let part = |label: &str| -> Result<Part> {
            let bytes = 4 * len as u64;
            Ok(Part::whole(&gpu.model_buffer(label, bytes, usage)?))
        };
        let (device_params, grads) = (part("the parameters")?, part("the gradients")?);
        if len > 0 {
            gpu.write(&device_params.buffer, 0, bytemuck::cast_slice(params));
        }
        let fixed = fixed_parts(gpu, own.layers_of())?;
        let halves = match scale {
            Some(_) => {
                let words = len.div_ceil(2);
                Some(Part::whole(&gpu.model_floats("16-bit weights", words)?))
            }
            None => None,
        };
        Ok(GpuNetwork {
            halves,
            ring: Ring::default(),
            landings: Landings::default(),
            input_scale: 1.0,
            scratch: Vec::new(),
            norms: Part::whole(&gpu.model_floats("norms", norm_room(own.layout()))?),
            sums: None,
            status: Status::new(gpu, scale)?,
            gpu: Arc::clone(gpu),
            topics: topics(own.layers_of().places),
            network: own,
            params: device_params,
            grads,
            fixed,
            plans: HashMap::new(),
            recent: Vec::new(),
            taped: None,
            cpu_params: params.to_vec(),
            device_ahead: false,
            absorbed: 0,
            image_loss: None,
            compression: None,
        })
    }

    /// The network.
    pub fn network(&self) -> &M {
        &self.network
    }

    /// The device.
    pub fn gpu(&self) -> &Arc<Gpu> {
        &self.gpu
    }

    /// 32 bits, or mixed.
    pub fn precision(&self) -> Precision {
        match self.halves {
            Some(_) => Precision::Mixed,
            None => Precision::F32,
        }
    }

    pub(crate) fn is_half(&self) -> bool {
        self.halves.is_some()
    }

    /// Steps are recorded anew.
    pub(super) fn forget_recordings(&mut self) {
        for plan in self.plans.values_mut() {
            plan.steps.clear();
        }
    }

    /// Numbers of a row of the output: of a sample, a node, a graph or a pair.
    pub(super) fn output_width(&self) -> usize {
        let last = self.network.layers_of().places.last();
        last.map_or(0, |place| place.shape.iter().product())
    }

    /// Checks a batch, and makes a plan for its size where there is none.
    pub(crate) fn take(&mut self, batch: &M::Given) -> Result<Taken> {
        self.gpu.check()?;
        self.network.check_given(batch)?;
        let input = self.network.input_of(batch);
        let extent = Extent::of(&input, &self.topics);
        let last = self.network.layers_of().places.last();
        let rows = last.map_or(0, |place| input.rows(place.rows));
        let taken = Taken {
            extent,
            outputs: rows * self.output_width(),
            differentiable: input.differentiable(),
        };
        let planned = self.planned(&taken, Some(&input))?;
        let (gpu, half) = (planned.shared.gpu, planned.shared.half);
        let plan = planned.plan;
        if let (Some(graph), Some(batch)) = (&mut plan.graph, input.batch) {
            graph.send(gpu, batch, &plan.x, half);
        }
        if let (Some(own), Some(fire)) = (&mut plan.fire, input.grids.and_then(|g| g.fire)) {
            own.send(gpu, fire);
        }
        Ok(taken)
    }

    /// The plan of a batch that was taken, and what it shares with others.
    pub(crate) fn plan(&mut self, taken: &Taken) -> Result<Planned<'_>> {
        self.planned(taken, None)
    }

    /// The same; made where there is none, for a batch.
    fn planned(&mut self, taken: &Taken, input: Option<&Input<'_, f32>>) -> Result<Planned<'_>> {
        let shared = Shared {
            gpu: &self.gpu,
            layers: self.network.layers_of(),
            topics: &self.topics,
            sparsity: self.network.sparsity(),
            params: self.halves.as_ref().unwrap_or(&self.params),
            master: &self.params,
            grads: &self.grads,
            scales: &self.status.scales,
            half: self.halves.is_some(),
            fixed: &self.fixed,
            image_loss: self.image_loss.as_ref(),
        };
        let extent = taken.extent;
        self.recent.retain(|s| *s != extent);
        self.recent.push(extent);
        if let Some(input) = input
            && !self.plans.contains_key(&extent)
        {
            if self.plans.len() >= PLANS {
                let oldest = self.recent.remove(0);
                self.plans.remove(&oldest);
            }
            let plan = GpuPlan::new(&shared, &extent, input)?;
            self.gpu.check()?;
            self.plans.insert(extent, plan);
        }
        let plan = self.plans.get_mut(&extent);
        Ok(Planned {
            plan: plan.ok_or_else(|| no_tape("a plan"))?,
            shared,
            status: &self.status,
            ring: &mut self.ring,
            scratch: &mut self.scratch,
        })
    }

    /// The output of a batch, in inference: dropout drops nothing, batch norm takes its running
    /// statistics.
    pub fn forward_batch(&mut self, x: &M::Given) -> Result<Vec<f32>> {
        self.run_forward(x, None)
    }

    /// The output of a batch in training; leaves on the device what backward needs.
    pub fn forward_batch_training(&mut self, x: &M::Given, pass: &Pass) -> Result<Vec<f32>> {
        self.run_forward(x, Some(pass).filter(|pass| pass.training))
    }

    fn run_forward(&mut self, batch: &M::Given, pass: Option<&Pass>) -> Result<Vec<f32>> {
        self.taped = None;
        let taken = self.take(batch)?;
        let x = self.network.input_of(batch);
        let is_graph = x.batch.is_some();
        // (The values are borrowed of the batch, not of the network.)
        let values = x.values;
        let Planned {
            shared,
            plan,
            scratch,
            ..
        } = self.plan(&taken)?;
        let (gpu, half) = (shared.gpu, shared.half);
        if !is_graph {
            gpu.write(
                &plan.upload,
                plan.x.offset,
                to_device(half, values, scratch),
            );
        }
        let recording = match pass {
            Some(pass) => {
                let words = key_words(shared.layers, pass.key);
                if !words.is_empty() {
                    gpu.write(&plan.upload, plan.keys.offset, bytemuck::cast_slice(&words));
                }
                &plan.forward_training
            }
            None => &plan.forward,
        };
        let mut encoder = gpu.device.create_command_encoder(&Default::default());
        recording.replay(gpu, &mut encoder, None);
        let output = plan.output().clone();
        let len = taken.outputs;
        let words = finish_with_download(gpu, encoder, &output, real_words(half, len))?;
        let y = from_device(half, words, len);
        if pass.is_some() {
            self.taped = Some(taken);
        }
        Ok(y)
    }

    /// The gradients, given that of the output of the last [`GpuNetwork::forward_batch_training`]:
    /// fresh ones, which stay on the device.
    pub fn backward_batch(&mut self, d_output: &[f32]) -> Result<()> {
        let taken = self.taped()?;
        check_len("the output's gradient", d_output.len(), taken.outputs)?;
        let is_half = self.is_half();
        let scale = if is_half { scale_for(d_output) } else { 1.0 };
        let Planned {
            shared,
            plan,
            scratch,
            ..
        } = self.plan(&taken)?;
        let gpu = shared.gpu;
        let d_y = plan.d_output().clone();
        // What rounds a batch up has no gradient.
        let mut padded = d_output.to_vec();
        padded.resize(plan.output_len(shared.layers), 0.0);
        if is_half {
            padded.iter_mut().for_each(|d| *d *= scale);
            let constants = StepConstants::loss(0.0, scale);
            gpu.write(&plan.upload, 0, constants.bytes());
        }
        gpu.write(&d_y.buffer, 0, to_device(is_half, &padded, scratch));
        let mut encoder = gpu.device.create_command_encoder(&Default::default());
        plan.backward.replay(gpu, &mut encoder, None);
        gpu.submit(encoder);
        self.input_scale = scale;
        self.gpu.check()
    }

    /// The parameters' gradient of the last backward, in the stored order.
    pub fn gradients(&self) -> Result<Vec<f32>> {
        self.download(&self.grads, self.network.layout().len())
    }

    /// The same, sent as 16-bit floats: half the bytes. What rounding takes away is kept on the
    /// device and added to the next gradient that is sent so.
    pub fn gradients_f16(&mut self) -> Result<Vec<f32>> {
        let len = self.network.layout().len();
        let gpu = Arc::clone(&self.gpu);
        let Some((_, packed, recording)) = self.compression()? else {
            return Ok(Vec::new());
        };
        let mut encoder = gpu.device.create_command_encoder(&Default::default());
        recording.replay(&gpu, &mut encoder, None);
        let packed = finish_with_download(&gpu, encoder, packed, len.div_ceil(2))?;
        Ok(from_device(true, packed, len))
    }

    /// What the device itself will take for its next step, in mixed precision: the loss scale, the good
    /// steps with it, and the steps that were left out.
    pub(crate) fn scale_on_device(&self, steps: u64) -> Result<[f32; 3]> {
        let all = download(&self.gpu, &self.status.scales)?;
        let at = 4 * (steps % SLOTS) as usize;
        Ok([all[at], all[at + 1], all[at + 2]])
    }

    /// What compression needs, made at its first use; `None` where there is nothing to compress.
    fn compression(&mut self) -> Result<Option<&(Part, Part, Recording)>> {
        let len = self.network.layout().len();
        self.gpu.check()?;
        if self.compression.is_none() && len > 0 {
            let gpu = &self.gpu;
            let words = len.div_ceil(2);
            let residual = Part::whole(&gpu.model_floats("what f16 took", len)?);
            let packed = Part::whole(&gpu.model_floats("packed gradients", words)?);
            let mut recording = Recording::default();
            recording.dispatch(
                gpu,
                "compress",
                (&COMPRESS, "compress"),
                &[],
                &[("len", len)],
                &[&self.grads, &residual, &packed],
                groups(words),
            )?;
            self.compression = Some((residual, packed, recording));
        }
        Ok(self.compression.as_ref())
    }

    /// What f16 took from the gradients that [`GpuNetwork::gradients_f16`] sent so far, and the next
    /// one gets; `None` where none was sent.
    pub fn compression_residual(&self) -> Result<Option<Vec<f32>>> {
        let len = self.network.layout().len();
        let Some((residual, ..)) = &self.compression else {
            return Ok(None);
        };
        self.download(residual, len).map(Some)
    }

    /// Takes a residual up again, where a run goes on.
    pub fn set_compression_residual(&mut self, residual: &[f32]) -> Result<()> {
        check_len("the residual", residual.len(), self.network.layout().len())?;
        if let Some((part, ..)) = self.compression()? {
            let buffer = part.buffer.clone();
            self.gpu.write(&buffer, 0, bytemuck::cast_slice(residual));
        }
        Ok(())
    }

    /// The loss scale of mixed precision as a run can go on with it; `None` in 32 bits. After
    /// native steps it is that of those that have arrived.
    pub fn loss_scale_state(&self) -> Option<LossScale> {
        self.status.scale.map(|scale| LossScale {
            initial: scale.value,
            growth_interval: scale.growth_interval,
            good_steps: scale.good,
        })
    }

    /// Takes a loss scale up again, where a run goes on. Nothing in 32 bits.
    pub fn set_loss_scale(&mut self, scale: LossScale) -> Result<()> {
        scale.check()?;
        if self.is_half() {
            self.status.flush(&self.gpu)?;
            self.status.scale = Some(Scale::new(scale));
            self.status.scale_changed = true;
        }
        Ok(())
    }

    /// The input's gradient of the last [`GpuNetwork::backward_batch`]; that of graphs goes on with
    /// the edges' weights and features.
    pub fn input_gradient(&mut self) -> Result<Vec<f32>> {
        let taken = self.taped()?;
        let half = self.is_half();
        let plan = self.plan(&taken)?.plan;
        let [values, weights, features] = taken.differentiable;
        let input = plan.d_input().clone();
        let edges = plan
            .graph
            .as_ref()
            .map(|graph| [graph.d_edge_weights.clone(), graph.d_edge_features.clone()]);
        let reals = |part: &Part, len: usize| -> Result<Vec<f32>> {
            let words = self.download(part, real_words(half, len))?;
            Ok(from_device(half, words, len))
        };
        let mut gradient = reals(&input, values)?;
        if let Some([d_weights, d_features]) = edges {
            gradient.extend(self.download(&d_weights, weights)?);
            gradient.extend(reals(&d_features, features)?);
        }
        if self.input_scale != 1.0 {
            for d in &mut gradient {
                *d /= self.input_scale;
            }
        }
        Ok(gradient)
    }

    /// The batch of the last forward for training.
    pub(crate) fn taped(&self) -> Result<Taken> {
        self.taped.ok_or_else(|| no_tape("backward"))
    }

    pub(crate) fn set_taped(&mut self, taken: Taken) {
        self.taped = Some(taken);
    }

    pub(crate) fn download(&self, part: &Part, len: usize) -> Result<Vec<f32>> {
        if len == 0 {
            return Ok(Vec::new());
        }
        let part = Part {
            bytes: 4 * len as u64,
            ..part.clone()
        };
        download(&self.gpu, &part)
    }

    /// Brings the parameters back and keeps them as the CPU's copy: only those that native steps
    /// may have changed, and nothing where there was none since the last time.
    pub fn sync_weights_to_cpu(&mut self) -> Result<&[f32]> {
        self.gpu.check()?;
        if self.device_ahead {
            let mut trained = self.network.layout().trainable();
            let first = trained.next().unwrap_or(0..0);
            let span = first.start..trained.last().unwrap_or(first).end;
            let part = Part {
                offset: 4 * span.start as u64,
                ..self.params.clone()
            };
            let params = self.download(&part, span.len())?;
            self.cpu_params[span].copy_from_slice(&params);
            self.device_ahead = false;
        }
        Ok(&self.cpu_params)
    }

    /// The parameters as they were when last synchronised: there even when the device is lost.
    pub fn cpu_weights(&self) -> &[f32] {
        &self.cpu_params
    }

    /// Sends parameters to the device and keeps them as the CPU's copy: only the tensors that
    /// differ from what is there.
    pub fn sync_weights_from_cpu(&mut self, params: &[f32]) -> Result<()> {
        self.gpu.check()?;
        check_len("parameters", params.len(), self.cpu_params.len())?;
        for tensor in self.network.layout().tensors() {
            let range = tensor.range();
            let (now, known) = (&params[range.clone()], &self.cpu_params[range]);
            let same = now
                .iter()
                .zip(known)
                .all(|(a, b)| a.to_bits() == b.to_bits());
            if same && (tensor.frozen || !self.device_ahead) {
                continue;
            }
            let at = 4 * tensor.offset as u64;
            self.gpu
                .write(&self.params.buffer, at, bytemuck::cast_slice(now));
        }
        self.cpu_params.copy_from_slice(params);
        self.device_ahead = false;
        Ok(())
    }

    /// Brings running statistics back into the network's buffers.
    pub fn sync_buffers_to_cpu(&mut self) -> Result<()> {
        for layer in 0..self.network.layers_of().places.len() {
            let place = &self.network.layers_of().places[layer];
            let Some(channels) = place.layer.running_channels() else {
                continue;
            };
            let values = self.download(&self.fixed[layer].clone(), 2 * channels)?;
            for (name, part) in [
                ("running_mean", &values[..channels]),
                ("running_var", &values[channels..]),
            ] {
                self.network.set_buffer(&Buffer {
                    name: format!("{layer}.{name}"),
                    shape: vec![channels],
                    values: part.iter().map(|&v| f64::from(v)).collect(),
                })?;
            }
            let name = format!("{layer}.num_batches_tracked");
            let own = self.network.buffers();
            let before = own
                .iter()
                .find(|b| b.name == name)
                .map_or(0.0, |b| b.values[0]);
            self.network.set_buffer(&Buffer {
                name,
                shape: vec![],
                values: vec![before + self.absorbed as f64],
            })?;
        }
        self.absorbed = 0;
        Ok(())
    }
}

fn no_tape(what: &str) -> Error {
    Error::invalid(what, "no tape", "a forward_batch_training before it")
}

/// A plan, and what of the network a step needs beside it.
pub(crate) struct Planned<'a> {
    pub shared: Shared<'a>,
    pub plan: &'a mut GpuPlan,
    pub status: &'a Status,
    pub ring: &'a mut Ring,
    pub scratch: &'a mut Vec<f16>,
}

/// A power of two that brings the largest element to about 2¹⁰: f16 then has 34 bits below it for
/// the others, and 5 above it for sums.
fn scale_for(d_output: &[f32]) -> f32 {
    let largest = d_output.iter().fold(0.0_f32, |m, d| math::max(m, d.abs()));
    if !largest.is_normal() {
        return 1.0;
    }
    let exponent = 10 - math::log2(f64::from(largest)).floor() as i32;
    math::powi(2.0, exponent.clamp(-100, 100)) as f32
}

pub(crate) fn check_len(what: &str, got: usize, needed: usize) -> Result<()> {
    if got == needed {
        return Ok(());
    }
    Err(Error::invalid(what, format!("{got} numbers"), needed))
}
