//! What the browser's adapter is and has.

use std::pin::Pin;

use serde_json::Value;
use wgpu::custom::{
    AdapterInterface, DispatchDevice, DispatchQueue, DispatchSurface, RequestDeviceFuture,
};

use super::device::Device;
use super::queue::Queue;
use super::{done, drawing, host};

/// What the page says of it.
pub fn said() -> Option<Value> {
    match host::describe() {
        0 => None,
        bytes => serde_json::from_str(&host::text(bytes)).ok(),
    }
}

#[derive(Clone, Debug)]
pub struct Adapter(Value);

impl Adapter {
    pub fn found() -> Option<Self> {
        said().map(Adapter)
    }
}

impl AdapterInterface for Adapter {
    fn request_device(&self, _: &wgpu::DeviceDescriptor<'_>) -> Pin<Box<dyn RequestDeviceFuture>> {
        // The page asks for all that the adapter has, which is what the library does.
        done(match host::open() {
            0 => {
                let why = host::text(host::trouble(0));
                Err(wgpu::RequestDeviceError::from_message(why))
            }
            number => {
                let device = Device::new(number, self.clone());
                let queue = Queue::of(&device);
                Ok((DispatchDevice::custom(device), DispatchQueue::custom(queue)))
            }
        })
    }

    fn is_surface_supported(&self, _: &DispatchSurface) -> bool {
        false
    }

    fn features(&self) -> wgpu::Features {
        match self.0["f16"].as_bool() {
            Some(true) => wgpu::Features::SHADER_F16,
            _ => wgpu::Features::empty(),
        }
    }

    /// Those that kernels meet are the adapter's own, the others those that every one has.
    fn limits(&self) -> wgpu::Limits {
        let of = |name: &str, least: u64| self.0["limits"][name].as_u64().unwrap_or(least);
        let narrow = |name: &str, least: u32| of(name, least.into()).min(u32::MAX.into()) as u32;
        let least = wgpu::Limits::default();
        wgpu::Limits {
            max_buffer_size: of("maxBufferSize", least.max_buffer_size),
            max_storage_buffer_binding_size: of(
                "maxStorageBufferBindingSize",
                least.max_storage_buffer_binding_size,
            ),
            max_storage_buffers_per_shader_stage: narrow(
                "maxStorageBuffersPerShaderStage",
                least.max_storage_buffers_per_shader_stage,
            ),
            max_compute_workgroup_storage_size: narrow(
                "maxComputeWorkgroupStorageSize",
                least.max_compute_workgroup_storage_size,
            ),
            max_compute_invocations_per_workgroup: narrow(
                "maxComputeInvocationsPerWorkgroup",
                least.max_compute_invocations_per_workgroup,
            ),
            max_compute_workgroups_per_dimension: narrow(
                "maxComputeWorkgroupsPerDimension",
                least.max_compute_workgroups_per_dimension,
            ),
            ..least
        }
    }

    fn downlevel_capabilities(&self) -> wgpu::DownlevelCapabilities {
        wgpu::DownlevelCapabilities::default()
    }

    fn get_info(&self) -> wgpu::AdapterInfo {
        let text = |name: &str| self.0[name].as_str().unwrap_or_default().to_string();
        let kind = match self.0["software"].as_bool() {
            Some(true) => wgpu::DeviceType::Cpu,
            // Browsers don't say whether a card is its own or a part of the processor.
            _ => wgpu::DeviceType::Other,
        };
        wgpu::AdapterInfo {
            name: text("name"),
            driver: text("driver"),
            ..wgpu::AdapterInfo::new(kind, wgpu::Backend::BrowserWebGpu)
        }
    }

    fn get_texture_format_features(&self, _: wgpu::TextureFormat) -> wgpu::TextureFormatFeatures {
        drawing!()
    }

    fn get_presentation_timestamp(&self) -> wgpu::PresentationTimestamp {
        drawing!()
    }

    fn cooperative_matrix_properties(&self) -> Vec<wgpu::wgt::CooperativeMatrixProperties> {
        Vec::new()
    }
}
