//! Buffers, and the parts of them that are mapped.

use std::ops::Range;
use std::sync::{Arc, Mutex};

use wgpu::custom::{
    BufferInterface, BufferMapCallback, BufferMappedRangeInterface, DispatchBufferMappedRange,
};
use wgpu::{MapMode, MapRangeError, WriteOnly};

use super::device::{Opened, lock};
use super::host::{self, Object};

#[derive(Debug)]
pub struct Buffer {
    opened: Arc<Opened>,
    object: Arc<Object>,
    /// What it is mapped for, or is to be.
    mode: Mutex<MapMode>,
}

/// A buffer's object. Its memory is given back when the last that uses it is gone: groups of bindings, and commands that
/// are not submitted.
pub fn object_of(buffer: &wgpu::Buffer) -> Option<Arc<Object>> {
    buffer.as_custom::<Buffer>().map(Buffer::object)
}

impl Buffer {
    pub fn new(opened: &Arc<Opened>, number: u32, mapped: bool) -> Self {
        let mode = if mapped {
            MapMode::Write
        } else {
            MapMode::Read
        };
        Buffer {
            opened: Arc::clone(opened),
            object: Arc::new(Object(number)),
            mode: Mutex::new(mode),
        }
    }

    pub fn number(&self) -> u32 {
        self.object.0
    }

    pub fn object(&self) -> Arc<Object> {
        Arc::clone(&self.object)
    }
}

impl BufferInterface for Buffer {
    fn map_async(&self, mode: MapMode, range: Range<u64>, callback: BufferMapCallback) {
        *lock(&self.mode) = mode;
        self.opened.map(&self.object, mode, range, callback);
    }

    fn get_mapped_range(
        &self,
        range: Range<u64>,
    ) -> Result<DispatchBufferMappedRange, MapRangeError> {
        let bytes = (range.end - range.start) as usize;
        let (bytes, writes) = match *lock(&self.mode) {
            // (wgpu's error can't be made here. A mapping that failed was told to the device's handler
            // of errors before, which the library asks first.)
            MapMode::Read => {
                let found = host::mapped_bytes(self.number(), range.start, bytes);
                (found.expect("a buffer that is not mapped was read"), false)
            }
            MapMode::Write => (vec![0; bytes], true),
        };
        Ok(DispatchBufferMappedRange::custom(Mapped {
            object: Arc::clone(&self.object),
            start: range.start,
            bytes,
            writes,
        }))
    }

    fn unmap(&self) {
        host::unmap(self.number());
    }

    fn destroy(&self) {
        host::destroy_buffer(self.number());
    }
}

/// The bytes of a mapped part, in the engine's memory: what is written goes to the browser's at the end.
#[derive(Debug)]
struct Mapped {
    object: Arc<Object>,
    start: u64,
    bytes: Vec<u8>,
    writes: bool,
}

impl BufferMappedRangeInterface for Mapped {
    fn len(&self) -> usize {
        self.bytes.len()
    }

    // SAFETY: methods of wgpu's that ask for it; what they give is a vector of this range's own.
    unsafe fn read_slice(&self) -> &[u8] {
        &self.bytes
    }

    unsafe fn write_slice(&mut self) -> WriteOnly<'_, [u8]> {
        WriteOnly::from_mut(&mut self.bytes[..])
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        if self.writes {
            host::filled(self.object.0, self.start, &self.bytes);
        }
    }
}
