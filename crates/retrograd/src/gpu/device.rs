//! The chosen device, its buffers and its pipelines.

use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::adapter::{AdapterDescription, Choice, all_adapters, block_on, choose, describe};
use super::counters::{Counters, Counting, GpuEvent, count};
use super::guard;
use super::kernels::{self, Kernel};
use super::mutants::layout;
use super::precision::with_f16;
use crate::error::NO_MEMORY;
use crate::{Error, Result};

/// Iterations after which Mesa's llvmpipe ends the loops of an invocation, all of them together
/// (`LP_MAX_TGSI_LOOP_ITERATIONS`).
const MESA_LOOPS: usize = 65_535;

/// File, whether with 16-bit activations, entry point, constants.
type PipelineKey = (&'static str, bool, &'static str, Vec<(&'static str, u64)>);

/// An open device. Shared by the networks on it.
pub struct Gpu {
    pub(crate) device: wgpu::Device,
    pub(crate) queue: wgpu::Queue,
    pub(crate) limits: wgpu::Limits,
    pub(crate) timestamps: bool,
    /// 16-bit floats in kernels.
    pub(crate) f16: bool,
    /// The CPU reads the device's own buffers: it shares its memory with the device.
    pub(crate) mapped: bool,
    pub(crate) counting: Counting,
    description: AdapterDescription,
    modules: Mutex<HashMap<(&'static str, bool), wgpu::ShaderModule>>,
    pipelines: Mutex<HashMap<PipelineKey, wgpu::ComputePipeline>>,
    /// Files and entry points that were recorded.
    used: Mutex<BTreeSet<(&'static str, &'static str)>>,
    trouble: Arc<Mutex<Option<Trouble>>>,
    /// The largest buffer that is not refused, and how many are made before one is; limits only in tests.
    memory: AtomicU64,
    allocations: AtomicU64,
    /// What happened, where someone asked.
    events: Mutex<Option<Vec<GpuEvent>>>,
    /// The most workgroups along one axis of a dispatch; fewer than the adapter's only in checks.
    max_groups: AtomicU32,
    /// The form of backward passes that have two.
    pub(super) form: super::form::Asked,
    /// Kernels that are recorded count what they read and write.
    pub(super) tallies: AtomicBool,
    /// A deliberate fault, the pipelines that have it, and why one of them could not be made.
    mutation: Mutex<Option<Arc<Mutation>>>,
    mutated: Mutex<HashMap<PipelineKey, wgpu::ComputePipeline>>,
    refused: Mutex<Option<String>>,
}

/// A kernel's text with a fault.
type Changed = dyn Fn(&Kernel) -> Option<String> + Send + Sync;
/// Whether an entry point of a kernel has it.
type Changes = dyn Fn(&Kernel, &str) -> bool + Send + Sync;

/// A deliberate fault of kernels, to show that the checks see it.
pub(crate) struct Mutation {
    /// A kernel's text with it; none for a kernel that stays as it is.
    pub text: Box<Changed>,
    /// Whether an entry point of a kernel is changed by it.
    pub changes: Box<Changes>,
}

/// What the device reported behind our back.
#[derive(Clone, Debug)]
enum Trouble {
    Lost(String),
    Failed(String),
}

/// What is used where an adapter has it.
const WISHES: wgpu::Features = wgpu::Features::SHADER_F16
    .union(wgpu::Features::TIMESTAMP_QUERY)
    .union(wgpu::Features::MAPPABLE_PRIMARY_BUFFERS);

impl Gpu {
    /// Opens an adapter. An error where there is none that fits.
    pub fn open(choice: &Choice) -> Result<Arc<Self>> {
        Self::open_with(choice)
    }

    /// With a deliberate fault: a piece of text in the kernels replaced by another, to show that
    /// the checks see it. An error where no kernel has that text.
    #[doc(hidden)]
    pub fn open_mutated(choice: &Choice, from: &str, to: &str) -> Result<Arc<Self>> {
        if !kernels::all().iter().any(|k| k.text(false).contains(from)) {
            return Err(Error::Gpu {
                what: format!("no kernel has the text {from:?}"),
                advice: "take a piece of a WGSL file as it is now".into(),
            });
        }
        let gpu = Self::open_with(choice)?;
        let (from, to) = (from.to_string(), to.to_string());
        gpu.mutate(Some(Mutation {
            text: Box::new(move |kernel| Some(kernel.text(false).replace(&from, &to))),
            changes: Box::new(|_, _| true),
        }));
        Ok(gpu)
    }

    /// As if the adapter had memory of its own, that the CPU can't map.
    #[doc(hidden)]
    pub fn open_unshared(choice: &Choice) -> Result<Arc<Self>> {
        let mut gpu = Self::open_with(choice)?;
        if let Some(gpu) = Arc::get_mut(&mut gpu) {
            gpu.mapped = false;
        }
        Ok(gpu)
    }

    /// As if the adapter let a kernel see no more bytes of a buffer than that.
    #[doc(hidden)]
    pub fn open_limited(choice: &Choice, binding: u64) -> Result<Arc<Self>> {
        let mut gpu = Self::open_with(choice)?;
        if let Some(gpu) = Arc::get_mut(&mut gpu) {
            gpu.limits.max_storage_buffer_binding_size = binding;
        }
        Ok(gpu)
    }

    /// Whether the CPU maps the buffers that kernels work on.
    pub fn shares_memory(&self) -> bool {
        self.mapped
    }

    fn open_with(choice: &Choice) -> Result<Arc<Self>> {
        let adapters = all_adapters();
        let descriptions: Vec<_> = adapters
            .iter()
            .enumerate()
            .map(|(i, a)| describe(i, a))
            .collect();
        let index = choose(choice, &descriptions)?;
        let adapter = &adapters[index];
        let features = adapter.features() & WISHES;
        let limits = adapter.limits();
        let request = wgpu::DeviceDescriptor {
            label: Some("retrograd"),
            required_features: features,
            required_limits: limits.clone(),
            ..Default::default()
        };
        let (device, queue) =
            block_on(adapter.request_device(&request)).map_err(|e| Error::Gpu {
                what: format!("{} could not be opened: {e}", descriptions[index].name),
                advice: "close programs that hold the device, or choose another one of \
                         `retrograd devices`"
                    .into(),
            })?;
        let trouble = Arc::new(Mutex::new(None));
        let lost = Arc::clone(&trouble);
        device.set_device_lost_callback(move |reason, message| {
            let text = format!("{reason:?} {message}");
            *lock(&lost) = Some(Trouble::Lost(text.trim().into()));
        });
        let failed = Arc::clone(&trouble);
        device.on_uncaptured_error(Arc::new(move |error: wgpu::Error| {
            lock(&failed).get_or_insert_with(|| Trouble::Failed(error.to_string()));
        }));
        Ok(Arc::new(Gpu {
            device,
            queue,
            max_groups: AtomicU32::new(limits.max_compute_workgroups_per_dimension),
            limits,
            timestamps: features.contains(wgpu::Features::TIMESTAMP_QUERY),
            f16: features.contains(wgpu::Features::SHADER_F16),
            mapped: features.contains(wgpu::Features::MAPPABLE_PRIMARY_BUFFERS)
                && ["integrated", "software"].contains(&&descriptions[index].kind[..]),
            counting: Counting::default(),
            description: descriptions[index].clone(),
            modules: Mutex::default(),
            pipelines: Mutex::default(),
            used: Mutex::default(),
            trouble,
            memory: AtomicU64::new(u64::MAX),
            allocations: AtomicU64::new(first_failure()),
            events: Mutex::default(),
            mutation: Mutex::default(),
            mutated: Mutex::default(),
            refused: Mutex::default(),
            form: Default::default(),
            tallies: AtomicBool::new(false),
        }))
    }

    /// An error where an invocation would loop more often than the adapter lets it: it would leave off without a word.
    pub(crate) fn allow_loops(&self, label: &str, iterations: usize) -> Result<()> {
        if self.description.kind != "software" || iterations <= MESA_LOOPS {
            return Ok(());
        }
        Err(Error::Gpu {
            what: format!(
                "{label} takes {iterations} iterations of loops in an invocation, and software Vulkan leaves off after \
                 {MESA_LOOPS}"
            ),
            advice: "take a graphics card, a smaller kernel, smaller images or a smaller batch; or --device cpu"
                .into(),
        })
    }

    /// The adapter behind it.
    pub fn description(&self) -> &AdapterDescription {
        &self.description
    }

    /// Totals since it was opened.
    pub fn counters(&self) -> Counters {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Counters {
            submits: read(&self.counting.submits),
            dispatches: read(&self.counting.dispatches),
            waits: read(&self.counting.waits),
            pauses: read(&self.counting.pauses),
            throttles: read(&self.counting.throttles),
            staging_buffers: read(&self.counting.staging_buffers),
            bytes_up: read(&self.counting.bytes_up),
            bytes_down: read(&self.counting.bytes_down),
            bytes_copied: read(&self.counting.bytes_copied),
            bytes_mapped: read(&self.counting.bytes_mapped),
        }
    }

    /// Gives the device up, as if it were lost: everything after it is an error.
    pub fn destroy(&self) {
        self.device.destroy();
        let _ = self.device.poll(wgpu::PollType::Poll);
        lock(&self.trouble).get_or_insert_with(|| Trouble::Lost("destroyed".into()));
    }

    /// From here on a buffer of more bytes than that is refused, as by a device whose memory is
    /// short.
    #[doc(hidden)]
    pub fn simulate_short_memory(&self, bytes: u64) {
        self.memory.store(bytes, Ordering::Relaxed);
    }

    /// So many buffers can be made from here on, and the next one can't; then others can again.
    #[doc(hidden)]
    pub fn simulate_failing_allocation(&self, after: u64) {
        self.allocations.store(after, Ordering::Relaxed);
    }

    /// Whether the allocation that was to fail has failed.
    #[doc(hidden)]
    pub fn allocation_failed(&self) -> bool {
        self.allocations.load(Ordering::Relaxed) == u64::MAX
    }

    /// What happened since this was last asked; the first time begins it.
    #[doc(hidden)]
    pub fn take_events(&self) -> Vec<GpuEvent> {
        lock(&self.events).replace(Vec::new()).unwrap_or_default()
    }

    pub(crate) fn log(&self, event: GpuEvent) {
        if let Some(events) = &mut *lock(&self.events) {
            events.push(event);
        }
    }

    /// From here on dispatches have at most so many workgroups along an axis, as on an adapter that
    /// allows no more: what is recorded is folded. `None` for the adapter's own limit.
    pub(crate) fn fold_at(&self, groups: Option<u32>) {
        let own = self.limits.max_compute_workgroups_per_dimension;
        let groups = groups.map_or(own, |groups| groups.min(own));
        self.max_groups.store(groups, Ordering::Relaxed);
    }

    /// The most workgroups along an axis.
    pub(crate) fn max_groups(&self) -> u32 {
        self.max_groups.load(Ordering::Relaxed)
    }

    /// From here on kernels have that fault, or none; what the last one left behind is forgotten.
    pub(crate) fn mutate(&self, mutation: Option<Mutation>) {
        lock(&self.mutated).clear();
        *lock(&self.refused) = None;
        *lock(&self.mutation) = mutation.map(Arc::new);
        let mut trouble = lock(&self.trouble);
        if matches!(*trouble, Some(Trouble::Failed(_))) {
            *trouble = None;
        }
    }

    /// Why a kernel with the fault could not be compiled.
    pub(crate) fn refused(&self) -> Option<String> {
        lock(&self.refused).clone()
    }

    /// An error if the device was lost or refused something.
    pub fn check(&self) -> Result<()> {
        match lock(&self.trouble).clone() {
            None => Ok(()),
            Some(Trouble::Lost(text)) => Err(Error::Gpu {
                what: format!("{} was lost ({text})", self.description.name),
                advice: "the CPU copy of the weights is the last that was synchronised; resume \
                         from the last checkpoint, with --device cpu if it happens again"
                    .into(),
            }),
            Some(Trouble::Failed(text)) => Err(Error::Gpu {
                what: text,
                advice: "this is a limit or a fault of the driver; try a smaller batch, another \
                         adapter of `retrograd devices`, or --device cpu"
                    .into(),
            }),
        }
    }

    /// A buffer of that many bytes, zeroed, which grows with the batch. An error where it exceeds a
    /// limit or memory is short.
    pub(crate) fn buffer(
        &self,
        label: &str,
        bytes: u64,
        usage: wgpu::BufferUsages,
    ) -> Result<wgpu::Buffer> {
        self.make_buffer(label, bytes, usage, Grows::WithBatch, false)
    }

    /// The same for one that grows with the model.
    pub(crate) fn model_buffer(
        &self,
        label: &str,
        bytes: u64,
        usage: wgpu::BufferUsages,
    ) -> Result<wgpu::Buffer> {
        self.make_buffer(label, bytes, usage, Grows::WithModel, false)
    }

    /// One that the CPU can write at once.
    pub(crate) fn mapped_buffer(
        &self,
        label: &str,
        bytes: u64,
        usage: wgpu::BufferUsages,
    ) -> Result<wgpu::Buffer> {
        self.make_buffer(label, bytes, usage, Grows::WithBatch, true)
    }

    fn make_buffer(
        &self,
        label: &str,
        bytes: u64,
        usage: wgpu::BufferUsages,
        grows: Grows,
        mapped_at_creation: bool,
    ) -> Result<wgpu::Buffer> {
        // Mapping what a lost device makes would panic.
        self.check()?;
        let wanted = bytes;
        let bytes = bytes.max(16).next_multiple_of(16);
        let most = if usage.contains(wgpu::BufferUsages::STORAGE) {
            self.limits
                .max_buffer_size
                .min(self.limits.max_storage_buffer_binding_size)
        } else {
            self.limits.max_buffer_size
        };
        if bytes > most {
            return Err(Error::Gpu {
                what: format!(
                    "{label} needs {bytes} bytes in one buffer, the adapter allows {most}"
                ),
                advice: match grows {
                    Grows::WithBatch => format!(
                        "take a smaller batch, smaller graphs or smaller images: {:.1} times smaller \
                         would fit; or --device cpu",
                        bytes as f64 / most as f64
                    ),
                    Grows::WithModel => format!(
                        "the model is too large for this adapter: take one with {:.1} times fewer \
                         parameters, another adapter of `retrograd devices`, or --device cpu",
                        bytes as f64 / most as f64
                    ),
                },
            });
        }
        let left = self.allocations.load(Ordering::Relaxed);
        if left != u64::MAX {
            // (0 − 1 is no limit.)
            self.allocations
                .store(left.wrapping_sub(1), Ordering::Relaxed);
        }
        if left == 0 || bytes > self.memory.load(Ordering::Relaxed) {
            return Err(no_memory(label, bytes, grows, "simulated"));
        }
        let scope = self.device.push_error_scope(wgpu::ErrorFilter::OutOfMemory);
        let buffer = self.device.create_buffer(&wgpu::BufferDescriptor {
            label: Some(label),
            size: bytes + guard::bytes(usage),
            usage,
            mapped_at_creation,
        });
        if let Some(error) = block_on(scope.pop()) {
            return Err(no_memory(label, bytes, grows, &error.to_string()));
        }
        self.check()?;
        guard::put(self, label, &buffer, wanted);
        Ok(buffer)
    }

    /// A buffer of f32s that kernels read and write.
    pub(crate) fn floats(&self, label: &str, len: usize) -> Result<wgpu::Buffer> {
        self.buffer(label, 4 * len as u64, storage_usage())
    }

    /// A buffer of f32s that grows with the model.
    pub(crate) fn model_floats(&self, label: &str, len: usize) -> Result<wgpu::Buffer> {
        self.model_buffer(label, 4 * len as u64, storage_usage())
    }

    /// A buffer filled once.
    pub(crate) fn constant(
        &self,
        label: &str,
        contents: &[u8],
        usage: wgpu::BufferUsages,
    ) -> Result<wgpu::Buffer> {
        let usage = usage | wgpu::BufferUsages::COPY_DST;
        let buffer = self.model_buffer(label, contents.len() as u64, usage)?;
        self.write(&buffer, 0, contents);
        Ok(buffer)
    }

    /// Sends bytes; they arrive before the next submit's work.
    pub(crate) fn write(&self, buffer: &wgpu::Buffer, offset: u64, bytes: &[u8]) {
        count(&self.counting.bytes_up, bytes.len() as u64);
        count(&self.counting.bytes_copied, bytes.len() as u64);
        self.queue.write_buffer(buffer, offset, bytes);
    }

    /// Hands a command buffer to the device.
    pub(crate) fn submit(&self, encoder: wgpu::CommandEncoder) -> wgpu::SubmissionIndex {
        count(&self.counting.submits, 1);
        self.queue.submit([encoder.finish()])
    }

    /// Stands still until a submission (or everything) is done.
    pub(crate) fn wait(&self, submission: Option<wgpu::SubmissionIndex>) -> Result<()> {
        count(&self.counting.waits, 1);
        self.settle(submission)
    }

    pub(crate) fn settle(&self, submission: Option<wgpu::SubmissionIndex>) -> Result<()> {
        let poll = wgpu::PollType::Wait {
            submission_index: submission,
            timeout: None,
        };
        if let Err(error) = self.device.poll(poll) {
            lock(&self.trouble).get_or_insert_with(|| Trouble::Failed(error.to_string()));
        }
        self.check()
    }

    /// The kernel's entry point with those constants, compiled once.
    pub(crate) fn pipeline(
        &self,
        kernel: &Kernel,
        half: bool,
        entry: &'static str,
        constants: &[(&'static str, f64)],
    ) -> wgpu::ComputePipeline {
        let bits = constants.iter().map(|&(n, v)| (n, v.to_bits())).collect();
        let key = (kernel.name, half, entry, bits);
        lock(&self.used).insert((kernel.name, entry));
        let mutation = lock(&self.mutation).clone();
        if let Some(mutation) = mutation.filter(|m| (m.changes)(kernel, entry)) {
            return self.mutated_pipeline(&mutation, kernel, key, constants);
        }
        if let Some(pipeline) = lock(&self.pipelines).get(&key) {
            return pipeline.clone();
        }
        let module = lock(&self.modules)
            .entry((kernel.name, half))
            .or_insert_with(|| self.module(kernel.name, kernel.text(half)))
            .clone();
        let pipeline = self.compile(&module, None, entry, constants);
        lock(&self.pipelines).insert(key, pipeline.clone());
        pipeline
    }

    pub(super) fn module(&self, name: &str, text: String) -> wgpu::ShaderModule {
        let source = wgpu::ShaderSource::Wgsl(text.into());
        let label = Some(name);
        self.device
            .create_shader_module(wgpu::ShaderModuleDescriptor { label, source })
    }

    pub(super) fn compile(
        &self,
        module: &wgpu::ShaderModule,
        layout: Option<&wgpu::PipelineLayout>,
        entry: &str,
        constants: &[(&'static str, f64)],
    ) -> wgpu::ComputePipeline {
        self.device
            .create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
                label: Some(entry),
                layout,
                module,
                entry_point: Some(entry),
                compilation_options: wgpu::PipelineCompilationOptions {
                    constants,
                    // Kernels write what they read.
                    zero_initialize_workgroup_memory: false,
                },
                cache: None,
            })
    }

    /// A kernel with a fault. It is bound to what the right one is bound to, whatever it still uses.
    fn mutated_pipeline(
        &self,
        mutation: &Mutation,
        kernel: &Kernel,
        key: PipelineKey,
        constants: &[(&'static str, f64)],
    ) -> wgpu::ComputePipeline {
        if let Some(pipeline) = lock(&self.mutated).get(&key) {
            return pipeline.clone();
        }
        let (half, entry) = (key.1, key.2);
        let text = (mutation.text)(kernel).unwrap_or_else(|| kernel.text(false));
        let text = if half { with_f16(&text) } else { text };
        let bindings = self
            .device
            .create_bind_group_layout(&wgpu::BindGroupLayoutDescriptor {
                label: Some(entry),
                entries: &layout(kernel, entry),
            });
        let layout = self
            .device
            .create_pipeline_layout(&wgpu::PipelineLayoutDescriptor {
                label: Some(entry),
                bind_group_layouts: &[Some(&bindings)],
                immediate_size: 0,
            });
        let scope = self.device.push_error_scope(wgpu::ErrorFilter::Validation);
        let module = self.module(kernel.name, text);
        let pipeline = self.compile(&module, Some(&layout), entry, constants);
        if let Some(error) = block_on(scope.pop()) {
            lock(&self.refused).get_or_insert_with(|| error.to_string());
        }
        lock(&self.mutated).insert(key, pipeline.clone());
        pipeline
    }

    /// The kernels that were recorded since the last call: files and entry points.
    pub(crate) fn take_used(&self) -> BTreeSet<(&'static str, &'static str)> {
        std::mem::take(&mut *lock(&self.used))
    }

    /// The entry points that were compiled so far.
    #[cfg(test)]
    pub(crate) fn recorded(&self) -> Vec<&'static str> {
        lock(&self.pipelines).keys().map(|key| key.2).collect()
    }
}

/// What makes a buffer larger, and so what would make it fit.
#[derive(Clone, Copy)]
enum Grows {
    WithBatch,
    WithModel,
}

/// What the error of an allocation begins with.
/// The allocation of a device that fails, where a test wants that of one that it doesn't open itself.
fn first_failure() -> u64 {
    #[cfg(test)]
    return FIRST_FAILURE.get();
    #[cfg(not(test))]
    u64::MAX
}

#[cfg(test)]
thread_local! {
    pub(crate) static FIRST_FAILURE: std::cell::Cell<u64> = const { std::cell::Cell::new(u64::MAX) };
}

fn no_memory(label: &str, bytes: u64, grows: Grows, error: &str) -> Error {
    let smaller = match grows {
        Grows::WithBatch => "take a smaller batch, or close other programs on the device",
        Grows::WithModel => {
            "close other programs on the device, take a smaller model, or use --device cpu"
        }
    };
    Error::Gpu {
        what: format!("{NO_MEMORY} {label}, {bytes} bytes ({error})"),
        advice: format!("{smaller}; the weights are as they were"),
    }
}

/// What a buffer that kernels work on can be used for.
pub(crate) fn storage_usage() -> wgpu::BufferUsages {
    wgpu::BufferUsages::STORAGE | wgpu::BufferUsages::COPY_DST | wgpu::BufferUsages::COPY_SRC
}

/// A lock whose content is still good after a panic elsewhere.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mixed_precision_without_16_bit_floats_is_refused_with_advice() {
        let mut gpu = Gpu::open(&Choice::Auto).unwrap();
        Arc::get_mut(&mut gpu).unwrap().f16 = false;
        let spec = r#"{"input":[2],"layers":[{"kind":"dense","out":1}]}"#;
        let network = crate::network::Network::new(&serde_json::from_str(spec).unwrap()).unwrap();
        let params = crate::Model::init(&network, 0);
        let scale = crate::gpu::LossScale::default();
        let error = crate::gpu::GpuNetwork::mixed(&gpu, &network, &params, scale);
        let error = error.err().unwrap().to_string();
        assert!(error.contains("--precision f32"), "{error}");
    }

    #[test]
    fn a_destroyed_device_gives_errors_and_not_panics() {
        let gpu = Gpu::open(&Choice::Auto).unwrap();
        gpu.destroy();
        let error = gpu.floats("weights", 4).unwrap_err().to_string();
        assert!(
            error.contains("lost") && error.contains("checkpoint"),
            "{error}"
        );
    }

    #[test]
    fn a_buffer_beyond_the_adapters_limit_is_refused_with_what_would_fit() {
        let gpu = Gpu::open(&Choice::Auto).unwrap();
        let len = (gpu.limits.max_storage_buffer_binding_size / 2) as usize;
        let error = gpu.floats("activations", len).unwrap_err().to_string();
        assert!(
            error.contains("activations") && error.contains("2.0 times smaller"),
            "{error}"
        );
        // A smaller batch doesn't help a model that is too large.
        let error = gpu.model_floats("the parameters", len);
        let error = error.unwrap_err().to_string();
        assert!(
            error.contains("2.0 times fewer parameters") && !error.contains("batch"),
            "{error}"
        );
        gpu.check().unwrap();
    }
}
