//! A device's queue.

use std::sync::{Arc, Mutex};

use wgpu::custom::{self, QueueInterface};

use super::buffer::Buffer;
use super::commands::Commands;
use super::device::{Device, Opened, lock};
use super::{drawing, host};

#[derive(Debug)]
pub struct Queue {
    opened: Arc<Opened>,
    /// Command buffers that were submitted.
    submitted: Mutex<u64>,
}

impl Queue {
    pub fn of(device: &Device) -> Self {
        Queue {
            opened: Arc::clone(&device.opened),
            submitted: Mutex::default(),
        }
    }
}

impl QueueInterface for Queue {
    fn write_buffer(&self, buffer: &custom::DispatchBuffer, offset: u64, data: &[u8]) {
        let to = buffer.as_custom::<Buffer>().map_or(0, Buffer::number);
        host::written(self.opened.object.0, to, offset, data);
    }

    fn create_staging_buffer(
        &self,
        _: wgpu::BufferSize,
    ) -> Option<custom::DispatchQueueWriteBuffer> {
        None
    }

    fn validate_write_buffer(
        &self,
        _: &custom::DispatchBuffer,
        _: u64,
        _: wgpu::BufferSize,
    ) -> Option<()> {
        None
    }

    fn write_staging_buffer(
        &self,
        _: &custom::DispatchBuffer,
        _: u64,
        _: &custom::DispatchQueueWriteBuffer,
    ) {
        unreachable!("there is no staging buffer")
    }

    fn submit(&self, buffers: &mut dyn Iterator<Item = custom::DispatchCommandBuffer>) -> u64 {
        let mut submitted = lock(&self.submitted);
        for commands in buffers {
            if let Some(commands) = commands.as_custom::<Commands>() {
                host::submit(self.opened.object.0, commands.object.0);
            }
            *submitted += 1;
        }
        *submitted
    }

    fn get_timestamp_period(&self) -> f32 {
        1.0
    }

    fn on_submitted_work_done(&self, callback: custom::BoxSubmittedWorkDoneCallback) {
        host::wait(self.opened.object.0);
        callback();
    }

    fn write_texture(
        &self,
        _: wgpu::TexelCopyTextureInfo<'_>,
        _: &[u8],
        _: wgpu::TexelCopyBufferLayout,
        _: wgpu::Extent3d,
    ) {
        drawing!()
    }

    fn compact_blas(&self, _: &custom::DispatchBlas) -> (Option<u64>, custom::DispatchBlas) {
        drawing!()
    }

    fn present(&self, _: &custom::DispatchSurfaceOutputDetail) {
        drawing!()
    }
}
