//! What a device was asked to do, counted.

use std::sync::atomic::{AtomicU64, Ordering};

/// Totals since the device was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Command buffers handed to the device.
    pub submits: u64,
    /// Kernels started.
    pub dispatches: u64,
    /// Times the CPU stood still until the device was done.
    pub waits: u64,
    /// Times the CPU stood still for a part of a step while the device had more to do.
    pub pauses: u64,
    /// Times the CPU was a whole ring of steps ahead and let the device catch up.
    pub throttles: u64,
    /// Buffers made to send batches through; they are used again and again.
    pub staging_buffers: u64,
    /// Bytes sent to the device.
    pub bytes_up: u64,
    /// Bytes brought back.
    pub bytes_down: u64,
    /// Bytes that the CPU copied on either way, as often as it did.
    pub bytes_copied: u64,
    /// Bytes of those that it read or wrote where the device's kernels do: nothing copies them again.
    pub bytes_mapped: u64,
}

impl Counters {
    /// What was added since an earlier reading.
    pub fn since(self, earlier: Counters) -> Counters {
        Counters {
            submits: self.submits - earlier.submits,
            dispatches: self.dispatches - earlier.dispatches,
            waits: self.waits - earlier.waits,
            pauses: self.pauses - earlier.pauses,
            throttles: self.throttles - earlier.throttles,
            staging_buffers: self.staging_buffers - earlier.staging_buffers,
            bytes_up: self.bytes_up - earlier.bytes_up,
            bytes_down: self.bytes_down - earlier.bytes_down,
            bytes_copied: self.bytes_copied - earlier.bytes_copied,
            bytes_mapped: self.bytes_mapped - earlier.bytes_mapped,
        }
    }
}

#[derive(Default)]
pub(crate) struct Counting {
    pub submits: AtomicU64,
    pub dispatches: AtomicU64,
    pub waits: AtomicU64,
    pub pauses: AtomicU64,
    pub throttles: AtomicU64,
    pub staging_buffers: AtomicU64,
    pub bytes_up: AtomicU64,
    pub bytes_down: AtomicU64,
    pub bytes_copied: AtomicU64,
    pub bytes_mapped: AtomicU64,
}

pub(crate) fn count(counter: &AtomicU64, n: u64) {
    counter.fetch_add(n, Ordering::Relaxed);
}

/// What happens in a hybrid step, in order, for tests: what it gains shows on devices of their own alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[doc(hidden)]
pub enum GpuEvent {
    /// A group of layers was handed to the device.
    Submitted(usize),
    /// Its gradient is on the CPU.
    Arrived(usize),
    /// So many bytes of parameters were sent.
    Sent(u64),
}
