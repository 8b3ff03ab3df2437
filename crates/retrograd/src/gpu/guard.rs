//! Guards: numbers behind every buffer of a process that checks kernels.
//!
//! A kernel that reads or writes one row too far mostly does nothing that shows: adapters check accesses
//! against the end of a buffer, and what was read is not stored. With guards there is something behind the
//! end: what is read is far too large, and what is written is missed afterwards.

use std::cell::RefCell;
use std::sync::atomic::{AtomicU64, Ordering};

use super::device::Gpu;
use super::recording::{Part, finish_with_download};
use crate::{Error, Result};

/// Bytes behind a buffer, where there are guards.
const BYTES: u64 = 512;
/// 1e30, in f32; as two f16s, numbers beyond ten thousand.
const WORD: u32 = 0x7149_f2ca;

/// What this process puts behind buffers: nothing, or [`BYTES`].
static BEHIND: AtomicU64 = AtomicU64::new(0);

/// From here on, and before any device is opened, buffers of this process have guards.
pub(crate) fn set_up() {
    BEHIND.store(BYTES, Ordering::Relaxed);
}

/// What is behind a buffer of that usage: those that kernels see have guards.
pub(crate) fn bytes(usage: wgpu::BufferUsages) -> u64 {
    match usage.contains(wgpu::BufferUsages::STORAGE) {
        true => BEHIND.load(Ordering::Relaxed),
        false => 0,
    }
}

thread_local! {
    /// The guards of the buffers that this thread made: checks run side by side.
    static MADE: RefCell<Vec<(String, Part)>> = const { RefCell::new(Vec::new()) };
}

/// Writes the guard of a new buffer, of which so many bytes were asked for.
pub(crate) fn put(gpu: &Gpu, label: &str, buffer: &wgpu::Buffer, wanted: u64) {
    let usage = buffer.usage();
    if bytes(usage) == 0 || !usage.contains(wgpu::BufferUsages::COPY_DST) {
        return;
    }
    let offset = wanted.next_multiple_of(4);
    let part = Part {
        buffer: buffer.clone(),
        offset,
        bytes: buffer.size() - offset,
    };
    let words = vec![WORD; part.bytes as usize / 4];
    gpu.queue
        .write_buffer(buffer, offset, bytemuck::cast_slice(&words));
    MADE.with_borrow_mut(|made| made.push((label.into(), part)));
}

impl Gpu {
    /// An error where a kernel has written behind one of the buffers that this thread made since its
    /// last call.
    pub(crate) fn check_guards(&self) -> Result<()> {
        let guarded = MADE.take();
        let total: u64 = guarded.iter().map(|(_, part)| part.bytes).sum();
        if total == 0 {
            return Ok(());
        }
        let usage = wgpu::BufferUsages::COPY_DST | wgpu::BufferUsages::COPY_SRC;
        let all = Part::whole(&self.buffer("guards", total, usage)?);
        let mut encoder = self.device.create_command_encoder(&Default::default());
        let mut at = 0;
        for (_, part) in &guarded {
            let bytes = part.bytes;
            encoder.copy_buffer_to_buffer(&part.buffer, part.offset, &all.buffer, at, bytes);
            at += bytes;
        }
        let seen = finish_with_download(self, encoder, &all, total as usize / 4)?;
        let mut words = seen.iter();
        for (label, part) in &guarded {
            let mut own = words.by_ref().take(part.bytes as usize / 4);
            // All of them are taken: those of the next begin after them.
            let wrong = own.by_ref().position(|w| w.to_bits() != WORD);
            own.for_each(drop);
            if let Some(place) = wrong {
                return Err(Error::Gpu {
                    what: format!("a kernel wrote {place} words behind {label}"),
                    advice: "this is a fault of a kernel; please report it".into(),
                });
            }
        }
        Ok(())
    }
}
