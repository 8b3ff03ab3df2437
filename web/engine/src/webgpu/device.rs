//! A device of the browser's.

use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::{Value, json};
use wgpu::custom::{self, DeviceInterface};
use wgpu::{BufferAsyncError, PollError, PollStatus, UncapturedErrorHandler, wgt};

use super::adapter::Adapter;
use super::buffer::{Buffer, object_of};
use super::commands::Encoder;
use super::host::{self, Object};
use super::{done, drawing};

/// A device, and what waits for it here.
pub struct Opened {
    pub object: Object,
    /// Buffers that are to be mapped, and who is told.
    mapping: Mutex<Vec<(Arc<Object>, custom::BufferMapCallback)>>,
    lost: Mutex<Option<custom::BoxDeviceLostCallback>>,
    failed: Mutex<Option<Arc<dyn UncapturedErrorHandler>>>,
}

impl fmt::Debug for Opened {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "device {}", self.object.0)
    }
}

pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Opened {
    /// Asks for a part of a buffer to be mapped; the callback is called by a [`Opened::settle`].
    pub fn map(
        &self,
        buffer: &Arc<Object>,
        mode: wgpu::MapMode,
        range: std::ops::Range<u64>,
        callback: custom::BufferMapCallback,
    ) {
        let mode = match mode {
            wgpu::MapMode::Read => 1,
            wgpu::MapMode::Write => 2,
        };
        let bytes = (range.end - range.start) as f64;
        host::map(self.object.0, buffer.0, mode, range.start as f64, bytes);
        lock(&self.mapping).push((Arc::clone(buffer), callback));
    }

    /// Tells what has happened: buffers that are mapped, and troubles.
    fn settle(&self) {
        self.tell_troubles();
        let waiting = std::mem::take(&mut *lock(&self.mapping));
        for (buffer, callback) in waiting {
            match host::mapped(buffer.0) {
                0 => lock(&self.mapping).push((buffer, callback)),
                1 => callback(Ok(())),
                _ => {
                    self.fail(wgpu::Error::Internal {
                        source: "the browser refused it".into(),
                        description: "a buffer could not be mapped".into(),
                    });
                    callback(Err(BufferAsyncError));
                }
            }
        }
    }

    fn tell_troubles(&self) {
        loop {
            let bytes = host::trouble(self.object.0);
            if bytes == 0 {
                return;
            }
            let text = host::text(bytes);
            match text.strip_prefix('l') {
                None => self.fail(error_of(&text)),
                Some(why) => {
                    if let Some(callback) = lock(&self.lost).take() {
                        callback(wgpu::DeviceLostReason::Unknown, why.to_string());
                    }
                }
            }
        }
    }

    fn fail(&self, error: wgpu::Error) {
        let handler = lock(&self.failed).clone();
        if let Some(handler) = handler {
            handler(error);
        }
    }
}

/// An error as the page says it: a letter, and words.
fn error_of(text: &str) -> wgpu::Error {
    let description = text.get(1..).unwrap_or_default().to_string();
    let source: wgpu::ErrorSource = description.clone().into();
    match text.chars().next() {
        Some('o') => wgpu::Error::OutOfMemory { source },
        Some('v') => wgpu::Error::Validation {
            source,
            description,
        },
        _ => wgpu::Error::Internal {
            source,
            description,
        },
    }
}

/// An object that nothing is asked of but to be there.
#[derive(Debug)]
pub struct Thing(pub Object);

impl custom::BindGroupLayoutInterface for Thing {}
impl custom::PipelineLayoutInterface for Thing {}

impl custom::ShaderModuleInterface for Thing {
    fn get_compilation_info(&self) -> Pin<Box<dyn custom::ShaderCompilationInfoFuture>> {
        // What is wrong with it comes as a trouble of the device's.
        done(wgpu::CompilationInfo {
            messages: Vec::new(),
        })
    }
}

impl custom::ComputePipelineInterface for Thing {
    fn get_bind_group_layout(&self, index: u32) -> custom::DispatchBindGroupLayout {
        let layout = Object(host::bindings_of(self.0.0, index));
        custom::DispatchBindGroupLayout::custom(Thing(layout))
    }
}

/// Buffers as a pipeline sees them, which stay as long as it does.
#[derive(Debug)]
pub struct Group {
    pub object: Object,
    pub buffers: Arc<[Arc<Object>]>,
}

impl custom::BindGroupInterface for Group {}

/// The number of something of this backend.
macro_rules! number {
    ($object:expr) => {
        $object
            .as_custom::<Thing>()
            .map_or(0, |thing: &Thing| thing.0.0)
    };
}

