//! Batches on their way to the device: a ring of buffers that the CPU writes while earlier steps
//! run.
//!
//! A step takes a buffer that is mapped, writes its batch, and copies it on the device as the first
//! command of its own submit. The buffer is asked to be mapped again and comes back when the device
//! has copied. Where none is back yet, one more is made: nothing waits. The CPU is never more than a
//! fixed number of steps ahead, so the ring soon has all that it will ever need.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use super::counters::count;
use super::device::Gpu;
use crate::{Error, Result};

const READY: u8 = 0;
const AWAY: u8 = 1;
const FAILED: u8 = 2;

struct Staging {
    buffer: wgpu::Buffer,
    state: Arc<AtomicU8>,
}

/// Asks for a buffer to be mapped when everything that was submitted with it is done; the state says
/// whether it was, or could not be.
pub(crate) fn map_when_done(
    buffer: &wgpu::Buffer,
    mode: wgpu::MapMode,
    state: &Arc<AtomicU8>,
    [mapped, failed]: [u8; 2],
) {
    let state = Arc::clone(state);
    buffer.slice(..).map_async(mode, move |result| {
        let to = if result.is_ok() { mapped } else { failed };
        state.store(to, Ordering::Release);
    });
}

#[derive(Default)]
pub(crate) struct Ring {
    buffers: Vec<Staging>,
}

impl Ring {
    /// The number of a buffer that can be written, of at least that many bytes.
    pub fn take(&mut self, gpu: &Gpu, bytes: u64) -> Result<usize> {
        let state = |s: &Staging| s.state.load(Ordering::Acquire);
        // One that could not be mapped again is lost with its device.
        self.buffers.retain(|s| state(s) != FAILED);
        let fits = |s: &Staging| s.buffer.size() >= bytes;
        if let Some(i) = self
            .buffers
            .iter()
            .position(|s| state(s) == READY && fits(s))
        {
            return Ok(i);
        }
        let usage = wgpu::BufferUsages::MAP_WRITE | wgpu::BufferUsages::COPY_SRC;
        let made = Staging {
            buffer: gpu.mapped_buffer("a batch on its way", bytes, usage)?,
            state: Arc::new(AtomicU8::new(READY)),
        };
        count(&gpu.counting.staging_buffers, 1);
        // In place of one that is too small.
        match self.buffers.iter().position(|s| state(s) == READY) {
            Some(i) => {
                self.buffers[i] = made;
                Ok(i)
            }
            None => {
                self.buffers.push(made);
                Ok(self.buffers.len() - 1)
            }
        }
    }

    /// Writes pieces at their offsets, and lets the device have the buffer.
    pub fn write(&self, gpu: &Gpu, i: usize, pieces: &[(u64, &[u8])]) -> Result<&wgpu::Buffer> {
        let buffer = &self.buffers[i].buffer;
        let mut view = buffer.get_mapped_range_mut(..).map_err(|e| Error::Gpu {
            what: format!("a batch could not be sent: {e}"),
            advice: "the device may have been lost; resume from the last checkpoint".into(),
        })?;
        for &(offset, bytes) in pieces {
            if !bytes.is_empty() {
                let at = offset as usize;
                view.slice(at..at + bytes.len()).copy_from_slice(bytes);
                count(&gpu.counting.bytes_up, bytes.len() as u64);
                count(&gpu.counting.bytes_copied, bytes.len() as u64);
            }
        }
        drop(view);
        buffer.unmap();
        Ok(buffer)
    }

    /// To be called when the commands that copy it are submitted.
    pub fn submitted(&self, i: usize) {
        let staging = &self.buffers[i];
        staging.state.store(AWAY, Ordering::Release);
        let mode = wgpu::MapMode::Write;
        map_when_done(&staging.buffer, mode, &staging.state, [READY, FAILED]);
    }
}
