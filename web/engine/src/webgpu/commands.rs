//! Commands: copies and compute passes.

use std::sync::{Arc, Mutex};

use wgpu::custom::{self, CommandEncoderInterface, ComputePassInterface};

use super::buffer::Buffer;
use super::device::{Group, Thing, lock};
use super::drawing;
use super::host::{self, Object};

/// What commands use, which stays until they are submitted.
type Used = Arc<Mutex<Vec<Arc<[Arc<Object>]>>>>;

/// What was recorded, to be submitted.
#[derive(Debug)]
pub struct Commands {
    pub object: Object,
    _used: Used,
}

impl custom::CommandBufferInterface for Commands {}

#[derive(Debug)]
pub struct Encoder {
    object: Object,
    used: Used,
}

impl Encoder {
    pub fn new(object: Object) -> Self {
        Encoder {
            object,
            used: Used::default(),
        }
    }

    /// A buffer's number, to be used now.
    fn uses(&self, buffer: &custom::DispatchBuffer) -> u32 {
        let Some(buffer) = buffer.as_custom::<Buffer>() else {
            return 0;
        };
        lock(&self.used).push([buffer.object()].into());
        buffer.number()
    }
}

impl CommandEncoderInterface for Encoder {
    fn copy_buffer_to_buffer(
        &self,
        source: &custom::DispatchBuffer,
        source_offset: u64,
        destination: &custom::DispatchBuffer,
        destination_offset: u64,
        copy_size: Option<u64>,
    ) {
        // (Without a size, to the end.)
        let bytes = copy_size.map_or(-1.0, |bytes| bytes as f64);
        let (from, to) = (self.uses(source), self.uses(destination));
        let offsets = [source_offset, destination_offset].map(|offset| offset as f64);
        host::copy(self.object.0, from, offsets[0], to, offsets[1], bytes);
    }

    fn begin_compute_pass(
        &self,
        _: &wgpu::ComputePassDescriptor<'_>,
    ) -> custom::DispatchComputePass {
        custom::DispatchComputePass::custom(Pass {
            object: Object(host::pass(self.object.0)),
            used: Arc::clone(&self.used),
        })
    }

    fn finish(&mut self) -> custom::DispatchCommandBuffer {
        custom::DispatchCommandBuffer::custom(Commands {
            object: Object(host::finish(self.object.0)),
            _used: Arc::clone(&self.used),
        })
    }

    fn clear_buffer(&self, buffer: &custom::DispatchBuffer, offset: u64, size: Option<u64>) {
        let bytes = size.map_or(-1.0, |bytes| bytes as f64);
        host::clear(self.object.0, self.uses(buffer), offset as f64, bytes);
    }

    fn insert_debug_marker(&self, _: &str) {}

    fn push_debug_group(&self, _: &str) {}

    fn pop_debug_group(&self) {}

    fn transition_resources<'a>(
        &mut self,
        _: &mut dyn Iterator<Item = wgpu::wgt::BufferTransition<&'a custom::DispatchBuffer>>,
        _: &mut dyn Iterator<Item = wgpu::wgt::TextureTransition<&'a custom::DispatchTexture>>,
    ) {
        // The browser does that.
    }

    fn write_timestamp(&self, _: &custom::DispatchQuerySet, _: u32) {
        unreachable!("the adapter says that it has no timestamps")
    }

    fn resolve_query_set(
        &self,
        _: &custom::DispatchQuerySet,
        _: u32,
        _: u32,
        _: &custom::DispatchBuffer,
        _: u64,
    ) {
        unreachable!("the adapter says that it has no timestamps")
    }

    fn copy_buffer_to_texture(
        &self,
        _: wgpu::TexelCopyBufferInfo<'_>,
        _: wgpu::TexelCopyTextureInfo<'_>,
        _: wgpu::Extent3d,
    ) {
        drawing!()
    }

    fn copy_texture_to_buffer(
        &self,
        _: wgpu::TexelCopyTextureInfo<'_>,
        _: wgpu::TexelCopyBufferInfo<'_>,
        _: wgpu::Extent3d,
    ) {
        drawing!()
    }

    fn copy_texture_to_texture(
        &self,
        _: wgpu::TexelCopyTextureInfo<'_>,
        _: wgpu::TexelCopyTextureInfo<'_>,
        _: wgpu::Extent3d,
    ) {
        drawing!()
    }

    fn begin_render_pass(&self, _: &wgpu::RenderPassDescriptor<'_>) -> custom::DispatchRenderPass {
        drawing!()
    }

    fn clear_texture(&self, _: &custom::DispatchTexture, _: &wgpu::ImageSubresourceRange) {
        drawing!()
    }

    fn mark_acceleration_structures_built<'a>(
        &self,
        _: &mut dyn Iterator<Item = &'a wgpu::Blas>,
        _: &mut dyn Iterator<Item = &'a wgpu::Tlas>,
    ) {
        drawing!()
    }

    fn build_acceleration_structures<'a>(
        &self,
        _: &mut dyn Iterator<Item = &'a wgpu::BlasBuildEntry<'a>>,
        _: &mut dyn Iterator<Item = &'a wgpu::Tlas>,
    ) {
        drawing!()
    }
}

#[derive(Debug)]
struct Pass {
    object: Object,
    used: Used,
}

impl ComputePassInterface for Pass {
    fn set_pipeline(&mut self, pipeline: &custom::DispatchComputePipeline) {
        if let Some(Thing(pipeline)) = pipeline.as_custom() {
            host::set_pipeline(self.object.0, pipeline.0);
        }
    }

    fn set_bind_group(
        &mut self,
        index: u32,
        bind_group: Option<&custom::DispatchBindGroup>,
        _: &[wgpu::DynamicOffset],
    ) {
        if let Some(group) = bind_group.and_then(|group| group.as_custom::<Group>()) {
            lock(&self.used).push(Arc::clone(&group.buffers));
            host::set_group(self.object.0, index, group.object.0);
        }
    }

    fn dispatch_workgroups(&mut self, x: u32, y: u32, z: u32) {
        host::dispatch(self.object.0, x, y, z);
    }

    fn set_immediates(&mut self, _: u32, _: &[u8]) {
        unreachable!("the kernels have no immediates")
    }

    fn insert_debug_marker(&mut self, _: &str) {}

    fn push_debug_group(&mut self, _: &str) {}

    fn pop_debug_group(&mut self) {}

    fn write_timestamp(&mut self, _: &custom::DispatchQuerySet, _: u32) {
        unreachable!("the adapter says that it has no timestamps")
    }

    fn begin_pipeline_statistics_query(&mut self, _: &custom::DispatchQuerySet, _: u32) {
        unreachable!("the adapter says that it has no statistics")
    }

    fn end_pipeline_statistics_query(&mut self) {
        unreachable!("the adapter says that it has no statistics")
    }

    fn dispatch_workgroups_indirect(&mut self, _: &custom::DispatchBuffer, _: u64) {
        unreachable!("the library says the sizes of its dispatches")
    }

    fn transition_resources<'a>(
        &mut self,
        _: &mut dyn Iterator<Item = wgpu::wgt::BufferTransition<&'a custom::DispatchBuffer>>,
        _: &mut dyn Iterator<Item = wgpu::wgt::TextureTransition<&'a custom::DispatchTextureView>>,
    ) {
        // The browser does that.
    }
}

impl Drop for Pass {
    fn drop(&mut self) {
        host::end(self.object.0);
    }
}