#[derive(Debug)]
pub struct Device {
    pub opened: Arc<Opened>,
    adapter: Adapter,
}

impl Device {
    pub fn new(number: u32, adapter: Adapter) -> Self {
        let opened = Arc::new(Opened {
            object: Object(number),
            mapping: Mutex::default(),
            lost: Mutex::default(),
            failed: Mutex::default(),
        });
        Device { opened, adapter }
    }

    fn number(&self) -> u32 {
        self.opened.object.0
    }

    fn made(&self, said: Value) -> Thing {
        Thing(host::made(self.number(), &said))
    }
}

/// A binding in words, and its buffer.
fn entry_of(entry: &wgpu::BindGroupEntry<'_>) -> Option<(Value, Arc<Object>)> {
    let wgpu::BindingResource::Buffer(part) = &entry.resource else {
        drawing!()
    };
    let buffer = object_of(part.buffer)?;
    let said = json!({
        "binding": entry.binding,
        "buffer": buffer.0,
        "offset": part.offset,
        "size": part.size,
    });
    Some((said, buffer))
}

fn slot_of(entry: &wgpu::BindGroupLayoutEntry) -> Value {
    let wgpu::BindingType::Buffer { ty, .. } = entry.ty else {
        drawing!()
    };
    let kind = match ty {
        wgpu::BufferBindingType::Uniform => "uniform",
        wgpu::BufferBindingType::Storage { read_only: true } => "read-only-storage",
        wgpu::BufferBindingType::Storage { read_only: false } => "storage",
    };
    json!({ "binding": entry.binding, "type": kind })
}

impl DeviceInterface for Device {
    fn features(&self) -> wgpu::Features {
        custom::AdapterInterface::features(&self.adapter)
    }

    fn limits(&self) -> wgpu::Limits {
        custom::AdapterInterface::limits(&self.adapter)
    }

    fn adapter_info(&self) -> wgpu::AdapterInfo {
        custom::AdapterInterface::get_info(&self.adapter)
    }

    fn create_shader_module(
        &self,
        desc: wgpu::ShaderModuleDescriptor<'_>,
        _: wgpu::ShaderRuntimeChecks,
    ) -> custom::DispatchShaderModule {
        let text = match &desc.source {
            wgpu::ShaderSource::Wgsl(text) => text,
            _ => unreachable!("the library's kernels are WGSL"),
        };
        custom::DispatchShaderModule::custom(Thing(host::shader_of(self.number(), text)))
    }

    // SAFETY: this and the others are methods of wgpu's that ask for it; none of them does anything here.
    unsafe fn create_shader_module_passthrough(
        &self,
        _: &wgpu::ShaderModuleDescriptorPassthrough<'_>,
    ) -> custom::DispatchShaderModule {
        unreachable!("the library's kernels are WGSL")
    }

    fn create_bind_group_layout(
        &self,
        desc: &wgpu::BindGroupLayoutDescriptor<'_>,
    ) -> custom::DispatchBindGroupLayout {
        let entries: Vec<Value> = desc.entries.iter().map(slot_of).collect();
        let made = self.made(json!({ "what": "bindings", "entries": entries }));
        custom::DispatchBindGroupLayout::custom(made)
    }

    fn create_bind_group(&self, desc: &wgpu::BindGroupDescriptor<'_>) -> custom::DispatchBindGroup {
        let entries = desc.entries.iter().filter_map(entry_of);
        let (entries, buffers): (Vec<Value>, Vec<Arc<Object>>) = entries.unzip();
        let layout = number!(desc.layout);
        let Thing(object) =
            self.made(json!({ "what": "group", "layout": layout, "entries": entries }));
        custom::DispatchBindGroup::custom(Group {
            object,
            buffers: buffers.into(),
        })
    }

    fn create_pipeline_layout(
        &self,
        desc: &wgpu::PipelineLayoutDescriptor<'_>,
    ) -> custom::DispatchPipelineLayout {
        let bindings = desc.bind_group_layouts.iter().flatten();
        let bindings: Vec<u32> = bindings.map(|layout| number!(layout)).collect();
        let made = self.made(json!({ "what": "layout", "bindings": bindings }));
        custom::DispatchPipelineLayout::custom(made)
    }

    fn create_compute_pipeline(
        &self,
        desc: &wgpu::ComputePipelineDescriptor<'_>,
    ) -> custom::DispatchComputePipeline {
        let constants = desc.compilation_options.constants.iter();
        let constants: Vec<Value> = constants.map(|c| json!([c.0, c.1])).collect();
        let made = self.made(json!({
            "what": "pipeline",
            "module": number!(desc.module),
            "entry": desc.entry_point,
            "layout": desc.layout.map(|layout| number!(layout)),
            "constants": constants,
        }));
        custom::DispatchComputePipeline::custom(made)
    }

    fn create_buffer(&self, desc: &wgpu::BufferDescriptor<'_>) -> custom::DispatchBuffer {
        let mapped = desc.mapped_at_creation;
        let number = host::buffer(
            self.number(),
            desc.size as f64,
            desc.usage.bits(),
            u32::from(mapped),
        );
        let buffer = Buffer::new(&self.opened, number, mapped);
        custom::DispatchBuffer::custom(buffer)
    }

    fn create_command_encoder(
        &self,
        _: &wgpu::CommandEncoderDescriptor<'_>,
    ) -> custom::DispatchCommandEncoder {
        let object = Object(host::encoder(self.number()));
        custom::DispatchCommandEncoder::custom(Encoder::new(object))
    }

    fn set_device_lost_callback(&self, callback: custom::BoxDeviceLostCallback) {
        *lock(&self.opened.lost) = Some(callback);
    }

    fn on_uncaptured_error(&self, handler: Arc<dyn UncapturedErrorHandler>) {
        *lock(&self.opened.failed) = Some(handler);
    }

    fn push_error_scope(&self, filter: wgpu::ErrorFilter) -> u32 {
        let memory = matches!(filter, wgpu::ErrorFilter::OutOfMemory);
        host::push_scope(self.number(), u32::from(memory));
        0
    }

    fn pop_error_scope(&self, _: u32) -> Pin<Box<dyn custom::PopErrorScopeFuture>> {
        let bytes = host::pop_scope(self.number());
        done((bytes > 0).then(|| error_of(&host::text(bytes))))
    }

    fn poll(&self, poll_type: wgt::PollType<u64>) -> Result<PollStatus, PollError> {
        let status = match poll_type {
            wgt::PollType::Poll => PollStatus::Poll,
            wgt::PollType::Wait { .. } => {
                host::wait(self.number());
                PollStatus::QueueEmpty
            }
        };
        self.opened.settle();
        Ok(status)
    }

    fn get_internal_counters(&self) -> wgpu::InternalCounters {
        wgpu::InternalCounters::default()
    }

    fn generate_allocator_report(&self) -> Option<wgpu::AllocatorReport> {
        None
    }

    fn destroy(&self) {
        host::destroy_device(self.number());
    }

    fn create_query_set(&self, _: &wgpu::QuerySetDescriptor<'_>) -> custom::DispatchQuerySet {
        unreachable!("the adapter says that it has no timestamps")
    }

    fn create_render_pipeline(
        &self,
        _: &wgpu::RenderPipelineDescriptor<'_>,
    ) -> custom::DispatchRenderPipeline {
        drawing!()
    }

    fn create_mesh_pipeline(
        &self,
        _: &wgpu::MeshPipelineDescriptor<'_>,
    ) -> custom::DispatchRenderPipeline {
        drawing!()
    }

    unsafe fn create_pipeline_cache(
        &self,
        _: &wgpu::PipelineCacheDescriptor<'_>,
    ) -> custom::DispatchPipelineCache {
        drawing!()
    }

    fn create_texture(&self, _: &wgpu::TextureDescriptor<'_>) -> custom::DispatchTexture {
        drawing!()
    }

    fn create_external_texture(
        &self,
        _: &wgpu::ExternalTextureDescriptor<'_>,
        _: &[&wgpu::TextureView],
    ) -> custom::DispatchExternalTexture {
        drawing!()
    }

    fn create_blas(
        &self,
        _: &wgpu::CreateBlasDescriptor<'_>,
        _: wgpu::BlasGeometrySizeDescriptors,
    ) -> (Option<u64>, custom::DispatchBlas) {
        drawing!()
    }

    fn create_tlas(&self, _: &wgpu::CreateTlasDescriptor<'_>) -> custom::DispatchTlas {
        drawing!()
    }

    fn create_sampler(&self, _: &wgpu::SamplerDescriptor<'_>) -> custom::DispatchSampler {
        drawing!()
    }

    fn create_render_bundle_encoder(
        &self,
        _: &wgpu::RenderBundleEncoderDescriptor<'_>,
    ) -> custom::DispatchRenderBundleEncoder {
        drawing!()
    }

    unsafe fn start_graphics_debugger_capture(&self) {}

    unsafe fn stop_graphics_debugger_capture(&self) {}
}
